"""Measure how the cost of an explanation grows: with tokens, references, methods and layers.

    python benchmarks/growth.py

CPU time of one thread for one text, on random models of the width of MiniLM (384), divided by one forward pass of the
same text, and compared with what is expected. The table is printed and written to benchmarks/results/growth.md, the
picture to docs/pictures/growth.png.
"""

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import process_time

import torch

import whichtoken as wt
from single_pass import WORDS, random_subject

RESULTS, PICTURES = Path(__file__).parent / "results", Path(__file__).parent.parent / "docs" / "pictures"
WIDTH, LAYERS, TOKENS = 384, 6, 64
LENGTHS = (16, 32, 64, 128, 256, 512)
SINGLE = (
    *("attcat", "cat", "raw-attention", "rollout", "att-grads"),
    *("att-x-att-grads", "grad-sam", "gae", "cam", "grad-cam"),
)


@dataclass(frozen=True)
class Line:
    """Seconds at each size, and what is expected if those of the middle size are right."""

    what: str
    axis: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    expected: tuple[float, ...]


def main() -> None:
    torch.set_num_threads(1)
    lines = [*along_tokens(), along_references(), along_methods(), along_layers()]
    report = "\n".join(table(lines)) + "\n"
    (RESULTS / "growth.md").write_text(report, encoding="utf-8")
    print(report)
    draw(lines, PICTURES / "growth.png")


def text_of(n_tokens: int) -> str:
    return " ".join((WORDS * 40)[: n_tokens - 2])


def least_seconds(works: Sequence[Callable[[], object]], repeat: int = 7) -> list[float]:
    """Return the CPU time of the fastest run of each, after one that does not count.

    They run in turn, so that a time in which the processor is slower does not count for one of them alone.
    """
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repeat + 1):
        for work, found in zip(works, times, strict=True):
            start = process_time()
            work()
            found.append(process_time() - start)
    return [min(found[1:]) for found in times]


def make_line(what: str, axis: str, sizes: Sequence[int], seconds: Sequence[float], units: Sequence[float]) -> Line:
    """`units`: the expected cost of each size in units of its own, which the middle size turns into seconds."""
    middle = len(sizes) // 2
    expected = tuple(unit * seconds[middle] / units[middle] for unit in units)
    return Line(what, axis, tuple(sizes), tuple(seconds), expected)


def products(n_tokens: int) -> float:
    """Return the multiplications of a block: projections and feed-forward layer, and attention."""
    return n_tokens * (12 * WIDTH**2 + 2 * n_tokens * WIDTH)


def along_tokens() -> Iterator[Line]:
    subject = random_subject(WIDTH, LAYERS)
    for name in ("attcat", "transatt", "posterior"):
        seconds = least_seconds([partial(wt.explain, subject, text_of(n), name) for n in LENGTHS])
        yield make_line(name, "tokens", LENGTHS, seconds, [products(n) for n in LENGTHS])
    passes = least_seconds([partial(forward, subject, text_of(n)) for n in LENGTHS])
    yield make_line("one forward pass", "tokens", LENGTHS, passes, [products(n) for n in LENGTHS])


def forward(subject: wt.Subject, text: str) -> None:
    with torch.no_grad():
        subject.model(**subject.tokenizer(text, return_tensors="pt", return_token_type_ids=False))


def along_references() -> Line:
    subject, sizes = random_subject(WIDTH, LAYERS), (0, 1, 10, 30, 60)
    corpus = [" ".join(WORDS[i % 13 :] + WORDS[: i % 7] + WORDS[i % 5 :]) for i in range(60)]
    works: list[Callable[[], object]] = [partial(wt.explain, subject, text_of(24), "attcat")]  # without references
    for n in sizes[1:]:
        library = wt.references.build(subject, corpus, rule="random", n=n, min_tokens=1)
        works.append(partial(wt.explain, subject.with_references(library), text_of(24), wt.method("contrast-cat", n=n)))
    seconds = least_seconds(works)
    each = (seconds[sizes.index(30)] - seconds[0]) / 30
    expected = tuple(seconds[0] + n * each for n in sizes)
    return Line("contrast-cat, 24 tokens; 0: attcat", "references", sizes, tuple(seconds), expected)


def along_methods() -> Line:
    subject, sizes = random_subject(WIDTH, LAYERS), (1, 2, 5, 10)
    seconds = least_seconds([partial(wt.explain, subject, text_of(TOKENS), SINGLE[:n]) for n in sizes])
    return make_line(f"single-pass methods, {TOKENS} tokens", "methods", sizes, seconds, [1] * len(sizes))


def along_layers() -> Line:
    sizes = (2, 4, 8, 12)
    seconds = least_seconds([partial(wt.explain, random_subject(WIDTH, n), text_of(TOKENS), "attcat") for n in sizes])
    return make_line(f"attcat, {TOKENS} tokens", "layers", sizes, seconds, sizes)


def table(lines: Sequence[Line]) -> Iterator[str]:
    machine = f"{platform.machine()}, {os.cpu_count()} cores, no GPU, torch {torch.__version__}"
    yield "# How the cost grows\n"
    yield f"`python benchmarks/growth.py`, {machine}, CPU time of one thread, one text, random BERT {LAYERS} x {WIDTH}."
    yield "Each cell: the time in units of the line's first, and in brackets what is expected of its size if the middle"
    yield "one is right. Expected: the multiplications of the blocks for tokens (attention has a square in it), in"
    yield "proportion for layers, the same time for each reference besides that of attcat (30 references are right),"
    yield "and the same time for any number of methods.\n"
    for line in lines:
        yield f"| {line.what} | {' | '.join(f'{size} {line.axis}' for size in line.sizes)} |"
        yield "|---" * (len(line.sizes) + 1) + "|"
        first = line.seconds[0]
        pairs = zip(line.seconds, line.expected, strict=True)
        yield f"| time (expected) | {' | '.join(f'{s / first:.2f} ({e / first:.2f})' for s, e in pairs)} |\n"


def draw(lines: Sequence[Line], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    axes = list(dict.fromkeys(line.axis for line in lines))
    figure, panels = plt.subplots(1, len(axes), figsize=(3.6 * len(axes), 3.2), layout="constrained")
    for axis, panel in zip(axes, panels, strict=True):
        for number, line in enumerate(line for line in lines if line.axis == axis):
            unit = next(other.seconds[0] for other in lines if other.axis == axis)
            panel.plot(line.sizes, [s / unit for s in line.seconds], "o-", color=f"C{number}", label=line.what)
            panel.plot(line.sizes, [s / unit for s in line.expected], ":", color=f"C{number}")
        logarithmic = axis == "tokens"
        panel.set(xlabel=axis, xscale="log" if logarithmic else "linear", yscale="log" if logarithmic else "linear")
        if logarithmic:
            panel.set_xticks(LENGTHS, [str(n) for n in LENGTHS])
            panel.minorticks_off()
        else:
            panel.set_ylim(0, 1.1 * panel.get_ylim()[1])
        panel.legend(fontsize=7, frameon=False)
    panels[0].set_ylabel("time of a text; dotted: expected")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
