"""Row: one sequence that a model reads; of an image, the tokens that stand for it."""

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Image:
    """Pixels as the model reads them. Its patches are the last tokens of its row, row by row."""

    pixels: Float[Tensor, "channel row column"]
    grid: tuple[int, int]  # rows and columns of patches

    @cached_property
    def digest(self) -> bytes:
        return hashlib.blake2b(self.pixels.cpu().numpy().tobytes(), digest_size=16).digest()


@dataclass(frozen=True)
class Row:
    """Tokens with their ids (0 for those of an image), token types, and which of them are special."""

    ids: tuple[int, ...]
    types: tuple[int, ...]
    special: tuple[bool, ...]
    image: Image | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def key(self) -> Hashable:
        """Equal for rows that a model cannot tell apart; of an image it does not hold the pixels."""
        return (self.ids, self.types) if self.image is None else self.image.digest
