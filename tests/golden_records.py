"""Records of all methods in all tasks, as they were: compare them, bit for bit, before and after code is moved.

    python -m tests.golden_records write FOLDER
    python -m tests.golden_records compare FOLDER

Numbers of other processors differ in their last digits, so whoever moves code writes a folder first, and compares with
it afterwards. Those of tests/golden/records are compared to 1e-9 (test_golden_records.py).
"""

import argparse
import gzip
import json
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tests.contract.test_contract import CASES, QUESTIONS, Case, subject_for, together
from tests.tiny import CORPUS, language_subject, model_of, with_heads, with_references, wordpiece
from torch.backends.cpu import get_cpu_capability

import whichtoken as wt
from whichtoken.data.prompts import Prompt

FOLDER = Path(__file__).parent / "golden" / "records"
TEXTS = ["The actors were wonderful, but naïve.", ("A man sleeps.", "Nobody is awake."), "It is a rare plot."]
PLAIN = ("attcat", "gae", "attn-lrp", "transatt", "integrated-gradients", "leave-one-out", "posterior", "lime", "tis")
DIGESTS = ("revision", "library", "heads", "facts")  # of random weights and of what they compute
SMALL = 1e-3  # numbers below count as if they were as large
COSTS = ("seconds", "evaluations")  # which depend on how inputs are batched
# Together with the whole contract, one architecture for each way to read a model: by the interface of attention or by
# hooks, first token or last, pieces of words or bytes.
EVERY_METHOD = [
    *("classify-bert", "classify-deberta-v2", "classify-gpt2", "answer-bert", "tokens-bert", "generate-llama"),
    *("image-vit", "image-dinov2_with_registers"),
]

Records = list[Any]  # as read from JSON


def of_contract(name: str) -> Records:
    """All methods, with few steps, on a batch."""
    (case,) = (case for case in CASES if str(case) == name)
    return _records(together(case).results)


def of_contrast() -> Records:
    subject = subject_for(Case("classify", "bert"))
    return _records(wt.explain(subject, TEXTS, PLAIN, target=wt.Contrast(0, 2), layers=True, remove_top=2))


def of_all_targets() -> Records:
    return _records(
        wt.explain(subject_for(Case("classify", "bert")), TEXTS[:2], ["attcat", "posterior"], targets="all")
    )


def of_long_texts() -> Records:
    subject, text = subject_for(Case("classify", "bert")), " ".join(CORPUS)
    found = [wt.explain(subject, [text, TEXTS[0]], PLAIN, long=how) for how in ("truncate", "window")]
    question = wt.explain(subject_for(Case("answer", "bert")), question="Who won?", context=text, methods=PLAIN)
    return _records([*found[0], *found[1], *question])


def of_heads(**config: Any) -> Records:
    """A head of another kind: one logit, several labels at once, a value."""
    subject = wt.Subject(model_of("bert", **config), wordpiece(), name="head")
    return _records(wt.explain(with_heads(subject), TEXTS, [*PLAIN, "mask-lrp"]))


def of_contrast_cat() -> Records:
    """With its own settings, on texts and on questions."""
    subject = with_references(wt.Subject(model_of("bert"), wordpiece(), name="bert"), rule="gamma", gamma=1.0)
    methods = ["contrast-cat", "contrast-cat@repo", "refined-noise"]
    answered = wt.explain(subject_for(Case("answer", "bert")), QUESTIONS, ["contrast-cat"])
    return _records([*wt.explain(subject, TEXTS, methods), *answered])


def of_answers() -> Records:
    """Chats, documents, parts of the answer, foils, and an answer that is generated."""
    subject, methods = language_subject("llama", chat=True), ["attcat", "posterior", "context-cite", "attn-lrp"]
    chat = [{"role": "user", "content": "What was slow?"}]
    documents = {"a": "The film was slow.", "b": "It is a rare plot."}
    whole: dict[str, Any] = {"documents": documents, "continuation": " The film. It is slow.", "rows": "sentence"}
    return _records(
        [
            *wt.explain(subject, prompt=chat, methods=methods, **whole),
            *wt.explain(subject, prompt=chat, methods=methods, generate=6, rows="token", target="logprob"),
            *wt.explain(subject, prompt="The film", methods=methods, continuation=" was slow", foil="rare"),
        ]
    )


def of_curves() -> Records:
    """How curves fall, by all removals and steps."""
    texts, pictures = Case("classify", "bert"), Case("image", "vit")
    explained = wt.explain(subject_for(texts), TEXTS, ["attcat", "gae"])
    answered = wt.explain(subject_for(Case("answer", "bert")), QUESTIONS, ["attcat", "gae"])
    labelled = wt.explain(subject_for(Case("tokens", "bert")), TEXTS[:1], ["attcat", "gae"])
    degrade = partial(wt.degrade, subject_for(texts), explained)
    curves = [
        *(one for how in ("delete", "mask", "pad") for one in degrade(how)),
        *(one for order in ("lerf", "random") for one in degrade(order=order, grid="all", level="word")),
        *(one for grid in ("twentieths", "eraser", "tenths-to-all") for one in degrade(grid=grid)),
        *wt.degrade(subject_for(Case("answer", "bert")), answered),
        *wt.degrade(subject_for(Case("tokens", "bert")), labelled),
    ]
    shown = wt.explain(subject_for(pictures), images=pictures.inputs[:1], methods=["attcat", "transatt"])
    curves += [one for how in ("black", "mean") for one in wt.degrade(subject_for(pictures), shown, how)]
    return [json.loads(curve.to_json()) for curve in curves]


def of_benchmarks() -> Records:
    """All metrics, in one table of texts and one of prompts."""
    texts = [{"text": text, "label": number % 3} for number, text in enumerate([*CORPUS[:4], TEXTS[0]])]
    metrics = "aopc log-odds auc comprehensiveness sufficiency normalised-aopc srg kendall agreement top-drop lds signs"
    names = (*metrics.split(), "above-random", "additivity")
    protocol = wt.bench.protocol(metrics=names, min_tokens=1, further_levels=("word",), perturbations=("delete",))
    methods = ["attcat", "gae", "posterior", "random"]
    tables = [wt.bench.run(subject_for(Case("classify", "bert")), texts, protocol=protocol, methods=methods)]
    prompts = [Prompt("A man sleeps. Nobody", continuation=" is awake."), Prompt("The film", continuation=" was slow.")]
    asked = wt.bench.protocol(metrics=("aopc", "top-drop", "lds"), min_tokens=1)
    tables.append(
        wt.bench.run(subject_for(Case("generate", "llama")), prompts, methods=["attcat", "random"], protocol=asked)
    )
    return [json.loads(table.to_json()) for table in tables]


GOLDEN: Mapping[str, Callable[[], Records]] = {
    **{name: partial(of_contract, name) for name in EVERY_METHOD},
    "contrast": of_contrast,
    "all-targets": of_all_targets,
    "long-texts": of_long_texts,
    "one-logit": partial(of_heads, labels=1),
    "several-labels": partial(of_heads, problem_type="multi_label_classification"),
    "value": partial(of_heads, labels=1, problem_type="regression"),
    "contrast-cat": of_contrast_cat,
    "answers": of_answers,
    "curves": of_curves,
    "benchmarks": of_benchmarks,
}


def _records(results: Iterable[Mapping[str, wt.Attribution]]) -> Records:
    return [json.loads(record.to_json()) for result in results for record in result.values()]


def without_costs(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_costs(inner) for key, inner in value.items() if key not in COSTS}
    return [without_costs(inner) for inner in value] if isinstance(value, list) else value


def differences(found: Any, expected: Any, tolerance: float, place: str = "") -> Iterator[str]:
    """Yield where values differ. With a tolerance, relative to the largest number of a list, and not of digests."""
    numbers = tolerance and (_numbers(found), _numbers(expected))
    if numbers and None not in numbers:
        one, other = (np.array(values) for values in numbers)
        if one.shape != other.shape or np.abs(one - other).max(initial=0) > tolerance * np.abs(other).max(
            initial=SMALL
        ):
            yield f"{place}: {found} is not {expected}"
    elif isinstance(found, dict) and isinstance(expected, dict) and list(found) == list(expected):
        for key, value in found.items():
            if not (tolerance and key in DIGESTS):
                yield from differences(value, expected[key], tolerance, f"{place}.{key}")
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from differences(one, other, tolerance, f"{place}[{number}]")
    elif found != expected:
        yield f"{place}: {found} is not {expected}"


def _numbers(value: Any) -> list[float] | None:
    """Return the numbers of a list, which may be nested; None if it has anything else, or is empty."""
    if isinstance(value, float):
        return [value]
    inner = [_numbers(one) for one in value] if isinstance(value, list) and value else [None]
    return None if None in inner else [number for numbers in inner for number in numbers or ()]


def read(name: str, folder: Path = FOLDER) -> Records:
    records: Records = json.loads(gzip.decompress((folder / f"{name}.json.gz").read_bytes()))
    return records


def write(name: str, records: Records, folder: Path) -> None:
    text = json.dumps(without_costs(records), ensure_ascii=False, separators=(",", ":"))
    (folder / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def describe_machine() -> dict[str, str]:
    """What decides the last digits of a number."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    versions = {module.__name__: module.__version__ for module in (torch, np, transformers)}
    return {"processor": (names or [platform.processor()])[0], "instructions": get_cpu_capability(), **versions}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=GOLDEN)
    parser.add_argument("--tolerance", type=float, default=0.0, help="relative; 0: bit for bit")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    args.folder.mkdir(parents=True, exist_ok=True)
    failed, machine = False, args.folder / "machine.json"
    if args.what == "write":
        machine.write_text(json.dumps(describe_machine(), indent=2) + "\n", encoding="utf-8")
    elif json.loads(machine.read_text(encoding="utf-8")) != describe_machine():
        print("warning: written on another machine, or by other versions: the last digits may differ")
    for name, make in GOLDEN.items():
        if args.only not in (None, name):
            continue
        records = make()
        if args.what == "write":
            write(name, records, args.folder)
            print(f"{name}: {len(records)} records")
            continue
        found = list(differences(without_costs(records), read(name, args.folder), args.tolerance, name))
        failed |= bool(found)
        print(f"{name}: {len(found)} differences" if found else f"{name}: {len(records)} equal records")
        for line in found[:3]:
            print(f"  {line[:300]}")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
