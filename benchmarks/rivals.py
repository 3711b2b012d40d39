"""The same work done by other packages, for benchmarks/speed.py. Each function returns something to call and time."""

import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

import whichtoken as wt

Work = Callable[[], object]
STEPS = 50
BARE_START = """
import torch
import transformers.models.bert
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from importlib.resources import files
folder = files("whichtoken") / "assets" / "default"
model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
with torch.no_grad():
    model(**AutoTokenizer.from_pretrained(folder)("It is very slow.", return_tensors="pt"))
"""


def _on_embeddings(subject: wt.Subject, texts: list[str]) -> tuple[Callable[[Tensor], Tensor], dict[str, Any]]:
    """Return a function of the embeddings' output, and Captum's arguments: the embeddings, a baseline, the target."""
    model, encoded = subject.model, subject.tokenizer(texts, return_tensors="pt", padding=True)
    embeddings = model.bert.embeddings

    def logits(values: Tensor) -> Tensor:
        mask = encoded["attention_mask"].repeat(len(values) // len(texts), 1)
        with embeddings.register_forward_hook(lambda *_: values):
            found: Tensor = model(input_ids=torch.zeros_like(mask), attention_mask=mask).logits
        return found

    with torch.no_grad():
        given = embeddings(input_ids=encoded["input_ids"])
        blank = embeddings(input_ids=torch.zeros_like(encoded["input_ids"]))
        target = model(**encoded).logits.argmax(-1)
    return logits, {"inputs": given, "baselines": blank, "target": target}


def captum_integrated_gradients(subject: wt.Subject, texts: list[str]) -> Work:
    """Return Captum's integrated gradients with the fastest of its internal batch sizes."""
    from time import process_time

    from captum.attr import IntegratedGradients

    def attribute(size: int | None) -> object:
        logits, arguments = _on_embeddings(subject, texts)
        found = IntegratedGradients(logits).attribute(**arguments, n_steps=STEPS, internal_batch_size=size)
        return found.sum(-1).tolist()

    seconds: dict[int | None, float] = {}
    for size in (None, 16 * len(texts), 64):
        if size is None or size >= len(texts):
            begin = process_time()
            attribute(size)
            seconds[size] = process_time() - begin
    return partial(attribute, min(seconds, key=seconds.__getitem__))


def captum_input_x_gradient(subject: wt.Subject, texts: list[str]) -> Work:
    from captum.attr import InputXGradient

    def attribute() -> object:
        logits, arguments = _on_embeddings(subject, texts)
        with warnings.catch_warnings(action="ignore"):
            found = InputXGradient(logits).attribute(arguments["inputs"], target=arguments["target"])
        return found.sum(-1).tolist()

    return attribute


def _probabilities(subject: wt.Subject, texts: Any) -> Any:
    encoded = subject.tokenizer([str(text) for text in texts], return_tensors="pt", padding=True)
    with torch.no_grad():
        return subject.model(**encoded).logits.softmax(-1).numpy()


def lime(subject: wt.Subject, texts: list[str]) -> Work:
    from lime.lime_text import LimeTextExplainer

    def attribute() -> None:
        for text in texts:
            label = int(_probabilities(subject, [text])[0].argmax())
            explainer = LimeTextExplainer(random_state=0)
            explainer.explain_instance(text, partial(_probabilities, subject), labels=(label,), num_samples=64)

    return attribute


def shap(subject: wt.Subject, texts: list[str]) -> Work:
    import shap as package

    explainer = package.Explainer(
        partial(_probabilities, subject), package.maskers.Text(subject.tokenizer), output_names=["negative", "positive"]
    )

    def attribute() -> None:
        with warnings.catch_warnings(action="ignore"):
            explainer(np.array(texts, dtype=object), max_evals=64, batch_size=64, silent=True)

    return attribute


def lxt_rows(repeat: int, size: tuple[int, int]) -> Iterator[tuple[str, str, str, float, str]]:
    """Yield the rows of LXT, which patches the classes of Llama for a whole process, once: each works in its own."""
    if find_spec("lxt") is None:
        raise ImportError("lxt is not installed")
    for name, rules in (("attn-lrp", "attnLRP"), ("cp-lrp", "cp_LRP")):
        with (
            ProcessPoolExecutor(1, get_context("spawn")) as ours,
            ProcessPoolExecutor(1, get_context("spawn"), initializer=_patch_llama, initargs=(rules,)) as theirs,
        ):
            for length in (64, 256):
                seconds: tuple[list[float], list[float]] = ([], [])
                for _ in range(repeat):  # in turn
                    seconds[0].append(ours.submit(_seconds_of_whichtoken, name, length, size).result())
                    seconds[1].append(theirs.submit(_seconds_of_lxt, length, size).result())
                ratio = min(seconds[0]) / min(seconds[1])
                yield name, "LXT", f"random Llama {size[1]} x {size[0]}, 1 x {length} tokens", ratio, "1.0"


def _patch_llama(rules: str) -> None:
    from transformers import pytorch_utils

    # LXT 2.1 imports both for other models: transformers 5 has no such function, and torchvision may be missing.
    pytorch_utils.find_pruneable_heads_and_indices = None
    if find_spec("torchvision") is None:
        for name in ("torchvision", "torchvision.models", "torchvision.models.vision_transformer"):
            sys.modules[name] = ModuleType(name)
        sys.modules["torchvision.models"].__dict__["vision_transformer"] = sys.modules[name]
        sys.modules[name].__dict__["nn"] = torch.nn
    from lxt.efficient import monkey_patch
    from lxt.efficient.models import llama
    from transformers.models.llama import modeling_llama

    monkey_patch(modeling_llama, getattr(llama, rules))


def _seconds_of_whichtoken(name: str, length: int, size: tuple[int, int]) -> float:
    subject, text = _random_llama(length, size)
    return _least_seconds(partial(wt.explain, subject, text, name))


def _seconds_of_lxt(length: int, size: tuple[int, int]) -> float:
    return _least_seconds(partial(_attribute_with_lxt, *_random_llama(length, size)))


def _least_seconds(work: Work) -> float:
    from time import process_time

    torch.set_num_threads(1)
    seconds = []
    for _ in range(15):
        start = process_time()
        work()
        seconds.append(process_time() - start)
    return min(seconds[1:])


def _random_llama(length: int, size: tuple[int, int]) -> tuple[wt.Subject, str]:
    from transformers import LlamaConfig, LlamaForSequenceClassification

    from single_pass import WORDS, random_subject

    config = LlamaConfig(
        vocab_size=32,
        hidden_size=size[0],
        intermediate_size=8 * size[0] // 3,
        num_hidden_layers=size[1],
        num_attention_heads=12,
        pad_token_id=0,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    model = LlamaForSequenceClassification(config).eval()
    return wt.Subject(model, random_subject(48).tokenizer, name="random Llama"), " ".join(WORDS * length)[: 4 * length]


def _attribute_with_lxt(subject: wt.Subject, text: str) -> list[float]:
    model, encoded = subject.model, subject.tokenizer(text, return_tensors="pt")
    values = model.get_input_embeddings()(encoded["input_ids"]).detach().requires_grad_()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    model(inputs_embeds=values, use_cache=False).logits[0].max().backward()
    found: list[float] = (values * values.grad).sum(-1)[0].tolist()
    return found
