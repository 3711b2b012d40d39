"""run: measure methods on inputs in parts, save each finished part, and build the table."""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Any

from tqdm.auto import tqdm

from whichtoken import __version__
from whichtoken.bench import notes
from whichtoken.bench._protocol import Protocol, resolve_protocol
from whichtoken.bench.external import External, key_of
from whichtoken.bench.folder import Folder, Kept, result_rows
from whichtoken.bench.measure import Bench, Item, measure
from whichtoken.bench.metrics import METRICS
from whichtoken.bench.results import Part, every_input
from whichtoken.bench.selection import default_methods
from whichtoken.bench.table import summarise
from whichtoken.bench.verdict import verdict
from whichtoken.core.registry import resolve_methods
from whichtoken.core.trace import Method, describe_setting
from whichtoken.data.sources import BadRow, OnBadRow, refuse
from whichtoken.errors import BadInput, UsageError
from whichtoken.models import AnySubject, as_subject, copy_twin, count_workers, map_on_cores, return_memory_after_call
from whichtoken.tables import BenchTable
from whichtoken.tasks import BenchInput, Task, task_for

INPUTS_AT_ONCE, TOKENS_AT_ONCE = 16, 1024  # size of one part: what a killed run can lose
SHARES = 4  # of the inputs, for each worker


@dataclass(frozen=True)
class Sample:
    """The inputs of a benchmark in the order of measurement, with a digest that identifies them."""

    items: tuple[Item, ...]
    n_found: int  # before filtering and sampling
    n_without_truth: int  # left out because the protocol needs a gold label or answer
    digest: str
    n_usable: int = 0  # long enough, before sampling
    n_without_target: int = 0  # left out because the model gives nothing to explain about them


def run(
    subject: AnySubject,
    texts: Any,
    methods: str | Method | Iterable[str | Method] | None = None,
    labels: Any = None,
    protocol: str | Protocol = "recommended",
    out: str | Path | None = None,
) -> BenchTable:
    """Measure how faithful methods are on many inputs; return a table with intervals and tests.

    `texts`: a list, rows of a data set, or a file; for question answering, a file in SQuAD format or a list of
    `Question`; for images, a folder, a file with a column `image`, or a list; for models that generate text, prompts or
    a file with a column `prompt` or `messages`. `methods`: by default every supported
    method except the most expensive ones, controls included. `labels`: a list or the name of a column, for protocols
    that explain the gold class. `protocol`: a preset ("recommended", "quick", "full", or that of a paper:
    "contrast-cat", "attcat", "attcat-paper", "mask-lrp") or a `wt.bench.protocol(...)`. `out`: a folder for the table,
    curves, figures and a report; an interrupted run resumes there. `verdict` of the table says which method to use.
    """
    bench = prepare(subject, methods, resolve_protocol(protocol))
    return run_sample(bench, gather(bench, bench.task.examples(texts, labels, None)), Folder.at(out), {})


def prepare(
    subject: AnySubject,
    methods: str | Method | Iterable[str | Method] | Mapping[str, Method] | None,
    protocol: Protocol,
    external: External | None = None,
) -> Bench:
    """Check everything that can be checked before the inputs are read."""
    opened = as_subject(subject)
    protocol = protocol.adapt_to(task_for(opened))
    if protocol.max_tokens is not None:
        opened = replace(opened, max_tokens=protocol.max_tokens)
    task = task_for(opened.with_twin())
    if methods is None:
        methods = default_methods(task, bool(protocol.plans()), protocol.effort)
    by_name = methods if isinstance(methods, Mapping) else resolve_methods(methods)
    return Bench(task, by_name, protocol, external or {})


def gather(
    bench: Bench,
    examples: Iterable[BenchInput],
    only: Collection[tuple[str, ...]] | None = None,
    on_bad_row: OnBadRow = refuse,
) -> Sample:
    """Shuffle the inputs by the seed, so that a larger sample starts with the smaller one. `only`: keep these."""
    how, task = bench.protocol, bench.task
    needs_truth = how.target == "gold" or any(METRICS[name].needs_truth for name in how.metrics or ())
    items, n_found, n_without, digest = [], 0, 0, hashlib.sha256()
    for row, example in enumerate(examples):
        n_found += 1
        if only is not None and key_of(example.item) not in only:
            continue
        try:
            (document,) = task.encode([example.item], task.bench_long, row)
            gold = task.gold(example, document, row, how.part) if needs_truth else None
        except UsageError as error:
            if error.index is None and not error.place:  # not about this input
                raise
            error.place = example.where or error.place
            n_found -= 1
            on_bad_row(BadRow(row if example.row is None else example.row, error.place, error, example.item))
            continue
        if needs_truth and gold is None:
            n_without += 1
            continue
        n_tokens = task.n_tokens(document)
        if n_tokens >= (how.min_tokens or 1):
            items.append(Item(0, row, example.id, example.item, n_tokens, gold))
            digest.update(repr((task.document_key(document), gold and gold.target, n_tokens)).encode())
    if not items:
        raise BadInput(_empty_sample_message(bench, n_found, n_without, only is not None))
    Random(how.seed).shuffle(items)
    looked_at: list[bool] = []
    chosen = islice(_with_target(bench, items, looked_at), how.sample)
    sample = [replace(item, number=number) for number, item in enumerate(chosen)]
    if not sample:
        raise BadInput(f"none of the {len(items)} {task.unit}s has anything to explain: {task.no_result}")
    return Sample(tuple(sample), n_found, n_without, digest.hexdigest(), len(items), looked_at.count(False))


def _with_target(bench: Bench, items: Iterable[Item], looked_at: list[bool]) -> Iterator[Item]:
    """Yield the inputs that have something to explain, and add to `looked_at` whether each of them has."""
    for item in items:
        looked_at.append(bench.protocol.target == "gold" or bench.task.has_target(item.input))
        if looked_at[-1]:
            yield item


def _empty_sample_message(bench: Bench, n_found: int, n_without: int, scored: bool) -> str:
    unit = bench.task.unit
    if not n_found:
        return f"there are no {unit}s"
    counts_answers = any(METRICS[name].needs_truth for name in bench.protocol.metrics or ())
    if n_without == n_found and (n_found or counts_answers):
        return f"none of the {n_found} {unit}s has an answer; this metric needs gold answers"
    also = " and is scored in the attributions" if scored else ""
    least = f"has at least {bench.protocol.min_tokens} tokens{also}"
    return f"none of the {n_found} {unit}s {least}; give longer ones, or lower min_tokens"


def run_sample(bench: Bench, sample: Sample, folder: Folder | None, origin: Mapping[str, Any]) -> BenchTable:
    """Measure a sample and write the folder. `origin`: further entries of the specification, to reproduce the run."""
    if folder is not None:
        folder.claim(specification(bench, sample, origin), {"sample": bench.protocol.sample})
    parts = list(measure_parts(bench, sample.items, folder))
    table = build_table(bench, sample, parts)
    if folder is not None:
        folder.finish(table, result_rows(every_input(parts)))
    return table


def specification(bench: Bench, sample: Sample, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that determines the numbers; not the sample size, as more inputs can be added later."""
    settings, subject = bench.protocol.to_dict(), bench.task.subject
    del settings["sample"], settings["effort"]  # the metrics and methods that follow from it are listed
    for name, idle in _without_effect(bench).items():
        if idle:
            del settings[name]  # folders of versions without this setting can be resumed
    if len(subject.labels) <= 2 or not bench.protocol.compares("remaining"):
        del settings["other_classes"]  # likewise
    return {
        "model": subject.title,
        **vars(subject.identity()),
        "dtype": str(subject.model.dtype).removeprefix("torch."),
        "version": __version__,
        "methods": {
            key: {"method": m.name, "settings": {k: describe_setting(v) for k, v in m.settings.items()}}
            for key, m in bench.methods.items()
        },
        "references": str(subject.references),
        "heads": str(subject.heads),
        "inputs": sample.digest,
        "given": hashlib.sha256(repr(sorted(bench.external.items())).encode()).hexdigest() if bench.external else None,
        "protocol": settings,
        **({} if bench.task.reading() == "probability" else {"reading": bench.task.reading()}),
        **({} if subject.special_tokens == "control" else {"special_tokens": subject.special_tokens}),
        **origin,
    }


def _without_effect(bench: Bench) -> dict[str, bool]:
    how = bench.protocol
    return {
        "further_levels": not how.further_levels,
        "ablations": not how.ablates,
        "generate": not how.asks_for_text(bench.task),
    }


def measure_parts(bench: Bench, items: Sequence[Item], folder: Folder | None) -> Iterator[Part]:
    """Read the parts that were saved; measure the others on all cores, and save each when it is finished.

    Parts are yielded in order, each as soon as it and those before it are there.
    """
    unit = f" {bench.task.unit}s"
    # No smoothing: the mean over all inputs of this run estimates the time left better than the last few inputs.
    with tqdm(total=len(items), desc="measuring", unit=unit, disable=None, leave=False, smoothing=0) as bar:
        groups = list(split_groups(items))
        saved = [None if folder is None else read_saved(bench, group, folder) for group in groups]
        done = sum(_n_saved(group, kept) for group, kept in zip(groups, saved, strict=True))
        if not bar.disable:  # a disabled bar has no field `initial`
            bar.initial += done  # the time left is estimated from this run alone
        bar.update(done)
        left = [group[_n_saved(group, kept) :] for group, kept in zip(groups, saved, strict=True)]
        n_left = sum(map(len, left))
        workers = [bench, *(_copy_for_thread(bench) for _ in range(1, count_workers(bench.task.subject, n_left)))]
        shares = [(number, share) for number, items in enumerate(left) for share in _split(items, n_left, len(workers))]
        work = map_on_cores(lambda own, i: measure(own, shares[i][1], bar.update), workers, range(len(shares)))
        with closing(work):  # an error while a part is saved ends the workers, too
            known = [(i, kept.part) for i, kept in enumerate(saved) if kept is not None and not left[i]]
            new = _join_shares(work, [number for number, _ in shares], saved)
            yield from _in_order(chain(known, new if folder is None else _save_each(new, groups, folder)))
    return_memory_after_call()


def _split(items: Sequence[Item], n_left: int, n_workers: int) -> Iterator[Sequence[Item]]:
    """Split a group so that every worker gets several shares of all inputs, and none waits long at the end.

    A share has a logit cache of its own, so the number of evaluations depends slightly on the number of workers.
    """
    size = INPUTS_AT_ONCE if n_workers == 1 else max(1, n_left // (SHARES * n_workers))
    yield from (items[first : first + size] for first in range(0, len(items), size))


def _join_shares(
    work: Iterable[tuple[int, Part]], groups: Sequence[int], saved: Sequence[Kept | None]
) -> Iterator[tuple[int, Part]]:
    """Yield the number and the part of each group as soon as all its shares are measured. `groups`: of each share."""
    n_shares = Counter(groups)
    measured: dict[int, dict[int, Part]] = {}
    for share, part in work:
        number = groups[share]
        of_group = measured.setdefault(number, {})
        of_group[share] = part
        if len(of_group) == n_shares[number]:
            kept = saved[number]
            del measured[number]
            start = Part((), 0, 0) if kept is None else kept.part
            yield number, sum((of_group[i] for i in sorted(of_group)), start)


def _save_each(
    parts: Iterable[tuple[int, Part]], groups: Sequence[Sequence[Item]], folder: Folder
) -> Iterator[tuple[int, Part]]:
    """Save each part, and yield it."""
    for number, part in parts:
        folder.save_part(groups[number][0].number, groups[number][-1].number, part)
        yield number, part


def _in_order(work: Iterable[tuple[int, Part]]) -> Iterator[Part]:
    """Yield numbered parts in order, each as soon as it and those before it are there."""
    ready, following = dict[int, Part](), 0
    for number, part in work:
        ready[number] = part
        while following in ready:
            yield ready.pop(following)
            following += 1


def _n_saved(group: Sequence[Item], saved: Kept | None) -> int:
    return 0 if saved is None else saved.last + 1 - group[0].number


def _copy_for_thread(bench: Bench) -> Bench:
    return replace(bench, task=task_for(copy_twin(bench.task.subject)))


def read_saved(bench: Bench, group: Sequence[Item], folder: Folder) -> Kept | None:
    """Return what is saved of a group: all of it, or its first inputs if the sample was smaller."""
    saved = folder.longest_part(group[0].number, group[-1].number)
    if saved is not None:
        expected = {item.number: (item.row, bench.names_for(item)) for item in group}
        saved.check_complete(expected, may_skip=bench.protocol.min_probability > 0)
    return saved


def complete_group(bench: Bench, group: Sequence[Item], saved: Kept | None, folder: Folder) -> None:
    """Measure what is not saved of a group, and save it."""
    left = group[_n_saved(group, saved) :]
    if left:
        part = measure(bench, left)
        folder.save_part(group[0].number, group[-1].number, part if saved is None else saved.part + part)


def split_groups(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Split the inputs in order, so that the groups of a larger sample start with those of a smaller one."""
    group: list[Item] = []
    for item in items:
        full = sum(member.n_tokens for member in group) + item.n_tokens > TOKENS_AT_ONCE
        if len(group) == INPUTS_AT_ONCE or (group and full):
            yield group
            group = []
        group.append(item)
    yield group


def build_table(bench: Bench, sample: Sample, parts: Sequence[Part]) -> BenchTable:
    measured, how, task = every_input(parts), bench.protocol, bench.task
    if not measured:
        raise BadInput(f"no {task.unit} has a probability of at least {how.min_probability}")
    table = _mark_masked(summarise(measured, how.metrics or (), task.unit, how.k), bench.methods)
    table = _name_output(table, task.value_name)
    completed = notes.Run(task, how, measured, parts)
    return replace(
        table,
        verdict=verdict(table, measured, sample.n_usable),
        title=notes.title(completed, len(table.lines)),
        facts=(
            ("model", task.subject.title),
            *vars(task.subject.identity()).items(),
            (f"{task.unit}s", _describe_sample(completed, sample)),
            *notes.facts(completed),
        ),
        notes=tuple(notes.notes(table, completed)),
    )


def _mark_masked(table: BenchTable, methods: Mapping[str, Method]) -> BenchTable:
    """Mark the methods that ask by mask; external scores do not say how they were made."""
    by_mask = {name for name, m in methods.items() if m.tuned_on_deletion and "mask" in m.removals}
    return replace(
        table,
        lines=tuple(replace(line, tuned_on_mask=True) if line.method in by_mask else line for line in table.lines),
    )


def _name_output(table: BenchTable, value_name: str) -> BenchTable:
    """Name what is tracked; metrics only know that it is a value."""
    usual = Task.value_name
    columns = [replace(column, about=column.about.replace(usual, value_name)) for column in table.columns]
    return replace(table, columns=tuple(columns))


def _describe_sample(completed: notes.Run, sample: Sample) -> str:
    described = notes.describe_sample(completed, sample.n_found, sample.n_without_truth)
    left_out = f"; {sample.n_without_target} without anything to explain are left out"
    return described + left_out * (sample.n_without_target > 0)
