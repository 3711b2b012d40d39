"""The text classification task, for texts and pairs. Windows of a long text are explained separately and averaged."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from whichtoken.core.perturb import Perturbation
from whichtoken.core.picks import Link, Picks, pick_labels
from whichtoken.core.trace import Ask, Method
from whichtoken.data.examples import read_examples
from whichtoken.errors import BadInput, BadSetting, UsageError
from whichtoken.models import Document, LongTexts, Subject
from whichtoken.records import Attribution, Prediction, Reading
from whichtoken.targets import Class, Contrast, Part, Predicted, Span, Target, clean_gold, label_index, label_of
from whichtoken.tasks import texts
from whichtoken.tasks.task import (
    BenchInput,
    Gold,
    Opened,
    Piece,
    Reason,
    Scored,
    ScoredPiece,
    Task,
    Unit,
)
from whichtoken.trust import Confidence, merge_confidence

READOUTS = {
    "first": "the first token",
    "last": "the last token",
    "mean": "the mean of the tokens",
    "first two": "the first two tokens",
    "first and patches": "the first token and the mean of the patches",
}
NO_CLASSES = "references are texts with a low probability of a class, and this model predicts a value"


@dataclass(frozen=True)
class Classification(Task):
    subject: Subject

    heads: ClassVar[tuple[str, ...]] = ("AutoModelForSequenceClassification",)
    name: ClassVar[str] = "texts"
    unit: ClassVar[str] = "text"
    purpose: ClassVar[str] = "classifies texts"
    levels: ClassVar[tuple[str, ...]] = texts.LEVELS
    bench_long: ClassVar[LongTexts | None] = "truncate"

    def target(self, target: Any) -> Any:
        return class_target(target, self.subject)

    def all_targets(self) -> list[Class]:
        return [Class(label) for label in range(len(self.subject.labels))]

    def can_run(self, method: Method) -> Reason | None:
        method = self.adapt(method)
        if self.reading() == "value" and Ask.REFERENCES in method.needs.asks:
            return Reason(f"its {NO_CLASSES}")
        return super().can_run(method)

    def reading(self) -> Reading:
        return reading_of(self.subject)

    def gold_name(self, label: Any) -> str | None:
        return class_gold_name(self.subject, label)

    def describe_purpose(self) -> str:
        return describe_outputs(self.subject, self.unit) or self.purpose

    def check_long(self, long: str | None) -> None:
        texts.check_long(long)

    def encode(self, inputs: Sequence[Any], long: LongTexts | None, first: int) -> list[Document]:
        return self.subject.encode(inputs, long or "truncate", first)

    def pieces(self, documents: Sequence[Document], target: Any, first: int) -> list[Piece]:
        pieces = [
            texts.make_piece(index, document, window, target)
            for index, document in enumerate(documents, first)
            for window in document.windows
        ]
        if not isinstance(target, Predicted):
            return pieces
        classes = self._predict_classes([piece for piece in pieces if len(documents[piece.index - first].windows) > 1])
        return [replace(p, goal=Class(classes[p.index])) if p.index in classes else p for p in pieces]

    def _predict_classes(self, pieces: Sequence[Piece]) -> dict[int, int]:
        """Predict one class per text: the one with the highest mean probability over its windows."""
        link, sums = link_of(self.subject), dict[int, Tensor]()
        for group in self.subject.batches([len(piece.row) for piece in pieces]):
            logits = self.subject.logits(self.subject.batch([pieces[i].row for i in group]))
            for i, probabilities in zip(group, link.apply(logits), strict=True):
                sums[pieces[i].index] = sums.get(pieces[i].index, 0) + probabilities
        return {index: int(total.argmax()) for index, total in sums.items()}

    def picks(self, pieces: Sequence[Piece], logits: Tensor) -> Picks:
        return pick_classes(self.subject, [piece.goal for piece in pieces], logits)

    def record(
        self, document: Document, parts: Sequence[ScoredPiece], key: str, origin: Mapping[str, Any]
    ) -> Attribution:
        scored = [part.scored[key] for part in parts]
        merged = scored[0] if len(parts) == 1 else _merge_windows(document, scored)
        return Attribution(
            scores=merged.scores,
            details=merged.details,
            layers=merged.layers,
            confidence=merged.confidence,
            seconds=merged.seconds,
            evaluations=merged.evaluations,
            **origin,
        )

    def shared_fields(self, document: Document, parts: Sequence[ScoredPiece]) -> Mapping[str, Any]:
        return {
            "target": parts[0].target,
            "label": label_of(parts[0].target, self.subject.labels),  # type: ignore[arg-type]  # of classes
            "n_cut": document.n_cut,
            "n_windows": len(parts),
            **output_fields(self.subject, parts),
            **texts.token_fields(document, document.windows[0] if len(parts) == 1 else range(len(document.ids))),
        }

    def removals(self) -> Mapping[str, Perturbation]:
        return texts.Removals(self.subject)

    def reopen(self, record: Attribution, item: Any = None) -> Opened:
        return texts.reopen_text(self.subject, record, picks_of(self.subject, record.target))

    def units(self, record: Attribution, level: str) -> list[Unit]:
        return texts.units(record, level)

    def gold(self, example: BenchInput, document: Any, index: int, part: Part) -> Gold | None:
        return class_gold(self.subject, example)

    def n_tokens(self, document: Document) -> int:
        return len(document.windows[0])

    def examples(self, source: Any, labels: Any, columns: Sequence[str] | None) -> Iterator[BenchInput]:
        for example in read_examples(source, labels, columns):
            yield BenchInput(example.texts, example.label, example.where, row=example.row)

    def reference_rule(self, rule: str) -> str:
        if self.reading() == "value":
            raise UsageError(f"{self.subject.title}: {NO_CLASSES}; use methods without references")
        return rule

    def class_probabilities(self, logits: Tensor) -> Tensor:
        return link_of(self.subject).apply(logits)

    def label_probabilities(self, logits: Tensor) -> list[tuple[str, float]]:
        return class_label_probabilities(self.subject, logits)

    def facts(self) -> list[tuple[str, str]]:
        cut = "longer ones are truncated, or explained in windows (--long window)"
        return [("longest text", f"{self.subject.limit} tokens; {cut}"), *class_facts(self.subject)]


def class_target(target: Any, subject: Subject) -> Predicted | Class | Contrast:
    """Convert the short forms that `explain(target=...)` accepts; BadSetting for a target that is not of classes."""
    labels = subject.labels
    if link_of(subject) is Link.VALUE:
        _check_output(target, subject)
    if target is None or isinstance(target, Predicted):
        return Predicted()
    if isinstance(target, Span):
        raise BadSetting("target", target, "a class: a Span is an answer, but this model does not answer questions")
    if isinstance(target, Contrast):
        pair = label_index(target.label, labels), label_index(target.rather_than, labels)
        if pair[0] == pair[1]:
            raise BadSetting("target", target, "a contrast of two different labels")
        return Contrast(*pair)
    return Class(label_index(target.label if isinstance(target, Class) else target, labels))


def _check_output(target: Any, subject: Subject) -> None:
    """Raise BadSetting unless the target is one output of a regression model; None stands for the only one."""
    labels, many = subject.labels, len(subject.labels) > 1
    if isinstance(target, Contrast):
        predicts = "values, which are not alternatives" if many else "a value"
        raise BadSetting("target", target, f"one output: {subject.title} predicts {predicts}")
    if many and (target is None or isinstance(target, Predicted)):
        listed = ", ".join(f"{i} {label}" for i, label in enumerate(labels))
        raise BadSetting(
            "target", None, f"one output of {subject.title}, which predicts {len(labels)} values: {listed}"
        )


def class_gold(subject: Subject, example: BenchInput) -> Gold:
    if example.truth is None:
        raise BadInput(": this protocol explains the gold label, but there is none", place=example.where)
    try:
        return Gold(Class(label_index(example.truth, subject.labels)))
    except UsageError as error:
        error.place, error.message = example.where or "an example", f": {error.message}"
        raise


def class_gold_name(subject: Subject, label: Any) -> str | None:
    """Return the model's name for a gold label; that of a model with a single output is a number."""
    if len(subject.labels) == 1 or reading_of(subject) == "value":
        return None if label is None else str(label)
    cleaned = clean_gold(label, subject.labels)
    return None if cleaned is None else subject.labels[label_index(cleaned, subject.labels)]


def pick_classes(subject: Subject, goals: Sequence[Any], logits: Tensor) -> Picks:
    """Return the picks of a head with one logit per class; `Predicted` goals become the predicted class."""
    predicted = logits.argmax(-1).tolist()
    toward = [own if isinstance(goal, Predicted) else goal.label for goal, own in zip(goals, predicted, strict=True)]
    against = [goal.rather_than for goal in goals if isinstance(goal, Contrast)]
    tensors = [torch.tensor(labels, device=logits.device) if labels else None for labels in (toward, against)]
    assert tensors[0] is not None, "a batch has rows"
    return pick_labels(tensors[0], tensors[1], link_of(subject), subject.readout)


def picks_of(subject: Subject, target: Target) -> Picks:
    """Return the picks of a record's target."""
    if isinstance(target, Span):
        raise UsageError(f"this attribution explains an answer, but {subject.title} predicts classes")
    goal = class_target(target, subject)
    return pick_classes(subject, [goal], torch.zeros(1, len(subject.labels), device=subject.device))


def link_of(subject: Subject) -> Link:
    """Return how the head's outputs are read: as values if it is a regression head, as independent probabilities if it
    has a single output or several labels at once, else as probabilities that sum to 1.
    """
    return _link_and_reason(subject)[0]


def _link_and_reason(subject: Subject) -> tuple[Link, str]:
    """Return the link, and for regression and single outputs the reason: `reading`, the configuration or the default.

    The rules are those of transformers' pipeline and, for single outputs, of sentence-transformers' CrossEncoder.
    """
    config = subject.model.config
    if subject.reading is not None:
        return (Link.VALUE if subject.reading == "value" else Link.SIGMOID), "as requested"
    if config.problem_type == "regression":
        return Link.VALUE, "because its problem type is regression"
    activation = _activation(config) if config.problem_type is None and config.num_labels == 1 else ""
    if activation and activation != "Sigmoid":
        return Link.VALUE, f"because it is a cross-encoder with the activation {activation}"
    if config.num_labels == 1:
        return Link.SIGMOID, "by default; --reading value explains the logit itself"
    return (Link.SIGMOID if config.problem_type == "multi_label_classification" else Link.SOFTMAX), ""


def _activation(config: Any) -> str:
    """Return the activation that CrossEncoder wrote into a configuration; before its version 4, under another name."""
    stored = getattr(config, "sentence_transformers", None)
    stored = stored if isinstance(stored, dict) else {}
    path = stored.get("activation_fn") or getattr(config, "sbert_ce_default_activation_function", None) or ""
    return str(path).rpartition(".")[2]


def reading_of(subject: Subject) -> Reading:
    return "value" if link_of(subject) is Link.VALUE else "probability"


def describe_outputs(subject: Subject, unit: str) -> str | None:
    """Return what a regression model does, for messages; None for a classifier."""
    if reading_of(subject) != "value":
        return None
    n_outputs = len(subject.labels)
    return f"predicts {'a value' if n_outputs == 1 else f'{n_outputs} values'} for each {unit}"


def output_fields(subject: Subject, parts: Sequence[ScoredPiece]) -> dict[str, Any]:
    """Return the fields of a record for what the model predicts, the mean over its windows."""
    output = sum(part.probability for part in parts) / len(parts)
    if reading_of(subject) == "value":
        return {"probability": None, "value": output}
    return {"probability": output, "predicted": _prediction(subject, [p.logits for p in parts if p.logits is not None])}


def _prediction(subject: Subject, logits: Sequence[Tensor]) -> Prediction | None:
    """Return the label with the highest mean probability; None for a single output, which has no alternative."""
    if len(subject.labels) == 1 or not logits:
        return None
    probability, label = link_of(subject).apply(torch.stack(list(logits))).mean(0).max(-1)
    return Prediction(subject.labels[int(label)], float(probability))


def class_label_probabilities(subject: Subject, logits: Tensor) -> list[tuple[str, float]]:
    """Return every label with its probability; none for a model that predicts values."""
    if reading_of(subject) == "value":
        return []
    return list(zip(subject.labels, link_of(subject).apply(logits[None])[0].tolist(), strict=True))


def class_facts(subject: Subject) -> list[tuple[str, str]]:
    link, reason = _link_and_reason(subject)
    listed = ", ".join(f"{i} {label}" for i, label in enumerate(subject.labels))
    if link is Link.VALUE:
        read = [("outputs", listed), ("reading", f"the value itself, {reason}")]
    else:
        logits = f"the logit, {reason}" if reason else "the logits"
        read = [("labels", listed), ("probabilities", f"{link.value} of {logits}")]
    return [*read, ("head reads", READOUTS[subject.architecture.readout(subject.model).value])]


def _merge_windows(document: Document, parts: Sequence[Scored]) -> Scored:
    return Scored(
        scores=_average_windows(document, [part.scores for part in parts]),
        details={"windows": [part.details for part in parts]} if parts[0].details else {},
        layers=tuple(_average_windows(document, terms) for terms in zip(*(part.layers for part in parts), strict=True)),
        confidence=_merge_confidence(document, [part.confidence for part in parts]),
        seconds=sum(part.seconds for part in parts),
        evaluations=sum(part.evaluations for part in parts),
    )


def _merge_confidence(document: Document, parts: Sequence[Confidence | None]) -> Confidence | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    low, high = (_average_windows(document, bounds) for bounds in ([p.low for p in known], [p.high for p in known]))
    return merge_confidence(known, low, high)


def _average_windows(document: Document, parts: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return each token's mean over the windows that contain it; special tokens, which are in all windows, get 0."""
    sums, counts = [0.0] * len(document.ids), [0] * len(document.ids)
    for window, scores in zip(document.windows, parts, strict=True):
        for position, score in zip(window, scores, strict=True):
            if document.sequences[position] is not None:
                sums[position] += score
                counts[position] += 1
    return tuple(total / max(count, 1) for total, count in zip(sums, counts, strict=True))
