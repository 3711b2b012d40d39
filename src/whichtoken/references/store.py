"""Reference libraries as folders: memory-mapped activations in safetensors, and a JSON description."""

import hashlib
import json
import os
from dataclasses import asdict, make_dataclass
from math import isfinite
from pathlib import Path
from typing import Any, get_type_hints

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from whichtoken.atomic_write import restore_folder, write_folder
from whichtoken.boundary import describe_failure, while_reading
from whichtoken.checks import check_count_fields, check_counts, check_probabilities, require
from whichtoken.decode import decode_record, read_json
from whichtoken.errors import BadArtifact, BadSetting, UsageError
from whichtoken.identity import add_missing
from whichtoken.references.library import ReferenceLibrary
from whichtoken.references.packing import Packed
from whichtoken.references.recipe import Recipe
from whichtoken.settings import check_settings

SCHEMA = 1  # increased when the meaning of a field changes
ROLES = ("values", "scales", "answers")  # of the tensors of a class
DESCRIPTION, ACTIVATIONS = "references.json", "activations.safetensors"
DESCRIBED = {name: hint for name, hint in get_type_hints(ReferenceLibrary).items() if name != "packed"}
# The description: all fields except the activations, and the hash of the activations.
_Description: Any = make_dataclass("ReferenceLibrary", [("activations_blake2b", str), *DESCRIBED.items()])


def save(library: ReferenceLibrary, folder: str | Path) -> None:
    """Write a library under a temporary name, then rename it, so that no partial library is ever visible.

    An existing library is replaced; if the process is killed between the two renames, it is restored when it is needed.
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
    restore_folder(path)
    if not (path / DESCRIPTION).is_file():
        raise BadArtifact(f"{path} is not a reference library: it has no {DESCRIPTION}")
    document = read_json(path / DESCRIPTION)
    with while_reading(path / DESCRIPTION):
        description = decode_record(_Description, add_missing(document), SCHEMA)
        _check_description(description)
    with while_reading(path / ACTIVATIONS):
        tensors = _read_tensors(path / ACTIVATIONS, description.activations_blake2b)
        packed = _packed_activations(tensors, len(description.references))
        library = ReferenceLibrary(**{name: getattr(description, name) for name in DESCRIBED}, packed=packed)
        _check_shapes(library)
    return library


def _write(library: ReferenceLibrary, folder: Path) -> None:
    tensors = {
        f"{label}.{role}": tensor.contiguous()
        for label, packed in enumerate(library.packed)
        for role, tensor in (packed.tensors if packed is not None else {}).items()
    }
    try:
        save_file(tensors, folder / ACTIVATIONS)
    except SafetensorError as error:  # its own error for a full disk
        raise OSError(describe_failure(error)) from error
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


def _check_description(library: Any) -> None:
    """Raise BadArtifact unless the values of a decoded description are possible."""
    check_settings(Recipe, "recipe", vars(library.recipe))
    n_labels, n_lists = len(library.labels), len(library.references)
    require(n_labels == n_lists > 0, f"{n_labels} labels, {n_lists} lists of references")
    last, layers = library.n_layers, library.layers
    contiguous = bool(layers) and layers == tuple(range(layers[0], layers[0] + len(layers)))
    inside = contiguous and layers[0] >= 0 and layers[-1] <= last
    require(inside, f"layers is {layers!r:.60}; expected consecutive hidden states from 0 to {last}")
    counts = ("n_layers", "n_scanned", "n_short", "n_labelled", "n_wrong")
    check_count_fields("ReferenceLibrary", {name: getattr(library, name) for name in counts})
    require(library.n_short <= library.n_scanned, "ReferenceLibrary: more texts are too short than were scanned")
    require(library.n_wrong <= library.n_labelled, "ReferenceLibrary: more texts are misclassified than have a label")
    for reference in (reference for references in library.references for reference in references):
        check_probabilities("the probability of a reference", [reference.probability])
        check_counts("n_tokens of a reference", [reference.n_tokens], least=1)


def _read_tensors(path: Path, expected: str) -> dict[str, Tensor]:
    if not path.is_file():
        raise BadArtifact(f"{path} is missing; build the library again")
    if _hash(path) != expected:
        raise BadArtifact(f"{path} is damaged: its hash differs from the one in {DESCRIPTION}; build the library again")
    return dict(load_file(path))


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _packed_activations(tensors: dict[str, Tensor], n_labels: int) -> tuple[Packed | None, ...]:
    by_label: list[dict[str, Tensor]] = [{} for _ in range(n_labels)]
    expected = {f"{label}.{role}": (label, role) for label in range(n_labels) for role in ROLES}
    for name, tensor in tensors.items():
        require(name in expected, f"the tensor {name!r:.40} is not known; expected CLASS.ROLE, a role of {ROLES}")
        label, role = expected[name]
        by_label[label][role] = tensor
    for label, by_role in enumerate(by_label):
        complete = not by_role or "values" in by_role
        require(complete, f"activations of class {label} have {', '.join(by_role)}, but no values")
    return tuple(Packed(by_role) if by_role else None for by_role in by_label)


def _check_shapes(library: ReferenceLibrary) -> None:
    for label, (references, packed) in enumerate(zip(library.references, library.packed, strict=True)):
        stored = packed is not None
        require(stored == bool(references), f"{len(references)} references of class {label}, but activations: {stored}")
        if packed is not None:
            expected = (len(references), len(library.layers), max(r.n_tokens for r in references))
            _check_class(packed, expected, f"activations of class {label}")
    sizes = {packed.tensors["values"].shape[-1] for packed in library.packed if packed is not None}
    require(len(sizes) <= 1, f"activations of classes have different sizes: {sorted(sizes)}")


def _check_class(packed: Packed, expected: tuple[int, int, int], name: str) -> None:
    """Raise BadArtifact unless the tensors of one class fit the description and one another."""
    values, others = packed.tensors["values"], {k: v for k, v in packed.tensors.items() if k != "values"}
    shape = tuple(values.shape)
    require(
        shape[:3] == expected and len(shape) == 4 and shape[3] > 0, f"{name} have shape {shape}, expected {expected}"
    )
    n_references, n_layers, n_tokens = expected
    right = values.dtype == torch.int8 if "scales" in others else values.is_floating_point()
    require(right, f"{name} are {values.dtype}; expected floating point, or int8 with scales")
    shapes = {"scales": (n_layers, shape[3]), "answers": (n_references, 2, n_tokens)}
    for role, tensor in others.items():
        fits = tuple(tensor.shape) == shapes[role] and tensor.is_floating_point()
        require(fits, f"{name}: {role} have shape {tuple(tensor.shape)} and {tensor.dtype}, expected {shapes[role]}")
    for role, tensor in packed.tensors.items():
        low, high = (float(extreme) for extreme in tensor.aminmax())  # NaN if there is one; needs no memory
        require(isfinite(low) and isfinite(high), f"{name}: some {role} are NaN or infinite")
        if role == "answers":
            check_probabilities(f"{name}: an answer's probability", (low, high))
