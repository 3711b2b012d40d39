"""The commands `heads build` and `heads show`: head masks from parsed corpora, and how they are shown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from whichtoken.cli.inputs import parsed_settings
from whichtoken.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from whichtoken.heads import HeadMask, Sentence

NO_HEADS = (
    "no head qualifies: Mask-LRP then passes relevance through residual connections only, and its scores will all be "
    "0, or the same where a model reads a mean (but for preset repo, which reads heads before the mask); "
    "lower thresholds (-o syntactic=... -o positional=...) or another corpus may help"
)


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
    from whichtoken.heads import read_heads
    from whichtoken.models.loading import DEFAULT, DEFAULT_HEADS

    return read_heads(DEFAULT / DEFAULT_HEADS)
