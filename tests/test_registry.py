"""Names, presets and settings of methods."""

from dataclasses import dataclass
from typing import Any

import pytest

import whichtoken as wt
from whichtoken.core.registry import check, find, method_names, parse, register
from whichtoken.core.trace import Method, Needs, Probe, Scores, Trace
from whichtoken.errors import BadSetting, UnknownName, UsageError


def test_every_method_of_the_single_pass_family_is_there() -> None:
    expected = """att-grads att-x-att-grads attcat attention-grad-cam cam cat gae grad-sam gradient-x-input
    integrated-gradients random raw-attention rollout"""
    assert set(expected.split()) <= set(method_names())


@pytest.mark.parametrize(
    ("method", "label"),
    [
        (wt.method("attcat"), "attcat"),
        (wt.method("attcat", preset="recommended"), "attcat"),
        (wt.method("attcat", preset="repo"), "attcat@repo"),
        (wt.method("attcat", preset="repo", mask_special=False), "attcat(zero_special=False)"),
        (wt.method("grad-sam", axis="key"), "grad-sam(axis=key)"),
        (wt.method("grad-sam", axis="readout"), "grad-sam"),
        (wt.method("grad-sam", axis="query"), "grad-sam@paper"),
        (parse("attcat@paper"), "attcat@paper"),
    ],
)
def test_a_label_says_what_differs_from_the_defaults(method: Method, label: str) -> None:
    assert method.label == label


def test_presets_name_real_settings() -> None:
    for name in method_names():
        for preset in find(name).presets:
            assert parse(f"{name}@{preset}").name == name


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: parse("atcat"),
            UnknownName,
            "unknown method 'atcat'; did you mean 'attcat'\\? known: alti, att-grads",
        ),
        (lambda: parse("zzz"), UnknownName, "unknown method 'zzz'; known: "),
        (lambda: parse("attcat@rep"), UnknownName, "unknown preset of attcat 'rep'; did you mean 'repo'"),
        (lambda: wt.method("grad-sam", axes="key"), UnknownName, "setting of grad-sam 'axes'; did you mean 'axis'"),
        (lambda: wt.method("grad-sam", axis="rows"), BadSetting, "one of 'query', 'key', 'readout'"),
        (lambda: wt.method("rollout", start_layer=-1), BadSetting, "start_layer=-1 is not allowed; .* at least 0"),
        (lambda: wt.method("random", seed=None), BadSetting, "of type int"),
        (lambda: wt.method("rollout", start_layer=True), BadSetting, "of type int"),
        (lambda: wt.method("attcat", mask_special=1), BadSetting, "of type bool"),
        (lambda: wt.method("integrated-gradients", steps=0), BadSetting, "at least 1"),
        (lambda: wt.method("tis", ratio=1.5), BadSetting, "above 0 and at most 1"),
        (lambda: wt.method("tis", ratio=0.0), BadSetting, "above 0 and at most 1"),
        (lambda: wt.method("tis", ratio=(0.5, 1.5)), BadSetting, "above 0 and at most 1"),
        (lambda: wt.method("tis", ratio=()), BadSetting, "above 0 and at most 1"),
    ],
)
def test_mistakes_are_named(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@dataclass(frozen=True)
class Impostor(Method):
    amount: float = 0.0

    @property
    def needs(self) -> Needs:
        return Needs()

    def __call__(self, trace: Trace, probe: Probe) -> Scores:
        return Scores(trace.readout)


def test_a_name_cannot_be_taken_twice() -> None:
    with pytest.raises(UsageError, match="already registered"):
        register("attcat", paper="none")(Impostor)
    again = register("attcat", paper=find("attcat").paper, presets=find("attcat").presets)
    assert again(find("attcat")) is find("attcat")


def test_instances_made_by_hand_are_checked_too() -> None:
    with pytest.raises(BadSetting, match="of type float"):
        check(Impostor(amount="much"))  # type: ignore[arg-type]
