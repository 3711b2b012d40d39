"""The job behind `/api/review`: explain the rows of an uploaded file, and say how often the model is right."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from whichtoken._explain import check_keyword, explain_each
from whichtoken.data.examples import Columns, TextExample, check_texts, read_rows
from whichtoken.data.sources import BadRow, DataFile
from whichtoken.errors import BadInput, WhichTokenError
from whichtoken.records import Attribution
from whichtoken.render.review import by_input, format_prediction, summarise
from whichtoken.render.rows import Look, panels, visible
from whichtoken.web.asked import read_methods
from whichtoken.web.explaining import view_of
from whichtoken.web.facts import KINDS
from whichtoken.web.lanes import Report
from whichtoken.web.limits import Limits, too_large
from whichtoken.web.replies import ReviewRow
from whichtoken.web.schema import ReviewRequest
from whichtoken.web.served import Served

AT_ONCE = 16  # rows that are explained together, so that the table grows
NAME = "the file"  # in messages; the name of an upload is never read


def plan_review(model: Served, asked: ReviewRequest, limits: Limits) -> Callable[[Report], None]:
    """Return the work of a job; whatever can be refused is refused here. Reads the whole file."""
    check_keyword(model.subject, "texts")
    n_bytes = len(asked.content.encode(errors="replace"))
    if n_bytes > limits.csv_bytes:
        raise too_large(NAME, n_bytes, limits.csv_bytes, "bytes")
    (method,) = read_methods(model, [asked.method or model.task.quick_method], limits)
    bad: list[BadRow] = []
    examples = _read(asked, limits, bad)
    if not examples:
        raise BadInput(f"{NAME} has no row that can be used" + (f"; the first is {bad[0].reason}" if bad else ""))

    def work(report: Report) -> None:
        report.event("summary", {"rows": len(examples)})
        for row in bad:
            report.event("bad_row", {"row": row.row, "message": visible(row.reason)})
        results: list[Mapping[str, Attribution]] = []
        for first in range(0, len(examples), AT_ONCE):
            report.progress(first, len(examples), method)
            for result in _explain(model, examples[first : first + AT_ONCE], method, report):
                results.append(result)
                report.event("row", _row(model, method, result[method]))
        report.event("totals", _totals(results))

    return work


def _read(asked: ReviewRequest, limits: Limits, bad: list[BadRow]) -> list[TextExample]:
    columns = Columns(tuple(asked.columns) if asked.columns else None, asked.label, asked.id)
    with TemporaryDirectory(prefix="whichtoken-") as folder:
        path = Path(folder) / "upload"
        path.write_bytes(asked.content.encode(errors="replace"))
        file = DataFile(path, asked.format, on_bad_row=bad.append, name=NAME)
        examples = list(islice(read_rows(file, columns), limits.csv_rows + 1))
    if len(examples) > limits.csv_rows:
        raise too_large(NAME, len(examples), limits.csv_rows, "rows or more")
    return [example for example in examples if _is_usable(example, limits, bad)]


def _is_usable(example: TextExample, limits: Limits, bad: list[BadRow]) -> bool:
    try:
        check_texts(example.texts, example.where)
        if sum(map(len, example.texts)) > limits.text_characters:
            raise BadInput(f"has over {limits.text_characters:,} characters", place=example.where)
    except BadInput as error:
        bad.append(BadRow(example.row, example.where, error))
        return False
    return True


def _explain(
    model: Served, examples: Sequence[TextExample], method: str, report: Report
) -> list[dict[str, Attribution]]:
    def skip(example: Any, error: WhichTokenError) -> None:
        message = visible(str(error).removeprefix(example.where).lstrip(" :,"))
        report.event("bad_row", {"row": example.row, "message": message})

    return list(explain_each(model.for_jobs.subject, examples, [method], on_bad_input=skip))


def _row(model: Served, method: str, record: Attribution) -> ReviewRow:
    (panel,) = panels({method: record}, Look())
    source = record.source
    return ReviewRow(
        row=None if source is None else source.row,
        id=None if source is None or source.id is None else visible(source.id),
        text=panel.text,
        gold=None if source is None or source.gold is None else visible(source.gold),
        predicted=None if record.predicted is None else visible(record.predicted.label),
        label=panel.label,
        output=record.output if record.predicted is None else record.predicted.probability,
        shown=format_prediction(record),
        correct=record.correct,
        strongest=tuple(cell.called for cell in panel.rows[0].strongest()),
        columns=(),
        input=_input_of(model, record.texts),
        result=view_of(model.for_jobs, method, record),
    )


def _input_of(model: Served, texts: Sequence[str]) -> dict[str, str]:
    """Return the input as a request of the page would have it."""
    kinds = KINDS[model.task.keywords[0]]
    kind = kinds[min(len(texts), len(kinds)) - 1]
    names = {"text": ("text",), "pair": ("text", "pair"), "question": ("question", "context"), "prompt": ("prompt",)}
    return {"kind": kind, **dict(zip(names[kind], texts, strict=False))}


def _totals(results: Sequence[Mapping[str, Attribution]]) -> dict[str, Any]:
    summary = summarise(by_input(results))
    return {
        "rows": summary.n_texts,
        "known": summary.n_known,
        "correct": summary.n_correct,
        "accuracy": summary.accuracy if summary.n_known else "",
        "confusions": summary.confusions,
    }
