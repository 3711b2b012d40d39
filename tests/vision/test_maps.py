"""Heat maps: enlarged as torch does it, scaled without NaN."""

from typing import Any

import numpy as np
import pytest
import torch

from whichtoken.errors import BadInput, BadSetting
from whichtoken.vision import pixel_map, resized, scaled

SIZES = [(1, 1, 4, 4), (2, 3, 8, 9), (3, 3, 3, 3), (7, 7, 28, 28), (3, 2, 7, 11), (14, 14, 224, 224), (9, 8, 4, 3)]


@pytest.mark.parametrize(("rows", "columns", "height", "width"), SIZES)
@pytest.mark.parametrize(("how", "mode"), [("bilinear", "bilinear"), ("patch", "nearest-exact")])
def test_maps_are_enlarged_as_torch_does_it(
    rows: int, columns: int, height: int, width: int, how: Any, mode: str
) -> None:
    grid = np.random.default_rng(3).normal(size=(rows, columns))
    extra: dict[str, Any] = {"align_corners": False} if mode == "bilinear" else {}
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(grid)[None, None], size=(height, width), mode=mode, **extra
    )[0, 0].numpy()
    found = pixel_map(grid, height, width, how)
    assert found.shape == (height, width)
    assert np.allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_a_row_by_hand() -> None:
    # Middles of the new pixels at -0.25, 0.25, 0.75, 1.25 of the old ones, whose middles are at 0 and 1.
    assert resized([[0.0, 4.0]], 1, 4).tolist() == [[0.0, 1.0, 3.0, 4.0]]
    assert resized([[0.0, 4.0]], 2, 4, "patch").tolist() == [[0.0, 0.0, 4.0, 4.0]] * 2


def test_a_map_stays_raw_and_signed_and_one_of_pixels_as_it_is() -> None:
    grid = np.array([[-3.0, 0.1], [7.0, 1e-12]])
    assert pixel_map(grid, 2, 2).tolist() == grid.tolist()
    assert pixel_map(grid.tolist(), 2, 2) is not grid
    assert pixel_map(torch.from_numpy(grid), 8, 8).min() == -3.0


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(BadInput, match=r"shape \(3,\); expected rows x columns"):
        pixel_map([1.0, 2.0, 3.0], 4, 4)
    with pytest.raises(BadSetting, match="'bilinear' or 'patch'"):
        pixel_map([[1.0]], 4, 4, "cubic")  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="1 or more"):
        pixel_map([[1.0]], 0, 4)
    with pytest.raises(BadInput, match="NaN or infinite"):
        pixel_map([[1.0, np.nan]], 4, 4)


def test_scaled_maps_run_from_0_to_1() -> None:
    assert scaled([[-2.0, 0.0], [2.0, 6.0]]).tolist() == [[0.0, 0.25], [0.5, 1.0]]


@pytest.mark.parametrize("value", [0.0, -3.0, 1e-300, 0.1])
def test_constant_maps_are_all_0(value: float) -> None:
    assert scaled(np.full((3, 3), value)).tolist() == [[0.0] * 3] * 3


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_maps_that_are_not_finite_say_nothing(value: float) -> None:
    assert scaled([[value, 1.0], [2.0, 3.0]]).tolist() == [[0.0, 0.0]] * 2
