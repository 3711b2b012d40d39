"""as_subject: whatever a public function accepts as its subject becomes a Subject, here and nowhere else."""

from pathlib import Path
from typing import Any, Protocol, TypeAlias

from torch import nn

from whichtoken.errors import BadSetting, UnsupportedModel, with_article
from whichtoken.models.loading import load
from whichtoken.models.subject import Subject


class Pipeline(Protocol):
    """What is read of a pipeline of transformers."""

    task: Any
    model: Any
    tokenizer: Any
    image_processor: Any


AnySubject: TypeAlias = Subject | Pipeline | tuple[Any, Any] | list[Any] | str | Path
PAIR = "(model, tokenizer)"
ALLOWED = (
    f"a Subject: wt.load(name), or wt.Subject(model, processor); or a pipeline, a pair {PAIR}, a folder or a hub name"
)


def as_subject(given: AnySubject) -> Subject:
    """Return a subject as it is. Open a pipeline of transformers, a pair (model, processor), a folder or a hub name.

    A folder or a hub name is loaded at every call; to explain more than once, keep what `whichtoken.load` returns.
    """
    if isinstance(given, Subject):
        return given
    if isinstance(given, str | Path):
        return load(given)
    if isinstance(given, tuple | list) and len(given) == 2 and any(isinstance(part, nn.Module) for part in given):
        if isinstance(given[0], nn.Module):
            return Subject(*given)
        raise BadSetting("subject", "a pair", f"{PAIR}, in this order")
    if _is_pipeline(given):
        return _open_pipeline(given)
    kind = type(given).__name__
    if isinstance(given, nn.Module):
        raise BadSetting(
            "subject",
            kind,
            f"a model with its tokenizer or image processor: {PAIR}, wt.Subject(model, processor) or wt.load(folder)",
        )
    raise BadSetting("subject", kind, ALLOWED)


def _is_pipeline(given: Any) -> bool:
    from transformers import Pipeline  # not at the top: it imports every kind of pipeline

    return isinstance(given, Pipeline)


def _open_pipeline(pipe: Any) -> Subject:
    """Return the model of a pipeline with its tokenizer or image processor, whatever the pipeline's task."""
    named = with_article(f"{pipe.task} pipeline")
    if pipe.task == "zero-shot-classification":
        raise UnsupportedModel(
            f"{named} reads pairs of a text and a hypothesis about it; explain such a pair with its "
            "model: wt.explain((pipe.model, pipe.tokenizer), [(text, hypothesis)])"
        )
    try:
        return Subject(pipe.model, pipe.tokenizer or pipe.image_processor)
    except UnsupportedModel as error:
        raise UnsupportedModel(f"{named}: {error}") from error
