"""Break one line of the source at a time and see whether the tests notice: `make mutants`.

    python tests/mutants.py --out results.json [--n 40] [--seed 0] [--near]
    python tests/mutants.py --out results.json --again [--tree FOLDER] [--near]

Each mutant changes one operator, comparison or constant in a copy of the source. Tests of the same part run first, then
(without `--near`) the others, until one fails. `--again` tries the surviving mutants of an earlier run once more, on
another checkout (`--tree`) if wanted: so two states of the test suite can be compared.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SKIPPED = ("cli", "assets", "catalogue.py", "__init__.py", "_lazy.py")
SWAPS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
IDLE = ("compare", "delay", "disable", "eq", "frozen", "leave", "repr", "strict")  # arguments that change no number
NEAR = {  # where a part of the source is tested; the rest of the suite follows
    "bench": ["tests/bench"],
    "core": ["tests/methods", "tests/test_removal_steps.py", "tests/test_registry.py"],
    "heads": ["tests/heads"],
    "lrp": ["tests/lrp"],
    "methods": ["tests/methods"],
    "metrics": [
        "tests/test_metrics.py",
        "tests/test_plausibility.py",
        "tests/evaluating",
        "tests/test_randomisation.py",
    ],
    "models": ["tests/models"],
    "references": ["tests/references", "tests/methods/test_contrast_cat.py"],
    "render": ["tests/render"],
    "reproduce": ["tests/reproduce"],
    "tasks": ["tests/tasks", "tests/test_questions.py", "tests/test_images.py"],
    "vision": ["tests/reproduce", "tests/test_images.py", "tests/test_patches.py"],
}


@dataclass(frozen=True)
class Mutant:
    path: str  # below src/whichtoken
    number: int  # among the places of its file that can be changed
    line: int
    before: str
    after: str


def mutants_of(tree: Path, path: str) -> list[Mutant]:
    """Every place of a file that can be changed, in the order of the syntax tree."""
    text = (tree / "src/whichtoken" / path).read_text(encoding="utf-8")
    lines, found, parsed = text.splitlines(keepends=True), list[Mutant](), ast.parse(text)
    idle = {
        id(k.value) for node in ast.walk(parsed) if isinstance(node, ast.Call) for k in node.keywords if k.arg in IDLE
    }
    for node in (node for node in ast.walk(parsed) if id(node) not in idle):
        for left, right, old, new in _changes(node):
            row, start, end = left[0], left[1], right[1]
            line = lines[row - 1].encode()
            middle = line[start:end].decode()
            if left[0] == right[0] and old in middle:
                changed = line[:start].decode() + middle.replace(old, new, 1) + line[end:].decode()
                found.append(Mutant(path, len(found), row, lines[row - 1], changed))
    return found


Place = tuple[int, int]


def _changes(node: ast.AST) -> Iterator[tuple[Place, Place, str, str]]:
    """Where an operator or constant stands, between which places of one line, and what takes its place."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
        yield _end(node.left), _start(node.comparators[0]), *SWAPS[type(node.ops[0])]
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS and not _is_text(node):
        yield _end(node.left), _start(node.right), *SWAPS[type(node.op)]
    elif isinstance(node, ast.BoolOp):
        yield _end(node.values[0]), _start(node.values[1]), *SWAPS[type(node.op)]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield _start(node), _start(node.operand), "not ", ""
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        swapped = (not node.value) if isinstance(node.value, bool) else node.value + 1
        yield _start(node), _end(node), str(node.value), str(swapped)


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        isinstance(s, ast.JoinedStr) or (isinstance(s, ast.Constant) and isinstance(s.value, str)) for s in sides
    )


def _start(node: ast.expr) -> Place:
    return node.lineno, node.col_offset


def _end(node: ast.expr) -> Place:
    return node.end_lineno or 0, node.end_col_offset or 0


def choose(tree: Path, n: int, seed: int) -> list[Mutant]:
    """Draw mutants, evenly over files."""
    files = sorted(str(p.relative_to(tree / "src/whichtoken")) for p in (tree / "src/whichtoken").rglob("*.py"))
    places = {p: mutants_of(tree, p) for p in files if not p.startswith(SKIPPED) and not p.endswith(SKIPPED)}
    draw = random.Random(seed)
    names = draw.choices(sorted(path for path, mutants in places.items() if mutants), k=n)
    return [draw.choice(places[name]) for name in names]


def killed_by(tree: Path, mutant: Mutant, near_only: bool) -> str | None:
    """The first test that fails, or None."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(tree / "src", source)
        file = source / "whichtoken" / mutant.path
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        lines[mutant.line - 1] = mutant.after
        file.write_text("".join(lines), encoding="utf-8")
        near = [path for path in NEAR.get(mutant.path.split("/")[0], []) if (tree / path).exists()]
        first = near or ["tests/test_explain.py", "tests/test_records.py", "tests/test_words.py"]
        for chosen in [first] if near_only else [first, ["tests"]]:
            words = ["-q", "-x", "-p", "no:cacheprovider", *chosen]
            if "not slow" in (tree / "Makefile").read_text(encoding="utf-8"):
                words += ["-m", "not slow"]
            environment = {**os.environ, "PYTHONPATH": str(source)}
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *words],
                cwd=tree,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
                return failed[0] if failed else done.stdout[-200:] + done.stderr[-200:]
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tree", type=Path, default=ROOT)
    parser.add_argument("--near", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.again:
        rows = json.loads(given.out.read_text(encoding="utf-8"))
    else:
        rows = [{**asdict(m), "killed_by": None} for m in choose(given.tree, given.n, given.seed)]

    def judge(row: dict[str, Any]) -> None:
        mutant = mutants_of(given.tree, row["path"])[row["number"]]
        row["killed_by"] = killed_by(given.tree, mutant, given.near)
        print(f"{mutant.path}:{mutant.line} {row['killed_by'] or 'SURVIVED'}\n    {mutant.after.strip()}", flush=True)
        given.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")

    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(judge, [row for row in rows if row["killed_by"] is None]))
    print(f"{sum(row['killed_by'] is not None for row in rows)} of {len(rows)} killed")


if __name__ == "__main__":
    main()
