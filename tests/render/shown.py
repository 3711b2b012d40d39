"""Attributions to draw, with texts that try to do harm."""

from dataclasses import replace

from whichtoken.records import Attribution
from whichtoken.targets import Class

# What each of these would do if a picture obeyed it.
NASTY = [
    "</script><script>document.title='ran'</script>",
    "<img/src=x/onerror=document.title='ran'>",
    '"><b>out',
    "{{7*7}}",
    "[bold]rich[/bold]",
    "\x1b[31mred\x1b[0m",
    "\u202egnorw",
    "\u2066hidden\u2069",
    "a\u2028b",
    "x\x00y",
    r"\input{secret}",
    "50%_of$the#tax&{co}~^",
    "$x^2$",
]


def attribution_of(words: list[str], scores: list[float], **changes: object) -> Attribution:
    """One token for each word, with a space between words, and a special token at each end."""
    text, spans = " ".join(words), []
    at = 0
    for word in words:
        spans.append((at, at + len(word)))
        at += len(word) + 1
    made = Attribution(
        texts=(text,),
        tokens=("[CLS]", *words, "[SEP]"),
        spans=(None, *spans, None),
        sequences=(None, *(0 for _ in words), None),
        word_ids=(None, *range(len(words)), None),
        scores=(0.0, *scores, 0.0),
        label="positive",
        target=Class(1),
        probability=0.875,
        method="attcat",
        settings={"layers": "inputs"},
        tuned_on_deletion=False,
        model="tiny",
        revision="r1",
        n_cut=0,
        n_windows=1,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


FINE = attribution_of(["a", "rare", "dull", "film"], [0.5, 2.0, -1.0, 0.0])
HARMFUL = attribution_of(
    NASTY,
    [float(i - 4) for i in range(len(NASTY))],
    label="<script>document.title='ran'</script> [red]label \x1b[31m",
    model="<img src=x onerror=document.title='ran'> $m_1$",
    method="<i>[blink]",
    settings={"<u>": "</style><script>document.title='ran'</script>"},
)
