"""compare_questions: counts by hand and against the public functions; answers that are cut off; what a folder keeps."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow import parquet
from tests.tiny import WORDS, question_subject, with_heads

import whichtoken as wt
from whichtoken._explain import explain_with
from whichtoken.bench import _run as running
from whichtoken.bench import folder as files
from whichtoken.bench import measure as measuring
from whichtoken.bench._run import gather, prepare
from whichtoken.bench.measure import Bench, Item, measure
from whichtoken.bench.metrics import share_cell
from whichtoken.bench.results import InputResult, MethodResult, Truth, read_part
from whichtoken.bench.results import Part as MeasuredPart
from whichtoken.bench.selection import default_methods
from whichtoken.bench.stats import RESAMPLES, SEED
from whichtoken.bench.table import summarise
from whichtoken.core.trace import Probe, Scores, Trace
from whichtoken.data.squad import Answer, Question
from whichtoken.errors import BadArtifact, BadInput, BadSetting, UnknownName, UsageError
from whichtoken.methods.random import Random
from whichtoken.tables import BenchTable, Estimate
from whichtoken.targets import Part, Span
from whichtoken.tasks import Gold, task_for

SUBJECT = question_subject("bert")
METHODS = ["attcat", "gae", "random"]


def bench_questions(
    subject: wt.Subject, questions: Any, methods: Any = None, out: Path | None = None, **settings: Any
) -> BenchTable:
    """With the papers' limit of 384 tokens."""
    how = wt.bench.protocol(**{"max_tokens": 384, **settings})
    return wt.bench.run(subject, questions, methods, protocol=how, out=out)


def question(asked: str, context: str, answer: str | None, name: str = "") -> Question:
    answers = () if answer is None else (Answer(answer, context.index(answer)),)
    return Question(name or f"{asked} {answer}", asked, context, answers)


def drawn(number: int, n_words: int, n_answer: int) -> Question:
    """Words that are one token each; the answer is some of them."""
    source = np.random.default_rng([5, number])
    words = [str(word) for word in source.choice(WORDS, n_words)]
    first = int(source.integers(0, n_words - n_answer))
    start = len(" ".join([*words[:first], ""])) if first else 0
    answer = Answer(" ".join(words[first : first + n_answer]), start)
    return Question(f"q{number}", "was it slow", " ".join(words), (answer,))


QUESTIONS = [drawn(n, 10 + n, 1 + n % 4) for n in range(7)]
NONE = Question("none", "who won", "the film was slow", ())
WHOLE = " ".join(["film"] * 38)  # 40 tokens are the model's limit, and 4 more are not of the context
CUT = Question("cut", "is", WHOLE + " but it won", (Answer("it won", len(WHOLE) + 5),))
HALF = Question("half", "is", " ".join(["plot"] * 35) + " music end did", (Answer("music end", 175),))


def means(table: BenchTable, column: str) -> dict[str, float]:
    return {line.method: line.cells[column].mean for line in table.lines if column in line.cells}


def without_cost(table: BenchTable) -> dict[str, dict[str, Estimate]]:
    """All cells but seconds."""
    return {line.method: {k: v for k, v in line.cells.items() if k != "seconds"} for line in table.lines}


def bench_of(methods: Sequence[str], subject: wt.Subject = SUBJECT, **settings: Any) -> Bench:
    return prepare(subject, methods, wt.bench.protocol(**settings))


def items_of(bench: Bench, asked: Sequence[Question]) -> tuple[Item, ...]:
    return gather(bench, bench.task.examples(asked, None, None)).items


def gold_of(item: Item) -> tuple[tuple[int, int], bool, int]:
    """The first and the last token of the true answer, whether it was cut off, and how many tokens there are."""
    assert item.gold is not None
    assert item.gold.positions == tuple(range(item.gold.positions[0], item.gold.positions[-1] + 1))
    return (item.gold.positions[0], item.gold.positions[-1]), item.gold.cut_off, item.n_tokens


def scored_as(monkeypatch: pytest.MonkeyPatch, *scores: float) -> None:
    """What `random` gives to the first tokens; 0 to the others."""

    def given(self: Random, trace: Trace, probe: Probe) -> Scores:
        found = torch.zeros_like(trace.readout)
        found[:, : len(scores)] = torch.tensor(scores).to(found)
        return Scores(found)

    monkeypatch.setattr(Random, "__call__", given)


@pytest.mark.parametrize(
    ("k", "scores", "count"),
    [
        # [CLS] is it slow [SEP] the film was slow but the music was touching [SEP]: the answer is tokens 10 and 11
        (1, [0] * 11 + [9], 1),
        (2, [0] * 10 + [8, 9], 2),
        (2, [5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 3], 1),  # [CLS] takes a place
        (2, [0, 5, 0, 0, 6, 0, 0, 0, 0, 0, 4, 3], 0),  # and so do the question and [SEP]
        (3, [0, 5, 0, 0, 6, 0, 0, 0, 0, 0, 4, 3], 1),
        (2, [1] * 15, 0),  # ties by position
        (11, [1] * 15, 1),
        (12, [1] * 15, 2),
        (2, [0] * 10 + [-1, -1], 0),  # by value, not by size
        (99, [0] * 10 + [-1, -1], 2),
    ],
)
def test_counts_by_hand(k: int, scores: list[float], count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scored_as(monkeypatch, *scores)
    asked = question("is it slow", "the film was slow but the music was touching", "the music")
    table = bench_questions(SUBJECT, [asked], ["random"], k=k)
    assert means(table, f"precision@{k}") == {"random": count}
    assert means(table, f"share@{k}") == {"random": count / 2}
    assert [column.name for column in table.columns] == [f"precision@{k}", f"share@{k}", "seconds", "evaluations"]


@cache
def expected_counts(target: str, part: Part, k: int) -> dict[str, list[tuple[int, int]]]:
    """Count and length by method, one question at a time. Before the context: [CLS] was it slow [SEP]."""
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in METHODS}
    for one in QUESTIONS:
        first = 5 + one.context[: one.answers[0].start].count(" ")
        last = first + one.answers[0].text.count(" ")
        span = Span(first, last, part) if target == "gold" else Span(free=True, part=part)
        for name, attribution in wt.explain(SUBJECT, [one.texts], METHODS, span)[0].items():
            ranked = sorted(range(len(attribution.scores)), key=lambda i: (-attribution.scores[i], i))[:k]
            found[name].append((sum(first <= i <= last for i in ranked), last - first + 1))
    return found


@pytest.mark.parametrize("target", ["predicted", "gold"])
@pytest.mark.parametrize("part", ["both", "sum", "start", "end"])
def test_cells_are_what_is_counted_question_by_question(target: Any, part: Part) -> None:
    table = bench_questions(SUBJECT, QUESTIONS, METHODS, k=6, target=target, part=part)
    expected = expected_counts(target, part, 6)
    assert means(table, "precision@6") == pytest.approx({m: fmean(c for c, _ in of) for m, of in expected.items()})
    shares = {m: sum(c for c, _ in of) / sum(length for _, length in of) for m, of in expected.items()}
    assert means(table, "share@6") == pytest.approx(shares)
    assert len({*means(table, "precision@6").values()}) > 1
    assert all(cell.n == 7 for line in table.lines for cell in line.cells.values())
    assert table.unit == "question"


def test_targets_and_parts_differ() -> None:
    """Or the test above would not notice a wrong one."""
    found = {str(expected_counts(target, "both", 6)) for target in ("predicted", "gold")}
    found |= {str(expected_counts("gold", part, 6)) for part in ("start", "end")}
    assert len(found) == 4


def test_an_answer_that_the_cut_took_is_the_first_token(monkeypatch: pytest.MonkeyPatch) -> None:
    scored_as(monkeypatch, 5, 4)
    for cut in (CUT, HALF):
        (item,) = items_of(bench_of(["random"], k=1), [cut])
        assert gold_of(item) == ((0, 0), True, 40)
        table = bench_questions(SUBJECT, [cut], ["random"], k=1)
        assert (means(table, "precision@1"), means(table, "share@1")) == ({"random": 1}, {"random": 1})
        assert not any("inside" in column.name for column in table.columns)  # there would be nothing in it
    # One word less, and the answer ends with the last that is left.
    whole = replace(HALF, context=HALF.context[5:], answers=(Answer("music end", 170),))
    (kept,) = items_of(bench_of(["random"]), [whole])
    assert gold_of(kept) == ((37, 38), False, 40)


def test_cut_answers_are_counted_in_the_papers_columns_only() -> None:
    asked = [*QUESTIONS[:3], CUT, *QUESTIONS[3:], HALF]
    table = bench_questions(SUBJECT, asked, METHODS, k=6)
    inside = bench_questions(SUBJECT, QUESTIONS, METHODS, k=6)
    own = ["precision@6", "share@6", "precision@6 answers inside", "share@6 answers inside"]
    assert [column.name for column in table.columns] == [*own, "seconds", "evaluations"]
    assert means(table, own[2]) == pytest.approx(means(inside, "precision@6"))
    assert means(table, own[3]) == pytest.approx(means(inside, "share@6"))
    assert [line.cells[name].n for name in own for line in table.lines[:1]] == [9, 9, 7, 7]
    lengths = sum(1 + n % 4 for n in range(7))
    for method, mean in means(table, "precision@6").items():
        ours = means(inside, "precision@6")[method] * 7
        both = bench_questions(SUBJECT, [CUT, HALF], [method], k=6)
        assert mean * 9 == pytest.approx(ours + 2 * means(both, "precision@6")[method])
        assert means(table, "share@6")[method] == pytest.approx(mean * 9 / (lengths + 2))
    facts = dict(table.facts)
    assert facts["cut off"].startswith("2 answers, each counted as the span (0, 0)")
    assert facts["answers"] == f"mean length {(lengths + 2) / 9:.2f} tokens; precision@6 can be at most 2.00"
    fewer = dict(bench_questions(SUBJECT, asked, ["random"], k=2).facts)  # of 3 or 4 tokens, 2 can be found
    assert fewer["answers"] == f"mean length 2.00 tokens; precision@2 can be at most {14 / 9:.2f}"
    assert any("'answers inside' excludes these questions" in note for note in table.notes)
    assert not any("answers inside" in note for note in inside.notes)


def test_inputs_are_cut_to_the_lower_of_two_limits() -> None:
    bench = bench_of(["random"])
    assert bench.protocol.max_tokens == bench.task.subject.limit == 40  # the model's own
    items = items_of(bench_of(["random"], max_tokens=12), QUESTIONS)
    assert {item.n_tokens for item in items} == {12}
    assert len({gold_of(item)[1] for item in items}) == 2
    assert SUBJECT.max_tokens is None
    table = bench_questions(SUBJECT, QUESTIONS, ["random"], max_tokens=12)
    assert dict(table.facts)["lengths"] == "12 to 12 tokens, mean 12; at most 12, only the context is cut"
    with pytest.raises(BadInput, match="its question leaves no room for the context"):
        bench_questions(SUBJECT, QUESTIONS, ["random"], max_tokens=6)


def test_a_gold_answer_is_explained_where_it_is_when_the_start_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens of what is left have other numbers than those of the whole input."""
    tokenizer = type(SUBJECT.tokenizer)(
        tokenizer_object=SUBJECT.tokenizer.backend_tokenizer,
        **{
            f"{name}_token": getattr(SUBJECT.tokenizer, f"{name}_token")
            for name in ("pad", "unk", "mask", "cls", "sep")
        },
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        truncation_side="left",
    )
    subject = replace(SUBJECT, processor=tokenizer)
    long = Question("long", "is", f"{WHOLE} but it won", (Answer("it won", len(WHOLE) + 5),))
    bench = bench_of(["attcat"], subject, target="gold", k=6)
    (item,) = items_of(bench, [long])
    assert gold_of(item) == ((37, 38), False, 40)
    assert item.gold is not None
    assert item.gold.target == Span(42, 43)
    explained: list[Any] = []

    def note(*words: Any) -> Any:
        results = explain_with(*words)
        explained.append([one["attcat" if "attcat" in one else "random"] for one in results])
        return results

    monkeypatch.setattr(measuring, "explain_with", note)
    (found,) = measure(bench, [item]).inputs
    own = explained[0][0]
    assert own.target == Span(37, 38)
    assert own.label == "it won"
    highest = {*sorted(range(40), key=lambda i: -own.scores[i])[:6]}
    assert found.methods["attcat"].values["precision"] == len({37, 38} & highest)


def test_unanswerable_questions_are_left_out() -> None:
    asked = [NONE, *QUESTIONS[:4], NONE, *QUESTIONS[4:]]
    table = bench_questions(SUBJECT, asked, METHODS, k=6)
    alone = bench_questions(SUBJECT, QUESTIONS, METHODS, k=6)
    assert means(table, "precision@6") == pytest.approx(means(alone, "precision@6"))
    assert dict(table.facts)["questions"] == "7 of 7 that have an answer, seed 0; 2 unanswerable ones are left out"
    with pytest.raises(BadInput, match="none of the 2 questions has an answer"):
        bench_questions(SUBJECT, [NONE, NONE], METHODS)


@pytest.mark.parametrize("target", ["predicted", "gold"])
def test_it_is_said_how_often_the_model_is_right(target: Any) -> None:
    """By questions whose true answer is made of what the model says, or is one word beside it."""
    subject, right, wrong = question_subject("distilbert"), [], []
    asked = [drawn(number, 12, 2) for number in range(20)]
    results = wt.explain(subject, [one.texts for one in asked], ["random"], Span(free=True))
    for one, found in zip(asked, (result["random"] for result in results), strict=True):
        assert isinstance(found.target, Span)
        first, last = found.target.start, found.target.end
        assert first is not None
        assert last is not None
        if 5 <= first <= last < len(found.tokens) - 2:  # in the context, with a word behind it
            spans: list[Any] = [found.spans[first], found.spans[last], found.spans[last + 1]]
            start, end, more = spans[0][0], spans[1][1], spans[2][1]
            right.append(replace(one, answers=(Answer(one.context[start:end], start),)))
            wrong.append(replace(one, answers=(Answer(one.context[start:more], start),)))
    assert len(right) > 1
    for these, n_right in (([*right, *wrong[:1], CUT], len(right)), (wrong, 0)):
        table = bench_questions(subject, these, ["random"], target=target)
        inside = len([one for one in these if one is not CUT])
        assert dict(table.facts)["right"] == f"{n_right} of the model's answers, of {inside} that are not cut off"


def test_what_is_cut_off_cannot_be_right() -> None:
    said = wt.explain(SUBJECT, [QUESTIONS[0].texts], ["random"], Span(0, 0))[0]["random"]
    assert measuring._truth(Gold(Span(0, 0), (0,), cut_off=True), said) == Truth(1, True, False)
    assert measuring._truth(Gold(Span(0, 0), (0,)), said) == Truth(1, False, True)
    assert measuring._truth(Gold(Span(0, 0), (0,)), replace(said, target=Span(0, 1))) == Truth(1, False, False)


def test_the_interval_of_a_share_is_that_of_the_ratio_of_sums() -> None:
    counts, lengths = [2, 0, 1, 3, 4, 0, 1], [2, 5, 1, 3, 12, 1, 1]
    source, found = np.random.default_rng(SEED), []
    for _ in range(RESAMPLES // 200):
        for places in source.integers(0, 7, (200, 7)):
            found.append(sum(counts[i] for i in places) / sum(lengths[i] for i in places))
    cell = share_cell(counts, lengths)
    assert cell.mean == pytest.approx(11 / 25)
    assert cell.n == 7
    assert (cell.low, cell.high) == pytest.approx((np.quantile(found, 0.025), np.quantile(found, 0.975)))
    assert cell.mean != pytest.approx(fmean(c / n for c, n in zip(counts, lengths, strict=True)))
    same = share_cell([1, 2, 4], [2, 4, 8])  # half of each: no draw can change that
    assert (same.mean, same.low, same.high) == pytest.approx((0.5, 0.5, 0.5))


def counted(number: int, length: int, **counts: int) -> InputResult:
    methods = {name: MethodResult(name == "b", 0.5, 2.0, {"precision": n}, ()) for name, n in counts.items()}
    truth = Truth(length, cut_off=False, right=False)
    return InputResult(number, number, f"{number}", "", "", 0.5, 30, 0, methods, truth=truth)


def test_methods_are_tested_against_the_best_and_ranked() -> None:
    found = [counted(n, 4, a=1 + n % 2, b=4, random=3 + n % 2) for n in range(20)]
    table = summarise(found, ("precision",), "question", 20)
    assert [line.method for line in table.lines] == ["b", "random", "a"]
    assert [(line.control, line.tuned_on_deletion) for line in table.lines] == [
        (False, True),
        (True, False),
        (False, False),
    ]
    for column in ("precision@20", "share@20"):
        best, close, worst = (line.cells[column].p for line in table.lines)
        assert best is None
        assert close is not None
        assert worst is not None
        assert worst <= close < 0.05
    # Two tests of what is never equal: the smallest p there is, twice, and 1 of 2**10 ways to flip ten differences.
    assert table.lines[2].cells["precision@20"].p == pytest.approx(2 / (RESAMPLES + 1))
    for line in table.lines:
        assert line.cells["share@20"].p == line.cells["precision@20"].p
        assert line.cells["share@20"].mean == line.cells["precision@20"].mean / 4
    assert not any(column.flattered for column in table.columns)


def test_the_same_call_gives_the_same_table_and_a_larger_sample_begins_with_a_smaller_one() -> None:
    first, again = (bench_questions(SUBJECT, QUESTIONS, METHODS, k=6, sample=5) for _ in range(2))
    assert without_cost(first) == without_cost(again)
    assert replace(first, lines=()) == replace(again, lines=())
    assert first.lines[0].cells["precision@6"].n == 5

    def items(**settings: Any) -> tuple[Item, ...]:
        return items_of(bench_of(["random"], **settings), [NONE, *QUESTIONS])

    everything = items()
    assert [item.number for item in everything] == list(range(7))
    assert sorted(item.row for item in everything) == list(range(1, 8))  # in the data, unanswerable ones counted
    assert all(items(sample=size) == everything[:size] for size in range(1, 8))
    assert items(sample=99) == everything
    assert [item.row for item in items(seed=1)] != [item.row for item in everything]


def test_what_is_measured_together_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    together = bench_questions(SUBJECT, QUESTIONS, METHODS, k=6)
    monkeypatch.setattr(running, "TOKENS_AT_ONCE", 1)
    apart = bench_questions(SUBJECT, QUESTIONS, METHODS, k=6)
    for column in ("precision@6", "share@6"):
        assert means(apart, column) == means(together, column)


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "INPUTS_AT_ONCE", 3)
    measured: list[list[int]] = []

    def interrupted(bench: Bench, items: Sequence[Item], _: object) -> MeasuredPart:
        measured.append([item.number for item in items])
        if len(measured) == 2:
            raise KeyboardInterrupt
        return measure(bench, items)

    monkeypatch.setattr(running, "measure", interrupted)
    asked = [*QUESTIONS, CUT]
    with pytest.raises(KeyboardInterrupt):
        bench_questions(SUBJECT, asked, METHODS, k=6, out=tmp_path)
    assert [part.name for part in (tmp_path / "parts").iterdir()] == ["000000-000002.json"]
    assert not (tmp_path / "table.json").exists()
    table = bench_questions(SUBJECT, asked, METHODS, k=6, out=tmp_path)
    assert measured == [[0, 1, 2], [3, 4, 5], [3, 4, 5], [6, 7]]
    assert without_cost(table) == without_cost(bench_questions(SUBJECT, asked, METHODS, k=6))
    del measured[:]
    assert bench_questions(SUBJECT, asked, METHODS, k=6, out=tmp_path) == table  # seconds too: nothing was run
    assert measured == []


def test_a_folder_holds_a_row_for_each_question_and_method(tmp_path: Path) -> None:
    asked = [*QUESTIONS, CUT, NONE]
    table = bench_questions(SUBJECT, asked, METHODS, k=6, out=tmp_path)
    assert wt.bench.read_table(tmp_path) == table
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"spec.json", "parts", "table.json", "table.md", "report.html", "results.parquet"}
    rows = parquet.read_table(tmp_path / "results.parquet").to_pylist()
    assert len(rows) == 8 * 3
    for method in METHODS:
        own = [row for row in rows if row["method"] == method]
        assert fmean(row["precision"] for row in own) == pytest.approx(means(table, "precision@6")[method])
        share = sum(row["precision"] for row in own) / sum(row["length"] for row in own)
        assert share == pytest.approx(means(table, "share@6")[method])
        assert {row["id"] for row in own if row["cut_off"]} == {"cut"}
        assert all(asked[row["row"]].id == row["id"] for row in own)
    answers = {row["id"]: row["label"] for row in rows}
    for one in QUESTIONS:
        found = wt.explain(SUBJECT, [one.texts], ["random"], Span(free=True))[0]["random"]
        assert answers[one.id] == found.label
    assert "questions" in (tmp_path / "report.html").read_text("utf-8")
    assert "bootstrap interval over questions" in (tmp_path / "table.md").read_text("utf-8")
    spec = json.loads((tmp_path / "spec.json").read_text("utf-8"))
    assert (spec["protocol"]["k"], spec["protocol"]["max_tokens"], spec["sample"]) == (6, 40, None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"k": 5}, "protocol was"),
        ({"target": "gold"}, "protocol was"),
        ({"max_tokens": 30}, "protocol was"),
        ({"methods": ["attcat"]}, "methods was"),
        ({"questions": QUESTIONS[1:]}, "inputs was"),
        ({"questions": [replace(QUESTIONS[0], answers=QUESTIONS[1].answers), *QUESTIONS[1:]]}, "inputs was"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_another_benchmark_in_the_same_folder_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    first: dict[str, Any] = {"subject": SUBJECT, "questions": QUESTIONS, "methods": ["random"], "sample": 1}
    bench_questions(**first, out=tmp_path)
    with pytest.raises(UsageError, match=rf"holds another benchmark \(.*{said}"):
        bench_questions(**(first | change), out=tmp_path)
    bench_questions(**(first | {"sample": 3}), out=tmp_path)  # but more of the same can be added
    assert wt.bench.read_table(tmp_path).lines[0].cells["precision@20"].n == 3


def test_a_part_that_is_none_is_refused(tmp_path: Path) -> None:
    bench_questions(SUBJECT, QUESTIONS[:2], ["random"], out=tmp_path)
    path = tmp_path / "parts" / "000000-000001.json"
    good = json.loads(path.read_text("utf-8"))
    assert len(good.pop("sha256")) == 64
    assert json.loads(json.dumps(asdict(read_part(good, "")))) == good
    first = good["inputs"][0]
    wrong: list[Any] = [
        {},
        [],
        good | {"inputs": [{**first, "truth": {"n_tokens": [1]}}]},
        good | {"inputs": [{**first, "methods": []}]},
    ]
    for bad in wrong:
        path.write_text(json.dumps(bad), encoding="utf-8")
        with pytest.raises(BadArtifact, match=r"000000-000001.json is not a part of a benchmark: .*delete this file"):
            bench_questions(SUBJECT, QUESTIONS[:2], ["random"], out=tmp_path)


def test_the_usual_methods_are_all_but_the_dear_ones() -> None:
    names = default_methods(task_for(SUBJECT), curves=False)
    assert {"attcat", "gae", "raw-attention", "transatt", "random"} <= {*names}
    assert not {"refined-noise", "integrated-gradients", "tis", "contrast-cat", "mask-lrp"} & {*names}
    assert "mask-lrp" in default_methods(task_for(with_heads(SUBJECT)), curves=False)
    table = bench_questions(SUBJECT, QUESTIONS[:1])
    assert {line.method for line in table.lines} == {*names}
    assert [line.method for line in table.lines if line.control] == ["random"]
    named = bench_questions(SUBJECT, QUESTIONS[:1], ["refined-noise"])
    assert [(line.method, line.control, line.tuned_on_deletion) for line in named.lines] == [
        ("refined-noise", True, True)
    ]


def test_wrong_calls_are_refused(subject_of: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a text, or a pair of texts"):
        bench_questions(subject_of("bert"), QUESTIONS, METHODS)
    with pytest.raises(UsageError, match=r"question 0 is 'it is slow'; expected a Question.*wt.data.read_squad"):
        wt.bench.run(SUBJECT, ["it is slow"], METHODS)
    for settings in ({"k": 0}, {"k": 2.5}, {"sample": 0}, {"seed": -1}, {"target": "true"}, {"part": "middle"}):
        with pytest.raises(BadSetting, match=f"protocol: {next(iter(settings))}="):
            bench_questions(SUBJECT, QUESTIONS, METHODS, out=tmp_path / "a", **settings)
    for asked, message in (
        ([QUESTIONS[0], {"question": "who"}], "question 1 is {'question': 'who'}; expected a Question"),
        (5, "questions is 5; expected a file in SQuAD format, or a list of Question"),
        ([], "there are no questions"),
        ([replace(QUESTIONS[0], question=" ")], "question 0 has an empty text"),
        ([replace(QUESTIONS[0], question=" ", where="a.json, question 7")], "a.json, question 7 has an empty text"),
        ("nowhere.json", "there is no file nowhere.json"),
    ):
        with pytest.raises(BadInput, match=message):
            bench_questions(SUBJECT, asked, METHODS, out=tmp_path / "a")
    with pytest.raises(UnknownName, match="'attcat'"):
        bench_questions(SUBJECT, QUESTIONS, ["atcat"])
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("kind", ["roberta", "gpt2"])
def test_other_kinds_of_models_are_measured(kind: str) -> None:
    asked = [replace(one, question="Was it slow?") for one in QUESTIONS[:3]]
    table = bench_questions(question_subject(kind), asked, METHODS, k=4)
    assert {line.cells["precision@4"].n for line in table.lines} == {3}
    assert files.table_json(table)
