"""What the generation task knows of a prompt and its answer: their tokens, segments and rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from whichtoken.answers import ANSWER, PROMPT, PromptTokens, Segment, find_sources, name_sentences
from whichtoken.core.rows import Row
from whichtoken.core.trace import Level
from whichtoken.data.prompts import DocumentPlace, Prompt, put_documents
from whichtoken.errors import BadInput
from whichtoken.models import Document, Subject
from whichtoken.models.encoding import decode
from whichtoken.models.generation import render_chat
from whichtoken.sentences import sentence_groups
from whichtoken.targets import RowLevel
from whichtoken.tasks.texts import list_control_tokens
from whichtoken.words import Span


@dataclass(frozen=True)
class PromptDocument:
    """A prompt as the model reads it. Tokens of a chat template, and those that the tokenizer adds, are special."""

    prompt: Prompt
    tokens: Document
    segments: tuple[Segment, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        given = self.prompt.continuation
        return self.tokens.texts if given is None else (*self.tokens.texts, given)

    @property
    def n_tokens(self) -> int:
        return len(self.tokens.ids)


@dataclass(frozen=True)
class AnswerText:
    """An answer: its token ids, and where each token is in its text; special tokens are nowhere."""

    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    text: str
    spans: tuple[Span | None, ...]
    is_given: bool
    control: tuple[str, ...] = ()  # special tokens that were given


def read_prompt(subject: Subject, given: Prompt, number: int) -> PromptDocument:
    """Tokenize a prompt and name its segments: what each role said, documents, and the sentences of these."""
    prompt, places = put_documents(given, number)
    if prompt.messages:
        text, contents = render_chat(subject.tokenizer, prompt.messages, subject.title, number)
        roles = [Segment("role", m.role, span) for m, span in zip(prompt.messages, contents, strict=True)]
    else:
        text, contents, roles = prompt.text, [(0, len(prompt.text))], []
    document = subject.encode_prompt(text, number, contents if prompt.messages else None)
    if prompt.messages:
        document = _mark_template(document, contents)
    named = [
        Segment("document", name, _move_place(prompt, place, contents, text))
        for (name, _), place in zip(prompt.documents, places, strict=True)
    ]
    regions = _cut_regions(contents, [segment.span for segment in named])
    segments = (*roles, *named, *name_sentences(text, regions))
    if all(sequence is None for sequence in document.sequences):
        raise BadInput("is an empty prompt; give at least one word", index=number)
    return PromptDocument(replace(prompt, continuation=given.continuation), document, segments)


def _mark_template(document: Document, contents: Sequence[Span]) -> Document:
    """Make the tokens that lie in no message special tokens."""
    inside = [
        span is not None and any(span[0] < end and max(span[1], span[0] + 1) > start for start, end in contents)
        for span in document.spans
    ]
    keep: dict[str, Any] = {
        name: tuple(value if own else None for value, own in zip(getattr(document, name), inside, strict=True))
        for name in ("spans", "sequences", "word_ids")
    }
    unknown, control = (
        tuple(own and value for value, own in zip(values, inside, strict=True))
        for values in (document.unknown, document.control)
    )
    return replace(document, unknown=unknown, control=control, **keep)


def _move_place(prompt: Prompt, place: DocumentPlace, contents: Sequence[Span], rendered: str) -> Span:
    """Return where a document is in the rendered prompt. A template may have removed white space around the content."""
    own, (start, end) = prompt.texts[place.text], contents[place.text]
    stripped = 0 if rendered[start:end] == own else len(own) - len(own.lstrip())
    return start - stripped + place.span[0], start - stripped + place.span[1]


def _cut_regions(contents: Sequence[Span], documents: Sequence[Span]) -> list[Span]:
    """Divide what the messages say where a document begins or ends."""
    regions = []
    for start, end in contents:
        borders = {border for span in documents for border in span if start < border < end}
        ordered = sorted({start, end, *borders})
        regions += list(pairwise(ordered))
    return regions


def read_continuation(subject: Subject, document: PromptDocument, number: int) -> AnswerText:
    """Tokenize prompt and continuation together; BadInput if a token would contain parts of both."""
    prompt, text = document.tokens, document.prompt.continuation or ""
    n, border, whole = len(prompt.ids), len(prompt.texts[0]), prompt.texts[0] + text
    messages = [segment.span for segment in document.segments if segment.kind == "role"]
    both = subject.encode_prompt(whole, number, [*messages, (border, len(whole))] if messages else None)
    if both.ids[:n] != prompt.ids or len(both.ids) == n:
        raise BadInput(
            f": the tokenizer joins the end of the prompt, {prompt.texts[0][-12:]!r}, and the continuation, "
            f"{text[:12]!r}, across their boundary; move characters from one to the other (a space belongs to the "
            "word that follows it)",
            index=number,
        )
    spans = [None if span is None else (max(span[0] - border, 0), max(span[1] - border, 0)) for span in both.spans[n:]]
    control = list_control_tokens(both.tokens[n:], both.control[n:])
    return AnswerText(both.ids[n:], both.tokens[n:], text, tuple(spans), True, control)


def read_generated(tokenizer: Any, prompt: Document, ids: tuple[int, ...], number: int) -> AnswerText:
    """Return a generated answer with its text. The ids are kept; the text only serves display.

    The last token of the prompt is decoded with it, because some tokenizers drop the space before a first token.
    """

    def spell(tokens: Sequence[int]) -> str:
        return decode(tokenizer, tokens, number, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    before = [] if prompt.sequences[-1] is None else [prompt.ids[-1]]
    offset, special = len(spell(before)), set(tokenizer.all_special_ids)
    text, spans, at = spell([*before, *ids])[offset:], list[Span | None](), 0
    for count, token in enumerate(ids, 1):
        # A part of a character is decoded as a replacement character, until the rest follows.
        end = len(spell([*before, *ids[:count]]).rstrip("\ufffd")) - offset
        end = len(text) if count == len(ids) else min(max(end, at), len(text))
        spans.append(None if token in special else (at, end))
        at = end
    return AnswerText(ids, tuple(tokenizer.convert_ids_to_tokens(list(ids))), text, tuple(spans), False)


def join_row(document: PromptDocument, answer: AnswerText) -> Row:
    """Return what the model reads: the prompt, then the answer, whose tokens are never removed."""
    prompt, n = document.tokens, len(answer.ids)
    special = tuple(sequence is None for sequence in prompt.sequences) + (True,) * n
    return Row(prompt.ids + answer.ids, prompt.types + (0,) * n, special, tail=n)


def join_tokens(document: PromptDocument, answer: AnswerText) -> PromptTokens:
    """Return the token fields of a record: the prompt is its first text, the answer its second."""
    prompt, n = document.tokens, len(answer.ids)
    return PromptTokens(
        texts=(prompt.texts[0], answer.text),
        spans=prompt.spans + answer.spans,
        sequences=tuple(None if s is None else PROMPT for s in prompt.sequences)
        + tuple(None if span is None else ANSWER for span in answer.spans),
        word_ids=prompt.word_ids + (None,) * n,
    )


def number_parts(document: PromptDocument, n_answer: int, level: Level) -> list[int]:
    """Return which part of the prompt each token belongs to; -1 for special tokens and the answer."""
    prompt = document.tokens
    tokens = PromptTokens(prompt.texts, prompt.spans, prompt.sequences, prompt.word_ids)
    parts = [-1] * (len(prompt.ids) + n_answer)
    for number, source in enumerate(find_sources(tokens, document.segments, level)):
        for position in source.tokens:
            parts[position] = number
    return parts


def split_answer(answer: AnswerText, level: RowLevel) -> list[tuple[int, ...]]:
    """Return the tokens of each row, counted from 0; a special token joins the sentence before it."""
    if level == "answer":
        return [tuple(range(len(answer.ids)))]
    if level == "token":
        return [(number,) for number in range(len(answer.ids))]
    inside = [None if span is None else 0 for span in answer.spans]
    groups = sentence_groups((answer.text,), answer.spans, inside)
    firsts = [min(group) for group in groups]
    borders = [0, *firsts[1:], len(answer.ids)] if groups else [0, len(answer.ids)]
    return [tuple(range(start, end)) for start, end in pairwise(borders)]


def text_of(answer: AnswerText, places: Sequence[int]) -> str:
    """Return the part of the answer that some of its tokens make up; of a special token, its name."""
    spans = [span for place in places if (span := answer.spans[place]) is not None]
    if not spans:
        return "".join(answer.tokens[place] for place in places)
    return answer.text[spans[0][0] : spans[-1][1]]
