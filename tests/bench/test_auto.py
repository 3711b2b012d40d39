"""Which method to use: never a control, a tuned one only if it leads by mask too; from a folder, cache, or run."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import WORDS, with_heads, with_references

import whichtoken as wt
from whichtoken.bench import _run as running
from whichtoken.bench import auto
from whichtoken.bench._run import Sample, run_sample
from whichtoken.bench.auto import BestMethod, best_method, choose
from whichtoken.bench.folder import table_json
from whichtoken.bench.measure import Bench
from whichtoken.bench.selection import default_methods
from whichtoken.errors import UsageError
from whichtoken.records import Plan
from whichtoken.tables import BenchTable, Column, Estimate, Line
from whichtoken.tasks import task_for

SubjectOf = Callable[..., wt.Subject]
NAMES = ("attcat", "gae", "cat", "contrast-cat", "random", "refined-noise")
TEXTS = ["the slow film was touching", "nobody did sleep but the music won"]
NORMALISED, PLAIN, MASKED = "normalised-aopc delete morf tenths", "aopc delete morf tenths", "aopc mask morf tenths"
COLUMNS = tuple(
    Column(name, name, "", "higher", metric=name.split(" ")[0], plan=Plan(name.split(" ")[1]))
    for name in (NORMALISED, PLAIN, MASKED)
)
FEW = wt.bench.protocol(metrics=("auc", "normalised-aopc"), orders=("morf",), min_tokens=1)


def line(method: str, normalised: float | None, masked: float | None = None, tuned_on_deletion: bool = False) -> Line:
    means = {NORMALISED: normalised, MASKED: masked}
    cells = {name: Estimate(mean, mean - 0.1, mean + 0.1, 9) for name, mean in means.items() if mean is not None}
    return Line(method, tuned_on_deletion, method in ("random", "refined-noise"), cells)


def chosen(*lines: Line) -> BestMethod:
    return choose(BenchTable("", (), COLUMNS, lines, ()), "an invented benchmark", NAMES)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is kept for the user is kept here."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def few_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a small benchmark, where it does not matter which they are."""
    monkeypatch.setattr(running, "default_methods", lambda *_, **__: ["attcat", "gae", "random"])


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The texts of each benchmark that was run."""
    found: list[list[Any]] = []

    def noted(bench: Bench, sample: Sample, *rest: Any) -> BenchTable:
        found.append([item.input for item in sorted(sample.items, key=lambda item: item.row)])
        return run_sample(bench, sample, *rest)

    monkeypatch.setattr(auto, "run_sample", noted)
    return found


def test_the_highest_normalised_aopc_is_chosen_and_the_reason_given() -> None:
    found = chosen(line("gae", 0.5, 0.9), line("attcat", 0.7, 0.1), line("cat", 0.6))
    assert found == BestMethod(
        "attcat", "attcat has the highest normalised AOPC, 0.700 [0.600, 0.800], in an invented benchmark"
    )


def test_controls_are_never_chosen() -> None:
    controls = line("random", 0.9, 0.9), line("refined-noise", 0.95, 0.95, tuned_on_deletion=True)
    assert chosen(*controls, line("gae", 0.2, 0.2)).method == "gae"
    with pytest.raises(UsageError, match="an invented benchmark has no AOPC for a method that this model"):
        chosen(*controls)


def test_a_searched_method_must_also_lead_by_mask() -> None:
    honest = line("attcat", 0.6, 0.3), line("gae", 0.5, 0.2)
    assert chosen(line("contrast-cat", 0.9, 0.4, True), *honest).method == "contrast-cat"
    for masked in (0.25, 0.3, None):  # lower, the same, not measured
        found = chosen(line("contrast-cat", 0.9, masked, True), *honest)
        assert found.method == "attcat"
        assert found.why.endswith("; higher, but tuned on deletion and not known to lead by mask: contrast-cat")
    assert chosen(line("contrast-cat", 0.4, 0.9, True), *honest).method == "attcat"  # and by deletion, too
    another = line("attcat", 0.6, 0.3), line("gae", 0.5, 0.8)  # ahead of it by mask, though not by deletion
    assert chosen(line("contrast-cat", 0.9, 0.4, True), *another).method == "attcat"
    without_mask = chosen(line("contrast-cat", 0.9, 0.4, True), line("attcat", 0.6), line("gae", 0.5))
    assert without_mask.method == "attcat"


def test_a_searched_method_is_chosen_where_there_is_no_other() -> None:
    assert chosen(line("contrast-cat", 0.4, None, True), line("random", 0.5)).method == "contrast-cat"


def test_what_was_not_measured_or_cannot_be_run_is_not_chosen() -> None:
    assert chosen(line("mask-lrp", 0.9), line("attcat", None), line("gae", 0.1)).method == "gae"


def test_the_usual_methods_are_those_that_the_model_can_run_and_that_ask_little(subject_of: SubjectOf) -> None:
    bare = set(default_methods(task_for(subject_of("bert"))))
    assert {"attcat", "gae", "random", "refined-noise", "transatt"} <= bare
    assert not bare & {"integrated-gradients", "tis", "contrast-cat", "mask-lrp"}
    equipped = with_heads(with_references(subject_of("bert")))
    assert set(default_methods(task_for(equipped))) == bare | {"contrast-cat", "mask-lrp"}


def test_from_a_folder(subject_of: SubjectOf, tmp_path: Path, runs: list[Any]) -> None:
    subject, out = subject_of("bert"), tmp_path / "folder"
    table = wt.bench.run(subject, TEXTS, ["attcat", "gae", "random", "refined-noise"], protocol=FEW, out=out)
    honest = {one.method: one.cells[NORMALISED].mean for one in table.lines if one.method in ("attcat", "gae")}
    found = best_method(subject, benchmark=out)
    assert found.method == max(honest, key=lambda name: honest[name])
    assert f"{honest[found.method]:.3f}" in found.why
    assert str(out) in found.why
    assert best_method(subject, benchmark=out / "table.json").method == found.method
    assert not runs
    with pytest.raises(UsageError, match="is a benchmark of tiny bert, not of this model"):
        best_method(subject_of("bert", labels=2), TEXTS, out)
    with pytest.raises(UsageError, match="there is no finished benchmark at"):
        best_method(subject, TEXTS, tmp_path)


@pytest.mark.usefixtures("few_methods")
def test_a_small_benchmark_is_run_once_and_then_used_again(
    subject_of: SubjectOf, cache: Path, runs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = subject_of("bert")
    with pytest.raises(UsageError, match="no stored benchmark of this model; pass texts to run a small one on"):
        best_method(subject)
    assert not cache.exists()
    monkeypatch.setattr(auto, "SMALL", 1)
    first = best_method(subject, TEXTS)
    assert runs == [[(TEXTS[0],)]]
    assert "in a small benchmark on 1 text" in first.why
    assert first.method not in ("random", "refined-noise")
    assert len([path for path in cache.rglob("*") if path.is_file()]) == 1
    again = best_method(subject, ["other texts"])
    assert (len(runs), again.method) == (1, first.method)
    assert "in a stored benchmark (1 of 1, of at least 1 tokens, seed 0)" in again.why
    assert best_method(subject).method == first.method
    best_method(subject_of("bert", labels=2), TEXTS)  # another model has its own
    assert len(runs) == 2
    stored = next(path for path in cache.rglob("*.json") if subject.fingerprint() in path.read_text("utf-8"))
    stored.write_text("{}", encoding="utf-8")  # as of another version
    assert best_method(subject, TEXTS).method == first.method
    assert len(runs) == 3


def test_without_bounds_plain_aopc_decides_and_says_so(subject_of: SubjectOf, cache: Path, runs: list[Any]) -> None:
    """One token has one order; so there is no place among all orders."""
    found = best_method(subject_of("bert"), ["slow"])
    assert found.why.startswith(f"{found.method} has the highest AOPC, ")
    assert best_method(subject_of("bert")).method == found.method
    assert len(runs) == 1


def test_what_the_model_can_run_is_part_of_the_cache(subject_of: SubjectOf, cache: Path, runs: list[Any]) -> None:
    best_method(subject_of("bert"), TEXTS[:1])
    best_method(with_heads(subject_of("bert")), TEXTS[:1])
    assert len(runs) == 2


@pytest.mark.usefixtures("few_methods")
def test_texts_may_be_a_file(subject_of: SubjectOf, tmp_path: Path, runs: list[Any]) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS), encoding="utf-8")
    best_method(subject_of("bert"), str(path))
    assert runs == [[(text,) for text in TEXTS]]


@pytest.mark.usefixtures("few_methods")
def test_a_cache_that_cannot_be_written_to_is_no_error(
    subject_of: SubjectOf, tmp_path: Path, runs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert best_method(subject_of("bert"), TEXTS[:1]) == best_method(subject_of("bert"), TEXTS[:1])
    assert len(runs) == 2


def test_a_tokenizer_without_a_mask_token_is_judged_by_deletion(subject_of: SubjectOf) -> None:
    subject = subject_of("gpt2")
    assert subject.filler("mask") is None
    assert best_method(subject, [" ".join(WORDS[:6])]).method in default_methods(task_for(subject))


def test_the_default_models_own_benchmark_comes_first(
    subject_of: SubjectOf, tmp_path: Path, runs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = subject_of("bert")
    wt.bench.run(subject, TEXTS[:1], ["gae", "random"], protocol=FEW, out=tmp_path / "shipped")
    monkeypatch.setattr(auto, "SHIPPED", tmp_path / "shipped" / "table.json")
    found = best_method(subject, TEXTS)
    assert found.method == "gae"
    assert "the benchmark that comes with whichtoken (1 of 1, of at least 1 tokens" in found.why
    assert not runs
    renamed = replace(subject, revision="another")
    assert "in a small benchmark" in best_method(renamed, TEXTS[:1]).why


def test_a_stored_benchmark_may_not_say_how_many_texts_it_has(
    subject_of: SubjectOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = subject_of("bert")
    table = BenchTable("", tuple(vars(subject.identity()).items()), COLUMNS, (line("attcat", 0.5),), ())
    (tmp_path / "table.json").write_text(table_json(table), encoding="utf-8")
    monkeypatch.setattr(auto, "SHIPPED", tmp_path / "table.json")
    assert best_method(subject).why.endswith("in the benchmark that comes with whichtoken (size unknown)")


def measured(subject: wt.Subject, n: int, drop: tuple[str, ...] = (), best: str = "gae") -> BenchTable:
    """An invented benchmark of all that a quick one measures, on `n` texts; `best` leads."""
    names = [name for name in default_methods(task_for(subject), effort="quick") if name not in drop]
    cells = {name: 0.9 if name == best else 0.5 for name in names}
    lines = [
        Line(name, False, name == "random", {PLAIN: Estimate(mean, mean - 0.1, mean + 0.1, n)})
        for name, mean in cells.items()
    ]
    facts = (*vars(subject.identity()).items(), ("texts", f"{n} of 99"))
    return BenchTable("", facts, COLUMNS, tuple(lines), ())


def test_a_benchmark_that_is_remembered_is_used_until_there_is_a_larger_one(
    subject_of: SubjectOf, runs: list[Any]
) -> None:
    subject = subject_of("bert")
    assert auto.remember(subject, measured(subject, 20, best="cat")) == "a stored benchmark"
    found = best_method(subject, TEXTS)
    assert found == BestMethod(
        "cat", "cat has the highest AOPC, 0.900 [0.800, 1.000], in a stored benchmark (20 of 99)"
    )
    assert auto.remember(subject, measured(subject, 12, best="gae")) == "a stored benchmark, which is larger"
    assert best_method(subject).method == "cat"
    for n, best in ((20, "attcat"), (100, "gae")):  # again, and more
        assert auto.remember(subject, measured(subject, n, best=best)) == "a stored benchmark"
        assert best_method(subject).method == best
    assert not runs


def test_a_benchmark_of_some_methods_is_not_remembered(subject_of: SubjectOf, cache: Path) -> None:
    subject = subject_of("bert")
    assert auto.remember(subject, measured(subject, 100, drop=("attcat",))) == ""
    table = measured(subject, 100)
    assert (
        auto.remember(subject, replace(table, columns=(), lines=tuple(replace(x, cells={}) for x in table.lines))) == ""
    )
    assert not cache.exists()


def test_a_larger_benchmark_than_the_default_models_own_is_used_instead(
    subject_of: SubjectOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = subject_of("bert")
    (tmp_path / "table.json").write_text(table_json(measured(subject, 48)), encoding="utf-8")
    monkeypatch.setattr(auto, "SHIPPED", tmp_path / "table.json")
    name = "the benchmark that comes with whichtoken"
    assert auto.remember(subject, measured(subject, 20, best="cat")) == f"{name}, which is larger"
    assert best_method(subject).method == "gae"
    assert auto.remember(subject, measured(subject, 49, best="cat")) == "a stored benchmark"
    assert best_method(subject).method == "cat"


def test_where_nothing_can_be_written_nothing_is_remembered(
    subject_of: SubjectOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert auto.remember(subject_of("bert"), measured(subject_of("bert"), 20)) == ""


def test_the_benchmark_that_comes_with_whichtoken_can_be_read() -> None:
    table = wt.bench.read_table(auto.SHIPPED)
    assert table.verdict.startswith("Use ")
    assert choose(table, "it", ["attcat", "gae"]).method == "attcat"
