"""Model randomisation: does an attribution change when what the model has learnt is taken from it?

Adebayo et al., "Sanity Checks for Saliency Maps", NeurIPS 2018, the cascading test: the classification head is drawn
anew, then the last block as well, the last two, and so on. A method whose ranking of tokens stays (tau near 1) does
not look at what was randomised: attention weights, for example, know nothing of the head.

Deviation: each tensor is drawn from a normal with its own mean and standard deviation, not by the model's
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
from whichtoken.core.registry import chosen_methods
from whichtoken.core.trace import Ask, Method
from whichtoken.errors import BadInput, BadSetting
from whichtoken.heads.mask import HeadMask
from whichtoken.metrics.ranks import kendall
from whichtoken.models import Subject
from whichtoken.records import Attribution
from whichtoken.references._build import build as build_references
from whichtoken.targets import Target
from whichtoken.tasks import task_for


@dataclass(frozen=True)
class Sanity:
    """How much of a method's ranking is left on a randomised model."""

    method: str
    n_blocks: int  # randomised beside the head, counted from the end; one more than there are: the embeddings too
    tau: float | None  # Kendall's tau-b of the scores of content tokens, the mean over texts; None where there is none
    n_texts: int  # over how many: those in which the method does rank tokens, on the untouched model


def randomised(subject: Subject, n_blocks: int, seed: int = 0) -> Subject:
    """The subject with a copy of its model in which the head and the last `n_blocks` blocks are drawn anew.

    One more than the model has blocks: everything, the embeddings too. (Blocks that share their weights, as ALBERT's
    do, count once.) What is drawn for a tensor follows from its name and the seed, so with more blocks the head is the
    same. The head mask is kept; a reference library, which belongs to the model's activations, is not.
    """
    _check_subject(subject)
    _check_seed(seed)
    _check_n_blocks(subject, n_blocks)
    model = deepcopy(subject.model)
    what = f"head and {n_blocks} blocks" if n_blocks <= len(subject.blocks) else "everything"
    name = f"{subject.title}, {what} randomised with seed {seed}"
    made = replace(subject, model=model, name=name, revision="", references=None, heads=None)
    with torch.no_grad():
        for key, parameter in _last_parameters(made, n_blocks):
            _redraw(parameter, f"{seed} {key}")
    return made if subject.heads is None else made.with_heads(_bound(subject.heads, made))


def sanity_check(
    subject: Subject,
    texts: Iterable[Any],
    methods: Iterable[str | Method],
    seed: int = 0,
    depths: Sequence[int] | None = None,
) -> list[Sanity]:
    """For each method and each number of randomised blocks, how well the rankings on both models agree.

    Explained is what the untouched model predicts. `depths`: numbers of blocks, as for `randomised`; None: from the
    head alone to everything. Methods that contrast with references get some of the given texts as such, on each model
    its own activations. A text whose tokens all score the same has no ranking and does not count.
    """
    _check_subject(subject)
    task = task_for(subject)
    _check_seed(seed)
    inputs, chosen = list(task.inputs(texts)), chosen_methods(methods)
    if not inputs:
        raise BadInput("there are no texts; a sanity check needs some")
    wanted = (0, *ladder(len(subject.blocks)), len(subject.blocks) + 1) if depths is None else tuple(depths)
    for n_blocks in wanted:
        _check_n_blocks(subject, n_blocks)
    for mask in (mask for method in chosen.values() for mask in _masks(method).values()):
        subject.check_heads(mask)
    targets = [found["random"].target for found in explain_each(subject, inputs, ["random"], long=task.bench_long)]
    before = _scores(subject, inputs, targets, chosen)
    if not any(len(scores) > 1 for scores in next(iter(before.values()))):
        raise BadInput("no text has two content tokens or more, so there is nothing to rank; give longer texts")
    found: dict[tuple[str, int], Sanity] = {}
    for n_blocks in wanted:
        after = _scores(randomised(subject, n_blocks, seed), inputs, targets, chosen)
        for key in chosen:
            pairs = [(a, b) for a, b in zip(before[key], after[key], strict=True) if len(set(a)) > 1]
            tau = fmean(kendall(a, b) for a, b in pairs) if pairs else None
            found[key, n_blocks] = Sanity(key, n_blocks, tau, len(pairs))
    return [found[key, n_blocks] for key in chosen for n_blocks in wanted]


def ladder(n_layers: int) -> tuple[int, ...]:
    """1 to all; of more than 8 layers only every second one."""
    if n_layers <= 8:
        return tuple(range(1, n_layers + 1))
    return tuple(sorted({1, *range(2, n_layers + 1, 2), n_layers}))


def _last_parameters(subject: Subject, n_blocks: int) -> list[tuple[str, nn.Parameter]]:
    """Of the head and the last blocks, or of everything."""
    if n_blocks > len(subject.blocks):
        return list(subject.model.named_parameters())
    body, first = subject.model.base_model, len(subject.blocks) - n_blocks
    in_body = {id(parameter) for parameter in body.parameters()}
    blocks = [{id(parameter) for parameter in block.parameters()} for block in subject.blocks]
    # What stands behind the blocks belongs to the head: poolers and last norms. Parts that all blocks share, such as
    # relative positions, stand inside the part that holds the blocks.
    parts = [{id(parameter) for parameter in part.parameters()} for part in body.children()]
    holding = max(place for place, part in enumerate(parts) if part & blocks[-1])
    chosen = set[int]().union(*blocks[first:], *parts[holding + 1 :])
    return [(key, p) for key, p in subject.model.named_parameters() if id(p) in chosen or id(p) not in in_body]


def _redraw(parameter: nn.Parameter, key: str) -> None:
    """In double precision on the CPU, so that it is the same on any device."""
    source = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]))
    found = parameter.double()
    normal = torch.randn(parameter.shape, generator=source, dtype=torch.float64).to(found.device)
    parameter.copy_(found.mean() + found.std(correction=0) * normal)


def _scores(
    subject: Subject, inputs: Sequence[Any], targets: Sequence[Target], chosen: Mapping[str, Method]
) -> dict[str, list[list[float]]]:
    """For each method, by the name that the caller gave it, and each input the scores of the content tokens."""
    if any(Ask.REFERENCES in method.needs.asks for method in chosen.values()):
        dtype = "float64" if subject.model.dtype == torch.float64 else "float32"
        library = build_references(subject, inputs, rule="random", min_tokens=1, layers="all", dtype=dtype)
        subject = subject.with_references(library)
    fitted = {key: _fitted(method, subject) for key, method in chosen.items()}
    task, results = task_for(subject), dict[int, dict[str, Attribution]]()
    for target in dict.fromkeys(targets):
        rows = [row for row, own in enumerate(targets) if own == target]
        found = explain_each(subject, [inputs[row] for row in rows], fitted.values(), target, task.bench_long)
        results.update(zip(rows, found, strict=True))

    def content(record: Attribution) -> list[float]:
        return [unit.score for unit in task.units(record, "token")]

    return {key: [content(results[row][m.label]) for row in range(len(inputs))] for key, m in fitted.items()}


def _fitted(method: Method, subject: Subject) -> Method:
    """With the subject's references, and with its heads on this model."""
    own = {"references": None} if Ask.REFERENCES in method.needs.asks and "references" in method.settings else {}
    return replace(method, **own, **{name: _bound(mask, subject) for name, mask in _masks(method).items()})


def _masks(method: Method) -> dict[str, HeadMask]:
    return {name: value for name, value in method.settings.items() if isinstance(value, HeadMask)}


def _bound(mask: HeadMask, subject: Subject) -> HeadMask:
    return replace(mask, model=subject.title, fingerprint=subject.fingerprint())


def _check_subject(subject: Subject) -> None:
    if not isinstance(subject, Subject):
        raise BadSetting("subject", type(subject).__name__, "a Subject: wt.load(name), or wt.Subject(model, processor)")


def _check_n_blocks(subject: Subject, n_blocks: int) -> None:
    there = len(subject.blocks)
    if isinstance(n_blocks, bool) or not isinstance(n_blocks, int) or not 0 <= n_blocks <= there + 1:
        allowed = f"0 to {there + 1}: {subject.title} has {there} blocks, and one more stands for the embeddings too"
        raise BadSetting("n_blocks", n_blocks, allowed)


def _check_seed(seed: int) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise BadSetting("seed", seed, "a whole number, at least 0")
