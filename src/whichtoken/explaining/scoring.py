"""One batch: its passes, then each method on its pass. What texts, questions and images have in common."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import Any

from torch import Tensor
from tqdm.auto import tqdm

from whichtoken.core.objectives import AnyGoal, any_goal
from whichtoken.core.registry import chosen_methods
from whichtoken.core.trace import Method, Needs, Site, Trace, View, passes, written
from whichtoken.errors import BadSetting, NotFinite
from whichtoken.models import Answers, Batch, Document, ModelProbe, Subject, capture
from whichtoken.references.build import library_of_texts

TOKENS_PER_BATCH = 4096
PAIRS_PER_BATCH = 2**27  # layers x heads x queries x keys of attention: 0.5 GB in float32, a few times that in a pass


@dataclass(frozen=True)
class Work:
    """Which methods to run on which model."""

    subject: Subject
    methods: Mapping[str, Method]
    passes: Mapping[View, Needs]  # the plain view first: it decides what is explained
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


def work_of(subject: Subject, methods: Iterable[str | Method], layers: bool) -> Work:
    if not isinstance(subject, Subject):
        raise BadSetting("subject", type(subject).__name__, "a Subject: wt.load(name), or wt.Subject(model, tokenizer)")
    chosen = chosen_methods(methods)
    return Work(subject.twinned(), chosen, passes(chosen.values()), layers, subject.fingerprint())


def _n_attentions(needs: Needs) -> int:
    """How many sets of attention matrices a pass keeps; values and gradients count as one: most want both."""
    under = sum(site is Site.ATTENTION for _, site in needs.relevance)
    return under + (Site.ATTENTION in needs.values | needs.grads)


@dataclass(frozen=True)
class Scored:
    """One method's answer for one row of a batch."""

    scores: tuple[float, ...]
    details: Mapping[str, object]
    layers: tuple[tuple[float, ...], ...]
    seconds: float
    evaluations: float
    pixels: Tensor | None = None  # of an image, where the method gives them: row column


@dataclass(frozen=True)
class BatchScores:
    """Every method's answers for a batch, and what they explain."""

    goal: AnyGoal
    logits: Tensor
    scored: Mapping[str, Sequence[Scored]]


@dataclass(frozen=True)
class _Asked:
    """For which inputs a pass was made, and how long it took."""

    numbers: Sequence[int]
    seconds: float
    layers: bool


def score_batch(work: Work, batch: Batch, numbers: Sequence[int], choose: Callable[[Tensor], AnyGoal]) -> BatchScores:
    """`numbers`: what errors call the rows. `choose`: from logits to what is explained."""
    start = perf_counter()
    trace = capture(work.subject, batch, choose, work.passes[View()])
    check_logits(work.subject, batch, numbers, trace.logits)
    goal, logits = choose(trace.logits), trace.logits
    probe = ModelProbe(work.subject, batch, goal, answers=work.answers, library_of=library_of_texts)
    scored = _score_view(work, View(), trace, probe, _Asked(numbers, perf_counter() - start, work.layers))
    for view in [view for view in work.passes if view != View()]:
        del trace  # two views need not be in memory together
        start = perf_counter()
        trace = capture(work.subject, batch, lambda logits: goal, work.passes[view])
        scored |= _score_view(work, view, trace, probe, _Asked(numbers, perf_counter() - start, work.layers))
    return BatchScores(goal, logits, scored)


def _score_view(work: Work, view: View, trace: Trace, probe: ModelProbe, asked: _Asked) -> dict[str, list[Scored]]:
    methods = {key: method for key, method in work.methods.items() if method.needs.view == view}
    return {key: _score(method, trace, probe, asked) for key, method in methods.items()}


def _score(method: Method, trace: Trace, probe: ModelProbe, asked: _Asked) -> list[Scored]:
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
    fine = found.pixels
    return [
        Scored(tuple(row.tolist()), dict(about), summands, seconds, own, None if fine is None else fine[number])
        for number, (row, about, summands) in enumerate(zip(rows, details, layers, strict=True))
    ]


def check_logits(subject: Subject, batch: Batch, numbers: Sequence[int], logits: Tensor) -> None:
    finite = logits.isfinite().flatten(1).all(-1).tolist()
    if not all(finite):
        everything = Needs(frozenset({Site.EMBEDDINGS, Site.HIDDEN}))
        trace = capture(subject, batch, any_goal, everything)
        at = _first_bad(trace) or "the classification head"
        raise NotFinite(
            f"{subject.title} gives NaN or infinite logits for input {numbers[finite.index(False)]}; "
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


def in_chunks(inputs: Iterable[Any], size: int, unit: str) -> Iterator[tuple[list[Any], int, Any]]:
    """Some inputs after the other, the number of the first of them, and the progress bar, which counts all."""
    total, rest, first = len(inputs) if isinstance(inputs, Sized) else None, iter(inputs), 0
    with tqdm(total=total, desc="explaining", unit=f" {unit}", disable=None, delay=1, leave=False) as bar:
        while chunk := list(islice(rest, size)):
            yield chunk, first, bar
            first += len(chunk)


def token_fields(document: Document, shown: Sequence[int]) -> dict[str, Any]:
    """The fields of an Attribution that say what its tokens are."""
    names = ("tokens", "spans", "sequences", "word_ids")
    return {"texts": document.texts, **{name: tuple(getattr(document, name)[i] for i in shown) for name in names}}


def made_by(work: Work, key: str) -> dict[str, Any]:
    """The fields of an Attribution that say how it was made, the same for every input."""
    method = work.methods[key]
    return {
        "method": method.name,
        "settings": {name: written(value) for name, value in method.settings.items()},
        "searched": method.searched,
        "model": work.subject.title,
        "revision": work.revision,
    }
