"""The bar of a benchmark: it moves with every text, and the time left is that of the texts still to be measured."""

from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tiny import WORDS
from tqdm import tqdm

import whichtoken as wt
from whichtoken.bench import _run as running
from whichtoken.bench import measure as measuring

SubjectOf = Callable[..., wt.Subject]
SOURCE = np.random.default_rng(5)
TEXTS = [" ".join(SOURCE.choice(WORDS, n).tolist()) for n in (4, 6, 5, 7, 5)]
SECONDS = 10  # that a text takes, by the clock below


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Goes on by SECONDS for each text that is measured, and only then."""
    made, really = Clock(), measuring._measure_item

    def slow(*arguments: Any) -> Any:
        made.now += SECONDS
        return really(*arguments)

    monkeypatch.setattr("tqdm.std.time", made)
    monkeypatch.setattr(measuring, "_measure_item", slow)
    return made


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> list[str]:
    """What a terminal would show after each move of the bar."""
    lines: list[str] = []

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, **settings: Any) -> None:
            super().__init__(**{**settings, "disable": False, "file": StringIO(), "ncols": 100})

        def update(self, n: int = 1) -> None:
            super().update(n)
            if n:
                lines.append(str(self))

    monkeypatch.setattr(running, "tqdm", Bar)
    return lines


def protocol(**settings: Any) -> wt.bench.Protocol:
    chosen = {"metrics": ("aopc",), "orders": ("morf",), "perturbations": ("delete",), "min_tokens": 1, **settings}
    return wt.bench.protocol(**chosen)


def places(lines: Sequence[str]) -> list[str]:
    """How many of how many, and the time left."""
    return [f"{line.partition('| ')[2].split()[0]} {line.partition('<')[2].partition(',')[0]}" for line in lines]


def test_the_bar_moves_with_every_text_and_knows_the_time_left(subject_of: SubjectOf, shown: list[str]) -> None:
    wt.bench.run(subject_of("bert"), TEXTS, ["attcat", "random"], protocol=protocol())
    assert places(shown) == ["1/5 00:40", "2/5 00:30", "3/5 00:20", "4/5 00:10", "5/5 00:00"]


def test_what_an_earlier_run_measured_does_not_shorten_the_time_left(
    subject_of: SubjectOf, shown: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject, methods = subject_of("bert"), ["attcat", "random"]
    monkeypatch.setattr(running, "INPUTS_AT_ONCE", 2)
    wt.bench.run(subject, TEXTS, methods, protocol=protocol(sample=3), out=tmp_path)
    shown.clear()
    wt.bench.run(subject, TEXTS, methods, protocol=protocol(sample=5), out=tmp_path)
    assert places(shown)[-2:] == ["4/5 00:10", "5/5 00:00"]
    assert [place.split()[0] for place in places(shown)] == ["3/5", "4/5", "5/5"]


def test_a_text_that_is_skipped_counts(subject_of: SubjectOf, shown: list[str]) -> None:
    how = protocol(min_probability=0.6)
    table = wt.bench.run(subject_of("bert"), TEXTS, ["attcat"], protocol=how)
    assert table.lines[0].cells["aopc delete morf tenths"].n < len(TEXTS)
    assert [place.split()[0] for place in places(shown)] == [f"{n}/5" for n in range(1, 6)]


@pytest.mark.parametrize(("methods", "groups"), [(["attcat"], [5]), (["attcat", "refined-noise"], [4, 1])])
def test_slow_methods_explain_a_few_texts_at_a_time_so_that_progress_is_seen(
    methods: list[str], groups: list[int], subject_of: SubjectOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    really = measuring.explain_items

    def note(bench: Any, items: Sequence[Any], cache: Any) -> Any:
        found.append(len(items))
        return really(bench, items, cache)

    monkeypatch.setattr(measuring, "explain_items", note)
    wt.bench.run(subject_of("bert"), TEXTS, methods, protocol=protocol())
    assert found == groups


@pytest.mark.parametrize(("methods", "hidden"), [(["attcat"], [True]), (["attcat", "refined-noise"], [True] * 2)])
def test_explaining_has_no_bar_of_its_own_inside_a_benchmark(
    methods: list[str], hidden: list[bool | None], subject_of: SubjectOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool | None] = []

    def note(**settings: Any) -> Any:
        found.append(settings["disable"])
        return tqdm(**{**settings, "disable": True})

    monkeypatch.setattr("whichtoken._explain.tqdm", note)
    wt.bench.run(subject_of("bert"), TEXTS, methods, protocol=protocol())
    assert found == hidden
