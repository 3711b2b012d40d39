"""Reference libraries as folders: activations in safetensors, memory-mapped on reading, and JSON beside them."""

import hashlib
import json
import os
from dataclasses import asdict, make_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from whichtoken.atomic_write import write_folder
from whichtoken.decode import decode_record, read_json
from whichtoken.errors import BadArtifact, BadSetting, UsageError
from whichtoken.references.library import ReferenceLibrary
from whichtoken.references.packing import Packed

SCHEMA = 1  # raised when a field changes its meaning
DESCRIPTION, ACTIVATIONS = "references.json", "activations.safetensors"
DESCRIBED = {name: hint for name, hint in get_type_hints(ReferenceLibrary).items() if name != "packed"}
# What the description holds: all fields but the activations, and their hash.
_Description: Any = make_dataclass("ReferenceLibrary", [("activations_blake2b", str), *DESCRIBED.items()])


def save(library: ReferenceLibrary, folder: str | Path) -> None:
    """Written beside `folder` under another name, then renamed: a half-written library is never seen.

    A library that is there already is replaced; killed between the two renames, there is none.
    """
    if not isinstance(library, ReferenceLibrary):
        raise BadSetting("library", type(library).__name__, "a ReferenceLibrary; the folder comes second")
    with write_folder(check_folder(folder)) as beside:
        _write(library, beside)


def check_folder(folder: str | Path) -> Path:
    """Raise before long work what would fail after it: nothing but a library may be replaced."""
    if not isinstance(folder, str | Path):
        raise BadSetting("folder", folder, "a path")
    target = Path(folder).expanduser().resolve()  # a link stays a link
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
    """Any library, whatever its model; `references.load` also checks that it fits."""
    if not isinstance(folder, str | Path):
        raise BadSetting("folder", type(folder).__name__, "the path of a stored reference library")
    path = Path(folder).expanduser()
    if not (path / DESCRIPTION).is_file():
        raise BadArtifact(f"{path} is not a reference library: it has no {DESCRIPTION}")
    found = read_json(path / DESCRIPTION)
    try:
        described = decode_record(_Description, found, SCHEMA)
    except BadArtifact as error:
        raise BadArtifact(f"{path / DESCRIPTION}: {error}") from error
    tensors = _tensors(path / ACTIVATIONS, described.activations_blake2b)
    packed = tuple(_packed(tensors, label) for label in range(len(described.references)))
    library = ReferenceLibrary(**{name: getattr(described, name) for name in DESCRIBED}, packed=packed)
    _check_shapes(path, library)
    return library


def _write(library: ReferenceLibrary, folder: Path) -> None:
    tensors = {
        f"{label}.{role}": tensor.contiguous()
        for label, packed in enumerate(library.packed)
        for role, tensor in (packed.tensors if packed is not None else {}).items()
    }
    save_file(tensors, folder / ACTIVATIONS)
    described = {name: getattr(library, name) for name in DESCRIBED}
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


def _tensors(path: Path, expected: str) -> dict[str, Tensor]:
    if not path.is_file():
        raise BadArtifact(f"{path} is missing; build the library again")
    try:
        if _hash(path) != expected:
            raise BadArtifact(f"{path} is damaged: its hash is not the one in {DESCRIPTION}; build the library again")
        return dict(load_file(path))
    except (SafetensorError, OSError) as error:
        raise BadArtifact(f"{path} cannot be read: {error}") from error


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _packed(tensors: dict[str, Tensor], label: int) -> Packed | None:
    mine = {name.partition(".")[2]: t for name, t in tensors.items() if name.partition(".")[0] == str(label)}
    if mine and "values" not in mine:
        raise BadArtifact(f"activations of class {label} are {', '.join(mine)}; expected values")
    return Packed(mine) if mine else None


def _check_shapes(path: Path, library: ReferenceLibrary) -> None:
    for label, (found, packed) in enumerate(zip(library.references, library.packed, strict=True)):
        if (packed is None) != (not found):
            raise BadArtifact(
                f"{path}: {len(found)} references of class {label}, but activations: {packed is not None}"
            )
        if packed is not None:
            wanted = (len(found), len(library.layers), max(r.n_tokens for r in found))
            if packed.shape != wanted:
                raise BadArtifact(f"{path}: activations of class {label} have shape {packed.shape}, expected {wanted}")
    if len(library.labels) != len(library.references):
        raise BadArtifact(f"{path}: {len(library.labels)} labels, {len(library.references)} lists of references")
