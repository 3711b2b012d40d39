"""From inputs and method names to attributions.

(The package is not called `explain`, so that `whichtoken.explain` can only be the function.)
"""

from whichtoken.explaining.calls import explain, explain_each, explain_with

__all__ = ["explain", "explain_each", "explain_with"]
