"""The command `serve`: open the web page."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from whichtoken.cli.options import BatchSize, Device, Dtype, Heads, Trust
from whichtoken.cli.subject import Opening, open_subject, say
from whichtoken.errors import UsageError


def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL...", help="Folders or Hugging Face names; default: the bundled classifier."),
    ] = None,
    references: Annotated[
        list[Path] | None,
        typer.Option("--references", help="Folder of a model's reference library; repeatable, for several models."),
    ] = None,
    heads: Heads = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port to listen on.")] = 8080,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; others than this computer's need a token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            "--token", envvar="WHICHTOKEN_TOKEN", help="Secret that callers must send; new: make one and print it."
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="Further name that browsers open it by; repeatable.")
    ] = None,
    trust: Trust = False,
    device: Device = None,
    dtype: Dtype = "float32",
    batch_size: BatchSize = None,
) -> None:
    if any(find_spec(name) is None for name in ("fastapi", "uvicorn")):
        raise UsageError("the web page needs FastAPI and uvicorn: pip install 'whichtoken[web]'")
    from whichtoken.web.limits import Access, choose_token

    access = Access(host, port, choose_token(token), tuple(allow_host or ()))
    opening = Opening(trust, device, dtype, None, batch_size)
    subjects = [open_subject(model, None, heads, opening) for model in models or [None]]
    from whichtoken.web.served import attach_references, serve_subjects
    from whichtoken.web.service import Service
    from whichtoken.web.serving import serve as listen

    service = Service(serve_subjects(attach_references(subjects, references or [])))
    say(f"open {access.address} (Ctrl-C ends it)")
    listen(service, access)
