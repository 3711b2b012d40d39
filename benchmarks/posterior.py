"""Measure `posterior`: against other methods and budgets, its settings, and whether its intervals can be trusted.

    python benchmarks/posterior.py compare sst2/dev.tsv --texts 836 --name sst2 --only posterior
    python benchmarks/posterior.py compare sst2/dev.tsv --texts 836 --name sst2-rivals --only rivals
    python benchmarks/posterior.py compare sst2/dev.tsv --texts 836 --name sst2-maps --only maps
    python benchmarks/posterior.py compare sst2/dev.tsv --texts 100 --name sst2-500-rivals --only rivals --many
    python benchmarks/posterior.py compare imdb/test.tsv --set reviews --name imdb --max-tokens 256 --only default
    python benchmarks/posterior.py compare imdb/test.tsv --set reviews --name imdb-priors --max-tokens 256 --only priors
    python benchmarks/posterior.py normalise sst2/dev.tsv --texts 100
    python benchmarks/posterior.py signs sst2/dev.tsv --set negation
    python benchmarks/posterior.py calibrate sst2/dev.tsv --set short
    python benchmarks/posterior.py seeds sst2/dev.tsv --set heldout
    python benchmarks/posterior.py overhead sst2/dev.tsv --texts 32

`compare` and `normalise` store benchmarks in benchmarks/runs/posterior-NAME, which `make results` reads; a
run that was interrupted goes on where it stopped, and a larger --texts adds texts. With --only, other methods of the
same texts have runs of their own (NAME-rivals, NAME-maps), so that a change of `posterior` does not measure them again.
The others write reports to benchmarks/results. Settings were chosen on training texts (choices.py);
--set: texts that were chosen before the method was changed (reporting_sets.py).
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import kendalltau

import whichtoken as wt
from reporting_sets import SETS, read_set
from scoring import sample_texts
from whichtoken._explain import explain_with
from whichtoken.bench.selection import default_methods
from whichtoken.bench.stats import interval
from whichtoken.core.trace import Method
from whichtoken.evaluate import OpenInput, open_input
from whichtoken.methods import posterior
from whichtoken.methods.posterior.certainty import student_quantile
from whichtoken.methods.posterior.process import HIGHEST
from whichtoken.methods.posterior.questions import Search
from whichtoken.models import LogitCache
from whichtoken.tasks import task_for

RUNS, RESULTS = Path(__file__).parent / "runs", Path(__file__).parent / "results"
BUDGETS = (16, 32, 64, 128)
MANY = 500  # the evaluations that people give lime and shap
SINGLE = ("attn-lrp", "att-x-att-grads", "attcat", "random")
BINS = (0.0, 0.5, 0.8, 0.95, 1.01)
ONLY = (
    "posterior with several budgets, or as it is; other methods of up to 160 evaluations; further single-pass methods; "
)
ONLY += "or maps that posterior starts or could start from"
STRONG = 2.0  # a word is strong if its removal alone changes the log-odds by more
COMPARED = ("attn-lrp", "attcat", "alti", "lime", "kernel-shap", "leave-one-out")  # by the signs of strong words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=(*REPORTS, "compare", "normalise"))
    parser.add_argument("data", type=Path)
    parser.add_argument("--texts", type=int, help="default: 100, or all of --set")
    parser.add_argument("--set", choices=[path.stem for path in sorted(SETS.glob("*.tsv"))])
    parser.add_argument("--name", default="")
    parser.add_argument("--model")
    parser.add_argument("--references", type=Path)
    parser.add_argument("--max-tokens", type=int)
    parser.add_argument("--min-tokens", type=int, default=10)
    parser.add_argument(
        "--many", action="store_true", help=f"also tis, and lime and kernel-shap with other budgets, up to {MANY}"
    )
    parser.add_argument(
        "--only", choices=("posterior", "default", "rivals", "maps", "priors"), default="rivals", help=ONLY
    )
    args = parser.parse_args()
    if args.set is None and args.texts is None:
        args.texts = 100
    if args.what == "overhead":
        torch.set_num_threads(1)  # CPU seconds of several threads would include those in which they wait
    subject = wt.load(args.model, references=args.references)
    if args.what == "compare":
        bench(subject, args, compared(subject, args.only, args.many), f"posterior-{args.name}", ("aopc", "srg"))
    elif args.what == "normalise":
        methods = [*compared(subject, "posterior"), *compared(subject, "rivals")]
        bench(subject, args, methods, "posterior-normalised", ("aopc", "normalised-aopc"))
    else:
        texts = sample_sentences(args) if args.set is None else read_set(args.set, args.data)[: args.texts]
        write(f"posterior_{args.what}{args.name and '_'}{args.name}", REPORTS[args.what](subject, texts), args)


def sample_sentences(args: argparse.Namespace) -> list[str]:
    """Draw texts of at least --min-tokens words, because the training data also hold phrases."""
    long_enough = [text for text in sample_texts(args.data, 100 * args.texts) if len(text.split()) >= args.min_tokens]
    return long_enough[: args.texts]


def bench(
    subject: wt.Subject,
    args: argparse.Namespace,
    methods: list[str | Method],
    name: str,
    metrics: tuple[str, ...],
) -> None:
    """Run a benchmark of the sampled texts of --data, or of those of --set, and store it."""
    how = wt.bench.protocol(
        metrics=metrics,
        perturbations=("delete", "mask"),
        sample=args.texts,
        min_tokens=args.min_tokens,
        max_tokens=args.max_tokens,
    )
    source = args.data if args.set is None else read_set(args.set, args.data)
    print(wt.bench.run(subject, source, methods, protocol=how, out=RUNS / name))


def compared(subject: wt.Subject, only: str, many: bool = False) -> list[str | Method]:
    """Return the methods of a run (see `ONLY`). `many`: also rivals of more than 250 evaluations."""
    ours: list[str | Method] = [wt.method("posterior", budget=budget) for budget in BUDGETS]
    ours += [wt.method("posterior", units="token")]
    maps: list[str | Method] = [*SINGLE, "integrated-gradients"]
    rivals = [*maps, "leave-one-out", *(wt.method(name, budget=64) for name in ("lime", "kernel-shap"))]
    rivals += ["contrast-cat", "refined-noise"] if subject.references is not None else []
    if many:
        others = [budget for budget in (*BUDGETS, MANY) if budget != 64]
        rivals += ["tis", *(wt.method(name, budget=n) for name in ("lime", "kernel-shap") for n in others)]
    known = {method if isinstance(method, str) else method.name for method in (*ours, *rivals)}
    runs: dict[str, list[str | Method]] = {
        "posterior": ours,
        "rivals": rivals,
        "maps": [name for name in default_methods(task_for(subject)) if name not in known],
        "default": ["posterior"],
        "priors": [*SINGLE, "alti", wt.method("integrated-gradients", steps=8)],
    }
    return runs[only]


def open_each(subject: wt.Subject, texts: list[str], record: Any) -> Iterator[tuple[int, OpenInput]]:
    """Yield each input with more than one word, ready for removals. `record`: of each text, any method's."""
    task = task_for(subject)
    for number, _ in enumerate(texts):
        source = open_input(task, [record(number)], LogitCache(subject))
        if len(source.units("word")) > 1:
            yield number, source


def drops_of(source: OpenInput, removed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return how far the log-odds drop under each removal of words."""
    units = source.units("word")
    kept = np.ones((1 + len(removed), source.opened.n_elements), dtype=bool)
    for pattern, gone in zip(kept[1:], removed, strict=True):
        pattern[[i for unit, away in zip(units, gone, strict=True) if away for i in unit.elements]] = False
    log_odds = source.cache.log_odds(*source.request(kept, source.task.removal(None))).numpy()
    return np.asarray(log_odds[0] - log_odds[1:])


def signs(subject: wt.Subject, texts: list[str]) -> list[str]:
    """Count strong words whose score has the wrong sign, and those that the method is certain of."""
    methods = [*(wt.method("posterior", budget=budget) for budget in BUDGETS), *map(wt.method, COMPARED)]
    results = wt.explain(subject, texts, methods)
    lines = [
        "| method | wrong signs of strong words | their share | with an interval that excludes 0 |",
        "|---|---|---|---|",
    ]
    strong = {
        number: drops_of(source, np.eye(len(source.units("word")), dtype=bool))
        for number, source in open_each(subject, texts, lambda number: results[number]["posterior"])
    }
    for method in methods:
        counts = np.array([_count_wrong(results[number][method.label], alone) for number, alone in strong.items()])
        low, high = interval(counts, lambda means: means[:, 0] / means[:, 2])
        n_wrong, certain, total = counts.sum(0).astype(int)
        sure = f"{certain}" if results[0][method.label].confidence else ""
        lines.append(
            f"| {method.label} | {n_wrong} of {total} | {n_wrong / total:.1%} [{low:.1%}, {high:.1%}] | {sure} |"
        )
    return [
        f"{len(texts)} texts. A word is strong if its removal alone changes the log-odds by more than {STRONG:g};",
        "the sign of its score is wrong if it is not that of this change. By definition, leave-one-out is never wrong.",
        "",
        *lines,
    ]


def _count_wrong(record: wt.Attribution, alone: NDArray[np.float64]) -> tuple[int, int, int]:
    """Return how many strong words have the wrong sign, how many of these surely, and how many are strong."""
    words, strong = record.words(), np.abs(alone) > STRONG
    wrong = strong & (np.sign([word.score for word in words]) != np.sign(alone))
    sure = [word.low is not None and word.high is not None and word.low * word.high > 0 for word in words]
    return int(wrong.sum()), int((wrong & sure).sum()), int(strong.sum())


def calibrate(subject: wt.Subject, texts: list[str]) -> list[str]:
    """Compare effects, Shapley values, interactions and intervals with those of all removals of short texts."""
    searches, methods = list[list[Search]](), [wt.method("posterior", budget=budget) for budget in BUDGETS]
    results = []
    for method in methods:
        with record_searches() as found:
            results.append(explain_one_by_one(subject, texts, method))
        searches.append(found)
    truths = {
        number: Truth.measure(source) for number, source in open_each(subject, texts, lambda number: results[0][number])
    }
    lines = [
        f"All removals of {len(truths)} texts of up to 11 words are evaluated. Correlation, over the words of all",
        "texts together, with what is estimated: the effect of a word averaged over removals of 0 to 70 % of the",
        "others (the score), its Shapley value, and the interactions of pairs of words.",
        "",
        "| evaluations | scores | Shapley values | interactions | inside the 90 % interval | width | of interactions |",
        "|---|---|---|---|---|---|---|",
    ]
    firsts = []
    for method, of_method, found in zip(methods, results, searches, strict=True):
        rows = [_compare(found[number], of_method[number], truth) for number, truth in truths.items()]
        pairs = [np.concatenate(parts, 1) for parts in list(zip(*[row[:3] for row in rows], strict=True))]
        correlations = " | ".join(f"{np.corrcoef(pair)[0, 1]:.3f}" for pair in pairs)
        inside, width, within = (np.concatenate(parts) for parts in list(zip(*[row[3:] for row in rows], strict=True)))
        share = f"{inside.mean():.1%} | {width.mean():.2f} | {within.mean():.1%}"
        lines.append(f"| {method.settings['budget']} | {correlations} | {share} |")
        for number, truth in truths.items():
            trust = of_method[number].confidence
            if trust is not None and trust.first is not None:
                firsts.append((trust.first, effects_of(of_method[number]).argmax() == truth.effects.argmax()))
    lines += [
        "",
        "| stated probability that the first word is the first | texts and budgets | it is |",
        "|---|---|---|",
    ]
    stated = np.array(firsts)
    for low, high in pairwise(BINS):
        chosen = stated[(stated[:, 0] >= low) & (stated[:, 0] < high)]
        if len(chosen):
            mean, right = chosen.mean(0)
            lines.append(f"| {low:.0%} to {min(high, 1):.0%}, mean {mean:.0%} | {len(chosen)} | {right:.0%} |")
    return lines


@dataclass(frozen=True)
class Truth:
    """What is estimated, from the answers to all removals."""

    effects: NDArray[np.float64]
    shapley: NDArray[np.float64]
    pairs: NDArray[np.float64]  # unit x unit, 0 below the diagonal and on it

    @classmethod
    def measure(cls, source: OpenInput) -> "Truth":
        n = len(source.units("word"))
        subsets = (np.arange(2**n)[:, None] >> np.arange(n)) % 2 == 1
        drops, sizes = drops_of(source, subsets), subsets.sum(1)
        pairs = np.zeros((n, n))
        for first, second in combinations(range(n), 2):
            sign = np.where(subsets[:, first] == subsets[:, second], 1, -1)
            others = sizes - subsets[:, first] - subsets[:, second]
            pairs[first, second] = sign * _weights(n - 2, HIGHEST)[others] @ drops
        effects, shapley = (
            np.array([np.where(s, 1, -1) * _weights(n - 1, highest)[sizes - s] @ drops for s in subsets.T])
            for highest in (HIGHEST, 1.0)
        )
        return cls(effects, shapley, pairs)


def _weights(n_others: int, highest: float) -> NDArray[np.float64]:
    """Return the probability of each set of removed others, by its size; the share is uniform from 0 to `highest`."""
    at, areas = np.polynomial.legendre.leggauss(12)
    share = highest * (at + 1) / 2
    return np.array([(areas / 2) @ (share**k * (1 - share) ** (n_others - k)) for k in range(n_others + 1)])


def _compare(search: Search, record: wt.Attribution, truth: Truth) -> tuple[NDArray[Any], ...]:
    """Return estimates with the truth (scores, Shapley values, interactions), and intervals: hit or not, and width."""
    process, found = search.process, effects_of(record)
    shapley = replace(process, kernels=replace(process.kernels, highest=1.0)).effects
    first, second = np.triu_indices(len(found), 1)
    pairs, exact = process.interactions()[first, second], truth.pairs[first, second]
    half = student_quantile(process.freedom) * process.interaction_spreads(first, second)
    inside, width = covered(record, truth.effects)
    return (
        np.stack([found, truth.effects]),
        np.stack([shapley, truth.shapley]),
        np.stack([pairs, exact]),
        inside,
        width,
        np.abs(pairs - exact) <= half,
    )


def explain_one_by_one(subject: wt.Subject, texts: list[str], method: Method) -> list[wt.Attribution]:
    return [wt.explain(subject, text, method)[0][method.label] for text in texts]


@contextmanager
def record_searches() -> Iterator[list[Search]]:
    """Collect what `posterior` knows about each input, in order; inputs must be explained one by one."""
    collected, build = list[Search](), posterior._build_scores

    def note(searches: Sequence[Search], *rest: Any) -> Any:
        collected.extend(searches)
        return build(searches, *rest)

    posterior._build_scores = note  # type: ignore[assignment]
    try:
        yield collected
    finally:
        posterior._build_scores = build


def seeds(subject: wt.Subject, texts: list[str]) -> list[str]:
    """Compare the scores of two seeds."""
    lines = ["| evaluations | Kendall's tau | the same first word |", "|---|---|---|"]
    for budget in BUDGETS:
        one, other = wt.method("posterior", budget=budget), wt.method("posterior", budget=budget, seed=1)
        results = wt.explain(subject, texts, [one, other])
        pairs = [(effects_of(r[one.label]), effects_of(r[other.label])) for r in results]
        taus = np.array([kendalltau(*pair).statistic for pair in pairs if len(pair[0]) > 1])
        same = np.array([float(a.argmax() == b.argmax()) for a, b in pairs])
        shown = [
            f"{values.mean():.2f} [{low:.2f}, {high:.2f}]"
            for values in (taus[~np.isnan(taus)], same)
            for low, high in [interval(values)]
        ]
        lines.append(f"| {budget} | {' | '.join(shown)} |")
    return [f"Two seeds, {len(texts)} texts; Kendall's tau over the words of a text.", "", *lines]


def effects_of(record: wt.Attribution) -> NDArray[np.float64]:
    return np.array([word.score for word in record.words()])


def covered(record: wt.Attribution, truth: NDArray[np.float64]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return, for each word, whether its interval contains the true effect, and the width of the interval."""
    low, high = (np.array([getattr(word, name) for word in record.words()], dtype=float) for name in ("low", "high"))
    return (low <= truth) & (truth <= high), high - low


def overhead(subject: wt.Subject, texts: list[str]) -> list[str]:
    """Explain twice with one logit cache: the second time, the model evaluates nothing but the first pass."""
    methods: list[str | Method] = ["posterior"]
    cache, seconds = LogitCache(subject), []
    explain_with(LogitCache(subject), texts[:2], methods)  # the first call of a process is slower
    for chosen in (methods, methods, ["attcat", "alti"]):
        start = process_time()
        explain_with(cache, texts, chosen)
        seconds.append(process_time() - start)
    first, second, single = seconds
    return [
        f"{len(texts)} texts, `posterior` with 64 questions, one thread: {first / len(texts):.3f} s of CPU time each,",
        f"of which {(second - single) / len(texts):.3f} s ({(second - single) / first:.1%}) remain if every answer is",
        "already known: choosing questions, fitting, and looking answers up.",
    ]


def write(name: str, lines: list[str], args: argparse.Namespace) -> None:
    path = RESULTS / f"{name}.md"
    which = f"--texts {args.texts}" if args.set is None else f"--set {args.set}"
    command = f"`python benchmarks/posterior.py {args.what} data/{args.data.parent.name}/{args.data.name} {which}`"
    path.write_text("\n".join([command, "", *lines]) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))


REPORTS: dict[str, Callable[[wt.Subject, list[str]], list[str]]] = {
    "signs": signs,
    "calibrate": calibrate,
    "seeds": seeds,
    "overhead": overhead,
}


if __name__ == "__main__":
    main()
