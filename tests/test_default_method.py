"""What `explain` uses when no method is named: one rule for Python and the command line."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.tiny import language_subject

import whichtoken as wt
from whichtoken.cli.run import main
from whichtoken.core.registry import method
from whichtoken.tasks import Task, task_for
from whichtoken.tasks.answer import QuestionAnswering
from whichtoken.tasks.classify import Classification
from whichtoken.tasks.generate import TextGeneration
from whichtoken.tasks.image import ImageClassification
from whichtoken.tasks.task import FEW
from whichtoken.tasks.tokens import TokenClassification

SubjectOf = Callable[..., wt.Subject]
TEXT = "It is very slow."


@pytest.mark.parametrize(
    "task", [Classification, QuestionAnswering, TokenClassification, ImageClassification, TextGeneration]
)
def test_no_default_propagates_relevance_and_the_quick_one_needs_one_pass(task: type[Task]) -> None:
    assert not method(task.default_method).needs.relevance  # relevance propagation carries a patent note
    assert not method(task.quick_method).needs.relevance
    assert not method(task.quick_method).needs.asks


def test_the_number_of_inputs_chooses_the_default(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    assert list(wt.explain(subject, [TEXT] * 2)[0]) == ["posterior"]
    assert list(wt.explain(subject, [TEXT] * (FEW + 1))[0]) == ["att-x-att-grads"]
    unknown = iter([TEXT])
    assert list(next(wt.explain_each(subject, unknown))) == ["att-x-att-grads"]


def test_python_and_the_command_line_use_the_same_default(
    subject_of: SubjectOf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subject = subject_of("bert")
    expected = [task_for(subject).default_method]
    assert list(wt.explain(subject, TEXT)[0]) == expected
    assert list(next(iter(wt.explain_each(subject, [TEXT])))) == expected
    subject.model.save_pretrained(tmp_path / "model")
    subject.tokenizer.save_pretrained(tmp_path / "model")
    with pytest.raises(SystemExit) as ending:
        main(["explain", TEXT, "--model", str(tmp_path / "model"), "--out", str(tmp_path / "found.jsonl")])
    assert not ending.value.code, capsys.readouterr().err
    found = [wt.Attribution.from_json(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert [one.method for one in found] == expected


def test_targets_count_like_inputs(subject_of: SubjectOf, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Forty texts are few, but not forty texts for each of three labels."""
    subject, texts = subject_of("bert"), [TEXT] * 40
    assert list(wt.explain(subject, texts[:1], targets="all")[0]) == ["posterior"]
    assert list(next(wt.explain_each(subject, texts, targets="all"))) == ["att-x-att-grads"]
    subject.model.save_pretrained(tmp_path / "model")
    subject.tokenizer.save_pretrained(tmp_path / "model")
    out = tmp_path / "found.jsonl"
    with pytest.raises(SystemExit) as ending:
        main(["explain", *texts, "--targets", "all", "--model", str(tmp_path / "model"), "--out", str(out)])
    assert not ending.value.code, capsys.readouterr().err
    assert {wt.Attribution.from_json(line).method for line in out.read_text().splitlines()} == {"att-x-att-grads"}


@pytest.mark.parametrize(("kind", "name"), [("llama", "alti"), ("gemma2", "gae")])
def test_many_prompts_are_explained_in_one_pass_by_a_method_that_reads_the_model(kind: str, name: str) -> None:
    task = task_for(language_subject(kind))
    assert (task.choose_method(1), task.choose_method(101), task.choose_method(None)) == ("posterior", name, name)
