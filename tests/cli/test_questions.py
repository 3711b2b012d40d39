"""The command line with questions: --question and --context, rows of files, libraries of questions, errors."""

import json
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from tests.cli.test_cli import model, run
from tests.tiny import question_subject

import whichtoken as wt

__all__ = ["model"]  # a fixture
QUESTION, CONTEXT = "Is it slow?", "The film was slow, but the music was touching."
ASKED = ("explain", "--question", QUESTION, "--context", CONTEXT)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of a model that answers questions."""
    folder, subject = tmp_path_factory.mktemp("answers"), question_subject("bert")
    subject.model.float().save_pretrained(folder)
    subject.tokenizer.save_pretrained(folder)
    return str(folder)


def test_a_question_is_answered_and_explained(answers: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *ASKED, "--model", answers, "--method", "attcat,gae", "--format", "json")
    assert (code, err) == (0, "")
    records = [wt.Attribution.from_json(json.dumps(record)) for record in json.loads(out)]
    expected = wt.explain(wt.load(answers), question=QUESTION, context=CONTEXT, methods=["attcat", "gae"])[0]
    assert records == list(expected.values())
    code, out, _ = run(capsys, *ASKED, "--model", answers, "--method", "attcat")
    assert code == 0
    assert expected["attcat"].label in out


def test_the_target_is_an_answer(answers: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = (*ASKED, "--model", answers, "--method", "gae", "--format", "json")
    code, out, _ = run(capsys, *words, "--target", "the music")
    assert code == 0
    assert json.loads(out)[0]["label"] == "the music"
    code, _, err = run(capsys, *words, "--target", "rhubarb")
    assert code == 2
    assert "the question: the context does not contain the answer 'rhubarb'" in err


def test_a_context_is_read_from_standard_input(
    answers: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"The film was slow,\nbut the music was touching.\n")))
    words = ("--question", QUESTION, "--context", "-", "--model", answers, "--method", "gae", "--format", "json")
    code, out, _ = run(capsys, "explain", *words)
    assert code == 0
    assert json.loads(out)[0]["texts"] == [QUESTION, "The film was slow,\nbut the music was touching."]


def test_rows_of_a_file_and_a_library_of_questions(
    answers: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "questions.csv"
    file.write_text('question,context\nWho?,"A man is touching the music."\nIs it?,"It is a rare plot."\n')
    folder = tmp_path / "library"
    build = ("references", "build", str(file), "--model", answers, "--out", str(folder), "-o", "min_tokens=1")
    assert run(capsys, *build)[0] == 0
    words = ("--file", str(file), "--model", answers, "--references", str(folder), "--format", "jsonl")
    code, out, err = run(capsys, "explain", *words, "--method", "contrast-cat,attcat")
    assert (code, err) == (0, "")
    assert [json.loads(line)["method"] for line in out.splitlines()] == ["contrast-cat", "attcat"] * 2


def test_long_contexts_are_read_in_windows_unless_asked_otherwise(
    answers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    long = ("explain", "--question", QUESTION, "--context", " ".join([CONTEXT] * 5), "--model", answers)
    more = ("--method", "attcat", "--format", "json")
    assert json.loads(run(capsys, *long, *more)[1])[0]["details"]["windows"] > 2
    assert "windows" not in json.loads(run(capsys, *long, *more, "--long", "truncate")[1])[0]["details"]


def test_compare_removes_words_of_the_context(answers: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--model", answers, "--methods", "attcat,gae,random")
    code, out, err = run(capsys, "compare", *ASKED[1:], *words)
    assert (code, err) == (0, "")
    lines = [line for line in out.splitlines() if "deletion +" in line or "deletion -" in line]
    assert len(lines) == 3
    assert lines[0].rstrip().endswith("best")
    assert "of the tokens are deleted, the highest scores first; one question says little about a method" in out
    code, out, _ = run(capsys, "compare", *ASKED[1:], *words, "--format", "json")
    assert code == 0
    rows = json.loads(out)
    subject = wt.load(answers)
    expected = wt.explain(subject, question=QUESTION, context=CONTEXT, methods=["attcat", "gae", "random"])[0]
    curves = dict(zip(expected, wt.degrade(subject, list(expected.values())), strict=True))
    for row in rows:
        probability = row["curve"]["probability"]
        assert probability == pytest.approx(list(curves[row["method"]].probability), abs=1e-6)
        assert row["metrics"]["aopc"] == pytest.approx(probability[0] - sum(probability[1:]) / 9)
    drops = [row["metrics"]["aopc"] for row in rows]
    assert drops == sorted(drops, reverse=True)
    pair = ("compare", QUESTION, "--pair", CONTEXT, *words, "--format", "json")
    assert [row["metrics"] for row in json.loads(run(capsys, *pair)[1])] == [row["metrics"] for row in rows]


def test_a_context_with_one_word_besides_the_answer_has_nothing_to_compare(
    answers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("compare", "--question", QUESTION, "--context", "film slow", "--target", "slow", "--model", answers)
    code, out, err = run(capsys, *asked, "--methods", "attcat,gae")
    assert code == 0
    assert "there is nothing to compare: only one of the tokens of this question can be removed" in err
    assert "best" not in out


def test_auto_chooses_by_what_methods_do_on_questions(
    answers: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code, out, err = run(capsys, *ASKED, "--model", answers, "--method", "auto", "--format", "json")
    assert code == 0, err
    (record,) = json.loads(out)
    assert record["details"]["auto"].startswith(f"{record['method']} has the highest normalised AOPC")
    assert "in a small benchmark on 1 question" in record["details"]["auto"]


def test_what_is_wrong_is_said(answers: str, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (("explain", "--question", "Who?"), "--context is missing"),
        (("explain", "--context", "It is."), "--question is missing"),
        ((*ASKED, "a text"), "--question cannot be combined with other inputs"),
        ((*ASKED, "--model", model), f"question was given, but {model} classifies texts"),
        ((*ASKED, "--target", "slow", "--against", "music"), "--against compares two labels"),
        (("explain", "a text", "--model", answers), "text 1 is one text"),
        (("explain", "--question", " ", "--context", "It is."), "the question has an empty text"),
        (("compare", *ASKED[1:], "a text", "--model", answers), "--question cannot be combined with other inputs"),
        (("compare", *ASKED[1:], "--target", "slow", "--against", "music"), "--against compares two labels"),
        (("compare", *ASKED[1:], "--model", model, "--methods", "gae"), f"question was given, but {model} classifies"),
        (("compare", "a text", "--model", answers, "--methods", "gae"), "text 1 is one text"),
        (("compare", "--model", answers), "give one of TEXT, --image FILE, --prompt TEXT, or --question Q --context C"),
    ):
        code, out, err = run(capsys, *words)
        assert (code, out) == (2, ""), words
        assert said in err
        assert "Traceback" not in err


def test_the_page_of_a_model_says_what_it_does(answers: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "model", answers)
    assert code == 0
    assert "BertForQuestionAnswering" in out
    assert "answers questions" in out
    assert "longer contexts are read in windows" in out
    assert "the first token" not in out
