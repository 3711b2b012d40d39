"""What pictures show: for each text or image rows of cells, one for each method, the same for every kind of picture.

Here scores become shares of the strongest and texts become safe to print; nothing is drawn. No torch.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from whichtoken.errors import BadSetting, UsageError
from whichtoken.records import Attribution, How, Picture
from whichtoken.words import words_of

Level = Literal["word", "token"]
MINUS = "\N{MINUS SIGN}"
IMAGES_IN_FIGURE = 24

# Would reorder what stands around them, or break lines where none is.
_TRAPS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x061C, 0x200E, 0x200F, 0x2028, 0x2029, 0xFEFF}

Results = Attribution | Mapping[str, Attribution] | Iterable[Attribution | Mapping[str, Attribution]]


@dataclass(frozen=True)
class Look:
    """How results are to be shown."""

    level: Level = "word"
    differences: bool = False  # also the first method minus each other one
    numbers: bool = False  # beside the words
    remarks: Mapping[str, str] = field(default_factory=dict)  # by name of the row
    how: How = "bilinear"  # of images

    def __post_init__(self) -> None:
        if self.level not in ("word", "token"):
            raise BadSetting("level", self.level, "'word' or 'token'")
        check_how(self.how)


def check_how(how: str) -> None:
    if how not in get_args(How):
        raise BadSetting("how", how, " or ".join(repr(one) for one in get_args(How)))


@dataclass(frozen=True)
class ScoreCell:
    """A word, a token, or a patch of an image."""

    text: str
    score: float
    share: float  # of the strongest of its row: -1 to 1 (a difference of two rows: -2 to 2)
    before: str  # what stands between it and the cell before


@dataclass(frozen=True)
class ScoreRow:
    name: str
    cells: tuple[ScoreCell, ...]
    about: str = ""  # how it was made
    tuned_on_deletion: bool = False
    remark: str = ""  # to stand beside it
    unit: str = ""  # of its scores, where these are no longer the method's own
    picture: Picture | None = None  # whose patches the cells are, row by row
    fine: tuple[tuple[float, ...], ...] = ()  # shares of its pixels

    def strongest(self, count: int = 3) -> tuple[ScoreCell, ...]:
        """The cells that speak for the label most, the strongest first."""
        found = sorted(self.cells, key=lambda cell: -cell.score)
        return tuple(cell for cell in found if cell.score > 0)[:count]


@dataclass(frozen=True)
class LayerMap:
    """What each layer adds to the scores of one method. Shares are of the strongest of all rows."""

    name: str
    rows: tuple[ScoreRow, ...]  # the last is the sum


@dataclass(frozen=True)
class Panel:
    """One text or image and all that is to be shown of it."""

    label: str
    probability: float
    model: str
    rows: tuple[ScoreRow, ...]
    differences: tuple[ScoreRow, ...]
    layers: tuple[LayerMap, ...]
    notes: tuple[str, ...]
    picture: Picture | None = None


def panels(results: Results, look: Look) -> list[Panel]:
    """`results`: one attribution, one result of `explain`, or a list of either."""
    return [_panel(group, look) for group in grouped(results)]


def grouped(results: Results) -> list[dict[str, Attribution]]:
    """For each text its attributions by name. Attributions of one text that follow one another belong together."""
    if isinstance(results, Attribution):
        return [{results.method: results}]
    if isinstance(results, Mapping):
        return [dict(results)] if results else []
    found: list[dict[str, Attribution]] = []
    open_group = False
    for item in results:
        if isinstance(item, Mapping):
            found.append(dict(item))
            open_group = False
        elif not isinstance(item, Attribution):
            raise UsageError(f"a {type(item).__name__} cannot be shown; expected what explain returns, or some of it")
        elif open_group and _together(list(found[-1].values()), item):
            found[-1][_free_name(item, found[-1])] = item
        else:
            found.append({item.method: item})
            open_group = True
    return [group for group in found if group]


def _together(group: Sequence[Attribution], item: Attribution) -> bool:
    """The same method with the same settings again is the next row of a file that has a text twice."""
    same = all(getattr(group[0], key) == getattr(item, key) for key in ("texts", "label", "model", "revision"))
    images = [None if one.picture is None else (one.picture.source, one.picture.png) for one in (group[0], item)]
    same = same and images[0] == images[1]
    return same and all((one.method, one.settings) != (item.method, item.settings) for one in group)


def _free_name(item: Attribution, taken: Mapping[str, Attribution]) -> str:
    if item.method not in taken:
        return item.method
    theirs = taken[item.method].settings
    changed = [f"{key}={value}" for key, value in item.settings.items() if theirs.get(key) != value]
    return f"{item.method}({', '.join(changed)})"


def _panel(group: Mapping[str, Attribution], look: Look) -> Panel:
    first = next(iter(group.values()))
    rows = tuple(_row(name, shown, look) for name, shown in group.items())
    differences = tuple(difference(rows[0], row) for row in rows[1:]) if look.differences else ()
    layers = tuple(layer_map(name, shown, look.level) for name, shown in group.items() if shown.layers)
    return Panel(
        visible(first.label),
        first.probability,
        visible(first.model),
        rows,
        differences,
        layers,
        _notes(first),
        first.picture,
    )


def _row(name: str, shown: Attribution, look: Look) -> ScoreRow:
    return ScoreRow(
        visible(name),
        cells(shown, look.level),
        visible(_about(shown)),
        shown.tuned_on_deletion,
        look.remarks.get(name, ""),
        picture=shown.picture,
        fine=() if shown.picture is None else _fine(shown.picture.pixels),
    )


def _fine(pixels: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    """One pixel in a hundred may be beyond what counts as strongest: single ones are, and would leave the rest pale."""
    strengths = sorted(abs(score) for row in pixels for score in row)
    strongest = (strengths[round(0.99 * (len(strengths) - 1))] or strengths[-1] or 1.0) if strengths else 1.0
    return tuple(tuple(max(-1.0, min(1.0, score / strongest)) for score in row) for row in pixels)


def _about(shown: Attribution) -> str:
    settings = ", ".join(f"{key} {value}" for key, value in shown.settings.items())
    made = f"{shown.method} ({settings})" if settings else shown.method
    return f"{made} on {shown.model}, revision {shown.revision[:19]}"


def _notes(shown: Attribution) -> tuple[str, ...]:
    notes = []
    if shown.n_cut:
        notes.append(f"{shown.n_cut} tokens were cut: the text is longer than the model reads")
    if shown.n_windows > 1:
        notes.append(f"averaged over {shown.n_windows} overlapping windows")
    return tuple(notes)


def cells(
    shown: Attribution, level: Level, scores: Sequence[float] | None = None, strongest: float = 0.0
) -> tuple[ScoreCell, ...]:
    """`scores`: others than the attribution's own. `strongest`: what shares are of, by default the row's own."""
    found = _pieces(shown, shown.scores if scores is None else scores, level)
    strongest = strongest or max((abs(score) for _, _, score in found), default=0.0) or 1.0
    return tuple(ScoreCell(visible(text), score, score / strongest, visible(before)) for before, text, score in found)


def _pieces(shown: Attribution, scores: Sequence[float], level: Level) -> list[tuple[str, str, float]]:
    """What stands before, text, score. Of an image, always its patches."""
    if shown.picture is not None:
        last = len(shown.tokens) - shown.picture.rows * shown.picture.columns
        return [(" ", t, s) for t, s in zip(shown.tokens[last:], scores[last:], strict=True)]
    if level == "token":
        return [(" " if i else "", t, s) for i, (t, s) in enumerate(zip(shown.tokens, scores, strict=True))]
    words = words_of(shown.texts, shown.spans, shown.sequences, shown.word_ids, scores)
    found, end, sequence = [], 0, 0
    for word in words:
        if word.sequence != sequence:
            end, sequence = 0, word.sequence
            before = " | " + shown.texts[sequence][: word.span[0]]
        else:
            before = shown.texts[sequence][end : word.span[0]]
        found.append((before, word.text, word.score))
        end = word.span[1]
    return found


def difference(one: ScoreRow, other: ScoreRow) -> ScoreRow:
    """Share by share, so that two methods with different units can be compared."""
    if [cell.text for cell in one.cells] != [cell.text for cell in other.cells]:
        raise UsageError(f"{one.name} and {other.name} are about different texts; only one text has a difference")
    pairs = [(a, a.share - b.share) for a, b in zip(one.cells, other.cells, strict=True)]
    made = tuple(ScoreCell(cell.text, share, share, cell.before) for cell, share in pairs)
    tuned = one.tuned_on_deletion or other.tuned_on_deletion
    name, about = f"{one.name} {MINUS} {other.name}", "share of the strongest, one minus the other"
    return ScoreRow(name, made, about, tuned, unit="difference of shares", picture=one.picture)


def layer_map(name: str, shown: Attribution, level: Level) -> LayerMap:
    if not shown.layers:
        raise UsageError(
            f"{shown.method} has no scores by layer here; use explain(..., layers=True) with a method that is a sum "
            "over layers, such as attcat or contrast-cat"
        )
    terms = [[score for _, _, score in _pieces(shown, scores, level)] for scores in (*shown.layers, shown.scores)]
    strongest = max(abs(score) for row in terms for score in row) or 1.0
    names = [*(f"block {i}" for i in range(1, len(shown.layers) + 1)), "sum"]
    rows = zip(names, (*shown.layers, shown.scores), strict=True)
    made = (ScoreRow(n, cells(shown, level, scores, strongest), picture=shown.picture) for n, scores in rows)
    return LayerMap(visible(name), tuple(made))


def visible(text: str) -> str:
    """Nothing that a terminal, browser or editor would obey instead of show: escapes, direction marks, line breaks."""
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    code = ord(character)
    if character in "\n\r\t\x0b\x0c\x85":
        return " "
    if code < 0x20:
        return chr(0x2400 + code)  # as Unicode's picture of it
    if 0x7F <= code < 0xA0 or code in _TRAPS or 0xD800 <= code < 0xE000 or 0xE0000 <= code < 0xE0080:
        return f"\N{MATHEMATICAL LEFT ANGLE BRACKET}U+{code:04X}\N{MATHEMATICAL RIGHT ANGLE BRACKET}"
    return character
