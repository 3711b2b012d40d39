"""Running a model for metrics: curves of perturbed texts, and how far any order of removal could get."""

from whichtoken.evaluating.bounds import Bounds, aopc_bounds
from whichtoken.evaluating.curves import Plan, degrade, degrade_text
from whichtoken.evaluating.inputs import Text, as_text

__all__ = ["Bounds", "Plan", "Text", "aopc_bounds", "as_text", "degrade", "degrade_text"]
