"""Completion by the shell: what is offered after Tab, that it is offered without torch, and how it is installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import shellingham  # type: ignore[import-untyped]
from tests.cli.test_cli import run

import whichtoken as wt
from whichtoken.cli.completion import complete_metrics

TORCHLESS = """
import sys
from whichtoken.cli.run import main
try:
    main([])
finally:
    heavy = [name for name in ("torch", "transformers", "numpy", "matplotlib") if name in sys.modules]
    assert not heavy, heavy
"""


def completed(*words: str) -> list[str]:
    """What bash is offered for the last word."""
    environment = {
        **os.environ,
        "_WHICHTOKEN_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("whichtoken", *words)),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [sys.executable, "-c", TORCHLESS], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_a_shell_is_offered_methods_without_loading_torch() -> None:
    assert completed("explain", "--method", "attc") == ["attcat", "attcat@repo", "attcat@paper"]


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> "Offered":
    return Offered(monkeypatch, capsys)


class Offered:
    """As `completed`, in this process."""

    def __init__(self, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.patch, self.capsys = patch, capsys

    def __call__(self, *words: str) -> list[str]:
        self.patch.setenv("_WHICHTOKEN_COMPLETE", "complete_bash")
        self.patch.setenv("COMP_WORDS", " ".join(("whichtoken", *words)))
        self.patch.setenv("COMP_CWORD", str(len(words)))
        code, out, err = run(self.capsys)
        assert (code, err) == (0, "")
        return out.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["expl"], ["explain"]),
        (["explain", "--meth"], ["--method", "--methods"]),
        (["explain", "--method", "au"], ["auto"]),
        (["compare", "--methods", "attcat,ga"], ["attcat,gae"]),
        (["bench", "--methods", "gae,ga"], []),  # named already
        (["bench", "--metrics", "aopc,ke"], ["aopc,kendall"]),
        (["bench", "--order", "morf,"], ["morf,lerf", "morf,random"]),
        (["bench", "--protocol", "a"], ["attcat", "attcat-paper"]),
        (["bench", "--grid", "te"], ["tenths", "tenths-to-all"]),
        (["explain", "--format", "js"], ["json", "jsonl"]),
        (["show", "x.jsonl", "--level", "t"], ["token"]),
        (["methods", "roll"], ["rollout"]),
        (["bench", "--data", "te"], []),  # the shell completes files
        (["explain", "--out", "x"], []),
    ],
    ids=" ".join,
)
def test_names_and_choices_are_offered(words: list[str], expected: list[str], offered: Offered) -> None:
    assert offered(*words) == expected


def test_every_method_is_offered(offered: Offered) -> None:
    assert set(offered("explain", "--method", '""')) >= {*wt.method_names(), "all", "auto"}
    assert set(offered("methods", '""')) == set(wt.method_names())
    assert "positions-kendall" in complete_metrics("")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is installed anywhere else."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    return tmp_path


def is_run_in(monkeypatch: pytest.MonkeyPatch, shell: str | None) -> None:
    def detect() -> tuple[str, str]:
        if shell is None:
            raise shellingham.ShellDetectionFailure
        return shell, f"/bin/{shell}"

    monkeypatch.setattr(shellingham, "detect_shell", detect)


def test_completion_is_installed_for_the_shell(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    is_run_in(monkeypatch, "bash")
    code, out, err = run(capsys, "--install-completion")
    assert (code, err) == (0, "")
    script = home / ".bash_completions" / "whichtoken.sh"
    assert str(script) in out
    assert str(script) in (home / ".bashrc").read_text("utf-8")
    assert run(capsys, "--show-completion") == (0, script.read_text("utf-8") + "\n", "")
    assert "_WHICHTOKEN_COMPLETE=complete_bash" in script.read_text("utf-8")


@pytest.mark.parametrize("option", ["--install-completion", "--show-completion"])
@pytest.mark.parametrize(
    ("shell", "message"),
    [
        (None, "cannot tell which shell this is; run it from one of bash, zsh, fish, powershell, pwsh"),
        ("dash", "there is no completion for the shell dash; run it from one of bash, zsh, fish, powershell, pwsh"),
    ],
)
def test_another_shell_is_refused_in_one_line(
    option: str,
    shell: str | None,
    message: str,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    is_run_in(monkeypatch, shell)
    assert run(capsys, option) == (2, "", f"whichtoken: {message}\n")
    assert not list(home.iterdir())


def test_a_home_that_cannot_be_written_is_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    is_run_in(monkeypatch, "bash")
    (home / ".bash_completions").write_text("", encoding="utf-8")
    code, out, err = run(capsys, "--install-completion")
    assert (code, out) == (2, "")
    assert err.startswith("whichtoken: completion cannot be installed: ")
    assert len(err.splitlines()) == 1
