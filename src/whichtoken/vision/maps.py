"""Heat maps: patch scores upscaled to raw, signed pixel scores. No torch."""

from typing import Any, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from whichtoken.errors import BadInput, BadSetting
from whichtoken.records import Attribution, How

Map: TypeAlias = NDArray[np.float64]  # row column


def pixel_map(scores: Attribution | Any, height: int, width: int, how: How = "bilinear") -> Map:
    """Return the scores of an image's pixels: the method's own pixel scores, or its upscaled patch scores.

    `scores`: an attribution of an image, or a grid of scores. `how`: "bilinear", as in the papers, or "patch": every
    pixel has the score of its patch.
    """
    if not isinstance(scores, Attribution):
        return resized(scores, height, width, how)
    pixels = scores.picture.pixels if scores.picture is not None else ()
    return resized(pixels or scores.grid(), height, width, how)


def resized(grid: Any, height: int, width: int, how: How = "bilinear") -> Map:
    """Return the grid resized to `height` x `width`.

    "bilinear" is torch's interpolate(mode="bilinear", align_corners=False); "patch" is its mode "nearest-exact".
    """
    if how not in get_args(How):
        raise BadSetting("how", how, "'bilinear' or 'patch'")
    scores: Map = np.asarray(grid, dtype=np.float64)
    if scores.ndim != 2 or not scores.size:
        raise BadInput(f"a heat map of shape {scores.shape}; expected rows x columns, at least one of each")
    if height < 1 or width < 1:
        raise BadSetting("height, width", (height, width), "1 or more each")
    if scores.shape == (height, width):
        return scores.copy()
    if not np.isfinite(scores).all():
        raise BadInput(
            "some scores of a heat map are NaN or infinite, and resizing would spread them; give finite scores"
        )
    down, across = (_weights(n, size, how) for n, size in zip(scores.shape, (height, width), strict=True))
    result: Map = down @ scores @ across.T
    return result


def scaled(heat: Any) -> Map:
    """Scale a map to 0 (lowest score) .. 1 (highest). The result is all 0 if the map is constant or not finite."""
    scores: Map = np.asarray(heat, dtype=np.float64)
    low, high = scores.min(), scores.max()
    if not (np.isfinite(high - low) and high > low):
        return np.zeros_like(scores)
    result: Map = (scores - low) / (high - low)
    return result


def _weights(n: int, size: int, how: How) -> NDArray[np.float64]:
    """Return the weights of `n` old positions in each of `size` new ones; rows sum to 1."""
    identity: NDArray[np.float64] = np.eye(n)
    centres = (np.arange(size) + 0.5) * n / size
    if how == "patch":
        nearest: NDArray[np.float64] = identity[np.minimum(centres.astype(int), n - 1)]
        return nearest
    positions = np.clip(centres - 0.5, 0, n - 1)  # constant beyond the outermost centres
    before = np.minimum(positions.astype(int), max(n - 2, 0))
    share = (positions - before)[:, None]
    mixed: NDArray[np.float64] = (1 - share) * identity[before] + share * identity[np.minimum(before + 1, n - 1)]
    return mixed
