"""The content of all pictures: rows of cells for each text or image, one row per method.

Scores become shares of the strongest and texts become safe to print; nothing is drawn here. No torch.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from whichtoken.errors import BadSetting, UsageError
from whichtoken.records import Attribution, How, Picture, Reading
from whichtoken.references.coverage import coverage_note, stored_coverage
from whichtoken.render.answers import (
    ShareTable,
    choose_row,
    describe_reach,
    fold_lines,
    format_chance,
    name_measure,
    place_parts,
    prompt_text,
    share_tables,
    source_pieces,
    with_row,
)
from whichtoken.render.groups import Results, group_results
from whichtoken.render.notes import notes_of, warnings_of
from whichtoken.render.numbers import format_value
from whichtoken.render.tokens import BETWEEN_TEXTS, ShownPiece, patch_pieces, token_pieces, word_pieces
from whichtoken.render.trust import Interval, describe_trust, describe_uncertain

Level = Literal["word", "token"]
ShownReading = Reading | Literal["answer"]  # that of an answer is a value, of which scores support or oppose the answer
MINUS = "\N{MINUS SIGN}"
IMAGES_IN_FIGURE = 24

# These would reorder the surrounding text or break lines.
_TRAPS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x061C, 0x200E, 0x200F, 0x2028, 0x2029, 0xFEFF}


@dataclass(frozen=True)
class Look:
    """How results are displayed."""

    level: Level = "word"
    differences: bool = False  # also the first method minus each other method
    numbers: bool = False  # print shares next to the words, with intervals if there are any
    remarks: Mapping[str, str] = field(default_factory=dict)  # by row name
    how: How = "bilinear"  # for images
    row: str | None = None  # for answers of language models: a text in the part to show; None for the whole answer

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
    repeated: bool = False  # a further piece of a part that has a cell already

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
    reach: str = ""  # how much of the scores lies outside the cells

    def strongest(self, count: int = 3) -> tuple[ScoreCell, ...]:
        """Return the cells that support the label, or raise the value, most, strongest first."""
        ranked = sorted((cell for cell in self.cells if not cell.repeated), key=lambda cell: -cell.score)
        return tuple(cell for cell in ranked if cell.score > 0)[:count]


@dataclass(frozen=True)
class LayerMap:
    """The contribution of each layer to the scores of one method, scaled to the strongest cell of all rows."""

    name: str
    rows: tuple[ScoreRow, ...]  # the last is the sum


@dataclass(frozen=True)
class AnswerPart:
    """A sentence or token of a language model's answer, and what each method says about it."""

    before: str  # white space
    text: str
    chance: str  # its probability, given all before it
    rows: tuple[ScoreRow, ...]


@dataclass(frozen=True)
class Panel:
    """One text or image and everything that is shown about it."""

    label: str
    probability: float | None
    model: str
    rows: tuple[ScoreRow, ...]
    differences: tuple[ScoreRow, ...]
    layers: tuple[LayerMap, ...]
    notes: tuple[str, ...]  # about the input, warnings first; then those of the rows
    picture: Picture | None = None
    value: float | None = None  # if the model predicts a value and no probability
    text: str = ""  # the texts, or the file of the image
    source: str = ""  # row, id and gold label, if known
    measure: str = ""  # what the value of an answer is
    answer: str = ""  # the whole answer of a language model
    parts: tuple[AnswerPart, ...] = ()  # of the answer, if there are several
    shares: tuple[ShareTable, ...] = ()  # of documents and sentences, one for each method
    warnings: tuple[str, ...] = ()  # those of the notes that are shown with emphasis

    @property
    def head(self) -> str:
        return f"{self.label}  {format_output(self)}"

    @property
    def output(self) -> str:
        """The probability or value, as in a sentence: with a space before the percent sign."""
        return format_output(self).replace("%", " %")

    @property
    def reading(self) -> ShownReading:
        return "probability" if self.value is None else "answer" if self.measure else "value"

    @property
    def trust(self) -> tuple[str, ...]:
        """How far the scores of each row can be trusted; several rows are named."""
        named = len(self.rows) > 1
        return tuple(f"{row.name}: {row.trust}" if named else row.trust for row in self.rows if row.trust)


def format_output(shown: Panel | Attribution) -> str:
    """Return the probability as a percentage, or the predicted value as a number; that of an answer is named."""
    if shown.value is None:
        return f"{shown.probability:.1%}"
    measure = shown.measure if isinstance(shown, Panel) else name_measure(shown)
    return f"{measure} {format_value(shown.value)}".lstrip()


@dataclass(frozen=True)
class Effects:
    """What scores below and above 0 mean, for legends."""

    below: str = "opposes"
    above: str = "supports"
    what: str = "the label"


def effects_of(readings: Set[ShownReading]) -> Effects:
    if readings == {"answer"}:
        return Effects(what="the answer")
    if readings == {"value"}:
        return Effects("lowers", "raises", "the value")
    return Effects("opposes or lowers", "supports or raises", "the label or value") if len(readings) > 1 else Effects()


def panels(results: Results, look: Look) -> list[Panel]:
    """Return one panel per input. `results`: one attribution, one result of `explain`, or a list of either."""
    return [_panel(group, look) for group in group_results(results)]


def _panel(group: Mapping[str, Attribution], look: Look) -> Panel:
    group = {name: choose_row(record, look.row) for name, record in group.items()}
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
        (*map(visible, notes_of(first)), *dict.fromkeys(row.note for row in rows if row.note)),
        first.picture,
        first.value,
        visible(first.picture.source if first.picture is not None else input_text(first)),
        describe_source(first),
        name_measure(first),
        "" if first.generated is None else visible_lines(first.texts[1].strip()),
        tuple(answer_parts(group, look) if look.row is None else ()),
        tuple(share_tables(group) if look.row is None else ()),
        tuple(map(visible, warnings_of(first))),
    )


def answer_parts(group: Mapping[str, Attribution], look: Look) -> list[AnswerPart]:
    """Return the sentences or tokens of an answer, if it was explained by them."""
    answers = {name: record.generated for name, record in group.items()}
    first = next(iter(answers.values()))
    if first is None or len(first.rows) < 2:
        return []
    return [
        AnswerPart(
            visible_lines(before),
            visible_lines(text),
            format_chance(row.log_probability),
            tuple(
                _row(name, with_row(group[name], answer.rows[place]), look)
                for name, answer in answers.items()
                if answer is not None
            ),
        )
        for place, (row, (before, text)) in enumerate(zip(first.rows, place_parts(first.rows), strict=True))
    ]


def input_text(record: Attribution) -> str:
    """Return the texts; of a prompt, what is not its chat template."""
    return BETWEEN_TEXTS.join(record.texts) if record.generated is None else prompt_text(record)


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
        nothing=f"nothing {'supports' if attribution.value is None or attribution.generated else 'raises'} it",
        note=coverage_note(stored_coverage(attribution.details)),
        trust=visible(describe_trust(attribution)),
        reach="" if attribution.generated is None else describe_reach(attribution, attribution.scores),
    )


def _fine(pixels: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    """Scale pixels to their 99th percentile, as single outliers would leave all other pixels pale."""
    strengths = sorted(abs(score) for row in pixels for score in row)
    strongest = (strengths[round(0.99 * (len(strengths) - 1))] or strengths[-1] or 1.0) if strengths else 1.0
    return tuple(tuple(max(-1.0, min(1.0, score / strongest)) for score in row) for row in pixels)


def _about(attribution: Attribution) -> str:
    settings = ", ".join(f"{key} {value}" for key, value in attribution.settings.items())
    method = f"{attribution.method} ({settings})" if settings else attribution.method
    return f"{method} on {attribution.model}, revision {attribution.revision[:19]}{attribution.identity.note}"


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
    shown = visible_lines if piece.keeps_lines else visible
    text, token = shown(piece.text), visible(piece.token)
    share, before = piece.score / strongest, shown(piece.before)
    own = "" if token == text else token
    return ScoreCell(
        text, piece.score, share, before, visible(piece.name), own, repeated=piece.repeated, tokens=piece.tokens
    )


def uncertain_legend(cells: Iterable[ScoreCell]) -> str:
    """Return why marked cells are uncertain, or an empty string if none of these is."""
    return describe_uncertain(cell.interval.level for cell in cells if cell.interval is not None and cell.uncertain)


def _pieces(attribution: Attribution, scores: Sequence[float], level: Level) -> list[ShownPiece]:
    """Return words or tokens; for images, always patches; for answers, the parts of the prompt."""
    if attribution.picture is not None:
        return patch_pieces(attribution, scores)
    if attribution.generated is not None:
        return source_pieces(attribution, scores, level)
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


def visible_lines(text: str) -> str:
    """Replace such characters except line breaks; several empty lines become one."""
    return "\n".join(visible(line) for line in fold_lines(text).split("\n"))


def _visible(character: str) -> str:
    code = ord(character)
    if character in "\n\r\t\x0b\x0c\x85":
        return " "
    if code < 0x20:
        return chr(0x2400 + code)  # as Unicode's picture of it
    if 0x7F <= code < 0xA0 or code in _TRAPS or 0xD800 <= code < 0xE000 or 0xE0000 <= code < 0xE0080:
        return f"\N{MATHEMATICAL LEFT ANGLE BRACKET}U+{code:04X}\N{MATHEMATICAL RIGHT ANGLE BRACKET}"
    return character
