"""Convert Yelp reviews, as sampled by the TextFooler project (`label text` per line), to two tsv files for whichtoken.

    python benchmarks/yelp_tsv.py SAMPLE OUT.tsv TRAIN.tsv

OUT.tsv holds the first 300 reviews, to be explained; TRAIN.tsv the others, to choose references from.
"""

import re
import sys
from pathlib import Path

EXPLAINED = 300


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit("usage: python benchmarks/yelp_tsv.py SAMPLE OUT.tsv TRAIN.tsv")
    source, out, train = map(Path, sys.argv[1:])
    lines = source.read_text(encoding="utf-8").splitlines()
    rows = [line.split(" ", 1) for line in lines if line.strip()]
    for path, part in ((out, rows[:EXPLAINED]), (train, rows[EXPLAINED:])):
        written = "".join(f"{label}\t{clean(text)}\n" for label, text in part)
        path.write_text(f"label\ttext\n{written}", encoding="utf-8")


def clean(text: str) -> str:
    """Remove the escapes of the source file."""
    plain = text.strip().strip('"').replace("\\n", " ").replace('\\""', '"').replace('\\ ""', '"').replace("\t", " ")
    return re.sub(r" +", " ", plain).strip()


if __name__ == "__main__":
    main()
