"""Words of a text, and the entities that labels such as B-LOC and I-LOC make of them.

A word lies between spaces and punctuation marks, and a punctuation mark is a word of its own, whatever the tokenizer.
A word's label is that of its first token, as token classifiers are trained. Prefixes are those of the schemes IOB, BIO,
BIOES and BILOU; labels without a prefix are kinds themselves.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from random import Random

from whichtoken.errors import BadInput, UnknownName
from whichtoken.models import Document
from whichtoken.targets import label_index
from whichtoken.words import Span

OUTSIDE = "O"
OPENING, CLOSING = ("B", "S", "U"), ("E", "L", "S", "U")  # prefixes of the first word, and of the last
_TAG = re.compile(r"([BIELSU])-(.+)")


@dataclass(frozen=True)
class LabelledWord:
    tokens: tuple[int, ...]
    span: Span  # of its visible characters

    @property
    def first(self) -> int:
        return self.tokens[0]


def find_words(document: Document) -> list[LabelledWord]:
    """Return the words of a document of one text, except those that were truncated. White space belongs to none."""
    text, groups, pending = document.texts[0], list[list[int]](), list[int]()
    spans: dict[int, Span] = {}
    for place, span in enumerate(document.spans):
        if span is None:
            continue
        spans[place] = _trim(text, span)
        if spans[place][0] == spans[place][1]:
            pending.append(place)
            continue
        before = [i for i in pending if document.word_ids[i] == document.word_ids[place]]  # the "_" of SentencePiece
        if groups and not pending and _is_joined(document, spans, groups[-1][-1], place):
            groups[-1].append(place)
        else:
            groups.append([*before, place])
        pending = []
    covered = {place for window in document.windows for place in window}
    return [_word(group, spans) for group in groups if group[0] in covered]


def _word(tokens: Sequence[int], spans: dict[int, Span]) -> LabelledWord:
    visible = [spans[i] for i in tokens if spans[i][0] < spans[i][1]]
    return LabelledWord(tuple(tokens), (min(start for start, _ in visible), max(end for _, end in visible)))


def _trim(text: str, span: Span) -> Span:
    part = text[slice(*span)]
    start = span[0] + len(part) - len(part.lstrip())
    return start, start + len(part.strip())


def _is_joined(document: Document, spans: dict[int, Span], last: int, place: int) -> bool:
    """Return whether two tokens belong to one word: they share characters, or no space or mark is between them."""
    text, (start, end) = document.texts[0], spans[place]
    if start < spans[last][1]:
        return True
    marks = [not any(map(str.isalnum, text[a:b])) for a, b in (spans[last], (start, end))]
    return document.word_ids[last] == document.word_ids[place] and start == spans[last][1] and not any(marks)


def split_tag(label: str) -> tuple[str, str]:
    """Return the prefix of a label and its kind: B and LOC of B-LOC. The prefix may be empty."""
    tag = _TAG.fullmatch(label)
    return ("", label) if tag is None else (tag[1], tag[2])


def group_entities(tags: Sequence[str], fits: Callable[[Sequence[int]], bool]) -> list[list[int]]:
    """Return the entities of a text as indices of words, by the labels of all its words.

    Adjacent words of one kind make one entity, unless a prefix begins another, as in transformers' pipelines. `fits`:
    whether one window of the model holds these words.
    """
    groups: list[list[int]] = []
    for place, tag in enumerate(tags):
        if tag == OUTSIDE:
            continue
        prefix, kind = split_tag(tag)
        last = groups[-1][-1] if groups else -2
        before, kind_before = split_tag(tags[last]) if groups else ("", "")
        adjacent = last == place - 1 and kind == kind_before and prefix not in OPENING and before not in CLOSING
        if adjacent and fits([*groups[-1], place]):
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def resolve_label(label: object, labels: Sequence[str]) -> int | str:
    """Return the index of a label, or the kind of several labels: LOC for B-LOC and I-LOC."""
    try:
        return label_index(label, labels)
    except UnknownName:
        kinds = list(dict.fromkeys(split_tag(name)[1] for name in labels if split_tag(name)[0]))
        same = [kind for kind in kinds if str(label).casefold() == kind.casefold()]
        if not same:
            raise UnknownName("label", str(label), [*labels, *kinds]) from None
        return same[0]


def spread_label(label: int | str, n: int, labels: Sequence[str]) -> tuple[int, ...]:
    """Return one label for each of n words: B-LOC for two words is B-LOC, I-LOC. A kind gets the prefixes it needs."""
    known = set(labels)

    def choose(kind: str, prefixes: str) -> str | None:
        return next((name for name in (f"{prefix}-{kind}" for prefix in prefixes) if name in known), None)

    if isinstance(label, str):
        first = choose(label, "SUBIEL" if n == 1 else "BISUEL")
        assert first is not None, "`resolve_label` found a label of this kind"
    else:
        first = labels[label]
    prefix, kind = split_tag(first)
    inside = (choose(kind, "I") or first) if prefix else first
    last = (choose(kind, "ELI") or first) if prefix else first
    names = [first, *[inside] * (n - 2), *([last] if n > 1 else [])]
    return tuple(labels.index(name) for name in names)


def show_labels(chosen: Iterable[int], labels: Sequence[str]) -> str:
    """Return the labels of words for display: LOC for B-LOC, I-LOC, and the label itself for a single word."""
    names = [labels[label] for label in chosen]
    tags = [split_tag(name) for name in names]
    entity = len(names) > 1 and all(tags[0][1] == kind for _, kind in tags) and all(prefix for prefix, _ in tags)
    if entity:
        return tags[0][1]
    return names[0] if len(set(names)) == 1 else " ".join(names)


def find_text(sought: str, document: Document, words: Sequence[LabelledWord], number: int) -> list[list[LabelledWord]]:
    """Return the words of every occurrence of a text, exact or else ignoring case. BadInput lists the text's words."""
    text = document.texts[0]
    for flags in (re.NOFLAG, re.IGNORECASE):
        places = [match.span() for match in re.finditer(re.escape(sought), text, flags)]
        found = [_words_in(words, place) for place in places if all(_is_edge(text, at) for at in place)]
        if any(found):
            return [group for group in found if group]
    cut = f"; {document.n_cut} of its tokens were truncated" if document.n_cut else ""
    listed = " ".join(text[slice(*word.span)] for word in words)
    raise BadInput(f": the text has no word {sought!r:.60}; its words are: {listed:.200}{cut}", index=number)


def find_span(span: Span, document: Document, words: Sequence[LabelledWord], number: int) -> list[LabelledWord]:
    """Return the words that share a character with a span of the text."""
    found = _words_in(words, span)
    if not found:
        length = len(document.texts[0])
        raise BadInput(f": no word lies at characters {span[0]} to {span[1]}; the text has {length}", index=number)
    return found


def _words_in(words: Sequence[LabelledWord], span: Span) -> list[LabelledWord]:
    return [word for word in words if word.span[0] < span[1] and word.span[1] > span[0]]


def _is_edge(text: str, at: int) -> bool:
    """Return whether a word can begin or end here: not between two letters or digits, unless the script has no case,
    because such scripts may write no spaces.
    """
    if not 0 < at < len(text) or not (text[at - 1].isalnum() and text[at].isalnum()):
        return True
    return all(letter.isalpha() and letter.lower() == letter.upper() for letter in text[at - 1 : at + 1])


@dataclass(frozen=True)
class FoundWords:
    """Words of a document that are explained together."""

    tokens: tuple[int, ...]  # the first of each word
    text: str  # as written
    labels: tuple[int, ...] | None = None  # None: those that the model predicts
    against: tuple[int, ...] | None = None


def find_windows(document: Document) -> list[tuple[float, float]]:
    """Return the first and last content token of each window; infinity where it begins or ends with the text, because
    no context is missing there.
    """
    content = [i for i, sequence in enumerate(document.sequences) if sequence is not None]
    inside = [[i for i in window if document.sequences[i] is not None] for window in document.windows]
    return [(-inf if i[0] == content[0] else i[0], inf if i[-1] == content[-1] else i[-1]) for i in inside]


def best_window(windows: Sequence[tuple[float, float]], tokens: Sequence[int]) -> int | None:
    """Return the window in which tokens have most context on their poorer side; None if no window has all of them."""
    context = [min(tokens[0] - first, last - tokens[-1]) for first, last in windows]
    most = max(context)
    return None if most < 0 else context.index(most)


def draw_word(n: int, document: Document) -> int:
    """Return the index of one of n words, drawn by the text alone, so that every run draws the same."""
    return Random(document.texts[0]).randrange(n)


def find_tokens(
    token: str | int | tuple[int, int], document: Document, words: Sequence[LabelledWord], number: int
) -> list[FoundWords]:
    """Return what a token stands for in a document: every occurrence of a word or words, or one place."""
    if isinstance(token, int):
        check_place(token, document, number)
        return [FoundWords((token,), text_between(document, (token,)))]
    if isinstance(token, tuple):
        return [join_found(document, find_span(token, document, words, number))]
    return [join_found(document, group) for group in find_text(token, document, words, number)]


def check_place(token: int, document: Document, number: int) -> None:
    readable = {i for window in document.windows for i in window if document.sequences[i] is not None}
    if token not in readable:
        known = f"{min(readable)} to {max(readable)}, without special tokens"
        raise BadInput(f": there is no token {token} with a label to explain; allowed: {known}", index=number)


def join_found(document: Document, words: Sequence[LabelledWord]) -> FoundWords:
    text = document.texts[0][words[0].span[0] : words[-1].span[1]]
    return FoundWords(tuple(word.first for word in words), text)


def text_between(document: Document, tokens: Sequence[int]) -> str:
    """Return the text from the first token to the last."""
    first, last = document.spans[tokens[0]], document.spans[tokens[-1]]
    assert first is not None, "content tokens have spans"
    assert last is not None, "content tokens have spans"
    return document.texts[0][first[0] : last[1]].strip()


def first_token(document: Document, span: tuple[int, int]) -> int | None:
    """Return the first token that begins within these characters and was not truncated."""
    for i in document.windows[0]:
        own = document.spans[i]
        if own is not None and document.sequences[i] is not None:
            text = document.texts[0][slice(*own)]
            start = own[0] + len(text) - len(text.lstrip())
            if own[0] < own[1] and span[0] <= start < span[1]:
                return i
    return None
