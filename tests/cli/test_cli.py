"""The command line, as a user meets it: what it prints, what it writes, and how it fails."""

import io
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from tests.forked import forked
from tests.heads.corpus import CORPUS as PARSED
from tests.heads.corpus import conllu
from tests.render.shown import FINE, attribution_of
from tests.tiny import CORPUS, model_of, wordpiece

import whichtoken as wt
from whichtoken.atomic_write import open_whole
from whichtoken.bench.folder import Folder
from whichtoken.catalogue import FILE, catalogue, describe_methods
from whichtoken.cli.model import LIBRARIES
from whichtoken.cli.outputs import Progress, Sink, until_stopped, write_results
from whichtoken.cli.run import ended_by_sigterm, main
from whichtoken.cli.subject import NO_HEADS
from whichtoken.records import Attribution
from whichtoken.render.rows import Look

TEXT = "The actors were won, but it is slow."


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder as `save_pretrained` leaves it."""
    folder = tmp_path_factory.mktemp("model")
    model_of("bert").float().save_pretrained(folder)
    wordpiece().save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def references(model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("references") / "library"
    wt.references.build(wt.load(model), CORPUS, out=folder, rule="random", min_tokens=1)
    return str(folder)


@pytest.fixture(scope="session")
def heads(model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A mask with a head in it: random models have none."""
    mask = wt.heads.build(wt.load(model), PARSED)
    path = tmp_path_factory.mktemp("heads") / "heads.json"
    wt.heads.save(wt.heads.corrupt_mask(mask, 0.5), path)
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    with pytest.raises(SystemExit) as ending:
        main(words)
    found = capsys.readouterr()
    return int(ending.value.code or 0), found.out, found.err


def started(*words: str, **changes: Any) -> subprocess.CompletedProcess[str]:
    """In a process of its own."""
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", **changes.pop("env", {})}
    return subprocess.run(
        [sys.executable, "-m", "whichtoken", *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        **changes,
    )


LIGHT = """
import sys
from whichtoken.cli.run import ended_by_sigterm, main
for words in ["--help"], ["explain", "--help"], ["methods"], ["methods", "attcat"], ["metrics"]:
    print(f"<{' '.join(words)}>")
    try:
        main(words)
    except SystemExit as ending:
        assert not ending.code, words
    heavy = [name for name in ("torch", "transformers", "numpy", "matplotlib") if name in sys.modules]
    assert not heavy, (words, heavy)
"""


def test_lists_and_help_do_not_import_torch() -> None:
    """In one process, in which nothing may import it: the first that did would be named."""
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    printed = re.split(r"^<.*>\n", done.stdout, flags=re.MULTILINE)[1:]
    assert len(printed) == 5
    assert all(page.strip() for page in printed)


def test_the_catalogue_says_what_the_registry_says() -> None:
    assert catalogue() == describe_methods(), f"{FILE.name} is out of date: make catalogue"


def test_methods_lists_every_method_and_tells_more_about_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "methods")
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    for name in wt.method_names():
        assert wt.method(name).paper in lines[name]
        assert lines[name].split()[-1] == ("yes" if wt.method(name).tuned_on_deletion else "no")
    assert "references" in lines["contrast-cat"]
    _, page, _ = run(capsys, "methods", "contrast-cat")
    for shown in ("contrast-cat@repo", "-o steps=...", "default 9", "Han et al., UAI 2025"):
        assert shown in page


def test_version_and_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version")[:2] == (0, f"whichtoken {wt.__version__}\n")
    assert "explain" in run(capsys)[1]


def test_explain_prints_the_label_the_words_and_a_legend(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "explain", TEXT, "very rare", "--model", model, "--method", "attcat,gae@recommended")
    assert code == 0, err
    expected = wt.explain(wt.load(model), [TEXT], ["attcat"])[0]["attcat"]
    words = sorted(expected.words(), key=lambda word: -word.score)
    share = words[0].score / max(abs(word.score) for word in words)
    assert f"{expected.label}  {expected.probability:.1%}" in out
    assert f"{words[0].text} {share:+.2f}" in out
    assert "+ supports the label" in out
    assert "\x1b" not in out  # a pipe gets no colours
    assert out.count("attcat") == out.count("gae") == 2


def test_all_leaves_out_what_needs_references_if_there_are_none_and_says_so(
    model: str, references: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "explain", TEXT, "--model", model, "--method", "all")
    assert code == 0
    assert "attcat" in out
    assert "contrast-cat" not in out
    assert "left out, because there is no reference library: contrast-cat" in err
    code, out, err = run(capsys, "explain", TEXT, "--model", model, "--references", references, "--method", "all")
    assert code == 0
    assert "reference library" not in err
    assert "contrast-cat *" in out


def test_json_lines_can_be_read_back_and_shown_again(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["explain", TEXT, "very slow film", "--model", model, "--method", "attcat,gae"]
    _, lines, _ = run(capsys, *base, "--format", "jsonl")
    found = [Attribution.from_json(line) for line in lines.splitlines()]
    subject = wt.load(model)
    assert found == [a for r in wt.explain(subject, [TEXT, "very slow film"], ["attcat", "gae"]) for a in r.values()]
    _, whole, _ = run(capsys, *base, "--format", "json")
    assert [Attribution.from_json(json.dumps(record)) for record in json.loads(whole)] == found
    path = tmp_path / "saved.jsonl"
    code, out, err = run(capsys, *base, "--out", str(path))
    assert (code, out) == (0, "")
    assert "2 of 2 explained" in err
    assert [Attribution.from_json(line) for line in path.read_text(encoding="utf-8").splitlines()] == found
    _, terminal, _ = run(capsys, *base)
    assert run(capsys, "show", str(path))[1] == terminal
    (tmp_path / "saved.json").write_text(whole, encoding="utf-8")
    assert run(capsys, "show", str(tmp_path / "saved.json"))[1] == terminal


@pytest.mark.parametrize(
    ("name", "first"),
    [("a.html", b"<!doctype html>"), ("a.tex", b"% needs"), ("a.png", b"\x89PNG"), ("a.txt", b"contradiction")],
)
def test_the_ending_of_the_file_says_the_format(
    name: str, first: bytes, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    options = ["--model", model, "--method", "attcat,gae", "--difference", "--target", "contradiction"]
    code, _, err = run(capsys, "explain", TEXT, *options, "--out", str(path))
    assert code == 0, err
    assert path.read_bytes().startswith(first)
    assert list(tmp_path.iterdir()) == [path]


def test_layers_are_shown_where_there_are_any(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "explain", TEXT, "--model", model, "--method", "attcat,gae", "--layers")
    assert "attcat, by layer:" in out
    assert "gae, by layer" not in out
    assert all(name in out for name in ("block 1", "block 3", "sum"))
    options = ["--method", "attcat", "--layers", "--out", str(tmp_path / "layers.svg")]
    assert run(capsys, "explain", TEXT, "--model", model, *options)[0] == 0
    assert "block 3" in (tmp_path / "layers.svg").read_text(encoding="utf-8")


def test_pairs_targets_levels_and_settings(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--model", model, "--method", "attcat,grad-sam", "--format", "jsonl"]
    pair = ["explain", "A man sleeps.", "--pair", "Nobody is awake."]
    _, out, _ = run(capsys, *pair, *options, "--target", "entailment", "-o", "axis=key", "-o", "mask_special=true")
    attcat, grad_sam = (Attribution.from_json(line) for line in out.splitlines())
    assert attcat.texts == ("A man sleeps.", "Nobody is awake.")
    assert attcat.label == grad_sam.label == "entailment"
    assert grad_sam.settings == {"axis": "key", "mask_special": True}
    assert attcat.settings["mask_special"] is True
    _, out, _ = run(capsys, *pair, *options, "--target", "1", "--against", "neutral")
    assert Attribution.from_json(out.splitlines()[0]).label == "entailment rather than neutral"
    _, out, _ = run(capsys, "explain", TEXT, "--model", model, "--method", "attcat", "--level", "token")
    assert "[CLS]" in out


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "review,label\nvery slow,0\n a rare film ,1\n"),
        ("t.tsv", "review\tlabel\nvery slow\t0\n a rare film \t1\n"),
        ("t.jsonl", '{"review": "very slow"}\n\n{"review": " a rare film "}\n'),
    ],
)
def test_a_file_is_read_by_column(
    name: str, content: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    options = ["--column", "review", "--model", model, "--method", "attcat", "--format", "jsonl"]
    code, out, err = run(capsys, "explain", "--file", str(tmp_path / name), *options)
    assert code == 0, err
    assert [Attribution.from_json(line).texts for line in out.splitlines()] == [("very slow",), (" a rare film ",)]


LINES = "very slow\n\nnaïve film\n"


def test_standard_input_has_a_text_on_each_line(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINES.encode()), encoding="latin-1"))
    cast(io.TextIOWrapper, sys.stdout).reconfigure(encoding="latin-1")
    code, out, err = run(capsys, "explain", "-", "--model", model, "--method", "attcat", "--format", "jsonl")
    assert (code, err) == (0, "")
    assert [Attribution.from_json(line).texts for line in out.splitlines()] == [("very slow",), ("naïve film",)]


@pytest.mark.slow  # a process that imports torch
def test_standard_input_of_a_process_is_utf_8_whatever_python_thinks(model: str) -> None:
    options = ["--model", model, "--method", "attcat", "--format", "jsonl"]
    done = started("explain", "-", *options, input=LINES, env={"PYTHONIOENCODING": "latin-1"})
    assert done.returncode == 0, done.stderr
    assert [Attribution.from_json(line).texts for line in done.stdout.splitlines()] == [("very slow",), ("naïve film",)]
    assert done.stderr == ""  # nothing but results, and no bar where nobody looks


@pytest.fixture(scope="session")
def saved(model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Results for `show`, which writes them as `explain` does, but needs no torch: its processes start at once."""
    path = tmp_path_factory.mktemp("saved") / "results.jsonl"
    (result,) = wt.explain(wt.load(model), ["very slow film"], ["attcat"])
    path.write_text(result["attcat"].to_json() + "\n", encoding="utf-8")
    return str(path)


COLOURS = {"FORCE_COLOR": "1", "COLORTERM": "truecolor", "TERM": "xterm-256color"}


def test_colours_follow_no_color(
    model: str, saved: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["explain", "very slow film", "--model", model, "--method", "attcat"]
    for name, value in COLOURS.items():
        monkeypatch.setenv(name, value)
    coloured = run(capsys, *words)[1]
    assert "\x1b[38;2" in coloured
    assert started("show", saved).stdout == coloured  # in a process of its own
    monkeypatch.setenv("NO_COLOR", "1")
    plain = run(capsys, *words)[1]
    assert "38;2" not in plain
    assert started("show", saved).stdout == plain


def test_compare_ranks_methods_by_their_deletion_score(
    model: str, references: str, heads: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["compare", TEXT, "--model", model, "--references", references, "--heads", heads]
    code, out, err = run(capsys, *base)
    assert code == 0, err
    lines = [line for line in out.splitlines() if "deletion +" in line or "deletion -" in line]
    scores = [float(line.partition("deletion ")[2].split()[0].rstrip(",")) for line in lines]
    assert len(scores) == len(wt.method_names())
    assert scores == sorted(scores, reverse=True)
    assert lines[0].rstrip().endswith("best")
    unsearched = next(line for line in lines if line.split()[1] != "*")
    assert "best" in unsearched
    assert "contrast-cat *" in out
    assert "refined-noise *" in out
    code, text, _ = run(capsys, *base, "--methods", "attcat,random", "--format", "json")
    rows = json.loads(text)
    drops = [row["metrics"]["aopc"] for row in rows]
    assert drops == sorted(drops, reverse=True)
    code, _, _ = run(capsys, *base, "--methods", "attcat,random", "--out", str(tmp_path / "c.jsonl"))
    saved = (tmp_path / "c.jsonl").read_text(encoding="utf-8")
    assert [json.loads(line)["metrics"] for line in saved.splitlines()] == [row["metrics"] for row in rows]
    assert "attcat" in run(capsys, "show", str(tmp_path / "c.jsonl"))[1]
    for row in rows:
        curve = row["curve"]["probability"]
        assert row["metrics"]["aopc"] == pytest.approx(curve[0] - sum(curve[1:]) / 9)
        assert row["metrics"]["log-odds"] == pytest.approx(sum(math.log(p / curve[0]) for p in curve[1:]) / 9)
    code, _, err = run(capsys, *base, "--methods", "attcat,gae", "--out", str(tmp_path / "c.html"))
    assert code == 0, err
    assert "deletion" in (tmp_path / "c.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["c.jsonl", "c.html", "c.txt"])
def test_compare_and_show_say_what_they_wrote(
    name: str, model: str, saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / name)
    code, printed, err = run(capsys, "compare", TEXT, "--model", model, "--methods", "attcat,gae", "--out", out)
    assert (code, printed, err) == (0, "", f"whichtoken: written to {out}\n")
    assert run(capsys, "show", saved, "--out", out) == (0, "", f"whichtoken: written to {out}\n")


def test_compare_explains_a_single_token_and_says_that_there_is_nothing_to_compare(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["compare", "slow", "--model", model, "--methods", "attcat,gae,random"]
    note = "there is nothing to compare: only one of the tokens of this text can be removed, and every method removes "
    code, out, err = run(capsys, *base)
    assert code == 0
    assert note in err
    assert "attcat" in out
    assert "best" not in out
    assert "deletion +" not in out
    assert "deletion -" not in out
    code, out, err = run(capsys, *base, "--format", "json")
    assert (code, [row["method"] for row in json.loads(out)]) == (0, ["attcat", "gae", "random"])
    assert err.startswith(f"whichtoken: {note}")
    code, out, err = run(capsys, *base, "--out", str(tmp_path / "c.html"))
    assert (code, out, len(err.splitlines())) == (0, "", 2)
    assert note in err
    assert "nothing to compare" not in run(capsys, "compare", "slow film", *base[2:])[1]


@pytest.mark.parametrize("option", ["--method", "--methods"])
def test_methods_have_either_option_on_every_command(
    option: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "texts.txt").write_text(TEXT, encoding="utf-8")
    data = ["--data", str(tmp_path / "texts.txt"), "--min-tokens", "1", "--metrics", "aopc", "--no-controls"]
    for words in (["explain", TEXT], ["compare", TEXT], ["bench", *data]):
        code, out, err = run(capsys, *words, "--model", model, option, "gae")
        assert (code, err) == (0, "")
        assert "gae" in out
        assert "attcat" not in out
        code, out, err = run(capsys, *words, "--model", "./not-there", "--method", "gae", "--methods", "attcat")
        assert (code, out) == (2, "")
        assert err == (
            "whichtoken: --method has more than one value: 'gae', 'attcat'; separate names by commas: gae,attcat\n"
        )
    twice = ["explain", TEXT, "--model", model, "--method", "gae", "--methods", "gae"]
    assert run(capsys, *twice)[::2] == (0, "")


def test_every_metric_of_a_benchmark_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    from whichtoken.bench._protocol import load_presets
    from whichtoken.bench.metrics import METRICS

    load_presets()
    listed = {line.split()[0] for line in run(capsys, "metrics")[1].splitlines() if line.strip()}
    assert set(METRICS) <= listed


def test_model_says_what_is_in_a_model(model: str, heads: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "model", model)
    for shown in ("bert", "3 blocks, 3 heads, 24 wide", "0 contradiction, 1 entailment, 2 neutral", "none; see"):
        assert shown in out
    asking = {what: [n for n in wt.method_names() if what in wt.method(n).needs.asks] for what in LIBRARIES}
    total = len(wt.method_names())
    without = total - len({name for names in asking.values() for name in names})
    assert asking["references"] == ["contrast-cat"]
    lacking = {"references": "there is no reference library", "heads": "there is no head mask"}
    needed = [f"not {', '.join(names)}: {lacking[what]}" for what, names in asking.items() if names]
    assert len(needed) == 2
    (said,) = (line for line in out.splitlines() if line.startswith("methods"))
    assert sorted(said.partition(f"{without} of {total}; ")[2].strip().split("; ")) == sorted(needed)
    _, out, _ = run(capsys, "model", model, "--heads", heads)
    assert str(wt.heads.load(heads)) in out
    assert lacking["heads"] not in out


def test_names_from_a_strangers_files_do_not_reach_the_terminal_as_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "\x1b]0;title\x07\x1b[31m \u202e[bold]"
    folder = str(tmp_path / "[/v2] \x1b[31m")
    model = model_of("bert", id2label={0: evil, 1: "b", 2: "c"}).float()
    model.save_pretrained(folder)
    wordpiece().save_pretrained(folder)
    subject = wt.load(folder)
    wt.references.build(subject, CORPUS, out=tmp_path / "library", rule="random", min_tokens=1)
    wt.heads.build(subject, PARSED, corpus=evil, out=tmp_path / "heads.json", relations=[evil])
    for words in (
        ["heads", "show", str(tmp_path / "heads.json")],
        ["model", folder],
        ["references", "show", str(tmp_path / "library")],
        ["explain", "slow", "--model", folder, "--method", "attcat", "--target", "0"],
        ["explain", "slow", "--model", folder, "--method", "contrast-cat"],
    ):
        _, out, err = run(capsys, *words)
        assert "\x1b" not in out + err
        assert "\u202e" not in out + err
    assert "[bold]" in run(capsys, "model", folder)[1]


def test_references_are_built_and_shown(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "corpus.txt").write_text("\n".join(CORPUS), encoding="utf-8")
    out_folder = str(tmp_path / "library")
    options = ["--model", model, "--out", out_folder, "-o", "rule=random", "-o", "min_tokens=1"]
    code, built, err = run(capsys, "references", "build", str(tmp_path / "corpus.txt"), *options)
    assert code == 0, err
    assert f"use it with --references {out_folder}" in err
    assert run(capsys, "references", "show", out_folder)[1] == built
    assert "rule random" in built


def test_the_plain_command_builds_a_library_for_every_preset(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.csv").write_text("text\n" + "\n".join(f'"{text}"' for text in CORPUS), encoding="utf-8")
    folder, methods = str(tmp_path / "references"), "contrast-cat,contrast-cat@repo,contrast-cat@paper"
    code, _, err = run(capsys, "references", "build", str(tmp_path / "train.csv"), "--model", model, "--out", folder)
    assert code == 0, err
    label = next(name for name, kept in zip(*_classes(folder), strict=True) if kept)
    options = ["--model", model, "--references", folder, "--target", label]
    code, out, err = run(capsys, "explain", TEXT, *options, "--method", methods)
    assert code == 0, err
    assert all(f"{method} *" in out for method in methods.split(","))


def _classes(folder: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Labels, and the number of references of each."""
    library = wt.references.load(folder)
    return library.labels, tuple(map(len, library.references))


WON = ["1 It 2 nsubj", "2 won 0 root SpaceAfter=No", "3 . 2 punct"]


def test_heads_are_built_and_shown(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.conllu").write_text(conllu(WON), encoding="utf-8")
    (tmp_path / "b.conllu").write_text(conllu(WON, WON), encoding="utf-8")
    out, files = (
        str(tmp_path / "heads.json"),
        [word for f in "ab" for word in ("--conllu", str(tmp_path / f"{f}.conllu"))],
    )
    base = ["heads", "build", *files, "--model", model, "--out", out]
    code, built, err = run(capsys, *base, "-o", "syntactic=0", "-o", "positional=0.01", "-o", "min_count=1")
    assert code == 0, err
    mask = wt.heads.load(out, wt.load(model))
    assert mask.n_selected > 0
    assert (mask.rule.positional, mask.rule.min_count) == (0.01, 1)
    assert f"{mask.n_selected} of 9 heads" in built
    assert "a.conllu, b.conllu: 3 sentences" in built
    assert f"use it with --heads {out}" in err
    assert NO_HEADS not in err
    code, shown, err = run(capsys, "heads", "show", out, "--out", str(tmp_path / "heads.png"))
    assert (code, shown, err) == (0, built, f"whichtoken: written to {tmp_path / 'heads.png'}\n")
    assert (tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")


def test_where_no_head_qualifies_that_is_said_in_one_line(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.conllu").write_text(conllu(WON), encoding="utf-8")
    out = str(tmp_path / "heads.json")
    options = ["--model", model, "--out", out, "-o", "positional=1"]
    code, built, err = run(capsys, "heads", "build", "--conllu", str(tmp_path / "a.conllu"), *options)
    assert code == 0
    assert "0 of 9 heads" in built
    assert err.count("Mask-LRP then passes relevance through residual connections only") == 1
    assert run(capsys, "heads", "show", out) == (0, built, f"whichtoken: {NO_HEADS}\n")
    for method, said in (("mask-lrp", f"whichtoken: {NO_HEADS}\n"), ("transatt", "")):
        code, _, err = run(capsys, "explain", "slow film", "--model", model, "--heads", out, "--method", method)
        assert (code, err) == (0, said)


def test_heads_of_plain_texts_are_parsed_by_a_pipeline(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import spacy
    from tests.heads.test_parser import blank_parser

    (tmp_path / "t.txt").write_text("It won.\nThe film was slow.\n", encoding="utf-8")
    monkeypatch.setattr(spacy, "load", lambda name: {"tiny_parser": blank_parser()}[name])
    options = ["--pipeline", "tiny_parser", "--model", model, "--out", str(tmp_path / "heads.json")]
    code, built, err = run(capsys, "heads", "build", "--text", str(tmp_path / "t.txt"), *options)
    assert code == 0, err
    assert "t.txt: 2 sentences; 8 words" in built


def test_the_default_model_has_heads_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "heads", "show")
    assert (code, err) == (0, "")
    assert out.startswith("whichtoken-default: ")


FILES = {
    "empty.csv": b"",
    "header.csv": b"text\n",
    "fine.csv": b"text,label\nvery slow,0\n",
    "latin.csv": "text\nvery slow\ncaf\xe9\n".encode("latin-1"),
    "binary.csv": b"\x89PNG\r\n\x1a\n\x00\x00",
    "zero.csv": b"text\nslow\x00\n",
    "blank.csv": b"text,label\nvery slow,0\n  ,1\n",
    "invisible.csv": "text\nvery slow\n\u200b\n".encode(),
    "broken.jsonl": b'{"text": "very slow"}\n{"text": \n',
    "deep.jsonl": b'{"text": ' + b"[" * 100_000 + b"\n",
    "digits.jsonl": b'{"text": "slow", "label": ' + b"9" * 5000 + b"}\n",
    "half.jsonl": b'{"text": "very slow"}\n{"text": "slow \\ud800"}\n',
    "twice.csv": b"text,text\nvery slow,0\n",
    "open.csv": b'text,label\nvery slow,0\n"slow,1\nrare,0\n',
    "utf16.csv": "text\nvery slow\n".encode("utf-16"),
}
# Words after `explain`, exit code, what is said.
FAILURES: dict[str, tuple[list[str], int, str]] = {
    "no text": ([], 2, "give one of TEXT, - for standard input, --file, --image, --prompt, or --question"),
    "text and file": (["very slow", "--file", "fine.csv"], 2, "give one of TEXT, - for"),
    "empty text": ([" "], 2, "text 1 has an empty text"),
    "missing file": (["--file", "nowhere.csv"], 2, "there is no file nowhere.csv"),
    "empty file": (["--file", "empty.csv"], 2, "empty.csv has no texts"),
    "only a header": (["--file", "header.csv"], 2, "header.csv has no texts"),
    "missing column": (
        ["--file", "fine.csv", "--column", "review"],
        2,
        "no column 'review'; the columns are text, label",
    ),
    "column of no file": (["slow", "--column", "review"], 2, "--column names a column of --file"),
    "pair of a file": (["--file", "fine.csv", "--pair", "slow"], 2, "--pair is the second text of one pair"),
    "bad encoding": (["--file", "latin.csv"], 2, "latin.csv, line 3 is not UTF-8: b'caf"),
    "binary file": (["--file", "binary.csv"], 2, "binary.csv, line 1 is not UTF-8"),
    "zero bytes": (["--file", "zero.csv"], 2, "zero.csv, line 2 has a zero byte: this is not a text file"),
    "blank row": (["--file", "blank.csv"], 2, "blank.csv, row 3 has an empty text"),
    "broken row": (["--file", "broken.jsonl"], 2, "broken.jsonl, line 2 is not JSON"),
    "deep row": (["--file", "deep.jsonl"], 2, "deep.jsonl, line 1 cannot be read: nested too deeply"),
    "long number": (["--file", "digits.jsonl"], 2, "digits.jsonl, line 1 cannot be read: a whole number has too many"),
    "half a pair": (["--file", "half.jsonl", "--out", "y.jsonl"], 2, "half.jsonl, line 2 cannot be read: it holds"),
    "column twice": (["--file", "twice.csv"], 2, "twice.csv, line 1: two columns have the name 'text'"),
    "open quote": (["--file", "open.csv"], 2, "open.csv, line 3: a quote is opened here and never closed"),
    "other encoding": (["--file", "utf16.csv"], 2, "utf16.csv, line 1 is not UTF-8"),
    "folder for a file": (["--file", "folder.csv"], 2, "folder.csv is a folder; give a file"),
    "argument of bytes": (["slow \udcff"], 2, "text 1 is not valid Unicode"),
    "deep setting": (
        ["slow", "--method", "gae", "-o", "start_layer=" + "[" * 5000],
        2,
        "-o start_layer=[[[[[[[[[[[[[[[[[[[[[[[[[[[[ cannot be read: nested too deeply",
    ),
    "nested setting": (
        ["slow", "--method", "gae", "-o", "start_layer=" + "[" * 500 + "]" * 500],
        2,
        "nested too deeply",
    ),
    "infinite setting": (["slow", "--method", "gae", "-o", "start_layer=1e999"], 2, "start_layer=inf is not allowed"),
    "setting of many digits": (
        ["slow", "--method", "gae", "-o", "start_layer=" + "9" * 5000],
        2,
        "-o start_layer=9999999999999999999999999999 cannot be read: a whole number has too many digits",
    ),
    "large setting": (["slow", "--method", "gae", "-o", f"start_layer={10**4000}"], 2, "start_layer=1000000"),
    "half a setting": (["slow", "--method", "gae", "-o", r'start_layer="\ud800"'], 2, "half of a surrogate pair"),
    "target of many digits": (["slow", "--target", "9" * 5000], 2, "unknown label '9999"),
    "unknown kind of file": (["--file", "x.docx"], 2, "cannot tell what kind of file it is"),
    "unknown method": (["slow", "--method", "atcat"], 2, "unknown method 'atcat'; did you mean 'attcat'?"),
    "no method": (["slow", "--method", ","], 2, "method names, separated by commas"),
    "unknown preset": (["slow", "--method", "attcat@x"], 2, "unknown preset of attcat 'x'"),
    "empty preset": (["slow", "--method", "attcat@"], 2, "unknown preset of attcat ''"),
    "unknown setting": (["slow", "--method", "attcat", "-o", "axes=key"], 2, "unknown setting of attcat 'axes'"),
    "bad setting": (["slow", "--method", "gae", "-o", "start_layer=-1"], 2, "start_layer=-1 is not allowed"),
    "not a setting": (["slow", "--method", "gae", "-o", "start_layer"], 2, "it must be setting=value"),
    "unknown label": (["slow", "--target", "funny"], 2, "unknown label 'funny'"),
    "against alone": (["slow", "--against", "neutral"], 2, "--against needs --target"),
    "unknown format": (["slow", "--format", "word"], 2, "--format='word' is not allowed"),
    "unknown level": (["slow", "--level", "letter"], 2, "level='letter' is not allowed"),
    "unknown ending": (["slow", "--out", "x.docx"], 2, "cannot tell the format"),
    "no folder": (["slow", "--out", "no/x.html"], 2, "there is no folder no"),
    "out is a folder": (["slow", "--format", "html", "--out", "."], 2, "is a folder"),
    "figure to a pipe": (["slow", "--format", "figure"], 2, "a figure needs a file"),
    "two texts in a figure": (["slow", "rare", "--out", "x.png"], 2, "a figure shows one text"),
    "no references": (["slow", "--method", "contrast-cat"], 2, "whichtoken references build TEXTS.csv --model "),
    "no library": (
        ["slow", "--references", "none"],
        2,
        "there is no folder none; create it with whichtoken references build",
    ),
    "no heads": (["slow", "--method", "mask-lrp"], 2, "whichtoken heads build --conllu FILE --model "),
    "heads as a setting": (["slow", "--method", "mask-lrp", "-o", "heads=x"], 2, "on the command line, --heads FILE"),
    "too many tokens": (["slow", "--method", "tis", "-o", "ratio=1.5"], 2, "above 0 and at most 1"),
    "twice the tokens": (["slow", "--method", "tis", "-o", "ratio=2"], 2, "above 0 and at most 1"),
    "no head mask": (
        ["slow", "--heads", "none.json"],
        2,
        "there is no file none.json; create it with whichtoken heads build",
    ),
    "a head mask that is none": (["slow", "--heads", "fine.csv"], 1, "fine.csv cannot be read: expected JSON, found"),
    "standard input and more": (["-", "slow"], 2, "- stands for all of standard input"),
    "no tokens": (["slow", "\u200b"], 2, "text 2: the tokenizer finds no token"),
    "no tokens in a row": (["--file", "invisible.csv"], 2, "invisible.csv, row 3: the tokenizer finds no token"),
    "too long": (["very " * 50, "--long", "error"], 2, "text 1 has "),
    "out is the input": (
        ["--file", "fine.csv", "--format", "jsonl", "--out", "fine.csv"],
        2,
        "is also an input file",
    ),
    "unknown model": (["slow", "--model", "./no-model"], 2, "there is no folder ./no-model"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_one_line_with_its_exit_code_and_writes_nothing(
    name: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, code, message = FAILURES[name]
    for file, content in FILES.items():
        (tmp_path / file).write_bytes(content)
    (tmp_path / "folder.csv").mkdir()
    monkeypatch.chdir(tmp_path)
    chosen = [] if "--model" in words else ["--model", model]
    found, out, err = run(capsys, "explain", *words, *chosen)
    assert (found, out) == (code, "")
    assert message in err
    assert len(err.splitlines()) == 1 + ("left out" in err)
    assert "Traceback" not in err
    assert len(err) < 1100
    assert {path.name for path in tmp_path.iterdir()} == {*FILES, "folder.csv"}


def test_a_library_that_a_killed_build_was_replacing_is_put_back(
    model: str, references: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(references, tmp_path / ".library.abcdefgh.whichtoken-old" / "library")
    words = ["--model", model, "--references", str(tmp_path / "library"), "--method", "contrast-cat"]
    code, _, err = run(capsys, "explain", "very slow", *words)
    assert (code, err) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["library"]


@pytest.mark.parametrize("error", [OSError("no network"), FileNotFoundError(2, "No such file", "weights.bin")])
def test_an_error_of_another_package_is_not_taken_for_a_full_output(
    error: OSError, saved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> list[Attribution]:
        raise error

    monkeypatch.setattr("whichtoken.cli.show.read_results", fail)
    with pytest.raises(type(error), match=r"no network|weights\.bin"):
        main(["show", saved])


def test_no_references_names_the_model_in_the_command(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = run(capsys, "explain", "slow", "--method", "contrast-cat", "--model", model)
    assert f"whichtoken references build TEXTS.csv --model {model} --out references" in err


def test_an_input_file_is_not_overwritten_by_way_of_a_link(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, link = tmp_path / "texts.csv", tmp_path / "link.csv"
    texts.write_bytes(FILES["fine.csv"])
    link.symlink_to(texts)
    words = ["--file", str(texts), "--format", "jsonl", "--out", str(link), "--model", model, "--method", "random"]
    code, out, err = run(capsys, "explain", *words)
    assert (code, out) == (2, "")
    assert "is also an input file" in err
    assert texts.read_bytes() == FILES["fine.csv"]


@pytest.mark.parametrize("method", ["contrast-cat", "mask-lrp"])
def test_a_suggested_command_quotes_the_name_of_the_model(
    method: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(model, tmp_path / "my model")
    _, _, err = run(capsys, "explain", "slow", "--method", method, "--model", str(tmp_path / "my model"))
    assert f"--model '{tmp_path / 'my model'}' --out" in err


def test_an_unsupported_model_has_its_own_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model_of("bert").bert.save_pretrained(tmp_path)
    wordpiece().save_pretrained(tmp_path)
    code, out, err = run(capsys, "explain", "slow", "--model", str(tmp_path))
    assert (code, out) == (3, "")
    assert "an embedding model (BertModel) without a classification head" in err


def test_debug_shows_the_traceback_wherever_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--debug", "explain", " "], ["explain", " ", "--debug"]):
        done = started(*words)
        assert done.returncode == 1
        assert "Traceback" in done.stderr
        assert "BadInput" in done.stderr
    code, _, err = run(capsys, "explain", "--model", "./none", "--", "--debug")  # here it is a text
    assert code == 2
    assert "there is no folder ./none" in err


def test_errors_do_not_carry_escapes_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = run(capsys, "explain", "slow", "--method", "\x1b[31mx")
    assert "\x1b" not in err


def test_ctrl_c_keeps_the_finished_rows_of_a_file_job(model: str, tmp_path: Path) -> None:
    rows = 50_000  # many more than there is time for
    (tmp_path / "many.csv").write_text("text\n" + "very slow film\n" * rows, encoding="utf-8")
    words = ["explain", "--file", "many.csv", "--model", model, "--method", "attcat", "--out", "done.jsonl"]
    job = subprocess.Popen(
        [sys.executable, "-m", "whichtoken", *words],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        stderr=subprocess.PIPE,
        text=True,
    )
    parts: list[Path] = []
    while not parts and job.poll() is None:  # until the first rows are in the file beside the final one
        with suppress(subprocess.TimeoutExpired):
            job.wait(0.01)
        parts = [path for path in tmp_path.glob(".done.jsonl.*") if path.stat().st_size]
    job.send_signal(signal.SIGINT)
    _, err = job.communicate(timeout=120)
    assert job.returncode == 130, err
    finished = [Attribution.from_json(line) for line in (tmp_path / "done.jsonl").read_text("utf-8").splitlines()]
    assert 0 < len(finished) < rows
    assert f"{len(finished)} of {rows} explained" in err
    assert "interrupted" in err
    assert "Traceback" not in err
    assert {path.name for path in tmp_path.iterdir()} == {"many.csv", "done.jsonl"}


@pytest.mark.parametrize("form", ["terminal", "jsonl", "json"])
def test_results_reach_the_file_one_by_one(form: str, tmp_path: Path) -> None:
    """Otherwise a job of many rows would not fit in memory."""
    sizes = []

    def results() -> Iterator[dict[str, Attribution]]:
        for _ in range(400):
            sizes.append(sum(path.stat().st_size for path in tmp_path.iterdir()))
            yield {"attcat": FINE}

    write_results(results(), Sink(form, tmp_path / "x", Look(), 400))
    assert 0 < sizes[200] < sizes[399]


def test_json_lines_reach_a_pipe_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads along need not wait until a buffer is full."""
    pipe, lines = io.BytesIO(), []

    def results() -> Iterator[dict[str, Attribution]]:
        for _ in range(3):
            lines.append(pipe.getvalue().count(b"\n"))
            yield {"attcat": FINE}

    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(cast("Any", pipe))))
        write_results(results(), Sink("jsonl", None, Look(), 3))
    assert lines == [0, 1, 2]


@pytest.mark.slow  # a process that imports torch
def test_sigterm_keeps_the_finished_rows_of_a_file_job(model: str, tmp_path: Path) -> None:
    rows = 50_000  # many more than there is time for
    (tmp_path / "many.csv").write_text("text\n" + "very slow film\n" * rows, encoding="utf-8")
    words = ["explain", "--file", "many.csv", "--model", model, "--method", "attcat", "--out", "done.jsonl"]
    returncode, err = stopped_when(lambda: any(p.stat().st_size for p in tmp_path.glob(".done.*")), words, tmp_path)
    assert returncode == 143, err
    finished = [Attribution.from_json(line) for line in (tmp_path / "done.jsonl").read_text("utf-8").splitlines()]
    assert 0 < len(finished) < rows
    assert err.splitlines()[-2:] == [
        f"whichtoken: {len(finished)} of {rows} explained, written to done.jsonl",
        "whichtoken: terminated",
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"many.csv", "done.jsonl"}


@pytest.mark.slow  # a process that imports torch
def test_sigterm_keeps_the_finished_parts_of_a_benchmark(model: str, tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("the very slow film won\n" * 5000, encoding="utf-8")
    words = ["bench", "--data", "many.txt", "--model", model, "--methods", "attcat", "--metrics", "auc", "--out", "out"]
    parts = tmp_path / "out" / "parts"
    returncode, err = stopped_when(lambda: bool(list(parts.glob("0*.json"))), [*words, "--min-tokens", "1"], tmp_path)
    assert (returncode, err.splitlines()[-1]) == (143, "whichtoken: terminated")
    assert "Traceback" not in err
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"spec.json", "parts"}
    assert all(Folder(tmp_path / "out").longest_part(int(path.name[:6]), 10_000) for path in parts.iterdir())


def stopped_when(there: Callable[[], bool], words: Sequence[str], folder: Path) -> tuple[int, str]:
    """Send SIGTERM to a command once something is there; return its exit code and standard error."""
    job = subprocess.Popen(
        [sys.executable, "-m", "whichtoken", *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not there() and job.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            job.wait(0.01)
    job.terminate()
    err = job.communicate(timeout=120)[1]
    return job.returncode, err


@pytest.mark.parametrize("ctrl_c", ["as usual", "ignored"])  # a shell may start background jobs so
def test_sigterm_ends_like_ctrl_c_with_its_own_code(
    ctrl_c: str, saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(path: Path) -> list[Attribution]:
        with open_whole(tmp_path / "half.txt"):
            os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("it went on")

    def work() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN if ctrl_c == "ignored" else signal.default_int_handler)
        with (tmp_path / "said").open("w") as sys.stderr, pytest.raises(SystemExit) as ending:
            main(["show", saved])
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert ending.value.code == 143

    monkeypatch.setattr("whichtoken.cli.show.read_results", slowly)
    assert forked(work) == 0
    assert (tmp_path / "said").read_text() == "whichtoken: terminated\n"
    assert [path.name for path in tmp_path.iterdir()] == ["said"]


def test_sigterm_while_a_row_is_written_waits_until_it_is(tmp_path: Path) -> None:
    def work() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        progress, written, results = Progress(), [], [{"first": FINE}, {"second": FINE}]
        with ended_by_sigterm() as stop:
            for row in until_stopped(results, progress):
                os.kill(os.getpid(), signal.SIGTERM)
                written.append(row)
        assert written == results[:1]
        assert (progress.finished, progress.interrupted, stop.terminated) == (1, True, True)

    assert forked(work) == 0


def test_a_caller_that_handles_sigterm_keeps_its_own_way(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert run(capsys, "show", saved)[0] == 0
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    "words",
    [
        ["show", "SAVED"],
        ["show", "SAVED", "--format", "json"],
        ["show", "SAVED", "--format", "jsonl"],
        ["show", "SAVED", "--format", "html"],
        ["methods"],
        pytest.param(["explain", "slow", "--method", "attcat"], marks=pytest.mark.slow),  # it imports torch
        pytest.param(["compare", "slow", "--methods", "attcat", "--format", "json"], marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_a_full_standard_output_is_one_line(words: list[str], saved: str) -> None:
    whole = [sys.executable, "-m", "whichtoken", *(saved if word == "SAVED" else word for word in words)]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(whole, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == "whichtoken: standard output cannot be written: No space left on device\n"
    assert done.returncode == 2


FULL = """
mount -t tmpfs -o size=16k tmpfs {disk} || exit 77
for name in x.html x.csv x.jsonl x.json x.parquet x.tex x.txt x.png; do
  {command} show {saved} --out {disk}/$name; echo "code $?"; ls -A {disk}
done
head -c 16000 /dev/zero >{disk}/filled 2>/dev/null; cat /dev/zero >>{disk}/filled 2>/dev/null
{command} explain slow --model {disk}/nowhere --out {disk}/x.html; echo "code $?"; ls -A {disk}
"""


@pytest.mark.slow  # the command runs nine times
def test_a_full_disk_is_one_line_in_every_format(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("this user cannot mount a disk")
    chance, saved, disk = random.Random(0), tmp_path / "saved.jsonl", tmp_path / "disk"
    words = [f"word{i}" for i in range(300)]
    scores = {name: [chance.random() for _ in words] for name in ("attcat", "cat", "gae", "rollout", "tis", "random")}
    wt.Results(({name: attribution_of(words, of, method=name) for name, of in scores.items()},)).to_jsonl(saved)
    disk.mkdir()
    script = FULL.format(disk=disk, saved=saved, command=f"{sys.executable} -m whichtoken")
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("this user cannot mount a disk")
    names = ("x.html", "x.csv", "x.jsonl", "x.json", "x.parquet", "x.tex", "x.txt", "x.png", "x.html")
    assert done.stderr.splitlines() == [
        f"whichtoken: {disk / name} cannot be written: No space left on device" for name in names
    ]
    assert done.stdout.split("\n") == [*["code 2"] * len(names), "filled", ""]


def test_ctrl_c_while_a_row_is_written_waits_until_it_is() -> None:
    progress, written, results = Progress(), [], [{"first": FINE}, {"second": FINE}]
    before = signal.getsignal(signal.SIGINT)
    for row in until_stopped(results, progress):
        os.kill(os.getpid(), signal.SIGINT)
        written.append(row)
    assert written == results[:1]
    assert (progress.finished, progress.interrupted) == (1, True)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("form", ["terminal", "jsonl"])
@pytest.mark.parametrize("command", ["show", pytest.param("explain", marks=pytest.mark.slow)])  # it imports torch
def test_a_closed_pipe_is_no_crash(command: str, form: str, model: str, saved: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = [saved] if command == "show" else ["very slow", "--model", model, "--method", "attcat"]
    whole = [sys.executable, "-m", "whichtoken", command, *words, "--format", form]
    done = subprocess.run(whole, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_ctrl_c_before_the_first_result_leaves_an_older_file(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    path.write_text("old", encoding="utf-8")

    def never() -> Iterator[dict[str, Attribution]]:
        os.kill(os.getpid(), signal.SIGINT)
        yield {"late": FINE}

    for form in ("jsonl", "html", "json", "latex"):
        progress = write_results(never(), Sink(form, path, Look(), 1))
        assert (progress.finished, progress.interrupted) == (0, True)
        assert path.read_text(encoding="utf-8") == "old"


def test_an_error_late_in_a_job_keeps_the_finished_rows(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["very slow film"] * 600 + ["\u200b"]  # the tokenizer finds nothing in the last
    (tmp_path / "many.txt").write_text("\n".join(rows), encoding="utf-8")
    out = tmp_path / "done.jsonl"
    words = ["--file", str(tmp_path / "many.txt"), "--model", model, "--method", "attcat", "--out", str(out)]
    code, _, err = run(capsys, "explain", *words)
    assert code == 2
    assert "many.txt, row 601: the tokenizer finds no token" in err
    assert "512 of 601 explained" in err
    assert len(out.read_text(encoding="utf-8").splitlines()) == 512


def test_saved_texts_may_hold_other_line_ends(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "saved.jsonl"
    assert run(capsys, "explain", "very\u2028slow", "--model", model, "--method", "attcat", "--out", str(path))[0] == 0
    code, out, err = run(capsys, "show", str(path))
    assert (code, err) == (0, "")
    assert "very" in out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["show", "nowhere.jsonl"], 2, "there is no file nowhere.jsonl"),
        (["show", "other.jsonl"], 1, "other.jsonl: expected the JSON of one Attribution"),
        (["methods", "atcat"], 2, "did you mean 'attcat'?"),
        (["references", "show", "nowhere"], 1, "nowhere"),
        (["heads", "show", "nowhere.json"], 1, "nowhere.json cannot be read"),
        (["heads", "show", "other.jsonl"], 1, "other.jsonl: expected the JSON of one HeadMask, schema 1; found None"),
        (["heads", "build", "--out", "x"], 2, "give either --conllu FILE (repeatable) or --text FILE"),
        (["heads", "build", "--conllu", "a", "--text", "b", "--out", "x"], 2, "give either --conllu FILE"),
        (["heads", "build", "--conllu", "nowhere", "--out", "x"], 2, "there is no file nowhere"),
        (
            ["heads", "build", "--conllu", "other.jsonl", "--out", "x"],
            2,
            "other.jsonl, line 1 has 1 tab-separated columns",
        ),
        (["heads", "build", "--conllu", "other.jsonl", "--out", "no/x"], 2, "there is no folder no"),
        (["heads", "build", "--conllu", "other.jsonl", "--pipeline", "p", "--out", "x"], 2, "--pipeline parses --text"),
        (["heads", "build", "--text", "other.jsonl", "--pipeline", "p", "--out", "x"], 2, "no spaCy pipeline 'p'"),
        (["heads", "build", "--conllu", "other.jsonl", "--out", "x", "-o", "out=y"], 2, "setting of heads build 'out'"),
        (["references", "build", "nowhere.csv", "--out", "x"], 2, "there is no file nowhere.csv"),
        (
            ["references", "build", "other.jsonl", "--out", "x", "-o", "out=y"],
            2,
            "unknown setting of references build 'out'",
        ),
    ],
)
def test_other_commands_fail_in_one_line_too(
    words: list[str], code: int, message: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.jsonl").write_text("{}\n", encoding="utf-8")
    chosen = ["--model", model] if words[1] == "build" else []
    found, out, err = run(capsys, *words, *chosen)
    assert (found, out) == (code, "")
    assert message in err
    assert len(err.splitlines()) == 1
