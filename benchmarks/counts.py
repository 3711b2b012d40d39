"""Rows of benchmarks/speed.py about evaluations: how many a benchmark needs, and what comes beside them."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

import contrast_cat
import sharing
import whichtoken as wt
from single_pass import WORDS, random_subject
from whichtoken.bench._protocol import protocol
from whichtoken.bench._run import prepare
from whichtoken.bench.measure import Item, measure
from whichtoken.core.ops import attended_gradient
from whichtoken.core.trace import Needs, Site
from whichtoken.methods.contrast_cat.contrast import Selection, overlaps
from whichtoken.models import capture, window_row
from whichtoken.targets import Predicted
from whichtoken.tasks.classify import pick_classes

Ratio = Callable[[Callable[[], object], Callable[[], object]], float]
Rows = Iterator[tuple[str, str, str, float, str]]


def benchmark_rows(subject: wt.Subject, texts: list[str]) -> Rows:
    """Count what a benchmark evaluates, and what a naive loop would: each step of each method and order by itself.

    Methods that remove words themselves evaluate as much again in both: Contrast-CAT nine steps of 30 maps.
    """
    names = [name for name in wt.method_names() if sharing.single_pass(name)]
    for chosen in (names, [*names, "contrast-cat"]):
        bench = prepare(subject, chosen, protocol(metrics=("aopc", "log-odds"), perturbations=("delete",)))
        lengths = [len(subject.encode([(text,)])[0].ids) for text in texts]
        items = [Item(i, i, "", (text,), n) for i, (text, n) in enumerate(zip(texts, lengths, strict=True))]
        part = measure(bench, items)
        naive = len(texts) * len(chosen) * 2 * 10  # two orders; the whole text and nine steps
        naive += len(texts) * (1 + 9 * 30) * ("contrast-cat" in chosen)
        what = f"bench of {len(chosen)} methods, {'with' if 'contrast-cat' in chosen else 'without'} contrast-cat"
        yield what, "evaluations of a naive loop", f"{len(texts)} texts, MoRF and LeRF", part.evaluated / naive, "0.5"


def contraction_rows(ratio: Ratio, size: tuple[int, int]) -> Rows:
    """Time the contraction of Contrast-CAT with 30 references of 512 tokens, against one forward pass."""
    for width, layers in (size,):
        subject = random_subject(width, layers)
        text = " ".join(WORDS * 40)[: 4 * 512]
        library = wt.references.build(subject, [f"{text} {word}" for word in WORDS * 3][:30], rule="random", n=30)
        (document,) = subject.encode([(text * 2,)])
        twin = subject.with_twin()
        batch = twin.batch([window_row(document, document.windows[0])])
        goal = pick_classes(twin, [Predicted()], twin.logits(batch))
        sites = frozenset({Site.HIDDEN, Site.ATTENTION})
        trace = capture(twin, batch, partial(_the_same, goal), Needs(sites, frozenset({Site.HIDDEN})))
        weights = attended_gradient(trace.value(Site.ATTENTION), trace.grad(Site.HIDDEN)[:-1], trace.lengths)
        contract = partial(overlaps, weights, trace, library, Selection(30, "position", slice(0, -1)))
        case = f"{batch.ids.shape[1]} tokens, {layers} x {width}"
        found = ratio(contract, partial(_run, subject, batch))
        yield "contraction with 30 references", "one forward", case, found, "0.1"


def _the_same(goal: Any, logits: Any) -> Any:
    return goal


def _run(subject: wt.Subject, batch: Any) -> None:
    with torch.no_grad():
        subject.model(input_ids=batch.ids, attention_mask=batch.mask.long())


def loop_rows(subject: wt.Subject) -> Rows:
    """Compare the refinement of Contrast-CAT with the authors' loop; at most 1 / 10 of its time at 16 tokens."""
    for length, goal in ((16, 10), (32, 6), (64, 4), (128, 3)):
        cells = contrast_cat.measure(subject, length, 30)
        share = 1 / float(cells[3].removesuffix(" x"))
        yield "refinement of contrast-cat", "the authors' loop", f"{length} tokens", share, f"{1 / goal:.2f}"
