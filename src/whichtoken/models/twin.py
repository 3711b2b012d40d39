"""The twin of a model: a structural copy that shares its weights.

All changes that a pass needs (hooks, another attention implementation, frozen parameters) are made to the twin. The
user's model is never modified, so nothing has to be restored, and other threads may call or train it at the same time.
"""

import copy
import copyreg
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from operator import is_
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedConfig

from whichtoken.errors import UnsupportedModel

TENSORS = frozenset({"_parameters", "_buffers"})
CALLED_IN_A_PASS = frozenset({"_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"})
HOOKS = ("_hooks", "_hooks_with_kwargs", "_hooks_always_called")  # endings of names of a module's dictionaries of hooks
COMPILED = "_compiled_call_impl"  # calls the module that was compiled, so it is not copied; `deepcopy` drops it, too
LIBRARIES = frozenset({"torch", "transformers", "peft"})
IMMUTABLE = frozenset({type(None), bool, int, float, str, torch.dtype, torch.device})

_running: ContextVar[tuple[Any, ...]] = ContextVar("whichtoken_running_hooks", default=())


def make_twin(model: Any) -> Any:
    """Copy modules and configuration; parameters become frozen views of the same storage, and buffers views, too.

    This takes milliseconds and almost no memory, and in-place updates of the weights take effect. The views have
    version counters of their own, so autograd does not notice a training step of another thread between our forward and
    our backward pass. Scores are then computed from weights of before and after that step: finite, but of no one state
    of the model. Other threads may also load weights or add hooks during the copy, but not add modules.

    The user's hooks are shared, not copied, because a hook that is a method must reach the object that the user
    registered. A hook that itself explains the model is not run again in the passes of that call.
    """
    memo = _Memo({}, [])
    with torch.inference_mode(False):
        modules = [(module, memo.hold(vars(module))) for module in list_modules(model)]
        kinds = {kind: _is_plain(kind) for kind in {type(module) for module, _ in modules}}
        plain = []
        for module, items in modules:
            content, others = _share_tensors_and_hooks(memo, items)
            if kinds[type(module)]:
                made = memo.start(module)
                made.__dict__ = content
                plain.append((content, others))
        try:
            for content, others in plain:
                for name, value in others:
                    content[name] = memo.copy(value)
            return copy.deepcopy(model, memo.copies)
        except Exception as error:  # any exception, from a part that cannot be copied
            raise UnsupportedModel(
                f"{type(model).__name__} cannot be copied, and whichtoken runs on a copy so as not to modify it: "
                f"{type(error).__name__}: {error}; remove the part that cannot be copied (an open file, a lock)"
            ) from error


def _share_tensors_and_hooks(
    memo: "_Memo", items: Sequence[tuple[str, Any]]
) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    """Return the attributes of a twin's module that need no copy, and the others, which can refer to other modules.

    All attributes are among the first, in their order; those that are copied later have a placeholder.
    """
    content, others = dict[str, Any](), []
    for name, value in items:
        if type(value) in IMMUTABLE:
            content[name] = value
        elif name in TENSORS:
            shared = {key: memo.share(tensor) for key, tensor in memo.hold(value)} if value else {}
            content[name] = memo.copies[id(value)] = shared
        elif _holds_hooks(name) and isinstance(value, dict):
            hooks: Iterable[tuple[Any, Any]] = list(value.items()) if value else ()
            if name in CALLED_IN_A_PASS:
                hooks = [(key, _Guarded(hook)) for key, hook in hooks]
            content[name] = memo.copies[id(value)] = OrderedDict(hooks)
        elif name != COMPILED:
            if isinstance(value, Tensor):
                memo.share(value)
            content[name] = None
            others.append((name, value))
    return content, others


@cache
def _holds_hooks(name: str) -> bool:
    """Return whether an attribute of this name holds hooks; most names occur in every module."""
    return name.endswith(HOOKS)


def _is_plain(kind: type) -> bool:
    """Return whether modules of this class can be copied attribute by attribute: `deepcopy` would do the same, slower.

    A class that defines how its objects are copied is left to `deepcopy`.
    """
    ways = ("__reduce_ex__", "__reduce__", "__getstate__", "__setstate__", "__new__")
    return (
        issubclass(kind, nn.Module)
        and all(getattr(kind, way, None) is getattr(nn.Module, way, None) for way in ways)
        and not hasattr(kind, "__deepcopy__")
        and not any(vars(parent).get("__slots__") for parent in kind.__mro__)
        and kind not in copyreg.dispatch_table
    )


def has_hooks(model: nn.Module) -> bool:
    """Return whether a pass calls hooks."""
    return _holds_any(model, CALLED_IN_A_PASS)


def runs_as_written(model: nn.Module) -> bool:
    """Return whether all modules are of known libraries, and no hook or compiled module depends on shapes inside."""
    classes = {kind.__module__.partition(".")[0] for kind in set(map(type, list_modules(model)))}
    is_own = type(model).__module__.startswith("transformers.") and classes <= LIBRARIES
    return is_own and not _holds_any(model, CALLED_IN_A_PASS | {COMPILED, "forward"})


def _holds_any(model: nn.Module, names: frozenset[str]) -> bool:
    """Return whether a module has one of these attributes, and it is not empty."""
    for held in map(vars, list_modules(model)):
        for name in names:
            if held.get(name):
                return True
    return False


@dataclass(frozen=True)
class _Memo:
    """What `deepcopy` must not copy: a replacement for each object, by its id."""

    copies: dict[int, Any]
    originals: list[Any]  # keeps them alive: if another thread replaced one meanwhile, its id could be used again

    def hold(self, mapping: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Return the items of a dictionary that another thread may change, and keep them alive."""
        items = list(mapping.items())
        self.originals.append(items)
        return items

    def start(self, module: nn.Module) -> nn.Module:
        """Return the copy of a module, still without content, so that others can refer to it."""
        made: nn.Module = object.__new__(type(module))
        self.copies[id(module)] = made
        return made

    def copy(self, value: Any) -> Any:
        """Return what `deepcopy` would, without calling it for values that need no copy."""
        if type(value) in IMMUTABLE:
            return value
        known = self.copies.get(id(value))
        if known is None and type(value) is set and not value:  # every module has one
            known = self.copies[id(value)] = set()
        elif known is None and type(value) is dict:  # most often of submodules
            known = self.copies[id(value)] = {}
            known.update((self.copy(key), self.copy(item)) for key, item in self.hold(value))
        return copy.deepcopy(value, self.copies) if known is None else known

    def share(self, tensor: Tensor | None) -> Tensor | None:
        """Return the twin's tensor, the same one if several modules hold it."""
        if tensor is None or id(tensor) in self.copies:
            return self.copies.get(id(tensor))  # None for a parameter that a module does not have
        # Unlike detach(), .data has a version counter of its own. Inference tensors cannot be part of a graph.
        data = tensor.clone() if tensor.is_inference() else tensor.data
        is_parameter = isinstance(tensor, nn.Parameter)
        shared = self.copies[id(tensor)] = nn.Parameter(data, requires_grad=False) if is_parameter else data
        return shared


@dataclass(frozen=True, eq=False)
class _Guarded:
    """A hook of the user, which does nothing while it is running already: it would call itself without end."""

    hook: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        running = _running.get()
        if any(hook is self.hook for hook in running):
            return None
        token = _running.set((*running, self.hook))
        try:
            return self.hook(*arguments)
        finally:
            _running.reset(token)


# Spare twins: between two calls, a twin is kept, with what its model and itself were like. If either has changed, or
# could have changed unnoticed, it is dropped, and a new one is made.

FIXED = (nn.Module, type, FunctionType, BuiltinFunctionType, MethodType, partial, torch.dtype, torch.device)
HOLDING = (dict, OrderedDict, list, tuple, set, frozenset)


@dataclass(frozen=True)
class Snapshot:
    """What a model was like: the contents of its modules and of its configuration, and where its tensors were."""

    contents: list[tuple[Any, Any]]  # a dictionary, list or set of the model, and a copy of it
    tensors: list[tuple[Tensor, Hashable]]

    def holds(self) -> bool:
        """Return whether the model is still like this. What is held must be the same objects: equal ones are in doubt.
        Values that were written in place do not count, as twins share them.
        """
        same = all(_has_same_items(now, then) for now, then in self.contents if now or then)  # most are empty
        return same and all(_place_of(tensor) == place for tensor, place in self.tensors)

    @property
    def places(self) -> set[Hashable]:
        return {place for _, place in self.tensors}


def take_snapshot(model: nn.Module, with_settings: bool = True) -> Snapshot | None:
    """Return a snapshot; None if some part of the model could change unnoticed. `with_settings`: of its configuration,
    too, which calls change in a twin: each chooses how attention is computed.
    """
    found = Snapshot([], [])
    waiting: list[Any] = [vars(module) for module in list_modules(model)]
    seen = set(map(id, waiting))
    while waiting:
        held = waiting.pop()
        for value in list(held.values()) if isinstance(held, dict) else held:
            kind = type(value)
            if kind in IMMUTABLE or isinstance(value, FIXED):
                continue
            if isinstance(value, Tensor):
                if value.is_inference() or kind not in (Tensor, nn.Parameter, nn.Buffer):
                    return None
                found.tensors.append((value, _place_of(value)))
                continue
            is_settings = isinstance(value, PreTrainedConfig | GenerationConfig)
            if kind not in HOLDING and not is_settings:
                return None
            inner = vars(value) if is_settings else value
            if id(inner) not in seen and (with_settings or not is_settings):
                seen.add(id(inner))
                waiting.append(inner)
        found.contents.append((held, type(held)(held)))
    return found


def _has_same_items(now: Any, then: Any) -> bool:
    if len(now) != len(then):
        return False
    if isinstance(now, dict):
        return all(map(is_, now.values(), then.values())) and [*now] == [*then]
    return bool(now == then) if isinstance(now, set | frozenset) else all(map(is_, now, then))


def _place_of(tensor: Tensor) -> Hashable:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device


@dataclass(frozen=True)
class Spare:
    """A twin that waits for the next call, or that a call has borrowed."""

    model: Any
    twin: Any
    of_model: Snapshot | None = None  # None: it cannot be used again
    of_twin: Snapshot | None = None
    subject: Any = None  # of the last call

    def fits(self, model: Any) -> bool:
        """Return whether it is a twin of this model, which may be another one, and neither has changed."""
        return self.model is model and all(
            snapshot is not None and snapshot.holds() for snapshot in (self.of_model, self.of_twin)
        )


def make_spare(model: Any, before: Snapshot | None, twin: Any) -> Spare:
    """Return a twin, which may be used again unless changes could go unnoticed, or it has values of its own. `before`:
    a snapshot of the model, taken before the twin was made, because another thread may have changed it meanwhile.
    """
    of_twin = take_snapshot(twin, with_settings=False)
    if before is None or of_twin is None or not of_twin.places <= before.places or not before.holds():
        return Spare(model, twin)
    return Spare(model, twin, before, of_twin)


# Walks through the modules of a model: what `named_modules` of torch does, in a fraction of its time. Torch passes each
# module through as many generators as it is deep; several walks of that kind were a noticeable part of a short call.


def list_modules(model: nn.Module) -> list[nn.Module]:
    """Return all modules, each once, in the order of `model.modules()`."""
    found, waiting = dict[nn.Module, None](), [model]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found[module] = None
            waiting += [child for child in reversed(module._modules.values()) if child is not None]
    return list(found)


def list_named_modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return all modules, each once under its first name, in the order of `model.named_modules()`."""
    found, waiting = dict[nn.Module, str](), [("", model)]
    while waiting:
        name, module = waiting.pop()
        if module not in found:
            found[module] = name
            prefix = f"{name}." if name else ""
            waiting += [(prefix + key, child) for key, child in reversed(module._modules.items()) if child is not None]
    return [(name, module) for module, name in found.items()]
