"""verdict: which method to use according to a benchmark, and whether that is settled. No torch."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from whichtoken.bench.metrics import METRICS, CurveMetric
from whichtoken.bench.results import InputResult, by_method
from whichtoken.bench.stats import Values, holm, paired_p
from whichtoken.records import Plan
from whichtoken.tables import BenchTable, Column, Estimate, Line

RANKED_BY = ("normalised-aopc", "aopc")  # by the first of these that the table has
MAIN = ("delete", "black")  # methods are ranked by these removals
MASKED = Plan("mask")
SIGNIFICANT = 0.05
MORE = 5  # times as many inputs are proposed if a ranking is not settled


@dataclass(frozen=True)
class Ranking:
    """The method to use, by one column of a table."""

    column: Column
    best: Line
    rejected: tuple[Line, ...]  # higher, but tuned on deletion and not known to lead by mask

    @property
    def title(self) -> str:
        """Return the name of the metric."""
        metric = METRICS.get(self.column.metric)
        return metric.title if isinstance(metric, CurveMetric) else self.column.metric

    @property
    def cell(self) -> Estimate:
        return self.best.cells[self.column.name]


def rank(table: BenchTable, columns: Iterable[Column], names: Collection[str] | None = None) -> Ranking | None:
    """Choose the best line that is not a control, by the first of the columns that has a value; None if none has.

    A method that was tuned on deletion must also lead by mask. `names`: the methods to choose from.
    """
    lines = [line for line in table.lines if not line.control and (names is None or line.method in names)]
    column = next((c for c in columns if any(c.name in line.cells for line in lines)), None)
    if column is None:
        return None
    measured = [line for line in lines if column.name in line.cells]
    ranked = sorted(measured, key=lambda line: -_gain(line, column))
    untuned = [line for line in ranked if not line.tuned_on_deletion]
    flattering = column.plan is not None and column.plan.perturbation in MAIN
    masked = masked_column(table)
    best = next(
        line
        for line in ranked
        if not line.tuned_on_deletion or not untuned or not flattering or _leads(line, untuned, masked)
    )
    return Ranking(column, best, tuple(ranked[: ranked.index(best)]))


def main_columns(table: BenchTable) -> Iterator[Column]:
    """Yield the columns that `auto` ranks by, the preferred one first: the main removal, MoRF, in tenths."""
    wanted = [("morf", "tenths", how) for how in MAIN]
    for metric in RANKED_BY:
        for column in table.columns:
            plan = column.plan
            if column.metric == metric and plan is not None and (plan.order, plan.grid, plan.perturbation) in wanted:
                yield column


def masked_column(table: BenchTable) -> Column | None:
    return next((column for column in table.columns if column.metric == "aopc" and column.plan == MASKED), None)


def verdict(table: BenchTable, inputs: Sequence[InputResult], n_usable: int) -> str:
    """Say which method to use for the model, and whether a paired test settles that. `n_usable`: inputs in the data."""
    ranking = rank(table, _deciding_columns(table))
    if ranking is None:
        return "No method is recommended: no metric here says which is the most faithful; add --metrics aopc."
    cell, form = ranking.cell, ".3f" if table.reading == "probability" else ".4g"
    value = f"{ranking.title} {cell.mean:{form}} [{cell.low:{form}}, {cell.high:{form}}]"
    text = f"Use {ranking.best.method} for this model: {value} on {_count(cell.n, table.unit)}."
    if rejected := [line.method for line in ranking.rejected]:
        verbs = ("scores", "was", "is") if len(rejected) == 1 else ("score", "were", "are")
        text += " {} {} higher, but {} tuned on deletion and {} not known to lead by mask.".format(
            _listed(rejected), *verbs
        )
    rivals = _rivals(table, ranking)
    if not rivals:
        return f"{text} No other method was measured."
    close = _close_rivals(table, inputs, ranking, rivals)
    if not close:
        others = "the other one" if len(rivals) == 1 else f"each of the {len(rivals)} others"
        return f"{text} Settled: it is significantly better than {others} (p < {SIGNIFICANT})."
    more = min(MORE * len(inputs), n_usable)
    example = f", for example --sample {more}" if more > len(inputs) else ""
    state = f"{_listed(close)} {'is' if len(close) == 1 else 'are'} not significantly worse (p ≥ {SIGNIFICANT})"
    return f"{text} Not settled: {state}; measure more {table.unit}s{example}."


def _deciding_columns(table: BenchTable) -> Iterator[Column]:
    """Yield the columns of `auto`, then other MoRF curves (those of a paper's protocol), then precision."""
    yield from main_columns(table)
    for column in table.columns:
        if column.plan is not None and column.plan.order == "morf" and isinstance(_metric_of(column), CurveMetric):
            yield column
    for column in table.columns:
        if column.plan is None and column.better and getattr(_metric_of(column), "needs_truth", False):
            yield column


def _metric_of(column: Column) -> object:
    return METRICS.get(column.metric.partition("@")[0])


def _rivals(table: BenchTable, ranking: Ranking) -> list[Line]:
    """Return the methods to test against. A tuned control is one only for tuned methods."""
    left_out = (ranking.best, *ranking.rejected)
    lines = [line for line in table.lines if ranking.column.name in line.cells and line not in left_out]
    tuned = ranking.best.tuned_on_deletion
    return [line for line in lines if tuned or not (line.control and line.tuned_on_deletion)]


def _close_rivals(
    table: BenchTable, inputs: Sequence[InputResult], ranking: Ranking, rivals: Sequence[Line]
) -> list[str]:
    """Return the methods that are not significantly worse; than one tuned on deletion, also by mask."""
    close = _not_worse(ranking.column, inputs, ranking.best, rivals)
    masked = masked_column(table)
    if ranking.best.tuned_on_deletion and masked is not None and masked.name in ranking.best.cells:
        close |= _not_worse(masked, inputs, ranking.best, [line for line in rivals if masked.name in line.cells])
    return [line.method for line in rivals if line.method in close]


def _not_worse(column: Column, inputs: Sequence[InputResult], best: Line, rivals: Sequence[Line]) -> set[str]:
    values, ps = _values(column, inputs), []
    own = values[best.method]
    for line in rivals:
        theirs = values[line.method]
        both = [number for number in own if number in theirs]
        ps.append(paired_p([own[n] for n in both], [theirs[n] for n in both]) if both else 1.0)
    return {
        line.method
        for line, p in zip(rivals, holm(ps), strict=True)
        if p >= SIGNIFICANT or _gain(line, column) >= _gain(best, column)
    }


def _values(column: Column, inputs: Sequence[InputResult]) -> Values:
    metric = _metric_of(column)
    if isinstance(metric, CurveMetric) and column.plan is not None:
        return metric.values(inputs, column.plan)
    name = column.metric.partition("@")[0]
    return by_method(inputs, lambda record, method: record.methods[method].values.get(name))


def _leads(line: Line, untuned: Sequence[Line], masked: Column | None) -> bool:
    """Whether a tuned method beats every untuned one by mask, provided that it was not tuned on that."""
    if masked is None or line.tuned_on_mask or any(masked.name not in other.cells for other in (line, *untuned)):
        return False
    return all(line.cells[masked.name].mean > other.cells[masked.name].mean for other in untuned)


def _gain(line: Line, column: Column) -> float:
    mean = line.cells[column.name].mean
    return -mean if column.better == "lower" else mean


def _listed(names: Sequence[str]) -> str:
    if len(names) > 3:
        return f"{', '.join(names[:2])} and {len(names) - 2} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _count(n: int, unit: str) -> str:
    return f"{n:,} {unit}{'s' * (n != 1)}"
