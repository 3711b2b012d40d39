"""Fingerprints of a model and of its tokenizer or image processor: hashes, recomputed when these change."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from whichtoken.identity import NO_PROCESSOR
from whichtoken.models.quantised import named_tensors
from whichtoken.models.twin import list_named_modules

WIDE = (torch.float32, torch.float64)
SAMPLED = 16  # values of each tensor that show whether it has changed
ADAPTERS = ("active_adapter", "_active_adapter", "_disable_adapters")  # attributes that switch adapters (LoRA) in peft
ATTENTION = "_attn"  # the implementation of attention, which is no part of the configuration that is saved
SCALES = "scaling"  # the attribute that weights them; in other modules it is a number

# What decides how a tokenizer reads a text, besides its vocabulary. Truncation and padding are left out, because every
# call sets them, and so is the decoder, which changes no output of a model.
SETTINGS = ("special_tokens_map", "chat_template", "model_max_length", "model_input_names", "truncation_side")
PARTS = ("normalizer", "pre_tokenizer", "post_processor")  # of the backend
CLASS = "image_processor_type"  # versions of transformers name it differently

_hashes: WeakKeyDictionary[Any, tuple[object, str]] = WeakKeyDictionary()  # state that was hashed, and its hash


def fingerprint(model: Any) -> str:
    """Return a hash of configuration, weights and active adapters. While another thread trains, it may be of weights
    between two steps; it is then recomputed in the next call. A few single values changed through `weight.data` may go
    unnoticed.
    """
    state = (_watched_settings(model), [_describe(tensor, unpacked) for _, tensor, unpacked in named_tensors(model)])
    return _recall(model, state, lambda: _content_hash(model))


def fingerprint_processor(processor: Any) -> str:
    """Return a hash of what a tokenizer or image processor makes of an input; "none" without one. It is the same
    however often the processor was used, and however its files are laid out.
    """
    if processor is None:
        return NO_PROCESSOR
    if not hasattr(processor, "backend_tokenizer"):
        return _hash(_describe_image_processor(processor).encode())
    backend, settings = processor.backend_tokenizer, _describe_tokenizer(processor)
    state = (backend, backend.get_vocab_size(), settings)
    return _recall(processor, state, lambda: _hash_tokenizer(settings, backend))


def _recall(thing: Any, state: object, compute: Callable[[], str]) -> str:
    """Return the hash that was computed for a thing in this state; compute it if there is none."""
    known = _hashes.get(thing)
    if known is None or known[0] != state:
        known = state, compute()
        _hashes[thing] = known
    return known[1]


def _describe_tokenizer(tokenizer: Any) -> str:
    """Return everything that decides how texts become tokens, except the vocabulary and added tokens."""
    settings = {name: getattr(tokenizer, name) for name in SETTINGS}
    splits = getattr(tokenizer, "split_special_tokens", False)
    parts = {name: _describe_part(getattr(tokenizer.backend_tokenizer, name)) for name in PARTS}
    return _as_text({**settings, **parts, "split_special_tokens": splits})


def _hash_tokenizer(settings: str, backend: Any) -> str:
    added = backend.get_added_tokens_decoder()
    described = json.dumps([[number, added[number].__getstate__()] for number in sorted(added)], sort_keys=True)
    return _hash(settings.encode(), described.encode(), backend.model.__getstate__())


def _describe_part(part: Any) -> str | None:
    """Return a part of a tokenizer as JSON. One that is written in Python has none, and counts by its class."""
    try:
        return None if part is None else part.__getstate__().decode()
    except Exception:  # tokenizers raises no error of its own
        return type(part).__name__


def _describe_image_processor(processor: Any) -> str:
    """Return the settings; of a processor that is none of transformers', the name of its class."""
    settings = processor.to_dict() if hasattr(processor, "to_dict") else {"class": type(processor).__name__}
    return _as_text({key: value for key, value in settings.items() if key != CLASS and not key.startswith("_")})


def _as_text(settings: Mapping[str, Any]) -> str:
    """Return settings as text. What is None may be absent in another version of transformers."""
    known = {key: value for key, value in settings.items() if value is not None}
    return json.dumps(known, sort_keys=True, default=str)


def _hash(*parts: bytes) -> str:
    """Return a hash of texts without zero bytes, in order."""
    digest = hashlib.sha256(b"\0".join(parts))
    return f"sha256:{digest.hexdigest()}"


def _describe(tensor: Tensor, unpacked: bool) -> object:
    """Return what changes with a tensor, without reading all of it. Its version alone is not enough: fused optimizers
    do not count their steps there, nor do changes of `weight.data`.
    """
    version = 0 if tensor.is_inference() else tensor._version
    whole = tensor.numel() < SAMPLED  # all its values are sampled
    place = None if unpacked or whole else tensor.data_ptr()  # torch makes unpacked values anew in every call
    return place, version, tensor.dtype, _sample(tensor)


def _sample(tensor: Tensor) -> bytes:
    step = tensor.numel() // SAMPLED + 1
    if tensor.device.type == "cpu" and type(tensor) is Tensor and tensor.dtype in WIDE:
        flat = tensor.detach().numpy().reshape(-1)  # takes fewer steps than torch, and there are many tensors
        return bytes(flat[::step].tobytes())
    return bytes(_bytes(tensor.detach().reshape(-1)[::step]))


def _bytes(tensor: Tensor) -> Any:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data


def _watched_settings(model: Any) -> str:
    """Return what changes with the settings: faster than their text, which leaves out defaults."""
    settings = {key: value for key, value in vars(model.config).items() if not key.startswith(ATTENTION)}
    return repr(settings) + _adapters_text(model)


def _settings_text(model: Any) -> str:
    """Return the configuration, without the version of transformers, and the active adapters, if there are any."""
    settings = model.config.to_diff_dict().items()
    text = repr(sorted((key, value) for key, value in settings if key != "transformers_version"))
    return text + _adapters_text(model)


def _adapters_text(model: Any) -> str:
    modules = ((name, vars(module)) for name, module in list_named_modules(model))
    adapters = [
        (name, key, held[key])
        for name, held in modules
        for key in (*ADAPTERS, SCALES)
        if key in held and (key != SCALES or isinstance(held[key], dict))
    ]
    return repr(adapters) if adapters else ""


def _content_hash(model: Any) -> str:
    digest = hashlib.sha256(_settings_text(model).encode())
    for name, tensor, _ in named_tensors(model):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(_bytes(tensor))
    return f"sha256:{digest.hexdigest()}"
