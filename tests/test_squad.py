"""Questions from files: SQuAD v1 and v2, rows as Hugging Face has them, and what is refused, by its place."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from whichtoken.data.squad import Answer, Question, read_squad
from whichtoken.errors import BadInput

CONTEXT = "The film was slow, but the music was slow too."
ROW = {"question": "What was slow?", "context": CONTEXT}


def written(path: Path, found: Any) -> Path:
    where = path / "questions.json"
    where.write_text(found if isinstance(found, str) else json.dumps(found), encoding="utf-8")
    return where


def squad(*asked: dict[str, Any]) -> dict[str, Any]:
    """In one article, a paragraph for each question."""
    paragraphs = [{"context": CONTEXT, "qas": [one]} for one in asked]
    return {"version": "1.1", "data": [{"title": "Film", "paragraphs": paragraphs}]}


def test_squad_v1_has_articles_with_paragraphs(tmp_path: Path) -> None:
    first = {"id": "a1", "question": "What?", "answers": [{"text": "film", "answer_start": 4}]}
    second = {
        "id": "a2",
        "question": "How?",
        "answers": [{"text": "slow", "answer_start": 37}, {"text": "slow too", "answer_start": 37}],
    }
    path = written(tmp_path, squad(first, second))
    found = read_squad(str(path))
    assert found == [
        Question("a1", "What?", CONTEXT, (Answer("film", 4),)),
        Question("a2", "How?", CONTEXT, (Answer("slow", 37), Answer("slow too", 37))),
    ]
    assert [one.where for one in found] == [f"{path}, question 0", f"{path}, question 1"]
    assert found[1].texts == ("How?", CONTEXT)
    for answer in found[1].answers:  # the second of the two "slow", where the file says it is
        assert CONTEXT[answer.start : answer.end] == answer.text


def test_squad_v2_has_questions_without_an_answer(tmp_path: Path) -> None:
    impossible = {
        "id": "b",
        "question": "Who?",
        "is_impossible": True,
        "answers": [],
        "plausible_answers": [{"text": "film", "answer_start": 4}],
    }
    found = read_squad(written(tmp_path, squad(impossible)))
    assert [(one.id, one.answers) for one in found] == [("b", ())]


def test_rows_may_have_columns_of_answers_or_one_answer(tmp_path: Path) -> None:
    rows = [
        {**ROW, "id": "c", "answers": {"text": ["slow", "slow"], "answer_start": [13, 37]}},
        {**ROW, "answers": {"text": [], "answer_start": []}},
        {**ROW, "answer": "slow"},
        {**ROW, "answers": "music"},
    ]
    found = read_squad(written(tmp_path, rows))
    assert [one.id for one in found] == ["c", "1", "2", "3"]  # without an id, its number
    assert [one.answers for one in found] == [
        (Answer("slow", 13), Answer("slow", 37)),
        (),
        (Answer("slow", 13),),  # without a place, the first
        (Answer("music", 27),),
    ]


def test_a_byte_order_mark_is_no_matter(tmp_path: Path) -> None:
    assert len(read_squad(written(tmp_path, "\ufeff" + json.dumps([{**ROW, "answer": "slow"}])))) == 1


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ("not JSON", "questions.json is not the JSON of questions and contexts: "),
        ("", "is not the JSON of questions"),
        ("5", r"contains an int; expected SQuAD's format \('data'\), or a list of rows"),
        ({"rows": []}, "contains a dict; expected SQuAD's format"),
        ([], "questions.json contains no questions"),
        (squad(), "contains no questions"),
        ({"data": 5}, "is not in SQuAD's format, data > paragraphs > context and qas: 'int' object"),
        ({"data": ["film"]}, "is not in SQuAD's format"),
        ({"data": [{"title": "Film"}]}, "is not in SQuAD's format.*: 'paragraphs'"),
        ({"data": [{"paragraphs": [{"qas": [{}]}]}]}, "is not in SQuAD's format.*: 'context'"),
        ({"data": [{"paragraphs": [{"context": CONTEXT}]}]}, "is not in SQuAD's format.*: 'qas'"),
        ({"data": [{"paragraphs": [{"context": CONTEXT, "qas": ["What?"]}]}]}, "is not in SQuAD's format"),
        (["What?"], "question 0 is 'What.*expected texts 'question' and 'context'"),
        ([{"question": "What?"}], "question 0 is {.*expected texts 'question' and 'context'"),
        ([{**ROW, "answer": "slow"}, {**ROW, "context": None}], "question 1 is {"),
        ([ROW], "question 0 has no answers; expected 'answers'"),
        ([{**ROW, "answers": 3}], "has no answers"),
        ([{**ROW, "answer": "fast"}], "answer 'fast' is not in the context"),
        ([{**ROW, "answer": ""}], "is not in the context; if there is no answer, make 'answers' an empty list"),
        ([{**ROW, "answers": ["slow"]}], "answer 'slow'; expected a 'text' and its position 'answer_start'"),
        ([{**ROW, "answers": [{"text": "slow"}]}], "answer {'text': 'slow'}; expected a 'text'"),
        ([{**ROW, "answers": [{"text": None, "answer_start": 3}]}], "answer {'text': None.*expected a 'text'"),
        ([{**ROW, "answers": [{"text": " ", "answer_start": 3}]}], "answer {'text': ' '.*expected a 'text'"),
        ([{**ROW, "answers": [{"text": "slow", "answer_start": "x"}]}], "expected a 'text' and its position"),
        (
            [{**ROW, "answers": [{"text": "slow", "answer_start": 12}]}],
            "question 0: answer 'slow' at 12, but the context has ' slo' there",
        ),
        ([{**ROW, "answers": [{"text": "too", "answer_start": -4}]}], "answer 'too' at -4, but the context has"),
        ([{**ROW, "answers": {"text": ["slow"]}}], "answers {'text.*expected as many 'text' as 'answer_start'"),
        ([{**ROW, "answers": {"text": ["slow"], "answer_start": []}}], "expected as many 'text' as 'answer_start'"),
        ([{**ROW, "answers": {"text": 1, "answer_start": 2}}], "expected as many 'text' as 'answer_start'"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_wrong_is_said_with_its_place(found: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message) as error:
        read_squad(written(tmp_path, found))
    assert str(tmp_path / "questions.json") in str(error.value)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ("[" * 100_000, "questions.json cannot be read: nested too deeply"),
        ('{"data": ' * 100_000, "questions.json cannot be read: nested too deeply"),
        (f'[{{"id": {"9" * 5000}}}]', "questions.json cannot be read: a whole number has too many digits"),
        (
            [{**ROW, "question": "a\ud800"}],
            "questions.json cannot be read: it holds '.ud800', half of a surrogate pair",
        ),
        ([{**ROW, "id": "\udfff", "answers": []}], "questions.json cannot be read: it holds '.udfff'"),
        ([{**ROW, "answers": [{"text": "slow", "answer_start": 10**4000}]}], "question 0: answer 'slow' at 1000"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_hostile_json_is_refused_in_one_line(found: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message) as error:
        read_squad(written(tmp_path, found))
    assert len(str(error.value)) < 1000
    assert str(error.value).isprintable()


def test_a_folder_or_a_pipe_is_no_file_of_questions(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    for path, message in ((tmp_path, "is a folder; give a file"), (tmp_path / "pipe.json", "is a pipe or a device")):
        with pytest.raises(BadInput, match=message):
            read_squad(path)


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"there is no file .*nowhere.json"):
        read_squad(tmp_path / "nowhere.json")
    (tmp_path / "odd.json").write_bytes(b"\xff\xfe[]")
    with pytest.raises(BadInput, match=r"odd.json cannot be read: not UTF-8"):
        read_squad(tmp_path / "odd.json")
