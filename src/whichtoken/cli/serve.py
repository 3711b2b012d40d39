"""The command `serve`: open the web page."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whichtoken.cli.options import BatchSize, Device, Dtype, SpecialTokens, Trust
from whichtoken.cli.subject import Opening, open_subject, say
from whichtoken.errors import UsageError

if TYPE_CHECKING:
    from whichtoken.models import Subject


def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL...", help="Folders or Hugging Face names; default: the bundled classifier."),
    ] = None,
    references: Annotated[
        list[Path] | None,
        typer.Option("--references", help="Folder of a model's reference library; repeatable, for several models."),
    ] = None,
    heads: Annotated[
        list[Path] | None,
        typer.Option("--heads", help="File of a model's head mask; repeatable, for several models."),
    ] = None,
    benchmark: Annotated[
        Path | None, typer.Option("--benchmark", help="Folder written by bench --out, to show on the page.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="With --benchmark: its data file, if that has been moved.")
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option("--corpus", help="Folder written by corpus explain; its summary is at /corpus.")
    ] = None,
    corpus_method: Annotated[
        str | None, typer.Option("--corpus-method", help="With --corpus: method to summarise, if the job has several.")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port to listen on.")] = 8080,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; any other than this computer's own needs a token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            "--token", envvar="WHICHTOKEN_TOKEN", help="Secret that callers must send; new: create one and print it."
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="Another name under which browsers may open the page; repeatable."),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="NAME=NUMBER", help="Change a limit, such as text_characters; repeatable."),
    ] = None,
    trust: Trust = False,
    device: Device = None,
    dtype: Dtype = "float32",
    batch_size: BatchSize = None,
    special_tokens: SpecialTokens = "control",
) -> None:
    if any(find_spec(name) is None for name in ("fastapi", "uvicorn")):
        raise UsageError("the web page needs FastAPI and uvicorn: pip install 'whichtoken[web]'")
    from whichtoken.cli.inputs import parse_settings
    from whichtoken.settings import make_settings
    from whichtoken.web.limits import Access, Limits, choose_token, open_port

    limits = make_settings(Limits, "the limits", {}, None, parse_settings(limit or []))
    if data is not None and benchmark is None:
        raise UsageError("--data holds the texts of --benchmark, which is missing; add --benchmark FOLDER")
    if corpus_method is not None and corpus is None:
        raise UsageError("--corpus-method chooses a method of --corpus, which is missing; add --corpus FOLDER")
    access = Access(host, port, choose_token(token), tuple(allow_host or ()))
    with open_port(access) as port_of_ours:  # before any long work
        opening = Opening(trust, device, dtype, None, batch_size, special_tokens=special_tokens)
        subjects = _open_models(models or (None,), opening)
        from whichtoken.web.benchmarks import StoredBenchmark
        from whichtoken.web.served import attach_libraries
        from whichtoken.web.service import make_service
        from whichtoken.web.serving import serve as listen

        stored = None if benchmark is None else StoredBenchmark.open(benchmark, data)
        page = None if corpus is None else _corpus_page(corpus, corpus_method)
        given = attach_libraries(subjects, references or [], heads or [])
        service = make_service(given, limits, stored, page)
        listen(service, access, port_of_ours, lambda: say(f"open {access.address} (Ctrl-C ends it)"))


def _open_models(models: Sequence[str | None], opening: Opening) -> "list[Subject]":
    """Open all models. How special tokens are read concerns those of texts, of which there must then be one."""
    from whichtoken.models.special_tokens import check_special_tokens

    chosen: Any = opening.special_tokens
    check_special_tokens(chosen)  # before any long work
    plain = replace(opening, special_tokens="control")
    subjects = [open_subject(_model_name(name), opening=plain) for name in models]
    of_texts = [subject for subject in subjects if subject.architecture.reads == "tokens"]
    concerned = of_texts or subjects  # models of images refuse another reading
    return [replace(subject, special_tokens=chosen) if subject in concerned else subject for subject in subjects]


def _model_name(name: str | None) -> str | None:
    """Return None for the name of the model that comes with whichtoken, unless there is a folder of that name."""
    from whichtoken.models.loading import DEFAULT_NAME

    return None if name == DEFAULT_NAME and not Path(name).exists() else name


def _corpus_page(folder: Path, method: str | None) -> str:
    from whichtoken.jobs.summary import summarise_corpus
    from whichtoken.render.corpus import corpus_page

    return corpus_page(summarise_corpus(folder, method))
