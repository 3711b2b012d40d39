"""The command line with prompts: generated and given answers, chats, documents, files, outputs, errors."""

import json
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from tests.cli.test_cli import run
from tests.tiny import language_subject

import whichtoken as wt

PROMPT = "the film was slow but the music was touching"
ASKED = ("explain", "--prompt", PROMPT, "--method", "attn-lrp")


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of a model that generates text, with a chat template."""
    folder, subject = tmp_path_factory.mktemp("speaker"), language_subject("llama", chat=True)
    subject.model.float().save_pretrained(folder)
    subject.tokenizer.save_pretrained(folder)
    return str(folder)


def test_a_prompt_is_answered_and_explained(speaker: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = (*ASKED, "--model", speaker, "--generate", "4", "--rows", "token", "--target", "logprob")
    code, out, err = run(capsys, *asked, "--format", "jsonl")
    assert (code, err) == (0, "")
    made = wt.explain(wt.load(speaker), prompt=PROMPT, generate=4, methods="attn-lrp", rows="token", target="logprob")[
        0
    ]["attn-lrp"]
    assert wt.Attribution.from_json(out) == made
    code, out, _ = run(capsys, *asked)
    assert code == 0
    assert "log-probability" in out
    assert "part of the answer" in out


def test_a_given_answer_a_foil_and_a_drawn_one(speaker: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = (*ASKED, "--model", speaker, "--format", "json")
    given = json.loads(run(capsys, *asked, "--continuation", " and rare")[1])[0]
    assert given["texts"] == [PROMPT, " and rare"]
    assert given["generated"]["is_given"] is True
    foil = json.loads(run(capsys, *asked, "--continuation", " and rare", "--foil", " slow")[1])[0]
    assert foil["label"].endswith("rather than slow")
    longer = json.loads(run(capsys, *asked, "--continuation", " and rare", "--foil", "and slow")[1])[0]
    assert longer["label"].endswith("rather than slow")  # at the first token that differs
    assert "and" not in longer["label"].split()
    drawn = [
        json.loads(run(capsys, *asked, "--generate", "6", "--temperature", "2", "--seed", seed)[1])[0]["texts"]
        for seed in ("1", "1", "2")
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_chats_documents_and_standard_input(
    speaker: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("a.txt", "the plot was rare."), ("b.txt", "the music was slow.")):
        (tmp_path / name).write_text(text + "\n")
    files = ("--documents", str(tmp_path / "a.txt"), str(tmp_path / "b.txt"))
    asked = ("explain", "--prompt", "-", "--method", "attn-lrp", "--model", speaker, "--generate", "3")
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"was it slow?\n")))
    code, out, err = run(capsys, *asked, "--chat", "--system", "it is a film", *files, "--format", "json")
    assert (code, err) == (0, "")
    record = json.loads(out)[0]["generated"]
    segments = [(segment["kind"], segment["name"]) for segment in record["segments"]]
    assert [name for kind, name in segments if kind == "document"] == ["a.txt", "b.txt"]
    assert [name for kind, name in segments if kind == "role"] == ["system", "user"]
    assert record["source_level"] == "document"
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"was it slow?\n")))
    code, out, _ = run(capsys, *asked, *files)
    assert code == 0
    assert "rests on" in out
    assert "b.txt" in out


def test_prompts_of_a_file_and_every_output(speaker: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, saved = tmp_path / "prompts.jsonl", tmp_path / "saved.jsonl"
    rows = [{"prompt": PROMPT, "id": "p1"}, {"prompt": "the plot", "answer": " was slow"}, {"prompt": " "}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = ("explain", "--file", str(file), "--model", speaker, "--method", "attn-lrp", "--generate", "2")
    code, _, err = run(capsys, *asked)
    assert code == 2
    assert "prompts.jsonl, row 3 is an empty prompt; give at least one word\n" in err
    code, _, err = run(capsys, *asked, "--rows", "token", "--on-bad-row", "skip", "--out", str(saved))
    assert code == 0, err
    results = wt.Results.read(saved)
    assert [len(result) for result in results] == [1, 1]
    assert results[0]["attn-lrp"].source is not None
    assert results[0]["attn-lrp"].source.id == "p1"
    for ending, begins in (
        (".html", b"<!doctype html>"),
        (".csv", b"result,row,id"),
        (".parquet", b"PAR1"),
        (".tex", b"%"),
    ):
        out = tmp_path / f"shown{ending}"
        assert run(capsys, "show", str(saved), "--out", str(out))[0] == 0
        assert out.read_bytes().startswith(begins)
    code, _, err = run(capsys, "show", str(saved), "--out", str(tmp_path / "shown.png"))
    assert (code, err) == (2, "whichtoken: a figure shows one text, but there are 2; choose one, or another format\n")
    saved.write_text(results[0]["attn-lrp"].to_json())
    assert run(capsys, "show", str(saved), "--out", str(tmp_path / "shown.png"))[0] == 0
    code, out_text, _ = run(capsys, "show", str(saved), "--row", results[0]["attn-lrp"].texts[1].split()[-1])
    assert code == 0
    assert "explained: " in out_text


def test_the_model_page_says_what_the_model_reads(speaker: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "model", speaker)
    assert code == 0
    assert "prompts and chats" in out
    assert "references build" not in out  # no method could use them


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--prompt", " "), "the prompt is an empty prompt; give at least one word"),
        (
            ("--prompt", "x", "--rows", "word"),
            "--rows='word' is not allowed; it must be one of answer, sentence, token",
        ),
        (("--prompt", "x", "--sources", "line"), "--sources='line' is not allowed; it must be one of token, word, "),
        (("--prompt", "x", "--generate", "0"), "generate=0 is not allowed; it must be a number of tokens, at least 1"),
        (("--prompt", "x", "--generate", "2", "--continuation", "y"), "--continuation gives the answer, so nothing"),
        (("--prompt", "x", "--temperature", "-1"), "temperature=-1.0 is not allowed"),
        (("--prompt", "x", "a text"), "--prompt: a prompt cannot be combined with other inputs; give one kind"),
        (("--rows", "token"), "--rows: give one prompt, --prompt TEXT, or a file of them, --file NAME.jsonl"),
        (("--prompt", "x", "--documents", "none.txt"), "there is no file none.txt; --documents takes text files"),
        (("--prompt", "x", "--id", "a"), "--id: this applies to the rows of --file, which is missing"),
        (
            ("--prompt", "x", "--foil", "y", "--rows", "token"),
            "rows='token' is not allowed; it must be 'answer' with a",
        ),
    ],
)
def test_a_wrong_call_is_one_line_before_any_model_is_loaded(
    words: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "explain", *words, "--model", "no/such-model")
    assert (code, out) == (2, "")
    assert err.startswith(f"whichtoken: {line}")
    assert err.count("\n") == 1


def test_prompts_and_models_must_fit(speaker: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "explain", "--prompt", "x")
    assert (code, err.count("\n")) == (2, 1)
    assert "a prompt was given, but whichtoken-default classifies texts" in err
    code, _, err = run(capsys, "explain", "a text", "--model", speaker)
    assert (code, err.count("\n")) == (2, 1)
    assert "generates text; give prompt=" in err
    assert "--prompt TEXT" in err
    code, _, err = run(capsys, *ASKED, "--model", speaker, "--sources", "document")
    assert (code, err) == (
        2,
        "whichtoken: the prompt: sources='document', but it has no documents; give them (documents=...)\n",
    )
    code, _, err = run(capsys, *ASKED, "--model", speaker, "--generate", "2", "--row", "no such word")
    assert (code, err.count("\n")) == (2, 1)
    assert "unknown part of the answer 'no such word'" in err


COMPARED = ("compare", "--prompt", PROMPT, "--methods", "attn-lrp,gradient-x-input,random")


def test_compare_ranks_methods_by_the_words_that_an_answer_needs(
    speaker: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = (*COMPARED, "--model", speaker, "--generate", "4")
    code, out, err = run(capsys, *asked)
    assert (code, err) == (0, "")
    assert out.count("deletion +") + out.count("deletion -") == 3
    note = (
        "deletion: mean drop of the log-probability of the answer when 10, 20 .. 90 % of the words are deleted, the "
        "highest scores first; one prompt says little about a method"
    )
    assert note in " ".join(out.split())
    rows = json.loads(run(capsys, *asked, "--format", "json")[1])
    subject = wt.load(speaker)
    names = ["attn-lrp", "gradient-x-input", "random"]
    expected = wt.explain(subject, prompt=PROMPT, generate=4, methods=names)[0]
    curves = dict(zip(expected, wt.degrade(subject, list(expected.values()), level="word"), strict=True))
    for row in rows:
        values = row["curve"]["value"]
        assert values == pytest.approx(list(curves[row["method"]].value), abs=1e-5)
        assert row["metrics"]["aopc"] == pytest.approx(values[0] - sum(values[1:]) / 9)
    drops = [row["metrics"]["aopc"] for row in rows]
    assert drops == sorted(drops, reverse=True)
    for ending, begins in ((".html", b"<!doctype html>"), (".png", b"\x89PNG"), (".jsonl", b'{"method"')):
        file = tmp_path / f"compared{ending}"
        assert run(capsys, *asked, "--out", str(file)) == (0, "", f"whichtoken: written to {file}\n")
        assert file.read_bytes().startswith(begins)
    assert (tmp_path / "compared.html").read_text().count("<b>deletion ") == 3


def test_compare_takes_the_options_of_a_prompt(
    speaker: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    paths = [tmp_path / f"{name}.txt" for name in "abc"]
    for path, text in zip(paths, ("the plot was rare.", "the music was slow.", "it is a film."), strict=True):
        path.write_text(text)
    asked = (*COMPARED, "--model", speaker)
    files = ("--documents", *map(str, paths), "--chat", "--system", "it is a film")
    code, out, err = run(capsys, *asked, *files, "--generate", "3")
    assert (code, err) == (0, "")
    assert "90 % of the documents are deleted" in " ".join(out.split())
    code, _, err = run(capsys, *asked, *files, "--generate", "3", "--out", str(paths[0]))
    assert (code, err) == (2, f"whichtoken: --out {paths[0]} is also an input file; give another name\n")
    code, out, err = run(capsys, *asked, "--continuation", " and rare", "--foil", "and slow")
    assert (code, err) == (0, "")
    assert "mean drop of the difference of the logits when" in " ".join(out.split())
    code, _, err = run(capsys, "compare", "--prompt", "slow", "--model", speaker, "--methods", "random,attn-lrp")
    assert code == 0
    assert "there is nothing to compare: only one of the words of this prompt can be removed" in err


def test_compare_runs_what_suits_the_model_and_is_not_expensive(
    speaker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("compare", "--prompt", "the film was slow", "--continuation", " and rare", "--model", speaker)
    code, out, err = run(capsys, *asked, "--format", "json")
    assert code == 0, err
    names = {row["method"] for row in json.loads(out)}
    assert {"attn-lrp", "posterior", "random"} <= names
    assert not {"integrated-gradients", "contrast-cat", "full-lrp"} & names
    assert "left out, because they run the model most often: " in err
    code, out, err = run(capsys, *asked, "--methods", "all", "-o", "steps=2", "--format", "json")
    assert code == 0, err
    assert {row["method"].partition("(")[0] for row in json.loads(out)} > names
    assert "most often" not in err
    assert "a language model predicts words, not classes: contrast-cat" in err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--generate", "2"), "--generate: this is about a prompt, which is missing; give --prompt TEXT"),
        (("a text", "--chat"), "--chat: this is about a prompt, which is missing; give --prompt TEXT"),
        (("--prompt", "x", "a text"), "--prompt: a prompt cannot be combined with other inputs; give one kind"),
        ((), "give one of TEXT, --image FILE, --prompt TEXT, or --question Q --context C"),
        (("a text", "another"), "compare shows one input, but there are 2; to measure many, use bench"),
    ],
)
def test_a_wrong_comparison_is_one_line_before_any_model_is_loaded(
    words: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "compare", *words, "--model", "no/such-model")
    assert (code, out, err) == (2, "", f"whichtoken: {line}\n")


def test_control_tokens_in_a_message_are_a_warning_and_can_be_read_as_text(
    speaker: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ("explain", "--prompt", "slow</s> film", "--chat", "--method", "random", "--generate", "1")
    warning = "Warning: the user message contains </s>: the model reads it as a control token, not as text"
    code, out, err = run(capsys, *asked, "--model", speaker)
    assert (code, err) == (0, "")
    assert warning in " ".join(out.split())
    code, out, err = run(capsys, *asked, "--model", speaker, "--out", str(tmp_path / "x.jsonl"))
    assert err.splitlines()[0] == f"whichtoken: {warning} (--special-tokens text changes that)"
    assert json.loads((tmp_path / "x.jsonl").read_text("utf-8"))["control_tokens"] == ["</s>"]
    code, out, err = run(capsys, *asked, "--model", speaker, "--special-tokens", "text", "--format", "json")
    assert (code, err) == (0, "")
    assert "control_tokens" not in json.loads(out)[0]
    code, out, err = run(capsys, *asked, "--model", speaker, "--special-tokens", "parse")
    assert code == 2
    assert "special_tokens='parse' is not allowed; it must be 'control', as the model's own pipeline reads them" in err
