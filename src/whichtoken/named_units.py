"""The units that a method removed as a whole (words, sentences, tokens, documents or patches) by name. No torch."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from whichtoken.answers import PromptTokens, find_sources
from whichtoken.records import Attribution
from whichtoken.sentences import sentence_groups
from whichtoken.targets import SourceLevel
from whichtoken.trust import Interaction
from whichtoken.words import word_groups

_LEVELS: Mapping[str, SourceLevel] = {name: name for name in ("token", "word", "sentence", "document")}


@dataclass(frozen=True)
class NamedUnit:
    """A word, sentence, token, document or patch that was removed as a whole."""

    name: str
    score: float
    tokens: tuple[int, ...]  # positions in the record's tokens


def unit_noun(record: Attribution) -> str:
    """Return what the units of a record are called, in the plural."""
    return "patches" if record.picture is not None else f"{_level(record)}s"


def named_units(record: Attribution) -> list[NamedUnit]:
    """Return the units in reading order. Names are as they are in the text."""
    level = _level(record)
    if record.generated is not None:
        prompt = PromptTokens(record.texts, record.spans, record.sequences, record.word_ids)
        sources = find_sources(prompt, record.generated.segments, level)
        return [_unit(record, source.label, source.tokens) for source in sources]
    if record.picture is not None:
        first = len(record.tokens) - record.picture.rows * record.picture.columns
        return [_unit(record, record.tokens[i], (i,)) for i in range(first, len(record.tokens))]
    if level == "token":
        content = [i for i, sequence in enumerate(record.sequences) if sequence is not None]
        return [_unit(record, record.tokens[i], (i,)) for i in content]
    if level == "sentence":
        groups = sentence_groups(record.texts, record.spans, record.sequences)
        return [_unit(record, _slice(record, group), group) for group in groups]
    groups = word_groups(record.texts, record.spans, record.sequences, record.word_ids)
    words = zip(record.words(), groups, strict=True)
    return [_unit(record, word.text, group) for word, group in words]


def describe_partners(
    interactions: Sequence[Interaction], units: Sequence[NamedUnit], tokens: Collection[int]
) -> str | None:
    """Return what some tokens act together with, and the effects: "bad -13.7; all +1.2". None: with nothing.

    `units`: those of the record. If all units of an interaction are among the tokens, all are named.
    """
    described = []
    for interaction in interactions:
        others = [unit for unit in interaction.units if not set(unit) & set(tokens)]
        if len(others) < len(interaction.units):
            named = [name for unit in others or interaction.units for name in names_of(units, unit)]
            described.append(f"{' and '.join(named) or 'special tokens'} {interaction.effect:+.3g}")
    return "; ".join(described) or None


def names_of(units: Sequence[NamedUnit], tokens: Collection[int]) -> list[str]:
    """Return the names of the units that contain any of some tokens."""
    return [unit.name for unit in units if set(unit.tokens) & set(tokens)]


def _level(record: Attribution) -> SourceLevel:
    level = record.settings.get("units")
    return _LEVELS.get(level, "word") if isinstance(level, str) else "word"


def _unit(record: Attribution, name: str, tokens: tuple[int, ...]) -> NamedUnit:
    return NamedUnit(name, sum(record.scores[i] for i in tokens), tokens)


def _slice(record: Attribution, tokens: Sequence[int]) -> str:
    """Return the text from the first of these tokens to the last."""
    spans = [span for i in tokens if (span := record.spans[i]) is not None]
    return record.texts[record.sequences[tokens[0]] or 0][spans[0][0] : spans[-1][1]]
