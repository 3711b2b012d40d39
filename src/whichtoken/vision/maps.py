"""Heat maps: from the scores of patches to one score for each pixel, raw and signed. No torch."""

from typing import Any, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from whichtoken.errors import BadInput, BadSetting
from whichtoken.records import Attribution, How

Map: TypeAlias = NDArray[np.float64]  # row column


def pixel_map(scores: Attribution | Any, height: int, width: int, how: How = "bilinear") -> Map:
    """The scores of an image's pixels: those that the method gave, or those of the patches, enlarged.

    `scores`: an attribution of an image, or a grid of scores. `how`: "bilinear", as the papers do, or "patch": every
    pixel has the score of its patch.
    """
    if not isinstance(scores, Attribution):
        return resized(scores, height, width, how)
    pixels = scores.picture.pixels if scores.picture is not None else ()
    return resized(pixels or scores.grid(), height, width, how)


def resized(grid: Any, height: int, width: int, how: How = "bilinear") -> Map:
    """A grid with as many rows and columns as asked for; the middles of the outermost pixels are its limits.

    "bilinear" is torch's interpolate(mode="bilinear", align_corners=False); "patch" its mode "nearest-exact".
    """
    if how not in get_args(How):
        raise BadSetting("how", how, "'bilinear' or 'patch'")
    found: Map = np.asarray(grid, dtype=np.float64)
    if found.ndim != 2 or not found.size:
        raise BadInput(f"a heat map of shape {found.shape}; expected rows x columns, at least one of each")
    if height < 1 or width < 1:
        raise BadSetting("height, width", (height, width), "1 or more each")
    if found.shape == (height, width):
        return found.copy()
    if not np.isfinite(found).all():
        raise BadInput("some scores of a heat map are NaN or infinite, and would spread; give finite scores")
    down, across = (_weights(n, wanted, how) for n, wanted in zip(found.shape, (height, width), strict=True))
    larger: Map = down @ found @ across.T
    return larger


def scaled(heat: Any) -> Map:
    """From 0, the lowest score, to 1, the highest. All 0 if the map says nothing: it is constant, or not finite."""
    found: Map = np.asarray(heat, dtype=np.float64)
    low, high = found.min(), found.max()
    if not (np.isfinite(high - low) and high > low):
        return np.zeros_like(found)
    stretched: Map = (found - low) / (high - low)
    return stretched


def _weights(n: int, wanted: int, how: How) -> NDArray[np.float64]:
    """How much of each of `n` old positions is in each of the `wanted` new ones; rows sum to 1."""
    each: NDArray[np.float64] = np.eye(n)
    middles = (np.arange(wanted) + 0.5) * n / wanted
    if how == "patch":
        nearest: NDArray[np.float64] = each[np.minimum(middles.astype(int), n - 1)]
        return nearest
    places = np.clip(middles - 0.5, 0, n - 1)  # beyond the outermost middles nothing changes
    before = np.minimum(places.astype(int), max(n - 2, 0))
    share = (places - before)[:, None]
    mixed: NDArray[np.float64] = (1 - share) * each[before] + share * each[np.minimum(before + 1, n - 1)]
    return mixed
