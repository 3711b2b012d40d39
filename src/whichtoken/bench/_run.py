"""run: measure methods on inputs, part by part, each kept when it is finished; then the table."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from tqdm.auto import tqdm

from whichtoken import __version__
from whichtoken.bench import notes
from whichtoken.bench._protocol import Protocol, chosen_protocol
from whichtoken.bench.external import External, key_of
from whichtoken.bench.folder import Folder, result_rows
from whichtoken.bench.measure import Bench, Item, measure
from whichtoken.bench.metrics import METRICS
from whichtoken.bench.results import Part, every_input
from whichtoken.bench.selection import default_methods
from whichtoken.bench.table import summarise
from whichtoken.core.registry import chosen_methods
from whichtoken.core.trace import Method, written
from whichtoken.errors import BadInput
from whichtoken.models import Subject
from whichtoken.tables import BenchTable
from whichtoken.tasks import BenchInput, task_for

INPUTS_AT_ONCE, TOKENS_AT_ONCE = 16, 1024  # that are measured, and kept, together: what a killed run can lose


@dataclass(frozen=True)
class Sample:
    """The inputs of a benchmark, in the order in which they are measured, and what names them."""

    items: tuple[Item, ...]
    n_found: int  # before any were left out and a sample was drawn
    n_without_truth: int  # left out because a metric needs it
    digest: str


def run(
    subject: Subject,
    texts: Any,
    methods: Iterable[str | Method] | None = None,
    labels: Any = None,
    protocol: str | Protocol = "recommended",
    out: str | Path | None = None,
) -> BenchTable:
    """Measure how faithful methods are on many inputs: one table, with intervals and tests.

    `texts`: a list, rows of a data set, or a file; for a model that answers questions, a file in SQuAD's form or a list
    of `Question`; for images, a folder, a file with a column `image`, or a list. `methods`: by default every supported
    method except the most expensive ones, controls included. `labels`: a list or the name of a column, for protocols
    that explain the true class. `protocol`: a preset ("recommended", "contrast-cat", "attcat", "mask-lrp") or what
    `wt.bench.protocol` returns. `out`: a folder for the table, curves, figures and a report; a run that was interrupted
    continues there.
    """
    bench = prepare(subject, methods, chosen_protocol(protocol))
    return run_sample(bench, gather(bench, bench.task.examples(texts, labels, None)), Folder.at(out), {})


def prepare(
    subject: Subject,
    methods: Iterable[str | Method] | Mapping[str, Method] | None,
    protocol: Protocol,
    given: External | None = None,
) -> Bench:
    """Everything that can be refused before the inputs are read is refused here."""
    task = task_for(subject)
    suited = protocol.suited_to(task)
    if suited.max_tokens is not None:
        subject = replace(subject, max_tokens=suited.max_tokens)
    task = task_for(subject.twinned())
    if methods is None:
        methods = default_methods(task, curves=bool(suited.plans()))
    chosen = methods if isinstance(methods, Mapping) else chosen_methods(methods)
    return Bench(task, chosen, suited, given or {})


def gather(bench: Bench, examples: Iterable[BenchInput], only: Collection[tuple[str, ...]] | None = None) -> Sample:
    """In an order drawn from the seed, so that a larger sample begins with a smaller one. `only`: of these inputs."""
    how, task = bench.protocol, bench.task
    needs_truth = how.target == "gold" or any(METRICS[name].needs_truth for name in how.metrics or ())
    found, n_found, n_without, digest = [], 0, 0, hashlib.sha256()
    for row, example in enumerate(examples):
        n_found += 1
        if only is not None and key_of(example.item) not in only:
            continue
        try:
            (document,) = task.encode([example.item], task.bench_long, row)
        except BadInput as error:
            error.place = example.where or error.place
            raise
        gold = task.gold(example, document, row, how.part) if needs_truth else None
        if needs_truth and gold is None:
            n_without += 1
            continue
        n_tokens = task.n_tokens(document)
        if n_tokens >= (how.min_tokens or 1):
            found.append(Item(0, row, example.id, example.item, n_tokens, gold))
            digest.update(repr((task.named(document), gold and gold.target, n_tokens)).encode())
    if not found:
        raise BadInput(_nothing(bench, n_found, n_without, only is not None))
    Random(how.seed).shuffle(found)
    items = [replace(item, number=number) for number, item in enumerate(found[: how.sample])]
    return Sample(tuple(items), n_found, n_without, digest.hexdigest())


def _nothing(bench: Bench, n_found: int, n_without: int, scored: bool) -> str:
    unit = bench.task.unit
    counts_answers = any(METRICS[name].needs_truth for name in bench.protocol.metrics or ())
    if n_without == n_found and (n_found or counts_answers):
        return f"none of the {n_found} {unit}s has an answer, and there is nothing to count"
    also = " and was scored" if scored else ""
    return f"none of the {n_found} {unit}s has at least {bench.protocol.min_tokens} tokens{also}"


def run_sample(bench: Bench, sample: Sample, folder: Folder | None, origin: Mapping[str, Any]) -> BenchTable:
    """`origin`: what else the specification should hold, to make the same benchmark again."""
    if folder is not None:
        folder.claim(specification(bench, sample, origin), {"sample": bench.protocol.sample})
    parts = list(in_parts(bench, sample.items, folder))
    table = table_of(bench, sample, parts)
    if folder is not None:
        folder.finish(table, result_rows(every_input(parts)))
    return table


def specification(bench: Bench, sample: Sample, origin: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the numbers. The size of the sample does not: more inputs can be added."""
    settings, subject = bench.protocol.to_dict(), bench.task.subject
    del settings["sample"]
    return {
        "model": subject.title,
        "revision": subject.fingerprint(),
        "dtype": str(subject.model.dtype).removeprefix("torch."),
        "version": __version__,
        "methods": {
            key: {"method": m.name, "settings": {k: written(v) for k, v in m.settings.items()}}
            for key, m in bench.methods.items()
        },
        "references": str(subject.references),
        "heads": str(subject.heads),
        "inputs": sample.digest,
        "given": hashlib.sha256(repr(sorted(bench.given.items())).encode()).hexdigest() if bench.given else None,
        "protocol": settings,
        **origin,
    }


def in_parts(bench: Bench, items: Sequence[Item], folder: Folder | None) -> Iterator[Part]:
    """What was kept is read; the rest is measured, and kept."""
    with tqdm(total=len(items), desc="measuring", unit=f" {bench.task.unit}s", disable=None, leave=False) as bar:
        for group in _groups(items):
            first, last = group[0].number, group[-1].number
            kept = None if folder is None else folder.longest_part(first, last)
            done = 0 if kept is None else kept.last + 1 - first
            if not bar.disable:  # away from a terminal a bar has no such field
                bar.initial += done  # so that the time left is judged by what this run did
            if kept is not None and done == len(group):
                part = kept.part
            else:
                part = measure(bench, group[done:]) if kept is None else kept.part + measure(bench, group[done:])
                if folder is not None:
                    folder.keep_part(first, last, part)
            bar.update(len(group))
            yield part


def _groups(items: Sequence[Item]) -> Iterator[list[Item]]:
    """In their order, so that those of a larger sample begin with those of a smaller one."""
    group: list[Item] = []
    for item in items:
        full = sum(one.n_tokens for one in group) + item.n_tokens > TOKENS_AT_ONCE
        if len(group) == INPUTS_AT_ONCE or (group and full):
            yield group
            group = []
        group.append(item)
    yield group


def table_of(bench: Bench, sample: Sample, parts: Sequence[Part]) -> BenchTable:
    measured, how, task = every_input(parts), bench.protocol, bench.task
    if not measured:
        raise BadInput(f"no {task.unit} has a probability of at least {how.min_probability}")
    table = summarise(measured, how.metrics or (), task.unit, how.k)
    seen = notes.Run(task, how, measured, parts)
    return replace(
        table,
        title=notes.title(seen, len(table.lines)),
        facts=(
            ("model", task.subject.title),
            ("revision", task.subject.fingerprint()),
            (f"{task.unit}s", notes.sampled(seen, sample.n_found, sample.n_without_truth)),
            *notes.facts(seen),
        ),
        notes=tuple(notes.notes(table, seen)),
    )
