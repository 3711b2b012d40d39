"""The answer of a language model, as a record holds it: its tokens, the rows of its map, and segments of the prompt.

A record of an answer has the prompt's tokens first and the answer's last. Its two texts are the prompt (with the chat
template, if there is one) and the answer. `Attribution.scores` is the map of the whole answer; the rows here are the
maps of its sentences or tokens. No torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from whichtoken.checks import check_lengths, require
from whichtoken.sentences import sentence_groups, split_sentences
from whichtoken.targets import RowLevel, SourceLevel
from whichtoken.trust import Confidence
from whichtoken.words import Span, word_groups

PROMPT, ANSWER = 0, 1  # indices of the record's texts
REST = "the rest of the prompt"


@dataclass(frozen=True)
class Segment:
    """A named part of the prompt: what a role said, a document, or a sentence of one of these."""

    kind: Literal["role", "document", "sentence"]
    name: str  # user, document 1; of a sentence, its text
    span: Span  # characters of the prompt


@dataclass(frozen=True)
class AnswerRow:
    """The map of a part of the answer: one score for each token of the record."""

    text: str  # the part of the answer
    tokens: tuple[int, ...]  # its tokens, by their positions in the record
    scores: tuple[float, ...]  # of all tokens of the record; 0 from the part's last token on
    log_probability: float  # of these tokens, given all before them
    confidence: Confidence | None = None


@dataclass(frozen=True)
class GeneratedAnswer:
    """What a language model generated, or was given as its answer, and the maps of its parts."""

    ids: tuple[int, ...]  # of all tokens of the record, so that nothing has to be tokenized again
    first: int  # position of the answer's first token; the answer reaches to the record's last token
    log_probabilities: tuple[float, ...]  # of each token of the answer
    row_level: RowLevel
    source_level: SourceLevel
    rows: tuple[AnswerRow, ...]  # in order; for "answer", the whole answer alone
    segments: tuple[Segment, ...] = ()
    is_given: bool = False  # a continuation that was given, not generated
    foil: str = ""  # what the answer is contrasted with


@dataclass(frozen=True)
class SourceMatrix:
    """Rows (parts of the answer) x sources (parts of the prompt), with their labels.

    `rest`: for each row, what no source got: special tokens, the chat template and earlier tokens of the answer.
    """

    rows: tuple[str, ...]
    sources: tuple[str, ...]
    scores: tuple[tuple[float, ...], ...]
    spans: tuple[Span, ...]  # of the sources, as characters of the prompt
    rest: tuple[float, ...]


@dataclass(frozen=True)
class SegmentShare:
    """What a segment of the prompt contributes to each row of the answer.

    `shares`: of the positive scores of all segments of its kind; they sum to 1 unless no score is positive.
    """

    kind: str
    name: str
    text: str
    scores: tuple[float, ...]  # one for each row
    shares: tuple[float, ...]


@dataclass(frozen=True)
class PromptTokens:
    """The fields of a record that describe its tokens, as `Attribution` has them."""

    texts: tuple[str, ...]
    spans: tuple[Span | None, ...]
    sequences: tuple[int | None, ...]
    word_ids: tuple[int | None, ...]


@dataclass(frozen=True)
class PromptSource:
    """A column of a matrix: some tokens of the prompt."""

    label: str
    span: Span
    tokens: tuple[int, ...]


def find_sources(tokens: PromptTokens, segments: Sequence[Segment], level: SourceLevel) -> list[PromptSource]:
    """Return the parts of the prompt at a level, in reading order; special tokens belong to none.

    Documents are followed by the rest of the prompt, if there is any.
    """
    inside = [i for i, sequence in enumerate(tokens.sequences) if sequence == PROMPT and tokens.spans[i]]
    if level in ("sentence", "document") and (level == "document" or segments):
        named = [segment for segment in segments if segment.kind == level]
        found = [_segment_source(tokens, inside, segment) for segment in named]
        found = [source for source in found if source.tokens]
        taken = {i for source in found for i in source.tokens}
        left = [i for i in inside if i not in taken]
        if level == "sentence":
            return _join_between(found, left)
        return [*found, *([_token_source(tokens, left, REST)] if left else [])]
    if level == "word":
        groups = word_groups(tokens.texts, tokens.spans, tokens.sequences, tokens.word_ids)
    elif level == "sentence":
        groups = sentence_groups(tokens.texts, tokens.spans, tokens.sequences)
    else:
        groups = tuple((i,) for i in inside)
    return [_token_source(tokens, group) for group in groups if tokens.sequences[group[0]] == PROMPT]


def _segment_source(tokens: PromptTokens, inside: Sequence[int], segment: Segment) -> PromptSource:
    return PromptSource(
        segment.name, segment.span, tuple(i for i in inside if _middle_in(tokens.spans[i], segment.span))
    )


def _join_between(sentences: list[PromptSource], left: Sequence[int]) -> list[PromptSource]:
    """Add the tokens between sentences, such as line breaks, to the sentence before them."""
    for i in left:
        place = max((k for k, source in enumerate(sentences) if source.tokens[0] < i), default=0)
        sentences[place] = replace(sentences[place], tokens=tuple(sorted((*sentences[place].tokens, i))))
    return sentences


def _middle_in(token: Span | None, segment: Span) -> bool:
    """Return whether the last character of a token, which may start with a space, is in a segment."""
    return token is not None and segment[0] < max(token[1], token[0] + 1) <= segment[1]


def _token_source(tokens: PromptTokens, group: Sequence[int], label: str | None = None) -> PromptSource:
    spans = [span for i in group if (span := tokens.spans[i]) is not None]
    span = min(start for start, _ in spans), max(end for _, end in spans)
    text = tokens.texts[PROMPT][slice(*span)]
    return PromptSource((text.strip() or text) if label is None else label, span, tuple(group))


def make_matrix(tokens: PromptTokens, answer: GeneratedAnswer, level: SourceLevel) -> SourceMatrix:
    """Sum the scores of each row over the tokens of each source."""
    sources = find_sources(tokens, answer.segments, level)
    taken = {i for source in sources for i in source.tokens}
    return SourceMatrix(
        rows=tuple(row.text for row in answer.rows),
        sources=tuple(source.label for source in sources),
        scores=tuple(tuple(sum(row.scores[i] for i in s.tokens) for s in sources) for row in answer.rows),
        spans=tuple(source.span for source in sources),
        rest=tuple(sum(score for i, score in enumerate(row.scores) if i not in taken) for row in answer.rows),
    )


def share_segments(tokens: PromptTokens, answer: GeneratedAnswer) -> tuple[SegmentShare, ...]:
    """Return what each segment contributes to each row."""
    inside = [i for i, sequence in enumerate(tokens.sequences) if sequence == PROMPT]
    found = [(segment, _segment_source(tokens, inside, segment)) for segment in answer.segments]
    scores = [[sum(row.scores[i] for i in source.tokens) for row in answer.rows] for _, source in found]
    shares = []
    for segment, of_segment in zip(answer.segments, scores, strict=True):
        same = [s for other, s in zip(answer.segments, scores, strict=True) if other.kind == segment.kind]
        totals = [sum(max(s[number], 0.0) for s in same) for number in range(len(answer.rows))]
        own = [max(score, 0.0) / total if total else 0.0 for score, total in zip(of_segment, totals, strict=True)]
        text = tokens.texts[PROMPT][slice(*segment.span)]
        shares.append(SegmentShare(segment.kind, segment.name, text, tuple(of_segment), tuple(own)))
    return tuple(shares)


def name_sentences(text: str, regions: Sequence[Span]) -> list[Segment]:
    """Return the sentences of each region of a text."""
    found = [
        (start + first, start + last) for start, end in regions for first, last in split_sentences(text[start:end])
    ]
    return [Segment("sentence", text[slice(*span)], span) for span in found]


def find_row(tokens: PromptTokens, answer: GeneratedAnswer, text: str) -> AnswerRow | None:
    """Return the sum of the rows that contain a part of the answer; None if the answer does not contain it."""
    at = tokens.texts[ANSWER].find(text)
    if at < 0 or not text:
        return None
    end = at + len(text)
    touched = {
        i
        for i, (sequence, span) in enumerate(zip(tokens.sequences, tokens.spans, strict=True))
        if sequence == ANSWER and span and span[0] < end and span[1] > at
    }
    rows = [row for row in answer.rows if touched & set(row.tokens)]
    if len(rows) <= 1:
        return next(iter(rows), None)
    return AnswerRow(
        text="".join(row.text for row in rows),
        tokens=tuple(i for row in rows for i in row.tokens),
        scores=tuple(sum(values) for values in zip(*(row.scores for row in rows), strict=True)),
        log_probability=sum(row.log_probability for row in rows),
    )


def check_answer(answer: GeneratedAnswer, n_tokens: int, prompt: str) -> None:
    """Raise BadArtifact unless the values of a decoded answer are possible."""
    name = "Attribution: generated"
    check_lengths(name, {"tokens": range(n_tokens), "ids": answer.ids})
    require(0 < answer.first < n_tokens, f"{name}: first is {answer.first}, but there are {n_tokens} tokens")
    check_lengths(name, {"answer tokens": range(answer.first, n_tokens), "log_probabilities": answer.log_probabilities})
    for number, row in enumerate(answer.rows):
        check_lengths(f"{name}: row {number}", {"tokens": range(n_tokens), "scores": row.scores})
        inside = all(answer.first <= token < n_tokens for token in row.tokens)
        require(inside, f"{name}: row {number} has the tokens {row.tokens!r:.60}; expected tokens of the answer")
    for segment in answer.segments:
        start, end = segment.span
        require(0 <= start <= end <= len(prompt), f"{name}: segment {segment.name!r:.40} has the span {segment.span}")
