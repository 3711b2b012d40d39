"""Picks: what is read from the logits of a batch, to be differentiated, and to be tracked while parts are removed.

The logits of a row are a table. A head that pools has one place, with a column for each label; a head that labels
tokens has a place for each token; one that answers questions has two places, the start and the end, with a column for
each token; a language model has a place for each token of the answer, with its vocabulary as columns. Of each row, some
entries are picked, and summed. Those of other columns may be subtracted.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from whichtoken.targets import AnswerTokens, Class, Contrast, Scale, Span, Target, TokenLabels

SATURATED = 1e-6  # probabilities closer to 0 or 1 have no reliable log-odds in float32


class Link(StrEnum):
    """What is tracked."""

    SOFTMAX = "softmax"  # the probability of one of several labels; for a contrast, if only those two were possible
    SIGMOID = "sigmoid"  # the probability of a single label, or of one of several that may hold at once
    VALUE = "value"  # the logit itself, which a regression head predicts
    JOINT = "joint"  # the probability of all picks together; for a contrast, if only those two were possible
    LOG = "log"  # its logarithm, as the probability of a long answer is too small to compare; or the difference of two

    def apply(self, logits: Float[Tensor, "*batch label"]) -> Float[Tensor, "*batch label"]:
        """Return the probabilities, or the values, of the labels of a head that pools."""
        if self is Link.VALUE:
            return logits
        return logits.softmax(-1) if self is Link.SOFTMAX else logits.sigmoid()


class Axis(StrEnum):
    """Which axis of the logits counts tokens, so that it changes if tokens are removed."""

    NONE = "none"
    PLACES = "places"
    COLUMNS = "columns"


@dataclass(frozen=True)
class Picks:
    """What is read from the logits of a batch: of each row the sum of some entries, through a link."""

    places: Int[Tensor, "batch pick"]
    columns: Int[Tensor, "batch pick"]
    against: Int[Tensor, "batch pick"] | None  # for a contrast, the columns of the entries that are subtracted
    used: Bool[Tensor, "batch pick"]  # False where a row has fewer picks, or where a pick is not explained
    link: Link
    # The tokens at which logits are computed; of a head that pools, a function from a batch to weights of its tokens.
    sites: Int[Tensor, "batch pick"] | Callable[[Any], Tensor]
    axis: Axis = Axis.NONE
    # What is differentiated: logits, or log-probabilities. Of a contrast, the difference is the same.
    scale: Scale = "logit"

    def scalar(self, logits: Tensor) -> Float[Tensor, " batch"]:
        """Return what is differentiated."""
        table = _table(logits)
        toward = self._entries(table, self.columns)
        if self.scale == "logprob" and self.against is None:
            toward = toward - table[:, : self._n_places].logsumexp(-1).gather(1, self.places)
        against = 0 if self.against is None else self._sum(self._entries(table, self.against))
        return self._sum(toward) - against

    def read(self, logits: Tensor) -> Tensor:
        """Return what `tracked` needs of the logits, which is kept of each evaluated sequence.

        These are all logits of a head that pools, so that all labels share an evaluation. Otherwise, these are
        log-probabilities, of which contrasts have two: of every pick, so that parts of an answer share it, or, of
        tokens that are labelled together, the sum.
        """
        if self.pools:
            return logits
        table = _table(logits)[:, : self._n_places]
        table = torch.nn.functional.pad(table, (0, 0, 0, max(0, self._n_places - table.shape[1]))).log_softmax(-1)
        sides = [self.columns] if self.against is None else [self.columns, self.against]
        logs = torch.stack([self._entries(table, side) for side in sides], 1)
        return self._sum(logs) if self.axis is Axis.PLACES else logs

    def key(self, row: int) -> Hashable:
        """Return a key of what `read` keeps: picks with equal keys share evaluations."""
        if self.pools:
            return None
        of_row = self.used[row] if self.axis is Axis.PLACES else slice(None)
        entries = (self.places, self.columns, self.against)
        return tuple(None if x is None else tuple(x[row][of_row].tolist()) for x in entries)

    def tracked(self, read: Tensor) -> Float[Tensor, " batch"]:
        """Return what is tracked, from what was read: a probability, or a value."""
        if not self.pools:
            total = self._total(read)
            if self.link is Link.LOG:
                return total
            return total.exp() if self.against is None else total.sigmoid()
        if self.against is not None:
            return self.scalar(read).sigmoid()
        return self._sum(self._entries(_table(self.link.apply(read)), self.columns))

    def log_odds(self, read: Tensor) -> Float[Tensor, " batch"]:
        """Return what is tracked on a scale on which the effects of parts roughly add up, in float64: the log-odds of a
        probability, or the value itself.
        """
        wide = read.to(torch.float64)
        if not self.pools:
            return log_odds_of(self._total(wide)) if self.against is None else self._total(wide)
        if self.against is not None or self.link is not Link.SOFTMAX:
            return self.scalar(wide)
        # From the logits, so that they are exact however certain the model is.
        return self.scalar(wide) - wide.scatter(1, self.columns, -torch.inf).logsumexp(-1)

    @property
    def pools(self) -> bool:
        return callable(self.sites)

    @property
    def _n_places(self) -> int:
        return int(self.places.amax()) + 1

    def _total(self, read: Tensor) -> Float[Tensor, " batch"]:
        sides = read if self.axis is Axis.PLACES else self._sum(read)
        return sides[:, 0] if self.against is None else sides[:, 0] - sides[:, 1]

    def _entries(self, table: Tensor, columns: Int[Tensor, "batch pick"]) -> Float[Tensor, "batch pick"]:
        rows = torch.arange(len(columns), device=columns.device)[:, None]
        return table[rows, self.places, columns]

    def _sum(self, values: Float[Tensor, "batch *side pick"]) -> Float[Tensor, "batch *side"]:
        used = self.used if values.dim() == 2 else self.used[:, None]
        return values.masked_fill(~used, 0).sum(-1)

    def readout(self, batch: Any) -> Float[Tensor, "batch token"]:
        """Return the weights of the tokens at which the logits are computed; they sum to 1."""
        if callable(self.sites):
            return self.sites(batch)
        weights = self.used.to(torch.float64)
        weights = weights / weights.sum(-1, keepdim=True)
        empty = torch.zeros(batch.ids.shape, dtype=torch.float64, device=batch.ids.device)
        return empty.scatter_add(1, self.sites, weights)

    def anchors(self, batch: Any) -> Bool[Tensor, "batch token"]:
        """Return the tokens that cannot be removed, because what is explained is about them."""
        return torch.zeros_like(batch.mask) if self.axis is Axis.NONE else self.readout(batch) > 0

    def span(self) -> Int[Tensor, "batch 2"] | None:
        """Return the first and the last token that is read, if the head does not pool; of an answer, its ends."""
        if callable(self.sites):
            return None
        if self.axis is Axis.COLUMNS:
            return self.sites
        last = torch.where(self.used, self.sites, -1).amax(-1)
        return torch.stack([torch.where(self.used, self.sites, torch.iinfo(torch.long).max).amin(-1), last], -1)

    def label(self) -> Int[Tensor, " batch"]:
        """Return the class whose references each row is contrasted with."""
        return self.columns[:, 0] if self.pools else torch.zeros_like(self.columns[:, 0])

    def terms(self) -> Sequence[tuple[float, "Picks"]]:
        """Return signed parts whose relevance is propagated separately: rules that conserve relevance would scale a
        contrast that sums to 0 to nothing.
        """
        if self.against is None:
            return ((1.0, self),)
        return ((1.0, replace(self, against=None)), (-1.0, replace(self, columns=self.against, against=None)))

    def rows(self, index: Int[Tensor, " n"]) -> "Picks":
        """Return the picks of some rows, which may repeat."""
        against = None if self.against is None else self.against[index]
        sites = self.sites if callable(self.sites) else self.sites[index]
        return replace(
            self,
            places=self.places[index],
            columns=self.columns[index],
            against=against,
            used=self.used[index],
            sites=sites,
        )

    def after_removal(self, kept: Bool[Tensor, "batch token"]) -> "Picks":
        """Return the picks after tokens were removed and the others moved up."""
        if callable(self.sites) or self.axis is Axis.NONE:
            return self
        sites = (kept.cumsum(-1) - 1).clamp(min=0).gather(1, self.sites)
        if self.axis is Axis.PLACES:
            return replace(self, places=sites, sites=sites)
        return replace(self, columns=sites, sites=sites)

    def target(self, row: int) -> Target:
        """Return the target of a row as stored in records."""
        used = self.used[row]
        columns, against = (() if x is None else tuple(x[row][used].tolist()) for x in (self.columns, self.against))
        if callable(self.sites):
            return Contrast(columns[0], against[0]) if against else Class(columns[0])
        if self.axis is Axis.COLUMNS:
            start, end = self.columns[row].tolist()
            return Span(start, end, "sum" if used.all() else "start" if used[0] else "end")
        tokens = tuple(self.sites[row][used].tolist())
        if self.axis is Axis.PLACES:
            return TokenLabels(tokens, columns, against)
        return AnswerTokens(tuple(token + 1 for token in tokens), columns, against, self.scale)


def pick_labels(
    toward: Int[Tensor, " batch"],
    against: Int[Tensor, " batch"] | None,
    link: Link,
    weigh: Callable[[Any], Tensor],
) -> Picks:
    """Return the picks of a head that pools: one label or value of each row. `weigh`: see `Picks.sites`."""
    columns = toward[:, None]
    others = None if against is None else against[:, None]
    return Picks(torch.zeros_like(columns), columns, others, torch.ones_like(columns, dtype=torch.bool), link, weigh)


def pick_nothing(n: int, device: torch.device) -> Picks:
    """Return picks of n rows for passes that only read values, where it does not matter what is explained."""
    first = torch.zeros(n, dtype=torch.long, device=device)
    return pick_labels(first, None, Link.VALUE, lambda batch: torch.zeros(batch.ids.shape, device=device))


def anything(logits: Tensor) -> Picks:
    return pick_nothing(len(logits), logits.device)


def log_odds_of(log_probability: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    """Return log-odds; probabilities very close to 1 are cut, because float32 cannot tell them from 1."""
    logs = log_probability.clamp(max=math.log1p(-SATURATED))
    return logs - torch.log(-torch.expm1(logs))


def track(picks: Picks, logits: Tensor) -> Float[Tensor, " batch"]:
    """Return what is tracked, from all logits."""
    return picks.tracked(picks.read(logits))


def _table(logits: Tensor) -> Float[Tensor, "batch place column"]:
    return logits[:, None] if logits.dim() == 2 else logits
