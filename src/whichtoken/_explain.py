"""`explain` turns inputs and method names into attributions, with the same loop for every task.

(The module is not called `explain`, so that `whichtoken.explain` can only be the function.)
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from functools import partial
from typing import Any, Literal, SupportsIndex, TypeAlias

import torch
from tqdm.auto import tqdm

from whichtoken import top_words
from whichtoken.core.registry import resolve_methods
from whichtoken.core.trace import Method, plan_passes
from whichtoken.data.prompts import list_prompts
from whichtoken.errors import BadInput, BadSetting, UsageError
from whichtoken.models import (
    AnySubject,
    LogitCache,
    LongTexts,
    Subject,
    as_subject,
    return_freed_memory,
    return_memory_after_call,
)
from whichtoken.records import Attribution
from whichtoken.results import Results
from whichtoken.scoring import Job, score_pieces
from whichtoken.targets import (
    AnswerRequest,
    AnswerTokens,
    Class,
    Contrast,
    Generation,
    Predicted,
    RowLevel,
    SourceLevel,
    Span,
    TokenLabels,
)
from whichtoken.tasks import ScoredPiece, Task, task_for
from whichtoken.tasks.sources import OnBadInput, count_characters, explain_around_bad, split_source

AnyTarget: TypeAlias = Predicted | Class | Contrast | Span | TokenLabels | AnswerTokens | SupportsIndex | str | None
Targets: TypeAlias = Iterable[AnyTarget] | Literal["all"] | None
Token: TypeAlias = str | SupportsIndex | tuple[int, int] | None
CHARACTERS_AT_ONCE = 2**17  # of a chunk: about 50 texts of 512 tokens


def explain(
    subject: AnySubject,
    inputs: Iterable[Any] | None = None,
    methods: str | Method | Iterable[str | Method] | None = None,
    target: AnyTarget = None,
    long: LongTexts | None = None,
    layers: bool = False,
    *,
    images: Any = None,
    question: str | Sequence[str] | None = None,
    context: str | Sequence[str] | None = None,
    targets: Targets = None,
    token: Token = None,
    remove_top: int = 0,
    prompt: Any = None,
    generate: int | Generation | None = None,
    continuation: str | Sequence[str] | None = None,
    documents: Sequence[str] | Mapping[str, str] | None = None,
    rows: RowLevel = "answer",
    sources: SourceLevel | None = None,
    foil: str | None = None,
) -> Results:
    """Return, for each input in order, the attribution of each method, as a list that shows and saves itself.

    `subject`: what `whichtoken.load` returns, a `Subject`, a pipeline of transformers, a pair (model, tokenizer), a
    folder or a hub name, which is loaded at every call. `inputs`: one text, or a list of texts, pairs of texts, or rows
    that keep their identity in `Attribution.source`: what `wt.data.read_examples` yields, a Hugging Face dataset, or
    dictionaries. A tuple of two texts is refused, because it could be one pair or two texts.

    `methods`: names, names with a preset ("attcat@repo"), or results of `whichtoken.method`; as a list, or as one
    string ("attcat,gae"). None: `posterior`, which says how sure it is; for more than 100 inputs, or if their number is
    unknown, a method of one pass (docs/methods.md). Results are keyed by the name that was passed, or by the method's
    `label`. `target`: the predicted class (None), a class by index or
    name, or `Contrast(a, b)`. `targets`: several of them, or "all" labels; the list then has one result for each input
    and target. `long`: texts over the model's limit are truncated ("truncate", the default; the result counts the
    truncated tokens), explained in overlapping windows whose scores are averaged ("window"), or refused ("error").
    `layers`: include per-layer contributions, for methods that sum over layers. `remove_top`: also measure, by one more
    evaluation each, the output without the strongest word, the two strongest, up to this many (`Attribution.removals`).

    For models that answer questions, give `question` and `context`: texts, or lists of the same length; or pairs as
    `inputs`. `target`: the predicted answer (None), the text of another answer, or `Span(...)`. Long contexts are read
    in overlapping windows ("window", the default), and the window with the best answer is explained.

    For models that label tokens, `token` chooses the word: its text (every occurrence has a result), the position of a
    token, or characters (start, end). Without it, the list has a result for every entity that the model names, so none
    for a text without entities. `target`: the predicted label (None), another, its kind ("LOC" for B-LOC and I-LOC), or
    `Contrast(a, b)`. Inputs may be lists of words. Long texts are read in windows by default.

    For image models, give `images`: PIL images, arrays, files, or tensors as the model's processor returns them; or one
    of these.

    For models that generate text, give `prompt`: a text, the messages of a chat ([{"role": "user", "content": ...}]),
    or a list of these. The answer is generated: `generate` is the largest number of tokens, 32 by default, or
    `wt.Generation(...)`, which can also draw tokens at random. Or it is given: `continuation` follows the prompt as it
    is. `documents`: texts, or names and texts, that the prompt contains or that are put before it. `target`: the sum of
    the tokens' logits ("logit", the default) or log-probabilities ("logprob"). `rows`: the map of the whole "answer",
    or also of each "sentence" or "token" of it (`Attribution.generated`). `sources`: the columns of
    `Attribution.matrix`: each "token", "word" (the default), "sentence" or "document" (the default if there are any) of
    the prompt. `foil`: why the model said what it said rather than this: another answer, contrasted at the first token
    that differs, or an alternative to one word of the answer.
    """
    subject = as_subject(subject)
    pairs = None if question is None and context is None else _pair_questions(question, context)
    given = None if prompt is None else list_prompts(prompt, continuation, documents)
    arguments = {"inputs": inputs, "question": pairs, "images": images, "prompt": given}
    passed = [(keyword, value) for keyword, value in arguments.items() if value is not None]
    if len(passed) != 1:
        raise BadInput("give exactly one of inputs, images, prompt, or question with context")
    keyword, value = passed[0]
    check_keyword(subject, keyword)
    wanted = (generate, continuation, documents, sources, foil)
    answer = None
    if given is not None or rows != "answer" or any(option is not None for option in wanted):
        how = _check_generation(generate, continuation)
        level: SourceLevel = sources or ("word" if documents is None else "document")
        answer = AnswerRequest(how, rows, level, foil)
    each = explain_each(
        subject,
        value,
        methods,
        target,
        long,
        layers,
        targets=targets,
        token=token,
        remove_top=remove_top,
        answer=answer,
    )
    return Results(tuple(each))


def _check_generation(generate: Any, continuation: Any) -> Generation | None:
    """Return how to generate; None if continuations are given."""
    if continuation is not None:
        if generate is not None:
            raise BadSetting("generate", generate, "None, if a continuation is given")
        return None
    return generate if isinstance(generate, Generation) else Generation(32 if generate is None else generate)


def explain_each(
    subject: AnySubject,
    inputs: Iterable[Any],
    methods: str | Method | Iterable[str | Method] | None = None,
    target: AnyTarget = None,
    long: LongTexts | None = None,
    layers: bool = False,
    *,
    targets: Targets = None,
    token: Token = None,
    on_bad_input: OnBadInput | None = None,
    remove_top: int = 0,
    answer: AnswerRequest | None = None,
) -> Iterator[dict[str, Attribution]]:
    """Yield the results of `explain` one by one; inputs are read as needed and may be endless.

    For questions, inputs are pairs (question, context). For models that generate text, they are prompts, and `answer`
    says what is explained about the answer. `on_bad_input` is called with an input that cannot be explained
    and the error, and the input is skipped; without it, the error is raised.
    """
    opened = as_subject(subject)
    task = task_for(opened)
    rows = task.inputs(inputs)
    several = None if targets is None else plan_targets(task, target, targets)
    if methods is None:
        methods = task.choose_method(len(rows) * len(several or (target,)) if isinstance(rows, Sized) else None)
    job = plan(opened, methods, target, long, layers)
    job = replace(job, remove_top=top_words.check_count(job.task, remove_top))
    if several is not None:
        job = replace(job, targets=several)
    if token is not None:
        job = replace(job, targets=tuple(job.task.for_token(checked, token) for checked in job.targets))
    if answer is not None:
        job = replace(job, targets=tuple(job.task.for_answer(checked, answer) for checked in job.targets))
    results = run(replace(job, on_bad_input=on_bad_input), rows)
    return results if opened.origin is not None else _take_back_after(results, opened, job.subject)


def _take_back_after(
    results: Iterator[dict[str, Attribution]], subject: Subject, twin: Subject
) -> Iterator[dict[str, Attribution]]:
    yield from results
    subject.take_back(twin)


def check_keyword(subject: Subject, keyword: str) -> None:
    """Raise UsageError if the model does not read inputs passed under this keyword."""
    task = task_for(subject)
    if keyword != "inputs" and keyword not in task.keywords:
        passed = f"a {keyword} was" if keyword in ("question", "prompt") else f"{keyword} were"
        raise UsageError(f"{passed} given, but {subject.title} {task.describe_purpose()}; give {task.input_hint}")


def plan(
    subject: Subject,
    methods: str | Method | Iterable[str | Method],
    target: Any = None,
    long: Any = None,
    layers: bool = False,
) -> Job:
    """Validate a call before any work, except for a missing library or head mask, which the method itself reports."""
    task_for(subject)
    task = task_for(subject.with_twin())
    resolved = resolve_methods(methods)
    for method in resolved.values():
        reason = task.can_run(method)
        if reason is not None and not reason.library:
            fix = reason.fix or "see wt.method_names() for others"
            raise reason.error(f"{method.label} cannot explain {task.unit}s: {reason.why}; {fix}")
    checked_target = task.target(target)
    task.check_long(long)
    adapted = {key: task.adapt(method) for key, method in resolved.items()}
    return Job(task, adapted, plan_passes(adapted.values()), (checked_target,), long, layers)


def plan_targets(task: Task, target: AnyTarget, targets: Targets) -> tuple[Any, ...]:
    """Check several targets, or list all of them. BadSetting if there is none, or `target` is given, too."""
    if target is not None:
        raise BadSetting("target", target, "None, if there are targets")
    if isinstance(targets, str) and targets != "all":
        raise BadSetting("targets", targets, "'all', or a list of targets")
    checked = tuple(task.all_targets() if targets == "all" else map(task.target, targets or ()))
    if not checked:
        raise BadSetting("targets", targets, "'all', or a list of at least one target")
    return tuple(dict.fromkeys(checked))


def run(job: Job, inputs: Iterable[Any]) -> Iterator[dict[str, Attribution]]:
    """Explain inputs in chunks: the pieces of a chunk are batched by length, and the task merges their scores."""
    total, first = len(inputs) if isinstance(inputs, Sized) else None, 0
    # A bar of one step only flickers, and a call that shares a cache is a step of other work, which has a bar.
    unit, hidden = f" {job.task.unit}s", True if total == 1 or job.cache is not None else None
    with tqdm(total=total, desc="explaining", unit=unit, disable=hidden, delay=1, leave=False) as bar:
        for chunk in _split_inputs(inputs, job.at_once):
            if first:
                return_freed_memory()
            explain_part = partial(_explain_chunk, job, bar)
            for results in explain_around_bad(explain_part, chunk, first, job.on_bad_input):
                bar.clear()  # so that it does not interfere with printed results
                yield from results
            first += len(chunk)
        return_memory_after_call()


def _split_inputs(inputs: Iterable[Any], most: int) -> Iterator[list[Any]]:
    """Yield inputs in chunks of at most this many; fewer if they are long, because all results of a chunk are held."""
    chunk, n_characters = list[Any](), 0
    for item in inputs:
        chunk.append(item)
        n_characters += count_characters(item)
        if len(chunk) == most or n_characters >= CHARACTERS_AT_ONCE:
            yield chunk
            chunk, n_characters = [], 0
    if chunk:
        yield chunk


def _explain_chunk(job: Job, bar: Any, chunk: Sequence[Any], first: int) -> list[dict[str, Attribution]]:
    split = [split_source(job.task, item, index) for index, item in enumerate(chunk, first)]
    with torch.inference_mode(False):  # inference tensors cannot be differentiated
        documents = job.task.encode([item for item, _ in split], job.long, first)
        scored = [score_pieces(job, job.task.pieces(documents, goal, first), bar) for goal in job.targets]
    results, origins = [], {key: job.origin(key) for key in job.methods}
    for index, document in enumerate(documents, first):
        for parts in (parts for by_input in scored for parts in _group_by_part(by_input.get(index, ()))):
            shared = {"source": split[index - first][1], **job.task.shared_fields(document, parts)}
            results.append(
                {key: job.task.record(document, parts, key, {**origins[key], **shared}) for key in job.methods}
            )
    return _measure_removals(job, results) if job.remove_top else results


def _measure_removals(job: Job, results: Sequence[Mapping[str, Attribution]]) -> list[dict[str, Attribution]]:
    records = [record for result in results for record in result.values()]
    measured = iter(top_words.remove_top(job.task, records, job.remove_top))
    return [{key: next(measured) for key in result} for result in results]


def _group_by_part(pieces: Sequence[ScoredPiece]) -> list[list[ScoredPiece]]:
    """Group one input's pieces by record."""
    parts: dict[int, list[ScoredPiece]] = {}
    for scored in pieces:
        parts.setdefault(scored.piece.part, []).append(scored)
    return [parts[part] for part in sorted(parts)]


def _pair_questions(question: Any, context: Any) -> list[tuple[str, str]]:
    if question is None or context is None:
        passed, missing = ("question", "context") if context is None else ("context", "question")
        raise UsageError(f"a {passed} was given without a {missing}; give both")
    questions = [question] if isinstance(question, str) else list(question)
    contexts = [context] * len(questions) if isinstance(context, str) else list(context)
    if len(questions) != len(contexts):
        raise UsageError(f"{len(questions)} questions and {len(contexts)} contexts; give the same number of each")
    return list(zip(questions, contexts, strict=True))


def explain_with(
    cache: LogitCache, inputs: Sequence[Any], methods: Iterable[str | Method], target: Any = None, long: Any = None
) -> list[dict[str, Attribution]]:
    """Explain inputs as `explain` does, with a logit cache that other calls about the same inputs can share."""
    job = replace(plan(cache.subject, methods, target, long), cache=cache)
    return list(run(job, inputs))
