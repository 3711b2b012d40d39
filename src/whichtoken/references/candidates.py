"""Shelf: which of the texts that a scan offers become references of one class."""

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from whichtoken.core.rows import Row
from whichtoken.references.recipe import Recipe

PATIENCE = 10  # how many times further to look for references from other classes, once there are enough


@dataclass(frozen=True)
class Candidate:
    """A text that may become a reference; ordered by how well it suits, then by when it was found."""

    score: float  # the lower the better
    number: int
    texts: tuple[str, ...] = field(compare=False)
    row: Row = field(compare=False)
    source: int = field(compare=False)  # the predicted label
    probabilities: tuple[float, ...] = field(compare=False)

    def __lt__(self, other: "Candidate") -> bool:
        return (self.score, self.number) < (other.score, other.number)


@dataclass
class Shelf:
    """The best candidates of one class so far, for each source class apart."""

    label: int
    recipe: Recipe
    sources: int  # from how many classes its references may come
    found: dict[int, list[Candidate]] = field(default_factory=dict)
    n_offered: int = 0
    n_good: dict[int, int] = field(default_factory=dict)  # candidates that satisfy the rule, for each source
    enough_at: int | None = None  # the text at which `n` satisfied it

    def offer(self, candidate: Candidate) -> None:
        score = self._score(candidate)
        if score is None:
            return
        source = 0 if self.recipe.rule == "random" else candidate.source
        kept = self.found.setdefault(source, [])
        if any(candidate.texts == other.texts for other in kept):
            return
        insort(kept, replace(candidate, score=score))
        del kept[self.recipe.n :]
        self.n_offered += 1
        self.n_good[source] = self.n_good.get(source, 0) + (score < self._bound)
        if self.enough_at is None and sum(self.n_good.values()) >= self.recipe.n:
            self.enough_at = candidate.number + 1

    def full(self, n_scanned: int) -> bool:
        """Has `n` that satisfy the rule, no source class more than its share, or has looked long enough for that."""
        if self.enough_at is None:
            return False
        share = -(-self.recipe.n // self.sources)
        balanced = sum(min(good, share) for good in self.n_good.values()) >= self.recipe.n
        return balanced or n_scanned >= PATIENCE * self.enough_at

    @property
    def overfull(self) -> bool:
        return self.n_offered > self.recipe.n

    def chosen(self) -> list[Candidate]:
        """Those that satisfy the rule first; within these and the rest, the source classes take turns."""
        good = {source: [c for c in kept if c.score < self._bound] for source, kept in self.found.items()}
        rest = {source: [c for c in kept if c.score >= self._bound] for source, kept in self.found.items()}
        return [*_in_turn(good), *_in_turn(rest)][: self.recipe.n]

    @property
    def _bound(self) -> float:
        """Below it a candidate satisfies the rule. No candidate is good enough to end a search for the lowest."""
        return {"lowest": 0.0, "random": float("inf")}.get(self.recipe.rule, self.recipe.gamma)

    def _score(self, candidate: Candidate) -> float | None:
        """None where a text may not be a reference for this class."""
        p = candidate.probabilities[self.label]
        if self.recipe.rule == "random":
            return float(candidate.number)
        alone = len(candidate.probabilities) == 1  # a single-logit head has no other class to be predicted
        if self.recipe.rule == "same-class":
            return 1 - p if alone or candidate.source == self.label else None
        return p if alone or candidate.source != self.label else None


def _in_turn(groups: dict[int, list[Candidate]]) -> Iterator[Candidate]:
    """The best of each group, then the second best of each, and so on; within a round the better first."""
    for place in range(max((len(group) for group in groups.values()), default=0)):
        yield from sorted(group[place] for group in groups.values() if len(group) > place)
