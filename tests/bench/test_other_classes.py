"""Kendall's tau between classes: which classes the explained one is compared with, and how many."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from scipy.stats import kendalltau
from tests.tiny import CORPUS, KINDS, image_model_of, images, model_of, token_subject

import whichtoken as wt
from whichtoken._explain import explain_with
from whichtoken.bench import _run as running
from whichtoken.bench import measure as measuring
from whichtoken.bench._run import gather, prepare, specification
from whichtoken.bench.folder import Folder
from whichtoken.bench.metrics import METRICS, ScoredInput
from whichtoken.errors import BadSetting, UsageError
from whichtoken.records import Attribution
from whichtoken.reproduce.protocols import positions_tau
from whichtoken.tables import BenchTable

SubjectOf = Callable[..., wt.Subject]
TEXTS = ["the slow film won the end", "nobody did sleep but the actors", "it is a touching plot"]
METHODS = ["attcat", "gae", "random"]
MANY = 7


@cache
def many_classes() -> wt.Subject:
    names = {i: f"class {i}" for i in range(MANY)}
    return wt.Subject(model_of("bert", labels=MANY, id2label=names), KINDS["bert"].tokenizer(), name="many")


def quick(*metrics: str, **settings: Any) -> wt.bench.Protocol:
    chosen = {"perturbations": ("delete",), "orders": ("morf",), "min_tokens": 1, **settings}
    return wt.bench.protocol(metrics=metrics, **chosen)


def means(table: BenchTable, column: str) -> dict[str, float]:
    return {line.method: line.cells[column].mean for line in table.lines if column in line.cells}


def classes_by_probability(subject: wt.Subject, text: str) -> list[int]:
    """The explained class first."""
    with torch.no_grad():
        logits = subject.model(**subject.processor(text, return_tensors="pt")).logits[0]
    return sorted(range(len(logits)), key=lambda label: -float(logits[label]))


@cache
def scores(subject: wt.Subject, text: str, label: int) -> dict[str, Sequence[float]]:
    """By method, of all tokens."""
    return {name: record.scores for name, record in wt.explain(subject, [text], METHODS, label)[0].items()}


def mean_tau(subject: wt.Subject, method: str, n_others: int) -> float:
    """The mean over texts of the mean over the most probable remaining classes, one explanation at a time."""
    of_texts: list[float] = []
    for text in TEXTS:
        own, *others = (scores(subject, text, label)[method][1:-1] for label in classes_by_probability(subject, text))
        of_texts.append(fmean(kendalltau(own, other).statistic for other in others[:n_others]))
    return fmean(of_texts)


def test_kendall_is_the_mean_over_all_remaining_classes(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    table = wt.bench.run(subject, TEXTS, METHODS, protocol=quick("kendall"))
    expected = {method: mean_tau(subject, method, 2) for method in METHODS}
    assert means(table, "kendall") == pytest.approx(expected, abs=1e-9)
    assert means(table, "kendall")["random"] == 1.0  # it does not depend on the class
    assert not any("remaining" in note for note in table.notes)


def test_two_classes_are_compared_with_each_other_by_both_metrics(subject_of: SubjectOf) -> None:
    subject = subject_of("bert", labels=2)
    table = wt.bench.run(subject, TEXTS, ["attcat"], protocol=quick("kendall", "positions-kendall"))
    pairs = [[scores(subject, text, label)["attcat"] for label in (0, 1)] for text in TEXTS]
    tau = fmean(kendalltau(a[1:-1], b[1:-1]).statistic for a, b in pairs)
    assert means(table, "kendall")["attcat"] == pytest.approx(tau, abs=1e-9)
    assert means(table, "positions-kendall")["attcat"] == pytest.approx(fmean(positions_tau(*pair) for pair in pairs))


@pytest.mark.parametrize(("most", "n_others"), [(None, 5), (2, 2), (100, 6)])
def test_of_many_classes_the_most_probable_are_compared(
    most: int | None, n_others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    explained: list[int] = []
    explain_really = explain_with

    def count(*call: Any) -> Any:
        explained.append(len(call[1]))
        return explain_really(*call)

    monkeypatch.setattr(measuring, "explain_with", count)
    subject, settings = many_classes(), {} if most is None else {"other_classes": most}
    table = wt.bench.run(subject, TEXTS, ["attcat", "gae"], protocol=quick("kendall", **settings))
    expected = {method: mean_tau(subject, method, n_others) for method in ("attcat", "gae")}
    assert means(table, "kendall") == pytest.approx(expected, abs=1e-9)
    assert sum(explained) == len(TEXTS) * (1 + n_others)
    which = f"the {n_others} most probable of the 6 remaining classes (other_classes)."
    assert (f"kendall compares the explained class with {which}" in table.notes) == (n_others < 6)


def test_what_the_papers_compare_is_the_next_class_also_if_it_is_improbable() -> None:
    subject = many_classes()
    both = wt.bench.run(subject, TEXTS, ["attcat"], protocol=quick("kendall", "positions-kendall", other_classes=1))
    taus = []
    for text in TEXTS:
        own, most_probable, *_ = classes_by_probability(subject, text)
        following = (own + 1) % MANY
        taus.append(positions_tau(*(scores(subject, text, label)["attcat"] for label in (own, following))))
        assert most_probable != following
    assert means(both, "positions-kendall")["attcat"] == pytest.approx(fmean(taus), abs=1e-9)
    assert means(both, "kendall")["attcat"] == pytest.approx(mean_tau(subject, "attcat", 1), abs=1e-9)
    titles = {column.name: column.title for column in both.columns}
    assert titles["kendall"] == "Kendall's tau between classes"
    assert titles["positions-kendall"] == "Kendall's tau of positions, next class"
    abouts = {column.name: column.about for column in both.columns}
    assert "each remaining class" in abouts["kendall"]
    assert "the next one" in abouts["positions-kendall"]


def test_the_most_probable_classes_of_an_image_are_compared() -> None:
    subject = wt.Subject(image_model_of("vit", num_labels=MANY), None, name="tiny vit")
    how = quick("kendall", perturbations=("mean",), other_classes=2)
    table = wt.bench.run(subject, list(images(2)), ["attcat"], protocol=how)
    taus = []
    for pixels in images(2):
        with torch.no_grad():
            own, *others = subject.model(pixels[None]).logits[0].argsort(descending=True).tolist()
        maps = [wt.explain(subject, images=[pixels], methods="attcat", target=c)[0]["attcat"] for c in (own, *others)]
        patches = [record.scores[1:] for record in maps]
        taus += [kendalltau(patches[0], other).statistic for other in patches[1:3]]
    assert means(table, "kendall")["attcat"] == pytest.approx(fmean(taus), abs=1e-9)


def test_the_classes_do_not_depend_on_what_is_measured_together(monkeypatch: pytest.MonkeyPatch) -> None:
    how = quick("aopc", "kendall", other_classes=3)
    together = wt.bench.run(many_classes(), TEXTS, METHODS, protocol=how)
    monkeypatch.setattr(running, "INPUTS_AT_ONCE", 1)
    apart = wt.bench.run(many_classes(), TEXTS, METHODS, protocol=how)
    assert means(apart, "kendall") == pytest.approx(means(together, "kendall"), abs=1e-9)


def record_of(*scores: float) -> Any:
    """Only what the metric reads."""
    return list(scores)


def test_a_constant_explanation_is_not_ranked() -> None:
    def tau(own: Any, *others: Any) -> float | None:
        units: Callable[[Attribution], Sequence[float]] = lambda record: record  # type: ignore[assignment,return-value]  # noqa: E731
        return METRICS["kendall"].value(ScoredInput(own, None, tuple(others), units, None, 20))

    rising, falling, constant = record_of(1, 2, 3), record_of(3, 2, 1), record_of(1, 1, 1)
    assert tau(rising, rising, falling, falling) == pytest.approx(-1 / 3)
    assert tau(rising, constant, falling) == -1.0  # a class without a ranking is left out
    assert tau(rising, constant) is tau(constant, rising) is tau(rising) is None


@pytest.mark.parametrize(
    ("labels", "metric", "resumed"), [(3, "kendall", False), (2, "kendall", True), (3, "positions-kendall", True)]
)
def test_a_folder_in_which_only_the_next_class_was_compared_is_resumed_if_its_numbers_are_the_same(
    labels: int, metric: str, resumed: bool, subject_of: SubjectOf, tmp_path: Path
) -> None:
    bench = prepare(subject_of("bert", labels=labels), ["gae"], quick("aopc", metric))
    spec = specification(bench, gather(bench, bench.task.examples(TEXTS, None, None)), {})
    older = {name: value for name, value in spec["protocol"].items() if name != "other_classes"}
    Folder(tmp_path).claim({**spec, "protocol": older}, {})
    if resumed:
        Folder(tmp_path).claim(spec, {})
    else:
        with pytest.raises(UsageError, match=r"holds another benchmark .*protocol was"):
            Folder(tmp_path).claim(spec, {})


def test_where_no_class_is_explained_none_is_compared() -> None:
    """Models that label tokens have labels, but a target is not one of them."""
    table = wt.bench.run(token_subject(), CORPUS[:3], ["gae"], protocol=quick("aopc", "kendall", other_classes=1))
    assert "kendall" not in {column.name for column in table.columns}
    assert not any("remaining classes" in note for note in table.notes)


def test_at_least_one_other_class_is_compared() -> None:
    with pytest.raises(BadSetting, match="other_classes=0"):
        wt.bench.protocol(other_classes=0)
