"""What replies contain: the records that are the reply half of the API's schema. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whichtoken.records import Attribution, Prediction, Reading
from whichtoken.render.rows import ShownReading
from whichtoken.tables import Agreement
from whichtoken.web.limits import Limits


@dataclass(frozen=True)
class ErrorText:
    kind: str
    message: str  # one line, to be shown as it is
    status: int


@dataclass(frozen=True)
class ErrorReply:
    error: ErrorText


@dataclass(frozen=True)
class HealthReply:
    status: str


@dataclass(frozen=True)
class MethodFacts:
    name: str
    title: str
    paper: str
    about: str
    cost: str  # "fast": one pass, shared with others; "slow": evaluates many inputs
    tuned_on_deletion: bool
    layers: bool  # it can be shown by layer
    presets: tuple[str, ...]
    cannot_run: str | None  # why this model cannot run it


@dataclass(frozen=True)
class ModelFacts:
    id: str
    title: str
    revision: str
    processor: str
    task: str
    purpose: str
    inputs: tuple[str, ...]  # kinds of input, the usual one first
    unit: str
    parts: str
    levels: tuple[str, ...]
    removals: tuple[str, ...]  # the default first
    reading: Reading
    labels: tuple[str, ...]
    targets: str  # "labels", or "answer": the text of one
    contrast: bool
    token: bool  # a word may be chosen
    facts: tuple[tuple[str, str], ...]
    default_methods: tuple[str, ...]
    quick_method: str
    methods: tuple[MethodFacts, ...]


@dataclass(frozen=True)
class InfoReply:
    version: str
    api: int
    models: tuple[ModelFacts, ...]
    limits: Limits
    benchmark: bool
    corpus: bool
    figures: bool  # PNG and SVG can be exported


@dataclass(frozen=True)
class PartView:
    """A word, token or patch, without a score."""

    text: str
    before: str
    name: str
    token: str
    tokens: tuple[int, ...]
    removable: bool


@dataclass(frozen=True)
class LabelView:
    label: str
    index: int
    probability: float


@dataclass(frozen=True)
class SwitchedView:
    """What is explained, and how it changes as parts are switched off."""

    label: str
    target: Mapping[str, Any]
    reading: Reading
    whole: float
    whole_shown: str
    outputs: tuple[float, ...]  # one for each state
    shown: tuple[str, ...]
    removed: tuple[float, ...]  # share of the removable parts that is off
    cells: tuple[PartView, ...]


@dataclass(frozen=True)
class PredictReply:
    explained: tuple[SwitchedView, ...]
    labels: tuple[LabelView, ...]  # of the last state, the most probable first
    whole_labels: tuple[LabelView, ...]
    predicted: Prediction | None
    note: str


@dataclass(frozen=True)
class IntervalView:
    low: float
    high: float
    low_share: float
    high_share: float
    level: float
    hint: str


@dataclass(frozen=True)
class CellView:
    text: str
    before: str
    name: str
    token: str
    tokens: tuple[int, ...]
    removable: bool
    score: float
    share: float
    step: int
    shade: str  # a class of /api/shades.css
    interval: IntervalView | None
    uncertain: bool
    hint: str


@dataclass(frozen=True)
class RowView:
    name: str
    about: str
    tuned_on_deletion: bool
    unit: str
    nothing: str
    note: str
    trust: str
    uncertain: str  # why some cells are marked as uncertain
    cells: tuple[CellView, ...]


@dataclass(frozen=True)
class EffectsView:
    below: str
    above: str
    what: str


@dataclass(frozen=True)
class PictureView:
    png: str  # base64
    overlay: str
    width: int
    height: int
    rows: int
    columns: int


@dataclass(frozen=True)
class ReferenceView:
    """A reference text that a contrasting method used."""

    text: tuple[str, ...] | None
    label: str
    probability: float
    n_tokens: int
    survived: bool
    drop: float | None


@dataclass(frozen=True)
class AnswerPartView:
    """A part of a generated answer, with its own map of the prompt."""

    before: str
    text: str
    tokens: tuple[int, ...]
    log_probability: float
    shown: str  # its probability
    rows: Mapping[str, RowView]


@dataclass(frozen=True)
class AnswerView:
    """What a language model generated, or was given as its answer."""

    text: str
    is_given: bool
    parts: tuple[AnswerPartView, ...]


@dataclass(frozen=True)
class ResultView:
    record: Attribution
    name: str
    label: str
    output: str
    head: str
    reading: ShownReading
    model: str
    source: str
    predicted: Prediction | None
    correct: bool | None
    text: str
    notes: tuple[str, ...]
    warnings: tuple[str, ...]  # those of the notes that are shown with emphasis
    effects: EffectsView
    rows: Mapping[str, RowView]
    layers: Mapping[str, tuple[RowView, ...]]
    picture: PictureView | None
    references: tuple[ReferenceView, ...]
    answer: AnswerView | None


@dataclass(frozen=True)
class MethodReply:
    method: str
    part: int
    parts: int
    result: ResultView


@dataclass(frozen=True)
class OpenReply:
    page: Mapping[str, Any] | None
    results: tuple[MethodReply, ...]


@dataclass(frozen=True)
class PanelView:
    label: str
    output: str
    head: str
    model: str
    text: str
    source: str
    notes: tuple[str, ...]
    trust: tuple[str, ...]
    rows: tuple[RowView, ...]
    differences: tuple[RowView, ...]


@dataclass(frozen=True)
class RenderReply:
    panels: tuple[PanelView, ...]


@dataclass(frozen=True)
class CurveView:
    removed: tuple[float, ...]
    outputs: tuple[float, ...]
    aopc: float


@dataclass(frozen=True)
class ReviewRow:
    """One row of an uploaded file."""

    row: int | None
    id: str | None
    text: str
    gold: str | None
    predicted: str | None
    label: str
    output: float
    shown: str
    correct: bool | None
    strongest: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    input: Mapping[str, str]
    result: ResultView


@dataclass(frozen=True)
class ColumnView:
    name: str
    title: str
    about: str
    better: str  # "higher", "lower", or "" if neither is
    flattered: bool


@dataclass(frozen=True)
class EstimateView:
    mean: float
    low: float
    high: float
    n: int
    p: float | None
    text: str
    interval: str
    about: str
    best: bool
    close: bool
    flattered: bool


@dataclass(frozen=True)
class LineView:
    method: str
    tuned_on_deletion: bool
    control: bool
    cells: Mapping[str, EstimateView]  # by column; columns may be missing


@dataclass(frozen=True)
class TrendView:
    metric: str
    order: str
    perturbation: str
    grid: str
    removed: tuple[float, ...]
    means: Mapping[str, tuple[float, ...]]  # by method
    low: Mapping[str, tuple[float, ...]]
    high: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class BenchmarkReply:
    title: str
    verdict: str
    facts: tuple[tuple[str, str], ...]
    unit: str
    reading: Reading
    notes: tuple[str, ...]
    legend: tuple[str, ...]
    methods: tuple[str, ...]
    columns: tuple[ColumnView, ...]
    lines: tuple[LineView, ...]
    trends: tuple[TrendView, ...]
    agreement: Agreement | None
    drill: bool  # inputs can be compared


@dataclass(frozen=True)
class DisagreementView:
    """One input of a benchmark, and two methods on it: AOPC, and curves."""

    number: int
    row: int
    id: str
    label: str
    text: tuple[str, ...] | None  # None where the data were not found
    whole: float
    first: float
    second: float
    difference: float
    removed: tuple[float, ...]
    first_curve: tuple[float, ...]
    second_curve: tuple[float, ...]


@dataclass(frozen=True)
class DisagreementsReply:
    first: str
    second: str
    plan: str
    n: int  # inputs that both methods were measured on
    inputs: tuple[DisagreementView, ...]
