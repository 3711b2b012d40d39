"""Language models: reading the logits of an answer only, and generating answers, both on a twin of the model."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from whichtoken.models.cancelling import check_cancelled
from whichtoken.targets import Generation


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
