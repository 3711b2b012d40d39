"""whichtoken: which tokens influence a Transformer's output, and how far that answer can be trusted.

Names are loaded on first use, so that importing whichtoken does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whichtoken._explain import explain, explain_each
    from whichtoken.bench.auto import best_method
    from whichtoken.bench.folder import read_table
    from whichtoken.bench.protocol import Protocol, protocol
    from whichtoken.bench.run import compare
    from whichtoken.core.registry import method, method_names
    from whichtoken.errors import WhichTokenError
    from whichtoken.evaluate import degrade
    from whichtoken.heads.build import build_heads, load_heads
    from whichtoken.heads.conllu import read_conllu
    from whichtoken.heads.mask import HeadMask, corrupt_heads, random_heads
    from whichtoken.heads.spacy import parse_texts
    from whichtoken.heads.store import save_heads
    from whichtoken.metrics.plausibility import Rationale, plausibility, read_sst_trees, sst_rationale
    from whichtoken.metrics.randomisation import randomised, sanity_check
    from whichtoken.models.loading import load
    from whichtoken.models.subject import Subject
    from whichtoken.records import Attribution, Curve
    from whichtoken.references.build import build_references, load_references
    from whichtoken.references.library import ReferenceLibrary
    from whichtoken.references.store import save_references
    from whichtoken.render.charts import plot_agreement, plot_curves, plot_variants
    from whichtoken.render.figures import plot_heads, plot_layers, plot_methods
    from whichtoken.render.html import to_html
    from whichtoken.render.latex import to_latex
    from whichtoken.render.report import to_report
    from whichtoken.reproduce.ablations import ablation
    from whichtoken.reproduce.pixels import PixelPlan, degrade_images, patch_scores
    from whichtoken.reproduce.questions import compare_questions
    from whichtoken.squad import read_squad
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
    "HeadMask": "heads.mask.HeadMask",
    "PixelPlan": "reproduce.pixels.PixelPlan",
    "Predicted": "targets.Predicted",
    "Protocol": "bench.protocol.Protocol",
    "Rationale": "metrics.plausibility.Rationale",
    "ReferenceLibrary": "references.library.ReferenceLibrary",
    "Segmentation": "vision.segmentation.Segmentation",
    "Span": "targets.Span",
    "Subject": "models.subject.Subject",
    "WhichTokenError": "errors.WhichTokenError",
    "ablation": "reproduce.ablations.ablation",
    "best_method": "bench.auto.best_method",
    "build_heads": "heads.build.build_heads",
    "build_references": "references.build.build_references",
    "compare": "bench.run.compare",
    "compare_questions": "reproduce.questions.compare_questions",
    "corrupt_heads": "heads.mask.corrupt_heads",
    "degrade": "evaluate.degrade",
    "degrade_images": "reproduce.pixels.degrade_images",
    "explain": "_explain.explain",
    "explain_each": "_explain.explain_each",
    "load": "models.loading.load",
    "load_heads": "heads.build.load_heads",
    "load_references": "references.build.load_references",
    "method": "core.registry.method",
    "method_names": "core.registry.method_names",
    "parse_texts": "heads.spacy.parse_texts",
    "patch_scores": "reproduce.pixels.patch_scores",
    "plausibility": "metrics.plausibility.plausibility",
    "plot_agreement": "render.charts.plot_agreement",
    "plot_curves": "render.charts.plot_curves",
    "plot_heads": "render.figures.plot_heads",
    "plot_layers": "render.figures.plot_layers",
    "plot_methods": "render.figures.plot_methods",
    "plot_variants": "render.charts.plot_variants",
    "protocol": "bench.protocol.protocol",
    "random_heads": "heads.mask.random_heads",
    "randomised": "metrics.randomisation.randomised",
    "read_conllu": "heads.conllu.read_conllu",
    "read_squad": "squad.read_squad",
    "read_sst_trees": "metrics.plausibility.read_sst_trees",
    "read_table": "bench.folder.read_table",
    "sanity_check": "metrics.randomisation.sanity_check",
    "save_heads": "heads.store.save_heads",
    "save_references": "references.store.save_references",
    "sst_rationale": "metrics.plausibility.sst_rationale",
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
