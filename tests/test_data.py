"""Corpora as people have them: files, data sets, lists; and what is wrong with them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from whichtoken.data.examples import TextExample, count_examples, read_examples, shuffle
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
            "row 2: no usual text column; .*the columns are label, body",
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


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("nowhere.csv", {}, "there is no file nowhere.csv"),
        (3, {}, "texts is a int; expected a file, a list"),
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
