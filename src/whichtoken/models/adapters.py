"""Adapters of peft (LoRA and its relatives): find the model inside, merge them into a twin, load them from a folder."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from whichtoken.boundary import read_text, while_reading
from whichtoken.decode import parse_json
from whichtoken.errors import UnsupportedModel, UsageError, show

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
CLASSES = {  # the end of the class that an adapter was trained with, by its task type
    "SEQ_CLS": "ForSequenceClassification",
    "QUESTION_ANS": "ForQuestionAnswering",
    "TOKEN_CLS": "ForTokenClassification",
    "CAUSAL_LM": "ForCausalLM",
    "SEQ_2_SEQ_LM": "ForConditionalGeneration",
    "FEATURE_EXTRACTION": "Model",
}
OUTPUTS = ("classifier.out_proj", "classifier", "score", "qa_outputs")  # modules whose rows are labels
PREFIX = "base_model.model."  # of the names of weights in an adapter's file
PROMPTS = (
    "adds virtual tokens to every input, which have no place in an explanation of its tokens; adapters of weights, "
    "such as LoRA, are supported"
)


def unwrap_adapters(model: Any) -> Any:
    """Return the model that peft wrapped. Its layers contain the adapters, so its output is that of the wrapper."""
    wrappers = [getattr(sys.modules.get("peft"), name, ()) for name in ("PeftModel", "PeftMixedModel")]
    if not any(isinstance(model, wrapper) for wrapper in wrappers):
        return model
    for config in model.peft_config.values():
        check_prompts(type(model).__name__, config)
    inner = model.base_model.model
    for wrapper in (model, model.base_model):
        if wrapper._forward_hooks or wrapper._forward_pre_hooks:
            raise UnsupportedModel(
                f"{type(wrapper).__name__} has a hook, which is not run, because the {type(inner).__name__} inside is "
                "explained; register it there: model.get_base_model()"
            )
    return inner


def check_prompts(name: str, config: Any) -> None:
    """Raise UnsupportedModel if an adapter changes the inputs instead of weights."""
    if config.is_prompt_learning or str(config.peft_type).rpartition(".")[2] == "ADAPTION_PROMPT":
        raise UnsupportedModel(f"{name}: {str(config.peft_type).rpartition('.')[2]} {PROMPTS}")


def merge_adapters(twin: Any) -> Any:
    """Replace, in a twin, layers with adapters by plain layers whose weights include those of the active adapters.

    Some rules of relevance propagation depend on the signs of weights, so a sum of two layers would give other
    relevance than the one layer that it is. The weights of these layers are copied, because a twin shares all others
    with the user's model. Layers with hooks inside, and quantised ones, stay as they are.
    """
    tuners = sys.modules.get("peft.tuners.tuners_utils")
    if tuners is None:
        return twin
    layers = [(name, module) for name, module in twin.named_modules() if isinstance(module, tuners.BaseTunerLayer)]
    merged: dict[int, nn.Module] = {}
    for name, layer in layers:
        with suppress(AttributeError):  # of a layer inside one that was replaced
            if twin.get_submodule(name) is layer and _is_mergeable(layer):
                merged[id(layer)] = _merge(layer)
    for name, layer in list(twin.named_modules(remove_duplicate=False)):
        if id(layer) in merged:
            twin.set_submodule(name, merged[id(layer)])
    return twin


def _is_mergeable(layer: Any) -> bool:
    if any(module._forward_hooks or module._forward_pre_hooks for module in layer.modules()):
        return False
    tensors = list(layer.base_layer.parameters()) if hasattr(layer, "base_layer") else []
    plain = all(type(tensor) is nn.Parameter and tensor.is_floating_point() for tensor in tensors)
    return bool(tensors) and plain and getattr(layer, "quantization_backend", None) is None


def _merge(layer: Any) -> nn.Module:
    """Return the layer inside, with its own copy of the weights that the layer's forward pass would use."""
    base: nn.Module = layer.base_layer
    for module in base.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = nn.Parameter(parameter.data.clone(), requires_grad=False)
    with torch.no_grad():
        if layer.disable_adapters and layer.merged:
            layer.unmerge()
        elif not layer.disable_adapters and not layer.merged:
            layer.merge()
    return base


@dataclass(frozen=True)
class Adapter:
    """An adapter in a folder."""

    folder: Path
    config: Any  # of peft
    shapes: Mapping[str, tuple[int, ...]]  # of its weights, by their names in the base model

    @property
    def base(self) -> str | Path:
        """The folder of its base model, relative to the adapter's own or as it is, or a hub name."""
        name: str = self.config.base_model_name_or_path
        places = (self.folder / name, Path(name))
        return next((place for place in places if (place / "config.json").is_file()), name)

    def class_names(self, of_base: Sequence[str]) -> Sequence[str]:
        """Return the class that it adapts; the base may be stored with another head. `of_base`: how it is stored."""
        task = str(self.config.task_type).rpartition(".")[2]
        if task in CLASSES:
            return [CLASSES[task]]
        return [] if self.n_labels is not None else of_base  # by default a classifier

    @property
    def n_labels(self) -> int | None:
        """The number of labels of the head that was saved with it; None if there is none."""
        found = (self.shapes.get(f"{module}.weight") for module in OUTPUTS)
        return next((shape[0] for shape in found if shape), None)

    def merge_into(self, model: Any) -> Any:
        """Return the base model with the adapter merged into its weights."""
        adapted = import_module("peft").PeftModel(model, self.config)
        result = adapted.load_adapter(str(self.folder), "default", torch_device="cpu")
        wrong = [*result.missing_keys, *result.unexpected_keys]
        if wrong:
            raise UsageError(
                f"{self.folder} does not fit its base model {self.base}: {wrong[0]} is only in one of them"
            )
        return adapted.merge_and_unload().to(model.dtype)


def import_peft(title: str) -> Any:
    try:
        return import_module("peft")
    except ImportError as error:
        raise UsageError(f"{title!r} has an adapter, which needs peft: pip install 'whichtoken[peft]'") from error


def read_adapter(folder: Path) -> Adapter:
    """Read what an adapter is; UsageError if peft is not installed."""
    peft = import_peft(str(folder))
    path, again = folder / CONFIG, "save the adapter again: model.save_pretrained(folder)"
    with while_reading(path, UsageError):
        settings = parse_json(read_text(path, UsageError))
    if not isinstance(settings, dict):
        raise UsageError(f"{path} is not the configuration of an adapter; {again}")
    if settings.get("peft_type") not in list(peft.PeftType):
        raise UsageError(f"{path} has peft_type {show(settings.get('peft_type'))}, which peft does not know; {again}")
    if not isinstance(settings.get("base_model_name_or_path"), str):
        raise UsageError(f"{path} does not name the base model of the adapter; set base_model_name_or_path there")
    with while_reading(path, UsageError):
        config = peft.PeftConfig.from_peft_type(**{**settings, "inference_mode": True})
    check_prompts(str(folder), config)
    return Adapter(folder, config, _read_shapes(folder))


def _read_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    file = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if file is None:
        raise UsageError(f"{folder} has {CONFIG}, but no {WEIGHTS[0]}; save the adapter again: save_pretrained(folder)")
    with while_reading(file, UsageError):
        return {name.removeprefix(PREFIX): shape for name, shape in read_shapes(file).items()}


def read_shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors in a file of weights."""
    if file.suffix == ".bin":
        stored = torch.load(file, map_location="cpu", weights_only=True)
        return {name: tuple(value.shape) for name, value in stored.items() if isinstance(value, Tensor)}
    with safe_open(file, "pt") as weights:
        return {name: tuple(weights.get_slice(name).get_shape()) for name in weights.keys()}  # noqa: SIM118
