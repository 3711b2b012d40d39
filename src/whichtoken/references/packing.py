"""Packed: how a class's reference activations are held, whole or compressed, and how they are read back."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from whichtoken.references.recipe import Compression

Activations = Float[Tensor, "reference layer token dim"]


@dataclass(frozen=True, eq=False)
class Packed:
    """Tensors by role. Reading takes only what is asked for, so a memory-mapped file is not read whole.

    "values", in floating point, or as int8 beside "scales" (one for each layer and dimension, because a few dimensions
    of a Transformer are far larger than the rest).
    Of questions also "answers": for each token the probability that an answer starts, and ends, there.
    """

    tensors: Mapping[str, Tensor]

    @property
    def shape(self) -> tuple[int, int, int]:
        """References, layers, tokens."""
        n_references, n_layers, n_tokens, _ = self.tensors["values"].shape
        return n_references, n_layers, n_tokens

    @property
    def n_bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())

    def read(self, references: slice, layers: slice, n_tokens: int, like: Tensor) -> Activations:
        """Cut, or padded with zeros, to `n_tokens`; in the dtype and on the device of `like`."""
        values = self.tensors["values"][references, layers, :n_tokens].to(like)
        if "scales" in self.tensors:
            values = values * self.tensors["scales"][layers].to(like)[:, None, :]
        return torch.nn.functional.pad(values, (0, 0, 0, n_tokens - values.shape[2]))

    @property
    def answers(self) -> Float[Tensor, "reference 2 token"] | None:
        return self.tensors.get("answers")

    def with_answers(self, answers: Float[Tensor, "reference 2 token"] | None) -> "Packed":
        return self if answers is None else Packed({**self.tensors, "answers": answers})


def pack(activations: Activations, dtype: torch.dtype, compress: Compression) -> Packed:
    """`activations` are 0 beyond the length of each reference."""
    if compress == "none":
        return Packed({"values": activations.to(dtype).contiguous()})
    activations = activations.to(torch.promote_types(activations.dtype, torch.float32))  # for the arithmetic below
    scales = activations.abs().amax((0, 2)).clamp(min=torch.finfo(torch.float32).tiny) / 127
    values = (activations / scales[:, None, :]).round().to(torch.int8)
    return Packed({"values": values, "scales": scales.to(torch.float32)})
