"""Which rule each operation has, by the papers' names for the whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from whichtoken.lrp import rules
from whichtoken.lrp.gates import Gates
from whichtoken.lrp.rules import Rule


@dataclass(frozen=True)
class RuleSet:
    """A rule for each kind of operation (the kinds are in `mode.KINDS`). The name stands for its rules."""

    name: str
    carries: Literal[
        "relevance", "gradient"
    ]  # what comes back is relevance, or gives it when multiplied with the input
    rules: Mapping[str, Rule] = field(compare=False, repr=False)
    gates: Gates | None = None  # relevance goes through chosen attention heads only
    spread: bool = False  # what reaches the last block's output goes to all tokens alike, whichever it belongs to

    def without(self, kind: str) -> "RuleSet":
        """One rule less, to see what it is for."""
        left = {name: rule for name, rule in self.rules.items() if name != kind}
        return replace(self, name=f"{self.name} without {kind}", rules=MappingProxyType(left))


C21 = RuleSet(
    "c21",
    "relevance",
    MappingProxyType(
        {
            "linear": rules.linear,
            "matmul": rules.matmul,
            "add": rules.add,
            "multiply": rules.multiply,
            "divide": rules.divide_by_constant,
            "sum": rules.total,
            "softmax": rules.unchanged,
            "layer_norm": rules.unchanged,
            "rms_norm": rules.unchanged,
            "activation": rules.unchanged,
            "negative": rules.unchanged,
        }
    ),
)
ORIG = replace(
    C21,
    name="orig",
    rules=MappingProxyType({**C21.rules, "linear": rules.linear_doubling, "add": rules.add_unscaled}),
)
ATTN_LRP = RuleSet(
    "attn-lrp",
    "gradient",
    MappingProxyType(
        {
            "linear": rules.ordinary,
            "matmul": rules.halved,
            "add": rules.ordinary,
            "multiply": rules.halved,
            "divide": rules.ordinary_by_constant,
            "sum": rules.ordinary,
            "softmax": rules.ordinary,
            "layer_norm": rules.layer_norm,
            "rms_norm": rules.rms_norm,
            "activation": rules.ratio,
            "negative": rules.ordinary,
        }
    ),
)
CP_LRP = replace(
    ATTN_LRP,
    name="cp-lrp",
    rules=MappingProxyType(
        {**ATTN_LRP.rules, "matmul": rules.ordinary, "multiply": rules.gate_constant, "softmax": rules.constant}
    ),
)
CP_LRP_GRADIENT = replace(
    CP_LRP,
    name="cp-lrp with activations by their gradient",
    rules=MappingProxyType({**CP_LRP.rules, "activation": rules.activated}),
)

RULE_SETS = {rule_set.name: rule_set for rule_set in (C21, ORIG, ATTN_LRP, CP_LRP, CP_LRP_GRADIENT)}
