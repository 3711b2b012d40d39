"""Check a model's config.json before the model is built: it is complete, and of the size of the weights beside it."""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING

from whichtoken.boundary import read_text, while_reading
from whichtoken.decode import parse_json
from whichtoken.errors import UsageError, show
from whichtoken.models.adapters import read_shapes
from whichtoken.models.architectures import architecture_named
from whichtoken.models.hub import CONFIG, WEIGHTS

AGAIN = "correct it, or save the model again: model.save_pretrained(folder)"
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
MOST_LAYERS = 1_000
MOST_LABELS = 100_000
SHARED = 100  # layers that may share their weights, as those of ALBERT do
SLACK = 50_000_000  # numbers beyond those stored, which cost no more than 0.2 GB
Shape = tuple[int, ...]


def read_settings(place: str | Path) -> Mapping[str, Any]:
    """Return the settings in a folder's config.json; nothing for a name on the hub.

    UsageError if they are damaged, UnsupportedModel if they are those of an unknown kind of model.
    """
    path = Path(place) / CONFIG
    if not path.is_file():
        return {}
    try:
        with while_reading(path, UsageError):
            settings = parse_json(read_text(path, UsageError))
    except UsageError as error:
        raise UsageError(f"{error}; {AGAIN}") from error
    if not isinstance(settings, dict):
        found = json.dumps(settings)[:40]
        raise UsageError(f"{path} holds {found}; expected an object with the settings of a model; {AGAIN}")
    if not isinstance(kind := settings.get("model_type", ""), str):
        raise UsageError(f'{path} has model_type {show(kind, 40)}; expected a name, such as "bert"; {AGAIN}')
    names = settings.get("id2label")
    if names is not None and not (isinstance(names, dict) and all(key.isdecimal() for key in names)):
        expected = 'expected an object that names the labels from 0, such as {"0": "negative", "1": "positive"}'
        raise UsageError(f"{path} has id2label={show(names, 60)}; {expected}")
    kind = settings.get("model_type")
    if kind is not None and "auto_map" not in settings and kind not in CONFIG_MAPPING:
        architecture_named(kind, str(place))  # raises, as transformers does not know it
    return settings


def check_counts(settings: Mapping[str, Any], place: str | Path) -> None:
    """Raise UsageError for numbers of layers or labels that no model has, which would take very long to build."""
    most = MOST_LAYERS
    files = find_weights(place)
    if files and (n_stored := len(_read_shapes(files))):
        most = min(MOST_LAYERS, max(SHARED, n_stored))
    for name, value in _walk(settings):
        low, high = (1, most) if name in LAYERS else (0, MOST_LABELS)
        if (name in LAYERS or name == "num_labels") and isinstance(value, int) and not low <= value <= high:
            stored = f"; its weights are {n_stored} tensors" if files and name in LAYERS and high < MOST_LAYERS else ""
            raise UsageError(
                f"{Path(place) / CONFIG} has {name}={show(value, 40)}; expected {low} to {high:,}{stored}; {AGAIN}"
            )


def _walk(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    waiting = [settings]
    while waiting:
        for name, value in waiting.pop().items():
            yield name, value
            if isinstance(value, Mapping):
                waiting.append(value)


def describe_shapes(config: Any, auto_class: str) -> dict[str, Shape]:
    """Return the shapes of all tensors of the model that a configuration describes; it is built without values."""
    with torch.device("meta"):
        model = getattr(transformers, auto_class).from_config(copy.deepcopy(config))
    return {name: tuple(tensor.shape) for name, tensor in (*model.named_parameters(), *model.named_buffers())}


def check_size(place: str | Path, shapes: Mapping[str, Shape], is_quantised: bool) -> None:
    """Raise UsageError for a model that is larger than the weights in its folder: it would fill the memory."""
    n_bytes = sum(file.stat().st_size for file in find_weights(place))
    n_described = sum(torch.Size(shape).numel() for shape in shapes.values())
    if n_bytes and n_described > n_bytes * (8 if is_quantised else 1) + SLACK:
        raise UsageError(
            f"{Path(place) / CONFIG} describes a model of {n_described:,} numbers, but its weights have {n_bytes:,} "
            f"bytes; {AGAIN}"
        )


def describe_mismatch(place: str | Path, shapes: Mapping[str, Shape]) -> str:
    """Return the first tensor whose shape in the weights is not that of the configuration, and what to do."""
    stored = _read_shapes(find_weights(place))
    for name, shape in shapes.items():
        if stored.get(name, shape) != shape:
            return f"the shape of {name} is {stored[name]}, and by {CONFIG} {shape}; {AGAIN}"
    return f"correct {CONFIG}, or save the model again"


def find_weights(place: str | Path) -> Sequence[Path]:
    """Return the files of weights in a folder; none for a name on the hub."""
    return next((found for pattern in WEIGHTS if (found := sorted(Path(place).glob(pattern)))), [])


def _read_shapes(files: Sequence[Path]) -> dict[str, Shape]:
    """Return the shapes in safetensors files; nothing if one of them is damaged, which loading will say."""
    shapes = dict[str, Shape]()
    try:
        for file in (file for file in files if file.suffix == ".safetensors"):
            shapes |= read_shapes(file)
    except Exception:  # of safetensors, which has its own
        return {}
    return shapes
