"""One question, asked through every door, has one answer: Python, the command line, the page, corpus jobs, Ray."""

import base64
import csv
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet
from tests.web.calling import Caller
from tests.world import World

import whichtoken as wt
from whichtoken.cli.run import main
from whichtoken.records import Attribution
from whichtoken.web.app import make_app
from whichtoken.web.limits import Access
from whichtoken.web.service import make_service

METHODS = ("attcat", "posterior", "contrast-cat")
TEXT, OTHER = "The actors were rare, but the plot was slow.", "Nobody did sleep."


@dataclass(frozen=True)
class Question:
    """The same question in the words of each door."""

    kind: str  # of model
    python: Mapping[str, Any]
    command: tuple[str, ...]
    page: Mapping[str, Any]
    texts: tuple[str, ...] = ()  # of a row of a corpus
    methods: tuple[str, ...] = METHODS[:2]
    further: Mapping[str, Any] = field(default_factory=dict)  # for the page, beside the input

    @property
    def has_library(self) -> bool:
        return "contrast-cat" in self.methods


QUESTIONS = {
    "text": Question("texts", {"inputs": TEXT}, (TEXT,), {"kind": "text", "text": TEXT}, (TEXT,), METHODS),
    "pair": Question(
        "texts",
        {"inputs": [(TEXT, OTHER)]},
        (TEXT, "--pair", OTHER),
        {"kind": "pair", "text": TEXT, "pair": OTHER},
        (TEXT, OTHER),
        METHODS,
    ),
    "question": Question(
        "questions",
        {"question": "What was slow?", "context": TEXT},
        ("--question", "What was slow?", "--context", TEXT),
        {"kind": "question", "question": "What was slow?", "context": TEXT},
        methods=METHODS,
    ),
    "entity": Question(
        "entities",
        {"inputs": TEXT, "token": "plot"},
        (TEXT, "--token", "plot"),
        {"kind": "text", "text": TEXT},
        texts=(TEXT,),
        further={"token": "plot"},
    ),
    "image": Question("images", {"images": "IMAGE"}, ("--image", "IMAGE"), {"kind": "image", "data": "IMAGE"}),
    "prompt": Question(
        "prompts",
        {"prompt": TEXT, "continuation": " It is. A rare plot.", "rows": "sentence"},
        ("--prompt", TEXT, "--continuation", " It is. A rare plot.", "--rows", "sentence"),
        {"kind": "prompt", "prompt": TEXT, "continuation": " It is. A rare plot.", "rows": "sentence"},
    ),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


def subject_of(question: Question, world: World) -> wt.Subject:
    subject = wt.load(world.model(question.kind))
    return subject.with_references(world.library(question.kind)) if question.has_library else subject


def ask_python(question: Question, world: World) -> list[dict[str, Attribution]]:
    arguments: dict[str, Any] = {
        key: world.image if value == "IMAGE" else value for key, value in question.python.items()
    }
    return list(wt.explain(subject_of(question, world), methods=question.methods, **arguments))


def ask_command(question: Question, world: World, out: Path) -> dict[str, Attribution]:
    words = [str(world.image) if word == "IMAGE" else word for word in question.command]
    library = ["--references", str(world.library(question.kind))] if question.has_library else []
    chosen = ["--model", str(world.model(question.kind)), "--methods", ",".join(question.methods)]
    with pytest.raises(SystemExit) as ending:
        main(["explain", *words, *chosen, *library, "--out", str(out)])
    assert ending.value.code == 0
    records = [Attribution.from_json(line) for line in out.read_text(encoding="utf-8").splitlines()]
    return {record.method: record for record in records}


def ask_page(question: Question, world: World) -> dict[str, Attribution]:
    service = make_service([subject_of(question, world)])
    data = base64.b64encode(world.image.read_bytes()).decode()
    asked = {key: data if value == "IMAGE" else value for key, value in question.page.items()}
    body = {"model": next(iter(service.models)), "input": asked, "methods": question.methods, **question.further}
    try:
        events = Caller(make_app(service, Access()), service).post("/api/explain", body).events
    finally:
        service.stop()
    assert events[-1][0] == "done"
    results = [reply for name, reply in events if name == "result"]
    return {one["method"]: Attribution.from_json(json.dumps(one["result"]["record"])) for one in results}


def ask_corpus(question: Question, world: World, folder: Path, engine: str) -> list[dict[str, Any]]:
    """Return the rows of the shard, in which every entity of the text is explained."""
    folder.mkdir()
    with (folder / "texts.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([[f"text{n}" for n in range(len(question.texts))], question.texts])
    columns = [word for n in range(len(question.texts)) for word in ("--column", f"text{n}")]
    chosen = ["--model", str(world.model(question.kind)), "--methods", ",".join(question.methods)]
    call = ["corpus", "explain", "--data", str(folder / "texts.csv"), *columns, *chosen, "--out", str(folder / "out")]
    call += ["--references", str(world.library(question.kind))] if question.has_library else []
    call += ["--engine", engine, "--workers", "1"]
    subprocess.run([sys.executable, "-m", "whichtoken", *call], check=True)
    (shard,) = (folder / "out" / "shards").iterdir()
    rows: list[dict[str, Any]] = parquet.read_table(shard).to_pylist()
    return rows


def without_door(record: Attribution) -> Attribution:
    """Without what says where the question came from."""
    picture = record.picture and replace(record.picture, source="")
    return replace(record, source=None, picture=picture)


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_door_gives_the_same_record(name: str, world: World, tmp_path: Path) -> None:
    question = QUESTIONS[name]
    (result,) = ask_python(question, world)
    expected = {method: without_door(record) for method, record in result.items()}
    assert tuple(expected) == question.methods
    for found in (ask_command(question, world, tmp_path / "out.jsonl"), ask_page(question, world)):
        assert {method: without_door(record) for method, record in found.items()} == expected


# Workers are processes of their own, which take seconds to start.
@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["text", *(pytest.param(name, marks=pytest.mark.slow) for name in ("pair", "entity"))])
def test_a_corpus_has_the_same_scores(name: str, engine: str, world: World, tmp_path: Path) -> None:
    question = QUESTIONS[name]
    everything = replace(question, python={"inputs": question.python["inputs"]})
    expected = [record for result in ask_python(everything, world) for record in result.values()]
    rows = ask_corpus(question, world, tmp_path / "job", engine)
    assert len(rows) > 1
    for row, record in zip(rows, expected, strict=True):
        words = record.words()
        assert row["words"] == [word.text for word in words]
        assert row["scores"] == [np.float32(word.score) for word in words]
        assert (row["low"] is None) == (record.confidence is None)
        if record.confidence is not None:
            assert row["low"] == [np.float32(word.low) for word in words]
            assert row["high"] == [np.float32(word.high) for word in words]
        assert (row["method"], row["label"], row["probability"]) == (record.method, record.label, record.probability)
        assert (row["n_tokens"], row["n_cut"]) == (len(record.tokens), record.n_cut)
        assert tuple(row["texts"]) == record.texts
