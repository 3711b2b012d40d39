"""Layer-wise relevance propagation (LRP) through an unmodified model: the rules, and the mode that applies them.

    with propagating(model, C21):
        logits = model(**inputs).logits
    (relevance,) = torch.autograd.grad(logits[0, 1], embeddings)

With rule sets that carry a gradient (AttnLRP, CP-LRP), relevance is `embeddings * gradient`.
"""

from whichtoken.lrp.gates import Gates, spread
from whichtoken.lrp.mode import ReappliedRules, propagating, suspend_rules
from whichtoken.lrp.rules import attention_weights, carries_relevance, divide
from whichtoken.lrp.rulesets import (
    ATTN_LRP,
    C21,
    CP_LRP,
    CP_LRP_GRADIENT,
    ORIG,
    RULE_SETS,
    Attend,
    RuleSet,
    attention_in_one_step,
    weighs_in_one_step,
)

__all__ = [
    "ATTN_LRP",
    "C21",
    "CP_LRP",
    "CP_LRP_GRADIENT",
    "ORIG",
    "RULE_SETS",
    "Attend",
    "Gates",
    "ReappliedRules",
    "RuleSet",
    "attention_in_one_step",
    "attention_weights",
    "carries_relevance",
    "divide",
    "propagating",
    "spread",
    "suspend_rules",
    "weighs_in_one_step",
]
