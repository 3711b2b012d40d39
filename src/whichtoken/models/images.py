"""Turn images into model inputs and back into pictures. Pillow, which is optional, is imported here.

Files, pictures and arrays are rotated upright (by their EXIF data), put on a white background if transparent, and
converted to 8 bits and the model's channels, before its image processor resizes and normalises them. Only the first
frame is read.
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

from whichtoken.errors import BadInput, UsageError, name_type
from whichtoken.models.subject import Subject

Array = np.ndarray[Any, Any]

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")  # that may come from strangers
MODES = {1: "L", 3: "RGB"}  # pillow's modes by the number of channels
PREPARED = "channel x row x column, as the image processor returns it"
SHAPES = "row x column, or row x column x 1, 3 or 4 channels"


@dataclass(frozen=True)
class Prepared:
    """One image as the model reads it."""

    source: str  # its name in error messages and pictures
    pixels: Float[Tensor, "channel row column"]


def check_pillow() -> None:
    if find_spec("PIL") is None:
        raise UsageError("images need pillow: pip install 'whichtoken[images]'")


def check_images(images: object) -> Iterable[Any]:
    """Return `images` if it can be a list of images, or one image as a list, or raise BadInput."""
    if isinstance(images, str | Path) or type(images).__module__.startswith("PIL."):
        return [images]
    if isinstance(images, Tensor | np.ndarray) and images.ndim <= 3:
        return [images]
    if isinstance(images, Mapping) and "pixel_values" in images:
        images = images["pixel_values"]  # what an image processor returns
    if isinstance(images, Tensor | np.ndarray) and images.ndim == 4:
        return list(images)
    if isinstance(images, Tensor | np.ndarray | Mapping) or not isinstance(images, Iterable):
        raise BadInput(f"images is {name_type(images)}; expected an image, or a list of images: [image]")
    return images


def prepare(subject: Subject, images: Sequence[Any], first: int = 0) -> list[Prepared]:
    """Prepare images for the model. BadInput names an unreadable image by its file or number, counted from `first`."""
    sources = [_source(image, number) for number, image in enumerate(images, first)]
    tensors: dict[int, Tensor] = {}
    pictures: dict[int, Any] = {}
    for number, (image, source) in enumerate(zip(images, sources, strict=True)):
        try:
            if isinstance(image, Tensor):
                tensors[number] = _check_tensor(subject, image, source)
            elif isinstance(image, str) and _find_file(image) is None:
                hint = f"{subject.title} classifies images, not texts; give an image"
                raise BadInput(f": there is no such file, and {hint}", place=source)
            else:
                pictures[number] = as_picture(image, source, _mode(subject))
        except BadInput as error:
            error.index = first + number
            raise
    if pictures:
        tensors.update(zip(pictures, _run_processor(subject, list(pictures.values())), strict=True))
    return [Prepared(source, tensors[number]) for number, source in enumerate(sources)]


def as_picture(image: Any, source: str, mode: str = "RGB") -> Any:
    """Convert a file, array or picture to an 8-bit PIL image, upright and opaque."""
    check_pillow()
    from PIL import Image

    if isinstance(image, np.ndarray):
        return _convert_mode(_from_array(image, source), mode)
    if isinstance(image, Image.Image):
        return _decode(image, source, mode)
    if isinstance(image, BytesIO):
        return _decode(Image.open(image, formats=["PNG"]), source, mode)
    if not isinstance(image, str | Path):
        kinds = f"a file, a PIL image, an array or a tensor ({PREPARED})"
        raise BadInput(f"is {name_type(image)}; expected {kinds}", place=source)
    path = _find_file(image)
    if path is None or not path.is_file():
        problem = "there is no such file" if path is None else "this is a folder"
        raise BadInput(f": {problem}; give an image", place=source)
    if not path.stat().st_size:
        raise BadInput("is empty, 0 bytes; give an image", place=source)
    return _read_file(path, source, mode)


def _read_file(path: Path, source: str, mode: str) -> Any:
    from PIL import Image

    try:
        with Image.open(path) as file:
            if Image.MAX_IMAGE_PIXELS is not None and file.width * file.height > Image.MAX_IMAGE_PIXELS:
                raise Image.DecompressionBombError  # pillow itself only warns, up to twice the limit
            return _decode(file, source, mode)
    except BadInput:
        raise
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        limit = f"{Image.MAX_IMAGE_PIXELS:,} pixels"
        problem = f"has more than {limit}, which may be a decompression bomb; make it smaller"
        raise BadInput(problem, place=source) from error
    except Exception as error:  # decoders raise what they like
        raise BadInput(f"cannot be read as an image: {error}", place=source) from error


def open_image(data: bytes) -> Any:
    """Open the bytes of an image file of a usual format. Only its head is read, so that its size can be checked."""
    check_pillow()
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return Image.open(BytesIO(data), formats=FORMATS)
    except Exception as error:  # decoders raise what they like
        raise BadInput(f"cannot be read as an image ({', '.join(FORMATS)})", place="the image") from error


def black(processor: Any, channels: int) -> Float[Tensor, " channel"]:
    """Return the input value of a black pixel, per channel."""
    mean, std, _ = _normalisation(processor, channels)
    return -mean / std


def to_display(processor: Any, pixels: Float[Tensor, "channel row column"]) -> UInt8[np.ndarray, "row column 3"]:
    """Undo the normalisation of an image for display. Without a processor, whose normalisation is needed for that,
    stretch the values from black to white.
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
    bytes_rgb = values.round().clamp(0, 255).to(torch.uint8).expand(3, -1, -1)
    return np.ascontiguousarray(bytes_rgb.permute(1, 2, 0).numpy())


def decode_png(subject: Subject, png: str) -> Float[Tensor, "channel row column"]:
    """Return the model input of a picture made by `to_display` and `encode_png`; exact if the image had 8 bits."""
    picture = as_picture(BytesIO(base64.b64decode(png)), "the picture of this attribution", _mode(subject))
    values = (
        torch.from_numpy(np.array(picture)).to(torch.float64).view(picture.height, picture.width, -1).permute(2, 0, 1)
    )
    mean, std, largest = _normalisation(subject.processor, len(values))
    normalised = (values * (largest / 255) - mean[:, None, None]) / std[:, None, None]
    return normalised.to(torch.promote_types(subject.model.dtype, torch.float32))


def encode_png(array: UInt8[np.ndarray, "row column 3"]) -> str:
    """Return the image as base64-encoded PNG, as records store it."""
    check_pillow()
    from PIL import Image

    file = BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def _find_file(name: str | Path) -> Path | None:
    """Return the path if it exists. A text passed for a file name may not even be a valid one."""
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
            f"{subject.title} reads {channels} channels, which image files do not have; pass tensors, {PREPARED}"
        )
    return MODES[channels]


def _check_tensor(subject: Subject, image: Tensor, source: str) -> Tensor:
    shape = tuple(image.shape)
    if image.dim() != 3 or not image.is_floating_point():
        raise BadInput(f"is a tensor of shape {shape} and {image.dtype}; expected floats, {PREPARED}", place=source)
    if not image.isfinite().all():
        raise BadInput(f"holds NaN or infinity; expected finite numbers, {PREPARED}", place=source)
    try:
        subject.image_row(image)
    except BadInput as error:
        raise BadInput(f": {error}", place=source) from error
    return image


def _run_processor(subject: Subject, pictures: list[Any]) -> Iterable[Tensor]:
    processor = subject.processor
    if "pixel_values" not in getattr(processor, "model_input_names", ()):
        current = "no image processor" if processor is None else f"{name_type(processor)} for one"
        raise UsageError(
            f"{subject.title} has {current}, so only tensors can be read, {PREPARED}; use wt.load(folder), or "
            "wt.Subject(model, AutoImageProcessor.from_pretrained(folder))"
        )
    try:
        pixels: Tensor = processor(images=pictures, return_tensors="pt")["pixel_values"]
    except Exception as error:  # its settings may contradict each other
        raise UsageError(
            f"the image processor of {subject.title} fails: {error}; check preprocessor_config.json"
        ) from error
    return pixels


def _from_array(array: Array, source: str) -> Any:
    from PIL import Image

    shape = array.shape
    if not (array.ndim == 2 or (array.ndim == 3 and shape[-1] in (1, 3, 4))):
        first = "; it seems to have its channels first: use array.transpose(1, 2, 0)"
        hint = first if array.ndim == 3 and shape[0] in (1, 3, 4) else ""
        raise BadInput(f"is an array of shape {shape}; expected {SHAPES}{hint}", place=source)
    if not array.size:
        raise BadInput(f"is an array of shape {shape}, which has no pixels", place=source)
    if array.dtype != np.uint8:
        array = _as_bytes(array, source)
    return Image.fromarray(np.ascontiguousarray(array[..., 0] if array.ndim == 3 and shape[-1] == 1 else array))


def _as_bytes(array: Array, source: str) -> Array:
    if not np.issubdtype(array.dtype, np.floating):
        raise BadInput(f"is an array of {array.dtype}; expected uint8, or floats from 0 to 1", place=source)
    low, high = float(array.min()), float(array.max())
    if not (low >= 0 and high <= 1):  # NaN too
        fix = "divide it by 255" if low >= 0 and high <= 255 else "scale it, or pass it as uint8"
        raise BadInput(f"holds values from {low:.4g} to {high:.4g}; floats must be from 0 to 1: {fix}", place=source)
    return np.rint(array.astype(np.float64) * 255).astype(np.uint8)


def _decode(image: Any, source: str, mode: str) -> Any:
    from PIL import ImageOps

    if not (image.width and image.height):
        raise BadInput(f"is a picture of {image.width} x {image.height}, which has no pixels", place=source)
    try:
        image.load()
        return _convert_mode(_to_8_bits(ImageOps.exif_transpose(image), source), mode)
    except BadInput:
        raise
    except Exception as error:  # decoders raise what they like
        raise BadInput(f"cannot be read as an image: {error}", place=source) from error


def _to_8_bits(image: Any, source: str) -> Any:
    """Convert to 8 bits by scaling; pillow itself clips values above 255, so 16-bit images turn white."""
    from PIL import Image

    if image.mode == "F":
        return Image.fromarray(_as_bytes(np.asarray(image), source))
    if not image.mode.startswith("I"):
        return image
    values = np.asarray(image).astype(np.int64)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 65535:
        raise BadInput(f"holds values from {low} to {high}; expected integers of 8 or 16 bits", place=source)
    wide = image.mode.startswith("I;16") or high > 255
    return Image.fromarray((np.rint(values / 257) if wide else values).astype(np.uint8))


def _convert_mode(image: Any, mode: str) -> Any:
    """Convert to `mode`, on a white background if the image is transparent."""
    from PIL import Image

    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB").convert(mode)


def _normalisation(processor: Any, channels: int) -> tuple[Tensor, Tensor, float]:
    """Return mean and deviation per channel, and the value of white before they are applied."""
    if processor is None:
        raise UsageError("without an image processor the normalisation of the pixels is unknown; use wt.load(folder)")
    normalises = getattr(processor, "do_normalize", False)
    mean, std = (processor.image_mean, processor.image_std) if normalises else (0.0, 1.0)
    white = 255 * processor.rescale_factor if getattr(processor, "do_rescale", False) else 255.0
    both = [torch.as_tensor(value, dtype=torch.float64).flatten() for value in (mean, std)]
    if any(len(values) not in (1, channels) for values in both):
        raise UsageError(f"the image processor normalises {len(both[0])} channels, but the image has {channels}")
    return both[0].expand(channels), both[1].expand(channels), white
