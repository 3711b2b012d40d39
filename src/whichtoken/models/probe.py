"""The `Probe` of a real model: further evaluations that a method may request for its batch after the pass."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from whichtoken.core.perturb import Delete, Pattern, Perturbation, Remainders
from whichtoken.core.picks import Picks, track
from whichtoken.core.rows import Row
from whichtoken.core.trace import Derivative, Level, Needs, Site, Trace, needs
from whichtoken.errors import BadSetting, NoHeads, NoReferences, NotFinite, UnknownName, UsageError
from whichtoken.heads.mask import HeadMask
from whichtoken.models.capture import capture, embed
from whichtoken.models.encoding import Batch, batches, decode, extract_row
from whichtoken.models.logit_cache import LogitCache
from whichtoken.models.memory import halve_if_needed
from whichtoken.models.subject import Subject
from whichtoken.references.library import ReferenceLibrary

POINT_TOKENS = 1024  # in one pass over several points: enough to keep the processor busy


@dataclass
class Cost:
    """How many sequences were requested, including those that were already in the cache."""

    sequences: int = 0


@dataclass(frozen=True)
class ModelProbe:
    """A probe for one batch and what is picked of each of its rows."""

    subject: Subject
    batch: Batch
    picks: Picks
    perturbation: Perturbation = field(default_factory=Delete)
    removals: Mapping[str, Perturbation] = field(default_factory=dict)  # the task's, by name; the default is first
    segments: Sequence[Callable[[Level], Sequence[int]] | None] = ()  # for each row, which part each token belongs to
    cache: LogitCache | None = None  # shared with other probes; None: the probe's own
    # Builds a library from a method's own texts.
    library_of: Callable[[Subject, Sequence[Any]], ReferenceLibrary] | None = None
    memory: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # shared by parts of an answer
    cost: Cost = field(default_factory=Cost, init=False, repr=False, compare=False)

    # The sequence that remains of each row under each pattern, and the embeddings of the batch, computed once.
    _remaining: dict[tuple[int, bytes], Row] = field(default_factory=dict, init=False, repr=False, compare=False)
    _embedded: list[Tensor] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "subject", self.subject.with_twin())

    @cached_property
    def _own_cache(self) -> LogitCache:
        return self.cache or LogitCache(self.subject)

    def keep(self, patterns: Bool[Tensor, "batch n token"]) -> Float[Tensor, "batch n"]:
        """Evaluate each distinct remaining sequence once, in batches of similar length, without gradients."""
        if self.batch.pixels is not None:
            raise UsageError("patches of an image cannot be deleted like tokens of a text; use another method")
        patterns = patterns | self.picks.anchors(self.batch)[:, None]
        sequences = [self._remove(row, of_row) for row, of_row in enumerate(patterns)]
        self.cost.sequences += sum(len(set(of_row)) for of_row in sequences)
        picks = self._repeat_picks(patterns.shape[1])
        if self.perturbation.shortens:
            kept = patterns | self.batch.special[:, None] | ~self.batch.mask[:, None]
            picks = picks.after_removal(kept.flatten(0, 1))
        rows = [sequence for of_row in sequences for sequence in of_row]
        return self._own_cache.probability(rows, picks).view(patterns.shape[:2])

    def _repeat_picks(self, n: int) -> Picks:
        """Return the picks with each row repeated n times."""
        return self.picks.rows(torch.arange(len(self.batch.ids), device=self.batch.ids.device).repeat_interleave(n))

    def units(self, level: Level) -> Int[Tensor, "batch token"]:
        units = torch.full_like(self.batch.ids, -1)
        removable = self.batch.mask & ~self.batch.special & ~self.picks.anchors(self.batch)
        for row, length in enumerate(self.batch.mask.sum(-1).tolist()):
            segment = self.segments[row] if self.segments else None
            parts = torch.tensor(range(length) if segment is None else segment(level), device=units.device)
            free = removable[row, :length] & (parts >= 0)
            units[row, :length][free] = torch.unique(parts[free], return_inverse=True)[1]
        return units

    def spell(self, row: int, tokens: Sequence[int]) -> str | None:
        if self.batch.pixels is not None:
            return None
        return decode(self.subject.tokenizer, self.batch.ids[row, list(tokens)].tolist())

    def outputs(self, kept: Bool[Tensor, "batch n token"], how: str | None) -> Float[Tensor, "batch n"]:
        return self._own_cache.probability(*self._without(kept, how)).view(kept.shape[:2])

    def log_odds(self, kept: Bool[Tensor, "batch n token"], how: str | None) -> Float[Tensor, "batch n"]:
        return self._own_cache.log_odds(*self._without(kept, how)).view(kept.shape[:2])

    def _without(self, kept: Bool[Tensor, "batch n token"], how: str | None) -> tuple[Remainders, Picks]:
        """Return what remains of each row under each pattern, and what to read from it."""
        removal = self._find_removal(how)
        kept = kept | (self.batch.special | ~self.batch.mask | self.picks.anchors(self.batch))[:, None]
        rows, patterns, n = list[Row](), list[Pattern](), kept.shape[1]
        for row, of_row in enumerate(kept):
            tokens = of_row[:, self.batch.mask[row]].cpu().numpy()
            whole = extract_row(self.batch, row)
            self.cost.sequences += len({pattern.tobytes() for pattern in tokens if not pattern.all()})
            rows += [whole] * n
            patterns += list(tokens)
        picks = self._repeat_picks(n)
        if removal.shortens:
            picks = picks.after_removal(kept.flatten(0, 1))
        return Remainders(rows, patterns, removal, of_tokens=True), picks

    def _find_removal(self, how: str | None) -> Perturbation:
        """Return a removal by name, or (None) the task's own. The mapping itself refuses what does not suit a model."""
        if how is not None:
            if how not in self.removals:
                raise UnknownName("perturbation", how, self.removals)
            return self.removals[how]
        if self.batch.pixels is not None and not self.removals:
            raise UsageError("patches of an image cannot be deleted like tokens of a text; give the probe `removals`")
        return next(iter(self.removals.values()), self.perturbation)

    def keep_in_place(self, patterns: Bool[Tensor, "batch n token"]) -> Float[Tensor, "batch n"]:
        """Evaluate each distinct pattern once. Tokens are removed after the embeddings if only these encode positions,
        and otherwise hidden as keys. Special tokens and the read-out token stay.
        """
        read = self.picks.anchors(self.batch) | (self.picks.readout(self.batch) == 1)
        kept = patterns | self.batch.special[:, None] | read[:, None]
        kept &= self.batch.mask[:, None]
        return torch.stack([self._evaluate_in_place(row, of_row) for row, of_row in enumerate(kept)])

    def _evaluate_in_place(self, row: int, patterns: Bool[Tensor, "n token"]) -> Float[Tensor, " n"]:
        distinct, inverse = torch.unique(patterns[:, self.batch.mask[row]], dim=0, return_inverse=True)
        self.cost.sequences += len(distinct)
        cut = self.subject.architecture.positions_in_embeddings
        sizes = distinct.sum(-1) if cut else torch.full((len(distinct),), distinct.shape[1])
        dtype = torch.promote_types(self.subject.model.dtype, torch.float32)
        probabilities = torch.empty(len(distinct), dtype=dtype, device=self.subject.device)
        for size in sizes.unique().tolist():
            same = (sizes == size).nonzero()[:, 0]
            for group in batches([size] * len(same), self.subject.fits):
                probabilities[same[group]] = self._probability(row, distinct[same[group]], cut)
        return probabilities[inverse]

    def _probability(self, row: int, kept: Bool[Tensor, "n token"], cut: bool) -> Float[Tensor, " n"]:
        """Return the probability of patterns of one row; with `cut`, all must keep the same number of tokens."""
        n = len(kept)
        real = self.batch.mask[row].nonzero()[:, 0].expand(n, -1)
        if cut:
            tokens = real[kept].view(n, -1)
            logits = self.subject.logits(self.batch.repeat_row(row, tokens), self._embeddings()[row][tokens])
        else:
            logits = self.subject.logits(replace(self.batch.repeat_row(row, real), mask=kept))
        if not logits.isfinite().all():
            raise NotFinite(f"{self.subject.title} gives NaN or infinite logits for an input with tokens removed")
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        picks = self.picks.rows(torch.full((n,), row, device=kept.device))
        return track(picks.after_removal(kept) if cut else picks, wide)

    def _embeddings(self) -> Float[Tensor, "batch token dim"]:
        # Not a cached_property, which holds a lock in Python 3.11: other threads would wait for the end of this pass.
        if not self._embedded:
            self._embedded.append(self._embed(self.batch))
        return self._embedded[0]

    def _embed(self, batch: Batch) -> Float[Tensor, "batch token dim"]:
        return embed(self.subject, batch)

    def heads(self, given: HeadMask | None) -> HeadMask:
        mask = self.subject.heads if given is None else given
        if mask is None:
            raise NoHeads(self.subject.title)
        self.subject.check_heads(mask)
        return mask

    def distinct(self, patterns: Bool[Tensor, "batch n token"]) -> Int[Tensor, " batch"]:
        counts = [len(set(self._remove(row, of_row))) for row, of_row in enumerate(patterns)]
        return torch.tensor(counts, device=self.subject.device)

    def references(self, given: ReferenceLibrary | Sequence[Any] | None) -> ReferenceLibrary:
        library = self.subject.references if given is None else given
        if library is None:
            raise NoReferences(self.subject.title)
        if not isinstance(library, ReferenceLibrary):
            assert self.library_of is not None, "a method with its own reference texts needs library_of"
            return self.library_of(self.subject, library)
        self.subject.check_library(library)
        return library

    def blank(self, filler: Literal["pad", "mask"]) -> Float[Tensor, "batch token dim"]:
        token = self.subject.filler(filler)
        if token is None:
            raise BadSetting("baseline", filler, f"another value, such as 'zero': there is no {filler} token")
        kept = self.batch.special | ~self.batch.mask
        return self._embed(replace(self.batch, ids=torch.where(kept, self.batch.ids, token)))

    def trace(self, embeddings: Float[Tensor, "batch token dim"] | None, needs: Needs) -> Trace:
        self.cost.sequences += len(self.batch.ids)
        return capture(self.subject, self.batch, lambda logits: self.picks, needs, embeddings)

    def differentiate(self, points: Iterable[Float[Tensor, "batch token dim"]]) -> Iterator[Derivative]:
        rows, tokens = self.batch.ids.shape
        most = max(1, POINT_TOKENS // (rows * tokens))
        while most > 1 and not self.subject.fits_rows(most * rows):
            most -= 1
        rest = iter(points)
        while group := list(islice(rest, most)):
            self.cost.sequences += len(group) * rows
            yield from halve_if_needed(self._differentiate_together, group)

    def _differentiate_together(self, points: Sequence[Float[Tensor, "batch token dim"]]) -> list[Derivative]:
        n, batch, sites = len(points), self.batch, needs("", "embeddings")
        picks = self.picks.rows(torch.arange(len(batch.ids), device=batch.ids.device).repeat(n))
        trace = capture(self.subject, batch.repeat(n), lambda logits: picks, sites, torch.cat(list(points)))
        return list(map(Derivative, trace.target.chunk(n), trace.grad(Site.EMBEDDINGS)[0].chunk(n)))

    def _remove(self, row: int, patterns: Bool[Tensor, "n token"]) -> list[Row]:
        """Return the sequence that remains under each pattern."""
        whole, real = extract_row(self.batch, row), self.batch.mask[row]
        kept = (patterns | self.batch.special[row])[:, real].cpu().numpy()
        keys = [(row, pattern.tobytes()) for pattern in kept]
        for key, pattern in zip(keys, kept, strict=True):
            if key not in self._remaining:
                self._remaining[key] = self.perturbation(whole, pattern)
        return [self._remaining[key] for key in keys]
