"""Reference libraries as folders: activations in safetensors, memory-mapped on reading, and JSON beside them."""

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_type_hints

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from whichtoken.errors import BadArtifact, BadSetting, UsageError
from whichtoken.references.library import Reference, ReferenceLibrary
from whichtoken.references.packing import Packed
from whichtoken.references.recipe import Recipe
from whichtoken.settings import has_type

SCHEMA = 1  # raised when a field changes its meaning
DESCRIPTION, ACTIVATIONS = "references.json", "activations.safetensors"


def save_references(library: ReferenceLibrary, folder: str | Path) -> None:
    """Written beside `folder` under another name, then renamed: a half-written library is never seen.

    A library that is there already is replaced; killed between the two renames, there is none.
    """
    if not isinstance(library, ReferenceLibrary):
        raise BadSetting("library", type(library).__name__, "a ReferenceLibrary; the folder comes second")
    target = check_folder(folder)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=target.parent))
    try:
        _write(library, partial)
        _replace(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def check_folder(folder: str | Path) -> Path:
    """Raise before long work what would fail after it: nothing but a library may be replaced."""
    if not isinstance(folder, str | Path):
        raise BadSetting("folder", folder, "a path")
    target = Path(folder).expanduser().absolute()
    if target.exists() and not (target / DESCRIPTION).is_file():
        raise UsageError(f"{target} exists and is not a reference library; choose another folder, or remove it")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {target.parent}: {error.strerror}") from error
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write in {target.parent}; choose another folder")
    return target


def read(folder: str | Path) -> ReferenceLibrary:
    """Any library, whatever its model; `load_references` also checks that it fits."""
    if not isinstance(folder, str | Path):
        raise BadSetting("folder", type(folder).__name__, "the path of a stored reference library")
    path = Path(folder).expanduser()
    try:
        found = _description(path / DESCRIPTION)
        tensors = _tensors(path / ACTIVATIONS, found.pop("activations_blake2b", None))
    except OSError as error:
        raise BadArtifact(f"{path} cannot be read: {error.strerror}") from error
    try:
        recipe = _made(Recipe, found.pop("recipe"))
        references = tuple(
            tuple(_made(Reference, {**r, "text": _text(r)}) for r in of_class) for of_class in found.pop("references")
        )
        packed = tuple(_packed(tensors, label) for label in range(len(references)))
        values = {name: tuple(v) if isinstance(v, list) else v for name, v in found.items()}
        library: ReferenceLibrary = _made(
            ReferenceLibrary, {**values, "recipe": recipe, "references": references, "packed": packed}
        )
        _check_shapes(path, library)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise BadArtifact(f"{path / DESCRIPTION}: {type(error).__name__}: {error}") from error
    return library


def _write(library: ReferenceLibrary, folder: Path) -> None:
    tensors = {
        f"{label}.{role}": tensor.contiguous()
        for label, packed in enumerate(library.packed)
        for role, tensor in (packed.tensors if packed is not None else {}).items()
    }
    save_file(tensors, folder / ACTIVATIONS)
    described = {name: getattr(library, name) for name in get_type_hints(ReferenceLibrary) if name != "packed"}
    described["recipe"] = asdict(library.recipe)
    described["references"] = [[asdict(r) for r in found] for found in library.references]
    written = {
        "record": "ReferenceLibrary",
        "schema": SCHEMA,
        "activations_blake2b": _hash(folder / ACTIVATIONS),
        **described,
    }
    text = json.dumps(written, ensure_ascii=False, allow_nan=False, indent=1)
    (folder / DESCRIPTION).write_text(text, encoding="utf-8")
    # Readable for whom the user's new files are: safetensors and mkdtemp write for their owner only.
    mode = (folder / DESCRIPTION).stat().st_mode
    (folder / ACTIVATIONS).chmod(mode)
    folder.chmod(mode | (mode & 0o444) >> 2)
    for path in (folder / ACTIVATIONS, folder / DESCRIPTION):
        with path.open("rb+") as file:
            os.fsync(file.fileno())  # the rename must not reach the disk before what it names


def _replace(partial: Path, target: Path) -> None:
    if not target.exists():
        partial.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old-", dir=target.parent))
    target.rename(old / target.name)
    partial.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _description(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise BadArtifact(f"{path.parent} is not a reference library: it has no {path.name}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadArtifact(f"{path} is not JSON: {error}") from error
    made = (found.pop("record", None), found.pop("schema", None)) if isinstance(found, dict) else (None, None)
    if made != ("ReferenceLibrary", SCHEMA):
        raise BadArtifact(
            f"{path}: expected a ReferenceLibrary of schema {SCHEMA}, found {made[0]} of schema {made[1]}"
        )
    return dict(found)


def _tensors(path: Path, expected: object) -> dict[str, Tensor]:
    if not path.is_file():
        raise BadArtifact(f"{path} is missing; build the library again")
    if _hash(path) != expected:
        raise BadArtifact(f"{path} is damaged: its hash is not the one in {DESCRIPTION}; build the library again")
    try:
        return dict(load_file(path))
    except SafetensorError as error:
        raise BadArtifact(f"{path} cannot be read: {error}") from error


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _made(cls: Any, values: dict[str, Any]) -> Any:
    hints = get_type_hints(cls)
    if set(hints) != set(values):
        raise ValueError(f"{cls.__name__}: fields {sorted(set(hints) ^ set(values))} are missing or not known")
    for name, value in values.items():
        if not has_type(value, hints[name]):
            raise ValueError(f"{cls.__name__}: {name} is {value!r:.60}, expected {hints[name]}")
    return cls(**values)


def _text(reference: dict[str, Any]) -> tuple[str, ...] | None:
    return None if reference["text"] is None else tuple(reference["text"])


def _packed(tensors: dict[str, Tensor], label: int) -> Packed | None:
    mine = {name.partition(".")[2]: t for name, t in tensors.items() if name.partition(".")[0] == str(label)}
    return Packed(mine) if mine else None


def _check_shapes(path: Path, library: ReferenceLibrary) -> None:
    mean = library.recipe.compress == "mean"
    for label, (found, packed) in enumerate(zip(library.references, library.packed, strict=True)):
        if (packed is None) != (not found):
            raise BadArtifact(
                f"{path}: {len(found)} references of class {label}, but activations: {packed is not None}"
            )
        if packed is not None:
            wanted = (1 if mean else len(found), len(library.layers), max(r.n_tokens for r in found))
            if packed.shape != wanted:
                raise BadArtifact(f"{path}: activations of class {label} have shape {packed.shape}, expected {wanted}")
    if len(library.labels) != len(library.references):
        raise BadArtifact(f"{path}: {len(library.labels)} labels, {len(library.references)} lists of references")
