"""Text: one input as the model saw it when it was explained, and the probabilities of what is left of it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool
from torch import Tensor

from whichtoken.core.objectives import Goal
from whichtoken.core.perturb import PERTURBATIONS, Mask, Pad, Perturbation
from whichtoken.errors import UnsupportedModel, UsageError
from whichtoken.models import Answers, ModelProbe, Subject, Task, window_row
from whichtoken.models.architectures import Readout
from whichtoken.records import Attribution
from whichtoken.words import word_groups


@dataclass(frozen=True)
class Text:
    """Probes of one input, one for each perturbation; they share what the model said."""

    attribution: Attribution  # any of this input and label
    answers: Answers
    content: tuple[int, ...]  # positions that may be removed
    words: tuple[tuple[int, ...], ...]  # the same, word by word
    _probes: dict[Perturbation, ModelProbe] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def key(self) -> str:
        return hashlib.sha256("\0".join(self.attribution.texts).encode()).hexdigest()[:16]

    @property
    def n_tokens(self) -> int:
        return len(self.attribution.tokens)

    def keep(self, patterns: Bool[Tensor, "n token"], how: Perturbation) -> list[float]:
        """The probability that each pattern of kept tokens leaves."""
        if how not in self._probes:
            self._probes[how] = self._probe(how)
        return self._probes[how].keep(patterns[None])[0].tolist()

    def _probe(self, how: Perturbation) -> ModelProbe:
        subject = self.answers.subject
        check_perturbation(subject, how)
        document = subject.encode([self.attribution.texts])[0]
        batch = subject.batch([window_row(document, document.windows[0])])
        return ModelProbe(subject, batch, _goal(subject, self.attribution.label), how, self.answers)


def as_text(attributions: Sequence[Attribution], answers: Answers) -> Text:
    """What these attributions, of one text and label, explain; UsageError if they do not belong together."""
    subject, first = answers.subject, attributions[0]
    if subject.task is not Task.TEXTS:
        does = "answers questions" if subject.task is Task.QUESTIONS else "reads images"
        instead = "wt.compare_questions" if subject.task is Task.QUESTIONS else "wt.degrade_images"
        raise UsageError(f"{subject.title} {does}; curves of deleted words are for classifiers of texts: use {instead}")
    if any((other.texts, other.label) != (first.texts, first.label) for other in attributions):
        raise UsageError("these attributions are of different texts or labels; degrade those of one text together")
    revision = subject.fingerprint()
    if any(other.revision != revision for other in attributions):
        raise UsageError(f"these attributions are of another model than {subject.title}; use the one they explain")
    document = subject.encode([first.texts])[0]
    seen = tuple(document.tokens[i] for i in document.windows[0])
    if any(other.tokens != seen for other in attributions):
        raise UsageError("these attributions have other tokens than the model reads at once; explain without windows")
    _goal(subject, first.label)
    content = tuple(i for i, sequence in enumerate(first.sequences) if sequence is not None)
    words = word_groups(first.texts, first.spans, first.sequences, first.word_ids)
    return Text(first, answers, content, words)


def perturbation_of(how: str | Perturbation) -> Perturbation:
    if isinstance(how, str):
        if how not in PERTURBATIONS:
            raise UsageError(f"unknown perturbation {how!r}; known: {', '.join(PERTURBATIONS)}")
        return PERTURBATIONS[how]
    return how


def check_perturbation(subject: Subject, how: Perturbation) -> None:
    """Some tokenizers have no mask token; some models look for padding by its id, and then it is no blank."""
    if isinstance(how, Mask) and subject.fillers.mask is None:
        raise UnsupportedModel(f"{subject.title} has no mask token to replace words by; use the perturbation 'delete'")
    if not isinstance(how, Pad):
        return
    config = subject.model.config
    by_position = subject.architecture.positions_after_padding
    if by_position or subject.architecture.readout(subject.model) is Readout.LAST:
        does = "gives padding no position" if by_position else "reads the last token that is no padding"
        raise UnsupportedModel(
            f"{subject.title}: {config.model_type} {does}, so a word replaced by padding is no blank; use the "
            "perturbation 'mask' or 'delete'"
        )


def _goal(subject: Subject, label: str) -> Goal:
    """What an attribution's label speaks of: a class, or one rather than another."""
    labels = subject.labels
    if label in labels:
        return Goal(torch.tensor([labels.index(label)], device=subject.device))
    for a, toward in enumerate(labels):
        for b, against in enumerate(labels):
            if label == f"{toward} rather than {against}":
                return Goal(*(torch.tensor([index], device=subject.device) for index in (a, b)))
    raise UsageError(f"label {label!r} is none of the model's: {', '.join(labels)}")
