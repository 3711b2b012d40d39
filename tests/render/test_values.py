"""Predicted values in terminal, HTML, LaTeX and figures: a number, and words that fit it."""

from dataclasses import replace
from io import StringIO

import pytest
from matplotlib.figure import Figure
from rich.console import Console
from tests.test_records import ATTRIBUTION

import whichtoken as wt
from whichtoken.render.charts import curves_figure
from whichtoken.render.figures import layers
from whichtoken.render.numbers import format_value
from whichtoken.render.rows import Look
from whichtoken.render.terminal import print_each
from whichtoken.tables import BenchTable, Line, Trend

VALUE = replace(
    ATTRIBUTION, label="LABEL_0", probability=None, value=-0.0151239, scores=(0.0, 0.5, -0.25, 0.0, 0.0, 0.0, 0.0)
)


def printed(*records: wt.Attribution, colour: bool = False) -> str:
    file = StringIO()
    console = Console(file=file, width=150, force_terminal=colour, color_system="truecolor" if colour else None)
    print_each(console, [{"attcat": record} for record in records], Look())
    return file.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [(-0.0151239, "-0.01512"), (3.0, "3"), (12.3456, "12.35"), (123456.7, "123457"), (1.23456e-7, "1.235e-07")],
)
def test_values_have_four_significant_digits(value: float, text: str) -> None:
    assert format_value(value) == text


def test_the_terminal_shows_a_number_and_its_own_words() -> None:
    out = printed(VALUE)
    assert "LABEL_0  -0.01512" in out
    assert "+ raises the value, - lowers it" in out
    assert "label" not in out.replace("LABEL_0", "")
    assert "lowers the value" in printed(VALUE, colour=True)
    assert "nothing raises it" in printed(replace(VALUE, scores=(0.0,) * 7))
    assert "%" not in out


def test_classes_keep_their_words_and_a_mixture_has_both() -> None:
    assert "+ supports the label, - opposes it" in printed(ATTRIBUTION)
    assert "entailment  75.0%" in printed(ATTRIBUTION)
    assert "+ supports or raises the label or value, - opposes or lowers it" in printed(ATTRIBUTION, VALUE)


def test_a_page_shows_a_number_and_its_own_words() -> None:
    page = wt.plot.to_html(VALUE)
    assert "<b>LABEL_0</b> -0.01512<" in page
    assert "lowers the value" in page
    assert "opposes the label" not in page
    assert "nothing raises it" in wt.plot.to_html(replace(VALUE, scores=(0.0,) * 7))
    assert "opposes the label" in wt.plot.to_html(ATTRIBUTION)


def test_latex_shows_a_number() -> None:
    assert r"\textbf{LABEL\_0} ({-}0.01512)" in wt.plot.to_latex(VALUE)
    assert r"\textbf{entailment} (75.0\%)" in wt.plot.to_latex(ATTRIBUTION)


def texts_of(figure: Figure) -> str:
    from matplotlib.text import Text

    return "\n".join(text.get_text() for text in figure.findobj(Text))


def test_figures_show_a_number_and_its_own_words() -> None:
    heat = texts_of(wt.plot.methods(VALUE))
    by_layer = texts_of(layers(replace(VALUE, layers=(VALUE.scores,))))
    for shown in (heat, by_layer):
        assert "LABEL_0 -0.01512" in shown
        assert "raises" in shown
        assert "supports" not in shown
    assert "supports" in texts_of(wt.plot.methods(ATTRIBUTION))


def test_mean_curves_are_titled_by_what_they_show() -> None:
    trend = Trend("aopc", "morf", "delete", (0.0, 0.5), {"attcat": (0.0, 3.0)})
    table = BenchTable("t", (), (), (Line("attcat", False, False, {}),), (trend,))
    assert "mean drop of the probability" in texts_of(curves_figure(table))
    assert "mean drop of the predicted value" in texts_of(curves_figure(replace(table, reading="value")))
