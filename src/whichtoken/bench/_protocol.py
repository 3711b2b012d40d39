"""Protocol: what a benchmark measures, on which inputs and how, with presets for papers."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from itertools import product
from typing import Any, Literal, get_args

from whichtoken.bench import removal_metrics  # noqa: F401  # registers them
from whichtoken.bench.metrics import METRICS, OtherClasses, is_measurable
from whichtoken.bench.selection import Effort
from whichtoken.core.removal_steps import GRIDS, OF_METRICS, find_grid
from whichtoken.errors import BadSetting, UnknownName, UnsupportedModel, UsageError
from whichtoken.records import Order, Plan, Reading
from whichtoken.settings import check_settings, make_settings
from whichtoken.targets import Part
from whichtoken.tasks import Task

ENTRY_POINTS = "whichtoken.protocols"  # group of modules that register presets, grids and metrics
METRICS_BY_EFFORT: Mapping[str, tuple[str, ...]] = {
    "quick": ("aopc",),
    "recommended": ("aopc", "log-odds", "kendall", "agreement"),
    "full": ("aopc", "log-odds", "normalised-aopc", "kendall", "agreement"),
}
BOUNDED = ("normalised-aopc", "above-random")  # metrics that need the best and the worst order
USUAL_REMOVALS = ("delete", "mask")
USUAL_MIN_TOKENS = 10

PRESETS: dict[str, Mapping[str, object]] = {  # besides "recommended"; `reproduce` adds those of the papers
    "quick": {"effort": "quick", "orders": ("morf",), "sample": 20},
    "full": {"effort": "full"},  # with the search for the bounds of AOPC, which takes most of its time
}


@dataclass(frozen=True)
class Protocol:
    """The settings of a benchmark; the defaults are the preset `recommended`. docs/evaluation.md describes each preset.

    None selects the task's default, such as `delete` and `mask` for texts, as far as the model supports them.
    """

    target: Literal["predicted", "gold"] = "predicted"  # the class or answer that is explained
    perturbations: tuple[str, ...] | None = None
    orders: tuple[str, ...] = ("morf", "lerf")
    grids: tuple[str, ...] = ("tenths",)
    level: str | None = None  # the unit of removal; the first column is about it
    further_levels: tuple[str, ...] | None = None  # other units that are measured, too; if `level` is named: none
    metrics: tuple[str, ...] | None = None
    min_tokens: int | None = field(default=None, metadata={"least": 1})  # special tokens included
    max_tokens: int | None = field(default=None, metadata={"least": 1})  # truncation; at most the model's limit
    min_probability: float = field(default=0.0, metadata={"least": 0})
    bounds_budget: float = field(default=1.2, metadata={"least": 0})  # evaluations for each unit and step
    bounds_up_to: int = field(default=64, metadata={"least": 1})  # units; no bounds for longer inputs
    k: int = field(default=20, metadata={"least": 1})  # precision@k: how many of the top tokens count
    other_classes: int = field(default=5, metadata={"least": 1})  # kendall: how many, the most probable first
    part: Part = "both"  # of the answer, as in Span
    generate: int = field(default=32, metadata={"least": 1})  # tokens of an answer, at most, if the model writes one
    ablations: int = field(default=32, metadata={"least": 3})  # lds: random removals of an input, for each level
    sample: int | None = field(default=None, metadata={"least": 1})  # number of inputs; None: all
    seed: int = field(default=0, metadata={"least": 0})  # for drawing the sample
    effort: Effort = "recommended"  # which metrics and methods are measured if none are named

    def __post_init__(self) -> None:
        load_presets()
        for name, values, known in (
            ("orders", self.orders, list(get_args(Order))),
            ("grids", self.grids, [grid for grid in GRIDS if grid not in OF_METRICS]),
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
        bounded = [name for name in BOUNDED if name in (self.metrics or ())]
        if bounded and not find_grid(self.grids[0]).same_for_every_order:
            allowed = f"without {bounded[0]}: the steps of grid {self.grids[0]} are not the same for every order"
            raise BadSetting("metrics", self.metrics, allowed)

    def adapt_to(self, task: Task) -> "Protocol":
        """Return a copy with the task's defaults filled in; raise if the task cannot do what is set."""
        for name in self.perturbations or ():
            task.removal(name)
        for level in filter(None, (self.level, *(self.further_levels or ()))):
            if level not in task.levels:
                raise BadSetting("level", level, f"one of {', '.join(task.levels)} for {task.unit}s")
        for name in self.metrics or ():
            if METRICS[name].needs_truth and not task.has_answers:
                raise BadSetting("metrics", name, f"another metric: it needs gold answers, and {task.unit}s have none")
        if self.metrics and not task.has_classes and all(METRICS[name].between_classes for name in self.metrics):
            allowed = f"another metric, such as aopc: it compares classes, and {task.unit}s have none"
            raise BadSetting("metrics", ", ".join(self.metrics), allowed)
        if task.reading() == "value":
            self._check_values(task)
        if self.max_tokens is not None and task.bench_long is None:
            raise BadSetting("max_tokens", self.max_tokens, f"None: {task.unit}s are not truncated")
        usual = {"min_tokens": USUAL_MIN_TOKENS, "max_tokens": None, **task.protocol}
        removals = self.perturbations or tuple(_supported_removals(task, usual.get("perturbations", USUAL_REMOVALS)))
        limit = self.max_tokens or usual["max_tokens"]
        first, *further = usual.get("levels", (task.levels[0],)) if self.level is None else (self.level,)
        return replace(
            self,
            perturbations=removals,
            level=first,
            further_levels=tuple(further) if self.further_levels is None else self.further_levels,
            metrics=self.metrics or self._usual_metrics(task),
            min_tokens=self.min_tokens or usual["min_tokens"],
            max_tokens=limit if limit is None else min(limit, task.subject.limit),
        )

    def _usual_metrics(self, task: Task) -> tuple[str, ...]:
        """Return the metrics if none are named; a quick benchmark measures AOPC on every task, which `auto` reads."""
        usual = METRICS_BY_EFFORT[self.effort]
        if self.effort == "quick":
            return usual
        return (*task.protocol.get("metrics", usual), *task.protocol.get(f"{self.effort} metrics", ()))

    @property
    def levels(self) -> tuple[str, ...]:
        """The units of removal, that of the first column first."""
        return self.level or "token", *(self.further_levels or ())

    def _check_values(self, task: Task) -> None:
        """Raise if a setting needs probabilities or classes, which a regression model does not have."""
        title, n_outputs = task.subject.title, len(task.subject.labels)
        if n_outputs > 1:
            raise UsageError(
                f"{title} predicts {n_outputs} values, and a benchmark measures one; use wt.degrade for each"
            )
        if self.target == "gold":
            raise BadSetting(
                "target", "gold", f"'predicted': gold values are not classes, and {title} predicts a value"
            )
        if self.min_probability > 0:
            raise BadSetting("min_probability", self.min_probability, f"0: {title} predicts a value")
        if self.metrics and not any(is_measurable(name, "value") for name in self.metrics):
            allowed = f"metrics of predicted values, such as aopc: {title} predicts a value"
            raise BadSetting("metrics", self.metrics, allowed)

    def plans(self) -> list[Plan]:
        """Return one plan per degradation curve; none if no metric uses curves."""
        metrics = [METRICS[name] for name in self.metrics or ()]
        plain = any(metric.on_curves and metric.own_curve is None for metric in metrics)
        removals, own = self.perturbations or (), dict.fromkeys(m.own_curve for m in metrics if m.own_curve)
        orders = dict.fromkeys((*self.orders, *(order for metric in metrics for order in metric.orders)))
        chosen = product(self.levels, self.grids, removals, orders) if plain else ()
        return [Plan(how, order, grid, level) for level, grid, how, order in chosen] + [  # type: ignore[arg-type]
            Plan(how, order, grid, level)  # the metric's own steps and order, not self.grids
            for level, how, (grid, order) in product(self.levels, removals, own)
        ]

    def bounded_plans(self) -> list[Plan]:
        """Return the plans whose best and worst order are searched for."""
        if not set(BOUNDED) & set(self.metrics or ()):
            return []
        return [Plan((self.perturbations or ())[0], "morf", self.grids[0], level) for level in self.levels]

    @property
    def ablates(self) -> bool:
        """Whether a metric needs random ablations."""
        return any(METRICS[name].ablates for name in self.metrics or ())

    def removes_each(self, reading: Reading) -> bool:
        """Return whether a metric of this reading needs the effect of each unit."""
        return any(METRICS[name].removes_each and is_measurable(name, reading) for name in self.metrics or ())

    def asks_for_text(self, task: Task) -> bool:
        """Whether the model writes what is explained, so that `generate` has an effect."""
        return bool(task.bench_target(self.part, 1) != task.bench_target(self.part, 2))

    def compares(self, classes: OtherClasses) -> bool:
        """Return whether a metric compares the explained class with these others."""
        return any(METRICS[name].between_classes == classes for name in self.metrics or ())

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _supported_removals(task: Task, names: Iterable[str]) -> Iterable[str]:
    """Yield the removals that the model supports."""
    for name in names:
        try:
            task.removal(name)
        except UnsupportedModel:
            continue
        yield name


def protocol(preset: str | None = None, **settings: Any) -> Protocol:
    """Return a preset with some settings changed: `protocol("contrast-cat", sample=200)`."""
    load_presets()
    return make_settings(Protocol, "protocol", PRESETS, preset, settings)


def resolve_protocol(choice: str | Protocol) -> Protocol:
    if isinstance(choice, Protocol):
        check_settings(Protocol, "protocol", vars(choice))
        return choice
    load_presets()
    if choice not in ("recommended", *PRESETS):
        raise UnknownName("protocol", choice, ("recommended", *PRESETS))
    return protocol(choice)


@cache
def load_presets() -> None:
    """Load all presets through entry points: our own and those of other packages."""
    for entry in entry_points(group=ENTRY_POINTS):
        entry.load()
