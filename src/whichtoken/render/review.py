"""Many explained texts as one offline page for a person who reviews a model's decisions: mistakes first, with filters.

The texts are JSON in the page, which its script inserts as text, never as markup; the content security policy allows
the page's own style sheet and script, by hash, and nothing else. No torch.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

from whichtoken.atomic_write import write_whole
from whichtoken.errors import UsageError
from whichtoken.records import Attribution
from whichtoken.render.groups import Results, group_results
from whichtoken.render.html import environment, page, read_template
from whichtoken.render.numbers import format_remaining, format_share
from whichtoken.render.rows import (
    Level,
    Look,
    Panel,
    ScoreRow,
    effects_of,
    format_output,
    panels,
    uncertain_legend,
    visible,
)
from whichtoken.render.theme import shade_rules
from whichtoken.render.trust import describe_trust
from whichtoken.targets import Span
from whichtoken.trust import Confidence, Removal
from whichtoken.words import word_groups

LIMIT = 1000  # texts, with which the page is still fast

Group = Mapping[str, Attribution]  # the methods of one input and target


@dataclass(frozen=True)
class Reviewed:
    """One input, and its results for each target that was explained."""

    place: int  # among the inputs, from 0
    groups: tuple[Group, ...]

    @property
    def main(self) -> int:
        """The place of the target to show first: the predicted label, if it was explained."""
        firsts = [_first(group) for group in self.groups]
        hits = [i for i, record in enumerate(firsts) if record.predicted and record.predicted.label == record.label]
        return hits[0] if hits else 0

    @property
    def record(self) -> Attribution:
        return _first(self.groups[self.main])

    @property
    def measure(self) -> float:
        """How confident the model is in its prediction; or the value that it predicts."""
        predicted = self.record.predicted
        return self.record.output if predicted is None else predicted.probability

    @property
    def gold(self) -> str | None:
        source = self.record.source
        return None if source is None or source.gold is None else visible(source.gold)

    @property
    def predicted(self) -> str | None:
        return None if self.record.predicted is None else visible(self.record.predicted.label)


def to_review(
    results: Results,
    path: str | Path | None = None,
    *,
    level: Level = "word",
    differences: bool = False,
    numbers: bool = False,
) -> str:
    """Return a page for reviewing up to 1,000 texts, and write it to `path` if given. Options as in `to_html`.

    It shows the share of a probability that the strongest words carry if the results have it: `explain(remove_top=3)`.
    """
    source = review_page(results, Look(level, differences, numbers))
    if path is not None:
        write_whole(path, source)
    return source


def page_for(results: Results, look: Look) -> str:
    """Return a review page of several texts, and a plain page of one text, of images, layers or answers to prompts."""
    texts = by_input(results)
    records = [record for text in texts for group in text.groups for record in group.values()]
    plain = len(texts) < 2 or any(record.picture is not None or record.layers or record.generated for record in records)
    return page(results, look) if plain else review_page(results, look)


def review_page(results: Results, look: Look) -> str:
    texts = by_input(results)
    check_limit(len(texts))
    if any(text.record.picture is not None for text in texts):
        raise UsageError("a review page shows texts, and these are images; use to_html")
    names = list(dict.fromkeys(name for text in texts for group in text.groups for name in group))
    shown = sorted(texts, key=_rank)
    drawn = [[panels(group, look)[0] for group in text.groups] for text in shown]
    cards = [_card(text, of) for text, of in zip(shown, drawn, strict=True)]
    summary = summarise(texts)
    methods = list({method["name"]: method for card in cards for method in card.pop("methods")}.values())
    readings = {text.record.reading for text in texts}
    data = {
        "methods": methods,
        "texts": cards,
        "numbers": look.numbers,
        "unit": _unit(texts),
        "values": readings == {"value"},
        "gold": summary.n_known > 0,
    }
    return str(
        environment()
        .get_template("review.html")
        .render(
            title=title_of(texts, names),
            summary=summary,
            data=data,
            effects=effects_of(readings),
            uncertain=uncertain_legend(c for of in drawn for panel in of for row in panel.rows for c in row.cells),
            has_drops=any(record.removals for text in texts for group in text.groups for record in group.values()),
            style=style_sheet(),
            script=read_template("review.js"),
        )
    )


def check_limit(n_texts: int) -> None:
    """Raise UsageError if a page would be too large to be useful."""
    if n_texts > LIMIT:
        raise UsageError(
            f"a page shows up to {LIMIT:,} texts, but there are {n_texts:,}; split or filter the file, or write all "
            "results to --out NAME.jsonl and show parts of that"
        )


def style_sheet() -> str:
    return read_template("review.css") + shade_rules()


def by_input(results: Results) -> list[Reviewed]:
    """Group results by input; consecutive results about different targets of one input belong together."""
    inputs: list[list[Group]] = []
    for group in group_results(results):
        if inputs and _is_same_input([_first(other) for other in inputs[-1]], _first(group)):
            inputs[-1].append(group)
        else:
            inputs.append([group])
    return [Reviewed(place, tuple(groups)) for place, groups in enumerate(inputs)]


def _is_same_input(records: Sequence[Attribution], record: Attribution) -> bool:
    """Return whether a record explains the records' input; a repeated target starts another input with equal text."""
    names = ("texts", "picture", "source", "model", "identity")
    same = all(getattr(records[0], name) == getattr(record, name) for name in names)
    return same and all(other.target != record.target for other in records)


@dataclass(frozen=True)
class Summary:
    """How often the model is right, and how it is wrong."""

    n_texts: int
    unit: str
    n_known: int  # texts whose predicted and gold label are known
    n_correct: int
    confusions: tuple[tuple[str, str, int], ...]  # gold label, predicted label, count: the most frequent first
    predicted: Mapping[str, int]
    gold: Mapping[str, int]

    @property
    def one(self) -> str:
        return self.unit.removesuffix("s")

    @property
    def accuracy(self) -> str:
        return f"{100 * self.n_correct / self.n_known:.1f} %"


def summarise(texts: Sequence[Reviewed]) -> Summary:
    known = [text for text in texts if text.record.correct is not None]
    mistakes = [text for text in known if not text.record.correct]
    pairs = Counter((str(text.gold), str(text.predicted)) for text in mistakes)
    return Summary(
        len(texts),
        _unit(texts),
        len(known),
        len(known) - len(mistakes),
        tuple((gold, predicted, count) for (gold, predicted), count in pairs.most_common()),
        _count(text.predicted for text in texts),
        _count(text.gold for text in known),
    )


def _count(labels: Iterable[str | None]) -> dict[str, int]:
    counts = Counter(label for label in labels if label is not None)
    return {label: counts[label] for label in sorted(counts)}


def title_of(texts: Sequence[Reviewed], names: Sequence[str]) -> str:
    """Return what was explained, by which methods, and which model made the decisions."""
    models = list(dict.fromkeys(visible(text.record.model) for text in texts))
    *others, last = [visible(name) for name in names] or ["no method"]
    methods = f"{len(names)} methods" if len(names) > 3 else f"{', '.join(others)} and {last}" if others else last
    unit = _unit(texts) if len(texts) != 1 else _unit(texts).removesuffix("s")
    model = models[0] if len(models) == 1 else f"{len(models)} models"
    return f"{len(texts):,} {unit} explained by {methods} \N{EM DASH} {model}"


def _unit(texts: Sequence[Reviewed]) -> str:
    answers = bool(texts) and all(isinstance(text.record.target, Span) for text in texts)
    return "questions" if answers else "texts"


def _rank(text: Reviewed) -> tuple[bool, float, int]:
    """Return the sort key of the first view: mistakes, then the least confident; predicted values in file order."""
    confidence = inf if text.record.reading == "value" else text.measure
    return text.record.correct is not False, confidence, text.place


def _card(text: Reviewed, shown: Sequence[Panel]) -> dict[str, Any]:
    """Return everything that the page shows about one input. All strings are safe. `shown`: one panel per target."""
    record, source = text.record, text.record.source
    words = _words(shown[0].rows[0])
    columns = {} if source is None else source.columns
    n = text.place + 1
    return {
        "place": f"text {n}" if source is None or source.row is None else f"row {source.row}",
        "at": text.place,
        "id": None if source is None or source.id is None else visible(source.id),
        "gold": text.gold,
        "predicted": text.predicted,
        "correct": record.correct,
        "label": text.predicted or shown[text.main].label,
        "shown": format_prediction(record),
        "measure": text.measure,
        "columns": [[visible(name), visible(_as_text(value))] for name, value in columns.items()],
        "words": words,
        "notes": list(dict.fromkeys(note for panel in shown for note in _input_notes(panel))),
        "main": text.main,
        "targets": [_target(panel, group, words) for panel, group in zip(shown, text.groups, strict=True)],
        "methods": [
            {"name": row.name, "about": row.about, "tuned": row.tuned_on_deletion, "unit": row.unit}
            for panel in shown
            for row in (*panel.rows, *panel.differences)
        ],
    }


def _input_notes(panel: Panel) -> list[str]:
    """Return the notes that are true of every method and target; the others are shown with their scores."""
    return [note for note in panel.notes if note not in {row.note for row in panel.rows}]


def _target(panel: Panel, group: Group, words: Sequence[str]) -> dict[str, Any]:
    output = format_output(_first(group)).replace("%", " %")
    records = [*group.values(), *(None for _ in panel.differences)]
    rows = zip((*panel.rows, *panel.differences), records, strict=True)
    return {
        "label": panel.label,
        "shown": output,
        "views": {row.name: _view(row, record, words) for row, record in rows},
    }


def _view(row: ScoreRow, record: Attribution | None, words: Sequence[str]) -> dict[str, Any]:
    """Return one method's scores. `record`: None for differences of methods."""
    view: dict[str, Any] = {"scores": [float(f"{cell.score:.4g}") for cell in row.cells]}
    if (own := _words(row)) != words:
        view["words"] = own
    if record is not None and record.removals:
        view["whole"] = format_remaining(record, record.output)
        view["steps"] = removal_steps(record)
        view["drop"] = record.output - record.removals[-1].output
    if record is not None and not row.strongest(1):
        view["nothing"] = row.nothing
    if row.note:
        view["note"] = row.note
    if record is not None and record.confidence is not None:
        view |= _trust(row, record, record.confidence)
    return view


def _trust(row: ScoreRow, record: Attribution, trust: Confidence) -> dict[str, Any]:
    """Return the statement, and the bounds of the scores."""
    if record.removals:  # they are shown, and are the same check
        record = replace(record, confidence=replace(trust, check=None))
    intervals = [cell.interval for cell in row.cells if cell.interval]
    return {
        "trust": visible(describe_trust(record)),
        "level": format_share(trust.level),
        "low": [float(f"{interval.low:.4g}") for interval in intervals],
        "high": [float(f"{interval.high:.4g}") for interval in intervals],
    }


def _words(row: ScoreRow) -> list[str]:
    """Return the words, each after the text before it."""
    return [part for cell in row.cells for part in (cell.before, cell.text)]


def removal_steps(record: Attribution) -> list[list[str]]:
    """Return the words that each step removes, and what then remains: [["boring", "31 %"], ["slow", "12 %"]]."""
    groups = word_groups(record.texts, record.spans, record.sequences, record.word_ids)
    names = [word.text for word in record.words()]
    steps = []
    for before, after in pairwise((Removal((), record.output), *record.removals)):
        gone = set(after.tokens) - set(before.tokens)
        words = [name for name, group in zip(names, groups, strict=True) if gone & set(group)]
        steps.append([visible(", ".join(words)), format_remaining(record, after.output)])
    return steps


def format_prediction(record: Attribution) -> str:
    """Return the probability of the predicted label, or the output that is explained if there is no such label."""
    if record.predicted is None:
        return format_output(record).replace("%", " %")
    return f"{100 * record.predicted.probability:.1f} %"


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _first(group: Group) -> Attribution:
    return next(iter(group.values()))
