"""The sentence that ends a benchmark: which method to use, and whether the texts settle that."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bench.test_table import LERF, MASKED, MORF, TENTHS
from tests.tiny import WORDS

import whichtoken as wt
from whichtoken.bench.results import InputResult, MethodResult, PlanResult, Truth
from whichtoken.bench.table import summarise
from whichtoken.bench.verdict import verdict

SubjectOf = Callable[..., wt.Subject]
N = 20


def measured(drops: Mapping[str, tuple[float, float]], noise: float = 0.0, n: int = N) -> list[InputResult]:
    """By method, the drop by deletion and by mask, the same at every step; `noise` differs by text and method."""
    source = random.Random(1)

    def scored(method: str) -> MethodResult:
        falls = [drop + noise * (source.random() - 0.5) for drop in drops[method]]
        curves = tuple((0.9, *(0.9 - fall,) * 9) for fall in falls)
        return MethodResult(method in ("contrast-cat", "refined-noise"), 0.1, 1.0, {}, curves)

    return [
        InputResult(
            number=number,
            row=number,
            id="",
            key=str(number),
            label="positive",
            probability=0.9,
            n_tokens=12,
            n_cut=0,
            methods={method: scored(method) for method in drops},
            plans=tuple(PlanResult(plan, TENTHS) for plan in (MORF, MASKED)),
        )
        for number in range(n)
    ]


def said(drops: Mapping[str, tuple[float, float]], *metrics: str, n_found: int = 872, **how: Any) -> str:
    inputs = measured(drops, **how)
    return verdict(summarise(inputs, metrics or ("aopc",), "text"), inputs, n_found)


def test_a_clear_lead_is_settled() -> None:
    assert said({"gae": (0.3, 0.3), "attcat": (0.5, 0.5), "random": (0.1, 0.1)}) == (
        "Use attcat for this model: AOPC 0.500 [0.500, 0.500] on 20 texts. Settled: it is significantly better than "
        "each of the 2 others (p < 0.05)."
    )
    assert said({"gae": (0.3, 0.3), "attcat": (0.5, 0.5)}).endswith(
        "significantly better than the other one (p < 0.05)."
    )


def test_a_lead_within_the_noise_is_not_settled_and_more_texts_are_proposed() -> None:
    close = {"gae": (0.5, 0.5), "attcat": (0.51, 0.5), "random": (0.1, 0.1)}
    text = said(close, noise=0.4)
    assert text.startswith("Use ")
    other = "gae" if "Use attcat" in text else "attcat"
    ending = f" Not settled: {other} is not significantly worse (p ≥ 0.05); measure more texts"
    assert text.endswith(f"{ending}, for example --sample 100.")
    assert said(close, noise=0.4, n_found=60).endswith(f"{ending}, for example --sample 60.")
    assert said(close, noise=0.4, n_found=20).endswith(f"{ending}.")


def test_few_texts_settle_nothing() -> None:
    text = said({"gae": (0.3, 0.3), "attcat": (0.5, 0.5), "cat": (0.2, 0.2), "cam": (0.1, 0.1), "random": (0, 0)}, n=2)
    assert "AOPC 0.500 [0.500, 0.500] on 2 texts. Not settled: gae, cat and 2 more are not significantly worse" in text
    assert "on 1 text. Not settled: gae and cat are not" in said(
        {"gae": (0.3, 0.3), "attcat": (0.5, 0.5), "cat": (0.2, 0.2)}, n=1
    )


def test_a_method_that_was_tuned_on_deletion_must_lead_by_mask_as_well() -> None:
    honest = {"attcat": (0.5, 0.5), "gae": (0.3, 0.3)}
    text = said({"contrast-cat": (0.7, 0.4), **honest})
    assert text.startswith(
        "Use attcat for this model: AOPC 0.500 [0.500, 0.500] on 20 texts. contrast-cat scores higher"
    )
    assert "but was tuned on deletion and is not known to lead by mask. Settled: " in text
    assert said({"contrast-cat": (0.7, 0.6), **honest}).startswith("Use contrast-cat for this model")


def test_leading_by_mask_proves_nothing_for_a_method_that_asks_by_mask() -> None:
    inputs = measured({"contrast-cat": (0.7, 0.6), "attcat": (0.5, 0.5)})
    table = summarise(inputs, ("aopc",), "text")
    lines = tuple(replace(line, tuned_on_mask=line.method == "contrast-cat") for line in table.lines)
    assert verdict(replace(table, lines=lines), inputs, N).startswith("Use attcat for this model")


def test_a_table_says_which_methods_ask_by_mask(subject_of: SubjectOf, tmp_path: Path) -> None:
    methods = [wt.method("posterior", budget=4, perturbation=how) for how in ("mask", "mixed", "delete")]
    how = wt.bench.protocol(metrics=("aopc",), min_tokens=1)
    table = wt.bench.run(subject_of("bert"), [" ".join(WORDS[:6])], [*methods, "attcat"], protocol=how)
    by_mask = {line.method: line.tuned_on_mask for line in table.lines}
    assert by_mask == {methods[0].label: True, methods[1].label: True, methods[2].label: False, "attcat": False}
    table.to_json(tmp_path / "table.json")
    assert wt.bench.read_table(tmp_path / "table.json").lines == table.lines


def test_a_tuned_method_is_settled_only_by_mask_and_against_its_control() -> None:
    honest = {"attcat": (0.5, 0.5), "gae": (0.3, 0.3)}
    assert "Settled" in said({"contrast-cat": (0.9, 0.7), **honest}, noise=0.1)
    assert "Not settled: attcat is not" in said({"contrast-cat": (0.9, 0.501), **honest}, noise=0.1)
    both = {"contrast-cat": (0.9, 0.7), "refined-noise": (0.9, 0.7), **honest}
    assert "Not settled: refined-noise is not" in said(both, noise=0.1)
    lower = {"attcat": (0.5, 0.5), "gae": (0.3, 0.3), "refined-noise": (0.6, 0.6)}
    assert "than the other one (p < 0.05)" in said(lower)  # the search on noise is no rival of an honest method


def test_a_control_that_does_as_well_is_named() -> None:
    assert "Not settled: random is not significantly worse" in said({"attcat": (0.2, 0.2), "random": (0.3, 0.3)})


def test_one_method_is_compared_with_nothing() -> None:
    assert said({"attcat": (0.2, 0.2)}).endswith("on 20 texts. No other method was measured.")


def test_lower_is_better_where_it_is() -> None:
    text = said({"gae": (0.3, 0.3), "attcat": (0.5, 0.5)}, "auc")
    assert text.startswith("Use attcat for this model: AUC 0.")


def test_aopc_decides_whatever_comes_first_and_normalised_aopc_before_it() -> None:
    drops = {"gae": (0.3, 0.3), "attcat": (0.5, 0.5)}
    assert ": AOPC 0.500" in said(drops, "log-odds", "auc", "aopc")
    inputs = [
        replace(record, plans=(replace(record.plans[0], lower=0.0, upper=1.0), *record.plans[1:]))
        for record in measured(drops)
    ]
    table = summarise(inputs, ("aopc", "normalised-aopc"), "text")
    assert verdict(table, inputs, N).startswith("Use attcat for this model: normalised AOPC 0.500 [0.500, 0.500] on 20")


def test_srg_decides_if_it_is_alone_but_not_for_a_method_that_was_tuned_on_deletion() -> None:
    inputs = [
        replace(record, plans=tuple(PlanResult(plan, TENTHS) for plan in (MORF, LERF)))
        for record in measured({"gae": (0.5, 0.4), "attcat": (0.4, 0.1), "contrast-cat": (0.9, 0.1)})
    ]
    said = verdict(summarise(inputs, ("srg",), "text"), inputs, N)
    assert said.startswith(
        "Use attcat for this model: SRG 0.300 [0.300, 0.300] on 20 texts. contrast-cat scores higher"
    )
    assert "Settled: it is significantly better than the other one" in said
    assert verdict(summarise(inputs, ("srg", "aopc"), "text"), inputs, N).startswith("Use gae for this model: AOPC 0.5")


def test_without_a_metric_of_faithfulness_no_method_is_recommended() -> None:
    inputs = measured({"gae": (0.3, 0.3), "attcat": (0.5, 0.5)})
    for record in inputs:
        record.methods["gae"].values["kendall"] = 0.1  # type: ignore[index]
    nothing = "No method is recommended: no metric here says which is the most faithful; add --metrics aopc."
    assert verdict(summarise(inputs, ("kendall",), "text"), inputs, N) == nothing
    assert said({"random": (0.5, 0.5)}) == nothing


def test_answers_are_judged_by_precision() -> None:
    inputs = [
        replace(
            record,
            plans=(),
            truth=Truth(2, False, True),
            methods={
                name: replace(result, curves=(), values={"precision": 2.0 - (name == "gae")})
                for name, result in record.methods.items()
            },
        )
        for record in measured({"gae": (0.3, 0.3), "attcat": (0.5, 0.5)})
    ]
    table = summarise(inputs, ("precision",), "question")
    assert verdict(table, inputs, N).startswith(
        "Use attcat for this model: precision@20 2.000 [2.000, 2.000] on 20 questions. Settled: "
    )


def test_a_benchmark_says_it_in_python_and_keeps_it_in_its_folder(subject_of: SubjectOf, tmp_path: Any) -> None:
    texts = [" ".join(WORDS[n : n + 5]) for n in range(3)]
    how = wt.bench.protocol("quick", min_tokens=1, sample=2)
    table = wt.bench.run(subject_of("bert"), texts, ["attcat", "gae"], protocol=how, out=tmp_path)
    assert table.verdict.startswith("Use ")
    assert table.verdict.endswith("measure more texts, for example --sample 3.")
    assert wt.bench.read_table(tmp_path).verdict == table.verdict
    for name in ("report.html", "table.md"):
        assert "Not settled" in (tmp_path / name).read_text("utf-8")


def test_a_quick_benchmark_measures_cheap_methods_and_random(subject_of: SubjectOf) -> None:
    how = wt.bench.protocol("quick", min_tokens=1, sample=1, perturbations=("delete",))
    found = {line.method for line in wt.bench.run(subject_of("bert"), [" ".join(WORDS[:4])], protocol=how).lines}
    assert {"attcat", "gae", "attn-lrp", "random"} <= found
    assert not found & {"refined-noise", "contrast-cat", "tis", "integrated-gradients", "lime", "leave-one-out"}
