"""Rule sets: which rule each kind of operation has, under the name that papers give the set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from torch import Tensor

from whichtoken.lrp import gradient_rules, rules
from whichtoken.lrp.gates import Gates
from whichtoken.lrp.rules import Rule, Softmax

# From queries, keys, values, a scale and the softmax to attention and its weights.
Attend = Callable[[Tensor, Tensor, Tensor, float, Softmax], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class RuleSet:
    """A rule for each kind of operation (see `mode.KINDS`). Sets of one name are taken to have the same rules."""

    name: str
    carries: Literal["relevance", "gradient"]  # a gradient becomes relevance when multiplied by the input
    rules: Mapping[str, Rule] = field(compare=False, repr=False)
    gates: Gates | None = None  # let relevance through chosen attention heads only
    spread: bool = False  # spread relevance at the last block's output evenly over all tokens

    def without(self, kind: str) -> "RuleSet":
        """Return this set without one of its rules, for ablations."""
        others = {name: rule for name, rule in self.rules.items() if name != kind}
        return replace(self, name=f"{self.name} without {kind}", rules=MappingProxyType(others))


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
            "softmax": rules.identity,
            "layer_norm": rules.identity,
            "rms_norm": rules.identity,
            "activation": rules.identity,
            "negative": rules.identity,
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
            "linear": gradient_rules.gradient,
            "matmul": gradient_rules.half_gradient_of_matmul,
            "add": gradient_rules.gradient,
            "multiply": gradient_rules.half_gradient,
            "divide": gradient_rules.gradient_by_constant,
            "sum": gradient_rules.gradient,
            "softmax": gradient_rules.gradient,
            "layer_norm": gradient_rules.layer_norm,
            "rms_norm": gradient_rules.rms_norm,
            "activation": gradient_rules.ratio,
            "negative": gradient_rules.gradient,
        }
    ),
)
CP_LRP = replace(
    ATTN_LRP,
    name="cp-lrp",
    rules=MappingProxyType(
        {
            **ATTN_LRP.rules,
            "matmul": gradient_rules.gradient,
            "multiply": gradient_rules.gate_constant,
            "softmax": gradient_rules.constant,
        }
    ),
)
CP_LRP_GRADIENT = replace(
    CP_LRP,
    name="cp-lrp with activations by their gradient",
    rules=MappingProxyType({**CP_LRP.rules, "activation": gradient_rules.mark_activated}),
)

RULE_SETS = {rule_set.name: rule_set for rule_set in (C21, ORIG, ATTN_LRP, CP_LRP, CP_LRP_GRADIENT)}


def attention_in_one_step(rule_set: RuleSet) -> Attend | None:
    """Return a function that computes attention as the rules for its steps do, but faster; None: there is none."""
    of = rule_set.rules
    of_products, of_softmax = of.get("matmul"), of.get("softmax")
    if of_products is gradient_rules.half_gradient_of_matmul and of_softmax is gradient_rules.gradient:
        return gradient_rules.attend_halving
    if of_products is gradient_rules.gradient and of_softmax is gradient_rules.constant:
        return gradient_rules.attend_constantly
    return None


def weighs_in_one_step(rule_set: RuleSet) -> bool:
    """Return whether the weights of attention have the rules that `rules.attention_weights` applies at once."""
    of = rule_set.rules
    plain = of.get("matmul") is rules.matmul and of.get("multiply") is rules.multiply
    return plain and of.get("softmax") is rules.identity and of.get("add") in (rules.add, rules.add_unscaled)
