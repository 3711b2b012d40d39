"""Explain a few sentences with a tiny model that is trained on the spot, in seconds and without any download."""

import random
import shutil

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

import whichtoken as wt

PRAISE = ["charming", "brilliant", "touching", "memorable", "funny", "wonderful", "rare", "honest"]
BLAME = ["dull", "slow", "awful", "forgettable", "boring", "weak", "predictable", "empty"]
FRAME = [
    "a",
    "film",
    "with",
    "plot",
    "and",
    "music",
    "the",
    "actors",
    "are",
    "is",
    "very",
    "it",
    "story",
    "of",
    "this",
    "one",
    ",",
    ".",
    "but",
    "never",
]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = ["It is very slow.", "A rare, charming film.", "The actors are wonderful, but the plot is dull and empty."]
METHODS = ["contrast-cat", "attcat", "gae", "integrated-gradients", "random"]


def main() -> None:
    print(
        "whichtoken demo: the model below is a toy, trained now on 1,500 made-up sentences to tell praise from blame."
    )
    print("It shows how answers look; for real ones give wt.load() a classifier of your own.\n")
    subject = wt.Subject(*train_toy(), name="demo toy")
    # Contrast-CAT compares with texts that hardly activate the class: here from the sentences the toy has learnt.
    subject = subject.with_references(wt.build_references(subject, make_sentences(1500)[0], min_tokens=8))
    for result in wt.explain(subject, TEXTS, METHODS):
        first = result[METHODS[0]]
        print(f'"{first.texts[0]}"  ->  {first.label} ({first.probability:.2f})')
        for name, attribution in result.items():
            show(name, attribution)
        print()
    print("+ speaks for the label, - against it; each row is scaled to its own largest score, near 0 has no number.")
    print("Next: README.md, or  .venv/bin/python -c 'import whichtoken as wt; help(wt.explain)'")


def show(name: str, attribution: wt.Attribution) -> None:
    words = attribution.words()
    largest = max(abs(word.score) for word in words) or 1.0
    shares = [(word.text, word.score / largest) for word in words]
    cells = [f"{text} {share:+.1f}" if abs(share) >= 0.05 else text for text, share in shares]
    line = f"  {name:<21}" + "  ".join(cells)
    print(line if len(line) <= shutil.get_terminal_size((120, 24)).columns else f"  {name}\n    " + "  ".join(cells))


def train_toy() -> tuple[BertForSequenceClassification, PreTrainedTokenizerFast]:
    torch.manual_seed(0)
    tokenizer = make_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        id2label={0: "blame", 1: "praise"},
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForSequenceClassification(config)
    texts, balance = make_sentences(1500)
    praise = torch.tensor(balance).sigmoid()  # shades rather than yes or no: a saturated toy has no gradient to show
    wanted = torch.stack([1 - praise, praise], dim=-1)
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(120):
        rows = torch.arange(step * 125, step * 125 + 125) % len(texts)
        logits = model(**{key: value[rows] for key, value in batch.items()}).logits
        optimizer.zero_grad()
        torch.autograd.backward(torch.nn.functional.cross_entropy(logits, wanted[rows]))
        optimizer.step()
    return model.eval(), tokenizer


def make_tokenizer() -> PreTrainedTokenizerFast:
    words = [*SPECIALS, *PRAISE, *BLAME, *FRAME]
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **dict(zip(names, SPECIALS, strict=True)))


def make_sentences(count: int) -> tuple[list[str], list[float]]:
    """Word salad, and how many more words of praise than of blame it holds."""
    source = random.Random(0)
    texts, balance = [], []
    for _ in range(count):
        praise, blame = source.randint(0, 3), source.randint(0, 3)
        words = source.choices(PRAISE, k=praise) + source.choices(BLAME, k=blame)
        words += source.choices(FRAME, k=source.randint(2, 8))
        source.shuffle(words)
        texts.append(" ".join(words))
        balance.append(float(praise - blame))
    return texts, balance


if __name__ == "__main__":
    main()
