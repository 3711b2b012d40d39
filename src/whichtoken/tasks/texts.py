"""Shared code of the text tasks: documents, windows, and removable words."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, get_args

from whichtoken.core.perturb import Delete, Perturbation, Replace
from whichtoken.core.picks import Picks
from whichtoken.core.trace import Level
from whichtoken.errors import BadSetting, UnsupportedModel, UsageError
from whichtoken.models import Document, LongTexts, Subject, window_row
from whichtoken.models.architectures import Readout
from whichtoken.records import Attribution
from whichtoken.sentences import sentence_groups
from whichtoken.tasks.task import Opened, Piece, ScoredPiece, Unit
from whichtoken.words import word_groups

LEVELS = ("token", "word")


def check_long(long: str | None) -> None:
    if long is not None and long not in get_args(LongTexts):
        raise BadSetting("long", long, f"one of {', '.join(get_args(LongTexts))}")


def token_fields(document: Document, positions: Sequence[int]) -> dict[str, Any]:
    """Return the fields of a record that describe its tokens."""
    names = ("tokens", "spans", "sequences", "word_ids")
    fields = {name: tuple(getattr(document, name)[i] for i in positions) for name in names}
    control = list_control_tokens(fields["tokens"], [document.control[i] for i in positions])
    unknown = sum(document.unknown[i] for i in positions)
    return {"texts": document.texts, "n_unknown": unknown, "control_tokens": control, **fields}


def list_control_tokens(tokens: Sequence[str], control: Sequence[bool]) -> tuple[str, ...]:
    """Return each special token that is in the texts, once."""
    return tuple(dict.fromkeys(token for token, is_control in zip(tokens, control, strict=True) if is_control))


class Removals(Mapping[str, Perturbation]):
    """The removals delete, mask and pad. UnsupportedModel says why a model does not have one of them."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def __getitem__(self, name: str) -> Perturbation:
        if name == "delete":
            return Delete()
        if name not in ("mask", "pad"):
            raise KeyError(name)
        filler = self._subject.filler(name)
        if filler is None:
            title = self._subject.title
            raise UnsupportedModel(f"{title} has no {name} token to replace words with; use the perturbation 'delete'")
        if name == "pad":
            self._check_padding()
        return Replace(name, filler)

    def __iter__(self) -> Iterator[str]:
        return iter(("delete", "mask", "pad"))

    def __len__(self) -> int:
        return 3

    def _check_padding(self) -> None:
        """Raise UnsupportedModel for RoBERTa, XLM-R and MPNet, which detect padding by its id, and for decoders."""
        subject = self._subject
        by_position = subject.architecture.positions_after_padding
        if by_position or subject.architecture.readout(subject.model) is Readout.LAST:
            does = "gives padding no position" if by_position else "reads the last token that is not padding"
            raise UnsupportedModel(
                f"{subject.title}: {subject.model.config.model_type} {does}, so padding is not a neutral replacement "
                "in this model; use the perturbation 'mask' or 'delete'"
            )


def make_piece(index: int, document: Document, window: Sequence[int], goal: Any = None, part: int = 0) -> Piece:
    """Return the piece of one window of a document."""
    return Piece(index, window_row(document, window), goal, part, partial(segment, document, window))


def segment(document: Document, window: Sequence[int], level: Level) -> list[int]:
    """Return which word, sentence or token each token of a window belongs to; -1 at special tokens."""
    fields = token_fields(document, window)
    texts, spans, sequences, word_ids = (fields[name] for name in ("texts", "spans", "sequences", "word_ids"))
    groups: tuple[tuple[int, ...], ...] = tuple((i,) for i, sequence in enumerate(sequences) if sequence is not None)
    if level == "word":
        groups = word_groups(texts, spans, sequences, word_ids)
    elif level == "sentence":
        groups = sentence_groups(texts, spans, sequences)
    parts = [-1] * len(window)
    for number, group in enumerate(groups):
        for position in group:
            parts[position] = number
    return parts


def text_record(document: Document, part: ScoredPiece, key: str, label: str, origin: Mapping[str, Any]) -> Attribution:
    """Return the record of a document that was explained in one piece, its first window."""
    scored = part.scored[key]
    return Attribution(
        scores=scored.scores,
        target=part.target,
        label=label,
        probability=part.probability,
        n_cut=document.n_cut,
        n_windows=1,
        details=scored.details,
        layers=scored.layers,
        confidence=scored.confidence,
        seconds=scored.seconds,
        evaluations=scored.evaluations,
        **token_fields(document, document.windows[0]),
        **origin,
    )


def find_window(document: Document, record: Attribution, title: str) -> tuple[int, ...]:
    """Return the window of a document whose tokens and spans are those of a record; UsageError if none matches."""
    for window in document.windows:
        fields = token_fields(document, window)
        if (record.tokens, record.spans) == (fields["tokens"], fields["spans"]):
            return window
    raise UsageError(
        f"this attribution's tokens are not those that {title} reads in one pass; explain with this model, and without "
        "windows"
    )


def reopen_text(subject: Subject, record: Attribution, picks: Picks) -> Opened:
    """Reopen a record's text; UsageError unless this model reads it whole or truncates it at the same token."""
    (document,) = subject.encode([record.texts])
    return open_window(record, find_window(document, record, subject.title), document, picks)


def open_window(record: Attribution, window: tuple[int, ...], document: Document, picks: Picks) -> Opened:
    row = window_row(document, window)
    key = hashlib.sha256("\0".join(record.texts).encode()).hexdigest()[:16]
    n_fixed = sum(sequence is None for sequence in record.sequences)
    return Opened(row, picks, key, len(row), n_fixed)


def units(record: Attribution, level: str) -> list[Unit]:
    """Return the content tokens, or the words (a word's score is the sum over its tokens)."""
    if level == "word":
        groups = word_groups(record.texts, record.spans, record.sequences, record.word_ids)
    else:
        groups = tuple((i,) for i, sequence in enumerate(record.sequences) if sequence is not None)
    return [Unit(group, sum(record.scores[i] for i in group), group) for group in groups]
