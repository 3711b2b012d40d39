"""Building reference libraries: scan a corpus for texts with a low class probability, then store their activations.

The scan computes probabilities only, with fused attention and no gradients, and keeps texts; the activations of the
selected texts are captured at the end.
"""

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from whichtoken.core.picks import anything
from whichtoken.core.rows import Row
from whichtoken.core.trace import Needs, Site, View
from whichtoken.data.examples import BUFFER, TextExample, count_examples, read_examples, shuffle
from whichtoken.data.sources import BadRow, OnBadRow, handler_of, refuse
from whichtoken.errors import BadInput, BadSetting, NotFinite, UsageError
from whichtoken.models.capture import capture
from whichtoken.models.encoding import batches, window_row
from whichtoken.models.memory import halve_if_needed, return_freed_memory
from whichtoken.models.opening import AnySubject, as_subject
from whichtoken.models.subject import Subject
from whichtoken.references.candidates import Candidate, Shelf
from whichtoken.references.library import Reference, ReferenceLibrary
from whichtoken.references.packing import Packed, pack
from whichtoken.references.recipe import PRESETS, Recipe
from whichtoken.references.store import check_folder, read, save
from whichtoken.settings import make_settings
from whichtoken.targets import clean_gold, label_index
from whichtoken.tasks import Task, task_for

TEXTS_AT_ONCE = 256

LIBRARIES_CACHED = 8  # libraries built from a method's `references=texts`, cached per model

_cached_libraries: WeakKeyDictionary[nn.Module, dict[str, ReferenceLibrary]] = WeakKeyDictionary()


def build(
    subject: AnySubject,
    texts: Any,
    labels: Any = None,
    *,
    columns: str | Sequence[str] | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> ReferenceLibrary:
    """Scan a corpus and keep, for each class, the texts with the lowest probability of that class.

    `texts`: a csv, tsv, jsonl or parquet file, a Hugging Face dataset, or any iterable of texts, pairs or rows.
    `labels`: one label per text, or the name of their column; in files and datasets the default is `label`.
    `columns`: the column of the texts, or both columns of pairs. `out`: the folder to store the library in.
    `settings`: those of `whichtoken.references.Recipe`, and `preset="repo"` for the authors' choices.
    """
    opened = as_subject(subject)
    recipe = make_settings(Recipe, "references.build", PRESETS, settings.pop("preset", None), settings)
    if out is not None:
        check_folder(out)
    examples = read_examples(texts, labels, columns)
    corpus = _Corpus(examples, count_examples(texts), handler_of(texts))
    library = _build_library(opened.with_twin(), recipe, corpus)
    if empty := [label for label, kept in zip(library.labels, library.references, strict=True) if not kept]:
        warnings.warn(f"no references for {', '.join(empty)}: nothing can be explained for that class", stacklevel=2)
    if out is not None:
        save(library, out)
    return library


def load(folder: str | Path, subject: AnySubject | None = None) -> ReferenceLibrary:
    """Read a stored library; LibraryMismatch if it was built for a model other than `subject`."""
    opened = None if subject is None else as_subject(subject)
    library = read(folder)
    if opened is not None:
        opened.check_library(library)
    return library


def library_of_texts(subject: Subject, references: Sequence[Any]) -> ReferenceLibrary:
    """Build a library of these texts; it is cached, so that the next batch does not build it again."""
    texts = list(references)
    contents = [subject.identity(), subject.max_tokens, subject.special_tokens, texts]
    key = hashlib.sha256(repr(contents).encode()).hexdigest()
    cached = _cached_libraries.setdefault(subject.origin or subject.model, {})
    library = cached.pop(key, None) or _build_from_texts(subject, texts)
    cached[key] = library  # most recently used last
    for oldest in list(cached)[:-LIBRARIES_CACHED]:
        cached.pop(oldest, None)
    return library


def _build_from_texts(subject: Subject, texts: Sequence[Any]) -> ReferenceLibrary:
    """Use every usable text, however short: the caller chose them."""
    wide = subject.model.dtype == torch.float64
    recipe = Recipe(
        scan="all", n=max(1, len(texts)), min_tokens=1, layers="all", dtype="float64" if wide else "float32"
    )
    return _build_library(subject, recipe, _Corpus(read_examples(texts), len(texts)))


@dataclass(frozen=True)
class _Corpus:
    examples: Iterable[TextExample]
    count: int | None
    on_bad_row: OnBadRow = refuse


def _build_library(subject: Subject, recipe: Recipe, corpus: _Corpus) -> ReferenceLibrary:
    labels, task = range(len(subject.labels)), task_for(subject)
    sources = 1 if recipe.rule in ("random", "same-class") else max(1, len(labels) - 1)
    scan_recipe = replace(recipe, rule=task.reference_rule(recipe.rule))  # type: ignore[arg-type]  # a str
    shelves = [Shelf(label, scan_recipe, sources) for label in labels]
    counts = _scan(task, recipe, shelves, corpus)
    selected = [shelf.choose() for shelf in shelves]
    _check_labels(subject, counts)
    if not any(selected):
        raise BadInput(
            f"no text can be used as a reference: {counts['n_scanned']} texts, {counts['n_short']} shorter than "
            f"min_tokens={recipe.min_tokens}, {counts['n_wrong']} misclassified; give more texts, or relax a rule"
        )
    identity = subject.identity()
    return ReferenceLibrary(
        model=subject.title,
        revision=identity.revision,
        processor=identity.processor,
        n_layers=subject.n_layers,
        labels=subject.labels,
        layers=tuple(_layers(recipe, subject.n_layers)),
        recipe=recipe,
        references=tuple(
            tuple(_reference(subject, recipe, c, label) for c in group) for label, group in enumerate(selected)
        ),
        packed=_capture_activations(task, recipe, selected),
        **counts,
    )


def _scan(task: Task, recipe: Recipe, shelves: Sequence[Shelf], corpus: _Corpus) -> dict[str, int]:
    """Offer every text to every class until the recipe's `scan` stops; return the counts."""
    subject = task.subject
    counts = {"n_scanned": 0, "n_short": 0, "n_labelled": 0, "n_wrong": 0}
    limit = recipe.scan if isinstance(recipe.scan, int) else None
    buffer = BUFFER if limit is None else min(BUFFER, 10 * limit)  # a short scan does not need to read far ahead
    source = corpus.examples if recipe.seed is None else shuffle(corpus.examples, recipe.seed, buffer)
    checked = False
    total = corpus.count if limit is None else min(limit, corpus.count or limit)
    with tqdm(total=total, desc="scanning for references", unit=" texts", disable=None) as bar:
        for chunk in _chunks(islice(source, limit)):
            for example, candidate in zip(chunk, _candidates(task, recipe, chunk, counts["n_scanned"]), strict=True):
                counts["n_scanned"] += 1
                bar.update()
                if candidate is None:
                    counts["n_short"] += 1
                    continue
                if not checked:  # fail now rather than after the scan
                    checked = bool(_capture_states(subject, recipe, {candidate.number: candidate.row}))
                try:
                    correct = _is_correct(subject, example, candidate) if recipe.correct_only else None
                except BadInput as error:
                    corpus.on_bad_row(BadRow(example.row, example.where, error, list(example.texts)))
                    continue
                counts["n_labelled"] += correct is not None
                if correct is False:
                    counts["n_wrong"] += 1
                    continue
                for shelf in shelves:
                    shelf.offer(candidate)
                if _is_done(recipe, shelves, counts["n_scanned"]):
                    return counts
    return counts


def _chunks(examples: Iterator[TextExample]) -> Iterator[list[TextExample]]:
    while chunk := list(islice(examples, TEXTS_AT_ONCE)):
        yield chunk


def _is_done(recipe: Recipe, shelves: Sequence[Shelf], n_scanned: int) -> bool:
    if recipe.scan == "first-full":
        return any(shelf.is_overfull for shelf in shelves)
    return recipe.scan == "full" and all(shelf.is_full(n_scanned) for shelf in shelves)


def _is_correct(subject: Subject, example: TextExample, candidate: Candidate) -> bool | None:
    """Return whether the model classifies a text correctly; None if its label is unknown, as in a test set (-1)."""
    label = clean_gold(example.label, subject.labels)
    if label is None:
        return None
    if len(subject.labels) == 1 and label in (0, 1):
        return bool(label) == (candidate.probabilities[0] >= 0.5)
    try:
        return label_index(label, subject.labels) == candidate.source
    except UsageError as error:
        labels = ", ".join(f"{i} {name}" for i, name in enumerate(subject.labels))
        raise BadInput(
            f"{example.where}: label {label!r:.40} of {example.texts[0]!r:.40} is not a label of the model: {labels}; "
            "correct it, or ignore labels with correct_only=False"
        ) from error


def _check_labels(subject: Subject, counts: dict[str, int]) -> None:
    """Raise BadInput if the model is worse than chance: it is untrained, or the labels are in another order."""
    chance = 1 - 1 / max(2, len(subject.labels))
    if counts["n_labelled"] >= 50 and counts["n_wrong"] > chance * counts["n_labelled"]:
        labels = ", ".join(f"{i} {name}" for i, name in enumerate(subject.labels))
        raise BadInput(
            f"the model misclassifies {counts['n_wrong']} of {counts['n_labelled']} texts; are their labels in the "
            f"model's order, {labels}? If so, use correct_only=False"
        )


def _candidates(task: Task, recipe: Recipe, examples: Sequence[TextExample], first: int) -> Iterator[Candidate | None]:
    """Yield a candidate per example, in order; None for texts that are too short."""
    rows = _rows(task, [example.texts for example in examples])
    usable = [i for i, row in enumerate(rows) if row is not None and len(row.ids) >= recipe.min_tokens]
    probabilities = _probabilities(task, [row for i in usable if (row := rows[i]) is not None])
    by_example = dict(zip(usable, probabilities, strict=True))
    for i, (example, row) in enumerate(zip(examples, rows, strict=True)):
        if row is None or i not in by_example:
            yield None
        else:
            p = by_example[i]
            yield Candidate(0.0, first + i, example.texts, row, int(p.argmax()), tuple(p.tolist()))


def _rows(task: Task, texts: Sequence[tuple[str, ...]]) -> list[Row | None]:
    """Return one row per text, truncated to the model's limit; None for a text without tokens."""
    task.check_references(texts)
    try:
        documents = task.encode(texts, "truncate", 0)
    except BadInput:  # one text is empty; encoding them one by one tells which
        return [None] if len(texts) == 1 else [row for item in texts for row in _rows(task, [item])]
    return [window_row(document, document.windows[0]) for document in documents]


def _probabilities(task: Task, rows: Sequence[Row]) -> list[Tensor]:
    subject, probabilities = task.subject, dict[int, Tensor]()
    for group in subject.batches([len(row) for row in rows]):
        p = task.class_probabilities(subject.logits(subject.batch([rows[i] for i in group])))
        if not p.isfinite().all():
            raise NotFinite(f"{subject.title} returns NaN or infinite logits for a text of the corpus")
        probabilities.update(zip(group, p.cpu(), strict=True))
    return_freed_memory()
    return [probabilities[i] for i in range(len(rows))]


def _layers(recipe: Recipe, n_layers: int) -> range:
    return {"inputs": range(n_layers), "outputs": range(1, n_layers + 1), "all": range(n_layers + 1)}[recipe.layers]


def _reference(subject: Subject, recipe: Recipe, candidate: Candidate, label: int) -> Reference:
    return Reference(
        probability=candidate.probabilities[label],
        n_tokens=len(candidate.row.ids),
        source=subject.labels[candidate.source],
        sha256=hashlib.sha256("\0".join(candidate.texts).encode(errors="surrogatepass")).hexdigest(),
        text=candidate.texts if recipe.keep_text else None,
    )


def _capture_activations(
    task: Task, recipe: Recipe, selected: Sequence[Sequence[Candidate]]
) -> tuple[Packed | None, ...]:
    """Capture each selected text once, even if it is a reference for several classes."""
    subject = task.subject
    rows = {c.number: c.row for group in selected for c in group}
    states = _capture_states(subject, recipe, rows)
    packed = tuple(_pack_states([states[c.number] for c in group], recipe) if group else None for group in selected)
    extras = [task.reference_extras([c.row for c in group]) if group else None for group in selected]
    return tuple(p and p.with_answers(answers) for p, answers in zip(packed, extras, strict=True))


def _pack_states(states: Sequence[Tensor], recipe: Recipe) -> Packed:
    layers, _, width = states[0].shape
    padded = states[0].new_zeros(len(states), layers, max(state.shape[1] for state in states), width)
    for target, state in zip(padded, states, strict=True):
        target[:, : state.shape[1]] = state
    return pack(padded, getattr(torch, recipe.dtype), recipe.compress)


def _capture_states(subject: Subject, recipe: Recipe, rows: dict[int, Row]) -> dict[int, Tensor]:
    """Return hidden states by text number: layer token dim."""
    numbers, layers = list(rows), _layers(recipe, subject.n_layers)
    largest = torch.finfo(torch.float32 if recipe.compress == "int8" else getattr(torch, recipe.dtype)).max
    required = Needs(values=frozenset({Site.HIDDEN}), view=View(recipe.mask_special))

    def run(group: Sequence[int]) -> list[Tensor]:
        trace = capture(subject, subject.batch([rows[numbers[i]] for i in group]), anything, required)
        return list(torch.stack(trace.value(Site.HIDDEN)[layers.start : layers.stop], 1).cpu())

    by_number: dict[int, Tensor] = {}
    lengths = [len(rows[number].ids) for number in numbers]
    with tqdm(total=len(rows), desc="storing activations", unit=" texts", disable=len(rows) == 1 or None) as bar:
        for group in batches(lengths, subject.fits):
            states = halve_if_needed(run, group)
            highest = float(torch.stack([state.abs().max() for state in states]).max())
            if not highest <= largest:
                maximum = f"{highest:.3g}"
                raise BadSetting(
                    "dtype", recipe.dtype, f"wider, such as float32: this model's activations reach {maximum}"
                )
            by_number.update((numbers[i], state[:, : lengths[i]]) for i, state in zip(group, states, strict=True))
            bar.update(len(group))
    return by_number
