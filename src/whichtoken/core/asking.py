"""Ask a model about the inputs of a batch with some of their units removed, in rounds that cover all inputs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from whichtoken.core.trace import Probe
from whichtoken.core.units import keep_patterns, stack_removed


@dataclass(frozen=True)
class Asker:
    """A batch: its units, the number of tokens of each input, and how units are removed."""

    probe: Probe
    units: Int[Tensor, "batch token"]
    lengths: Sequence[int]
    removals: Sequence[str | None]  # questions take turns

    def drops(self, rounds: Sequence[Bool[np.ndarray, "_ _"]], asked: Sequence[int]) -> list[Float[np.ndarray, " _"]]:
        """Return how far the log-odds drop under each question. `asked`: the questions before, about each input."""
        kept = keep_patterns(self.units, stack_removed(rounds))
        numbers = torch.tensor(asked)[:, None] + torch.arange(kept.shape[1])
        # The whole input is asked about together with the first questions: alone, it would be a batch of its own.
        kept = torch.cat([torch.ones_like(kept[:, :1]), kept], 1)
        numbers = torch.cat([torch.zeros_like(numbers[:, :1]), numbers], 1)
        log_odds = torch.empty(numbers.shape, dtype=torch.float64)
        for turn, how in enumerate(self.removals):
            chosen = numbers % len(self.removals) == turn
            others = ~chosen[:, :, None].to(kept.device)
            log_odds[chosen] = self.probe.log_odds(kept | others, how).cpu()[chosen]
        lost = (log_odds[:, :1] - log_odds[:, 1:]).numpy()
        return [of_row[: len(removed)] for of_row, removed in zip(lost, rounds, strict=True)]

    def outputs(self, removed: Sequence[Bool[np.ndarray, " _"]]) -> list[float]:
        """Return the probability, or value, of each input without these units."""
        kept = keep_patterns(self.units, stack_removed([of_row[None] for of_row in removed]))
        outputs: list[float] = self.probe.outputs(kept, self.removals[0])[:, 0].tolist()
        return outputs
