"""Break one line of the source at a time and see whether the tests notice: `make mutants`, `make mutants-chosen`.

    python -m tests.mutants --out results.json [--n 40] [--seed 0] [--near]
    python -m tests.mutants --out results.json --again [--tree FOLDER] [--near]
    python -m tests.mutants --out results.json --chosen [--again] [--tree FOLDER]

Each mutant changes one operator, comparison or constant in a copy of the source. Tests of the same part run first, then
(without `--near`) the others, until one fails. `--again` tries the surviving mutants of an earlier run once more, on
another checkout (`--tree`) if wanted: so two states of the test suite can be compared. `--chosen` applies the mutants
of `chosen_mutants.py` instead of random ones, each with its own tests, after these have passed on the source as it is.
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
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.chosen_mutants import CHOSEN, Chosen

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
    """Return the first test that fails, or None."""
    lines = (tree / "src/whichtoken" / mutant.path).read_text(encoding="utf-8").splitlines(keepends=True)
    lines[mutant.line - 1] = mutant.after
    near = [path for path in NEAR.get(mutant.path.split("/")[0], []) if (tree / path).exists()]
    first = near or ["tests/test_explain.py", "tests/test_records.py", "tests/test_words.py"]
    return find_failure(tree, {mutant.path: "".join(lines)}, [first] if near_only else [first, ["tests"]])


def apply(tree: Path, chosen: Chosen) -> str:
    """Return the changed content of the file."""
    text = (tree / "src/whichtoken" / chosen.path).read_text(encoding="utf-8")
    if (found := text.count(chosen.before)) != 1:
        sys.exit(f"{chosen.path} has {chosen.before!r} {found} times, expected once; correct tests/chosen_mutants.py")
    return text.replace(chosen.before, chosen.after)


def tests_of(chosen: Chosen) -> list[str]:
    return [f"tests/{test}" for test in chosen.tests.split()]


def find_failure(tree: Path, changed: Mapping[str, str], selections: Sequence[Sequence[str]]) -> str | None:
    """Run selections of tests, one after another, on a copy of the source with changed files, until a test fails."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(tree / "src", source)
        for path, text in changed.items():
            (source / "whichtoken" / path).write_text(text, encoding="utf-8")
        for selection in selections:
            words = ["-q", "-x", "-p", "no:cacheprovider", *selection]
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


Row = dict[str, Any]


def random_rows(given: argparse.Namespace) -> list[Row]:
    if given.again:
        rows: list[Row] = json.loads(given.out.read_text(encoding="utf-8"))
        return rows
    return [{**asdict(m), "killed_by": None} for m in choose(given.tree, given.n, given.seed)]


def judge_random(given: argparse.Namespace, row: Row) -> str:
    """Try one mutant, and return how to show it."""
    mutant = mutants_of(given.tree, row["path"])[row["number"]]
    row["killed_by"] = killed_by(given.tree, mutant, given.near)
    return f"{mutant.path}:{mutant.line} {row['killed_by'] or 'SURVIVED'}\n    {mutant.after.strip()}"


def chosen_rows(given: argparse.Namespace) -> list[Row]:
    """Return the whole table, with what an earlier run killed; the tests of the others must pass without a mutant."""
    earlier = json.loads(given.out.read_text(encoding="utf-8")) if given.again else []
    killed = {(row["path"], row["before"], row["after"]): row["killed_by"] for row in earlier}
    rows = [{**asdict(c), "killed_by": killed.get((c.path, c.before, c.after))} for c in CHOSEN]
    for chosen in CHOSEN:
        apply(given.tree, chosen)
    waiting = [chosen for chosen, row in zip(CHOSEN, rows, strict=True) if row["killed_by"] is None]
    tests = sorted({test for chosen in waiting for test in tests_of(chosen)})
    if tests and (failure := find_failure(given.tree, {}, [tests])):
        sys.exit(f"a test fails without any mutant: {failure}")
    return rows


def judge_chosen(given: argparse.Namespace, row: Row) -> str:
    """Try one mutant, and return how to show it."""
    chosen = next(c for c in CHOSEN if all(row[key] == value for key, value in asdict(c).items()))
    row["killed_by"] = find_failure(given.tree, {chosen.path: apply(given.tree, chosen)}, [tests_of(chosen)])
    return f"{chosen.path} {row['killed_by'] or 'SURVIVED'}\n    {chosen.after} ({chosen.why})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tree", type=Path, default=ROOT)
    parser.add_argument("--near", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--chosen", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    rows = chosen_rows(given) if given.chosen else random_rows(given)

    def judge(row: Row) -> None:
        print((judge_chosen if given.chosen else judge_random)(given, row), flush=True)
        given.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")

    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(judge, [row for row in rows if row["killed_by"] is None]))
    print(f"{sum(row['killed_by'] is not None for row in rows)} of {len(rows)} killed")


if __name__ == "__main__":
    main()
