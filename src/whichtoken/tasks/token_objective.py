"""The objective of models that label every token: the labels of some words, each read at one token."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from whichtoken.core.objectives import Objective, log_odds_of
from whichtoken.targets import Target, TokenLabels


@dataclass(frozen=True)
class TokenObjective(Objective):
    """The labels of some words, each read at one token. Logits have shape batch x token x label."""

    tokens: Int[Tensor, "batch word"]  # positions; any where there is no word
    labels: Int[Tensor, "batch word"]
    against: Int[Tensor, "batch word"] | None  # for a contrast, the other labels
    real: Bool[Tensor, "batch word"]  # False beyond a row's words

    def scalar(self, logits: Tensor) -> Float[Tensor, " batch"]:
        toward = self._sum(logits, self.labels)
        return toward if self.against is None else toward - self._sum(logits, self.against)

    def _sum(self, values: Float[Tensor, "batch token label"], labels: Int[Tensor, "batch word"]) -> Tensor:
        rows = torch.arange(len(labels), device=values.device)[:, None]
        return values[rows, self.tokens, labels].masked_fill(~self.real, 0).sum(-1)

    def read(self, logits: Tensor) -> Float[Tensor, "batch labelling"]:
        """Return the log-probability of the labels and, for a contrast, of the others."""
        logs = logits.log_softmax(-1)
        labellings = [self.labels] if self.against is None else [self.labels, self.against]
        return torch.stack([self._sum(logs, labels) for labels in labellings], -1)

    def cache_key(self, row: int) -> Hashable:
        return self.target(row)

    def probability(self, read: Tensor) -> Float[Tensor, " batch"]:
        return read[:, 0].exp() if self.against is None else (read[:, 0] - read[:, 1]).sigmoid()

    def log_odds(self, read: Tensor) -> Float[Tensor, " batch"]:
        return log_odds_of(read[:, 0]) if self.against is None else (read[:, 0] - read[:, 1]).to(torch.float64)

    def readout(self, batch: Any) -> Float[Tensor, "batch token"]:
        places = torch.nn.functional.one_hot(self.tokens, batch.ids.shape[1]).to(torch.float64)
        weights = self.real.to(torch.float64)
        return torch.einsum("bwt,bw->bt", places, weights / weights.sum(-1, keepdim=True))

    def rows(self, index: Int[Tensor, " n"]) -> "TokenObjective":
        against = None if self.against is None else self.against[index]
        return TokenObjective(self.tokens[index], self.labels[index], against, self.real[index])

    def target(self, row: int) -> Target:
        of_row = [
            () if x is None else x[row][self.real[row]].tolist() for x in (self.tokens, self.labels, self.against)
        ]
        return TokenLabels(*map(tuple, of_row))

    def after_removal(self, kept: Bool[Tensor, "batch token"]) -> "TokenObjective":
        """Shift the words left by the number of tokens removed before them."""
        return replace(self, tokens=(kept.cumsum(-1) - 1).clamp(min=0).gather(1, self.tokens))

    def anchors(self, batch: Any) -> Bool[Tensor, "batch token"]:
        """Return the tokens that the labels are read from: without them there is nothing to label."""
        return self.readout(batch) > 0

    def terms(self) -> Sequence[tuple[float, Objective]]:
        """Separate the labels of a contrast, as for classes."""
        if self.against is None:
            return ((1.0, self),)
        return ((1.0, replace(self, against=None)), (-1.0, replace(self, labels=self.against, against=None)))

    def span(self) -> Int[Tensor, "batch 2"]:
        last = self.real.sum(-1, keepdim=True) - 1
        return torch.cat([self.tokens[:, :1], self.tokens.gather(1, last)], 1)


def make_objective(
    tokens: Sequence[Sequence[int]],
    labels: Sequence[Sequence[int]],
    against: Sequence[Sequence[int]],
    device: torch.device,
) -> TokenObjective:
    """Return the objective of a batch, whose rows may have different numbers of words. `against`: for all, or none."""
    longest = max(map(len, tokens))

    def pad(rows: Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], device=device)

    real = pad([[1] * len(row) for row in tokens]).bool()
    return TokenObjective(pad(tokens), pad(labels), pad(against) if against else None, real)
