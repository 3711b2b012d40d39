"""Methods against the numbers of the authors' own implementations (tests/golden/README.md)."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.tiny import class_goal, wordpiece
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import whichtoken as wt
from whichtoken.bench._protocol import protocol
from whichtoken.core.trace import Method, Site, needs
from whichtoken.evaluate import degrade_input, open_input
from whichtoken.metrics.curves import per_step
from whichtoken.models import Batch, LogitCache, ModelProbe, capture
from whichtoken.records import Plan
from whichtoken.tasks import task_for

GOLDEN = Path(__file__).parent.parent / "golden"
EXPECTED: dict[str, Any] = json.loads((GOLDEN / "cat_tiny" / "expected.json").read_text())
RELEVANCE = load_file(GOLDEN / "bert_tiny" / "expected_relevance.safetensors")
each_case = pytest.mark.parametrize("case", EXPECTED["attcat"], ids=lambda c: f"{c['mask']}-{c['cls']}-{len(c['ids'])}")


@cache
def cat_tiny() -> wt.Subject:
    folder = GOLDEN / "cat_tiny"
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float64)
    return wt.Subject(model.eval(), AutoTokenizer.from_pretrained(folder))


def relative_error(found: Any, expected: Any) -> float:
    a, b = torch.tensor(found, dtype=torch.float64), torch.tensor(expected, dtype=torch.float64)
    return float((a - b).abs().max() / b.abs().max())


@each_case
@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("attcat", "AttCAT"),
        ("raw-attention", "RawAtt"),
        ("rollout", "Rollout"),
        ("attention-grad-cam", "AttnGradCAM"),
    ],
)
def test_the_attcat_authors_scores(case: dict[str, Any], name: str, key: str) -> None:
    method = wt.method(name, preset="repo", mask_special=case["mask"] == "special0")
    result = wt.explain(cat_tiny(), [case["text"]], [method], target=case["cls"])[0][method.label]
    assert len(result.scores) == len(case["ids"])
    if None in case[key]:  # theirs is 0 / 0 where no entry of the map is positive
        assert set(result.scores) == {0.0}
    else:
        assert relative_error(result.scores, case[key]) < 1e-9


@pytest.mark.parametrize("case", EXPECTED["contrast_cat"], ids=["first", "second"])
@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("attcat", "attcat"),
        ("cat", "cat"),
        ("raw-attention", "attention"),
        ("rollout", "rollout"),
        ("grad-sam", "gradsam"),
    ],
)
def test_the_contrast_cat_authors_scores_after_scaling(case: dict[str, Any], name: str, key: str) -> None:
    result = wt.explain(cat_tiny(), [case["text"]], [f"{name}@repo"], target=case["cls"])[0][f"{name}@repo"]
    assert list(result.tokens) == case["tokens"]
    low, high = min(result.scores), max(result.scores)
    assert relative_error([(score - low) / (high - low) for score in result.scores], case[key]) < 1e-9


@cache
def authors_library() -> wt.references.ReferenceLibrary:
    texts = json.loads((GOLDEN / "cat_tiny" / "texts.json").read_text())
    return wt.references.build(cat_tiny(), texts["corpus"], texts["labels"], preset="repo", dtype="float64")


def test_the_authors_library_in_their_order() -> None:
    for mine, theirs in zip(authors_library().references, EXPECTED["library"], strict=True):
        assert [reference.n_tokens for reference in mine] == [reference["length"] for reference in theirs]
        assert relative_error([r.probability for r in mine], [r["p"] for r in theirs]) < 1e-9
        for one, other in zip(mine, theirs, strict=True):  # the lowest are 1e-14, the largest would hide them
            assert one.probability == pytest.approx(other["p"], rel=1e-9)


@pytest.mark.parametrize("case", EXPECTED["contrast_cat"], ids=["first", "second"])
def test_the_contrast_cat_authors_own_scores(case: dict[str, Any]) -> None:
    subject = cat_tiny().with_references(authors_library())
    others = [other["text"] for other in EXPECTED["contrast_cat"]]
    for texts in ([case["text"]], [*others, "dull", case["text"]]):
        result = wt.explain(subject, texts, ["contrast-cat@repo"])[-1]["contrast-cat@repo"]
        assert result.label == f"LABEL_{case['cls']}"
        assert list(result.tokens) == case["tokens"]
        assert relative_error(result.scores, case["contrastcat"]) < 1e-9


def test_the_predicted_class_is_the_authors() -> None:
    for case in EXPECTED["contrast_cat"]:
        result = wt.explain(cat_tiny(), [case["text"]], ["attcat@repo"])[0]["attcat@repo"]
        assert result.label == f"LABEL_{case['cls']}"


@cache
def bert_tiny() -> wt.Subject:
    model = AutoModelForSequenceClassification.from_pretrained(GOLDEN / "bert_tiny", dtype=torch.float32)
    return wt.Subject(model.eval(), wordpiece())  # the tests pass token ids, so any tokenizer will do


def bert_tiny_batch(case: str) -> Batch:
    ids = RELEVANCE["input_ids"]
    mask = RELEVANCE["padmask"].bool() if case == "padmask_c0" else torch.ones_like(ids, dtype=torch.bool)
    return Batch(ids, mask, torch.zeros_like(ids), torch.zeros_like(mask))


def scores_of(method: Method, case: str) -> Tensor:
    subject, batch, goal = bert_tiny(), bert_tiny_batch(case), class_goal(bert_tiny(), torch.tensor([0]))
    trace = capture(subject, batch, lambda logits: goal, method.needs)
    return method(trace, ModelProbe(subject, batch, goal)).tokens


@pytest.mark.parametrize("case", ["nomask_c0", "padmask_c0"])
def test_attention_and_its_gradient(case: str) -> None:
    goal = class_goal(bert_tiny(), torch.tensor([0]))
    trace = capture(bert_tiny(), bert_tiny_batch(case), lambda logits: goal, needs("attention", "attention"))
    real = trace.mask[0]
    for found, key in ((trace.value(Site.ATTENTION), "attn"), (trace.grad(Site.ATTENTION), "attn_grad")):
        mine, theirs = torch.cat(found), RELEVANCE[f"{case}.{key}"]
        scale = theirs.abs().max()
        # What padding attends to, or what is attended to at padding, is 0 by our definition and anything in theirs.
        assert (mine - theirs)[:, :, real][..., real].abs().max() < 1e-4 * scale
        assert (mine[:, :, ~real] == 0).all()
        assert (mine[..., ~real] == 0).all()


@pytest.mark.parametrize("case", ["nomask_c0", "padmask_c0"])
@pytest.mark.parametrize(("name", "key"), [("raw-attention", "rawatt"), ("rollout", "rollout")])
def test_the_chefer_familys_attention_baselines(case: str, name: str, key: str) -> None:
    found, expected = scores_of(wt.method(name), case), RELEVANCE[f"{case}.{key}"]
    assert (found - expected).abs().max() < 1e-4 * expected.abs().max()


def test_the_mask_lrp_authors_grad_cam() -> None:
    subject, batch, goal = bert_tiny(), bert_tiny_batch("nomask_c0"), class_goal(bert_tiny(), torch.tensor([2]))
    method = wt.method("attention-grad-cam")
    trace = capture(subject, batch, lambda logits: goal, method.needs)
    found, expected = (
        method(trace, ModelProbe(subject, batch, goal)).tokens,
        RELEVANCE["masklrp.gradcam_baseline"],
    )
    assert (found - expected).abs().max() < 1e-4 * expected.abs().max()


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("contrastcat", "contrast-cat@repo"),
        ("attcat", "attcat@repo"),
        ("rollout", "rollout@repo"),
        ("gradsam", "grad-sam@repo"),
    ],
)
def test_the_authors_deletion_curves(key: str, name: str) -> None:
    """AOPC and log-odds at each of their nine steps, averaged over their test texts."""
    subject = cat_tiny().with_references(authors_library())
    texts = json.loads((GOLDEN / "cat_tiny" / "texts.json").read_text())["tests"]
    plan = Plan(grid="ninths")  # shares of all tokens, the last one kept
    assert plan in protocol("contrast-cat").plans()
    curves = []
    for result in wt.explain(subject, texts, [name]):
        found = list(result.values())
        curves.append(degrade_input(open_input(task_for(subject), found, LogitCache(subject)), found, [plan])[0][0])
    for metric, expected in (("aopc", "aopc"), ("log-odds", "logodds")):
        steps = torch.tensor([per_step(curve, metric)[1:] for curve in curves], dtype=torch.float64).mean(0)  # type: ignore[arg-type]
        assert relative_error(steps.tolist(), EXPECTED["eval"][key][expected]) < 1e-9
