"""The design, checked: who may import whom, how long files may be, and that names agree."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import whichtoken
from whichtoken.registry import find, method_names

PACKAGE = Path(whichtoken.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))

# Each may import from the rows above its own, and from within its own folder.
LEVELS = [
    {"errors"},
    {"typed", "words", "data", "squad", "writing", "tables", "grids"},
    {"render"},
    {"records", "targets", "references", "syntax", "lrp"},
    {"trace", "metrics", "ranks", "rationales", "vision"},
    {"registry"},
    {"ops", "perturb", "contrast", "catalogue"},
    {"refinement"},
    {"methods", "models"},
    {"explaining", "evaluating", "ablations"},
    {"randomising", "bench"},
    {"cli"},
    {"__init__", "__main__"},
]
LEVEL = {name: number for number, row in enumerate(LEVELS) for name in row}
# The only part, or file, that may import a package.
DOORS = {
    "transformers": ("models",),
    "tokenizers": ("models",),
    "typer": ("cli",),
    "rich": ("cli", "render/terminal.py"),
    "jinja2": ("render/html.py",),
    "matplotlib": ("render/figures.py", "render/charts.py"),
    "spacy": ("syntax/parser.py",),
    "PIL": ("models/images.py", "render/pictures.py", "records.py"),
}
WITHOUT_TORCH = [
    "errors",
    "typed",
    "words",
    "data",
    "squad",
    "writing",
    "tables",
    "records",
    "metrics",
    "ranks",
    "rationales",
    "grids",
    "catalogue",
    "syntax",
    "vision",
    "render.rows",
    "render.html",
    "render.terminal",
    "render.latex",
    "render.figures",
    "render.bench_table",
    "render.charts",
    "render.report",
    "cli.app",
]


def part_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""


def test_every_part_has_a_level() -> None:
    assert {part_of(path) for path in FILES} == set(LEVEL)


@each_file
def test_imports_point_one_way(path: Path) -> None:
    mine = part_of(path)
    for name in imports_of(path):
        if name.startswith("whichtoken."):
            theirs = name.split(".")[1]
            inside_folder = theirs == mine and path.parent != PACKAGE
            assert inside_folder or LEVEL[theirs] < LEVEL[mine], f"{mine} imports {name}"


@each_file
def test_heavy_packages_enter_by_one_door(path: Path) -> None:
    for name in imports_of(path):
        doors = DOORS.get(name.split(".")[0])
        here = (part_of(path), str(path.relative_to(PACKAGE)))
        assert doors is None or set(doors) & set(here), f"{here[1]} imports {name}"


@each_file
def test_files_are_short_and_say_what_they_are_for(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    assert ast.get_docstring(ast.parse(text))


def test_file_class_and_registry_names_agree() -> None:
    for name in method_names():
        method = find(name)
        assert method.__module__ == f"whichtoken.methods.{name.replace('-', '_')}"
        assert method.__name__.lower() == name.replace("-", "")
    files = {path.stem for path in (PACKAGE / "methods").glob("*.py")} - {"__init__"}
    assert files == {name.replace("-", "_") for name in method_names()}


def test_method_files_are_30_to_130_lines() -> None:
    for path in (PACKAGE / "methods").glob("*.py"):
        assert path.stem == "__init__" or 30 <= len(path.read_text().splitlines()) <= 130, path.name


def test_the_public_surface() -> None:
    expected = """
        Attribution BenchTable Class Contrast Curve HeadMask PixelPlan Predicted Protocol Rationale ReferenceLibrary
        Segmentation Span Subject WhichTokenError ablation best_method build_heads build_references compare
        compare_questions corrupt_heads degrade degrade_images explain explain_each load load_heads load_references
        method method_names parse_texts patch_scores plausibility plot_agreement plot_curves plot_heads plot_layers
        plot_methods plot_variants protocol random_heads randomised read_conllu read_squad read_sst_trees read_table
        sanity_check save_heads save_references sst_rationale to_html to_latex to_report
    """
    assert whichtoken.__all__ == expected.split()
    assert whichtoken.__all__ == sorted(whichtoken._HOMES)
    for name in whichtoken.__all__:
        assert getattr(whichtoken, name).__name__ == name
        assert name in dir(whichtoken)
    with pytest.raises(AttributeError, match="no attribute 'explian'"):
        _ = whichtoken.explian


def test_importing_whichtoken_or_its_records_does_not_import_torch() -> None:
    modules = ", ".join(f"whichtoken.{name}" for name in WITHOUT_TORCH)
    code = f"import sys, whichtoken, {modules}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
