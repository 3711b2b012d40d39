"""Held-out prediction: how much of what the model says under new removals do methods predict from what they asked?

    python benchmarks/prediction.py sst2/dev.tsv --set heldout --name sst2
    python benchmarks/prediction.py sst2/dev.tsv --set heldout --name 12-layers --model models/bert_12x384_sst2
    python benchmarks/prediction.py imdb/test.tsv --set reviews --name imdb --texts 30 --budgets 32,64,128
    python benchmarks/prediction.py benchmarks/data/chats.jsonl --name prompts --model smollm2 --budgets 32,64

The last one takes the prompts that have documents, and the log-probability of a greedy answer of at most 24 tokens.

Each method may ask about some removals of words of a text, and then predicts how far the log-odds of the explained
class (the log-probability of an answer) drop under others, which no method asked about at any budget. These are drawn
in two ways: with a share of removed words that is uniform from 0 to 1, and with each word removed with probability 1/2.
R2 is the share of the variance of the drops that is predicted: 1 minus the mean squared error over the variance, for
each text.

Rows go to benchmarks/runs/prediction-NAME.jsonl, the report to benchmarks/results/prediction_NAME.md (`--out`: another
folder for both). A run that was interrupted goes on where it stopped, and a larger --texts adds texts.

ProxySPEX is the one of shapiq 1.4.1, which is no dependency of whichtoken and must not replace its packages:

    pip install --target /tmp/shapiq --no-deps shapiq==1.4.1 lightgbm sparse-transform galois colour
    PYTHONPATH=/tmp/shapiq python benchmarks/prediction.py ...
"""

import argparse
import json
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from time import process_time
from typing import Any, ClassVar, TypeAlias
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import whichtoken as wt
from reporting_sets import digest, read_set
from scoring import mean_with_interval
from whichtoken._explain import explain_with
from whichtoken.core.ops import seed_rows
from whichtoken.core.trace import Method, Needs, Probe, Scores, Trace
from whichtoken.core.units import keep_patterns
from whichtoken.data.prompts import Prompt
from whichtoken.methods import kernel_shap, lime, posterior
from whichtoken.methods.posterior import Posterior
from whichtoken.methods.posterior.questions import Search
from whichtoken.models import LogitCache
from whichtoken.tasks import task_for

RUNS, RESULTS = Path(__file__).parent / "runs", Path(__file__).parent / "results"
BUDGETS = (32, 64, 128, 256, 512)
ACROSS = (("posterior", 64, "proxyspex", 128), ("posterior", 128, "proxyspex", 512))  # compared across budgets
SHARES: dict[str, Callable[[np.random.Generator], float]] = {  # probability with which each word is removed
    "uniform": lambda generator: generator.random(),
    "half": lambda generator: 0.5,
}
TITLES = {"uniform": "Share of removed words uniform in 0 to 1", "half": "Each word removed with probability 1/2"}
TRIES = 20  # draws for each removal: those that were asked about, or drawn before, are left out
FEWEST = 20  # held-out removals: a text with fewer is left out
GENERATED = 24  # tokens of an answer, at most
RIDGES = np.logspace(-3, 3, 25)
INSTALL = "pip install --target /tmp/shapiq --no-deps shapiq==1.4.1 lightgbm sparse-transform galois colour"

Floats: TypeAlias = NDArray[np.float64]
Removed: TypeAlias = NDArray[np.bool_]  # removal x word
Row: TypeAlias = dict[str, Any]  # of the file of results: one text, method and budget


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--set", default="heldout", help="of benchmarks/sets")
    parser.add_argument("--texts", type=int)
    parser.add_argument("--model")
    parser.add_argument("--budgets", type=lambda text: [int(budget) for budget in text.split(",")], default=BUDGETS)
    parser.add_argument("--methods", type=lambda text: text.split(","), default=list(FITS), help=", ".join(FITS))
    parser.add_argument("--removals", type=int, default=300, help="held-out removals of each text, of each kind")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--name", default="")
    parser.add_argument("--out", type=Path, help="folder for the rows and the report")
    args = parser.parse_args()
    if unknown := set(args.methods) - FITS.keys():
        parser.error(f"unknown methods: {', '.join(unknown)}; known: {', '.join(FITS)}")
    if "proxyspex" in args.methods and not (find_spec("shapiq") and find_spec("lightgbm")):
        print(f"proxyspex: left out, shapiq is not installed; {INSTALL}, and set PYTHONPATH=/tmp/shapiq")
        args.methods.remove("proxyspex")
    torch.set_num_threads(1)  # small matrices: several threads would mostly wait for each other
    subject = wt.load(args.model)
    rows = measure(subject, read_inputs(subject, args)[: args.texts], args)
    path = (args.out or RESULTS) / f"prediction_{args.name or args.set}.md"
    path.write_text("\n".join([*describe(subject, rows, args), *tabulate(rows)]) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))


def read_inputs(subject: wt.Subject, args: argparse.Namespace) -> list[str | Prompt]:
    if args.data.suffix != ".jsonl":
        return list(read_set(args.set, args.data))
    args.set = args.name  # no texts of a set
    prompts = [example.item for example in task_for(subject).examples(args.data, None, None)]
    return [prompt for prompt in prompts if prompt.documents]


def measure(subject: wt.Subject, texts: Sequence[str | Prompt], args: argparse.Namespace) -> list[Row]:
    """Return the rows of all texts; those of new texts are measured and stored, one text at a time."""
    path = (args.out or RUNS) / f"prediction-{args.name or args.set}.jsonl"
    settings = {"revision": subject.fingerprint(), **{key: list(getattr(args, key)) for key in ("methods", "budgets")}}
    settings |= {key: getattr(args, key) for key in ("set", "removals", "max_tokens")}
    stored = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    if stored and stored[0] != settings:
        sys.exit(f"{path} was made with other settings, {stored[0]}; delete it, or give another --name")
    rows: dict[str, list[Row]] = {}
    for row in stored[1:]:
        rows.setdefault(row["text"], []).append(row)
    with path.open("a", encoding="utf-8") as file:
        if not stored:
            file.write(json.dumps(settings) + "\n")
        for number, text in enumerate(texts, 1):
            if key_of(text) not in rows:
                opened = open_text(subject, text)
                fits = opened.n_tokens <= args.max_tokens
                rows[key_of(text)] = measure_text(opened, args) if fits else []
                file.write("".join(json.dumps(row) + "\n" for row in rows[key_of(text)]))
                file.flush()
                print(f"{number} of {len(texts)} texts", file=sys.stderr, flush=True)
    return [row for text in texts for row in rows[key_of(text)]]


def key_of(text: str | Prompt) -> str:
    return digest(text if isinstance(text, str) else json.dumps([text.texts, text.documents]))


# One text.


@dataclass(frozen=True)
class Text:
    """A text whose words can be removed. Each sequence that remains is evaluated once, whoever asks."""

    key: str
    trace: Trace
    probe: Probe

    @cached_property
    def units(self) -> Tensor:
        return self.probe.units("word")

    @property
    def n_words(self) -> int:
        return int(self.units.max()) + 1

    @property
    def n_tokens(self) -> int:
        return int(self.trace.lengths)

    @cached_property
    def whole(self) -> float:
        """The log-odds of the whole text."""
        return float(self.log_odds(np.zeros((1, self.n_words), dtype=bool))[0])

    def log_odds(self, removed: Removed) -> Floats:
        kept = keep_patterns(self.units, torch.from_numpy(removed)[None])
        return np.asarray(self.probe.log_odds(kept, None)[0].cpu().numpy())

    def drops(self, removed: Removed) -> Floats:
        return self.whole - self.log_odds(removed)

    def sequences(self, removed: Removed) -> list[bytes]:
        """Return what remains under each removal; removing either of two equal neighbours leaves the same."""
        kept = keep_patterns(self.units, torch.from_numpy(removed)[None])[0]
        return [self.trace.ids[0][pattern].numpy().tobytes() for pattern in kept]


def open_text(subject: wt.Subject, text: str | Prompt) -> Text:
    opened: list[tuple[Trace, Probe]] = []
    if isinstance(text, Prompt):
        wt.explain(subject, prompt=text, generate=GENERATED, methods=_Opener(opened))
    else:
        explain_with(LogitCache(subject), [text], [_Opener(opened)])
    return Text(key_of(text), *opened[0])


@dataclass(frozen=True)
class _Opener(Method):
    """Hands out the pass over a text, and the probe, with which several methods can then be run."""

    name: ClassVar[str] = "opener"
    opened: list[tuple[Trace, Probe]]

    @property
    def needs(self) -> Needs:
        return Posterior().needs

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        self.opened.append((trace, probe))
        return Scores(torch.zeros_like(trace.readout))


def measure_text(text: Text, args: argparse.Namespace) -> list[Row]:
    """Return the rows of a text; none if too few of its removals are held out."""
    fits, rows = list[Fit](), list[Row]()
    for name in args.methods:
        for budget in args.budgets:
            start = process_time()
            fits.append(fit := FITS[name](text, budget))
            seconds = process_time() - start  # without what another method asked before
            row = {"text": text.key, "words": text.n_words, "method": name, "budget": budget}
            rows.append({**row, "evaluations": fit.n_before + len(fit.asked), "seconds": round(seconds, 3)})
    known = frozenset().union(*(fit.asked for fit in fits), text.sequences(np.zeros((1, text.n_words), dtype=bool)))
    for number, kind in enumerate(SHARES):
        removed = draw(text, kind, args.removals, [number, int(text.key, 16)], known)
        if len(removed) < FEWEST:
            return []
        drops = text.drops(removed)
        for row, fit in zip(rows, fits, strict=True):
            error = fit.predict(removed) - drops
            row[kind] = 1 - float(np.mean(error**2) / np.var(drops))
            row[f"n_{kind}"] = len(removed)
    return rows


def draw(text: Text, kind: str, n: int, seed: list[int], known: Iterable[bytes]) -> Removed:
    """Draw removals that leave different sequences, all of which are unknown; fewer than n if there are not as many."""
    generator, left_out, removed = np.random.default_rng(seed), set(known), list[Removed]()
    for _ in range(TRIES * n):
        if len(removed) == n:
            break
        share = SHARES[kind](generator)
        candidate = generator.random((1, text.n_words)) < share
        (sequence,) = text.sequences(candidate)
        if sequence not in left_out:
            left_out.add(sequence)
            removed.append(candidate)
    return np.concatenate([np.zeros((0, text.n_words), dtype=bool), *removed])


# The methods. Each gets a text and a budget of evaluations, that of the whole text included.


@dataclass(frozen=True)
class Fit:
    """What a method found out about a text."""

    predict: Callable[[Removed], Floats]  # the drops of the log-odds under removals
    asked: frozenset[bytes]  # sequences
    n_before: int = 0  # evaluations besides those


def fit_posterior(text: Text, budget: int) -> Fit:
    """Run `posterior`, and keep its process; the removals with which it checks its scores are not evaluated."""
    method, found = Posterior(budget=budget), list[Search]()

    def keep(searches: Sequence[Search], *_: object) -> Scores:
        found.extend(searches)
        return Scores(torch.zeros_like(text.trace.readout))

    with patch.object(posterior, "_build_scores", keep):
        method(text.trace, text.probe)
    (search,) = found
    asked = frozenset(text.sequences(search.answers.removed))
    # The maps, whose passes count as three evaluations each, include the pass over the whole text.
    return Fit(search.process.predict, asked, n_before=budget - search.plan.budget)


def fit_linear(kind: str, text: Text, budget: int) -> Fit:
    """Ridge regression on random removals and the whole text; leave-one-out chooses the ridge."""
    whole = np.zeros((1, text.n_words), dtype=bool)
    asked = draw(text, kind, budget - 1, [len(SHARES), int(text.key, 16)], text.sequences(whole))
    removed = np.concatenate([whole, asked])
    drops, means = text.drops(removed), removed.mean(0)
    left, sizes, right = np.linalg.svd(removed - means, full_matrices=False)
    along = left.T @ (drops - drops.mean())
    shrunk = sizes**2 / (sizes**2 + RIDGES[:, None])  # ridge direction
    rest = drops - drops.mean() - (shrunk * along) @ left.T
    errors = ((rest / (1 - 1 / len(drops) - shrunk @ left.T**2)) ** 2).mean(1)
    best = int(errors.argmin())
    weights = right.T @ (along * sizes / (sizes**2 + RIDGES[best]))
    return Fit(lambda r: drops.mean() + (r - means) @ weights, frozenset(text.sequences(removed)))


def fit_lime(text: Text, budget: int) -> Fit:
    """LIME on the log-odds: the method itself fits the probability."""
    removed = lime.draw_removed(text.n_words, budget, *seed_rows(text.trace, seed=0))
    present, log_odds = ~removed, text.log_odds(removed)
    weights = lime.fit_ridge(present, log_odds)
    near = np.exp(-((100 * (1 - np.sqrt(present.mean(1)))) ** 2) / lime.KERNEL_WIDTH**2 / 2)
    intercept = np.average(log_odds - present @ weights, weights=near)
    return Fit(lambda r: text.whole - intercept - ~r @ weights, frozenset(text.sequences(removed)))


def fit_kernel_shap(text: Text, budget: int) -> Fit:
    """Kernel SHAP with scale="log-odds"; its values add up to the drop without any word, so there is no intercept."""
    ends = np.array([[False] * text.n_words, [True] * text.n_words])
    present, weights = kernel_shap.choose_coalitions(text.n_words, budget - 2, *seed_rows(text.trace, seed=0))
    whole, nothing = text.log_odds(ends)
    gains = text.log_odds(~present) - nothing
    values, _ = kernel_shap.fit_shapley(present, weights, gains, whole - nothing)
    return Fit(lambda r: r @ values, frozenset(text.sequences(np.concatenate([ends, ~present]))))


def fit_proxyspex(text: Text, budget: int) -> Fit:
    """ProxySPEX of shapiq: boosted trees, fitted to the value of random coalitions (the words that are kept).

    Predictions are those of the trees, by their Fourier coefficients, which are exact. What ProxySPEX returns, the
    largest of these coefficients after a ridge regression (`_refine`), predicts less well, and is an error where the
    trees have no split: with fewer than 40 answers, as each leaf needs 20. Such trees predict the mean answer.
    """
    from shapiq.approximator.sparse import ProxySPEX

    coefficients, asked = dict[tuple[int, ...], float](), list[Removed]()

    def value(kept: Removed) -> Floats:
        asked.append(~kept.astype(bool))
        return text.log_odds(asked[-1])

    def keep(_: object, found: Mapping[tuple[int, ...], float], *answers: object) -> Mapping[tuple[int, ...], float]:
        coefficients.update(found)
        return {(): 0.0}

    with patch.object(ProxySPEX, "_refine", keep), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        approximator = ProxySPEX(n=text.n_words, max_order=1, random_state=int(text.key, 16) % 2**32)
        approximator.approximate(budget, value)
    members = np.array([[word in words for word in range(text.n_words)] for words in coefficients], dtype=np.int64)
    sizes = np.array(list(coefficients.values()))

    def predict(removed: Removed) -> Floats:
        signs = 1 - 2 * ((~removed).astype(np.int64) @ members.T % 2)  # -1 for an odd number of kept words
        return np.asarray(text.whole - signs @ sizes)

    return Fit(predict, frozenset(text.sequences(np.concatenate(asked))))


FITS: dict[str, Callable[[Text, int], Fit]] = {
    "posterior": fit_posterior,
    "linear": partial(fit_linear, "uniform"),
    "linear-half": partial(fit_linear, "half"),
    "lime": fit_lime,
    "kernel-shap": fit_kernel_shap,
    "proxyspex": fit_proxyspex,
}


# The report.


def describe(subject: wt.Subject, rows: Sequence[Row], args: argparse.Namespace) -> Iterator[str]:
    words = {row["text"]: row["words"] for row in rows}
    fewest = {kind: min(row[f"n_{kind}"] for row in rows) for kind in SHARES}
    yield f"`python benchmarks/prediction.py {shlex.join(sys.argv[1:])}`\n"
    yield (
        f"{Path(subject.title).name}; {len(words)} {_name_inputs(args)}, of {min(words.values())} to "
        f"{max(words.values())} words. R2 of the drops of the {_name_output(args)} under {args.removals} removals of "
        f"each kind that no method asked about (of short texts, as many as there are: at least {fewest['uniform']} and "
        f"{fewest['half']}): mean over texts, with its 95 % bootstrap interval. 1: all of the variance is predicted; "
        "0: as good as the mean of the drops.\n"
    )


def _name_inputs(args: argparse.Namespace) -> str:
    return "prompts with documents" if args.data.suffix == ".jsonl" else f"texts of the set `{args.set}`"


def _name_output(args: argparse.Namespace) -> str:
    return "log-probability of the answer" if args.data.suffix == ".jsonl" else "log-odds"


def tabulate(rows: Sequence[Row]) -> Iterator[str]:
    methods, budgets = ({row[key]: None for row in rows} for key in ("method", "budget"))
    column = "|".join(f" {budget} " for budget in budgets)
    for kind, title in TITLES.items():
        values = by_case(rows, kind)
        yield f"## {title}\n"
        yield f"| evaluations |{column}|\n" + "|---" * (1 + len(budgets)) + "|"
        for method in methods:
            yield f"| {method} | {' | '.join(mean_with_interval(values[method, b]) for b in budgets)} |"
        yield ""
        if "posterior" not in methods:
            continue
        yield f"| posterior minus |{column}|\n" + "|---" * (1 + len(budgets)) + "|"
        for other in (method for method in methods if method != "posterior"):
            gains = [mean_with_interval(values["posterior", b] - values[other, b]) for b in budgets]
            yield f"| {other} | {' | '.join(gains)} |"
        yield ""
        for one, budget, other, more in ACROSS:
            if (one, budget) in values and (other, more) in values:
                gain = mean_with_interval(values[one, budget] - values[other, more])
                yield f"{one} with {budget} minus {other} with {more}: {gain}\n"
    yield "## Evaluations used, mean\n"
    yield f"| budget |{column}|\n" + "|---" * (1 + len(budgets)) + "|"
    used = by_case(rows, "evaluations")
    for method in methods:
        yield f"| {method} | {' | '.join(f'{used[method, b].mean():.1f}' for b in budgets)} |"


def by_case(rows: Sequence[Row], key: str) -> dict[tuple[str, int], Floats]:
    """Return the values of all texts, in the same order, for each method and budget."""
    values: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        values.setdefault((row["method"], row["budget"]), []).append(row[key])
    return {case: np.array(of_case) for case, of_case in values.items()}


if __name__ == "__main__":
    main()
