"""Attributions to draw, with texts that try to do harm."""

from dataclasses import replace

from whichtoken.answers import AnswerRow, GeneratedAnswer, Segment
from whichtoken.records import Attribution
from whichtoken.targets import AnswerTokens, Class

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


def answered_of(prompt: list[str], answer: list[str], **changes: object) -> Attribution:
    """A prompt and the answer of a language model, one token for each word, explained by the tokens of the answer.

    The first token is special. Word k of the answer gets 2 from word k of the prompt and -1 from the one after it.
    """
    n, m = len(prompt), len(answer)
    texts = " ".join(prompt), " " + " ".join(answer)
    ends = [[len(" ".join(words[: i + 1])) for i in range(len(words))] for words in (prompt, answer)]
    inside = [(end - len(word), end) for word, end in zip(prompt, ends[0], strict=True)]
    said = [(end - len(word), end + 1) for word, end in zip(answer, ends[1], strict=True)]  # with the space before
    rows = []
    for k in range(m):
        scores = [0.0] * (1 + n + m)
        scores[1 + k % n], scores[1 + (k + 1) % n] = 2.0, -1.0
        rows.append(AnswerRow(f" {answer[k]}", (1 + n + k,), tuple(scores), -0.5 * (k + 1)))
    segments, first = [], 0
    for last in [i for i, word in enumerate(prompt) if word.endswith(".")] or [n - 1]:
        span = inside[first][0], inside[last][1]
        segments.append(Segment("sentence", texts[0][slice(*span)], span))
        first = last + 1
    made = Attribution(
        texts=texts,
        tokens=("<s>", *prompt, *answer),
        spans=(None, *inside, *said),
        sequences=(None, *([0] * n), *([1] * m)),
        word_ids=(None, *range(n), *([None] * m)),
        scores=tuple(map(sum, zip(*(row.scores for row in rows), strict=True))),
        label=" ".join(answer),
        target=AnswerTokens(tuple(range(1 + n, 1 + n + m)), tuple(range(m))),
        probability=None,
        value=sum(row.log_probability for row in rows),
        method="attn-lrp",
        settings={},
        tuned_on_deletion=False,
        model="tiny",
        revision="r1",
        n_cut=0,
        n_windows=1,
        generated=GeneratedAnswer(
            ids=tuple(range(1 + n + m)),
            first=1 + n,
            log_probabilities=tuple(row.log_probability for row in rows),
            row_level="token",
            source_level="word",
            rows=tuple(rows),
            segments=tuple(segments),
        ),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


ANSWERED = answered_of(["Ada", "likes", "Lyon.", "Tom", "likes", "Oslo."], ["Ada", "likes", "Rome"])
