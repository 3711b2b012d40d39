"""Packed: the stored reference activations of one class, optionally compressed, and how to read them back."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from whichtoken.references.recipe import Compression

Activations = Float[Tensor, "reference layer token dim"]


@dataclass(frozen=True, eq=False)
class Packed:
    """Tensors by role. Only the requested slices are read, so a memory-mapped file is not loaded whole.

    "values" are floating-point, or int8 with "scales" (one for each layer and dimension, because a few dimensions of a
    Transformer are far larger than the rest).
    For questions there are also "answers": for each token, the probabilities that an answer starts and ends there.
    """

    tensors: Mapping[str, Tensor]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the numbers of references, layers and tokens."""
        n_references, n_layers, n_tokens, _ = self.tensors["values"].shape
        return n_references, n_layers, n_tokens

    @property
    def n_bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())

    def read(self, references: slice, layers: slice, n_tokens: int, like: Tensor) -> Activations:
        """Return activations, truncated or zero-padded to `n_tokens`, with the dtype and device of `like`."""
        values = self.tensors["values"][references, layers, :n_tokens].to(like)
        if "scales" in self.tensors:
            values = values * self.tensors["scales"][layers].to(like)[:, None, :]
        return torch.nn.functional.pad(values, (0, 0, 0, n_tokens - values.shape[2]))

    def contract(
        self, references: slice, layers: slice, weights: Float[Tensor, "layer token dim"]
    ) -> Float[Tensor, "reference layer token"]:
        """Return the sums of weights x activations over dimensions, in the dtype and on the device of the weights.

        One layer of one reference after another fits into the processor's cache; all of them, converted, do not.
        """
        values = self.tensors["values"][references, layers, : weights.shape[1]]
        if "scales" in self.tensors:
            weights = weights * self.tensors["scales"][layers].to(weights)[:, None, :]
        n_tokens = values.shape[2]
        sums = weights.new_zeros(len(values), *weights.shape[:2])
        product = torch.empty_like(weights[0, :n_tokens])
        for of_reference, reference in zip(sums, values, strict=True):
            for row, activations, of_layer in zip(of_reference, reference, weights, strict=True):
                torch.sum(product.copy_(activations).mul_(of_layer[:n_tokens]), -1, out=row[:n_tokens])
        return sums

    @property
    def answers(self) -> Float[Tensor, "reference 2 token"] | None:
        return self.tensors.get("answers")

    def with_answers(self, answers: Float[Tensor, "reference 2 token"] | None) -> "Packed":
        return self if answers is None else Packed({**self.tensors, "answers": answers})


def pack(activations: Activations, dtype: torch.dtype, compress: Compression) -> Packed:
    """Pack activations, which must be 0 beyond the length of each reference."""
    if compress == "none":
        return Packed({"values": activations.to(dtype).contiguous()})
    activations = activations.to(torch.promote_types(activations.dtype, torch.float32))  # for the arithmetic below
    scales = activations.abs().amax((0, 2)).clamp(min=torch.finfo(torch.float32).tiny) / 127
    values = (activations / scales[:, None, :]).round().to(torch.int8)
    return Packed({"values": values, "scales": scales.to(torch.float32)})
