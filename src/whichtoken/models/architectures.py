"""The table of supported architectures. To add one, add a row here and a tiny model to `tests/tiny.py`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from whichtoken.errors import UnsupportedModel


class Readout(StrEnum):
    """Which position the classification head reads."""

    FIRST = "first"
    LAST = "last"  # the last token that is not the padding token
    MEAN = "mean"


def _always_first(config: Any) -> Readout:
    return Readout.FIRST


def _always_last(config: Any) -> Readout:
    return Readout.LAST


def _modernbert(config: Any) -> Readout:
    return Readout.MEAN if config.classifier_pooling == "mean" else Readout.FIRST


@dataclass(frozen=True)
class Architecture:
    """Where things are in one family of models."""

    blocks: str  # regular expression for the names, below `base_model`, of the modules that are its blocks
    readout: Callable[[Any], Readout] = _always_first
    attention: str | None = None  # class that computes attention itself; None: through transformers' AttentionInterface
    positions_after_padding: bool = False  # position ids start at pad_token_id + 1, so the limit is that much lower


_ENCODER = Architecture(r"encoder\.layer\.\d+")
_OFFSET_ENCODER = Architecture(r"encoder\.layer\.\d+", positions_after_padding=True)
_DECODER = Architecture(r"layers\.\d+", _always_last)

ARCHITECTURES: Mapping[str, Architecture] = {
    "albert": Architecture(r"encoder\.albert_layer_groups\.\d+\.albert_layers\.\d+"),  # called again for each layer
    "bert": _ENCODER,
    "deberta-v2": Architecture(r"encoder\.layer\.\d+", attention="DisentangledSelfAttention"),
    "distilbert": Architecture(r"transformer\.layer\.\d+"),
    "electra": _ENCODER,
    "gpt2": Architecture(r"h\.\d+", _always_last),
    "llama": _DECODER,
    "modernbert": Architecture(r"layers\.\d+", _modernbert),
    "mpnet": Architecture(r"encoder\.layer\.\d+", attention="MPNetSelfAttention", positions_after_padding=True),
    "qwen2": _DECODER,
    "roberta": _OFFSET_ENCODER,
    "xlm-roberta": _OFFSET_ENCODER,
}


def architecture_of(model: Any) -> Architecture:
    """The row for this model, or UnsupportedModel."""
    found = getattr(getattr(model, "config", None), "model_type", type(model).__name__)
    if found not in ARCHITECTURES:
        raise UnsupportedModel(
            f"{type(model).__name__} has model type {found!r}; supported are {', '.join(ARCHITECTURES)}. "
            "To support another, add a row to ARCHITECTURES in whichtoken/models/architectures.py"
        )
    return ARCHITECTURES[found]
