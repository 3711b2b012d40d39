"""Turn records into what the page draws: rows of cells, with colours, intervals and what may be switched off. No torch.

The content is that of all other pictures (`render.rows`); nothing is computed or worded here.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import get_args

from whichtoken.records import Attribution
from whichtoken.render.html import class_of
from whichtoken.render.palette import step_of
from whichtoken.render.pictures import overlay_png
from whichtoken.render.rows import (
    Level,
    Look,
    Panel,
    ScoreCell,
    ScoreRow,
    effects_of,
    panels,
    uncertain_legend,
)
from whichtoken.web.replies import (
    AnswerPartView,
    AnswerView,
    CellView,
    EffectsView,
    IntervalView,
    PanelView,
    PartView,
    PictureView,
    ReferenceView,
    ResultView,
    RowView,
)

Tokens = Collection[tuple[int, ...]]  # the tokens of each part that can be removed
Removable = Callable[[Attribution, str], Tokens]  # of a record, at a level


def result_view(
    name: str, record: Attribution, removable: Removable, references: Sequence[ReferenceView] = ()
) -> ResultView:
    """Return everything that is shown about one record, at each level."""
    levels: tuple[Level, ...] = get_args(Level) if record.picture is None else ("token",)
    drawn = {level: panels({name: record}, Look(level))[0] for level in levels}
    parts: dict[Level, Tokens] = {level: removable(record, level) for level in levels}
    panel = drawn[levels[0]]
    return ResultView(
        record=record,
        name=panel.rows[0].name,
        label=panel.label,
        output=panel.output,
        head=panel.head,
        reading=record.reading,
        model=panel.model,
        source=panel.source,
        predicted=record.predicted,
        correct=record.correct,
        text=panel.text,
        notes=panel.notes,
        warnings=panel.warnings,
        effects=EffectsView(**asdict(effects_of({panel.reading}))),
        rows={level: row_view(of.rows[0], parts[level]) for level, of in drawn.items()},
        layers={
            level: tuple(row_view(row, parts[level]) for row in of.layers[0].rows)
            for level, of in drawn.items()
            if of.layers
        },
        picture=_picture_view(panel),
        references=tuple(references),
        answer=_answer_view(record, drawn, parts),
    )


def _answer_view(
    record: Attribution, drawn: Mapping[Level, Panel], removable: Mapping[Level, Tokens]
) -> AnswerView | None:
    """Return the answer of a language model, with a row of the prompt for each of its parts, if it has several."""
    generated = record.generated
    if generated is None:
        return None
    first = next(iter(drawn.values()))
    parts = []
    for place, (part, shown) in enumerate(zip(generated.rows, first.parts, strict=False)):
        rows: dict[str, RowView] = {
            level: row_view(panel.parts[place].rows[0], removable[level]) for level, panel in drawn.items()
        }
        parts.append(AnswerPartView(shown.before, shown.text, part.tokens, part.log_probability, shown.chance, rows))
    return AnswerView(first.answer, generated.is_given, tuple(parts))


def _picture_view(panel: Panel) -> PictureView | None:
    picture = panel.picture
    if picture is None:
        return None
    overlay = overlay_png(panel.rows[0])
    return PictureView(picture.png, overlay, picture.width, picture.height, picture.rows, picture.columns)


def row_view(row: ScoreRow, removable: Tokens) -> RowView:
    return RowView(
        name=row.name,
        about=row.about,
        tuned_on_deletion=row.tuned_on_deletion,
        unit=row.unit,
        nothing=row.nothing,
        note=row.note,
        trust=row.trust,
        uncertain=uncertain_legend(row.cells),
        cells=tuple(_cell_view(cell, removable) for cell in row.cells),
    )


def _cell_view(cell: ScoreCell, removable: Tokens) -> CellView:
    interval = cell.interval
    return CellView(
        **asdict(part_view(cell, removable)),
        score=cell.score,
        share=cell.share,
        step=step_of(cell.share),
        shade=class_of(cell.share),
        interval=None if interval is None else IntervalView(**asdict(interval), hint=interval.hint),
        uncertain=cell.uncertain,
        hint=cell.hint,
    )


def part_view(cell: ScoreCell, removable: Tokens) -> PartView:
    return PartView(cell.text, cell.before, cell.name, cell.token, cell.tokens, cell.tokens in removable)


def panel_view(panel: Panel) -> PanelView:
    """Return the panel of an input for reading only: nothing in it can be switched off."""
    return PanelView(
        label=panel.label,
        output=panel.output,
        head=panel.head,
        model=panel.model,
        text=panel.text,
        source=panel.source,
        notes=panel.notes,
        trust=panel.trust,
        rows=tuple(row_view(row, ()) for row in panel.rows),
        differences=tuple(row_view(row, ()) for row in panel.differences),
    )
