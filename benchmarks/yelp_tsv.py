"""Convert Yelp reviews, as sampled by the TextFooler project (`label text` per line), to a tsv for whichtoken.

python benchmarks/yelp_tsv.py SAMPLE OUT.tsv
"""

import re
import sys
from pathlib import Path


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: python benchmarks/yelp_tsv.py SAMPLE OUT.tsv")
    source, out = map(Path, sys.argv[1:])
    lines = source.read_text(encoding="utf-8").splitlines()
    rows = [line.split(" ", 1) for line in lines if line.strip()]
    out.write_text("label\ttext\n" + "".join(f"{label}\t{clean(text)}\n" for label, text in rows), encoding="utf-8")


def clean(text: str) -> str:
    """Remove the escapes of the source file."""
    plain = text.strip().strip('"').replace("\\n", " ").replace('\\""', '"').replace('\\ ""', '"').replace("\t", " ")
    return re.sub(r" +", " ", plain).strip()


if __name__ == "__main__":
    main()
