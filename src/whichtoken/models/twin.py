"""The twin: a structural copy of a model that shares its weights.

Whatever a pass needs (hooks, another attention implementation, frozen parameters) is done to the twin. The user's model
is never touched, so nothing has to be restored, and other threads may call or train it meanwhile.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from whichtoken.errors import UnsupportedModel


def twin_of(model: Any) -> Any:
    """Modules and configuration are copied; parameters are frozen views of the same storage, buffers are shared.

    It takes milliseconds and no memory, and follows weights that are updated in place. The user's hooks are shared, not
    copied: a hook that is a method must reach the object that the user registered.
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
        except Exception as error:  # whatever a part of the model raises that cannot be copied
            raise UnsupportedModel(
                f"{type(model).__name__} cannot be copied, which whichtoken does so as not to touch it: "
                f"{type(error).__name__}: {error}; remove the part that cannot be copied (an open file, a lock)"
            ) from error
