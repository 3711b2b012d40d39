"""Review pages on the command line: when they are written, what --top measures, and what is refused before any work."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.test_cli import run
from tests.render.shown import FINE
from tests.render.test_review import data_of
from tests.tiny import model_of, wordpiece

from whichtoken.records import Attribution

TEXTS = ["The actors were won, but it is slow.", "it is a rare film", "the plot was slow"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    model_of("bert").float().save_pretrained(folder)
    wordpiece().save_pretrained(folder)
    return str(folder)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS), encoding="utf-8")
    return str(path)


def n_steps(page: str) -> list[int]:
    views = [text["targets"][0]["views"]["attcat"] for text in data_of(page)["texts"]]
    return [len(view.get("steps", ())) for view in views]


def test_a_page_of_a_file_is_a_review_page_and_the_same_from_stored_results(
    file: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["explain", "--file", file, "--model", model, "--method", "attcat,gae"]
    page, stored, again = (tmp_path / name for name in ("page.html", "stored.jsonl", "again.html"))
    assert run(capsys, *base, "--out", str(page))[0] == 0
    written = page.read_text(encoding="utf-8")
    assert f"<title>3 texts explained by attcat and gae \N{EM DASH} {model}</title>" in written
    assert max(n_steps(written)) == 3
    assert run(capsys, *base, "--top", "3", "--out", str(stored))[0] == 0
    assert run(capsys, "show", str(stored), "--out", str(again))[0] == 0
    assert again.read_text(encoding="utf-8") == written


def test_top_changes_how_many_words_are_removed_and_0_removes_none(
    file: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, path = ["explain", "--file", file, "--model", model, "--method", "attcat"], tmp_path / "page.html"
    for top, most in (("1", 1), ("0", 0)):
        assert run(capsys, *base, "--top", top, "--out", str(path))[0] == 0
        assert max(n_steps(path.read_text(encoding="utf-8"))) == most
    code, out, _ = run(capsys, *base, "--format", "jsonl")
    assert code == 0
    assert not any(Attribution.from_json(line).removals for line in out.splitlines())  # unless asked for


def test_one_text_and_layers_have_the_plain_page(
    file: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options, path = (
        ["--model", model, "--method", "attcat", "--out", str(tmp_path / "page.html")],
        tmp_path / "page.html",
    )
    for words, shown in ((["explain", TEXTS[0]], TEXTS[0][:3]), (["explain", "--file", file, "--layers"], "by layer")):
        assert run(capsys, *words, *options)[0] == 0
        page = path.read_text(encoding="utf-8")
        assert "<script" not in page
        assert shown in page


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--top", "2"], "--top 2 is stored in json and jsonl and shown on a page of several texts"),
        (["--top", "2", "--out", "x.tex"], "--top 2 is stored in json and jsonl"),
        (["--top", "-1", "--out", "x.html"], "--top"),
    ],
)
def test_top_is_refused_where_it_would_not_be_seen(
    options: list[str], message: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "explain", "--file", file, "--model", "nowhere", *options)
    assert code == 2
    assert message in err


def test_more_texts_than_a_page_shows_are_refused_before_the_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many, out = tmp_path / "many.txt", tmp_path / "page.html"
    many.write_text("\n".join(["slow film"] * 1001), encoding="utf-8")
    code, _, err = run(capsys, "explain", "--file", str(many), "--model", "nowhere", "--out", str(out))
    assert code == 2
    assert "a page shows up to 1,000 texts, but there are 1,001; split or filter the file" in err
    assert not out.exists()


def test_show_counts_texts_and_not_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored, out = tmp_path / "stored.jsonl", tmp_path / "page.html"
    why_not = replace(FINE, label="negative", target=replace(FINE.target, label=0))  # type: ignore[arg-type]
    other = replace(FINE, texts=(FINE.texts[0].upper(),))
    for records, n_texts in (([FINE, why_not], None), ([FINE, why_not, other], 2)):
        stored.write_text("\n".join(record.to_json() for record in records), encoding="utf-8")
        assert run(capsys, "show", str(stored), "--out", str(out))[0] == 0
        page = out.read_text(encoding="utf-8")
        assert ("<script" in page) == (n_texts is not None)
        if n_texts is not None:
            assert len(data_of(page)["texts"]) == n_texts
