"""The command line with models that label tokens: --token, entities, benchmarks of rows of words, errors."""

import json
from pathlib import Path

import pytest
from tests.cli.test_cli import model, run
from tests.tiny import TAGS, token_subject

import whichtoken as wt

__all__ = ["model"]  # a fixture
TEXT = "The actors were won, but the music was slow and touching."


def save(subject: wt.Subject, folder: Path) -> str:
    subject.model.float().save_pretrained(folder)
    subject.tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of a model that names entities."""
    return save(token_subject(), tmp_path_factory.mktemp("tagger"))


@pytest.fixture(scope="module")
def nameless(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of a model that names none."""
    return save(token_subject(labels=("O",)), tmp_path_factory.mktemp("nameless"))


def test_every_entity_or_a_word_is_explained(tagger: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "explain", TEXT, "--model", tagger, "--method", "attcat,gae", "--format", "json")
    assert (code, err) == (0, "")
    records = [wt.Attribution.from_json(json.dumps(record)) for record in json.loads(out)]
    expected = wt.explain(wt.load(tagger), [TEXT], ["attcat", "gae"])
    assert len(expected) > 3
    assert records == [record for result in expected for record in result.values()]
    code, out, err = run(capsys, "explain", TEXT, "--model", tagger, "--token", "music")
    assert (code, err) == (0, "")
    assert out.count("music: ") == 1
    words = ("--token", "music", "--target", "B-PER", "--against", "O")
    code, out, _ = run(capsys, "explain", TEXT, "--model", tagger, *words)
    assert code == 0
    assert "music: B-PER rather than O" in out


def test_a_text_without_entities_is_reported(nameless: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "explain", TEXT, "--model", nameless, "--method", "attcat")
    assert (code, out) == (0, "")
    assert "the model finds no entity here; to explain the label of any word, choose it: --token" in err
    code, _, err = run(capsys, "compare", TEXT, "--model", nameless, "--methods", "attcat")
    assert code == 2
    assert "finds no entity here" in err


def test_results_are_counted(tagger: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "found.jsonl"
    code, _, err = run(capsys, "explain", TEXT, "--model", tagger, "--method", "attcat", "--out", str(out))
    assert code == 0
    n = len(out.read_text(encoding="utf-8").splitlines())
    assert f"{n} results for 1 input, written to" in err
    code, shown, _ = run(capsys, "show", str(out))
    assert code == 0
    assert shown.count("attcat") >= n


def test_compare_needs_one_word(tagger: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("compare", TEXT, "--model", tagger, "--methods", "attcat,random")
    code, _, err = run(capsys, *words)
    assert code == 2
    assert "compare shows one explanation, but there are" in err
    code, out, err = run(capsys, *words, "--token", "music")
    assert (code, err) == (0, "")
    assert "music: " in out
    assert "deletion" in out
    code, _, err = run(capsys, *words, "--token", "THE")
    assert code == 0
    assert "'THE' occurs 2 times; methods are compared on the first" in err


def test_wrong_words_are_errors(tagger: str, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "explain", TEXT, "--model", tagger, "--token", "rhubarb")
    assert code == 2
    assert "text 1: the text has no word 'rhubarb'; its words are: The actors were won" in err
    code, _, err = run(capsys, "explain", TEXT, "--model", model, "--token", "music", "--method", "attcat")
    assert code == 2
    assert "a token was given, but" in err
    assert "classifies texts; leave it out (token=, --token)" in err


def test_the_model_page_says_what_it_names(tagger: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "model", tagger)
    assert code == 0
    assert "0 O, 1 B-LOC, 2 I-LOC, 3 B-PER, 4 I-PER" in out
    assert "LOC, PER; each is explained, or the word that --token chooses" in out


def test_a_benchmark_of_rows_of_words(tagger: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    rows = [
        TEXT.split(),
        ["It", "is", "a", "rare", "plot", ",", "but", "nobody", "did", "sleep"],
        ["a", "man", "is", "touching", "the", "music", "."],
    ]
    tags = [[TAGS[1], TAGS[2]] + [TAGS[0]] * (len(words) - 2) for words in rows]
    lines = [json.dumps({"tokens": words, "ner_tags": own}) for words, own in zip(rows, tags, strict=True)]
    data.write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = ("bench", "--model", tagger, "--data", str(data), "--methods", "attcat", "--min-tokens", "1")
    code, out, err = run(capsys, *words, "--task", "tokens", "--metrics", "aopc")
    assert code == 0, err
    assert "label of the first entity" in out
    code, _, err = run(capsys, *words, "--task", "qa")
    assert code == 2
    assert "labels tokens, which is --task tokens, not --task qa" in err


def test_a_benchmark_without_entities_says_so(
    nameless: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = tmp_path / "texts.txt"
    data.write_text(f"{TEXT}\n", encoding="utf-8")
    code, _, err = run(capsys, "bench", "--model", nameless, "--data", str(data), "--methods", "attcat")
    assert code == 2
    assert "none of the 1 texts has anything to explain: the model finds no entity here" in err
