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
    assert "the question: the context does not hold the answer 'rhubarb'" in err


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
    code, out, err = run(capsys, "explain", *words)
    assert (code, err) == (0, "")
    assert [json.loads(line)["method"] for line in out.splitlines()] == ["contrast-cat", "attcat"] * 2


def test_long_contexts_are_read_in_windows_unless_asked_otherwise(
    answers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    long = ("explain", "--question", QUESTION, "--context", " ".join([CONTEXT] * 5), "--model", answers)
    more = ("--method", "attcat", "--format", "json")
    assert json.loads(run(capsys, *long, *more)[1])[0]["details"]["windows"] > 2
    assert "windows" not in json.loads(run(capsys, *long, *more, "--long", "truncate")[1])[0]["details"]


def test_what_is_wrong_is_said(answers: str, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (("explain", "--question", "Who?"), "--context is missing"),
        (("explain", "--context", "It is."), "--question is missing"),
        ((*ASKED, "a text"), "--question was given, and texts too"),
        ((*ASKED, "--model", model), "needs a model that answers questions"),
        ((*ASKED, "--target", "slow", "--against", "music"), "--against compares two labels"),
        (("explain", "a text", "--model", answers), "text 1 is one text"),
        (("explain", "--question", " ", "--context", "It is."), "the question has an empty text"),
        (("compare", "a", "--pair", "It is a plot.", "--model", answers), "answers questions; curves of deleted words"),
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
