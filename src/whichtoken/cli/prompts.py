"""The options of `explain` and `compare` for language models, and the prompts that they give."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from whichtoken.boundary import read_text
from whichtoken.cli.completion import one_of
from whichtoken.cli.inputs import CommandInputs, TypedInputs, read_standard_input
from whichtoken.data.prompts import Message, Prompt, as_prompt, list_prompts
from whichtoken.data.sources import BadRow
from whichtoken.errors import BadInput, BadSetting, UsageError
from whichtoken.targets import AnswerRequest, Generation, RowLevel, SourceLevel

ROWS, SOURCES = get_args(RowLevel), get_args(SourceLevel)
TOKENS = 32  # generated if nothing else is asked for

PromptText = Annotated[
    str | None, typer.Option("--prompt", help="Prompt of a language model, or - to read it from standard input.")
]
Generate = Annotated[
    int | None, typer.Option("--generate", help=f"Maximum number of tokens in the answer; default: {TOKENS}.")
]
Continuation = Annotated[
    str | None, typer.Option("--continuation", help="Explain this answer to --prompt instead of a generated one.")
]
Chat = Annotated[bool, typer.Option("--chat", help="Send the prompt as a user message, for a chat model.")]
System = Annotated[str | None, typer.Option("--system", help="System message, before the user message.")]
Documents = Annotated[
    list[Path] | None,
    typer.Option(
        "--documents", metavar="FILE...", help="Text files that the answer may rest on; read before the prompt."
    ),
]
Rows = Annotated[
    str | None,
    typer.Option("--rows", help=f"Parts of an answer to explain: {', '.join(ROWS)}.", autocompletion=one_of(*ROWS)),
]
Sources = Annotated[
    str | None,
    typer.Option(
        "--sources",
        help=f"Parts of a prompt that are scored: {', '.join(SOURCES)}; default: word, or document.",
        autocompletion=one_of(*SOURCES),
    ),
]
Foil = Annotated[
    str | None, typer.Option("--foil", help="Explain why a language model said what it said and not this.")
]
Temperature = Annotated[
    float | None, typer.Option("--temperature", help="Sample the answer at random; default: 0, the most likely tokens.")
]
TopP = Annotated[
    float | None,
    typer.Option("--top-p", help="Sample only from the most likely tokens that have this total probability."),
]
Seed = Annotated[
    int | None, typer.Option("--seed", help="Seed for --temperature; the same seed gives the same answer.")
]
ShownRow = Annotated[
    str | None, typer.Option("--row", help="Show the part of the answer that contains this text; see --rows.")
]


@dataclass(frozen=True)
class PromptOptions:
    """What was typed about a language model's prompt and answer."""

    prompt: str | None = None
    generate: int | None = None
    continuation: str | None = None
    chat: bool = False
    system: str | None = None
    documents: Sequence[Path] = ()
    rows: str | None = None
    sources: str | None = None
    foil: str | None = None
    sampling: dict[str, Any] = field(default_factory=dict)  # temperature, top_p, seed: None if not given

    @property
    def given(self) -> list[str]:
        """The options that were typed."""
        named = {
            "--prompt": self.prompt,
            "--generate": self.generate,
            "--continuation": self.continuation,
            "--chat": self.chat or None,
            "--system": self.system,
            "--documents": self.documents or None,
            "--rows": self.rows,
            "--sources": self.sources,
            "--foil": self.foil,
            **{f"--{name.replace('_', '-')}": value for name, value in self.sampling.items()},
        }
        return [name for name, value in named.items() if value is not None]

    def request(self) -> AnswerRequest:
        """Return what is explained about the answers; BadSetting or UsageError if that is impossible."""
        _check_choice("--rows", self.rows, ROWS)
        _check_choice("--sources", self.sources, SOURCES)
        sampling = {name: value for name, value in self.sampling.items() if value is not None}
        if self.continuation is not None and (self.generate is not None or sampling):
            raise UsageError(
                "--continuation gives the answer, so nothing is generated; leave it out, or the options for generating"
            )
        sources: Any = self.sources or ("document" if self.documents else "word")
        rows: Any = self.rows or "answer"
        how = Generation(TOKENS if self.generate is None else self.generate, **sampling)
        return AnswerRequest(None if self.continuation is not None else how, rows, sources, self.foil)

    def gather(self, typed: TypedInputs) -> CommandInputs:
        """Return the prompts, checked before any work. `typed`: the other inputs.

        Texts are further documents if there are some, so that `--documents a.txt b.txt` means two.
        """
        if self.documents and typed.texts:
            paths = [*self.documents, *map(Path, typed.texts)]
            return replace(self, documents=paths).gather(replace(typed, texts=()))
        file = typed.file
        others = [*typed.texts, *typed.columns, *typed.images, typed.pair, typed.question, typed.context]
        if any(others):
            raise UsageError(f"{', '.join(self.given)}: a prompt cannot be combined with other inputs; give one kind")
        if file is None and typed.rows.given:
            raise UsageError(f"{', '.join(typed.rows.given)}: this applies to the rows of --file, which is missing")
        if (self.prompt is None) == (file is None):
            given = self.given[0] if self.prompt is None else "--prompt"
            raise UsageError(f"{given}: give one prompt, --prompt TEXT, or a file of them, --file NAME.jsonl")
        documents = {path.name: _read_document(path) for path in self.documents}
        if len(documents) < len(self.documents):
            documents = {str(path): _read_document(path) for path in self.documents}
        if self.prompt is None:
            assert file is not None, "one of the two is given"
            return self._gather_file(file, documents, typed)
        text = "\n".join(read_standard_input(keep_empty=True)) if self.prompt == "-" else self.prompt
        try:
            listed = list_prompts([text], self.continuation, documents or None)
        except BadInput as error:
            error.place = "the prompt"
            raise
        made = [replace(self._as_chat(prompt), where="the prompt") for prompt in listed]
        return CommandInputs(lambda: iter(made), 1, lambda i: "the prompt", "prompt", self.documents)

    def _gather_file(self, file: Path, documents: dict[str, str], typed: TypedInputs) -> CommandInputs:
        from whichtoken.data.files import read_file_rows

        if self.continuation is not None:
            raise UsageError("--continuation is one answer; a file has them in its column continuation or answer")
        source = typed.rows.open(file, typed.bad)

        def read() -> Iterator[Prompt]:
            for number, row in read_file_rows(source):
                where = f"{source}, row {number}"
                try:
                    prompt = self._as_chat(as_prompt(row, number))
                except BadInput as error:
                    error.place = where
                    typed.bad(BadRow(number, where, error, row))
                else:
                    own = prompt if prompt.documents or not documents else _add_documents(prompt, documents)
                    yield replace(own, where=where)

        count = sum(1 for _ in read())
        if not count:
            raise BadInput(f"{file} has no prompts")
        return CommandInputs(
            read, count, lambda i: next(islice(read(), i, None)).where, "prompt", [file, *self.documents]
        )

    def _as_chat(self, prompt: Prompt) -> Prompt:
        """Return a text as the user's message, if a chat was asked for; a prompt of messages as it is."""
        if prompt.messages or not (self.chat or self.system is not None):
            return prompt
        system = () if self.system is None else (Message("system", self.system),)
        return replace(prompt, text="", messages=(*system, Message("user", prompt.text)))


def _add_documents(prompt: Prompt, documents: dict[str, str]) -> Prompt:
    return replace(prompt, documents=tuple(documents.items()))


def _check_choice(option: str, value: str | None, choices: Sequence[str]) -> None:
    if value is not None and value not in choices:
        raise BadSetting(option, value, f"one of {', '.join(choices)}")


def _read_document(path: Path) -> str:
    if not path.is_file():
        raise BadInput(f"there is no file {path}; --documents takes text files")
    text = read_text(path)
    if not text.strip():
        raise BadInput(f"{path} is empty; --documents takes text files")
    return text.strip()
