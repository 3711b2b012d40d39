"""Benchmarks of models that generate text: the formulas written slowly, the levels, and the command line."""

import json
import math
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from pyarrow import parquet
from tests.cli.test_bench import leave_pictures_out
from tests.cli.test_cli import run
from tests.tiny import language_subject

import whichtoken as wt
from whichtoken.bench._run import gather, prepare, specification
from whichtoken.bench.measure import measure
from whichtoken.bench.removal_metrics import ratio_cell, top_drop
from whichtoken.bench.results import InputResult
from whichtoken.errors import BadInput, BadSetting
from whichtoken.metrics.ablations import Ablations, draw_kept, linear_datamodelling_score, spearman
from whichtoken.metrics.curves import aopc
from whichtoken.records import Attribution, Plan
from whichtoken.tasks import task_for

PROMPT = "the cat sat on a mat. one dog ran to us. the"
WORDS = len(PROMPT.split())
METHODS = ["gradient-x-input", "leave-one-out", "random"]
LEVELS = ("sentence", "word", "word-but-last-word")
Call = Callable[..., tuple[int, str, str]]


@cache
def subject() -> wt.Subject:
    return language_subject("llama")


@cache
def measured() -> InputResult:
    metrics = ("aopc", "normalised-aopc", "above-random", "top-drop", "lds")
    how = wt.bench.protocol(metrics=metrics, orders=("morf",), generate=3, ablations=12, bounds_budget=0, seed=4)
    bench = prepare(subject(), METHODS, how)
    return measure(bench, gather(bench, bench.task.examples([PROMPT], None, None)).items).inputs[0]


@cache
def explained(method: str) -> Attribution:
    return wt.explain(subject(), prompt=PROMPT, generate=3, methods=method)[0][method]


def log_probability(ids: list[int], n_answer: int) -> float:
    """Of the last tokens, each predicted from what is before it; an empty prompt starts with the first special one."""
    with torch.no_grad():
        logits = subject().model(torch.tensor([ids])).logits[0]
    total = 0.0
    for place in range(len(ids) - n_answer, len(ids)):
        row = logits[place - 1].tolist()
        total += row[ids[place]] - math.log(sum(math.exp(value) for value in row))
    return total


def words_of(record: Attribution) -> list[list[int]]:
    """The tokens of each word of the prompt, found by its spaces."""
    assert record.generated is not None
    groups: list[list[int]] = [[] for _ in range(WORDS)]
    for token in range(record.generated.first):
        span = record.spans[token]
        if record.sequences[token] is not None and span is not None:
            before = record.texts[0][: span[1]]
            groups[len(f"{before}x".split() if before[-1].isspace() else before.split()) - 1].append(token)
    return groups


def without(record: Attribution, gone: set[int]) -> float:
    assert record.generated is not None
    ids = [token for place, token in enumerate(record.generated.ids) if place not in gone]
    return log_probability(ids, len(record.generated.ids) - record.generated.first)


@pytest.mark.parametrize("method", METHODS)
def test_the_drop_without_the_top_words(method: str) -> None:
    record, result = explained(method), measured()
    groups = words_of(record)
    scores = [sum(record.scores[i] for i in group) for group in groups]
    plan = Plan("delete", "morf", "top", "word")
    curve = result.curve(method, plan)
    ranked = sorted(range(len(groups)), key=lambda word: -scores[word])
    for k in (1, 3, 5, 10):
        gone = {i for word in ranked[:k] for i in groups[word]}
        assert top_drop(curve, k) == pytest.approx(without(record, set()) - without(record, gone))
    few = result.curve(method, Plan("delete", "morf", "top", "sentence"))
    assert (top_drop(few, 3) is None, top_drop(few, 5)) == (False, None)  # there are three sentences


@pytest.mark.parametrize(("method", "level"), [*product(METHODS, ("word", "word-but-last-word"))])
def test_the_linear_datamodelling_score(method: str, level: str) -> None:
    record, result = explained(method), measured()
    groups = words_of(record)
    groups = groups[:-1] if level == "word-but-last-word" else groups
    predicted, outputs = [], []
    for kept in draw_kept(len(groups), 12, f"4 {result.key} {level}").tolist():
        predicted.append(
            sum(record.scores[i] for group, stays in zip(groups, kept, strict=True) if stays for i in group)
        )
        outputs.append(without(record, {i for g, stays in zip(groups, kept, strict=True) if not stays for i in g}))
    ranks = [[sum(other < value for other in values) for value in values] for values in (predicted, outputs)]
    middle = (len(predicted) - 1) / 2
    both = sum((a - middle) * (b - middle) for a, b in zip(*ranks, strict=True))
    each = sum((a - middle) ** 2 for a in range(len(predicted)))  # no ties, so ranks are 0, 1, 2 ...
    assert result.methods[method].values[f"lds {level}"] == pytest.approx(both / each)


def test_of_few_sentences_every_set_is_an_ablation() -> None:
    record, result = explained("random"), measured()
    units = task_for(subject()).units(record, "sentence")
    assert [len(unit.elements) for unit in units] != []
    kept = list(product((True, False), repeat=len(units)))
    predicted = [sum(unit.score for unit, stays in zip(units, own, strict=True) if stays) for own in kept]
    gone = [{i for unit, stays in zip(units, own, strict=True) if not stays for i in unit.elements} for own in kept]
    outputs = [without(record, each) for each in gone]
    expected = scipy.stats.spearmanr(predicted, outputs).statistic
    assert result.methods["random"].values["lds sentence"] == pytest.approx(expected)


def test_the_last_word_stays_at_the_levels_that_say_so() -> None:
    task, record = task_for(subject()), explained("random")
    last = set(words_of(record)[-1])
    for level in ("token", "word", "sentence"):
        whole, rest = task.units(record, level), task.units(record, f"{level}-but-last-word")
        assert {i for unit in whole for i in unit.elements} - {i for unit in rest for i in unit.elements} == last
        assert all(unit.score == pytest.approx(sum(record.scores[i] for i in unit.elements)) for unit in rest)
    assert len(task.units(record, "sentence")) - len(task.units(record, "sentence-but-last-word")) == 1


def test_above_random_is_the_way_from_random_to_the_best() -> None:
    result, plan = measured(), Plan("delete", "morf", "tenths", "word")
    (planned,) = (planned for planned in result.plans if planned.plan == plan)
    own = {method: aopc(result.curve(method, plan)) for method in METHODS}
    best = max(planned.upper or -math.inf, *own.values())
    how = wt.bench.protocol(metrics=("above-random",), orders=("morf",), generate=3, bounds_budget=0, level="word")
    table = wt.bench.run(subject(), [PROMPT], METHODS, protocol=how)
    for line in table.lines:
        share = (own[line.method] - own["random"]) / (best - own["random"])
        assert line.cells["above-random delete morf tenths"].mean == pytest.approx(share)
    assert ratio_cell([1.0, 2.0], [2.0, 4.0]).mean == 0.5
    some = ratio_cell([-1.0, 0.0, 1.0], [0.0, 0.0, 2.0])  # in two of three inputs, the random order is the best
    assert (some.mean, math.isfinite(some.low), math.isfinite(some.high)) == (0, True, True)


def test_spearman_shares_ranks_and_constant_values_have_none() -> None:
    a, b = np.array([1.0, 2, 2, 5, 0]), np.array([3.0, 1, 4, 4, 4])
    assert spearman(a, b) == pytest.approx(scipy.stats.spearmanr(a, b).statistic)
    assert spearman(a, np.ones(5)) is None
    kept = draw_kept(9, 20, "seed")
    assert len({row.tobytes() for row in kept}) == len(kept) == 20
    assert (kept == draw_kept(9, 20, "seed")).all()
    assert not (kept == draw_kept(9, 20, "other")).all()
    assert len(draw_kept(3, 8, "seed")) == 8
    scores = np.arange(9.0)
    assert linear_datamodelling_score(scores.tolist(), Ablations(kept, kept @ scores)) == pytest.approx(1)
    assert linear_datamodelling_score((-scores).tolist(), Ablations(kept, kept @ scores)) == pytest.approx(-1)


def test_protocols_of_prompts() -> None:
    task = task_for(subject())
    suited = wt.bench.protocol().adapt_to(task)
    assert suited.levels == LEVELS
    assert suited.metrics == ("aopc", "top-drop", "lds", "additivity")
    assert wt.bench.protocol("full").adapt_to(task).metrics == (*suited.metrics, "normalised-aopc", "above-random")
    assert wt.bench.protocol(level="word").adapt_to(task).levels == ("word",)
    assert suited.adapt_to(task) == suited
    with pytest.raises(BadSetting, match="level='page' is not allowed"):
        wt.bench.protocol(further_levels=("page",)).adapt_to(task)
    bench = prepare(subject(), ["random"], wt.bench.protocol(generate=5))
    assert (
        specification(bench, gather(bench, bench.task.examples([PROMPT], None, None)), {})["protocol"]["generate"] == 5
    )


def test_a_benchmark_does_not_depend_on_where_its_prompts_are_stored(tmp_path: Path) -> None:
    bench, digests = prepare(subject(), ["random"], wt.bench.protocol()), set()
    for name in ("one.jsonl", "two.jsonl"):
        (tmp_path / name).write_text(json.dumps({"prompt": PROMPT}) + "\n", encoding="utf-8")
        digests.add(gather(bench, bench.task.examples(tmp_path / name, None, None)).digest)
    digests.add(gather(bench, bench.task.examples([PROMPT], None, None)).digest)
    assert len(digests) == 1


def test_a_prompt_of_one_word_is_left_out() -> None:
    how = wt.bench.protocol(metrics=("aopc",), orders=("morf",), generate=2)
    table = wt.bench.run(subject(), ["the", PROMPT], ["random"], protocol=how)
    assert dict(table.facts)["prompts"].startswith("1 of 2")
    with pytest.raises(BadInput, match="a prompt of one word"):
        wt.bench.run(subject(), ["the"], ["random"], protocol=how)


@pytest.fixture
def call(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(tmp_path)
    leave_pictures_out(monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    opened = subject()
    opened.model.save_pretrained("model")
    opened.tokenizer.save_pretrained("model")
    rows = [{"prompt": PROMPT, "id": "a"}, {"prompt": "a dog. one cat ran to the", "continuation": " mat"}]
    Path("prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return lambda *words: run(capsys, "bench", "--model", "model", "--dtype", "float64", *words)


def test_the_command_line_measures_prompts(call: Call) -> None:
    words = ("--prompts", "prompts.jsonl", "--method", "gradient-x-input,posterior")
    code, _, err = call(*words, "--generate", "3", "--order", "morf", "--ablations", "6", "--out", "out")
    assert code == 0, err
    table = wt.bench.read_table("out")
    names = {column.name for column in table.columns}
    drops = {f"top-drop@{k} delete morf top {level}" for k in (1, 3) for level in ("word", "word-but-last-word")}
    assert names >= {f"aopc delete morf tenths {level}" for level in LEVELS} | {f"lds {level}" for level in LEVELS}
    assert names >= drops | {"additivity", "top-drop@1 delete morf top sentence"}
    lines = {line.method: line for line in table.lines}
    assert set(lines) == {"gradient-x-input", "posterior", "random", "refined-noise"}
    assert lines["posterior"].tuned_on_deletion
    assert [name for name, line in lines.items() if "additivity" in line.cells] == ["posterior"]
    assert all(column.flattered for column in table.columns if column.metric == "lds")
    assert any("log-probability of the answer" in column.about for column in table.columns)
    rows = parquet.read_table("out/results.parquet").to_pylist()
    assert {row["level"] for row in rows} == set(LEVELS)
    assert "log-probability" in dict(table.facts)["output"]


def test_options_that_do_not_fit_are_refused(call: Call) -> None:
    for words, why in (
        (("--prompts", "prompts.jsonl", "--data", "prompts.jsonl"), "both say what the inputs are"),
        (("--prompts", "prompts.jsonl", "--metrics", "aopc", "--ablations", "9"), "--ablations is for the metric lds"),
        (("--prompts", "missing.jsonl"), "there is no file missing.jsonl"),
    ):
        code, _, err = call(*words)
        assert (code, why in err) == (2, True), err
