"""The command `bench` for questions: what it prints, keeps and refuses."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_bench import check_same, leave_pictures_out, stamps
from tests.cli.test_cli import run
from tests.tiny import model_of, question_subject, with_heads, wordpiece

import whichtoken as wt

CONTEXTS = (
    "the film was slow but the music was touching",
    "nobody did sleep it was the end of a man",
    "a rare plot it is the actors were slow",
    f"{' '.join(['film'] * 38)} won",  # longer than the model reads
)
ASKED = (
    (0, "who won", "touching"),
    (0, "is it slow", "the music"),
    (0, "the end", None),
    (1, "who", "a man"),
    (1, "is", "sleep"),
    (2, "who", "actors"),
    (2, "is", None),
    (3, "who did it", "won"),
)
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("qa-model")
    subject = question_subject("bert")
    subject.model.float().save_pretrained(folder)
    subject.tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("qa-classifier")
    model_of("bert").float().save_pretrained(folder)
    wordpiece().save_pretrained(folder)
    return str(folder)


def squad() -> dict[str, Any]:
    paragraphs = []
    for number, asked, answer in ASKED:
        context = CONTEXTS[number]
        answers = [] if answer is None else [{"text": answer, "answer_start": context.index(answer)}]
        paragraphs.append({"context": context, "qas": [{"id": asked, "question": asked, "answers": answers}]})
    return {"version": "v2.0", "data": [{"title": "Film", "paragraphs": paragraphs}]}


@pytest.fixture
def bench(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(tmp_path)
    Path("squad.json").write_text(json.dumps(squad()), encoding="utf-8")

    def call(*words: str, start: Sequence[str] = ("--task", "qa", "--data", "squad.json", "--model", model)) -> Any:
        return run(capsys, "bench", *start, *words)

    return call


def test_it_prints_and_keeps_what_the_library_counts(model: str, bench: Call) -> None:
    code, out, err = bench("--methods", "attcat,gae", "--k", "4", "--out", "out")
    assert code == 0, err
    table = wt.bench.run(wt.load(model), "squad.json", ["attcat", "gae", "random"], protocol=wt.bench.protocol(k=4))
    check_same(wt.bench.read_table("out"), table)
    assert {line.method for line in table.lines if line.control} == {"random"}
    for line in table.lines:
        shown = next(row for row in out.splitlines() if row.strip().startswith(line.method))
        assert f"{line.cells['precision@4'].mean:.3f}" in shown
        assert f"{line.cells['share@4'].mean:.3f}" in shown
    facts = dict(table.facts)
    assert facts["questions"] == "6 of 6 that have an answer, seed 0; 2 unanswerable ones are left out"
    assert facts["cut off"].startswith("1 answer, each")
    assert "report.html, results.parquet, spec.json, table.json, table.md" in err
    assert bench("--methods", "attcat", "--no-controls", "--sample", "1", "--out", "alone")[0] == 0
    assert [line.method for line in wt.bench.read_table("alone").lines] == ["attcat"]


def test_without_methods_it_runs_the_usual_ones(model: str, bench: Call) -> None:
    code, _, err = bench("--sample", "1", "--out", "out")
    assert code == 0, err
    found = {line.method for line in wt.bench.read_table("out").lines}
    assert found == {
        line.method for line in wt.bench.run(wt.load(model), "squad.json", protocol=wt.bench.protocol(sample=1)).lines
    }
    assert "refined-noise" not in found


def test_references_heads_settings_and_controls_that_are_named(model: str, bench: Call) -> None:
    subject = with_heads(wt.load(model))
    assert subject.heads is not None
    wt.heads.save(subject.heads, "heads.json")
    pairs = [("is it slow", CONTEXTS[1]), ("who won", CONTEXTS[2])]
    wt.references.build(subject, pairs, min_tokens=1, gamma=1.0, out="references")
    words = ["--methods", "contrast-cat,mask-lrp,refined-noise", "-o", "steps=2", "--sample", "2"]
    code, _, err = bench(*words, "--references", "references", "--heads", "heads.json", "--out", "out")
    assert code == 0, err
    found = {line.method: line for line in wt.bench.read_table("out").lines}
    assert {name.split("(")[0] for name in found} == {"contrast-cat", "mask-lrp", "refined-noise", "random"}
    assert any("steps=2" in name for name in found)
    assert all(line.cells["precision@20"].n == 2 for line in found.values())
    code, _, err = bench("--methods", "mask-lrp", "--sample", "1")
    assert code == 2
    assert "has no head mask" in err


def test_more_questions_can_be_added_to_a_benchmark(bench: Call) -> None:
    words = ["--methods", "attcat,raw-attention", "--k", "3", "--seed", "2", "--no-controls", "--out", "first"]
    assert bench(*words, "--sample", "4")[0] == 0
    spec = json.loads(Path("first", "spec.json").read_text("utf-8"))
    assert (spec["call"]["task"], spec["call"]["changes"], spec["sample"]) == ("qa", {"k": 3, "seed": 2}, 4)
    assert list(stamps(Path("first"))) == ["000000-000003.json"]
    assert bench(*words, "--sample", "6")[0] == 0
    assert wt.bench.read_table("first").lines[0].cells["precision@3"].n == 6
    assert sorted(stamps(Path("first"))) == ["000000-000003.json", "000000-000005.json"]


def test_a_gate_fails_what_is_worse(bench: Call) -> None:
    words = ["--methods", "attcat,gae", "--k", "4", "--sample", "3"]
    code, out, err = bench(*words, "--fail-under", "precision@4=4.5")
    assert code == 1
    assert out
    assert sorted(line.split(":")[1].strip() for line in err.splitlines()) == ["attcat", "gae"]
    assert all("precision@4 is" in line and line.endswith("below 4.5") for line in err.splitlines())
    assert bench(*words, "--fail-under", "precision@4=0", "--fail-under", "share@4=0")[::2] == (0, "")
    for wrong, known in (("precision@20=1", ""), ("aopc=0.1", "known: ")):  # before the model is loaded, and after it
        code, out, err = bench(*words, "--fail-under", wrong)
        assert (code, out) == (2, "")
        assert f"unknown metric of --fail-under '{wrong.partition('=')[0]}'; " in err
        assert f"{known}precision@4, share@4, " in err
        assert err.endswith("seconds, evaluations\n")


def test_a_model_of_the_other_task_is_refused(model: str, classifier: str, bench: Call) -> None:
    code, out, err = bench(start=("--task", "qa", "--data", "squad.json", "--model", classifier))
    assert (code, out) == (2, "")
    assert f"{classifier} classifies texts, which is --task texts, not --task qa; leave out --task" in err
    Path("texts.txt").write_text("it is slow\n", encoding="utf-8")
    words = ("--data", "texts.txt", "--model", model, "--methods", "attcat", "--min-tokens", "1")
    code, out, err = bench(start=words)
    assert (code, out) == (2, "")
    assert f"texts.txt, row 1 is one text; {model} answers questions: give (question, context)" in err
    assert len(err.splitlines()) == 1
    code, out, err = bench("--task", "texts", start=words)
    assert (code, out) == (2, "")
    assert f"{model} answers questions, which is --task qa, not --task texts; leave out --task" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--perturbation", "mask"], "--perturbation: no metric here measures curves"),
        (["--order", "lerf"], "--order: no metric here measures curves"),
        (["--grid", "tenths"], "--grid: no metric here measures curves"),
        (["--level", "word"], "--level: no metric here measures curves"),
        (["--perturbation", "mask", "--order", "morf"], "--perturbation, --order: no metric here measures curves"),
        (["--metrics", "aopc", "--perturbation", "black"], "unknown perturbation 'black'; known: delete, mask, pad"),
        (["--metrics", "aopc", "--level", "pixel"], "level='pixel' is not allowed; it must be one of token, word"),
        (["--metrics", "aopc", "--k", "3"], "--k is for the metric precision"),
        (["--metrics", "kendall"], "another metric, such as aopc: it compares classes, and questions have none"),
        (["--ablation", "depth"], "whichtoken references build"),
        (["--attributions", "squad.json"], "squad.json: cannot tell what kind of file it is"),
        (["--train", "squad.json", "--ablation", "gamma"], "squad.json: cannot tell what kind of file it is"),
        (["--label", "gold"], "--label: squad.json has no columns"),
        (["--column", "text", "--label", "gold"], "--column, --label: squad.json has no columns"),
        (["--k", "0"], "k=0 is not allowed; it must be at least 1"),
        (["--sample", "0"], "sample=0 is not allowed"),
        (["--data", "nowhere.json"], "there is no file nowhere.json"),
        (["--data", "odd.json"], "odd.json is not the JSON of questions and contexts"),
        (["--methods", "atcat"], "did you mean 'attcat'"),
        (["--task", "pictures"], "which is --task qa, not --task pictures"),
        (["--task", "images"], "which is --task qa, not --task images"),
        (["--task", "texts", "--k", "3"], "which is --task qa, not --task texts"),
    ],
)
def test_wrong_words_are_refused(words: list[str], message: str, bench: Call) -> None:
    Path("odd.json").write_text("what is this", encoding="utf-8")
    code, out, err = bench(*words, "--out", "out")
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert not Path("out").exists()


def test_without_data_there_is_nothing_to_ask(bench: Call) -> None:
    code, _, err = bench(start=("--task", "qa"))
    assert code == 2
    assert "give the inputs to measure on: --data FILE" in err


def test_answers_are_counted_for_questions_only(classifier: str, bench: Call) -> None:
    Path("texts.txt").write_text("it is slow\n", encoding="utf-8")
    code, out, err = bench("--k", "3", start=("--data", "texts.txt", "--model", classifier, "--min-tokens", "1"))
    assert (code, out) == (2, "")
    assert "--k is for the metric precision, which is not measured here" in err


def test_curves_are_measured_where_a_metric_reads_them(
    model: str, bench: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [
        "--metrics",
        "aopc,log-odds,precision",
        "--perturbation",
        "mask",
        "--order",
        "lerf",
        "--grid",
        "twentieths",
    ]
    words += ["--level", "word", "--min-tokens", "5", "--methods", "attcat,gae", "--no-controls", "--k", "4"]
    with monkeypatch.context() as patch:
        leave_pictures_out(patch)  # once is enough: below
        code, _, err = bench(*words, "--out", "out")
    assert code == 0, err
    how = wt.bench.protocol(
        metrics=("aopc", "log-odds", "precision"),
        perturbations=("mask",),
        orders=("lerf",),
        grids=("twentieths",),
        level="word",
        min_tokens=5,
        k=4,
    )
    table = wt.bench.run(wt.load(model), "squad.json", ["attcat", "gae"], protocol=how)
    check_same(wt.bench.read_table("out"), table)
    names = [column.name for column in table.columns]
    assert names[:3] == ["aopc mask lerf twentieths", "log-odds mask lerf twentieths", "precision@4"]
    assert bench("--protocol", "attcat", "--methods", "attcat", "--no-controls", "--out", "as-attcat")[0] == 0
    why = "Left out, because questions have no classes to compare: positions-kendall."
    assert why in wt.bench.read_table("as-attcat").notes
    assert Path("as-attcat", "curves.png").exists()
    assert "absolute-aopc pad morf ninths" in {column.name for column in wt.bench.read_table("as-attcat").columns}


def test_the_task_is_that_of_the_model_unless_it_is_checked(model: str, bench: Call) -> None:
    words = ["--methods", "attcat", "--no-controls", "--sample", "2"]
    assert bench(*words, "--out", "checked")[0] == 0
    assert bench(*words, "--out", "not", start=("--data", "squad.json", "--model", model))[0] == 0
    check_same(wt.bench.read_table("not"), wt.bench.read_table("checked"))
    calls = [json.loads(Path(name, "spec.json").read_text("utf-8"))["call"] for name in ("not", "checked")]
    assert calls[1] == {**calls[0], "task": "qa"}
