"""What the shell completes after Tab: names of methods and metrics, and fixed choices. It does not import torch.

Where nothing is returned, the shell completes file names. `--install-completion` and `--show-completion` are Typer's.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from whichtoken.errors import UsageError

Complete = Callable[[str], list[str]]
OPTIONS = ("--install-completion", "--show-completion")
SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")


def one_of(*choices: str) -> Complete:
    """Return a function that completes one of these words."""

    def complete(incomplete: str) -> list[str]:
        return [choice for choice in choices if choice.startswith(incomplete)]

    return complete


def some_of(*choices: str) -> Complete:
    """Return a function that completes the last word of a list with commas."""

    def complete(incomplete: str) -> list[str]:
        return _complete_last(incomplete, choices)

    return complete


def complete_method(incomplete: str) -> list[str]:
    return [name for name in _method_names() if name.startswith(incomplete)]


def complete_methods(incomplete: str) -> list[str]:
    """Complete a list of methods, each with a preset if it has one: attcat,gae@repo; or all."""
    names = [f"{name}{preset}" for name, presets in _method_names().items() for preset in ("", *presets)]
    return _complete_last(incomplete, [*names, *([] if "," in incomplete else ["all"])])


def complete_methods_or_auto(incomplete: str) -> list[str]:
    return [*complete_methods(incomplete), *(["auto"] if "auto".startswith(incomplete) else [])]


def complete_metrics(incomplete: str) -> list[str]:
    from whichtoken.cli.metrics import listed_metrics

    return _complete_last(incomplete, [metric.name for metric in listed_metrics()])


def _method_names() -> dict[str, list[str]]:
    """Return our methods with their presets; those of other packages would have to be imported, which is slow."""
    from whichtoken.catalogue import read_stored

    return {entry.name: [f"@{preset}" for preset in entry.presets] for entry in read_stored()}


def _complete_last(incomplete: str, choices: Iterable[str]) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    named = before.split(",")
    return [f"{before}{comma}{choice}" for choice in choices if choice.startswith(last) and choice not in named]


@contextmanager
def told_in_one_line(words: Sequence[str]) -> Iterator[None]:
    """Say clearly why completion cannot be installed; without effect on other commands."""
    if not words or words[0] not in OPTIONS:
        yield
        return
    if len(words) > 1:
        raise UsageError(f"{words[0]} takes no value, found {words[1]!r:.40}; run it from the shell that you use")
    _check_shell()
    try:
        yield
    except OSError as error:
        raise UsageError(f"completion cannot be installed: {error}") from error


def _check_shell() -> None:
    """Raise UsageError unless this is a shell that Typer has completion for; Typer would print "Shell None"."""
    try:
        from shellingham import ShellDetectionFailure, detect_shell  # type: ignore[import-untyped]
    except ImportError:
        return  # Typer then requires the name of the shell
    try:
        shell = detect_shell()[0]
    except ShellDetectionFailure:
        raise UsageError(f"cannot tell which shell this is; run it from one of {', '.join(SHELLS)}") from None
    if shell not in SHELLS:
        raise UsageError(f"there is no completion for the shell {shell}; run it from one of {', '.join(SHELLS)}")
