"""Words and tokens as they are shown: slices of the text, separated by what the text has between them. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from whichtoken.records import Attribution
from whichtoken.words import Span, word_groups, words_of

SPACE, BREAK, CONTINUED = "\N{OPEN BOX}", "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}", "\N{MIDDLE DOT}"
SPACE_MARKS = "\N{LOWER ONE EIGHTH BLOCK}\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}"  # of SentencePiece, and of GPT-2
BETWEEN_TEXTS = " | "


@dataclass(frozen=True)
class ShownPiece:
    """A word or token as it is shown."""

    before: str  # the text between the previous piece and this one
    text: str
    score: float
    name: str = ""  # what it is called where it stands alone, if not by its text
    token: str = ""  # as the tokenizer writes it
    tokens: tuple[int, ...] = ()  # positions in the record's tokens
    repeated: bool = False  # a further piece of a part that was shown before, with its score
    keeps_lines: bool = False  # line breaks are shown as such


def word_pieces(attribution: Attribution, scores: Sequence[float]) -> list[ShownPiece]:
    """Return the words of the texts; special tokens are left out."""
    words = words_of(attribution.texts, attribution.spans, attribution.sequences, attribution.word_ids, scores)
    groups = word_groups(attribution.texts, attribution.spans, attribution.sequences, attribution.word_ids)
    pieces, end, sequence = [], 0, 0
    for word, tokens in zip(words, groups, strict=True):
        if word.sequence != sequence:
            end, sequence = 0, word.sequence
            before = BETWEEN_TEXTS + attribution.texts[sequence][: word.span[0]]
        else:
            before = attribution.texts[sequence][end : word.span[0]]
        pieces.append(ShownPiece(before, word.text, word.score, tokens=tokens))
        end = word.span[1]
    return pieces


def token_pieces(attribution: Attribution, scores: Sequence[float]) -> list[ShownPiece]:
    """Return all tokens. One without characters of its own is a mark: white space, or a further part of a character."""
    pieces: list[ShownPiece] = []
    shared: list[list[int]] = []  # the pieces that each character is split into, if there are several
    ends: dict[int, int] = {}  # by text: how much of it is shown
    last: int | None = None  # the text of the previous token
    tokens = zip(attribution.tokens, attribution.spans, attribution.sequences, scores, strict=True)
    for place, (token, span, sequence, score) in enumerate(tokens):
        if sequence is None or span is None:
            pieces.append(ShownPiece(" " if pieces else "", token, score, token=token, tokens=(place,)))
            last = None
            continue
        text, end = attribution.texts[sequence], ends.get(sequence, 0)
        before, shown, ends[sequence] = place_token(text, span, end, token)
        if pieces and last is None:
            before = before if before[:1].isspace() else f" {before}"
        elif last not in (None, sequence):
            before = BETWEEN_TEXTS + before
        name = text[slice(*span)].strip() if shown == CONTINUED and span[1] <= end else ""
        if not name:
            shared.append([])
        if shared:
            shared[-1].append(place)
        pieces.append(ShownPiece(before, shown, score, name, token, (place,)))
        last = sequence
    return _number_parts(pieces, shared)


def place_token(text: str, span: Span, end: int, token: str) -> tuple[str, str, int]:
    """Return what stands before a token, what is shown for it, and up to where the text is then shown.

    `end`: up to where the text is shown already. Several tokens may have the same span: the bytes of one character, or
    a space that SentencePiece adds before the first letter.
    """
    start, stop = max(span[0], end), max(span[1], end)
    gap, own = text[end:start], text[start:stop]
    is_space = bool(token) and not token.strip(SPACE_MARKS)
    visible = own.strip()
    if visible and not is_space:
        lead = own[: own.index(visible)]
        return gap + lead, visible, start + len(lead) + len(visible)
    if own and not visible:
        return gap, mark_spaces(own), stop
    if gap and gap.isspace() and (is_space or span[0] == span[1]):
        return "", mark_spaces(gap), start
    if is_space:
        return gap, SPACE, start
    if span[0] < span[1]:
        return "", CONTINUED, end
    return gap, token.removeprefix("##").strip(SPACE_MARKS) or CONTINUED, start


def mark_spaces(spaces: str) -> str:
    return "".join(BREAK if space in "\r\n" else SPACE for space in spaces)


def _number_parts(pieces: Sequence[ShownPiece], shared: Sequence[Sequence[int]]) -> list[ShownPiece]:
    numbered = list(pieces)
    for places in shared:
        for number, place in enumerate(places, 1):
            piece = pieces[place]
            if len(places) > 1:
                numbered[place] = replace(piece, name=f"{piece.name or piece.text} ({number} of {len(places)})")
    return numbered


def patch_pieces(attribution: Attribution, scores: Sequence[float]) -> list[ShownPiece]:
    """Return the patches of an image, which are its last tokens."""
    assert attribution.picture is not None, "the record of an image"
    first = len(attribution.tokens) - attribution.picture.rows * attribution.picture.columns
    patches = zip(attribution.tokens[first:], scores[first:], strict=True)
    return [ShownPiece(" ", t, s, tokens=(place,)) for place, (t, s) in enumerate(patches, first)]
