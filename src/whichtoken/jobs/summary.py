"""summarise_corpus: a summary of the explanations of a corpus. No torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

from whichtoken.errors import BadArtifact, BadSetting, UnknownName, UsageError
from whichtoken.identity import read_identity
from whichtoken.jobs.manifest import CorpusManifest, read_manifest
from whichtoken.jobs.parts import check_hash
from whichtoken.jobs.query import (
    CHANGED_EFFECTS,
    CHANGED_FREQUENCIES,
    DECIDING,
    ERROR_RATE,
    EXAMPLES,
    LABELS,
    WRONG_EXAMPLES,
    ShardQueries,
    Z,
    open_queries,
)
from whichtoken.jobs.shards import FIX, read_shard, shard_files
from whichtoken.jobs.shortcuts import LEAST, find_shortcuts
from whichtoken.records import Attribution, Prediction, Source
from whichtoken.summaries import (
    CorpusDrift,
    CorpusSummary,
    DecidingWord,
    LabelCount,
    ShortcutCandidate,
    WordChange,
    WordEffect,
)
from whichtoken.targets import Class

LOOKED_AT = 2000  # influential words that may be shortcuts
EXAMPLES_EACH = 2
SHOWN_LABELS = 20  # labels with their own lists; the most frequent ones
CASED = 0.02  # share of capitals inside texts, above which texts are not all in lower case


def summarise_corpus(
    folder: str | Path,
    method: str | None = None,
    before: str | Path | None = None,
    top: int = 15,
    min_count: int = 5,
) -> CorpusSummary:
    """Return the words that support and oppose each label in a finished corpus job, and candidates for shortcuts.

    `method`: if the job has several. `before`: the folder of an earlier job, for what has changed since. `top`: words
    of each list. `min_count`: texts that a word must occur in.
    """
    if top < 1 or min_count < 2:
        raise BadSetting("top, min_count", (top, min_count), "at least 1 and 2")
    where = Path(folder).expanduser()
    manifest = read_finished(where)
    chosen = choose_method(manifest, method, where)
    with open_queries(min_count) as queries:
        queries.open("now", where, chosen)
        labels = tuple(LabelCount(*row) for row in queries.rows(LABELS))
        named = [of.label for of in labels[:SHOWN_LABELS]]
        supports = {name: _words(queries, "low > 0", "low DESC", top, name) for name in named}
        opposes = {name: _words(queries, "high < 0", "high", top, name) for name in named}
        shortcuts = _shortcuts(queries, top)
        mistakes, rate = _mistakes(queries, top)
        drift = None if before is None else _drift(queries, Path(before).expanduser(), chosen, top)
        found = _find_examples(queries, [*supports.values(), [s.effect for s in shortcuts]], list(opposes.values()))
        wrong = queries.examples(WRONG_EXAMPLES, [(m.predicted, m.word) for m in mistakes], count=EXAMPLES_EACH)
        rows = sorted({row for of in (*found.values(), *wrong.values()) for row in of})
        tuned = bool(manifest.spec["methods"][chosen].get("tuned_on_deletion"))
        examples = _records(queries.results(rows), manifest, tuned)
    return CorpusSummary(
        folder=str(folder),
        model=manifest.model,
        identity=read_identity(manifest.spec),
        method=chosen,
        tuned_on_deletion=tuned,
        n_rows=manifest.n_rows,
        n_failed=manifest.n_failed,
        n_explained=manifest.n_explained,
        min_count=min_count,
        labels=labels,
        supports={name: _with_examples(words, found, 1) for name, words in supports.items()},
        opposes={name: _with_examples(words, found, -1) for name, words in opposes.items()},
        mistakes=tuple(replace(m, examples=wrong.get((m.predicted, m.word), ())) for m in mistakes),
        error_rate=rate,
        shortcuts=tuple(ShortcutCandidate(_with_examples([s.effect], found, 1)[0], s.kinds) for s in shortcuts),
        drift=drift,
        examples=examples,
    )


def read_finished(folder: Path) -> CorpusManifest:
    """Return the manifest of a finished job; BadArtifact unless its shards are those that it wrote, and no others."""
    manifest, files = read_manifest(folder), shard_files(folder)
    paths = {name: files.path(*files.read_range(Path(name))) for name, _ in manifest.shards}
    files.check_known({files.read_range(path) for path in paths.values()})
    missing = [name for name, path in paths.items() if not path.is_file()]
    if missing:
        raise BadArtifact(
            f"{folder} has lost {len(missing):,} of its {len(manifest.shards):,} shards, the first is {missing[0]}; "
            "run whichtoken corpus explain again, and their rows are explained again"
        )
    for name, written in manifest.shards:
        _, info = read_shard(paths[name], manifest.spec_sha256)
        check_hash(paths[name], written, info.sha256, FIX)
    return manifest


def choose_method(manifest: CorpusManifest, method: str | None, folder: Path) -> str:
    """Return the method to summarise: the one of the job, or the one that was named."""
    names = list(manifest.spec.get("methods", {}))
    if method is None and len(names) > 1:
        choose = f"corpus summary --method {names[0]}, or serve --corpus-method {names[0]}"
        raise UsageError(f"{folder} has results of {', '.join(names)}; choose one: {choose}")
    if method is not None and method not in names:
        raise UnknownName(f"method of {folder}", method, names)
    return method or names[0]


def _words(queries: ShardQueries, condition: str, order: str, top: int, label: str) -> tuple[WordEffect, ...]:
    return tuple(WordEffect(*row) for row in queries.effects(condition, order, top, label))


def _shortcuts(queries: ShardQueries, top: int) -> list[ShortcutCandidate]:
    effects = [WordEffect(*row) for row in queries.effects(f"low >= {LEAST}", "low DESC", LOOKED_AT)]
    ((capitals,),) = queries.rows("SELECT coalesce(sum(capitalised * n_texts) / sum(n_texts), 0) FROM now_words")
    return find_shortcuts(effects, capitals >= CASED)[:top]


def _mistakes(queries: ShardQueries, top: int) -> tuple[list[DecidingWord], float | None]:
    ((rate,),) = queries.rows(ERROR_RATE)
    if rate is None:
        return [], None
    rows = queries.rows(DECIDING, limit=top)
    return [DecidingWord(label, word, wrong, n, *wilson_interval(wrong, n)) for label, word, wrong, n in rows], rate


def wilson_interval(count: int, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson)."""
    share, scale = count / n, 1 + Z**2 / n
    middle = (share + Z**2 / (2 * n)) / scale
    half = Z * sqrt(share * (1 - share) / n + Z**2 / (4 * n**2)) / scale
    return max(0.0, middle - half), min(1.0, middle + half)


def _drift(queries: ShardQueries, before: Path, method: str, top: int) -> CorpusDrift:
    manifest = read_finished(before)
    queries.open("before", before, choose_method(manifest, method, before))
    counts = [{label: n for label, n, *_ in queries.rows(LABELS, name=name)} for name in ("before", "now")]
    totals = [sum(of.values()) or 1 for of in counts]
    shares = [
        (label, *(of.get(label, 0) / total for of, total in zip(counts, totals, strict=True)))
        for label in sorted(counts[0].keys() | counts[1].keys())
    ]
    return CorpusDrift(
        before=str(before),
        identity=read_identity(manifest.spec),
        n_before=manifest.n_explained,
        labels=tuple((label, was, now) for label, was, now in shares),
        effects=tuple(WordChange(*row) for row in queries.rows(CHANGED_EFFECTS, limit=top)),
        frequencies=tuple(WordChange(*row) for row in queries.rows(CHANGED_FREQUENCIES, limit=top)),
    )


Found = Mapping[tuple[str, str, int], tuple[int, ...]]  # rows by label, word and sign of the effect


def _find_examples(
    queries: ShardQueries, above: Iterable[Sequence[WordEffect]], below: Iterable[Sequence[WordEffect]]
) -> Found:
    found: dict[tuple[str, str, int], tuple[int, ...]] = {}
    for sign, groups in ((1, above), (-1, below)):
        pairs = list(dict.fromkeys((effect.label, effect.word) for group in groups for effect in group))
        rows = queries.examples(EXAMPLES, pairs, sign=sign, count=EXAMPLES_EACH)
        found |= {(label, word, sign): of for (label, word), of in rows.items()}
    return found


def _with_examples(effects: Iterable[WordEffect], found: Found, sign: int) -> tuple[WordEffect, ...]:
    return tuple(replace(effect, examples=found.get((effect.label, effect.word, sign), ())) for effect in effects)


def _records(results: Sequence[Mapping[str, Any]], manifest: CorpusManifest, tuned: bool) -> dict[int, Attribution]:
    """Return the attribution of each row, with words as its tokens; the first result of a row counts."""
    records: dict[int, Attribution] = {}
    for result in results:
        if result["row"] not in records:
            records[result["row"]] = _record(result, manifest, tuned)
    return records


def _record(result: Mapping[str, Any], manifest: CorpusManifest, tuned: bool) -> Attribution:
    words, texts = tuple(result["words"]), result["texts"]
    sequences, spans = tuple(result["text_of_word"]), tuple(zip(result["starts"], result["ends"], strict=True))
    if texts is None:  # texts are not stored: the words are shown with spaces between them
        texts, at, sequences, joined = [" ".join(words)], 0, (0,) * len(words), []
        for word in words:
            joined.append((at, at + len(word)))
            at += len(word) + 1
        spans = tuple(joined)
    predicted = result["predicted"]
    return Attribution(
        texts=tuple(texts),
        tokens=words,
        spans=spans,
        sequences=sequences,
        word_ids=tuple(range(len(words))),
        scores=tuple(result["scores"]),
        label=result["label"],
        target=Class(result["label"]),
        probability=result["probability"],
        method=result["method"],
        settings={},
        tuned_on_deletion=tuned,
        model=manifest.model,
        revision=manifest.revision,
        processor=read_identity(manifest.spec).processor,
        n_cut=result["n_cut"],
        n_windows=1,
        value=result["value"],
        predicted=None if predicted is None else Prediction(predicted, result["probability"] or 0.0),
        source=Source(result["row"], result["id"], result["gold"]),
    )
