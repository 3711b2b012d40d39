"""Questions with a context and their answers, as SQuAD's files have them. No torch."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whichtoken.errors import BadInput


@dataclass(frozen=True)
class Answer:
    """A stretch of the context."""

    text: str
    start: int  # its first character

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True)
class Question:
    """What is asked of which context. No answers: the context does not hold one (SQuAD v2)."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    where: str = field(default="", compare=False)  # it was found

    @property
    def texts(self) -> tuple[str, str]:
        return self.question, self.context


def read_squad(path: str | Path) -> list[Question]:
    """From JSON: articles with paragraphs (SQuAD v1 and v2), or a list of rows (question, context, and answers as
    Hugging Face has them, or one answer as a string).
    """
    path = Path(path).expanduser()
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    except ValueError as error:
        raise BadInput(f"{path} is not the JSON of questions and contexts: {error}") from error
    rows = _paragraph_rows(found["data"], path) if isinstance(found, dict) and "data" in found else found
    if not isinstance(rows, list):
        raise BadInput(f"{path} holds a {type(found).__name__}; expected SQuAD's form ('data'), or a list of rows")
    questions = [_question(row, f"{path}, question {number}", number) for number, row in enumerate(rows)]
    if not questions:
        raise BadInput(f"{path} holds no question")
    return questions


def _paragraph_rows(articles: Any, path: Path) -> list[Mapping[str, Any]]:
    try:
        return [
            {**asked, "context": paragraph["context"]}
            for article in articles
            for paragraph in article["paragraphs"]
            for asked in paragraph["qas"]
        ]
    except (KeyError, TypeError) as error:
        raise BadInput(f"{path} is not in SQuAD's form, data > paragraphs > context and qas: {error}") from error


def _question(row: Any, where: str, number: int) -> Question:
    if not isinstance(row, Mapping) or not all(isinstance(row.get(key), str) for key in ("question", "context")):
        raise BadInput(f"{where} is {row!r:.60}; expected texts 'question' and 'context'")
    context: str = row["context"]
    answers = tuple(_answers(row, context, where))
    for answer in answers:
        found = context[answer.start : answer.end] if answer.start >= 0 else ""  # below 0 it would count from the end
        if found != answer.text:
            raise BadInput(f"{where}: answer {answer.text!r} at {answer.start}, but there the context has {found!r}")
    return Question(str(row.get("id", number)), row["question"], context, answers, where)


def _answers(row: Mapping[str, Any], context: str, where: str) -> Iterator[Answer]:
    found = row.get("answers", row.get("answer"))
    if isinstance(found, str):  # without its place: the first that there is
        start = context.find(found)
        if start < 0 or not found.strip():
            raise BadInput(f"{where}: answer {found!r} is not in the context; of no answer, 'answers' is an empty list")
        yield Answer(found, start)
        return
    if isinstance(found, Mapping):  # columns, as Hugging Face has them
        try:
            found = [{"text": t, "answer_start": s} for t, s in zip(found["text"], found["answer_start"], strict=True)]
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{where}: answers {found!r:.60}; expected as many 'text' as 'answer_start'") from error
    if not isinstance(found, Sequence):
        raise BadInput(f"{where} has no answers; expected 'answers' (an empty list if there is none), or 'answer'")
    for answer in found:
        text, at = (answer.get(key) if isinstance(answer, Mapping) else None for key in ("text", "answer_start"))
        if not isinstance(text, str) or not text.strip() or not isinstance(at, int):
            raise BadInput(f"{where}: answer {answer!r:.60}; expected a 'text', and its place 'answer_start'")
        yield Answer(text, at)
