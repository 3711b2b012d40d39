"""The command `model`: describe a model and the methods it supports."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from whichtoken.cli.options import BatchSize, Device, Dtype, Heads, Reading, References, Revision, Trust, print_list
from whichtoken.cli.subject import Opening, open_subject, unsupported_methods
from whichtoken.render.terminal import table_view

if TYPE_CHECKING:
    from whichtoken.models import Subject

LIBRARIES = ("references", "heads")  # each is a field of Subject and a command


def model(
    name: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="Folder or hub name; default: the model that comes with whichtoken."),
    ] = None,
    references: References = None,
    heads: Heads = None,
    trust: Trust = False,
    device: Device = None,
    dtype: Dtype = "float32",
    revision: Revision = None,
    batch_size: BatchSize = None,
    reading: Reading = None,
) -> None:
    opening = Opening(trust, device, dtype, revision, batch_size, reading)
    print_list(_model_page(open_subject(name, references, heads, opening)))


def _model_page(subject: "Subject") -> RenderableType:
    from whichtoken.core.registry import method, method_names
    from whichtoken.tasks import task_for

    config, names = subject.model.config, method_names()
    unsupported = unsupported_methods(subject, [method(name) for name in names])
    n_supported = len(names) - sum(map(len, unsupported.values()))
    without = "".join(f"; not {', '.join(m.label for m in ms)}: {reason.why}" for reason, ms in unsupported.items())
    libraries = [(name, getattr(subject, name)) for name in LIBRARIES]
    fixes = " ".join(reason.fix for reason in unsupported if reason.library)
    described = [
        (name, str(library or f"none; see: whichtoken {name} build --help"))
        for name, library in libraries
        if library or f"{name} build" in fixes
    ]
    reads = subject.architecture.attention or "the attention interface of transformers"
    facts = [
        ("model", subject.title),
        *((name, value[:26]) for name, value in vars(subject.identity()).items()),
        ("architecture", f"{config.model_type} ({type(subject.model).__name__})"),
        ("layers", f"{subject.n_layers} blocks, {config.num_attention_heads} heads, {config.hidden_size} wide"),
        ("parameters", f"{sum(p.numel() for p in subject.model.parameters()):,}, in {subject.model.dtype}"),
        *task_for(subject).facts(),
        ("attention", f"read from {reads}"),
        *described,
        ("methods", f"{n_supported} of {len(names)}{without}"),
    ]
    return table_view(("", ""), [(Text(name, style="bold"), value) for name, value in facts])
