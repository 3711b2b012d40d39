"""ReferenceLibrary: for each class of one model, activations of texts that hardly activate it."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from jaxtyping import Float, Int
from torch import Tensor

from whichtoken.errors import BadSetting, LibraryMismatch, UsageError
from whichtoken.references.packing import Activations, Packed
from whichtoken.references.recipe import Recipe


@dataclass(frozen=True)
class Reference:
    """One text, as far as it is kept beside its activations."""

    probability: float  # of the class that it is a reference for
    n_tokens: int  # special tokens included
    source: str  # the label that the model gives it
    sha256: str  # of the text
    text: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False)
class ReferenceLibrary:
    """Made by `references.build` for one model. Each class has references, the best first, and their activations."""

    model: str
    revision: str  # the fingerprint of the model
    n_layers: int  # blocks of the model
    labels: tuple[str, ...]
    layers: tuple[int, ...]  # which hidden states are held: 0 is what the first block reads
    recipe: Recipe
    n_scanned: int  # texts of the corpus that were looked at
    n_short: int  # of which this many were too short
    n_labelled: int  # for how many the right class was known
    n_wrong: int  # of which this many were classified wrongly and left out
    references: tuple[tuple[Reference, ...], ...] = field(repr=False)  # for each label
    packed: tuple[Packed | None, ...] = field(repr=False)  # None where a class has no reference

    @property
    def digest(self) -> str:
        """Names the library in results: of everything but the activations, which follow from it."""
        written = json.dumps([asdict(self.recipe), self.revision, self.layers, _plain(self.references)])
        return hashlib.sha256(written.encode()).hexdigest()[:12]

    def __str__(self) -> str:
        return f"library {self.digest}"

    def check_model(self, title: str, revision: str, n_layers: int, n_labels: int) -> None:
        made = f"this reference library was made for {self.model}"
        fix = "build one for this model: wt.references.build(subject, texts)"
        if n_layers != self.n_layers:
            raise LibraryMismatch(f"{made} with {self.n_layers} layers; {title} has {n_layers}; {fix}")
        if n_labels != len(self.labels):
            raise LibraryMismatch(f"{made} with {len(self.labels)} labels; {title} has {n_labels}; {fix}")
        if revision != self.revision:
            found = f"{title}, revision {revision[:20]}"
            raise LibraryMismatch(
                f"{made}, revision {self.revision[:20]}; found {found} (weights, configuration and dtype count); {fix}"
            )

    def of(self, label: int) -> tuple[Reference, ...]:
        """The references of one class, of which there must be one."""
        if not self.references[label]:
            wanted = "this" if self.recipe.rule == "same-class" else "another"
            scanned = f"{self.n_scanned} texts scanned, {self.n_short} too short, {self._judged()}"
            raise UsageError(
                f"the reference library has no reference for class {self.labels[label]!r}: no text that could be used "
                f"is predicted as {wanted} class ({scanned}). Build it from more texts of {wanted} class, scan "
                "further (scan='all'), or allow wrongly classified ones (correct_only=False)"
            )
        return self.references[label]

    def read(self, label: int, layers: slice, n: int | None, n_tokens: int, like: Tensor) -> Activations:
        """The first `n` references of a class, the hidden states `layers`, cut or padded with zeros to `n_tokens`."""
        wanted = range(self.n_layers + 1)[layers]
        if not set(wanted) <= set(self.layers):
            held = f"hidden states {self.layers[0]} to {self.layers[-1]}"
            raise LibraryMismatch(
                f"this reference library holds {held}, the method reads {wanted[0]} to {wanted[-1]}; "
                "build it with layers='all', or give the method the `layers` that it was built with"
            )
        start = self.layers.index(wanted[0])
        packed = self.packed[label]
        assert packed is not None, "asked for a class without references; call `of` first"
        return packed.read(slice(n), slice(start, start + len(wanted)), n_tokens, like)

    def answered(self, label: int, span: Int[Tensor, "batch 2"]) -> Float[Tensor, "batch reference"]:
        """The probability that each reference's answer starts and ends where each of these does; 0 beyond its end."""
        packed = self.packed[label]
        if packed is None or packed.answers is None:
            raise LibraryMismatch("this reference library was not made of questions; build one of them")
        held = packed.answers.to(span.device)
        n_tokens = held.shape[-1]
        sides = [held[:, side, place.clamp(max=n_tokens - 1)] * (place < n_tokens) for side, place in enumerate(span.T)]
        both: Tensor = sides[0] * sides[1]
        return both.T

    def subset(self, n: int) -> "ReferenceLibrary":
        """The first `n` references of each class."""
        if not isinstance(n, int) or n < 1:
            raise BadSetting("n", n, "at least 1")
        kept = tuple(found[:n] for found in self.references)
        packed = tuple(None if p is None else _first(p, k) for p, k in zip(self.packed, kept, strict=True))
        return replace(self, recipe=replace(self.recipe, n=min(n, self.recipe.n)), references=kept, packed=packed)

    @property
    def n_bytes(self) -> int:
        """Of the activations."""
        return sum(p.n_bytes for p in self.packed if p is not None)

    def summary(self) -> str:
        """A table for people: for each class how many references, how little they activate it, how long they are."""
        recipe = self.recipe
        layers = f"{self.layers[0]} to {self.layers[-1]} of {self.n_layers + 1}"
        head = [
            f"reference library {self.digest} for {self.model}",
            f"rule {recipe.rule}, gamma {recipe.gamma:g}, {recipe.n} wanted per class; {self.n_scanned} texts scanned, "
            f"{self.n_short} too short (under {recipe.min_tokens} tokens), {self._judged()}",
            f"hidden states {layers}, {self._held()}, {self.n_bytes:,} bytes",
        ]
        rows = [("class", "references", "p of the class", "p < gamma", "tokens", "from")]
        rows += [self._row(label) for label in range(len(self.labels))]
        widths = [max(len(row[i]) for row in rows) for i in range(6)]
        lines = [
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        return "\n".join([*head, *lines])

    def _judged(self) -> str:
        return (
            f"{self.n_wrong} of {self.n_labelled} classified wrongly" if self.n_labelled else "right labels not known"
        )

    def _held(self) -> str:
        return self.recipe.dtype if self.recipe.compress == "none" else self.recipe.compress

    def _row(self, label: int) -> tuple[str, str, str, str, str, str]:
        found = self.references[label]
        if not found:
            return (self.labels[label], "0", "-", "-", "-", "-")
        p, lengths = [r.probability for r in found], [r.n_tokens for r in found]
        few = sum(value < self.recipe.gamma for value in p)
        sources = {source: sum(r.source == source for r in found) for source in sorted({r.source for r in found})}
        packed = self.packed[label]
        by_place = packed is not None and packed.answers is not None
        filled = self.recipe.rule == "gamma" and few < len(found)
        fitting = "seen to for each answer" if by_place else f"{few}, filled with the lowest" if filled else str(few)
        return (
            self.labels[label],
            str(len(found)),
            f"{min(p):.2g} to {max(p):.2g}",
            fitting,
            f"{min(lengths)} to {max(lengths)}",
            ", ".join(f"{count} {source}" for source, count in sources.items()),
        )


def _first(packed: Packed, kept: Sequence[Reference]) -> Packed:
    longest = max(r.n_tokens for r in kept)
    parts = packed.tensors.items()
    return Packed({role: tensor if role == "scales" else tensor[: len(kept), :, :longest] for role, tensor in parts})


def _plain(references: Sequence[Sequence[Reference]]) -> list[list[tuple[float, int, str]]]:
    return [[(r.probability, r.n_tokens, r.sha256) for r in found] for found in references]
