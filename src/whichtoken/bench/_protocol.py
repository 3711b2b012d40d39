"""Protocol: what is measured on which inputs, and how; with presets that make each paper's choices."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from itertools import product
from typing import Any, Literal, get_args

from whichtoken.bench.metrics import METRICS
from whichtoken.core.removal_steps import GRIDS, grid_of
from whichtoken.errors import BadSetting, UnknownName, UnsupportedModel
from whichtoken.records import Order, Plan
from whichtoken.settings import check_settings, make_settings
from whichtoken.targets import Part
from whichtoken.tasks import Task

ENTRY_POINTS = "whichtoken.protocols"  # group in which packages name modules that register presets, grids and metrics
USUAL_METRICS = ("aopc", "log-odds", "normalised-aopc", "kendall", "agreement")
USUAL_REMOVALS = ("delete", "mask")
USUAL_MIN_TOKENS = 10

PRESETS: dict[str, Mapping[str, object]] = {}  # beside "recommended"; `reproduce` registers those of papers


@dataclass(frozen=True)
class Protocol:
    """`recommended` unless changed; docs/evaluation.md says what each preset does and how it differs from its paper.

    None: what suits the task, such as `delete` and `mask` for texts, as far as the model has them.
    """

    target: Literal["predicted", "gold"] = "predicted"  # whose probability falls, or which answer is explained
    perturbations: tuple[str, ...] | None = None
    orders: tuple[str, ...] = ("morf", "lerf")
    grids: tuple[str, ...] = ("tenths",)
    level: str = "token"
    metrics: tuple[str, ...] | None = None
    min_tokens: int | None = field(default=None, metadata={"least": 1})  # special tokens included
    max_tokens: int | None = field(default=None, metadata={"least": 1})  # longer inputs are cut; or the model's limit
    min_probability: float = field(default=0.0, metadata={"least": 0})
    bounds_width: int = field(default=3, metadata={"least": 1})  # of the beam search
    bounds_up_to: int = field(default=64, metadata={"least": 1})  # units; longer inputs have no bounds: expensive
    k: int = field(default=20, metadata={"least": 1})  # how many of the highest tokens count as found
    part: Part = "both"  # of an answer, as in Span
    sample: int | None = field(default=None, metadata={"least": 1})  # inputs; None: all
    seed: int = field(default=0, metadata={"least": 0})  # of the sample

    def __post_init__(self) -> None:
        load_presets()
        for name, values, known in (
            ("orders", self.orders, list(get_args(Order))),
            ("grids", self.grids, [grid for grid in GRIDS if grid != "eraser"]),  # comes with its metrics
            ("metrics", self.metrics, list(METRICS)),
        ):
            if values is None:
                continue
            if not values:
                raise BadSetting(name, values, f"one or more of {', '.join(known)}")
            for value in values:
                if value not in known:
                    raise UnknownName(name.removesuffix("s"), value, known)
        if self.perturbations == ():
            raise BadSetting("perturbations", self.perturbations, "one or more")
        if "normalised-aopc" in (self.metrics or ()) and not grid_of(self.grids[0]).same_for_every_order:
            allowed = "without normalised-aopc: it needs steps that are the same for every order, which this has not"
            raise BadSetting("metrics", self.metrics, allowed)

    def suited_to(self, task: Task) -> "Protocol":
        """With what suits the task where nothing else was asked for; an error if what was asked for cannot be."""
        for name in self.perturbations or ():
            task.removal(name)
        if self.level not in task.levels:
            raise BadSetting("level", self.level, f"one of {', '.join(task.levels)} for {task.unit}s")
        for name in self.metrics or ():
            if METRICS[name].needs_truth and not task.has_answers:
                raise BadSetting("metrics", name, f"another one: it looks for answers, and {task.unit}s have none")
        if self.max_tokens is not None and task.bench_long is None:
            raise BadSetting("max_tokens", self.max_tokens, f"None: {task.unit}s are not cut")
        usual = {"metrics": USUAL_METRICS, "min_tokens": USUAL_MIN_TOKENS, "max_tokens": None, **task.protocol}
        removals = self.perturbations or tuple(_there(task, usual.get("perturbations", USUAL_REMOVALS)))
        limit = self.max_tokens or usual["max_tokens"]
        return replace(
            self,
            perturbations=removals,
            metrics=self.metrics or usual["metrics"],
            min_tokens=self.min_tokens or usual["min_tokens"],
            max_tokens=limit if limit is None else min(limit, task.subject.limit),
        )

    def plans(self) -> list[Plan]:
        """Every curve that is drawn; none if no metric reads curves."""
        chosen = [METRICS[name] for name in self.metrics or ()]
        plain = any(metric.on_curves and not metric.eraser for metric in chosen)
        removals, eraser = self.perturbations or (), dict.fromkeys(metric.eraser for metric in chosen if metric.eraser)
        own = product(self.grids, removals, self.orders) if plain else ()
        return [Plan(how, order, grid, self.level) for grid, how, order in own] + [  # type: ignore[arg-type]
            Plan(how, order, "eraser", self.level)  # type: ignore[arg-type]  # their shares, not ours
            for how, order in product(removals, eraser)
        ]

    def bounded(self) -> list[Plan]:
        """The plans whose best and worst order are searched for."""
        if "normalised-aopc" not in (self.metrics or ()):
            return []
        return [Plan((self.perturbations or ())[0], "morf", self.grids[0], self.level)]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _there(task: Task, names: Iterable[str]) -> Iterable[str]:
    """The removals that this model has."""
    for name in names:
        try:
            task.removal(name)
        except UnsupportedModel:
            continue
        yield name


def protocol(preset: str | None = None, **settings: Any) -> Protocol:
    """`protocol("contrast-cat", sample=200)`: a preset, and what is different."""
    load_presets()
    return make_settings(Protocol, "protocol", PRESETS, preset, settings)


def chosen_protocol(given: str | Protocol) -> Protocol:
    if isinstance(given, Protocol):
        check_settings(Protocol, "protocol", vars(given))
        return given
    load_presets()
    if given not in ("recommended", *PRESETS):
        raise UnknownName("protocol", given, ("recommended", *PRESETS))
    return protocol(given)


@cache
def load_presets() -> None:
    """Those of papers come in by the same door as those of other packages."""
    for entry in entry_points(group=ENTRY_POINTS):
        entry.load()
