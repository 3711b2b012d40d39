"""The objective of language models: tokens of an answer, each predicted at the position before it."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from whichtoken.core.objectives import Objective, log_odds_of
from whichtoken.targets import AnswerTokens, Scale, Target


@dataclass(frozen=True)
class AnswerObjective(Objective):
    """Some tokens of an answer, which is the end of its row. Logits have shape batch x place x vocabulary; at place k
    they predict the answer's token k (`Batch.read`), so nothing has to be moved when tokens before it are removed.

    The scalar is the sum of the logits or log-probabilities of the chosen tokens; against others, it is the difference,
    which is the same on both scales. What is tracked is the log-probability of the chosen tokens (or the difference):
    the probability of a long answer is too small to compare.
    """

    ids: Int[Tensor, "batch place"]  # any where there is no token
    chosen: Bool[Tensor, "batch place"]  # the tokens that are explained
    against: Int[Tensor, "batch place"] | None
    first: Int[Tensor, " batch"]  # position of the answer's first token, for records
    scale: Scale = "logit"

    def scalar(self, logits: Tensor) -> Float[Tensor, " batch"]:
        own = self._pick(logits, self.ids)
        if self.against is not None:
            own = own - self._pick(logits, self.against)
        elif self.scale == "logprob":
            own = own - logits.logsumexp(-1)
        return own.masked_fill(~self.chosen, 0).sum(-1)

    def _pick(self, values: Tensor, ids: Int[Tensor, "batch place"]) -> Float[Tensor, "batch place"]:
        return values.gather(2, ids[:, :, None])[:, :, 0]

    def read(self, logits: Tensor) -> Float[Tensor, "batch answer place"]:
        """Return the log-probabilities of all tokens of the answer, and of those that it is contrasted with.

        So all parts of an answer share an evaluation. Other rows of a batch may have longer answers.
        """
        width = self.ids.shape[1]
        logs = pad(logits[:, :width], (0, 0, 0, max(0, width - logits.shape[1]))).log_softmax(-1)
        answers = [self.ids] if self.against is None else [self.ids, self.against]
        return torch.stack([self._pick(logs, ids) for ids in answers], 1)

    def cache_key(self, row: int) -> Hashable:
        return self.ids.shape[1], None if self.against is None else tuple(self.against[row].tolist())

    def probability(self, read: Tensor) -> Float[Tensor, " batch"]:
        """Return the log-probability of the chosen tokens; for a contrast, the difference of the two."""
        own = read[:, 0] if self.against is None else read[:, 0] - read[:, 1]
        return own.masked_fill(~self.chosen, 0).sum(-1)

    def log_odds(self, read: Tensor) -> Float[Tensor, " batch"]:
        value = self.probability(read.to(torch.float64))
        return log_odds_of(value) if self.against is None else value

    def readout(self, batch: Any) -> Float[Tensor, "batch token"]:
        weights = self.chosen.to(torch.float64)
        weights = weights / weights.sum(-1, keepdim=True)
        empty = torch.zeros(batch.ids.shape, dtype=torch.float64, device=batch.ids.device)
        return empty.scatter_add(1, batch.read[:, : weights.shape[1]], weights)

    def rows(self, index: Int[Tensor, " n"]) -> "AnswerObjective":
        against = None if self.against is None else self.against[index]
        return replace(self, ids=self.ids[index], chosen=self.chosen[index], against=against, first=self.first[index])

    def target(self, row: int) -> Target:
        places = self.chosen[row].nonzero()[:, 0]
        ids, against = (() if x is None else tuple(x[row][places].tolist()) for x in (self.ids, self.against))
        return AnswerTokens(tuple((self.first[row] + places).tolist()), ids, against, self.scale)

    def terms(self) -> Sequence[tuple[float, Objective]]:
        """Separate the tokens of a contrast, as for classes."""
        if self.against is None:
            return ((1.0, self),)
        return ((1.0, replace(self, against=None)), (-1.0, replace(self, ids=self.against, against=None)))

    def span(self) -> Int[Tensor, "batch 2"]:
        """Return the first and the last position that is read."""
        places = torch.arange(self.ids.shape[1], device=self.ids.device)
        ends = [torch.where(self.chosen, places, -1).amax(-1), torch.where(self.chosen, places, len(places)).amin(-1)]
        return torch.stack([self.first + ends[1] - 1, self.first + ends[0] - 1], -1)


def make_answer_objective(
    answers: Sequence[tuple[int, Sequence[int]]],
    chosen: Sequence[Sequence[int]],
    against: Sequence[Sequence[int]],
    scale: Scale,
    device: torch.device,
) -> AnswerObjective:
    """Return the objective of a batch. `answers`: the position of the first token, and all ids. `chosen`: numbers of
    the explained tokens, from 0. `against`: for each of them another id, for all rows or none.
    """
    width = max(len(ids) for _, ids in answers)
    ids = torch.tensor([[*own, *[0] * (width - len(own))] for _, own in answers], device=device)
    marks, others = torch.zeros_like(ids, dtype=torch.bool), ids.clone()
    for row, places in enumerate(chosen):
        marks[row, list(places)] = True
        if against:
            others[row, list(places)] = torch.tensor(against[row], device=device)
    first = torch.tensor([start for start, _ in answers], device=device)
    return AnswerObjective(ids, marks, others if against else None, first, scale)
