"""Head statistics: counts of how often heads point to the words that a parser expects.

Song et al. 2023, sections 4.1 and 4.2. The authors align words and sub-words by spelling and test for a hit by string
equality; here both are done by position. No torch.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from whichtoken.heads.mask import Counts, HeadStatistics, Relation, Shares
from whichtoken.heads.rule import HeadRule
from whichtoken.heads.sentence import Sentence
from whichtoken.words import Span

Pointers = NDArray[np.int64]  # layer head query: the key with the highest attention
Words = Sequence[tuple[int, ...]]  # for each word the positions of its tokens; empty if it cannot be aligned


def align(sentence: Sentence, spans: Sequence[Span | None]) -> list[tuple[int, ...]]:
    """Return the tokens of each word, aligned by characters; empty for words that have no token or share one.

    The leading space of a byte-level token lies in no word, so it does not matter. A special token covers nothing.
    """
    covered = [span or (0, 0) for span in spans]
    aligned = [
        tuple(i for i, (start, end) in enumerate(covered) if max(start, word.span[0]) < min(end, word.span[1]))
        for word in sentence.words
    ]
    owners = Counter(token for tokens in aligned for token in tokens)
    return [() if any(owners[token] > 1 for token in tokens) else tokens for tokens in aligned]


def restrict_to_window(words: Words, window: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the words' tokens as positions in a window; empty for words that are not entirely in it."""
    positions = {token: position for position, token in enumerate(window)}
    return [
        tuple(positions[token] for token in tokens) if all(token in positions for token in tokens) else ()
        for tokens in words
    ]


@dataclass
class HeadCounts:
    """Running counts over sentences; nothing else of a sentence is kept."""

    rule: HeadRule
    n_layers: int
    n_heads: int
    counted: Counter[str] = field(default_factory=Counter)  # sentences, words, unaligned, tokens
    occurrences: Counter[str] = field(default_factory=Counter)  # for each relation
    positions: dict[str, Counter[int]] = field(default_factory=dict)  # for each relation: of measured occurrences
    hits: dict[str, NDArray[np.int64]] = field(default_factory=dict)  # for each relation: layer head
    offsets: NDArray[np.int64] = field(init=False)  # layer head offset; the middle index is offset 0

    def __post_init__(self) -> None:
        self.offsets = np.zeros((self.n_layers, self.n_heads, 1), np.int64)
        for relation in self.rule.relations:
            self.positions[relation] = Counter()
            self.hits[relation] = np.zeros((self.n_layers, self.n_heads), np.int64)

    def add(self, sentence: Sentence, words: Words, pointers: Pointers) -> None:
        """Count one sentence. `words`: token positions among the queries, which include special tokens."""
        self.counted += Counter(
            sentences=1, words=len(words), unaligned=sum(not tokens for tokens in words), tokens=pointers.shape[2]
        )
        self._add_offsets(pointers)
        for number, word in enumerate(sentence.words):
            if word.relation not in self.hits or word.head is None:
                continue
            self.occurrences[word.relation] += 1
            dependent, head = words[number], words[word.head]
            if dependent and head:
                self.positions[word.relation][number - word.head] += 1
                self.hits[word.relation] += np.isin(pointers[:, :, dependent[0]], head)

    def _add_offsets(self, pointers: Pointers) -> None:
        length = pointers.shape[2]
        reach = self.offsets.shape[2] // 2
        if length - 1 > reach:
            more = length - 1 - reach
            self.offsets = np.pad(self.offsets, ((0, 0), (0, 0), (more, more)))
            reach = length - 1
        width = 2 * reach + 1
        starts = np.arange(self.n_layers * self.n_heads).reshape(self.n_layers, self.n_heads, 1) * width
        offsets = pointers - np.arange(length) + reach
        counts = np.bincount((starts + offsets).ravel(), minlength=self.offsets.size)
        self.offsets += counts.reshape(self.offsets.shape)

    def syntactic(self) -> Counts:
        """Return for how many relations each head qualifies."""
        total = np.zeros((self.n_layers, self.n_heads), np.int64)
        for relation in map(self._relation, self.hits):
            if relation.n_measured >= self.rule.min_count:
                total += np.array(relation.shares) > relation.position_share + self.rule.syntactic
        return _ints(total)

    def positional(self) -> Counts:
        """Return for how many relative positions each head qualifies."""
        return _ints((self._offset_shares() > self.rule.positional).sum(2))

    def statistics(self, corpus: str, n_cut: int, n_empty: int) -> HeadStatistics:
        shares = self._offset_shares()
        best = np.where(shares.any(2), shares.argmax(2) - shares.shape[2] // 2, 0)
        return HeadStatistics(
            corpus=corpus,
            n_sentences=self.counted["sentences"],
            n_cut=n_cut,
            n_empty=n_empty,
            n_words=self.counted["words"],
            n_unaligned=self.counted["unaligned"],
            n_tokens=self.counted["tokens"],
            relations=tuple(map(self._relation, self.hits)),
            offsets=_ints(best),
            offset_shares=_floats(shares.max(2)),
        )

    def _relation(self, name: str) -> Relation:
        positions = self.positions[name]
        measured = positions.total()
        position, times = min(positions.items(), key=lambda item: (-item[1], item[0]), default=(0, 0))
        return Relation(
            name=name,
            n_found=self.occurrences[name],
            n_measured=measured,
            position=position,
            position_share=times / max(1, measured),
            shares=_floats(self.hits[name] / max(1, measured)),
        )

    def _offset_shares(self) -> NDArray[np.float64]:
        shares = self.offsets / max(1, self.counted["tokens"])
        if not self.rule.count_self:
            shares[:, :, shares.shape[2] // 2] = 0
        return shares


def _ints(grid: NDArray[np.int64]) -> Counts:
    return tuple(tuple(int(value) for value in row) for row in grid)


def _floats(grid: NDArray[np.float64]) -> Shares:
    return tuple(tuple(float(value) for value in row) for row in grid)
