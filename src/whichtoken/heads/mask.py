"""HeadMask: which attention heads of one model are syntactic or positional, with the corpus statistics. No torch."""

import hashlib
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from whichtoken.errors import BadSetting, LibraryMismatch
from whichtoken.heads.rule import HeadRule
from whichtoken.identity import Identity

Counts = tuple[tuple[int, ...], ...]  # layer head
Flags = tuple[tuple[bool, ...], ...]  # layer head
Shares = tuple[tuple[float, ...], ...]  # layer head, 0 to 1


@dataclass(frozen=True)
class Relation:
    """One syntactic relation in a corpus. Both shares are relative to the measured occurrences."""

    name: str
    n_found: int  # occurrences
    n_measured: int  # occurrences whose two words have tokens of their own that the model read
    position: int  # the dependent's most frequent position, in words after its head word
    position_share: float  # of that position: the share that a purely positional head could reach
    shares: Shares = field(repr=False)  # how often each head points from the dependent to its head word

    def best(self) -> tuple[int, int, float]:
        """Return layer, head and share of the head with the highest share; of equal ones, the first."""
        return _highest(self.shares)


@dataclass(frozen=True)
class HeadStatistics:
    """What the heads of a model attend to in a corpus."""

    corpus: str
    n_sentences: int  # that the model read
    n_cut: int  # of these, sentences that were truncated
    n_empty: int  # not counted in n_sentences: sentences without tokens
    n_words: int
    n_unaligned: int  # words that share a token with another word, have no token, or were truncated
    n_tokens: int  # special tokens included
    relations: tuple[Relation, ...]
    offsets: Counts = field(repr=False)  # each head's most frequent relative position, in tokens
    offset_shares: Shares = field(repr=False)  # how often it points there


@dataclass(frozen=True)
class HeadEvidence:
    """Why a head qualifies: what it points to, how often, and the threshold."""

    layer: int
    head: int
    what: str  # a relation, or a relative position in tokens
    share: float
    needed: float  # the share must exceed this


@dataclass(frozen=True)
class HeadMask:
    """The selected heads of one model, by layer, then head; built by `heads.build`. Equal masks have equal hashes."""

    model: str
    fingerprint: str  # the revision of the model, see Identity
    origin: str  # "measured", or how it was changed: "random(seed=3)", "corrupt(rate=0.3, seed=0)", "all"
    rule: HeadRule
    syntactic: Counts  # for how many relations a head qualifies
    positional: Counts  # for how many relative positions
    added: Flags  # heads selected without such evidence, by `random_mask`, `corrupt_mask` or `all_heads`
    statistics: HeadStatistics | None = field(default=None, repr=False)  # None if nothing was measured
    processor: str = ""  # see Identity

    @property
    def identity(self) -> Identity:
        """The model that it was built for."""
        return Identity(self.fingerprint, self.processor)

    @property
    def n_layers(self) -> int:
        return len(self.syntactic)

    @property
    def n_heads(self) -> int:
        """The number of heads per layer."""
        return len(self.syntactic[0])

    @property
    def selected(self) -> Flags:
        """The heads that are syntactic, positional or added."""
        grids = zip(self.syntactic, self.positional, self.added, strict=True)
        return tuple(tuple(any(marks) for marks in zip(*rows, strict=True)) for rows in grids)

    @property
    def n_selected(self) -> int:
        return _count_selected(self.selected)

    @property
    def n_syntactic(self) -> int:
        return _count_selected(self.syntactic)

    @property
    def n_positional(self) -> int:
        return _count_selected(self.positional)

    @property
    def digest(self) -> str:
        """A hash of the model and the selection, which identifies the mask in results."""
        contents = (self.fingerprint, self.syntactic, self.positional, self.added)
        return hashlib.sha256(repr(contents).encode()).hexdigest()[:8]

    def __str__(self) -> str:
        total = self.n_layers * self.n_heads
        reasons = f"{self.n_syntactic} syntactic, {self.n_positional} positional"
        selection = f"{self.n_selected} of {total} ({reasons if self.origin == 'measured' else self.origin})"
        return f"heads of {self.model}: {selection}, sha {self.digest}{self.identity.note}"

    def reasons(self) -> tuple[HeadEvidence, ...]:
        """Return why heads are syntactic or positional; only the most frequent position of each head is listed."""
        statistics = self.statistics
        if statistics is None:
            return ()
        reasons = []
        for layer, head in ((layer, head) for layer in range(self.n_layers) for head in range(self.n_heads)):
            if self.syntactic[layer][head]:
                reasons += [
                    HeadEvidence(layer, head, relation.name, relation.shares[layer][head], needed)
                    for relation in statistics.relations
                    if relation.n_measured >= self.rule.min_count
                    and relation.shares[layer][head] > (needed := relation.position_share + self.rule.syntactic)
                ]
            if self.positional[layer][head]:
                offset, share = statistics.offsets[layer][head], statistics.offset_shares[layer][head]
                reasons.append(HeadEvidence(layer, head, f"position {offset:+d}", share, self.rule.positional))
        return tuple(reasons)

    def check_model(self, title: str, identity: Identity, n_layers: int, n_heads: int) -> None:
        """Raise LibraryMismatch if the mask was built for another model."""
        built = f"this head mask was built for {self.model}"
        fix = "build one for this model: wt.heads.build(subject, sentences)"
        if (n_layers, n_heads) != (self.n_layers, self.n_heads):
            raise LibraryMismatch(
                f"{built} with {self.n_layers} layers of {self.n_heads} heads; {title} has {n_layers} of {n_heads}; "
                f"{fix}"
            )
        if change := self.identity.describe_change(title, identity):
            raise LibraryMismatch(f"{built}, {change}; {fix}")


def random_mask(mask: HeadMask, seed: int = 0) -> HeadMask:
    """Select as many heads as `mask` does, drawn from all heads: the paper's control."""
    indices = range(mask.n_layers * mask.n_heads)
    drawn = random.Random(_check_seed(seed)).sample(indices, mask.n_selected)
    return _add_heads(_clear_selection(mask), f"random(seed={seed})", drawn)


def corrupt_mask(mask: HeadMask, rate: float, seed: int = 0) -> HeadMask:
    """Also select this share (rounded down) of the heads that `mask` leaves out, as the paper's ablation does."""
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
        raise BadSetting("rate", rate, "a share, 0 to 1")
    flat = [flag for row in mask.selected for flag in row]
    unselected = [index for index, flag in enumerate(flat) if not flag]
    drawn = random.Random(_check_seed(seed)).sample(unselected, int(len(unselected) * rate))
    return _add_heads(mask, f"corrupt(rate={rate}, seed={seed})", drawn)


def all_heads(n_layers: int, n_heads: int, model: str, fingerprint: str) -> HeadMask:
    """Return a mask that selects every head."""
    no_counts, every = ((0,) * n_heads,) * n_layers, ((True,) * n_heads,) * n_layers
    return HeadMask(model, fingerprint, "all", HeadRule(), no_counts, no_counts, every)


def _clear_selection(mask: HeadMask) -> HeadMask:
    no_counts, no_flags = ((0,) * mask.n_heads,) * mask.n_layers, ((False,) * mask.n_heads,) * mask.n_layers
    return replace(mask, syntactic=no_counts, positional=no_counts, added=no_flags)


def _add_heads(mask: HeadMask, origin: str, indices: Iterable[int]) -> HeadMask:
    """Return the mask with the heads at these flat indices added."""
    drawn = set(indices)
    added = tuple(
        tuple(flag or layer * mask.n_heads + head in drawn for head, flag in enumerate(row))
        for layer, row in enumerate(mask.added)
    )
    return replace(mask, added=added, origin=origin if mask.origin == "measured" else f"{origin} of {mask.origin}")


def _check_seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise BadSetting("seed", seed, "a whole number, at least 0")
    return seed


def _count_selected(grid: Counts | Flags) -> int:
    return sum(bool(mark) for row in grid for mark in row)


def _highest(shares: Shares) -> tuple[int, int, float]:
    places = ((layer, head) for layer, row in enumerate(shares) for head in range(len(row)))
    layer, head = max(places, key=lambda place: shares[place[0]][place[1]])
    return layer, head, shares[layer][head]
