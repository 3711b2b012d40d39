"""The commands `heads build` and `heads show`: build head masks from parsed corpora, and display them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import whichtoken
from whichtoken.atomic_write import check_writable
from whichtoken.cli.inputs import parse_settings
from whichtoken.cli.options import DEBUG, BatchSize, Device, Dtype, Model, Revision, Trust, print_list
from whichtoken.cli.rows import Delimiter
from whichtoken.cli.subject import NO_HEADS, Opening, open_subject, say, say_written
from whichtoken.data.sources import DataFile
from whichtoken.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from whichtoken.heads import HeadMask, Sentence

heads_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

RuleSettings = Annotated[
    list[str] | None,
    typer.Option("-o", metavar="SETTING=VALUE", help="Change a setting, such as syntactic or positional; repeatable."),
]


@dataclass(frozen=True)
class Corpus:
    """The source of sentences: parsed files, or a text file and the spaCy pipeline that parses it."""

    conllu: Sequence[Path]
    text: Path | None
    pipeline: str | None
    delimiter: str | None = None

    def __post_init__(self) -> None:
        if bool(self.conllu) == (self.text is not None):
            raise UsageError("give either --conllu FILE (repeatable) or --text FILE")
        if self.pipeline is not None and self.text is None:
            raise UsageError("--pipeline parses --text, which is missing; CoNLL-U files are already parsed")
        if self.delimiter is not None and self.text is None:
            raise UsageError("--delimiter is for --text, which is missing")
        for path in (*self.conllu, *([self.text] if self.text else [])):
            if not path.is_file():
                raise UsageError(f"there is no file {path}")

    @property
    def name(self) -> str:
        return ", ".join(path.name for path in self.conllu or ([self.text] if self.text else []))

    def sentences(self) -> "Iterable[Sentence]":
        from whichtoken.heads import parse_texts, read_conllu
        from whichtoken.heads.spacy import PIPELINE

        if self.text is None:
            return read_conllu(*self.conllu)
        return parse_texts(DataFile(self.text, delimiter=self.delimiter), self.pipeline or PIPELINE)


def rule_settings(words: Sequence[str]) -> dict[str, object]:
    """Return the settings; names are checked here, before the model is loaded, and values by `heads.build`."""
    from whichtoken.heads import HeadRule

    settings, known = parse_settings(words), [f.name for f in fields(HeadRule)]
    for setting in settings:
        if setting not in known:
            raise UnknownName("setting of heads build", setting, known)
    return settings


def read_default_mask() -> "HeadMask":
    """Return the head mask of the bundled model."""
    from whichtoken.heads.store import read
    from whichtoken.models.loading import DEFAULT, DEFAULT_HEADS

    return read(DEFAULT / DEFAULT_HEADS)


@heads_app.command(
    "build",
    epilog=DEBUG,
    help="Measure where heads attend in a parsed corpus and select syntactic and positional heads.",
)
def heads_build(
    out: Annotated[Path, typer.Option("--out", help="JSON file to create.")],
    conllu: Annotated[
        list[Path] | None,
        typer.Option("--conllu", help="Corpus in CoNLL-U format, such as Universal Dependencies; repeatable."),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option("--text", help="Instead of --conllu: csv, tsv, jsonl, parquet or txt file, parsed by spaCy."),
    ] = None,
    pipeline: Annotated[
        str | None,
        typer.Option("--pipeline", help="spaCy pipeline for --text; default: en_core_web_sm."),
    ] = None,
    delimiter: Delimiter = None,
    model: Model = None,
    trust: Trust = False,
    device: Device = None,
    dtype: Dtype = "float32",
    revision: Revision = None,
    batch_size: BatchSize = None,
    settings: RuleSettings = None,
) -> None:
    corpus, rule = Corpus(conllu or [], text, pipeline, delimiter), rule_settings(settings or [])
    check_writable(out)
    sentences = corpus.sentences()
    subject = open_subject(model, opening=Opening(trust, device, dtype, revision, batch_size))
    mask = whichtoken.heads.build(subject, sentences, corpus=corpus.name, out=out, **rule)
    _show_heads(mask)
    say(f"written to {out}; use it with --heads {out}")


@heads_app.command("show", epilog=DEBUG, help="Describe a head mask; default: that of the bundled model.")
def heads_show(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Head mask; default: that of the default model.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Also draw a figure: png, svg or pdf.")] = None,
) -> None:
    from whichtoken.heads.store import read

    mask = read_default_mask() if file is None else read(file)
    if out is not None:
        whichtoken.plot.heads(mask, out)
    _show_heads(mask)
    say_written(out)


def _show_heads(mask: "whichtoken.heads.HeadMask") -> None:
    from whichtoken.render.terminal import heads_view

    print_list(heads_view(mask))
    if not mask.n_selected:
        say(NO_HEADS)
