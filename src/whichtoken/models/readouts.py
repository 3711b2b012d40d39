"""Which positions a pooling head reads, as weights."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import one_hot, pad

from whichtoken.models.architectures import Readout
from whichtoken.models.encoding import Batch


def weigh_positions(kind: Readout, batch: Batch, pad_id: int | None) -> Float[Tensor, "batch token"]:
    """Return weights that sum to 1 in each row."""
    ids, mask = batch.ids, batch.mask
    if kind is Readout.MEAN:
        return mask.double() / mask.sum(-1, keepdim=True)
    if kind is Readout.FIRST_TWO:
        return pad(torch.full_like(ids[:, :2], 0.5, dtype=torch.float64), (0, ids.shape[1] - 2))
    position = torch.zeros(len(ids), dtype=torch.long, device=ids.device)
    if kind is Readout.LAST:
        real = mask if pad_id is None else ids != pad_id  # by id, as the models do
        position = (torch.arange(ids.shape[1], device=ids.device) * real).argmax(-1)
    weights = one_hot(position, ids.shape[1]).double()
    if kind is Readout.FIRST_AND_PATCHES:
        patches = (~batch.special).double()
        return (weights + patches / patches.sum(-1, keepdim=True)) / 2
    return weights
