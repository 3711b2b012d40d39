"""whichtoken: which tokens influence a Transformer's output, and how far that answer can be trusted.

Names are loaded on first use, so that importing whichtoken does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whichtoken.ablations import ablation
    from whichtoken.bench.choosing import best_method
    from whichtoken.bench.files import read_table
    from whichtoken.bench.protocols import Protocol, protocol
    from whichtoken.bench.questions import compare_questions
    from whichtoken.bench.running import compare
    from whichtoken.errors import WhichTokenError
    from whichtoken.evaluating.curves import degrade
    from whichtoken.evaluating.images import PixelPlan, degrade_images
    from whichtoken.explaining.calls import explain, explain_each
    from whichtoken.explaining.images import patch_scores
    from whichtoken.models.heads import build_heads, load_heads
    from whichtoken.models.library import build_references, load_references
    from whichtoken.models.loading import load
    from whichtoken.models.subject import Subject
    from whichtoken.randomising import randomised, sanity_check
    from whichtoken.rationales import Rationale, plausibility, read_sst_trees, sst_rationale
    from whichtoken.records import Attribution, Curve
    from whichtoken.references.files import save_references
    from whichtoken.references.library import ReferenceLibrary
    from whichtoken.registry import method, method_names
    from whichtoken.render.charts import plot_agreement, plot_curves, plot_variants
    from whichtoken.render.figures import plot_heads, plot_layers, plot_methods
    from whichtoken.render.html import to_html
    from whichtoken.render.latex import to_latex
    from whichtoken.render.report import to_report
    from whichtoken.squad import read_squad
    from whichtoken.syntax.conllu import read_conllu
    from whichtoken.syntax.files import save_heads
    from whichtoken.syntax.heads import HeadMask, corrupt_heads, random_heads
    from whichtoken.syntax.parser import parse_texts
    from whichtoken.tables import BenchTable
    from whichtoken.targets import Class, Contrast, Predicted, Span
    from whichtoken.vision.segmentation import Segmentation

__version__ = "0.1.0"

_HOMES = {
    "Attribution": "records.Attribution",
    "BenchTable": "tables.BenchTable",
    "Class": "targets.Class",
    "Contrast": "targets.Contrast",
    "Curve": "records.Curve",
    "HeadMask": "syntax.heads.HeadMask",
    "PixelPlan": "evaluating.images.PixelPlan",
    "Predicted": "targets.Predicted",
    "Protocol": "bench.protocols.Protocol",
    "Rationale": "rationales.Rationale",
    "ReferenceLibrary": "references.library.ReferenceLibrary",
    "Segmentation": "vision.segmentation.Segmentation",
    "Span": "targets.Span",
    "Subject": "models.subject.Subject",
    "WhichTokenError": "errors.WhichTokenError",
    "ablation": "ablations.ablation",
    "best_method": "bench.choosing.best_method",
    "build_heads": "models.heads.build_heads",
    "build_references": "models.library.build_references",
    "compare": "bench.running.compare",
    "compare_questions": "bench.questions.compare_questions",
    "corrupt_heads": "syntax.heads.corrupt_heads",
    "degrade": "evaluating.curves.degrade",
    "degrade_images": "evaluating.images.degrade_images",
    "explain": "explaining.calls.explain",
    "explain_each": "explaining.calls.explain_each",
    "load": "models.loading.load",
    "load_heads": "models.heads.load_heads",
    "load_references": "models.library.load_references",
    "method": "registry.method",
    "method_names": "registry.method_names",
    "parse_texts": "syntax.parser.parse_texts",
    "patch_scores": "explaining.images.patch_scores",
    "plausibility": "rationales.plausibility",
    "plot_agreement": "render.charts.plot_agreement",
    "plot_curves": "render.charts.plot_curves",
    "plot_heads": "render.figures.plot_heads",
    "plot_layers": "render.figures.plot_layers",
    "plot_methods": "render.figures.plot_methods",
    "plot_variants": "render.charts.plot_variants",
    "protocol": "bench.protocols.protocol",
    "random_heads": "syntax.heads.random_heads",
    "randomised": "randomising.randomised",
    "read_conllu": "syntax.conllu.read_conllu",
    "read_squad": "squad.read_squad",
    "read_sst_trees": "rationales.read_sst_trees",
    "read_table": "bench.files.read_table",
    "sanity_check": "randomising.sanity_check",
    "save_heads": "syntax.files.save_heads",
    "save_references": "references.files.save_references",
    "sst_rationale": "rationales.sst_rationale",
    "to_html": "render.html.to_html",
    "to_latex": "render.latex.to_latex",
    "to_report": "render.report.to_report",
}

__all__ = [
    "Attribution",
    "BenchTable",
    "Class",
    "Contrast",
    "Curve",
    "HeadMask",
    "PixelPlan",
    "Predicted",
    "Protocol",
    "Rationale",
    "ReferenceLibrary",
    "Segmentation",
    "Span",
    "Subject",
    "WhichTokenError",
    "ablation",
    "best_method",
    "build_heads",
    "build_references",
    "compare",
    "compare_questions",
    "corrupt_heads",
    "degrade",
    "degrade_images",
    "explain",
    "explain_each",
    "load",
    "load_heads",
    "load_references",
    "method",
    "method_names",
    "parse_texts",
    "patch_scores",
    "plausibility",
    "plot_agreement",
    "plot_curves",
    "plot_heads",
    "plot_layers",
    "plot_methods",
    "plot_variants",
    "protocol",
    "random_heads",
    "randomised",
    "read_conllu",
    "read_squad",
    "read_sst_trees",
    "read_table",
    "sanity_check",
    "save_heads",
    "save_references",
    "sst_rationale",
    "to_html",
    "to_latex",
    "to_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].rpartition(".")
    value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), attribute)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
