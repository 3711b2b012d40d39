"""What the public functions accept as a subject, as inputs and as methods: whatever has only one meaning."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import transformers
from PIL import Image
from tests.heads.corpus import sentence
from tests.tiny import CORPUS, KINDS, SIZES, image_model_of, model_of, question_subject, wordpiece
from transformers import BertConfig, GPT2Config, GPT2LMHeadModel, T5Config, ViTImageProcessor, pipeline

import whichtoken as wt
from whichtoken.errors import BadInput, BadSetting, UnknownName, UnsupportedModel, UsageError

TEXT = "It is a slow film."
SubjectOf = Callable[..., wt.Subject]
PARSED = [
    sentence("The film was slow", ("The", 2, "det"), ("film", 4, "nsubj"), ("was", 4, "cop"), ("slow", 0, "root"))
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model_of("bert").float().save_pretrained(tmp_path / "model")
    wordpiece().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def open_all(folder: Path) -> dict[str, Any]:
    loaded = wt.load(folder)
    return {
        "subject": loaded,
        "text": str(folder),
        "path": folder,
        "pair": (loaded.model, loaded.tokenizer),
        "list": [loaded.model, loaded.tokenizer],
        "pipeline": pipeline("text-classification", model=loaded.model, tokenizer=loaded.tokenizer),
    }


def test_all_forms_of_a_subject_give_the_same_scores(folder: Path) -> None:
    found = {name: wt.explain(given, TEXT, methods="attcat")[0]["attcat"] for name, given in open_all(folder).items()}
    assert len({record.scores for record in found.values()}) == 1
    assert len({record.revision for record in found.values()}) == 1


@pytest.mark.parametrize("form", ["path", "pair", "pipeline"])
def test_every_function_that_takes_a_subject_takes_all_forms(form: str, folder: Path) -> None:
    subject, given = wt.load(folder), open_all(folder)[form]
    (result,) = list(wt.explain_each(given, [TEXT]))
    curves = [wt.degrade(x, result.values())[0] for x in (subject, given)]
    assert curves[0].probability == curves[1].probability
    quick = wt.bench.protocol(metrics=("aopc",), min_tokens=1, orders=("morf",))
    tables = [wt.bench.run(x, CORPUS[:2], "attcat", protocol=quick) for x in (subject, given)]
    assert tables[0].lines[0].cells["aopc delete morf tenths"] == tables[1].lines[0].cells["aopc delete morf tenths"]
    library = wt.references.build(given, CORPUS, rule="random", min_tokens=1)
    assert subject.with_references(library).references is library
    mask = wt.heads.build(given, PARSED)
    assert subject.with_heads(mask).heads is mask
    changed = [wt.metrics.randomised(x, 1) for x in (subject, given)]
    assert changed[0].fingerprint() == changed[1].fingerprint()
    checks = [wt.metrics.sanity_check(x, CORPUS[:2], "attcat,gae", depths=[0]) for x in (subject, given)]
    assert checks[0] == checks[1]
    assert [check.method for check in checks[0]] == ["attcat", "gae"]


def test_best_method_takes_all_forms(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("whichtoken.bench.auto.SMALL", 1)
    monkeypatch.setattr("whichtoken.bench._run.default_methods", lambda *_, **__: ["attcat", "random"])
    assert wt.bench.best_method(open_all(folder)["pair"], CORPUS[1:2]).method == "attcat"


def test_libraries_are_checked_against_any_form(folder: Path, tmp_path: Path) -> None:
    given = open_all(folder)["pair"]
    wt.references.build(given, CORPUS, rule="random", min_tokens=1, out=tmp_path / "library")
    assert wt.references.load(tmp_path / "library", given).n_layers == 3
    wt.heads.build(given, PARSED, out=tmp_path / "heads.json")
    assert wt.heads.load(tmp_path / "heads.json", given).fingerprint


def test_a_pipeline_is_left_as_it_was(folder: Path) -> None:
    pipe = open_all(folder)["pipeline"]
    before, settings = pipe(TEXT), copy.deepcopy(pipe.model.config.to_dict())
    wt.explain(pipe, [TEXT], ["attcat", "full-lrp"])
    assert pipe(TEXT) == before
    assert pipe.model.config.to_dict() == settings
    assert not any(module._forward_hooks for module in pipe.model.modules())


def test_a_model_that_answers_questions() -> None:
    subject = question_subject()
    given = subject.model, subject.tokenizer
    question, context = "is it slow?", "the film is slow"
    (found,) = wt.explain(given, question=question, context=context)
    (as_pair,) = wt.explain(given, (question, context))  # here a tuple of two texts can only be a pair
    assert found["gae"].scores == as_pair["gae"].scores
    with pytest.raises(BadInput, match=r"input 0 is one text; .* give \(question, context\)"):
        wt.explain(given, question)


def test_a_pipeline_of_an_image_classifier(tmp_path: Path) -> None:
    processor = ViTImageProcessor(size={"height": 12, "width": 12})
    pipe = pipeline("image-classification", model=image_model_of("vit").float(), image_processor=processor)
    picture = Image.effect_noise((20, 15), 50).convert("RGB")
    picture.save(tmp_path / "a.png")
    listed = wt.explain(pipe, images=[picture], methods="gae")
    assert len(listed) == 1
    for one in (picture, tmp_path / "a.png", str(tmp_path / "a.png")):
        assert wt.explain(pipe, images=one, methods="gae")[0]["gae"].scores == listed[0]["gae"].scores
        assert wt.explain(pipe, [one], methods="gae")[0]["gae"].scores == listed[0]["gae"].scores


def test_one_array_or_tensor_is_one_image() -> None:
    import numpy as np

    model = image_model_of("vit")
    tensor = torch.randn(3, 12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (alone,), (listed,) = (wt.explain((model, None), images=x, methods="gae") for x in (tensor, [tensor]))
    assert alone["gae"].scores == listed["gae"].scores
    array = np.random.default_rng(1).integers(0, 255, (20, 20, 3), np.uint8)
    processor = ViTImageProcessor(size={"height": 12, "width": 12})
    (alone,), (listed,) = (wt.explain((model, processor), images=x, methods="gae") for x in (array, [array]))
    assert alone["gae"].scores == listed["gae"].scores


def test_a_text_generation_pipeline_works() -> None:
    config = GPT2Config(vocab_size=len(KINDS["gpt2"].tokenizer()), **KINDS["gpt2"].config)
    pipe = pipeline("text-generation", model=GPT2LMHeadModel(config).eval(), tokenizer=KINDS["gpt2"].tokenizer())
    (result,) = wt.explain(pipe, prompt=TEXT, generate=2, methods="random")
    assert result["random"].texts[0] == TEXT


def test_an_embedding_pipeline_is_named() -> None:
    pipe = pipeline("feature-extraction", model=model_of("bert").float().bert, tokenizer=wordpiece())
    with pytest.raises(UnsupportedModel, match=r"a feature-extraction pipeline: .*an embedding model \(BertModel\)"):
        wt.explain(pipe, TEXT)


def test_a_zero_shot_pipeline_is_not_misread() -> None:
    """Its model classifies pairs of a text and a hypothesis, so a text alone is not what it was trained on."""
    model = model_of("bert").float()
    model.config.label2id = {"contradiction": 0, "entailment": 1, "neutral": 2}
    pipe = pipeline("zero-shot-classification", model=model, tokenizer=wordpiece())
    with pytest.raises(UnsupportedModel, match=r"zero-shot-classification .* pairs .*\(pipe\.model, pipe\.tokenizer\)"):
        wt.explain(pipe, TEXT)


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        (lambda: model_of("bert"), r"\(model, tokenizer\)"),
        (lambda: (wordpiece(), model_of("bert")), r"\(model, tokenizer\), in this order"),
        (wordpiece, r"\(model, tokenizer\)"),
        (lambda: None, r"a Subject: wt\.load"),
        (lambda: 7, r"a pipeline, a pair \(model, tokenizer\), a folder or a hub name"),
        (lambda: (1, 2, 3), r"a Subject: wt\.load"),
    ],
)
def test_what_cannot_be_a_subject_is_refused_with_the_fix(given: Any, fix: str) -> None:
    with pytest.raises(BadSetting, match=fix) as caught:
        wt.explain(given(), [TEXT])
    assert len(str(caught.value)) < 300


def test_a_model_in_training_mode_is_refused() -> None:
    with pytest.raises(UsageError, match=r"training mode .* model\.eval\(\)"):
        wt.explain((model_of("bert").train(), wordpiece()), TEXT)


# Inputs and methods.


def test_one_text_is_a_list_of_one(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    assert len(wt.explain(subject, TEXT, methods="attcat")) == 1
    assert (
        wt.explain(subject, TEXT, methods="attcat")[0]["attcat"].scores
        == wt.explain(subject, [TEXT], methods="attcat")[0]["attcat"].scores
    )
    assert len(list(wt.explain_each(subject, TEXT, methods="attcat"))) == 1


def test_a_tuple_of_two_texts_is_not_guessed(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    with pytest.raises(BadInput, match=r"one pair, \[\('It is a slow film\.', 'a'\)\], or two texts, \['It is a slow"):
        wt.explain(subject, (TEXT, "a"))
    assert len(wt.explain(subject, [TEXT, "a"])) == 2
    assert len(wt.explain(subject, [(TEXT, "a")])) == 1
    assert len(wt.explain(subject, (TEXT, "a", "man"))) == 3
    assert len(wt.explain(subject, (TEXT,))) == 1


@pytest.mark.parametrize("methods", ["gae,attcat@repo", " gae , attcat@repo,", ["gae", "attcat@repo"]])
def test_methods_in_one_string(methods: Any, subject_of: SubjectOf) -> None:
    assert list(wt.explain(subject_of("bert"), [TEXT], methods)[0]) == ["gae", "attcat@repo"]


def test_one_method_is_a_list_of_one(subject_of: SubjectOf) -> None:
    method = wt.method("attcat", preset="repo")
    assert list(wt.explain(subject_of("bert"), [TEXT], method)[0]) == [method.label]


@pytest.mark.parametrize(
    ("methods", "error", "message"),
    [
        ("attcat,ga", UnknownName, "unknown method 'ga'"),
        ("", BadSetting, "at least one method"),
        (" , ", BadSetting, "at least one method"),
        ("attcat(a=1,b=2),gae", UnknownName, r"unknown method 'attcat\(a=1,b=2\)'"),
        (["attcat,gae"], UnknownName, "unknown method 'attcat,gae'"),
    ],
)
def test_wrong_names_are_refused_one_by_one(methods: Any, error: Any, message: str, subject_of: SubjectOf) -> None:
    with pytest.raises(error, match=message):
        wt.explain(subject_of("bert"), [TEXT], methods)


# What a model is, before its weights are read.


def bodies() -> dict[str, tuple[Any, str]]:
    bert = BertConfig(vocab_size=len(wordpiece()), **SIZES)
    gpt2 = GPT2Config(vocab_size=len(wordpiece()), n_embd=12, n_layer=1, n_head=2)
    t5 = T5Config(vocab_size=50, d_model=8, d_ff=8, num_layers=1, num_heads=1, d_kv=8)
    return {
        "BertModel": (bert, r"an embedding model \(BertModel\) without a classification head"),
        "BertForMaskedLM": (bert, r"a masked language model \(BertForMaskedLM\)"),
        "BertForPreTraining": (bert, r"a model with the heads of its pre-training \(BertForPreTraining\)"),
        "BertForMultipleChoice": (bert, r"a multiple-choice model \(BertForMultipleChoice\)"),
        "GPT2Model": (gpt2, r"an embedding model \(GPT2Model\)"),
        "T5ForConditionalGeneration": (t5, r"an encoder-decoder \(T5ForConditionalGeneration\)"),
        "T5EncoderModel": (t5, r"an embedding model \(T5EncoderModel\)"),
    }


@pytest.mark.parametrize("name", bodies())
def test_a_model_of_another_kind_is_named(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config, kind = bodies()[name]
    model = getattr(transformers, name)(config).eval()
    model.save_pretrained(tmp_path)
    wordpiece().save_pretrained(tmp_path)
    capfd.readouterr()
    expected = rf"{kind}.*; .*ForSequenceClassification, .*fine-tune"
    with pytest.raises(UnsupportedModel, match=expected):
        wt.load(tmp_path)
    with pytest.raises(UnsupportedModel, match=expected):
        wt.Subject(model, wordpiece())
    assert capfd.readouterr() == ("", "")


def test_a_class_of_the_users_own_is_what_it_inherits_from() -> None:
    class Own(transformers.BertForSequenceClassification):  # type: ignore[misc]
        pass

    class OwnModel(transformers.BertForQuestionAnswering):  # type: ignore[misc]
        pass

    for cls, task in ((Own, "AutoModelForSequenceClassification"), (OwnModel, "AutoModelForQuestionAnswering")):
        config = BertConfig(vocab_size=len(wordpiece()), **SIZES)
        assert wt.Subject(cls(config).eval(), wordpiece()).head.auto_class == task


def messages(subject: wt.Subject, tmp_path: Path) -> Sequence[str]:
    with pytest.raises(UsageError) as for_image:
        wt.explain(subject, images=[tmp_path / "a.png"])
    with pytest.raises(UsageError) as for_question:
        wt.explain(subject, question="is it slow?", context="it is")
    return str(for_image.value), str(for_question.value)


def test_a_regression_model_does_not_classify(tmp_path: Path) -> None:
    model = model_of("bert", labels=1, problem_type="regression")
    for message in messages(wt.Subject(model, wordpiece()), tmp_path):
        assert "predicts a value for each text; give texts" in message
    many = model_of("bert", labels=3, problem_type="regression")
    for message in messages(wt.Subject(many, wordpiece()), tmp_path):
        assert "predicts 3 values for each text; give texts" in message
    for message in messages(wt.Subject(model_of("bert"), wordpiece()), tmp_path):
        assert "classifies texts; give texts" in message


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda subject: wt.heads.build(subject, cast("Any", 7)), "sentences is an int"),
        (lambda subject: wt.heads.read_conllu(7), "an int is not a path"),  # type: ignore[arg-type]
        (lambda subject: wt.plot.to_html(cast("Any", [7])), "an int cannot be shown"),
        (lambda subject: wt.references.build(subject, 7), "texts is an int"),
    ],
)
def test_articles(call: Any, message: str, subject_of: SubjectOf) -> None:
    with pytest.raises(wt.WhichTokenError, match=message):
        call(subject_of("bert"))
