"""Removals: functions that take a row and which elements to keep, and return the row the model reads instead."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from whichtoken.core.rows import Image, Row

Pattern: TypeAlias = Bool[np.ndarray, " element"]  # True if kept: tokens, or an image's pixels row by row


@runtime_checkable
class Perturbation(Protocol):
    """A way to remove the elements of a row that are not kept."""

    @property
    def name(self) -> str: ...

    @property
    def shortens(self) -> bool:
        """True if the remaining tokens move up and get new positions."""
        ...

    def __call__(self, row: Row, keep: Pattern) -> Row: ...


@dataclass(frozen=True)
class Delete:
    """Remove tokens: the sequence gets shorter."""

    name: str = "delete"
    shortens: bool = True

    def __call__(self, row: Row, keep: Pattern) -> Row:
        ids, types = (tuple(compress(values, keep)) for values in (row.ids, row.types))
        return replace(row, ids=ids, types=types, special=tuple(compress(row.special, keep)))


@dataclass(frozen=True)
class Replace:
    """Replace tokens with the mask token, or (AttCAT's choice) the padding token, which the model still attends to."""

    name: str
    filler: int
    shortens: bool = False

    def __call__(self, row: Row, keep: Pattern) -> Row:
        ids = tuple(token if kept else self.filler for token, kept in zip(row.ids, keep, strict=True))
        return replace(row, ids=ids)


@dataclass(frozen=True)
class Fill:
    """Set pixels to one colour: what the model reads as black, or the mean of each channel of the image."""

    name: str
    colour: tuple[float, ...] | None  # one value per channel; None: the image's own mean
    shortens: bool = False

    def __call__(self, row: Row, keep: Pattern) -> Row:
        if row.image is None:
            raise TypeError(f"{self.name} fills pixels, but this row has no image")
        pixels = row.image.pixels
        removed = ~torch.from_numpy(keep).to(pixels.device).view(pixels.shape[1:])
        colour = self._mean(pixels) if self.colour is None else pixels.new_tensor(self.colour)
        filled = torch.where(removed, colour[:, None, None], pixels)
        return replace(row, image=replace(row.image, pixels=filled))

    def _mean(self, pixels: Tensor) -> Tensor:
        return pixels.double().mean((1, 2)).to(pixels.dtype)


def _patch_pixels(image: Image, kept: Pattern) -> Pattern:
    """Return the pattern of pixels for a pattern of tokens, of which the last are the image's patches."""
    height, width = image.pixels.shape[1:]
    rows, columns = image.grid
    patches = kept[-rows * columns :].reshape(rows, columns)
    return patches.repeat(height // rows, 0).repeat(width // columns, 1).ravel()


@dataclass(frozen=True, eq=False)
class Remainders:
    """What remains of each row under its pattern, made when it is read: every remainder of an image is an image."""

    rows: Sequence[Row]
    patterns: Sequence[Pattern]
    how: Perturbation
    of_tokens: bool = False  # the patterns are of tokens, also those of images, whose elements are pixels

    def __len__(self) -> int:
        return len(self.patterns)

    def __getitem__(self, place: int) -> Row:
        row, pattern = self.rows[place], self.patterns[place]
        return self.how(row, pattern if row.image is None or not self.of_tokens else _patch_pixels(row.image, pattern))
