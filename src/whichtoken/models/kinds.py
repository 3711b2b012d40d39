"""Models of other kinds, named as what they are instead of being read as classifiers."""

from collections.abc import Mapping, Sequence
from typing import Any

import transformers

from whichtoken.errors import UnsupportedModel
from whichtoken.models.architectures import HEADS

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
