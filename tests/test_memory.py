"""Memory: nothing outlives a call, a pass frees what it no longer needs, and freed memory is returned."""

import gc
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
import torch
from tests.heads.corpus import SLOW
from tests.tiny import CORPUS, KINDS, image_model_of, images, model_of, with_heads, with_references
from torch.profiler import ProfilerActivity, profile

import whichtoken as wt
from whichtoken._explain import plan
from whichtoken.core.perturb import Fill, Pattern
from whichtoken.core.rows import Row
from whichtoken.core.trace import Trace
from whichtoken.models import LogitCache
from whichtoken.models.memory import find_malloc_trim, return_freed_memory
from whichtoken.models.twin import make_twin

SubjectOf = Callable[..., wt.Subject]
METHODS = ("contrast-cat", "gae", "attn-lrp", "mask-lrp", wt.method("integrated-gradients", steps=2), "random")
STATUS = Path("/proc/self/status")


def explain(subject: wt.Subject) -> list[wt.Attribution]:
    return [attribution for of_text in wt.explain(subject, CORPUS[:2], METHODS) for attribution in of_text.values()]


def degrade(subject: wt.Subject) -> None:
    wt.degrade(subject, explain(subject))


def measure(subject: wt.Subject) -> None:
    wt.bench.run(subject, CORPUS[:2], METHODS, protocol=wt.bench.protocol(min_tokens=1, metrics=("aopc", "kendall")))


@pytest.fixture
def bert(subject_of: SubjectOf) -> wt.Subject:
    return with_heads(with_references(subject_of("bert")))


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def count_tensors() -> int:
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("run", [explain, degrade, measure])
def test_nothing_outlives_a_call(
    run: Callable[[wt.Subject], object], bert: wt.Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cyclic collector is off: a cycle would keep a twin, and what its hooks captured, until it happens to run."""
    made: list[ref[Any]] = []

    def remember(make: Callable[..., Any]) -> Callable[..., Any]:
        def remembering(*args: Any, **options: Any) -> Any:
            result = make(*args, **options)
            made.append(ref(args[0] if result is None else result))
            return result

        return remembering

    for cls in (Trace, LogitCache):
        monkeypatch.setattr(cls, "__init__", remember(cls.__init__))
    monkeypatch.setattr("whichtoken.models.subject.make_twin", remember(make_twin))
    run(bert)
    before, kept = count_tensors(), [spare.twin for spare in bert.spares]
    assert made
    assert len(kept) <= 1
    assert {type(thing()) for thing in made if thing() not in kept} == {type(None)}
    run(bert)
    assert count_tensors() == before


@pytest.mark.parametrize(("method", "most"), [("attcat", 2.5), ("gae", 3), ("attn-lrp", 2.5), ("partial-lrp", 5)])
def test_a_pass_keeps_no_attention_that_it_no_longer_needs(method: str, most: float) -> None:
    """A set of attention is one matrix for each text, layer and head. Copies without padding replace what they copy."""
    model = model_of("bert", max_position_embeddings=128)
    subject = with_heads(wt.Subject(model, KINDS["bert"].tokenizer()))
    texts = ["slow " * 100, "slow " * 95]
    wt.explain(subject, texts, [method])
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiled:
        wt.explain(subject, texts, [method])
    changes = [(e.start_ns(), e.nbytes()) for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
    peak = total = 0
    for _, change in sorted(changes):
        total += change
        peak = max(peak, total)
    one_set = len(texts) * subject.n_layers * subject.n_heads * 102**2 * 8
    assert one_set < peak < most * one_set


@pytest.mark.parametrize(("method", "size"), [("attn-lrp", 1), ("full-lrp", 2), ("cp-lrp", 1)])
def test_a_batch_is_bounded_by_the_attention_that_propagation_keeps(
    method: str, size: int, subject_of: SubjectOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if no attention is recorded: the graph that relevance goes back through holds it, for some in float64."""
    monkeypatch.setattr("whichtoken.scoring.PAIRS_PER_BATCH", size * 2 * 4**2 * 9)  # two texts of 4 tokens, 9 heads
    job = plan(subject_of("bert"), [method])
    assert job.fits(2, 4)
    assert not job.fits(3, 4)
    assert plan(subject_of("bert"), ["integrated-gradients"]).fits(3 * size, 4)


@dataclass(frozen=True)
class Counted(Fill):
    """Counts the images that exist at the same time."""

    name: str = "counted"
    colour: tuple[float, ...] | None = (0.0, 0.0, 0.0)
    made: list[ref[Any]] = field(default_factory=list, compare=False)
    alive: list[int] = field(default_factory=list, compare=False)

    def __call__(self, row: Row, keep: Pattern) -> Row:
        filled = super().__call__(row, keep)
        self.made.append(ref(filled.image))
        self.alive.append(sum(image() is not None for image in self.made))
        return filled


def test_an_image_with_parts_removed_exists_only_while_the_model_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = wt.Subject(image_model_of("vit"), None, name="vit")
    pixels = list(images(1))
    (explained,) = wt.explain(subject, images=pixels, methods=["gae", "rollout"])
    attributions, counted = list(explained.values()), Counted()
    monkeypatch.setattr("whichtoken.models.subject.TOKENS_PER_BATCH", 40)  # four images
    curves = wt.degrade(subject, attributions, counted, grid="all", inputs=pixels * 2)
    assert len(counted.made) >= 20
    assert max(counted.alive) <= 5  # a batch, and the last one whose key was computed
    assert [len(curve.probability) for curve in curves] == [10, 10]


def resident_mb() -> float:
    return int(re.findall(r"VmRSS:\s+(\d+) kB", STATUS.read_text())[0]) / 1024


def fragment(mb: int) -> list[torch.Tensor]:
    """Allocate and free, except for every tenth block: the allocator can then give nothing back by itself."""
    blocks = [torch.ones(8192) for _ in range(32 * mb)]  # of 32 kB: smaller than what gets pages of its own
    return blocks[::10]


def find_references(subject: wt.Subject) -> None:
    with_references(subject)


def find_heads(subject: wt.Subject) -> None:
    wt.heads.build(subject, [SLOW])


@pytest.mark.parametrize("run", [explain, degrade, measure, find_references, find_heads])
def test_freed_memory_is_returned(run: Callable[[wt.Subject], object], bert: wt.Subject) -> None:
    if find_malloc_trim() is None or not STATUS.exists():
        pytest.skip("the C library is not glibc")
    return_freed_memory()
    kept = fragment(500)
    before = resident_mb()
    run(bert)
    assert resident_mb() < before - 250
    assert kept


def test_a_little_freed_memory_is_kept_for_the_next_call(bert: wt.Subject) -> None:
    if find_malloc_trim() is None or not STATUS.exists():
        pytest.skip("the C library is not glibc")
    return_freed_memory()
    kept = fragment(100)
    before = resident_mb()
    explain(bert)
    assert resident_mb() > before - 50
    assert kept


def test_without_glibc_nothing_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        def __init__(self, name: None) -> None:
            pass

    monkeypatch.setattr("ctypes.CDLL", Library)
    find_malloc_trim.cache_clear()
    assert find_malloc_trim() is None
    return_freed_memory()
    find_malloc_trim.cache_clear()
