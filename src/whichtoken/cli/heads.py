"""The commands `heads build` and `heads show`: head masks from parsed corpora, and how they are shown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import whichtoken
from whichtoken.atomic_write import check_writable
from whichtoken.cli.inputs import parsed_settings
from whichtoken.cli.options import DEBUG, Model, Settings, print_list
from whichtoken.cli.subject import NO_HEADS, open_subject, say
from whichtoken.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from whichtoken.heads import HeadMask, Sentence

heads_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@dataclass(frozen=True)
class Corpus:
    """Where the sentences come from: parsed files, or a plain text and what parses it."""

    conllu: Sequence[Path]
    text: Path | None
    pipeline: str | None

    def __post_init__(self) -> None:
        if bool(self.conllu) == (self.text is not None):
            raise UsageError("give --conllu FILE, more than once if wanted, or --text FILE; one of them")
        if self.pipeline is not None and self.text is None:
            raise UsageError("--pipeline parses --text, and there is no such file; CoNLL-U is parsed already")
        for path in (*self.conllu, *([self.text] if self.text else [])):
            if not path.is_file():
                raise UsageError(f"there is no file {path}")

    @property
    def name(self) -> str:
        return ", ".join(path.name for path in self.conllu or ([self.text] if self.text else []))

    def sentences(self) -> "Iterable[Sentence]":
        from whichtoken.heads import parse_texts, read_conllu
        from whichtoken.heads.spacy import PIPELINE

        return read_conllu(*self.conllu) if self.text is None else parse_texts(self.text, self.pipeline or PIPELINE)


def rule_settings(words: Sequence[str]) -> dict[str, object]:
    """Checked by name before a model is loaded; their values by `build_heads`."""
    from whichtoken.heads import HeadRule

    settings, known = parsed_settings(words), [f.name for f in fields(HeadRule)]
    for setting in settings:
        if setting not in known:
            raise UnknownName("setting of heads build", setting, known)
    return settings


def shipped() -> "HeadMask":
    """That of the model that comes with whichtoken."""
    from whichtoken.heads.store import read
    from whichtoken.models.loading import DEFAULT, DEFAULT_HEADS

    return read(DEFAULT / DEFAULT_HEADS)


@heads_app.command("build", epilog=DEBUG, help="Read where heads point in a parsed corpus; choose those that qualify.")
def heads_build(
    out: Annotated[Path, typer.Option("--out", help="JSON file to make.")],
    conllu: Annotated[
        list[Path] | None,
        typer.Option("--conllu", help="Corpus in CoNLL-U format, as the Universal Dependencies are; repeatable."),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option("--text", help="Or a csv, tsv, jsonl, parquet or txt file, to be parsed by spaCy."),
    ] = None,
    pipeline: Annotated[
        str | None,
        typer.Option("--pipeline", help="spaCy pipeline that parses --text; by default en_core_web_sm."),
    ] = None,
    model: Model = None,
    settings: Settings = None,
) -> None:
    corpus, chosen = Corpus(conllu or [], text, pipeline), rule_settings(settings or [])
    check_writable(out)
    sentences = corpus.sentences()
    mask = whichtoken.heads.build(open_subject(model, None), sentences, corpus=corpus.name, out=out, **chosen)
    _show_heads(mask)
    say(f"written to {out}; use it with --heads {out}")


@heads_app.command("show", epilog=DEBUG, help="What a head mask holds; by default that of the default model.")
def heads_show(
    file: Annotated[Path | None, typer.Argument(metavar="FILE")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Picture to write: png, svg or pdf.")] = None,
) -> None:
    from whichtoken.heads.store import read

    mask = shipped() if file is None else read(file)
    if out is not None:
        whichtoken.plot.heads(mask, out)
    _show_heads(mask)


def _show_heads(mask: "whichtoken.heads.HeadMask") -> None:
    from whichtoken.render.terminal import heads_view

    print_list(heads_view(mask))
    if not mask.n_selected:
        say(NO_HEADS)
