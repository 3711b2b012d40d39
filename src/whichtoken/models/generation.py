"""Language models: their answers, and chats as the tokenizer's own template writes them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from whichtoken.data.prompts import Message
from whichtoken.errors import BadInput
from whichtoken.models.cancelling import check_cancelled
from whichtoken.models.templates import TemplateError, render_template
from whichtoken.targets import Generation
from whichtoken.words import Span


@contextmanager
def read_places(model: Any, read: Int[Tensor, "batch place"]) -> Iterator[None]:
    """Let a language model compute logits at these positions only: all of them would not fit in memory.

    Unlike the models' own `logits_to_keep`, the positions may differ between rows. `model` is a twin.
    """

    def gather(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        hidden = args[0]
        return (hidden.gather(1, read[:, :, None].expand(-1, -1, hidden.shape[-1])), *args[1:])

    with model.get_output_embeddings().register_forward_pre_hook(gather):
        yield


def generate_ids(model: Any, prompt: tuple[int, ...], how: Generation, stops: frozenset[int]) -> tuple[int, ...]:
    """Continue a prompt token by token, with a cache of keys and values, until a stop token (included) or the limit.

    `model` is a twin. Only the last position's logits are computed.
    """
    device = next(model.parameters()).device
    generator = torch.Generator(device="cpu").manual_seed(how.seed)
    ids, cache, answer = torch.tensor([prompt], device=device), None, list[int]()
    with torch.inference_mode(False), torch.no_grad():
        while len(answer) < how.tokens and not (answer and answer[-1] in stops):
            check_cancelled()
            output = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1, return_dict=True)
            cache = output.past_key_values
            answer.append(_choose(output.logits[0, -1].double().cpu(), how, generator))
            ids = torch.tensor([answer[-1:]], device=device)
    return tuple(answer)


def _choose(logits: Float[Tensor, " word"], how: Generation, generator: torch.Generator) -> int:
    """Return the most likely token (the first of equals), or draw one."""
    if how.temperature == 0:
        return int(logits.argmax())
    probabilities = (logits / how.temperature).softmax(-1)
    if how.top_p < 1:
        ranked, order = probabilities.sort(descending=True, stable=True)
        unlikely = ranked.cumsum(-1) - ranked >= how.top_p
        probabilities[order[unlikely]] = 0
    return int(torch.multinomial(probabilities, 1, generator=generator))


# Chats

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
