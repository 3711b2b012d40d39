"""Read questions with their contexts and answers from files in SQuAD's format. No torch."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whichtoken.boundary import while_reading
from whichtoken.data.files import check_file, check_unicode
from whichtoken.data.sources import BadRow, DataFile, as_file
from whichtoken.errors import BadInput, name_type


@dataclass(frozen=True)
class Answer:
    """An answer: a span of the context."""

    text: str
    start: int  # position of its first character

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True)
class Question:
    """A question about a context. Without answers, the context does not contain one (SQuAD v2)."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    where: str = field(default="", compare=False)  # file and number, for error messages

    @property
    def texts(self) -> tuple[str, str]:
        return self.question, self.context


def read_squad(path: str | Path | DataFile) -> list[Question]:
    """Read questions from JSON: articles with paragraphs (SQuAD v1 and v2), or a list of rows.

    A row has a question, a context, and answers as in Hugging Face datasets, or one answer as a string.
    """
    with while_reading(path, BadInput):
        file = as_file(path)
        assert file is not None, "a path or a file"
        check_file(file.path)
        return _parse_questions(file.path.read_text(encoding="utf-8-sig"), file)


def _parse_questions(text: str, path: DataFile) -> list[Question]:
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(f"{path} is not the JSON of questions and contexts: {error}") from error
    check_unicode(parsed, text)
    rows = _paragraph_rows(parsed["data"], path) if isinstance(parsed, dict) and "data" in parsed else parsed
    if not isinstance(rows, list):
        raise BadInput(f"{path} contains {name_type(parsed)}; expected SQuAD's format ('data'), or a list of rows")
    questions = []
    for number, row in enumerate(rows):
        where = f"{path}, question {number}"
        try:
            questions.append(_parse_question(row, where, number))
        except BadInput as error:
            path.on_bad_row(BadRow(number, where, error, row))
    if not questions:
        raise BadInput(f"{path} contains no questions")
    return questions


def _paragraph_rows(articles: Any, path: DataFile) -> list[Mapping[str, Any]]:
    try:
        return [
            {**question, "context": paragraph["context"]}
            for article in articles
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
    except (KeyError, TypeError) as error:
        raise BadInput(f"{path} is not in SQuAD's format, data > paragraphs > context and qas: {error}") from error


def _parse_question(row: Any, where: str, number: int) -> Question:
    if not isinstance(row, Mapping) or not all(isinstance(row.get(key), str) for key in ("question", "context")):
        raise BadInput(f"{where} is {row!r:.60}; expected texts 'question' and 'context'")
    context: str = row["context"]
    answers = tuple(_parse_answers(row, context, where))
    for answer in answers:
        text = context[answer.start : answer.end] if answer.start >= 0 else ""  # negative would count from the end
        if text != answer.text:
            raise BadInput(f"{where}: answer {answer.text!r} at {answer.start}, but the context has {text!r} there")
    return Question(str(row.get("id", number)), row["question"], context, answers, where)


def _parse_answers(row: Mapping[str, Any], context: str, where: str) -> Iterator[Answer]:
    answers = row.get("answers", row.get("answer"))
    if isinstance(answers, str):  # without a position: the first occurrence
        start = context.find(answers)
        if start < 0 or not answers.strip():
            fix = "if there is no answer, make 'answers' an empty list"
            raise BadInput(f"{where}: answer {answers!r} is not in the context; {fix}")
        yield Answer(answers, start)
        return
    if isinstance(answers, Mapping):  # columns, as in Hugging Face datasets
        try:
            pairs = zip(answers["text"], answers["answer_start"], strict=True)
            answers = [{"text": text, "answer_start": at} for text, at in pairs]
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{where}: answers {answers!r:.60}; expected as many 'text' as 'answer_start'") from error
    if not isinstance(answers, Sequence):
        raise BadInput(f"{where} has no answers; expected 'answers' (an empty list if there is none), or 'answer'")
    for answer in answers:
        text, at = (answer.get(key) if isinstance(answer, Mapping) else None for key in ("text", "answer_start"))
        if not isinstance(text, str) or not text.strip() or not isinstance(at, int):
            raise BadInput(f"{where}: answer {answer!r:.60}; expected a 'text' and its position 'answer_start'")
        yield Answer(text, at)
