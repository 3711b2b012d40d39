"""Tables of the supported architectures and heads. To add one, add a row here and a tiny model to `tests/tiny.py`."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

import torch
import transformers
from torch import Tensor

from whichtoken.errors import UnsupportedModel


class Readout(StrEnum):
    """The positions that the classification head reads; if there are several kinds, they have equal weight."""

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
    """Return FIRST_TWO for a distilled model, whose logits are the mean of two heads, one on the distillation token."""
    return Readout.FIRST_TWO if hasattr(model, "distillation_classifier") else Readout.FIRST


def _dinov2(model: Any) -> Readout:
    return Readout.FIRST_AND_PATCHES


@dataclass(frozen=True)
class Architecture:
    """Where one family of models keeps its embeddings, blocks, attention and norms."""

    embeddings: tuple[str, ...]  # modules below `base_model`; the first that exists feeds the first block
    blocks: str  # regular expression for the names of the blocks below `base_model`
    readout: Callable[[Any], Readout] = _always_first  # takes the model
    attention: str | None = None  # class that computes attention itself; None: transformers' AttentionInterface does
    value: str = ""  # in that class, the module that computes the values
    positions_after_padding: bool = False  # position ids start at pad_token_id + 1, which lowers the length limit
    positions_in_embeddings: bool = True  # only there, so a token can be removed without moving the others
    query: str | None = None  # module below a block that computes the tokens' queries, and nothing else
    projection: str = "attention.output.dense"  # output projection of the heads: a module below a block
    norm: str | None = "attention.output.LayerNorm"  # norm after the projection and residual; None: pre-norm model
    scale: str | None = None  # module below a block that scales the projection's output
    feed_forward: str = "output.dense"  # module below a block whose output the second residual adds
    reads: Literal["tokens", "pixels"] = "tokens"
    image_sizes: Literal["own", "any"] = "own"  # the configuration's size only, or any number of patches
    branch_norm: bool = False  # a norm follows the projection before the residual adds it, so no linear map does
    causal: bool = False  # a token only attends to those before it, so the model can generate texts


_ENCODER = Architecture(("embeddings",), r"encoder\.layer\.\d+", query="attention.self.query")
_DECODER = Architecture(
    ("embed_tokens",),
    r"layers\.\d+",
    _always_last,
    positions_in_embeddings=False,
    query="self_attn.q_proj",
    projection="self_attn.o_proj",
    norm=None,
    feed_forward="mlp",
    causal=True,
)
_DECODER_OF_NORMS = replace(_DECODER, feed_forward="post_feedforward_layernorm", branch_norm=True)
_VISION = Architecture(
    ("embeddings",),
    r"layers\.\d+",
    query="attention.q_proj",
    projection="attention.o_proj",
    norm=None,
    feed_forward="mlp",
    reads="pixels",
)
_DINOV2 = replace(
    _VISION,
    blocks=r"encoder\.layer\.\d+",
    readout=_dinov2,
    scale="layer_scale1",
    feed_forward="layer_scale2",
    image_sizes="any",
)

# Parameters of an image model's embeddings that are tokens, in their order before the patches.
PREFIXES = ("cls_token", "distillation_token", "register_tokens")

ARCHITECTURES: Mapping[str, Architecture] = {
    "albert": Architecture(  # its modules are shared: each is called for several layers
        ("encoder.embedding_hidden_mapping_in",),
        r"encoder\.albert_layer_groups\.\d+\.albert_layers\.\d+",
        query="attention.query",
        projection="attention.dense",
        norm="attention.LayerNorm",
        feed_forward="ffn_output",
    ),
    "bert": _ENCODER,
    "deberta-v2": replace(
        _ENCODER,
        attention="DisentangledSelfAttention",
        value="value_proj",
        positions_in_embeddings=False,
        query=None,  # positions have queries, too
    ),
    "deit": replace(_VISION, readout=_deit),
    "dinov2": _DINOV2,
    "dinov2_with_registers": _DINOV2,
    "distilbert": Architecture(
        ("embeddings",),
        r"transformer\.layer\.\d+",
        query="attention.q_lin",
        projection="attention.out_lin",
        norm="sa_layer_norm",
        feed_forward="ffn",
    ),
    "electra": replace(_ENCODER, embeddings=("embeddings_project", "embeddings")),
    "gemma": _DECODER,
    "gemma2": _DECODER_OF_NORMS,
    "gemma3_text": _DECODER_OF_NORMS,
    "gpt2": Architecture(
        ("drop",), r"h\.\d+", _always_last, projection="attn.c_proj", norm=None, feed_forward="mlp", causal=True
    ),
    "llama": _DECODER,
    "mistral": _DECODER,
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
        query="attention.attn.q",
        projection="attention.attn.o",
        norm="attention.LayerNorm",
    ),
    "olmo2": _DECODER_OF_NORMS,
    "phi3": replace(_DECODER, query=None),
    "qwen2": _DECODER,
    "qwen3": _DECODER,
    "roberta": replace(_ENCODER, positions_after_padding=True),
    "smollm3": _DECODER,
    "vit": _VISION,
    "xlm-roberta": replace(_ENCODER, positions_after_padding=True),
}


@dataclass(frozen=True)
class Head:
    """The head of a model: its purpose, and how to read its output."""

    what: str  # description for error messages
    auto_class: str  # the transformers class that loads such a model
    logits: Callable[[Any, Tensor], Tensor | None]  # takes the model's output and the batch's mask
    labels: Callable[[Any], tuple[str, ...]]  # takes the configuration
    pools: bool = True  # the head reads pooled positions, not every token
    generates: bool = False  # the labels are the tokens of the vocabulary

    @property
    def has_named_labels(self) -> bool:
        """Whether the configuration names the labels."""
        return self.labels is _class_labels

    def read(self, model: Any, output: Any, mask: Tensor) -> Tensor:
        """Return the logits, batch first; raise UnsupportedModel if this model has another head."""
        logits = self.logits(output, mask)
        if logits is None or (self.pools and logits.shape != (len(mask), model.config.num_labels)):
            returned = "no logits" if logits is None else f"logits of shape {tuple(logits.shape)}"
            kind = self.auto_class.removeprefix("AutoModelFor").removesuffix("Classification").lower()
            needed = f"a {kind}-classification head ({self.auto_class})"
            raise UnsupportedModel(f"{type(model).__name__} returns {returned}; whichtoken needs {needed}")
        return logits


def _class_logits(output: Any, mask: Tensor) -> Tensor | None:
    logits: Tensor | None = getattr(output, "logits", None)
    return logits


def _span_logits(output: Any, mask: Tensor) -> Tensor | None:
    """Return the logits of start and end (batch 2 token), lowest at padding, which cannot be an answer."""
    ends = torch.stack([output.start_logits, output.end_logits], 1)
    return ends.masked_fill(~mask[:, None], torch.finfo(ends.dtype).min)


def _class_labels(config: Any) -> tuple[str, ...]:
    """Return the names of the labels; those that share a name, as two of ImageNet do, get their numbers behind it."""
    names = [str((config.id2label or {}).get(i, f"LABEL_{i}")) for i in range(config.num_labels)]
    while len(set(names)) < len(names):
        counts = Counter(names)
        names = [f"{name} ({i})" if counts[name] > 1 else name for i, name in enumerate(names)]
    return tuple(names)


def _span_labels(config: Any) -> tuple[str, ...]:
    return ("answer",)  # the labels of the configuration have no meaning


_TEXT_CLASSES = Head(
    "a classifier with its tokenizer", "AutoModelForSequenceClassification", _class_logits, _class_labels
)
_IMAGE_CLASSES = Head(
    "an image classifier with its image processor", "AutoModelForImageClassification", _class_logits, _class_labels
)

_LANGUAGE = Head(
    "a language model with its tokenizer",
    "AutoModelForCausalLM",
    _class_logits,  # batch place vocabulary
    _span_labels,
    pools=False,
    generates=True,
)

HEADS: Mapping[str, Head] = {  # by a part of the model's class name
    "ForSequenceClassification": _TEXT_CLASSES,
    "ForImageClassification": _IMAGE_CLASSES,
    "ForQuestionAnswering": Head(
        "a question-answering model with its tokenizer",
        "AutoModelForQuestionAnswering",
        _span_logits,
        _span_labels,
        pools=False,
    ),
    "ForTokenClassification": Head(
        "a token classifier with its tokenizer",
        "AutoModelForTokenClassification",
        _class_logits,  # batch token label
        _class_labels,
        pools=False,
    ),
    "ForCausalLM": _LANGUAGE,
    "LMHeadModel": _LANGUAGE,
}


def find_head(names: Iterable[str], architecture: Architecture | None) -> Head:
    """Return the head for these class names; by default a classifier, which is rejected later if it has no logits."""
    matches = (head for name in names for part, head in HEADS.items() if part in name)
    pixels = architecture is not None and architecture.reads == "pixels"
    return next(matches, _IMAGE_CLASSES if pixels else _TEXT_CLASSES)


def find_architecture(model: Any) -> Architecture:
    """Return the architecture of this model, or raise UnsupportedModel."""
    name = type(model).__name__
    return architecture_named(getattr(getattr(model, "config", None), "model_type", name), name)


def architecture_named(model_type: str, name: str) -> Architecture:
    """Return the architecture of a model type, or raise UnsupportedModel. `name`: of a class, for the message."""
    if model_type not in ARCHITECTURES:
        raise UnsupportedModel(
            f"{name} has model type {model_type!r}; supported are {', '.join(ARCHITECTURES)}. "
            "To support another, add a row to ARCHITECTURES in whichtoken/models/architectures.py"
        )
    return ARCHITECTURES[model_type]


# Models of other kinds, named as what they are instead of being read as classifiers.

EMBEDDING = "an embedding model ({}) without a classification head"
# What a model is, by the end of its class name. A kind that becomes supported gets a row in HEADS and loses this one.
OTHER_KINDS: Mapping[str, str] = {
    "EncoderModel": EMBEDDING,
    "ForMaskedLM": "a masked language model ({})",
    "ForMaskedImageModeling": "a model of masked images ({})",
    "ForPreTraining": "a model with the heads of its pre-training ({})",
    "ForMultipleChoice": "a multiple-choice model ({})",
    "ForNextSentencePrediction": "a model of the next sentence ({})",
    "ForConditionalGeneration": "a model that generates text ({})",
    "ForObjectDetection": "an object detector ({})",
    "ForSemanticSegmentation": "a model that segments images ({})",
    "ForAudioClassification": "an audio classifier ({})",
}


def check_kind(title: str, names: Sequence[str], config: Any) -> None:
    """Raise UnsupportedModel if a model is of another kind. `names`: of its class, then of those it inherits from."""
    if not names or any(part in name for name in names for part in HEADS):
        return
    kind = _describe(names[0], config)
    if kind is not None:
        raise UnsupportedModel(
            f"{title} is {kind}; supported are classes with {', '.join(HEADS)} in their names: fine-tune it as one of "
            "these, or give another model"
        )


def _describe(name: str, config: Any) -> str | None:
    generates = name.endswith(("ForConditionalGeneration", "Model")) and not name.endswith("EncoderModel")
    if generates and getattr(config, "is_encoder_decoder", False):
        return f"an encoder-decoder ({name})"
    for ending, kind in OTHER_KINDS.items():
        if name.endswith(ending):
            return kind.format(name)
    is_body = name.endswith("Model") and not name.endswith("PreTrainedModel") and hasattr(transformers, name)
    return EMBEDDING.format(name) if is_body else None
