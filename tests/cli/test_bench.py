"""The command `bench`, and `explain --method auto`: what they print, keep and refuse, and how a killed run goes on."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from tests.cli.test_cli import run
from tests.tiny import CORPUS, WORDS, model_of, wordpiece

import whichtoken as wt
from whichtoken.bench import folder as files
from whichtoken.bench import selection
from whichtoken.bench.results import Part
from whichtoken.cli.bench_gates import Gate, parse_gates
from whichtoken.errors import BadSetting
from whichtoken.metrics.curves import aopc
from whichtoken.records import Attribution
from whichtoken.render import report
from whichtoken.tables import BenchTable, Column, Estimate, Line

SOURCE = np.random.default_rng(11)
TEXTS = [" ".join(SOURCE.choice(WORDS, 4 + n % 5).tolist()) for n in range(64)]
FIRST = "aopc delete morf tenths"
COMMON = ("--min-tokens", "1", "--perturbation", "delete", "--order", "morf")
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("bench-model")
    model_of("bert").float().save_pretrained(folder)
    wordpiece().save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def references(model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("bench-references") / "library"
    wt.references.build(wt.load(model), CORPUS, out=folder, rule="random", min_tokens=1)
    return str(folder)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS), encoding="utf-8")
    return path


def leave_pictures_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(files, "_write_figures", lambda *_: None)
    patch.setattr(report, "curves_png", lambda *_: b"")


@pytest.fixture
def bench(model: str, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """On few texts, with one curve each and without pictures, which take a second each, unless told otherwise."""
    monkeypatch.chdir(data.parent)
    monkeypatch.setenv("XDG_CACHE_HOME", str(data.parent / "cache"))

    def call(
        *words: str,
        data: Sequence[str] = ("--data", "texts.txt"),
        sample: int | None = 3,
        pictures: bool = False,
    ) -> Any:
        options = [*COMMON, "--model", model]
        options += [] if sample is None else ["--sample", str(sample)]
        with monkeypatch.context() as patch:
            if not pictures:
                leave_pictures_out(patch)
            return run(capsys, "bench", *data, *options, *words)

    return call


ONE = ("--methods", "attcat", "--no-controls")


def test_longer_texts_are_truncated(bench: Call, tmp_path: Path) -> None:
    code, _, err = bench(*ONE, "--metrics", "aopc", "--max-tokens", "7", "--out", str(tmp_path / "out"), sample=None)
    assert code == 0, err
    facts = dict(wt.bench.read_table(tmp_path / "out").facts)
    n_longer = sum(len(text.split()) > 5 for text in TEXTS)  # [CLS] and [SEP] count
    assert facts["lengths"].startswith("6 to 7 tokens")
    assert facts["lengths"].endswith(f"{n_longer} texts cut")


def cells(table: BenchTable) -> dict[tuple[str, str], tuple[float, ...]]:
    """By method and column; all but seconds."""
    return {
        (line.method, name): (cell.mean, cell.low, cell.high, cell.n, -1 if cell.p is None else cell.p)
        for line in table.lines
        for name, cell in line.cells.items()
        if name != "seconds"
    }


def check_same(one: BenchTable, other: BenchTable) -> None:
    """But for seconds, and for rounding, which may differ between processes."""
    assert [line.method for line in one.lines] == [line.method for line in other.lines]
    assert cells(one) == {place: pytest.approx(cell, abs=1e-6) for place, cell in cells(other).items()}
    assert (one.columns, one.facts, one.notes) == (other.columns, other.facts, other.notes)


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    return {part.name: (part.stat().st_ino, part.stat().st_mtime_ns) for part in folder.glob("parts/0*.json")}


KILLED = ("--methods", "attcat,gae", "--metrics", "auc,kendall", "--no-controls")


def check_it_goes_on(killed: Path, whole: Path, bench: Call) -> None:
    """In the folder that a killed run left, to the table of a run that was not."""
    before = stamps(killed)
    assert "000000-000015.json" in before
    assert not (killed / "table.json").exists()
    assert json.loads((killed / "spec.json").read_text("utf-8"))["call"]["methods"] == "attcat,gae"
    code, _, err = bench(*KILLED, "--out", str(killed), sample=None)
    assert code == 0, err
    after = stamps(killed)
    assert sorted(after) == [
        "000000-000015.json",
        "000016-000031.json",
        "000032-000047.json",
        "000048-000063.json",
    ]
    assert before.items() <= after.items()  # what was finished was not written again
    check_same(wt.bench.read_table(killed), wt.bench.read_table(whole))


def test_what_a_kill_would_leave_is_gone_on_with(bench: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the folder after its second part: a process that is killed then leaves just this."""
    save_part = files.Folder.save_part

    def then_copied(folder: files.Folder, first: int, last: int, part: Part) -> None:
        save_part(folder, first, last, part)
        if first == 16:
            shutil.copytree(folder.path, "killed")

    with monkeypatch.context() as patch:
        patch.setattr(files.Folder, "save_part", then_copied)
        code, _, err = bench(*KILLED, "--out", "whole", sample=None)
    assert code == 0, err
    assert len(stamps(Path("killed"))) == 2
    check_it_goes_on(Path("killed"), Path("whole"), bench)


@pytest.mark.slow  # a process that imports torch
def test_a_killed_run_goes_on_where_it_was(model: str, data: Path, bench: Call) -> None:
    out = data.parent / "out"
    words = [*COMMON, "--model", model, *KILLED, "--out", "out"]
    job = subprocess.Popen(
        [sys.executable, "-m", "whichtoken", "bench", "--data", "texts.txt", *words],
        cwd=data.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    while not stamps(out) and job.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            job.wait(0.01)
    job.send_signal(signal.SIGKILL)
    said = job.communicate(timeout=120)[1]
    assert job.returncode == -signal.SIGKILL, said
    code, _, err = bench(*KILLED, "--out", "whole", sample=None)
    assert code == 0, err
    check_it_goes_on(out, Path("whole"), bench)


def test_a_folder_takes_more_of_the_same_and_nothing_else(bench: Call) -> None:
    words = ["--methods", "attcat,gae", "--metrics", "auc", "--no-controls", "--out", "out"]
    assert bench(*words, sample=16)[0] == 0
    first = stamps(Path("out"))
    code, _, err = bench(*words, sample=20)
    assert code == 0, err
    assert first.items() < stamps(Path("out")).items()
    assert wt.bench.read_table("out").lines[0].cells["auc delete morf tenths"].n == 20
    for other, said in (
        (["--methods", "attcat", "--metrics", "auc", "--no-controls"], "methods was"),
        (["--methods", "attcat,gae", "--metrics", "auc", "--no-controls", "--level", "word"], "protocol was"),
        (["--methods", "attcat,gae", "--metrics", "auc", "--no-controls", "--seed", "4"], "protocol was"),
    ):
        code, out, err = bench(*other, "--out", "out", sample=20)
        assert (code, out) == (2, "")
        assert "out holds another benchmark (" in err
        assert said in err
        assert len(err.splitlines()) == 1
    Path("texts.txt").write_text("\n".join(TEXTS[1:]), encoding="utf-8")
    assert "inputs was" in bench(*words, sample=20)[2]
    code, _, err = bench(*ONE, "--metrics", "auc", "--out", ".")
    assert code == 2
    assert "holds other files" in err


def test_a_finished_benchmark_has_its_files_and_shows_names_only_as_text(model: str, bench: Call) -> None:
    from pyarrow import parquet

    subject, evil = wt.load(model), "<script>alert('x')</script>"
    text = "the slow <img src=x onerror=alert(1)> film"
    own = wt.explain(subject, [text, TEXTS[0]], ["gae"])
    rows = [
        {"text": one.texts[0], "method": evil, "tokens": one.tokens, "scores": one.scores[::-1]}
        for result in own
        for one in result.values()
    ]
    Path("given.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    words = ["--attributions", "given.jsonl", "--metrics", "aopc,agreement", "--methods", "attcat", "--out", "made"]
    code, out, err = bench(*words, data=(), sample=None, pictures=True)
    assert code == 0, err
    assert err.startswith("whichtoken: written to made: agreement.png, curves.png, report.html, results.parquet")
    assert "attcat" in out
    names = {"spec.json", "table.json", "table.md", "results.parquet", "report.html", "curves.png", "agreement.png"}
    assert {path.name for path in Path("made").iterdir()} == names | {"parts"}
    for name in ("report.html", "table.md"):
        written = Path("made", name).read_text("utf-8")
        assert "<script>alert" not in written
        assert "<img src=x" not in written
        assert "alert(" in written  # it is shown
    table = wt.bench.read_table("made")
    assert {line.method for line in table.lines} == {evil, "attcat", "random", "refined-noise"}
    kept = parquet.read_table("made/results.parquet").to_pylist()
    assert len(kept) == 2 * 4
    for line in table.lines:
        drops = [row["probability"][0] - fmean(row["probability"][1:]) for row in kept if row["method"] == line.method]
        assert line.cells[FIRST].mean == pytest.approx(fmean(drops))


def test_the_table_is_that_of_the_library(model: str, bench: Call) -> None:
    code, out, err = bench("--methods", "attcat,gae", "--metrics", "aopc", sample=5)
    assert (code, err) == (0, "")
    how = wt.bench.protocol(metrics=("aopc",), perturbations=("delete",), orders=("morf",), min_tokens=1, sample=5)
    table = wt.bench.run(wt.load(model), TEXTS, ["attcat", "gae", "random", "refined-noise"], protocol=how)
    for line in table.lines:  # the controls are there without being asked for
        shown = next(row for row in out.splitlines() if row.strip().startswith(line.method))
        assert f"{line.cells[FIRST].mean:.3f}" in shown or f"{line.cells[FIRST].mean:.5f}" in shown
    shown = bench("--metrics", "aopc", "--methods", "attcat", "--no-controls")[1]
    assert "refined-noise" not in shown


def test_the_same_command_resumes_and_another_is_refused(model: str, references: str, bench: Call) -> None:
    words = ["--references", references, "--methods", "contrast-cat,attcat", "-o", "steps=5", "-o", "mask_special=true"]
    words += ["--metrics", "auc,kendall", "--seed", "3", "--level", "word"]
    assert bench(*words, "--out", "first", sample=4)[0] == 0
    first, stamped = wt.bench.read_table("first"), stamps(Path("first"))
    assert any("steps=5" in line.method for line in first.lines)
    assert bench(*words, "--out", "first", sample=4)[0] == 0
    assert stamps(Path("first")) == stamped
    check_same(wt.bench.read_table("first"), first)
    code, _, err = bench(*words[:-2], "--out", "first", sample=4)
    assert code == 2
    assert "holds another benchmark" in err


def test_a_gate_fails_what_is_worse(bench: Call) -> None:
    both = ["--methods", "attcat,gae", "--metrics", "aopc,log-odds"]
    code, out, err = bench(*both, "--fail-under", "aopc=0.99")
    assert code == 1
    assert out
    assert sorted(line.split(":")[1].strip() for line in err.splitlines()) == ["attcat", "gae"]  # and no control
    assert all("AOPC, delete, MoRF is" in line and line.endswith("below 0.99") for line in err.splitlines())
    assert bench(*both, "--fail-under", "aopc=-1")[::2] == (0, "")
    code, _, err = bench(*both, "--fail-under", "aopc=-1", "--fail-under", "log-odds=-50")
    assert code == 1
    assert all(line.endswith("above -50") for line in err.splitlines())
    assert bench(*both, "--fail-under", "log-odds=50", "--fail-under", f"{FIRST}=-1")[0] == 0
    code, out, err = bench(*both, "--fail-under", "kendall=0.2")
    assert (code, out) == (2, "")
    assert "unknown metric of --fail-under 'kendall'; known: aopc, log-odds" in err  # it would not be measured
    assert f"known: {FIRST}, log-odds" in bench(*both, "--fail-under", "aopc mask morf tenths=0.2")[2]  # it was not


def test_controls_pass_every_gate(references: str, bench: Call) -> None:
    """What searches asks the model often."""
    words = ["--metrics", "auc", "--fail-under", "evaluations=4"]
    assert bench("--methods", "attcat", *words)[::2] == (0, "")
    code, _, err = bench(*words, "--references", references, "--methods", "attcat,contrast-cat")
    assert code == 1
    assert [line.split(":")[1].strip() for line in err.splitlines()] == ["contrast-cat"]


def test_gates_need_a_number_and_skip_what_was_not_measured() -> None:
    gates = parse_gates(["aopc=0.4", " kendall =-1e-3"], ["aopc", "kendall"])
    assert gates == [Gate("aopc", 0.4), Gate("kendall", -0.001)]
    for word in ("aopc", "aopc=", "aopc=high", "aopc=nan"):
        with pytest.raises(BadSetting, match=r"--fail-under='aopc.*metric=number, such as aopc=0.4"):
            parse_gates([word], ["aopc"])
    measured = Line("attcat", False, False, {"kendall": Estimate(0.5, 0.4, 0.6, 3)})
    column = Column("kendall", "Kendall's tau", "", "lower")
    table = BenchTable("", (), (column,), (measured, Line("given", False, False, {})), ())
    assert Gate("kendall", 0.4).failures(table) == ["attcat: Kendall's tau is 0.500, above 0.4"]
    assert Gate("kendall", 0.5).failures(table) == []


@pytest.mark.parametrize(
    ("name", "variants"),
    [("n-references", {"n=0", "n=1", "n=2"}), ("depth", {"depth=1", "depth=2", "depth=3"})],
)
def test_an_ablation_measures_its_variants(name: str, variants: set[str], references: str, bench: Call) -> None:
    words = ["--ablation", name, "--references", references, "--metrics", "auc", "--out", name]
    code, out, err = bench(*words, sample=2)
    assert code == 0, err
    found = {line.method: line for line in wt.bench.read_table(name).lines}
    assert variants <= set(found)
    assert not set(found) & {"random", "attcat"}
    assert all(found[variant].tuned_on_deletion for variant in variants - {"n=0"})
    listed = [row.split()[0] for row in out.splitlines() if row.strip().startswith(("n=", "depth="))]
    assert listed == sorted(found, key=lambda variant: int(variant.partition("=")[2]))  # not the best first
    means = {line.cells["auc delete morf tenths"].mean for line in found.values()}
    assert len(means) > 1


def given_lines(path: str, subject: wt.Subject, method: str, texts: Sequence[str]) -> list[Attribution]:
    """Scores of attcat in words, under another name."""
    made = [result["attcat"] for result in wt.explain(subject, texts, ["attcat"])]
    rows = [{"text": a.texts[0], "method": method, "tokens": a.tokens, "scores": a.scores} for a in made]
    Path(path).write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return made


def test_scores_made_elsewhere_are_measured_beside_the_methods(model: str, bench: Call) -> None:
    subject = wt.load(model)
    chosen = [TEXTS[5], TEXTS[2], TEXTS[9]]
    made = given_lines("given.jsonl", subject, "captum", chosen)
    words = ["--attributions", "given.jsonl", "--methods", "attcat,gae", "--metrics", "aopc,normalised-aopc"]
    code, _, err = bench(*words, "--out", "out", sample=None)
    assert code == 0, err
    table = wt.bench.read_table("out")
    by_name = {line.method: line.cells for line in table.lines}
    for column in (FIRST, "normalised-aopc delete morf tenths"):
        own, other = by_name["attcat"][column], by_name["captum"][column]
        assert (own.mean, own.low, own.high, own.n) == (other.mean, other.low, other.high, 3)
    assert by_name["captum"][FIRST].mean == pytest.approx(fmean(aopc(c) for c in wt.degrade(subject, made)), abs=1e-6)
    assert dict(table.facts)["texts"].startswith("3 of 64")  # those of the data that were scored
    rows = [json.loads(p.read_text("utf-8")) for p in Path("out/parts").iterdir()]
    assert sorted(text["row"] for part in rows for text in part["inputs"]) == [2, 5, 9]  # in the data


def test_without_data_the_texts_are_those_that_were_scored(model: str, bench: Call) -> None:
    given_lines("given.jsonl", wt.load(model), "captum", TEXTS[:2])
    words = ["--attributions", "given.jsonl", "--metrics", "auc"]
    for more, names in (([], {"random", "refined-noise"}), (["--no-controls"], {"random (whichtoken)"})):
        code, _, err = bench(*words, *more, "--out", f"out{len(more)}", data=(), sample=None)
        assert code == 0, err
        table = wt.bench.read_table(f"out{len(more)}")
        controls = {line.method for line in table.lines if line.control}
        assert controls == names  # beside something, or the number says little
        assert {line.method for line in table.lines} - controls == {"captum"}
        assert table.lines[0].cells["auc delete morf tenths"].n == 2


def test_lines_of_explain_can_be_measured(model: str, bench: Call, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--model", model, "--method", "gae,random", "--out", "own.jsonl"]
    assert run(capsys, "explain", *TEXTS[:2], *options)[0] == 0
    words = ["--attributions", "own.jsonl", "--metrics", "auc", "--out", "out"]
    code, _, err = bench(*words, data=(), sample=None)
    assert code == 0, err
    found = {line.method: line for line in wt.bench.read_table("out").lines}
    assert set(found) == {"gae", "random", "refined-noise"}
    assert found["random"].control
    code, _, err = bench("--attributions", "own.jsonl", "--metrics", "auc", "--methods", "attcat,gae", data=())
    assert code == 2
    assert "gae: measured here and also scored in own.jsonl; rename it there" in err


def test_wrong_attributions_are_named_by_file_and_line(model: str, bench: Call) -> None:
    subject = wt.load(model)
    own = wt.explain(subject, [TEXTS[0]], ["attcat"])[0]["attcat"]
    wrong = next(label for label in subject.labels if label != own.label)
    row = {"text": TEXTS[0], "method": "captum", "tokens": own.tokens, "scores": own.scores}
    for rows, said in (
        ([{**row, "label": wrong}], f"given.jsonl, line 1: scores for {wrong!r}, but {own.label!r} is measured"),
        ([row, {**row, "method": "b", "scores": [1.0]}], "given.jsonl, line 2: "),
        ([{**row, "text": "nobody won this"}], "given.jsonl, line 1: tokens are"),
    ):
        Path("given.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        code, out, err = bench("--attributions", "given.jsonl", "--metrics", "auc", data=(), sample=None)
        assert (code, out) == (2, "")
        assert said in err
        assert len(err.splitlines()) == 1
    Path("given.jsonl").write_text(json.dumps(row), encoding="utf-8")
    Path("texts.txt").write_text("another text\n", encoding="utf-8")
    code, _, err = bench("--attributions", "given.jsonl", "--metrics", "auc", sample=None)
    assert (code, "none of the 1 texts has at least 1 tokens and is scored in the attributions" in err) == (2, True)


def test_labels_and_columns_come_from_the_data(model: str, bench: Call) -> None:
    rows = [f"{text}\t{label}" for text, label in zip(TEXTS[:3], ("entailment", "2", "0"), strict=True)]
    Path("gold.tsv").write_text("review\tgold\n" + "\n".join(rows), encoding="utf-8")
    data = ["--data", "gold.tsv", "--column", "review"]
    words = ["--protocol", "attcat", "--methods", "attcat", "--no-controls", "--metrics", "auc", "--grid", "tenths"]
    code, _, err = bench(*words, "--label", "gold", "--out", "out", data=data, sample=None)
    assert code == 0, err
    parts = [json.loads(path.read_text("utf-8")) for path in Path("out/parts").iterdir()]
    explained = {text["row"]: text["label"] for part in parts for text in part["inputs"]}
    assert explained == {0: "entailment", 1: "neutral", 2: "contradiction"}
    assert dict(wt.bench.read_table("out").facts)["class"] == "the true one"
    code, _, err = bench(*words, data=data)
    assert code == 2
    assert "gold.tsv, row 2: this protocol explains the gold label, but there is none" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give the inputs to measure on: --data FILE, or --attributions FILE"),
        (["--data", "nowhere.csv"], "there is no file nowhere.csv"),
        (["--data", "texts.txt", "--attributions", "nowhere"], "there is no file nowhere"),
        (["--data", "texts.txt", "--metrics", "aocp"], "unknown metric 'aocp'; did you mean 'aopc'"),
        (["--data", "texts.txt", "--metrics", ","], "metrics=() is not allowed"),
        (["--data", "texts.txt", "--protocol", "attcatt"], "unknown preset of protocol 'attcatt'"),
        (["--data", "texts.txt", "--sample", "0"], "sample=0 is not allowed; it must be at least 1"),
        (["--data", "texts.txt", "--grid", "eraser"], "unknown grid 'eraser'; known: tenths"),
        (["--data", "texts.txt", "--fail-under", "aopc"], "metric=number, such as aopc=0.4"),
        (["--data", "texts.txt", "--fail-under", "aoopc=0.2"], "metric of --fail-under 'aoopc'; did you mean 'aopc'"),
        (["--data", "texts.txt", "--ablation", "depth", "--methods", "attcat"], "leave out --methods and -o"),
        (["--data", "texts.txt", "--train", "texts.txt"], "add --ablation"),
        (
            ["--data", "texts.txt", "--quick", "--full"],
            "--quick and --full each choose what is measured; give only one",
        ),
        (["--data", "texts.txt", "--quick", "--protocol", "attcat"], "--quick and --protocol each choose"),
        (["--data", "texts.txt", "--full", "--protocol", "recommended"], "--full and --protocol each choose"),
    ],
)
def test_a_wrong_word_does_not_wait_for_the_model(
    words: list[str], message: str, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data.parent)
    found, out, err = run(capsys, "bench", *words, "--model", "./not-there")
    assert (found, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_wrong_method_or_ablation_is_named(bench: Call) -> None:
    assert "did you mean 'attcat'" in bench("--methods", "atcat")[2]
    assert "unknown ablation 'dept'; did you mean 'depth'" in bench("--ablation", "dept")[2]
    code, _, err = bench("--ablation", "depth")
    assert (code, "references build" in err) == (2, True)


def test_auto_says_why_in_the_result_and_to_the_user(
    model: str, bench: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["explain", *TEXTS[:2], "--model", model, "--method", "auto", "--format", "jsonl"]
    code, out, err = run(capsys, *words)
    assert code == 0, err
    found = [Attribution.from_json(line) for line in out.splitlines()]
    assert len(found) == 2
    method, why = found[0].method, found[0].details["auto"]
    assert found[1].details["auto"] == why
    assert why.startswith(f"{method} has the highest normalised AOPC")
    assert "in a small benchmark on 2 texts" in why
    assert err == f"whichtoken: auto: {why}\n"
    expected = wt.explain(wt.load(model), TEXTS[:2], [method])
    assert [one.scores for one in found] == [result[method].scores for result in expected]
    again = Attribution.from_json(run(capsys, *words)[1].splitlines()[0])
    assert again.method == method
    assert "in a stored benchmark" in again.details["auto"]
    bench("--methods", "gae", "--metrics", "auc,normalised-aopc", "--out", "made")
    code, out, err = run(capsys, *words, "--benchmark", "made")
    assert code == 0, err
    assert Attribution.from_json(out.splitlines()[0]).method == "gae"
    assert err.endswith(", in made\n")
    named = Attribution.from_json(run(capsys, *words[:-3], "gae", "--format", "jsonl")[1].splitlines()[0])
    assert "auto" not in named.details


def test_a_quick_benchmark_ends_in_a_verdict_that_auto_follows(
    model: str, bench: Call, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "method_names", lambda: ["attcat", "cat", "gae", "random", "refined-noise"])
    code, out, err = bench("--quick", sample=4)
    assert (code, err) == (0, "whichtoken: explain --method auto will use this benchmark\n")
    assert "texts: 4 of 64" in out
    *_, last = out.splitlines()
    assert last.startswith("Use ")
    assert last.endswith("measure more texts, for example --sample 20.")
    method = last.split()[1]
    explain = ["explain", TEXTS[0], "--model", model, "--method", "auto"]
    code, _, err = run(capsys, *explain)
    assert code == 0
    assert f"auto: {method} has the highest AOPC, " in err
    assert "in a stored benchmark (4 of 64, " in err
    code, _, err = bench("--quick", sample=3)
    assert err == "whichtoken: explain --method auto keeps using a stored benchmark, which is larger\n"
    assert "(4 of 64, " in run(capsys, *explain)[2]
    assert bench("--quick", sample=5)[2] == "whichtoken: explain --method auto will use this benchmark\n"
    assert "(5 of 64, " in run(capsys, *explain)[2]
    assert bench("--quick", "--methods", "attcat,gae", sample=6)[2] == ""  # too few methods to choose from
    assert "(5 of 64, " in run(capsys, *explain)[2]


def test_a_quick_benchmark_takes_20_texts(bench: Call) -> None:
    code, out, err = bench("--quick", "--methods", "attcat", sample=None)
    assert code == 0, err
    assert "texts: 20 of 64" in out
    assert "AOPC" in out
    assert "log-odds" not in out


def test_bounds_are_left_to_full(bench: Call) -> None:
    code, _, err = bench(*ONE, "--out", "plain", sample=1)
    assert code == 0, err
    code, _, err = bench(*ONE, "--full", "--out", "full", sample=1)
    assert code == 0, err
    found = [{column.metric for column in wt.bench.read_table(name).columns} for name in ("plain", "full")]
    assert found[1] - found[0] == {"normalised-aopc"}
    assert found[0] >= {"aopc", "log-odds"}


def test_auto_refuses_a_benchmark_of_another_model(model: str, bench: Call, capsys: pytest.CaptureFixture[str]) -> None:
    bench("--methods", "gae", "--metrics", "auc,normalised-aopc", "--out", "made")
    other = model_of("bert", labels=2).float()
    other.save_pretrained("other")
    wordpiece().save_pretrained("other")
    words = ["explain", TEXTS[0], "--model", "./other", "--method", "auto", "--benchmark"]
    code, out, err = run(capsys, *words, "made")
    assert (code, out) == (2, "")
    assert f"made is a benchmark of {model}, not of this model" in err
    assert "there is no finished benchmark at" in run(capsys, *words, "nowhere")[2]
