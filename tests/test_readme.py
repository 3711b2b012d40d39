"""Every command and every example of the README is run."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from peft import LoraConfig, get_peft_model
from PIL import Image
from tests.tiny import CORPUS, image_model_of, language_subject, model_of, question_subject, token_subject, wordpiece
from transformers import AutoModelForSequenceClassification, ViTImageProcessor

from whichtoken import method_names
from whichtoken.cli.run import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    line.partition("  #")[0].partition(" # ")[0].strip()
    for kind, block in BLOCKS
    if kind == "console"
    for line in block.splitlines()
]
COMPARE = next(command for command in COMMANDS if command.startswith('whichtoken compare "'))
EXAMPLES = [block for kind, block in BLOCKS if kind == "python"]


def test_every_block_is_run_by_a_test() -> None:
    assert {kind for kind, _ in BLOCKS} == {"console", "python"}
    assert COMMANDS[:3] == ["make demo", "make test", "pip install ."]
    assert all(command.startswith("whichtoken ") for command in COMMANDS[3:])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the README's reader has: models, files to explain, texts to make references of."""
    folder = tmp_path_factory.mktemp("reader")
    model_of("bert").float().save_pretrained(folder / "my-model")
    wordpiece().save_pretrained(folder / "my-model")
    questions = question_subject("bert")
    for thing in (questions.model.float(), questions.tokenizer):
        thing.save_pretrained(folder / "my-qa-model")
    image_model_of("vit").float().save_pretrained(folder / "my-vit")
    ViTImageProcessor(size={"height": 12, "width": 12}).save_pretrained(folder / "my-vit")
    tagger = token_subject("bert")
    for thing in (tagger.model.float(), tagger.tokenizer):
        thing.save_pretrained(folder / "my-tagger")
    speaker = language_subject("llama", chat=True, max_position_embeddings=400)
    for thing in (speaker.model.float(), speaker.tokenizer):
        thing.save_pretrained(folder / "my-chat-model")
    for name, city in (("ada", "Lyon"), ("tom", "Oslo")):
        (folder / f"{name}.txt").write_text(f"{name.title()} was born in {city}.\n", encoding="utf-8")
    model_of("bert").float().save_pretrained(folder / "base")
    wordpiece().save_pretrained(folder / "my-lora")
    base = AutoModelForSequenceClassification.from_pretrained(folder / "base")
    adapted = get_peft_model(base, LoraConfig(task_type="SEQ_CLS", target_modules=["query"], init_lora_weights=False))
    adapted.save_pretrained(folder / "my-lora")
    Image.linear_gradient("L").save(folder / "boot.png")
    reviews = [("very slow film", 0), ("a rare plot", 1), (CORPUS[-1], 2)]
    rows = ["review,gold", *(f'"{review}",{gold}' for review, gold in reviews)]
    (folder / "reviews.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    rows = [f'"{text}"' for text in CORPUS * 20]
    (folder / "train.csv").write_text("\n".join(["text", *rows]) + "\n", encoding="utf-8")
    return folder


def run(command: list[str], place: Path, quiet: bool = False) -> str:
    """What a process prints."""
    outer = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}  # these tests may themselves be run by make
    environment = {key: value for key, value in os.environ.items() if key not in outer}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    assert not (quiet and done.stderr), done.stderr
    return done.stdout


def called(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What `whichtoken` prints, in this process, which has imported torch already."""
    with pytest.raises(SystemExit) as ending:
        main(words)
    found = capsys.readouterr()
    assert not ending.value.code, f"whichtoken {shlex.join(words)}: {found.err}"
    return found.out


def test_the_commands_of_the_reader(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In their order, because some need what others made. The first is run as the reader runs it."""
    monkeypatch.chdir(place)
    assert run(shlex.split(COMMANDS[3]), place, quiet=True)  # results, and nothing of torch or transformers
    for command in COMMANDS[4:]:
        fewer = ["--methods", "contrast-cat,mask-lrp,attcat"] if command == COMPARE else []
        out = called([*shlex.split(command)[1:], *fewer], capsys)
        assert out or "--out" in command, command
    for made in (
        "page.html",
        "results.jsonl",
        "review.html",
        "summary.html",
        "references",
        "faithfulness/report.html",
        "explained.png",
    ):
        assert (place / made).exists(), made


@pytest.mark.slow  # ten seconds: every method, on a long review
def test_compare_of_the_reader_runs_every_method(capsys: pytest.CaptureFixture[str]) -> None:
    out = called(shlex.split(COMPARE)[1:], capsys)
    for method in method_names():
        assert method in out, method


def test_the_python_of_the_reader(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    for example in EXAMPLES:
        exec(example, {"__name__": "__main__"})
    assert (place / "results.html").exists()


def test_make_demo_explains_the_three_reviews(capsys: pytest.CaptureFixture[str]) -> None:
    """`make test` is what runs this; `make demo` is run without its set-up, which is there already."""
    lines = run(["make", "-n", "--no-print-directory", "demo", "READY="], ROOT)
    command = shlex.split(lines.replace("\\\n", " "))
    assert Path(command[0]).name == "whichtoken"
    out = called(command[1:], capsys)
    for label in ("negative", "positive"):
        assert label in out
    for method in ("posterior", "contrast-cat", "attcat", "gae", "random"):
        assert sum(line.startswith(f"{method} ") for line in out.splitlines()) == 3  # posterior has a statement, too
    assert "pytest -q -n auto" in run(["make", "-n", "--no-print-directory", "test", "READY="], ROOT)


@pytest.mark.slow  # builds and installs a wheel
def test_pip_install_brings_the_command_and_the_default_model(tmp_path: Path) -> None:
    """As `pip install .` does it, without the network: build the wheel, then unpack it elsewhere."""
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], ROOT)
    wheel = next(tmp_path.glob("*.whl"))
    options = ["--no-deps", "--no-index", "--disable-pip-version-check", "-q", "--target", str(tmp_path / "site")]
    run([sys.executable, "-m", "pip", "install", *options, str(wheel)], tmp_path)
    code = (
        "import whichtoken as wt, sys; assert wt.__file__.startswith(sys.argv[1]), wt.__file__; "
        "print(wt.explain(wt.load(), ['It is very slow.'], ['contrast-cat'])[0]['contrast-cat'].label)"
    )
    site = str(tmp_path / "site")
    done = subprocess.run(
        [sys.executable, "-c", code, site],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": site},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "negative\n"
    assert "whichtoken.cli.run:main" in next((tmp_path / "site").glob("*.dist-info/entry_points.txt")).read_text()
