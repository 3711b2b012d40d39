"""Models in fewer bits, and models without values: explained where gradients are right, else refused with a way out."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.tiny import image_model_of, images, model_of, question_subject, wordpiece
from torch import Tensor, nn

import whichtoken as wt
from whichtoken.errors import UnsupportedModel
from whichtoken.tasks import task_for

TEXTS = ["It is slow.", "The film was touching, but the plot was slow."]
WITHOUT_GRADIENTS = [
    "alti",
    "context-cite",
    "kernel-shap",
    "leave-one-out",
    "lime",
    "posterior",
    "random",
    "raw-attention",
    "rollout",
    "tis",
]
REFUSED = r"DynamicQuantizedLinear .* no gradient.* float32"


def dynamic(model: Any) -> Any:
    """With linear modules as torch quantises them for CPUs: packed weights, and operations without a derivative."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch moves it to another package
        quantise: Any = torch.ao.quantization.quantize_dynamic
        return quantise(model.float(), {nn.Linear}).eval()


@pytest.fixture(scope="module")
def subject() -> wt.Subject:
    return wt.Subject(dynamic(model_of("bert")), wordpiece())


def test_methods_without_gradients_explain_a_quantised_model(subject: wt.Subject) -> None:
    results = wt.explain(subject, TEXTS, WITHOUT_GRADIENTS)
    for text, result in zip(TEXTS, results, strict=True):
        logits = subject.model(**wordpiece()(text, return_tensors="pt")).logits
        for name in WITHOUT_GRADIENTS:
            assert result[name].probability == pytest.approx(logits.softmax(-1).max().item(), abs=1e-6)
    curves = wt.degrade(subject, [result["rollout"] for result in results])
    assert curves[0].probability[0] == pytest.approx(results[0]["rollout"].probability, abs=1e-6)


def test_methods_with_gradients_refuse_a_quantised_model(subject: wt.Subject) -> None:
    for name in [*(set(wt.method_names()) - {*WITHOUT_GRADIENTS})]:
        with pytest.raises(UnsupportedModel, match=REFUSED) as caught:
            wt.explain(subject, TEXTS, [name])
        assert "\n" not in str(caught.value)


def test_a_model_knows_which_methods_it_can_run(subject: wt.Subject) -> None:
    task = task_for(subject)
    runnable = [name for name in wt.method_names() if task.can_run(wt.method(name)) is None]
    assert runnable == WITHOUT_GRADIENTS


@pytest.mark.parametrize("part", ["bert.encoder.layer.1", "classifier"])
def test_one_quantised_part_is_enough(part: str) -> None:
    """Around a quantised module in a block, residuals would still carry a gradient, but a wrong one."""
    model = model_of("bert").float()
    holder, _, name = part.rpartition(".")
    parent = model.get_submodule(holder)
    parent.register_module(name, dynamic(nn.Sequential(parent.get_submodule(name)))[0])
    with pytest.raises(UnsupportedModel, match=REFUSED):
        wt.explain(wt.Subject(model, wordpiece()), TEXTS, "attcat")


def test_quantised_models_for_questions_and_images() -> None:
    answering = wt.Subject(dynamic(question_subject().model), wordpiece())
    pair = [("is it slow?", "the film is slow")]
    assert wt.explain(answering, pair, ["rollout"])
    seeing = wt.Subject(dynamic(image_model_of("vit")), None)
    assert wt.explain(seeing, images=list(images(1).float()), methods=["rollout"])
    for subject, inputs in (answering, {"inputs": pair}), (seeing, {"images": list(images(1).float())}):
        with pytest.raises(UnsupportedModel, match=REFUSED):
            wt.explain(subject, **inputs, methods="attcat")


def test_the_fingerprint_of_a_quantised_model_follows_its_weights(subject: wt.Subject) -> None:
    same, other = dynamic(model_of("bert")), model_of("bert").float()
    with torch.no_grad():
        other.classifier.weight *= 1.5
    assert wt.Subject(same, wordpiece()).fingerprint() == subject.fingerprint()
    assert wt.Subject(dynamic(other), wordpiece()).fingerprint() != subject.fingerprint()


def test_the_weights_of_a_quantised_model_cannot_be_randomised(subject: wt.Subject) -> None:
    """They are no parameters, so all of them would stay."""
    for quantised in subject, wt.Subject(in_eight_bits(model_of("bert")), wordpiece()):
        with pytest.raises(UnsupportedModel, match=r"weights of .* are not parameters"):
            wt.metrics.randomised(quantised, 1)


class EightBits(nn.Module):
    """A linear module with weights in 8 bits that computes in the type of its input: gradients flow."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        scale = linear.weight.abs().amax(-1, keepdim=True) / 127
        self.register_buffer("weight", (linear.weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale.detach())
        self.bias = linear.bias

    def values(self) -> Tensor:
        return self.weight.to(self.scale.dtype) * self.scale  # type: ignore[operator, arg-type]

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.values(), self.bias)


def replace_linear(model: Any, make: Callable[[nn.Linear], nn.Module]) -> Any:
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, make(child))
    return model.eval()


def in_eight_bits(model: Any) -> Any:
    return replace_linear(model, EightBits)


def test_weights_in_eight_bits_are_explained_as_the_values_that_they_stand_for() -> None:
    def rounded(linear: nn.Linear) -> nn.Linear:
        with torch.no_grad():
            linear.weight.copy_(EightBits(linear).values())
        return linear

    methods = ["alti", "attcat", "attn-lrp", "cp-lrp", "full-lrp", "gae", "gradient-x-input", "tis", "token-tm"]
    few, exact = (
        wt.Subject(f(model_of("bert")), wordpiece()) for f in (in_eight_bits, lambda m: replace_linear(m, rounded))
    )
    for one, other in zip(wt.explain(few, TEXTS, methods), wt.explain(exact, TEXTS, methods), strict=True):
        for name in methods:
            assert one[name].scores == pytest.approx(other[name].scores, rel=1e-9, abs=1e-12), name


class Cut(nn.Linear):
    """As a kernel without a derivative: its output has no gradient."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return super().forward(x)


def test_a_module_that_passes_no_gradient_on_is_noticed_when_it_runs() -> None:
    def cut(linear: nn.Linear) -> nn.Module:
        linear.__class__ = Cut
        return linear

    model = model_of("bert")
    replace_linear(model.bert.encoder.layer[1].output, cut)
    subject = wt.Subject(model, wordpiece())
    assert wt.explain(subject, TEXTS, ["rollout"])
    for name in "attcat", "attn-lrp":
        with pytest.raises(UnsupportedModel, match=r"Cut .*layer\.1\.output\.dense.* no gradient"):
            wt.explain(subject, TEXTS, [name])


def test_an_operation_without_a_derivative_is_noticed_when_it_runs() -> None:
    """torch would warn, and add nothing to the gradient."""
    make: Any = torch.library.Library
    library = make("whichtoken_tests", "FRAGMENT")
    library.define("no_derivative(Tensor x) -> Tensor")
    library.impl("no_derivative", lambda x: x.detach() * 2, "CPU")

    class Doubling(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            doubled: Tensor = torch.ops.whichtoken_tests.no_derivative(super().forward(x))
            return doubled + 0

    model = model_of("bert")
    model.bert.encoder.layer[1].output.dense.__class__ = Doubling
    with pytest.raises(UnsupportedModel, match=r"an operation without a derivative"):
        wt.explain(wt.Subject(model, wordpiece()), TEXTS, "attcat")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_explained_or_refused(dtype: torch.dtype) -> None:
    subject = wt.Subject(model_of("bert").to(dtype), wordpiece())
    exact = wt.Subject(model_of("bert"), wordpiece())
    scores, expected = (wt.explain(s, TEXTS, ["attcat"])[1]["attcat"].scores for s in (subject, exact))
    assert scores == pytest.approx(expected, rel=0.1, abs=0.1)
    if dtype is torch.float16:
        with pytest.raises(UnsupportedModel, match="relevance underflows in float16; load the model in float32"):
            wt.explain(subject, TEXTS, ["attn-lrp"])


def test_a_model_on_the_meta_device_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match=r"\d+ of the \d+ tensors .* meta device.* wt\.load"):
        wt.Subject(model_of("bert").to("meta"), wordpiece())


def test_a_model_with_offloaded_layers_is_refused() -> None:
    model = model_of("bert")
    model.bert.encoder.layer[1].to("meta")
    with pytest.raises(UnsupportedModel, match=r"meta device.* bert\.encoder\.layer\.1\."):
        wt.Subject(model, wordpiece())


def test_a_model_that_was_moved_to_the_meta_device_later_is_refused() -> None:
    subject = wt.Subject(model_of("bert"), wordpiece())
    subject.model.classifier.to("meta")
    with pytest.raises(UnsupportedModel, match=r"2 of the \d+ tensors .* classifier\.weight"):
        wt.explain(subject, TEXTS)
