"""Walk through the modules of a model: what `named_modules` of torch does, in a fraction of its time.

Torch passes each module through as many generators as it is deep; several walks of that kind were a noticeable part of
a call for one text.
"""

from torch import nn


def list_modules(model: nn.Module) -> list[nn.Module]:
    """Return all modules, each once, in the order of `model.modules()`."""
    found, waiting = dict[nn.Module, None](), [model]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found[module] = None
            waiting += [child for child in reversed(module._modules.values()) if child is not None]
    return list(found)


def list_named_modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return all modules, each once under its first name, in the order of `model.named_modules()`."""
    found, waiting = dict[nn.Module, str](), [("", model)]
    while waiting:
        name, module = waiting.pop()
        if module not in found:
            found[module] = name
            prefix = f"{name}." if name else ""
            waiting += [(prefix + key, child) for key, child in reversed(module._modules.items()) if child is not None]
    return [(name, module) for module, name in found.items()]
