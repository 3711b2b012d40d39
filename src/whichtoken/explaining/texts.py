"""Texts and pairs of texts, for classifiers: batched by similar length, long ones in windows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from whichtoken.core.objectives import Goal, Predicted, Target, check_target, resolve
from whichtoken.core.trace import Ask
from whichtoken.errors import BadSetting
from whichtoken.explaining.scoring import Scored, Work, check_logits, in_chunks, made_by, score_batch, token_fields
from whichtoken.models import Document, LongTexts, Row, batches, window_row
from whichtoken.records import Attribution

TEXTS_AT_ONCE = 128  # that are encoded and sorted by length together, so that any number can be asked for
SLOW_AT_ONCE = 16  # where a method asks much of the model: results come, and can be kept, more often


@dataclass(frozen=True)
class TextJob:
    """One call of explain, checked and planned."""

    work: Work
    target: Target
    long: LongTexts


@dataclass(frozen=True)
class _Piece:
    """One window of a document, as the model sees it."""

    number: int  # of the input
    row: Row
    alone: bool  # the document has no other window


@dataclass(frozen=True)
class _Answer:
    """Every method's answer for one window, and what they explain."""

    label: str
    probability: float
    scored: Mapping[str, Scored]


def text_job(work: Work, target: Target, long: LongTexts) -> TextJob:
    check_long(long)
    check_target(target, work.subject.labels)
    return TextJob(work, target, long)


def check_long(long: LongTexts) -> None:
    if long not in get_args(LongTexts):
        raise BadSetting("long", long, f"one of {', '.join(get_args(LongTexts))}")


def at_once(work: Work) -> int:
    slow = any(method.needs.asks - {Ask.REFERENCES, Ask.HEADS} for method in work.methods.values())
    return SLOW_AT_ONCE if slow else TEXTS_AT_ONCE


def each_text(job: TextJob, inputs: Iterable[Any]) -> Iterator[dict[str, Attribution]]:
    for chunk, first, bar in in_chunks(inputs, at_once(job.work), "texts"):
        with torch.inference_mode(False):  # tensors made under it could never enter a graph
            documents = job.work.subject.encode(chunk, job.long, first)
            answers = _answers(job, documents, first, bar)
        bar.clear()  # whoever prints results must not find it in the way
        for document, parts in zip(documents, answers, strict=True):
            yield {key: _attribution(job.work, key, document, parts) for key in job.work.methods}


def _answers(job: TextJob, documents: Sequence[Document], first: int, bar: Any) -> list[list[_Answer]]:
    """For each document, the answers for its windows."""
    pieces = [
        _Piece(number, window_row(document, window), len(document.windows) == 1)
        for number, document in enumerate(documents, first)
        for window in document.windows
    ]
    classes = _classes_of_long_texts(job, pieces) if isinstance(job.target, Predicted) else {}
    answers: dict[int, _Answer] = {}
    waiting = {piece.number for piece in pieces}
    for group in batches([len(piece.row.ids) for piece in pieces], job.work.fits):
        answers.update(zip(group, _answer(job, [pieces[i] for i in group], classes), strict=True))
        done = waiting & {pieces[i].number for i in group}
        waiting -= done
        bar.update(len(done))
    found: list[list[_Answer]] = [[] for _ in documents]
    for index, piece in enumerate(pieces):
        found[piece.number - first].append(answers[index])
    return found


def _classes_of_long_texts(job: TextJob, pieces: Sequence[_Piece]) -> dict[int, int]:
    """A text in several windows has one prediction: the class with the highest mean probability over them."""
    subject, long = job.work.subject, [piece for piece in pieces if not piece.alone]
    sums: dict[int, Tensor] = {}
    for group in batches([len(piece.row.ids) for piece in long], job.work.fits):
        batch = subject.batch([long[i].row for i in group])
        logits = subject.logits(batch)
        check_logits(subject, batch, [long[i].number for i in group], logits)
        for i, probabilities in zip(group, subject.link.probabilities(logits), strict=True):
            sums[long[i].number] = sums.get(long[i].number, 0) + probabilities
    return {number: int(total.argmax()) for number, total in sums.items()}


def _answer(job: TextJob, pieces: Sequence[_Piece], classes: Mapping[int, int]) -> list[_Answer]:
    """One batch."""
    subject, numbers = job.work.subject, [piece.number for piece in pieces]

    def choose(logits: Tensor) -> Goal:
        goal = resolve(job.target, logits, subject.labels)
        known = [classes.get(number, int(own)) for number, own in zip(numbers, goal.toward, strict=True)]
        return Goal(torch.tensor(known, device=logits.device), goal.against)

    found = score_batch(job.work, subject.batch([piece.row for piece in pieces]), numbers, choose)
    goal = choose(found.logits)
    probability = goal.probability(found.logits, subject.link).tolist()
    return [
        _Answer(goal.named(i, subject.labels), probability[i], {key: rows[i] for key, rows in found.scored.items()})
        for i in range(len(pieces))
    ]


def _attribution(work: Work, key: str, document: Document, answers: Sequence[_Answer]) -> Attribution:
    parts = [answer.scored[key] for answer in answers]
    single = len(parts) == 1
    shown = document.windows[0] if single else range(len(document.ids))
    details = parts[0].details if single else {"windows": [p.details for p in parts]} if parts[0].details else {}
    return Attribution(
        scores=parts[0].scores if single else _merged(document, [part.scores for part in parts]),
        label=answers[0].label,
        probability=sum(answer.probability for answer in answers) / len(answers),
        n_cut=document.n_cut,
        n_windows=len(parts),
        details=details,
        layers=parts[0].layers if single else _merged_layers(document, [part.layers for part in parts]),
        seconds=sum(part.seconds for part in parts),
        evaluations=sum(part.evaluations for part in parts),
        **token_fields(document, shown),
        **made_by(work, key),
    )


def _merged_layers(document: Document, parts: Sequence[tuple[tuple[float, ...], ...]]) -> tuple[tuple[float, ...], ...]:
    return tuple(_merged(document, terms) for terms in zip(*parts, strict=True))


def _merged(document: Document, parts: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Each token's mean over the windows that hold it; special tokens, which stand in all of them, get 0."""
    sums, counts = [0.0] * len(document.ids), [0] * len(document.ids)
    for window, scores in zip(document.windows, parts, strict=True):
        for position, score in zip(window, scores, strict=True):
            if document.sequences[position] is not None:
                sums[position] += score
                counts[position] += 1
    return tuple(total / max(count, 1) for total, count in zip(sums, counts, strict=True))
