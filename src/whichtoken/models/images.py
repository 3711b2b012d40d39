"""Images to what a model reads, and back to what people see. One of the two doors of pillow, which is optional.

Files, pictures and arrays are made upright (by what the camera noted), opaque (on white), of 8 bits and of the model's
channels, before its own image processor resizes and normalises them. Of several frames the first counts.
"""

import base64
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from whichtoken.errors import BadInput, UsageError
from whichtoken.models.subject import Subject

Array = np.ndarray[Any, Any]

MODES = {1: "L", 3: "RGB"}  # of pillow, by the number of channels
PREPARED = "channel x row x column, as the image processor returns it"
SHAPES = "row x column, or row x column x 1, 3 or 4 channels"


@dataclass(frozen=True)
class Prepared:
    """One image as the model reads it."""

    source: str  # what errors and pictures call it
    pixels: Float[Tensor, "channel row column"]


def check_pillow() -> None:
    if find_spec("PIL") is None:
        raise UsageError("images need pillow: pip install 'whichtoken[images]'")


def as_images(images: object) -> Iterable[Any]:
    """What can be a list of images, or BadInput."""
    if isinstance(images, str | Path | Tensor | np.ndarray | Mapping) or not isinstance(images, Iterable):
        raise BadInput(f"images is a {type(images).__name__}; expected a list of images: [image]")
    return images


def prepare(subject: Subject, images: Sequence[Any], first: int = 0) -> list[Prepared]:
    """BadInput names an image that cannot be read by its file, or its number; `first` is that of the first."""
    sources = [_source(image, number) for number, image in enumerate(images, first)]
    found: dict[int, Tensor] = {}
    pictures: dict[int, Any] = {}
    for number, (image, source) in enumerate(zip(images, sources, strict=True)):
        try:
            if isinstance(image, Tensor):
                found[number] = _checked_tensor(subject, image, source)
            elif isinstance(image, str) and _on_disk(image) is None:
                wanted = f"{subject.title} classifies images, not texts; give an image"
                raise BadInput(f": there is no such file, and {wanted}", place=source)
            else:
                pictures[number] = as_picture(image, source, _mode(subject))
        except BadInput as error:
            error.index = first + number
            raise
    if pictures:
        found.update(zip(pictures, _processed(subject, list(pictures.values())), strict=True))
    return [Prepared(source, found[number]) for number, source in enumerate(sources)]


def as_picture(image: Any, source: str, mode: str = "RGB") -> Any:
    """A file, array or picture as a PIL image of 8 bits, upright and opaque."""
    check_pillow()
    from PIL import Image

    if isinstance(image, np.ndarray):
        return _flat(_from_array(image, source), mode)
    if isinstance(image, Image.Image):
        return _decoded(image, source, mode)
    if isinstance(image, BytesIO):
        return _decoded(Image.open(image, formats=["PNG"]), source, mode)
    if not isinstance(image, str | Path):
        kinds = f"a file, a PIL image, an array or a tensor ({PREPARED})"
        raise BadInput(f"is a {type(image).__name__}; expected {kinds}", place=source)
    path = _on_disk(image)
    if path is None or not path.is_file():
        found = "there is no such file" if path is None else "this is a folder"
        raise BadInput(f": {found}; give an image", place=source)
    if not path.stat().st_size:
        raise BadInput("is empty, 0 bytes; give an image", place=source)
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)  # a small file that fills the memory
        try:
            with Image.open(path) as file:
                return _decoded(file, source, mode)
        except BadInput:
            raise
        except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
            limit = f"{Image.MAX_IMAGE_PIXELS:,} pixels"
            raise BadInput(f"has more than {limit}, which may be an attack; make it smaller", place=source) from error
        except Exception as error:  # decoders raise what they like
            raise BadInput(f"cannot be read as an image: {error}", place=source) from error


def black(processor: Any, channels: int) -> Float[Tensor, " channel"]:
    """What the model reads where an image is black."""
    mean, std, _ = _normalisation(processor, channels)
    return -mean / std


def seen(processor: Any, pixels: Float[Tensor, "channel row column"]) -> UInt8[np.ndarray, "row column 3"]:
    """What the model saw, with its normalisation undone. Without a processor nobody knows that, and the range of the
    values is stretched from black to white.
    """
    values = pixels.detach().to("cpu", torch.float64)
    if processor is None:
        low, high = values.min(), values.max()
        values = (values - low) * (255 / (high - low).clamp_min(1e-12))
    else:
        mean, std, largest = _normalisation(processor, len(values))
        values = (values * std[:, None, None] + mean[:, None, None]) * (255 / largest)
    if len(values) not in MODES:
        values = values.mean(0, keepdim=True)
    shown = values.round().clamp(0, 255).to(torch.uint8).expand(3, -1, -1)
    return np.ascontiguousarray(shown.permute(1, 2, 0).numpy())


def from_png(subject: Subject, png: str) -> Float[Tensor, "channel row column"]:
    """What the model reads of a picture that `seen` and `png_of` made; exact, if its processor gave it 8 bits."""
    picture = as_picture(BytesIO(base64.b64decode(png)), "the picture of this attribution", _mode(subject))
    values = (
        torch.from_numpy(np.array(picture)).to(torch.float64).view(picture.height, picture.width, -1).permute(2, 0, 1)
    )
    mean, std, largest = _normalisation(subject.processor, len(values))
    normalised = (values * (largest / 255) - mean[:, None, None]) / std[:, None, None]
    return normalised.to(torch.promote_types(subject.model.dtype, torch.float32))


def png_of(array: UInt8[np.ndarray, "row column 3"]) -> str:
    """In base64, as records hold it."""
    check_pillow()
    from PIL import Image

    file = BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def _on_disk(name: str | Path) -> Path | None:
    """What is there under this name, if anything; a text that was given for a name may be one that no file can have."""
    try:
        path = Path(name).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):
        return None


def _source(image: Any, number: int) -> str:
    return str(image) if isinstance(image, str | Path) else f"image {number}"


def _mode(subject: Subject) -> str:
    channels = subject.model.config.num_channels
    if channels not in MODES:
        raise UsageError(
            f"{subject.title} reads {channels} channels, which files do not have; pass tensors, {PREPARED}"
        )
    return MODES[channels]


def _checked_tensor(subject: Subject, image: Tensor, source: str) -> Tensor:
    shape = tuple(image.shape)
    if image.dim() != 3 or not image.is_floating_point():
        raise BadInput(f"is a tensor of shape {shape} and {image.dtype}; expected numbers, {PREPARED}", place=source)
    if not image.isfinite().all():
        raise BadInput(f"holds NaN or infinity; a tensor must have finite numbers, {PREPARED}", place=source)
    try:
        subject.image_row(image)
    except BadInput as error:
        raise BadInput(f": {error}", place=source) from error
    return image


def _processed(subject: Subject, pictures: list[Any]) -> Iterable[Tensor]:
    processor = subject.processor
    if "pixel_values" not in getattr(processor, "model_input_names", ()):
        found = "no image processor" if processor is None else f"a {type(processor).__name__} for one"
        raise UsageError(
            f"{subject.title} has {found}, so only tensors can be read, {PREPARED}; use wt.load(folder), or "
            "wt.Subject(model, AutoImageProcessor.from_pretrained(folder))"
        )
    try:
        pixels: Tensor = processor(images=pictures, return_tensors="pt")["pixel_values"]
    except Exception as error:  # it may have settings that do not fit each other
        raise UsageError(
            f"the image processor of {subject.title} fails: {error}; check preprocessor_config.json"
        ) from error
    return pixels


def _from_array(array: Array, source: str) -> Any:
    from PIL import Image

    shape = array.shape
    if not (array.ndim == 2 or (array.ndim == 3 and shape[-1] in (1, 3, 4))):
        first = "; this one seems to have its channels first: use array.transpose(1, 2, 0)"
        hint = first if array.ndim == 3 and shape[0] in (1, 3, 4) else ""
        raise BadInput(f"is an array of shape {shape}; expected {SHAPES}{hint}", place=source)
    if not array.size:
        raise BadInput(f"is an array of shape {shape}, with no pixel in it", place=source)
    if array.dtype != np.uint8:
        array = _as_bytes(array, source)
    return Image.fromarray(np.ascontiguousarray(array[..., 0] if array.ndim == 3 and shape[-1] == 1 else array))


def _as_bytes(array: Array, source: str) -> Array:
    if not np.issubdtype(array.dtype, np.floating):
        raise BadInput(f"is an array of {array.dtype}; expected uint8, or numbers from 0 to 1 (float)", place=source)
    low, high = float(array.min()), float(array.max())
    if not (low >= 0 and high <= 1):  # NaN too
        fix = "divide it by 255" if low >= 0 and high <= 255 else "scale it, or pass it as uint8"
        raise BadInput(f"holds values from {low:.4g} to {high:.4g}; floats must be from 0 to 1: {fix}", place=source)
    return np.rint(array.astype(np.float64) * 255).astype(np.uint8)


def _decoded(image: Any, source: str, mode: str) -> Any:
    from PIL import ImageOps

    if not (image.width and image.height):
        raise BadInput(f"is a picture of {image.width} x {image.height}, with no pixel in it", place=source)
    try:
        image.load()
        return _flat(_of_8_bits(ImageOps.exif_transpose(image), source), mode)
    except BadInput:
        raise
    except Exception as error:  # decoders raise what they like
        raise BadInput(f"cannot be read as an image: {error}", place=source) from error


def _of_8_bits(image: Any, source: str) -> Any:
    """Pillow itself cuts what is above 255 off, and makes 16 bits white."""
    from PIL import Image

    if image.mode == "F":
        return Image.fromarray(_as_bytes(np.asarray(image), source))
    if not image.mode.startswith("I"):
        return image
    values = np.asarray(image).astype(np.int64)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 65535:
        raise BadInput(f"holds values from {low} to {high}; whole numbers of 8 or 16 bits are read", place=source)
    wide = image.mode.startswith("I;16") or high > 255
    return Image.fromarray((np.rint(values / 257) if wide else values).astype(np.uint8))


def _flat(image: Any, mode: str) -> Any:
    """On white, where one can see through it."""
    from PIL import Image

    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB").convert(mode)


def _normalisation(processor: Any, channels: int) -> tuple[Tensor, Tensor, float]:
    """Mean, deviation, and what the model's white was before they were applied."""
    if processor is None:
        raise UsageError("without an image processor nobody knows how pixels were normalised; use wt.load(folder)")
    normalises = getattr(processor, "do_normalize", False)
    mean, std = (processor.image_mean, processor.image_std) if normalises else (0.0, 1.0)
    white = 255 * processor.rescale_factor if getattr(processor, "do_rescale", False) else 255.0
    both = [torch.as_tensor(value, dtype=torch.float64).flatten() for value in (mean, std)]
    if any(len(values) not in (1, channels) for values in both):
        raise UsageError(f"the image processor normalises {len(both[0])} channels, and the image has {channels}")
    return both[0].expand(channels), both[1].expand(channels), white
