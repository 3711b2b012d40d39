"""The table of supported architectures. To add one, add a row here and a tiny model to `tests/tiny.py`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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

    embeddings: tuple[str, ...]  # the module, below `base_model`, whose output the first block reads; first that exists
    blocks: str  # regular expression for the names, below `base_model`, of the modules that are its blocks
    readout: Callable[[Any], Readout] = _always_first
    attention: str | None = None  # class that computes attention itself; None: through transformers' AttentionInterface
    value: str = ""  # in that class, the module that computes what attention mixes
    positions_after_padding: bool = False  # position ids start at pad_token_id + 1, so the limit is that much lower
    positions_in_embeddings: bool = True  # and nowhere else, so a token can be taken out without moving the others
    projection: str = "attention.output.dense"  # module, below a block, that puts the heads together
    norm: str | None = "attention.output.LayerNorm"  # the norm that follows it and the residual; None: norms come first
    images: bool = False


_ENCODER = Architecture(("embeddings",), r"encoder\.layer\.\d+")
_DECODER = Architecture(
    ("embed_tokens",),
    r"layers\.\d+",
    _always_last,
    positions_in_embeddings=False,
    projection="self_attn.o_proj",
    norm=None,
)

ARCHITECTURES: Mapping[str, Architecture] = {
    "albert": Architecture(  # its few modules are called again for each layer
        ("encoder.embedding_hidden_mapping_in",),
        r"encoder\.albert_layer_groups\.\d+\.albert_layers\.\d+",
        projection="attention.dense",
        norm="attention.LayerNorm",
    ),
    "bert": _ENCODER,
    "deberta-v2": replace(
        _ENCODER, attention="DisentangledSelfAttention", value="value_proj", positions_in_embeddings=False
    ),
    "distilbert": Architecture(
        ("embeddings",), r"transformer\.layer\.\d+", projection="attention.out_lin", norm="sa_layer_norm"
    ),
    "electra": replace(_ENCODER, embeddings=("embeddings_project", "embeddings")),
    "gpt2": Architecture(("drop",), r"h\.\d+", _always_last, projection="attn.c_proj", norm=None),
    "llama": _DECODER,
    "modernbert": Architecture(
        ("embeddings",),
        r"layers\.\d+",
        _modernbert,
        positions_in_embeddings=False,
        projection="attn.Wo",
        norm=None,
    ),
    "mpnet": replace(
        _ENCODER,
        attention="MPNetSelfAttention",
        value="v",
        positions_after_padding=True,
        positions_in_embeddings=False,
        projection="attention.attn.o",
        norm="attention.LayerNorm",
    ),
    "qwen2": _DECODER,
    "roberta": replace(_ENCODER, positions_after_padding=True),
    "vit": Architecture(("embeddings",), r"layers\.\d+", projection="attention.o_proj", norm=None, images=True),
    "xlm-roberta": replace(_ENCODER, positions_after_padding=True),
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
