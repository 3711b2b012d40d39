"""Merge sub-word scores into word scores; words are slices of the original text. No torch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Span = tuple[int, int]  # character offsets into one text: start, end
APOSTROPHES = "'\N{RIGHT SINGLE QUOTATION MARK}"


@dataclass(frozen=True)
class Word:
    """A slice of one of the texts, with the sum of its tokens' scores."""

    text: str
    span: Span
    sequence: int  # 0, or 1 for the second text of a pair
    score: float
    low: float | None = None  # bounds of the score, if the method says how sure it is
    high: float | None = None


@dataclass(frozen=True)
class WordPiece:
    """A content token: its position and the word that the tokenizer assigned it to."""

    sequence: int
    word: int | None
    span: Span
    score: float


def words_of(
    texts: Sequence[str],
    spans: Sequence[Span | None],
    sequences: Sequence[int | None],
    word_ids: Sequence[int | None],
    scores: Sequence[float],
) -> tuple[Word, ...]:
    """Sum the scores of each word's tokens; special tokens are left out.

    The arguments are fields of an `Attribution`; all except `texts` have one entry per token.
    """
    tokens = zip(sequences, word_ids, spans, scores, strict=True)
    return join_words(
        texts, [WordPiece(s, word, span, score) for s, word, span, score in tokens if s is not None and span]
    )


def word_groups(
    texts: Sequence[str],
    spans: Sequence[Span | None],
    sequences: Sequence[int | None],
    word_ids: Sequence[int | None],
) -> tuple[tuple[int, ...], ...]:
    """Return the positions of each word's tokens; special tokens belong to no word. Arguments as in `words_of`."""
    tokens = enumerate(zip(sequences, word_ids, spans, strict=True))
    pieces = [WordPiece(s, word, span, position) for position, (s, word, span) in tokens if s is not None and span]
    return tuple(tuple(int(piece.score) for piece in group) for _, group in _group_pieces(texts, pieces))


def join_words(texts: Sequence[str], pieces: Sequence[WordPiece]) -> tuple[Word, ...]:
    """Return the words in reading order. Their scores add up to those of the pieces; their spans do not overlap."""
    return tuple(_build_word(texts[sequence], sequence, group) for sequence, group in _group_pieces(texts, pieces))


def _group_pieces(texts: Sequence[str], pieces: Sequence[WordPiece]) -> Iterator[tuple[int, list[WordPiece]]]:
    """Yield the pieces of each word, with the index of its text.

    Word ids alone are not enough: some SentencePiece tokenizers assign one id to a whole text. White space between two
    pieces therefore also separates words; pieces that share characters (the bytes of an emoji) or a contraction stay
    together.
    """
    for sequence, text in enumerate(texts):
        groups: list[list[WordPiece]] = []
        last: WordPiece | None = None  # the last piece with visible characters
        pending: list[WordPiece] = []  # white space, to be joined to the word that follows
        for piece in (_trim(text, p) for p in pieces if p.sequence == sequence):
            if piece.span[0] == piece.span[1]:
                pending.append(piece)
            elif last is not None and _same_word(text, last, piece):
                groups[-1] += [*pending, piece]
                last, pending = piece, []
            else:
                groups.append([*pending, piece])
                last, pending = piece, []
        if pending:
            groups = [*groups[:-1], [*(groups[-1] if groups else []), *pending]]
        yield from ((sequence, group) for group in groups)


def _trim(text: str, piece: WordPiece) -> WordPiece:
    start, end = piece.span
    visible = text[start:end].strip()
    if not visible:
        return WordPiece(piece.sequence, piece.word, (start, start), piece.score)
    start += text[start:end].index(visible)
    return WordPiece(piece.sequence, piece.word, (start, start + len(visible)), piece.score)


def _same_word(text: str, last: WordPiece, piece: WordPiece) -> bool:
    if piece.span[0] < last.span[1]:
        return True
    between = text[last.span[1] : piece.span[0]]
    if any(character.isspace() for character in between):
        return False
    return piece.word == last.word or (not between and _in_contraction(text, piece.span[0]))


def _in_contraction(text: str, at: int) -> bool:
    """Return whether a boundary lies inside a word such as don't, which many tokenizers split in three."""
    return any(
        text[i] in APOSTROPHES and _is_cased(text[i - 1]) and _is_cased(text[i + 1])
        for i in (at - 1, at)
        if 0 < i < len(text) - 1
    )


def _is_cased(character: str) -> bool:
    """Return whether a letter has case; between letters without case an apostrophe is a quotation mark."""
    return character.lower() != character.upper()


def _build_word(text: str, sequence: int, group: Sequence[WordPiece]) -> Word:
    visible = [piece.span for piece in group if piece.span[0] < piece.span[1]] or [group[0].span]
    span = min(start for start, _ in visible), max(end for _, end in visible)
    return Word(text[slice(*span)], span, sequence, sum(piece.score for piece in group))
