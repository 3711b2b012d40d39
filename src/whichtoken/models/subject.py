"""Subject: a model and its tokenizer, used as found and left as found."""

import hashlib
import inspect
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn

from whichtoken.core.rows import Image, Row
from whichtoken.data.examples import check_texts
from whichtoken.errors import BadInput, BadSetting, UnsupportedModel, UsageError
from whichtoken.heads.mask import HeadMask
from whichtoken.heads.store import read as read_heads
from whichtoken.models.architectures import PREFIXES, Architecture, Head, Readout, architecture_of, head_named
from whichtoken.models.attention import use_attention
from whichtoken.models.encoding import Batch, Document, Fit, LongTexts, pad_rows, tokenize
from whichtoken.models.twin import twin_of
from whichtoken.references.library import ReferenceLibrary
from whichtoken.references.store import read as read_references

TOKENS_PER_BATCH = 8192

_tokenizing: WeakKeyDictionary[Any, Lock] = WeakKeyDictionary()  # of tokenizers
_hashes: WeakKeyDictionary[nn.Module, tuple[object, str]] = WeakKeyDictionary()  # what was hashed, and its hash
_making_locks = Lock()


@dataclass(frozen=True, eq=False)
class Subject:
    """A model and its tokenizer or image processor. What the model is for, its task, follows from its class.

    Passes run on a twin of the model (`twinned`), so the model itself is never touched and may be called, or trained,
    by other threads meanwhile.
    """

    model: Any
    processor: Any  # a tokenizer or an image processor
    name: str = ""
    revision: str = ""  # of the hub; without one, a hash of the weights stands for it
    max_tokens: int | None = None  # a limit below the model's own
    references: ReferenceLibrary | None = None  # for methods that contrast with reference texts
    heads: HeadMask | None = None  # for methods that propagate through chosen heads only
    origin: Any = field(default=None, repr=False)  # of a twin: the user's model

    def __post_init__(self) -> None:
        check_eval(self.model)
        if self.origin is not None:
            return  # the rest was checked of the subject whose twin this is
        if self.architecture.reads == "tokens":
            self._check_tokenizer()
        if self.references is not None:
            self.check_library(self.references)
        if self.heads is not None:
            self.check_heads(self.heads)

    @property
    def tokenizer(self) -> Any:
        """The processor of a model that reads texts."""
        return self.processor

    def _check_tokenizer(self) -> None:
        if not getattr(self.tokenizer, "is_fast", False):
            found = type(self.tokenizer).__name__
            raise UsageError(f"{found} is not a fast tokenizer; character offsets need one: use AutoTokenizer")
        if self.architecture.positions_after_padding and self.model.config.pad_token_id is None:
            raise UnsupportedModel(
                f"{type(self.model).__name__} counts positions from config.pad_token_id, which is None"
            )
        if self.max_tokens is not None and self.max_tokens not in range(1, self._model_limit + 1):
            raise BadSetting("max_tokens", self.max_tokens, f"1 to {self._model_limit}, the model's own limit")

    def with_references(self, library: ReferenceLibrary | str | Path) -> "Subject":
        """The same with a reference library, or with the one in a folder."""
        return replace(self, references=read_references(library) if isinstance(library, str | Path) else library)

    def check_library(self, library: ReferenceLibrary) -> None:
        """LibraryMismatch if it was made for another model."""
        if not isinstance(library, ReferenceLibrary):
            found = type(library).__name__
            raise BadSetting(
                "references", found, "a ReferenceLibrary: wt.references.build or wt.references.load make it"
            )
        library.check_model(self.title, self.fingerprint(), self.n_layers, len(self.labels))

    def with_heads(self, mask: HeadMask | str | Path) -> "Subject":
        """The same with a head mask, or with the one in a file."""
        return replace(self, heads=read_heads(mask) if isinstance(mask, str | Path) else mask)

    def check_heads(self, mask: HeadMask) -> None:
        """LibraryMismatch if it was made for another model."""
        if not isinstance(mask, HeadMask):
            raise BadSetting("heads", type(mask).__name__, "a HeadMask: wt.heads.build or wt.heads.load make it")
        mask.check_model(self.title, self.fingerprint(), self.n_layers, self.n_heads)

    @cached_property
    def architecture(self) -> Architecture:
        return architecture_of(self.model)

    @cached_property
    def head(self) -> Head:
        return head_named([type(self.model).__name__], self.architecture)

    @cached_property
    def embeddings(self) -> nn.Module:
        """The module whose output the first block reads."""
        named: dict[str, nn.Module] = dict(self.model.base_model.named_modules())
        for name in self.architecture.embeddings:
            if name in named:
                return named[name]
        raise UnsupportedModel(f"{type(self.model).__name__} has no module {self.architecture.embeddings}")

    @cached_property
    def blocks(self) -> tuple[nn.Module, ...]:
        """Modules that are the model's blocks; ALBERT calls each of its own several times."""
        named = self.model.base_model.named_modules()
        found = tuple(m for name, m in named if re.fullmatch(self.architecture.blocks, name))
        if not found:
            raise UnsupportedModel(f"{type(self.model).__name__} has no blocks at {self.architecture.blocks!r}")
        return found

    @property
    def n_layers(self) -> int:
        config = self.model.config
        return int(config.num_hidden_layers * getattr(config, "inner_group_num", 1))  # ALBERT nests its blocks

    @property
    def n_heads(self) -> int:
        """Of one layer."""
        return int(self.model.config.num_attention_heads)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.head.labels(self.model.config)

    def twinned(self) -> "Subject":
        """The same on a twin of the model, which passes may hook and switch as they need; a twin stays itself."""
        if self.origin is not None:
            return self
        return replace(self, model=twin_of(self.model), revision=self.fingerprint(), origin=self.model)

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.model.parameters()).device
        return device

    @property
    def title(self) -> str:
        return self.name or self.model.config._name_or_path or type(self.model).__name__

    def fingerprint(self) -> str:
        """The hub's revision, or a hash of configuration and weights.

        Computed again when weights change, except behind autograd's back (`weight.data.mul_(2)`).
        """
        if self.revision:
            return self.revision
        tensors = self.model.state_dict().values()
        versions = [(t.data_ptr(), 0 if t.is_inference() else t._version, t.dtype) for t in tensors]
        state = (_config_text(self.model), versions)
        if _hashes.get(self.model, (None, ""))[0] != state:
            _hashes[self.model] = state, _content_hash(self.model)
        return _hashes[self.model][1]

    @property
    def limit(self) -> int:
        """The longest text, in tokens, special tokens included."""
        return self.max_tokens or self._model_limit

    def filler(self, name: str) -> int | None:
        """The id of the "mask" or "pad" token, which can stand in for others; None if there is none."""
        known = getattr(self.tokenizer, f"{name}_token_id", None)
        return self._pad_id if known is None and name == "pad" else known

    @property
    def nothing(self) -> Row:
        """What stands for an empty sequence, where the tokenizer adds no special tokens (GPT-2)."""
        names = ("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id")
        found = (getattr(self.tokenizer, name, None) for name in names)
        return Row((next((token for token in found if token is not None), 0),), (0,), (True,))

    @property
    def batches_of_one(self) -> bool:
        """Transformers cannot find the last token of padded rows when the model names no padding token."""
        return self.head.pools and self._readout_kind is Readout.LAST and self._pad_id is None

    def encode(
        self, texts: Sequence[tuple[str, ...]], long: LongTexts = "truncate", first: int = 0, only: int | None = None
    ) -> list[Document]:
        """Texts or pairs, tokenized. `first`: what errors call the first of them, where these are some of many.
        `only`: which text of a pair may be cut, or read in windows; None: the longer one.
        """
        checked = [check_texts(item, f"input {number}", number) for number, item in enumerate(texts, first)]
        from_left = getattr(self.tokenizer, "truncation_side", "right") == "left"
        fit = Fit(self.limit, long, from_left, only)
        with _lock_of(self.tokenizer):  # tokenizing sets its truncation and padding for a moment
            return tokenize(self.tokenizer, checked, fit, first)

    def batch(self, rows: Sequence[Row]) -> Batch:
        pads = (self._pad_id, getattr(self.tokenizer, "pad_token_id", None), 0)
        return pad_rows(rows, next(pad for pad in pads if pad is not None), self.device, self.model.dtype)

    def image_row(self, pixels: Float[Tensor, "channel row column"]) -> Row:
        """An image as the model reads it. Its tokens are those that every image has, then the patches."""
        config, found = self.model.config, tuple(pixels.shape)
        (rows, columns), patch = self.image_size, self.patch_size
        any_size = self.architecture.image_sizes == "any"
        if any_size and len(found) == 3:  # what is asked for is then the next smaller multiple, one patch at least
            rows, columns = (max(size // of * of, of) for size, of in zip(found[1:], patch, strict=True))
        wanted = (config.num_channels, rows, columns)
        if found != wanted:
            other = f", or other multiples of its patches, {patch}" if any_size else ""
            raise BadInput(f"an image of shape {found}; {self.title} reads {wanted}{other}")
        if rows % patch[0] or columns % patch[1]:
            raise UnsupportedModel(f"{self.title}: patches of {patch} leave a rest of its images, {(rows, columns)}")
        grid = (rows // patch[0], columns // patch[1])
        n_prefix, n_patches = self.prefix.shape[1], grid[0] * grid[1]
        nothing = (0,) * (n_prefix + n_patches)  # patches have no ids
        return Row(nothing, nothing, (True,) * n_prefix + (False,) * n_patches, Image(pixels, grid))

    @property
    def image_size(self) -> tuple[int, int]:
        """Rows and columns of pixels."""
        return _pair(self.model.config.image_size)

    @property
    def patch_size(self) -> tuple[int, int]:
        return _pair(self.model.config.patch_size)

    @property
    def prefix(self) -> Float[Tensor, "1 token dim"]:
        """What an image model puts before the patches, as it is before positions are added."""
        tokens = (getattr(self.embeddings, name, None) for name in PREFIXES)
        return torch.cat([token.detach() for token in tokens if token is not None], 1)

    def readout(self, batch: Batch) -> Float[Tensor, "batch token"]:
        """Weights of the positions that a head which pools reads."""
        dtype = self.model.dtype
        if self._readout_kind is Readout.MEAN:
            return batch.mask.to(dtype) / batch.mask.sum(-1, keepdim=True)
        if self._readout_kind is Readout.FIRST_TWO:
            return nn.functional.pad(torch.full_like(batch.ids[:, :2], 0.5, dtype=dtype), (0, batch.ids.shape[1] - 2))
        position = torch.zeros(len(batch.ids), dtype=torch.long, device=self.device)
        if self._readout_kind is Readout.LAST:
            pad = self._pad_id
            real = batch.mask if pad is None else batch.ids != pad  # by id: so the models do it
            position = (torch.arange(batch.ids.shape[1], device=self.device) * real).argmax(-1)
        one = nn.functional.one_hot(position, batch.ids.shape[1]).to(dtype)
        if self._readout_kind is Readout.FIRST_AND_PATCHES:
            patches = (~batch.special).to(dtype)
            return (one + patches / patches.sum(-1, keepdim=True)) / 2
        return one

    def forward(self, batch: Batch) -> Float[Tensor, "batch *label"]:
        """Logits, batch first; set gradients as wanted."""
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
        """Whether a batch without gradients may be this large."""
        return rows * longest <= TOKENS_PER_BATCH and not (rows > 1 and self.batches_of_one)

    def logits(
        self, batch: Batch, embeddings: Float[Tensor, "batch token dim"] | None = None
    ) -> Float[Tensor, "batch *label"]:
        """Without gradients, and with fused attention where the model has it; on other embeddings, if given."""
        twin = self.twinned()
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            use_attention(twin.model, "sdpa" if getattr(twin.model, "_supports_sdpa", False) else twin.own_attention)
            if embeddings is not None:
                stack.enter_context(twin.embeddings.register_forward_hook(lambda *_: embeddings))
            return twin.forward(batch)

    @property
    def own_attention(self) -> str:
        """The attention implementation that the user's model has."""
        return str((self.model if self.origin is None else self.origin).config._attn_implementation)

    @cached_property
    def _readout_kind(self) -> Readout:
        return self.architecture.readout(self.model)

    @property
    def _pad_id(self) -> int | None:
        """As the model names it; old configurations of Llama write -1 for none."""
        pad: int | None = getattr(self.model.config, "pad_token_id", None)  # those of images name none
        return None if pad is None or pad < 0 else pad

    @property
    def _model_limit(self) -> int:
        config = self.model.config
        reserved = config.pad_token_id + 1 if self.architecture.positions_after_padding else 0
        limits = (config.max_position_embeddings - reserved, self.tokenizer.model_max_length)
        return int(min(limit for limit in limits if limit is not None))

    @cached_property
    def _takes_types(self) -> bool:
        named = "token_type_ids" in self.tokenizer.model_input_names
        return named and getattr(self.model.config, "type_vocab_size", 0) > 1

    @cached_property
    def _takes_cache(self) -> bool:
        return "use_cache" in inspect.signature(self.model.forward).parameters


def check_eval(model: nn.Module) -> None:
    noisy = next((name or type(model).__name__ for name, m in model.named_modules() if m.training), None)
    if noisy is not None:
        raise UsageError(f"the model is in training mode (module {noisy}), so it answers at random; call model.eval()")


def _pair(size: int | Sequence[int]) -> tuple[int, int]:
    """Rows and columns, which a configuration writes once where they are equal."""
    rows, columns = (size, size) if isinstance(size, int) else size
    return rows, columns


def _lock_of(tokenizer: Any) -> Lock:
    with _making_locks:
        return _tokenizing.setdefault(tokenizer, Lock())


def _config_text(model: Any) -> str:
    """Without what changes when transformers is updated."""
    settings = model.config.to_diff_dict().items()
    return repr(sorted((key, value) for key, value in settings if key != "transformers_version"))


def _content_hash(model: Any) -> str:
    digest = hashlib.sha256(_config_text(model).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return f"sha256:{digest.hexdigest()}"
