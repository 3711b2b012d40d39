"""A task in one file: how long a model says that a text is, by a regression head. CONTRIBUTING.md explains it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from whichtoken.core.perturb import Perturbation
from whichtoken.core.picks import Link, Picks, pick_labels
from whichtoken.data.examples import read_examples
from whichtoken.models import Document, Subject, window_row
from whichtoken.records import Attribution
from whichtoken.tasks import BenchInput, Opened, Piece, ScoredPiece, Task, Unit, texts


@dataclass(frozen=True)
class PredictedLength(Task):
    subject: Subject

    name: ClassVar[str] = "length"
    unit: ClassVar[str] = "text"
    purpose: ClassVar[str] = "predicts the length of texts"

    @classmethod
    def accepts(cls, subject: Subject) -> bool:
        return bool(subject.model.config.problem_type == "regression")

    def encode(self, inputs: Sequence[Any], long: Any, first: int) -> list[Document]:
        return self.subject.encode(inputs, "truncate", first)

    def pieces(self, documents: Sequence[Document], target: Any, first: int) -> list[Piece]:
        return [Piece(index, window_row(one, one.windows[0])) for index, one in enumerate(documents, first)]

    def picks(self, pieces: Sequence[Piece], logits: Tensor) -> Picks:
        return self._pick(len(pieces))

    def _pick(self, n: int) -> Picks:
        """The only output of the head, read from the pooled position; tracked between 0 and 1."""
        only = torch.zeros(n, dtype=torch.long, device=self.subject.device)
        return pick_labels(only, None, Link.SIGMOID, self.subject.readout)

    def record(
        self, document: Document, parts: Sequence[ScoredPiece], key: str, origin: Mapping[str, Any]
    ) -> Attribution:
        return texts.text_record(document, parts[0], key, "length", origin)

    def removals(self) -> Mapping[str, Perturbation]:
        return texts.Removals(self.subject)

    def reopen(self, record: Attribution, item: Any = None) -> Opened:
        return texts.reopen_text(self.subject, record, self._pick(1))

    def units(self, record: Attribution, level: str) -> list[Unit]:
        return texts.units(record, level)

    def n_tokens(self, document: Document) -> int:
        return len(document.windows[0])

    def examples(self, source: Any, labels: Any, columns: Any) -> Iterator[BenchInput]:
        return (BenchInput(found.texts, found.label, found.where) for found in read_examples(source, labels, columns))
