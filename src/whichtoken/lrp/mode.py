"""Run a model under a rule set: every torch operation is intercepted and propagates by its rule."""

import copy
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, partial
from inspect import signature
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.modules._functions import BackwardHookFunction
from torch.overrides import TorchFunctionMode

from whichtoken.errors import RuleGap, UnsupportedModel, UsageError
from whichtoken.lrp.gradient_rules import (
    gate_constant,
    gradient,
    half_gradient,
    half_gradient_of_matmul,
    mark_activated,
)
from whichtoken.lrp.rules import Rule, apply_in_place, carries_relevance
from whichtoken.lrp.rulesets import RuleSet

# The kind of each operation that has a rule, by the name of the torch function or method.
KINDS: Mapping[str, str] = {
    name: kind
    for kind, names in {
        "linear": "linear addmm",
        "matmul": "matmul __matmul__ bmm",
        "add": "add __add__ __radd__ add_",
        "multiply": "mul multiply __mul__ __rmul__ mul_",
        "divide": "div divide true_divide __truediv__ div_",
        "sum": "sum mean",
        "softmax": "softmax",
        "layer_norm": "layer_norm",
        "rms_norm": "rms_norm",
        "activation": "gelu relu silu tanh",
        "negative": "neg negative __neg__",
    }.items()
    for name in names.split()
}
# Modules that take several steps to compute an operation with one rule, by class name.
MODULES: Mapping[str, str] = {
    "rms_norm": r"RMSNorm$|^T5LayerNorm$",
    "activation": r"Activation$|^GELU|(GELU|SiLU)$",
}
# Operations that move values without mixing them: their gradient returns relevance to where it came from.
MOVES = frozenset(
    name
    for names in (
        "view view_as reshape reshape_as flatten unflatten permute transpose swapaxes movedim t squeeze unsqueeze",
        "expand expand_as broadcast_to repeat repeat_interleave contiguous clone chunk split unbind stack cat concat",
        "__getitem__ __get__ select narrow index_select gather roll flip pad where masked_fill",
        "to float double bfloat16 type type_as dropout",
    )
    for name in names.split()
)
READS = frozenset({"__get__", "detach", "size", "dim", "__len__"})  # need no rule, unless they return a view
WIDE = frozenset({torch.float64})
ONE_INPUT = frozenset({"linear", "layer_norm", "rms_norm"})  # their weights must be constants
HOME = "whichtoken.lrp"
# In-place operations (also `+=` and the like), each with its out-of-place function.
IN_PLACE: Mapping[str, Any] = {"add_": torch.add, "mul_": torch.mul, "div_": torch.div}

_applied: ContextVar["_Rules | None"] = ContextVar("whichtoken_rules", default=None)


@contextmanager
def propagating(model: nn.Module, rules: RuleSet, strict: bool = True) -> Iterator[None]:
    """Apply the rules to forward passes inside the block: outputs stay the same, backward carries relevance.

    Affects this thread only, and is undone on exit; threads that do this at the same time need a model (a twin) each.
    Parameters must be frozen, because relevance goes to every tensor that requires a gradient. `strict`: an operation
    without a rule raises RuleGap; otherwise it keeps its ordinary gradient. Operations that bypass torch's Python
    functions (a scripted function, vmap) cannot be intercepted.
    """
    modules = list(model.named_modules())
    scripted = next((name for name, module in modules if isinstance(module, torch.jit.ScriptModule)), None)
    if scripted is not None:
        raise UnsupportedModel(f"module {scripted} is compiled by torch.jit, so its operations cannot be intercepted")
    if any(held is not None and held.requires_grad for _, module in modules for held in module._parameters.values()):
        learning = next(name for name, parameter in model.named_parameters() if parameter.requires_grad)
        raise UsageError(f"parameter {learning} requires a gradient, so relevance would go to it; freeze the model")
    mode = _Rules(rules, strict)
    with ExitStack() as stack:
        for _, module in modules:
            kind = _kind_of_module(type(module).__name__)
            if kind is not None and kind in rules.rules:
                _treat_as_one_step(stack, module, rules.rules[kind], mode)
                if kind == "activation" and module._forward_hooks:
                    stack.enter_context(module.register_forward_hook(_mark_after_hooks))
        stack.enter_context(mode)
        stack.callback(_applied.reset, _applied.set(mode))
        yield


@cache
def _kind_of_module(class_name: str) -> str | None:
    """Return which operation with one rule a module of this class computes; None: none, or several."""
    return next((kind for kind, pattern in MODULES.items() if re.search(pattern, class_name)), None)


@contextmanager
def suspend_rules() -> Iterator[None]:
    """Apply no rules inside the block: a hook that runs in a pass under rules may itself explain a model."""
    token = _applied.set(None)
    try:
        yield
    finally:
        _applied.reset(token)


class ReappliedRules:
    """Applies the rules of the enclosing pass to what is computed again inside a backward pass, where torch suspends
    them, because they intercept the call of the backward pass itself. A context that can be entered repeatedly.
    """

    def __init__(self) -> None:
        self._entered: list[_Rules | None] = []

    def __enter__(self) -> None:
        self._entered.append(mode := _applied.get())
        if mode is not None:
            mode.__enter__()  # type: ignore[no-untyped-call]  # of torch

    def __exit__(self, *error: object) -> None:
        if (mode := self._entered.pop()) is not None:
            mode.__exit__(*error)  # type: ignore[no-untyped-call]  # of torch


@dataclass(frozen=True, eq=False)
class _OneStep:
    """Replaces the `forward` of a module, which computes on a constant, so that none of its steps gets a rule; one rule
    applies to the whole. It is no hook, so that the user's hooks stay outside, where rules apply.
    """

    module: nn.Module
    run: Callable[..., Any]  # what it replaces
    rule: Rule
    mode: "_Rules"
    dtypes: frozenset[torch.dtype]  # of the module's parameters
    thread: int = field(default_factory=get_ident)

    def __call__(self, *args: Any, **options: Any) -> Any:
        # Other threads, twins and passes without rules may call it, too. Without a positional argument, it is not known
        # which one is the input, so that each step has to have a rule.
        if _applied.get() is not self.mode or not args:
            return self.run(*args, **options)
        x, *others = args
        constant = x.detach()
        constant = constant.clone() if getattr(self.module, "inplace", False) else constant
        # The mode converts weights that are narrower than x; if there are none, nothing has to be intercepted.
        with torch._C.DisableTorchFunction() if self.dtypes <= {x.dtype} else nullcontext():
            output = self.run(constant, *others, **options)
        if not carries_relevance(x):
            return output

        def compute(tensor: Tensor) -> Any:
            return self.run(tensor, *others, **options) if carries_relevance(tensor) else output

        with torch._C.DisableTorchFunction():  # a rule's own steps need no rules
            return self.rule(compute, x)

    def __deepcopy__(self, copies: dict[int, Any]) -> Any:
        """Return what it replaces, on the copied module: a twin of a model to which the user applies rules has none."""
        return copy.deepcopy(self.run, copies)


def _treat_as_one_step(stack: ExitStack, module: nn.Module, rule: Rule, mode: "_Rules") -> None:
    own = vars(module).get("forward")
    if isinstance(own, _OneStep) and own.module is module and own.thread != get_ident():
        raise UsageError(
            f"another thread is applying rules to this {type(module).__name__}; give each thread its own copy of the "
            "model"
        )
    dtypes = frozenset(parameter.dtype for parameter in module.parameters())
    module.forward = _OneStep(module, module.forward, rule, mode, dtypes)
    stack.callback(partial(setattr, module, "forward", own) if own is not None else partial(delattr, module, "forward"))


def _mark_after_hooks(module: nn.Module, args: Any, output: Any) -> Any:
    """Mark what the user's hooks made of the output of an activation function: the rule for gates looks for it."""
    return mark_activated(lambda: output) if carries_relevance(output) else output


class _Rules(TorchFunctionMode):
    def __init__(self, rules: RuleSet, strict: bool) -> None:
        super().__init__()
        self.rules, self.strict = rules, strict
        self.ordinary, self.ordinary_by_constant = _ordinary_names(rules)

    def __torch_function__(
        self, operation: Any, types: Any, args: tuple[Any, ...] = (), options: dict[str, Any] | None = None
    ) -> Any:
        options = options or {}
        if _applied.get() is not self:
            return operation(*args, **options)
        name = getattr(operation, "__name__", "") or str(operation)
        if name in READS and not carries_relevance(result := operation(*args, **options)):
            return result
        tensors = _tensors((*args, *options.values()))
        carrying = [x for x in tensors if x.requires_grad]
        kind = KINDS.get(name)
        if not carrying or kind != "linear":  # its rule has a precision of its own
            args, options = self._match_precision(name, args, options, tensors)
        if not carrying or not torch.is_grad_enabled():
            return operation(*args, **options)
        if self.strict and any(map(_is_foreign, carrying)):
            raise RuleGap(self.rules.name, "a custom autograd function", _find_running_module())
        if self._is_ordinary(name, args, carrying):
            return operation(*args, **options)
        if name == "scaled_dot_product_attention":
            with self:  # each of its steps gets its own rule
                return _attention(*args, **options)
        rule = None if kind is None else self.rules.rules.get(kind)
        if rule is not None:
            with suppress(NotImplementedError):
                return _apply_rule(rule, operation, name, args, options)
            args, options = self._match_precision(name, args, options, tensors)
        result = operation(*args, **options)
        if self.strict and name not in MOVES and _is_lost(name, result):
            raise RuleGap(self.rules.name, name, _find_running_module())
        return result

    def _is_ordinary(self, name: str, args: tuple[Any, ...], carrying: Sequence[Tensor]) -> bool:
        """Return whether a rule would keep the ordinary gradient, so that it need not be called."""
        if name in self.ordinary:
            return KINDS.get(name) not in ONE_INPUT or [*map(id, carrying)] == [*map(id, args[:1])]
        return len(carrying) == 1 and name in self.ordinary_by_constant

    def _match_precision(
        self, name: str, args: tuple[Any, ...], options: dict[str, Any], tensors: Sequence[Tensor]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # A gradient has the model's own precision.
        return (args, options) if self.rules.carries == "gradient" else _match_precision(name, args, options, tensors)


def _ordinary_names(rules: RuleSet) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of operations whose rule is their ordinary gradient: always, and by a constant."""
    if rules.carries != "gradient":
        return frozenset(), frozenset()
    always, by_constant = (
        frozenset(
            name
            for name, kind in KINDS.items()
            if rules.rules.get(kind) in those and name not in IN_PLACE and name != "addmm"
        )
        for those in ((gradient,), (half_gradient, half_gradient_of_matmul, gate_constant))
    )
    return MOVES | always, by_constant


def _is_lost(name: str, result: Any) -> bool:
    """Return whether relevance would be propagated through an operation that has no rule."""
    return name == "__setitem__" or any(x.requires_grad for x in _tensors((result,)))


def _match_precision(
    name: str, args: tuple[Any, ...], options: dict[str, Any], tensors: Sequence[Tensor]
) -> tuple[Any, dict[str, Any]]:
    """Convert floating-point operands to float64 if any of them is. `tensors`: all operands.

    Relevance may be propagated in float64 through a model in float32: its weights are converted one operation at a
    time, so that there is never a second copy of the model. In-place operations must not work on a copy.
    """
    dtypes = {x.dtype for x in tensors}
    if torch.float64 not in dtypes or len(dtypes) == 1 or not any(x.is_floating_point for x in dtypes - WIDE):
        return args, options
    if name == "__setitem__" or (name.endswith("_") and not name.endswith("__")):
        return args, options
    return _widen(args), {key: _widen(value) for key, value in options.items()}


def _widen(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(_widen(item) for item in value)
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def _apply_rule(rule: Rule, operation: Any, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Tensor:
    """Return the result of the rule; raise NotImplementedError if it does not cover this kind of call."""
    keywords = {"dim" if key == "axis" else key: value for key, value in options.items()}
    args = (*args, *(keywords.pop(key) for key in ("input", "other", "mat2") if key in keywords))
    if name == "addmm":  # bias + x W, as in GPT-2
        if len(args) != 3 or keywords:
            raise NotImplementedError
        operation, args = linear, (args[1], args[2].mT, args[0])
    if KINDS[name] in ONE_INPUT and any(map(carries_relevance, _tensors((*args[1:], *keywords.values())))):
        raise NotImplementedError
    if keywords.pop("inplace", False):
        raise NotImplementedError
    run = partial(apply_in_place, rule, IN_PLACE[name]) if name in IN_PLACE else partial(rule, operation)
    if not _accepts(rule, len(args), tuple(keywords)):
        raise NotImplementedError
    return run(*args, **keywords)


@cache
def _accepts(rule: Rule, n_args: int, keywords: tuple[str, ...]) -> bool:
    """Return whether a rule can be called with an operation and these arguments."""
    try:
        signature(rule).bind(None, *range(n_args), **dict.fromkeys(keywords))
    except TypeError:
        return False
    return True


def _is_foreign(x: Tensor) -> bool:
    """Return whether x comes from somebody else's autograd function, whose steps cannot be intercepted."""
    function = getattr(x.grad_fn, "_forward_cls", None)
    return (
        function not in (None, BackwardHookFunction)  # torch's own, which calls the user's backward hooks
        and not function.__module__.startswith(HOME)
        and not getattr(function, "propagates_relevance", False)
    )


def _attention(  # noqa: PLR0913, PLR0917  # torch's own signature
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute what the fused function computes, step by step."""
    if enable_gqa:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(repeats, -3), value.repeat_interleave(repeats, -3)
    scores = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, torch.finfo(scores.dtype).min)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return scores.softmax(-1) @ value


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    """Return the tensors among values, and in lists and tuples among them."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, tuple | list):
            found += _tensors(value)
    return found


def _find_running_module() -> str:
    """Return the class of the innermost running module, and its name in the outermost one."""
    running: list[nn.Module] = []
    frame = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and not (running and running[-1] is owner):
            running.append(owner)
        frame = frame.f_back  # type: ignore[assignment]
    if not running:
        return "no module"
    names = [name for name, module in running[-1].named_modules() if module is running[0]]
    return f"{type(running[0]).__name__} ({names[0]})" if names and names[0] else type(running[0]).__name__
