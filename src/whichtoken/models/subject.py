"""Subject: a model with its tokenizer or image processor, both left as they were."""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from whichtoken.core.rows import Image, Row, pair_sides
from whichtoken.data.examples import check_texts
from whichtoken.errors import BadInput, BadSetting, UnsupportedModel
from whichtoken.heads.mask import HeadMask
from whichtoken.heads.store import read as read_heads
from whichtoken.identity import Identity
from whichtoken.models.adapters import merge_adapters, unwrap_adapters
from whichtoken.models.architectures import (
    PREFIXES,
    Architecture,
    Head,
    Readout,
    check_kind,
    find_architecture,
    find_head,
)
from whichtoken.models.attention import fastest_attention, use_attention
from whichtoken.models.cancelling import check_cancelled
from whichtoken.models.checks import (
    check_batch_size,
    check_eval,
    check_fit,
    check_head,
    check_reading,
    check_tokenizer,
    check_values,
    count_embeddings,
    unwrap,
)
from whichtoken.models.encoding import (
    Batch,
    Document,
    Fit,
    LongTexts,
    batches,
    even_batches,
    pad_rows,
    tokenize,
    tokenize_prompt,
)
from whichtoken.models.fingerprint import fingerprint, fingerprint_processor
from whichtoken.models.generation import read_places
from whichtoken.models.memory import halve_if_needed
from whichtoken.models.quantised import find_packed
from whichtoken.models.readouts import weigh_positions
from whichtoken.models.shortcuts import can_skip_padding, choose_shortcut
from whichtoken.models.special_tokens import SpecialTokens, check_special_tokens
from whichtoken.models.twin import Spare, list_named_modules, make_spare, make_twin, take_snapshot
from whichtoken.records import Reading
from whichtoken.references.library import ReferenceLibrary
from whichtoken.references.store import read as read_references

TOKENS_PER_BATCH = 8192
TOKENS_AT_ONCE = 2048  # without padding: more do not fit into the processor's caches, and are slower


@dataclass(frozen=True, eq=False, repr=False)
class Subject:
    """A model and its tokenizer or image processor. The model's class determines its task.

    Passes run on a twin of the model (`with_twin`), so the model itself is never modified, and other threads may call
    or train it at the same time.
    """

    model: Any
    processor: Any  # a tokenizer or an image processor
    name: str = ""
    revision: str = ""  # commit on the hub; if empty, a hash of the weights is used
    max_tokens: int | None = None  # a limit lower than the model's own
    references: ReferenceLibrary | None = None  # for methods that contrast with reference texts
    heads: HeadMask | None = None  # for methods that propagate relevance through chosen heads only
    reading: Reading | None = None  # of a single output: its sigmoid, or the value itself; None: by the configuration
    batch_size: int | None = None  # the most rows that the model reads at once, to save memory
    special_tokens: SpecialTokens = "control"  # how those in a user's text, such as [SEP], are read
    origin: Any = None  # for a twin: the user's model
    spares: list[Spare] = field(default_factory=list)  # twins that no call uses at present: at most one
    borrowed: Spare | None = None  # for a twin: as what it can be kept
    processor_hash: str = ""  # of the processor's files; if empty, a hash of its settings is used

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", unwrap_adapters(unwrap(self.model)))
        config = getattr(self.model, "config", None)
        if self.origin is None and config is not None:
            check_kind(self.title, self._class_names, config)
        check_eval(self.model)
        if self.origin is not None:
            return  # the other checks were made for the original subject
        check_head(self.head, self.model, self.title, is_causal=self.architecture.causal)
        check_batch_size(self.batch_size)
        check_values(self.model)
        check_reading(self.reading, self.head.pools and self.model.config.num_labels == 1, self.title)
        check_special_tokens(self.special_tokens, reads_text=self.architecture.reads == "tokens")
        if self.architecture.reads == "tokens":
            check_tokenizer(self.model, self.tokenizer, self.architecture.positions_after_padding)
            if self.max_tokens is not None and self.max_tokens not in range(1, self._model_limit + 1):
                raise BadSetting("max_tokens", self.max_tokens, f"1 to {self._model_limit}, the model's own limit")
        if self.references is not None:
            self.check_library(self.references)
        if self.heads is not None:
            self.check_heads(self.heads)

    def __repr__(self) -> str:
        labels = ", ".join(self.labels[:5]) + (", ..." if len(self.labels) > 5 else "")
        return f"<Subject: {self.title}, {type(self.model).__name__}; {labels}>"

    @property
    def tokenizer(self) -> Any:
        """The processor, if the model reads texts."""
        return self.processor

    def with_references(self, library: ReferenceLibrary | str | Path) -> "Subject":
        """Return this subject with a reference library, given as such or as its folder."""
        return replace(self, references=read_references(library) if isinstance(library, str | Path) else library)

    def check_library(self, library: ReferenceLibrary) -> None:
        """Raise LibraryMismatch if the library was built for another model."""
        if not isinstance(library, ReferenceLibrary):
            allowed = "a ReferenceLibrary, from wt.references.build or wt.references.load"
            raise BadSetting("references", type(library).__name__, allowed)
        library.check_model(self.title, self.identity(), self.n_layers, len(self.labels))

    def with_heads(self, mask: HeadMask | str | Path) -> "Subject":
        """Return this subject with a head mask, given as such or as its file."""
        return replace(self, heads=read_heads(mask) if isinstance(mask, str | Path) else mask)

    def check_heads(self, mask: HeadMask) -> None:
        """Raise LibraryMismatch if the mask was built for another model."""
        if not isinstance(mask, HeadMask):
            raise BadSetting("heads", type(mask).__name__, "a HeadMask, from wt.heads.build or wt.heads.load")
        mask.check_model(self.title, self.identity(), self.n_layers, self.n_heads)

    @cached_property
    def architecture(self) -> Architecture:
        return find_architecture(self.model)

    @cached_property
    def head(self) -> Head:
        return find_head(self._class_names, self.architecture)

    @property
    def _class_names(self) -> list[str]:
        return [cls.__name__ for cls in type(self.model).__mro__]

    @cached_property
    def embeddings(self) -> nn.Module:
        """The module whose output the first block reads."""
        named: dict[str, nn.Module] = dict(list_named_modules(self.model.base_model))
        for name in self.architecture.embeddings:
            if name in named:
                return named[name]
        raise UnsupportedModel(f"{type(self.model).__name__} has no module {self.architecture.embeddings}")

    @cached_property
    def blocks(self) -> tuple[nn.Module, ...]:
        """The modules that are the model's blocks; ALBERT calls each of them several times."""
        named = list_named_modules(self.model.base_model)
        blocks = tuple(m for name, m in named if re.fullmatch(self.architecture.blocks, name))
        if not blocks:
            raise UnsupportedModel(f"{type(self.model).__name__} has no blocks at {self.architecture.blocks!r}")
        return blocks

    @property
    def n_layers(self) -> int:
        config = self.model.config
        return int(config.num_hidden_layers * getattr(config, "inner_group_num", 1))  # ALBERT nests its blocks

    @property
    def n_heads(self) -> int:
        """The number of attention heads in one layer."""
        return int(self.model.config.num_attention_heads)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.head.labels(self.model.config)

    @property
    def n_logits(self) -> int:
        """How many logits the model returns at a position: the size of the vocabulary, or the number of labels."""
        return int(self.model.config.vocab_size) if self.head.generates else len(self.labels)

    def encode_prompt(self, text: str, number: int, contents: Sequence[tuple[int, int]] | None = None) -> Document:
        """Tokenize a prompt. `contents`: where the messages of a chat are, which a template has turned into a text."""
        document = tokenize_prompt(self.tokenizer, text, number, contents, self.special_tokens)
        check_fit(self.model, self.tokenizer, [document], number)
        return document

    def with_twin(self) -> "Subject":
        """Return this subject on a twin of the model, which passes may modify; a twin is returned as it is."""
        if self.origin is not None:
            return self
        spare = self._take_spare()
        if spare is None:
            check_values(self.model)  # again, because it may have been moved
            before = take_snapshot(self.model)
            twin = merge_adapters(make_twin(self.model))
            spare = make_spare(self.model, before, twin)
        revision = self.fingerprint()
        known: Subject | None = spare.subject
        if known is not None and known.revision == revision and _have_same(self, known):
            return known
        borrowed = replace(spare, subject=None)
        # With a list of its own: a cycle would keep the model in memory until the collector runs.
        return replace(self, model=spare.twin, revision=revision, origin=self.model, borrowed=borrowed, spares=[])

    def _take_spare(self) -> Spare | None:
        try:
            spare = self.spares.pop()  # at once, so that no other thread takes it, too
        except IndexError:
            return None
        return spare if spare.fits(self.model) else None

    def take_back(self, twin: "Subject") -> None:
        """Let a later call use a twin of this subject; call it once nothing else does, and not after an error."""
        if twin.borrowed is not None and twin.borrowed.of_model is not None and not self.spares:
            self.spares.append(replace(twin.borrowed, subject=twin))

    @property
    def device(self) -> torch.device:
        return torch.device(next(self.model.parameters()).device)

    @property
    def title(self) -> str:
        return self.name or self.model.config._name_or_path or type(self.model).__name__

    def fingerprint(self) -> str:
        """Return the hub's revision, or a hash of configuration and weights, recomputed when these change."""
        return self.revision or fingerprint(self.model)

    def identity(self) -> Identity:
        """Return what is stored with everything that depends on the model and its processor."""
        return Identity(self.fingerprint(), self.processor_hash or fingerprint_processor(self.processor))

    @property
    def limit(self) -> int:
        """The maximum number of tokens, including special tokens."""
        return self.max_tokens or self._model_limit

    def filler(self, name: str) -> int | None:
        """Return the id of the "mask" or "pad" token, which can replace others; None if there is none."""
        token = self._embedded(getattr(self.tokenizer, f"{name}_token_id", None))
        return self._pad_id if token is None and name == "pad" else token

    @property
    def empty_row(self) -> Row:
        """The row for an empty sequence, if the tokenizer adds no special tokens (GPT-2)."""
        names = ("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id")
        tokens = (getattr(self.tokenizer, name, None) for name in names)
        return Row((next((token for token in tokens if token is not None), 0),), (0,), (True,))

    @property
    def batches_of_one(self) -> bool:
        """Whether rows must not be padded: without a padding token transformers cannot find their last token, and
        quantised modules round differently if other rows are in the batch.
        """
        padless = self.head.pools and self.readout_kind is Readout.LAST and self._pad_id is None
        return padless or self.packed is not None

    def fits_rows(self, rows: int) -> bool:
        """Return whether a batch may have this many rows."""
        most = 1 if self.batches_of_one else self.batch_size
        return most is None or rows <= most

    @cached_property
    def packed(self) -> str | None:
        """The first module that torch quantised, for messages: no gradient passes through it."""
        return find_packed(self.model)

    def encode(
        self, texts: Sequence[tuple[str, ...]], long: LongTexts = "truncate", first: int = 0, only: int | None = None
    ) -> list[Document]:
        """Tokenize texts or pairs. `first`: the index of the first, if these are part of a longer list. `only`: which
        text of a pair may be cut, or read in windows; None: the longer one.
        """
        checked = [check_texts(item, f"input {number}", number) for number, item in enumerate(texts, first)]
        fit = Fit(self.limit, long, getattr(self.tokenizer, "truncation_side", "right") == "left", only)
        documents = tokenize(self.tokenizer, checked, fit, first, self.special_tokens)
        check_fit(self.model, self.tokenizer, documents, first)
        return documents

    def batch(self, rows: Sequence[Row]) -> Batch:
        pads = (self._pad_id, self._embedded(getattr(self.tokenizer, "pad_token_id", None)), 0)
        return pad_rows(rows, next(pad for pad in pads if pad is not None), self.device, self.model.dtype)

    def image_row(self, pixels: Float[Tensor, "channel row column"]) -> Row:
        """Return the row of a prepared image: the tokens that every image has, then its patches."""
        config, shape = self.model.config, tuple(pixels.shape)
        (rows, columns), patch = self.image_size, self.patch_size
        any_size = self.architecture.image_sizes == "any"
        if any_size and len(shape) == 3:  # round down to a multiple of the patch size, at least one patch
            rows, columns = (max(size // of * of, of) for size, of in zip(shape[1:], patch, strict=True))
        expected = (config.num_channels, rows, columns)
        if shape != expected:
            other = f", or other multiples of its patch size, {patch}" if any_size else ""
            raise BadInput(f"an image of shape {shape}; {self.title} reads {expected}{other}")
        if rows % patch[0] or columns % patch[1]:
            raise UnsupportedModel(f"{self.title}: patches of {patch} do not divide its images, {(rows, columns)}")
        grid = (rows // patch[0], columns // patch[1])
        n_prefix, n_patches = self.prefix.shape[1], grid[0] * grid[1]
        zeros = (0,) * (n_prefix + n_patches)  # patches have no ids
        return Row(zeros, zeros, (True,) * n_prefix + (False,) * n_patches, Image(pixels, grid))

    @property
    def image_size(self) -> tuple[int, int]:
        """The number of rows and columns of pixels."""
        return pair_sides(self.model.config.image_size)

    @property
    def patch_size(self) -> tuple[int, int]:
        return pair_sides(self.model.config.patch_size)

    @property
    def prefix(self) -> Float[Tensor, "1 token dim"]:
        """The tokens that an image model puts before the patches, without positions."""
        tokens = (getattr(self.embeddings, name, None) for name in PREFIXES)
        return torch.cat([token.detach() for token in tokens if token is not None], 1)

    def readout(self, batch: Batch) -> Float[Tensor, "batch token"]:
        """Return the weights of the positions that a pooling head reads."""
        return weigh_positions(self.readout_kind, batch, self._pad_id).to(self.model.dtype)

    def forward(self, batch: Batch) -> Float[Tensor, "batch *label"]:
        """Return the logits, batch first; whether gradients are computed is up to the caller."""
        check_cancelled()
        with nullcontext() if batch.read is None else read_places(self.model, batch.read):
            output = self.model(**self._inputs(batch), return_dict=True)
        return self.head.read(self.model, output, batch.mask)

    def _inputs(self, batch: Batch) -> dict[str, Any]:
        if batch.pixels is not None:
            return {"pixel_values": batch.pixels}
        inputs: dict[str, Any] = {"input_ids": batch.ids, "attention_mask": batch.mask.long()}
        if self._takes_types:
            inputs["token_type_ids"] = batch.types
        return {**inputs, **({"use_cache": False} if self._takes_cache else {})}

    def fits(self, rows: int, longest: int) -> bool:
        """Return whether a batch without gradients may be this large."""
        return rows * longest <= TOKENS_PER_BATCH and self.fits_rows(rows)

    def batches(self, lengths: Sequence[int], fits: Callable[[int, int], bool] | None = None) -> Iterator[list[int]]:
        """Yield indices of rows of these lengths in groups that are evaluated fastest. `fits`: a narrower limit."""
        if not self.with_twin().skips_padding:
            return batches(lengths, fits or self.fits)
        return even_batches(lengths, TOKENS_AT_ONCE, fits or self.fits)

    @cached_property
    def skips_padding(self) -> bool:
        """Whether passes may skip padding: on CPUs, where it costs time, and if no hook of the user would notice."""
        return self.origin is not None and not self.batches_of_one and can_skip_padding(self)

    def logits(
        self, batch: Batch, embeddings: Float[Tensor, "batch token dim"] | None = None
    ) -> Float[Tensor, "batch *label"]:
        """Return logits without gradients, by fused attention if supported; on other embeddings, if given."""
        twin = self.with_twin()
        shortcut = choose_shortcut(twin)
        twin.use_fast_attention(shortcut.attention)

        def run(rows: Sequence[int]) -> list[Tensor]:
            part = batch.between(rows[0], rows[-1] + 1)
            with ExitStack() as stack:
                stack.enter_context(torch.no_grad())
                if embeddings is not None:
                    of_rows = embeddings[rows[0] : rows[-1] + 1]
                    stack.enter_context(twin.embeddings.register_forward_hook(lambda *_: of_rows))
                stack.enter_context(shortcut.enter(part))
                return [twin.forward(part)]

        parts = halve_if_needed(run, range(len(batch.ids)))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def use_fast_attention(self, chosen: str | None = None) -> None:
        """Change the attention of a twin to the chosen one, or the fastest that gives logits without gradients."""
        use_attention(self.model, chosen or fastest_attention(self.model, self.architecture, self.own_attention))

    @property
    def own_attention(self) -> str:
        """The attention implementation of the user's model."""
        return str((self.model if self.origin is None else self.origin).config._attn_implementation)

    @cached_property
    def readout_kind(self) -> Readout:
        return self.architecture.readout(self.model)

    @property
    def _pad_id(self) -> int | None:
        """The padding token of the model's configuration; old Llama configurations write -1 for none."""
        pad: int | None = getattr(self.model.config, "pad_token_id", None)  # image configurations have none
        return None if pad is None or pad < 0 else self._embedded(pad)

    @property
    def _model_limit(self) -> int:
        config = self.model.config
        reserved = config.pad_token_id + 1 if self.architecture.positions_after_padding else 0
        limits = (config.max_position_embeddings - reserved, self.tokenizer.model_max_length)
        return int(min(limit for limit in limits if limit is not None))

    def _embedded(self, token: int | None) -> int | None:
        """Return a token id, or None if the model has no embedding for it."""
        count = None if token is None else count_embeddings(self.model)
        return None if token is not None and count is not None and token >= count else token

    @cached_property
    def _takes_types(self) -> bool:
        named = "token_type_ids" in self.tokenizer.model_input_names
        return named and getattr(self.model.config, "type_vocab_size", 0) > 1

    @cached_property
    def _takes_cache(self) -> bool:
        return "use_cache" in inspect.signature(self.model.forward).parameters


def _have_same(subject: Subject, twin: Subject) -> bool:
    """Return whether a twin has what a subject has besides its model."""
    of_twins = ("model", "revision", "origin", "borrowed", "spares")
    names = [one.name for one in fields(Subject) if one.name not in of_twins]
    return all(getattr(subject, name) is getattr(twin, name) for name in names)
