"""The content of all pictures: rows of cells for each text or image, one row per method.

Scores become shares of the strongest and texts become safe to print; nothing is drawn here. No torch.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from whichtoken.errors import BadSetting, UsageError, name_type
from whichtoken.records import Attribution, How, Picture, Reading
from whichtoken.references.coverage import coverage_note, stored_coverage
from whichtoken.render.numbers import format_value
from whichtoken.render.tokens import BETWEEN_TEXTS, ShownPiece, patch_pieces, token_pieces, word_pieces
from whichtoken.render.trust import Interval, describe_trust, describe_uncertain

Level = Literal["word", "token"]
MINUS = "\N{MINUS SIGN}"
IMAGES_IN_FIGURE = 24

# These would reorder the surrounding text or break lines.
_TRAPS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x061C, 0x200E, 0x200F, 0x2028, 0x2029, 0xFEFF}

Results = Attribution | Mapping[str, Attribution] | Iterable[Attribution | Mapping[str, Attribution]]


@dataclass(frozen=True)
class Look:
    """How results are displayed."""

    level: Level = "word"
    differences: bool = False  # also the first method minus each other method
    numbers: bool = False  # print shares next to the words, with intervals if there are any
    remarks: Mapping[str, str] = field(default_factory=dict)  # by row name
    how: How = "bilinear"  # for images

    def __post_init__(self) -> None:
        if self.level not in ("word", "token"):
            raise BadSetting("level", self.level, "'word' or 'token'")
        check_how(self.how)


def check_how(how: str) -> None:
    if how not in get_args(How):
        raise BadSetting("how", how, " or ".join(map(repr, get_args(How))))


@dataclass(frozen=True)
class ScoreCell:
    """A word, a token, or a patch of an image."""

    text: str
    score: float
    share: float  # of the strongest cell of its row: -1 to 1 (differences of rows: -2 to 2)
    before: str  # the text between the previous cell and this one
    name: str = ""  # where it stands alone, if not its text: "電 (2 of 3)" for the second token of a character
    token: str = ""  # as the tokenizer writes it, if not as its text
    interval: Interval | None = None  # if the method says how sure it is
    tokens: tuple[int, ...] = ()  # positions in the record's tokens

    @property
    def uncertain(self) -> bool:
        """Whether the interval of the score includes 0."""
        return self.interval is not None and self.interval.includes_zero

    @property
    def called(self) -> str:
        """What the cell is called in lists."""
        return self.name or self.text

    @property
    def hint(self) -> str:
        """What the cell is called where there is room for the tokenizer's own writing."""
        return f"{self.called}, token {self.token}" if self.token else self.called


@dataclass(frozen=True)
class ScoreRow:
    name: str
    cells: tuple[ScoreCell, ...]
    about: str = ""  # method, settings and model
    tuned_on_deletion: bool = False
    remark: str = ""  # shown next to the row
    unit: str = ""  # of the scores, if they are not the method's own
    picture: Picture | None = None  # the image whose patches the cells are, row by row
    fine: tuple[tuple[float, ...], ...] = ()  # shares of the pixels, if the method scores pixels
    nothing: str = "nothing supports it"  # shown if no cell does
    note: str = ""  # what a reader must know about these scores
    trust: str = ""  # how far they can be trusted, if the method says so

    def strongest(self, count: int = 3) -> tuple[ScoreCell, ...]:
        """Return the cells that support the label, or raise the value, most, strongest first."""
        ranked = sorted(self.cells, key=lambda cell: -cell.score)
        return tuple(cell for cell in ranked if cell.score > 0)[:count]


@dataclass(frozen=True)
class LayerMap:
    """The contribution of each layer to the scores of one method, scaled to the strongest cell of all rows."""

    name: str
    rows: tuple[ScoreRow, ...]  # the last is the sum


@dataclass(frozen=True)
class Panel:
    """One text or image and everything that is shown about it."""

    label: str
    probability: float | None
    model: str
    rows: tuple[ScoreRow, ...]
    differences: tuple[ScoreRow, ...]
    layers: tuple[LayerMap, ...]
    notes: tuple[str, ...]  # about the input, then those of the rows
    picture: Picture | None = None
    value: float | None = None  # if the model predicts a value and no probability
    text: str = ""  # the texts, or the file of the image
    source: str = ""  # row, id and gold label, if known

    @property
    def head(self) -> str:
        return f"{self.label}  {format_output(self)}"

    @property
    def output(self) -> str:
        """The probability or value, as in a sentence: with a space before the percent sign."""
        return format_output(self).replace("%", " %")

    @property
    def reading(self) -> Reading:
        return "probability" if self.value is None else "value"

    @property
    def trust(self) -> tuple[str, ...]:
        """How far the scores of each row can be trusted; several rows are named."""
        named = len(self.rows) > 1
        return tuple(f"{row.name}: {row.trust}" if named else row.trust for row in self.rows if row.trust)


def format_output(shown: Panel | Attribution) -> str:
    """Return the probability as a percentage, or the predicted value as a number."""
    return f"{shown.probability:.1%}" if shown.value is None else format_value(shown.value)


@dataclass(frozen=True)
class Effects:
    """What scores below and above 0 mean, for legends."""

    below: str = "opposes"
    above: str = "supports"
    what: str = "the label"


def effects_of(readings: Set[Reading]) -> Effects:
    if readings == {"value"}:
        return Effects("lowers", "raises", "the value")
    return Effects("opposes or lowers", "supports or raises", "the label or value") if len(readings) > 1 else Effects()


def panels(results: Results, look: Look) -> list[Panel]:
    """Return one panel per input. `results`: one attribution, one result of `explain`, or a list of either."""
    return [_panel(group, look) for group in group_results(results)]


def group_results(results: Results) -> list[dict[str, Attribution]]:
    """Group attributions by input, each by name; consecutive attributions of one input belong together."""
    if isinstance(results, Attribution):
        return [{results.name or results.method: results}]
    if isinstance(results, Mapping):
        return [dict(results)] if results else []
    groups: list[dict[str, Attribution]] = []
    open_group = False
    for item in results:
        if isinstance(item, Mapping):
            groups.append(dict(item))
            open_group = False
        elif not isinstance(item, Attribution):
            raise UsageError(f"{name_type(item)} cannot be shown; expected what explain returns, or some of it")
        elif open_group and _belongs_to(list(groups[-1].values()), item):
            groups[-1][_free_name(item, groups[-1])] = item
        else:
            groups.append({item.name or item.method: item})
            open_group = True
    return [group for group in groups if group]


def _belongs_to(group: Sequence[Attribution], item: Attribution) -> bool:
    """Whether an attribution is of the group's input; a repeated method with equal settings starts a new group."""
    keys = ("texts", "label", "model", "revision", "source")
    same = all(getattr(group[0], key) == getattr(item, key) for key in keys)
    pictures = [group[0].picture, item.picture]
    images = [None if picture is None else (picture.source, picture.png) for picture in pictures]
    same = same and images[0] == images[1]
    return same and all((other.method, other.settings) != (item.method, item.settings) for other in group)


def _free_name(item: Attribution, taken: Mapping[str, Attribution]) -> str:
    name = item.name or item.method
    if name not in taken:
        return name
    settings = taken[name].settings
    changed = [f"{key}={value}" for key, value in item.settings.items() if settings.get(key) != value]
    return f"{item.method}({', '.join(changed)})"


def _panel(group: Mapping[str, Attribution], look: Look) -> Panel:
    first = next(iter(group.values()))
    rows = tuple(_row(name, attribution, look) for name, attribution in group.items())
    differences = tuple(difference(rows[0], row) for row in rows[1:]) if look.differences else ()
    layers = tuple(
        layer_map(name, attribution, look.level) for name, attribution in group.items() if attribution.layers
    )
    return Panel(
        visible(first.label),
        first.probability,
        visible(first.model),
        rows,
        differences,
        layers,
        (*notes_of(first), *dict.fromkeys(row.note for row in rows if row.note)),
        first.picture,
        first.value,
        visible(first.picture.source if first.picture is not None else BETWEEN_TEXTS.join(first.texts)),
        describe_source(first),
    )


def describe_source(attribution: Attribution) -> str:
    """Return row, id and gold label of an input, if they are known."""
    source = attribution.source
    named = () if source is None else (("row", source.row), ("id", source.id), ("gold", source.gold))
    return visible(", ".join(f"{name} {value}" for name, value in named if value is not None))


def _row(name: str, attribution: Attribution, look: Look) -> ScoreRow:
    return ScoreRow(
        visible(name),
        cells(attribution, look.level),
        visible(_about(attribution)),
        attribution.tuned_on_deletion,
        look.remarks.get(name, ""),
        picture=attribution.picture,
        fine=() if attribution.picture is None else _fine(attribution.picture.pixels),
        nothing=f"nothing {'supports' if attribution.value is None else 'raises'} it",
        note=coverage_note(stored_coverage(attribution.details)),
        trust=visible(describe_trust(attribution)),
    )


def _fine(pixels: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    """Scale pixels to their 99th percentile, as single outliers would leave all other pixels pale."""
    strengths = sorted(abs(score) for row in pixels for score in row)
    strongest = (strengths[round(0.99 * (len(strengths) - 1))] or strengths[-1] or 1.0) if strengths else 1.0
    return tuple(tuple(max(-1.0, min(1.0, score / strongest)) for score in row) for row in pixels)


def _about(attribution: Attribution) -> str:
    settings = ", ".join(f"{key} {value}" for key, value in attribution.settings.items())
    method = f"{attribution.method} ({settings})" if settings else attribution.method
    return f"{method} on {attribution.model}, revision {attribution.revision[:19]}"


def notes_of(attribution: Attribution) -> tuple[str, ...]:
    """Return what a reader must know about the input of an attribution."""
    notes = []
    n_content = sum(sequence is not None for sequence in attribution.sequences)
    if 2 * attribution.n_unknown > n_content:
        unknown = f"{attribution.n_unknown} of {n_content} tokens are unknown to the tokenizer"
        notes.append(f"{unknown}, so these scores say little")
    if attribution.n_cut:
        notes.append(f"{attribution.n_cut} tokens were cut: the text is longer than the model's limit")
    if attribution.n_windows > 1:
        notes.append(f"averaged over {attribution.n_windows} overlapping windows")
    return tuple(notes)


def cells(
    attribution: Attribution, level: Level, scores: Sequence[float] | None = None, strongest: float = 0.0
) -> tuple[ScoreCell, ...]:
    """Return the cells of a row. `scores` replace the attribution's own; shares are of `strongest`, if not 0."""
    pieces = _pieces(attribution, attribution.scores if scores is None else scores, level)
    strongest = strongest or max((abs(piece.score) for piece in pieces), default=0.0) or 1.0
    shown = tuple(_cell(piece, strongest) for piece in pieces)
    trust = attribution.confidence
    if trust is None or scores is not None:
        return shown
    bounds = [[piece.score for piece in _pieces(attribution, bound, level)] for bound in (trust.low, trust.high)]
    return tuple(
        replace(cell, interval=Interval(low, high, low / strongest, high / strongest, trust.level))
        for cell, low, high in zip(shown, *bounds, strict=True)
    )


def _cell(piece: ShownPiece, strongest: float) -> ScoreCell:
    text, token = visible(piece.text), visible(piece.token)
    share = piece.score / strongest
    return ScoreCell(
        text,
        piece.score,
        share,
        visible(piece.before),
        visible(piece.name),
        "" if token == text else token,
        tokens=piece.tokens,
    )


def uncertain_legend(cells: Iterable[ScoreCell]) -> str:
    """Return why marked cells are uncertain, or an empty string if none of these is."""
    return describe_uncertain(cell.interval.level for cell in cells if cell.interval is not None and cell.uncertain)


def _pieces(attribution: Attribution, scores: Sequence[float], level: Level) -> list[ShownPiece]:
    """Return words or tokens; for images, always patches."""
    if attribution.picture is not None:
        return patch_pieces(attribution, scores)
    return word_pieces(attribution, scores) if level == "word" else token_pieces(attribution, scores)


def difference(first: ScoreRow, other: ScoreRow) -> ScoreRow:
    """Subtract shares, so that methods with different units can be compared."""
    if [cell.text for cell in first.cells] != [cell.text for cell in other.cells]:
        raise UsageError(f"{first.name} and {other.name} explain different texts; compare methods on the same text")
    pairs = [(a, a.share - b.share) for a, b in zip(first.cells, other.cells, strict=True)]
    differences = tuple(replace(cell, score=share, share=share, interval=None) for cell, share in pairs)
    tuned = first.tuned_on_deletion or other.tuned_on_deletion
    name, about = f"{first.name} {MINUS} {other.name}", "difference of the shares of the strongest"
    return ScoreRow(
        name, differences, about, tuned, unit="difference of shares", picture=first.picture, nothing=first.nothing
    )


def layer_map(name: str, attribution: Attribution, level: Level) -> LayerMap:
    if not attribution.layers:
        raise UsageError(
            f"{attribution.method} has no scores by layer here; use explain(..., layers=True) with a method that sums "
            "over layers, such as attcat or contrast-cat"
        )
    terms = [
        [piece.score for piece in _pieces(attribution, scores, level)]
        for scores in (*attribution.layers, attribution.scores)
    ]
    strongest = max(abs(score) for row in terms for score in row) or 1.0
    names = [*(f"block {i}" for i in range(1, len(attribution.layers) + 1)), "sum"]
    rows = zip(names, (*attribution.layers, attribution.scores), strict=True)
    by_layer = (
        ScoreRow(n, cells(attribution, level, scores, strongest), picture=attribution.picture) for n, scores in rows
    )
    return LayerMap(visible(name), tuple(by_layer))


def visible(text: str) -> str:
    """Replace characters that act instead of being displayed: escapes, direction marks, line breaks."""
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
