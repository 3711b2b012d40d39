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
from transformers.utils import logging

from whichtoken.errors import BadSetting, UnsupportedModel, UsageError
from whichtoken.heads.mask import HeadMask
from whichtoken.heads.store import read as read_heads
from whichtoken.models.architectures import ARCHITECTURES, Architecture, find_head
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


def load(
    name: str | Path | None = None,
    *,
    revision: str | None = None,
    dtype: torch.dtype = torch.float32,
    references: ReferenceLibrary | str | Path | None = None,
    heads: HeadMask | str | Path | None = None,
    reading: Reading | None = None,
) -> Subject:
    """Load a model from a folder or from the hub; by default in float32, even if it is stored in half precision. Its
    configuration decides whether it classifies texts or images, or answers questions.

    Without a name, load whichtoken's default model, a sentiment classifier of reviews, with its references and heads.
    `references`: a reference library, or its folder. `heads`: a head mask, or its file. `reading`: how to read a single
    output, as a "probability" (its sigmoid) or as a "value"; by default as the configuration says.
    """
    if name is None and revision is not None:
        raise BadSetting("revision", revision, "None for the model that comes with whichtoken, which has only one")
    if name is None:
        return replace(load_default(DEFAULT, dtype=dtype, references=references, heads=heads), reading=reading)
    if not isinstance(name, str | Path):
        raise BadSetting("name", name, "a folder, a hub name, or None for the model that comes with whichtoken")
    means_folder = isinstance(name, Path) or Path(name).is_absolute() or name.startswith(".")
    if means_folder and not Path(name).is_dir():
        raise UsageError(f"there is no folder {name}; give a folder of a Hugging Face model, or a hub name")
    # Read these first, before a long download.
    library = read_references(references) if isinstance(references, str | Path) else references
    mask = read_heads(heads) if isinstance(heads, str | Path) else heads
    head = find_head((), None)
    try:
        with _hide_loading_bar():
            config = AutoConfig.from_pretrained(name, revision=revision)
            architecture = ARCHITECTURES.get(config.model_type)
            head = find_head(config.architectures or (), architecture)
            processor = _load_processor(name, revision, architecture)
            loader = getattr(transformers, head.auto_class)
            model, report = loader.from_pretrained(name, revision=revision, dtype=dtype, output_loading_info=True)
    except UsageError:
        raise
    except Exception as error:  # transformers, safetensors and tokenizers raise exceptions of their own
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise UsageError(f"cannot load {str(name)!r} as {head.what}: {reason}") from error
    if report["missing_keys"]:
        missing = ", ".join(sorted(report["missing_keys"]))
        first = head.what.partition(" with ")[0].rstrip(",")
        raise UnsupportedModel(f"{str(name)!r} has no weights for {missing}; fine-tune it as {first} first")
    commit = getattr(model.config, "_commit_hash", None)
    return Subject(model.eval(), processor, str(name), commit or "", references=library, heads=mask, reading=reading)


def _load_processor(name: str | Path, revision: str | None, architecture: Architecture | None) -> Any:
    """Load the tokenizer or image processor of a model."""
    if architecture is None or architecture.reads == "tokens":
        return AutoTokenizer.from_pretrained(name, revision=revision)
    check_pillow()
    if Path(name).is_dir() and not (Path(name) / PROCESSOR).is_file():
        raise UsageError(
            f"{name} is an image classifier without {PROCESSOR}, which says how images are resized and normalised; "
            "save the one used in training there (processor.save_pretrained), or use wt.Subject(model, None) with "
            "prepared tensors"
        )
    return AutoImageProcessor.from_pretrained(name, revision=revision)


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
