"""compare_questions: how many tokens of the true answer are among the highest of each method (Precision@20 of AttCAT
and Mask-LRP on SQuAD); measured part by part, as texts are.

As in the papers' code, the ranking is of the whole input, question and special tokens included; inputs are cut to 384
tokens, and an answer that the cut took becomes the span (0, 0), the first token, which is still counted. The table has
columns without those beside it.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Literal

from whichtoken.bench.counted import Count, Counted, CountedPart, read_counted, rows_of, summarise_counts
from whichtoken.bench.folder import Folder
from whichtoken.bench.run import in_parts, made_with
from whichtoken.bench.selection import usual_methods
from whichtoken.core.objectives import Part, Span
from whichtoken.core.registry import chosen_methods, method
from whichtoken.core.trace import Method
from whichtoken.data import check_texts
from whichtoken.errors import BadInput, UsageError
from whichtoken.explaining import explain
from whichtoken.explaining.questions import answer_tokens
from whichtoken.metrics.ranks import precision_at_k
from whichtoken.models import Subject, Task
from whichtoken.records import Attribution
from whichtoken.settings import build
from whichtoken.squad import Question, read_squad
from whichtoken.tables import BenchTable

CONTROLS = ("random",)
DEAR = ("refined-noise",)  # a search for each question, and measures by deletion are not in this table
PARTS: Mapping[Part, str] = {
    "both": "a map of the start's logit and one of the end's, added up",
    "sum": "one map, of the sum of the two logits",
    "start": "the start's logit",
    "end": "the end's logit",
}


@dataclass(frozen=True)
class QuestionProtocol:
    """What is counted, on which questions."""

    k: int = field(default=20, metadata={"least": 1})
    target: Literal["predicted", "gold"] = "predicted"  # whose logits are explained; the gold answer is what is found
    part: Part = "both"  # of the answer, as in Span
    max_tokens: int = field(default=384, metadata={"least": 1})  # or the model's limit, if that is lower
    sample: int | None = field(default=None, metadata={"least": 1})  # questions; None: all
    seed: int = field(default=0, metadata={"least": 0})  # of the sample


@dataclass(frozen=True)
class QuestionTask:
    """One question of a benchmark."""

    number: int
    row: int
    id: str
    texts: tuple[str, ...]
    n_tokens: int
    at: tuple[int, int]  # the true answer's tokens in the whole input, as a Span counts
    span: tuple[int, int]  # and in what is left of it, as in Counted
    truncated: bool


@dataclass(frozen=True)
class QuestionBench:
    subject: Subject  # with the limit of the protocol
    methods: Mapping[str, Method]
    protocol: QuestionProtocol


@dataclass(frozen=True)
class Questions:
    """The questions of a benchmark, in the order in which they are measured, and what names them."""

    tasks: tuple[QuestionTask, ...]
    n_answerable: int  # before a sample was drawn
    n_unanswerable: int
    digest: str


def compare_questions(  # noqa: PLR0913  # settings of one protocol
    subject: Subject,
    questions: Any,
    methods: Iterable[str | Method] | None = None,
    *,
    k: int = 20,
    sample: int | None = None,
    seed: int = 0,
    target: Literal["predicted", "gold"] = "predicted",
    part: Part = "both",
    max_tokens: int = 384,
    out: str | Path | None = None,
) -> BenchTable:
    """Count how many tokens of the true answers are among the k highest of each method: one table.

    `questions`: a file as SQuAD has it, or a list of `Question`; those without an answer are left out. `methods`: by
    default all that the model can run, with random as control, but the dearest. `target`: explain the model's answer,
    each end by itself as the papers' code does, or the true one ("gold"). `part`: as in `Span`. `max_tokens`: longer
    inputs are cut, the context only. `out`: a folder for the table, results and a report; a run that was interrupted
    goes on there.
    """
    settings = {"k": k, "sample": sample, "seed": seed, "target": target, "part": part, "max_tokens": max_tokens}
    bench = question_bench(subject, methods, question_protocol(**settings))
    return run_questions(bench, gather_questions(bench, questions), Folder.at(out), {})


def question_protocol(**settings: Any) -> QuestionProtocol:
    return build(QuestionProtocol, "bench of questions", {}, None, settings)


def question_bench(
    subject: Subject, methods: Iterable[str | Method] | None, protocol: QuestionProtocol
) -> QuestionBench:
    if subject.task is not Task.QUESTIONS:
        raise UsageError(
            f"{subject.title} classifies {subject.task} and answers no questions; give a model that does (--model, "
            "wt.load), or measure it on texts: without --task qa, or wt.compare"
        )
    limit = min(protocol.max_tokens, subject.limit)
    chosen = chosen_methods(usual_for_questions(subject) if methods is None else methods)
    return QuestionBench(replace(subject, max_tokens=limit), chosen, replace(protocol, max_tokens=limit))


def usual_for_questions(subject: Subject) -> list[str]:
    return [name for name in usual_methods(subject) if name not in DEAR]


def gather_questions(bench: QuestionBench, source: Any) -> Questions:
    """In an order drawn from the seed, so that a larger sample begins with a smaller one."""
    found = read_squad(source) if isinstance(source, str | Path) else list(_questions(source))
    rows = [row for row, question in enumerate(found) if question.answers]
    if not rows:
        raise BadInput(f"none of the {len(found)} questions has an answer, and there is nothing to count")
    digest = hashlib.sha256(repr([(found[row].texts, found[row].answers[0]) for row in rows]).encode())
    Random(bench.protocol.seed).shuffle(rows)
    drawn = enumerate(rows[: bench.protocol.sample])
    tasks = [_task(bench.subject, found[row], number, row) for number, row in drawn]
    return Questions(tuple(tasks), len(rows), len(found) - len(rows), digest.hexdigest())


def _questions(source: Any) -> Iterator[Question]:
    if not isinstance(source, Iterable):
        raise BadInput(f"questions is {source!r:.60}; expected a file as SQuAD has it, or a list of Question")
    for number, one in enumerate(source):
        if not isinstance(one, Question):
            raise BadInput(f"question {number} is {one!r:.60}; expected a Question, as wt.read_squad returns")
        yield one


def _task(subject: Subject, question: Question, number: int, row: int) -> QuestionTask:
    texts = check_texts(question.texts, question.where or f"question {row}")
    document = subject.encode([texts], "truncate", row)[0]
    seen = document.windows[0]
    at = answer_tokens(document, question.answers[0].text, question.answers[0].start, row)
    truncated = not {*at} <= {*seen}
    at = (0, 0) if truncated else at
    span = (seen.index(at[0]), seen.index(at[1]))
    return QuestionTask(number, row, question.id, texts, len(seen), at, span, truncated)


def run_questions(
    bench: QuestionBench, questions: Questions, folder: Folder | None, origin: Mapping[str, Any]
) -> BenchTable:
    """`origin`: what else the specification should hold, to make the same benchmark again."""
    if folder is not None:
        settings = asdict(bench.protocol)
        size = {"sample": settings.pop("sample")}
        made = made_with(bench.subject, bench.methods)
        spec = {**made, "task": "qa", "texts": questions.digest, "protocol": settings}
        folder.claim({**spec, **origin}, size)
    parts = in_parts(questions.tasks, partial(measure_questions, bench), folder, read_counted)
    counted = [one for part in parts for one in part.questions]
    table = _table(bench, questions, counted)
    if folder is not None:
        folder.finish(table, rows_of(counted))
    return table


def measure_questions(bench: QuestionBench, tasks: Sequence[QuestionTask]) -> CountedPart:
    """All of these questions together. Nothing depends on other questions."""
    own = Span(free=True, part=bench.protocol.part)
    if bench.protocol.target == "predicted":
        results = _explained(bench, tasks, bench.methods, own)
        answers = [next(iter(result.values())) for result in results]
    else:
        spans = [Span(*task.at, bench.protocol.part) for task in tasks]
        results = [_explained(bench, [task], bench.methods, span)[0] for task, span in zip(tasks, spans, strict=True)]
        # The cheapest explanation that there is tells what the model answers.
        quick = {"random": method("random")}
        answers = [found["random"] for found in _explained(bench, tasks, quick, replace(own, part="sum"))]
    return CountedPart(tuple(map(partial(_counted, bench), tasks, results, answers)))


def _explained(
    bench: QuestionBench, tasks: Sequence[QuestionTask], methods: Mapping[str, Method], target: Span
) -> list[dict[str, Attribution]]:
    inputs: list[Any] = [task.texts for task in tasks]
    found = explain(bench.subject, inputs, methods.values(), target, "truncate")
    return [{name: result[one.label] for name, one in methods.items()} for result in found]


def _counted(
    bench: QuestionBench, task: QuestionTask, results: Mapping[str, Attribution], answer: Attribution
) -> Counted:
    gold = range(task.span[0], task.span[1] + 1)
    start, end = answer.details["answer"]
    return Counted(
        number=task.number,
        row=task.row,
        id=task.id,
        n_tokens=task.n_tokens,
        span=task.span,
        truncated=task.truncated,
        answer=answer.label,
        answered=(start, end),
        methods={
            name: Count(
                count=precision_at_k(one.scores, gold, bench.protocol.k),
                searched=one.searched,
                seconds=one.seconds,
                evaluations=one.evaluations,
            )
            for name, one in results.items()
        },
    )


def _table(bench: QuestionBench, questions: Questions, counted: Sequence[Counted]) -> BenchTable:
    table = summarise_counts(counted, bench.protocol.k)
    return replace(
        table,
        title=f"{bench.subject.title}: how much of the answers do {len(table.lines)} methods find?",
        facts=(
            ("model", bench.subject.title),
            ("revision", bench.subject.fingerprint()),
            *_facts(bench.protocol, questions, counted),
        ),
        notes=tuple(_notes(table, bench.protocol, counted)),
    )


def _facts(how: QuestionProtocol, questions: Questions, counted: Sequence[Counted]) -> Iterator[tuple[str, str]]:
    cut = sum(one.truncated for one in counted)
    inside = len(counted) - cut
    lengths, most = [one.length for one in counted], [min(one.length, how.k) for one in counted]
    tokens = [one.n_tokens for one in counted]
    yield (
        "questions",
        f"{len(counted)} of {questions.n_answerable} that have an answer, seed {how.seed}; "
        f"{questions.n_unanswerable} unanswerable ones are left out",
    )
    yield "k", f"{how.k}"
    own = "the model's answer, each end where its logit is highest, anywhere in the input"
    yield "explained", f"{own if how.target == 'predicted' else 'the true answer'}: {PARTS[how.part]}"
    yield (
        "lengths",
        f"{min(tokens)} to {max(tokens)} tokens, mean {sum(tokens) / len(tokens):.0f}; at most {how.max_tokens}, only "
        "the context is cut",
    )
    length, ceiling = (sum(values) / len(counted) for values in (lengths, most))
    yield "answers", f"mean length {length:.2f} tokens; precision@{how.k} can be {ceiling:.2f} at most"
    yield "cut off", f"{cut} answer{'s' * (cut != 1)}, each counted as the span (0, 0): the first token"
    yield "right", f"{sum(one.right for one in counted)} of the model's answers, of {inside} that are not cut off"


def _notes(table: BenchTable, how: QuestionProtocol, counted: Sequence[Counted]) -> Iterator[str]:
    yield (
        "Intervals: 95 % bootstrap over questions. p: sign-flip test of the counts against the best of the column on "
        "the same questions, corrected for the number of methods (Holm)."
    )
    yield (
        f"precision@{how.k} is a count, as AttCAT reports it; share@{how.k} is what Mask-LRP reports as precision. All "
        f"tokens are ranked, of the question and special ones too; ties by position."
    )
    if any(one.truncated for one in counted):
        yield "Answers that were cut off are counted as the papers do; 'answers inside' is without these questions."
    if any(line.control for line in table.lines):
        yield "random is a control, not an explanation."
