"""The metric `signs`: counted by hand, word by word; what it flatters, shares and leaves out."""

import math
from dataclasses import replace
from functools import cache

import pytest
import torch
from tests.bench.test_table import TEXTS as INVENTED
from tests.tiny import KINDS, image_model_of, images, model_of
from transformers import ViTImageProcessor

import whichtoken as wt
from whichtoken.bench._run import gather, prepare, run_sample
from whichtoken.bench.external import ExternalScores
from whichtoken.bench.measure import measure
from whichtoken.bench.stats import paired_p
from whichtoken.bench.table import summarise
from whichtoken.bench.verdict import verdict
from whichtoken.records import Attribution
from whichtoken.tables import BenchTable, Estimate
from whichtoken.tasks import BenchInput

METHODS = ["leave-one-out", "attcat", "random"]
TEXTS = ["very slow film", "Charming actors were slow", "it is a rare plot and a slow end", "nobody did sleep"]
SIGNS = wt.bench.protocol(metrics=("signs",), min_tokens=1)


@cache
def steep(factor: float = 2.0) -> wt.Subject:
    """A classifier whose log-odds change enough for some words, and some texts, to be strong."""
    model = model_of("bert")
    with torch.no_grad():
        model.classifier.weight.mul_(factor)
    return wt.Subject(model, KINDS["bert"].tokenizer(), name="steep")


def log_odds(words: list[str], label: int) -> float:
    with torch.no_grad():
        logits = steep().model(**steep().tokenizer(" ".join(words), return_tensors="pt")).logits[0].tolist()
    return float(logits.pop(label) - math.log(sum(math.exp(other) for other in logits)))


@cache
def explained(text: str) -> dict[str, Attribution]:
    return wt.explain(steep(), [text], METHODS)[0]


@cache
def effects(text: str) -> list[float]:
    words, label = text.split(), steep().labels.index(explained(text)["attcat"].label)
    return [log_odds(words, label) - log_odds(words[:i] + words[i + 1 :], label) for i in range(len(words))]


def word_scores(text: str, method: str) -> list[float]:
    record, scores = explained(text)[method], [0.0] * len(text.split())
    for span, score in zip(record.spans, record.scores, strict=True):
        if span is not None:
            scores[text[: span[0]].count(" ")] += score
    return scores


def counts(method: str) -> list[tuple[int, int]]:
    """Of each text with a strong word: how many signs are right, and how many words are strong."""
    found = []
    for text in TEXTS:
        pairs = [(s, e) for s, e in zip(word_scores(text, method), effects(text), strict=True) if abs(e) > 2]
        found += [(sum(s * e > 0 for s, e in pairs), len(pairs))] if pairs else []
    return found


def cells(table: BenchTable) -> dict[str, Estimate]:
    return {line.method: line.cells["signs"] for line in table.lines if "signs" in line.cells}


def test_signs_are_counted_over_the_strong_words_of_all_texts() -> None:
    table = wt.bench.run(steep(), TEXTS, METHODS, protocol=SIGNS)
    n_strong = sum(strong for _, strong in counts("attcat"))
    assert 0 < len(counts("attcat")) < len(TEXTS)
    assert n_strong < sum(len(text.split()) for text in TEXTS)
    assert len(explained(TEXTS[1])["attcat"].tokens) > 2 + len(TEXTS[1].split())  # some words have several tokens
    for method, cell in cells(table).items():
        assert cell.mean == pytest.approx(sum(right for right, _ in counts(method)) / n_strong)
        assert cell.n == len(counts(method))
    assert cells(table)["leave-one-out"].mean == 1
    assert 0 < cells(table)["attcat"].mean < 1
    (column,) = (column for column in table.columns if column.metric == "signs")
    assert (column.name, column.title, column.better) == ("signs", f"right signs of {n_strong} strong units", "higher")
    assert column.flattered  # leave-one-out is among the methods
    assert {line.method for line in table.lines if line.tuned_on_deletion} == {"leave-one-out"}
    assert table.verdict.startswith("No method is recommended")


def test_opposite_signs_and_zeros_are_wrong() -> None:
    def external(text: str) -> dict[str, ExternalScores]:
        own = explained(text)["leave-one-out"].scores
        return {
            name: ExternalScores(tuple(factor * score for score in own), "here")
            for name, factor in (("negated", -1.0), ("zero", 0.0), ("halved", 0.5))
        }

    bench = prepare(steep(), ["attcat"], SIGNS, {(text,): external(text) for text in TEXTS})
    table = run_sample(bench, gather(bench, [BenchInput(text) for text in TEXTS]), None, {})
    means = {method: cell.mean for method, cell in cells(table).items() if method != "attcat"}
    assert means == {"negated": 0, "zero": 0, "halved": 1}
    assert not any(column.flattered for column in table.columns)


def test_each_removal_is_evaluated_once_for_all_methods() -> None:
    variants = {(text, *words[:i], *words[i + 1 :]) for text in TEXTS for words in [text.split()] for i in range(9)}
    for methods in (["attcat"], METHODS):
        bench = prepare(steep(), methods, SIGNS)
        part = measure(bench, gather(bench, bench.task.examples(TEXTS, None, None)).items)
        assert part.evaluated == len(variants | {(text, *text.split()) for text in TEXTS})


def test_texts_without_strong_words_have_no_column() -> None:
    table = wt.bench.run(steep(0.001), TEXTS, METHODS, protocol=SIGNS)
    assert [column.name for column in table.columns] == ["seconds", "evaluations"]


def test_predicted_values_have_no_strong_words_however_much_they_change() -> None:
    model = model_of("bert", labels=1, problem_type="regression")
    with torch.no_grad():
        model.classifier.weight.mul_(1000)
    subject = wt.Subject(model, KINDS["bert"].tokenizer(), name="steep regression")
    assert max(wt.explain(subject, [TEXTS[0]], "leave-one-out")[0]["leave-one-out"].scores) > 2
    how = wt.bench.protocol(metrics=("aopc", "signs"), min_tokens=1)
    table = wt.bench.run(subject, TEXTS[:1], METHODS, protocol=how)
    assert {column.metric for column in table.columns} == {"aopc", "seconds", "evaluations"}


def test_patches_are_removed_where_there_are_no_words() -> None:
    model = image_model_of("vit")
    with torch.no_grad():
        model.classifier.weight.mul_(1000)
    subject = wt.Subject(model, ViTImageProcessor(size={"height": 12, "width": 12}), name="steep vit")
    effects = wt.explain(subject, images=list(images(1)), methods="leave-one-out")[0]["leave-one-out"].scores
    table = wt.bench.run(subject, list(images(1)), ["leave-one-out", "random"], protocol=SIGNS)
    n_strong = sum(abs(effect) > 2 for effect in effects)
    assert n_strong > 1
    assert table.columns[0].title == f"right signs of {n_strong} strong units"
    assert cells(table)["leave-one-out"].mean == 1
    assert cells(table)["random"].mean == pytest.approx(
        sum(effect > 2 for effect in effects) / n_strong
    )  # all positive


def test_the_bootstrap_draws_inputs_and_aopc_decides() -> None:
    """Of each input, how many words are strong, and how many signs are right by `gae` and by `leave-one-out`."""
    found = [(2, 1, 2), (0, 0, 0), (4, 4, 4), (1, 0, 1)]
    inputs = [
        replace(
            record,
            methods={
                name: replace(record.methods["gae"], values=values, tuned_on_deletion=name != "gae")
                for name, right in (("gae", gae), ("leave-one-out", loo))
                for values in [{"signs right": float(right), "signs strong": float(strong)} if strong else {}]
            },
        )
        for record, (strong, gae, loo) in zip(INVENTED, found, strict=False)
    ]
    table = summarise(inputs, ("signs", "aopc"), "text")
    gae, loo = cells(table)["gae"], cells(table)["leave-one-out"]
    assert (gae.mean, loo.mean) == pytest.approx((5 / 7, 1))
    assert (gae.n, loo.n) == (3, 3)
    assert (gae.low, gae.high) == (0, 1)  # only the last, or only the third, drawn three times
    assert (gae.p, loo.p) == (paired_p([2, 4, 1], [1, 4, 0]), None)
    assert verdict(table, inputs, 4).startswith("Use gae for this model: AOPC")
