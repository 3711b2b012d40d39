"""Load a model and its tokenizer or image processor from a folder, from the hub or as an adapter, or the default."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from logging import LogRecord
from pathlib import Path
from threading import get_ident
from types import MappingProxyType
from typing import Any, Literal

import torch
import transformers
from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer
from transformers.models.auto.tokenization_auto import get_tokenizer_config, tokenizer_class_from_name
from transformers.utils import logging

from whichtoken.boundary import describe_failure
from whichtoken.errors import BadSetting, UnsupportedModel, UsageError, WhichTokenError
from whichtoken.heads.mask import HeadMask
from whichtoken.heads.store import read as read_heads
from whichtoken.models.adapters import CONFIG as ADAPTER
from whichtoken.models.adapters import Adapter, import_peft, read_adapter
from whichtoken.models.architectures import Architecture, architecture_named, check_kind, find_head
from whichtoken.models.checks import check_batch_size
from whichtoken.models.configuration import (
    Shape,
    check_counts,
    check_size,
    describe_mismatch,
    describe_shapes,
    find_weights,
    read_settings,
)
from whichtoken.models.hub import CONFIG, ModelFiles, find_source
from whichtoken.models.images import check_pillow
from whichtoken.models.placement import parse_device, parse_dtype
from whichtoken.models.special_tokens import SpecialTokens, check_special_tokens
from whichtoken.models.subject import Subject
from whichtoken.records import Reading
from whichtoken.references.library import ReferenceLibrary
from whichtoken.references.store import read as read_references

DEFAULT = Path(__file__).parents[1] / "assets" / "default"
DEFAULT_NAME = "whichtoken-default"
DEFAULT_REFERENCES = "references"  # folder of its reference library, inside its own folder
DEFAULT_HEADS = "heads.json"  # the file of its head mask
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
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
MISMATCH = "ignore_mismatched_sizes"  # is in what transformers raises if sizes do not fit
# What to do if this part of a folder cannot be read.
FIXES = {
    "config.json": "correct it, or save the model again: model.save_pretrained(folder)",
    "processor": "save the one used in training there: save_pretrained(folder)",
    "weights": "save or download them again",
}
SHOWN = 3  # names of weights that a message lists
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
    dtype: torch.dtype | str = torch.float32,
    device: str | torch.device | None = None,
    references: ReferenceLibrary | str | Path | None = None,
    heads: HeadMask | str | Path | None = None,
    trust_remote_code: bool = False,
    reading: Reading | None = None,
    batch_size: int | None = None,
    special_tokens: SpecialTokens = "control",
) -> Subject:
    """Load a model from a folder or from the hub; by default in float32, even if it is stored in half precision. Its
    configuration decides whether it classifies texts, their tokens or images, or answers questions. The folder of an
    adapter (LoRA) works, too: the adapter is merged into its base model.

    Without a name, load whichtoken's default model, a sentiment classifier of reviews, with its references and heads.
    `dtype`: of torch, or its name; "auto": as stored. `device`: by default the CPU. `references`: a reference library,
    or its folder. `heads`: a head mask, or its file. `trust_remote_code`: run Python code that comes with the model; it
    must still be one of the supported architectures. `reading`: how to read a single output, as a "probability" (its
    sigmoid) or as a "value"; by default as the configuration says. `batch_size`: the most rows that the model reads at
    once, to save memory; results do not depend on it. `special_tokens`: how those in a user's text, such as [SEP], are
    read: as "control" tokens, as the model's own pipeline does, or as "text".
    """
    _check_arguments(name, revision, trust_remote_code)
    wanted, place = parse_dtype(dtype), parse_device(device)
    check_batch_size(batch_size)
    check_special_tokens(special_tokens)
    if name is None:
        subject = load_default(DEFAULT, dtype=wanted, references=references, heads=heads)
        model = subject.model if place is None else subject.model.to(place)
        return replace(subject, model=model, reading=reading, batch_size=batch_size, special_tokens=special_tokens)
    # Read these first, before a long download.
    library = read_references(references) if isinstance(references, str | Path) else references
    mask = read_heads(heads) if isinstance(heads, str | Path) else heads
    files = _read_files(find_source(name, revision), wanted, trust_remote_code)
    model = files.model.eval() if place is None else files.model.eval().to(place)
    return Subject(
        model,
        files.processor,
        str(name),
        files.commit,
        references=library,
        heads=mask,
        reading=reading,
        batch_size=batch_size,
        special_tokens=special_tokens,
    )


def _check_arguments(name: Any, revision: str | None, trust_remote_code: Any) -> None:
    if not isinstance(trust_remote_code, bool):
        raise BadSetting("trust_remote_code", trust_remote_code, "True or False")
    if not isinstance(revision, str | None):
        raise BadSetting("revision", revision, "the name of a branch or tag, or a commit")
    if name is None and revision is not None:
        raise BadSetting("revision", revision, "None for the model that comes with whichtoken, which has only one")
    if not isinstance(name, str | Path | None):
        allowed = "a folder, a hub name, or None for the model that comes with whichtoken"
        raise BadSetting(
            "name", type(name).__name__, f"{allowed}; for a loaded model, use wt.Subject(model, tokenizer)"
        )


@dataclass(frozen=True)
class _Files:
    """What the files of a model contain."""

    model: Any
    processor: Any
    commit: str  # on the hub; empty for a folder or an adapter, whose weights are hashed


def _read_files(source: ModelFiles, dtype: torch.dtype | Literal["auto"], trusted: bool) -> _Files:
    if not source.is_adapter:
        if source.has_adapter:
            import_peft(str(source))  # without it, transformers would leave the adapter out
        return _read_model(source, dtype, trusted, None)
    adapter = read_adapter(source.download_adapter())
    try:
        base = find_source(adapter.base, adapter.config.revision)
    except UsageError as error:
        named = f"{str(source)!r} is an adapter of {str(adapter.base)!r}, which was not found"
        raise UsageError(
            f"{named}: {error}; or correct base_model_name_or_path in {adapter.folder / ADAPTER}"
        ) from error
    files = _read_model(base, dtype, trusted, adapter)
    try:
        return _Files(adapter.merge_into(files.model), files.processor, "")
    except WhichTokenError:
        raise
    except Exception as error:  # peft raises exceptions of its own
        raise _explain_failure(str(source), f"an adapter of {str(base)!r}", error) from error


def _read_model(
    source: ModelFiles, dtype: torch.dtype | Literal["auto"], trusted: bool, adapter: Adapter | None
) -> _Files:
    """Read a whole model. With an adapter: its base model, with the head that the adapter was trained with."""
    place, revision = source.place, source.revision
    configured = place if adapter is None or not (adapter.folder / CONFIG).is_file() else adapter.folder
    settings = read_settings(configured)
    check_counts(settings, place)
    with _hide_reports():
        with _explaining_failures(source, find_head((), None).what, "config.json"):
            config = AutoConfig.from_pretrained(configured, revision=revision, trust_remote_code=trusted)
            if not settings:  # on the hub
                check_counts(config.to_dict(), place)
            stored = config.architectures or ()
            class_names = stored if adapter is None else adapter.class_names(stored)
            check_kind(repr(str(source)), class_names, config)
            architecture = architecture_named(config.model_type, type(config).__name__)
            _check_attention_code(str(source), config)
            head = find_head(class_names, architecture)
            if adapter is not None and adapter.n_labels not in (None, config.num_labels):
                config.num_labels = adapter.n_labels
        with _explaining_failures(source, head.what, "config.json"):
            # A model with code of its own may be built otherwise.
            shapes = describe_shapes(config, head.auto_class) if find_weights(place) and not trusted else {}
            check_size(place, shapes, is_quantised=hasattr(config, "quantization_config"))
        with _explaining_failures(source, head.what, "processor"):
            own_files = None if adapter is None or not _has_vocabulary(adapter.folder) else ModelFiles(adapter.folder)
            processor = _load_processor(own_files or source, architecture, trusted)
        with _explaining_failures(source, head.what, "weights", shapes):
            model, report = getattr(transformers, head.auto_class).from_pretrained(
                place,
                config=config,
                revision=revision,
                dtype=dtype,
                output_loading_info=True,
                trust_remote_code=trusted,
            )
    missing = sorted(key for key in report["missing_keys"] if adapter is None or key not in adapter.shapes)
    if missing:
        title = repr(str(source)) if adapter is None else f"{str(adapter.folder)!r} and its base model"
        first = head.what.partition(" with ")[0].rstrip(",")
        fix = f"fine-tune it as {first} first"
        if any(key.startswith(f"{model.base_model_prefix}.") for key in missing):
            fix = f"save or download its weights again, or correct {CONFIG}, which describes more"
        more = f" and {len(missing) - SHOWN} others" if len(missing) > SHOWN else ""
        raise UnsupportedModel(
            f"{title} {'has' if adapter is None else 'have'} no weights for {', '.join(missing[:SHOWN])}{more}; {fix}"
        )
    return _Files(model, processor, getattr(model.config, "_commit_hash", None) or "")


@contextmanager
def _explaining_failures(
    source: ModelFiles, what: str, part: str, shapes: Mapping[str, Shape] = MappingProxyType({})
) -> Iterator[None]:
    """Turn what transformers, safetensors and tokenizers raise while they read a part of a model into an error of ours.

    `shapes`: of the tensors that the configuration describes.
    """
    try:
        yield
    except WhichTokenError:
        raise
    except Exception as error:
        failure = _explain_failure(str(source), what, error, part if Path(source.place).is_dir() else "")
        if MISMATCH in str(error):
            failure = UsageError(f"{failure}; {describe_mismatch(source.place, shapes)}")
        raise failure from error


def _explain_failure(title: str, what: str, error: Exception, part: str = "") -> WhichTokenError:
    """Return the error to raise when transformers, safetensors, tokenizers or peft cannot read a model.

    `part`: of a folder, which the caller can mend.
    """
    text = str(error).replace(title, "")
    for argument, meaning in REFUSED.items():
        if argument in text:
            return UnsupportedModel(f"{title!r} {meaning}")
    failed = f"cannot load {title!r} as {what}"
    if MISMATCH in text:  # the sizes are only in the report that transformers logs
        return UsageError(f"{failed}: the sizes of its weights do not fit its config.json")
    reason = describe_failure(error).rstrip(".")
    return UsageError(f"{failed}: its {part}: {reason}; {FIXES[part]}" if part else f"{failed}: {reason}")


def _check_attention_code(name: str, config: Any) -> None:
    """Raise UnsupportedModel if transformers would fetch and run an attention kernel that config.json names."""
    kernel = str(config._attn_implementation)
    if "/" in kernel:
        asked = f"{name!r} asks for the attention code of {kernel} on the hub, which is not run"
        raise UnsupportedModel(f"{asked}; remove attn_implementation from its config.json")


def _load_processor(source: ModelFiles, architecture: Architecture, trusted: bool) -> Any:
    """Load the tokenizer or image processor of a model."""
    place, revision = source.place, source.revision
    if architecture.reads == "tokens":
        _check_tokenizer_files(source, trusted)
        return AutoTokenizer.from_pretrained(place, revision=revision, trust_remote_code=trusted)
    check_pillow()
    if Path(place).is_dir() and not (Path(place) / PROCESSOR).is_file():
        raise UsageError(
            f"{place} is an image classifier without {PROCESSOR}, which says how images are resized and normalised; "
            "save the one used in training there (processor.save_pretrained), or use wt.Subject(model, None) with "
            "prepared tensors"
        )
    return AutoImageProcessor.from_pretrained(place, revision=revision, trust_remote_code=trusted)


def _check_tokenizer_files(source: ModelFiles, trusted: bool) -> None:
    """Raise if transformers would replace a missing or custom tokenizer by another, which reads texts differently."""
    if trusted:
        return
    folder = Path(source.place)
    if folder.is_dir() and not _has_vocabulary(folder):
        raise UsageError(
            f"{folder} has no tokenizer.json and no other vocabulary file, so the tokenizer would know no words; save "
            "the tokenizer used in training there: tokenizer.save_pretrained(folder)"
        )
    settings = get_tokenizer_config(source.place, revision=source.revision)
    own = settings.get("tokenizer_class")
    if own is None or "auto_map" not in settings:
        return
    if not any(tokenizer_class_from_name(own.removesuffix("Fast") + ending) for ending in ("", "Fast")):
        raise UnsupportedModel(f"{str(source)!r}: its tokenizer {own} {OWN_CODE}")


def _has_vocabulary(folder: Path) -> bool:
    return any(file for pattern in VOCABULARIES for file in folder.glob(pattern))


def load_default(
    folder: Path,
    *,
    dtype: torch.dtype | str = torch.float32,
    references: ReferenceLibrary | str | Path | None = None,
    heads: HeadMask | str | Path | None = None,
) -> Subject:
    """Load the default model from its folder."""
    subject = name_default(load(folder, dtype=dtype), folder)
    library = references if references is not None else folder / DEFAULT_REFERENCES
    mask = heads if heads is not None else folder / DEFAULT_HEADS
    return subject.with_references(library).with_heads(mask)


def name_default(subject: Subject, folder: Path) -> Subject:
    """Return the default model, loaded from its folder, under its name and with the hashes of its files."""
    texts = (json.loads((folder / name).read_text(encoding="utf-8")) for name in TOKENIZER_FILES)
    tokenizer = hashlib.sha256(json.dumps(list(texts), sort_keys=True).encode())
    return replace(
        subject,
        name=DEFAULT_NAME,
        revision=revision_of(folder),
        processor_hash=f"sha256:{tokenizer.hexdigest()}",
    )


def revision_of(folder: Path) -> str:
    """Return the default model's revision: a hash of its weights file, whatever version of transformers reads it."""
    return f"sha256:{hashlib.sha256((folder / 'model.safetensors').read_bytes()).hexdigest()}"


@contextmanager
def _hide_reports() -> Iterator[None]:
    """Hide transformers' progress bar for each file of weights, and its report of weights that do not fit, about which
    we raise; the hub's download bars and the reports of other threads stay.
    """
    enabled, here = logging.is_progress_bar_enabled(), get_ident()

    def hide(record: LogRecord) -> bool:
        return record.thread != here

    reporting = logging.get_logger("transformers.modeling_utils")
    reporting.addFilter(hide)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        reporting.removeFilter(hide)
        if enabled:
            logging.enable_progress_bar()
