"""Turn requests into what the library reads: inputs, targets, methods and records, each checked against the limits."""

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from whichtoken._explain import check_keyword
from whichtoken.core.registry import resolve_methods
from whichtoken.core.trace import Method
from whichtoken.data.examples import check_texts
from whichtoken.data.prompts import Prompt, list_prompts
from whichtoken.decode import check_plain
from whichtoken.errors import BadInput, BadSetting, UsageError
from whichtoken.models.images import open_image
from whichtoken.records import Attribution
from whichtoken.targets import AnswerRequest, Contrast, Generation
from whichtoken.web.facts import describe_reason
from whichtoken.web.limits import Limits, too_large
from whichtoken.web.schema import (
    AnyInput,
    ExplainRequest,
    ImageInput,
    PairInput,
    PredictRequest,
    PromptInput,
    QuestionInput,
    TextInput,
)
from whichtoken.web.served import Served


def read_input(model: Served, asked: AnyInput, limits: Limits) -> Any:
    """Return the input as `explain` reads it. UsageError if the model reads another kind."""
    keyword, read = READERS[type(asked)]
    if keyword not in model.task.keywords:
        check_keyword(model.subject, keyword)
        raise UsageError(f"{model.id} {model.task.describe_purpose()}; send an input of another kind")
    return read(asked, limits)


def _read_texts(texts: Sequence[str], limits: Limits) -> Any:
    length = sum(map(len, texts))
    if length > limits.text_characters:
        raise too_large("the text", length, limits.text_characters, "characters")
    checked = check_texts(tuple(texts), "the text")
    return checked if len(checked) > 1 else checked[0]


def _read_image(asked: ImageInput, limits: Limits) -> Any:
    n_bytes = len(asked.data) * 3 // 4
    if n_bytes > limits.image_bytes:
        raise too_large("the image", n_bytes, limits.image_bytes, "bytes")
    try:
        data = base64.b64decode(asked.data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadInput("the image is not base64; send the bytes of an image file") from error
    image = open_image(data)
    if image.width * image.height > limits.image_pixels:
        raise too_large("the image", image.width * image.height, limits.image_pixels, "pixels")
    return image


def _read_prompt(asked: PromptInput, limits: Limits) -> Prompt:
    if asked.tokens > limits.answer_tokens:
        raise too_large("the answer", asked.tokens, limits.answer_tokens, "tokens")
    length = len(asked.prompt) + len(asked.continuation or "") + len(asked.foil or "")
    if length > limits.text_characters:
        raise too_large("the prompt", length, limits.text_characters, "characters")
    (prompt,) = list_prompts(asked.prompt, asked.continuation)
    return prompt


READERS: Mapping[type, tuple[str, Callable[[Any, Limits], Any]]] = {
    TextInput: ("texts", lambda asked, limits: _read_texts([asked.text], limits)),
    PairInput: ("texts", lambda asked, limits: _read_texts([asked.text, asked.pair], limits)),
    QuestionInput: ("question", lambda asked, limits: _read_texts([asked.question, asked.context], limits)),
    ImageInput: ("images", _read_image),
    PromptInput: ("prompt", _read_prompt),
}


def _answer_request(asked: AnyInput) -> AnswerRequest | None:
    """Return what is explained about the answer to a prompt; None for other inputs."""
    if not isinstance(asked, PromptInput):
        return None
    how = Generation(asked.tokens) if asked.continuation is None else None
    return AnswerRequest(how, asked.rows if asked.foil is None else "answer", foil=asked.foil)


def read_target(model: Served, asked: ExplainRequest | PredictRequest) -> Any:
    """Return the target in the task's own form, checked."""
    given, answer = asked.target, _answer_request(asked.input)
    wanted: Any = None
    if given is not None:
        wanted = given.label if given.rather_than is None else Contrast(given.label, given.rather_than)
    checked = model.task.target(wanted)
    if answer is not None:
        checked = model.task.for_answer(checked, answer)
    return checked if asked.token is None else model.task.for_token(checked, asked.token)


def read_methods(model: Served, names: Sequence[str] | None, limits: Limits) -> dict[str, Method]:
    """Return the methods by name; UsageError if one is unknown, or this model cannot run it."""
    given = [model.task.choose_method(1)] if names is None else list(dict.fromkeys(names))
    if len(given) > limits.methods:
        raise BadSetting("methods", f"{len(given)} methods", f"at most {limits.methods} at once")
    resolved = resolve_methods(given)
    for name, built in resolved.items():
        if (reason := describe_reason(model.task.can_run(built))) is not None:
            raise UsageError(f"{name} cannot run here: {reason}")
    return resolved


def read_records(parsed: list[Any], limits: Limits) -> list[Attribution]:
    if not parsed:
        raise BadInput("there are no records; send at least one")
    if len(parsed) > limits.records:
        raise too_large("the request", len(parsed), limits.records, "records")
    check_plain(parsed)
    return [Attribution.from_json(json.dumps(record)) for record in parsed]
