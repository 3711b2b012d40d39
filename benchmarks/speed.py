"""Measure speed as ratios in one run on this machine: whichtoken against the bare model, and against other packages.

    python benchmarks/speed.py [--only WORD ...] [--repeat 3] [--base]

Each row runs two pieces of work in turn, several times, and divides the least CPU time of one by that of the other (for
several cores: the least wall time). `--only single cores` runs the rows whose names contain one of these words; the
others keep what an earlier run measured. Results are written to benchmarks/results/speed.json and speed.md; with
`--base`, which measures a random model of the size of BERT-base, to speed_base.json and speed_base.md. Packages that
are not installed (captum, lime, shap, lxt) leave their rows out.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor

import contrast_cat
import counts
import processes
import rivals
import whichtoken as wt
from whichtoken._explain import plan
from whichtoken.core.trace import Needs
from whichtoken.models import Batch, Subject, batches, capture
from whichtoken.scoring import Job
from whichtoken.tasks import Piece

RESULTS = Path(__file__).parent / "results"
SENTENCE = "the film is very slow but it was a rare man with music and a story that nobody could like at all"
WORDS = SENTENCE.split()
SINGLE = (
    *(
        "attcat",
        "cat",
        "raw-attention",
        "rollout",
        "att-grads",
        "att-x-att-grads",
        "grad-sam",
        "gae",
        "cam",
        "grad-cam",
    ),
    *("attention-grad-cam", "gradient-x-input", "token-tm"),
)
Work = Callable[[], object]
ENOUGH = 4.0  # seconds of measured work


@dataclass(frozen=True)
class Row:
    """One ratio: the time of `what` divided by the time of `against`."""

    name: str
    what: str
    against: str
    case: str
    ratio: float
    goal: str


@dataclass(frozen=True)
class Timer:
    repeat: int
    clock: Callable[[], float] = process_time

    def ratio(self, one: Work, other: Work) -> float:
        """Run both in turn, after one run of each that does not count; short work up to ten times as often."""
        seconds: tuple[list[float], list[float]] = ([], [])
        for number in range(10 * self.repeat + 1):
            for work, times in zip((one, other), seconds, strict=True):
                start = self.clock()
                work()
                if number:
                    times.append(self.clock() - start)
            if number >= self.repeat and sum(seconds[0]) + sum(seconds[1]) > ENOUGH:
                break
        return min(seconds[0]) / min(seconds[1])


def make_texts(subject: Subject, count: int, shortest: int, longest: int) -> list[str]:
    """Return random texts of this many tokens, special tokens included."""
    known = subject.tokenizer.get_vocab()
    words = WORDS if WORDS[0] in known else sorted(word for word in known if word.isalpha())
    source = np.random.default_rng([count, shortest, longest])
    return [" ".join(source.choice(words, n - 2)) for n in source.integers(shortest, longest + 1, count)]


def base_subject() -> Subject:
    """Return a random model of the size of BERT-base, with references."""
    subject = contrast_cat.random_subject()
    texts = make_texts(subject, 60, 16, 48)
    return subject.with_references(wt.references.build(subject, texts, rule="random", n=30, min_tokens=1))


def is_base(subject: Subject) -> bool:
    return int(subject.model.config.hidden_size) == 768


def bare_pass(batch: Any, model: Any, attention: bool) -> None:
    """Run one forward and one backward pass to all hidden states, as short as it can be written."""
    with model.bert.embeddings.register_forward_hook(lambda module, args, output: output.detach().requires_grad_()):
        out = model(
            input_ids=batch.ids,
            attention_mask=batch.mask.long(),
            output_attentions=attention,
            output_hidden_states=True,
        )
    torch.autograd.grad(out.logits.max(-1).values.sum(), out.hidden_states)


def frozen_copy(subject: Subject, attention: str) -> Any:
    from copy import deepcopy

    model = deepcopy(subject.model)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    model.set_attn_implementation(attention)
    return model


def single(subject: Subject, timer: Timer) -> Iterator[Row]:
    """One method of one pass, and all of them together; attcat also by wall time, if both may use all cores."""
    model, n_cores = frozen_copy(subject, "eager"), os.cpu_count() or 1
    cases = {"256 texts, 8 to 48 tokens": make_texts(subject, 256, 8, 48)}
    for count, length in ((64, 16), (16, 64), (8, 128), (2, 512)):
        cases[f"{count} x {length} tokens"] = make_texts(subject, count, length, length)
    against = "forward + autograd.grad to the same activations"
    for case, texts in cases.items():
        explain, bare = (
            partial(wt.explain, subject, texts, "attcat"),
            _bare_passes(plan(subject, ["attcat"]), model, texts, True),
        )
        yield Row("single", "attcat", against, case, timer.ratio(explain, bare), "1.15")
        wall = Timer(timer.repeat, perf_counter).ratio(partial(_with, n_cores, explain), partial(_with, n_cores, bare))
        yield Row("single", f"attcat, {n_cores} cores", against, case, wall, "1.15")
    texts = make_texts(subject, 256, 8, 48)
    ratio = timer.ratio(partial(wt.explain, subject, texts, SINGLE), partial(wt.explain, subject, texts, "attcat"))
    yield Row("single", f"{len(SINGLE)} single-pass methods together", "attcat", "256 texts", ratio, "1.4")


def _bare_passes(job: Job, model: Any, texts: list[str], attention: bool) -> Work:
    """Return passes over batches as `explain` forms them; tokenizing and forming them is not part of the work."""
    pieces = job.task.pieces(job.task.encode(texts, None, 0), job.targets[0], 0)
    groups = batches([len(piece.row) for piece in pieces], job.fits)
    made = [job.subject.batch([pieces[i].row for i in group]) for group in groups]

    def run() -> None:
        for batch in made:
            bare_pass(batch, model, attention)

    return run


def relevance(subject: Subject, timer: Timer) -> Iterator[Row]:
    """A pass under the rules of TransAtt."""
    model = frozen_copy(subject, subject.own_attention)
    for count, length in ((1, 16), (16, 16), (8, 64), (4, 128), (2, 512)):
        texts, job = make_texts(subject, count, length, length), plan(subject, ["transatt"])
        pieces = job.task.pieces(job.task.encode(texts, None, 0), job.targets[0], 0)
        groups = [[pieces[i] for i in group] for group in batches([len(piece.row) for piece in pieces], job.fits)]
        made = [(group, job.subject.batch([piece.row for piece in group])) for group in groups]
        ratio = timer.ratio(partial(_relevance_passes, job, made), _bare_passes(job, model, texts, False))
        case = f"{count} x {length} tokens" + (f", in {len(groups)} batches" if len(groups) > 1 else "")
        yield Row("relevance", "transatt's relevance pass", "forward + backward", case, ratio, "3")


def _relevance_passes(job: Job, made: Sequence[tuple[Sequence[Piece], Batch]]) -> None:
    (needs,) = job.passes.values()
    for group, batch in made:
        capture(job.subject, batch, partial(job.task.picks, group), Needs(relevance=needs.relevance))


def evaluations(subject: Subject, timer: Timer) -> Iterator[Row]:
    """Evaluating shortened texts, against their tokens at the best rate that this model reaches."""
    works: dict[tuple[str, str], Work] = {}
    cases = [("16 texts, 12 to 40 tokens", 16, 12, 40), ("4 x 128 tokens", 4, 128, 128)]
    cases += [] if is_base(subject) else [("1 x 512 tokens", 1, 512, 512)]
    for case, count, shortest, longest in cases:
        texts = make_texts(subject, count, shortest, longest)
        records = [result["attcat"] for result in wt.explain(subject, texts, "attcat")]
        works["posterior", case] = partial(wt.explain, subject, texts, "posterior")
        works["degrade", case] = partial(wt.degrade, subject, records)
        if longest <= 40 and not is_base(subject):  # 271 sequences of each text
            works["contrast-cat", case] = partial(wt.explain, subject, texts, "contrast-cat")
    for (name, case), work in works.items():
        with (tokens := _TokenCount()).watch():
            work()
        rates, seconds = list[float](), list[float]()
        for _ in range(timer.repeat):  # in turn: the processor is not always as fast
            rates.append(_forward_rate(subject))
            start = process_time()
            work()
            seconds.append(process_time() - start)
        ratio = min(seconds) / (tokens.evaluated / max(rates))
        yield Row("evaluations", name, "its tokens / best forward rate", case, ratio, "1.25")


def _forward_rate(subject: Subject) -> float:
    """Return tokens per CPU second, the best of several batches and runs."""
    rates = []
    for rows, length in ((32, 16), (64, 16), (32, 32), (16, 64)):
        ids = torch.randint(5, min(2000, subject.model.config.vocab_size), (rows, length))
        for _ in range(3):
            start = process_time()
            with torch.inference_mode():
                subject.model(input_ids=ids, attention_mask=torch.ones_like(ids))
            rates.append(rows * length / (process_time() - start))
    return max(rates)


class _TokenCount:
    """Counts the tokens that passes read, a pass with gradients three times."""

    def __init__(self) -> None:
        self.evaluated = 0

    def watch(self) -> Any:
        from unittest.mock import patch

        original, self.evaluated = Subject.forward, 0

        def forward(subject: Subject, batch: Any) -> Tensor:
            self.evaluated += int(batch.mask.sum()) * (3 if torch.is_grad_enabled() else 1)
            return original(subject, batch)

        return patch.object(Subject, "forward", forward)


def cores(subject: Subject, timer: Timer) -> Iterator[Row]:
    """All cores against one, by wall time; an ideal machine needs the inverse of the number of cores."""
    n_cores, texts = os.cpu_count() or 1, make_texts(subject, 64, 16, 64)
    how = wt.bench.protocol("quick", min_tokens=1)
    works: dict[str, Work] = {
        "explain attcat": partial(wt.explain, subject, texts, "attcat"),
        "explain posterior": partial(wt.explain, subject, texts[:32], "posterior"),
        "bench --quick": partial(wt.bench.run, subject, texts[:32], ["attcat", "gae", "random"], protocol=how),
    }
    for name, work in works.items():
        ratio = Timer(max(1, timer.repeat - 1), perf_counter).ratio(
            partial(_with, 1, work), partial(_with, n_cores, work)
        )
        yield Row(
            "cores", f"{name}: share of {n_cores} cores used", "one thread", "64 or 32 texts", ratio / n_cores, "≥ 0.85"
        )

    if is_base(subject):
        return  # separate processes load the default model
    share = processes.share_of_cores(texts, max(1, timer.repeat - 1), n_cores)
    what = f"{n_cores} separate processes: share of {n_cores} cores used"
    yield Row("cores", what, "one process alone", "attcat, 64 texts: the most that this machine allows", share, "-")


def _with(threads: int, work: Work) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        work()
    finally:
        torch.set_num_threads(before)


def captum(subject: Subject, timer: Timer) -> Iterator[Row]:
    """Integrated gradients and gradient x input, against Captum with its best internal batch."""
    cases = [(1, 16), (1, 64), (4, 24), *([] if is_base(subject) else [(1, 128), (32, 24)])]  # minutes each
    for count, length in cases:
        texts, case = make_texts(subject, count, length, length), f"{count} x {length} tokens"
        theirs = rivals.captum_integrated_gradients(subject, texts)
        ratio = timer.ratio(partial(wt.explain, subject, texts, "integrated-gradients"), theirs)
        yield Row("captum", "integrated-gradients, 50 steps", "Captum", case, ratio, "1.0")
        theirs = rivals.captum_input_x_gradient(subject, texts)
        ratio = timer.ratio(partial(wt.explain, subject, texts, "gradient-x-input"), theirs)
        yield Row("captum", "gradient-x-input", "Captum", case, ratio, "1.0")


def samplers(subject: Subject, timer: Timer) -> Iterator[Row]:
    """`posterior` with 64 questions against the packages lime and shap with 64 samples."""
    texts = make_texts(subject, 4, 20, 30)

    def one_by_one() -> None:
        for text in texts:
            wt.explain(subject, text, "posterior")

    ours: dict[str, Work] = {
        "4 texts in one call": partial(wt.explain, subject, texts, "posterior"),
        "4 texts one by one": one_by_one,
    }
    for case, work in ours.items():
        for package in (rivals.lime, rivals.shap):
            ratio = timer.ratio(work, package(subject, texts))
            yield Row("samplers", "posterior, 64", f"{package.__name__}, 64 samples", case, ratio, "0.5")
    rate = _forward_rate(subject)
    with (tokens := _TokenCount()).watch():
        wt.explain(subject, texts, "posterior")
    floor = partial(_spend, tokens.evaluated / rate)
    ratio = timer.ratio(floor, rivals.lime(subject, texts))
    yield Row("samplers", "its tokens / best forward rate: the least", "lime, 64 samples", "4 texts", ratio, "-")


def _spend(seconds: float) -> None:
    """Take this much CPU time."""
    end = process_time() + seconds
    while process_time() < end:
        pass


def lxt(subject: Subject, timer: Timer) -> Iterator[Row]:
    """attn-lrp and cp-lrp against LXT on a random Llama of the same width and depth."""
    size = (768, 12) if is_base(subject) else (384, 6)
    yield from (Row("lxt", *row) for row in rivals.lxt_rows(timer.repeat, size))


def counts_of_bench(subject: Subject, timer: Timer) -> Iterator[Row]:
    """Evaluations of a benchmark, against those of a naive loop."""
    yield from (Row("counts_of_bench", *row) for row in counts.benchmark_rows(subject, make_texts(subject, 8, 12, 40)))


def contraction(subject: Subject, timer: Timer) -> Iterator[Row]:
    """The activations of references, against one forward pass."""
    size = (768, 12) if is_base(subject) else (384, 6)
    yield from (Row("contraction", *row) for row in counts.contraction_rows(timer.ratio, size))


def loop(subject: Subject, timer: Timer) -> Iterator[Row]:
    """Contrast-CAT, against the loop of its authors."""
    yield from (Row("loop", *row) for row in counts.loop_rows(subject))


def start(subject: Subject, timer: Timer) -> Iterator[Row]:
    """Start-up of the command line, in CPU seconds of a new process."""
    path = Path(sys.executable).with_name("whichtoken")
    python = [sys.executable, "-c"]
    bare = f"{rivals.BARE_START}"
    cases = {
        "whichtoken --help": ([str(path), "--help"], [*python, "pass"], "no torch"),
        "import whichtoken": ([*python, "import whichtoken"], [*python, "pass"], "+ 50 ms"),
        "whichtoken explain, attcat": (
            [str(path), "explain", "It is very slow.", "--method", "attcat"],
            [*python, bare],
            "1.3",
        ),
    }
    for name, (ours, theirs, goal) in cases.items():
        ratio = Timer(timer.repeat, _children).ratio(partial(_run, ours), partial(_run, theirs))
        against = "importing torch and BERT, loading, one forward" if theirs[-1] == bare else "python -c pass"
        yield Row("start", name, against, "a new process", ratio, goal)


def _children() -> float:
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


GROUPS: dict[str, Callable[[Subject, Timer], Iterator[Row]]] = {
    made.__name__: made
    for made in (
        *(single, relevance, evaluations, counts_of_bench, contraction, loop),
        *(cores, captum, samplers, lxt, start),
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(GROUPS), help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--base", action="store_true", help="a random model of the size of BERT-base")
    options = parser.parse_args()
    subject = base_subject() if options.base else wt.load()
    stored = RESULTS / ("speed_base.json" if options.base else "speed.json")
    left_out = {"start", "counts_of_bench"} if options.base else set()  # they do not depend on the size
    for name in (name for name in GROUPS if name not in left_out and any(word in name for word in options.only)):
        torch.set_num_threads(1)
        try:
            rows = [asdict(row) for row in GROUPS[name](subject, Timer(options.repeat))]
        except ImportError as error:
            print(f"{name}: left out, {error}")
            continue
        known = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {}
        known[name] = {"rows": rows, "versions": versions()}
        for row in rows:
            print(f"{row['what']} | {row['against']} | {row['case']} | {row['ratio']:.2f} | {row['goal']}", flush=True)
        stored.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        stored.with_suffix(".md").write_text("\n".join(report(known, subject.title)) + "\n", encoding="utf-8")


def versions() -> str:
    found = [f"{platform.machine()}, {os.cpu_count()} cores, no GPU, Python {platform.python_version()}"]
    for package in ("torch", "transformers", "captum", "lime", "shap", "lxt"):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def report(known: dict[str, Any], title: str) -> Iterator[str]:
    yield f"# Speed: {title}\n"
    yield "`python benchmarks/speed.py` (`make bench`). Ratios of CPU times of one thread, measured in turn in one run;"
    yield "for several cores, of wall times. Below 1: whichtoken is faster.\n"
    yield "| what | divided by | case | ratio | goal |"
    yield "|---|---|---|---|---|"
    for name in (name for name in GROUPS if name in known):
        for row in known[name]["rows"]:
            goal = row["goal"] if not row["goal"][0].isdigit() else f"≤ {row['goal']}"
            yield f"| {row['what']} | {row['against']} | {row['case']} | {row['ratio']:.2f} | {goal} |"
    yield ""
    for text in dict.fromkeys(group["versions"] for group in known.values()):
        yield f"Measured with {text}."


if __name__ == "__main__":
    main()
