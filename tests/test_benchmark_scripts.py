"""Scripts in `benchmarks` that are run by hand: how they are called, and what they refuse."""

import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parent.parent / "benchmarks"


def started(*words: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_yelp_reviews_are_converted_and_a_wrong_call_is_told_the_right_one(tmp_path: Path) -> None:
    script, source = str(SCRIPTS / "yelp_tsv.py"), tmp_path / "sample"
    out, train = tmp_path / "out.tsv", tmp_path / "train.tsv"
    source.write_text('1 "so  good"\n0 slow\\nfood\n' + "1 fine\n" * 299, encoding="utf-8")
    assert started(script, str(source), str(out), str(train)) == (0, "")
    assert out.read_text("utf-8") == "label\ttext\n1\tso good\n0\tslow food\n" + "1\tfine\n" * 298
    assert train.read_text("utf-8") == "label\ttext\n1\tfine\n"
    for words in ([], [str(source)], [str(source), str(out)]):
        assert started(script, *words) == (1, "usage: python benchmarks/yelp_tsv.py SAMPLE OUT.tsv TRAIN.tsv\n")


def test_memory_is_compared_in_thirds_of_a_long_load() -> None:
    code = "from web_load import Soak; print(Soak(1, 1, (), [1, 1, 9, 2, 2, 9, 3], (), ()).of_thirds)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=SCRIPTS)
    assert done.stdout == "(1, 2, 3)\n"
