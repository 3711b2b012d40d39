"""Turn the messages of a chat into a text by the tokenizer's own template, and say where each message is in it."""

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from whichtoken.data.prompts import Message
from whichtoken.errors import BadInput
from whichtoken.models.templates import TemplateError, render_template
from whichtoken.words import Span

MARK = "\ue000{}\ue001"  # private characters that no message has


def render_chat(tokenizer: Any, messages: Sequence[Message], title: str, number: int) -> tuple[str, list[Span]]:
    """Return the text that the model reads, up to where its answer begins, and the span of each message's content.

    Templates may remove the white space around contents. BadInput if there is no template, or if it refuses the chat.
    """
    if getattr(tokenizer, "chat_template", None) is None:
        raise BadInput(
            f"is a chat, but the tokenizer of {title} has no chat template; give the prompt as one text",
            index=number,
        )
    text = _render(tokenizer, messages, number)
    marked = _render(tokenizer, [Message(m.role, MARK.format(i)) for i, m in enumerate(messages)], number)
    spans, at, rest = list[Span](), 0, marked
    for i, message in enumerate(messages):
        before, mark, rest = rest.partition(MARK.format(i))
        start = at + len(before)
        content = next((c for c in (message.content, message.content.strip()) if text.startswith(c, start)), None)
        if not mark or content is None or not text.startswith(before, at):
            return text, _search_contents(text, messages, number)
        at = start + len(content)
        spans.append((start, at))
    return text, spans if text[at:] == rest else _search_contents(text, messages, number)


def _render(tokenizer: Any, messages: Sequence[Message], number: int) -> str:
    listed = [{"role": message.role, "content": message.content} for message in messages]
    try:
        if type(tokenizer).apply_chat_template is not PreTrainedTokenizerBase.apply_chat_template:  # in code of its own
            return str(tokenizer.apply_chat_template(listed, tokenize=False, add_generation_prompt=True))
        return render_template(tokenizer.get_chat_template(), listed, tokenizer.special_tokens_map)
    except TemplateError as error:
        raise BadInput(f": the model's chat template {error}; give the prompt as one text", index=number) from error
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise BadInput(f": the model's chat template refuses these messages: {reason}", index=number) from error


def _search_contents(text: str, messages: Sequence[Message], number: int) -> list[Span]:
    """Return the spans of contents in a text whose template changes with them; the first place in order counts."""
    spans, at = list[Span](), 0
    for place, message in enumerate(messages):
        content = message.content.strip()
        start = text.find(content, at)
        if start < 0:
            raise BadInput(
                f": the model's chat template changes message {place}, so it cannot be located", index=number
            )
        at = start + len(content)
        spans.append((start, at))
    return spans
