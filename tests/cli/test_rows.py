"""Files on the command line: delimiters, rows that keep their identity, bad rows, pipes, and flat output."""

import csv
import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from tests.tiny import CORPUS, model_of, wordpiece

import whichtoken as wt
from whichtoken.cli.run import main
from whichtoken.flat import WORDS

TEXTS = ["the film is slow", "it was a rare plot", "nobody won, but it is a touching end"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    model_of("bert").float().save_pretrained(folder)
    wordpiece().save_pretrained(folder)
    return str(folder)


@pytest.fixture
def run(model: str, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*words: str | Path) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ending:
            main([*map(str, words), "--model", model])
        found = capsys.readouterr()
        return int(ending.value.code or 0), found.out, found.err

    return call


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    rows = [f"r{i};{text};{i};{i + 3}" for i, text in enumerate(TEXTS)]
    return write(tmp_path / "reviews.csv", "nr;body;gold;stars", *rows)


def failed(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_rows_travel_into_every_format(run: Any, reviews: Path, tmp_path: Path) -> None:
    columns = ("--column", "body", "--id", "nr", "--label", "gold", "--keep", "stars")
    words = ("explain", "--file", reviews, *columns, "--method", "attcat,gradient-x-input")
    for name in ("x.jsonl", "x.csv", "x.parquet"):
        code, _, err = run(*words, "--out", tmp_path / name)
        assert (code, err) == (0, f"whichtoken: 3 of 3 explained, written to {tmp_path / name}\n")
    results = wt.Results.read(tmp_path / "x.jsonl")
    sources = [result["attcat"].source for result in results]
    assert [(s.row, s.id, s.gold, s.columns) for s in sources if s] == [
        (2, "r0", "contradiction", {"stars": "3"}),
        (3, "r1", "entailment", {"stars": "4"}),
        (4, "r2", "neutral", {"stars": "5"}),
    ]
    assert (tmp_path / "x.csv").read_text(encoding="utf-8") == results.to_csv()
    table = parquet.read_table(tmp_path / "x.parquet")
    assert table.column_names == [*WORDS, "stars"]
    rows = list(csv.DictReader(io.StringIO(results.to_csv())))
    assert [str(row["score"]) for row in table.to_pylist()] == [row["score"] for row in rows]
    assert [row["word"] for row in rows if row["id"] == "r1" and row["method"] == "attcat"] == TEXTS[1].split()


def test_csv_goes_to_standard_output_and_parquet_needs_a_file(run: Any) -> None:
    code, out, _ = run("explain", TEXTS[0], "--method", "attcat", "--format", "csv", "--level", "token")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["word"] for row in rows] == ["[CLS]", "the", "film", "is", "slow", "[SEP]"]
    assert rows[0]["row"] == rows[0]["start"] == ""
    code, _, err = run("explain", TEXTS[0], "--format", "parquet")
    assert (code, "parquet is not text, so it needs a file: --out NAME.parquet" in err) == (2, True)


def test_a_table_for_a_spreadsheet_holds_no_formulas(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, out = tmp_path / "x.jsonl", tmp_path / "x.csv"
    for options, first in (((), "="), (("--spreadsheet",), "'=")):
        for words in (
            ("explain", "=slow film", "--method", "attcat", "--format", "csv", *options),
            ("compare", "=slow film", "--method", "attcat", "--format", "csv", *options),
        ):
            code, found, _ = run(*words)
            assert code == 0
            assert [row["word"] for row in csv.DictReader(io.StringIO(found))] == [first, "slow", "film"]
        assert run("explain", "=slow film", "--method", "attcat", "--out", kept)[0] == 0
        with pytest.raises(SystemExit) as ending:
            main(["show", str(kept), "--out", str(out), *options])
        assert ending.value.code == 0
        assert [row["word"] for row in csv.DictReader(out.read_text(encoding="utf-8").splitlines())] == [
            first,
            "slow",
            "film",
        ]
    capsys.readouterr()
    code, _, err = run("explain", "=slow film", "--method", "attcat", "--spreadsheet", "--out", kept)
    assert (code, err) == (
        2,
        "whichtoken: --spreadsheet is for csv, and the output is jsonl; use --format csv or --out NAME.csv, or leave "
        "it out\n",
    )


def test_a_delimiter_can_be_chosen_where_several_fit(run: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "text,kind;label", "slow,b;1", "film,a;0")
    code, _, err = run("explain", "--file", path)
    assert (code, "could be separated by comma and semicolon; choose one: --delimiter comma" in err) == (2, True)
    code, out, _ = run("explain", "--file", path, "--delimiter", ",", "--method", "attcat", "--format", "jsonl")
    assert [json.loads(line)["texts"] for line in out.splitlines()] == [["slow"], ["film"]]
    code, _, err = run("references", "build", path, "--out", tmp_path / "r", "--delimiter", ";;")
    assert (code, "delimiter=';;' is not allowed" in err) == (2, True)
    code, _, err = run("bench", "--data", path)
    assert (code, "--delimiter comma" in err) == (2, True)
    code, _, err = run("heads", "build", "--text", path, "--out", tmp_path / "h.json", "--delimiter", "^^")
    assert code == 2


BAD = (
    "text,label",
    "the film is slow,1",
    "a,b,c",
    ",1",
    f"{'slow ' * 60},0",
    "\u200b,0",
    "it was a rare plot,0",
    "won,9",
)


@pytest.mark.parametrize("named", [True, False])
def test_bad_rows_are_skipped_and_listed(run: Any, named: bool, tmp_path: Path) -> None:
    path, out = write(tmp_path / "x.csv", *BAD), tmp_path / "out.jsonl"
    words = (
        "explain",
        "--file",
        path,
        "--method",
        "attcat",
        "--long",
        "error",
        *(("--label", "label") if named else ()),
    )
    code, _, err = run(*words, "--out", out)
    assert (code, "line 3: expected 2 columns" in err, out.exists()) == (2, True, False)
    code, _, err = run(*words, "--out", out, "--on-bad-row", "skip")
    listing = tmp_path / "out.jsonl.failed.jsonl"
    n = 5 if named else 4
    assert (code, err.splitlines()[-1]) == (0, f"whichtoken: {n} of 7 rows skipped, see {listing}")
    explained = [result["attcat"].texts[0] for result in wt.Results.read(out)]
    assert explained == ["the film is slow", "it was a rare plot", "won"][: 7 - n]
    rows = failed(listing)
    assert [row["row"] for row in rows] == [3, 4, 5, 6, 8][:n]
    assert rows[0] == {
        "row": 3,
        "where": f"{path}, line 3",
        "reason": "expected 2 columns, as in the header, found 3; put a text that contains the delimiter in quotes",
        "content": ["a", "b", "c"],
    }
    reasons = [
        "has an empty text",
        "has 62 tokens, the model takes 40",
        "the tokenizer finds no token",
        "the gold label '9'",
    ]
    for row, reason in zip(rows[1:], reasons, strict=False):
        assert row["reason"].startswith(reason)


def test_without_a_file_skipped_rows_are_listed_up_to_20(run: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", *['{"text": ""}'] * 25, '{"text": "slow"}')
    code, out, err = run("explain", "--file", path, "--method", "attcat", "--on-bad-row", "skip")
    lines = [line for line in err.splitlines() if line.startswith("whichtoken: skipped: ")]
    assert (code, len(lines), "slow" in out) == (0, 20, True)
    assert lines[0] == f"whichtoken: skipped: {path}, row 1 has an empty text, ''; remove it"
    assert err.splitlines()[-1] == "whichtoken: 25 of 26 rows skipped"


def test_the_list_of_an_earlier_run_does_not_stay(run: Any, tmp_path: Path) -> None:
    words = ("explain", "--method", "attcat", "--out", tmp_path / "x.csv", "--on-bad-row", "skip", "--file")
    run(*words, write(tmp_path / "a.jsonl", "{", '{"text": "slow"}'))
    assert (tmp_path / "x.csv.failed.jsonl").exists()
    code, _, err = run(*words, write(tmp_path / "b.jsonl", '{"text": "slow"}'))
    assert (code, "skipped" in err) == (0, False)
    assert not (tmp_path / "x.csv.failed.jsonl").exists()


def test_if_no_row_can_be_used_this_is_an_error(run: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", "{", "[]")
    code, _, err = run("explain", "--file", path, "--on-bad-row", "skip")
    assert (code, f"none of the 2 rows of {path} can be used; the first is {path}, line 1 is not JSON" in err) == (
        2,
        True,
    )
    path = write(tmp_path / "y.txt", "\u200b", "\u200b\u200b")
    code, _, err = run("explain", "--file", path, "--on-bad-row", "skip", "--method", "attcat")
    assert (code, err.splitlines()[-1]) == (2, "whichtoken: none of the 2 rows can be used")
    path = write(tmp_path / "z.csv", "text", "slow", '"open')
    code, _, err = run("explain", "--file", path, "--on-bad-row", "skip")
    assert (code, "a quote is opened here and never closed" in err) == (2, True)


def test_a_benchmark_skips_bad_rows_and_resumes(run: Any, tmp_path: Path) -> None:
    path, out = write(tmp_path / "x.csv", *BAD), tmp_path / "bench"
    words = ("bench", "--data", path, "--methods", "attcat", "--metrics", "aopc", "--no-controls", "--min-tokens", "1")
    code, _, err = run(*words, "--out", out)
    assert (code, "line 3: expected 2 columns" in err) == (2, True)
    code, _, err = run(*words, "--out", out, "--on-bad-row", "skip")
    assert (code, f"3 of 7 rows skipped, see {out / 'failed.jsonl'}" in err) == (0, True)
    assert [row["row"] for row in failed(out / "failed.jsonl")] == [3, 4, 6]
    table = (out / "table.json").read_bytes()
    code, _, err = run(*words, "--out", out, "--on-bad-row", "skip")
    assert (code, (out / "table.json").read_bytes() == table) == (0, True)
    code, _, err = run(*words, "--out", out)
    assert code == 2
    spec = json.loads((out / "spec.json").read_text())["call"]
    assert (spec["on_bad_row"], "delimiter" in spec, "input_format" in spec) == ("skip", False, False)


def test_references_skip_bad_rows(run: Any, tmp_path: Path) -> None:
    rows = [json.dumps({"text": text, "label": 7 if i == 3 else -1}) for i, text in enumerate(CORPUS)]
    path, out = write(tmp_path / "x.jsonl", "{", *rows), tmp_path / "library"
    words = ("references", "build", path, "--out", out, "-o", "rule=random", "-o", "min_tokens=1")
    code, _, err = run(*words, "--on-bad-row", "skip")
    assert (code, f"2 rows skipped, see {out}.failed.jsonl" in err) == (0, True)
    assert [row["row"] for row in failed(tmp_path / "library.failed.jsonl")] == [1, 5]
    code, _, err = run(*words)
    assert (code, "line 1 is not JSON" in err) == (2, True)


def test_a_pipe_is_read_if_its_kind_is_known(run: Any, reviews: Path, tmp_path: Path) -> None:
    for name, options in (("pipe", ("--input-format", "csv")), ("pipe.csv", ())):
        os.mkfifo(tmp_path / name)
        writer = threading.Thread(target=lambda to: to.write_bytes(reviews.read_bytes()), args=(tmp_path / name,))
        writer.start()
        words = ("--column", "body", "--method", "attcat", "--format", "jsonl")
        code, out, _ = run("explain", "--file", tmp_path / name, *options, *words)
        writer.join()
        assert (code, [json.loads(line)["texts"][0] for line in out.splitlines()]) == (0, TEXTS)
    code, _, err = run("explain", "--file", tmp_path / "pipe")
    assert (code, "cannot tell what kind of file it is; " in err, "--input-format" in err) == (2, True, True)


def test_a_pipe_without_end_is_refused(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whichtoken.cli.rows.LARGEST", 10_000_000)
    code, _, err = run("explain", "--file", "/dev/zero", "--input-format", "txt")
    assert (code, "/dev/zero contains more than 10,000,000 bytes; save them as a file" in err) == (2, True)


def test_several_targets(run: Any) -> None:
    words = ("explain", TEXTS[0], "--method", "attcat", "--format", "csv")
    for targets, labels in (
        ("all", ["contradiction", "entailment", "neutral"]),
        ("2, entailment", ["neutral", "entailment"]),
    ):
        code, out, _ = run(*words, "--targets", targets)
        found = [(row["result"], row["label"]) for row in csv.DictReader(io.StringIO(out))]
        assert (code, list(dict.fromkeys(found))) == (0, [(str(i), label) for i, label in enumerate(labels)])
    for more in (("--target", "1"), ("--against", "1")):
        code, _, err = run(*words, "--targets", "all", *more)
        assert (code, "--targets cannot be combined with --target or --against" in err) == (2, True)
    code, _, err = run(*words, "--targets", " ,")
    assert (code, "--targets=' ,' is not allowed; it must be all, or labels separated by commas" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["explain", "a", "--id", "nr", "--keep", "x"],
            "--id, --keep: this applies to the rows of --file, which is missing",
        ),
        (
            ["explain", "a", "--on-bad-row", "skip"],
            "--on-bad-row: this applies to the rows of --file, which is missing",
        ),
        (["explain", "a", "--on-bad-row", "ignore"], "--on-bad-row='ignore' is not allowed; it must be error or skip"),
        (
            ["explain", "--file", "x", "--input-format", "xls"],
            "--input-format='xls' is not allowed; it must be one of csv",
        ),
        (["bench", "--attributions", __file__, "--delimiter", ";"], "--delimiter: this applies to the rows of --data"),
        (["heads", "build", "--conllu", __file__, "--out", "x", "--delimiter", ";"], "--delimiter is for --text"),
    ],
)
def test_options_about_rows_need_rows(run: Any, words: list[str], message: str) -> None:
    code, _, err = run(*words)
    assert (code, message in err) == (2, True)
