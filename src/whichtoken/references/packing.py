"""Packed: how a class's reference activations are held, whole or compressed, and how they are read back."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Activations = Float[Tensor, "reference layer token dim"]


@dataclass(frozen=True, eq=False)
class Packed:
    """Tensors by role. Reading takes only what is asked for, so a memory-mapped file is not read whole.

    "values", in floating point, or as int8 beside "scales" (one for each layer and dimension, because a few dimensions
    of a Transformer are far larger than the rest); or "left" x "right", a product of rank k for each layer.
    Of questions also "answers": for each token the probability that an answer starts, and ends, there.
    """

    tensors: Mapping[str, Tensor]

    @property
    def shape(self) -> tuple[int, int, int]:
        """References (one, if only their mean is kept), layers, tokens."""
        held = self.tensors["values" if "values" in self.tensors else "left"]
        return held.shape[0], held.shape[1], held.shape[2]

    @property
    def n_bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())

    def read(self, references: slice, layers: slice, n_tokens: int, like: Tensor) -> Activations:
        """Cut, or padded with zeros, to `n_tokens`; in the dtype and on the device of `like`."""
        where = (references, layers, slice(n_tokens))
        if "left" in self.tensors:
            left, right = self.tensors["left"][where].to(like), self.tensors["right"][layers].to(like)
            found = torch.einsum("rltk,lkd->rltd", left, right)
        else:
            found = self.tensors["values"][where].to(like)
        if "scales" in self.tensors:
            found = found * self.tensors["scales"][layers].to(like)[:, None, :]
        return torch.nn.functional.pad(found, (0, 0, 0, n_tokens - found.shape[2]))

    @property
    def answers(self) -> Float[Tensor, "reference 2 token"] | None:
        return self.tensors.get("answers")

    def with_answers(self, answers: Float[Tensor, "reference 2 token"] | None) -> "Packed":
        return self if answers is None else Packed({**self.tensors, "answers": answers})


def pack(activations: Activations, dtype: torch.dtype, compress: str) -> Packed:
    """`activations` are 0 beyond the length of each reference."""
    kind, _, rank = compress.partition(":")
    activations = activations.to(torch.promote_types(activations.dtype, torch.float32))  # for the arithmetic below
    if kind == "int8":
        scales = activations.abs().amax((0, 2)).clamp(min=torch.finfo(torch.float32).tiny) / 127
        values = (activations / scales[:, None, :]).round().to(torch.int8)
        return Packed({"values": values, "scales": scales.to(torch.float32)})
    if kind == "lowrank":
        rows = activations.transpose(0, 1).flatten(1, 2)  # layer, reference x token, dim
        left, size, right = torch.linalg.svd(rows.to(torch.float64), full_matrices=False)
        k = min(int(rank), len(size[0]))
        # The size is shared between the factors, so that neither leaves the range of float16.
        left, right = left[..., :k] * size[:, None, :k].sqrt(), right[:, :k] * size[:, :k, None].sqrt()
        parts = left.unflatten(1, (len(activations), -1)).transpose(0, 1)
        return Packed({"left": parts.to(dtype).contiguous(), "right": right.to(dtype).contiguous()})
    kept = activations.mean(0, keepdim=True) if kind == "mean" else activations
    return Packed({"values": kept.to(dtype).contiguous()})
