"""Tiny random models with tokenizers of their kind, one for each supported architecture. Nothing is downloaded."""

import copy
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import transformers
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedTokenizerFast,
)

import whichtoken as wt
from whichtoken.core.picks import Picks, pick_labels
from whichtoken.heads import HeadRule
from whichtoken.models import Batch
from whichtoken.tasks.answer import pick_ends
from whichtoken.tasks.classify import link_of

# Vocabularies are written down, not trained: training breaks ties by chance, and the models would differ between runs.
WORDS = [
    "it",
    "is",
    "slow",
    "film",
    "the",
    "actors",
    "were",
    "but",
    "plot",
    "was",
    "a",
    "man",
    "sleep",
    "nobody",
    "rare",
    "cha",
    "ver",
    "won",
    "music",
    "end",
    "did",
    "touching",
]
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,;:!?'\"-ïéà電影很好"
SIZES = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 32}
MAX_TOKENS = 40


@dataclass(frozen=True)
class Specials:
    """Special tokens in the order of their ids, and the template of one and of two texts."""

    tokens: tuple[str, ...]
    single: str = "$A"
    pair: str = "$A $B:1"


BERT = Specials(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
ROBERTA = Specials(("<s>", "<pad>", "</s>", "<unk>", "<mask>"), "<s> $A </s>", "<s> $A </s> </s> $B </s>")
LLAMA = Specials(("<unk>", "<s>", "</s>"), "<s> $A", "<s> $A <s> $B:1")
GPT2 = Specials(("<|endoftext|>",))


def _finish(tokenizer: Tokenizer, specials: Specials) -> PreTrainedTokenizerFast:
    ids = [(token, tokenizer.token_to_id(token)) for token in specials.tokens]
    template: Any = processors.TemplateProcessing(single=specials.single, pair=specials.pair, special_tokens=ids)
    byte_level = isinstance(tokenizer.pre_tokenizer, pre_tokenizers.ByteLevel)
    if byte_level and specials is ROBERTA:
        trim = processors.ByteLevel(trim_offsets=True)
        template = processors.Sequence([trim, template])
    tokenizer.post_processor = template
    names = {
        "[PAD]": "pad",
        "<pad>": "pad",
        "[UNK]": "unk",
        "<unk>": "unk",
        "[MASK]": "mask",
        "<mask>": "mask",
    }
    ends = {"[CLS]": "cls", "[SEP]": "sep", "<s>": "bos", "</s>": "eos", "<|endoftext|>": "eos"}
    roles = {f"{role}_token": t for t, role in (names | ends).items() if t in specials.tokens}
    if specials is GPT2:
        roles["pad_token"] = "<|endoftext|>"
    inputs = ["input_ids", *(["token_type_ids"] if specials is BERT else []), "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=inputs, **roles)


def _numbered(specials: Specials, *pieces: str) -> dict[str, int]:
    return {piece: i for i, piece in enumerate(dict.fromkeys([*specials.tokens, *pieces]))}


def _merges(words: Iterable[str]) -> list[tuple[str, str]]:
    """Merges that build each word letter by letter."""
    return list(dict.fromkeys((word[:i], word[i]) for word in words for i in range(1, len(word))))


@cache
def wordpiece(specials: Specials = BERT) -> PreTrainedTokenizerFast:
    letters = [piece for letter in LETTERS.lower() + "ia" for piece in (letter, f"##{letter}")]
    vocabulary = _numbered(specials, *letters, *WORDS, *(f"##{word}" for word in WORDS))
    tokenizer = Tokenizer(
        models.WordPiece(vocabulary, unk_token=next(t for t in specials.tokens if "unk" in t.lower()))
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return _finish(tokenizer, specials)


BACKTRACKING, FATAL = r"(a+)+$", "a" * 40 + "!"  # a pattern, and the text on which its search gives up by a panic


def panicking_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer that panics on the text FATAL, and on no other of the tests."""
    made = copy.deepcopy(wordpiece())
    split = pre_tokenizers.Split(Regex(BACKTRACKING), "isolated")
    made.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.BertPreTokenizer()])
    return made


@cache
def byte_bpe(specials: Specials) -> PreTrainedTokenizerFast:
    merges = _merges([*WORDS, *(f"Ġ{word}" for word in WORDS), "It", "The", "ðŁĺĢ"])
    vocabulary = _numbered(
        specials, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(left + right for left, right in merges)
    )
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return _finish(tokenizer, specials)


@cache
def unigram(specials: Specials) -> PreTrainedTokenizerFast:
    pieces = [(token, 0.0) for token in specials.tokens]
    pieces += [(letter, -10.0) for letter in ["▁", *LETTERS]]
    pieces += [
        (piece, -5.0 - 0.01 * i) for i, word in enumerate(WORDS) for piece in (word, f"▁{word}") if len(piece) > 1
    ]
    unknown = next(i for i, token in enumerate(specials.tokens) if "unk" in token.lower())
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=unknown))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("``", '"')])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return _finish(tokenizer, specials)


@cache
def byte_fallback(specials: Specials = LLAMA) -> PreTrainedTokenizerFast:
    """As Llama 2's: no pre-tokenizer, so the whole text has one word id; unknown characters become bytes."""
    merges = _merges([*WORDS, *(f"▁{word}" for word in WORDS)])
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    letters = ["▁", *LETTERS[: LETTERS.index("ï")]]
    vocabulary = _numbered(specials, *fallback, *letters, *(left + right for left, right in merges))
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.add_special_tokens(list(specials.tokens))
    return _finish(tokenizer, specials)


@dataclass(frozen=True)
class Kind:
    """How to make a tiny model of one architecture."""

    tokenizer: Callable[[], PreTrainedTokenizerFast]
    config: Mapping[str, Any]


GROUPED = {  # of decoders whose heads share keys and values
    **SIZES,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": MAX_TOKENS,
    "pad_token_id": 0,
}
KINDS: Mapping[str, Kind] = {
    "albert": Kind(lambda: unigram(BERT), {**SIZES, "embedding_size": 16, "max_position_embeddings": MAX_TOKENS}),
    "bert": Kind(wordpiece, {**SIZES, "max_position_embeddings": MAX_TOKENS}),
    "deberta-v2": Kind(
        lambda: unigram(BERT),
        {
            **SIZES,
            "max_position_embeddings": MAX_TOKENS,
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_biased_input": False,
            "position_buckets": 16,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
        },
    ),
    "distilbert": Kind(
        wordpiece,
        {"dim": 24, "n_layers": 3, "n_heads": 3, "hidden_dim": 32, "max_position_embeddings": MAX_TOKENS},
    ),
    "electra": Kind(wordpiece, {**SIZES, "embedding_size": 16, "max_position_embeddings": MAX_TOKENS}),
    "gemma": Kind(byte_fallback, {**GROUPED, "head_dim": 6}),
    "gemma2": Kind(byte_fallback, {**GROUPED, "head_dim": 6, "sliding_window": 6, "query_pre_attn_scalar": 6}),
    "gemma3_text": Kind(
        byte_fallback,
        {
            **GROUPED,
            "head_dim": 6,
            "sliding_window": 6,
            "query_pre_attn_scalar": 6,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "gpt2": Kind(
        lambda: byte_bpe(GPT2),
        {
            "n_embd": 24,
            "n_layer": 3,
            "n_head": 3,
            "n_inner": 32,
            "n_positions": MAX_TOKENS,
            "pad_token_id": 0,
        },
    ),
    "llama": Kind(byte_fallback, GROUPED),
    "mistral": Kind(byte_fallback, {**GROUPED, "sliding_window": 6}),
    "modernbert": Kind(
        lambda: byte_bpe(BERT),
        {
            **SIZES,
            "num_attention_heads": 2,
            "max_position_embeddings": MAX_TOKENS,
            "global_attn_every_n_layers": 2,
            "local_attention": 6,
            "classifier_pooling": "mean",
            "pad_token_id": 0,
            "cls_token_id": 2,
            "bos_token_id": 2,
            "sep_token_id": 3,
            "eos_token_id": 3,
        },
    ),
    "mpnet": Kind(lambda: wordpiece(ROBERTA), {**SIZES, "max_position_embeddings": MAX_TOKENS + 2, "pad_token_id": 1}),
    "olmo2": Kind(lambda: byte_bpe(GPT2), GROUPED),
    "phi3": Kind(byte_fallback, {**GROUPED, "original_max_position_embeddings": MAX_TOKENS}),
    "qwen2": Kind(lambda: byte_bpe(GPT2), GROUPED),
    "qwen3": Kind(lambda: byte_bpe(GPT2), {**GROUPED, "head_dim": 6}),
    "roberta": Kind(lambda: byte_bpe(ROBERTA), {**SIZES, "max_position_embeddings": MAX_TOKENS + 2, "pad_token_id": 1}),
    "smollm3": Kind(lambda: byte_bpe(GPT2), {**GROUPED, "no_rope_layers": [1, 0, 1]}),
    "xlm-roberta": Kind(
        lambda: unigram(ROBERTA), {**SIZES, "max_position_embeddings": MAX_TOKENS + 2, "pad_token_id": 1}
    ),
}

# What detailed tests run on. The contract suite also covers the other decoders, which are relatives of llama.
RELATIVES = ("gemma", "gemma2", "gemma3_text", "mistral", "olmo2", "phi3", "qwen3", "smollm3")
MAIN_KINDS = sorted(set(KINDS) - set(RELATIVES))


def model_of(kind: str, attention: str | None = None, labels: int = 3, **config: Any) -> Any:
    """A random float64 model in eval mode; the same one for the same arguments."""
    tokenizer = KINDS[kind].tokenizer()
    settings = {
        "vocab_size": len(tokenizer),
        "num_labels": labels,
        "id2label": dict(enumerate(["contradiction", "entailment", "neutral", "unrelated"][:labels])),
        **KINDS[kind].config,
        **config,
    }
    made = AutoConfig.for_model(kind, **settings)
    torch.manual_seed(7)
    chosen = {} if attention is None else {"attn_implementation": attention}
    return _drawn(AutoModelForSequenceClassification.from_config(made, **chosen))


def _drawn(model: Any) -> Any:
    """With random weights far from the near-zero default, so that nothing is equal by accident."""
    model = model.double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.3 if parameter.dim() > 1 else 0.1
            offset = 1.0 if re.search(r"norm|\bln_", name.lower()) and name.endswith("weight") else 0.0
            parameter.copy_(offset + spread * torch.randn(parameter.shape, dtype=parameter.dtype))
    return model


QUESTION_KINDS = ("bert", "distilbert", "electra", "gpt2", "roberta")


def question_subject(kind: str = "bert", attention: str | None = None, **config: Any) -> wt.Subject:
    """A random float64 model that answers questions, and its tokenizer."""
    tokenizer = KINDS[kind].tokenizer()
    ends = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id")} if kind == "gpt2" else {}
    settings = {"vocab_size": len(tokenizer), "num_labels": 2, **ends, **KINDS[kind].config, **config}
    made = AutoConfig.for_model(kind, **settings)
    torch.manual_seed(7)
    chosen = {} if attention is None else {"attn_implementation": attention}
    return wt.Subject(_drawn(AutoModelForQuestionAnswering.from_config(made, **chosen)), tokenizer, name=kind)


TAGS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


def token_subject(
    kind: str = "bert", attention: str | None = None, labels: Iterable[str] = TAGS, **config: Any
) -> wt.Subject:
    """A random float64 model that labels tokens, and its tokenizer. It predicts every label, if its head has a bias."""
    tokenizer, names = KINDS[kind].tokenizer(), list(labels)
    own = {"num_labels": len(names), "id2label": dict(enumerate(names))}
    made = AutoConfig.for_model(kind, **{"vocab_size": len(tokenizer), **own, **KINDS[kind].config, **config})
    torch.manual_seed(7)
    chosen = {} if attention is None else {"attn_implementation": attention}
    model = _drawn(AutoModelForTokenClassification.from_config(made, **chosen))
    head = getattr(model, "classifier", None)
    if getattr(head, "bias", None) is not None:
        with torch.no_grad():
            encoded = tokenizer(CORPUS[-1], return_tensors="pt", truncation=True, max_length=MAX_TOKENS)
            typical = model(**encoded).logits[0].mean(0)
            head.bias -= typical  # type: ignore[union-attr]
    return wt.Subject(model, tokenizer, name=kind)


CHAT = (
    "{{ bos_token }}{% for m in messages %}<{{ m['role'] }}> {{ m['content'] | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)


def language_subject(
    kind: str = "llama", attention: str | None = None, chat: bool = False, **config: Any
) -> wt.Subject:
    """A random float64 model that generates text, and its tokenizer; with a chat template if asked."""
    tokenizer = copy.deepcopy(KINDS[kind].tokenizer())
    if chat:
        tokenizer.chat_template = CHAT
    ends = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id")}
    longer = {"n_positions" if kind == "gpt2" else "max_position_embeddings": 96}
    settings = {"vocab_size": len(tokenizer), **ends, **KINDS[kind].config, **longer, **config}
    made = AutoConfig.for_model(kind, **settings)
    torch.manual_seed(7)
    chosen = {} if attention is None else {"attn_implementation": attention}
    return wt.Subject(_drawn(AutoModelForCausalLM.from_config(made, **chosen)), tokenizer, name=kind)


IMAGE = {"image_size": 12, "patch_size": 4, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3}
IMAGE_KINDS: Mapping[str, tuple[type, Mapping[str, Any]]] = {
    "vit": (transformers.ViTForImageClassification, {"intermediate_size": 32}),
    "deit": (transformers.DeiTForImageClassification, {"intermediate_size": 32}),
    "deit with teacher": (transformers.DeiTForImageClassificationWithTeacher, {"intermediate_size": 32}),
    "dinov2": (transformers.Dinov2ForImageClassification, {"mlp_ratio": 2}),
    "dinov2 with swiglu": (transformers.Dinov2ForImageClassification, {"mlp_ratio": 2, "use_swiglu_ffn": True}),
    "dinov2_with_registers": (
        transformers.Dinov2WithRegistersForImageClassification,
        {"mlp_ratio": 2, "num_register_tokens": 2},
    ),
}


def image_model_of(kind: str, attention: str | None = None, **config: Any) -> Any:
    """A random float64 model in eval mode that reads images, 3 x 12 x 12; the same one for the same arguments."""
    cls, settings = IMAGE_KINDS[kind]
    made = cls.config_class(**{**IMAGE, **settings, "num_labels": 3, **config})  # type: ignore[attr-defined]
    torch.manual_seed(7)
    model = cls._from_config(made, attn_implementation=attention or "sdpa").double().eval()  # type: ignore[attr-defined]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            offset = 1.0 if re.search(r"norm.*weight|layer_scale", name) else 0.0
            parameter.copy_(offset + 0.3 * torch.randn(parameter.shape, dtype=parameter.dtype))
    return model


def images(n: int, seed: int = 5, size: tuple[int, int] = (12, 12)) -> torch.Tensor:
    return torch.randn(n, 3, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def class_goal(subject: wt.Subject, toward: Any, against: Any = None) -> Picks:
    """What is explained of a batch: classes, or classes rather than others."""
    toward, against = (None if x is None else torch.as_tensor(x) for x in (toward, against))
    return pick_labels(toward, against, link_of(subject), subject.readout)


def span_goal(start: Any, end: Any, part: Any) -> Picks:
    """What is explained of a batch of questions."""
    ends = torch.stack([torch.as_tensor(start), torch.as_tensor(end)], -1).tolist()
    return pick_ends(ends, [part] * len(ends), torch.device("cpu"))


def image_batch(subject: wt.Subject, pixels: torch.Tensor) -> Batch:
    return subject.batch([subject.image_row(image) for image in pixels])


def with_heads(subject: wt.Subject) -> wt.Subject:
    """The subject with some heads chosen, of either kind, and one block without any."""
    layers, heads = range(subject.n_layers), range(subject.n_heads)
    syntactic = tuple(tuple(int(layer != 1 and (layer + head) % 2 == 0) for head in heads) for layer in layers)
    positional = tuple(tuple(2 * int(layer != 1 and head == 1) for head in heads) for layer in layers)
    nothing = tuple((False,) * subject.n_heads for _ in layers)
    mask = wt.heads.HeadMask(
        subject.title, subject.fingerprint(), "measured", HeadRule(), syntactic, positional, nothing
    )
    return subject.with_heads(mask)


CORPUS = [
    "The film was slow, but the music was touching.",
    "It is a rare plot.",
    "Nobody did sleep.",
    "The actors were won, it was the end of a man.",
    "very slow film",
    "A man is touching the music, but it is slow, and the plot is very rare, and the actors were charming!",
]


def with_references(subject: wt.Subject, texts: Iterable[Any] = CORPUS, **settings: Any) -> wt.Subject:
    """The subject with a library that has what any method may read. Any text will do: random models have no taste."""
    chosen = {"rule": "random", "min_tokens": 1, "layers": "all", "dtype": "float64", "keep_text": True, **settings}
    return subject.with_references(wt.references.build(subject, list(texts), **chosen))
