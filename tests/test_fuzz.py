"""Damaged files: every reader accepts them or refuses them in one line, with bounded memory. Run more of them with

    python tests/test_fuzz.py --files 5000 [--seed 7] [--reader csv] [--keep FOLDER]

`--files` is the number for each reader, `--keep` stores every file that led to a finding. A file follows from the seed,
the name of its reader and its number alone.
"""

import argparse
import gzip
import hashlib
import json
import re
import resource
import struct
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from rich.console import Console

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.damage import (
    Damage,
    damage_bytes,
    damage_cells,
    damage_json,
    damage_json_lines,
    damage_parquet,
    damage_safetensors,
)
from tests.forked import forked
from tests.heads.corpus import conllu
from tests.tiny import CORPUS, KINDS, image_model_of, images, model_of, with_heads, with_references

import whichtoken as wt
from whichtoken.bench.auto import choose
from whichtoken.bench.external import read_external_scores
from whichtoken.bench.folder import Folder, read_spec, read_table, result_rows
from whichtoken.core.registry import method_names
from whichtoken.data.examples import check_texts, read_examples, read_images
from whichtoken.data.squad import read_squad
from whichtoken.errors import WhichTokenError
from whichtoken.heads import read_conllu
from whichtoken.heads import store as head_store
from whichtoken.references import store as reference_store
from whichtoken.render.bench_table import markdown
from whichtoken.render.groups import group_results
from whichtoken.render.rows import Look
from whichtoken.render.terminal import heads_view, print_each
from whichtoken.reproduce.idx import read_idx
from whichtoken.reproduce.sst_trees import read_sst_trees
from whichtoken.results import read_results
from whichtoken.tasks import task_for
from whichtoken.trust import Confidence, Removal

FILES = 220  # for each reader, in the test
AT_ONCE = 110  # files that one child process reads
MEGABYTE = 2**20
PEAK = 200 * MEGABYTE  # that reading a damaged file may need
ADDRESS_SPACE = 4096 * MEGABYTE  # a stop for what would otherwise take the whole machine
LONGEST_MESSAGE = 1000
FINE = ("accepted", "refused")
TEXTS = ["The film was slow, but the music was touching.", 'a "rare" plot, naïve 電影', "Nobody did sleep."]


@dataclass(frozen=True)
class Made:
    """Valid files: their contents, and where such a file belongs."""

    path: Path
    contents: Sequence[bytes]


@dataclass(frozen=True)
class Reader:
    name: str
    make: Callable[[Path], Made]
    read: Callable[[Path], object]
    damage: Damage


def subject() -> wt.Subject:
    return wt.Subject(model_of("bert"), KINDS["bert"].tokenizer(), name="tiny bert")


def lines_of(rows: Iterable[Any]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


# Readers of what whichtoken writes


def confidence_of(attribution: wt.Attribution) -> Confidence:
    low, high = (tuple(score + add for score in attribution.scores) for add in (-0.5, 0.5))
    return Confidence(low, high, 0.9, 8, 1, 64, 0.8, 0.7, Removal((1, 2), 0.1))


def make_results(folder: Path) -> Made:
    explained = wt.explain(subject(), TEXTS[:2], ["attcat", "random"], layers=True)
    pictures = wt.explain(wt.Subject(image_model_of("vit"), None), images=list(images(1)), methods=["attcat"])
    records = [a for result in (*explained, *pictures) for a in result.values()]
    sure = [replace(a, confidence=confidence_of(a)) for a in records]
    lines = [a.to_json() for pair in zip(records, sure, strict=True) for a in pair]
    return Made(folder / "x.jsonl", [("\n".join(lines) + "\n").encode()])


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Add the file to errors of what is done with its content, where nobody knows the file."""
    try:
        yield
    except WhichTokenError as error:
        raise WhichTokenError(f"{path.name}: {error}") from error


def show_results(path: Path) -> None:
    """Read and draw: what is accepted must also be drawn."""
    attributions = read_results(path)
    with named(path):
        results: list[Any] = group_results(attributions)
        print_each(Console(file=StringIO(), width=80), results, Look(numbers=True))
        for attribution in attributions:
            attribution.to_html()
            attribution.to_json()
            if attribution.picture is None:
                attribution.to_latex()


def make_curves(folder: Path) -> Made:
    one = subject()
    (curve,) = wt.degrade(one, [wt.explain(one, TEXTS[:1], ["random"])[0]["random"]])
    return Made(folder / "curve.json", [curve.to_json().encode()])


def read_curve(path: Path) -> None:
    with named(path):
        curve = wt.Curve.from_json(path.read_bytes().decode("utf-8", "surrogateescape"))
        curve.to_json()
        wt.metrics.aopc(curve)


def make_references(folder: Path) -> Made:
    library = with_references(subject()).references
    assert library is not None
    reference_store.save(library, folder / "library")
    path = folder / "library" / reference_store.DESCRIPTION
    return Made(path, [path.read_bytes()])


def read_references(path: Path) -> None:
    library = reference_store.read(path.parent)
    with named(path):
        library.summary()
        like = torch.zeros((), dtype=torch.float64)
        for label in range(len(library.labels)):
            library.read(label, slice(None), None, 7, like)


def make_activations(folder: Path) -> Made:
    path = make_references(folder).path.parent / reference_store.ACTIVATIONS
    return Made(path, [path.read_bytes()])


def read_activations(path: Path) -> None:
    """Read tensors whose hash is right: an attacker can compute it, too."""
    description = path.parent / reference_store.DESCRIPTION
    document = json.loads(description.read_bytes())
    document["activations_blake2b"] = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    description.write_text(json.dumps(document), encoding="utf-8")
    read_references(path)


def make_heads(folder: Path) -> Made:
    mask = with_heads(subject()).heads
    assert mask is not None
    head_store.save(mask, folder / "heads.json")
    return Made(folder / "heads.json", [(folder / "heads.json").read_bytes()])


def show_heads(path: Path) -> None:
    mask = head_store.read(path)
    with named(path):
        Console(file=StringIO(), width=80).print(heads_view(mask))
        head_store.to_json(mask)


def make_bench(folder: Path, name: str) -> Made:
    out = folder / "bench"  # its specification is kept outside, too
    how = wt.bench.protocol(min_tokens=1, metrics=("aopc", "normalised-aopc", "agreement"))
    wt.bench.run(subject(), TEXTS, ["attcat", "random"], protocol=how, out=out)
    (folder / "requested.json").write_bytes((out / "spec.json").read_bytes())
    path = next(iter(out.glob(name)))
    return Made(path, [path.read_bytes()])


def read_bench_part(path: Path) -> None:
    """Read a part whose hash is right."""
    with suppress(ValueError, RecursionError):
        document = json.loads(path.read_bytes())
        if isinstance(document, dict) and document.pop("sha256", None) is not None:
            text = json.dumps(document, sort_keys=True, allow_nan=False)
            path.write_text(json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), **document}))
    kept = Folder(path.parents[1]).longest_part(0, len(TEXTS))
    assert kept is not None
    with named(path):
        result_rows(kept.part.inputs)


def show_table(path: Path) -> None:
    table = read_table(path)
    with named(path):
        markdown(table)
        choose(table, "a test", method_names())


def claim_bench(path: Path) -> None:
    """Resume the benchmark that made the specification."""
    requested = json.loads((path.parents[1] / "requested.json").read_bytes())
    sample = {"sample": requested.pop("sample")}
    Folder(path.parent).claim(requested, sample)
    read_spec(path)


# Readers of what users have


def make_rows(kind: str) -> Callable[[Path], Made]:
    rows = [{"id": i, "text": text, "label": i % 2} for i, text in enumerate([*TEXTS, *CORPUS])]
    quoted = ['"' + text.replace('"', '""') + '"' for text in (str(row["text"]) for row in rows)]
    written = {
        "csv": "id,text,label\n" + "".join(f"{r['id']},{q},{r['label']}\n" for r, q in zip(rows, quoted, strict=True)),
        "tsv": "id\ttext\tlabel\n" + "".join(f"{r['id']}\t{r['text']}\t{r['label']}\n" for r in rows),
        "txt": "".join(f"{row['text']}\n" for row in rows),
        "jsonl": lines_of(rows).decode(),
    }
    return lambda folder: Made(folder / f"x.{kind}", [written[kind].encode()])


def make_parquet(folder: Path) -> Made:
    text = pa.array(TEXTS * 20)
    label = pa.array([0, 1, None] * 20)
    tables = [
        pa.table({"text": text, "label": label}),
        pa.table({"text": text.dictionary_encode(), "label": pa.array([[1, 2], [], None] * 20)}),
        pa.table({"text": text.cast(pa.large_string()), "label": label.cast(pa.timestamp("us"))}),
        pa.table({"text": text, "label": pa.array([{"a": 1, "b": "x"}] * 60)}),
        pa.table({"premise": text, "hypothesis": text, "label": text.cast(pa.binary())}),
    ]
    contents = []
    for table, compression in zip(tables, ("snappy", "none", "zstd", "gzip", "snappy"), strict=True):
        parquet.write_table(table, folder / "x.parquet", compression=compression, row_group_size=25)
        contents.append((folder / "x.parquet").read_bytes())
    return Made(folder / "x.parquet", contents)


def read_texts(path: Path) -> None:
    """Read all rows; what is accepted can be written again."""
    for example in read_examples(path):
        check_texts(example.texts, example.where)
        json.dumps([example.texts, str(example.label), example.where], ensure_ascii=False).encode()


def make_paths(folder: Path) -> Made:
    return Made(folder / "images.csv", [b"image,label\na.png,1\nb/c.png,0\n"])


def read_paths(path: Path) -> None:
    for example in read_images(path):
        json.dumps([str(example.image), str(example.label), example.where], ensure_ascii=False).encode()


def make_squad(folder: Path) -> Made:
    answers = [{"text": "film", "answer_start": 4}]
    asked = [{"id": "a", "question": "What?", "answers": answers}, {"id": "b", "question": "Who?", "answers": []}]
    articles = {"version": "1", "data": [{"title": "T", "paragraphs": [{"context": TEXTS[0], "qas": asked}]}]}
    columns = {"text": ["film"], "answer_start": [4]}
    rows = [
        {"id": "c", "question": "What?", "context": TEXTS[0], "answers": columns},
        {"question": "What?", "context": TEXTS[0], "answer": "slow"},
    ]
    return Made(folder / "squad.json", [json.dumps(articles).encode(), json.dumps(rows).encode()])


def read_questions(path: Path) -> None:
    for question in read_squad(path):
        check_texts(question.texts, question.where)
        json.dumps(asdict(question), ensure_ascii=False).encode()


def make_conllu(folder: Path) -> Made:
    blocks = [
        ["# sent_id = 1", "# text = The film was slow.", "1 The 2 det", "2 film 4 nsubj", "3 was 4 cop",
         "4 slow 0 root SpaceAfter=No", "5 . 4 punct"],
        ["1-2 don't _ _", "1 do 3 aux", "2 n't 3 advmod", "2.1 x _ _", "3 sleep 0 root"],
    ]  # fmt: skip
    return Made(folder / "x.conllu", [conllu(*blocks).encode()])


def make_external(folder: Path) -> Made:
    one = subject()
    tokens = list(one.encode([(TEXTS[0],)])[0].tokens)
    rows: list[Any] = [
        {"text": TEXTS[0], "method": "a", "tokens": tokens, "scores": [0.5] * len(tokens), "tuned_on_deletion": True},
        {"text": TEXTS[1], "method": "a", "spans": [[0, 1], [2, 6], None], "scores": [1, 2.5, 0], "label": "x"},
        {
            "texts": [TEXTS[2], TEXTS[0]],
            "method": "a",
            "spans": [[0, 6], [0, 3]],
            "sequences": [0, 1],
            "scores": [1, 2],
            "revision": "r",
        },
    ]
    own = [json.loads(a.to_json()) for a in wt.explain(one, TEXTS[:1], ["attcat"])[0].values()]
    return Made(folder / "scores.jsonl", [lines_of(rows), lines_of(own)])


def read_scores(path: Path) -> None:
    for methods in read_external_scores(path, task_for(_SUBJECT[0])).values():
        for scores in methods.values():
            json.dumps(asdict(scores), ensure_ascii=False, allow_nan=False).encode()


def make_idx(folder: Path) -> Made:
    raw = b"\0\0\x08\x03" + struct.pack(">3I", 4, 3, 2) + bytes(range(24))
    return Made(folder / "images-ubyte", [raw, gzip.compress(raw, mtime=0)])


def make_trees(folder: Path) -> Made:
    return Made(folder / "dev.txt", [b"(3 (2 It) (4 (2 is) (4 charming)))\n(1 (2 -LRB-) (1 (1 slow) (2 film)))\n"])


READERS = [
    Reader("results", make_results, show_results, damage_json_lines),
    Reader("curve", make_curves, read_curve, damage_json),
    Reader("references", make_references, read_references, damage_json),
    Reader("activations", make_activations, read_activations, damage_safetensors),
    Reader("heads", make_heads, show_heads, damage_json),
    Reader("bench-part", lambda folder: make_bench(folder, "parts/*.json"), read_bench_part, damage_json),
    Reader("bench-spec", lambda folder: make_bench(folder, "spec.json"), claim_bench, damage_json),
    Reader("bench-table", lambda folder: make_bench(folder, "table.json"), show_table, damage_json),
    Reader("csv", make_rows("csv"), read_texts, damage_cells(b",")),
    Reader("tsv", make_rows("tsv"), read_texts, damage_cells(b"\t")),
    Reader("txt", make_rows("txt"), read_texts, damage_cells(b" ")),
    Reader("jsonl", make_rows("jsonl"), read_texts, damage_json_lines),
    Reader("parquet", make_parquet, read_texts, damage_parquet),
    Reader("image-paths", make_paths, read_paths, damage_cells(b",")),
    Reader("squad", make_squad, read_questions, damage_json),
    Reader("conllu", make_conllu, lambda path: list(read_conllu(path)), damage_cells(b"\t")),
    Reader("external", make_external, read_scores, damage_json_lines),
    Reader("idx", make_idx, read_idx, damage_bytes),
    Reader("sst-trees", make_trees, lambda path: list(read_sst_trees(path)), damage_cells(b" ")),
]
_SUBJECT: list[wt.Subject] = []  # made before the fork


def outcome_of(read: Callable[[Path], object], path: Path) -> str:
    """Return "accepted", "refused" (in one line), or what is wrong with how a file is read."""
    try:
        read(path)
        return "accepted"
    except WhichTokenError as error:
        message = str(error)
        if len(message) >= LONGEST_MESSAGE:
            return f"a message of {len(message)} characters: {message[:200]!r}"
        if not message.isprintable():
            return f"a message with control characters: {message!r}"
        if str(path.name) not in message and str(path.parent) not in message:
            return f"a message without the file: {message}"
    except BaseException as error:  # what is looked for
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {last.filename}:{last.lineno}: {str(error)[:200]!r}"
    return "refused"


def high_water() -> int:
    """Return the most memory that this process has used, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def reset_high_water() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def damaged(reader: Reader, made: Made, seed: int, number: int) -> bytes:
    draw = Random(f"{seed} {reader.name} {number}")
    return reader.damage(draw, draw.choice(made.contents))


def read_damaged(reader: Reader, made: Made, seed: int, numbers: Iterable[int], report: Path) -> None:
    """Read damaged files, and append a line to the report for each: so that a crash names its file, too."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE + _address_space(), resource.RLIM_INFINITY))
    with report.open("a") as lines:
        for number in numbers:
            print(number, file=lines, end=" ", flush=True)
            content = damaged(reader, made, seed, number)
            made.path.write_bytes(content)
            reset_high_water()
            before = high_water()
            outcome = outcome_of(reader.read, made.path)
            used = high_water() - before
            if used > PEAK:
                outcome = f"{used // MEGABYTE} MB of memory for {len(content)} bytes; {outcome}"
            print(json.dumps(outcome), file=lines, flush=True)


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def outcomes_of(reader: Reader, made: Made, seed: int, files: int, report: Path) -> list[str]:
    """Return the outcome of each damaged file; they are read in child processes, which may crash."""
    outcomes: list[str] = []
    while len(outcomes) < files:
        report.write_text("")
        numbers = range(len(outcomes), min(len(outcomes) + AT_ONCE, files))
        code = forked(partial(read_damaged, reader, made, seed, numbers, report))
        lines = [line.partition(" ")[2] for line in report.read_text().splitlines()]
        assert lines, "the child process read nothing"
        outcomes += [json.loads(outcome) if outcome else f"the process ended with {code}" for outcome in lines]
    return outcomes


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_damaged_files_are_refused_in_one_line(reader: Reader, tmp_path: Path) -> None:
    _SUBJECT[:] = _SUBJECT or [subject()]
    made = reader.make(tmp_path)
    for content in made.contents:
        made.path.write_bytes(content)
        assert outcome_of(reader.read, made.path) == "accepted"
    outcomes = outcomes_of(reader, made, 0, FILES, tmp_path / "report")
    assert {number: outcome for number, outcome in enumerate(outcomes) if outcome not in FINE} == {}
    assert outcomes.count("refused") > FILES / 10  # the damage is real


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reader", choices=[reader.name for reader in READERS])
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    _SUBJECT[:] = [subject()]
    n_files, n_findings = 0, 0
    for reader in READERS:
        if options.reader not in (None, reader.name):
            continue
        with tempfile.TemporaryDirectory() as folder:
            made = reader.make(Path(folder))
            outcomes = outcomes_of(reader, made, options.seed, options.files, Path(folder) / "report")
        findings = [number for number, outcome in enumerate(outcomes) if outcome not in FINE]
        n_files, n_findings = n_files + options.files, n_findings + len(findings)
        counts = f"{outcomes.count('accepted')} accepted, {outcomes.count('refused')} refused"
        print(f"{reader.name}: {options.files} files, {counts}, {len(findings)} findings", flush=True)
        kinds: dict[str, list[int]] = {}
        for number in findings:
            kinds.setdefault(re.sub(r"\d+|'.*'", "_", outcomes[number])[:120], []).append(number)
        for first, *others in kinds.values():
            print(f"  {1 + len(others)} x, first file {first}: {outcomes[first]}")
            if options.keep is not None:
                options.keep.mkdir(parents=True, exist_ok=True)
                kept = options.keep / f"{reader.name}-{options.seed}-{first}-{made.path.name}"
                kept.write_bytes(damaged(reader, made, options.seed, first))
    print(f"{n_files} files, {n_findings} findings")
    sys.exit(bool(n_findings))


if __name__ == "__main__":
    main()
