"""Task: how one kind of model is handled, from an input to its record, and back for measuring.

To add one: a class in one file that inherits from `Task` (or from none, with the same methods), and `register`.
Other packages name modules that register tasks in the entry-point group `whichtoken.tasks`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, ClassVar, Protocol, TypeVar

from torch import Tensor

from whichtoken.core.objectives import Objective
from whichtoken.core.perturb import Perturbation
from whichtoken.core.rows import Row
from whichtoken.core.trace import Ask, Method
from whichtoken.errors import BadInput, BadSetting, UnknownName, UsageError
from whichtoken.models import LongTexts, Subject
from whichtoken.records import Attribution
from whichtoken.targets import Part, Target

ENTRY_POINTS = "whichtoken.tasks"


@dataclass(frozen=True)
class Piece:
    """A row of tokens that is explained by itself: a window of a long text, an end of an answer, an image."""

    index: int  # of the input
    row: Row
    goal: Any = None  # what its task needs to say what is explained of it


@dataclass(frozen=True)
class Scored:
    """One method's scores for one piece."""

    scores: tuple[float, ...]
    details: Mapping[str, object]
    layers: tuple[tuple[float, ...], ...]
    seconds: float
    evaluations: float
    pixels: Tensor | None = None  # of an image, where the method gives them: row column


@dataclass(frozen=True)
class ScoredPiece:
    """A piece, what was explained of it, and what every method made of it."""

    piece: Piece
    target: Target
    probability: float
    scored: Mapping[str, Scored]


@dataclass(frozen=True)
class Unit:
    """Elements of an input (tokens, or pixels) that are removed together, and their score."""

    elements: tuple[int, ...]
    score: float


@dataclass(frozen=True)
class Reason:
    """Why a model cannot run a method."""

    why: str
    fix: str = ""
    library: bool = False  # one is missing, which the method will say itself, with how to make it


@dataclass(frozen=True)
class BenchInput:
    """One input of a benchmark: what is explained of it if the truth is, and where it was found."""

    item: Any  # as `encode` takes it
    truth: Any = None  # a label, an answer; None: not known
    where: str = ""
    id: str = ""


@dataclass(frozen=True)
class Gold:
    """The truth about an input, as far as a benchmark uses it."""

    target: Any  # to explain it
    positions: tuple[int, ...] = ()  # of the tokens that hold it, in what the model reads
    cut_off: bool = False  # the model's limit took some of them


@dataclass(frozen=True)
class Opened:
    """An input as it was explained, to remove parts of it and ask the model again."""

    row: Row
    objective: Objective
    key: str  # names the input
    n_elements: int  # that a pattern of what is kept has entries for
    n_fixed: int  # tokens that always stay


class Task(Protocol):
    """Bound to a subject. The methods of the first group have no default."""

    subject: Subject
    heads: ClassVar[tuple[str, ...]] = ()  # classes of transformers that load the models it is for
    name: ClassVar[str]  # on the command line
    unit: ClassVar[str]  # what is explained: a text, a question, an image
    tokens: ClassVar[str] = "tokens"  # what its parts are called
    reads: ClassVar[str]  # in messages: what the model is for
    keywords: ClassVar[tuple[str, ...]] = ("texts",)  # as which its inputs may be given
    give: ClassVar[str] = "texts, or pairs of texts"  # how to do so, in messages
    default_methods: ClassVar[str] = "contrast-cat,attcat"  # of the command line; those that the model can run
    at_once: ClassVar[int] = 128  # inputs that are encoded and sorted by length together
    levels: ClassVar[tuple[str, ...]] = ("token",)  # at which parts can be removed
    protocol: ClassVar[Mapping[str, Any]] = {}  # how a benchmark differs from the recommended one by default
    has_answers: ClassVar[bool] = False  # tokens that a metric can look for, where the truth is known
    bench_long: ClassVar[LongTexts | None] = None  # what a benchmark does with inputs over the model's limit

    def encode(self, inputs: Sequence[Any], long: LongTexts | None, first: int) -> list[Any]:
        """Documents, one for each input. `first`: the index of the first input, for errors."""
        ...

    def pieces(self, documents: Sequence[Any], target: Any, first: int) -> list[Piece]:
        """What is explained by itself. May run the model to find out what it predicts."""
        ...

    def objective(self, pieces: Sequence[Piece], logits: Tensor) -> Objective:
        """What is explained of these pieces, given the model's logits for them."""
        ...

    def record(self, document: Any, parts: Sequence[ScoredPiece], key: str, made: Mapping[str, Any]) -> Attribution:
        """One method's record of a document, merged over its pieces. `made`: the fields that say how it was made."""
        ...

    def removals(self) -> Mapping[str, Perturbation]:
        """How parts of an input can be removed, by name, the usual one first."""
        ...

    def reopen(self, record: Attribution, item: Any = None) -> Opened:
        """The input of a record, as the model read it; UsageError if this model did not. `item`: the input itself."""
        ...

    def units(self, record: Attribution, level: str) -> list[Unit]:
        """What can be removed of a record's input, in its order."""
        ...

    def n_tokens(self, document: Any) -> int:
        """How many tokens the model reads of a document, special ones included."""
        ...

    def examples(self, source: Any, labels: Any, columns: Sequence[str] | None) -> Iterator[BenchInput]:
        """The inputs of a benchmark."""
        ...

    # What follows has a default.

    def named(self, document: Any) -> Any:
        """What tells a document from others, with a `repr` that does not change."""
        return document.texts

    @classmethod
    def accepts(cls, subject: Subject) -> bool:
        """Whether this is the task of the subject's model."""
        return subject.head.auto_class in cls.heads

    def target(self, target: Any) -> Any:
        """What `explain(target=...)` accepts, checked; an error now rather than after the first pass."""
        return target

    def check_long(self, long: str | None) -> None:
        """What `explain(long=...)` says of inputs over the model's limit."""
        if long is not None:
            raise BadSetting("long", long, f"None: {self.unit}s are never too long for {self.subject.title}")

    def inputs(self, inputs: object) -> Iterable[Any]:
        """What can be a list of inputs, or BadInput."""
        if isinstance(inputs, str):
            raise BadInput(f"inputs is one string, {inputs[:40]!r}; put it in a list: [text]")
        if not isinstance(inputs, Iterable) or isinstance(inputs, Mapping):
            raise BadInput(f"inputs is {inputs!r:.40}; expected a list of strings, or of pairs of strings")
        return inputs

    def can_run(self, method: Method) -> Reason | None:
        """Why this model cannot run a method, if it cannot."""
        return lacking_library(self.subject, method)

    def removal(self, how: str | Perturbation | None) -> Perturbation:
        """By name; None: the usual one. An error says why a model does not have one of the known ones."""
        known = self.removals()
        if how is None:
            return next(iter(known.values()))
        if not isinstance(how, str):
            return how
        if how not in known:
            raise UnknownName("perturbation", how, known)
        return known[how]

    def bench_target(self, part: Part) -> Any:
        """What a benchmark explains unless it explains the truth. `part`: of an answer."""
        return None

    def gold(self, example: BenchInput, document: Any, index: int, part: Part) -> Gold | None:
        """The truth about an example; None if it is not known, and the example is left out where it is needed."""
        return None

    def reference_rule(self, rule: str) -> str:
        """By which rule texts are kept for a reference library while a corpus is scanned."""
        raise UsageError(f"{self.subject.title} {self.reads}; reference libraries are made of texts")

    def check_references(self, texts: Sequence[tuple[str, ...]]) -> None:
        """BadInput if these cannot be references."""
        return

    def class_probabilities(self, logits: Tensor) -> Tensor:
        """How much each class (of an answer, the only one) is activated: batch label."""
        return logits.softmax(-1)

    def kept_beside(self, rows: Sequence[Row]) -> Tensor | None:
        """What else a library keeps of its references, where their class alone does not say how well they suit."""
        return None

    def facts(self) -> list[tuple[str, str]]:
        """What `whichtoken model` says of inputs and outputs."""
        return []


def lacking_library(subject: Subject, method: Method) -> Reason | None:
    """Of a method that asks for references, or heads, and finds none."""
    for ask, name in ((Ask.REFERENCES, "reference library"), (Ask.HEADS, "head mask")):
        given = getattr(subject, ask.value) is not None or method.settings.get(ask.value) is not None
        if ask in method.needs.asks and not given:
            return Reason(f"there is no {name}", f"see: whichtoken {ask.value} build --help", library=True)
    return None


_tasks: list[type[Task]] = []
_T = TypeVar("_T", bound=type[Task])


def register(task: _T) -> _T:
    """Class decorator. Of several tasks that accept a model, the latest one has it."""
    _tasks.insert(0, task)
    return task


def task_for(subject: Subject) -> Task:
    if not isinstance(subject, Subject):
        raise BadSetting("subject", type(subject).__name__, "a Subject: wt.load(name), or wt.Subject(model, processor)")
    _load_others()
    return next(task for task in _tasks if task.accepts(subject))(subject)  # type: ignore[call-arg]


@cache
def _load_others() -> None:
    for entry in entry_points(group=ENTRY_POINTS):
        entry.load()
