"""compare: every cell against the public functions, text by text; which texts are measured; what the model reads."""

import base64
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from itertools import pairwise, permutations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from tests.tiny import WORDS, with_heads, with_references

import whichtoken as wt
from whichtoken.bench import _run as running
from whichtoken.bench import folder as files
from whichtoken.bench._run import Sample, gather, prepare, run_sample
from whichtoken.bench.external import External, ExternalScores
from whichtoken.bench.folder import Folder, read_table
from whichtoken.bench.measure import Bench, Item, measure
from whichtoken.bench.results import InputResult, MethodResult, Part, every_input, read_part
from whichtoken.errors import BadArtifact, BadInput, NotFinite, UnknownName, UnsupportedModel, UsageError
from whichtoken.jobs.parts import hash_content
from whichtoken.metrics.curves import aopc, auc, log_odds
from whichtoken.metrics.ranks import kendall
from whichtoken.records import Attribution, Curve
from whichtoken.render import report
from whichtoken.reproduce.protocols import absolute_aopc, positions_tau
from whichtoken.tables import Agreement, BenchTable, Column, Estimate, Line, Trend

SubjectOf = Callable[..., wt.Subject]
SOURCE = np.random.default_rng(3)
TEXTS = [" ".join(SOURCE.choice(WORDS, n).tolist()) for n in (4, 9, 6, 12, 5, 8, 7)]
METHODS = ["attcat", "gae", "random"]


def quick(*metrics: str, **settings: Any) -> wt.bench.Protocol:
    """Few curves, short texts too."""
    chosen = {"perturbations": ("delete",), "orders": ("morf",), "min_tokens": 1, **settings}
    return wt.bench.protocol(metrics=metrics or ("aopc",), **chosen)


def means(table: BenchTable, column: str) -> dict[str, float]:
    return {line.method: line.cells[column].mean for line in table.lines if column in line.cells}


def without_cost(table: BenchTable) -> dict[str, dict[str, Any]]:
    """All cells but seconds."""
    return {line.method: {k: v for k, v in line.cells.items() if k != "seconds"} for line in table.lines}


@cache
def explained(subject: wt.Subject) -> list[dict[str, Attribution]]:
    """One text at a time."""
    return [wt.explain(subject, [text], METHODS)[0] for text in TEXTS]


def curves(subject: wt.Subject, *how: Any) -> dict[str, list[Curve]]:
    """By method; as `wt.degrade` draws them, one text at a time."""
    drawn = [wt.degrade(subject, result.values(), *how) for result in explained(subject)]
    return {method: [of_text[i] for of_text in drawn] for i, method in enumerate(METHODS)}


def average(measure: Callable[[Curve], float], found: Mapping[str, Sequence[Curve]]) -> dict[str, float]:
    return {method: fmean(map(measure, of_method)) for method, of_method in found.items()}


def items_of(texts: Sequence[str]) -> list[Item]:
    return [Item(i, i, "", (text,), len(text.split()) + 2) for i, text in enumerate(texts)]


def gathered(subject: wt.Subject, how: wt.bench.Protocol, texts: Sequence[str] = TEXTS) -> Sample:
    bench = prepare(subject, METHODS, how)
    return gather(bench, bench.task.examples(texts, None, None))


def test_cells_are_the_means_of_curves_drawn_text_by_text(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    how = wt.bench.protocol(metrics=("aopc", "log-odds", "auc"), min_tokens=1)
    table = wt.bench.run(subject, TEXTS, METHODS, protocol=how)
    for perturbation in ("delete", "mask"):
        for order in ("morf", "lerf"):
            drawn = curves(subject, perturbation, order)
            for name, metric in (("aopc", aopc), ("log-odds", log_odds), ("auc", auc)):
                found = means(table, f"{name} {perturbation} {order} tenths")
                assert found == pytest.approx(average(metric, drawn), rel=1e-9)
    assert all(cell.n == len(TEXTS) for line in table.lines for cell in line.cells.values())
    assert dict(table.facts)["texts"] == "7 of 7, of at least 1 tokens, seed 0"


def test_other_grids_and_words(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    table = wt.bench.run(subject, TEXTS, METHODS, protocol=quick(grids=("all", "twentieths"), level="word"))
    for grid in ("all", "twentieths"):
        expected = average(aopc, curves(subject, "delete", "morf", grid, "word"))
        assert means(table, f"aopc delete morf {grid}") == pytest.approx(expected, rel=1e-9)


def test_normalised_aopc_is_the_place_among_all_orders(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    text = "the slow film won"
    own = wt.explain(subject, [text], METHODS)[0]
    any_of_them = own["attcat"]
    orders = [replace(any_of_them, scores=(0.0, *map(float, order), 0.0)) for order in permutations(range(4))]
    values = [aopc(curve) for curve in wt.degrade(subject, orders)]
    table = wt.bench.run(subject, [text], METHODS, protocol=quick("normalised-aopc", orders=("morf", "lerf")))
    for order in ("morf", "lerf"):
        for method in METHODS:
            value = aopc(wt.degrade(subject, [own[method]], order=order)[0])
            place = (value - min(values)) / (max(values) - min(values))
            found = means(table, f"normalised-aopc delete {order} tenths")[method]
            assert found == pytest.approx(place, abs=1e-9)


def test_exact_bounds_hold_for_every_text(subject_of: SubjectOf) -> None:
    short = [text for text in TEXTS if len(text.split()) <= 8]
    how = quick("normalised-aopc", orders=("morf", "lerf"))
    part = measure(prepare(subject_of("bert"), METHODS, how), items_of(short))
    assert len(part.inputs) == len(short)
    for text in part.inputs:
        (held,) = [one for one in text.plans if str(one.plan) == "delete morf tenths"]
        lower, upper = held.lower, held.upper
        assert held.exact
        assert lower is not None
        assert upper is not None
        for scored in text.methods.values():
            assert len(scored.curves) == 2
            for probability in scored.curves:
                assert lower - 1e-12 <= probability[0] - fmean(probability[1:]) <= upper + 1e-12


def test_long_texts_have_no_bounds(subject_of: SubjectOf) -> None:
    table = wt.bench.run(subject_of("bert"), TEXTS, ["attcat"], protocol=quick("normalised-aopc", bounds_up_to=6))
    assert table.lines[0].cells["normalised-aopc delete morf tenths"].n == sum(len(t.split()) <= 6 for t in TEXTS)
    assert "bounds for 3 of 7 texts, 3 of them exact" in " ".join(table.notes)


def test_kendall_of_the_papers_is_between_the_explanations_of_two_classes(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    table = wt.bench.run(subject, TEXTS, METHODS, protocol=quick("aopc", "positions-kendall"))

    @cache
    def others(text: str, target: int) -> dict[str, Attribution]:
        return wt.explain(subject, [text], METHODS, target)[0]

    def tau(own: Attribution) -> float:
        other = others(own.texts[0], (subject.labels.index(own.label) + 1) % 3)[own.method]
        return positions_tau(own.scores, other.scores)

    expected = {method: fmean(tau(result[method]) for result in explained(subject)) for method in METHODS}
    assert means(table, "positions-kendall") == pytest.approx(expected, abs=1e-9)
    assert means(table, "positions-kendall")["random"] == 1.0  # it does not ask which class


def test_agreement_is_the_mean_tau_between_methods(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    table = wt.bench.run(subject, TEXTS, METHODS, protocol=quick("aopc", "agreement"))
    assert table.agreement is not None
    assert table.agreement.methods == tuple(line.method for line in table.lines)
    results = explained(subject)
    for a, row in zip(table.agreement.methods, table.agreement.tau, strict=True):
        for b, tau in zip(table.agreement.methods, row, strict=True):
            assert tau == pytest.approx(fmean(kendall(r[a].scores[1:-1], r[b].scores[1:-1]) for r in results), abs=1e-9)


def test_a_protocol_of_true_classes_explains_them(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    labels: list[Any] = [0, "entailment", 2, "1", 0, "NEUTRAL", 1]
    how = quick(target="gold")
    table = wt.bench.run(subject, TEXTS, METHODS, labels, how)
    gold = [wt.explain(subject, [text], METHODS, label)[0] for text, label in zip(TEXTS, labels, strict=True)]
    assert [result["attcat"].label for result in gold] != [result["attcat"].label for result in explained(subject)]
    drawn = [wt.degrade(subject, result.values()) for result in gold]
    expected = {method: fmean(aopc(of_text[i]) for of_text in drawn) for i, method in enumerate(METHODS)}
    assert means(table, "aopc delete morf tenths") == pytest.approx(expected, rel=1e-9)
    rows = [{"text": text, "gold": label} for text, label in zip(TEXTS, labels, strict=True)]
    assert without_cost(wt.bench.run(subject, rows, METHODS, "gold", how)) == without_cost(table)
    with pytest.raises(BadInput, match=r"row 0: this protocol explains the gold label, but there is none"):
        wt.bench.run(subject, TEXTS, METHODS, protocol=how)
    with pytest.raises(UnknownName, match=r"^row 0: unknown label 'funny'"):
        wt.bench.run(subject, TEXTS, METHODS, ["funny"] * 7, how)
    with pytest.raises(UnknownName, match=r"^row 1: unknown label '999"):
        wt.bench.run(subject, TEXTS, METHODS, [0, "9" * 5000, *[0] * 5], how)


def test_absolute_aopc_counts_rises_as_drops(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    table = wt.bench.run(subject, TEXTS, METHODS, protocol=quick("absolute-aopc"))
    drawn = curves(subject)
    expected = average(absolute_aopc, drawn)
    assert expected != pytest.approx(average(aopc, drawn))
    assert means(table, "absolute-aopc delete morf tenths") == pytest.approx(expected, rel=1e-9)


def test_short_and_unsure_texts_are_left_out(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    long = [text for text in TEXTS if len(text.split()) + 2 >= 10]
    table = wt.bench.run(subject, TEXTS, METHODS, protocol=quick(min_tokens=10))
    assert without_cost(table) == without_cost(wt.bench.run(subject, long, METHODS, protocol=quick()))
    assert dict(table.facts)["texts"].startswith("3 of 7, of at least 10 tokens")
    with pytest.raises(BadInput, match="none of the 7 texts has at least 50 tokens"):
        wt.bench.run(subject, TEXTS, METHODS, protocol=quick(min_tokens=50))
    sure = sorted(result["attcat"].output for result in explained(subject))
    table = wt.bench.run(subject, TEXTS, METHODS, protocol=quick(min_probability=(sure[2] + sure[3]) / 2))
    assert table.lines[0].cells["aopc delete morf tenths"].n == 4
    with pytest.raises(BadInput, match="no text has a probability of at least 1"):
        wt.bench.run(subject, TEXTS, METHODS, protocol=quick(min_probability=1.0))


def test_a_larger_sample_begins_with_a_smaller_one(subject_of: SubjectOf) -> None:
    def drawn(**settings: Any) -> Sequence[Item]:
        return gathered(subject_of("bert"), quick(**settings)).items

    everything = drawn()
    for size in range(1, 8):
        assert drawn(sample=size) == everything[:size]
    assert drawn(sample=99) == everything
    assert sorted(item.row for item in everything) == list(range(7))
    assert [item.number for item in everything] == list(range(7))
    assert all(TEXTS[item.row] == item.input[0] for item in everything)
    assert [item.row for item in drawn(seed=1)] != [item.row for item in everything]
    digest = {gathered(subject_of("bert"), quick(sample=n)).digest for n in (1, 7)}
    assert len(digest) == 1
    assert gathered(subject_of("bert"), quick(), TEXTS[1:]).digest not in digest


def test_what_is_measured_together_does_not_matter(subject_of: SubjectOf, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = with_references(subject_of("bert"))
    methods, how = ["attcat", "random", "contrast-cat"], quick("aopc", "normalised-aopc", "kendall")
    together = without_cost(wt.bench.run(subject, TEXTS[:3], methods, protocol=how))
    for limit, size in (("INPUTS_AT_ONCE", 2), ("TOKENS_AT_ONCE", 1)):
        monkeypatch.setattr(running, limit, size)
        apart = without_cost(wt.bench.run(subject, TEXTS[:3], methods, protocol=how))
        assert list(apart) == list(together)
        for method, cells in apart.items():
            assert cells.keys() == together[method].keys()
            for column, cell in cells.items():
                other = together[method][column]
                assert cell.mean == pytest.approx(other.mean, abs=1e-9)
                if column != "evaluations":  # a text has the mean of its batch
                    assert (cell.low, cell.high) == pytest.approx((other.low, other.high), abs=1e-9)


def test_parts_are_small_and_in_order(subject_of: SubjectOf, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[list[int]] = []

    def note(bench: Bench, items: Sequence[Item], _: object) -> Any:
        measured.append([item.n_tokens for item in items])
        return measure(bench, items)

    monkeypatch.setattr(running, "measure", note)
    monkeypatch.setattr(running, "INPUTS_AT_ONCE", 3)
    monkeypatch.setattr(running, "TOKENS_AT_ONCE", 22)
    wt.bench.run(subject_of("bert"), TEXTS, ["random"], protocol=quick())
    items = gathered(subject_of("bert"), quick()).items
    assert [n for part in measured for n in part] == [item.n_tokens for item in items]
    assert [item.n_tokens for item in items] == [len(item.input[0].split()) + 2 for item in items]
    assert all(len(part) <= 3 and (sum(part) <= 22 or len(part) == 1) for part in measured)
    for part, following in pairwise(measured):
        assert len(part) == 3 or sum(part) + following[0] > 22


def rows_read(subject: wt.Subject, work: Callable[[], Any]) -> tuple[Any, int]:
    """What the work returns, and how many rows the model reads meanwhile without gradients."""
    rows = 0

    def count(module: object, arguments: object, output: Any) -> None:
        nonlocal rows
        if not torch.is_grad_enabled():
            rows += len(output.logits)

    with subject.model.register_forward_hook(count):
        return work(), rows


@pytest.mark.parametrize("metrics", [("aopc",), ("aopc", "normalised-aopc", "kendall")])
def test_what_is_said_to_be_evaluated_is_what_the_model_reads(metrics: tuple[str, ...], subject_of: SubjectOf) -> None:
    how = quick(*metrics, perturbations=("delete", "mask"), orders=("morf", "lerf"))
    built = {name: wt.method(name) for name in ("attcat", "gae", "refined-noise")}
    items, bench = items_of(TEXTS[:4]), prepare(subject_of("bert"), built, how)
    part, rows = rows_read(bench.task.subject, lambda: measure(bench, items))
    assert part.evaluated == rows
    assert part.asked > 2 * part.evaluated
    curves = len(items) * len(built) * len(how.plans()) * 10
    assert part.asked >= curves
    twice = {**built, "again": wt.method("attcat"), "and again": wt.method("gae")}
    more = measure(prepare(subject_of("bert"), twice, replace(how, metrics=("aopc",))), items)
    once = measure(prepare(subject_of("bert"), built, replace(how, metrics=("aopc",))), items)
    assert more.evaluated == once.evaluated  # whoever asks, it is asked once
    assert more.asked == once.asked + len(items) * 2 * len(how.plans()) * 10


def test_the_table_says_how_much_was_shared(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    table, rows = rows_read(subject, lambda: wt.bench.run(subject, TEXTS, METHODS, protocol=quick()))
    asked = len(TEXTS) * 3 * 10
    expected = f"{asked} perturbed texts requested, {rows} evaluated: {1 - rows / asked:.0%} shared"
    assert dict(table.facts)["evaluations"] == expected


def test_the_same_call_gives_the_same_table(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    how = wt.bench.protocol("contrast-cat", min_tokens=1)
    first, again = (wt.bench.run(subject, TEXTS, METHODS, protocol=how) for _ in range(2))
    assert without_cost(first) == without_cost(again)
    assert replace(first, lines=()) == replace(again, lines=())


def test_pairs_are_measured(subject_of: SubjectOf) -> None:
    subject, pair = subject_of("bert"), ("a man did sleep", "nobody is slow")
    table = wt.bench.run(subject, [pair], METHODS, protocol=quick())
    own = wt.explain(subject, [pair], METHODS)[0]
    expected = {name: aopc(wt.degrade(subject, [one])[0]) for name, one in own.items()}
    assert means(table, "aopc delete morf tenths") == pytest.approx(expected)


def test_two_names_of_one_method_are_two_lines(subject_of: SubjectOf) -> None:
    table = wt.bench.run(subject_of("bert"), TEXTS[:2], ["attcat", "attcat@recommended", "gae"], protocol=quick())
    found = means(table, "aopc delete morf tenths")
    assert found["attcat"] == found["attcat@recommended"] != found["gae"]


def test_wrong_calls_are_refused(subject_of: SubjectOf, tmp_path: Path) -> None:
    subject = subject_of("bert")
    for methods, message in (("atcat", "'attcat'"), ([], "at least one method"), (["atcat"], "'attcat'")):
        with pytest.raises(UsageError, match=message):
            wt.bench.run(subject, TEXTS, methods)
    with pytest.raises(UnknownName, match="unknown protocol 'attcatt'"):
        wt.bench.run(subject, TEXTS, METHODS, protocol="attcatt")
    with pytest.raises(BadInput, match="row 1 has an empty text"):
        wt.bench.run(subject, ["very slow", " "], METHODS, protocol=quick())
    for perturbation, message in (("mask", "has no mask token"), ("pad", "padding is not a neutral replacement")):
        with pytest.raises(UnsupportedModel, match=message):
            wt.bench.run(
                subject_of("gpt2"), TEXTS, ["attcat"], None, quick(perturbations=(perturbation,)), tmp_path / "a"
            )
    assert not (tmp_path / "a").exists()  # before anything was begun


def without_hash(part: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key != "sha256"}


def test_a_folder_keeps_what_was_measured(
    subject_of: SubjectOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject, out, how = subject_of("bert"), tmp_path / "made" / "here", quick("auc", "kendall")
    monkeypatch.setattr(running, "INPUTS_AT_ONCE", 3)
    table = wt.bench.run(subject, TEXTS, METHODS, protocol=how, out=out)
    assert read_table(out) == read_table(out / "table.json") == table
    parts = sorted((out / "parts").iterdir())
    assert [part.name for part in parts] == ["000000-000002.json", "000003-000005.json", "000006-000006.json"]
    read = [read_part(without_hash(json.loads(part.read_text("utf-8"))), part) for part in parts]
    assert [text.number for text in every_input(read[::-1])] == list(range(7))
    assert all(part == read_part(json.loads(json.dumps(asdict(part))), "") for part in read)

    def refuse(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(running, "measure", refuse)
    assert wt.bench.run(subject, TEXTS, METHODS, protocol=how, out=out) == table


def test_a_larger_sample_goes_on_where_a_smaller_one_ended(
    subject_of: SubjectOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = subject_of("bert")
    monkeypatch.setattr(running, "INPUTS_AT_ONCE", 2)
    wt.bench.run(subject, TEXTS, METHODS, protocol=quick("auc", sample=4), out=tmp_path)
    before = {part.name: part.stat().st_mtime_ns for part in (tmp_path / "parts").iterdir()}
    assert len(before) == 2
    table = wt.bench.run(subject, TEXTS, METHODS, protocol=quick("auc", sample=6), out=tmp_path)
    after = {part.name: part.stat().st_mtime_ns for part in (tmp_path / "parts").iterdir()}
    assert len(after) == 3
    assert before.items() <= after.items()
    assert json.loads((tmp_path / "spec.json").read_text("utf-8"))["sample"] == 6
    assert without_cost(table) == without_cost(wt.bench.run(subject, TEXTS, METHODS, protocol=quick("auc", sample=6)))


def test_another_benchmark_in_the_same_folder_is_refused(subject_of: SubjectOf, tmp_path: Path) -> None:
    first: dict[str, Any] = {"subject": subject_of("bert"), "texts": TEXTS, "methods": METHODS}
    first["protocol"] = quick("auc", sample=1)
    wt.bench.run(**first, out=tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    changes: list[tuple[dict[str, Any], str]] = [
        ({"methods": ["attcat"]}, "methods was"),
        ({"methods": [wt.method("attcat", mask_special=True), "gae", "random"]}, "methods was"),
        ({"protocol": quick("auc", seed=1)}, "protocol was"),
        ({"protocol": quick("auc", "aopc")}, "protocol was"),
        ({"texts": TEXTS[::-1]}, "inputs was"),
        ({"subject": replace(subject_of("bert"), special_tokens="text")}, "special_tokens was None, now 'text'"),
        (
            {"subject": replace(subject_of("bert", labels=2), name="other")},
            "model was 'tiny bert'.*revision was 'sha256",
        ),
    ]
    for change, said in changes:
        with pytest.raises(UsageError, match=rf"holds another benchmark \(.*{said}.*; choose another folder"):
            wt.bench.run(**(first | change), out=tmp_path)
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before, change


def test_a_part_that_was_begun_with_a_smaller_sample_is_completed(
    subject_of: SubjectOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject, again = subject_of("bert"), list[int]()
    for size in (1, 3):
        wt.bench.run(subject, TEXTS, METHODS, protocol=quick("auc", sample=size), out=tmp_path)
    measure_really = measure

    def count(bench: Bench, items: Sequence[Item], _: object) -> Any:
        again.extend(item.number for item in items)
        return measure_really(bench, items)

    monkeypatch.setattr(running, "measure", count)
    table = wt.bench.run(subject, TEXTS, METHODS, protocol=quick("auc", sample=5), out=tmp_path)
    assert again == [3, 4]
    alone = wt.bench.run(subject, TEXTS, METHODS, protocol=quick("auc", sample=5))
    column = table.columns[0].name
    for one, other in zip(table.lines, alone.lines, strict=True):
        assert one.cells[column].n == 5
        assert one.cells[column].mean == pytest.approx(other.cells[column].mean, rel=1e-9)


def test_where_there_is_nothing_to_rank_or_one_class_there_is_no_kendall(subject_of: SubjectOf) -> None:
    single = wt.bench.run(subject_of("bert", labels=1), TEXTS, ["attcat"], protocol=quick("kendall"))
    assert "kendall" not in {column.name for column in single.columns}
    assert "Left out, because this model has no other class to compare with: kendall." in single.notes
    table = wt.bench.run(subject_of("bert"), ["slow"], ["attcat", "gae"], protocol=quick("aopc", "kendall"))
    assert not any("kendall" in line.cells for line in table.lines)


def test_other_references_heads_or_given_scores_are_another_benchmark(subject_of: SubjectOf, tmp_path: Path) -> None:
    subject, how = with_references(subject_of("bert")), quick("auc", sample=1)
    wt.bench.run(subject, TEXTS, ["contrast-cat"], protocol=how, out=tmp_path)
    for other, said in (
        (with_references(subject_of("bert"), TEXTS), "references was"),
        (with_heads(subject), "heads was"),
    ):
        with pytest.raises(UsageError, match=f"holds another benchmark.*{said}"):
            wt.bench.run(other, TEXTS, ["contrast-cat"], protocol=how, out=tmp_path)
    with pytest.raises(UsageError, match=r"holds another benchmark.*inputs was"):  # which are cut elsewhere
        wt.bench.run(replace(subject, max_tokens=6), TEXTS, ["contrast-cat"], protocol=how, out=tmp_path)
    given: External = {(text,): {"shap": ExternalScores((1.0,) * 9, "made.jsonl, line 1")} for text in TEXTS}
    bench = prepare(subject, ["contrast-cat"], how, given)
    with pytest.raises(UsageError, match=r"holds another benchmark.*given was"):
        run_sample(bench, gather(bench, bench.task.examples(TEXTS, None, None)), Folder(tmp_path), {})


def test_a_place_that_is_no_free_folder_is_refused(subject_of: SubjectOf, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("all of it", encoding="utf-8")
    with pytest.raises(UsageError, match="holds other files; choose an empty or new folder"):
        wt.bench.run(subject_of("bert"), TEXTS, METHODS, protocol=quick("auc"), out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    for path in (tmp_path / "thesis.tex", tmp_path / "thesis.tex" / "below"):
        with pytest.raises(UsageError, match=r"is a file|cannot be created"):
            wt.bench.run(subject_of("bert"), TEXTS, METHODS, protocol=quick("auc"), out=path)


PART = "parts/000000-000000.json"


def test_what_was_damaged_is_said(subject_of: SubjectOf, tmp_path: Path) -> None:
    def again() -> BenchTable:
        return wt.bench.run(subject_of("bert"), TEXTS[:1], ["attcat"], protocol=quick("auc"), out=tmp_path)

    def read() -> BenchTable:
        return read_table(tmp_path)

    with pytest.raises(UsageError, match="there is no finished benchmark at"):
        read()
    again()
    table, part = (json.loads((tmp_path / name).read_text("utf-8")) for name in ("table.json", PART))
    for name, content, look, message in (
        ("table.json", '{"schema": 3}', read, "is not a benchmark table: BenchTable: title is missing"),
        ("table.json", "{}", read, "is not a benchmark table of schema 3"),
        ("table.json", json.dumps(table | {"unit": 1}), read, "BenchTable: unit is 1; expected a valid string"),
        ("table.json", json.dumps(table | {"notes": "no"}), read, "BenchTable: notes is 'no'; expected a valid array"),
        ("table.json", json.dumps(table | {"colour": 1}), read, "BenchTable: colour is not a known field"),
        (
            PART,
            json.dumps(part | {"asked": "3"}),
            again,
            "not a part of a benchmark: Part: asked is '3'; expected a valid integer; delete this file and run again",
        ),
        (PART, json.dumps(part | {"asked": math.nan}), again, "numbers must be finite"),
        ("table.json", "{", read, "cannot be read"),
        (PART, '{"inputs": [{}]}', again, "000000-000000.json is not a part of a benchmark"),
        ("spec.json", '{"schema": 0}', again, "is not a benchmark specification of schema 3"),
    ):
        (tmp_path / name).write_text(content, encoding="utf-8")
        with pytest.raises(BadArtifact, match=message):
            look()


def rehashed(part: dict[str, Any]) -> str:
    """A part as someone would forge it: with the hash of what it now holds."""
    content = without_hash(part)
    return json.dumps({"sha256": hash_content(content), **content})


Change = Callable[[dict[str, Any]], object]
CHANGES: dict[str, tuple[Change, str]] = {
    "a text is gone": (lambda d: d["inputs"].pop(1), r"it holds the inputs \[0, 2\], expected \[0, 1, 2\]"),
    "a text is there twice": (lambda d: d["inputs"].append(d["inputs"][2]), r"it holds the inputs \[0, 1, 2, 2\]"),
    "texts are swapped": (lambda d: d["inputs"].reverse(), r"it holds the inputs \[2, 1, 0\]"),
    "another text": (lambda d: d["inputs"][0].update(row=99), "input 0 is row 99 of the data, expected row"),
    "a method is gone": (lambda d: d["inputs"][0]["methods"].pop("gae"), "input 0 .* differ in methods: gae"),
    "another method": (
        lambda d: d["inputs"][0]["methods"].update(new=d["inputs"][0]["methods"]["gae"]),
        "differ in methods: new",
    ),
    "a curve cut short": (
        lambda d: d["inputs"][0]["methods"]["gae"]["curves"][0].pop(),
        "input 0, gae: 10 removed, 9 outputs; there must be the same number of each",
    ),
    "no curve": (lambda d: d["inputs"][0]["methods"]["gae"]["curves"].clear(), "0 curves, 1 plans"),
    "steps cut short": (lambda d: d["inputs"][0]["plans"][0]["removed"].pop(), "not all the steps of grid tenths"),
    "steps descend": (lambda d: d["inputs"][0]["plans"][0]["removed"].reverse(), "shares that ascend from 0"),
    "a probability of 2": (
        lambda d: d["inputs"][0]["methods"]["gae"]["curves"][0].__setitem__(3, 2.0),
        "input 0, gae: a probability is 2.0; expected 0 to 1",
    ),
    "probability": (lambda d: d["inputs"][0].update(probability=-1), "input 0: probability is -1"),
    "a count": (lambda d: d["inputs"][0].update(n_tokens=-3), "n_tokens is -3; expected at least 0"),
    "asked": (lambda d: d.update(asked=-1), "Part: asked is -1"),
    "evaluated": (lambda d: d.update(evaluated=-1), "Part: evaluated is -1"),
    "seconds": (lambda d: d["inputs"][0]["methods"]["gae"].update(seconds=-1), "seconds is -1"),
    "bounds": (lambda d: d["inputs"][0]["plans"][0].update(lower=0.5, upper=0.25), "its lower bound exceeds the upper"),
    "half a bound": (lambda d: d["inputs"][0]["plans"][0].update(lower=0.5), "its lower bound exceeds the upper"),
    "agreement": (lambda d: d["inputs"][0].update(agreement=[[1.0]]), "expected 3 rows of 3"),
    "correlation": (lambda d: d["inputs"][0].update(agreement=[[1.5] * 3] * 3), "agreement is 1.5; expected -1 to 1"),
    "truth": (lambda d: d["inputs"][0].update(truth={"n_tokens": -1, "cut_off": False, "right": True}), "truth.n_tok"),
}


def test_a_part_is_taken_over_only_as_it_was_saved(
    subject_of: SubjectOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_write_figures", lambda *_: None)  # a second each
    monkeypatch.setattr(report, "curves_png", lambda *_: b"")

    def again() -> BenchTable:
        return wt.bench.run(subject_of("bert"), TEXTS[:3], METHODS, protocol=quick("auc"), out=tmp_path)

    again()
    path = tmp_path / "parts" / "000000-000002.json"
    saved = json.loads(path.read_text("utf-8"))
    fix = "000000-000002.json .*; delete this file and run again, and these inputs are measured again$"
    for name, (change, message) in CHANGES.items():
        changed = json.loads(json.dumps(saved))
        change(changed)
        path.write_text(json.dumps(changed), encoding="utf-8")
        with pytest.raises(BadArtifact, match=fix):
            Folder(tmp_path).longest_part(0, 2)
        path.write_text(rehashed(changed), encoding="utf-8")
        with pytest.raises(BadArtifact) as caught:
            again()
        assert re.search(message, str(caught.value)), name
    for zero in (0, 0.0):  # a possible value, which only the hash tells
        changed = json.loads(json.dumps(saved))
        changed["inputs"][1]["methods"]["gae"]["curves"][0][4] = zero
        path.write_text(json.dumps(changed), encoding="utf-8")
        with pytest.raises(BadArtifact, match="was changed after it was saved: its content does not match its sha256"):
            again()
    path.write_text(json.dumps(without_hash(saved)), encoding="utf-8")
    with pytest.raises(
        BadArtifact, match="has no sha256: an older version wrote it, or it was changed; delete the folder"
    ):
        again()
    path.write_text(json.dumps(saved, indent=3, sort_keys=True), encoding="utf-8")  # the same content
    assert again().lines
    path.unlink()
    assert again().lines
    assert path.is_file()


def test_a_part_may_lack_the_inputs_that_its_protocol_skips(subject_of: SubjectOf, tmp_path: Path) -> None:
    first = wt.explain(subject_of("bert"), TEXTS[:4], ["random"])
    outputs = sorted(result["random"].output for result in first)
    least = (outputs[1] + outputs[2]) / 2  # an output itself may differ by rounding in another batch
    how = quick("auc", min_probability=least)
    table = wt.bench.run(subject_of("bert"), TEXTS[:4], METHODS, protocol=how, out=tmp_path)
    assert len(json.loads((tmp_path / "parts" / "000000-000003.json").read_text("utf-8"))["inputs"]) == 2
    assert wt.bench.run(subject_of("bert"), TEXTS[:4], METHODS, protocol=how, out=tmp_path) == table


@pytest.mark.parametrize(
    "name", ["000000-abc.json", "000000-.json", "000000.json", "copy of 000000-000000.json", "000005-000002.json"]
)
def test_a_part_with_an_odd_name_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / ".000000-000015.json.abcdefgh.whichtoken-new").write_text("half")
    (tmp_path / "parts" / ".hidden.json").write_text("half")
    assert Folder(tmp_path).longest_part(0, 15) is None
    (tmp_path / "parts" / name).write_text("{}")
    with pytest.raises(BadArtifact, match=r"parts are named like 000000-000015\.json; delete this file and run again"):
        Folder(tmp_path).longest_part(0, 15)


def test_what_a_killed_run_left_half_written_is_gone_when_the_run_goes_on(tmp_path: Path) -> None:
    Folder(tmp_path).claim({}, {})
    for folder in (tmp_path, tmp_path / "parts"):
        (folder / ".report.html.abcdefgh.whichtoken-new").write_text("half")
    Folder(tmp_path).claim({}, {})
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["parts", "spec.json"]


def test_the_longest_part_that_fits_is_taken_over(tmp_path: Path) -> None:
    """A part of a larger sample may hold inputs that a smaller one does not have."""
    (tmp_path / "parts").mkdir()
    for last in (3, 7, 15):
        Folder(tmp_path).save_part(0, last, Part((), last, last))
    for limit, last in (15, 15), (14, 7), (7, 7), (6, 3):
        kept = Folder(tmp_path).longest_part(0, limit)
        assert kept is not None
        assert (kept.last, kept.part.asked) == (last, last)
    assert Folder(tmp_path).longest_part(0, 2) is None
    assert Folder(tmp_path).longest_part(1, 15) is None


def test_a_specification_that_has_an_entry_less_is_another_benchmark(tmp_path: Path) -> None:
    values = {"model": "m", "reading": "value"}
    Folder(tmp_path).claim(values, {"sample": 3})
    with pytest.raises(UsageError, match="reading was 'value', now None"):
        Folder(tmp_path).claim({"model": "m"}, {"sample": 3})
    Folder(tmp_path).claim(values, {"sample": 4})


def test_a_result_that_is_not_finite_is_not_saved(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    result = MethodResult(False, 0.1, 1.0, {"kendall": math.nan}, ())
    part = Part((InputResult(0, 0, "", "k", "a", 0.5, 3, 0, {"gae": result}),), 1, 1)
    with pytest.raises(NotFinite, match="a result of inputs 0 to 0 is NaN or infinite"):
        Folder(tmp_path).save_part(0, 0, part)
    assert not list((tmp_path / "parts").iterdir())


def test_tables_with_and_without_intervals_of_curves_are_read(tmp_path: Path) -> None:
    """Those of older versions have none."""
    line = Line("gae", False, False, {"auc": Estimate(0.5, 0.4, 0.6, 3, 1.0)})
    trend = Trend("aopc", "morf", "delete", (0.0, 0.5), {"gae": (0.0, 0.1)})
    old = BenchTable("t", (), (Column("auc", "AUC", "", "lower"),), (line,), (trend,))
    new = replace(old, trends=(replace(trend, low={"gae": (0.0, 0.0)}, high={"gae": (0.0, 0.2)}),))
    for table, has_intervals in ((old, False), (new, True)):
        (tmp_path / "table.json").write_text(files.table_json(table), encoding="utf-8")
        assert ("low" in json.loads(files.table_json(table))["trends"][0]) is has_intervals
        assert read_table(tmp_path) == table


def test_the_curves_are_drawn_once_for_file_and_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[object] = []
    save = Figure.savefig

    def count(figure: Figure, file: Any, **options: Any) -> None:
        drawn.append(figure)
        save(figure, file, **options)

    monkeypatch.setattr(Figure, "savefig", count)
    line = Line("gae", False, False, {"auc": Estimate(0.5, 0.4, 0.6, 3, 1.0)})
    trend = Trend("aopc", "morf", "delete", (0.0, 0.5), {"gae": (0.0, 0.1)})
    Folder(tmp_path).finish(BenchTable("t", (), (Column("auc", "AUC", "", "lower"),), (line,), (trend,)), [{"a": 1}])
    assert len(drawn) == 1
    picture = base64.b64encode((tmp_path / "curves.png").read_bytes()).decode()
    assert picture in (tmp_path / "report.html").read_text("utf-8")


def test_a_table_that_cannot_be_is_refused(tmp_path: Path) -> None:
    column = Column("auc", "AUC", "", "lower")
    line = Line("gae", False, False, {"auc": Estimate(0.5, 0.4, 0.6, 3, 1.0)})
    trend = Trend("aopc", "morf", "delete", (0.0, 0.5), {"gae": (0.0, 0.1)})
    agreement = Agreement(("gae", "rollout"), ((1.0, -1.0), (-1.0, 1.0)))
    good = BenchTable("t", (), (column,), (line,), (trend,), (), agreement)
    (tmp_path / "table.json").write_text(files.table_json(good), encoding="utf-8")
    assert read_table(tmp_path) == good
    outside = replace(line, cells={"auc": Estimate(0.7, 0.4, 0.6, 3)})  # as in a skewed sample
    (tmp_path / "table.json").write_text(files.table_json(replace(good, lines=(outside,))), encoding="utf-8")
    assert read_table(tmp_path).lines == (outside,)
    for change, message in (
        ({"columns": ()}, "one or more columns"),
        ({"columns": (column, column)}, "names of their own"),
        ({"lines": ()}, "it has no lines"),
        ({"lines": (replace(line, cells={"aopc": line.cells["auc"]}),)}, "a cell for 'aopc', which is not a column"),
        ({"lines": (replace(line, cells={"auc": Estimate(0.5, 0.6, 0.4, 3)}),)}, "0.6 to 0.4 is reversed"),
        ({"lines": (replace(line, cells={"auc": Estimate(0.5, 0.4, 0.6, -1)}),)}, "n is -1; expected at least 0"),
        ({"lines": (replace(line, cells={"auc": Estimate(0.5, 0.4, 0.6, 3, 1.5)}),)}, "p is 1.5; expected 0 to 1"),
        ({"trends": (replace(trend, removed=(0.5, 0.0)),)}, "shares that ascend from 0"),
        ({"trends": (replace(trend, means={"gae": (0.0,)}),)}, "2 removed, 1 means"),
        ({"trends": (replace(trend, low={"gae": (0.0,)}, high={"gae": (0.0,)}),)}, "2 removed, 2 means, 1 low, 1 high"),
        ({"trends": (replace(trend, low={"gae": (0.0, 0.0)}),)}, "intervals of gae are not complete"),
        ({"trends": (replace(trend, low={"cat": (0, 0)}, high={"cat": (0, 0)}),)}, "intervals of cat are not complete"),
        ({"agreement": replace(agreement, tau=((1.0,),))}, "expected 2 rows of 2"),
        ({"agreement": replace(agreement, tau=((1.0, 2.0), (2.0, 1.0)))}, "agreement is 2.0; expected -1 to 1"),
    ):
        changed: BenchTable = replace(good, **change)
        (tmp_path / "table.json").write_text(files.table_json(changed), encoding="utf-8")
        with pytest.raises(BadArtifact, match=rf"table\.json is not a benchmark table: .*{message}"):
            read_table(tmp_path)


def test_results_have_one_row_for_each_curve_and_give_the_same_numbers(
    subject_of: SubjectOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyarrow import parquet

    monkeypatch.setattr(files, "_write_figures", lambda *_: None)  # a second each
    monkeypatch.setattr(report, "curves_png", lambda *_: b"")
    how = quick("aopc", "normalised-aopc", "kendall", orders=("morf", "lerf"), perturbations=("delete", "mask"))
    table = wt.bench.run(subject_of("bert"), TEXTS, METHODS, protocol=how, out=tmp_path)
    rows = parquet.read_table(tmp_path / "results.parquet").to_pylist()
    keys = {(row["number"], row["method"], row["perturbation"], row["order"], row["grid"]) for row in rows}
    assert len(rows) == len(keys) == len(TEXTS) * len(METHODS) * 4
    for plan in how.plans():
        name, order, grid = plan.perturbation, plan.order, plan.grid
        for method in METHODS:
            own = [row for row in rows if (row["method"], row["perturbation"], row["order"]) == (method, name, order)]
            assert all(row["removed"] == [k / 10 for k in range(10)] for row in own)
            drops = [row["probability"][0] - fmean(row["probability"][1:]) for row in own]
            assert means(table, f"aopc {name} {order} {grid}")[method] == pytest.approx(fmean(drops))
            assert means(table, "kendall")[method] == pytest.approx(fmean(row["kendall"] for row in own))
            if (name, order) == ("delete", "morf"):
                places = [(d - r["lower"]) / (r["upper"] - r["lower"]) for d, r in zip(drops, own, strict=True)]
                assert means(table, f"normalised-aopc delete morf {grid}")[method] == pytest.approx(fmean(places))
    assert {(row["row"], row["n_tokens"]) for row in rows} == {(i, len(t.split()) + 2) for i, t in enumerate(TEXTS)}


def test_parts_that_are_joined_add_up_what_they_cost() -> None:
    assert Part((), 7, 5) + Part((), 3, 2) == Part((), 10, 7)
