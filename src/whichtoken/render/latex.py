"""Results as LaTeX: words in coloured boxes. No torch."""

from whichtoken.errors import UsageError
from whichtoken.render.groups import Results
from whichtoken.render.palette import WHITE, Colour, ink, shade, step_of
from whichtoken.render.rows import Level, Look, Panel, ScoreCell, ScoreRow, format_output, panels, uncertain_legend
from whichtoken.render.titles import BETWEEN, name_of

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "\n": " ",
    '"': r"\textquotedbl{}",
    "-": r"{-}",  # prevents ligatures: -- would become a dash
    "`": r"{`}",
    "'": r"{'}",
    "\N{OPEN BOX}": r"\textvisiblespace{}",
    "\N{MIDDLE DOT}": r"\textperiodcentered{}",
    "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}": r"\ensuremath{\hookleftarrow}",
    "\N{MINUS SIGN}": r"\ensuremath{-}",
    "\N{MATHEMATICAL LEFT ANGLE BRACKET}": r"\ensuremath{\langle}",
    "\N{MATHEMATICAL RIGHT ANGLE BRACKET}": r"\ensuremath{\rangle}",
}
_TOUCHING = r"\kern.08em "  # between tokens that touch, so that one sees where they end
_WRAPPED = r"\multicolumn{2}{@{}p{0.95\linewidth}@{}}"  # a line that is broken where it reaches the margin
_HEAD = r"% needs \usepackage{array,xcolor} and \usepackage[T1]{fontenc}; other scripts need XeLaTeX or LuaLaTeX"


def to_latex(results: Results, *, level: Level = "word", differences: bool = False, numbers: bool = False) -> str:
    """Return a LaTeX fragment with one table of methods per text."""
    return document(results, Look(level, differences, numbers))


def document(results: Results, look: Look) -> str:
    tables = panels(results, look)
    if any(panel.picture is not None for panel in tables):
        raise UsageError("LaTeX shows words only; for images, write a figure (.pdf, .png) and include it")
    return "\n\n".join([_HEAD, *(_panel(panel, look) for panel in tables)]) + "\n"


def escape(text: str) -> str:
    return "".join(_SPECIAL.get(character, character) for character in text)


def _panel(panel: Panel, look: Look) -> str:
    comment = f"% {BETWEEN.join(map(escape, name_of(panel).split(BETWEEN)))}"
    head = rf"\noindent\textbf{{{escape(panel.label)}}} ({escape(format_output(panel))})"
    rows = [*panel.rows, *panel.differences]
    names = [escape(row.name) + ("*" if row.tuned_on_deletion else "") for row in rows]
    words = [rf"\raggedright\arraybackslash {_words(row, look)}" for row in rows]
    lines = [rf"{name} & {line} \\" for name, line in zip(names, words, strict=True)]
    lines += [rf"{_WRAPPED}{{\raggedright\arraybackslash {escape(note)}}} \\" for note in (*panel.trust, *panel.notes)]
    if any(row.tuned_on_deletion for row in rows):
        lines.append(r"\multicolumn{2}{l}{\footnotesize * tuned on the deletion curve} \\")
    if uncertain := uncertain_legend(cell for row in rows for cell in row.cells):
        legend = rf"words in \textit{{italics}} are uncertain: {escape(uncertain)}"
        lines.append(rf"{_WRAPPED}{{\raggedright\arraybackslash\footnotesize {legend}}} \\")
    table = [r"\begin{tabular}{@{}lp{0.75\linewidth}@{}}", *lines, r"\end{tabular}"]
    return "\n".join([comment, head + r"\par", *table])


def _words(row: ScoreRow, look: Look) -> str:
    touching = _TOUCHING if look.level == "token" else ""
    words = "".join(
        f"{escape(cell.before) or (touching if number else '')}{_box(cell, look.numbers)}"
        for number, cell in enumerate(row.cells)
    )
    return rf"{words} \hfill{{\footnotesize {escape(row.remark)}}}" if row.remark else words


def _box(cell: ScoreCell, numbers: bool) -> str:
    step = step_of(cell.share)
    word = rf"\textit{{{escape(cell.text)}}}" if cell.uncertain else escape(cell.text)
    if numbers:
        interval = f" {cell.interval.shares}" if cell.interval else ""
        word += rf"\,{{\tiny {cell.share:+.2f}{interval}}}"
    if not step:
        return word
    if ink(step) == WHITE:
        word = rf"\textcolor{{white}}{{{word}}}"
    return rf"\colorbox[RGB]{{{_numbers(shade(step))}}}{{\strut {word}}}"


def _numbers(colour: Colour) -> str:
    return ",".join(map(str, colour))
