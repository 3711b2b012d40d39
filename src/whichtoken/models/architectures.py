"""The tables of supported architectures and heads. To add one, add a row here and a tiny model to `tests/tiny.py`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

import torch
from torch import Tensor

from whichtoken.errors import UnsupportedModel


class Readout(StrEnum):
    """Which positions the classification head reads; of two kinds, each as much as the other."""

    FIRST = "first"
    LAST = "last"  # the last token that is not the padding token
    MEAN = "mean"
    FIRST_TWO = "first two"
    FIRST_AND_PATCHES = "first and patches"  # the first, and the mean of the patches


def _always_first(model: Any) -> Readout:
    return Readout.FIRST


def _always_last(model: Any) -> Readout:
    return Readout.LAST


def _modernbert(model: Any) -> Readout:
    return Readout.MEAN if model.config.classifier_pooling == "mean" else Readout.FIRST


def _deit(model: Any) -> Readout:
    """A model with a teacher answers with the mean of two heads, one of them on the distillation token."""
    return Readout.FIRST_TWO if hasattr(model, "distillation_classifier") else Readout.FIRST


def _dinov2(model: Any) -> Readout:
    return Readout.FIRST_AND_PATCHES


@dataclass(frozen=True)
class Architecture:
    """Where things are in one family of models."""

    embeddings: tuple[str, ...]  # the module, below `base_model`, whose output the first block reads; first that exists
    blocks: str  # regular expression for the names, below `base_model`, of the modules that are its blocks
    readout: Callable[[Any], Readout] = _always_first  # of the model
    attention: str | None = None  # class that computes attention itself; None: through transformers' AttentionInterface
    value: str = ""  # in that class, the module that computes what attention mixes
    positions_after_padding: bool = False  # position ids start at pad_token_id + 1, so the limit is that much lower
    positions_in_embeddings: bool = True  # and nowhere else, so a token can be taken out without moving the others
    projection: str = "attention.output.dense"  # module, below a block, that puts the heads together
    norm: str | None = "attention.output.LayerNorm"  # the norm that follows it and the residual; None: norms come first
    scale: str | None = None  # module, below a block, that scales what the projection gives
    feed_forward: str = "output.dense"  # module, below a block, whose output its second residual adds
    reads: Literal["tokens", "pixels"] = "tokens"
    image_sizes: Literal["own", "any"] = "own"  # of the configuration only, or any number of patches


_ENCODER = Architecture(("embeddings",), r"encoder\.layer\.\d+")
_DECODER = Architecture(
    ("embed_tokens",),
    r"layers\.\d+",
    _always_last,
    positions_in_embeddings=False,
    projection="self_attn.o_proj",
    norm=None,
    feed_forward="mlp",
)
_VISION = Architecture(
    ("embeddings",), r"layers\.\d+", projection="attention.o_proj", norm=None, feed_forward="mlp", reads="pixels"
)
_DINOV2 = replace(
    _VISION,
    blocks=r"encoder\.layer\.\d+",
    readout=_dinov2,
    scale="layer_scale1",
    feed_forward="layer_scale2",
    image_sizes="any",
)

# Parameters of an image model's embeddings that are tokens, in the order in which they come before the patches.
PREFIXES = ("cls_token", "distillation_token", "register_tokens")

ARCHITECTURES: Mapping[str, Architecture] = {
    "albert": Architecture(  # its few modules are called again for each layer
        ("encoder.embedding_hidden_mapping_in",),
        r"encoder\.albert_layer_groups\.\d+\.albert_layers\.\d+",
        projection="attention.dense",
        norm="attention.LayerNorm",
        feed_forward="ffn_output",
    ),
    "bert": _ENCODER,
    "deberta-v2": replace(
        _ENCODER, attention="DisentangledSelfAttention", value="value_proj", positions_in_embeddings=False
    ),
    "deit": replace(_VISION, readout=_deit),
    "dinov2": _DINOV2,
    "dinov2_with_registers": _DINOV2,
    "distilbert": Architecture(
        ("embeddings",),
        r"transformer\.layer\.\d+",
        projection="attention.out_lin",
        norm="sa_layer_norm",
        feed_forward="ffn",
    ),
    "electra": replace(_ENCODER, embeddings=("embeddings_project", "embeddings")),
    "gpt2": Architecture(("drop",), r"h\.\d+", _always_last, projection="attn.c_proj", norm=None, feed_forward="mlp"),
    "llama": _DECODER,
    "modernbert": Architecture(
        ("embeddings",),
        r"layers\.\d+",
        _modernbert,
        positions_in_embeddings=False,
        projection="attn.Wo",
        norm=None,
        feed_forward="mlp",
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
    "vit": _VISION,
    "xlm-roberta": replace(_ENCODER, positions_after_padding=True),
}


@dataclass(frozen=True)
class Head:
    """What stands on the body of a model: what it is for, and what it returns."""

    what: str  # in messages
    auto_class: str  # of transformers, that loads such a model
    logits: Callable[[Any, Tensor], Tensor | None]  # of a model's output and the batch's mask
    labels: Callable[[Any], tuple[str, ...]]  # of a configuration
    pools: bool = True  # it reads pooled positions, rather than every token

    def read(self, model: Any, output: Any, mask: Tensor) -> Tensor:
        """Logits, batch first; UnsupportedModel if this model has another head."""
        found = self.logits(output, mask)
        if found is None or (self.pools and found.shape != (len(mask), model.config.num_labels)):
            gives = "no logits" if found is None else f"logits of shape {tuple(found.shape)}"
            kind = self.auto_class.removeprefix("AutoModelFor").removesuffix("Classification").lower()
            wanted = f"a {kind}-classification head ({self.auto_class})"
            raise UnsupportedModel(f"{type(model).__name__} gives {gives}; whichtoken needs {wanted}")
        return found


def _class_logits(output: Any, mask: Tensor) -> Tensor | None:
    found: Tensor | None = getattr(output, "logits", None)
    return found


def _span_logits(output: Any, mask: Tensor) -> Tensor | None:
    """batch 2 token: of starts and of ends. Padding is no answer."""
    ends = torch.stack([output.start_logits, output.end_logits], 1)
    return ends.masked_fill(~mask[:, None], torch.finfo(ends.dtype).min)


def _class_labels(config: Any) -> tuple[str, ...]:
    return tuple(str((config.id2label or {}).get(i, f"LABEL_{i}")) for i in range(config.num_labels))


def _span_labels(config: Any) -> tuple[str, ...]:
    return ("answer",)  # a configuration has two labels then, which mean nothing


_TEXT_CLASSES = Head(
    "a classifier with its tokenizer", "AutoModelForSequenceClassification", _class_logits, _class_labels
)
_IMAGE_CLASSES = Head(
    "an image classifier with its image processor", "AutoModelForImageClassification", _class_logits, _class_labels
)

HEADS: Mapping[str, Head] = {  # by what the names of their classes hold
    "ForSequenceClassification": _TEXT_CLASSES,
    "ForImageClassification": _IMAGE_CLASSES,
    "ForQuestionAnswering": Head(
        "a model that answers questions, with its tokenizer",
        "AutoModelForQuestionAnswering",
        _span_logits,
        _span_labels,
        pools=False,
    ),
}


def head_named(names: Iterable[str], architecture: Architecture | None) -> Head:
    """By names of classes; what no row knows counts as a classifier, and is refused when it gives no logits."""
    found = (head for name in names for part, head in HEADS.items() if part in name)
    pixels = architecture is not None and architecture.reads == "pixels"
    return next(found, _IMAGE_CLASSES if pixels else _TEXT_CLASSES)


def architecture_of(model: Any) -> Architecture:
    """The row for this model, or UnsupportedModel."""
    found = getattr(getattr(model, "config", None), "model_type", type(model).__name__)
    if found not in ARCHITECTURES:
        raise UnsupportedModel(
            f"{type(model).__name__} has model type {found!r}; supported are {', '.join(ARCHITECTURES)}. "
            "To support another, add a row to ARCHITECTURES in whichtoken/models/architectures.py"
        )
    return ARCHITECTURES[found]
