"""ReferenceLibrary: for each class of one model, the activations of texts to which it assigns a low probability."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from jaxtyping import Float, Int
from torch import Tensor

from whichtoken.errors import BadSetting, LibraryMismatch, UsageError
from whichtoken.identity import Identity
from whichtoken.references.packing import Activations, Packed
from whichtoken.references.recipe import Recipe


@dataclass(frozen=True)
class Reference:
    """What a library stores about one reference text, besides its activations."""

    probability: float  # of the class that it is a reference for
    n_tokens: int  # special tokens included
    source: str  # the label that the model predicts
    sha256: str  # of the text
    text: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False)
class ReferenceLibrary:
    """The references of each class, best first, and their activations; built by `references.build` for one model."""

    model: str
    revision: str  # see Identity
    n_layers: int  # blocks of the model
    labels: tuple[str, ...]
    layers: tuple[int, ...]  # which hidden states are stored; 0 is the input of the first block
    recipe: Recipe
    n_scanned: int  # texts of the corpus that were scanned
    n_short: int  # scanned texts that were too short
    n_labelled: int  # texts whose label was known
    n_wrong: int  # labelled texts that were misclassified and skipped
    references: tuple[tuple[Reference, ...], ...] = field(repr=False)  # for each label
    packed: tuple[Packed | None, ...] = field(repr=False)  # None for a class without references
    processor: str = ""  # see Identity

    @property
    def digest(self) -> str:
        """A hash that identifies the library in results; it covers everything but the activations, which follow."""
        description = json.dumps([asdict(self.recipe), self.revision, self.layers, _plain(self.references)])
        return hashlib.sha256(description.encode()).hexdigest()[:12]

    @property
    def identity(self) -> Identity:
        """The model that it was built for."""
        return Identity(self.revision, self.processor)

    def __str__(self) -> str:
        return f"library {self.digest}{self.identity.note}"

    def check_model(self, title: str, identity: Identity, n_layers: int, n_labels: int) -> None:
        built = f"this reference library was built for {self.model}"
        fix = "build one for this model: wt.references.build(subject, texts)"
        if n_layers != self.n_layers:
            raise LibraryMismatch(f"{built} with {self.n_layers} layers; {title} has {n_layers}; {fix}")
        if n_labels != len(self.labels):
            raise LibraryMismatch(f"{built} with {len(self.labels)} labels; {title} has {n_labels}; {fix}")
        if change := self.identity.describe_change(title, identity):
            raise LibraryMismatch(f"{built}, {change}; {fix}")

    def of(self, label: int) -> tuple[Reference, ...]:
        """Return the references of one class; UsageError if there are none."""
        if not self.references[label]:
            needed = "this" if self.recipe.rule == "same-class" else "another"
            scanned = f"{self.n_scanned} texts scanned, {self.n_short} too short, {self._label_summary()}"
            raise UsageError(
                f"the reference library has no reference for class {self.labels[label]!r}: no usable text is "
                f"predicted as {needed} class ({scanned}). Build it from more texts of {needed} class, scan further "
                "(scan='all'), or allow misclassified texts (correct_only=False)"
            )
        return self.references[label]

    def read(self, label: int, layers: slice, n: int | None, n_tokens: int, like: Tensor) -> Activations:
        """Read the first `n` references of a class: hidden states `layers`, truncated or zero-padded to `n_tokens`."""
        packed, stored = self._locate(label, layers)
        return packed.read(slice(n), stored, n_tokens, like)

    def contract(
        self, label: int, layers: slice, n: int, weights: Float[Tensor, "layer token dim"]
    ) -> Float[Tensor, "reference layer token"]:
        """Return the sums of weights x activations over dimensions, for each of the first `n` references of a class."""
        packed, stored = self._locate(label, layers)
        return packed.contract(slice(n), stored, weights)

    def _locate(self, label: int, layers: slice) -> tuple[Packed, slice]:
        """Return the activations of a class, and where they have these hidden states."""
        requested = range(self.n_layers + 1)[layers]
        if not set(requested) <= set(self.layers):
            built = repr(self.recipe.layers)
            stored = f"hidden states {self.layers[0]} to {self.layers[-1]} (layers={built})"
            raise LibraryMismatch(
                f"this reference library has {stored}, but the method reads {requested[0]} to {requested[-1]}; build "
                "it again with all of them: whichtoken references build TEXTS.csv --model MODEL --out FOLDER; or set "
                f"the method's layers to {built}"
            )
        start = self.layers.index(requested[0])
        packed = self.packed[label]
        assert packed is not None, "a class without references; call `of` first"
        return packed, slice(start, start + len(requested))

    def answer_probabilities(self, label: int, span: Int[Tensor, "batch 2"]) -> Float[Tensor, "batch reference"]:
        """Return the probability that each reference's answer is at each span; 0 beyond the reference's end."""
        packed = self.packed[label]
        if packed is None or packed.answers is None:
            raise LibraryMismatch(
                "this reference library was not built from questions; build one from pairs of question and context"
            )
        answers = packed.answers.to(span.device)
        n_tokens = answers.shape[-1]
        sides = [
            answers[:, side, position.clamp(max=n_tokens - 1)] * (position < n_tokens)
            for side, position in enumerate(span.T)
        ]
        both: Tensor = sides[0] * sides[1]
        return both.T

    def subset(self, n: int) -> "ReferenceLibrary":
        """Return a library with the first `n` references of each class."""
        if not isinstance(n, int) or n < 1:
            raise BadSetting("n", n, "at least 1")
        kept = tuple(references[:n] for references in self.references)
        packed = tuple(None if p is None else _select_first(p, k) for p, k in zip(self.packed, kept, strict=True))
        return replace(self, recipe=replace(self.recipe, n=min(n, self.recipe.n)), references=kept, packed=packed)

    @property
    def n_bytes(self) -> int:
        """The size of the activations."""
        return sum(p.n_bytes for p in self.packed if p is not None)

    def summary(self) -> str:
        """Return a readable table: for each class the number of references, their probabilities and their lengths."""
        recipe = self.recipe
        layers = f"{self.layers[0]} to {self.layers[-1]} of {self.n_layers + 1}"
        head = [
            f"reference library {self.digest} for {self.model}{self.identity.note}",
            f"rule {recipe.rule}, gamma {recipe.gamma:g}, {recipe.n} requested per class; {self.n_scanned} texts "
            f"scanned, {self.n_short} too short (under {recipe.min_tokens} tokens), {self._label_summary()}",
            f"hidden states {layers}, {self._storage_format()}, {self.n_bytes:,} bytes",
        ]
        rows = [("class", "references", "p of the class", "p < gamma", "tokens", "from")]
        rows += [self._row(label) for label in range(len(self.labels))]
        widths = [max(len(row[i]) for row in rows) for i in range(6)]
        lines = [
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        return "\n".join([*head, *lines])

    def _label_summary(self) -> str:
        return f"{self.n_wrong} of {self.n_labelled} misclassified" if self.n_labelled else "labels unknown"

    def _storage_format(self) -> str:
        return self.recipe.dtype if self.recipe.compress == "none" else self.recipe.compress

    def _row(self, label: int) -> tuple[str, str, str, str, str, str]:
        references = self.references[label]
        if not references:
            return (self.labels[label], "0", "-", "-", "-", "-")
        p, lengths = [r.probability for r in references], [r.n_tokens for r in references]
        n_low = sum(value < self.recipe.gamma for value in p)
        sources = {
            source: sum(r.source == source for r in references) for source in sorted({r.source for r in references})
        }
        packed = self.packed[label]
        per_answer = packed is not None and packed.answers is not None
        filled = self.recipe.rule == "gamma" and n_low < len(references)
        fitting = (
            "checked for each answer" if per_answer else f"{n_low}, filled with the lowest" if filled else str(n_low)
        )
        return (
            self.labels[label],
            str(len(references)),
            f"{min(p):.2g} to {max(p):.2g}",
            fitting,
            f"{min(lengths)} to {max(lengths)}",
            ", ".join(f"{count} {source}" for source, count in sources.items()),
        )


def _select_first(packed: Packed, kept: Sequence[Reference]) -> Packed:
    longest = max(r.n_tokens for r in kept)
    parts = packed.tensors.items()
    return Packed({role: tensor if role == "scales" else tensor[: len(kept), :, :longest] for role, tensor in parts})


def _plain(references: Sequence[Sequence[Reference]]) -> list[list[tuple[float, int, str]]]:
    return [[(r.probability, r.n_tokens, r.sha256) for r in group] for group in references]
