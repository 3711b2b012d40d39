"""External scores (Captum, SHAP, Inseq ...), read from JSON lines and aligned with the model's tokens.

A line is {"text": ..., "method": ..., "scores": [...]} with either "tokens": [...], exactly the tokenizer's output with
or without special tokens, or "spans": [[start, end], ...], character offsets; a token then gets the score of the span
that contains its first letter. A pair has "texts": [a, b] and, with spans, "sequences": [0, 0, 1, ...]. "label", if
present, must be the class that is measured. Output of `explain --out x.jsonl` works unchanged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from whichtoken.boundary import while_reading
from whichtoken.data.examples import check_texts
from whichtoken.data.files import read_file_rows
from whichtoken.decode import fits
from whichtoken.errors import BadInput, WhichTokenError
from whichtoken.identity import Identity
from whichtoken.models import Document
from whichtoken.tasks import Task

InputKey = tuple[str, ...]


@dataclass(frozen=True)
class ExternalScores:
    scores: tuple[float, ...]  # one per token of the model; 0 at special tokens without a score
    where: str  # file and line, for error messages
    label: str | None = None
    tuned_on_deletion: bool = False
    made_by: Identity | None = None  # if the file says so


External = Mapping[InputKey, Mapping[str, ExternalScores]]


def key_of(item: Any) -> InputKey:
    """Return the key of an input in such a file: its texts."""
    return tuple(item) if isinstance(item, tuple | list) else (str(item),)


def read_external_scores(path: Path, task: Task) -> dict[InputKey, dict[str, ExternalScores]]:
    """Return the scores by text and method; BadInput names the file and line."""
    external: dict[InputKey, dict[str, ExternalScores]] = {}
    for number, row in read_file_rows(path):
        where = f"{path}, line {number}"
        with while_reading(where, BadInput):
            texts, name = _read_names(row, where)
        if name in external.setdefault(texts, {}):
            raise BadInput(f"{where}: {name} has already scored this text; give each text once per method")
        document = _encode(task, texts, where)
        with while_reading(where, BadInput):
            scores = _read_scores(row, document, where)
        made_by = None if row.get("revision") is None else Identity(row["revision"], row.get("processor") or "")
        rest = row.get("label"), row.get("tuned_on_deletion", False), made_by
        external[texts][name] = ExternalScores(scores, where, *rest)
    if not external:
        raise BadInput(f"{path} has no attributions")
    names = {name for methods in external.values() for name in methods}
    for texts, methods in external.items():
        if missing := names - methods.keys():
            where = next(iter(methods.values())).where
            raise BadInput(
                f"{where}: {', '.join(sorted(missing))} has no scores for {texts[0][:40]!r}; score every text"
            )
    return external


def _read_names(row: Mapping[str, Any], where: str) -> tuple[InputKey, str]:
    """Return the texts and the method of a row, after checking everything but its scores."""
    texts = check_texts(row.get("texts", row.get("text")), where)
    name = row.get("method")
    if not isinstance(name, str) or not name:
        raise BadInput(f'{where}: the method has no name; give "method"')
    if not isinstance(row.get("tuned_on_deletion", False), bool):
        raise BadInput(f"{where}: tuned_on_deletion is {row['tuned_on_deletion']!r:.40}; expected true or false")
    for key in ("label", "revision", "processor"):
        if not isinstance(row.get(key), str | None):
            raise BadInput(f"{where}: {key} is {row[key]!r:.40}; expected a text, or null")
    return texts, name


def _encode(task: Task, texts: InputKey, where: str) -> Document:
    try:
        document: Document = task.encode([texts], task.bench_long, 0)[0]
        return document
    except WhichTokenError as error:
        error.place = where
        raise


def _read_scores(row: Mapping[str, Any], document: Document, where: str) -> tuple[float, ...]:
    scores = row.get("scores")
    if isinstance(scores, list) and any(isinstance(score, float) and not isfinite(score) for score in scores):
        raise BadInput(f"{where}: some scores are NaN or infinite and cannot be ranked; give finite scores")
    if not isinstance(scores, list) or not fits(tuple(scores), tuple[float, ...]):
        raise BadInput(f"{where}: scores is {scores!r:.40}; expected a list of numbers")
    for name in ("tokens", "spans", "sequences"):
        if not isinstance(row.get(name, []), list):
            raise BadInput(f"{where}: {name} is {row[name]!r:.40}; expected a list")
    window = document.windows[0]
    tokens = [document.tokens[i] for i in window]
    content = [place for place, i in enumerate(window) if document.sequences[i] is not None]
    if "tokens" in row:
        if len(row["tokens"]) != len(scores):
            raise BadInput(f"{where}: {len(row['tokens'])} tokens, {len(scores)} scores; give one score per token")
        if row["tokens"] == tokens:
            return tuple(map(float, scores))
        if row["tokens"] == [tokens[place] for place in content]:
            filled = dict(zip(content, scores, strict=True))
            return tuple(float(filled.get(place, 0.0)) for place in range(len(tokens)))
        raise BadInput(f"{where}: tokens are {row['tokens']!r:.60}, the model's are {tokens!r:.60}; give spans")
    if "spans" not in row:
        raise BadInput(f'{where}: no "tokens" and no "spans", so the scores cannot be aligned with tokens')
    return _align_spans(row, scores, document, where)


def _align_spans(row: Mapping[str, Any], scores: Sequence[float], document: Document, where: str) -> tuple[float, ...]:
    spans = row["spans"]
    if len(document.texts) > 1 and "sequences" not in row:
        raise BadInput(f'{where}: a pair needs "sequences", the text of each span, 0 or 1')
    sequences = row.get("sequences", [0] * len(spans))
    if not len(spans) == len(scores) == len(sequences):
        raise BadInput(
            f"{where}: {len(spans)} spans, {len(sequences)} sequences, {len(scores)} scores; give as many of each"
        )
    if not all(span is None or (isinstance(span, list) and fits(tuple(span), tuple[int, int])) for span in spans):
        raise BadInput(f"{where}: spans are {spans!r:.60}; expected [start, end] or null for each")
    placed = list(zip(sequences, spans, scores, strict=True))
    token_scores = []
    for i in document.windows[0]:
        sequence, first = document.sequences[i], _first_letter(document, i)
        matching = [
            score
            for in_sequence, span, score in placed
            if first is not None and span is not None and in_sequence == sequence and span[0] <= first < span[1]
        ]
        token_scores.append(float(matching[0]) if matching else 0.0)
    return tuple(token_scores)


def _first_letter(document: Document, token: int) -> int | None:
    """Return the offset of the token's first letter; the spans of many tokenizers start with a space."""
    sequence, span = document.sequences[token], document.spans[token]
    if sequence is None or span is None:
        return None
    piece = document.texts[sequence][slice(*span)]
    return span[0] + len(piece) - len(piece.lstrip())
