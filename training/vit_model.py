"""Train a small vision Transformer on Fashion-MNIST, and store it as a stock Hugging Face directory.

    apt install dataset-fashion-mnist
    python training/vit_model.py --data /usr/share/datasets/fashion-mnist --out DIR

Ten kinds of garments on black, 28 x 28 grey pixels, read as three equal channels in patches of 4 x 4: 49 patches and a
class token. The garment itself (pixels that are not black) is the ground truth for segmentation.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

from whichtoken.reproduce.idx import read_idx

LABELS = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
DEFAULTS = {"epochs": 8, "rate": 2e-3, "width": 64, "layers": 6, "batch": 96, "seed": 0}
SIDE, PATCH = 28, 4
WARM_UP = 0.05  # share of all steps; then the rate falls to 0 along a cosine
CHANNELS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the four files of Fashion-MNIST")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    for name, value in DEFAULTS.items():
        parser.add_argument(f"--{name}", type=type(value), default=value, help=f"default {value:g}")
    parser.add_argument("--limit", type=int, help="train only on the first LIMIT images")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    parts = {
        name: (
            read_idx(options.data / f"{file}-images-idx3-ubyte.gz"),
            read_idx(options.data / f"{file}-labels-idx1-ubyte.gz"),
        )
        for name, file in (("train", "train"), ("test", "t10k"))
    }
    images, labels = (torch.from_numpy(x)[: options.limit] for x in parts["train"])
    test = tuple(torch.from_numpy(x) for x in parts["test"])
    model = ViTForImageClassification(make_config(options))
    started = time.perf_counter()
    history = train(model, images, labels.long(), options)
    report = {
        "settings": {key: vars(options)[key] for key in DEFAULTS},
        "training images": len(images),
        "parameters": sum(p.numel() for p in model.parameters()),
        "minutes": round((time.perf_counter() - started) / 60, 1),
        "torch threads": torch.get_num_threads(),
        "loss of each epoch": history,
        "test images": len(test[0]),
        "test accuracy": accuracy(model.eval(), *test),
    }
    model.config._name_or_path = ""
    model.save_pretrained(options.out)
    ViTImageProcessor(
        size={"height": SIDE, "width": SIDE}, image_mean=[0.5] * CHANNELS, image_std=[0.5] * CHANNELS
    ).save_pretrained(options.out)
    (options.out / "training.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=1))


def make_config(options: argparse.Namespace) -> Any:
    return ViTConfig(
        hidden_size=options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.width // 16,
        intermediate_size=4 * options.width,
        image_size=SIDE,
        patch_size=PATCH,
        num_channels=CHANNELS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.06,  # the usual 0.02 suits wide models; narrow ones learn slowly from it
        id2label=dict(enumerate(LABELS)),
        label2id={label: i for i, label in enumerate(LABELS)},
    )


def train(model: Any, images: Tensor, labels: Tensor, options: argparse.Namespace) -> list[float]:
    """Train and keep the weights after the last epoch; the test images are used once, afterwards."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate, weight_decay=0.05, fused=True)
    total = options.epochs * -(-len(images) // options.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (WARM_UP * total), (1 + math.cos(math.pi * step / total)) / 2)
    )
    history = []
    for epoch in range(1, options.epochs + 1):
        model.train()
        losses: list[float] = []
        groups = torch.split(torch.randperm(len(images)), options.batch)
        bar = tqdm(groups, desc=f"epoch {epoch} of {options.epochs}", unit=" batches")
        for group in bar:
            logits = model(pixel_values=mirror_half(pixels_of(images[group]))).logits
            loss = nn.functional.cross_entropy(logits, labels[group])
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
            bar.set_postfix(loss=f"{sum(losses[-50:]) / len(losses[-50:]):.3f}")
        history.append(round(sum(losses) / len(losses), 4))
        print(f"epoch {epoch}: loss {history[-1]}", flush=True)
    return history


def pixels_of(images: Tensor) -> Tensor:
    """Return what the image processor would: three equal channels, -1 to 1."""
    return (images.float() / 127.5 - 1)[:, None].expand(-1, CHANNELS, -1, -1)


def mirror_half(pixels: Tensor) -> Tensor:
    """Mirror a random half of the images; without this, the Transformer memorises them."""
    return torch.where(torch.rand(len(pixels), 1, 1, 1) < 0.5, pixels.flip(-1), pixels)


@torch.no_grad()
def accuracy(model: Any, images: Tensor, labels: Tensor) -> float:
    right = 0
    for group in torch.split(torch.arange(len(images)), 500):
        right += int((model(pixel_values=pixels_of(images[group])).logits.argmax(-1) == labels[group]).sum())
    return round(right / len(images), 4)


if __name__ == "__main__":
    main()
