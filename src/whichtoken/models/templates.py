"""Render chat templates in a process of their own: they come with the model, and could compute without end.

A thread cannot be ended while it computes, a process can. It is started with the first chat and serves all later ones.
It runs this file as a script, so that it loads neither torch nor anything else of whichtoken.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, Timer
from typing import Any

SECONDS = 10.0  # for one chat, which takes milliseconds
LONGEST = 10_000_000  # characters of a rendered chat
MEMORY = 4  # GB


class TemplateError(Exception):
    """What a chat template does instead of making a text; it follows "the model's chat template"."""


@dataclass
class _Renderer:
    process: "subprocess.Popen[bytes] | None" = None
    owner: int = 0  # the process that started it; a fork must not share its pipes


_renderer, _one_at_a_time = _Renderer(), Lock()


def render_template(template: str, messages: Sequence[Mapping[str, str]], tokens: Mapping[str, Any]) -> str:
    """Return the text that a template makes of messages, up to where the answer begins; TemplateError if it fails.

    `tokens`: the special tokens, by the names that templates use.
    """
    asked = {"conversations": [messages], "chat_template": template, "add_generation_prompt": True, **tokens}
    with _one_at_a_time:
        line = _ask(json.dumps(asked, default=str).encode())
    text, refusal = json.loads(line)
    if refusal:
        raise TemplateError(refusal)
    return str(text)


def _ask(line: bytes) -> bytes:
    process, is_late = _started(), list[bool]()

    def end() -> None:
        is_late.append(True)
        process.kill()

    timer, answer = Timer(SECONDS, end), b""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        timer.start()
        with suppress(BrokenPipeError):
            process.stdin.write(line + b"\n")
            process.stdin.flush()
        answer = process.stdout.readline()
    finally:  # also Ctrl-C, after which the next answer would be that to this question
        timer.cancel()
        timer.join()
        if is_late or not answer.endswith(b"\n"):
            _stop()
    if is_late:
        raise TemplateError(f"did not end within {SECONDS:g} s")
    if not answer:
        raise TemplateError(f"ended the process that rendered it (exit code {process.returncode})")
    return answer


def _started() -> "subprocess.Popen[bytes]":
    """Return the process, ready to answer."""
    process = _renderer.process
    if process is not None and _renderer.owner == os.getpid() and process.poll() is None:
        return process
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")}
    settings = {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", __file__]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=settings)
    _renderer.process, _renderer.owner = process, os.getpid()
    assert process.stdout is not None
    process.stdout.readline()  # it is ready; if it ended, so will the next answer
    return process


@atexit.register
def _stop() -> None:
    process, _renderer.process = _renderer.process, None
    if process is not None and _renderer.owner == os.getpid():
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]


def _serve() -> None:
    """Answer questions, one per line, until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks, which ends this one
    from transformers.utils.chat_template_utils import render_jinja_template

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with suppress(ImportError, ValueError, OSError):  # Windows and some others have no such limit
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY << 30, MEMORY << 30))
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        text, refusal = "", ""
        try:
            (text,), _ = render_jinja_template(**json.loads(line))
            if len(text) > LONGEST:
                text, refusal = "", f"makes a text of more than {LONGEST:,} characters"
        except MemoryError:
            refusal = f"needs more than {MEMORY} GB of memory"
        except Exception as error:  # of jinja2, from a template that does not allow these roles or their order
            refusal = f"refuses these messages: {' '.join(str(error).split())[:200] or type(error).__name__}"
        print(json.dumps([text, refusal]), file=answers, flush=True)


if __name__ == "__main__":
    _serve()
