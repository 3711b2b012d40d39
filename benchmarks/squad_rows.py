"""Write the questions and contexts of a SQuAD file as JSON lines, for `whichtoken references build`.

python benchmarks/squad_rows.py squad_v1_train_part.json questions.jsonl
"""

import json
import sys
from pathlib import Path

import whichtoken as wt


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    rows = [{"question": item.question, "context": item.context} for item in wt.data.read_squad(sys.argv[1])]
    Path(sys.argv[2]).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
