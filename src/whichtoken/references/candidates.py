"""Selection of reference texts: which of the scanned texts become the references of one class."""

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from whichtoken.core.rows import Row
from whichtoken.references.recipe import Recipe

PATIENCE = 10  # once a class has enough references, scan up to this many times as many texts to balance sources


@dataclass(frozen=True)
class Candidate:
    """A text that may become a reference; ordered by score, then by position in the corpus."""

    score: float  # lower is better
    number: int  # position in the corpus
    texts: tuple[str, ...] = field(compare=False)
    row: Row = field(compare=False)
    source: int = field(compare=False)  # the predicted label
    probabilities: tuple[float, ...] = field(compare=False)

    def __lt__(self, other: "Candidate") -> bool:
        return (self.score, self.number) < (other.score, other.number)


@dataclass
class Shelf:
    """The best candidates for one class so far, by source class (the class that the model predicts)."""

    label: int
    recipe: Recipe
    sources: int  # how many source classes there can be
    kept: dict[int, list[Candidate]] = field(default_factory=dict)
    n_offered: int = 0
    n_good: dict[int, int] = field(default_factory=dict)  # candidates that satisfy the rule, for each source
    enough_at: int | None = None  # texts scanned when `n` candidates satisfied the rule

    def offer(self, candidate: Candidate) -> None:
        score = self._score(candidate)
        if score is None:
            return
        source = 0 if self.recipe.rule == "random" else candidate.source
        candidates = self.kept.setdefault(source, [])
        if any(candidate.texts == other.texts for other in candidates):
            return
        insort(candidates, replace(candidate, score=score))
        del candidates[self.recipe.n :]
        self.n_offered += 1
        self.n_good[source] = self.n_good.get(source, 0) + (score < self._bound)
        if self.enough_at is None and sum(self.n_good.values()) >= self.recipe.n:
            self.enough_at = candidate.number + 1

    def is_full(self, n_scanned: int) -> bool:
        """Return whether `n` candidates satisfy the rule, balanced over source classes, or the scan went far enough."""
        if self.enough_at is None:
            return False
        share = -(-self.recipe.n // self.sources)
        balanced = sum(min(good, share) for good in self.n_good.values()) >= self.recipe.n
        return balanced or n_scanned >= PATIENCE * self.enough_at

    @property
    def is_overfull(self) -> bool:
        return self.n_offered > self.recipe.n

    def choose(self) -> list[Candidate]:
        """Return the references: candidates that satisfy the rule, then others; source classes take turns in both."""
        good = {source: [c for c in kept if c.score < self._bound] for source, kept in self.kept.items()}
        rest = {source: [c for c in kept if c.score >= self._bound] for source, kept in self.kept.items()}
        return [*_in_turn(good), *_in_turn(rest)][: self.recipe.n]

    @property
    def _bound(self) -> float:
        """A candidate that scores below this satisfies the rule. Under "lowest" none does: all texts are scanned."""
        return {"lowest": 0.0, "random": float("inf")}.get(self.recipe.rule, self.recipe.gamma)

    def _score(self, candidate: Candidate) -> float | None:
        """Return a candidate's score; None if the text must not be a reference for this class."""
        p = candidate.probabilities[self.label]
        if self.recipe.rule == "random":
            return float(candidate.number)
        single_logit = len(candidate.probabilities) == 1  # such a head has no other class to predict
        if self.recipe.rule == "same-class":
            return 1 - p if single_logit or candidate.source == self.label else None
        return p if single_logit or candidate.source != self.label else None


def _in_turn(groups: dict[int, list[Candidate]]) -> Iterator[Candidate]:
    """Yield the best of each group, then the second best of each, and so on; each round in order of score."""
    for rank in range(max((len(group) for group in groups.values()), default=0)):
        yield from sorted(group[rank] for group in groups.values() if len(group) > rank)
