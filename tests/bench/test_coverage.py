"""Benchmarks on texts that are longer than their references say so under the table."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from tests.tiny import KINDS, model_of, with_references

import whichtoken as wt
from whichtoken.bench.folder import Folder
from whichtoken.jobs.parts import hash_content
from whichtoken.tables import BenchTable

TEXTS = [" ".join(["slow film"] * n) for n in (4, 6, 9)]
REFERENCE = "slow film"  # 4 tokens with the two special ones
MEAN = sum(4 / (2 * n + 2) for n in (4, 6, 9)) / 3  # 0.295
SENTENCE = (
    "Contrast-CAT's references cover 30 % of the texts on average; beyond them, its scores are those of AttCAT: build "
    "a library from longer texts (whichtoken references build)."
)
HOW = wt.bench.protocol(metrics=("aopc",), perturbations=("delete",), orders=("morf",), min_tokens=1)


def subject(*texts: str) -> wt.Subject:
    return with_references(wt.Subject(model_of("bert"), KINDS["bert"].tokenizer()), texts)


def measured(*references: str, out: Path | None = None, methods: Any = ("attcat", "contrast-cat")) -> BenchTable:
    return wt.bench.run(subject(*references), TEXTS, methods, protocol=HOW, out=out)


def notes_of(table: BenchTable) -> list[str]:
    return [note for note in table.notes if "references" in note]


def test_a_note_appears_when_references_cover_less_than_half_on_average(tmp_path: Path) -> None:
    table = measured(REFERENCE, out=tmp_path / "run", methods=["attcat", "contrast-cat", "contrast-cat@repo"])
    assert notes_of(table) == [SENTENCE]
    assert SENTENCE in (tmp_path / "run" / "table.md").read_text()
    rows = parquet.read_table(tmp_path / "run" / "results.parquet").to_pylist()
    shares = [row["coverage"] for row in rows if row["method"] == "contrast-cat"]
    assert sum(shares) / 3 == pytest.approx(MEAN)
    assert {row["coverage"] for row in rows if row["method"] == "attcat"} == {None}


def test_there_is_none_for_long_references_or_for_other_methods() -> None:
    assert notes_of(measured(TEXTS[-1])) == []
    assert notes_of(measured(REFERENCE, methods=["attcat", "gae"])) == []


def test_a_folder_without_coverage_is_resumed(tmp_path: Path) -> None:
    """Parts that were saved before results had it are complete."""
    table = measured(REFERENCE, out=tmp_path)
    (saved,) = (tmp_path / "parts").iterdir()
    content = json.loads(saved.read_text())
    for record in content["inputs"]:
        del record["methods"]["contrast-cat"]["values"]["coverage"]
    del content["sha256"]
    saved.write_text(json.dumps({"sha256": hash_content(content), **content}))
    again = measured(REFERENCE, out=tmp_path)
    assert again == replace(table, notes=tuple(note for note in table.notes if note != SENTENCE))
    assert Folder(tmp_path).longest_part(0, 2) is not None
