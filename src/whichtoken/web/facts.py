"""What `/api/info` says: the models, their methods, and the limits of the server."""

from collections.abc import Iterable
from importlib.util import find_spec

from whichtoken import __version__
from whichtoken.bench.selection import is_slow
from whichtoken.catalogue import MethodInfo, catalogue
from whichtoken.core.registry import method
from whichtoken.errors import WhichTokenError
from whichtoken.tasks import Reason, Task
from whichtoken.web.limits import Limits
from whichtoken.web.replies import InfoReply, MethodFacts, ModelFacts
from whichtoken.web.served import Served

API = 1
# The kinds of input that a page offers, by the keyword under which a task reads them.
KINDS = {"texts": ("text", "pair"), "question": ("question",), "images": ("image",), "prompt": ("prompt",)}
LEVELS = ("word", "token")


def info_reply(models: Iterable[Served], limits: Limits, *, benchmark: bool, corpus: bool) -> InfoReply:
    facts = tuple(model_facts(model) for model in models)
    return InfoReply(__version__, API, facts, limits, benchmark, corpus, find_spec("matplotlib") is not None)


def model_facts(model: Served) -> ModelFacts:
    task, subject = model.task, model.subject
    levels = levels_of(task)
    return ModelFacts(
        id=model.id,
        title=subject.title,
        **vars(subject.identity()),
        task=task.name,
        purpose=task.describe_purpose(),
        inputs=KINDS.get(task.keywords[0], ()),
        unit=task.unit,
        parts=f"{levels[0]}s" if task.tokens == "tokens" else task.tokens,
        levels=levels,
        removals=removals_of(task),
        reading=task.reading(),
        labels=tuple(subject.labels) if task.has_classes else (),
        targets="labels" if task.has_classes else "answer",
        contrast=task.has_classes and task.reading() == "probability" and len(subject.labels) > 1,
        token=task.has_classes and bool(task.no_result),  # prompts may have no result, but have no labels of tokens
        facts=tuple(task.facts()),
        default_methods=(task.choose_method(1),),
        quick_method=task.quick_method,
        methods=tuple(_method_facts(entry, task) for entry in catalogue()),
    )


def levels_of(task: Task) -> tuple[str, ...]:
    """Return the levels at which inputs are shown and switched."""
    return tuple(level for level in LEVELS if level in task.levels)


def removals_of(task: Task) -> tuple[str, ...]:
    """Return the ways to remove parts that suit the model."""
    return tuple(name for name in task.removals() if _suits(task, name))


def _suits(task: Task, removal: str) -> bool:
    try:
        task.removal(removal)
    except WhichTokenError:
        return False
    return True


def _method_facts(entry: MethodInfo, task: Task) -> MethodFacts:
    built = method(entry.name)
    return MethodFacts(
        name=entry.name,
        title=entry.name,
        paper=entry.paper,
        about=entry.about,
        cost="slow" if is_slow(built) else "fast",
        tuned_on_deletion=entry.tuned_on_deletion,
        layers=built.sums_layers,
        presets=entry.presets,
        cannot_run=describe_reason(task.can_run(built)),
    )


def describe_reason(reason: Reason | None) -> str | None:
    if reason is None:
        return None
    return f"{reason.why}; {reason.fix}" if reason.fix else reason.why
