"""Precision@20 on SQuAD, as AttCAT and Mask-LRP measure it: `compare` for questions, its settings spelled out."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from whichtoken.bench.protocol import protocol
from whichtoken.bench.run import compare
from whichtoken.core.trace import Method
from whichtoken.errors import UsageError
from whichtoken.models import Subject
from whichtoken.tables import BenchTable
from whichtoken.targets import Part
from whichtoken.tasks import task_for


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
    default every supported method except the most expensive ones, with random as control. `target`: explain the
    model's answer, each end by itself as the papers' code does, or the true one ("gold"). `part`: as in `Span`.
    `max_tokens`: longer inputs are cut, the context only. `out`: a folder for the table, results and a report; a run
    that was interrupted continues there.
    """
    task = task_for(subject)
    if not task.has_answers:
        raise UsageError(
            f"{subject.title} {task.reads} and answers no questions; give a model that does (--model, wt.load), or "
            "measure it by wt.compare"
        )
    how = protocol(k=k, sample=sample, seed=seed, target=target, part=part, max_tokens=max_tokens)
    return compare(subject, questions, methods, protocol=how, out=out)
