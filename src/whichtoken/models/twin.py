"""The twin of a model: a structural copy that shares its weights.

All changes that a pass needs (hooks, another attention implementation, frozen parameters) are made to the twin. The
user's model is never modified, so nothing has to be restored, and other threads may call or train it at the same time.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from whichtoken.errors import UnsupportedModel


def make_twin(model: Any) -> Any:
    """Copy modules and configuration; parameters become frozen views of the same storage, and buffers are shared.

    This takes milliseconds and almost no memory, and in-place updates of the weights take effect. The user's hooks are
    shared, not copied, because a hook that is a method must reach the object that the user registered.
    """
    shared: dict[int, Any] = {}
    with torch.inference_mode(False):
        for parameter in model.parameters():
            shared[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
        for buffer in model.buffers():
            shared[id(buffer)] = buffer
        for module in model.modules():
            for name, value in vars(module).items():
                if isinstance(value, Tensor):
                    shared.setdefault(id(value), value.detach())
                elif name.endswith("_hooks") and isinstance(value, dict):
                    shared.update((id(hook), hook) for hook in value.values())
        try:
            return copy.deepcopy(model, shared)
        except Exception as error:  # any exception, from a part that cannot be copied
            raise UnsupportedModel(
                f"{type(model).__name__} cannot be copied, and whichtoken runs on a copy so as not to modify it: "
                f"{type(error).__name__}: {error}; remove the part that cannot be copied (an open file, a lock)"
            ) from error
