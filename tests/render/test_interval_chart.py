"""The chart of intervals: the strongest words first, with bars, bounds and a statement."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure
from tests.render.shown import FINE, attribution_of
from tests.render.test_figures import drawn, overlapping
from tests.render.test_image_pictures import ONE
from tests.render.test_trust import SURE, sure

import whichtoken as wt
from whichtoken.errors import UsageError


def bars_of(figure: Figure) -> tuple[list[str], list[float], list[list[float]]]:
    """The words from top to bottom, the lengths of their bars, and the ends of their intervals."""
    (axes,) = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    lines = [list(map(float, line.get_xdata())) for line in axes.lines if line.get_marker() == "|"]  # type: ignore[arg-type]
    return names, [patch.get_width() for patch in axes.patches], lines  # type: ignore[attr-defined]


def test_a_chart_of_intervals_shows_the_strongest_words_first() -> None:
    figure, places = drawn(wt.plot.intervals(SURE))
    names, lengths, ends = bars_of(figure)
    assert names == ["rare", "dull", "a", "film"]
    assert lengths == [2.0, -1.0, 0.5, 0.125]
    assert ends == [[1.75, 2.25], [-1.25, -0.75], [0.25, 0.75], [-0.125, 0.375]]
    (axes,) = figure.axes
    assert axes.yaxis_inverted()
    assert [list(line.get_xdata()) for line in axes.lines if line.get_marker() != "|"] == [[0, 0]]  # type: ignore[arg-type]
    paleness = [patch.get_facecolor()[3] for patch in axes.patches]
    assert paleness == [1.0, 1.0, 1.0, 0.4]
    assert axes.get_xlabel() == "score with its 90 % interval: above 0 supports the label, below 0 opposes it"
    assert "the scores predict 87 %" in " ".join(text for text, _ in places)
    assert overlapping(places) == []


def test_a_chart_of_intervals_shows_at_most_20_words() -> None:
    long = sure(attribution_of([f"$w{i}$" for i in range(50)], [float(i) for i in range(50)], tuned_on_deletion=True))
    figure, places = drawn(wt.plot.intervals(long))
    assert bars_of(figure)[0] == [f"$w{i}$" for i in range(49, 29, -1)]
    assert "attcat, tuned on the deletion curve, the 20 strongest of 50 words" in [text for text, _ in places]
    assert overlapping(places) == []
    image, _ = drawn(wt.plot.intervals(sure(ONE)))
    assert bars_of(image)[0][:2] == ["patch 1,1", "patch 2,3"]


def test_a_chart_of_intervals_is_written_and_refused_without_intervals(tmp_path: Path) -> None:
    assert wt.plot.intervals(SURE, tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert wt.plot.intervals(SURE)._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match="attcat does not say how sure it is, so its scores have no intervals"):
        wt.plot.intervals(FINE, tmp_path / "y.png")
    with pytest.raises(UsageError, match=r"draws one attribution, such as results\[0\]\['posterior'\], not a dict"):
        wt.plot.intervals({"posterior": SURE})  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["x.png"]
