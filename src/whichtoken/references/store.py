"""Reference libraries as folders: memory-mapped activations in safetensors, and a JSON description."""

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

SCHEMA = 1  # increased when the meaning of a field changes
DESCRIPTION, ACTIVATIONS = "references.json", "activations.safetensors"
DESCRIBED = {name: hint for name, hint in get_type_hints(ReferenceLibrary).items() if name != "packed"}
# The description: all fields except the activations, and the hash of the activations.
_Description: Any = make_dataclass("ReferenceLibrary", [("activations_blake2b", str), *DESCRIBED.items()])


def save(library: ReferenceLibrary, folder: str | Path) -> None:
    """Write a library under a temporary name, then rename it, so that no partial library is ever visible.

    An existing library is replaced; if the process is killed between the two renames, neither exists.
    """
    if not isinstance(library, ReferenceLibrary):
        raise BadSetting("library", type(library).__name__, "a ReferenceLibrary; the folder comes second")
    with write_folder(check_folder(folder)) as temporary:
        _write(library, temporary)


def check_folder(folder: str | Path) -> Path:
    """Raise early what would fail after a long build; only a reference library may be replaced."""
    if not isinstance(folder, str | Path):
        raise BadSetting("folder", folder, "a path")
    target = Path(folder).expanduser().resolve()  # so that a symbolic link is kept
    if target.exists() and not (target / DESCRIPTION).is_file():
        raise UsageError(f"{target} exists and is not a reference library; choose another folder, or remove it")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create the folder {target.parent}: {error.strerror}") from error
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write in {target.parent}; choose another folder")
    return target


def read(folder: str | Path) -> ReferenceLibrary:
    """Read a library of any model; `references.load` also checks the model."""
    if not isinstance(folder, str | Path):
        raise BadSetting("folder", type(folder).__name__, "the path of a stored reference library")
    path = Path(folder).expanduser()
    if not (path / DESCRIPTION).is_file():
        raise BadArtifact(f"{path} is not a reference library: it has no {DESCRIPTION}")
    document = read_json(path / DESCRIPTION)
    try:
        description = decode_record(_Description, document, SCHEMA)
    except BadArtifact as error:
        raise BadArtifact(f"{path / DESCRIPTION}: {error}") from error
    tensors = _read_tensors(path / ACTIVATIONS, description.activations_blake2b)
    packed = tuple(_packed_activations(tensors, label) for label in range(len(description.references)))
    library = ReferenceLibrary(**{name: getattr(description, name) for name in DESCRIBED}, packed=packed)
    _check_shapes(path, library)
    return library


def _write(library: ReferenceLibrary, folder: Path) -> None:
    tensors = {
        f"{label}.{role}": tensor.contiguous()
        for label, packed in enumerate(library.packed)
        for role, tensor in (packed.tensors if packed is not None else {}).items()
    }
    save_file(tensors, folder / ACTIVATIONS)
    fields = {name: getattr(library, name) for name in DESCRIBED}
    fields["recipe"] = asdict(library.recipe)
    fields["references"] = [[asdict(r) for r in references] for references in library.references]
    document = {
        "record": "ReferenceLibrary",
        "schema": SCHEMA,
        "activations_blake2b": _hash(folder / ACTIVATIONS),
        **fields,
    }
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1)
    (folder / DESCRIPTION).write_text(text, encoding="utf-8")


def _read_tensors(path: Path, expected: str) -> dict[str, Tensor]:
    if not path.is_file():
        raise BadArtifact(f"{path} is missing; build the library again")
    try:
        if _hash(path) != expected:
            raise BadArtifact(
                f"{path} is damaged: its hash differs from the one in {DESCRIPTION}; build the library again"
            )
        return dict(load_file(path))
    except (SafetensorError, OSError) as error:
        raise BadArtifact(f"{path} cannot be read: {error}") from error


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _packed_activations(tensors: dict[str, Tensor], label: int) -> Packed | None:
    by_role = {name.partition(".")[2]: t for name, t in tensors.items() if name.partition(".")[0] == str(label)}
    if by_role and "values" not in by_role:
        raise BadArtifact(f"activations of class {label} have {', '.join(by_role)}, but no values")
    return Packed(by_role) if by_role else None


def _check_shapes(path: Path, library: ReferenceLibrary) -> None:
    for label, (references, packed) in enumerate(zip(library.references, library.packed, strict=True)):
        if (packed is None) != (not references):
            raise BadArtifact(
                f"{path}: {len(references)} references of class {label}, but activations: {packed is not None}"
            )
        if packed is not None:
            expected = (len(references), len(library.layers), max(r.n_tokens for r in references))
            if packed.shape != expected:
                raise BadArtifact(
                    f"{path}: activations of class {label} have shape {packed.shape}, expected {expected}"
                )
    if len(library.labels) != len(library.references):
        raise BadArtifact(f"{path}: {len(library.labels)} labels, {len(library.references)} lists of references")
