"""Title, facts and notes of a benchmark table: what was run and how to read it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from whichtoken.bench._protocol import Protocol
from whichtoken.bench.metrics import METRICS, aopc_of_methods, is_measurable
from whichtoken.bench.results import COVERAGE, InputResult, Part
from whichtoken.core.removal_steps import find_grid
from whichtoken.references.coverage import coverage_note
from whichtoken.tables import BenchTable
from whichtoken.targets import Part as PartOfAnswer
from whichtoken.tasks import Task

PARTS: Mapping[PartOfAnswer, str] = {
    "both": "a map of the start's logit and one of the end's, added up",
    "sum": "one map, of the sum of the two logits",
    "start": "the start's logit",
    "end": "the end's logit",
}


@dataclass(frozen=True)
class Run:
    """A measured benchmark: task, protocol and results."""

    task: Task
    protocol: Protocol
    inputs: Sequence[InputResult]
    parts: Sequence[Part]

    @property
    def counts_answers(self) -> bool:
        return any(METRICS[name].needs_truth for name in self.protocol.metrics or ())

    @property
    def draws_curves(self) -> bool:
        return bool(self.protocol.plans())


def title(run: Run, n_methods: int) -> str:
    model = run.task.subject.title
    if run.counts_answers and not run.draws_curves:
        return (
            f"{model}: how much of the answers {'does 1 method' if n_methods == 1 else f'do {n_methods} methods'} find?"
        )
    return f"{model}: how faithful {'is 1 method' if n_methods == 1 else f'are {n_methods} methods'}?"


def describe_sample(run: Run, n_found: int, n_without: int) -> str:
    how, n = run.protocol, len(run.inputs)
    if run.counts_answers:
        return (
            f"{n} of {n_found - n_without} that have an answer, seed {how.seed}; "
            f"{n_without} unanswerable ones are left out"
        )
    return f"{n} of {n_found}, of at least {how.min_tokens} tokens, seed {how.seed}"


def facts(run: Run) -> Iterator[tuple[str, str]]:
    how, tokens = run.protocol, [record.n_tokens for record in run.inputs]
    cut = sum(record.n_cut > 0 for record in run.inputs)
    if run.counts_answers:
        yield "k", f"{how.k}"
        own = "the model's answer, each end where its logit is highest, anywhere in the input"
        yield "explained", f"{own if how.target == 'predicted' else 'the true answer'}: {PARTS[how.part]}"
    elif run.task.reading() == "value":
        yield "output", run.task.describe_output(run.inputs[0].label)
    else:
        yield run.task.explained, "the predicted one" if how.target == "predicted" else "the true one"
    if run.draws_curves:
        levels = ", ".join(f"{level} by {level}" for level in how.levels)
        yield "perturbation", f"{', '.join(how.perturbations or ())}, {levels}"
        parts = dict.fromkeys(find_grid(name).words for name in how.grids)
        yield "steps", f"{', '.join(how.grids)} of {', '.join(parts)}"
    lengths = f"{min(tokens)} to {max(tokens)} tokens, mean {sum(tokens) / len(tokens):.0f}"
    limit = f"at most {how.max_tokens}, only the context is cut"
    yield "lengths", f"{lengths}; {limit if run.counts_answers else f'{cut} {run.task.unit}s cut'}"
    if run.counts_answers:
        yield from _answers(run)
    if run.draws_curves:
        asked, evaluated = sum(part.asked for part in run.parts), sum(part.evaluated for part in run.parts)
        shared = f"{1 - evaluated / max(asked, 1):.0%} shared"
        yield "evaluations", f"{asked:,} perturbed {run.task.unit}s requested, {evaluated:,} evaluated: {shared}"


def _answers(run: Run) -> Iterator[tuple[str, str]]:
    known, k = [record.truth for record in run.inputs if record.truth is not None], run.protocol.k
    cut = sum(truth.cut_off for truth in known)
    length = sum(truth.n_tokens for truth in known) / len(known)
    ceiling = sum(min(truth.n_tokens, k) for truth in known) / len(known)
    yield "answers", f"mean length {length:.2f} tokens; precision@{k} can be at most {ceiling:.2f}"
    yield "cut off", f"{cut} answer{'s' * (cut != 1)}, each counted as the span (0, 0): the first token"
    right = sum(truth.right for truth in known)
    yield "right", f"{right} of the model's answers, of {len(known) - cut} that are not cut off"


def notes(table: BenchTable, run: Run) -> Iterator[str]:
    yield from _class_notes(table, run)
    yield from _answer_notes(run) if run.counts_answers else _curve_notes(table, run)
    yield from _coverage_notes(run)
    controls = [line.method for line in table.lines if line.control]
    if run.counts_answers and controls:
        yield "random is a control, not an explanation."
    elif controls:
        yield "random and refined-noise are controls, not explanations."


def _class_notes(table: BenchTable, run: Run) -> Iterator[str]:
    """Say which metrics compare with some of the remaining classes only, or have no column because there are none."""
    between = ", ".join(name for name in run.protocol.metrics or () if METRICS[name].between_classes)
    if between and not run.task.has_classes:
        yield f"Left out, because {run.task.unit}s have no classes to compare: {between}."
    elif between and run.task.reading() == "probability" and len(run.task.subject.labels) < 2:
        yield f"Left out, because this model has no other class to compare with: {between}."
    n_remaining, most = len(run.task.subject.labels) - 1, run.protocol.other_classes
    for name in dict.fromkeys(column.metric for column in table.columns if column.metric in METRICS):
        if METRICS[name].between_classes == "remaining" and n_remaining > most:
            which = f"the {most} most probable of the {n_remaining} remaining classes"
            yield f"{name} compares the explained class with {which} (other_classes)."


def _coverage_notes(run: Run) -> Iterator[str]:
    """Say so if references are too short for these inputs."""
    results = [result.values for record in run.inputs for result in record.methods.values()]
    shares = [values[COVERAGE] for values in results if COVERAGE in values]
    if note := coverage_note(fmean(shares) if shares else None, f"the {run.task.unit}s on average"):
        yield f"{note}."


def _answer_notes(run: Run) -> Iterator[str]:
    k = run.protocol.k
    yield (
        "Intervals: 95 % bootstrap over questions. p: sign-flip test of the counts against the best of the column on "
        "the same questions, corrected for the number of methods (Holm)."
    )
    yield (
        f"precision@{k} is a count, as AttCAT reports it; share@{k} is what Mask-LRP reports as precision. All "
        f"tokens are ranked, including those of the question and special tokens; ties by position."
    )
    if any(record.truth is not None and record.truth.cut_off for record in run.inputs):
        yield "Answers that were cut off are counted as in the papers; 'answers inside' excludes these questions."


def _curve_notes(table: BenchTable, run: Run) -> Iterator[str]:
    unit = run.task.unit
    left_out = [name for name in run.protocol.metrics or () if not is_measurable(name, run.task.reading())]
    if left_out:
        reason = "they need probabilities or classes and this model predicts a value"
        yield f"Left out, because {reason}: {', '.join(left_out)}."
    yield (
        f"Mean over {unit}s and 95 % bootstrap interval. p: sign-flip test against the best of the column on the same "
        f"{unit}s, corrected for the number of methods (Holm)."
    )
    if any(line.tuned_on_deletion for line in table.lines):
        yield (
            "* tuned on deletion: the method evaluated shortened inputs (deletion curves of its own, or subsets of the "
            "words) to compute its scores, so deletion metrics flatter it; mask metrics do not, unless its settings "
            "replace words by the mask token. refined-noise is the control of the search on curves: the same on noise."
        )
    bounded = [record for record in run.inputs if any(planned.lower is not None for planned in record.plans)]
    if bounded:
        exact = sum(all(planned.exact for planned in record.plans if planned.lower is not None) for record in bounded)
        over = sum(_beats_search(record) for record in bounded)
        yield (
            f"Normalised AOPC: bounds for {len(bounded)} of {len(run.inputs)} {unit}s, {exact} of them exact, the "
            f"others by a search; in {over} {unit}s a method's order was better or worse than those of the search "
            "and is used as the bound."
        )


def _beats_search(record: InputResult) -> bool:
    """Whether a method's order lies outside the bounds found by the search."""
    for planned in record.plans:
        if planned.lower is None or planned.upper is None:
            continue
        slack = 1e-6 * (planned.upper - planned.lower)
        low, high = planned.lower - slack, planned.upper + slack
        if any(not low <= value <= high for value in aopc_of_methods(record, planned.plan)):
            return True
    return False
