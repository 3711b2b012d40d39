"""whichtoken: which tokens influence a Transformer's output, and how far that answer can be trusted.

Names are loaded on first use, so that importing whichtoken does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whichtoken.errors import WhichTokenError
    from whichtoken.explaining import explain, explain_each
    from whichtoken.models.heads import build_heads, load_heads
    from whichtoken.models.library import build_references, load_references
    from whichtoken.models.loading import load
    from whichtoken.models.subject import Subject
    from whichtoken.patches import patch_scores
    from whichtoken.records import Attribution, Curve
    from whichtoken.references.files import save_references
    from whichtoken.references.library import ReferenceLibrary
    from whichtoken.registry import method, method_names
    from whichtoken.render.figures import plot_heads, plot_layers, plot_methods
    from whichtoken.render.html import to_html
    from whichtoken.render.latex import to_latex
    from whichtoken.syntax.conllu import read_conllu
    from whichtoken.syntax.files import save_heads
    from whichtoken.syntax.heads import HeadMask, corrupt_heads, random_heads
    from whichtoken.syntax.parser import parse_texts
    from whichtoken.targets import Class, Contrast, Predicted

__version__ = "0.1.0"

_HOMES = {
    "Attribution": "records.Attribution",
    "Class": "targets.Class",
    "Contrast": "targets.Contrast",
    "Curve": "records.Curve",
    "HeadMask": "syntax.heads.HeadMask",
    "Predicted": "targets.Predicted",
    "ReferenceLibrary": "references.library.ReferenceLibrary",
    "Subject": "models.subject.Subject",
    "WhichTokenError": "errors.WhichTokenError",
    "build_heads": "models.heads.build_heads",
    "build_references": "models.library.build_references",
    "corrupt_heads": "syntax.heads.corrupt_heads",
    "explain": "explaining.explain",
    "explain_each": "explaining.explain_each",
    "load": "models.loading.load",
    "load_heads": "models.heads.load_heads",
    "load_references": "models.library.load_references",
    "method": "registry.method",
    "method_names": "registry.method_names",
    "parse_texts": "syntax.parser.parse_texts",
    "patch_scores": "patches.patch_scores",
    "plot_heads": "render.figures.plot_heads",
    "plot_layers": "render.figures.plot_layers",
    "plot_methods": "render.figures.plot_methods",
    "random_heads": "syntax.heads.random_heads",
    "read_conllu": "syntax.conllu.read_conllu",
    "save_heads": "syntax.files.save_heads",
    "save_references": "references.files.save_references",
    "to_html": "render.html.to_html",
    "to_latex": "render.latex.to_latex",
}

__all__ = [
    "Attribution",
    "Class",
    "Contrast",
    "Curve",
    "HeadMask",
    "Predicted",
    "ReferenceLibrary",
    "Subject",
    "WhichTokenError",
    "build_heads",
    "build_references",
    "corrupt_heads",
    "explain",
    "explain_each",
    "load",
    "load_heads",
    "load_references",
    "method",
    "method_names",
    "parse_texts",
    "patch_scores",
    "plot_heads",
    "plot_layers",
    "plot_methods",
    "random_heads",
    "read_conllu",
    "save_heads",
    "save_references",
    "to_html",
    "to_latex",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].rpartition(".")
    value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), attribute)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
