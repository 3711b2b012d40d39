"""Corpora as people have them: files, data sets, lists; and what is wrong with them."""

import csv
import io
import json
import os
import tracemalloc
from collections.abc import Iterator
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from whichtoken.data import files
from whichtoken.data.examples import (
    Columns,
    TextExample,
    check_texts,
    count_examples,
    read_examples,
    read_rows,
    shuffle,
)
from whichtoken.data.sources import BadRow, DataFile
from whichtoken.errors import BadInput, UsageError

ROWS = [{"label": "1", "text": 'a "quoted, word'}, {"label": "0", "text": "naïve 電影"}]


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def as_file(folder: Path, kind: str) -> Path:
    if kind == "parquet":
        parquet.write_table(pa.Table.from_pylist(ROWS), folder / "x.parquet")
        return folder / "x.parquet"
    written = {
        "csv": 'label,text\r\n1,"a ""quoted, word"\r\n0,naïve 電影\r\n',
        "tsv": 'label\ttext\n1\ta "quoted, word\n0\tnaïve 電影\n',
        "jsonl": "\n".join([json.dumps(ROWS[0]), "", json.dumps(ROWS[1], ensure_ascii=False)]),
    }
    return write(folder, f"x.{kind}", written[kind])


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("as_text", [True, False])
def test_files(kind: str, as_text: bool, tmp_path: Path) -> None:
    path = as_file(tmp_path, kind)
    found = list(read_examples(str(path) if as_text else path))
    assert found == [TextExample((row["text"],), row["label"]) for row in ROWS]


def test_iterables_of_texts_pairs_and_rows() -> None:
    assert list(read_examples(["a", ("b", "c"), ["d", "e"]])) == [
        TextExample(("a",)),
        TextExample(("b", "c")),
        TextExample(("d", "e")),
    ]
    assert list(read_examples(iter(["a"]), [1])) == [TextExample(("a",), 1)]
    assert list(read_examples([{"premise": "a", "hypothesis": "b", "label": 2}])) == [TextExample(("a", "b"), 2)]
    rows = [{"body": "a", "stars": 4, "text": "no"}]
    assert list(read_examples(rows, "stars", "body")) == [TextExample(("a",), 4)]
    assert list(read_examples(rows, columns=["body", "text"])) == [TextExample(("a", "no"))]


def test_something_like_a_hugging_face_dataset() -> None:
    class Dataset:
        def __len__(self) -> int:
            return 2

        def __iter__(self) -> Iterator[dict[str, Any]]:
            return iter([{"idx": 0, "sentence": "a", "label": 1}, {"idx": 1, "sentence": "b", "label": 0}])

    assert list(read_examples(Dataset())) == [TextExample(("a",), 1), TextExample(("b",), 0)]
    assert count_examples(Dataset()) == 2
    assert count_examples(iter([])) is None
    assert count_examples("x.csv") is None


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "x.csv",
            "label,body\n1,a\n",
            "row 2: no column has a usual name for texts; .*the columns are label, body",
        ),
        ("x.csv", "label,text\n1,a,b\n", "line 2: expected 2 columns"),
        ("x.tsv", "label\ttext\n1\n", "line 2: expected 2 columns"),
        ("x.jsonl", '{"text": "a"}\n{"text"', "line 2 is not JSON"),
        ("x.jsonl", '["a"]', "expected an object with named columns"),
        ("x.jsonl", '{"text": 3}', "row 1 is .*; expected a text"),
        ("x.csv", b"text\n\xff\xfe\n", "x.csv, line 2 is not UTF-8"),
        ("x.parquet", b"PAR", "cannot be read"),
        ("x.docx", "a", "cannot tell what kind of file it is; known extensions are .csv, .tsv, .jsonl, .parquet, .txt"),
        ("x.csv", b"text\na\x00b\n", "x.csv, line 2 has a zero byte: this is not a text file"),
        ("x.txt", b"fine\n\xe9\n", "x.txt, line 2 is not UTF-8"),
    ],
)
def test_files_that_cannot_be_read(name: str, content: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        list(read_examples(write(tmp_path, name, content)))


DEEP = "[" * 100_000
HALF = "\\ud800"  # as written in JSON


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.jsonl", f'{{"text": "a"}}\n{{"text": {DEEP}', "x.jsonl, line 2 cannot be read: nested too deeply"),
        (
            "x.jsonl",
            f'{{"text": {"[" * 900 + "]" * 900}}}',
            "x.jsonl, (line|row) 1 .*(nested too deeply|expected a text)",
        ),
        ("x.jsonl", f'{{"text": {"9" * 5000}}}', "x.jsonl, line 1 cannot be read: a whole number has too many digits"),
        ("x.jsonl", f'{{"text": {"9" * 4000}}}', "x.jsonl, row 1 is .*; expected a text"),
        (
            "x.jsonl",
            f'{{"text": "a{HALF}"}}',
            r"x.jsonl, line 1 cannot be read: it holds '.ud800', half of a surrogate",
        ),
        ("x.jsonl", f'{{"text": "a", "label": "{HALF}"}}', r"x.jsonl, line 1 cannot be read: it holds"),
        ("x.jsonl", f'{{"text": "a", "{HALF}": 1}}', r"x.jsonl, line 1 cannot be read: it holds"),
        ("x.jsonl", '{"text": "a", "text": "b"}', "x.jsonl, line 1: two columns have the name 'text'; rename one"),
        ("x.csv", "text,label,text\na,1,b\n", "x.csv, line 1: two columns have the name 'text'; rename one"),
        ("x.tsv", "text\ttext\na\tb\n", "x.tsv, line 1: two columns have the name 'text'"),
        ("x.csv", 'text,label\na,1\n"b,1\nc,2\nd,1\n', "x.csv, line 3: a quote is opened here and never closed"),
        ("x.csv", 'text,label\n"b,1\n"c",2\n', "x.csv, line 3: 'c\",2.*' follows a closing quote; expected a comma"),
        ("x.csv", 'text\n"a" b\n', "x.csv, line 2: ' b.*' follows a closing quote"),
        ("x.csv", "text,label\n\n'a\n", "x.csv, line 3: expected 2 columns, as in the header, found 1"),
        ("x.csv", "text,label\na\r\n", "x.csv, line 2: expected 2 columns, as in the header, found 1"),
        ("x.csv", "text,label\na,b,c\n", "x.csv, line 2: expected 2 columns, as in the header, found 3"),
        ("x.csv", 'text,label\n"a\nb"\n', "x.csv, line 2: expected 2 columns, as in the header, found 1"),
        ("x.csv", "text\na\n".encode("utf-16"), "x.csv, line 1 is not UTF-8: b'.xff.xfe"),
        ("x.csv", "text\na\n".encode("utf-16-le"), "x.csv, line 1 has a zero byte"),
        ("x.csv", "text\nnaïve\n".encode("latin-1"), "x.csv, line 2 is not UTF-8: b'na.xefve'; save the file as UTF-8"),
        (
            "x.csv",
            ",".join(f"column{i}" for i in range(2000)) + "\n" + "a," * 1999 + "a",
            "x.csv, row 2: no column has a usual name",
        ),
        ("x.parquet", b"PAR1" + b"\0" * 40 + b"\xff\xff\xff\x7fPAR1", "x.parquet cannot be read: "),
        ("x.parquet", b"", "x.parquet cannot be read: "),
    ],
    ids=lambda value: str(value)[:30],
)
def test_hostile_files_are_refused_in_one_line(name: str, content: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message) as error:
        list(read_examples(write(tmp_path, name, content)))
    assert len(str(error.value)) < 1000
    assert str(error.value).isprintable()


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.jsonl", "x.txt"])
def test_a_file_without_rows_has_no_examples(name: str, tmp_path: Path) -> None:
    header = {"x.csv": "text\n", "x.tsv": "text\n"}.get(name, "\n\n")
    for content in ("", "\ufeff", header):
        assert list(read_examples(write(tmp_path, name, content))) == []


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_any_line_end_and_a_byte_order_mark_are_fine(end: str, tmp_path: Path) -> None:
    csv_lines = ["\ufefftext,label,,", "a,1,,", f'"b{end}c",2,,', ""]
    found = list(read_examples(write(tmp_path, "x.csv", end.join(csv_lines))))
    assert [(one.texts, one.label) for one in found] == [(("a",), "1"), ((f"b{end}c",), "2")]
    for name, lines in {"x.txt": ["\ufeffa", "b"], "x.jsonl": ['\ufeff{"text": "a"}', '{"text": "b"}']}.items():
        assert [one.texts for one in read_examples(write(tmp_path, name, end.join(lines)))] == [("a",), ("b",)]


def test_a_cell_may_be_longer_than_the_limit_of_the_csv_module(tmp_path: Path) -> None:
    before, long = csv.field_size_limit(), "slow film\n" * 20_000
    path = write(tmp_path, "x.csv", f'text,label\n"{long}",1\n{long.replace(chr(10), " ")},0\n')
    assert [len(one.texts[0]) for one in read_examples(path)] == [200_000, 200_000]
    assert csv.field_size_limit() == before  # it is one limit for the whole process


def test_a_cell_or_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONGEST", 1000)
    path = write(tmp_path, "x.csv", 'text\na\n"' + "b\n" * 2000)
    with pytest.raises(BadInput, match=r"x.csv, line 3: a quoted text has more than 1,000 characters; is its quote"):
        list(read_examples(path))
    for name in ("x.csv", "x.tsv", "x.txt", "x.jsonl"):
        with pytest.raises(BadInput, match=r"line 2 has more than 1,000 characters"):
            list(read_examples(write(tmp_path, name, '{"text": "b"}\n' + "a" * 2000)))


@given(st.text(st.sampled_from('a", \r\n'), max_size=12))
def test_csv_is_read_as_by_the_csv_module(content: str) -> None:
    def by_module() -> list[list[str]] | None:
        try:
            return [row for row in csv.reader(io.StringIO(content, newline=""), strict=True) if row]
        except csv.Error:
            return None

    def by_us() -> list[list[str]] | None:
        try:
            lines = files.decode_lines(io.StringIO(content, newline=""), "x.csv")
            return [cells for _, cells in files._split_csv(enumerate(lines, 1), "x.csv")]
        except BadInput:
            return None

    assert by_us() == by_module()


def test_a_folder_a_pipe_or_a_file_of_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "folder.csv").mkdir()
    locked = write(tmp_path, "locked.csv", "text\na\n")

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # root may read everything
    for path, message in (
        (tmp_path / "pipe.csv", "pipe.csv is a pipe or a device; give a file"),
        (tmp_path / "folder.csv", "folder.csv is a folder; give a file"),
        (locked, "locked.csv cannot be read: Permission denied"),
        ("~nobody-of-this-name/x.csv", "~nobody-of-this-name/x.csv cannot be read: Could not determine home"),
    ):
        with pytest.raises(BadInput, match=message):
            list(read_examples(path))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": pa.array([b"a", b"\xff"])}, r"x.parquet, row 0 is \(b'a',\); expected a text"),
        ({"text": pa.array([["a"], ["b"]])}, r"x.parquet, row 0 is .*; expected a text"),
        ({"text": pa.array([{"a": 1}, None])}, r"x.parquet, row 0 is .*; expected a text"),
        ({"text": pa.array(["a", None])}, r"x.parquet, row 1 is .*; expected a text"),
        (
            {"text": pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff"))},
            r"x.parquet, rows 0 to 1 cannot be read: not UTF-8",
        ),
    ],
    ids=["bytes", "lists", "objects", "nulls", "not UTF-8"],
)
def test_parquet_columns_of_other_types_are_refused(columns: dict[str, Any], message: str, tmp_path: Path) -> None:
    parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
    with pytest.raises(BadInput, match=message) as error:
        list(read_examples(tmp_path / "x.parquet"))
    assert str(error.value).isprintable()


def test_columns_of_a_parquet_file_that_are_not_needed_need_not_be_readable(tmp_path: Path) -> None:
    broken = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff"))
    columns = {"text": ["a", "b"], "other": broken, "a.b": ["x", "y"], "text.c": [1, 2]}
    parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
    found = list(read_examples(tmp_path / "x.parquet", keep=["a.b"]))
    assert [(one.texts, one.columns) for one in found] == [(("a",), {"a.b": "x"}), (("b",), {"a.b": "y"})]
    with pytest.raises(BadInput, match="rows 0 to 1 cannot be read: not UTF-8"):
        list(read_examples(tmp_path / "x.parquet", keep=["other"]))


def test_parquet_columns_of_one_name_or_a_cut_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]), path)
    with pytest.raises(BadInput, match=r"x.parquet: two columns have the name 'text'"):
        list(read_examples(path))
    parquet.write_table(pa.table({"text": ["a"] * 1000}), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BadInput, match=r"x.parquet cannot be read: ") as error:
        list(read_examples(path))
    assert str(error.value).isprintable()


def test_a_file_with_an_odd_name_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        list(read_examples(write(tmp_path, "a\nb.csv", 'text\n"a\n')))
    assert str(error.value) == rf"{tmp_path}/a\nb.csv, line 2: a quote is opened here and never closed"


def test_half_of_a_surrogate_pair_in_a_list_is_refused_with_its_row() -> None:
    (example,) = read_examples(["a\ud800"])
    with pytest.raises(BadInput, match="row 0 is not valid Unicode"):
        check_texts(example.texts, example.where)


def many_rows(path: Path, n: int) -> Path:
    """Write n rows of about 100 characters."""
    rows = ({"text": f"{i} " + "slow film " * 10, "label": str(i % 2)} for i in range(n))
    if path.suffix == ".parquet":
        table = pa.Table.from_pylist(list(rows))
        parquet.write_table(table, path, row_group_size=n, use_dictionary=False)  # one group: the worst case
        return path
    line = {
        ".csv": lambda row: f'"{row["text"]}",{row["label"]}\n',
        ".tsv": lambda row: f"{row['text']}\t{row['label']}\n",
        ".jsonl": lambda row: json.dumps(row) + "\n",
        ".txt": lambda row: f"{row['text']}\n",
    }[path.suffix]
    header = {".csv": "text,label\n", ".tsv": "text\tlabel\n"}.get(path.suffix, "")
    path.write_text(header + "".join(map(line, rows)), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "txt", "parquet"])
def test_memory_does_not_grow_with_the_number_of_rows(kind: str, tmp_path: Path) -> None:
    def peak(n: int) -> int:
        path = many_rows(tmp_path / f"{n}.{kind}", n)
        tracemalloc.start()
        try:
            assert sum(1 for _ in read_examples(path)) == n
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(2000)  # imports
    assert peak(10_000) < 1.2 * peak(2000)


def test_the_first_row_is_read_before_a_fault_in_a_later_one(tmp_path: Path) -> None:
    path = write(tmp_path, "x.csv", 'text\na\nb\n"c\n')
    assert [one.texts for one in islice(read_examples(path), 2)] == [("a",), ("b",)]


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("nowhere.csv", {}, "there is no file nowhere.csv"),
        (3, {}, "texts is an int; expected a file, a list"),
        ({"train": [], "test": []}, {}, "texts is a dict: train, test; .* one split of a dataset"),
        ([3], {}, "row 0 is"),
        ([("a", "b", "c")], {}, "row 0 is"),
        (["a", "b"], {"labels": [1]}, "there are more texts than the 1 labels"),
        (["a"], {"labels": [1, 0]}, "more labels than texts"),
        ([{"text": "a"}], {"labels": "gold"}, "no column 'gold'; the columns are text"),
        ([{"text": "a"}], {"columns": "body"}, "no column 'body'; the columns are text"),
        (["a"], {"columns": "body"}, "row 0 is 'a', which has no columns; requested columns: body"),
        (["a"], {"labels": "gold"}, "row 0 is 'a', which has no columns; requested columns: gold"),
        (["a"], {"labels": 5}, "labels is 5; expected the name of a column, or a list"),
        (["a"], {"columns": 5}, "columns is 5; expected"),
    ],
)
def test_sources_that_make_no_sense(source: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        list(read_examples(source, **options))


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = as_file(tmp_path, "parquet")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'whichtoken\[parquet\]'"):
        list(read_examples(path))


@given(st.lists(st.integers(), max_size=40), st.integers(0, 5), st.integers(1, 50))
def test_shuffling_loses_nothing_and_repeats_itself(items: list[int], seed: int, buffer: int) -> None:
    once = list(shuffle(items, seed, buffer))
    assert sorted(once) == sorted(items)
    assert once == list(shuffle(iter(items), seed, buffer))


def test_shuffling_mixes_a_corpus_that_is_sorted_by_label() -> None:
    order = list(shuffle(range(1000), 0, 1000))
    assert 30 < sum(i < 500 for i in order[:100]) < 70
    assert order != list(shuffle(range(1000), 1, 1000))


def test_a_text_file_has_a_text_on_each_line(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("\ufeffvery slow\n\n  a rare film \n", encoding="utf-8")
    found = list(read_examples(tmp_path / "x.txt"))
    assert [example.texts for example in found] == [("very slow",), ("a rare film",)]
    assert found[1].where.endswith("x.txt, row 3")


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("text;label\nSlow, but good;1\nFine, really, fine;0\n", ["Slow, but good", "Fine, really, fine"]),
        ('label;text\n1;"a; b, c"\n0;"d ""e"";\nf"\n', ["a; b, c", 'd "e";\nf']),
        ("label\ttext\n1\ta, b; c\n", ["a, b; c"]),
        ("label|text\n1|a, b; c\n", ["a, b; c"]),
        ("text,label\na; b; c,1\nd; e,0\n", ["a; b; c", "d; e"]),  # semicolons in the texts of a comma file
        ('"text","label; gold"\n"a; b","1"\n', ["a; b"]),
        ("text,label;kind\na,1;2\nb,1\nc,0\nd,0\n", ["a", "b", "c", "d"]),  # the rows decide
        ("text;label\na;1\nb\nc;1\n", "line 3: expected 2 columns, as in the header, found 1"),
        ("text\na; b\nc; d\n", ["a; b", "c; d"]),
        ("text\na, b\n", "line 2: expected 1 column, as in the header, found 2"),
        ('text;label\n"a;1\n', "line 2: a quote is opened here and never closed"),
        ('text;label\n"a" b;1\n', "line 2: ' b;1.*' follows a closing quote; expected a semicolon or"),
        ("text;label\n", []),
        (
            "text,kind;label\na,b;c\nd,e;f\n",
            r"could be separated by comma and semicolon; choose one: --delimiter comma",
        ),
        (
            "text|kind;label\n" + "a|b;c\n" * 99,
            "could be separated by semicolon and pipe; choose one: --delimiter semi",
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_the_delimiter_of_a_csv_file_is_found(content: str, texts: list[str] | str, tmp_path: Path) -> None:
    path = write(tmp_path, "x.csv", content)
    if isinstance(texts, str):
        with pytest.raises(BadInput, match=texts):
            list(read_examples(path))
    else:
        assert [example.texts[0] for example in read_examples(path)] == texts


def test_a_delimiter_can_be_given(tmp_path: Path) -> None:
    path = write(tmp_path, "x.csv", "text,kind;label\na,b;c\n")
    assert [one.texts for one in read_examples(path, columns="text", delimiter=",")] == [("a",)]
    assert [one.texts for one in read_examples(path, columns="text,kind", delimiter="semicolon")] == [("a,b",)]
    odd = write(tmp_path, "y.csv", 'text^label\n"a^b"^1\n')
    assert [(one.texts, one.label) for one in read_examples(odd, delimiter="^")] == [(("a^b",), "1")]
    with pytest.raises(UsageError, match=r"delimiter=';;' is not allowed; it must be one character, or tab, comma"):
        read_examples(path, delimiter=";;")
    with pytest.raises(BadInput, match=r"x.tsv: a delimiter is for csv files, and this is a tsv file"):
        read_examples(tmp_path / "x.tsv", delimiter=";")
    with pytest.raises(BadInput, match="delimiter=';' is for csv files, and texts is a list"):
        read_examples(["a"], delimiter=";")


@given(st.text(st.sampled_from('a", ;\r\n'), max_size=12))
def test_csv_with_another_delimiter_is_read_as_by_the_csv_module(content: str) -> None:
    def by_module() -> list[list[str]] | None:
        try:
            return [row for row in csv.reader(io.StringIO(content, newline=""), delimiter=";", strict=True) if row]
        except csv.Error:
            return None

    def by_us() -> list[list[str]] | None:
        try:
            lines = files.decode_lines(io.StringIO(content, newline=""), "x.csv")
            return [cells for _, cells in files._split_csv(enumerate(lines, 1), "x.csv", ";")]
        except BadInput:
            return None

    assert by_us() == by_module()


def test_rows_keep_their_identity(tmp_path: Path) -> None:
    path = write(tmp_path, "x.csv", "id,text,label,stars,at\nr1,a,1,4,x\n,b,0,2,y\n")
    found = list(read_examples(path, keep=["stars", "at"]))
    assert [(one.row, one.id, one.columns) for one in found] == [
        (2, "r1", {"stars": "4", "at": "x"}),
        (3, None, {"stars": "2", "at": "y"}),
    ]
    assert not found[0].label_is_given
    named = next(read_examples(path, labels="stars", id="at"))
    assert (named.label, named.id, named.columns, named.label_is_given) == ("4", "x", {}, True)
    with pytest.raises(BadInput, match="no column 'nothing'; the columns are id, text, label, stars, at"):
        list(read_examples(path, keep=["nothing"]))
    with pytest.raises(BadInput, match="row 0 is 'a', which has no columns; requested columns: nr"):
        list(read_examples(["a"], id="nr"))


def test_kept_values_can_be_written_as_json() -> None:
    row = {
        "text": "a",
        "idx": np.int64(7),
        "n": np.float32(0.5),
        "nan": float("nan"),
        "day": date(2020, 1, 2),
        "l": (1, "b"),
    }
    (example,) = read_examples([row], keep=["n", "nan", "day", "l"])
    assert example.id == "7"
    assert json.loads(json.dumps(example.columns)) == {"n": 0.5, "nan": None, "day": "2020-01-02", "l": [1, "b"]}


def test_bad_rows_can_be_skipped(tmp_path: Path) -> None:
    skipped: list[BadRow] = []
    contents = {
        "x.csv": "label,text\n1,a\n1,b,c\n0,d\n",
        "x.tsv": "label\ttext\n1\ta\n1\n0\td\n",
        "x.jsonl": '{"text": "a"}\n{"text"\n{"text": 3}\n["a"]\n{"body": "c"}\n{"text": "d"}\n',
    }
    for name, content in contents.items():
        file = DataFile(write(tmp_path, name, content), on_bad_row=skipped.append)
        assert [one.texts[0] for one in read_rows(file, Columns())] == ["a", "d"]
    assert [(bad.row, bad.where.removeprefix(f"{tmp_path}/"), bad.content) for bad in skipped] == [
        (3, "x.csv, line 3", ["1", "b", "c"]),
        (3, "x.tsv, line 3", ["1"]),
        (2, "x.jsonl, line 2", '{"text"'),
        (3, "x.jsonl, row 3", {"text": 3}),
        (4, "x.jsonl, line 4", '["a"]'),
        (5, "x.jsonl, row 5", {"body": "c"}),
    ]
    assert skipped[0].reason.startswith("expected 2 columns, as in the header, found 3; put a text")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('text\na\n"b\n', "line 3: a quote is opened here and never closed"),
        ("label,body\n1,a\n", "row 2: no column has a usual name for texts"),
    ],
)
def test_a_broken_file_is_not_a_bad_row(content: str, message: str, tmp_path: Path) -> None:
    skipped: list[BadRow] = []
    with pytest.raises(BadInput, match=message):
        list(read_rows(DataFile(write(tmp_path, "x.csv", content), on_bad_row=skipped.append), Columns()))
    assert not skipped


def test_a_file_without_an_extension_can_be_read_if_its_kind_is_given(tmp_path: Path) -> None:
    path = write(tmp_path, "x", "text;label\na;1\n")
    with pytest.raises(BadInput, match=r"x: cannot tell what kind of file it is; .*--input-format names it"):
        list(read_examples(path))
    assert [one.where for one in read_examples(DataFile(path, "csv", name="a pipe"))] == ["a pipe, row 2"]
    with pytest.raises(UsageError, match=r"kind='xls' is not allowed; it must be one of csv, tsv"):
        DataFile(path, "xls")
