"""What is known about an input besides its content: its row, id, gold label and kept columns, for its records.

Also, what happens to inputs that cannot be explained.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from whichtoken.data.examples import ImageExample, TextExample
from whichtoken.data.prompts import Prompt
from whichtoken.data.squad import Question
from whichtoken.errors import BadInput, UsageError, WhichTokenError
from whichtoken.records import Source
from whichtoken.tasks.task import Task

OnBadInput: TypeAlias = Callable[[Any, WhichTokenError], None]  # with the input and the error
_T = TypeVar("_T")


def explain_around_bad(
    explain: Callable[[Sequence[Any], int], _T], chunk: Sequence[Any], first: int, on_bad_input: OnBadInput | None
) -> Iterator[_T]:
    """Yield what `explain` returns for a chunk and the index of its first input; or, if inputs are bad and may be
    skipped, for the inputs between them. An error about an input names its place.
    """
    waiting = [(first, chunk)]  # the next is last
    while waiting:
        start, items = waiting.pop()
        try:
            explained = explain(items, start)
        except WhichTokenError as error:
            if error.index is None or not start <= error.index < start + len(items):
                raise
            bad = error.index - start
            if isinstance(items[bad], TextExample | ImageExample | Question | Prompt):
                error.place = items[bad].where or error.place
            if on_bad_input is None:
                raise
            on_bad_input(items[bad], error)
            rest = [(error.index + 1, items[bad + 1 :]), (start, items[:bad])]
            waiting += [(at, part) for at, part in rest if part]
        else:
            yield explained


def split_source(task: Task, item: Any, index: int) -> tuple[Any, Source | None]:
    """Return an input as `encode` accepts it, and its source if it is a row, an example or a question.

    BadInput if its label was given as its gold label, and the model has no such label.
    """
    if isinstance(item, Mapping):
        item = _parse(task, item, index)
    if isinstance(item, TextExample):
        source = Source(item.row, item.id, _gold(task, item, index), item.columns)
    elif isinstance(item, ImageExample):
        source = Source(item.row, None, _gold(task, item, index))
    elif isinstance(item, Prompt):
        source = Source(item.row, item.id, None, item.columns)
        return item, None if source == Source() else source
    elif isinstance(item, Question):
        return item.texts, Source(None, item.id, item.answers[0].text if item.answers else None)
    else:
        return item, None
    return item.item, None if source == Source() else source


def count_characters(item: Any) -> int:
    """Return about how many characters an input has: a text, a pair, a chat, a row or an example; 0 for images.

    Long columns of a row that are not read count, too, so a chunk may be smaller than necessary.
    """
    if isinstance(item, str):
        return len(item)
    if isinstance(item, Mapping):
        return sum(map(count_characters, item.values()))
    if isinstance(item, tuple | list):
        return sum(map(count_characters, item))
    return sum(count_characters(getattr(item, name, ())) for name in ("texts", "documents", "continuation"))


def _parse(task: Task, row: Mapping[str, Any], index: int) -> TextExample | ImageExample | Prompt:
    try:
        return task.parse_row(row, index)
    except BadInput as error:
        error.index, error.message = index, error.message.removeprefix(f"row {index}")
        raise


def _gold(task: Task, example: TextExample | ImageExample, index: int) -> str | None:
    """Return the gold label; None if it is unknown, or found in a column that has labels of another kind."""
    try:
        return task.gold_name(example.label)
    except UsageError as error:
        if not example.label_is_given:
            return None
        place = example.where or f"input {index}"
        listed = ", ".join(f"{i} {name}" for i, name in enumerate(task.subject.labels))
        problem = f": the gold label {example.label!r:.40} is not a label of the model: {listed}"
        raise BadInput(f"{problem}; correct it, or leave the labels out", index=index, place=place) from error
