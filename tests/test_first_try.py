"""What new users try first, and what they get: a result, or one line that says what to do."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.tiny import image_model_of, model_of, wordpiece

import whichtoken as wt
from whichtoken.bench.stats import paired_p
from whichtoken.cli.run import main
from whichtoken.errors import BadInput, BadSetting, UnsupportedModel, UsageError
from whichtoken.targets import clean_gold

SubjectOf = Callable[..., wt.Subject]
TEXTS = ["It is very slow.", "A rare, charming film."]


def test_wrappers_of_torch_are_looked_into(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    expected = wt.explain(subject, TEXTS, ["attcat", "full-lrp"])
    compiled: Any = torch.compile(subject.model, backend="eager")
    for wrapped in (compiled, torch.nn.DataParallel(subject.model)):
        found = wt.explain((wrapped, subject.tokenizer), TEXTS, ["attcat", "full-lrp"])
        assert [r["full-lrp"].scores for r in found] == [r["full-lrp"].scores for r in expected]


def test_a_compiled_module_inside_a_model_is_refused() -> None:
    model = model_of("bert", labels=2)
    layers = model.bert.encoder.layer
    original = layers[0]
    layers[0] = torch.compile(original, backend="eager")
    try:
        with pytest.raises(UnsupportedModel, match=r"layer\.0 was replaced by torch\.compile"):
            wt.Subject(model, wordpiece())
    finally:
        layers[0] = original


def test_the_wrong_order_of_model_and_tokenizer_is_named(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    with pytest.raises(BadSetting, match=r"wt\.Subject\(model, processor\)"):
        wt.Subject(subject.tokenizer, subject.model)
    with pytest.raises(BadSetting, match=r"wt\.Subject\(model, tokenizer\)"):
        wt.load(subject.model)


@pytest.mark.parametrize("form", [
    pd.DataFrame({"text": TEXTS, "stars": [1, 4]}),
    pd.Series(TEXTS),
    np.array(TEXTS),
    [{"text": text} for text in TEXTS],
])  # fmt: skip
def test_forms_of_texts(subject_of: SubjectOf, form: Any) -> None:
    found = wt.explain(subject_of("bert"), form, "attcat")
    assert [result["attcat"].texts[0] for result in found] == TEXTS


def test_a_frame_can_be_measured(subject_of: SubjectOf) -> None:
    how = wt.bench.protocol("quick", min_tokens=1)
    table = wt.bench.run(subject_of("bert"), pd.DataFrame({"text": TEXTS}), ["attcat"], protocol=how)
    assert table.title.endswith("how faithful is 1 method?")
    assert dict(table.facts)["texts"].startswith("2")


def test_one_row_is_one_input(subject_of: SubjectOf) -> None:
    (found,) = wt.explain(subject_of("bert"), {"text": TEXTS[0], "text_pair": TEXTS[1]}, "attcat")
    assert found["attcat"].texts == tuple(TEXTS)


@pytest.mark.parametrize(("inputs", "message"), [
    (3, r"inputs is an int; expected a text, or a list of texts"),
    (np.array("slow"), "an array of 0 dimensions"),
    ([{"review": "slow"}], r"^input 0: no column has a usual name for texts; .* call it 'text'"),
])  # fmt: skip
def test_other_forms_are_refused_with_a_way_out(subject_of: SubjectOf, inputs: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        wt.explain(subject_of("bert"), inputs, "attcat")


@pytest.mark.parametrize(("methods", "message"), [
    ({"attcat": {"nope": 1}}, r"whichtoken\.method\(name"),
    ("auto", r"bench\.best_method"),
])  # fmt: skip
def test_other_forms_of_methods_are_refused(subject_of: SubjectOf, methods: Any, message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        wt.explain(subject_of("bert"), TEXTS, methods)


def test_what_an_image_processor_returns_is_explained() -> None:
    subject = wt.Subject(image_model_of("vit"), None, name="tiny")
    batch = torch.rand(2, 3, 12, 12, dtype=torch.float64)
    expected = [wt.explain(subject, images=[image], methods="gae")[0]["gae"].scores for image in batch]
    for form in (batch, {"pixel_values": batch}):
        found = wt.explain(subject, images=form, methods="gae")
        assert [result["gae"].scores for result in found] == [pytest.approx(scores) for scores in expected]


def test_saved_results_keep_the_names_of_their_methods(subject_of: SubjectOf, tmp_path: Path) -> None:
    results = wt.explain(subject_of("bert"), TEXTS, ["attcat@repo", "attcat", wt.method("grad-sam", axis="key")])
    results.to_jsonl(tmp_path / "x.jsonl")
    again = wt.Results.read(tmp_path / "x.jsonl")
    assert [list(result) for result in again] == [["attcat@repo", "attcat", "grad-sam(axis=key)"]] * 2
    assert again == results


def test_no_results_can_be_saved_and_read(tmp_path: Path) -> None:
    for ending in ("json", "jsonl"):
        wt.Results().to_json(tmp_path / f"x.{ending}")
        assert len(wt.Results.read(tmp_path / f"x.{ending}")) == 0


def test_degrade_takes_whatever_explain_returns(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    results = wt.explain(subject, TEXTS, ["attcat", "random"])
    expected = wt.degrade(subject, [record for result in results for record in result.values()])
    assert wt.degrade(subject, results) == expected
    for few, same in ((results[0], expected[:2]), (results[0]["attcat"], expected[:1])):
        curves = wt.degrade(subject, few)  # type: ignore[arg-type]
        assert [curve.method for curve in curves] == [curve.method for curve in same]
        for curve, other in zip(curves, same, strict=True):  # in other batches, so rounding may differ
            assert curve.probability == pytest.approx(other.probability, abs=1e-12)
    with pytest.raises(UsageError, match="expected attributions"):
        wt.degrade(subject, "attcat")  # type: ignore[arg-type]


def test_things_have_short_names(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    record = wt.explain(subject, TEXTS[0], "attcat@repo")[0]["attcat@repo"]
    assert repr(subject) == "<Subject: tiny bert, BertForSequenceClassification; contradiction, entailment, neutral>"
    assert repr(record).startswith("<Attribution: attcat@repo, ")
    assert repr(record).endswith("%, 8 tokens>")


@pytest.mark.parametrize("draw", [wt.plot.curves, wt.plot.to_report, wt.plot.agreement, wt.plot.layers])
def test_pictures_of_something_else_are_refused(draw: Callable[[Any], Any]) -> None:
    with pytest.raises(UsageError, match=r"benchmark table|no agreement|one attribution"):
        draw({})


def call(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "whichtoken", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_wrong_option_is_one_line() -> None:
    done = call("explain", "slow", "--bogus")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("whichtoken: No such option: --bogus")
    assert done.stderr.endswith("see whichtoken explain --help\n")
    assert done.stderr.count("\n") == 1
    assert call("--help").returncode == 0
    assert call("nonsense").returncode == 2


@pytest.mark.parametrize(("words", "message"), [
    (["slow", "--out", "-", "--format", "csv"], "omit --out to write to standard output"),
    (["slow", "--difference", "--format", "csv"], "--difference is for pictures"),
    (["slow", "--method", "all,attcat"], "all alone, or names of methods"),
    (["slow", "--against", "positive"], "--against needs --target"),
    (["--file", "."], "is a folder; give a file"),
])  # fmt: skip
def test_wrong_calls_are_refused_before_the_model_is_loaded(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whichtoken.cli.explain.open_subject", lambda *_: pytest.fail("the model was loaded"))
    with pytest.raises(SystemExit) as ending:
        main(["explain", *words])
    assert ending.value.code == 2
    assert message in capsys.readouterr().err


def test_usual_columns_are_found_in_any_case(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("ID, Text,Label\na,slow film,1.0\nb,rare plot,\n", encoding="utf-8")
    examples = list(wt.data.read_examples(tmp_path / "x.csv"))
    assert [(example.id, example.texts, example.label) for example in examples] == [
        ("a", ("slow film",), "1.0"),
        ("b", ("rare plot",), ""),
    ]
    assert [clean_gold(example.label, ["no", "yes"]) for example in examples] == [1, None]
    assert clean_gold(float("nan"), ["no", "yes"]) is None  # as pandas writes it


def test_a_terminal_says_which_row_it_shows(
    subject_of: SubjectOf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.csv").write_text("id,text,label\na7,slow film,0\n", encoding="utf-8")
    wt.explain(subject_of("bert"), wt.data.read_examples(tmp_path / "x.csv"), "attcat").show()
    assert "row 2, id a7, gold contradiction" in capsys.readouterr().out


def test_truncation_is_in_the_rows(subject_of: SubjectOf) -> None:
    results = wt.explain(replace(subject_of("bert"), max_tokens=6), "a very slow film without any music", "attcat")
    assert results.to_frame()["n_cut"].tolist()[0] == results[0]["attcat"].n_cut > 0


def test_few_inputs_are_tested_exactly() -> None:
    assert paired_p([2.0] * 10, [1.0] * 10) == 2 / 2**10
    assert paired_p([1.0, 2.0, 3.0], [0.0, 0.0, 0.0]) == 2 / 2**3
    assert paired_p([1.0, -1.0], [0.0, 0.0]) == 1.0


def test_a_verdict_advises_only_texts_that_are_long_enough(subject_of: SubjectOf) -> None:
    texts = ["slow", "rare", "film", *(f"{text} and the music was touching" for text in TEXTS)]
    how = wt.bench.protocol("quick", min_tokens=6)
    assert "measure more texts." in wt.bench.run(subject_of("bert"), texts, "attcat,gae", protocol=how).verdict
    fewer = wt.bench.protocol("quick", min_tokens=6, sample=1)
    assert "--sample 2." in wt.bench.run(subject_of("bert"), texts, "attcat,gae", protocol=fewer).verdict
