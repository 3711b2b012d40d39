"""Results as flat rows, one per word, token or image patch, and as csv, parquet or a pandas frame. No torch."""

import csv
import io
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import islice
from types import SimpleNamespace
from typing import IO, Any

from whichtoken.answers import GeneratedAnswer, PromptTokens, find_sources
from whichtoken.errors import BadInput, BadSetting, UsageError
from whichtoken.named_units import describe_partners, named_units
from whichtoken.records import Attribution
from whichtoken.trust import Confidence
from whichtoken.words import Span, word_groups

# The columns of a table of words, with their types in a parquet file. Columns that were kept follow, as texts.
WORDS = {
    "result": "int64",  # number of the result, from 0: one for each input and target
    "row": "int64",
    "id": "string",
    "gold": "string",
    "label": "string",
    "probability": "float64",
    "value": "float64",
    "predicted": "string",
    "correct": "bool",
    "n_cut": "int64",  # tokens that were truncated at the model's limit
    "method": "string",
    "additivity": "float64",  # of methods that say how sure they are: see trust.Confidence
    "predicted_share": "float64",  # `Confidence.predicted`
    "first": "float64",
    "position": "int64",  # of the word, from 0
    "text": "int64",  # 0, or 1 for the second text of a pair
    "start": "int64",  # characters in that text
    "end": "int64",
    "word": "string",
    "score": "float64",
    "low": "float64",  # bounds of the score, of the same methods
    "high": "float64",
    "interactions": "string",  # what the word acts together with, and the effects
}
# The columns of a table of answers of language models: one row per part of the answer and part of the prompt.
ANSWERS = {
    **{name: WORDS[name] for name in ("result", "row", "id", "label", "value", "n_cut", "method")},
    "additivity": "float64",
    "predicted_share": "float64",
    "first": "float64",
    "part": "int64",  # of the answer, from 0
    "said": "string",  # its text
    "log_probability": "float64",  # of that part
    "position": "int64",  # of the source, from 0
    "start": "int64",  # characters of the prompt, from its first word to its last
    "end": "int64",
    "source": "string",
    "score": "float64",
    "low": "float64",
    "high": "float64",
    "interactions": "string",
}
TYPES = {**WORDS, **ANSWERS}
AT_ONCE = 50_000  # rows of a parquet file that are written together
# What a spreadsheet may compute; the wide characters are read as formulas in some languages.
FORMULA = re.compile(r"[\t\r\n]|\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

Row = Mapping[str, Any]
Result = Mapping[str, Attribution]


def word_rows(results: Iterable[Result], level: str = "word") -> Iterator[dict[str, Any]]:
    """Yield one row per word of each attribution, or per token; for images, always per patch.

    For answers of language models, one per part of the answer and of the prompt, as `Attribution.matrix` has them, or
    per token of the prompt.
    """
    if level not in ("word", "token"):
        raise BadSetting("level", level, "'word' or 'token'")
    for number, result in enumerate(results):
        for name, attribution in result.items():
            shared = {"result": number, **_describe(attribution), "method": name, **_describe_trust(attribution)}
            kept = kept_columns(attribution)
            if attribution.generated is not None:
                yield from _answer_rows(attribution, attribution.generated, level, shared, kept)
                continue
            for position, part in enumerate(_parts(attribution, level)):
                yield {**shared, "position": position, **part, **kept}


def _answer_rows(
    record: Attribution, answer: GeneratedAnswer, level: str, shared: Mapping[str, Any], kept: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    tokens = PromptTokens(record.texts, record.spans, record.sequences, record.word_ids)
    sources = find_sources(tokens, answer.segments, "token" if level == "token" else answer.source_level)
    about = {name: value for name, value in shared.items() if name in ANSWERS}
    for part, row in enumerate(answer.rows):
        trust, sums, partners = row.confidence, dict[str, Any](), _partners(record, row.confidence)
        bounds = (None, None) if trust is None else (trust.low, trust.high)
        of_part = {"part": part, "said": row.text, "log_probability": row.log_probability}
        for position, source in enumerate(sources):
            place = {"position": position, "start": source.span[0], "end": source.span[1], "source": source.label}
            for name, values in zip(("score", "low", "high"), (row.scores, *bounds), strict=True):
                sums[name] = None if values is None else sum(values[i] for i in source.tokens)
            yield {**about, **of_part, **place, **sums, "interactions": partners(source.tokens), **kept}


def columns_of(results: Iterable[Result]) -> list[str]:
    """Return the columns of the rows of some results: of words or of answers, and those that were kept."""
    records = [record for result in results for record in result.values()]
    own = ANSWERS if any(record.generated is not None for record in records) else WORDS
    return list(dict.fromkeys([*own, *(name for record in records for name in kept_columns(record))]))


def _describe(record: Attribution) -> dict[str, Any]:
    source, picture = record.source, record.picture
    named = None if source is None else source.id
    return {
        "row": None if source is None else source.row,
        "id": picture.source if named is None and picture is not None else named,
        "gold": None if source is None else source.gold,
        "label": record.label,
        "probability": record.probability,
        "value": record.value,
        "predicted": None if record.predicted is None else record.predicted.label,
        "correct": record.correct,
        "n_cut": record.n_cut,
    }


def _describe_trust(record: Attribution) -> dict[str, Any]:
    trust = record.confidence
    shares = {"additivity": "additivity", "predicted_share": "predicted", "first": "first"}
    return {column: None if trust is None else getattr(trust, name) for column, name in shares.items()}


def _partners(record: Attribution, trust: Confidence | None) -> Callable[[Collection[int]], str | None]:
    """Return what describes the interactions of some tokens, as `describe_partners` does."""
    interactions = () if trust is None else trust.interactions
    return partial(describe_partners, interactions, named_units(record) if interactions else ())


def kept_columns(record: Attribution) -> dict[str, Any]:
    """Return the kept columns of a record by their names in a table."""
    columns = {} if record.source is None else record.source.columns
    names = name_kept(columns, WORDS if record.generated is None else ANSWERS)
    return {names[name]: value for name, value in columns.items()}


def name_kept(names: Collection[str], own: Collection[str]) -> dict[str, str]:
    """Return the names of kept columns in a table with columns of ours (`own`).

    One that is called like a column of ours becomes kept_NAME, or kept_kept_NAME if a kept column has that name.
    """
    taken, named = {*own, *names}, dict[str, str]()
    for name in names:
        named[name] = name
        while name in own and named[name] in taken:
            named[name] = f"kept_{named[name]}"
        taken.add(named[name])
    return named


def _parts(record: Attribution, level: str) -> Iterator[dict[str, Any]]:
    partners = _partners(record, record.confidence)
    if record.picture is None and level == "word":
        groups = word_groups(record.texts, record.spans, record.sequences, record.word_ids)
        for word, tokens in zip(record.words(), groups, strict=True):
            named = {**_place(word.sequence, word.span), "word": word.text}
            yield {**named, **_score(word.score, word.low, word.high), "interactions": partners(tokens)}
        return
    trust, unknown = record.confidence, (None,) * len(record.tokens)
    low, high = (unknown, unknown) if trust is None else (trust.low, trust.high)
    columns = zip(record.sequences, record.spans, record.tokens, record.scores, low, high, strict=True)
    first = 0 if record.picture is None else len(record.tokens) - record.picture.rows * record.picture.columns
    for place, (text, span, token, *scores) in islice(enumerate(columns), first, None):
        yield {**_place(text, span), "word": token, **_score(*scores), "interactions": partners((place,))}


def _score(score: float, low: float | None, high: float | None) -> dict[str, float | None]:
    return {"score": score, "low": low, "high": high}


def _place(text: int | None, span: Span | None) -> dict[str, Any]:
    start, end = (None, None) if span is None else span
    return {"text": text, "start": start, "end": end}


def write_csv(
    rows: Iterable[Row], columns: Sequence[str] | None, file: IO[bytes], *, spreadsheet: bool = False
) -> None:
    """Write rows as csv in UTF-8 as they arrive. `columns`: None for those of the first row.

    `spreadsheet`: put an apostrophe before texts, and names of columns, that a spreadsheet would read as formulas.
    """
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    # Only characters of the line end are quoted, and a carriage return within a text must be.
    lines = SimpleNamespace(write=lambda line: text.write(line.removesuffix("\r\n") + "\n"))
    writer = csv.writer(lines, lineterminator="\r\n")
    names, rest = _names_and_rows(rows, columns)
    written = _quote_formula if spreadsheet else _cell
    writer.writerow(map(written, names))
    for row in rest:
        writer.writerow([written(row[name]) for name in names])
    text.flush()
    text.detach()  # `file` is closed by its owner


def write_parquet(
    rows: Iterable[Row], columns: Sequence[str] | None, file: IO[bytes], types: Mapping[str, str]
) -> None:
    """Write rows as parquet, some thousands at a time. `types`: of the columns; others are texts."""
    check_parquet()
    import pyarrow as pa
    from pyarrow import parquet

    names, rest = _names_and_rows(rows, columns)
    schema = pa.schema([(name, types.get(name, "string")) for name in names])
    texts = [name for name in names if name not in types]
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while group := list(islice(rest, AT_ONCE)):
            plain = [{**row, **{name: _text(row[name]) for name in texts}} for row in group]
            writer.write_table(pa.Table.from_pylist(plain, schema))


def make_frame(rows: Iterable[Row], columns: Sequence[str], types: Mapping[str, str]) -> Any:
    """Return a pandas frame; numbers and truth values that may be missing have pandas' nullable types."""
    try:
        import pandas as pd
    except ImportError as error:
        raise UsageError("a frame needs pandas: pip install 'whichtoken[frames]'") from error
    frame = pd.DataFrame.from_records(list(rows), columns=list(columns))
    nullable = {"int64": "Int64", "bool": "boolean"}
    for name in (name for name in columns if types.get(name, "string") != "string"):
        missing = types[name] in nullable and bool(frame[name].isna().any())
        frame[name] = frame[name].astype(nullable[types[name]] if missing else types[name])
    return frame


def check_parquet() -> None:
    """Raise UsageError if pyarrow is missing; called before any long work."""
    if find_spec("pyarrow") is None:
        raise UsageError("writing parquet needs pyarrow: pip install 'whichtoken[parquet]'")


def _names_and_rows(rows: Iterable[Row], columns: Sequence[str] | None) -> tuple[list[str], Iterator[Row]]:
    """Return the names of the columns, and the rows with all of them; BadInput if a row has a column of its own."""
    rest = iter(rows)
    first = [] if columns is not None else list(islice(rest, 1))
    names = list(columns if columns is not None else first[0] if first else WORDS)

    def checked() -> Iterator[Row]:
        for group in (first, rest):
            for row in group:
                if other := [name for name in row if name not in names]:
                    raise BadInput(
                        f"a result has the columns {', '.join(other)}, which the first one lacks; keep the same columns"
                    )
                yield {name: row.get(name) for name in names}

    return names, checked()


def _cell(value: Any) -> Any:
    """Return a value as csv shows it: nothing for None, and true or false."""
    return {None: "", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else _text(value)


def _quote_formula(value: Any) -> Any:
    """Return a value as csv shows it, with an apostrophe before a text that a spreadsheet would read as a formula."""
    is_formula = isinstance(value, str) and FORMULA.match(value) and not NUMBER.fullmatch(value)
    return f"'{value}" if is_formula else _cell(value)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
