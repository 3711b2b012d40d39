"""Reference libraries: what they hold, how they are chosen, packed and stored. Models make them (models/library.py)."""

from whichtoken.references.files import check_folder, read, save_references
from whichtoken.references.library import Reference, ReferenceLibrary
from whichtoken.references.packing import Activations, Packed, pack
from whichtoken.references.recipe import PRESETS, Recipe

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
