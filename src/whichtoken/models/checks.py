"""Checks of a model and its tokenizer, made before anything is explained."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, get_args

from torch import nn

from whichtoken.errors import BadInput, BadSetting, UnsupportedModel, UsageError, show
from whichtoken.models.architectures import Head
from whichtoken.models.encoding import Document
from whichtoken.models.twin import list_modules, list_named_modules
from whichtoken.records import Reading

# The attribute in which a wrapper keeps the model, by the name of the wrapper's class.
WRAPPERS = {"OptimizedModule": "_orig_mod", "DataParallel": "module", "DistributedDataParallel": "module"}
FITTING = "use the tokenizer that the model was trained with"


def unwrap(model: Any) -> Any:
    """Return the model inside the wrapper of torch.compile or of parallel training, which share its weights.

    Rules for relevance do not see the operations of a compiled module, so those inside a model are refused.
    """
    if not isinstance(model, nn.Module):
        raise BadSetting("model", type(model).__name__, "a model of transformers: wt.Subject(model, processor)")
    while (inner := WRAPPERS.get(type(model).__name__)) is not None:
        model = getattr(model, inner)
    compiled = next(
        (name for name, module in list_named_modules(model) if type(module).__name__ == "OptimizedModule"), None
    )
    if compiled is not None:
        fix = "compile it with its own method, module.compile(), or give the model as it was before"
        raise UnsupportedModel(f"{type(model).__name__}: {compiled} was replaced by torch.compile(module); {fix}")
    return model


def check_values(model: Any) -> None:
    """Raise UnsupportedModel if some of the model's tensors are on the meta device, which stores no values."""
    held = (tensors.values() for module in list_modules(model) for tensors in (module._parameters, module._buffers))
    if not any(tensor is not None and tensor.is_meta for tensors in held for tensor in list(tensors)):
        return
    tensors = list(chain(model.named_parameters(), model.named_buffers()))
    empty = [name for name, tensor in tensors if tensor.is_meta]
    raise UnsupportedModel(
        f"{len(empty)} of the {len(tensors)} tensors of {type(model).__name__} are on the meta device, which "
        f"stores no values (the first is {empty[0]}); load all weights into memory: wt.load(folder), or "
        "from_pretrained without offloading"
    )


def count_embeddings(model: Any) -> int | None:
    """Return how many token ids the model has embeddings for; None if it reads images."""
    count: int | None = getattr(model.get_input_embeddings(), "num_embeddings", None)
    return count


def check_vocabulary(tokenizer: Any) -> None:
    """Raise UsageError if the tokenizer has no vocabulary, or settings of the wrong type, as a file may contain."""
    for name, kinds in (("model_max_length", (int, float)), ("model_input_names", (list, tuple))):
        if not isinstance(value := getattr(tokenizer, name), kinds):
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise UsageError(f"{name} of {type(tokenizer).__name__} is {value!r:.40}; expected {expected}")
    special = {None, *tokenizer.all_special_tokens, *tokenizer.get_added_vocab()}
    if all(tokenizer.convert_ids_to_tokens(i) in special for i in range(len(tokenizer))):
        files = " or ".join(dict.fromkeys(["tokenizer.json", *tokenizer.vocab_files_names.values()]))
        raise UsageError(
            f"{type(tokenizer).__name__} knows no tokens except special tokens ({files} was missing when it was "
            "loaded); save the tokenizer used in training next to the model: tokenizer.save_pretrained(folder)"
        )


def check_fit(model: Any, tokenizer: Any, documents: Sequence[Document], first: int) -> None:
    """Raise UsageError if the tokenizer has a larger vocabulary than the model, and BadInput for a text with a token
    that was added later and has no embedding. `first` is the index of the first document.
    """
    count = count_embeddings(model)
    if count is None:
        return
    if tokenizer.vocab_size > count:  # without added tokens, which do no harm until a text has one
        found = (
            f"{type(tokenizer).__name__} has {tokenizer.vocab_size} tokens, but the model has embeddings for {count}"
        )
        raise UsageError(f"{found}; {FITTING}")
    for index, document in enumerate(documents, first):
        for token, i in zip(document.tokens, document.ids, strict=True):
            if i >= count:
                found = f"token {token!r} has id {i}, but the model has embeddings for {count} tokens"
                raise BadInput(f": {found}; {FITTING}", index=index)


def check_batch_size(size: Any) -> None:
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise BadSetting("batch_size", size, "a whole number, at least 1; leave it out for the fastest")


def check_eval(model: nn.Module) -> None:
    training = next((name or type(model).__name__ for name, m in list_named_modules(model) if m.training), None)
    if training is not None:
        problem = f"the model is in training mode (module {training}), so its output is random"
        raise UsageError(f"{problem}; call model.eval()")


def check_reading(reading: Any, single: bool, title: str) -> None:
    """`single`: whether the model has a single output, which alone can be read in two ways."""
    if reading not in (None, *get_args(Reading)):
        raise BadSetting("reading", reading, "None, 'probability' or 'value'")
    if reading is not None and not single:
        raise BadSetting(
            "reading", reading, f"None: only a single output can be read in two ways, and {title} has another head"
        )


def check_tokenizer(model: Any, tokenizer: Any, positions_after_padding: bool) -> None:
    if not getattr(tokenizer, "is_fast", False):
        name = type(tokenizer).__name__
        raise UsageError(f"{name} is not a fast tokenizer; character offsets need one: use AutoTokenizer")
    check_vocabulary(tokenizer)
    if positions_after_padding and model.config.pad_token_id is None:
        raise UnsupportedModel(f"{type(model).__name__} counts positions from config.pad_token_id, which is None")


def check_head(head: Head, model: Any, title: str, *, is_causal: bool) -> None:
    """Raise UnsupportedModel for an encoder that predicts tokens, and UsageError if names of labels have numbers that
    the model does not have: all labels would be called something else.
    """
    if head.generates and not is_causal:
        raise UnsupportedModel(
            f"{title} is a language model ({type(model).__name__}) of an encoder; supported are decoders, such as gpt2 "
            "and llama"
        )
    named, count = getattr(model.config, "id2label", None), getattr(model.config, "num_labels", 0)
    if head.has_named_labels and named and (unnamed := set(range(count)) - set(named)):
        found = f"id2label in the config.json of {title} has no name for label {min(unnamed)}, but names for"
        raise UsageError(f"{found} {', '.join(map(show, named))}; expected 0 to {count - 1}")
