"""`explain` turns inputs and method names into attributions, with the same loop for every task.

(The module is not called `explain`, so that `whichtoken.explain` can only be the function.)
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, Literal, SupportsIndex, TypeAlias

import torch
from torch import Tensor
from tqdm.auto import tqdm

from whichtoken import top_words
from whichtoken.core.objectives import anything, probability_of
from whichtoken.core.registry import resolve_methods
from whichtoken.core.trace import Ask, Method, Needs, Site, Trace, View, describe_setting, plan_passes
from whichtoken.errors import BadInput, BadSetting, NotFinite, UsageError
from whichtoken.models import (
    AnySubject,
    Batch,
    LogitCache,
    LongTexts,
    ModelProbe,
    Subject,
    as_subject,
    batches,
    capture,
    return_freed_memory,
)
from whichtoken.records import Attribution
from whichtoken.references._build import library_of_texts
from whichtoken.results import Results
from whichtoken.targets import Class, Contrast, Predicted, Span, TokenLabels
from whichtoken.tasks import Piece, Scored, ScoredPiece, Task, task_for
from whichtoken.tasks.sources import OnBadInput, explain_around_bad, split_source

TOKENS_PER_BATCH = 4096
PAIRS_PER_BATCH = 2**25  # layers x heads x queries x keys of attention: 128 MB in float32, a few times that in a pass
SLOW_AT_ONCE = 16  # inputs per chunk for expensive methods, so that results arrive, and can be saved, more often

AnyTarget: TypeAlias = Predicted | Class | Contrast | Span | TokenLabels | SupportsIndex | str | None
Targets: TypeAlias = Iterable[AnyTarget] | Literal["all"] | None
Token: TypeAlias = str | SupportsIndex | tuple[int, int] | None


def explain(
    subject: AnySubject,
    inputs: Iterable[Any] | None = None,
    methods: str | Method | Iterable[str | Method] | None = None,
    target: AnyTarget = None,
    long: LongTexts | None = None,
    layers: bool = False,
    *,
    images: Any = None,
    question: str | Sequence[str] | None = None,
    context: str | Sequence[str] | None = None,
    targets: Targets = None,
    token: Token = None,
    remove_top: int = 0,
) -> Results:
    """Return, for each input in order, the attribution of each method, as a list that shows and saves itself.

    `subject`: what `whichtoken.load` returns, a `Subject`, a pipeline of transformers, a pair (model, tokenizer), a
    folder or a hub name, which is loaded at every call. `inputs`: one text, or a list of texts, pairs of texts, or rows
    that keep their identity in `Attribution.source`: what `wt.data.read_examples` yields, a Hugging Face dataset, or
    dictionaries. A tuple of two texts is refused, because it could be one pair or two texts.

    `methods`: names, names with a preset ("attcat@repo"), or results of `whichtoken.method`; as a list, or as one
    string ("attcat,gae"). None: the most faithful of one pass in our measurements (docs/methods.md). Results are keyed
    by the name that was passed, or by the method's `label`. `target`: the predicted class (None), a class by index or
    name, or `Contrast(a, b)`. `targets`: several of them, or "all" labels; the list then has one result for each input
    and target. `long`: texts over the model's limit are truncated ("truncate", the default; the result counts the
    truncated tokens), explained in overlapping windows whose scores are averaged ("window"), or refused ("error").
    `layers`: include per-layer contributions, for methods that sum over layers. `remove_top`: also measure, by one more
    evaluation each, the output without the strongest word, the two strongest, up to this many (`Attribution.removals`).

    For models that answer questions, give `question` and `context`: texts, or lists of the same length; or pairs as
    `inputs`. `target`: the predicted answer (None), the text of another answer, or `Span(...)`. Long contexts are read
    in overlapping windows ("window", the default), and the window with the best answer is explained.

    For models that label tokens, `token` chooses the word: its text (every occurrence has a result), the position of a
    token, or characters (start, end). Without it, the list has a result for every entity that the model names, so none
    for a text without entities. `target`: the predicted label (None), another, its kind ("LOC" for B-LOC and I-LOC), or
    `Contrast(a, b)`. Inputs may be lists of words. Long texts are read in windows by default.

    For image models, give `images`: PIL images, arrays, files, or tensors as the model's processor returns them; or one
    of these.
    """
    subject = as_subject(subject)
    pairs = None if question is None and context is None else _pair_questions(question, context)
    arguments = {"inputs": inputs, "question": pairs, "images": images}
    passed = [(keyword, value) for keyword, value in arguments.items() if value is not None]
    if len(passed) != 1:
        raise BadInput("give exactly one of inputs, images, or question with context")
    keyword, value = passed[0]
    check_keyword(subject, keyword)
    each = explain_each(
        subject, value, methods, target, long, layers, targets=targets, token=token, remove_top=remove_top
    )
    return Results(tuple(each))


def explain_each(
    subject: AnySubject,
    inputs: Iterable[Any],
    methods: str | Method | Iterable[str | Method] | None = None,
    target: AnyTarget = None,
    long: LongTexts | None = None,
    layers: bool = False,
    *,
    targets: Targets = None,
    token: Token = None,
    on_bad_input: OnBadInput | None = None,
    remove_top: int = 0,
) -> Iterator[dict[str, Attribution]]:
    """Yield the results of `explain` one by one; inputs are read as needed and may be endless.

    For questions, inputs are pairs (question, context). `on_bad_input` is called with an input that cannot be explained
    and the error, and the input is skipped; without it, the error is raised.
    """
    job = plan(as_subject(subject), methods, target, long, layers)
    job = replace(job, remove_top=top_words.check_count(job.task, remove_top))
    if targets is not None:
        job = replace(job, targets=plan_targets(job.task, target, targets))
    if token is not None:
        job = replace(job, targets=tuple(job.task.for_token(checked, token) for checked in job.targets))
    return run(replace(job, on_bad_input=on_bad_input), job.task.inputs(inputs))


def check_keyword(subject: Subject, keyword: str) -> None:
    """Raise UsageError if the model does not read inputs passed under this keyword."""
    task = task_for(subject)
    if keyword != "inputs" and keyword not in task.keywords:
        passed = "a question was" if keyword == "question" else f"{keyword} were"
        raise UsageError(f"{passed} given, but {subject.title} {task.describe_purpose()}; give {task.input_hint}")


@dataclass(frozen=True)
class Job:
    """One call of `explain`, validated and planned."""

    task: Task  # bound to a twin of the subject
    methods: Mapping[str, Method]
    passes: Mapping[View, Needs]  # the plain view first: it determines what is explained
    targets: tuple[Any, ...]  # each gives results of its own
    long: LongTexts | None
    layers: bool
    remove_top: int = 0  # words, one after another; 0: no removals are measured
    cache: LogitCache | None = None  # shared with other calls about the same inputs
    on_bad_input: OnBadInput | None = None  # called for an input that cannot be explained; None: raise

    @property
    def subject(self) -> Subject:
        return self.task.subject

    def fits(self, rows: int, longest: int) -> bool:
        config = self.subject.model.config
        eager = self.subject.own_attention == "eager"
        kept = max(_n_attentions(needs, eager) for needs in self.passes.values())
        heads = config.num_hidden_layers * config.num_attention_heads * kept
        small = rows * longest <= TOKENS_PER_BATCH and rows * longest**2 * heads <= PAIRS_PER_BATCH
        return small and self.subject.fits_rows(rows)

    @property
    def at_once(self) -> int:
        slow = any(method.needs.asks - {Ask.REFERENCES, Ask.HEADS} for method in self.methods.values())
        return min(SLOW_AT_ONCE, self.task.at_once) if slow else self.task.at_once

    def origin(self, key: str) -> dict[str, Any]:
        """Return the record fields that say how scores were computed, the same for every input."""
        method = self.methods[key]
        return {
            "method": method.name,
            "name": "" if key == method.name else key,
            "settings": {name: describe_setting(value) for name, value in method.settings.items()},
            "tuned_on_deletion": method.tuned_on_deletion,
            "model": self.subject.title,
            "revision": self.subject.fingerprint(),
        }


def plan(
    subject: Subject,
    methods: str | Method | Iterable[str | Method] | None,
    target: Any = None,
    long: Any = None,
    layers: bool = False,
) -> Job:
    """Validate a call before any work, except for a missing library or head mask, which the method itself reports."""
    task_for(subject)
    task = task_for(subject.with_twin())
    resolved = resolve_methods(task.default_method if methods is None else methods)
    for method in resolved.values():
        reason = task.can_run(method)
        if reason is not None and not reason.library:
            fix = reason.fix or "see wt.method_names() for others"
            raise reason.error(f"{method.label} cannot explain {task.unit}s: {reason.why}; {fix}")
    checked_target = task.target(target)
    task.check_long(long)
    return Job(task, resolved, plan_passes(resolved.values()), (checked_target,), long, layers)


def plan_targets(task: Task, target: AnyTarget, targets: Targets) -> tuple[Any, ...]:
    """Check several targets, or list all of them. BadSetting if there is none, or `target` is given, too."""
    if target is not None:
        raise BadSetting("target", target, "None, if there are targets")
    if isinstance(targets, str) and targets != "all":
        raise BadSetting("targets", targets, "'all', or a list of targets")
    checked = tuple(task.all_targets() if targets == "all" else map(task.target, targets or ()))
    if not checked:
        raise BadSetting("targets", targets, "'all', or a list of at least one target")
    return tuple(dict.fromkeys(checked))


def run(job: Job, inputs: Iterable[Any]) -> Iterator[dict[str, Attribution]]:
    """Explain inputs in chunks: the pieces of a chunk are batched by length, and the task merges their scores."""
    total, rest, first = len(inputs) if isinstance(inputs, Sized) else None, iter(inputs), 0
    unit, hidden = f" {job.task.unit}s", True if total == 1 else None  # a bar of one step only flickers
    with tqdm(total=total, desc="explaining", unit=unit, disable=hidden, delay=1, leave=False) as bar:
        while chunk := list(islice(rest, job.at_once)):
            explain_part = partial(_explain_chunk, job, bar)
            for results in explain_around_bad(explain_part, chunk, first, job.on_bad_input):
                bar.clear()  # so that it does not interfere with printed results
                yield from results
            first += len(chunk)


def _explain_chunk(job: Job, bar: Any, chunk: Sequence[Any], first: int) -> list[dict[str, Attribution]]:
    split = [split_source(job.task, item, index) for index, item in enumerate(chunk, first)]
    with torch.inference_mode(False):  # inference tensors cannot be differentiated
        documents = job.task.encode([item for item, _ in split], job.long, first)
        scored = [score_pieces(job, job.task.pieces(documents, goal, first), bar) for goal in job.targets]
    results = []
    for index, document in enumerate(documents, first):
        origin = {key: {**job.origin(key), "source": split[index - first][1]} for key in job.methods}
        for parts in (parts for by_input in scored for parts in _group_by_part(by_input.get(index, ()))):
            results.append({key: job.task.record(document, parts, key, origin[key]) for key in job.methods})
    return _measure_removals(job, results) if job.remove_top else results


def _measure_removals(job: Job, results: Sequence[Mapping[str, Attribution]]) -> list[dict[str, Attribution]]:
    records = [record for result in results for record in result.values()]
    measured = iter(top_words.remove_top(job.task, records, job.remove_top))
    return [{key: next(measured) for key in result} for result in results]


def _group_by_part(pieces: Sequence[ScoredPiece]) -> list[list[ScoredPiece]]:
    """Group one input's pieces by record."""
    parts: dict[int, list[ScoredPiece]] = {}
    for scored in pieces:
        parts.setdefault(scored.piece.part, []).append(scored)
    return [parts[part] for part in sorted(parts)]


def score_pieces(job: Job, pieces: Sequence[Piece], bar: Any = None) -> dict[int, list[ScoredPiece]]:
    """Score all pieces; return each input's pieces in order, keyed by the index of the input."""
    scored: dict[int, ScoredPiece] = {}
    waiting = [piece.index for piece in pieces]
    for same_size in _group_by_size(pieces):
        for group in batches([len(pieces[i].row) for i in same_size], job.fits):
            places = [same_size[i] for i in group]
            scored.update(zip(places, score_batch(job, [pieces[i] for i in places]), strict=True))
            return_freed_memory()
            for i in places:
                waiting.remove(pieces[i].index)
            if bar is not None:
                finished = len({pieces[i].index for i in places} - set(waiting))
                bar.update(finished if len(job.targets) == 1 else finished / len(job.targets))
    by_input: dict[int, list[ScoredPiece]] = {}
    for i, piece in enumerate(pieces):
        by_input.setdefault(piece.index, []).append(scored[i])
    return by_input


def _group_by_size(pieces: Sequence[Piece]) -> list[list[int]]:
    """Group images of the same size, which can be stacked; texts form one group, because they are padded."""
    sizes: dict[Any, list[int]] = {}
    for i, piece in enumerate(pieces):
        sizes.setdefault(None if piece.row.image is None else piece.row.image.pixels.shape, []).append(i)
    return list(sizes.values())


def score_batch(job: Job, pieces: Sequence[Piece]) -> list[ScoredPiece]:
    """Score one batch: run one pass per view, then every method on its pass."""
    start, subject = perf_counter(), job.subject
    batch = subject.batch([piece.row for piece in pieces])
    choose = partial(job.task.objective, pieces)
    trace = capture(subject, batch, choose, job.passes[View()])
    logits = trace.logits
    check_logits(subject, batch, [piece.index for piece in pieces], logits)
    objective = choose(logits)
    probe = ModelProbe(
        subject,
        batch,
        objective,
        removals=job.task.removals(),
        segments=[piece.segments for piece in pieces],
        cache=job.cache,
        library_of=library_of_texts,
    )
    scored = _score_view(job, View(), trace, probe, _SharedPass(pieces, perf_counter() - start))
    for view in [view for view in job.passes if view != View()]:
        del trace  # so that two views are never in memory together
        start = perf_counter()
        trace = capture(subject, batch, lambda logits: objective, job.passes[view])
        scored |= _score_view(job, view, trace, probe, _SharedPass(pieces, perf_counter() - start))
    probability = probability_of(objective, logits).tolist()
    return [
        ScoredPiece(
            piece, objective.target(i), probability[i], {key: rows[i] for key, rows in scored.items()}, logits[i]
        )
        for i, piece in enumerate(pieces)
    ]


@dataclass(frozen=True)
class _SharedPass:
    """The pieces of a shared pass, and how long it took."""

    pieces: Sequence[Piece]
    seconds: float


def _score_view(job: Job, view: View, trace: Trace, probe: ModelProbe, shared: _SharedPass) -> dict[str, list[Scored]]:
    methods = {key: method for key, method in job.methods.items() if method.needs.view == view}
    return {key: _run_method(method, trace, probe, shared, job.layers) for key, method in methods.items()}


def _run_method(method: Method, trace: Trace, probe: ModelProbe, shared: _SharedPass, layers: bool) -> list[Scored]:
    start, before = perf_counter(), probe.cost.sequences
    scores = method(trace.restrict(method.needs), probe)
    lengths = trace.lengths.tolist()
    rows = [tokens[:length] for tokens, length in zip(scores.tokens, lengths, strict=True)]
    terms = scores.layers.tolist() if scores.layers is not None and layers else [()] * len(rows)
    by_layer = [tuple(tuple(layer[:n]) for layer in row_terms) for row_terms, n in zip(terms, lengths, strict=True)]
    for piece, row in zip(shared.pieces, rows, strict=True):
        if not row.isfinite().all():
            at = _locate_non_finite(trace) or "the method itself"
            problem = f"{method.label} gives NaN or infinite scores; first found in {at}"
            raise NotFinite(f": {problem}", index=piece.index)
    seconds = (shared.seconds + perf_counter() - start) / len(rows)
    evaluations = 1 + len({rules for rules, _ in method.needs.relevance}) + (probe.cost.sequences - before) / len(rows)
    details: Sequence[Mapping[str, object]] = scores.details or [{}] * len(rows)
    pixels, confidence = scores.pixels, scores.confidence or [None] * len(rows)
    return [
        Scored(
            tuple(row.tolist()),
            dict(detail),
            summands,
            seconds,
            evaluations,
            None if pixels is None else pixels[i],
            confidence[i],
        )
        for i, (row, detail, summands) in enumerate(zip(rows, details, by_layer, strict=True))
    ]


def check_logits(subject: Subject, batch: Batch, indices: Sequence[int], logits: Tensor) -> None:
    finite = logits.isfinite().flatten(1).all(-1).tolist()
    if not all(finite):
        trace = capture(subject, batch, anything, Needs(frozenset({Site.EMBEDDINGS, Site.HIDDEN})))
        at = _locate_non_finite(trace) or "the classification head"
        problem = f"{subject.title} gives NaN or infinite logits; first found in {at}"
        index = indices[finite.index(False)]
        raise NotFinite(f": {problem}. Check the weights, or use a wider dtype", index=index)


def _locate_non_finite(trace: Trace) -> str | None:
    """Return where a trace first contains NaN or infinity, in the order of the network."""
    for kind, tensors in (("values", trace.values), ("gradients", trace.grads)):
        for site in (site for site in Site if site in tensors):
            for layer, tensor in enumerate(tensors[site]):
                if not tensor.isfinite().all():
                    return f"{kind} of {site}, layer {layer}"
    for (rules, site), layers in trace.relevances.items():
        if not all(tensor.isfinite().all() for tensor in layers):
            return f"relevance of {site} under {rules.name}"
    return None


def _n_attentions(needs: Needs, eager: bool) -> int:
    """Return how many sets of attention matrices a pass keeps; values and gradients are one: most methods need both.

    Without fused attention, the graph of a gradient holds one set even if none is recorded. Relevance is in float64,
    so that one set has the size of two.
    """
    sizes = [(site, 2 if rules.carries == "relevance" else 1) for rules, site in needs.relevance]
    recorded = sum(size for site, size in sizes if site is Site.ATTENTION)
    recorded += Site.ATTENTION in needs.values | needs.grads
    differentiated = bool(needs.grads) or Ask.PASSES in needs.asks
    unfused = int(differentiated and (eager or needs.view.hides))
    return max([recorded, unfused, *(size for _, size in sizes)])


def _pair_questions(question: Any, context: Any) -> list[tuple[str, str]]:
    if question is None or context is None:
        passed, missing = ("question", "context") if context is None else ("context", "question")
        raise UsageError(f"a {passed} was given without a {missing}; give both")
    questions = [question] if isinstance(question, str) else list(question)
    contexts = [context] * len(questions) if isinstance(context, str) else list(context)
    if len(questions) != len(contexts):
        raise UsageError(f"{len(questions)} questions and {len(contexts)} contexts; give the same number of each")
    return list(zip(questions, contexts, strict=True))


def explain_with(
    cache: LogitCache, inputs: Sequence[Any], methods: Iterable[str | Method], target: Any = None, long: Any = None
) -> list[dict[str, Attribution]]:
    """Explain inputs as `explain` does, with a logit cache that other calls about the same inputs can share."""
    job = replace(plan(cache.subject, methods, target, long), cache=cache)
    return list(run(job, inputs))
