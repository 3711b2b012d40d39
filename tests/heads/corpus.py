"""Small parsed corpora, written down."""

from collections.abc import Sequence

from whichtoken.heads.sentence import Parsed, Sentence

Row = tuple[str, int, str]  # form, head (counted from 1, 0 for a root), relation


def sentence(text: str, *rows: Row) -> Sentence:
    """Forms are looked for in the text, one after the other."""
    words, at = [], 0
    for form, head, relation in rows:
        at = text.index(form, at)
        words.append(Parsed((at, at + len(form)), head - 1 if head else None, relation))
        at += len(form)
    return Sentence(text, tuple(words))


def conllu(*blocks: Sequence[str]) -> str:
    """Each a sentence of lines `id form head relation misc`; comments as they are."""
    written = []
    for block in blocks:
        lines = []
        for line in block:
            if line.startswith("#"):
                lines.append(line)
                continue
            number, form, head, relation, misc = (*line.split(" "), "_")[:5]
            lines.append("\t".join([number, form, "_", "_", "_", "_", head, relation, "_", misc]))
        written.append("\n".join(lines) + "\n")
    return "\n".join(written)


SLOW = sentence(
    "The film was slow.", ("The", 2, "det"), ("film", 4, "nsubj"), ("was", 4, "cop"), ("slow", 0, "root"),
    (".", 4, "punct"),
)  # fmt: skip
MUSIC = sentence(
    "Nobody did sleep, but the rare music won a man.",
    ("Nobody", 3, "nsubj"), ("did", 3, "aux"), ("sleep", 0, "root"), (",", 8, "punct"), ("but", 8, "cc"),
    ("the", 7, "det"), ("rare", 8, "amod"), ("music", 9, "nsubj"), ("won", 3, "conj"), ("a", 11, "det"),
    ("man", 9, "obj"), (".", 3, "punct"),
)  # fmt: skip
SHORT = sentence("It won.", ("It", 2, "nsubj"), ("won", 0, "root"), (".", 2, "punct"))
CORPUS = [SLOW, MUSIC, SHORT]
