"""Scores made elsewhere: how they are laid on the model's tokens, that they are measured alike, and what is refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import KINDS

import whichtoken as wt
from whichtoken.bench._run import gather, prepare, run_sample
from whichtoken.bench.external import ExternalScores, read_external_scores
from whichtoken.errors import BadInput
from whichtoken.tables import BenchTable
from whichtoken.tasks import BenchInput, task_for

SubjectOf = Callable[..., wt.Subject]
TEXT, OTHER = "Charming actors were slow", "The plot was touching, but it is slow"
PAIR = ("a man did sleep", "nobody is slow")


def written(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def scores_of(subject: wt.Subject, path: Path, *rows: Any) -> tuple[float, ...]:
    """Of the first row."""
    found = read_external_scores(written(path, *rows), task_for(subject))
    return next(iter(next(iter(found.values())).values())).scores


def measured(subject: wt.Subject, methods: list[str], given: Any) -> BenchTable:
    how = wt.bench.protocol(min_tokens=1, metrics=("aopc", "log-odds", "normalised-aopc", "agreement"))
    bench = prepare(subject, methods, how, given)
    return run_sample(bench, gather(bench, [BenchInput(texts) for texts in given]), None, {})


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    return tmp_path / "made.jsonl"


def test_scores_of_all_tokens_are_taken_as_they_are(subject_of: SubjectOf, lines: Path) -> None:
    subject = subject_of("bert")
    tokens = list(subject.encode([(TEXT,)])[0].tokens)
    scores = [float(i) - 3 for i in range(len(tokens))]
    row = {"text": TEXT, "method": "shap", "tokens": tokens, "scores": scores}
    found = read_external_scores(written(lines, row), task_for(subject))
    assert found == {(TEXT,): {"shap": ExternalScores(tuple(scores), f"{lines}, line 1")}}
    whole = [round(score) for score in scores]  # JSON of other languages has no 1.0
    assert scores_of(subject, lines, {**row, "scores": whole}) == tuple(scores)


def test_content_tokens_leave_special_ones_at_0(subject_of: SubjectOf, lines: Path) -> None:
    subject = subject_of("bert")
    tokens = list(subject.encode([PAIR])[0].tokens)
    assert tokens.count("[SEP]") == 2
    content = [token for token in tokens if token not in ("[CLS]", "[SEP]")]
    row = {"texts": PAIR, "method": "shap", "tokens": content, "scores": list(range(1, len(content) + 1))}
    filled = iter(range(1, len(content) + 1))
    assert scores_of(subject, lines, row) == tuple(0 if t in ("[CLS]", "[SEP]") else next(filled) for t in tokens)


@pytest.mark.parametrize("kind", KINDS)
def test_the_pieces_of_a_word_get_the_score_of_its_span(kind: str, subject_of: SubjectOf, lines: Path) -> None:
    """Also where the tokenizer counts the space before a word to it."""
    subject = subject_of(kind)
    spans, scores = [[0, 8], [9, 15], [16, 20], [21, 25]], [5.0, -1.0, 2.0, 0.5]
    found = scores_of(subject, lines, {"text": TEXT, "method": "lime", "spans": spans, "scores": scores})
    by_letter = {i: score for span, score in zip(spans, scores, strict=True) for i in range(*span)}
    expected = []
    for span in subject.encode([(TEXT,)])[0].spans:
        first = None if span is None else span[0]
        while first is not None and TEXT[first] == " ":
            first += 1
        expected.append(0.0 if first is None else by_letter[first])
    assert found == tuple(expected)
    assert found.count(5.0) >= 2  # "Charming" is more than one token
    assert set(scores) <= set(found)


def test_a_span_ends_before_its_last_offset(subject_of: SubjectOf, lines: Path) -> None:
    row = {"text": "slow.", "method": "lime", "spans": [[0, 4], [4, 5]], "scores": [1.0, 2.0]}
    found = dict(zip(("[CLS]", "slow", ".", "[SEP]"), scores_of(subject_of("bert"), lines, row), strict=True))
    assert (found["slow"], found["."]) == (1.0, 2.0)


def test_spans_of_a_pair_say_which_text_they_are_of(subject_of: SubjectOf, lines: Path) -> None:
    subject = subject_of("bert")
    row = {
        "texts": PAIR,
        "method": "lime",
        "spans": [[0, 1], [0, 6], None],
        "sequences": [0, 1, 1],
        "scores": [3, 7, 9],
    }
    tokens = subject.encode([PAIR])[0].tokens
    found = dict(zip(tokens, scores_of(subject, lines, row), strict=True))
    assert (found["a"], found["nobody"]) == (3, 7)
    assert {score for token, score in found.items() if token not in ("a", "nobody")} == {0.0}


def test_lines_that_whichtoken_wrote_do_as_they_are(subject_of: SubjectOf, lines: Path) -> None:
    subject = subject_of("bert")
    results = wt.explain(subject, [TEXT, PAIR], ["attcat", "gae"])
    made = [attribution for result in results for attribution in result.values()]
    lines.write_text("\n".join(attribution.to_json() for attribution in made), encoding="utf-8")
    found = read_external_scores(lines, task_for(subject))
    assert {texts: {name: given.scores for name, given in of_text.items()} for texts, of_text in found.items()} == {
        tuple(result["attcat"].texts): {name: one.scores for name, one in result.items()} for result in results
    }
    assert [given.label for of_text in found.values() for given in of_text.values()] == [one.label for one in made]


def test_scores_equal_to_a_methods_get_that_methods_cells(subject_of: SubjectOf, lines: Path) -> None:
    subject = subject_of("bert")
    results = wt.explain(subject, [TEXT, OTHER], ["attcat", "gae"])
    rows = [
        {"text": one.texts[0], "method": f"my {name}", "tokens": one.tokens, "scores": one.scores, "label": one.label}
        for result in results
        for name, one in result.items()
    ]
    table = measured(subject, ["attcat", "gae"], read_external_scores(written(lines, *rows), task_for(subject)))
    cells = {line.method: line.cells for line in table.lines}
    assert set(cells) == {"attcat", "gae", "my attcat", "my gae"}
    for name in ("attcat", "gae"):
        for column in table.columns[:-2]:  # all but the costs
            own, other = cells[name][column.name], cells[f"my {name}"][column.name]
            assert (own.mean, own.low, own.high, own.n) == (other.mean, other.low, other.high, other.n)
    assert cells["gae"][table.columns[0].name].mean != cells["attcat"][table.columns[0].name].mean
    assert not {"seconds", "evaluations"} & set(cells["my gae"])  # nobody knows what they cost
    assert table.agreement is not None
    tau = dict(zip(table.agreement.methods, table.agreement.tau, strict=True))
    assert tau["my gae"][table.agreement.methods.index("gae")] == pytest.approx(1)
    assert not any(line.tuned_on_deletion for line in table.lines)


def test_whichtokens_own_lines_stay_marked_and_must_be_of_this_model(subject_of: SubjectOf, lines: Path) -> None:
    subject = subject_of("bert")
    own = wt.explain(subject, [TEXT], ["refined-noise"])[0]["refined-noise"]
    lines.write_text(own.to_json() + "\n", encoding="utf-8")
    table = measured(subject, ["attcat"], read_external_scores(lines, task_for(subject)))
    assert {line.method: line.tuned_on_deletion for line in table.lines} == {"refined-noise": True, "attcat": False}
    lines.write_text(replace(own, revision="sha256:another").to_json() + "\n", encoding="utf-8")
    with pytest.raises(BadInput, match="line 1: scores for a model other than tiny bert"):
        measured(subject, ["attcat"], read_external_scores(lines, task_for(subject)))


def test_a_pair_with_spans_must_say_of_which_text(subject_of: SubjectOf, lines: Path) -> None:
    row = {"texts": list(PAIR), "method": "shap", "spans": [[0, 1]], "scores": [1.0]}
    with pytest.raises(BadInput, match='line 1: a pair needs "sequences"'):
        read_external_scores(written(lines, row), task_for(subject_of("bert")))


def test_scores_of_another_class_are_refused(subject_of: SubjectOf, lines: Path) -> None:
    subject = subject_of("bert")
    own = wt.explain(subject, [TEXT], methods="attcat")[0]["attcat"]
    wrong = next(label for label in subject.labels if label != own.label)
    row = {"text": TEXT, "method": "shap", "tokens": own.tokens, "scores": own.scores}
    rows = [{**row, "label": own.label}, {**row, "method": "lime", "label": wrong}]
    with pytest.raises(BadInput, match=rf"made.jsonl, line 2: scores for '{wrong}', but '{own.label}' is measured"):
        measured(subject, ["random"], read_external_scores(written(lines, *rows), task_for(subject)))


GOOD = {"text": "very slow", "method": "shap", "tokens": ["ver", "##y", "slow"], "scores": [1, 2, 3]}
PLACED = {"text": "very slow", "method": "shap", "spans": [[0, 4], [5, 9]], "scores": [1, 2]}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([GOOD, {**GOOD, "text": "slow film", "tokens": ["slow"]}], "line 2: 1 tokens, 3 scores; give one score per"),
        ([{**GOOD, "scores": [1, 2]}], "line 1: 3 tokens, 2 scores"),
        ([{**PLACED, "scores": [1]}], "line 1: 2 spans, 2 sequences, 1 scores; give as many of each"),
        ([{**PLACED, "sequences": [0]}], "line 1: 2 spans, 1 sequences, 2 scores"),
        ([{**PLACED, "spans": [[0], [5, 9]]}], r"line 1: spans are \[\[0\], \[5, 9\]\]; expected \[start, end\]"),
        ([{**PLACED, "spans": 7}], "line 1: spans is 7; expected a list"),
        ([{**GOOD, "tokens": "very slow"}], "line 1: tokens is 'very slow'; expected a list"),
        ([{**GOOD, "tokens": ["very", "slow", "!"]}], r"line 1: tokens are \['very', 'slow', '!'\], the model's are"),
        ([{k: v for k, v in GOOD.items() if k != "tokens"}], 'line 1: no "tokens" and no "spans"'),
        ([{**GOOD, "tuned_on_deletion": 1}], "line 1: tuned_on_deletion is 1; expected true or false"),
        ([{**GOOD, "scores": "high"}], "line 1: scores is 'high'; expected a list of numbers"),
        ([{**GOOD, "scores": [1, None, 3]}], r"line 1: scores is \[1, None, 3\]; expected a list of numbers"),
        ([{**GOOD, "scores": [1, float("nan"), 3]}], "line 1: some scores are NaN or infinite"),
        ([GOOD, {**GOOD, "scores": [3, 2, 1]}], "line 2: shap has already scored this text"),
        ([{**GOOD, "method": ""}], 'line 1: the method has no name; give "method"'),
        ([{**GOOD, "method": 3}], "line 1: the method has no name"),
        ([{**GOOD, "text": " "}], "line 1 has an empty text"),
        ([{**GOOD, "text": None}], "line 1 is None; expected a text"),
        ([{**GOOD, "texts": 5}], "line 1 is 5; expected a text, or a pair"),
        ([GOOD, {**GOOD, "text": "slow very", "tokens": ["slow", "ver", "##y"], "method": "lime"}],
         "line 1: lime has no scores for 'very slow'; score every text"),
        ([{**GOOD, "label": ["x"]}], r"line 1: label is \['x'\]; expected a text, or null"),
        ([{**GOOD, "revision": 3}], "line 1: revision is 3; expected a text, or null"),
        ([{**GOOD, "scores": [1, 10**400, 3]}], "line 1: scores is .*; expected a list of numbers"),
        ([{**GOOD, "method": "a\ud800"}], "line 1 cannot be read: it holds '.ud800'"),
        ([GOOD, {**GOOD, "text": "\u200b"}], "line 2: the tokenizer finds no token"),
        ([], "made.jsonl has no attributions"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)  # fmt: skip
def test_what_is_wrong_is_named_by_file_and_line(
    rows: list[Any], message: str, subject_of: SubjectOf, lines: Path
) -> None:
    with pytest.raises(BadInput, match=f"made.jsonl(, )?{message.removeprefix('made.jsonl')}"):
        read_external_scores(written(lines, *rows), task_for(subject_of("bert")))


@pytest.mark.parametrize("raw", ["[" * 100_000, "[" * 900 + "]" * 900, '{"a":' * 5000, "9" * 5000], ids=len)
@pytest.mark.parametrize("field", ["text", "method", "scores", "spans", "sequences", "label", "other"])
def test_hostile_json_is_refused_in_one_line_or_not_read(
    raw: str, field: str, subject_of: SubjectOf, lines: Path
) -> None:
    row = json.dumps({**PLACED, field: "here"}).replace('"here"', raw)
    lines.write_text(row, encoding="utf-8")
    try:
        read_external_scores(lines, task_for(subject_of("bert")))
        assert field in ("other", "sequences")  # these may hold anything
    except BadInput as error:
        assert f"{lines}, line 1" in str(error)  # noqa: PT017  # some are accepted
        assert len(str(error)) < 1000  # noqa: PT017
