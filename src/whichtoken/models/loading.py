"""Load a model and its tokenizer or image processor from a folder or from the hub, or load the default model."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer
from transformers.models.auto.tokenization_auto import get_tokenizer_config, tokenizer_class_from_name
from transformers.utils import logging

from whichtoken.errors import BadSetting, UnsupportedModel, UsageError, WhichTokenError
from whichtoken.heads.mask import HeadMask
from whichtoken.heads.store import read as read_heads
from whichtoken.models.architectures import Architecture, Head, architecture_named, find_head
from whichtoken.models.images import check_pillow
from whichtoken.models.subject import Subject
from whichtoken.records import Reading
from whichtoken.references.library import ReferenceLibrary
from whichtoken.references.store import read as read_references

DEFAULT = Path(__file__).parents[1] / "assets" / "default"
DEFAULT_NAME = "whichtoken-default"
DEFAULT_REFERENCES = "references"  # folder of its reference library, inside its own folder
DEFAULT_HEADS = "heads.json"  # the file of its head mask
PROCESSOR = "preprocessor_config.json"  # says how images are resized and normalised
VOCABULARIES = (
    "tokenizer.json",
    "vocab*",
    "*.model",
    "*.tiktoken",
    "tekken.json",
)  # a tokenizer's folder has one of them
OWN_CODE = (
    "needs Python code of its own (auto_map in its configuration), which is not run; read that code, and if you trust "
    "it, allow it: trust_remote_code=True, or --trust-remote-code"
)
# What an error of transformers or torch means if it names this argument: the files cannot be read without running code.
REFUSED = {
    "trust_remote_code": OWN_CODE,
    "weights_only": "has a weights file that contains more than tensors and could run code; obtain its weights as "
    "safetensors (model.save_pretrained)",
}


def load(  # noqa: PLR0913  # keywords of the public interface, each with a default
    name: str | Path | None = None,
    *,
    revision: str | None = None,
    dtype: torch.dtype = torch.float32,
    references: ReferenceLibrary | str | Path | None = None,
    heads: HeadMask | str | Path | None = None,
    trust_remote_code: bool = False,
    reading: Reading | None = None,
) -> Subject:
    """Load a model from a folder or from the hub; by default in float32, even if it is stored in half precision. Its
    configuration decides whether it classifies texts, their tokens or images, or answers questions.

    Without a name, load whichtoken's default model, a sentiment classifier of reviews, with its references and heads.
    `references`: a reference library, or its folder. `heads`: a head mask, or its file. `trust_remote_code`: run Python
    code that comes with the model; it must still be one of the supported architectures. `reading`: how to read a single
    output, as a "probability" (its sigmoid) or as a "value"; by default as the configuration says.
    """
    _check_arguments(name, revision, trust_remote_code)
    if name is None:
        return replace(load_default(DEFAULT, dtype=dtype, references=references, heads=heads), reading=reading)
    # Read these first, before a long download.
    library = read_references(references) if isinstance(references, str | Path) else references
    mask = read_heads(heads) if isinstance(heads, str | Path) else heads
    head = find_head((), None)
    try:
        with _hide_loading_bar():
            config = AutoConfig.from_pretrained(name, revision=revision, trust_remote_code=trust_remote_code)
            architecture = architecture_named(config.model_type, type(config).__name__)
            _check_attention_code(name, config)
            head = find_head(config.architectures or (), architecture)
            processor = _load_processor(name, revision, architecture, trust_remote_code)
            model, report = getattr(transformers, head.auto_class).from_pretrained(
                name, revision=revision, dtype=dtype, output_loading_info=True, trust_remote_code=trust_remote_code
            )
    except WhichTokenError:
        raise
    except Exception as error:  # transformers, safetensors and tokenizers raise exceptions of their own
        raise _explain_failure(name, head, error) from error
    if report["missing_keys"]:
        missing = ", ".join(sorted(report["missing_keys"]))
        first = head.what.partition(" with ")[0].rstrip(",")
        raise UnsupportedModel(f"{str(name)!r} has no weights for {missing}; fine-tune it as {first} first")
    commit = getattr(model.config, "_commit_hash", None)
    return Subject(model.eval(), processor, str(name), commit or "", references=library, heads=mask, reading=reading)


def _check_arguments(name: Any, revision: str | None, trust_remote_code: Any) -> None:
    if not isinstance(trust_remote_code, bool):
        raise BadSetting("trust_remote_code", trust_remote_code, "True or False")
    if name is None and revision is not None:
        raise BadSetting("revision", revision, "None for the model that comes with whichtoken, which has only one")
    if not isinstance(name, str | Path | None):
        raise BadSetting("name", name, "a folder, a hub name, or None for the model that comes with whichtoken")
    folder = Path(name or "")
    means_folder = isinstance(name, Path) or folder.is_absolute() or (name or "").startswith(".")
    if means_folder and not folder.is_dir():
        raise UsageError(f"there is no folder {name}; give a folder of a Hugging Face model, or a hub name")


def _explain_failure(name: str | Path, head: Head, error: Exception) -> WhichTokenError:
    """Return the error to raise when transformers, safetensors or tokenizers cannot read a model."""
    for argument, meaning in REFUSED.items():
        if argument in str(error).replace(str(name), ""):
            return UnsupportedModel(f"{str(name)!r} {meaning}")
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return UsageError(f"cannot load {str(name)!r} as {head.what}: {reason}")


def _check_attention_code(name: str | Path, config: Any) -> None:
    """Raise UnsupportedModel if transformers would fetch and run an attention kernel that config.json names."""
    kernel = str(config._attn_implementation)
    if "/" in kernel:
        asked = f"{str(name)!r} asks for the attention code of {kernel} on the hub, which is not run"
        raise UnsupportedModel(f"{asked}; remove attn_implementation from its config.json")


def _load_processor(name: str | Path, revision: str | None, architecture: Architecture, trusted: bool) -> Any:
    """Load the tokenizer or image processor of a model."""
    if architecture.reads == "tokens":
        _check_tokenizer_files(name, revision, trusted)
        return AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=trusted)
    check_pillow()
    if Path(name).is_dir() and not (Path(name) / PROCESSOR).is_file():
        raise UsageError(
            f"{name} is an image classifier without {PROCESSOR}, which says how images are resized and normalised; "
            "save the one used in training there (processor.save_pretrained), or use wt.Subject(model, None) with "
            "prepared tensors"
        )
    return AutoImageProcessor.from_pretrained(name, revision=revision, trust_remote_code=trusted)


def _check_tokenizer_files(name: str | Path, revision: str | None, trusted: bool) -> None:
    """Raise if transformers would replace a missing or custom tokenizer by another, which reads texts differently."""
    if trusted:
        return
    folder = Path(name)
    if folder.is_dir() and not any(file for pattern in VOCABULARIES for file in folder.glob(pattern)):
        raise UsageError(
            f"{name} has no tokenizer.json and no other vocabulary file, so no word would be known; save the tokenizer "
            "used in training there: tokenizer.save_pretrained(folder)"
        )
    settings = get_tokenizer_config(name, revision=revision)
    own = settings.get("tokenizer_class")
    if own is None or "auto_map" not in settings:
        return
    if not any(tokenizer_class_from_name(own.removesuffix("Fast") + ending) for ending in ("", "Fast")):
        raise UnsupportedModel(f"{str(name)!r}: its tokenizer {own} {OWN_CODE}")


def load_default(
    folder: Path,
    *,
    dtype: torch.dtype = torch.float32,
    references: ReferenceLibrary | str | Path | None = None,
    heads: HeadMask | str | Path | None = None,
) -> Subject:
    """Load the default model from its folder."""
    subject = replace(load(folder, dtype=dtype), name=DEFAULT_NAME, revision=revision_of(folder))
    library = references if references is not None else folder / DEFAULT_REFERENCES
    mask = heads if heads is not None else folder / DEFAULT_HEADS
    return subject.with_references(library).with_heads(mask)


def revision_of(folder: Path) -> str:
    """Return the default model's revision: a hash of its weights file, whatever version of transformers reads it."""
    return f"sha256:{hashlib.sha256((folder / 'model.safetensors').read_bytes()).hexdigest()}"


@contextmanager
def _hide_loading_bar() -> Iterator[None]:
    """Hide transformers' progress bar for each file of weights; the hub's download bars stay."""
    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            logging.enable_progress_bar()
