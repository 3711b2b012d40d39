"""Score pieces of inputs in batches: one pass per view, then every method on its pass."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

from torch import Tensor

from whichtoken.core.picks import Picks, anything, track
from whichtoken.core.trace import Ask, Method, Needs, Site, Trace, View, describe_setting
from whichtoken.errors import NotFinite, UsageError
from whichtoken.models import (
    Batch,
    LogitCache,
    LongTexts,
    ModelProbe,
    Subject,
    batches,
    bound_freed_memory,
    capture,
    capture_each,
    copy_twin,
    count_workers,
    even_batches,
    halve_if_needed,
    map_on_cores,
    share_among_cores,
)
from whichtoken.models.memory import available_bytes, estimate_bytes
from whichtoken.references._build import library_of_texts
from whichtoken.tasks import Piece, Scored, ScoredPiece, Task, task_for
from whichtoken.tasks.sources import OnBadInput

TOKENS_PER_BATCH = 4096
PAIRS_PER_BATCH = 2**25  # layers x heads x queries x keys of attention: 128 MB in float32, a few times that in a pass
SMALL = 2**26  # bytes that are always taken to be free
SLOW_AT_ONCE = 32  # inputs per chunk for expensive methods, so that results arrive, and can be saved, more often
SLOW_TOKENS = 512  # per batch of such methods, so that every core has one; each evaluates many shortened texts


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

    def copy_for_thread(self) -> "Job":
        """Return the same job on another twin of the model."""
        return replace(self, task=task_for(copy_twin(self.subject)))

    def count_workers(self, n_batches: int) -> int:
        """Return how many threads score batches; a cache belongs to a single thread."""
        return 1 if self.cache is not None else count_workers(self.subject, n_batches)

    @property
    def is_slow(self) -> bool:
        return any(method.needs.asks - {Ask.REFERENCES, Ask.HEADS} for method in self.methods.values())

    def fits(self, rows: int, longest: int) -> bool:
        config = self.subject.model.config
        eager = self.subject.own_attention == "eager"
        kept = max(_n_attentions(needs, eager) for needs in self.passes.values())
        heads = config.num_hidden_layers * config.num_attention_heads * kept
        most = SLOW_TOKENS * (1 + self.subject.skips_padding) if self.is_slow else TOKENS_PER_BATCH  # with padding
        small = rows * longest <= most and rows * longest**2 * heads <= PAIRS_PER_BATCH
        return small and self.subject.fits_rows(rows)

    def batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Yield indices of rows of these lengths in groups; of few groups, each core gets the same number."""
        n_cores, n_tokens = self.count_workers(len(lengths)), sum(lengths)
        if not (self.is_slow and self.subject.skips_padding):
            return share_among_cores(batches(lengths, self.fits), lengths, n_cores)
        n_groups = -(-n_tokens // (SLOW_TOKENS * n_cores)) * n_cores
        return even_batches(lengths, -(-n_tokens // n_groups), self.fits)

    @property
    def at_once(self) -> int:
        return min(SLOW_AT_ONCE, self.task.at_once) if self.is_slow else self.task.at_once

    def origin(self, key: str) -> dict[str, Any]:
        """Return the record fields that say how scores were computed, the same for every input."""
        method = self.methods[key]
        return {
            "method": method.name,
            "name": "" if key == method.name else key,
            "settings": {name: describe_setting(value) for name, value in method.settings.items()},
            "tuned_on_deletion": method.tuned_on_deletion,
            "model": self.subject.title,
            **vars(self.subject.identity()),
        }


def score_pieces(job: Job, pieces: Sequence[Piece], bar: Any = None) -> dict[int, list[ScoredPiece]]:
    """Score all pieces; return each input's pieces in order, keyed by the index of the input."""
    check_memory(job, pieces)
    stacks = _stack_by_row(pieces)
    groups = [
        [same_size[i] for i in group]
        for same_size in _group_by_size([pieces[stack[0]] for stack in stacks])
        for group in job.batches([len(pieces[stacks[i][0]].row) for i in same_size])
    ]
    # So that no core waits long at the end.
    groups.sort(key=lambda numbers: -sum(len(pieces[i].row) for number in numbers for i in stacks[number]))
    workers = [job, *(job.copy_for_thread() for _ in range(1, job.count_workers(len(groups))))]
    scored: dict[int, ScoredPiece] = {}
    waiting = Counter(piece.index for piece in pieces)
    work = map_on_cores(
        lambda own, numbers: halve_if_needed(
            partial(score_batch, own), [[pieces[i] for i in stacks[number]] for number in numbers]
        ),
        workers,
        groups,
    )
    for number, of_group in work:
        places = [i for stack in groups[number] for i in stacks[stack]]
        scored.update(zip(places, of_group, strict=True))
        bound_freed_memory()
        waiting -= Counter(pieces[i].index for i in places)
        if bar is not None:
            finished = len({pieces[i].index for i in places} - waiting.keys())
            bar.update(finished if len(job.targets) == 1 else finished / len(job.targets))
    by_input: dict[int, list[ScoredPiece]] = {}
    for i, piece in enumerate(pieces):
        by_input.setdefault(piece.index, []).append(scored[i])
    return by_input


def check_memory(job: Job, pieces: Sequence[Piece]) -> None:
    """Raise UsageError if a method needs more memory for the longest input than there is."""
    texts = [piece for piece in pieces if piece.row.image is None]
    if not texts:
        return
    longest, config = max(texts, key=lambda piece: len(piece.row)), job.subject.model.config
    n = len(longest.row)
    sizes = [(estimate_bytes(job.subject, method.needs, n), method) for method in job.methods.values()]
    # Finding out what is free takes a millisecond, as long as a small pass.
    free = available_bytes(job.subject.device) if max(size for size, _ in sizes) > SMALL else None
    for needed, method in sizes:
        if free is not None and needed > free:
            heads = f"the attention of {config.num_hidden_layers} layers x {config.num_attention_heads} heads"
            raise UsageError(
                f": {method.label} needs about {_show_bytes(needed)} for {n:,} tokens (it reads {heads}), and "
                f"{_show_bytes(free)} are free; shorten it, or use a method that does not read attention: "
                "gradient-x-input, attn-lrp, leave-one-out",
                index=longest.index,
            )


def _show_bytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def _stack_by_row(pieces: Sequence[Piece]) -> list[list[int]]:
    """Group pieces that share a row."""
    stacks: dict[int, list[int]] = {}
    for i, piece in enumerate(pieces):
        stacks.setdefault(id(piece.row), []).append(i)
    return list(stacks.values())


def _group_by_size(pieces: Sequence[Piece]) -> list[list[int]]:
    """Group images of the same size, which can be stacked; texts form one group, because they are padded."""
    sizes: dict[Any, list[int]] = {}
    for i, piece in enumerate(pieces):
        sizes.setdefault(None if piece.row.image is None else piece.row.image.pixels.shape, []).append(i)
    return list(sizes.values())


def score_batch(job: Job, stacks: Sequence[Sequence[Piece]]) -> list[ScoredPiece]:
    """Score one batch: run one pass per view, then every method on its pass.

    The pieces of a stack share a row, and so the forward pass. Returns all pieces, stack by stack.
    """
    start, subject = perf_counter(), job.subject
    depth = max(map(len, stacks))
    # A stack with fewer pieces repeats its last one, whose repeated scores are left out at the end.
    layers = [[stack[min(number, len(stack) - 1)] for stack in stacks] for number in range(depth)]
    batch = subject.batch([stack[0].row for stack in stacks])
    chosen: list[Picks] = []

    def choose(logits: Tensor) -> list[Picks]:
        chosen[:] = chosen or [job.task.picks(layer, logits) for layer in layers]
        return chosen

    probes, memory = list[ModelProbe](), dict[str, Any]()
    cache = job.cache if depth == 1 else job.cache or LogitCache(subject)
    scored: list[dict[str, list[Scored]]] = [{} for _ in layers]
    logits: Tensor | None = None
    for view in job.passes:
        for number, trace in enumerate(_capture_each(subject, batch, choose, job.passes[view], depth)):
            if logits is None:
                logits = trace.logits
                check_logits(subject, batch, [stack[0].index for stack in stacks], logits)
            if len(probes) == number:
                probe = _make_probe(job, batch, layers[number], chosen[number], cache)
                probes.append(replace(probe, memory=memory))
            shared = _SharedPass(layers[number], perf_counter() - start, number)
            scored[number] |= _score_view(job, view, trace, probes[number], shared)
            del trace  # so that two are never in memory together
            start = perf_counter()
    assert logits is not None, "there is a plain view"
    made = [
        _finish(layer, logits, of_layer, goal) for layer, of_layer, goal in zip(layers, scored, chosen, strict=True)
    ]
    return [made[number][place] for place, stack in enumerate(stacks) for number in range(len(stack))]


def _capture_each(
    subject: Subject, batch: Batch, choose: Callable[[Tensor], list[Picks]], needs: Needs, depth: int
) -> Iterator[Trace]:
    if depth > 1:
        yield from capture_each(subject, batch, choose, needs)
    else:
        yield capture(subject, batch, lambda logits: choose(logits)[0], needs)


def _make_probe(job: Job, batch: Batch, pieces: Sequence[Piece], picks: Picks, cache: LogitCache | None) -> ModelProbe:
    return ModelProbe(
        job.subject,
        batch,
        picks,
        removals=job.task.removals(),
        segments=[piece.segments for piece in pieces],
        cache=cache,
        library_of=library_of_texts,
    )


def _finish(
    pieces: Sequence[Piece], logits: Tensor, scored: Mapping[str, Sequence[Scored]], picks: Picks
) -> list[ScoredPiece]:
    probability = track(picks, logits).tolist()
    return [
        ScoredPiece(piece, picks.target(i), probability[i], {key: rows[i] for key, rows in scored.items()}, logits[i])
        for i, piece in enumerate(pieces)
    ]


@dataclass(frozen=True)
class _SharedPass:
    """The pieces of a shared pass, and how long it took."""

    pieces: Sequence[Piece]
    seconds: float
    n_before: int = 0  # passes for other parts of the same rows, whose forward pass and evaluations this one shares


def _score_view(job: Job, view: View, trace: Trace, probe: ModelProbe, shared: _SharedPass) -> dict[str, list[Scored]]:
    methods = {key: method for key, method in job.methods.items() if method.needs.view == view}
    return {key: _run_method(method, trace, probe, shared, job.layers) for key, method in methods.items()}


def _run_method(method: Method, trace: Trace, probe: ModelProbe, shared: _SharedPass, layers: bool) -> list[Scored]:
    start, before, known = perf_counter(), probe.cost.sequences, _count_evaluated(probe)
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
    if shared.n_before:
        evaluations = (_count_evaluated(probe) - known) / len(rows)
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


def _count_evaluated(probe: ModelProbe) -> int:
    return 0 if probe.cache is None else probe.cache.tally.evaluated


def check_logits(subject: Subject, batch: Batch, indices: Sequence[int], logits: Tensor) -> None:
    finite = logits.isfinite().flatten(1).all(-1).tolist()
    if not all(finite):
        trace = capture(subject, batch, anything, Needs(frozenset({Site.EMBEDDINGS, Site.HIDDEN})))
        # Without padding, a text may spoil others. Where hidden states are recorded, padding is not skipped.
        finite = trace.logits.isfinite().flatten(1).all(-1).tolist()
        at = _locate_non_finite(trace) or "the classification head"
        problem = f"{subject.title} gives NaN or infinite logits; first found in {at}"
        index = indices[finite.index(False) if False in finite else 0]
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
