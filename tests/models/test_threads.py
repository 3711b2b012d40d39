"""Other threads call, train and explain the same model, and tokenize with its tokenizer, while it is explained."""

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import (
    CORPUS,
    KINDS,
    image_model_of,
    model_of,
    question_subject,
    with_heads,
    with_references,
)
from transformers import ViTImageProcessorPil

import whichtoken as wt
from whichtoken.core.registry import method_names, parse
from whichtoken.core.trace import Method
from whichtoken.tasks import task_for

SENTENCES = ["It is very slow.", "The actors were wonderful."]
QUESTION = ("Is it slow?", "The film was slow, but the music was touching.")
# Fewer steps, masks and references than the defaults, which would only repeat the same steps more often.
SMALL = {
    "integrated-gradients": {"steps": 4},
    "tis": {"n_masks": 12},
    "contrast-cat": {"n": 3},
    "refined-noise": {"n": 3},
    "lime": {"budget": 12},
    "kernel-shap": {"budget": 12},
}
FEW = ("attcat", "alti", "full-lrp", "contrast-cat")  # gradients, the inside of blocks, rules, references
Step = Callable[[], object]


def classifier() -> wt.Subject:
    return with_heads(with_references(wt.Subject(model_of("bert"), KINDS["bert"].tokenizer(), name="bert")))


def answerer() -> wt.Subject:
    subject = with_heads(question_subject("bert"))
    recipe: dict[str, Any] = {"min_tokens": 1, "layers": "all", "dtype": "float64", "gamma": 1.0}
    return subject.with_references(wt.references.build(subject, [QUESTION, ("a man", "It is a rare plot.")], **recipe))


def viewer() -> wt.Subject:
    processor = ViTImageProcessorPil(size={"height": 12, "width": 12})
    return with_heads(wt.Subject(image_model_of("vit"), processor, name="vit"))


INPUTS: dict[Callable[[], wt.Subject], list[Any]] = {
    classifier: SENTENCES,
    answerer: [QUESTION],
    viewer: [np.random.default_rng(0).integers(0, 256, (14, 13, 3), np.uint8)],
}


def methods_for(subject: wt.Subject) -> list[Method]:
    every = [parse(name, **SMALL.get(name, {})) for name in method_names()]
    return [method for method in every if task_for(subject).can_run(method) is None]


def model_inputs(subject: wt.Subject) -> dict[str, Any]:
    """What the user's own threads give the model; they tokenize before other threads start."""
    if subject.architecture.reads == "pixels":
        return {"pixel_values": torch.linspace(-1, 1, 3 * 12 * 12, dtype=torch.float64).view(1, 3, 12, 12)}
    return dict(subject.tokenizer(SENTENCES[0], return_tensors="pt"))


def outputs(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
    """The logits, flat: a model that answers questions has two kinds."""
    return torch.cat([value.flatten() for name, value in model(**inputs).items() if name.endswith("logits")])


@contextmanager
def meanwhile(*steps: Step) -> Iterator[None]:
    """Threads that repeat these steps, each at least once, until the block ends; their exceptions are raised."""
    done = threading.Event()

    def repeat(step: Step) -> None:
        step()
        while not done.is_set():
            step()

    with ThreadPoolExecutor(len(steps)) as pool:
        running = [pool.submit(repeat, step) for step in steps]
        try:
            yield
        finally:
            done.set()
        for work in running:
            work.result()


def explain_in_two_threads(subject: wt.Subject, inputs: Sequence[Any], methods: Sequence[Method]) -> list[Any]:
    """What each of two threads found, in the order of `methods`; the second thread goes through them backwards."""

    def explain(order: Sequence[Method]) -> dict[str, Any]:
        return {method.label: list(wt.explain_each(subject, inputs, [method])) for method in order}

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(explain, [methods, methods[::-1]]))
    return [[results[method.label] for method in methods] for results in found]


def training(model: Any, inputs: dict[str, Any], rate: float) -> Step:
    """One step of training in eval mode, which changes all weights in place."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)

    def step() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(outputs(model, inputs).square().sum())
        optimizer.step()

    return step


def calling(model: Any, inputs: dict[str, Any]) -> Step:
    """One call of the model, which must give the same bits as before anything else ran."""
    with torch.no_grad():
        expected = outputs(model, inputs)

    def call() -> None:
        with torch.no_grad():
            assert outputs(model, inputs).equal(expected)

    return call


def check_company(subject: wt.Subject, inputs: Sequence[Any], methods: Sequence[Method]) -> None:
    """Four threads call the model, one trains it with a rate of 0, and two explain it: nobody notices the others."""
    arguments = model_inputs(subject)
    alone = [list(wt.explain_each(subject, inputs, [method])) for method in methods]
    call, train = calling(subject.model, arguments), training(subject.model, arguments, 0.0)
    with meanwhile(*[call] * 4, train):
        for found in explain_in_two_threads(subject, inputs, methods):
            assert found == alone


def test_threads_that_call_train_and_explain_do_not_notice_each_other() -> None:
    subject = classifier()
    check_company(subject, SENTENCES[:1], [parse(name, **SMALL.get(name, {})) for name in FEW])


@pytest.mark.slow
@pytest.mark.parametrize("make", INPUTS)
def test_threads_do_not_notice_each_other_whatever_the_method(make: Callable[[], wt.Subject]) -> None:
    subject = make()
    check_company(subject, INPUTS[make], methods_for(subject))


def check_real_steps(subject: wt.Subject, methods: Sequence[Method]) -> None:
    """Explanations neither fail nor change what is learned; a revision is set, so the library stays usable."""
    arguments = model_inputs(subject)
    apart, counted = model_of("bert"), []
    train = training(subject.model, arguments, 1e-4)

    def step() -> None:
        train()
        counted.append(1)

    def call() -> None:
        with torch.no_grad():
            found = outputs(subject.model, arguments)
        assert found.shape == (3,)
        assert found.isfinite().all()

    with meanwhile(*[call] * 4, step):
        for found in explain_in_two_threads(subject, SENTENCES[:1], methods):
            assert all(np.isfinite(result[label].scores).all() for (result,) in found for label in result)
    same = training(apart, arguments, 1e-4)
    for _ in counted:
        same()
    pairs = list(zip(subject.model.parameters(), apart.parameters(), strict=True))
    assert all(mine.equal(theirs) and mine.grad.equal(theirs.grad) for mine, theirs in pairs)


def test_a_model_learns_the_same_while_it_is_explained() -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer(), name="bert", revision="of today")
    check_real_steps(subject, [parse("attcat"), parse("full-lrp")])


@pytest.mark.slow
def test_a_model_learns_the_same_whatever_the_method() -> None:
    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer(), name="bert", revision="of today")
    subject = with_heads(with_references(subject))
    check_real_steps(subject, methods_for(subject))


@pytest.mark.parametrize("name", ["attcat", "full-lrp", "integrated-gradients", "tis", "alti"])
def test_two_threads_explain_at_the_same_time(name: str) -> None:
    """Every pass of one thread waits for a pass of the other; with a lock around a pass neither would go on."""
    subject, together = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer()), threading.Barrier(2, timeout=60)
    methods = [parse(name, **SMALL.get(name, {}))]
    with subject.model.register_forward_hook(lambda *_: None):  # with a hook, evaluations keep their padding
        alone = wt.explain(subject, SENTENCES, methods)

    def wait(*_: object) -> None:
        together.wait()

    with subject.model.register_forward_hook(wait), ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: wt.explain(subject, SENTENCES, methods), range(2))) == [alone, alone]


def test_threads_that_tokenize_keep_their_settings() -> None:
    """Two threads use the user's tokenizer, which truncates and pads, while two others encode texts that are longer."""
    tokenizer = KINDS["bert"].tokenizer()
    backend, subject = tokenizer.backend_tokenizer, wt.Subject(model_of("bert"), tokenizer)
    backend.enable_truncation(max_length=7)
    backend.enable_padding(length=7)

    def check(text: str) -> Step:
        def step() -> None:
            assert len(backend.encode(text).ids) == 7
            assert (backend.truncation["max_length"], backend.padding["length"]) == (7, 7)

        return step

    texts = [(text,) for text in CORPUS]
    lengths = [len(document.ids) for document in subject.encode(texts)]
    assert max(lengths) > 7 > min(lengths)
    try:
        with meanwhile(check("slow"), check(CORPUS[0])), ThreadPoolExecutor(2) as pool:
            for documents in pool.map(lambda _: subject.encode(texts), range(60)):
                assert [len(document.ids) for document in documents] == lengths
    finally:
        backend.no_truncation()
        backend.no_padding()


def state_of_process() -> dict[str, Any]:
    """What belongs to the thread or the process, and not to a model."""
    return {
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()),
        "autocast": (
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            torch.is_autocast_cache_enabled(),
        ),
        "defaults": (torch.get_default_dtype(), torch.get_default_device(), torch.get_num_threads()),
        "deterministic": (torch.are_deterministic_algorithms_enabled(), torch.backends.mkldnn.enabled),
        "modes": torch._C._len_torch_function_stack(),
        "chance": (torch.get_rng_state().tolist(), repr(np.random.get_state())),  # not Python's own: beartype uses it
        "warnings": list(warnings.filters),
    }


@pytest.mark.parametrize("unusual", [False, True])
def test_the_state_of_the_thread_and_the_process_is_left_as_found(unusual: bool) -> None:
    """Also if a pass fails in the middle, and whatever the state was."""
    subject = classifier()
    methods = methods_for(subject)

    def fail(*_: object) -> None:
        raise RuntimeError("as if the machine were out of memory")

    with ExitStack() as stack:
        if unusual:
            stack.enter_context(torch.no_grad())
            stack.enter_context(torch.autocast("cpu", torch.bfloat16))
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(torch.float64)
            stack.callback(torch.use_deterministic_algorithms, False)
            torch.use_deterministic_algorithms(True)
        before = state_of_process()
        results = wt.explain(subject, SENTENCES[:1], methods)
        assert state_of_process() == before
        wt.degrade(subject, list(results[0].values())[:2])
        assert state_of_process() == before
        stack.enter_context(subject.blocks[-1].register_forward_hook(fail))
        for name in FEW:
            with pytest.raises(RuntimeError, match="out of memory"):
                wt.explain(subject, SENTENCES[:1], [name])
            assert state_of_process() == before
