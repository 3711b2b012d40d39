"""Rationales from the word labels of the Stanford Sentiment Treebank, Socher et al., EMNLP 2013. No torch."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from whichtoken.boundary import while_reading
from whichtoken.data.files import check_file, read_lines
from whichtoken.errors import BadInput, UnknownName
from whichtoken.metrics._plausibility import Rationale

NEUTRAL = 2  # of the sentiments 0 (very negative) to 4 (very positive)
_LEAF, _NODE = re.compile(r"\(([0-4])\s+([^\s()]+)\)"), re.compile(r"\([0-4](?:\s*\0)+\)")
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}


@dataclass(frozen=True)
class SentimentTree:
    """A sentence of the treebank, with the human ratings of the sentence and of each word in isolation."""

    words: tuple[str, ...]
    word_sentiments: tuple[int, ...]  # 0 (very negative) to 4 (very positive)
    sentiment: int
    where: str = field(default="", compare=False)  # file and line, for error messages

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def label(self) -> Literal["negative", "positive"] | None:
        """The class in SST-2; None for neutral sentences, which SST-2 does not contain."""
        return None if self.sentiment == NEUTRAL else "negative" if self.sentiment < NEUTRAL else "positive"


def read_sst_trees(path: str | Path, split: str | None = None) -> Iterator[SentimentTree]:
    """Yield the trees of a file, one per line, reading lazily; with a `split`, the file is `path`/`split`.txt.

    Brackets and slashes are unescaped. BadInput names the file and the line.
    """
    file = Path(path).expanduser() / ("" if split is None else f"{split}.txt")
    if not file.is_file():
        raise BadInput(f"there is no file {file}; give a file of trees, or their folder and split='dev'")
    return _trees(file)


def sst_rationale(tree: SentimentTree, label: str | int) -> Rationale:
    """Return the words that support a label on their own: "negative" or 0, "positive" or 1; case is ignored."""
    sides = {"negative": -1, "0": -1, "positive": 1, "1": 1}
    side = sides.get(str(label).lower())
    if side is None:
        raise UnknownName("label of SST-2", label, sides)
    spans, start = [], 0
    for word, sentiment in zip(tree.words, tree.word_sentiments, strict=True):
        if (sentiment - NEUTRAL) * side > 0:
            spans.append((0, start, start + len(word)))
        start += len(word) + 1
    return Rationale((tree.text,), tuple(spans), label)


def _trees(path: Path) -> Iterator[SentimentTree]:
    with while_reading(path, BadInput):
        check_file(path)
        for number, line in read_lines(path):
            if line.strip():
                yield _tree(line.strip(), f"{path}, line {number}")


def _tree(line: str, where: str) -> SentimentTree:
    rest, shorter = line, _LEAF.sub("\0", line)  # no line contains \0: `read_lines` refuses it
    while shorter != rest:
        rest, shorter = shorter, _NODE.sub("\0", shorter)
    if rest != "\0":
        raise BadInput(
            f"{where} is {line!r:.60}; expected one tree with sentiments 0 to 4, such as (3 (2 It) (4 works))"
        )
    leaves = _LEAF.findall(line)
    words = tuple(re.sub(r"\\([/*])", r"\1", _BRACKETS.get(word, word)) for _, word in leaves)
    return SentimentTree(words, tuple(int(sentiment) for sentiment, _ in leaves), int(line[1]), where)
