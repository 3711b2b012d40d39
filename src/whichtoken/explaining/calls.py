"""explain: from inputs and method names to attributions; what the inputs are decides who does the work."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, SupportsIndex

from whichtoken.core.objectives import Span, Target, as_target
from whichtoken.core.trace import Method
from whichtoken.errors import BadInput, UsageError
from whichtoken.explaining.images import each_image
from whichtoken.explaining.questions import each_question, question_job
from whichtoken.explaining.scoring import work_of
from whichtoken.explaining.texts import each_text, text_job
from whichtoken.models import Answers, LongTexts, Subject, Task, as_inputs
from whichtoken.records import Attribution


def explain(
    subject: Subject,
    inputs: Iterable[str | tuple[str, str]] | None = None,
    methods: Iterable[str | Method] = ("attcat",),
    target: Target | Span | SupportsIndex | str | None = None,
    long: LongTexts | None = None,
    layers: bool = False,
    *,
    images: Iterable[Any] | None = None,
    question: str | Sequence[str] | None = None,
    context: str | Sequence[str] | None = None,
) -> list[dict[str, Attribution]]:
    """For each input, in order, the attribution of each method.

    `methods`: names, names with a preset ("attcat@repo"), or what `whichtoken.method` returns. Results are keyed by
    the string that was passed, or by the method's `label`. `target`: the predicted class (None), a class by index or
    name, or `Contrast(a, b)`. `long`: texts over the model's limit are cut ("truncate", the default; the result counts
    the tokens cut), explained in overlapping windows whose scores are averaged ("window"), or refused ("error").
    `layers`: keep what each layer adds, for the methods that are sums over layers.

    A model that answers questions: `question` and `context`, a text each or as many of both, or pairs as `inputs`.
    `target`: the predicted answer (None), the text of another one, or `Span(...)`. Long contexts are read in
    overlapping windows ("window", the default), and the one with the best answer is explained.

    A model of images: `images`, each a picture (PIL), an array, a file, or a tensor as its processor returns it.
    """
    if images is not None:
        if inputs is not None or question is not None or context is not None:
            raise UsageError("images and texts were given; explain one kind at a time")
        return list(each_image(subject, images, methods, as_target(target), layers))
    if (question is not None or context is not None) and isinstance(subject, Subject):
        check_answers(subject)
    given = _pairs(question, context) if question is not None or context is not None else inputs
    if given is None or (inputs is not None and question is not None):
        raise BadInput("give inputs, or question and context, or images; one of them")
    return list(explain_each(subject, given, methods, target, long, layers))


def explain_each(
    subject: Subject,
    inputs: Iterable[str | tuple[str, str]],
    methods: Iterable[str | Method] = ("attcat",),
    target: Target | Span | SupportsIndex | str | None = None,
    long: LongTexts | None = None,
    layers: bool = False,
) -> Iterator[dict[str, Attribution]]:
    """As `explain`, one result after the other: inputs are read as they are needed and may be endless.

    Of questions, inputs are pairs: question, context.
    """
    work = work_of(subject, methods, layers)
    if subject.task is Task.QUESTIONS:
        return each_question(question_job(work, target, long or "window"), as_inputs(inputs))
    return each_text(text_job(work, as_target(target), long or "truncate"), as_inputs(inputs))


def explain_with(
    answers: Answers,
    inputs: Iterable[str | tuple[str, str]],
    methods: Iterable[str | Method],
    target: Target | SupportsIndex | str | None = None,
) -> list[dict[str, Attribution]]:
    """As `explain`, sharing what was asked about these texts with whoever else uses the same `answers`."""
    work = replace(work_of(answers.subject, methods, False), answers=answers)
    return list(each_text(text_job(work, as_target(target), "truncate"), as_inputs(inputs)))


def check_answers(subject: Subject) -> None:
    if subject.task is not Task.QUESTIONS:
        raise UsageError(
            f"{subject.title} classifies {subject.task.value}, and a question needs a model that answers questions; "
            "two texts for a classifier are a pair: explain(subject, [(text, text)]), or TEXT --pair TEXT"
        )


def _pairs(question: Any, context: Any) -> list[tuple[str, str]]:
    if question is None or context is None:
        found, lacking = ("question", "context") if context is None else ("context", "question")
        raise UsageError(f"a {found} was given without a {lacking}; give both")
    questions = [question] if isinstance(question, str) else list(question)
    contexts = [context] * len(questions) if isinstance(context, str) else list(context)
    if len(questions) != len(contexts):
        raise UsageError(f"{len(questions)} questions and {len(contexts)} contexts; give as many of each")
    return list(zip(questions, contexts, strict=True))
