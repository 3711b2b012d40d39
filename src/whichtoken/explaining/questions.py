"""Questions with a context: the answer is found first, then its start and its end are explained.

Long contexts are read in overlapping windows, and the one with the best answer is explained. Papers explain the logit
of the start and that of the end, each read out at its own token, and add the two maps; so do we (`Span.part`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import index
from typing import Any, Literal

import torch
from torch import Tensor

from whichtoken.core.objectives import Part, Span, SpanGoal, as_span, best_span
from whichtoken.errors import BadInput
from whichtoken.explaining.scoring import Scored, Work, check_logits, in_chunks, made_by, score_batch, token_fields
from whichtoken.explaining.texts import at_once, check_long
from whichtoken.models import CONTEXT, Document, LongTexts, batches, window_row
from whichtoken.records import Attribution

Side = Literal["sum", "start", "end"]
SIDES: Mapping[Part, tuple[Side, ...]] = {
    "both": ("start", "end"),
    "sum": ("sum",),
    "start": ("start",),
    "end": ("end",),
}


@dataclass(frozen=True)
class QuestionJob:
    """One call of explain, checked and planned."""

    work: Work
    target: Span | str
    long: LongTexts

    @property
    def part(self) -> Part:
        return "both" if isinstance(self.target, str) else self.target.part


@dataclass(frozen=True)
class _Found:
    """An answer in one window of a document: where its ends are, in that window."""

    window: int
    start: int
    end: int
    score: float  # the sum of its logits
    probability: float


def question_job(work: Work, target: Any, long: LongTexts) -> QuestionJob:
    check_long(long)
    return QuestionJob(work, as_span(target), long)


def each_question(job: QuestionJob, inputs: Iterable[Any]) -> Iterator[dict[str, Attribution]]:
    for chunk, first, bar in in_chunks(inputs, at_once(job.work), "questions"):
        with torch.inference_mode(False):  # tensors made under it could never enter a graph
            documents = job.work.subject.encode(chunk, job.long, first)
            answers = _located(job, documents, first)
            scored = _scored(job, documents, answers, first, bar)
        bar.clear()  # whoever prints results must not find it in the way
        for document, answer, found in zip(documents, answers, scored, strict=True):
            yield {key: _attribution(job, key, document, answer, found[key]) for key in job.work.methods}


def _located(job: QuestionJob, documents: Sequence[Document], first: int) -> list[_Found]:
    """The best answer of each document, over its windows; or the one that is asked for, where it scores best."""
    subject = job.work.subject
    pieces = [(number, k) for number, document in enumerate(documents) for k in range(len(document.windows))]
    wanted = [_wanted(job.target, document, first + number) for number, document in enumerate(documents)]
    best: dict[int, _Found] = {}
    rows = [window_row(documents[number], documents[number].windows[k]) for number, k in pieces]
    for group in batches([len(row.ids) for row in rows], subject.fits):
        batch = subject.batch([rows[i] for i in group])
        logits = subject.logits(batch)
        check_logits(subject, batch, [first + pieces[i][0] for i in group], logits)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        for row, i in enumerate(group):
            number, k = pieces[i]
            answer = _answer_in(job, documents[number], k, wanted[number], logits[row])
            if answer is not None and (number not in best or answer.score > best[number].score):
                best[number] = answer
    for number, document in enumerate(documents):
        if number not in best:
            cut = f"; {document.n_cut} of its tokens were cut, use long='window'" if document.n_cut else ""
            raise BadInput(f"input {first + number}: no window of the context holds the whole of that answer{cut}")
    return [best[number] for number in range(len(documents))]


def _wanted(target: Span | str, document: Document, number: int) -> tuple[int, int] | None:
    """The tokens of the answer that is asked for, in the document; None: the model's."""
    if isinstance(target, str):
        return answer_tokens(document, target, document.texts[CONTEXT].find(target), number)
    if target.start is None or target.end is None:
        return None
    start, end = index(target.start), index(target.end)
    if not 0 <= start <= end < len(document.ids):
        allowed = f"0 <= start <= end < {len(document.ids)}, its number of tokens"
        raise BadInput(f"input {number}: there is no span from token {start} to {end}; allowed is {allowed}")
    return start, end


def answer_tokens(document: Document, text: str, at: int, number: int) -> tuple[int, int]:
    """The first and the last token of an answer, by its place in the context."""
    if at < 0 or not text:
        raise BadInput(f"input {number}: the context does not hold the answer {text!r:.60}")
    spans = zip(document.sequences, document.spans, strict=True)
    inside = [
        i
        for i, (sequence, span) in enumerate(spans)
        if sequence == CONTEXT and span and span[0] < at + len(text) and span[1] > at
    ]
    if not inside:
        raise BadInput(f"input {number}: the tokenizer has no token for the answer {text!r:.60}")
    return inside[0], inside[-1]


def _answer_in(
    job: QuestionJob, document: Document, window: int, wanted: tuple[int, int] | None, logits: Tensor
) -> _Found | None:
    places = document.windows[window]
    of_row = logits[None, :, : len(places)]
    if wanted is not None:
        if not {*wanted} <= {*places}:
            return None
        start, end = (places.index(position) for position in wanted)
    elif isinstance(job.target, Span) and job.target.free:
        start, end = (int(side.argmax()) for side in of_row[0])
    else:
        context = torch.tensor([[document.sequences[i] == CONTEXT for i in places]], device=logits.device)
        start, end = best_span(of_row, context)[0][0].tolist()
    part: Side = "sum" if job.part == "both" else job.part
    first, last = (torch.tensor([place], device=logits.device) for place in (start, end))
    goal, both = SpanGoal(first, last, part), SpanGoal(first, last, "sum")
    probability = float(goal.probability(of_row, job.work.subject.link))
    return _Found(window, start, end, float(both.scalar(of_row)), probability)


def _scored(
    job: QuestionJob, documents: Sequence[Document], answers: Sequence[_Found], first: int, bar: Any
) -> list[dict[str, list[Scored]]]:
    """For each document and method, its map of the start and that of the end, or the one that was asked for."""
    subject = job.work.subject
    rows = [
        window_row(document, document.windows[answer.window])
        for document, answer in zip(documents, answers, strict=True)
    ]
    found: list[dict[str, list[Scored]]] = [{key: [] for key in job.work.methods} for _ in documents]
    for group in batches([len(row.ids) for row in rows], job.work.fits):
        batch = subject.batch([rows[i] for i in group])
        ends = [
            torch.tensor([getattr(answers[i], side) for i in group], device=subject.device) for side in ("start", "end")
        ]
        for side in SIDES[job.part]:
            goal = SpanGoal(ends[0], ends[1], side)
            scored = score_batch(job.work, batch, [first + i for i in group], partial(_given, goal)).scored
            for key, of_rows in scored.items():
                for i, one in zip(group, of_rows, strict=True):
                    found[i][key].append(one)
        bar.update(len(group))
    return found


def _given(goal: SpanGoal, logits: Tensor) -> SpanGoal:
    return goal


def _attribution(
    job: QuestionJob, key: str, document: Document, answer: _Found, parts: Sequence[Scored]
) -> Attribution:
    shown = document.windows[answer.window]
    details: dict[str, Any] = {
        "answer": [answer.start, answer.end],  # its first and last token
        "part": job.part,
    }
    if len(document.windows) > 1:
        details |= {"window": answer.window, "windows": len(document.windows)}
    for side, part in zip(SIDES[job.part], parts, strict=True):
        details |= {side: dict(part.details)} if part.details and len(parts) > 1 else part.details
    return Attribution(
        scores=_added([part.scores for part in parts]),
        label=_text_between(document, shown[answer.start], shown[answer.end]),
        probability=answer.probability,
        n_cut=len(document.ids) - len(shown),
        n_windows=1,
        details=details,
        layers=tuple(_added(terms) for terms in zip(*(part.layers for part in parts), strict=True)),
        seconds=sum(part.seconds for part in parts),
        evaluations=sum(part.evaluations for part in parts) + len(document.windows),
        **token_fields(document, shown),
        **made_by(job.work, key),
    )


def _added(maps: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(sum(values) for values in zip(*maps, strict=True))


def _text_between(document: Document, start: int, end: int) -> str:
    """The answer as it stands in its text; what is not within one text is named by its tokens."""
    first, last = document.spans[start], document.spans[end]
    if first is not None and last is not None and document.sequences[start] == document.sequences[end] and start <= end:
        return document.texts[document.sequences[start] or 0][first[0] : last[1]].strip()
    return f"{document.tokens[start]} .. {document.tokens[end]}"
