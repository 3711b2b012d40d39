"""Figures: texts that do not cover each other, lines of a readable width, and figures that a notebook shows."""

import pickle
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from tests.heads.test_heads import wide
from tests.render.shown import FINE, attribution_of
from tests.render.test_image_pictures import ONE, png
from tests.render.test_report import AGREEMENT, TABLE

import whichtoken as wt
from whichtoken.errors import UsageError
from whichtoken.records import Attribution
from whichtoken.render.figures import plot
from whichtoken.render.rows import Look

SENTENCE = [
    "This",
    "film",
    "is",
    "rare",
    ",",
    "and",
    "I",
    "was",
    "unexpectedly",
    "touched",
    "by",
    "its",
    "incomprehensibly",
    "slow",
    "music",
    ".",
]
WIDEST = 14.2  # inches


def long_text(count: int, **changes: Any) -> Attribution:
    words = [SENTENCE[i % len(SENTENCE)] for i in range(count)]
    return attribution_of(words, [float(i % 7 - 3) for i in range(count)], **changes)


def drawn(figure: Figure) -> tuple[Figure, list[tuple[str, Any]]]:
    """The figure, and the place of each text in it: (text, box in pixels)."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    return figure, [(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in texts]


def overlapping(places: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Pairs of texts that cover each other by more than a pixel; numbers in cells count, too."""
    return [
        (a, b)
        for (a, one), (b, other) in combinations(places, 2)
        if min(one.x1, other.x1) - max(one.x0, other.x0) > 1 and min(one.y1, other.y1) - max(one.y0, other.y0) > 1
    ]


@pytest.mark.parametrize("count", [1, 4, 50])
def test_no_text_of_a_figure_covers_another(count: int) -> None:
    text = long_text(count, tuned_on_deletion=True, n_cut=7)
    layered = replace(text, layers=(text.scores,) * 3)
    methods = wt.plot.methods({"attcat": text, "gae": replace(text, method="gae")}, differences=True)
    assert "* tuned on the deletion curve" in [text for text, _ in drawn(methods)[1]]
    for made in (methods, wt.plot.layers(layered)):
        _, places = drawn(made)
        assert overlapping(places) == []
        shown = [text for text, _ in places]
        assert {"opposes", "supports"} <= set(shown)
        assert [word for word in shown if word in SENTENCE] == [SENTENCE[i % len(SENTENCE)] for i in range(count)]


def test_a_long_text_is_wrapped_into_strips_with_the_methods_beside_each() -> None:
    text = long_text(140)
    figure, places = drawn(wt.plot.methods({"attcat": text, "gae": replace(text, method="gae")}))
    assert figure.get_figwidth() <= WIDEST
    inside = [box for _, box in places]
    assert max(box.x1 for box in inside) <= figure.get_figwidth() * figure.dpi + 1
    assert min(box.x0 for box in inside) >= -1
    strips = len([word for word, _ in places if word == "attcat"])
    assert 3 < strips == len([word for word, _ in places if word == "gae"])
    assert sum(word in SENTENCE for word, _ in places) == 140


def test_a_word_that_is_wider_than_a_line_is_shortened() -> None:
    figure, places = drawn(wt.plot.methods(attribution_of(["a", "w" * 900, "b"], [1.0, 2.0, 3.0])))
    assert figure.get_figwidth() <= WIDEST
    assert overlapping(places) == []
    assert any(text.startswith("www") and text.endswith("…") for text, _ in places)


def test_a_text_that_is_too_long_for_a_figure_is_for_a_page(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"5000 words in 1 row need a figure \d+ inches high, .* at most 60.*html"):
        wt.plot.methods(long_text(5000), tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []


def of_shape(width: int, height: int) -> Attribution:
    assert ONE.picture is not None
    return replace(ONE, picture=replace(ONE.picture, png=png(width, height), width=width, height=height))


@pytest.mark.parametrize("shape", [(60, 40), (40, 160), (50, 50)])
def test_images_keep_their_shape_and_have_names_and_a_legend(shape: tuple[int, int]) -> None:
    one = replace(of_shape(*shape), tuned_on_deletion=True)
    figure, places = drawn(wt.plot.methods(one))
    shown = [text for text, _ in places]
    assert {"attcat *", "cat 87.5 % · cat.png · tiny", "opposes", "supports"} <= set(shown)
    assert overlapping(places) == []
    pictures = [axes for axes in figure.axes if axes.images and axes.get_label() != "legend"]
    assert len(pictures) == 2
    for axes in pictures:
        box = axes.get_window_extent()
        assert box.width / box.height == pytest.approx(shape[0] / shape[1], rel=0.02)


def test_one_method_of_one_image_is_a_figure_in_every_format(tmp_path: Path) -> None:
    for ending in ("png", "svg"):
        assert plot(ONE, tmp_path / f"a.{ending}", Look()).stat().st_size > 4000
    assert "<!-- attcat -->" in (tmp_path / "a.svg").read_text()


def test_many_layers_of_an_image_are_wrapped() -> None:
    figure, places = drawn(wt.plot.layers(replace(ONE, layers=(ONE.scores,) * 12)))
    assert figure.get_figwidth() <= WIDEST
    assert overlapping(places) == []
    assert "attcat, block 12" in [text for text, _ in places]


FIGURES = {
    "methods": lambda: wt.plot.methods(FINE),
    "layers": lambda: wt.plot.layers(replace(FINE, layers=(FINE.scores,))),
    "heads": lambda: wt.plot.heads(wide()),
    "curves": lambda: wt.plot.curves(replace(TABLE, trends=TABLE.trends[:1])),
    "variants": lambda: wt.plot.variants(TABLE, "seconds"),
    "agreement": lambda: wt.plot.agreement(AGREEMENT),
}


@pytest.mark.parametrize("name", FIGURES)
def test_without_a_path_a_notebook_shows_the_figure(name: str) -> None:
    figure: Any = FIGURES[name]()
    assert isinstance(figure, Figure)
    # IPython asks the object for this method unless matplotlib's own formatter is active.
    show = getattr(figure, "_repr_png_", None)
    assert show is not None
    assert show().startswith(b"\x89PNG")


def test_a_returned_figure_can_be_pickled() -> None:
    again = pickle.loads(pickle.dumps(wt.plot.methods(FINE)))
    assert again._repr_png_().startswith(b"\x89PNG")
