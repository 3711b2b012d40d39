"""Write results in any format to standard output or a file."""

import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import IO, Any

from rich.console import Console

from whichtoken.atomic_write import check_writable, open_whole, write_whole
from whichtoken.errors import BadSetting, UsageError, WhichTokenError
from whichtoken.flat import TYPES, check_parquet, word_rows, write_csv, write_parquet
from whichtoken.records import Attribution
from whichtoken.render.rows import IMAGES_IN_FIGURE, Look
from whichtoken.results import write_json

FORMATS = ("terminal", "json", "jsonl", "csv", "parquet", "html", "latex", "figure")
ENDINGS = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".html": "html",
    ".htm": "html",
    ".tex": "latex",
    ".txt": "terminal",
    ".png": "figure",
    ".svg": "figure",
    ".pdf": "figure",
}

Result = Mapping[str, Attribution]


@dataclass(frozen=True)
class Sink:
    """An output format and file, checked before any work."""

    kind: str
    out: Path | None
    look: Look
    n_texts: int
    n_images: int = 0
    spreadsheet: bool = False  # csv without formulas

    def __post_init__(self) -> None:
        if self.kind not in FORMATS:
            raise BadSetting("--format", self.kind, f"one of {', '.join(FORMATS)}")
        if self.kind == "figure" and (self.out is None or ENDINGS.get(self.out.suffix.lower()) != "figure"):
            raise UsageError("a figure needs a file: --out NAME.png, .svg or .pdf")
        if self.kind == "figure" and self.n_images and (self.n_texts or self.n_images > IMAGES_IN_FIGURE):
            counts = f"{self.n_images} images and {self.n_texts} texts"
            raise UsageError(f"a figure shows up to {IMAGES_IN_FIGURE} images, but there are {counts}; choose some")
        if self.kind == "figure" and not self.n_images and self.n_texts != 1:
            raise UsageError(f"a figure shows one text, but there are {self.n_texts}; choose one, or another format")
        if self.kind == "latex" and self.n_images:
            raise UsageError("LaTeX shows words only; for images, write a figure (--out NAME.pdf) and include it")
        if self.kind == "parquet":
            check_parquet()
            if self.out is None:
                raise UsageError("parquet is not text, so it needs a file: --out NAME.parquet")
        if self.kind == "html":
            from whichtoken.render.review import check_limit  # lists and help must not wait for it

            check_limit(self.n_texts)
        if self.out is not None:
            check_writable(self.out)

    @property
    def is_review(self) -> bool:
        """Whether the output is a review page, if no layers are to be shown."""
        return self.kind == "html" and self.n_texts > 1 and not self.n_images


def sink_of(
    kind: str | None, out: Path | None, look: Look, n_texts: int, n_images: int = 0, *, spreadsheet: bool = False
) -> Sink:
    """Return a sink of the requested format, else of the format that the file ending implies."""
    if out is not None and str(out) == "-":
        raise UsageError("--out - is not a file; omit --out to write to standard output, in any --format")
    if kind is None and out is not None:
        kind = ENDINGS.get(out.suffix.lower())
        if kind is None:
            raise UsageError(
                f"{out}: cannot tell the format; add --format, or use a file ending of {', '.join(ENDINGS)}"
            )
    if look.differences and kind in ("json", "jsonl", "csv", "parquet"):
        raise UsageError(f"--difference is for pictures, and {kind} has the scores of each method; leave it out")
    if spreadsheet and kind != "csv":
        found = f"--spreadsheet is for csv, and the output is {kind or 'terminal'}"
        raise UsageError(f"{found}; use --format csv or --out NAME.csv, or leave it out")
    return Sink(kind or "terminal", out, look, n_texts, n_images, spreadsheet)


@dataclass
class Progress:
    """How many inputs were finished, and what ended the job early."""

    finished: int = 0
    interrupted: bool = False
    error: WhichTokenError | None = None


def write_results(results: Iterable[Result], sink: Sink) -> Progress:
    """Write the results; if Ctrl-C or an error ends the job, the finished ones are still written.

    If none is finished, nothing is written and an older file stays.
    """
    progress = Progress()
    rest = until_stopped(results, progress)
    first = next(rest, None)
    if first is not None:
        with _place(sink) as file:
            _WRITERS[sink.kind](chain([first], rest), sink, file)
    return progress


def write_text(text: str, out: Path | None) -> None:
    if out is None:
        sys.stdout.buffer.write(text.encode())
    else:
        write_whole(out, text)


def until_stopped(results: Iterable[Result], progress: Progress) -> Iterator[Result]:
    """Yield results until Ctrl-C, which is delayed while a result is being written."""
    rest, waiting = iter(results), False

    def handle(*_: object) -> None:
        progress.interrupted = True
        if waiting:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handle)
    try:
        while not progress.interrupted:
            waiting = True
            result = next(rest, None)
            waiting = False
            if result is None:
                return
            yield result
            progress.finished += 1
    except KeyboardInterrupt:
        waiting = False
    except WhichTokenError as error:
        progress.error = error
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _place(sink: Sink) -> Iterator[Any]:
    if sink.kind == "figure":
        yield None  # matplotlib writes it
    elif sink.out is None:
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # a pipe may have any encoding
        yield sys.stdout.buffer
    else:
        with open_whole(sink.out) as file:
            yield file


def _json_lines(results: Iterable[Result], sink: Sink, file: IO[bytes]) -> None:
    for result in results:
        for attribution in result.values():
            file.write(attribution.to_json().encode() + b"\n")
        file.flush()


def _json(results: Iterable[Result], sink: Sink, file: IO[bytes]) -> None:
    write_json(results, file)


def _csv(results: Iterable[Result], sink: Sink, file: IO[bytes]) -> None:
    write_csv(word_rows(results, sink.look.level), None, file, spreadsheet=sink.spreadsheet)


def _parquet(results: Iterable[Result], sink: Sink, file: IO[bytes]) -> None:
    write_parquet(word_rows(results, sink.look.level), None, file, TYPES)


def _html(results: Iterable[Result], sink: Sink, file: IO[bytes]) -> None:
    from whichtoken.render.review import page_for

    file.write(page_for(list(results), sink.look).encode())


def _latex(results: Iterable[Result], sink: Sink, file: IO[bytes]) -> None:
    from whichtoken.render.latex import document

    file.write(document(list(results), sink.look).encode())


def _figure(results: Iterable[Result], sink: Sink, file: None) -> None:
    from whichtoken.render.figures import plot

    assert sink.out is not None, "checked by Sink"
    plot(list(results), sink.out, sink.look)


def _terminal(results: Iterable[Result], sink: Sink, file: IO[bytes]) -> None:
    from whichtoken.render.terminal import print_each

    if sink.out is None:
        print_each(Console(), results, sink.look)
        return
    plain = TextIOWrapper(file, encoding="utf-8", newline="\n")
    print_each(Console(file=plain, width=120, color_system=None), results, sink.look)
    plain.detach()  # `file` is closed by its owner


_WRITERS: Mapping[str, Callable[[Iterable[Result], Sink, Any], None]] = {
    "terminal": _terminal,
    "json": _json,
    "jsonl": _json_lines,
    "csv": _csv,
    "parquet": _parquet,
    "html": _html,
    "latex": _latex,
    "figure": _figure,
}
