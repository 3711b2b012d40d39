"""compare: measure methods on texts, part by part, each kept when it is finished; then the table."""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from tqdm.auto import tqdm

from whichtoken import __version__
from whichtoken.bench import notes
from whichtoken.bench.folder import Folder, P, Reader, T, curve_rows
from whichtoken.bench.measure import Bench, Task, measure, plan_name
from whichtoken.bench.protocol import PROTOCOLS, Protocol, protocol
from whichtoken.bench.results import Part, every_text, read_part
from whichtoken.bench.selection import usual_methods
from whichtoken.bench.table import Asked, summarise
from whichtoken.core.objectives import label_index
from whichtoken.core.registry import chosen_methods
from whichtoken.core.trace import Method, written
from whichtoken.data import check_texts, read_examples
from whichtoken.errors import BadInput, UnknownName
from whichtoken.evaluating.inputs import check_perturbation, perturbation_of
from whichtoken.models import Subject
from whichtoken.settings import check_settings
from whichtoken.tables import BenchTable

TEXTS_AT_ONCE, TOKENS_AT_ONCE = 16, 1024  # that are measured, and kept, together: what a killed run can lose


@dataclass(frozen=True)
class Texts:
    """The texts of a benchmark, in the order in which they are measured, and what names them."""

    tasks: tuple[Task, ...]
    n_found: int  # before short ones were left out and a sample was drawn
    digest: str


def compare(
    subject: Subject,
    texts: Any,
    methods: Iterable[str | Method] | None = None,
    labels: Any = None,
    protocol: str | Protocol = "recommended",
    out: str | Path | None = None,
) -> BenchTable:
    """Measure how faithful methods are on texts: one table, with intervals and tests.

    `texts`: a list, rows of a data set, or a file. `methods`: by default all that the model can run, controls included,
    but the dearest. `labels`: a list or the name of a column, for protocols that explain the true class. `protocol`: a
    preset ("recommended", "contrast-cat", "attcat", "mask-lrp") or what `wt.protocol` returns. `out`: a folder for the
    table, curves, figures and a report; a run that was interrupted goes on there.
    """
    chosen = chosen_protocol(protocol)
    bench = Bench(subject, chosen_methods(usual_methods(subject) if methods is None else methods), chosen)
    return run(bench, gather(subject, read_examples(texts, labels), chosen), Folder.at(out), {})


def chosen_protocol(given: str | Protocol) -> Protocol:
    if isinstance(given, Protocol):
        check_settings(Protocol, "protocol", vars(given))
        return given
    if given not in ("recommended", *PROTOCOLS):
        raise UnknownName("protocol", given, ("recommended", *PROTOCOLS))
    return protocol(given)


def gather(
    subject: Subject, examples: Iterable[Any], how: Protocol, only: Collection[tuple[str, ...]] | None = None
) -> Texts:
    """In an order drawn from the seed, so that a larger sample begins with a smaller one. `only`: of these texts."""
    found, n_found, digest = [], 0, hashlib.sha256()
    for row, example in enumerate(examples):
        inputs = check_texts(example.texts, example.where)
        n_found += 1
        if only is not None and inputs not in only:
            continue
        label = None
        if how.target == "gold":
            if example.label is None:
                raise BadInput(f"{example.where}: this protocol explains the true class, and there is no label")
            label = label_index(example.label, subject.labels)
        n_tokens = len(subject.encode([inputs])[0].windows[0])
        if n_tokens >= how.min_tokens:
            found.append(Task(0, row, inputs, n_tokens, label))
            digest.update(repr((inputs, label, n_tokens)).encode())
    if not found:
        scored = "" if only is None else " and was scored"
        raise BadInput(f"none of the {n_found} texts has at least {how.min_tokens} tokens{scored}")
    Random(how.seed).shuffle(found)
    tasks = [replace(task, number=number) for number, task in enumerate(found[: how.sample])]
    return Texts(tuple(tasks), n_found, digest.hexdigest())


def run(bench: Bench, texts: Texts, folder: Folder | None, origin: Mapping[str, Any]) -> BenchTable:
    """`origin`: what else the specification should hold, to make the same benchmark again."""
    for how in bench.protocol.perturbations:
        check_perturbation(bench.subject, perturbation_of(how))
    if folder is not None:
        folder.claim(specification(bench, texts, origin), {"sample": bench.protocol.sample})
    parts = list(in_parts(texts.tasks, partial(measure, bench), folder, read_part))
    table = table_of(bench, texts, parts)
    if folder is not None:
        folder.finish(table, curve_rows(every_text(parts)))
    return table


def specification(bench: Bench, texts: Texts, origin: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the numbers. The size of the sample does not: more texts can be added."""
    settings = bench.protocol.to_dict()
    del settings["sample"]
    return {
        **made_with(bench.subject, bench.methods),
        "texts": texts.digest,
        "given": hashlib.sha256(repr(sorted(bench.given.items())).encode()).hexdigest() if bench.given else None,
        "protocol": settings,
        **origin,
    }


def made_with(subject: Subject, methods: Mapping[str, Method]) -> dict[str, Any]:
    return {
        "model": subject.title,
        "revision": subject.fingerprint(),
        "dtype": str(subject.model.dtype).removeprefix("torch."),
        "version": __version__,
        "methods": {
            key: {"method": m.name, "settings": {k: written(v) for k, v in m.settings.items()}}
            for key, m in methods.items()
        },
        "references": str(subject.references),
        "heads": str(subject.heads),
    }


def in_parts(
    tasks: Sequence[T], measure: Callable[[Sequence[T]], P], folder: Folder | None, read: Reader[P]
) -> Iterator[P]:
    """What was kept is read; the rest is measured, and kept."""
    with tqdm(total=len(tasks), desc="measuring", unit=" inputs", disable=None, leave=False) as bar:
        for group in _groups(tasks):
            first, last = group[0].number, group[-1].number
            kept = None if folder is None else folder.longest_part(first, last, read)
            done = 0 if kept is None else kept.last + 1 - first
            if not bar.disable:  # away from a terminal a bar has no such field
                bar.initial += done  # so that the time left is judged by what this run did
            if kept is not None and done == len(group):
                part = kept.part
            else:
                part = measure(group[done:]) if kept is None else kept.part + measure(group[done:])
                if folder is not None:
                    folder.keep_part(first, last, part)
            bar.update(len(group))
            yield part


def _groups(tasks: Sequence[T]) -> Iterator[list[T]]:
    """In their order, so that those of a larger sample begin with those of a smaller one."""
    group: list[T] = []
    for task in tasks:
        if len(group) == TEXTS_AT_ONCE or (group and sum(t.n_tokens for t in group) + task.n_tokens > TOKENS_AT_ONCE):
            yield group
            group = []
        group.append(task)
    yield group


def table_of(bench: Bench, texts: Texts, parts: Sequence[Part]) -> BenchTable:
    measured = every_text(parts)
    if not measured:
        raise BadInput(f"no text has a probability of at least {bench.protocol.min_probability}")
    plans = tuple(plan_name(plan) for plan in bench.protocol.plans())
    how = bench.protocol
    table = summarise(measured, Asked(how.metrics, plans, how.absolute, how.kendall))
    return replace(
        table,
        title=f"{bench.subject.title}: how faithful are {len(table.lines)} methods?",
        facts=(
            ("model", bench.subject.title),
            ("revision", bench.subject.fingerprint()),
            ("texts", f"{len(measured)} of {texts.n_found}, of at least {how.min_tokens} tokens, seed {how.seed}"),
            *notes.facts(how, measured, parts),
        ),
        notes=tuple(notes.notes(table, measured)),
    )
