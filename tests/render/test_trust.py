"""How sure an explanation is: one statement for every picture, and marks where the sign of a score is uncertain."""

import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.cli.test_cli import run
from tests.render.shown import FINE, NASTY, attribution_of
from tests.render.test_figures import drawn, overlapping
from tests.render.test_image_pictures import ONE
from tests.render.test_pictures import Page
from tests.render.test_review import browser, data_of, drive

import whichtoken as wt
from whichtoken.records import Attribution
from whichtoken.render.figures import plot
from whichtoken.render.html import fragment, style_sheet, to_html
from whichtoken.render.latex import escape, to_latex
from whichtoken.render.numbers import format_share
from whichtoken.render.review import review_page
from whichtoken.render.rows import Look, cells, panels
from whichtoken.render.terminal import print_each
from whichtoken.render.trust import describe_trust
from whichtoken.trust import Confidence, Interaction, Removal

WORDS = ["a", "rare", "dull", "film"]


def sure(record: Attribution, half: float = 0.25, **changes: Any) -> Attribution:
    """A record whose scores are known to within `half`; its special tokens are known exactly."""
    widths = [half if sequence is not None or record.picture else 0.0 for sequence in record.sequences]
    pairs = list(zip(record.scores, widths, strict=True))
    made = Confidence(
        low=tuple(score - width for score, width in pairs),
        high=tuple(score + width for score, width in pairs),
        level=0.9,
        n_units=len(record.words()) or 6,
        n_unresolved=0,
        n_answers=64,
        additivity=0.871,
        first=0.961,
        check=Removal((2,), 0.12),
    )
    return replace(record, confidence=replace(made, **changes))


SURE = sure(attribution_of(WORDS, [0.5, 2.0, -1.0, 0.125], probability=0.992, method="posterior"))
PREDICTS = "the scores predict 87 % of the variation in the log-odds when words are removed (64 trials)"
STATEMENT = (
    f"{PREDICTS}; “rare” ranks first with 96 % certainty; without “rare”, the probability falls from 99.2 % to 12 %"
)
WHY = "uncertain: the 90 % interval of the score includes 0 (no effect)"


def changed(**changes: Any) -> str:
    assert SURE.confidence is not None
    return describe_trust(replace(SURE, confidence=replace(SURE.confidence, **changes)))


def test_one_line_says_how_far_the_scores_can_be_trusted() -> None:
    assert describe_trust(SURE) == STATEMENT
    assert describe_trust(replace(SURE, confidence=None)) == ""


@pytest.mark.parametrize(
    ("additivity", "amount"), [(0.31, "only 31 %"), (0.4999, "only 50 %"), (0.004, "none"), (-0.5, "none")]
)
def test_where_words_interact_the_statement_says_so(additivity: float, amount: str) -> None:
    assert changed(additivity=additivity, first=None, check=None) == (
        f"the scores predict {amount} of the variation in the log-odds when words are removed (64 trials): the words "
        "interact, so no list of scores describes this decision well"
    )
    assert "interact" not in changed(additivity=0.5)
    for few in ({"n_answers": 7}, {"n_unresolved": 1}):  # of four words
        assert ": the words interact, or there were too few trials" in changed(additivity=additivity, **few)
        assert "too few trials" in changed(additivity=additivity, predicted=0.49, **few)
        assert "too few trials" not in changed(additivity=additivity, predicted=0.5, **few)
    assert "ranks first" not in changed(n_units=1)


def test_where_words_interact_none_is_said_to_rank_first() -> None:
    assert "ranks first" not in changed(additivity=0.4999)
    assert "ranks first" in changed(additivity=0.5)


def test_the_statement_says_how_much_is_predicted_with_interactions() -> None:
    assert changed(additivity=0.31, predicted=0.84, check=None) == (
        "the scores predict only 31 % of the variation in the log-odds when words are removed (64 trials), 84 % with "
        "interactions: the words interact, so no list of scores describes this decision well"
    )
    assert f"{PREDICTS}, 99 % with interactions; " in changed(predicted=0.99)
    assert "(64 trials), 12 % with interactions" in changed(additivity=-0.5, predicted=0.12)
    for no_more in (None, 0.5, 0.8704, -0.1):  # 87 % is what the scores alone predict
        assert "with interactions" not in changed(predicted=no_more)
    assert "with interactions" not in changed(additivity=-0.5, predicted=-0.25)


DOUBLE = Interaction(
    ((2,), (3,)), -13.7, -15.0, -12.0, (Removal((2,), 0.02), Removal((3,), 0.31), Removal((2, 3), 0.95))
)
OTHER = Interaction(((1,), (4,)), 1.2, 0.5, 2.0)
TOGETHER = "“rare” and “dull” act together"
MEASURED = "without “rare”, the probability is 2 %, without “dull” 31 %, without both 95 %"


def test_the_strongest_interaction_is_shown_by_what_was_measured() -> None:
    assert f"(64 trials); {TOGETHER}: {MEASURED}; “rare” ranks first" in changed(interactions=(DOUBLE,))
    three = changed(interactions=(DOUBLE, OTHER, OTHER))
    assert f"; {TOGETHER} (the strongest of 3 interactions): {MEASURED}; " in three
    for unmeasured in ((), (OTHER,), (OTHER, DOUBLE)):  # the strongest comes first
        assert changed(interactions=unmeasured) == STATEMENT


def test_an_interaction_of_three_words_names_them_all() -> None:
    measured = (Removal((1,), 0.5), Removal((1, 2), 0.25), Removal((4, 2, 1), 0.001))
    assert (
        "; “a”, “rare” and “film” act together: without “a”, the probability is 50 %, without “a” and “rare” 25 %, "
        "without all 0.1 %; "
    ) in changed(interactions=(Interaction(((1,), (2,), (4,)), 1.0, 0.5, 2.0, measured),))


def test_interactions_have_the_words_of_values_patches_tokens_and_hostile_texts() -> None:
    def found(record: Attribution, units: tuple[tuple[int, ...], ...]) -> str:
        measured = tuple(Removal(gone, 0.25) for gone in (*units, (*units[0], *units[1])))
        return describe_trust(sure(record, interactions=(Interaction(units, 1.0, 0.5, 2.0, measured),)))

    assert "without “a”, the value is 0.25, without “rare” 0.25, without both 0.25" in found(
        replace(SURE, probability=None, value=4.2), ((1,), (2,))
    )
    assert (
        "patch 1,1 and patch 1,2 act together: without patch 1,1, the probability is 25 %, without patch 1,2"
        in found(ONE, ((1,), (2,)))
    )
    long = attribution_of(["w" * 500, "a"], [1.0, 0.5])
    assert f"; “{'w' * 39}…” and “a” act together: without “{'w' * 39}…”, the" in found(long, ((1,), (2,)))
    split = replace(FINE, word_ids=(None, 0, 1, 1, 2, None), spans=(None, (0, 1), (2, 4), (4, 6), (7, 11), None))
    assert "“a” and “rare” act together" in found(split, ((1,), (2, 3)))
    assert "act together" not in found(SURE, ((0,), (2,)))  # [CLS] is not a word
    assert describe_trust(replace(SURE, settings={"units": ["word"]})) == STATEMENT


def test_outputs_that_do_not_vary_or_were_not_asked_for_predict_nothing() -> None:
    assert changed(additivity=None, first=None, check=None) == (
        "too few different outputs to test the scores by removing words (64 trials)"
    )
    untested = {"additivity": None, "n_answers": 0, "first": None, "check": None}
    assert changed(**untested) == "these scores were not tested by removing words"
    assert "(1 trial)" in changed(n_answers=1)


def test_a_first_word_that_is_in_doubt_is_not_sold_as_certain() -> None:
    assert "“rare” ranks first, but with only 31 % certainty" in changed(first=0.31)
    assert "ranks first with over 99 % certainty" in changed(first=0.999)
    assert "ranks first with over 99 % certainty" in changed(first=1.0)
    assert "ranks" not in changed(first=None)
    opposed = replace(SURE, scores=tuple(-abs(score) for score in SURE.scores))
    assert "ranks" not in describe_trust(opposed)  # the highest score supports nothing


def test_the_check_names_the_words_strongest_first_and_what_happens() -> None:
    assert "; without “rare”, “a” and “film”, the probability falls" in changed(check=Removal((1, 2, 4), 0.25))
    assert changed(check=Removal((1,), 0.999)).endswith("without “a”, the probability rises from 99.2 % to 99.9 %")
    assert changed(check=Removal((1,), 0.9921)).endswith("without “a”, the probability stays at 99.2 %")
    assert changed(check=Removal((), 0.5)).endswith("certainty")
    many = sure(attribution_of(list("abcdefg"), [float(i) for i in range(7)]), check=Removal(tuple(range(1, 8)), 0.5))
    assert "without “g”, “f”, “e” and 4 more words, the" in describe_trust(many)
    long = sure(attribution_of(["w" * 500, "a"], [1.0, 0.5]))
    assert f"“{'w' * 39}…” ranks first" in describe_trust(long)


def test_words_that_the_trials_say_little_about_are_counted() -> None:
    assert changed(n_units=230, n_unresolved=41).endswith(
        "; 41 of 230 words were not resolved: their scores mostly follow the prior"
    )
    named = replace(SURE, settings={"prior": "attcat"}, confidence=replace(SURE.confidence, n_unresolved=2))  # type: ignore[type-var]
    assert describe_trust(named).endswith(
        "2 of 4 words were not resolved: their scores mostly follow the prior (attcat)"
    )
    assert describe_trust(replace(named, settings={"prior": "auto"})).endswith("follow the prior")


def test_values_tokens_patches_and_windows_have_their_own_words() -> None:
    value = replace(SURE, probability=None, value=4.2)
    assert describe_trust(replace(value, confidence=replace(value.confidence, check=Removal((2,), -1.25)))).endswith(  # type: ignore[type-var]
        "without “rare”, the value falls from 4.2 to -1.25"
    )
    assert "of the variation in the predicted value when" in describe_trust(value)
    tokens = describe_trust(replace(SURE, settings={"units": "token"}))
    assert "when tokens are removed" in tokens
    assert "word" not in tokens
    image = describe_trust(sure(ONE, n_unresolved=2, check=Removal((1,), 0.5), additivity=0.1))
    assert image == (
        "the scores predict only 10 % of the variation in the log-odds when patches are removed (64 trials): the "
        "patches interact, or there were too few trials; without patch 1,1, the probability falls from 88 % to 50 %; "
        "2 of 6 patches were not resolved: their scores mostly follow the prior"
    )
    windows = replace(SURE, n_windows=3, confidence=replace(SURE.confidence, first=None, check=None))  # type: ignore[type-var]
    assert describe_trust(windows) == f"in the worst of 3 windows, {PREDICTS.replace('trials', 'trials in all')}"


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0 %"), (0.001, "under 1 %"), (0.5, "50 %"), (0.999, "over 99 %"), (1.0, "100 %")]
)
def test_a_share_is_not_rounded_to_certainty(share: float, text: str) -> None:
    assert format_share(share) == text


def test_a_word_is_uncertain_if_its_interval_includes_0() -> None:
    found = {cell.text: cell.uncertain for cell in cells(SURE, "token")}
    assert found == {"[CLS]": False, "a": False, "rare": False, "dull": False, "film": True, "[SEP]": False}
    touching = {cell.text: cell.uncertain for cell in cells(sure(FINE, 0.5), "word")}
    assert touching == {"a": True, "rare": False, "dull": False, "film": True}  # 0 is a bound, or the score
    assert not any(cell.uncertain or cell.interval for cell in cells(FINE, "word"))


def test_bounds_are_shares_of_the_same_score_and_belong_to_no_other_scores() -> None:
    (row,) = panels(SURE, Look())[0].rows
    intervals = [cell.interval for cell in row.cells if cell.interval]
    assert [(i.low, i.high) for i in intervals] == [(0.25, 0.75), (1.75, 2.25), (-1.25, -0.75), (-0.125, 0.375)]
    assert [(i.low_share, i.high_share) for i in intervals][:2] == [(0.125, 0.375), (0.875, 1.125)]
    layered = panels(replace(SURE, layers=(SURE.scores,)), Look())[0].layers[0]
    assert not any(cell.interval for row in layered.rows for cell in row.cells)
    two = panels({"posterior": SURE, "attcat": FINE}, Look(differences=True))[0]
    assert not any(cell.interval for cell in two.differences[0].cells)
    assert two.differences[0].trust == ""


def printed(look: Look, *results: Any, colour: bool = False) -> str:
    file = StringIO()
    console = Console(file=file, width=400, force_terminal=colour, color_system="truecolor" if colour else None)
    print_each(console, results, look)
    return file.getvalue()


def test_the_terminal_marks_uncertain_scores_and_says_why() -> None:
    out = printed(Look(), SURE)
    assert "a(+0.25) rare(+1.00) dull(-0.50) film(+0.06?)" in out
    assert f"\n? {WHY}\n" in out
    assert f"\n{STATEMENT}\n" in out
    plain = printed(Look(), sure(SURE, 0.0625))
    assert "?" not in plain
    assert "interval" not in plain
    coloured = re.sub(r"\x1b\[[\d;]*m", "", printed(Look(), SURE, colour=True))
    assert "a rare dull film(?)" in coloured
    assert f"\n? {WHY}\n" in coloured


def test_where_the_terminal_shows_no_score_there_is_no_mark() -> None:
    faint = sure(attribution_of(WORDS, [0.5, 2.0, -1.0, 0.01]))
    assert "?" not in printed(Look(), faint)
    assert "?" not in printed(Look(), faint, colour=True)


def test_the_terminal_shows_intervals_only_with_numbers() -> None:
    out = printed(Look(numbers=True), SURE)
    assert "rare(+1.00 [+0.88, +1.12]) dull(-0.50 [-0.62, -0.38]) film(+0.06? [-0.06, +0.19])" in out
    assert "[+0.88" not in printed(Look(), SURE)
    assert "[" not in printed(Look(numbers=True), FINE)


def test_several_methods_have_named_statements() -> None:
    out = printed(Look(), {"posterior": SURE, "attcat": FINE})
    assert f"\nposterior: {STATEMENT}\n" in out
    assert out.count("the scores predict") == 1


def test_patches_are_marked_in_the_terminal() -> None:
    image = sure(replace(ONE, scores=(9.0, 2.0, 0.5, 0.0, 0.0, 0.0, -1.0)), 0.6)
    out = printed(Look(), image)
    assert "+1.0 +0.2?+0.0" in out
    assert "the scores predict 87 % of the variation in the log-odds when patches are removed" in out
    coloured = re.sub(r"\x1b\[[\d;]*m", "", printed(Look(), image, colour=True))
    assert "  ? · " in coloured


def words_in(source: str) -> dict[str, dict[str, str | None]]:
    found = [attributes for tag, attributes in Page(source).tags if tag == "span" and "title" in attributes]
    return {str(attributes["title"]).split(":")[0]: attributes for attributes in found}


@pytest.mark.parametrize("draw", [to_html, fragment])
def test_a_page_marks_uncertain_words_and_tooltips_have_intervals(draw: Any) -> None:
    source = draw([{"posterior": SURE, "attcat": FINE}])
    words = words_in(draw(SURE))
    assert words["rare"] == {
        "class": "f20",
        "title": "rare: +2 (+100 % of the strongest); 90 % interval +1.75 to +2.25",
    }
    assert words["film"]["class"] == "f1 uncertain"
    assert str(words["film"]["title"]).endswith("; 90 % interval -0.125 to +0.375, which includes 0")
    text = Page(source).text
    assert text.count(STATEMENT) == 1
    assert f"Dotted words are {WHY}." in text
    row = source[source.index('<div class="row">') :]
    assert row.index(STATEMENT) < row.index('<div class="row">', 1)  # under its own row
    certain = Page(draw(FINE)).text
    assert "Dotted" not in certain
    assert "interval" not in certain


def test_numbers_on_a_page_have_intervals() -> None:
    assert "<small>+0.06 [-0.06, +0.19]</small>" in to_html(SURE, numbers=True)
    assert "<small>+0.00</small>" in to_html(FINE, numbers=True)


def test_the_mark_needs_no_colour() -> None:
    (rule,) = re.findall(r"\.whichtoken \.uncertain\{([^}]*)\}", style_sheet())
    assert "underline dotted" in rule
    assert "color" not in rule


def test_the_page_of_an_image_has_the_statement_and_no_legend_of_marks() -> None:
    text = Page(to_html(sure(ONE))).text
    assert "when patches are removed (64 trials); patch 1,1 ranks first" in text
    assert "Dotted" not in text


def test_hostile_words_are_only_shown() -> None:
    hostile = sure(
        attribution_of(NASTY, [float(len(NASTY) - i) for i in range(len(NASTY))]), check=Removal((1, 6), 0.1)
    )
    for source in (to_html(hostile), review_page([hostile, FINE], Look())):
        assert "<script>document" not in source
        assert "\x1b" not in source
    assert "\x1b" not in printed(Look(), hostile)
    assert "“</script><script>document.title='ran'</…” ranks first" in Page(to_html(hostile)).text


def test_latex_has_italics_and_the_statement() -> None:
    made = to_latex(SURE)
    assert rf"{{\raggedright\arraybackslash {escape(STATEMENT)}}} \\" in made
    assert r"\strut \textit{film}}" in made
    assert r"\textit{rare}" not in made
    assert rf"words in \textit{{italics}} are {escape(WHY)}}} \\" in made
    assert r"\tiny +0.06 [-0.06, +0.19]" in to_latex(SURE, numbers=True)
    assert "italics" not in to_latex(FINE)


def test_a_review_page_has_bounds_and_statement() -> None:
    page = review_page([SURE, FINE], Look())
    views = [text["targets"][0]["views"] for text in data_of(page)["texts"]]
    (view,) = [found["posterior"] for found in views if "posterior" in found]
    assert view["trust"] == STATEMENT
    assert (view["level"], view["low"], view["high"]) == (
        "90 %",
        [0.25, 1.75, -1.25, -0.125],
        [0.75, 2.25, -0.75, 0.375],
    )
    assert f'<span class="uncertain">Dotted</span> words are {WHY}.' in page
    (other,) = [found["attcat"] for found in views if "attcat" in found]
    assert not {"trust", "level", "low", "high"} & set(other)
    assert "Dotted" not in review_page([FINE, FINE], Look())


def test_a_review_page_says_once_what_removals_show() -> None:
    removed = replace(SURE, removals=(Removal((2,), 0.12),))
    view = data_of(review_page([removed], Look()))["texts"][0]["targets"][0]["views"]["posterior"]
    assert view["steps"] == [["rare", "12 %"]]
    assert view["trust"] == STATEMENT.rpartition("; ")[0]


@browser
@pytest.mark.slow
def test_in_a_browser_uncertain_words_are_dotted(tmp_path: Path) -> None:
    steps = """
    const card = [...document.querySelectorAll("article")].find((one) => one.querySelector(".trust"));
    const words = [...card.querySelectorAll(".words span")];
    log.push(words.map((word) => word.className), words.map((word) => word.title));
    log.push(card.querySelector(".trust").textContent);
    log.push(words.map((word) => getComputedStyle(word).textDecorationStyle));
    """
    classes, titles, trust, styles = drive(tmp_path, [SURE, replace(FINE, method="posterior")], steps)
    assert classes == ["f5", "f20", "a10", "f1 uncertain"]
    assert titles[1] == "rare: +2 (+100 % of the strongest); 90 % interval +1.75 to +2.25"
    assert titles[3] == "film: +0.125 (+6 % of the strongest); 90 % interval -0.125 to +0.375, which includes 0"
    assert trust == STATEMENT
    assert styles == ["solid", "solid", "solid", "dotted"]


def test_heat_maps_have_the_statement_and_marks(tmp_path: Path) -> None:
    wide = sure(SURE, 0.75)
    _, places = drawn(wt.plot.methods(wide))
    shown = [text for text, _ in places]
    assert "+0.2?" in shown
    assert "+1.0" in shown
    assert f"? {WHY}" in shown
    assert "the scores predict 87 %" in " ".join(shown)
    assert overlapping(places) == []
    assert "film" in [cell.text for cell in cells(SURE, "word") if cell.uncertain]  # its score is too small to be shown
    for without in (FINE, SURE):
        assert not [text for text, _ in drawn(wt.plot.methods(without))[1] if "?" in text]
    title = " ".join(text for text, _ in drawn(wt.plot.methods(sure(ONE)))[1])
    assert "patch 1,1 ranks first" in title
    assert plot(wide, tmp_path / "x.png", Look()).stat().st_size > 4000


def test_saved_results_are_shown_with_their_statement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(SURE.to_json() + "\n", encoding="utf-8")
    code, out, _ = run(capsys, "show", str(path))
    assert code == 0
    assert STATEMENT in " ".join(out.split())
    assert f"? {WHY}" in " ".join(out.split())
    assert "film(+0.06? [-0.06, +0.19])" in " ".join(run(capsys, "show", str(path), "--numbers")[1].split())
