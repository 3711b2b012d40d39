"""HeadMask: which attention heads of one model are syntactic or positional, and what of a corpus says so. No torch."""

import hashlib
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from whichtoken.errors import BadSetting, LibraryMismatch
from whichtoken.heads.rule import HeadRule

Counts = tuple[tuple[int, ...], ...]  # layer head
Flags = tuple[tuple[bool, ...], ...]  # layer head
Shares = tuple[tuple[float, ...], ...]  # layer head, 0 to 1


@dataclass(frozen=True)
class Relation:
    """One syntactic relation in a corpus. Both shares are of the occurrences that were measured."""

    name: str
    n_found: int  # occurrences
    n_measured: int  # of which both words lie on tokens of their own, and were read by the model
    position: int  # the most frequent place of the dependent, in words after the word it depends on
    position_share: float  # of that place: what a head could reach that knows no syntax
    shares: Shares = field(repr=False)  # how often each head points from the dependent to that word

    def best(self) -> tuple[int, int, float]:
        """Layer, head and share of the head that knows this relation best; the first of equals."""
        return _highest(self.shares)


@dataclass(frozen=True)
class HeadStatistics:
    """What heads do in a corpus."""

    corpus: str
    n_sentences: int  # that the model read
    n_cut: int  # of which this many were longer than it reads
    n_empty: int  # further ones, in which the tokenizer found no token
    n_words: int
    n_unaligned: int  # of which this many share a token with another word, or have none, or were cut off
    n_tokens: int  # that looked somewhere, special tokens included
    relations: tuple[Relation, ...]
    offsets: Counts = field(repr=False)  # for each head the relative position, in tokens, that it points to most often
    offset_shares: Shares = field(repr=False)  # and how often


@dataclass(frozen=True)
class HeadEvidence:
    """Why a head qualifies: what it points to, how often, and how often was needed."""

    layer: int
    head: int
    what: str  # the head of a relation, or a relative position in tokens
    share: float
    needed: float  # more than this


@dataclass(frozen=True)
class HeadMask:
    """Made by `heads.build` for one model; heads are counted by layer, then by head. Equal masks have equal hashes."""

    model: str
    fingerprint: str  # of the model
    origin: str  # "measured", or how it was changed: "random(seed=3)", "corrupt(rate=0.3, seed=0)", "all"
    rule: HeadRule
    syntactic: Counts  # for how many relations a head qualifies
    positional: Counts  # for how many relative positions
    added: Flags  # heads that are selected with no such reason, by `random_mask`, `corrupt_mask` or `all_heads`
    statistics: HeadStatistics | None = field(default=None, repr=False)  # None where nothing was measured

    @property
    def n_layers(self) -> int:
        return len(self.syntactic)

    @property
    def n_heads(self) -> int:
        """Of one layer."""
        return len(self.syntactic[0])

    @property
    def selected(self) -> Flags:
        """Heads that are syntactic, positional or added."""
        grids = zip(self.syntactic, self.positional, self.added, strict=True)
        return tuple(tuple(any(marks) for marks in zip(*rows, strict=True)) for rows in grids)

    @property
    def n_selected(self) -> int:
        return _n(self.selected)

    @property
    def n_syntactic(self) -> int:
        return _n(self.syntactic)

    @property
    def n_positional(self) -> int:
        return _n(self.positional)

    @property
    def digest(self) -> str:
        """Names the mask in results: of the model and of what is selected."""
        held = (self.fingerprint, self.syntactic, self.positional, self.added)
        return hashlib.sha256(repr(held).encode()).hexdigest()[:8]

    def __str__(self) -> str:
        total = self.n_layers * self.n_heads
        reasons = f"{self.n_syntactic} syntactic, {self.n_positional} positional"
        said = f"{self.n_selected} of {total} ({reasons if self.origin == 'measured' else self.origin})"
        return f"heads of {self.model}: {said}, sha {self.digest}"

    def reasons(self) -> tuple[HeadEvidence, ...]:
        """Of heads that are syntactic or positional; of several positions of one head only the most frequent."""
        found = self.statistics
        if found is None:
            return ()
        reasons = []
        for layer, head in ((layer, head) for layer in range(self.n_layers) for head in range(self.n_heads)):
            if self.syntactic[layer][head]:
                reasons += [
                    HeadEvidence(layer, head, relation.name, relation.shares[layer][head], needed)
                    for relation in found.relations
                    if relation.n_measured >= self.rule.min_count
                    and relation.shares[layer][head] > (needed := relation.position_share + self.rule.syntactic)
                ]
            if self.positional[layer][head]:
                offset, share = found.offsets[layer][head], found.offset_shares[layer][head]
                reasons.append(HeadEvidence(layer, head, f"position {offset:+d}", share, self.rule.positional))
        return tuple(reasons)

    def check_model(self, title: str, fingerprint: str, n_layers: int, n_heads: int) -> None:
        """LibraryMismatch if it was made for another model."""
        made = f"this head mask was made for {self.model}"
        fix = "build one for this model: wt.heads.build(subject, sentences)"
        if (n_layers, n_heads) != (self.n_layers, self.n_heads):
            raise LibraryMismatch(
                f"{made} with {self.n_layers} layers of {self.n_heads} heads; {title} has {n_layers} of {n_heads}; "
                f"{fix}"
            )
        if fingerprint != self.fingerprint:
            raise LibraryMismatch(
                f"{made}, revision {self.fingerprint[:20]}; found {title}, revision {fingerprint[:20]} (weights, "
                f"configuration and dtype count); {fix}"
            )


def random_mask(mask: HeadMask, seed: int = 0) -> HeadMask:
    """As many heads as `mask` selects, drawn from all: the paper's control."""
    places = range(mask.n_layers * mask.n_heads)
    drawn = random.Random(_checked_seed(seed)).sample(places, mask.n_selected)
    return _with(_emptied(mask), f"random(seed={seed})", drawn)


def corrupt_mask(mask: HeadMask, rate: float, seed: int = 0) -> HeadMask:
    """Also this share of the heads that `mask` leaves out, rounded down: the paper's ablation. 1 gives all heads."""
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
        raise BadSetting("rate", rate, "a share, 0 to 1")
    flat = [flag for row in mask.selected for flag in row]
    left = [place for place, flag in enumerate(flat) if not flag]
    drawn = random.Random(_checked_seed(seed)).sample(left, int(len(left) * rate))
    return _with(mask, f"corrupt(rate={rate}, seed={seed})", drawn)


def all_heads(n_layers: int, n_heads: int, model: str, fingerprint: str) -> HeadMask:
    """A mask that leaves nothing out."""
    none, every = ((0,) * n_heads,) * n_layers, ((True,) * n_heads,) * n_layers
    return HeadMask(model, fingerprint, "all", HeadRule(), none, none, every)


def _emptied(mask: HeadMask) -> HeadMask:
    none, not_one = ((0,) * mask.n_heads,) * mask.n_layers, ((False,) * mask.n_heads,) * mask.n_layers
    return replace(mask, syntactic=none, positional=none, added=not_one)


def _with(mask: HeadMask, origin: str, places: Iterable[int]) -> HeadMask:
    """With the heads at these places, counted through all layers, added."""
    drawn = set(places)
    added = tuple(
        tuple(flag or layer * mask.n_heads + head in drawn for head, flag in enumerate(row))
        for layer, row in enumerate(mask.added)
    )
    return replace(mask, added=added, origin=origin if mask.origin == "measured" else f"{origin} of {mask.origin}")


def _checked_seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise BadSetting("seed", seed, "a whole number, at least 0")
    return seed


def _n(grid: Counts | Flags) -> int:
    return sum(bool(mark) for row in grid for mark in row)


def _highest(shares: Shares) -> tuple[int, int, float]:
    places = ((layer, head) for layer, row in enumerate(shares) for head in range(len(row)))
    layer, head = max(places, key=lambda place: shares[place[0]][place[1]])
    return layer, head, shares[layer][head]
