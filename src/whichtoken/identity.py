"""Identity: the model that computed something, as hashes that are stored with what it computed. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNCHECKED = "made before tokenizers were checked"
NO_PROCESSOR = "none"
SHOWN = 20  # characters of a hash in messages


@dataclass(frozen=True)
class Identity:
    """What determines a model's output for an input. Whatever depends on it stores both fields, under these names."""

    revision: str  # commit on the hub, or a hash of configuration and weights
    processor: str  # a hash of the tokenizer or image processor; empty in files of versions that did not store it

    @property
    def note(self) -> str:
        """What to add where a file's origin is shown."""
        return "" if self.processor else f", {UNCHECKED}"

    def describe_change(self, title: str, now: "Identity") -> str:
        """Say what has changed since something was made with this model; "" if nothing is known to have changed."""
        if now.revision != self.revision:
            found = f"{title} is revision {now.revision[:SHOWN]} (weights, configuration and dtype count)"
            return f"revision {self.revision[:SHOWN]}; {found}"
        # Without a processor, inputs are tensors, which no processor changes.
        if not {self.processor, now.processor} & {"", NO_PROCESSOR} and now.processor != self.processor:
            found = f"{title} has {now.processor[:SHOWN]} (vocabulary, settings, special tokens and templates count)"
            return f"tokenizer or image processor {self.processor[:SHOWN]}; {found}"
        return ""

    def fits(self, now: "Identity") -> bool:
        """Return whether something made with this model may be used with the model as it is now."""
        return not self.describe_change("", now)


def add_missing(stored: Any) -> Any:
    """Return a parsed file with the field that earlier versions did not store."""
    return {"processor": "", **stored} if isinstance(stored, dict) else stored


def read_identity(stored: Mapping[str, Any]) -> Identity:
    """Return the identity in a specification, or in the facts of a table."""
    return Identity(str(stored.get("revision", "")), str(stored.get("processor", "")))
