"""Task: how one kind of model is handled, from input to record, and from record back to input for evaluation.

To add a task, write one file with a class that inherits from `Task` (or has its methods), and `register` it.
Other packages list the modules that register their tasks in the entry-point group `whichtoken.tasks`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import Any, ClassVar, Protocol, TypeVar

from torch import Tensor

from whichtoken.core.perturb import Perturbation
from whichtoken.core.picks import Picks
from whichtoken.core.registry import method
from whichtoken.core.rows import Row
from whichtoken.core.trace import Ask, Level, Method, Site
from whichtoken.data.examples import Columns, ImageExample, TextExample, as_rows, parse_mapping
from whichtoken.data.prompts import Prompt
from whichtoken.errors import (
    BadInput,
    BadSetting,
    UnknownName,
    UnsupportedModel,
    UsageError,
    WhichTokenError,
    name_type,
)
from whichtoken.models import LongTexts, Subject
from whichtoken.models.quantised import FIX
from whichtoken.records import Attribution, Reading
from whichtoken.targets import AnswerRequest, Part, Target
from whichtoken.trust import Confidence

ENTRY_POINTS = "whichtoken.tasks"
FEW = 100  # inputs that are explained by a method of many evaluations if no method is named


@dataclass(frozen=True)
class Piece:
    """A row of tokens that is explained on its own: a window of a long text, one end of an answer, an image.

    Pieces of one input with the same `part` are merged into one record; an input has as many records as parts. Pieces
    with the same `row`, the very same object, are explained by the same forward pass (the tokens of an answer).
    """

    index: int  # of the input
    row: Row
    goal: Any = None  # what to explain about it, in the task's own form
    part: int = 0  # which of the input's records it belongs to
    # Which part of the input each token belongs to, -1 at special tokens; None: each token is a part.
    segments: Callable[[Level], Sequence[int]] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Scored:
    """One method's scores for one piece."""

    scores: tuple[float, ...]
    details: Mapping[str, object]
    layers: tuple[tuple[float, ...], ...]
    seconds: float
    evaluations: float
    pixels: Tensor | None = None  # scores of an image's pixels, if the method provides them: row column
    confidence: Confidence | None = None


@dataclass(frozen=True)
class ScoredPiece:
    """A piece, its explained target, and every method's scores for it."""

    piece: Piece
    target: Target
    probability: float  # or the predicted value, if that is the task's reading
    scored: Mapping[str, Scored]
    logits: Tensor | None = None  # what the model returned for it


@dataclass(frozen=True)
class Unit:
    """Elements of an input (tokens or pixels) that are removed together, with their score."""

    elements: tuple[int, ...]
    score: float
    tokens: tuple[int, ...] = ()  # positions in the record's tokens; empty for single pixels


@dataclass(frozen=True)
class Reason:
    """Why a model cannot run a method."""

    why: str
    fix: str = ""
    library: bool = False  # a reference library or head mask is missing; the method's own error says how to build it
    error: type[WhichTokenError] = UsageError  # that `explain` raises


@dataclass(frozen=True)
class BenchInput:
    """One input of a benchmark, with its gold label."""

    item: Any  # as `encode` accepts it
    truth: Any = None  # the gold label or answers; None if unknown
    where: str = ""  # file and line, for error messages
    id: str = ""
    row: int | None = None  # as in `TextExample`, if known


@dataclass(frozen=True)
class Gold:
    """The gold label or answer of an input, as a benchmark uses it."""

    target: Any  # as `explain(target=...)` accepts it
    positions: tuple[int, ...] = ()  # of the answer's tokens, in the sequence that the model reads
    cut_off: bool = False  # truncation to the model's limit removed some of them


@dataclass(frozen=True)
class Opened:
    """An input as it was explained, ready to be evaluated with parts removed."""

    row: Row
    picks: Picks
    key: str  # identifies the input
    n_elements: int  # length of a pattern of kept elements
    n_fixed: int  # tokens that are never removed


class Task(Protocol):
    """How one kind of model is handled; bound to a subject. The methods of the first group have no default."""

    subject: Subject
    heads: ClassVar[tuple[str, ...]] = ()  # transformers auto classes that load its models
    name: ClassVar[str]  # on the command line
    unit: ClassVar[str]  # what one input is: text, question, image
    tokens: ClassVar[str] = "tokens"  # what its parts are called
    purpose: ClassVar[str]  # what the model does, for messages: "classifies texts"
    keywords: ClassVar[tuple[str, ...]] = ("texts",)  # kinds of input that it reads: texts, question, images
    input_hint: ClassVar[str] = "texts, or pairs of texts"  # how to pass inputs, for messages
    default_method: ClassVar[str] = "posterior"  # if none is named: the most faithful, without LRP for its patents
    quick_method: ClassVar[str] = "att-x-att-grads"  # of one pass, for many inputs
    at_once: ClassVar[int] = 512  # inputs that are encoded and sorted by length together
    levels: ClassVar[tuple[str, ...]] = ("token",)  # at which parts can be removed
    protocol: ClassVar[Mapping[str, Any]] = {}  # benchmark defaults that differ from the recommended protocol
    has_classes: ClassVar[bool] = True  # another class could be explained instead
    has_answers: ClassVar[bool] = False  # gold answers have token positions, which a metric can look for
    bench_long: ClassVar[LongTexts | None] = None  # how a benchmark handles over-long inputs
    explained: ClassVar[str] = "class"  # what is explained, in the facts of a benchmark
    value_name: ClassVar[str] = "predicted value"  # what is tracked, if the reading is a value
    no_result: ClassVar[str] = ""  # if an input may have no result: what that means, for messages

    def encode(self, inputs: Sequence[Any], long: LongTexts | None, first: int) -> list[Any]:
        """Return one document per input. `first`: the index of the first input, for error messages."""
        ...

    def pieces(self, documents: Sequence[Any], target: Any, first: int) -> list[Piece]:
        """Split documents into pieces that are explained separately. May run the model to find out what it predicts."""
        ...

    def picks(self, pieces: Sequence[Piece], logits: Tensor) -> Picks:
        """Return what to explain about these pieces, given the model's logits for them."""
        ...

    def record(self, document: Any, parts: Sequence[ScoredPiece], key: str, origin: Mapping[str, Any]) -> Attribution:
        """Return one method's record of a document, merged over its pieces.

        `origin`: fields that say how it was made, and those of `shared_fields`.
        """
        ...

    def removals(self) -> Mapping[str, Perturbation]:
        """Return, by name, the ways to remove parts of an input; the default is first."""
        ...

    def reopen(self, record: Attribution, item: Any = None) -> Opened:
        """Return a record's input as the model read it. `item`: the input itself. UsageError if it does not fit."""
        ...

    def units(self, record: Attribution, level: str) -> list[Unit]:
        """Return the removable units of a record's input, in input order."""
        ...

    def n_tokens(self, document: Any) -> int:
        """Return how many tokens of a document the model reads, including special tokens."""
        ...

    def examples(self, source: Any, labels: Any, columns: Sequence[str] | None) -> Iterator[BenchInput]:
        """Read the inputs of a benchmark."""
        ...

    # The methods below have defaults.

    def shared_fields(self, document: Any, parts: Sequence[ScoredPiece]) -> Mapping[str, Any]:
        """Return fields of the records of a document that are the same for every method, computed once for all."""
        return {}

    def document_key(self, document: Any) -> Any:
        """Return a value that identifies a document and has a stable `repr`."""
        return document.texts

    @classmethod
    def accepts(cls, subject: Subject) -> bool:
        """Return whether this task fits the subject's model."""
        return subject.head.auto_class in cls.heads

    def target(self, target: Any) -> Any:
        """Check and normalise what `explain(target=...)` accepts, before the first forward pass."""
        return target

    def for_token(self, target: Any, token: Any) -> Any:
        """Return a checked target for one word of each input, for models that label tokens."""
        raise UsageError(f"a token was given, but {self.subject.title} {self.purpose}; leave it out (token=, --token)")

    def for_answer(self, target: Any, request: AnswerRequest) -> Any:
        """Return a checked target for the answer to a prompt, for models that generate text."""
        raise UsageError(f"an answer to a prompt was requested, but {self.subject.title} {self.describe_purpose()}")

    def all_targets(self) -> list[Any]:
        """Return every target that `explain(targets="all")` stands for."""
        raise BadSetting("targets", "all", f"a list of targets: {self.subject.title} {self.purpose}")

    def check_long(self, long: str | None) -> None:
        """Raise BadSetting if `explain(long=...)` has no such option for this task."""
        if long is not None:
            raise BadSetting("long", long, f"None: {self.unit}s are never too long for {self.subject.title}")

    def inputs(self, inputs: object) -> Iterable[Any]:
        """Return the inputs as an iterable, one string as a list; BadInput for anything that could be misread."""
        inputs = as_rows(inputs)
        if isinstance(inputs, str) or (
            isinstance(inputs, Mapping) and all(isinstance(v, str) for v in inputs.values())
        ):
            return [inputs]
        if isinstance(inputs, tuple) and len(inputs) == 2 and all(isinstance(text, str) for text in inputs):
            one, two = (f"{text:.30}" for text in inputs)
            raise BadInput(
                f"inputs is a tuple of two texts; give one pair, [({one!r}, {two!r})], or two texts, [{one!r}, {two!r}]"
            )
        if not isinstance(inputs, Iterable) or isinstance(inputs, Mapping):
            raise BadInput(
                f"inputs is {name_type(inputs)}; expected a text, or a list of texts, of pairs of texts, or of rows: "
                "[{'text': ...}]"
            )
        if getattr(inputs, "ndim", 1) != 1:
            raise BadInput(f"inputs is an array of {inputs.ndim} dimensions; expected a list of texts")  # type: ignore[attr-defined]
        return inputs

    def parse_row(self, row: Mapping[str, Any], index: int) -> TextExample | ImageExample | Prompt:
        """Return the example of a row with named columns, such as a row of a Hugging Face dataset."""
        return parse_mapping(row, Columns(), f"row {index}", index)

    def gold_name(self, label: Any) -> str | None:
        """Return a gold label as records show it; None if it is unknown, UsageError if it is not one of the model's."""
        return None if label is None else str(label)

    def describe_purpose(self) -> str:
        """Return what this model does, for messages."""
        return self.purpose

    def describe_output(self, label: str) -> str:
        """Return what a benchmark tracks, if the reading is a value; `label`: of one input."""
        return f"{label}: regression, the change of the {self.value_name}"

    def can_run(self, method: Method) -> Reason | None:
        """Return why this model cannot run a method; None if it can."""
        method = self.adapt(method)
        reason = missing_gradient(self.subject, method) or missing_map(self.subject, method)
        return reason or missing_removal(self, method) or missing_library(self.subject, method)

    def adapt(self, method: Method) -> Method:
        """Return a method without what this model cannot run, if it leaves the choice to the model."""
        return method.adapt(lambda other: self.can_run(other) is None)

    def removal(self, how: str | Perturbation | None) -> Perturbation:
        """Return a removal by name (None: the default). UnsupportedModel if it does not suit this model."""
        removals = self.removals()
        if how is None:
            return next(iter(removals.values()))
        if not isinstance(how, str):
            return how
        if how not in removals:
            raise UnknownName("perturbation", how, removals)
        return removals[how]

    def choose_method(self, n_inputs: int | None) -> str:
        """Return the method to use if none is named; None: nobody knows how many inputs there are."""
        if n_inputs is None or n_inputs > FEW or self.can_run(method(self.default_method)) is not None:
            return self.quick_method
        return self.default_method

    def bench_target(self, part: Part, n_tokens: int) -> Any:
        """Return what a benchmark explains if it does not explain the gold label.

        `part`: which ends of an answer. `n_tokens`: of an answer that the model writes, at most.
        """
        return None

    def has_target(self, item: Any) -> bool:
        """Return whether `bench_target` finds something to explain in an input; others are left out and counted."""
        return True

    def gold(self, example: BenchInput, document: Any, index: int, part: Part) -> Gold | None:
        """Return the gold label or answer; None if unknown (examples without one are skipped where it is needed)."""
        return None

    def reference_rule(self, rule: str) -> str:
        """Return the rule to apply while a corpus is scanned for reference texts."""
        raise UsageError(
            f"{self.subject.title} {self.describe_purpose()}; reference libraries can only be built from texts"
        )

    def check_references(self, texts: Sequence[tuple[str, ...]]) -> None:
        """Raise BadInput if these texts cannot be references."""
        return

    def reading(self) -> Reading:
        """Return what the model's output is read as; it is tracked while parts are removed."""
        return "probability"

    def class_probabilities(self, logits: Tensor) -> Tensor:
        """Return the probability of each class (question answering has only one): batch label."""
        return logits.softmax(-1)

    def label_probabilities(self, logits: Tensor) -> list[tuple[str, float]]:
        """Return the labels and their probabilities for the logits of one input; empty where there are no such."""
        return []

    def reference_extras(self, rows: Sequence[Row]) -> Tensor | None:
        """Return what a library stores of its references besides activations; None where the class is enough."""
        return None

    def facts(self) -> list[tuple[str, str]]:
        """Return what `whichtoken model` prints about inputs and outputs."""
        return []


def missing_gradient(subject: Subject, method: Method) -> Reason | None:
    """Return a reason if a method needs gradients and a quantised module of the model has none."""
    needs = method.needs
    if subject.packed is None or not (needs.grads or needs.relevance or Ask.PASSES in needs.asks):
        return None
    return Reason(f"{subject.packed} is quantised and passes no gradient on", FIX, error=UnsupportedModel)


def missing_map(subject: Subject, method: Method) -> Reason | None:
    """Return a reason if a method takes what attention adds to be a linear map of the values, and it is not."""
    linear = {Site.PROJECTION, Site.ATTENDED, Site.NORM}
    if not subject.architecture.branch_norm or not linear & method.needs.values:
        return None
    kind = subject.model.config.model_type
    return Reason(f"{kind} normalises what attention adds, so heads have no shares of it", error=UnsupportedModel)


def missing_removal(task: Task, method: Method) -> Reason | None:
    """Return a reason if a method removes parts in a way that does not suit the model. UnknownName if there is none."""
    if Ask.ANSWERS not in method.needs.asks:
        return None
    try:
        for name in method.removals:
            task.removal(name)
    except UnknownName:
        raise
    except WhichTokenError as error:
        why, _, fix = str(error).partition("; ")
        return Reason(why, fix, error=type(error) if isinstance(error, UnsupportedModel) else UsageError)
    return None


def missing_library(subject: Subject, method: Method) -> Reason | None:
    """Return a reason if a method needs a reference library or a head mask and there is none."""
    for ask, name in ((Ask.REFERENCES, "reference library"), (Ask.HEADS, "head mask")):
        present = getattr(subject, ask.value) is not None or method.settings.get(ask.value) is not None
        if ask in method.needs.asks and not present:
            return Reason(f"there is no {name}", f"see: whichtoken {ask.value} build --help", library=True)
    return None


_tasks: list[type[Task]] = []
_T = TypeVar("_T", bound=type[Task])


def register(task: _T) -> _T:
    """Register a task (class decorator). If several tasks accept a model, the one registered last is used."""
    _tasks.insert(0, task)
    return task


def task_for(subject: Subject) -> Task:
    if not isinstance(subject, Subject):
        raise BadSetting("subject", type(subject).__name__, "a Subject: wt.load(name), or wt.Subject(model, processor)")
    _load_entry_points()
    return next(task for task in _tasks if task.accepts(subject))(subject)  # type: ignore[call-arg]


@cache
def _load_entry_points() -> None:
    for entry in entry_points(group=ENTRY_POINTS):
        entry.load()
