"""Reference libraries: what they hold, how they are chosen, packed and stored. `build` makes them with a model."""

from whichtoken.references.library import Reference, ReferenceLibrary
from whichtoken.references.packing import Activations, Packed, pack
from whichtoken.references.recipe import PRESETS, Recipe
from whichtoken.references.store import check_folder, read, save_references

__all__ = [
    "PRESETS",
    "Activations",
    "Packed",
    "Recipe",
    "Reference",
    "ReferenceLibrary",
    "check_folder",
    "pack",
    "read",
    "save_references",
]
