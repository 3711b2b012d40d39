"""explain: from texts and method names to attributions.

Texts are encoded, batched by similar length, passed once through the model for each view that the methods need, and
each method turns that pass into scores. (The module is not called `explain`, so that `whichtoken.explain` can only be
the function.)
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import islice
from time import perf_counter
from typing import Any, SupportsIndex, get_args

import torch
from torch import Tensor
from tqdm.auto import tqdm

from whichtoken.errors import BadSetting, NotFinite
from whichtoken.models import (
    Answers,
    Batch,
    Document,
    LongTexts,
    ModelProbe,
    Row,
    Subject,
    as_inputs,
    batches,
    capture,
    window_row,
)
from whichtoken.records import Attribution
from whichtoken.registry import chosen_methods
from whichtoken.targets import Goal, Predicted, Target, as_target, check_target, resolve
from whichtoken.trace import Ask, Method, Needs, Site, Trace, View, passes, written

TOKENS_PER_BATCH = 4096
TEXTS_AT_ONCE = 128  # that are encoded and sorted by length together, so that any number can be asked for
SLOW_AT_ONCE = 16  # where a method asks much of the model: results come, and can be kept, more often
PAIRS_PER_BATCH = 2**27  # layers x heads x queries x keys of attention: 0.5 GB in float32, a few times that in a pass


@dataclass(frozen=True)
class _Job:
    """One call of explain, checked and planned."""

    subject: Subject
    methods: Mapping[str, Method]
    passes: Mapping[View, Needs]  # the plain view first: it decides what is explained
    target: Target
    long: LongTexts
    layers: bool
    revision: str
    answers: Answers | None = None  # shared with whoever asks about the same texts

    def fits(self, rows: int, longest: int) -> bool:
        config = self.subject.model.config
        heads = (
            config.num_hidden_layers * config.num_attention_heads * max(_n_attentions(n) for n in self.passes.values())
        )
        small = rows * longest <= TOKENS_PER_BATCH and rows * longest**2 * heads <= PAIRS_PER_BATCH
        return small and not (rows > 1 and self.subject.batches_of_one)


def _n_attentions(needs: Needs) -> int:
    """How many sets of attention matrices a pass keeps; values and gradients count as one: most want both."""
    under = sum(site is Site.ATTENTION for _, site in needs.relevance)
    return under + (Site.ATTENTION in needs.values | needs.grads)


@dataclass(frozen=True)
class _Piece:
    """One window of a document, as the model sees it."""

    number: int  # of the input
    row: Row
    alone: bool  # the document has no other window


@dataclass(frozen=True)
class _Asked:
    """For which inputs a pass was made, how long it took, and whether layers are wanted."""

    numbers: Sequence[int]
    seconds: float
    layers: bool


@dataclass(frozen=True)
class _Scored:
    """One method's answer for one window."""

    scores: tuple[float, ...]
    details: Mapping[str, object]
    layers: tuple[tuple[float, ...], ...]
    seconds: float
    evaluations: float


@dataclass(frozen=True)
class _Answer:
    """Every method's answer for one window, and what they explain."""

    label: str
    probability: float
    scored: Mapping[str, _Scored]


def explain(
    subject: Subject,
    inputs: Iterable[str | tuple[str, str]],
    methods: Iterable[str | Method] = ("attcat",),
    target: Target | SupportsIndex | str | None = None,
    long: LongTexts = "truncate",
    layers: bool = False,
) -> list[dict[str, Attribution]]:
    """For each input, in order, the attribution of each method.

    `methods`: names, names with a preset ("attcat@repo"), or what `whichtoken.method` returns. Results are keyed by
    the string that was passed, or by the method's `label`. `target`: the predicted class (None), a class by index or
    name, or `Contrast(a, b)`. `long`: texts over the model's limit are cut ("truncate"; the result counts the tokens
    cut), explained in overlapping windows whose scores are averaged ("window"), or refused ("error"). `layers`: keep
    what each layer adds, for the methods that are sums over layers.
    """
    return list(explain_each(subject, inputs, methods, target, long, layers))


def explain_each(
    subject: Subject,
    inputs: Iterable[str | tuple[str, str]],
    methods: Iterable[str | Method] = ("attcat",),
    target: Target | SupportsIndex | str | None = None,
    long: LongTexts = "truncate",
    layers: bool = False,
) -> Iterator[dict[str, Attribution]]:
    """As `explain`, one result after the other: inputs are read as they are needed and may be endless."""
    return _each(_job(subject, methods, target, long, layers), as_inputs(inputs))


def explain_with(
    answers: Answers,
    inputs: Iterable[str | tuple[str, str]],
    methods: Iterable[str | Method],
    target: Target | SupportsIndex | str | None = None,
) -> list[dict[str, Attribution]]:
    """As `explain`, sharing what was asked about these texts with whoever else uses the same `answers`."""
    job = _job(answers.subject, methods, target, "truncate", False)
    return list(_each(replace(job, answers=answers), as_inputs(inputs)))


def _job(
    subject: Subject,
    methods: Iterable[str | Method],
    target: Target | SupportsIndex | str | None,
    long: LongTexts,
    layers: bool,
) -> _Job:
    if not isinstance(subject, Subject):
        raise BadSetting("subject", type(subject).__name__, "a Subject: wt.load(name), or wt.Subject(model, tokenizer)")
    if long not in get_args(LongTexts):
        raise BadSetting("long", long, f"one of {', '.join(get_args(LongTexts))}")
    wanted = as_target(target)
    check_target(wanted, subject.labels)
    chosen = chosen_methods(methods)
    return _Job(subject, chosen, passes(chosen.values()), wanted, long, layers, subject.fingerprint())


def _each(job: _Job, inputs: Iterable[Any]) -> Iterator[dict[str, Attribution]]:
    total, rest, first = len(inputs) if isinstance(inputs, Sized) else None, iter(inputs), 0
    slow = any(method.needs.asks - {Ask.REFERENCES, Ask.HEADS} for method in job.methods.values())
    with tqdm(total=total, desc="explaining", unit=" texts", disable=None, delay=1, leave=False) as bar:
        while chunk := list(islice(rest, SLOW_AT_ONCE if slow else TEXTS_AT_ONCE)):
            with torch.inference_mode(False):  # tensors made under it could never enter a graph
                documents = job.subject.encode(chunk, job.long, first)
                answers = _answers(job, documents, first, bar)
            bar.clear()  # whoever prints results must not find it in the way
            for document, parts in zip(documents, answers, strict=True):
                yield {key: _attribution(job, key, document, parts) for key in job.methods}
            first += len(chunk)


def _answers(job: _Job, documents: Sequence[Document], first: int, bar: Any) -> list[list[_Answer]]:
    """For each document, the answers for its windows."""
    pieces = [
        _Piece(number, window_row(document, window), len(document.windows) == 1)
        for number, document in enumerate(documents, first)
        for window in document.windows
    ]
    classes = _classes_of_long_texts(job, pieces) if isinstance(job.target, Predicted) else {}
    answers: dict[int, _Answer] = {}
    waiting = {piece.number for piece in pieces}
    for group in batches([len(piece.row.ids) for piece in pieces], job.fits):
        answers.update(zip(group, _answer(job, [pieces[i] for i in group], classes), strict=True))
        done = waiting & {pieces[i].number for i in group}
        waiting -= done
        bar.update(len(done))
    found: list[list[_Answer]] = [[] for _ in documents]
    for index, piece in enumerate(pieces):
        found[piece.number - first].append(answers[index])
    return found


def _classes_of_long_texts(job: _Job, pieces: Sequence[_Piece]) -> dict[int, int]:
    """A text in several windows has one prediction: the class with the highest mean probability over them."""
    long = [piece for piece in pieces if not piece.alone]
    sums: dict[int, Tensor] = {}
    for group in batches([len(piece.row.ids) for piece in long], job.fits):
        batch = job.subject.batch([long[i].row for i in group])
        logits = job.subject.logits(batch)
        _check_logits(job, batch, [long[i].number for i in group], logits)
        for i, probabilities in zip(group, job.subject.link.probabilities(logits), strict=True):
            sums[long[i].number] = sums.get(long[i].number, 0) + probabilities
    return {number: int(total.argmax()) for number, total in sums.items()}


def _answer(job: _Job, pieces: Sequence[_Piece], classes: Mapping[int, int]) -> list[_Answer]:
    """One batch: its passes, then each method on its pass."""
    batch = job.subject.batch([piece.row for piece in pieces])
    numbers = [piece.number for piece in pieces]

    def choose(logits: Tensor) -> Goal:
        goal = resolve(job.target, logits, job.subject.labels)
        known = [classes.get(number, int(own)) for number, own in zip(numbers, goal.toward, strict=True)]
        return Goal(torch.tensor(known, device=logits.device), goal.against)

    start = perf_counter()
    trace = capture(job.subject, batch, choose, job.passes[View()])
    _check_logits(job, batch, numbers, trace.logits)
    goal = choose(trace.logits)
    probability = goal.probability(trace.logits, job.subject.link).tolist()
    probe = ModelProbe(job.subject, batch, goal, answers=job.answers)
    scored = _score_view(job, View(), trace, probe, _Asked(numbers, perf_counter() - start, job.layers))
    for view in [view for view in job.passes if view != View()]:
        del trace  # two views need not be in memory together
        start = perf_counter()
        trace = capture(job.subject, batch, lambda logits: goal, job.passes[view])
        scored |= _score_view(job, view, trace, probe, _Asked(numbers, perf_counter() - start, job.layers))
    return [
        _Answer(_label(job, goal, i), probability[i], {key: rows[i] for key, rows in scored.items()})
        for i in range(len(pieces))
    ]


def _score_view(job: _Job, view: View, trace: Trace, probe: ModelProbe, asked: _Asked) -> dict[str, list[_Scored]]:
    methods = {key: method for key, method in job.methods.items() if method.needs.view == view}
    return {key: _score(method, trace, probe, asked) for key, method in methods.items()}


def _score(method: Method, trace: Trace, probe: ModelProbe, asked: _Asked) -> list[_Scored]:
    start, before = perf_counter(), probe.cost.sequences
    found = method(trace.restrict(method.needs), probe)
    lengths = trace.lengths.tolist()
    rows = [tokens[:length] for tokens, length in zip(found.tokens, lengths, strict=True)]
    terms = found.layers.tolist() if found.layers is not None and asked.layers else [()] * len(rows)
    layers = [tuple(tuple(layer[:length]) for layer in of_row) for of_row, length in zip(terms, lengths, strict=True)]
    for number, row in zip(asked.numbers, rows, strict=True):
        if not row.isfinite().all():
            at = _first_bad(trace) or "none of its tensors, so in the method itself"
            raise NotFinite(f"{method.label} gives NaN or infinite scores for input {number}; first found in {at}")
    seconds = (asked.seconds + perf_counter() - start) / len(rows)
    own = 1 + len({rules for rules, _ in method.needs.relevance}) + (probe.cost.sequences - before) / len(rows)
    details: Sequence[Mapping[str, object]] = found.details or [{}] * len(rows)
    return [
        _Scored(tuple(row.tolist()), dict(about), summands, seconds, own)
        for row, about, summands in zip(rows, details, layers, strict=True)
    ]


def _check_logits(job: _Job, batch: Batch, numbers: Sequence[int], logits: Tensor) -> None:
    finite = logits.isfinite().all(-1).tolist()
    if not all(finite):
        everything = Needs(frozenset({Site.EMBEDDINGS, Site.HIDDEN}))
        trace = capture(job.subject, batch, lambda logits: Goal(logits.argmax(-1)), everything)
        at = _first_bad(trace) or "the classification head"
        raise NotFinite(
            f"{job.subject.title} gives NaN or infinite logits for input {numbers[finite.index(False)]}; "
            f"first found in {at}. Check the weights, or use a wider dtype"
        )


def _first_bad(trace: Trace) -> str | None:
    """Where a trace first holds NaN or infinity, in the order of the network."""
    for kind, tensors in (("values", trace.values), ("gradients", trace.grads)):
        for site in (site for site in Site if site in tensors):
            for layer, tensor in enumerate(tensors[site]):
                if not tensor.isfinite().all():
                    return f"{kind} of {site}, layer {layer}"
    for (rules, site), layers in trace.relevances.items():
        if not all(tensor.isfinite().all() for tensor in layers):
            return f"relevance of {site} under {rules.name}"
    return None


def _label(job: _Job, goal: Goal, row: int) -> str:
    toward = job.subject.labels[int(goal.toward[row])]
    return toward if goal.against is None else f"{toward} rather than {job.subject.labels[int(goal.against[row])]}"


def _attribution(job: _Job, key: str, document: Document, answers: Sequence[_Answer]) -> Attribution:
    method, parts = job.methods[key], [answer.scored[key] for answer in answers]
    single = len(parts) == 1
    shown = document.windows[0] if single else range(len(document.ids))
    details = parts[0].details if single else {"windows": [p.details for p in parts]} if parts[0].details else {}
    return Attribution(
        texts=document.texts,
        tokens=tuple(document.tokens[i] for i in shown),
        spans=tuple(document.spans[i] for i in shown),
        sequences=tuple(document.sequences[i] for i in shown),
        word_ids=tuple(document.word_ids[i] for i in shown),
        scores=parts[0].scores if single else _merged(document, [part.scores for part in parts]),
        label=answers[0].label,
        probability=sum(answer.probability for answer in answers) / len(answers),
        method=method.name,
        settings={key: written(value) for key, value in method.settings.items()},
        searched=method.searched,
        model=job.subject.title,
        revision=job.revision,
        n_cut=document.n_cut,
        n_windows=len(parts),
        details=details,
        layers=parts[0].layers if single else _merged_layers(document, [part.layers for part in parts]),
        seconds=sum(part.seconds for part in parts),
        evaluations=sum(part.evaluations for part in parts),
    )


def _merged_layers(document: Document, parts: Sequence[tuple[tuple[float, ...], ...]]) -> tuple[tuple[float, ...], ...]:
    return tuple(_merged(document, terms) for terms in zip(*parts, strict=True))


def _merged(document: Document, parts: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Each token's mean over the windows that hold it; special tokens, which stand in all of them, get 0."""
    sums, counts = [0.0] * len(document.ids), [0] * len(document.ids)
    for window, scores in zip(document.windows, parts, strict=True):
        for position, score in zip(window, scores, strict=True):
            if document.sequences[position] is not None:
                sums[position] += score
                counts[position] += 1
    return tuple(total / max(count, 1) for total, count in zip(sums, counts, strict=True))
