"""The texts that results of `posterior` are reported on: chosen by rules and a seed, before the method was changed.

    python benchmarks/reporting_sets.py data/sst2/dev.tsv data/imdb/test.tsv

writes benchmarks/sets/NAME.tsv. The data sets themselves are not part of this repository, so a line holds the row of
its text in the data file (counted from 0) and the first digits of the text's SHA-256; written sentences stand in full.

- `negation`: 40 sentences of 5 to 30 words with a word of `MARKS`, and the 20 of `WRITTEN`;
- `heldout`: 200 sentences of 10 to 40 words;
- `short`: 60 sentences of 5 to 11 words, short enough to evaluate every subset of the words;
- `reviews`: 150 reviews of 60 to 170 words, of which those of up to 256 tokens are measured.
"""

import csv
import hashlib
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

SETS = Path(__file__).parent / "sets"
MARKS = frozenset(
    [
        "not",
        "never",
        "no",
        "nothing",
        "hardly",
        "barely",
        "without",
        "neither",
        "nor",
        "fails",
        "lacks",
        "isn't",
        "doesn't",
        "n't",
        "but",
        "although",
        "though",
        "despite",
        "yet",
        "instead",
        "supposed",
        "pretends",
    ]
)
WRITTEN = (
    "Not bad at all, I would watch it again.",
    "I do not dislike this film.",
    "It fails to be boring.",
    "Nothing about this movie is dull.",
    "There is not a single boring minute in it.",
    "I can't say that I enjoyed it.",
    "The plot never makes sense, but I did not care, because the jokes are so good.",
    "Hardly a masterpiece, yet never less than charming.",
    "It is not that the actors are bad; the script gives them nothing to do.",
    "Without its wonderful score, this would be a forgettable film.",
    "Despite a weak ending, it is one of the best films of the year.",
    "The trailer promises a thriller, but the film delivers two hours of yawning.",
    "Oh great, another movie about a talking dog.",
    "What a brilliant idea, to leave out the story.",
    "I have never been so glad to see the credits roll.",
    "If you like watching paint dry, you will love this one.",
    "No one could call this lazy or unimaginative.",
    "It lacks neither wit nor heart.",
    "I wanted to like it, I really did.",
    "Although it looks expensive, it feels cheap.",
)


def read_texts(path: Path) -> list[str]:
    """Return the column `text` of a tsv file with a header."""
    with path.open(encoding="utf-8", newline="") as lines:
        return [row["text"] for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def choose(texts: list[str], n: int, suits: Callable[[list[str]], bool]) -> list[int]:
    """Draw n rows with seed 0 among those whose words suit, in the order of the file."""
    suitable = [row for row, text in enumerate(texts) if suits(text.split())]
    return sorted(random.Random(0).sample(suitable, n))


def has_mark(words: list[str]) -> bool:
    return any(word.lower() in MARKS or word.lower().endswith("n't") for word in words)


def write(name: str, texts: list[str], rows: list[int], written: tuple[str, ...] = ()) -> None:
    lines = ["row\tdigest\ttext", *(f"{row}\t{digest(texts[row])}\t" for row in rows)]
    lines += [f"\t{digest(text)}\t{text}" for text in written]
    (SETS / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_set(name: str, data: Path) -> list[str]:
    """Return the texts of a set; ValueError if the data file is another one."""
    texts, found = read_texts(data), []
    for row, wanted, text in _lines(SETS / f"{name}.tsv"):
        found.append(text or texts[int(row)])
        if digest(found[-1]) != wanted:
            raise ValueError(
                f"row {row} of {data} is not the text of the set {name!r}; give the file it was drawn from"
            )
    return found


def _lines(path: Path) -> Iterator[tuple[str, str, str]]:
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        row, wanted, text = re.split("\t", line, maxsplit=2)
        yield row, wanted, text


def main(sentences: Path, reviews: Path) -> None:
    SETS.mkdir(exist_ok=True)
    dev, imdb = read_texts(sentences), read_texts(reviews)
    write("negation", dev, choose(dev, 40, lambda words: 5 <= len(words) <= 30 and has_mark(words)), WRITTEN)
    write("heldout", dev, choose(dev, 200, lambda words: 10 <= len(words) <= 40))
    write("short", dev, choose(dev, 60, lambda words: 5 <= len(words) <= 11))
    write("reviews", imdb, choose(imdb, 150, lambda words: 60 <= len(words) <= 170))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
