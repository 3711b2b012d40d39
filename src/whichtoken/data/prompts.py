"""Prompts of language models: a text or the messages of a chat, with documents and a continuation. No torch."""

import re
from collections.abc import Iterable, Mapping
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


@dataclass(frozen=True)
class DocumentPlace:
    """Where a document is, without the white space around it."""

    text: int  # index in `Prompt.texts`
    span: tuple[int, int]  # characters

    def overlaps(self, other: "DocumentPlace") -> bool:
        return self.text == other.text and self.span[0] < other.span[1] and other.span[0] < self.span[1]


def put_documents(prompt: Prompt, index: int) -> tuple[Prompt, tuple[DocumentPlace, ...]]:
    """Return the prompt with its documents, and the place of each; no two overlap.

    Documents that the prompt does not contain are put before the text, or before the last message of the user, each
    followed by an empty line. BadInput if the prompt contains a document only where it overlaps others.
    """
    places = _find_documents(prompt, index)
    host = max((i for i, message in enumerate(prompt.messages) if message.role == "user"), default=0)
    before, put = "", dict[int, DocumentPlace]()
    for number, (_, text) in enumerate(prompt.documents):
        if number not in places:
            start = len(before) + len(text) - len(text.lstrip())
            put[number] = DocumentPlace(host, (start, start + len(text.strip())))
            before += f"{text}\n\n"
    for number, place in places.items():
        moved = len(before) if place.text == host else 0
        put[number] = DocumentPlace(place.text, (place.span[0] + moved, place.span[1] + moved))
    ordered = tuple(put[number] for number in range(len(prompt.documents)))
    if not prompt.messages:
        return replace(prompt, text=before + prompt.text), ordered
    messages = tuple(replace(m, content=before + m.content) if i == host else m for i, m in enumerate(prompt.messages))
    return replace(prompt, messages=messages), ordered


def _find_documents(prompt: Prompt, index: int) -> dict[int, DocumentPlace]:
    """Return the places of the documents that the prompt contains, by their numbers.

    Those with the fewest places to choose from come first, and of these the longest, which may contain others.
    """
    found = {
        number: [
            DocumentPlace(i, (match.start(), match.start() + len(text.strip())))
            for i, whole in enumerate(prompt.texts)
            for match in re.finditer(f"(?={re.escape(text.strip())})", whole)
        ]
        for number, (_, text) in enumerate(prompt.documents)
        if any(text in whole for whole in prompt.texts)
    }
    taken = dict[int, DocumentPlace]()
    for number in sorted(found, key=lambda i: (len(found[i]), -len(prompt.documents[i][1]))):
        own = next((place for place in found[number] if not any(map(place.overlaps, taken.values()))), None)
        if own is None:
            other = next(i for i, place in taken.items() if any(map(place.overlaps, found[number])))
            name, first = prompt.documents[number][0], prompt.documents[other][0]
            raise BadInput(
                f": {name} has no place of its own in the prompt: where the prompt contains it, it overlaps {first}; "
                "leave one of them out, or take them out of the prompt, and they are put before it",
                index=index,
            )
        taken[number] = own
    return taken
