"""The questions a method may ask about its batch after the pass: `Probe` of a real model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from whichtoken.core.objectives import AnyGoal, SpanGoal
from whichtoken.core.perturb import Delete, Mask, Pad, Perturbation
from whichtoken.core.trace import Needs, Site, Trace, needs
from whichtoken.errors import BadSetting, NoHeads, NoReferences, NotFinite, UsageError
from whichtoken.heads import HeadMask
from whichtoken.models.capture import capture
from whichtoken.models.encoding import Batch, Row, batches
from whichtoken.models.logit_cache import Answers
from whichtoken.models.subject import Subject
from whichtoken.references import ReferenceLibrary


@dataclass
class Cost:
    """How many sequences were asked about, as if nobody else had asked about them."""

    sequences: int = 0


@dataclass(frozen=True)
class ModelProbe:
    """Bound to a batch and to what is explained of each of its rows."""

    subject: Subject
    batch: Batch
    goal: AnyGoal
    perturbation: Perturbation = field(default_factory=Delete)
    answers: Answers | None = None  # to share with other probes; by default the probe's own
    library_of: Callable[[Subject, Sequence[Any]], ReferenceLibrary] | None = None  # makes one of a method's own texts
    cost: Cost = field(default_factory=Cost, init=False, repr=False, compare=False)

    # Which sequence each pattern of each row leaves, worked out once.
    _left_by: dict[tuple[int, bytes], Row] = field(default_factory=dict, init=False, repr=False, compare=False)
    _own: Answers = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_own", self.answers or Answers(self.subject))

    def keep(self, patterns: Bool[Tensor, "batch n token"]) -> Float[Tensor, "batch n"]:
        """Each distinct remaining sequence is evaluated once, in batches of similar length, without gradients."""
        if self.batch.pixels is not None:
            raise UsageError("patches of an image cannot be deleted as tokens of a text can; use another method")
        if isinstance(self.goal, SpanGoal):
            patterns = patterns | self._ends[:, None]
        asked = [self._asked(row, of_row) for row, of_row in enumerate(patterns)]
        self.cost.sequences += sum(len(set(of_row)) for of_row in asked)
        if isinstance(self.goal, SpanGoal):
            return torch.stack([self._of_answer(row, of_row, patterns[row]) for row, of_row in enumerate(asked)])
        logits = self._own([sequence for of_row in asked for sequence in of_row])
        owners = torch.arange(len(asked), device=logits.device).repeat_interleave(patterns.shape[1])
        return self.goal.rows(owners).probability(logits, self.subject.link).view(patterns.shape[:2])

    @property
    def _ends(self) -> Bool[Tensor, "batch token"]:
        """The tokens of an answer's ends, which stay: without them there is nothing to ask about."""
        return self.subject.readout(self.batch, self.goal) > 0

    def _of_answer(self, row: int, left: Sequence[Row], patterns: Bool[Tensor, "n token"]) -> Float[Tensor, " n"]:
        """The probability of the answer, which moves when tokens before it are deleted."""
        kept = (patterns | self.batch.special[row])[:, self.batch.mask[row]]
        whole = torch.tensor([len(sequence.ids) == kept.shape[1] for sequence in left], device=kept.device)
        goal = self._goal_of(row, kept | whole[:, None])  # tokens that were replaced, not deleted, move nothing
        each = [
            goal.rows(torch.tensor([i], device=kept.device)).probability(logits[None], self.subject.link)
            for i, logits in enumerate(self._own.each(left))
        ]
        return torch.cat(each)

    def _goal_of(self, row: int, kept: Bool[Tensor, "n token"]) -> AnyGoal:
        """What is explained of a row, of which only some tokens are left."""
        goal = self.goal.rows(torch.full((len(kept),), row, device=kept.device))
        if not isinstance(goal, SpanGoal):
            return goal
        moved = kept.cumsum(-1) - 1
        start, end = (moved.gather(1, place[:, None])[:, 0] for place in (goal.start, goal.end))
        return SpanGoal(start, end, goal.part)

    def keep_in_place(self, patterns: Bool[Tensor, "batch n token"]) -> Float[Tensor, "batch n"]:
        """Each distinct pattern is evaluated once: tokens are cut out behind the embeddings, where these hold all that
        the model knows of positions, and else hidden as keys. Special tokens and the one that is read out stay.
        """
        read = self._ends if isinstance(self.goal, SpanGoal) else self.subject.readout(self.batch) == 1
        kept = patterns | self.batch.special[:, None] | read[:, None]
        kept &= self.batch.mask[:, None]
        found = [self._in_place(row, of_row) for row, of_row in enumerate(kept)]
        return torch.stack(found)

    def _in_place(self, row: int, patterns: Bool[Tensor, "n token"]) -> Float[Tensor, " n"]:
        distinct, places = torch.unique(patterns[:, self.batch.mask[row]], dim=0, return_inverse=True)
        self.cost.sequences += len(distinct)
        cut = self.subject.architecture.positions_in_embeddings
        sizes = distinct.sum(-1) if cut else torch.full((len(distinct),), distinct.shape[1])
        dtype = torch.promote_types(self.subject.model.dtype, torch.float32)
        answers = torch.empty(len(distinct), dtype=dtype, device=self.subject.device)
        for size in sizes.unique().tolist():
            same = (sizes == size).nonzero()[:, 0]
            for group in batches([size] * len(same), self.subject.fits):
                answers[same[group]] = self._probability(row, distinct[same[group]], cut)
        return answers[places]

    def _probability(self, row: int, kept: Bool[Tensor, "n token"], cut: bool) -> Float[Tensor, " n"]:
        """Of patterns of one row that keep equally many tokens (`cut`), or any number."""
        n = len(kept)
        real = self.batch.mask[row].nonzero()[:, 0].expand(n, -1)
        if cut:
            tokens = real[kept].view(n, -1)
            logits = self.subject.logits(self.batch.copies(row, tokens), self._embeddings[row][tokens])
        else:
            logits = self.subject.logits(replace(self.batch.copies(row, real), mask=kept))
        if not logits.isfinite().all():
            raise NotFinite(f"{self.subject.title} gives NaN or infinite logits for a text with tokens taken out")
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        goal = self._goal_of(row, kept if cut else torch.ones_like(kept))
        return goal.probability(wide, self.subject.link)

    @cached_property
    def _embeddings(self) -> Float[Tensor, "batch token dim"]:
        return capture(self.subject, self.batch, lambda logits: self.goal, needs("embeddings")).value(Site.EMBEDDINGS)[
            0
        ]

    def heads(self, given: HeadMask | None) -> HeadMask:
        mask = self.subject.heads if given is None else given
        if mask is None:
            raise NoHeads(self.subject.title)
        self.subject.check_heads(mask)
        return mask

    def distinct(self, patterns: Bool[Tensor, "batch n token"]) -> Int[Tensor, " batch"]:
        counts = [len(set(self._asked(row, of_row))) for row, of_row in enumerate(patterns)]
        return torch.tensor(counts, device=self.subject.device)

    def references(self, given: ReferenceLibrary | Sequence[Any] | None) -> ReferenceLibrary:
        library = self.subject.references if given is None else given
        if library is None:
            raise NoReferences(self.subject.title)
        if not isinstance(library, ReferenceLibrary):
            assert self.library_of is not None, "whoever lets methods bring texts says how a library is made of them"
            return self.library_of(self.subject, library)
        self.subject.check_library(library)
        return library

    def blank(self, filler: Literal["pad", "mask"]) -> Float[Tensor, "batch token dim"]:
        if getattr(self.subject.fillers, filler) is None:
            raise BadSetting("baseline", filler, f"another one, such as 'zero': there is no {filler} token")
        kept = self.batch.special | ~self.batch.mask
        replace_words = Mask() if filler == "mask" else Pad()
        rows = zip(self.batch.ids, kept, strict=True)
        ids = torch.stack([replace_words(row, keep, self.subject.fillers)[0] for row, keep in rows])
        blank = capture(self.subject, replace(self.batch, ids=ids), lambda logits: self.goal, needs("embeddings"))
        return blank.value(Site.EMBEDDINGS)[0]

    def trace(self, embeddings: Float[Tensor, "batch token dim"] | None, needs: Needs) -> Trace:
        self.cost.sequences += len(self.batch.ids)
        return capture(self.subject, self.batch, lambda logits: self.goal, needs, embeddings)

    def _asked(self, row: int, patterns: Bool[Tensor, "n token"]) -> list[Row]:
        """What each pattern leaves; worked out once for each."""
        names = [(row, pattern.tobytes()) for pattern in patterns.cpu().numpy()]
        for name, pattern in zip(names, patterns, strict=True):
            if name not in self._left_by:
                self._left_by[name] = self._left(row, pattern)
        return [self._left_by[name] for name in names]

    def _left(self, row: int, pattern: Tensor) -> Row:
        """What the model sees of a row when a pattern is kept."""
        real = self.batch.mask[row]
        ids, special = self.batch.ids[row][real], self.batch.special[row][real]
        left, origin = self.perturbation(ids, pattern[real] | special, self.subject.fillers)
        return Row(
            ids=tuple(left.tolist()) or (self._nothing(),),
            types=tuple(self.batch.types[row][origin].tolist()) or (0,),
            special=tuple(special[origin].tolist()) or (True,),
        )

    def _nothing(self) -> int:
        """What stands for an empty sequence where the tokenizer adds no special tokens (GPT-2)."""
        tokenizer = self.subject.tokenizer
        stand_ins = (
            tokenizer.bos_token_id,
            tokenizer.eos_token_id,
            tokenizer.pad_token_id,
            tokenizer.unk_token_id,
        )
        return next((token for token in stand_ins if token is not None), 0)
