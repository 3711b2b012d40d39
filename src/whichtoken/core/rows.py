"""Row: one sequence that a model reads; for an image, the tokens that represent it."""

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Image:
    """The pixels of an image as the model reads them; its patches, row by row, are the last tokens of its `Row`."""

    pixels: Float[Tensor, "channel row column"]
    grid: tuple[int, int]  # rows and columns of patches

    @cached_property
    def digest(self) -> bytes:
        return hashlib.blake2b(self.pixels.cpu().numpy().tobytes(), digest_size=16).digest()


@dataclass(frozen=True)
class Row:
    """Token ids (0 for images), token types, and which tokens are special."""

    ids: tuple[int, ...]
    types: tuple[int, ...]
    special: tuple[bool, ...]
    image: Image | None = None
    tail: int = 0  # tokens at the end that form an answer: logits are read at the positions before them, nowhere else

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def key(self) -> Hashable:
        """Return a key that is equal for rows that a model cannot tell apart; for images, a hash of the pixels."""
        return (self.ids, self.types) if self.image is None else self.image.digest


class Rows(Protocol):
    """A list of rows, or an object that makes each row when it is read."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: int, /) -> Row: ...


def pair_sides(size: int | Sequence[int]) -> tuple[int, int]:
    """Return rows and columns of pixels; a configuration holds one number if they are equal."""
    rows, columns = (size, size) if isinstance(size, int) else size
    return rows, columns
