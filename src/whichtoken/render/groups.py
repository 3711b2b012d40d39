"""Attributions grouped by the input that they explain. No torch."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from whichtoken.errors import UsageError, name_type
from whichtoken.records import Attribution

Results = Attribution | Mapping[str, Attribution] | Iterable[Attribution | Mapping[str, Attribution]]


def group_results(results: Results) -> list[dict[str, Attribution]]:
    """Group attributions by input, each by name; consecutive attributions of one input belong together."""
    if isinstance(results, Attribution):
        return [{results.name or results.method: results}]
    if isinstance(results, Mapping):
        return [dict(results)] if results else []
    groups: list[dict[str, Attribution]] = []
    open_group = False
    for item in results:
        if isinstance(item, Mapping):
            groups.append(dict(item))
            open_group = False
        elif not isinstance(item, Attribution):
            raise UsageError(f"{name_type(item)} cannot be shown; expected what explain returns, or some of it")
        elif open_group and _belongs_to(list(groups[-1].values()), item):
            groups[-1][_free_name(item, groups[-1])] = item
        else:
            groups.append({item.name or item.method: item})
            open_group = True
    return [group for group in groups if group]


def _belongs_to(group: Sequence[Attribution], item: Attribution) -> bool:
    """Whether an attribution is of the group's input; a repeated method with equal settings starts a new group."""
    keys = ("texts", "label", "model", "identity", "source")
    same = all(getattr(group[0], key) == getattr(item, key) for key in keys)
    pictures = [group[0].picture, item.picture]
    images = [None if picture is None else (picture.source, picture.png) for picture in pictures]
    same = same and images[0] == images[1] and _shape(group[0]) == _shape(item)
    return same and all((other.method, other.settings) != (item.method, item.settings) for other in group)


def _shape(item: Attribution) -> Any:
    """Return what the maps of an answer are about, so that maps with other rows or columns are kept apart."""
    answer = item.generated
    return None if answer is None else (answer.ids, answer.row_level, answer.source_level, answer.foil)


def _free_name(item: Attribution, taken: Mapping[str, Attribution]) -> str:
    name = item.name or item.method
    if name not in taken:
        return name
    settings = taken[name].settings
    changed = [f"{key}={value}" for key, value in item.settings.items() if settings.get(key) != value]
    return f"{item.method}({', '.join(changed)})"
