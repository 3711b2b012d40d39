"""Scores made elsewhere (Captum, SHAP, Inseq ...), read from JSON lines and laid on the model's tokens.

A line is {"text": ..., "method": ..., "scores": [...]} with, to say what the scores are of, "tokens": [...] as the
model's tokenizer cuts them, with or without special tokens, or "spans": [[start, end], ...], characters of the text; a
token then gets the score of the span that holds its first letter. A pair has "texts": [a, b], and with spans
"sequences": [0, 0, 1, ...]. "label", if there, must be the class that is measured. Output of
`explain --out x.jsonl` works unchanged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from whichtoken.data.examples import check_texts, file_rows
from whichtoken.decode import fits
from whichtoken.errors import BadInput
from whichtoken.models import Document
from whichtoken.tasks import Task

InputKey = tuple[str, ...]


@dataclass(frozen=True)
class ExternalScores:
    scores: tuple[float, ...]  # one for each token that the model sees; 0 at special tokens that have none
    where: str  # they were found
    label: str | None = None
    tuned_on_deletion: bool = False
    revision: str | None = None  # of the model


External = Mapping[InputKey, Mapping[str, ExternalScores]]


def key_of(item: Any) -> InputKey:
    """By what an input is known in such a file."""
    return tuple(item) if isinstance(item, tuple | list) else (str(item),)


def read_external_scores(path: Path, task: Task) -> dict[InputKey, dict[str, ExternalScores]]:
    """By text and method; BadInput names the file and line."""
    found: dict[InputKey, dict[str, ExternalScores]] = {}
    for number, row in file_rows(path):
        where = f"{path}, line {number}"
        texts = check_texts(row.get("texts", row.get("text")), where)
        name = row.get("method")
        if not isinstance(name, str) or not name:
            raise BadInput(f'{where}: no name of a method; give "method"')
        if name in found.setdefault(texts, {}):
            raise BadInput(f"{where}: {name} has scored this text before; give each text once for each method")
        if not isinstance(row.get("tuned_on_deletion", False), bool):
            raise BadInput(f"{where}: tuned_on_deletion is {row['tuned_on_deletion']!r:.40}; expected true or false")
        scores = _scores(row, task.encode([texts], task.bench_long, 0)[0], where)
        about = row.get("label"), row.get("tuned_on_deletion", False), row.get("revision")
        found[texts][name] = ExternalScores(scores, where, *about)
    if not found:
        raise BadInput(f"{path} has no attributions")
    names = {name for methods in found.values() for name in methods}
    for texts, methods in found.items():
        if missing := names - methods.keys():
            where = next(iter(methods.values())).where
            raise BadInput(
                f"{where}: {', '.join(sorted(missing))} has no scores of {texts[0][:40]!r}; score every text"
            )
    return found


def _scores(row: Mapping[str, Any], document: Document, where: str) -> tuple[float, ...]:
    scores = row.get("scores")
    if isinstance(scores, list) and any(isinstance(score, float) and not isfinite(score) for score in scores):
        raise BadInput(f"{where}: some scores are NaN or infinite, which have no rank; give finite scores")
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
            raise BadInput(f"{where}: {len(row['tokens'])} tokens, {len(scores)} scores; as many of each")
        if row["tokens"] == tokens:
            return tuple(map(float, scores))
        if row["tokens"] == [tokens[place] for place in content]:
            filled = dict(zip(content, scores, strict=True))
            return tuple(float(filled.get(place, 0.0)) for place in range(len(tokens)))
        raise BadInput(f"{where}: tokens are {row['tokens']!r:.60}, the model's are {tokens!r:.60}; give spans")
    if "spans" not in row:
        raise BadInput(f'{where}: no "tokens" and no "spans", so it is not known what the scores are of')
    return _from_spans(row, scores, document, where)


def _from_spans(row: Mapping[str, Any], scores: Sequence[float], document: Document, where: str) -> tuple[float, ...]:
    spans = row["spans"]
    if len(document.texts) > 1 and "sequences" not in row:
        raise BadInput(f'{where}: a pair, and no "sequences" to say in which text each span is, 0 or 1')
    sequences = row.get("sequences", [0] * len(spans))
    if not len(spans) == len(scores) == len(sequences):
        raise BadInput(
            f"{where}: {len(spans)} spans, {len(sequences)} sequences, {len(scores)} scores; as many of each"
        )
    if not all(span is None or (isinstance(span, list) and fits(tuple(span), tuple[int, int])) for span in spans):
        raise BadInput(f"{where}: spans are {spans!r:.60}; expected [start, end] of each, or null")
    placed = list(zip(sequences, spans, scores, strict=True))
    found = []
    for i in document.windows[0]:
        sequence, first = document.sequences[i], _first_letter(document, i)
        held = [
            score
            for of, span, score in placed
            if first is not None and span is not None and of == sequence and span[0] <= first < span[1]
        ]
        found.append(float(held[0]) if held else 0.0)
    return tuple(found)


def _first_letter(document: Document, token: int) -> int | None:
    """Where it is in its text: the spans of many tokenizers begin with the space before a word."""
    sequence, span = document.sequences[token], document.spans[token]
    if sequence is None or span is None:
        return None
    piece = document.texts[sequence][slice(*span)]
    return span[0] + len(piece) - len(piece.lstrip())
