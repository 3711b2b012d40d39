"""Measure whether the memory of a long run stays flat: the peak of the resident memory after each fifth of the run.

    python benchmarks/memory.py [MODEL] [--data FILE] [--bench N] [--each N] [--base N] [--base-methods NAME ...]
                                [--out FILE]

MODEL is a folder or hub name; the default is a random model with the layers and heads of MiniLM (6 x 12), but narrow:
attention takes most of the memory of a pass, and the time does not matter here. Three runs, each in its own process:

- a benchmark of N texts of 20 to 500 words, with methods of every kind;
- `explain_each` on N sentences of 8 to 40 words, with AttCAT;
- the same on N texts of 8 to 200 words.

With `--base N`, four more, on a random model of the size of BERT-base and texts of 512 tokens: AttCAT on N / 10 and N
texts, and Contrast-CAT on as many, with 4 references and at most 4 evaluations of each text, because time does not
matter here either. Each pair is to be compared: results of a call are sorted, and arrive in large parts.
With `--data`, all of them read the texts of a file instead. The report is printed and written to
benchmarks/results/memory.md. Linux only: the numbers are VmHWM and VmRSS of /proc/self/status.
"""

import argparse
import os
import platform
import random
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import torch

import whichtoken as wt
from single_pass import WORDS, random_subject
from whichtoken.bench._run import gather, measure_parts, prepare
from whichtoken.core.trace import Method

METHODS: list[str | Method] = [
    wt.method("contrast-cat", n=4),
    wt.method("integrated-gradients", steps=8),
    *("attcat", "gae", "attn-lrp", "full-lrp", "random"),
]
BASE_METHODS = ("attcat", "contrast-cat")
RESULT = Path(__file__).parent / "results" / "memory.md"
FIFTHS = 5
MB = 1024  # in kB, the unit of /proc


@dataclass(frozen=True)
class Job:
    name: str
    count: int  # texts
    words: tuple[int, int]  # of the shortest and the longest text
    model: str | None
    data: str | None
    is_base: bool = False  # a model of the size of BERT-base


@dataclass(frozen=True)
class Memory:
    """Of one process, in kB: the peak so far, and the present."""

    peak: int
    now: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="folder or hub name of a classifier")
    parser.add_argument("--data", help="file with texts; default: random ones")
    parser.add_argument("--bench", type=int, default=200, help="texts of the benchmark; 0: leave it out")
    parser.add_argument("--each", type=int, default=5000, help="texts for explain_each; 0: leave it out")
    parser.add_argument("--base", type=int, default=0, help="texts of 512 tokens for a model of the size of BERT-base")
    parser.add_argument("--base-methods", nargs="+", choices=BASE_METHODS, default=BASE_METHODS)
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    jobs = [
        Job("benchmark", arguments.bench, (20, 500), arguments.model, arguments.data),
        Job("explain_each", arguments.each, (8, 40), arguments.model, arguments.data),
        Job("explain_each", arguments.each, (8, 200), arguments.model, arguments.data),
        *(
            Job(f"{name}, BERT-base", count, (510, 510), None, None, True)
            for name in arguments.base_methods
            for count in (arguments.base // 10, arguments.base)
        ),
    ]
    lines = []
    for job in (job for job in jobs if job.count):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            lines.append(line(job, process.submit(run, job).result()))
        print(lines[-1], flush=True)
    report = table(arguments.model, lines)
    arguments.out.write_text(report)
    print(report)


def run(job: Job) -> list[Memory]:
    """Return the memory of this process before the run and after each fifth of it."""
    torch.set_num_threads(1)
    subject = wt.load(job.model) if job.model else random_subject(*(768, 12) if job.is_base else (48, 6))
    texts = list(islice(read_texts(job), job.count))
    work: Callable[[wt.Subject, list[str]], Iterator[int]] = RUNS[job.name]
    memory = [measure_memory()]
    for done in work(subject, texts):
        while done * FIFTHS >= len(memory) * len(texts) and len(memory) <= FIFTHS:  # a part may end several fifths
            memory.append(measure_memory())
    return memory


def measure_benchmark(subject: wt.Subject, texts: list[str]) -> Iterator[int]:
    """Yield the number of texts that are done."""
    if subject.references is None:
        library = wt.references.build(subject, [text[:200] for text in texts[:40]], rule="random", min_tokens=1, n=4)
        subject = subject.with_references(library)
    bench = prepare(subject, METHODS, wt.bench.protocol(metrics=("aopc", "log-odds"), min_tokens=1))
    done = 0
    for part in measure_parts(bench, gather(bench, bench.task.examples(texts, None, None)).items, None):
        done += len(part.inputs)
        yield done


def explain_texts(subject: wt.Subject, texts: list[str]) -> Iterator[int]:
    for done, _ in enumerate(wt.explain_each(subject, texts, ["attcat"]), 1):
        yield done


def contrast_texts(subject: wt.Subject, texts: list[str]) -> Iterator[int]:
    library = wt.references.build(subject, texts[:4], rule="random", min_tokens=1, n=4)
    method = wt.method("contrast-cat", n=4, budget=4)
    for done, _ in enumerate(wt.explain_each(subject.with_references(library), texts, [method]), 1):
        yield done


RUNS = {
    "benchmark": measure_benchmark,
    "explain_each": explain_texts,
    "attcat, BERT-base": explain_texts,
    "contrast-cat, BERT-base": contrast_texts,
}


def read_texts(job: Job) -> Iterator[str]:
    if job.data is not None:
        yield from (example.texts[0] for example in wt.data.read_examples(job.data))
        return
    source, (least, most) = random.Random(0), job.words
    while True:
        yield " ".join(source.choices(WORDS, k=source.randint(least, most)))


def measure_memory() -> Memory:
    status = Path("/proc/self/status").read_text()
    peak, now = (int(re.findall(rf"{name}:\s+(\d+) kB", status)[0]) for name in ("VmHWM", "VmRSS"))
    return Memory(peak, now)


def line(job: Job, memory: list[Memory]) -> str:
    words = f"{job.words[0]} to {job.words[1]}" if job.data is None else job.data
    peaks = [f"{m.peak / MB:.0f}" for m in memory]
    growth, end = f"{memory[-1].peak / memory[1].peak:.2f}", f"{memory[-1].now / MB:.0f}"
    return f"| {' | '.join([job.name, str(job.count), words, *peaks, growth, end])} |"


def table(model: str | None, lines: list[str]) -> str:
    machine = f"{platform.machine()}, {os.cpu_count()} cores, no GPU, torch {torch.__version__}"
    shares = [f"{100 * i // FIFTHS} %" for i in range(1, FIFTHS + 1)]
    methods = ", ".join(method if isinstance(method, str) else method.label for method in METHODS)
    head = [
        "# Memory of long runs",
        "",
        f"`python benchmarks/memory.py`, {machine}, 1 thread. Model: {model or 'random BERT 6 x 48, 12 heads'}, "
        "or 12 x 768 (BERT-base). "
        f"Benchmark: {methods}; explain_each: attcat. Peak of the resident memory so far, in MB.",
        "",
        f"| run | texts | words | before | {' | '.join(shares)} | 100 % / 20 % | resident at the end |",
        "|---" * (FIFTHS + 6) + "|",
    ]
    return "\n".join([*head, *lines]) + "\n"


if __name__ == "__main__":
    main()
