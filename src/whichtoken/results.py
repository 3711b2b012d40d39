"""Results: what `explain` returns, a list that shows itself, becomes a frame, and saves itself. No torch."""

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, overload

from whichtoken.atomic_write import open_whole, save_text
from whichtoken.boundary import read_text, while_reading
from whichtoken.decode import parse_json
from whichtoken.errors import BadArtifact, UsageError, name_type
from whichtoken.flat import TYPES, columns_of, make_frame, word_rows, write_csv, write_parquet
from whichtoken.records import Attribution

SHOWN = 20  # results that a notebook displays


@dataclass(frozen=True, eq=False, repr=False)
class Results:
    """The results of `explain` in order, each the attributions of one input by method. It equals the list of them."""

    items: tuple[dict[str, Attribution], ...] = ()

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[dict[str, Attribution]]:
        return iter(self.items)

    @overload
    def __getitem__(self, index: int) -> dict[str, Attribution]: ...
    @overload
    def __getitem__(self, index: slice) -> "Results": ...
    def __getitem__(self, index: int | slice) -> "dict[str, Attribution] | Results":
        return Results(self.items[index]) if isinstance(index, slice) else self.items[index]

    def __add__(self, other: "Results | list[dict[str, Attribution]]") -> "Results":
        return Results((*self.items, *other)) if isinstance(other, Results | list) else NotImplemented

    def __radd__(self, other: list[dict[str, Attribution]]) -> "Results":
        return Results((*other, *self.items)) if isinstance(other, list) else NotImplemented

    def __eq__(self, other: object) -> bool:
        return list(self.items) == list(other) if isinstance(other, Results | list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        methods = ", ".join(dict.fromkeys(name for result in self.items for name in result))
        count = f"{len(self)} result{'s' * (len(self) != 1)}"
        return f"<Results: {count}{f' of {methods}' if methods else ''}; .show() prints them>"

    def _repr_html_(self) -> str:
        """Return what a notebook displays: the first results, and how many more there are."""
        from whichtoken.render.html import fragment

        more = len(self) - SHOWN
        note = f"<p>{more:,} more; .to_html(path) writes all of them</p>" if more > 0 else ""
        return (fragment(self.items[:SHOWN]) if self.items else "<p>no results</p>") + note

    def show(self, row: str | None = None) -> None:
        """Print the results with coloured words; a notebook displays them.

        `row`: for answers of language models, a text in the part of the answer to show instead of the whole.
        """
        from whichtoken.render.terminal import show_results

        show_results(self, row)

    def to_frame(self, level: str = "word") -> Any:
        """Return a pandas frame with one row per word (or "token"; for images, per patch) and method.

        Columns: result, row, id, gold, label, probability, value, predicted, correct, n_cut, method, additivity,
        predicted_share, first, position, text, start, end, word, score, low, high, interactions, and the kept columns.
        For answers of language models, one row per part of the answer and part of the prompt, as `Attribution.matrix`
        has them ("token": tokens of the prompt), with the columns part, said, log_probability and source instead of
        those of labels and words.
        """
        return make_frame(word_rows(self, level), columns_of(self), TYPES)

    def to_csv(self, path: str | Path | None = None, level: str = "word", *, spreadsheet: bool = False) -> str:
        """Return the rows of `to_frame` as csv, and write them to `path`, if given.

        `spreadsheet`: put an apostrophe before texts that a spreadsheet would read as formulas, such as "=1+1".
        """
        made = io.BytesIO()
        write_csv(word_rows(self, level), columns_of(self), made, spreadsheet=spreadsheet)
        return save_text(made.getvalue().decode(), path)

    def to_parquet(self, path: str | Path, level: str = "word") -> None:
        """Write the rows of `to_frame` to a parquet file; kept columns are texts."""
        with open_whole(path) as file:
            write_parquet(word_rows(self, level), columns_of(self), file, TYPES)

    def to_json(self, path: str | Path | None = None) -> str:
        """Return a JSON list of attributions, and write it to `path`, if given; `Results.read` reads it."""
        made = io.BytesIO()
        write_json(self, made)
        return save_text(made.getvalue().decode(), path)

    def to_jsonl(self, path: str | Path | None = None) -> str:
        """Return one attribution per line, and write them to `path`, if given; `Results.read` reads them."""
        lines = [attribution.to_json() + "\n" for result in self.items for attribution in result.values()]
        return save_text("".join(lines), path)

    def to_html(self, path: str | Path | None = None) -> str:
        """Return a self-contained page, and write it to `path`, if given: of several texts, a page for reviewing them.

        `wt.plot.to_html` and `wt.plot.to_review` have more options.
        """
        from whichtoken.render.review import page_for
        from whichtoken.render.rows import Look

        return save_text(page_for(self, Look()), path)

    def to_latex(self, path: str | Path | None = None) -> str:
        """Return a fragment for a LaTeX document, and write it to `path`, if given."""
        from whichtoken.render.latex import to_latex

        return save_text(to_latex(self), path)

    @classmethod
    def read(cls, path: str | Path) -> "Results":
        """Read what `to_json`, `to_jsonl` or `whichtoken explain --out` wrote (.json or .jsonl)."""
        from whichtoken.render.groups import group_results

        return cls(tuple(group_results(read_results(Path(path).expanduser()))))


Sequence.register(Results)


def flatten(results: Any) -> list[Attribution]:
    """Return the attributions of what `explain` returns, or of some of it, in order."""
    if isinstance(results, Attribution):
        return [results]
    nested = results.values() if isinstance(results, Mapping) else results
    if isinstance(nested, str) or not isinstance(nested, Iterable):
        raise UsageError(f"expected attributions, as explain returns them; found {name_type(results)}")
    return [attribution for item in nested for attribution in flatten(item)]


def write_json(results: Iterable[Mapping[str, Attribution]], file: IO[bytes]) -> None:
    """Write a JSON list of attributions, each readable by Attribution.from_json."""
    file.write(b"[")
    between = b"\n"
    for result in results:
        for attribution in result.values():
            file.write(between + attribution.to_json().encode())
            between = b",\n"
    file.write(b"\n]\n")


def read_results(path: Path) -> list[Attribution]:
    """Read the json or jsonl output of `explain` or `compare`."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    text = read_text(path)
    with while_reading(path):
        return parse_results(text, str(path))


def parse_results(text: str, name: str) -> list[Attribution]:
    """Parse the content of such a file. `name`: what it is called in messages."""
    lines = [line for line in text.split("\n") if line.strip()]  # not splitlines: texts may contain other line ends
    records = parse_json(text) if text.lstrip().startswith("[") else [parse_json(line) for line in lines]
    if not text.strip():
        raise BadArtifact(f"{name} is empty; expected results as JSON")
    attributions = [record.get("attribution", record) if isinstance(record, dict) else record for record in records]
    return [Attribution.from_json(json.dumps(record)) for record in attributions]
