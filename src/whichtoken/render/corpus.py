"""The summary of a corpus as tables of text, for a terminal, and as one offline page with bars and explained examples.

Everything is escaped by jinja2; the page has no script, and its content security policy allows only its own style
sheet. No torch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whichtoken.atomic_write import open_whole, write_whole
from whichtoken.flat import write_parquet
from whichtoken.identity import UNCHECKED
from whichtoken.render.html import environment, read_template, style_sheet
from whichtoken.render.rows import Look, effects_of, panels, visible
from whichtoken.summaries import CorpusDrift, CorpusSummary, DecidingWord, ShortcutCandidate, WordChange, WordEffect

HALF = 80  # pixels of a bar for a share of 1
# The columns of a summary in a parquet file, and their types.
COLUMNS = {
    "label": "string",
    "list": "string",  # supports, opposes, shortcut, mistake
    "word": "string",
    "n_texts": "int64",
    "score": "float64",
    "share": "float64",
    "low": "float64",
    "high": "float64",
    "purity": "float64",
    "n_wrong": "int64",
    "kinds": "string",
    "examples": "string",
}


@dataclass(frozen=True)
class Bar:
    """A share and its interval in pixels from the left of a picture that is 2 * HALF wide."""

    start: float
    width: float
    low: float
    high: float
    supports: bool

    @classmethod
    def of(cls, share: float, low: float, high: float) -> "Bar":
        ends = sorted((HALF, HALF + HALF * share))
        low, high = (HALF + HALF * max(-1.0, min(1.0, bound)) for bound in (low, high))
        return cls(round(ends[0], 1), round(ends[1] - ends[0], 1), round(low, 1), round(high, 1), share > 0)


@dataclass(frozen=True)
class ShownTable:
    """A table of texts; rows may have a bar and examples. All strings are safe to print."""

    title: str
    note: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bars: tuple[Bar | None, ...] = ()
    examples: tuple[tuple[int, ...], ...] = ()


def title_of(summary: CorpusSummary) -> str:
    return f"{summary.n_explained:,} texts explained by {visible(summary.method)} \N{EM DASH} {visible(summary.model)}"


def facts_of(summary: CorpusSummary) -> list[tuple[str, str]]:
    """Return what the summary is about, and how it was made."""
    labels = ", ".join(f"{visible(of.label)} {of.n_texts:,}" for of in summary.labels)
    facts = [("folder", visible(summary.folder)), ("rows", f"{summary.n_rows:,}"), ("failed", f"{summary.n_failed:,}")]
    if summary.error_rate is not None:
        facts.append(("wrong predictions", _percent(summary.error_rate)))
    if not summary.identity.processor:
        facts.append(("processor", UNCHECKED))
    return [*facts, ("labels", labels), ("words", f"in at least {summary.min_count} texts of a label")]


def tables_of(summary: CorpusSummary) -> list[ShownTable]:
    """Return all tables, in the order in which they are read."""
    share = "The share is the word's score divided by the largest score in its text, averaged over its texts"
    tables = []
    for label in summary.supports:
        name = visible(label)
        tables.append(_effects(f"Words that support {name}", share, summary.supports[label]))
        lower = f"These words lower the model's output for {name}. {share}"
        tables.append(_effects(f"Words that oppose {name}", lower, summary.opposes[label]))
    tables.append(_shortcuts(summary.shortcuts))
    if summary.error_rate is not None:
        tables.append(_mistakes(summary.mistakes, summary.error_rate))
    return tables + ([] if summary.drift is None else _drift(summary.drift))


def _effects(title: str, note: str, effects: Sequence[WordEffect]) -> ShownTable:
    rows = [(visible(e.word), *_share(e), f"{e.n_texts:,}", f"{e.score:+.3g}") for e in effects]
    return _with_bars(
        ShownTable(title, note, ("word", "share", "95 % interval", "texts", "score"), tuple(rows)), effects
    )


def _with_bars(table: ShownTable, effects: Sequence[WordEffect]) -> ShownTable:
    bars = tuple(Bar.of(effect.share, effect.low, effect.high) for effect in effects)
    return ShownTable(table.title, table.note, table.head, table.rows, bars, tuple(e.examples for e in effects))


def _shortcuts(candidates: Sequence[ShortcutCandidate]) -> ShownTable:
    note = (
        "These words have much influence but little meaning. If such a word should not matter, remove it from some "
        "texts and see whether the prediction changes. The last column: of the texts with this word, how many are "
        "explained for this label"
    )
    rows = [
        (visible(of.word), visible(of.label), ", ".join(c.kinds), *_share(of), f"{of.n_texts:,}", _percent(of.purity))
        for c in candidates
        for of in (c.effect,)
    ]
    head = ("word", "label", "why", "share", "95 % interval", "texts", "for this label")
    return _with_bars(ShownTable("Candidate shortcuts", note, head, tuple(rows)), [c.effect for c in candidates])


def _mistakes(words: Sequence[DecidingWord], rate: float) -> ShownTable:
    note = (
        "Where one of these words supports the prediction most, the prediction is wrong more often than usual. Of all "
        f"predictions, {_percent(rate)} are wrong"
    )
    rows = [
        (visible(w.word), visible(w.predicted), f"{w.n_wrong:,} of {w.n_texts:,}", _percent(w.rate), between)
        for w in words
        for between in (f"{_percent(w.low)} to {_percent(w.high)}",)
    ]
    head = ("word", "predicted", "wrong", "rate", "95 % interval")
    examples = tuple(word.examples for word in words)
    return ShownTable("Words that decide wrong predictions", note, head, tuple(rows), (None,) * len(rows), examples)


def _drift(drift: CorpusDrift) -> list[ShownTable]:
    before = f"Before: {visible(drift.before)}, {drift.n_before:,} texts{drift.identity.note}"
    labels = [(visible(label), _percent(was), _percent(now)) for label, was, now in drift.labels]
    effects = [
        (*_change(c), f"{c.before:+.2f}", f"{c.after:+.2f}", f"{c.low:+.2f} to {c.high:+.2f}") for c in drift.effects
    ]
    often = [
        (*_change(c), _percent(c.before), _percent(c.after), f"{c.low:.2g} to {c.high:.2g} times")
        for c in drift.frequencies
    ]
    head = ("word", "label", "before", "now", "95 % interval of the change")
    note = "among many words, some differ by chance"
    return [
        ShownTable("Labels, before and now", before, ("label", "before", "now"), tuple(labels)),
        ShownTable("Words whose effect has changed", f"Mean shares; {note}", head, tuple(effects)),
        ShownTable(
            "Words whose frequency has changed",
            f"Percentage of the label's texts that contain the word; {note}",
            head,
            tuple(often),
        ),
    ]


def _change(change: WordChange) -> tuple[str, str]:
    return visible(change.word), visible(change.label)


def _share(effect: WordEffect) -> tuple[str, str]:
    return f"{effect.share:+.2f}", f"{effect.low:+.2f} to {effect.high:+.2f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def corpus_page(summary: CorpusSummary) -> str:
    """Return the page: tables with bars, and the explained texts that they link to."""
    shown = [(row, panels(record, Look())[0]) for row, record in summary.examples.items()]
    return str(
        environment()
        .get_template("corpus.html")
        .render(
            title=title_of(summary),
            facts=facts_of(summary),
            tables=tables_of(summary),
            examples=shown,
            known={row for row, _ in shown},
            effects=effects_of({panel.reading for _, panel in shown}),
            width=2 * HALF,
            look=Look(),
            style=style_sheet() + read_template("page.css") + read_template("corpus.css"),
        )
    )


def write_summary(summary: CorpusSummary, path: str | Path) -> None:
    """Write the summary as a page (.html) or as rows (.parquet)."""
    where = Path(path).expanduser()
    if where.suffix.lower() == ".parquet":
        with open_whole(where) as file:
            write_parquet(list(summary_rows(summary)), list(COLUMNS), file, COLUMNS)
    else:
        write_whole(where, corpus_page(summary))


def summary_rows(summary: CorpusSummary) -> Iterable[dict[str, Any]]:
    """Yield one row per word of each list."""
    lists = [("supports", e, ()) for of in summary.supports.values() for e in of]
    lists += [("opposes", e, ()) for of in summary.opposes.values() for e in of]
    lists += [("shortcut", c.effect, c.kinds) for c in summary.shortcuts]  # type: ignore[misc]
    empty = dict.fromkeys(COLUMNS)
    for name, effect, kinds in lists:
        values = {key: getattr(effect, key) for key in ("label", "word", "n_texts", "score", "share", "low", "high")}
        more = {"list": name, "purity": effect.purity, "kinds": ", ".join(kinds), "examples": _rows(effect.examples)}
        yield {**empty, **values, **more}
    for word in summary.mistakes:
        values = {"label": word.predicted, "list": "mistake", "word": word.word, "n_texts": word.n_texts}
        yield {**empty, **values, "n_wrong": word.n_wrong, "low": word.low, "high": word.high} | {
            "examples": _rows(word.examples)
        }


def _rows(examples: Sequence[int]) -> str:
    return " ".join(map(str, examples))
