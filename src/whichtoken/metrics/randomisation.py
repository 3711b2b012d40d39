"""Model randomisation: does an attribution change when the model's weights are randomised?

Adebayo et al., "Sanity Checks for Saliency Maps", NeurIPS 2018, the cascading test: the classification head is
randomised, then the last block as well, the last two, and so on. A method that ranks tokens as before (tau near 1) does
not depend on what was randomised: attention weights, for example, do not depend on the head.

Deviation: each tensor is drawn from a normal distribution with its own mean and standard deviation, not by the model's
initialisation, so that magnitudes stay plausible and norms stay norms.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import torch
from torch import nn

from whichtoken._explain import explain_each
from whichtoken.core.registry import resolve_methods
from whichtoken.core.trace import Ask, Method
from whichtoken.errors import BadInput, BadSetting, UnsupportedModel
from whichtoken.heads.mask import HeadMask
from whichtoken.metrics.ranks import kendall
from whichtoken.models import AnySubject, Subject, as_subject
from whichtoken.models.quantised import find_integer_weights
from whichtoken.records import Attribution
from whichtoken.references._build import build as build_references
from whichtoken.targets import Target
from whichtoken.tasks import task_for


@dataclass(frozen=True)
class Sanity:
    """How much of a method's ranking remains on a randomised model."""

    method: str
    n_blocks: int  # randomised besides the head, from the last; one more than the model has includes the embeddings
    tau: float | None  # Kendall's tau-b of the scores of content tokens, mean over texts; None if n_texts is 0
    n_texts: int  # texts whose tokens the method ranks, that is, scores differently, on the original model


def randomised(subject: AnySubject, n_blocks: int, seed: int = 0) -> Subject:
    """Return the subject with a copy of its model whose head and last `n_blocks` blocks are randomised.

    One more than the model has blocks randomises everything, embeddings included. (Blocks that share weights, as in
    ALBERT, count once.) The values of a tensor depend only on its name and the seed, so the head is the same for every
    `n_blocks`. The head mask is kept; a reference library, which holds the model's activations, is dropped.
    """
    subject = as_subject(subject)
    _check_seed(seed)
    _check_n_blocks(subject, n_blocks)
    fixed = find_integer_weights(subject.model)
    if fixed is not None:
        raise UnsupportedModel(f"the weights of {fixed} are not parameters but integers; load the model in float32")
    model = deepcopy(subject.model)
    what = f"head and {n_blocks} blocks" if n_blocks <= len(subject.blocks) else "everything"
    name = f"{subject.title}, {what} randomised with seed {seed}"
    copy = replace(subject, model=model, name=name, revision="", references=None, heads=None)
    with torch.no_grad():
        for key, parameter in _last_parameters(copy, n_blocks):
            _redraw(parameter, f"{seed} {key}")
    return copy if subject.heads is None else copy.with_heads(_bind_mask(subject.heads, copy))


def sanity_check(
    subject: AnySubject,
    texts: Iterable[Any],
    methods: str | Method | Iterable[str | Method],
    seed: int = 0,
    depths: Sequence[int] | None = None,
) -> list[Sanity]:
    """Return, for each method and number of randomised blocks, how well the rankings on both models agree.

    Both models are explained for the original model's prediction. `depths`: numbers of blocks, as in `randomised`; None
    goes from the head alone to everything. Methods that contrast with references get some of the texts as references,
    with each model's own activations. A text whose tokens all have the same score has no ranking and does not count.
    """
    subject = as_subject(subject)
    task = task_for(subject)
    _check_seed(seed)
    inputs, resolved = list(task.inputs(texts)), resolve_methods(methods)
    if not inputs:
        raise BadInput("no texts were given; a sanity check needs at least one")
    all_depths = (0, *default_depths(len(subject.blocks)), len(subject.blocks) + 1) if depths is None else tuple(depths)
    for n_blocks in all_depths:
        _check_n_blocks(subject, n_blocks)
    for mask in (mask for method in resolved.values() for mask in _masks(method).values()):
        subject.check_heads(mask)
    results = explain_each(subject, inputs, ["random"], long=task.bench_long)
    targets = [result["random"].target for result in results]
    before = _content_scores(subject, inputs, targets, resolved)
    if not any(len(scores) > 1 for scores in next(iter(before.values()))):
        raise BadInput("no text has two content tokens or more, so there is nothing to rank; give longer texts")
    checks: dict[tuple[str, int], Sanity] = {}
    for n_blocks in all_depths:
        after = _content_scores(randomised(subject, n_blocks, seed), inputs, targets, resolved)
        for key in resolved:
            pairs = [(a, b) for a, b in zip(before[key], after[key], strict=True) if len(set(a)) > 1]
            tau = fmean(kendall(a, b) for a, b in pairs) if pairs else None
            checks[key, n_blocks] = Sanity(key, n_blocks, tau, len(pairs))
    return [checks[key, n_blocks] for key in resolved for n_blocks in all_depths]


def default_depths(n_layers: int) -> tuple[int, ...]:
    """Return 1 to `n_layers`; for more than 8 layers only every second number."""
    if n_layers <= 8:
        return tuple(range(1, n_layers + 1))
    return tuple(sorted({1, *range(2, n_layers + 1, 2), n_layers}))


def _last_parameters(subject: Subject, n_blocks: int) -> list[tuple[str, nn.Parameter]]:
    """Return the named parameters of the head and the last blocks, or of everything."""
    if n_blocks > len(subject.blocks):
        return list(subject.model.named_parameters())
    body, first = subject.model.base_model, len(subject.blocks) - n_blocks
    in_body = {id(parameter) for parameter in body.parameters()}
    blocks = [{id(parameter) for parameter in block.parameters()} for block in subject.blocks]
    # Modules after the blocks (poolers, last norms) belong to the head. Modules that all blocks share, such as relative
    # positions, lie inside the module that holds the blocks.
    parts = [{id(parameter) for parameter in part.parameters()} for part in body.children()]
    holding = max(place for place, part in enumerate(parts) if part & blocks[-1])
    selected = set[int]().union(*blocks[first:], *parts[holding + 1 :])
    return [(key, p) for key, p in subject.model.named_parameters() if id(p) in selected or id(p) not in in_body]


def _redraw(parameter: nn.Parameter, key: str) -> None:
    """Draw new values in double precision on the CPU, so that they are the same on any device."""
    source = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]))
    old = parameter.double()
    normal = torch.randn(parameter.shape, generator=source, dtype=torch.float64).to(old.device)
    parameter.copy_(old.mean() + old.std(correction=0) * normal)


def _content_scores(
    subject: Subject, inputs: Sequence[Any], targets: Sequence[Target], methods: Mapping[str, Method]
) -> dict[str, list[list[float]]]:
    """Return, for each method by the caller's name for it and for each input, the scores of the content tokens."""
    if any(Ask.REFERENCES in method.needs.asks for method in methods.values()):
        dtype = "float64" if subject.model.dtype == torch.float64 else "float32"
        library = build_references(subject, inputs, rule="random", min_tokens=1, layers="all", dtype=dtype)
        subject = subject.with_references(library)
    fitted = {key: _fit_method(method, subject) for key, method in methods.items()}
    task, results = task_for(subject), dict[int, dict[str, Attribution]]()
    for target in dict.fromkeys(targets):
        rows = [row for row, own in enumerate(targets) if own == target]
        explained = explain_each(subject, [inputs[row] for row in rows], fitted.values(), target, task.bench_long)
        results.update(zip(rows, explained, strict=True))

    def content(record: Attribution) -> list[float]:
        return [unit.score for unit in task.units(record, "token")]

    return {key: [content(results[row][m.label]) for row in range(len(inputs))] for key, m in fitted.items()}


def _fit_method(method: Method, subject: Subject) -> Method:
    """Return the method with the subject's references, and with its head masks bound to this model."""
    own = {"references": None} if Ask.REFERENCES in method.needs.asks and "references" in method.settings else {}
    return replace(method, **own, **{name: _bind_mask(mask, subject) for name, mask in _masks(method).items()})


def _masks(method: Method) -> dict[str, HeadMask]:
    return {name: value for name, value in method.settings.items() if isinstance(value, HeadMask)}


def _bind_mask(mask: HeadMask, subject: Subject) -> HeadMask:
    identity = subject.identity()
    return replace(mask, model=subject.title, fingerprint=identity.revision, processor=identity.processor)


def _check_n_blocks(subject: Subject, n_blocks: int) -> None:
    total = len(subject.blocks)
    if isinstance(n_blocks, bool) or not isinstance(n_blocks, int) or not 0 <= n_blocks <= total + 1:
        allowed = f"0 to {total + 1}: {subject.title} has {total} blocks, and one more includes the embeddings"
        raise BadSetting("n_blocks", n_blocks, allowed)


def _check_seed(seed: int) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise BadSetting("seed", seed, "a whole number, at least 0")
