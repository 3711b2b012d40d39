"""Delete, Mask, Pad: from a pattern of kept tokens to the token ids that the model sees."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from whichtoken.errors import BadSetting


@dataclass(frozen=True)
class Fillers:
    """Token ids that can stand in for others; None where the tokenizer has no such token."""

    mask: int | None
    pad: int | None


@runtime_checkable
class Perturbation(Protocol):
    """Returns new ids, and for each the position in the old ids whose token type it keeps."""

    def __call__(
        self, ids: Int[Tensor, " token"], keep: Bool[Tensor, " token"], fillers: Fillers
    ) -> tuple[Int[Tensor, " left"], Int[Tensor, " left"]]: ...


@dataclass(frozen=True)
class Delete:
    """Remove the tokens: the sequence gets shorter and positions are counted anew."""

    def __call__(
        self, ids: Int[Tensor, " token"], keep: Bool[Tensor, " token"], fillers: Fillers
    ) -> tuple[Int[Tensor, " left"], Int[Tensor, " left"]]:
        kept = keep.nonzero()[:, 0]
        return ids[kept], kept


@dataclass(frozen=True)
class Mask:
    """Replace the tokens by the tokenizer's mask token."""

    def __call__(
        self, ids: Int[Tensor, " token"], keep: Bool[Tensor, " token"], fillers: Fillers
    ) -> tuple[Int[Tensor, " left"], Int[Tensor, " left"]]:
        return _replace(ids, keep, "mask", fillers.mask)


@dataclass(frozen=True)
class Pad:
    """Replace the tokens by the padding token, which the model still attends to (AttCAT's choice).

    Models that look for padding by id then see more than a blank: RoBERTa, XLM-R and MPNet give it no position, and a
    decoder whose last token is replaced reads the one before. Curves refuse it for them.
    """

    def __call__(
        self, ids: Int[Tensor, " token"], keep: Bool[Tensor, " token"], fillers: Fillers
    ) -> tuple[Int[Tensor, " left"], Int[Tensor, " left"]]:
        return _replace(ids, keep, "pad", fillers.pad)


def _replace(ids: Tensor, keep: Tensor, name: str, filler: int | None) -> tuple[Tensor, Tensor]:
    if filler is None:
        raise BadSetting("replacement token", name, f"one that this tokenizer has, and it has no {name} token")
    return torch.where(keep, ids, filler), torch.arange(len(ids), device=ids.device)


PERTURBATIONS: Mapping[str, Perturbation] = {"delete": Delete(), "mask": Mask(), "pad": Pad()}
