"""What requests contain: the records that are the request half of the API's schema."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field

STRICT = ConfigDict(extra="forbid")
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]
Label: TypeAlias = Annotated[str | int, Field(union_mode="left_to_right")]
Position: TypeAlias = Annotated[int, Field(ge=0, le=1_000_000)]
LevelName: TypeAlias = Literal["word", "token"]
# As `Attribution.to_json` writes it; `Attribution.from_json` checks it.
RecordJson: TypeAlias = Annotated[
    dict[str, Any], Field(json_schema_extra={"description": "an Attribution, as this server returned it"})
]


@dataclass(frozen=True)
class TextInput:
    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    kind: Literal["text"]
    text: str


@dataclass(frozen=True)
class PairInput:
    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    kind: Literal["pair"]
    text: str
    pair: str


@dataclass(frozen=True)
class QuestionInput:
    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    kind: Literal["question"]
    question: str
    context: str


@dataclass(frozen=True)
class ImageInput:
    """An image file: PNG, JPEG, GIF, WebP or BMP."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    kind: Literal["image"]
    data: str  # base64


@dataclass(frozen=True)
class PromptInput:
    """A text that a language model continues, or the beginning and the continuation that are given."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    kind: Literal["prompt"]
    prompt: str
    continuation: str | None = None  # None: the model generates it
    tokens: Annotated[int, Field(ge=1, le=100_000)] = 32  # that it generates at most
    rows: Literal["answer", "sentence", "token"] = "token"  # the parts of the answer that are explained
    foil: str | None = None  # why the answer, and not this


AnyInput: TypeAlias = Annotated[
    TextInput | PairInput | QuestionInput | ImageInput | PromptInput, Field(discriminator="kind")
]


@dataclass(frozen=True)
class TargetRequest:
    """A label by name or index, or the text of an answer; with `rather_than`, why the one and not the other."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    label: Label
    rather_than: Label | None = None


@dataclass(frozen=True)
class PredictRequest:
    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    model: Name
    input: AnyInput
    target: TargetRequest | None = None
    token: str | None = None  # the word whose label is explained, for models that label tokens
    level: LevelName = "word"
    removal: Name | None = None
    off: list[Position] = field(default_factory=list)  # positions of tokens that are switched off
    states: list[list[Position]] | None = None  # several such lists, instead of `off`


@dataclass(frozen=True)
class ExplainRequest:
    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    model: Name
    input: AnyInput
    target: TargetRequest | None = None
    token: str | None = None
    methods: list[Name] | None = None
    layers: bool = False


@dataclass(frozen=True)
class CurvesRequest:
    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    model: Name
    records: list[RecordJson]
    level: LevelName = "word"
    removal: Name | None = None
    random: Annotated[int, Field(ge=0, le=100)] = 20  # random orders
    bounds: bool = True


@dataclass(frozen=True)
class ReviewRequest:
    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    model: Name
    content: str  # of the file
    format: Literal["csv", "tsv", "jsonl", "txt"] = "csv"
    method: Name | None = None
    columns: list[Name] | None = None
    label: Name | None = None
    id: Name | None = None


@dataclass(frozen=True)
class RenderRequest:
    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    records: list[RecordJson]
    level: LevelName = "word"
    differences: bool = False


@dataclass(frozen=True)
class ExportRequest:
    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    records: list[RecordJson]
    format: Literal["json", "html", "png", "svg"]
    level: LevelName = "word"
    differences: bool = False


@dataclass(frozen=True)
class OpenRequest:
    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    content: str  # of a saved file
