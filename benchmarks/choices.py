"""How the settings of `posterior` were chosen: variants of it, on training texts, half of them with a word of negation.

    python benchmarks/choices.py range sst2/train.tsv
    python benchmarks/choices.py questions sst2/train.tsv
    python benchmarks/choices.py prior sst2/train.tsv
    python benchmarks/choices.py settings sst2/train.tsv
    python benchmarks/choices.py many sst2/train.tsv
    python benchmarks/choices.py long imdb/train.tsv --texts 24 --words 80,130 --name imdb

- `range`: which share of the other words is removed at most where effects are averaged; 1 gives Shapley values.
- `questions`: how questions are chosen.
- `prior`: which maps it starts from. All variants have the same budget, in which maps count.
- `settings`: further settings.
- `many`: the share of random questions, with 256 evaluations.
- `long`: the same two choices where there are more words than evaluations.

SRG is the AOPC of removing the highest tokens first minus that of removing the lowest first. A word is strong if
its removal alone changes the log-odds by more than 2; its sign is wrong if it is not that of this change. R2: share of
the variance of 200 random removals that is predicted. The report goes to benchmarks/results/choices_WHAT[_NAME].md.
"""

import argparse
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

import whichtoken as wt
from posterior import STRONG, drops_of, open_each, record_searches
from reporting_sets import has_mark, read_texts
from scoring import mean_drops, mean_with_interval
from whichtoken.core.trace import Method
from whichtoken.methods import posterior
from whichtoken.methods.alti import ALTI
from whichtoken.methods.attcat import AttCAT
from whichtoken.methods.integrated_gradients import IntegratedGradients
from whichtoken.methods.posterior import process, questions
from whichtoken.methods.posterior.process import Kernels, Process
from whichtoken.methods.posterior.questions import Search

RESULTS = Path(__file__).parent / "results"
REMOVALS = 200  # at which predictions are checked
CANDIDATES = 200  # questions among which the most informative is chosen
Patterns = NDArray[np.bool_]  # question x unit
Change = Callable[[], AbstractContextManager[Any]]
Variant = tuple[dict[str, Any], Change]  # settings of posterior, and what else is changed


# Ways to choose questions that `posterior` does not offer.

offered = questions._candidates


def ask_each_alone_first(search: Search, attempt: int) -> Patterns:
    """Remove each unit alone, in order of the first map, before any other question."""
    order = np.argsort(-search.maps.sum(0), kind="stable")[: search.plan.budget // 2]
    left = [unit for unit in order if np.eye(search.n_units, dtype=bool)[unit].tobytes() not in search.asked]
    alone: Patterns = np.eye(search.n_units, dtype=bool)[left]
    return np.concatenate([alone, offered(search, attempt)])


def ask_complements(search: Search, attempt: int) -> Patterns:
    """Let each random question be followed by the one that keeps what it removes (OddSHAP)."""
    found, step = offered(search, attempt), round(1 / search.plan.explore)  # every question, or every second, is random
    random = found[step - 1 :: step]  # a view
    random[1::2] = ~random[::2][: len(random[1::2])]
    return found[found.any(1)]


def ask_most_informative(search: Search, attempt: int) -> Patterns:
    """Choose the questions that tell most about the effects (ShaplEIG), one by one, among random ones."""
    if not search.n_answers:
        return offered(search, attempt)
    generator = np.random.default_rng([*search.key, search.n_answers, attempt])
    shares = 0.9 * generator.random((CANDIDATES, 1))
    asked = generator.random((CANDIDATES, search.n_units)) < shares
    asked = np.unique(asked[asked.any(1)], axis=0)
    known, best = search.guess, int(search.guess.weights.argmax())
    kernels = Kernels(known.kernels.lengths[[best]], known.kernels.leans[[best]])
    together, effects = _posterior_covariance(kernels, known, best, asked)
    noise = 1e-3 * together.diagonal().mean()
    chosen = list[int]()
    for _ in range(questions.round_size(search)):
        variances = together[: len(asked), : len(asked)].diagonal() + noise
        cross = together[len(asked) :, : len(asked)]
        inverse = np.linalg.pinv(effects, hermitian=True)
        explained = np.einsum("uq,uv,vq->q", cross, inverse, cross) / variances
        explained[chosen] = -1
        pick = int(explained.argmax())
        chosen.append(pick)
        column = together[:, pick]
        together = together - np.outer(column, column) / variances[pick]
        effects = together[len(asked) :, len(asked) :]
    return np.asarray(asked[chosen])


def _posterior_covariance(
    kernels: Kernels, known: Process, best: int, asked: Patterns
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the covariance of the answers to questions and of the effects, given what is known; and of effects."""
    answered, inverse = known.answers.removed, known.inverses[best]
    between, effects = kernels.between(asked, asked)[0], kernels.with_effects(asked)[0]
    own = kernels.effect_covariances(np.arange(asked.shape[1]))[0]
    before = np.block([[between, effects.T], [effects, own]])
    cross = np.concatenate([kernels.between(asked, answered)[0], kernels.with_effects(answered)[0]])
    after = before - cross @ inverse @ cross.T
    return after, after[len(asked) :, len(asked) :]


def choosing(ask: Callable[[Search, int], Patterns]) -> Change:
    return partial(patch.object, questions, "_candidates", ask)


def averaging(highest: float) -> Change:
    return partial(patch.object, process, "Kernels", partial(Kernels, highest=highest))


def starting_from(*maps: Method) -> Change:
    """Replace the maps that "auto" stands for, whatever the length."""
    return partial(patch.object, posterior.Posterior, "_choose", lambda method, is_long: maps)


STUDIES: Mapping[str, Mapping[str, Variant]] = {
    "range": {
        "0 to 0.7 (default)": ({}, nullcontext),
        "0 to 0.3": ({}, averaging(0.3)),
        "0 to 0.5": ({}, averaging(0.5)),
        "0 to 1 (Shapley)": ({}, averaging(1.0)),
    },
    "questions": {
        "Thompson, a quarter random (default)": ({}, nullcontext),
        "Thompson": ({"explore": 0.0}, nullcontext),
        "half random": ({"explore": 0.5}, nullcontext),
        "random": ({"explore": 1.0}, nullcontext),
        "each word alone first": ({}, choosing(ask_each_alone_first)),
        "random, complementary pairs": ({"explore": 1.0}, choosing(ask_complements)),
        "half random, complementary pairs": ({"explore": 0.5}, choosing(ask_complements)),
        "most informative": ({}, choosing(ask_most_informative)),
        "both ends": ({"proposal": "both-ends"}, nullcontext),
    },
    "prior": {
        "AttCAT and ALTI (default)": ({}, nullcontext),
        "none": ({"prior": "none"}, nullcontext),
        "att-x-att-grads": ({"prior": "att-x-att-grads"}, nullcontext),
        "AttCAT": ({"prior": "attcat"}, nullcontext),
        "ALTI": ({"prior": "alti"}, nullcontext),
        "attn-lrp": ({"prior": "attn-lrp"}, nullcontext),
        "integrated gradients, 4 steps": ({}, starting_from(IntegratedGradients(steps=4))),
        "integrated gradients, 8 steps": ({}, starting_from(IntegratedGradients(steps=8))),
        "AttCAT, ALTI, integrated gradients, 4 steps": (
            {},
            starting_from(AttCAT(), ALTI(), IntegratedGradients(steps=4)),
        ),
    },
    "settings": {
        "default": ({}, nullcontext),
        "words are replaced by the mask token": ({"perturbation": "mask"}, nullcontext),
        "half deleted, half replaced": ({"perturbation": "mixed"}, nullcontext),
        "tokens instead of words": ({"units": "token"}, nullcontext),
        "rounds of 8": ({"per_round": 8}, nullcontext),
        "rounds of 32": ({"per_round": 32}, nullcontext),
    },
    "many": {
        "at most 64 that follow draws (default)": ({"budget": 256}, nullcontext),
        "a quarter random": ({"budget": 256, "explore": 0.25}, nullcontext),
        "half random": ({"budget": 256, "explore": 0.5}, nullcontext),
        "random": ({"budget": 256, "explore": 1.0}, nullcontext),
    },
    "long": {
        "integrated gradients, 8 steps, no random question (default)": ({}, nullcontext),
        "4 steps": ({}, starting_from(IntegratedGradients(steps=4))),
        "AttCAT and ALTI": ({"prior": "attcat+alti"}, nullcontext),
        "AttCAT, ALTI, integrated gradients, 8 steps": (
            {},
            starting_from(AttCAT(), ALTI(), IntegratedGradients(steps=8)),
        ),
        "a quarter random": ({"explore": 0.25}, nullcontext),
        "half random": ({"explore": 0.5}, nullcontext),
        "attn-lrp": ({"prior": "attn-lrp"}, nullcontext),
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=STUDIES)
    parser.add_argument("data", type=Path)
    parser.add_argument("--texts", type=int, default=60)
    parser.add_argument("--words", default="10,28", help="the fewest and the most words of a text")
    parser.add_argument("--name", default="")
    args = parser.parse_args()
    torch.set_num_threads(1)
    texts, subject = choose_texts(args), wt.load()
    measured = {}
    for label, (settings, change) in STUDIES[args.what].items():
        with change():
            measured[label] = measure(subject, texts, wt.method("posterior", **settings))
        print(label, *(f"{values.mean():.3f}" for values in measured[label].values()), flush=True)
    name = f"_{args.name}" if args.name else ""
    options = "" if args.words == "10,28" else f" --words {args.words} --name {args.name}"
    command = f"`python benchmarks/choices.py {args.what} data/{args.data.parent.name}/{args.data.name}"
    lines = [
        f"{command} --texts {args.texts}{options}`",
        "",
        *tabulate(texts, measured, 256 if args.what == "many" else 64),
    ]
    (RESULTS / f"choices_{args.what}{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def choose_texts(args: argparse.Namespace) -> list[str]:
    """Draw texts, half of which have a word of negation (of short texts; long ones nearly all do)."""
    fewest, most = map(int, args.words.split(","))
    suitable = [text for text in read_texts(args.data) if fewest <= len(text.split()) <= most]
    random.Random(0).shuffle(suitable)
    marked = [text for text in suitable if has_mark(text.split())]
    plain = [text for text in suitable if not has_mark(text.split())]
    half = args.texts // 2 if len(plain) >= args.texts // 2 else args.texts - len(plain)
    return marked[:half] + plain[: args.texts - half]


def measure(subject: wt.Subject, texts: list[str], method: Method) -> dict[str, NDArray[np.float64]]:
    """Return numbers of each text."""
    with record_searches() as searches:
        records = [wt.explain(subject, text, method)[0][method.label] for text in texts]
    columns: dict[str, list[float]] = {}
    for number, source in open_each(subject, texts, lambda number: records[number]):
        found, row = records[number], dict[str, float]()
        for how in ("delete", "mask"):
            ((most, least),) = mean_drops(subject, [found], how)
            row |= {f"SRG, {how}": most - least, f"AOPC, {how}": most, f"LeRF, {how}": least}
        scores = np.array([word.score for word in found.words()])
        alone = drops_of(source, np.eye(len(scores), dtype=bool))
        strong = np.abs(alone) > STRONG
        row |= {"strong": float(strong.sum()), "wrong": float((strong & (np.sign(scores) != np.sign(alone))).sum())}
        generator = np.random.default_rng(number)
        removed = generator.random((REMOVALS, len(scores))) < generator.random((REMOVALS, 1))
        drops, search = drops_of(source, removed), searches[number]
        row["R2"] = 1 - float(np.mean((search.process.predict(removed) - drops) ** 2) / np.var(drops))
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return {name: np.array(values) for name, values in columns.items()}


def tabulate(texts: list[str], measured: Mapping[str, Mapping[str, NDArray[np.float64]]], budget: int) -> Iterator[str]:
    n_marked = sum(has_mark(text.split()) for text in texts)
    yield f"{len(texts)} training texts, {n_marked} of them with a word of negation or contrast; posterior with"
    yield f"{budget} evaluations. Gain: of the mean of both SRG over the first line, with its 95 % bootstrap interval."
    yield ""
    yield "| variant | SRG, delete | SRG, mask | gain | AOPC | LeRF | wrong signs | R2 |\n" + "|---" * 8 + "|"
    first: NDArray[np.float64] | None = None
    for label, values in measured.items():
        both = (values["SRG, delete"] + values["SRG, mask"]) / 2
        gain = "" if first is None else mean_with_interval(both - first)
        first = both if first is None else first
        aopc, lerf = (
            f"{values[f'{name}, delete'].mean():.3f} / {values[f'{name}, mask'].mean():.3f}" for name in _ENDS
        )
        wrong = f"{values['wrong'].sum():.0f} of {values['strong'].sum():.0f}"
        srg = f"{values['SRG, delete'].mean():.3f} | {values['SRG, mask'].mean():.3f}"
        yield f"| {label} | {srg} | {gain} | {aopc} | {lerf} | {wrong} | {values['R2'].mean():.3f} |"


_ENDS = ("AOPC", "LeRF")


if __name__ == "__main__":
    main()
