"""Answers of language models as they are shown: the parts of the prompt in order, one part of the answer, and what each
document and sentence contributes. No torch.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import get_args

from whichtoken.answers import (
    ANSWER,
    PROMPT,
    AnswerRow,
    GeneratedAnswer,
    PromptSource,
    PromptTokens,
    Segment,
    find_sources,
    share_segments,
)
from whichtoken.errors import BadSetting, UsageError
from whichtoken.records import Attribution
from whichtoken.render.numbers import format_share
from whichtoken.render.tokens import CONTINUED, ShownPiece, mark_spaces, place_token
from whichtoken.targets import AnswerTokens, SourceLevel

LONGEST_NAME = 44  # characters of a sentence in a list
MOST_COLUMNS = 6  # parts of the answer that have a column in a table of shares
MOST_SENTENCES = 6  # listed without documents: the strongest
LEAST_CHANCE = 0.005  # smaller probabilities are shown as powers of e


@dataclass(frozen=True)
class ShareLine:
    """What a document or sentence of the prompt contributes, in shares of its kind."""

    name: str
    is_document: bool
    is_inside: bool  # a sentence of a document
    shares: tuple[float, ...]  # of the whole answer, then of its parts if they have columns


@dataclass(frozen=True)
class ShareTable:
    """Which document and sentence of the prompt an answer rests on."""

    method: str
    columns: tuple[str, ...]  # the whole answer, then its parts
    lines: tuple[ShareLine, ...]


def tokens_of(record: Attribution) -> PromptTokens:
    return PromptTokens(record.texts, record.spans, record.sequences, record.word_ids)


def answer_of(record: Attribution) -> GeneratedAnswer:
    if record.generated is None:
        raise UsageError("this attribution does not explain an answer of a language model")
    return record.generated


def sources_of(record: Attribution, level: SourceLevel) -> list[PromptSource]:
    """Return the parts of the prompt at a level, in reading order."""
    return find_sources(tokens_of(record), answer_of(record).segments, level)


def source_pieces(record: Attribution, scores: Sequence[float], level: str) -> list[ShownPiece]:
    """Return the prompt's parts with their scores, in reading order, without the chat template and the answer.

    `level`: "token", or any other for the parts that the record was asked for. A part that is not contiguous, such as
    what is not in a document, has several pieces with the same score.
    """
    chosen: SourceLevel = "token" if level == "token" else answer_of(record).source_level
    sources = sources_of(record, chosen)
    totals = [sum(scores[i] for i in source.tokens) for source in sources]
    if chosen == "token":
        return _token_pieces(record, sources, totals)
    text, end, pieces = record.texts[PROMPT], 0, list[ShownPiece]()
    runs = sorted((run, place) for place, source in enumerate(sources) for run in _runs(record, source))
    shown = set[int]()
    for (start, stop), place in runs:
        name = "" if chosen == "word" else shorten_name(sources[place].label)
        own = text[max(start, end) : stop]
        before = text[end : max(start, end)]
        tokens, repeated = sources[place].tokens, place in shown
        pieces.append(ShownPiece(before, own, totals[place], name, tokens=tokens, repeated=repeated, keeps_lines=True))
        shown.add(place)
        end = max(stop, end)
    return pieces


def _runs(record: Attribution, source: PromptSource) -> Iterator[tuple[int, int]]:
    """Yield the characters of each contiguous run of tokens, without the white space around them."""
    text, first = record.texts[PROMPT], 0
    for place, token in enumerate(source.tokens):
        if place + 1 == len(source.tokens) or source.tokens[place + 1] != token + 1:
            spans = [span for i in source.tokens[first : place + 1] if (span := record.spans[i]) is not None]
            start, stop = min(span[0] for span in spans), max(span[1] for span in spans)
            visible = text[start:stop].strip()
            if visible:
                start += text[start:stop].index(visible)
                yield start, start + len(visible)
            first = place + 1


def _token_pieces(record: Attribution, sources: Sequence[PromptSource], scores: Sequence[float]) -> list[ShownPiece]:
    pieces, end = [], 0
    for source, score in zip(sources, scores, strict=True):
        token = record.tokens[source.tokens[0]]
        before, shown, end = place_token(record.texts[PROMPT], source.span, end, token)
        pieces.append(ShownPiece(before, shown, score, token=token, tokens=source.tokens, keeps_lines=True))
    return pieces


def prompt_text(record: Attribution) -> str:
    """Return the prompt without the chat template around it and, if anything is left, without its documents."""
    spans = [span for sequence, span in zip(record.sequences, record.spans, strict=True) if sequence == PROMPT and span]
    if not spans:
        return ""
    at, end = min(start for start, _ in spans), max(end for _, end in spans)
    whole, left = record.texts[PROMPT][at:end], list[str]()
    for document in (segment for segment in answer_of(record).segments if segment.kind == "document"):
        left.append(record.texts[PROMPT][at : document.span[0]])
        at = max(at, document.span[1])
    return " ".join([*left, record.texts[PROMPT][at:end]]).strip() or whole.strip()


def place_parts(rows: Sequence[AnswerRow]) -> list[tuple[str, str]]:
    """Return for each part of an answer the white space before it, and what is shown of it: white space as marks."""
    placed, broken = [], False
    for row in rows:
        visible = row.text.strip()
        lead = row.text[: row.text.index(visible)] if visible else ""
        shown = visible or mark_spaces(row.text) or CONTINUED
        placed.append(("\n" * broken + lead, shown))
        broken = not visible and "\n" in row.text
    return placed


def shorten_name(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1].rstrip()}…"


def with_row(record: Attribution, row: AnswerRow) -> Attribution:
    """Return a record of one part of the answer in place of the whole."""
    target = record.target
    ids = answer_of(record).ids
    if isinstance(target, AnswerTokens) and not target.rather_than:
        target = replace(target, tokens=row.tokens, ids=tuple(ids[i] for i in row.tokens))
    return replace(
        record,
        label=row.text.strip() or row.text,
        scores=row.scores,
        confidence=row.confidence,
        value=row.log_probability,
        target=target,
    )


def choose_row(record: Attribution, text: str | None) -> Attribution:
    """Return the record of the part of the answer that contains a text; for None, the record."""
    return record if text is None else with_row(record, record.row(text))


def with_sources(record: Attribution, sources: SourceLevel | None) -> Attribution:
    """Return a record whose maps have other parts of the prompt as columns; for None, the record."""
    answer = answer_of(record)
    if sources is None:
        return record
    if sources not in get_args(SourceLevel):
        raise BadSetting("sources", sources, f"one of {', '.join(get_args(SourceLevel))}")
    return replace(record, generated=replace(answer, source_level=sources))


def name_measure(record: Attribution) -> str:
    """Return what the number of an answer is."""
    if record.generated is None:
        return ""
    return "difference of the logits" if record.generated.foil else "log-probability"


def format_chance(log_probability: float) -> str:
    """Return a probability in per cent, or as a power of e if it is tiny."""
    chance = exp(min(log_probability, 0.0))
    return format_share(chance) if chance >= LEAST_CHANCE else f"e^{log_probability:.1f}"


def describe_reach(record: Attribution, scores: Sequence[float]) -> str:
    """Say how much of the scores lies outside the parts of the prompt that are shown; nothing if all is inside."""
    strengths = {PROMPT: 0.0, ANSWER: 0.0, None: 0.0}
    for sequence, score in zip(record.sequences, scores, strict=True):
        strengths[sequence if sequence in (PROMPT, ANSWER) else None] += abs(score)
    total = sum(strengths.values())
    outside = [("earlier words of the answer", strengths[ANSWER]), ("special tokens and template", strengths[None])]
    named = [f"{format_share(strength / total)} {name}" for name, strength in outside if total and strength > 0]
    if not named:
        return ""
    return f"of all scores, {format_share(strengths[PROMPT] / total)} prompt, {', '.join(named)}"


def share_tables(group: Mapping[str, Attribution]) -> list[ShareTable]:
    """Return the shares of documents and sentences by each method; none if words of a single text were asked for."""
    made = (_share_table(name, record) for name, record in group.items() if record.generated is not None)
    return [table for table in made if table is not None]


def _share_table(method: str, record: Attribution) -> ShareTable | None:
    """Sentences follow their document. Without documents, the strongest sentences are listed."""
    answer, tokens = answer_of(record), tokens_of(record)
    documents = [segment for segment in answer.segments if segment.kind == "document"]
    if not documents and answer.source_level != "sentence":
        return None
    parts = answer.rows if answer.row_level == "sentence" and 1 < len(answer.rows) <= MOST_COLUMNS else ()
    rows = (AnswerRow(record.texts[ANSWER], (), record.scores, 0.0), *parts)
    shares = share_segments(tokens, replace(answer, rows=rows))
    listed = [pair for pair in zip(answer.segments, shares, strict=True) if pair[0].kind != "role"]
    listed.sort(key=lambda pair: (pair[0].span[0], -pair[0].span[1], pair[0].kind))
    lines = [
        ShareLine(
            share.name,
            segment.kind == "document",
            segment.kind == "sentence" and any(_contains(document, segment) for document in documents),
            share.shares,
        )
        for segment, share in listed
    ]
    if not documents:
        best = sorted(lines, key=lambda line: -line.shares[0])[:MOST_SENTENCES]
        lines = [line for line in lines if line in best]
    columns = ("the whole answer", *(shorten_name(row.text) for row in parts))
    return ShareTable(method, columns, tuple(lines)) if lines else None


def _contains(document: Segment, sentence: Segment) -> bool:
    return document.span[0] <= sentence.span[0] and sentence.span[1] <= document.span[1]


def fold_lines(text: str) -> str:
    """Return a text with at most one empty line between two lines."""
    return re.sub(r"\n\s*\n", "\n\n", text.replace("\r\n", "\n").replace("\r", "\n"))
