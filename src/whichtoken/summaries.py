"""The summary of the explanations of a corpus, as plain data. `jobs/summary.py` computes it. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from whichtoken.identity import Identity
from whichtoken.records import Attribution


@dataclass(frozen=True)
class WordEffect:
    """A word and its effect on one label, over the texts that are explained for that label."""

    label: str
    word: str  # in lower case
    n_texts: int
    score: float  # mean signed score of the method
    share: float  # mean of score / largest absolute score of its text: -1 to 1
    low: float  # 95 % interval of the share
    high: float
    n_other: int = 0  # texts with this word that are explained for another label
    at_start: float = 0.0  # share of its texts that begin with it
    at_end: float = 0.0
    capitalised: float = 0.0  # share of its texts that have it with a capital letter inside the text
    examples: tuple[int, ...] = ()  # rows

    @property
    def purity(self) -> float:
        """The share of the texts with this word that are explained for this label."""
        return self.n_texts / (self.n_texts + self.n_other)


@dataclass(frozen=True)
class DecidingWord:
    """A word that supports wrong predictions more than any other word of the text does."""

    predicted: str
    word: str
    n_wrong: int  # texts that are wrong, with this word as the strongest support
    n_texts: int  # all texts with this word as the strongest support of this label
    low: float  # 95 % interval of the share of wrong ones
    high: float
    examples: tuple[int, ...] = ()

    @property
    def rate(self) -> float:
        return self.n_wrong / self.n_texts


@dataclass(frozen=True)
class ShortcutCandidate:
    """A word with much influence and little meaning: a model that relies on it may have learnt a shortcut."""

    effect: WordEffect
    kinds: tuple[str, ...]  # why it may be one: "punctuation", "always at the end"


@dataclass(frozen=True)
class WordChange:
    """A word whose effect on a label, or whose frequency, differs between two corpora."""

    label: str
    word: str
    before: float
    after: float
    low: float  # 95 % interval of the difference; of the ratio of frequencies
    high: float
    n_before: int
    n_after: int


@dataclass(frozen=True)
class LabelCount:
    label: str
    n_texts: int
    n_correct: int | None  # None without gold labels
    probability: float | None  # mean


@dataclass(frozen=True)
class CorpusDrift:
    """What differs between an earlier corpus and this one."""

    before: str  # its folder
    identity: Identity  # of its model
    n_before: int  # texts
    labels: tuple[tuple[str, float, float], ...]  # label, share of the texts before, and now
    effects: tuple[WordChange, ...]
    frequencies: tuple[WordChange, ...]  # per label of the texts; before and after are shares of texts


@dataclass(frozen=True)
class CorpusSummary:
    """The words that matter in a corpus of explanations."""

    folder: str
    model: str
    identity: Identity
    method: str
    tuned_on_deletion: bool
    n_rows: int
    n_failed: int
    n_explained: int
    min_count: int  # texts that a word must occur in
    labels: tuple[LabelCount, ...]
    supports: Mapping[str, tuple[WordEffect, ...]]  # by label, the strongest first
    opposes: Mapping[str, tuple[WordEffect, ...]]
    mistakes: tuple[DecidingWord, ...] = ()
    error_rate: float | None = None  # None without gold labels
    shortcuts: tuple[ShortcutCandidate, ...] = ()
    drift: CorpusDrift | None = None
    examples: Mapping[int, Attribution] = field(default_factory=dict)  # by row
