"""Scores of patches, drawn in colour over their image. Needs pillow, which is optional. No torch."""

import base64
import math
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from whichtoken.atomic_write import write_whole
from whichtoken.errors import BadArtifact, BadSetting, UsageError
from whichtoken.records import Attribution, How, Picture
from whichtoken.render.palette import AGAINST, FOR
from whichtoken.render.rows import Look, ScoreRow, check_how, panels

SEEN = 224  # pixels; smaller images are enlarged
LARGEST = 10_000
OPAQUE = 0.85  # opacity of the strongest patch
GREY = (0.299, 0.587, 0.114)  # luma weights of red, green and blue
DARKEST = 96  # of 255; on black, weak scores would be invisible

Array = np.ndarray[Any, Any]


def to_image(
    attribution: Attribution, path: str | Path | None = None, how: How = "bilinear", size: int | None = None
) -> Any:
    """Return a PIL image of one attribution, and write it to `path` as PNG if given; see `Attribution.to_image`."""
    if attribution.picture is None:
        raise UsageError("this attribution is of a text; show it with to_html, to_latex or plot.methods")
    if path is not None and Path(path).suffix.lower() != ".png":
        raise UsageError(f"{path}: the image is written as PNG; use the file ending .png")
    image = overlay(panels(attribution, Look())[0].rows[0], how, size)
    if path is not None:
        write_whole(path, _png(image))
    return image


def overlay(row: ScoreRow, how: How = "bilinear", size: int | None = None) -> Any:
    """Return the image in grey with scores in colour on top; opacity shows strength."""
    check_how(how)
    assert row.picture is not None, "the row of an image"
    under = plain(row.picture, size)
    grey = np.asarray(under, float) @ np.array(GREY)
    ground = np.repeat(DARKEST + grey[..., None] * (1 - DARKEST / 255), 3, -1)
    shares = _shares(row, how, under.size)[..., None]
    colours = np.where(shares > 0, np.array(FOR, float), np.array(AGAINST, float))
    strength = OPAQUE * np.abs(shares).clip(0, 1)
    return _image().fromarray(np.rint(ground * (1 - strength) + colours * strength).astype(np.uint8))


def plain(picture: Picture, size: int | None = None) -> Any:
    """Return the image as the model reads it; if enlarged, pixels stay squares."""
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST):
        raise BadSetting("size", size, f"None, or a number of pixels, 1 to {LARGEST}")
    image = _image()
    try:
        file = image.open(BytesIO(base64.b64decode(picture.png)), formats=["PNG"])
        if image.MAX_IMAGE_PIXELS is not None and file.width * file.height > image.MAX_IMAGE_PIXELS:
            raise image.DecompressionBombError(f"more than {image.MAX_IMAGE_PIXELS} pixels")  # pillow only warns
        decoded = file.convert("RGB")
    except Exception as error:  # decoders raise many types
        raise BadArtifact(f"the picture of {picture.source} cannot be decoded: {error}") from error
    longer = max(decoded.size)
    scale = math.ceil(SEEN / longer) if size is None else size / longer
    if size is None and longer >= SEEN:
        return decoded
    new_size = (max(1, round(decoded.width * scale)), max(1, round(decoded.height * scale)))
    return decoded.resize(new_size, image.Resampling.NEAREST if scale >= 1 else image.Resampling.BOX)


def overlay_png(row: ScoreRow, how: How = "bilinear") -> str:
    """Return the overlay as a base64 PNG for a page."""
    return base64.b64encode(_png(overlay(row, how))).decode()


def plain_png(picture: Picture) -> str:
    return base64.b64encode(_png(plain(picture))).decode()


def _shares(row: ScoreRow, how: How, size: tuple[int, int]) -> Array:
    assert row.picture is not None, "the row of an image"
    image, fine = _image(), bool(row.fine) and how == "bilinear"
    shape = (row.picture.rows, row.picture.columns)
    shares = np.array(row.fine if fine else [cell.share for cell in row.cells], np.float32)
    shares = shares if fine else shares.reshape(shape)
    smooth = how == "bilinear" and not fine
    method = image.Resampling.BILINEAR if smooth else image.Resampling.NEAREST
    return np.asarray(image.fromarray(shares).resize(size, method), float)


def _png(image: Any) -> bytes:
    file = BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def _image() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise UsageError("pictures of images need pillow: pip install 'whichtoken[images]'") from error
    return Image
