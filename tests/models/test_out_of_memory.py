"""Batches that do not fit in memory are halved, and the results are those of the whole batch."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from tests.tiny import WORDS, with_references
from torch import Tensor, nn

import whichtoken as wt
from whichtoken.core.trace import Method
from whichtoken.models.memory import halve_if_needed, is_out_of_memory

SubjectOf = Callable[..., wt.Subject]
TEXTS = [" ".join(WORDS[number : 6 + number]) for number in range(7)]
FULL = RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: 1 bytes")


@contextmanager
def refusing(model: nn.Module, most: int) -> Iterator[list[int]]:
    """Let a model refuse batches of more than `most` rows; the list has the sizes of the others."""
    sizes: list[int] = []

    def check(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        rows = len(kwargs["input_ids"])
        if rows > most:
            raise FULL
        sizes.append(rows)

    with model.register_forward_pre_hook(check, with_kwargs=True):
        yield sizes


def test_scores_and_curves_are_those_of_whole_batches(subject_of: SubjectOf) -> None:
    subject = with_references(subject_of("bert"), [" ".join(text.split()[::-1]) for text in TEXTS])
    methods: list[str | Method] = [
        "attcat",
        "transatt",
        "integrated-gradients",
        "contrast-cat",
        wt.method("posterior", budget=16),
    ]
    expected = wt.explain(subject, TEXTS, methods)
    curves = wt.degrade(subject, expected)
    with refusing(subject.model, 3) as sizes:
        found = wt.explain(subject, TEXTS, methods)
        again = wt.degrade(subject, found)
    assert max(sizes) == 3
    for one, other in zip(expected, found, strict=True):
        for name, record in one.items():
            assert other[name].scores == pytest.approx(record.scores, rel=1e-9, abs=1e-12)
    for curve, other_curve in zip(curves, again, strict=True):
        assert other_curve.probability == pytest.approx(curve.probability, rel=1e-9)


def test_reference_libraries_are_the_same(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    whole = wt.references.build(subject, TEXTS, rule="random", n=3, min_tokens=1)
    with refusing(subject.model, 2):
        halved = wt.references.build(subject, TEXTS, rule="random", n=3, min_tokens=1)
    for one, other in zip(whole.packed, halved.packed, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one.tensors, other.tensors)


def test_a_single_input_that_does_not_fit_is_an_error(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    with refusing(subject.model, 0), pytest.raises(RuntimeError, match="can't allocate"):
        wt.explain(subject, TEXTS[:2], "attcat")


def test_memory_that_runs_out_on_the_way_back_halves_the_batch(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    expected = wt.explain(subject, TEXTS, "attcat")

    def refuse(grad: Tensor) -> None:
        if len(grad) > 3:
            raise FULL

    def watch(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if output.logits.requires_grad:
            output.logits.register_hook(refuse)

    with subject.model.register_forward_hook(watch):
        found = wt.explain(subject, TEXTS, "attcat")
    for one, other in zip(expected, found, strict=True):
        assert other["attcat"].scores == pytest.approx(one["attcat"].scores, rel=1e-9, abs=1e-12)


def test_other_errors_are_raised_at_once() -> None:
    calls: list[Sequence[int]] = []

    def work(items: Sequence[int]) -> list[int]:
        calls.append(items)
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        halve_if_needed(work, range(4))
    assert len(calls) == 1


def test_results_keep_their_order() -> None:
    def work(items: Sequence[int]) -> list[int]:
        if len(items) > 2:
            raise MemoryError
        return [10 * item for item in items]

    assert halve_if_needed(work, range(7)) == [0, 10, 20, 30, 40, 50, 60]
    assert is_out_of_memory(FULL)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory."))
    assert not is_out_of_memory(ValueError("can't allocate memory"))
