"""Pictures of images: colours where the scores are, in every kind of picture, and no harm from names of files."""

import base64
import re
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from tests.render.shown import FINE, attribution_of

import whichtoken as wt
from whichtoken.errors import BadArtifact, BadSetting, UsageError
from whichtoken.records import Attribution, Picture
from whichtoken.render.figures import plot
from whichtoken.render.groups import group_results
from whichtoken.render.palette import AGAINST, FOR
from whichtoken.render.pictures import DARKEST, OPAQUE
from whichtoken.render.rows import Look, panels
from whichtoken.render.terminal import print_each

WIDTH, HEIGHT = 6, 4  # pixels; 2 x 3 patches of 2 x 2
NASTY = "<img src=x onerror=document.title='ran'>.png\x1b[31m"


def png(width: int = WIDTH, height: int = HEIGHT, colour: tuple[int, int, int] = (0, 0, 0)) -> str:
    file = BytesIO()
    Image.new("RGB", (width, height), colour).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def of_image(scores: Sequence[float], source: str = "cat.png", **changes: Any) -> Attribution:
    """A token for the class, which is the strongest and must not count, then the patches."""
    picture = Picture(source, png(), WIDTH, HEIGHT, 2, 3, changes.pop("pixels", ()))
    names = tuple(f"patch {row},{column}" for row in (1, 2) for column in (1, 2, 3))
    nothing = (None,) * 7
    tokens: dict[str, Any] = {"tokens": ("[CLS]", *names), "spans": nothing, "sequences": nothing, "word_ids": nothing}
    return replace(FINE, texts=(), scores=(9.0, *scores), picture=picture, label="cat", **tokens, **changes)


ONE = of_image([2.0, 0.0, 0.0, 0.0, 0.0, -1.0])


def at(image: Any, x: float, y: float) -> list[int]:
    """The colour at a share of width and height."""
    found: list[int] = np.asarray(image)[int(y * image.height), int(x * image.width)].tolist()
    return found


def mixed(colour: tuple[int, int, int], strength: float) -> list[int]:
    return [round(DARKEST * (1 - strength) + part * strength) for part in colour]


def test_patches_are_coloured_by_their_share_of_the_strongest() -> None:
    found = ONE.to_image(how="patch")
    assert found.size == (228, 152)  # enlarged, by a whole number
    assert at(found, 0.1, 0.2) == mixed(FOR, OPAQUE)
    assert at(found, 0.9, 0.8) == mixed(AGAINST, OPAQUE / 2)
    assert at(found, 0.5, 0.2) == [DARKEST] * 3
    edges = np.asarray(found)[:, :, 0]
    assert len({tuple(row) for row in edges.tolist()}) == 2  # two lines of patches, each even


def test_between_patches_scores_are_smooth_unless_asked_otherwise() -> None:
    smooth, even = (np.asarray(ONE.to_image(how=how)) for how in ("bilinear", "patch"))
    assert len(np.unique(smooth.reshape(-1, 3), axis=0)) > 50
    assert len(np.unique(even.reshape(-1, 3), axis=0)) == 3
    assert smooth[0, 0].tolist() == even[0, 0].tolist()
    assert (smooth == np.asarray(ONE.to_image())).all()


def test_an_image_without_any_score_stays_as_it_is() -> None:
    assert (np.asarray(of_image([0.0] * 6).to_image()) == DARKEST).all()


def test_single_pixels_are_shown_where_there_are_any() -> None:
    pixels = [[0.0] * WIDTH for _ in range(HEIGHT)]
    pixels[0][0], pixels[3][5] = 1.0, -1.0
    found = of_image([1.0] * 6, pixels=tuple(tuple(row) for row in pixels))
    fine = found.to_image()
    assert at(fine, 0.05, 0.05) == mixed(FOR, OPAQUE)
    assert at(fine, 0.95, 0.95) == mixed(AGAINST, OPAQUE)
    assert at(fine, 0.25, 0.05) == [DARKEST] * 3
    assert (np.asarray(found.to_image(how="patch")) == mixed(FOR, OPAQUE)).all()


@pytest.mark.parametrize(("size", "expected"), [(None, (228, 152)), (6, (6, 4)), (3, (3, 2)), (300, (300, 200))])
def test_the_size_can_be_chosen(size: int | None, expected: tuple[int, int], tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    assert ONE.to_image(path, size=size).size == expected
    with Image.open(path) as written:
        assert written.size == expected


def test_large_images_keep_their_size() -> None:
    assert ONE.picture is not None
    large = replace(ONE, picture=replace(ONE.picture, png=png(300, 200), width=300, height=200))
    assert large.to_image().size == (300, 200)


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="this attribution is of a text"):
        FINE.to_image()
    with pytest.raises(UsageError, match=r"written as PNG; use the file ending .png"):
        ONE.to_image(tmp_path / "a.jpg")
    with pytest.raises(BadSetting, match="how='cubic' is not allowed; it must be 'bilinear' or 'patch'"):
        ONE.to_image(how="cubic")  # type: ignore[arg-type]
    for size in (0, True, 2.5, 10**6):
        with pytest.raises(BadSetting, match="size="):
            ONE.to_image(size=size)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="LaTeX shows words"):
        wt.plot.to_latex(ONE)
    assert ONE.picture is not None
    cut = replace(ONE, picture=replace(ONE.picture, png=png()[:60]))
    with pytest.raises(BadArtifact, match=r"the picture of cat.png cannot be decoded"):
        cut.to_image()


def pictures_in(page: str) -> list[Any]:
    found = re.findall(r'<img src="data:image/png;base64,([A-Za-z0-9+/=]+)"', page)
    return [Image.open(BytesIO(base64.b64decode(one))) for one in found]


def test_a_page_shows_the_image_and_each_method_on_it() -> None:
    other = of_image([-1.0, 0.0, 0.0, 0.0, 0.0, 0.0], method="gae")
    page = wt.plot.to_html([{"attcat": ONE, "gae": other}], differences=True)
    plain, first, second, difference = pictures_in(page)
    assert at(plain, 0.1, 0.2) == [0, 0, 0]
    assert (np.asarray(first) == np.asarray(ONE.to_image())).all()
    assert (np.asarray(second) == np.asarray(other.to_image())).all()
    assert at(difference, 0.05, 0.05) == mixed(FOR, OPAQUE)
    for said in ("cat</b> 87.5 %", "cat.png", "attcat", "gae", "2 x 3 patches", "patch 1,1 +1.00", "opposes the label"):
        assert said in page
    assert "img-src data:;" in page


def test_texts_and_images_share_a_page_and_a_page_of_texts_allows_no_picture() -> None:
    page = wt.plot.to_html([ONE, FINE, ONE])
    assert len(pictures_in(page)) == 4
    assert ">rare</span>" in page
    assert "img-src" not in wt.plot.to_html(FINE)
    assert len(pictures_in(ONE._repr_html_())) == 2


def test_layers_are_shown_as_small_pictures(tmp_path: Path) -> None:
    terms = ((9.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0, 0.0, 0.0, -1.0))
    layered = replace(ONE, layers=terms)
    assert len(pictures_in(wt.plot.to_html(layered))) == 2 + 3
    assert "block 2" in wt.plot.to_html(layered)
    assert wt.plot.layers(layered, tmp_path / "a.svg").read_text().count("<image") >= 5


def test_names_of_files_cannot_do_harm() -> None:
    page = wt.plot.to_html(of_image([1.0] * 6, NASTY, method="<script>alert(1)</script>"))
    assert "<img src=x" not in page
    assert "<script" not in page
    assert "\x1b" not in page
    assert "\x1b[31m" not in printed(of_image([1.0] * 6, NASTY))


def printed(*results: Any, colour: bool = False, look: Look | None = None) -> str:
    file = StringIO()
    system: Any = "truecolor" if colour else None
    console = Console(file=file, width=100, color_system=system, force_terminal=colour, legacy_windows=False)
    print_each(console, results, look or Look())
    return file.getvalue()


def test_a_terminal_shows_the_grid() -> None:
    lines = printed(ONE).splitlines()
    assert lines[0] == "cat  87.5%  (tiny)"
    assert [line.strip() for line in lines[1:6]] == [
        "cat.png",
        "attcat",
        "+1.0 +0.0 +0.0",
        "+0.0 +0.0 -0.5",
        "most: patch 1,1",
    ]


def test_a_coloured_terminal_shows_squares_side_by_side() -> None:
    red, green, blue = FOR
    found = printed({"attcat": ONE, "gae": of_image([0.0] * 5 + [1.0])}, colour=True)
    assert found.count(f"48;2;{red};{green};{blue}m  \x1b") == 2
    assert found.count("\N{MIDDLE DOT}") == 4 + 5
    assert any("attcat" in line and "gae" in line for line in found.splitlines())
    assert "+0.0 +0.0" not in found.split("opposes the label")[0]


def test_a_figure_has_the_image_and_a_title_for_each_method(tmp_path: Path) -> None:
    several = [{"attcat": ONE, "gae": of_image([1.0] * 6, method="gae")}] * 2
    drawing = plot(several, tmp_path / "a.svg", Look()).read_text()
    assert drawing.count("<image") >= 6
    for said in ("attcat", "gae", "cat  87.5%", "supports", "opposes"):
        assert f"<!-- {said} -->" in drawing
    assert wt.plot.methods(several[0], tmp_path / "b.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(UsageError, match="up to 24 images, but there are 25"):
        plot([{"attcat": ONE}] * 25, tmp_path / "c.png", Look())
    with pytest.raises(UsageError, match="a figure shows one text"):
        plot([ONE, FINE], tmp_path / "c.png", Look())


def test_attributions_of_two_images_do_not_belong_together() -> None:
    gae = replace(ONE, method="gae")
    assert [list(group) for group in group_results([ONE, gae])] == [["attcat", "gae"]]
    assert ONE.picture is not None
    elsewhere = replace(gae, picture=replace(ONE.picture, png=png(colour=(1, 1, 1))))
    for other in (of_image([1.0] * 6, "dog.png", method="gae"), elsewhere, attribution_of([], [], method="gae")):
        assert len(group_results([ONE, other])) == 2


def test_patches_are_cells_and_other_tokens_are_not() -> None:
    for level in ("word", "token"):
        (panel,) = panels(ONE, Look(level=level))
        assert [cell.share for cell in panel.rows[0].cells] == [1.0, 0.0, 0.0, 0.0, 0.0, -0.5]
