"""Soft labels for training/default_model.py: what a larger model says about each text (Hinton et al. 2015)."""

import random
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from tqdm import tqdm
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from whichtoken.data.examples import read_examples

TEMPERATURE = 2.0
SOFT_WEIGHT = 0.7  # of the teacher's distribution; the rest is the label's
UNLABELLED = -1
SENTENCE_WORDS = range(8, 31)


def teacher_logits(teacher: Path, texts: Sequence[str], file: Path) -> Tensor:
    """Return the teacher's logits of each text, from `file` if an earlier run has stored them there."""
    if file.exists():
        stored: Tensor = load_file(file)["logits"]
        if len(stored) != len(texts):
            raise SystemExit(f"{file} holds logits of {len(stored)} texts, not of these {len(texts)}: delete it")
        return stored
    tokenizer = AutoTokenizer.from_pretrained(teacher, trust_remote_code=False)
    model = AutoModelForSequenceClassification.from_pretrained(
        teacher, dtype=torch.float32, trust_remote_code=False
    ).eval()
    lengths = [len(ids) for ids in tokenizer(list(texts), truncation=True, max_length=512)["input_ids"]]
    order = sorted(range(len(texts)), key=lengths.__getitem__)
    logits = torch.zeros(len(texts), model.config.num_labels)
    with torch.no_grad():
        for first in tqdm(range(0, len(order), 128), desc="teacher", unit=" batches"):
            group = order[first : first + 128]
            batch = tokenizer(
                [texts[i] for i in group], truncation=True, max_length=512, padding=True, return_tensors="pt"
            )
            logits[group] = model(**batch).logits
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file({"logits": logits}, file)
    return logits


def distillation_loss(logits: Tensor, labels: Tensor, soft: Tensor) -> Tensor:
    """Return 0.3 cross-entropy + 0.7 T² KL(teacher || student) at temperature T; a text without a label has only KL."""
    student = (logits / TEMPERATURE).log_softmax(-1)
    teacher = (soft / TEMPERATURE).log_softmax(-1)
    divergence = nn.functional.kl_div(student, teacher, log_target=True, reduction="batchmean")
    hard = nn.functional.cross_entropy(logits, labels, ignore_index=UNLABELLED, reduction="sum") / len(labels)
    return (1 - SOFT_WEIGHT) * hard + SOFT_WEIGHT * TEMPERATURE**2 * divergence


def sentences_of(path: Path, count: int) -> list[str]:
    """Draw sentences from reviews: more text of the same kind, which the teacher labels."""
    reviews = (re.sub(r"<[^>]+>", " ", example.texts[0]) for example in read_examples(path))
    sentences = (sentence.strip() for review in reviews for sentence in re.split(r"(?<=[.!?])\s+", review))
    fitting = [sentence for sentence in sentences if len(sentence.split()) in SENTENCE_WORDS]
    return random.Random(0).sample(fitting, count)


def keep_aside(texts: Sequence[str], count: int, min_words: int = 10) -> tuple[list[int], list[int]]:
    """Draw sentences to choose between runs; return all texts that are kept out of training, and all others.

    SST-2's training texts are phrases of one another, so a text of at least three words is kept out, too, if it
    contains a drawn sentence or is contained in one.
    """
    long = [i for i, text in enumerate(texts) if len(text.split()) >= min_words]
    drawn = sorted(random.Random(0).sample(long, count))
    padded = [f" {text.strip()} " for text in texts]
    pool = "\n".join(padded[i] for i in drawn)
    kept = {padded[i] for i in drawn}

    def overlaps(text: str) -> bool:
        return len(text.split()) >= 3 and (text in pool or any(one in text for one in kept))

    out = [overlaps(text) for text in padded]
    return [i for i, is_out in enumerate(out) if is_out], [i for i, is_out in enumerate(out) if not is_out]
