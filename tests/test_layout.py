"""The design, checked: who may import whom, how long files may be, and that names agree."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import whichtoken
from whichtoken.core.registry import find, method_names

PACKAGE = Path(whichtoken.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
TOP = (
    *(
        "Attribution",
        "Class",
        "Contrast",
        "Curve",
        "Generation",
        "Results",
        "Span",
        "Subject",
        "TokenLabels",
        "WhichTokenError",
    ),
    *("degrade", "explain", "explain_each", "load", "method", "method_names"),
)
NAMESPACES = ("bench", "data", "heads", "jobs", "metrics", "plot", "references", "vision")
LAZY = ("bench", "heads", "jobs", "metrics", "references")

# Each may import from the rows above its own, and from within its own row. A file counts with its folder unless it is
# named itself.
LEVELS = [
    {"errors", "_lazy"},
    {"boundary", "checks", "identity"},
    {"decode"},
    {
        "settings",
        "atomic_write",
        "words",
        "sentences",
        "trust",
        "data",
        "targets",
        "core/__init__",
        "core/removal_steps",
    },
    {"sentences"},
    {"answers"},
    {"record_checks"},
    {"records"},
    {"named_units"},
    {"flat"},
    {"tables", "summaries", "lrp", "references", "heads", "vision"},
    {"render", "core"},
    {"metrics", "results"},
    {"core/registry"},
    {"core/ops", "catalogue"},
    {"methods", "models"},
    {"tasks"},
    {"references/candidates"},
    {"references/_build", "heads/_build"},
    {"top_words"},
    {"scoring"},
    {"_explain"},
    {"evaluate", "metrics/randomisation"},
    {"jobs/parts"},
    {"bench"},
    {"jobs"},
    {"reproduce"},
    {"web"},
    {"cli", "plot"},
    {"__init__", "__main__"},
]
LEVEL = {name: number for number, row in enumerate(LEVELS) for name in row}
# The only imports that may point the other way, and only inside functions: an Attribution and a BenchTable offer
# pictures of themselves (`to_html`, `_repr_html_`), so their modules import render when one is asked for. Loading them
# does not load render.
LATE = {("records", "render"), ("tables", "render")}
# The only part, or file, that may import a package.
DOORS = {
    "transformers": ("models",),
    "tokenizers": ("models",),
    "typer": ("cli",),
    "rich": ("cli", "render/terminal.py"),
    "jinja2": ("render/html.py",),
    "matplotlib": ("render/canvas.py", "render/figures.py", "render/charts.py"),
    "spacy": ("heads/spacy.py",),
    "sentencex": ("sentences.py",),
    "ray": ("jobs/ray.py",),
    "duckdb": ("jobs/query.py",),
    "pydantic": ("decode.py", "web/schema.py"),
    "fastapi": ("web",),
    "starlette": ("web",),
    "uvicorn": ("web",),
    "PIL": ("models/images.py", "render/pictures.py", "records.py"),
}
WITHOUT_TORCH = [
    "errors",
    "boundary",
    "checks",
    "identity",
    "decode",
    "settings",
    "words",
    "sentences",
    "trust",
    "data",
    "atomic_write",
    "tables",
    "records",
    "flat",
    "results",
    "metrics.curves",
    "metrics.ranks",
    "metrics._plausibility",
    "core.removal_steps",
    "catalogue",
    "heads",
    "vision",
    "references",
    "bench",
    "jobs",
    "jobs.parts",
    "jobs.files",
    "jobs.shards",
    "jobs.work",
    "jobs.local",
    "jobs.ray",
    "jobs.progress",
    "jobs.manifest",
    "jobs.summary",
    "jobs.plan",
    "summaries",
    "metrics",
    "render.answers",
    "render.groups",
    "render.rows",
    "render.numbers",
    "render.trust",
    "render.interval_chart",
    "render.html",
    "render.terminal",
    "render.latex",
    "render.figures",
    "render.bench_table",
    "render.charts",
    "render.report",
    "render.review",
    "render.corpus",
    "plot",
    "cli.app",
]


def part_of(path: Path) -> str:
    """The file or folder that has a level."""
    relative = path.relative_to(PACKAGE).with_suffix("")
    return next(str(part) for part in (relative, *relative.parents) if str(part) in LEVEL)


def imports_of(path: Path) -> Iterator[tuple[str, bool]]:
    """Modules, and whether the import stands inside a function."""
    tree = ast.parse(path.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    late = {node for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node in late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or "", node in late


def part_named(module: str) -> str:
    path = PACKAGE.joinpath(*module.split(".")[1:])
    return part_of(path / "__init__.py" if path.is_dir() else path.with_suffix(".py"))


def test_every_level_is_there() -> None:
    for part in LEVEL:
        assert (PACKAGE / part).is_dir() or (PACKAGE / f"{part}.py").is_file(), part


def test_imports_point_one_way() -> None:
    for path in FILES:
        mine = part_of(path)
        for name, late in imports_of(path):
            if name.startswith("whichtoken."):
                theirs = part_named(name)
                allowed = theirs == mine or LEVEL[theirs] < LEVEL[mine] or (late and (mine, theirs) in LATE)
                assert allowed, f"{mine} imports {name}"


def test_namespaces_are_for_users_and_the_edges() -> None:
    """Their names are imported on first use, from anywhere above: inside the house that would hide who needs whom."""
    for path in FILES:
        if part_of(path) not in ("cli", "plot", "__init__"):
            lazy = {f"whichtoken.{name}" for name in LAZY}
            taken = {name for name, _ in imports_of(path) if name in lazy} - {"whichtoken.bench"}
            assert not taken, f"{path.name} imports {taken}; import the module itself"


def test_only_tasks_know_kinds_of_input() -> None:
    """A branch on the kind of input anywhere else would have to be found again for every new task."""
    kinds = re.compile(r"\bTask\.[A-Z]|architecture\.images|pick_ends|\.unit [!=]= |task\.name [!=]= ")
    for path in FILES:
        if path.parent.name != "tasks" and path.name != "architectures.py":
            assert not kinds.findall(path.read_text()), path


def test_heavy_packages_enter_by_one_door() -> None:
    for path in FILES:
        for name, _ in imports_of(path):
            doors = DOORS.get(name.split(".")[0])
            relative = path.relative_to(PACKAGE)
            here = (relative.parts[0], str(relative))
            assert doors is None or set(doors) & set(here), f"{here[1]} imports {name}"


def test_files_are_short_and_say_what_they_are_for() -> None:
    for path in FILES:
        text = path.read_text()
        assert len(text.splitlines()) <= 500, path
        assert ast.get_docstring(ast.parse(text)), path


def test_a_class_name_means_one_thing() -> None:
    classes = [
        node.name for path in FILES for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)
    ]
    assert not {name for name in classes if classes.count(name) > 1}


def test_file_class_and_registry_names_agree() -> None:
    for name in method_names():
        method = find(name)
        assert method.__module__ == f"whichtoken.methods.{name.replace('-', '_')}"
        assert method.__name__.lower() == name.replace("-", "")
    files = {path.stem for path in (PACKAGE / "methods").iterdir()} - {"__init__", "__pycache__"}
    assert files == {name.replace("-", "_") for name in method_names()}


def test_method_files_are_at_most_130_lines() -> None:
    for path in (PACKAGE / "methods").glob("*.py"):
        assert len(path.read_text().splitlines()) <= 130, path.name


def test_only_torch_factorises_matrices() -> None:
    """Threads of numpy's BLAS cannot be limited per worker: `core.linear_algebra` says why that matters."""
    users = [path for path in PACKAGE.rglob("*.py") if "np.linalg" in path.read_text(encoding="utf-8")]
    assert not users


def test_the_public_surface() -> None:
    """The stub is the list; here is what DESIGN says of it."""
    wt: Any = whichtoken
    assert set(wt.__all__) == {"__version__", *TOP, *NAMESPACES}
    for name in TOP:
        assert getattr(whichtoken, name).__name__ == name
    for name in NAMESPACES:
        namespace = getattr(whichtoken, name)
        assert namespace.__name__ == f"whichtoken.{name}"
        assert namespace.__all__
        for public in namespace.__all__:
            assert getattr(namespace, public).__name__ == public, f"wt.{name}.{public}"
            assert public in dir(namespace)
    with pytest.raises(AttributeError, match="module 'whichtoken' has no attribute 'explian'"):
        _ = wt.explian
    with pytest.raises(AttributeError, match=r"module 'whichtoken\.bench' has no attribute 'rum'"):
        _ = wt.bench.rum


def test_a_public_function_is_found_whatever_was_imported_before() -> None:
    """No module may have the name of a public function: importing it would put it in the function's place."""
    for name in NAMESPACES:
        modules = {path.stem for path in (PACKAGE / name).glob("*.py")}
        assert not modules & set(getattr(whichtoken, name).__all__), name


def test_importing_whichtoken_or_its_records_does_not_import_torch() -> None:
    modules = ", ".join(f"whichtoken.{name}" for name in WITHOUT_TORCH)
    code = f"import sys, whichtoken, {modules}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_command_line_does_not_import_pydantic() -> None:
    """It takes half as long as `whichtoken --help`, and only reading files and building methods need it."""
    code = (
        "import sys, whichtoken.cli.app, whichtoken.catalogue as c; c.catalogue(); sys.exit('pydantic' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
