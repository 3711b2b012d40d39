"""The fingerprint of a model: a hash of its configuration and weights, recomputed when they change."""

import hashlib
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from whichtoken.models.modules import list_named_modules
from whichtoken.models.quantised import named_tensors

WIDE = (torch.float32, torch.float64)
SAMPLED = 16  # values of each tensor that show whether it has changed
ADAPTERS = ("active_adapter", "_active_adapter", "_disable_adapters")  # attributes that switch adapters (LoRA) in peft
ATTENTION = "_attn"  # the implementation of attention, which is no part of the configuration that is saved
SCALES = "scaling"  # the attribute that weights them; in other modules it is a number

_hashes: WeakKeyDictionary[nn.Module, tuple[object, str]] = WeakKeyDictionary()  # state that was hashed, and its hash


def fingerprint(model: Any) -> str:
    """Return a hash of configuration, weights and active adapters. While another thread trains, it may be of weights
    between two steps; it is then recomputed in the next call. A few single values changed through `weight.data` may go
    unnoticed.
    """
    state = (_watched_settings(model), [_describe(tensor, unpacked) for _, tensor, unpacked in named_tensors(model)])
    known = _hashes.get(model)
    if known is None or known[0] != state:
        known = state, _content_hash(model)
        _hashes[model] = known
    return known[1]


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
