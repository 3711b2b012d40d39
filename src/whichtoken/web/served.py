"""The models of a server. Each has a thread for clicks, which do not wait behind jobs, and twins for both."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from whichtoken.errors import LibraryMismatch, UnknownName
from whichtoken.models import Subject, copy_twin
from whichtoken.tasks import Task, task_for

_T = TypeVar("_T")
KEPT = 16  # inputs that clicks need not encode again


@dataclass(frozen=True, eq=False)
class Served:
    """A model that requests can name."""

    id: str
    subject: Subject
    task: Task  # bound to the model itself, for questions that need no pass
    for_jobs: Task  # bound to a twin that only jobs use
    for_clicks: Task
    clicks: ThreadPoolExecutor = field(repr=False)
    _kept: "OrderedDict[str, Any]" = field(default_factory=OrderedDict, repr=False)

    def keep(self, key: str, make: Callable[[], _T]) -> _T:
        """Return what was made for this key, or make it; only the last few are kept. For the thread of clicks."""
        if key not in self._kept:
            self._kept[key] = make()
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        made: _T = self._kept[key]
        return made


def serve_subjects(subjects: Sequence[Subject]) -> dict[str, Served]:
    """Return the models by the names that requests use."""
    served: dict[str, Served] = {}
    for subject in subjects:
        name = _free_id(_short(subject.title), served)
        clicks = ThreadPoolExecutor(1, f"clicks-{name}")
        for_jobs, for_clicks = (task_for(copy_twin(subject)) for _ in range(2))
        served[name] = Served(name, subject, task_for(subject), for_jobs, for_clicks, clicks)
    return served


def find_model(models: Mapping[str, Served], name: str) -> Served:
    if name not in models:
        raise UnknownName("model", name, models)
    return models[name]


def _short(title: str) -> str:
    """Return the last part of a path, and a name of the hub as it is."""
    return Path(title).name if Path(title).is_absolute() or title.startswith(".") else title


def _free_id(name: str, taken: Iterable[str]) -> str:
    numbers = (name if n == 1 else f"{name}-{n}" for n in range(1, 10_000))
    return next(free for free in numbers if free not in taken)


def attach_libraries(subjects: Sequence[Subject], references: Sequence[Path], heads: Sequence[Path]) -> list[Subject]:
    """Give each library and head mask to the model that it was built for; LibraryMismatch if there is none."""
    given = list(subjects)
    ways = [(Subject.with_references, path) for path in references] + [(Subject.with_heads, path) for path in heads]
    for attach, path in ways:
        errors: list[LibraryMismatch] = []
        for place, subject in enumerate(given):
            try:
                given[place] = attach(subject, path)
                break
            except LibraryMismatch as error:
                errors.append(error)
        else:
            raise errors[0]
    return given
