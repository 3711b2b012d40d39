"""Scores of patches in colours on top of their image. One of the two doors of pillow, which is optional. No torch."""

import base64
import math
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from whichtoken.atomic_write import write_whole
from whichtoken.errors import BadArtifact, BadSetting, UsageError
from whichtoken.records import Attribution, How, Picture
from whichtoken.render.palette import AGAINST, FOR
from whichtoken.render.rows import Look, ScoreRow, check_how, panels

SEEN = 224  # pixels: smaller images are enlarged, so that people can see them
LARGEST = 10_000
OPAQUE = 0.85  # the strongest patch; a little of the image shows through
GREY = (0.299, 0.587, 0.114)  # how bright red, green and blue are
DARKEST = 96  # of 255: on black, orange would be brown and weak scores invisible

Array = np.ndarray[Any, Any]


def to_image(shown: Attribution, path: str | Path | None = None, how: How = "bilinear", size: int | None = None) -> Any:
    """A PIL image of one attribution, also written to `path` as PNG; `Attribution.to_image` says more."""
    if shown.picture is None:
        raise UsageError("this attribution is of a text; to_html, to_latex and plot.methods show texts")
    if path is not None and Path(path).suffix.lower() != ".png":
        raise UsageError(f"{path}: the image is written as PNG; give the file the ending .png")
    made = overlay(panels(shown, Look())[0].rows[0], how, size)
    if path is not None:
        write_whole(path, _png(made))
    return made


def overlay(row: ScoreRow, how: How = "bilinear", size: int | None = None) -> Any:
    """The image in grey, so that colours mean scores and nothing else; the stronger, the less it shows through."""
    check_how(how)
    assert row.picture is not None, "a row of an image"
    under = plain(row.picture, size)
    grey = np.asarray(under, float) @ np.array(GREY)
    ground = np.repeat(DARKEST + grey[..., None] * (1 - DARKEST / 255), 3, -1)
    shares = _shares(row, how, under.size)[..., None]
    colours = np.where(shares > 0, np.array(FOR, float), np.array(AGAINST, float))
    strength = OPAQUE * np.abs(shares).clip(0, 1)
    return _image().fromarray(np.rint(ground * (1 - strength) + colours * strength).astype(np.uint8))


def plain(picture: Picture, size: int | None = None) -> Any:
    """The image itself. Enlarged, its pixels stay squares: more than that the model has not seen."""
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST):
        raise BadSetting("size", size, f"None, or a number of pixels, 1 to {LARGEST}")
    image = _image()
    with warnings.catch_warnings():
        warnings.simplefilter("error", image.DecompressionBombWarning)
        try:
            found = image.open(BytesIO(base64.b64decode(picture.png)), formats=["PNG"]).convert("RGB")
        except Exception as error:  # decoders raise what they like
            raise BadArtifact(f"the picture of {picture.source} cannot be decoded: {error}") from error
    longer = max(found.size)
    scale = math.ceil(SEEN / longer) if size is None else size / longer
    if size is None and longer >= SEEN:
        return found
    wanted = (max(1, round(found.width * scale)), max(1, round(found.height * scale)))
    return found.resize(wanted, image.Resampling.NEAREST if scale >= 1 else image.Resampling.BOX)


def overlay_png(row: ScoreRow, how: How = "bilinear") -> str:
    """In base64, for a page."""
    return base64.b64encode(_png(overlay(row, how))).decode()


def plain_png(picture: Picture) -> str:
    return base64.b64encode(_png(plain(picture))).decode()


def _shares(row: ScoreRow, how: How, size: tuple[int, int]) -> Array:
    assert row.picture is not None, "a row of an image"
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
