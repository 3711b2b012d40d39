"""Protocol: what is measured on which texts, and how; with presets that make each paper's choices."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any, Literal, get_args

from whichtoken.core.perturb import PERTURBATIONS
from whichtoken.core.removal_steps import GRIDS
from whichtoken.errors import BadSetting, UnknownName
from whichtoken.evaluating import Plan
from whichtoken.evaluating.curves import Level
from whichtoken.evaluating.inputs import perturbation_of
from whichtoken.metrics.curves import METRICS, WIDER
from whichtoken.records import Order
from whichtoken.settings import build

METRIC_NAMES = (*METRICS, *WIDER)
ERASER_METRICS = {"comprehensiveness": "morf", "sufficiency": "lerf"}  # and the order that each is measured on


@dataclass(frozen=True)
class Protocol:
    """`recommended` unless changed; docs/evaluation.md says what each preset does and how it differs from its paper."""

    target: Literal["predicted", "gold"] = "predicted"  # whose probability falls
    perturbations: tuple[str, ...] = ("delete", "mask")
    orders: tuple[str, ...] = ("morf", "lerf")
    grids: tuple[str, ...] = ("tenths",)
    level: Level = "token"
    shares_of: Literal["content", "all"] = "content"
    keep_last: bool = False
    metrics: tuple[str, ...] = ("aopc", "log-odds", "normalised-aopc", "kendall", "agreement")
    absolute: bool = False  # AOPC of absolute differences
    kendall: Literal["scores", "order"] = "scores"
    kendall_of: Literal["content", "all"] = "content"
    min_tokens: int = field(default=10, metadata={"least": 1})  # special tokens included
    min_probability: float = field(default=0.0, metadata={"least": 0})
    bounds_width: int = field(default=3, metadata={"least": 1})  # of the beam search
    bounds_up_to: int = field(default=64, metadata={"least": 1})  # tokens; longer texts have no bounds: dear
    sample: int | None = field(default=None, metadata={"least": 1})  # texts; None: all
    seed: int = field(default=0, metadata={"least": 0})  # of the sample

    def __post_init__(self) -> None:
        for name, values, known in (
            ("perturbations", self.perturbations, PERTURBATIONS),
            ("orders", self.orders, get_args(Order)),
            ("grids", self.grids, [grid for grid in GRIDS if grid != "eraser"]),  # comes with its metrics
            ("metrics", self.metrics, METRIC_NAMES),
        ):
            if not values:
                raise BadSetting(name, values, f"one or more of {', '.join(known)}")
            for value in values:
                if value not in known:
                    raise UnknownName(name.removesuffix("s"), value, known)
        same_steps = self.shares_of == "content" and not self.keep_last
        if "normalised-aopc" in self.metrics and not same_steps:
            allowed = "without normalised-aopc: it needs steps that are the same for every order, which this has not"
            raise BadSetting("metrics", self.metrics, allowed)

    def plans(self) -> list[Plan]:
        """Every curve that is drawn."""
        own = product(self.grids, self.perturbations, self.orders)
        eraser = [order for metric, order in ERASER_METRICS.items() if metric in self.metrics]
        return [self._plan(order, how, grid) for grid, how, order in own] + [
            Plan(order, perturbation_of(how), "eraser", self.level)  # type: ignore[arg-type]  # their shares, not ours
            for how in self.perturbations
            for order in eraser
        ]

    def bounded(self) -> list[Plan]:
        """The plans whose best and worst order are searched for."""
        if "normalised-aopc" not in self.metrics:
            return []
        return [self._plan("morf", self.perturbations[0], self.grids[0])]

    def _plan(self, order: str, how: str, grid: str) -> Plan:
        return Plan(order, perturbation_of(how), grid, self.level, self.shares_of, self.keep_last)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


AUTHORS = {"grids": ("ninths",), "shares_of": "all", "keep_last": True}  # the deletion loop that three papers share

PROTOCOLS: Mapping[str, Mapping[str, object]] = {
    "contrast-cat": {
        **AUTHORS,
        "perturbations": ("delete",),
        "metrics": ("aopc", "log-odds", "pooled-auc", "kendall"),
        "kendall": "order",
        "kendall_of": "all",
        "sample": 2000,
    },
    "attcat": {
        **AUTHORS,
        "target": "gold",
        "perturbations": ("delete", "pad"),
        "orders": ("morf",),
        "metrics": ("aopc", "log-odds", "kendall"),
        "absolute": True,
        "kendall": "order",
        "kendall_of": "all",
    },
    "mask-lrp": {
        **AUTHORS,
        "target": "gold",
        "perturbations": ("pad",),
        "orders": ("morf",),
        "metrics": ("aopc", "log-odds"),
        "min_tokens": 20,
    },
}


def protocol(preset: str | None = None, **settings: Any) -> Protocol:
    """`protocol("contrast-cat", sample=200)`: a preset, and what is different."""
    return build(Protocol, "protocol", PROTOCOLS, preset, settings)
