"""explain: from inputs and method names to attributions. One loop for every task.

(The module is not called `explain`, so that `whichtoken.explain` can only be the function.)
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, SupportsIndex, TypeAlias

import torch
from torch import Tensor
from tqdm.auto import tqdm

from whichtoken.core.objectives import anything, probability_of
from whichtoken.core.registry import chosen_methods
from whichtoken.core.trace import Ask, Method, Needs, Site, Trace, View, passes, written
from whichtoken.errors import BadInput, NotFinite, UsageError
from whichtoken.models import Batch, LogitCache, LongTexts, ModelProbe, Subject, batches, capture
from whichtoken.records import Attribution
from whichtoken.references._build import library_of_texts
from whichtoken.targets import Class, Contrast, Predicted, Span
from whichtoken.tasks import Piece, Scored, ScoredPiece, Task, task_for

TOKENS_PER_BATCH = 4096
PAIRS_PER_BATCH = 2**27  # layers x heads x queries x keys of attention: 0.5 GB in float32, a few times that in a pass
SLOW_AT_ONCE = 16  # inputs, where a method asks much of the model: results come, and can be kept, more often

AnyTarget: TypeAlias = Predicted | Class | Contrast | Span | SupportsIndex | str | None


def explain(
    subject: Subject,
    inputs: Iterable[Any] | None = None,
    methods: Iterable[str | Method] = ("attcat",),
    target: AnyTarget = None,
    long: LongTexts | None = None,
    layers: bool = False,
    *,
    images: Iterable[Any] | None = None,
    question: str | Sequence[str] | None = None,
    context: str | Sequence[str] | None = None,
) -> list[dict[str, Attribution]]:
    """For each input, in order, the attribution of each method.

    `methods`: names, names with a preset ("attcat@repo"), or what `whichtoken.method` returns. Results are keyed by
    the string that was passed, or by the method's `label`. `target`: the predicted class (None), a class by index or
    name, or `Contrast(a, b)`. `long`: texts over the model's limit are cut ("truncate", the default; the result counts
    the tokens cut), explained in overlapping windows whose scores are averaged ("window"), or refused ("error").
    `layers`: keep what each layer adds, for the methods that are sums over layers.

    A model that answers questions: `question` and `context`, a text each or as many of both, or pairs as `inputs`.
    `target`: the predicted answer (None), the text of another one, or `Span(...)`. Long contexts are read in
    overlapping windows ("window", the default), and the one with the best answer is explained.

    A model of images: `images`, each a picture (PIL), an array, a file, or a tensor as its processor returns it.
    """
    pairs = None if question is None and context is None else _pairs(question, context)
    given = {"inputs": inputs, "question": pairs, "images": images}
    named = [(keyword, value) for keyword, value in given.items() if value is not None]
    if len(named) != 1:
        raise BadInput("give inputs, or question and context, or images; one of them")
    keyword, value = named[0]
    check_keyword(subject, keyword)
    return list(explain_each(subject, value, methods, target, long, layers))


def explain_each(
    subject: Subject,
    inputs: Iterable[Any],
    methods: Iterable[str | Method] = ("attcat",),
    target: AnyTarget = None,
    long: LongTexts | None = None,
    layers: bool = False,
) -> Iterator[dict[str, Attribution]]:
    """As `explain`, one result after the other: inputs are read as they are needed and may be endless.

    Of questions, inputs are pairs: question, context.
    """
    job = plan(subject, methods, target, long, layers)
    return run(job, job.task.inputs(inputs))


def check_keyword(subject: Subject, keyword: str) -> None:
    """UsageError if inputs were given as something that the model does not read."""
    task = task_for(subject)
    if keyword != "inputs" and keyword not in task.keywords:
        given = "a question was" if keyword == "question" else f"{keyword} were"
        raise UsageError(f"{given} given, and {subject.title} {task.reads}; give {task.give}")


@dataclass(frozen=True)
class Job:
    """One call of explain, checked and planned."""

    task: Task  # of the twin
    methods: Mapping[str, Method]
    passes: Mapping[View, Needs]  # the plain view first: it decides what is explained
    target: Any
    long: LongTexts | None
    layers: bool
    cache: LogitCache | None = None  # shared with whoever asks about the same inputs

    @property
    def subject(self) -> Subject:
        return self.task.subject

    def fits(self, rows: int, longest: int) -> bool:
        config = self.subject.model.config
        kept = max(_n_attentions(needs) for needs in self.passes.values())
        heads = config.num_hidden_layers * config.num_attention_heads * kept
        small = rows * longest <= TOKENS_PER_BATCH and rows * longest**2 * heads <= PAIRS_PER_BATCH
        return small and not (rows > 1 and self.subject.batches_of_one)

    @property
    def at_once(self) -> int:
        slow = any(method.needs.asks - {Ask.REFERENCES, Ask.HEADS} for method in self.methods.values())
        return min(SLOW_AT_ONCE, self.task.at_once) if slow else self.task.at_once

    def made(self, key: str) -> dict[str, Any]:
        """The fields of a record that say how it was made, the same for every input."""
        method = self.methods[key]
        return {
            "method": method.name,
            "settings": {name: written(value) for name, value in method.settings.items()},
            "tuned_on_deletion": method.tuned_on_deletion,
            "model": self.subject.title,
            "revision": self.subject.fingerprint(),
        }


def plan(
    subject: Subject, methods: Iterable[str | Method], target: Any = None, long: Any = None, layers: bool = False
) -> Job:
    """Everything that can be refused is refused here. A missing library is left to the method that asks for it."""
    task_for(subject)
    task, chosen = task_for(subject.twinned()), chosen_methods(methods)
    for method in chosen.values():
        reason = task.can_run(method)
        if reason is not None and not reason.library:
            fix = reason.fix or "see wt.method_names() for others"
            raise UsageError(f"{method.label} cannot explain {task.unit}s: {reason.why}; {fix}")
    wanted = task.target(target)
    task.check_long(long)
    return Job(task, chosen, passes(chosen.values()), wanted, long, layers)


def run(job: Job, inputs: Iterable[Any]) -> Iterator[dict[str, Attribution]]:
    """Some inputs after the other; pieces of all of them are batched by length, and the task merges them."""
    total, rest, first = len(inputs) if isinstance(inputs, Sized) else None, iter(inputs), 0
    with tqdm(total=total, desc="explaining", unit=f" {job.task.unit}s", disable=None, delay=1, leave=False) as bar:
        while chunk := list(islice(rest, job.at_once)):
            with torch.inference_mode(False):  # tensors made under it could never enter a graph
                documents = job.task.encode(chunk, job.long, first)
                parts = scored_pieces(job, job.task.pieces(documents, job.target, first), bar)
            bar.clear()  # whoever prints results must not find it in the way
            for index, document in enumerate(documents, first):
                yield {key: job.task.record(document, parts[index], key, job.made(key)) for key in job.methods}
            first += len(chunk)


def scored_pieces(job: Job, pieces: Sequence[Piece], bar: Any = None) -> dict[int, list[ScoredPiece]]:
    """By the index of the input, its pieces in their order."""
    found: dict[int, ScoredPiece] = {}
    waiting = [piece.index for piece in pieces]
    for same_size in _of_one_size(pieces):
        for group in batches([len(pieces[i].row) for i in same_size], job.fits):
            places = [same_size[i] for i in group]
            found.update(zip(places, score(job, [pieces[i] for i in places]), strict=True))
            for i in places:
                waiting.remove(pieces[i].index)
            if bar is not None:
                bar.update(len({pieces[i].index for i in places} - set(waiting)))
    by_input: dict[int, list[ScoredPiece]] = {}
    for i, piece in enumerate(pieces):
        by_input.setdefault(piece.index, []).append(found[i])
    return by_input


def _of_one_size(pieces: Sequence[Piece]) -> list[list[int]]:
    """Images of different sizes cannot be stacked; texts can, as they are padded."""
    sizes: dict[Any, list[int]] = {}
    for i, piece in enumerate(pieces):
        sizes.setdefault(None if piece.row.image is None else piece.row.image.pixels.shape, []).append(i)
    return list(sizes.values())


def score(job: Job, pieces: Sequence[Piece]) -> list[ScoredPiece]:
    """One batch: a pass for each view, then every method on its pass."""
    start, subject = perf_counter(), job.subject
    batch = subject.batch([piece.row for piece in pieces])
    choose = partial(job.task.objective, pieces)
    trace = capture(subject, batch, choose, job.passes[View()])
    logits = trace.logits
    check_logits(subject, batch, [piece.index for piece in pieces], logits)
    objective = choose(logits)
    probe = ModelProbe(subject, batch, objective, cache=job.cache, library_of=library_of_texts)
    scored = _score_view(job, View(), trace, probe, _SharedPass(pieces, perf_counter() - start))
    for view in [view for view in job.passes if view != View()]:
        del trace  # two views need not be in memory together
        start = perf_counter()
        trace = capture(subject, batch, lambda logits: objective, job.passes[view])
        scored |= _score_view(job, view, trace, probe, _SharedPass(pieces, perf_counter() - start))
    probability = probability_of(objective, logits).tolist()
    return [
        ScoredPiece(piece, objective.target(i), probability[i], {key: rows[i] for key, rows in scored.items()})
        for i, piece in enumerate(pieces)
    ]


@dataclass(frozen=True)
class _SharedPass:
    """For which pieces a pass was made, and how long it took."""

    pieces: Sequence[Piece]
    seconds: float


def _score_view(job: Job, view: View, trace: Trace, probe: ModelProbe, of: _SharedPass) -> dict[str, list[Scored]]:
    methods = {key: method for key, method in job.methods.items() if method.needs.view == view}
    return {key: _score(method, trace, probe, of, job.layers) for key, method in methods.items()}


def _score(method: Method, trace: Trace, probe: ModelProbe, of: _SharedPass, layers: bool) -> list[Scored]:
    start, before = perf_counter(), probe.cost.sequences
    found = method(trace.restrict(method.needs), probe)
    lengths = trace.lengths.tolist()
    rows = [tokens[:length] for tokens, length in zip(found.tokens, lengths, strict=True)]
    terms = found.layers.tolist() if found.layers is not None and layers else [()] * len(rows)
    by_layer = [tuple(tuple(layer[:n]) for layer in of_row) for of_row, n in zip(terms, lengths, strict=True)]
    for piece, row in zip(of.pieces, rows, strict=True):
        if not row.isfinite().all():
            at = _first_bad(trace) or "none of its tensors, so in the method itself"
            said = f"{method.label} gives NaN or infinite scores; first found in {at}"
            raise NotFinite(f": {said}", index=piece.index)
    seconds = (of.seconds + perf_counter() - start) / len(rows)
    own = 1 + len({rules for rules, _ in method.needs.relevance}) + (probe.cost.sequences - before) / len(rows)
    details: Sequence[Mapping[str, object]] = found.details or [{}] * len(rows)
    fine = found.pixels
    return [
        Scored(tuple(row.tolist()), dict(about), summands, seconds, own, None if fine is None else fine[number])
        for number, (row, about, summands) in enumerate(zip(rows, details, by_layer, strict=True))
    ]


def check_logits(subject: Subject, batch: Batch, indices: Sequence[int], logits: Tensor) -> None:
    finite = logits.isfinite().flatten(1).all(-1).tolist()
    if not all(finite):
        trace = capture(subject, batch, anything, Needs(frozenset({Site.EMBEDDINGS, Site.HIDDEN})))
        at = _first_bad(trace) or "the classification head"
        said = f"{subject.title} gives NaN or infinite logits; first found in {at}"
        index = indices[finite.index(False)]
        raise NotFinite(f": {said}. Check the weights, or use a wider dtype", index=index)


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


def _n_attentions(needs: Needs) -> int:
    """How many sets of attention matrices a pass keeps; values and gradients count as one: most want both."""
    under = sum(site is Site.ATTENTION for _, site in needs.relevance)
    return under + (Site.ATTENTION in needs.values | needs.grads)


def _pairs(question: Any, context: Any) -> list[tuple[str, str]]:
    if question is None or context is None:
        found, lacking = ("question", "context") if context is None else ("context", "question")
        raise UsageError(f"a {found} was given without a {lacking}; give both")
    questions = [question] if isinstance(question, str) else list(question)
    contexts = [context] * len(questions) if isinstance(context, str) else list(context)
    if len(questions) != len(contexts):
        raise UsageError(f"{len(questions)} questions and {len(contexts)} contexts; give as many of each")
    return list(zip(questions, contexts, strict=True))


def explain_with(
    cache: LogitCache, inputs: Sequence[Any], methods: Iterable[str | Method], target: Any = None, long: Any = None
) -> list[dict[str, Attribution]]:
    """As `explain`, sharing what was asked about these inputs with whoever else uses the same cache."""
    job = replace(plan(cache.subject, methods, target, long), cache=cache)
    return list(run(job, inputs))
