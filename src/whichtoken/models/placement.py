"""The device and the precision that a model is loaded in."""

from typing import Any, Literal

import torch

from whichtoken.errors import BadSetting

DTYPES = ("float16", "bfloat16", "float32", "float64")


def parse_dtype(dtype: Any) -> torch.dtype | Literal["auto"]:
    """Return a dtype given as such or by name; "auto": the one that the files are stored in."""
    if dtype == "auto":
        return "auto"
    by_name = {name: getattr(torch, name) for name in DTYPES}
    if isinstance(dtype, torch.dtype) and dtype in by_name.values():
        return dtype
    if not isinstance(dtype, str) or dtype not in by_name:
        listed = ", ".join(DTYPES)
        raise BadSetting("dtype", dtype, f"one of {listed} (names or torch's own), or auto for that of the files")
    found: torch.dtype = by_name[dtype]
    return found


def parse_device(device: Any) -> torch.device | None:
    """Return a device; BadSetting, with those that torch finds here, if it is not one of them."""
    if device is None:
        return None
    found = _find_devices()
    try:
        parsed = torch.device(device) if isinstance(device, str | torch.device) else None
    except RuntimeError:  # not the name of a device
        parsed = None
    if parsed is None or not ({str(parsed), f"{parsed}:0"} & {*found, "cpu:0"}):
        shown = str(device) if isinstance(device, torch.device) else device
        raise BadSetting("device", shown, f"one that torch finds here: {', '.join(found)}; leave it out for the CPU")
    return parsed


def _find_devices() -> list[str]:
    graphics = [f"cuda:{number}" for number in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    apple = ["mps:0"] if torch.backends.mps.is_available() else []
    other = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    more = [] if other is None or other.type in ("cuda", "mps") else [f"{other.type}:0"]
    return ["cpu", *graphics, *apple, *more]
