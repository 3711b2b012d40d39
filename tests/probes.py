"""A probe for tests of methods on models whose answers are known: it answers nothing that a test does not define."""

from typing import Any


class SilentProbe:
    """Every request is an error; tests inherit from it and define the requests that a method should make."""

    @property
    def memory(self) -> dict[str, Any]:
        return {}

    def keep(self, patterns: Any) -> Any:
        raise AssertionError("keep")

    def distinct(self, patterns: Any) -> Any:
        raise AssertionError("distinct")

    def keep_in_place(self, patterns: Any) -> Any:
        raise AssertionError("keep_in_place")

    def units(self, level: Any) -> Any:
        raise AssertionError("units")

    def outputs(self, kept: Any, how: Any) -> Any:
        raise AssertionError("outputs")

    def log_odds(self, kept: Any, how: Any) -> Any:
        raise AssertionError("log_odds")

    def spell(self, row: Any, tokens: Any) -> Any:
        raise AssertionError("spell")

    def heads(self, given: Any) -> Any:
        raise AssertionError("heads")

    def references(self, given: Any) -> Any:
        raise AssertionError("references")

    def blank(self, filler: Any) -> Any:
        raise AssertionError("blank")

    def trace(self, embeddings: Any, needs: Any) -> Any:
        raise AssertionError("trace")

    def differentiate(self, points: Any) -> Any:
        raise AssertionError("differentiate")
