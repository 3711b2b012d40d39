"""Prompts of language models: a text or the messages of a chat, with documents and a continuation. No torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from whichtoken.data.examples import IDS
from whichtoken.errors import BadInput, name_type

ROLES = ("system", "developer", "user", "assistant", "tool")
PROMPTS = ("prompt", "messages", "text")  # columns of a file; the first that a row has
CONTINUATIONS = ("continuation", "answer")


@dataclass(frozen=True)
class Message:
    """One message of a chat."""

    role: str
    content: str


@dataclass(frozen=True)
class Prompt:
    """What a language model continues: a text, or the messages of a chat, of which one of the two is empty.

    `documents`: names and texts that the prompt contains, or that are put before it. `continuation`: the answer that is
    explained instead of a generated one; it follows the prompt without anything between them.
    """

    text: str = ""
    messages: tuple[Message, ...] = ()
    documents: tuple[tuple[str, str], ...] = ()
    continuation: str | None = None
    where: str = field(default="", compare=False)  # file and row, for error messages
    row: int | None = field(default=None, compare=False)
    id: str | None = field(default=None, compare=False)
    columns: Mapping[str, Any] = field(default_factory=dict, compare=False)  # other columns that are kept

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, or what the messages say."""
        return tuple(message.content for message in self.messages) if self.messages else (self.text,)


def is_chat(value: Any) -> bool:
    """Return whether a value is the messages of one chat."""
    return isinstance(value, list | tuple) and bool(value) and all(_is_message(item) for item in value)


def _is_message(value: Any) -> bool:
    return isinstance(value, Message) or (isinstance(value, Mapping) and "role" in value)


def list_prompts(prompt: Any, continuation: Any = None, documents: Any = None) -> list[Prompt]:
    """Return prompts as `explain` takes them: one text or chat or a list of these, with continuations and documents.

    Several prompts need as many continuations, or none; documents belong to all of them.
    """
    one = isinstance(prompt, str | Prompt) or is_chat(prompt)
    if not one and (isinstance(prompt, Mapping) or not isinstance(prompt, Iterable)):
        raise BadInput(f"prompt is {name_type(prompt)}; expected a text, the messages of a chat, or a list of these")
    prompts = [as_prompt(item, i) for i, item in enumerate([prompt] if one else prompt)]
    if not prompts:
        raise BadInput("prompt is empty; expected a text, the messages of a chat, or a list of these")
    if continuation is not None:
        each = [continuation] if isinstance(continuation, str) else list(continuation)
        if len(each) != len(prompts):
            raise BadInput(f"{len(prompts)} prompts and {len(each)} continuations; give the same number of each")
        pairs = enumerate(zip(prompts, each, strict=True))
        prompts = [replace(one, continuation=_check_continuation(text, i)) for i, (one, text) in pairs]
    if documents is not None:
        named = name_documents(documents)
        prompts = [replace(one, documents=named) for one in prompts]
    return prompts


def as_prompt(item: Any, index: int) -> Prompt:
    """Return a text, the messages of a chat or a row of a file as a prompt; BadInput says what is wrong with it."""
    if isinstance(item, Prompt):
        prompt = item
    elif isinstance(item, str):
        prompt = Prompt(item)
    elif is_chat(item):
        prompt = Prompt(messages=tuple(_as_message(message, number, index) for number, message in enumerate(item)))
    elif isinstance(item, Mapping):
        prompt = parse_prompt(item, index)
    else:
        raise BadInput(
            f"is {item!r:.60}; expected a text, or messages: [{{'role': 'user', 'content': ...}}]", index=index
        )
    content = [prompt.text, *(message.content for message in prompt.messages)]
    if not any(text.strip() for text in content):
        raise BadInput("is an empty prompt; give at least one word", index=index)
    for text in (*content, *(text for _, text in prompt.documents), prompt.continuation or ""):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadInput(f"is not valid Unicode ({error}); decode it with errors='replace'", index=index) from error
    return prompt


def parse_prompt(row: Mapping[str, Any], index: int) -> Prompt:
    """Return the prompt of a row with named columns: prompt or messages or text, continuation or answer, documents."""
    column = next((name for name in PROMPTS if row.get(name) is not None), None)
    if column is None:
        raise BadInput(f"has no column {', '.join(PROMPTS)}; its columns are {', '.join(map(str, row))}", index=index)
    prompt = as_prompt(row[column], index)
    continuation = next((row[name] for name in CONTINUATIONS if row.get(name) is not None), None)
    identity = next((row[name] for name in IDS if row.get(name) not in (None, "")), None)
    documents = row.get("documents")
    return replace(
        prompt,
        continuation=None if continuation is None else _check_continuation(continuation, index),
        documents=() if documents is None else name_documents(documents, index),
        row=index,
        id=None if identity is None else str(identity),
    )


def name_documents(documents: Any, index: int | None = None) -> tuple[tuple[str, str], ...]:
    """Return documents with names: those of a mapping, or "document 1", "document 2" and so on."""
    if isinstance(documents, Mapping):
        named = tuple((str(name), text) for name, text in documents.items())
    elif isinstance(documents, Iterable) and not isinstance(documents, str):
        named = tuple((f"document {number}", text) for number, text in enumerate(documents, 1))
    else:
        raise BadInput(f"documents is {name_type(documents)}; expected a list of texts", index=index)
    for name, text in named:
        if not isinstance(text, str) or not text.strip():
            raise BadInput(f"{name} is {text!r:.40}; expected a text that is not empty", index=index)
    return named


def _as_message(message: Any, number: int, index: int) -> Message:
    if isinstance(message, Message):
        role, content = message.role, message.content
    else:
        role, content = message["role"], message.get("content")
    if role not in ROLES:
        raise BadInput(f": message {number} has the role {role!r:.40}; expected one of {', '.join(ROLES)}", index=index)
    if not isinstance(content, str):
        raise BadInput(f": message {number} has the content {content!r:.40}; expected a text", index=index)
    return Message(role, content)


def _check_continuation(text: Any, index: int) -> str:
    if not isinstance(text, str) or not text:
        raise BadInput(f": the continuation is {text!r:.40}; expected a text that is not empty", index=index)
    return text


def put_documents(prompt: Prompt) -> Prompt:
    """Return the prompt with its documents: those that it does not contain are put before the text, or before the last
    message of the user, each followed by an empty line.
    """
    content = [prompt.text, *(message.content for message in prompt.messages)]
    missing = [text for _, text in prompt.documents if not any(text in one for one in content)]
    if not missing:
        return prompt
    if not prompt.messages:
        return replace(prompt, text="\n\n".join([*missing, prompt.text]))
    last = max((i for i, message in enumerate(prompt.messages) if message.role == "user"), default=0)
    messages: Sequence[Message] = [
        Message(m.role, "\n\n".join([*missing, m.content])) if i == last else m for i, m in enumerate(prompt.messages)
    ]
    return replace(prompt, messages=tuple(messages))
