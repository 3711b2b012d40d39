"""Try other ways to run forward-only evaluations: torch.compile, ONNX Runtime and OpenVINO.

    python benchmarks/backends.py

The default model evaluates batches of rows of different lengths, as posterior, curves and bounds do. Each way takes
turns with `Subject.logits`, which skips padding, in CPU time of one thread. Ways whose packages are missing (onnx and
onnxruntime, openvino) are left out. The report is printed and written to benchmarks/results/backends.md.
"""

import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import process_time
from typing import Any

import torch
from torch import Tensor, nn

import whichtoken as wt
from whichtoken.models import Batch

RESULT = Path(__file__).parent / "results" / "backends.md"
SHAPES = ((8, 10, 28), (64, 10, 28), (32, 20, 64), (8, 60, 128))  # rows, shortest and longest length
REPEATS = 5
Run = Callable[[Tensor, Tensor], Tensor]  # from ids and mask to logits


class Logits(nn.Module):
    """A model without keywords and without a structured output, as exporters want it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=ids, attention_mask=mask).logits
        return logits


def main() -> None:
    torch.set_num_threads(1)
    subject = wt.load().with_twin()
    plain = Logits(deepcopy(wt.load().model).eval())
    makers: dict[str, Callable[[Logits], Run]] = {
        "torch, padded": lambda model: model,
        "ONNX Runtime, padded": with_onnx,
        "OpenVINO, padded": with_openvino,
        "torch.compile, padded": partial(torch.compile, dynamic=True),
    }
    lines = []
    for name, make in makers.items():
        start = process_time()
        try:
            run = make(plain)
            ratios = list(measure(subject, run))
        except ImportError as error:
            print(f"{name}: left out, {error}")
            continue
        except Exception as error:  # compilers and exporters fail in many ways
            lines.append(f"| {name} | fails: {type(error).__name__}: {' '.join(str(error).split())[:120]} |")
            _write(lines)
            continue
        spent = process_time() - start
        cells = [f"{ratio:.2f}" for ratio, _ in ratios]
        lines.append(f"| {name} | {' | '.join(cells)} | {max(d for _, d in ratios):.0e} | {spent:.0f} s |")
        _write(lines)


def _write(lines: list[str]) -> None:
    """Print the last line, and write all: what comes later may take long."""
    print(lines[-1], flush=True)
    RESULT.write_text("\n".join([*head(), *lines]) + "\n", encoding="utf-8")


def measure(subject: wt.Subject, run: Run) -> Iterator[tuple[float, float]]:
    """Yield, for each shape, the time divided by ours, and the largest difference of a probability."""
    for rows, shortest, longest in SHAPES:
        source = torch.Generator().manual_seed(rows)
        ids = torch.randint(1000, 2000, (rows, longest), generator=source)
        lengths = torch.randint(shortest, longest + 1, (rows, 1), generator=source)
        lengths[0] = longest
        mask = torch.arange(longest) < lengths
        batch = Batch(torch.where(mask, ids, 0), mask, torch.zeros_like(ids), ~mask)
        seconds = [float("inf"), float("inf")]
        with torch.no_grad():
            logits = [subject.logits(batch), run(batch.ids, mask.long())]
        for _ in range(REPEATS):
            for i, work in enumerate((partial(subject.logits, batch), partial(run, batch.ids, mask.long()))):
                with torch.no_grad():
                    start = process_time()
                    work()
                    seconds[i] = min(seconds[i], process_time() - start)
        one, other = (x.softmax(-1) for x in logits)
        yield seconds[1] / seconds[0], float((one - other).abs().max())


def with_onnx(model: Logits) -> Run:
    import onnxruntime

    example = (torch.ones(2, 9, dtype=torch.long), torch.ones(2, 9, dtype=torch.long))
    names = ["ids", "mask"]
    axes = {name: {0: "batch", 1: "token"} for name in names}
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.onnx"
        torch.onnx.export(
            model, example, path, input_names=names, output_names=["logits"], dynamic_axes=axes, dynamo=False
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(ids: Tensor, mask: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {"ids": ids.numpy(), "mask": mask.numpy()})[0])

    return run


def with_openvino(model: Logits) -> Run:
    import openvino

    example = (torch.ones(2, 9, dtype=torch.long), torch.ones(2, 9, dtype=torch.long))
    converted = openvino.convert_model(model, example_input=example)
    settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(converted, "CPU", settings)

    def run(ids: Tensor, mask: Tensor) -> Tensor:
        return torch.from_numpy(compiled([ids.numpy(), mask.numpy()])[0].copy())

    return run


def head() -> Iterator[str]:
    versions = []
    for package in ("torch", "transformers", "onnxruntime", "openvino"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    shapes = [f"{rows} rows, {shortest} to {longest} tokens" for rows, shortest, longest in SHAPES]
    yield "# Other ways to evaluate\n"
    machine = f"{platform.machine()}, {os.cpu_count()} cores, one thread"
    yield f"`python benchmarks/backends.py`, {machine}; {', '.join(versions)}."
    yield "CPU time of a batch of the default model, divided by that of `Subject.logits`, which skips padding (above 1:"
    yield "slower); the largest difference of a probability; the CPU time of preparing and measuring.\n"
    yield f"| way | {' | '.join(shapes)} | differs by | prepared in |"
    yield "|---" * (len(shapes) + 3) + "|"


if __name__ == "__main__":
    main()
