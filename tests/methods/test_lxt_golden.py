"""AttnLRP and CP-LRP of language models against LXT, whose numbers tests/golden/lxt/make.py wrote."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import language_subject

import whichtoken as wt

GOLDEN = Path(__file__).parents[1] / "golden" / "lxt"
MODELS = Path(os.environ.get("WHICHTOKEN_MODELS", "models"))  # where the makers of real models wrote them


def check(subject: wt.Subject, golden: dict[str, Any], label: str) -> None:
    n = len(golden["ids"]) - golden["first"]
    arguments: dict[str, Any] = {"prompt": golden["prompt"], "generate": n, "rows": "token"}
    record: Any = wt.explain(subject, methods=label, **arguments)[0][label]
    assert list(record.generated.ids) == golden["ids"]
    rows = record.generated.rows
    found = {"first token": rows[0].scores, "last token": rows[-1].scores, "answer": record.scores}
    for name, expected in golden[label].items():
        largest = max(map(abs, expected))
        assert found[name] == pytest.approx(expected, abs=1e-5 * largest), name
        assert not any(found[name][len(expected) - (1 if name != "first token" else n) :]), "the future"
    if label == "cp-lrp" and not has_biases(subject):
        for name, scores in found.items():
            assert sum(scores) == pytest.approx(golden["logits"][name], rel=1e-4), name


def has_biases(subject: wt.Subject) -> bool:
    return any(name.endswith("bias") for name, _ in subject.model.named_parameters())


@pytest.mark.parametrize("label", ["attn-lrp", "cp-lrp"])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
def test_tiny_models(kind: str, label: str) -> None:
    check(language_subject(kind), json.loads((GOLDEN / f"{kind}.json").read_text()), label)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["attn-lrp", "cp-lrp"])
def test_stories15m(label: str) -> None:
    if not (MODELS / "stories15m").is_dir():
        pytest.skip("stories15m is not in the folder WHICHTOKEN_MODELS")
    check(wt.load(MODELS / "stories15m"), json.loads((GOLDEN / "stories15m.json").read_text()), label)
