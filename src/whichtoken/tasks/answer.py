"""The extractive question-answering task: models that predict where in the context the answer starts and ends.

The answer is located first, then its start and its end are explained. Long contexts are read in overlapping windows;
the window with the best answer is explained. As in the papers, the start logit and the end logit are explained
separately, each read out at its own token, and the two maps are added (`Span.part`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from whichtoken.core.perturb import Perturbation
from whichtoken.core.picks import Axis, Link, Picks, track
from whichtoken.core.rows import Row
from whichtoken.data.examples import TextExample, check_texts, read_examples
from whichtoken.data.sources import as_file
from whichtoken.data.squad import Question, read_squad
from whichtoken.errors import BadInput, BadSetting, UsageError
from whichtoken.models import Document, LongTexts, Subject, window_row
from whichtoken.records import Attribution
from whichtoken.targets import Part, Predicted, Span
from whichtoken.tasks import texts
from whichtoken.tasks.task import BenchInput, Gold, Opened, Piece, ScoredPiece, Task, Unit
from whichtoken.trust import Confidence, merge_confidence

CONTEXT = 1  # index of the context in (question, context)
LONGEST_ANSWER = 30  # tokens
SIDES: Mapping[Part, tuple[Part, ...]] = {
    "both": ("start", "end"),
    "sum": ("sum",),
    "start": ("start",),
    "end": ("end",),
}
ENDS: Mapping[Part, tuple[bool, bool]] = {
    "both": (True, True),
    "sum": (True, True),
    "start": (True, False),
    "end": (False, True),
}


@dataclass(frozen=True)
class Found:
    """An answer in one window of a document; `start` and `end` are token positions in that window."""

    window: int
    start: int
    end: int
    score: float  # start logit + end logit
    probability: float
    part: Part


@dataclass(frozen=True)
class QuestionAnswering(Task):
    subject: Subject

    heads: ClassVar[tuple[str, ...]] = ("AutoModelForQuestionAnswering",)
    name: ClassVar[str] = "qa"
    unit: ClassVar[str] = "question"
    purpose: ClassVar[str] = "answers questions"
    keywords: ClassVar[tuple[str, ...]] = ("question", "texts")
    input_hint: ClassVar[str] = "question=... and context=..., or --question and --context"
    default_method: ClassVar[str] = "gae"
    quick_method: ClassVar[str] = "gae"
    levels: ClassVar[tuple[str, ...]] = texts.LEVELS
    has_classes: ClassVar[bool] = False
    has_answers: ClassVar[bool] = True
    bench_long: ClassVar[LongTexts | None] = "truncate"
    protocol: ClassVar[Mapping[str, Any]] = {"metrics": ("precision",), "min_tokens": 1, "max_tokens": 384}

    def target(self, target: Any) -> Span | str:
        """Return the target: the model's answer (None), another answer given by its text, or a Span."""
        if target is None or isinstance(target, Predicted):
            return Span()
        if isinstance(target, Span | str):
            return target
        raise BadSetting("target", target, "None for the model's answer, the text of an answer, or Span(start, end)")

    def inputs(self, inputs: object) -> Iterable[Any]:
        is_pair = isinstance(inputs, tuple) and len(inputs) == 2 and all(isinstance(text, str) for text in inputs)
        return [inputs] if is_pair else super().inputs(inputs)  # two texts without contexts would make no sense

    def check_long(self, long: str | None) -> None:
        texts.check_long(long)

    def encode(self, inputs: Sequence[Any], long: LongTexts | None, first: int) -> list[Document]:
        for number, item in enumerate(inputs, first):
            if len(check_texts(item, f"input {number}", number)) == 1:
                hint = f"{self.subject.title} answers questions: give (question, context)"
                raise BadInput(f"is one text; {hint}", index=number)
        return self.subject.encode(inputs, long or "window", first, CONTEXT)

    def pieces(self, documents: Sequence[Document], target: Span | str, first: int) -> list[Piece]:
        answers = self._locate_answers(documents, target, first)
        return [
            texts.make_piece(number, document, document.windows[answer.window], (answer, side))
            for number, (document, answer) in enumerate(zip(documents, answers, strict=True), first)
            for side in SIDES[answer.part]
        ]

    def picks(self, pieces: Sequence[Piece], logits: Tensor) -> Picks:
        goals: list[tuple[Found, Part]] = [piece.goal for piece in pieces]
        ends = [(answer.start, answer.end) for answer, _ in goals]
        return pick_ends(ends, [side for _, side in goals], logits.device)

    def record(
        self, document: Document, parts: Sequence[ScoredPiece], key: str, origin: Mapping[str, Any]
    ) -> Attribution:
        answer: Found = parts[0].piece.goal[0]
        window, scored = document.windows[answer.window], [part.scored[key] for part in parts]
        details: dict[str, Any] = {}
        if len(document.windows) > 1:
            details |= {"window": answer.window, "windows": len(document.windows)}
        for side, part in zip(SIDES[answer.part], scored, strict=True):
            details |= {side: dict(part.details)} if part.details and len(scored) > 1 else part.details
        return Attribution(
            scores=_sum_maps([part.scores for part in scored]),
            target=Span(answer.start, answer.end, answer.part),
            label=_text_between(document, window[answer.start], window[answer.end]),
            probability=answer.probability,
            n_cut=len(document.ids) - len(window),
            n_windows=1,
            details=details,
            layers=tuple(_sum_maps(terms) for terms in zip(*(part.layers for part in scored), strict=True)),
            confidence=_sum_confidence([part.confidence for part in scored]),
            seconds=sum(part.seconds for part in scored),
            evaluations=sum(part.evaluations for part in scored) + len(document.windows),
            **texts.token_fields(document, window),
            **origin,
        )

    def removals(self) -> Mapping[str, Perturbation]:
        return texts.Removals(self.subject)

    def reopen(self, record: Attribution, item: Any = None) -> Opened:
        target = record.target
        if not isinstance(target, Span) or target.start is None or target.end is None:
            raise UsageError(f"this attribution does not explain an answer, but {self.subject.title} answers questions")
        (document,) = self.subject.encode([record.texts], "window", only=CONTEXT)
        if len(document.windows) > 1 and record.n_cut:  # it may have been truncated instead
            (cut,) = self.subject.encode([record.texts], "truncate", only=CONTEXT)
            document = replace(document, windows=(*document.windows, *cut.windows))
        window = texts.find_window(document, record, self.subject.title)
        picks = pick_ends([(target.start, target.end)], [target.part], self.subject.device)
        return texts.open_window(record, window, document, picks)

    def units(self, record: Attribution, level: str) -> list[Unit]:
        """Return the words of the context, except the explained ends of the answer, which always stay."""
        target = record.target
        assert isinstance(target, Span), "`reopen` checks this"
        fixed = {"start": {target.start}, "end": {target.end}}.get(target.part, {target.start, target.end})
        in_context = {i for i, sequence in enumerate(record.sequences) if sequence == CONTEXT}
        units = texts.units(record, level)
        return [unit for unit in units if set(unit.elements) <= in_context and not fixed & set(unit.elements)]

    def bench_target(self, part: Part, n_tokens: int) -> Span:
        """Return the target of the papers' code, in which each end is predicted independently."""
        return Span(free=True, part=part)

    def gold(self, example: BenchInput, document: Document, index: int, part: Part) -> Gold | None:
        """Return the first gold answer. If truncation removed it, the span is the first token, as in the papers."""
        if not example.truth:
            return None
        window, answer = document.windows[0], example.truth[0]
        tokens = answer_tokens(document, answer.text, answer.start, index)
        cut_off = not {*tokens} <= {*window}
        tokens = (0, 0) if cut_off else tokens
        positions = tuple(range(window.index(tokens[0]), window.index(tokens[1]) + 1))
        return Gold(Span(*tokens, part), positions, cut_off)

    def n_tokens(self, document: Document) -> int:
        return len(document.windows[0])

    def examples(self, source: Any, labels: Any, columns: Sequence[str] | None) -> Iterator[BenchInput]:
        """Read a SQuAD file or a list of Question; or, without answers, pairs or a file of pairs."""
        file = as_file(source)
        if file is not None and file.path.suffix.lower() != ".json":
            for pair in read_examples(file, None, columns):
                yield BenchInput(pair.texts, (), pair.where, row=pair.row)
            return
        questions = source if file is None else read_squad(file)
        if not isinstance(questions, Iterable):
            raise BadInput(f"questions is {questions!r:.60}; expected a file in SQuAD format, or a list of Question")
        for number, item in enumerate(questions):
            if isinstance(item, Question):
                yield BenchInput(item.texts, item.answers, item.where or f"question {number}", item.id)
            elif isinstance(item, TextExample):
                yield BenchInput(item.texts, (), item.where or f"question {number}")
            elif isinstance(item, tuple) and len(item) == 2:
                yield BenchInput(item, (), f"question {number}")
            else:
                raise BadInput(f"question {number} is {item!r:.60}; expected a Question, as wt.data.read_squad returns")

    def reference_rule(self, rule: str) -> str:
        """Return "random": the rule depends on the answer's position, so it is applied at explanation time."""
        if rule == "same-class":
            raise BadSetting("rule", rule, "'gamma', 'lowest' or 'random': answers to questions have no classes")
        return "random"

    def check_references(self, texts: Sequence[tuple[str, ...]]) -> None:
        alone = next((item for item in texts if len(item) == 1), None)
        if alone is not None:
            needed = "pairs of question and context, in columns of these names"
            raise BadInput(f"{alone[0]!r:.40} is one text; a reference library for questions needs {needed}")

    def class_probabilities(self, logits: Tensor) -> Tensor:
        """Return the probability of the most likely start times that of the most likely end: batch 1."""
        return logits.softmax(-1).amax(-1).prod(-1, keepdim=True)

    def reference_extras(self, rows: Sequence[Row]) -> Tensor:
        """Return, for each token, the probabilities that the answer starts and that it ends there; 0 at padding."""
        probabilities = torch.zeros(len(rows), 2, max(map(len, rows)))
        for group in self.subject.batches([len(row) for row in rows]):
            p = self.subject.logits(self.subject.batch([rows[i] for i in group])).softmax(-1).to("cpu", torch.float32)
            for i, row_p in zip(group, p, strict=True):
                probabilities[i, :, : len(rows[i])] = row_p[:, : len(rows[i])]
        return probabilities

    def facts(self) -> list[tuple[str, str]]:
        cut = "longer contexts are read in windows, or truncated (--long truncate)"
        outputs = "a start logit and an end logit for each token"
        return [("longest text", f"{self.subject.limit} tokens; {cut}"), ("answers questions", outputs)]

    def _locate_answers(self, documents: Sequence[Document], target: Span | str, first: int) -> list[Found]:
        """Return the best answer over each document's windows, or the requested one where it scores best."""
        subject, best = self.subject, dict[int, Found]()
        places = [(number, k) for number, document in enumerate(documents) for k in range(len(document.windows))]
        requested = [_requested_tokens(target, document, first + number) for number, document in enumerate(documents)]
        rows = [window_row(documents[number], documents[number].windows[k]) for number, k in places]
        for group in subject.batches([len(row) for row in rows]):
            logits = subject.logits(subject.batch([rows[i] for i in group]))
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            for row, i in enumerate(group):
                number, k = places[i]
                answer = _find_answer(documents[number], k, target, requested[number], logits[row])
                if answer is not None and (number not in best or answer.score > best[number].score):
                    best[number] = answer
        for number, document in enumerate(documents):
            if number not in best:
                cut = f"; {document.n_cut} of its tokens were truncated, use long='window'" if document.n_cut else ""
                raise BadInput(f": no window of the context contains the whole answer{cut}", index=first + number)
        return [best[number] for number in range(len(documents))]


def answer_tokens(document: Document, text: str, at: int, number: int) -> tuple[int, int]:
    """Return the first and the last token of an answer that starts at character `at` of the context."""
    if at < 0 or not text:
        raise BadInput(f": the context does not contain the answer {text!r:.60}", index=number)
    spans = zip(document.sequences, document.spans, strict=True)
    inside = [
        i
        for i, (sequence, span) in enumerate(spans)
        if sequence == CONTEXT and span and span[0] < at + len(text) and span[1] > at
    ]
    if not inside:
        raise BadInput(f": the tokenizer has no token for the answer {text!r:.60}", index=number)
    return inside[0], inside[-1]


def best_span(
    logits: Float[Tensor, "batch 2 token"], context: Bool[Tensor, "batch token"]
) -> tuple[Int[Tensor, "batch 2"], Float[Tensor, " batch"]]:
    """Return, for each row, the start <= end within the context with the highest sum of logits, and that sum."""
    n = logits.shape[-1]
    pairs = logits[:, 0, :, None] + logits[:, 1, None, :]
    near = torch.ones(n, n, dtype=torch.bool, device=logits.device).triu().tril(LONGEST_ANSWER - 1)
    allowed = near & context[:, :, None] & context[:, None, :]
    best = pairs.masked_fill(~allowed, -torch.inf).flatten(1).max(-1)
    return torch.stack([best.indices // n, best.indices % n], -1), best.values


def _requested_tokens(target: Span | str, document: Document, number: int) -> tuple[int, int] | None:
    """Return the first and last token of the requested answer in the document; None for the model's own answer."""
    if isinstance(target, str):
        return answer_tokens(document, target, document.texts[CONTEXT].find(target), number)
    if target.start is None or target.end is None:
        return None
    start, end = index(target.start), index(target.end)
    if not 0 <= start <= end < len(document.ids):
        allowed = f"0 <= start <= end < {len(document.ids)}, its number of tokens"
        raise BadInput(f": there is no span from token {start} to {end}; allowed: {allowed}", index=number)
    return start, end


def _find_answer(
    document: Document, window: int, target: Span | str, requested: tuple[int, int] | None, logits: Tensor
) -> Found | None:
    places = document.windows[window]
    row_logits = logits[None, :, : len(places)]
    if requested is not None:
        if not {*requested} <= {*places}:
            return None
        start, end = (places.index(position) for position in requested)
    elif isinstance(target, Span) and target.free:
        start, end = (int(side.argmax()) for side in row_logits[0])
    else:
        context = torch.tensor([[document.sequences[i] == CONTEXT for i in places]], device=logits.device)
        start, end = best_span(row_logits, context)[0][0].tolist()
    part: Part = "both" if isinstance(target, str) else target.part
    both, explained = (pick_ends([(start, end)], [side], logits.device) for side in ("both", part))
    return Found(window, start, end, float(both.scalar(row_logits)), float(track(explained, row_logits)), part)


def pick_ends(ends: Sequence[tuple[int, int]], parts: Sequence[Part], device: torch.device) -> Picks:
    """Return the picks of a batch of answers: their first and last tokens, of which a part is explained."""
    tokens = torch.tensor(ends, device=device)
    places = torch.arange(2, device=device).expand(len(tokens), -1)
    used = torch.tensor([ENDS[part] for part in parts], device=device)
    return Picks(places, tokens, None, used, Link.JOINT, tokens, Axis.COLUMNS)


def _sum_maps(maps: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(sum(values) for values in zip(*maps, strict=True))


def _sum_confidence(parts: Sequence[Confidence | None]) -> Confidence | None:
    known = [part for part in parts if part is not None]
    low, high = (_sum_maps(bounds) for bounds in ([part.low for part in known], [part.high for part in known]))
    merged = merge_confidence(known, low, high)
    if merged is None:
        return None
    counts = {name: max(getattr(part, name) for part in known) for name in ("n_units", "n_unresolved")}
    return replace(merged, **counts)  # both ends are about the same words


def _text_between(document: Document, start: int, end: int) -> str:
    """Return the answer as written in its text, or its first and last tokens if it does not lie within one text."""
    first, last = document.spans[start], document.spans[end]
    if first is not None and last is not None and document.sequences[start] == document.sequences[end] and start <= end:
        return document.texts[document.sequences[start] or 0][first[0] : last[1]].strip()
    return f"{document.tokens[start]} .. {document.tokens[end]}"
