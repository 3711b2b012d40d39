"""What a benchmark of questions keeps of each, as data that goes to JSON and back, and the table of it. No torch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from whichtoken.bench.stats import interval
from whichtoken.bench.table import Cells, Values, cells_of, costs, lines_of, tested
from whichtoken.errors import BadArtifact
from whichtoken.metrics.ranks import recall_at_k
from whichtoken.tables import BenchTable, Cell, Column

UNIT = "question"
INSIDE = "answers inside"  # of columns without the questions whose answer was cut off


@dataclass(frozen=True)
class Count:
    """One method on one question."""

    count: int  # of the answer's tokens, among the k highest
    searched: bool
    seconds: float
    evaluations: float


@dataclass(frozen=True)
class Counted:
    """One question."""

    number: int  # in the sample
    row: int  # in the data
    id: str
    n_tokens: int
    span: tuple[int, int]  # the true answer's first and last token; (0, 0) if the cut took any of it
    truncated: bool
    answer: str  # the model's
    answered: tuple[int, int]  # its tokens
    methods: Mapping[str, Count]

    @property
    def length(self) -> int:
        return self.span[1] - self.span[0] + 1

    @property
    def right(self) -> bool:
        """The model's answer begins and ends where the true one does; one that was cut off cannot be right."""
        return not self.truncated and self.answered == self.span


@dataclass(frozen=True)
class CountedPart:
    """What was measured together."""

    questions: tuple[Counted, ...]

    def __add__(self, other: "CountedPart") -> "CountedPart":
        return CountedPart(self.questions + other.questions)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_counted(found: Any, where: object) -> CountedPart:
    try:
        return CountedPart(tuple(_question(one) for one in found["questions"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadArtifact(
            f"{where} is no part of a benchmark of questions: {error!r}; remove it, and it is measured again"
        ) from error


def _question(found: Mapping[str, Any]) -> Counted:
    first, last = found["span"]
    start, end = found["answered"]
    methods = {name: Count(**one) for name, one in found["methods"].items()}
    return Counted(**{**found, "span": (first, last), "answered": (start, end), "methods": methods})


def rows_of(questions: Sequence[Counted]) -> list[dict[str, Any]]:
    """For `results.parquet`: one for each question and method."""
    return [
        {
            "number": one.number,
            "row": one.row,
            "id": one.id,
            "n_tokens": one.n_tokens,
            "method": method,
            "count": counted.count,
            "length": one.length,
            "truncated": one.truncated,
            "answer": one.answer,
            "right": one.right,
            "searched": counted.searched,
            "seconds": counted.seconds,
            "evaluations": counted.evaluations,
        }
        for one in questions
        for method, counted in one.methods.items()
    ]


def summarise_counts(questions: Sequence[Counted], k: int) -> BenchTable:
    """Without title, facts and notes: the caller knows what was run."""
    inside = [one for one in questions if not one.truncated]
    found = [*_columns(questions, k, "")]
    if inside and len(inside) < len(questions):
        found += _columns(inside, k, INSIDE)
    seconds = _values(questions, lambda counted: counted.seconds)
    found += costs(seconds, _values(questions, lambda counted: counted.evaluations), UNIT)
    searched = {m: any(one.methods[m].searched for one in questions) for m in questions[0].methods}
    columns = tuple(column for column, _ in found)
    return BenchTable("", (), columns, tuple(lines_of(found, searched)), (), unit=UNIT)


def _columns(questions: Sequence[Counted], k: int, which: str) -> Iterator[tuple[Column, Cells]]:
    counts, lengths = _values(questions, lambda counted: counted.count), [one.length for one in questions]
    name, title = (f" {which}", f", {which}") if which else ("", "")
    about = f"mean number of the answer's tokens among the {k} highest of the whole input"
    column = Column(f"precision@{k}{name}", f"precision@{k}{title}", about, "higher")
    yield column, cells_of(column, counts)
    about = f"share of all answers' tokens that are among the {k} highest of their input: a micro recall"
    column = Column(f"share@{k}{name}", f"share@{k}{title}", about, "higher")
    cells = {method: share_cell([int(count) for count in of.values()], lengths) for method, of in counts.items()}
    # The denominators are the same for all methods, so that shares differ as counts do, and are tested by them.
    yield column, tested(column, counts, cells)


def share_cell(counts: Sequence[int], lengths: Sequence[int]) -> Cell:
    """The ratio of the sums; its interval comes from drawing questions, each with its count and its length."""
    pairs = np.array([counts, lengths], dtype=np.float64).T
    low, high = interval(pairs, lambda means: means[:, 0] / means[:, 1])
    return Cell(recall_at_k(counts, lengths), low, high, len(counts))


def _values(questions: Sequence[Counted], measure: Callable[[Count], float]) -> Values:
    return {m: {one.number: measure(one.methods[m]) for one in questions} for m in questions[0].methods}
