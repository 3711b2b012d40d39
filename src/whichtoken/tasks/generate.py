"""The generation task: language models that continue a prompt or answer a chat.

The answer is generated first, or given. Then the model reads prompt and answer once, and the tokens of the answer are
explained, each predicted at the position before it: the whole answer, and on request each of its sentences or tokens.
Token ids are kept, never tokenized again. The answer is never removed, nor are the tokens of a chat template. The
tracked output is the log-probability of the answer, which is a value: probabilities of long answers are too small.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any, ClassVar

import torch
from torch import Tensor

from whichtoken.answers import PROMPT, AnswerRow, GeneratedAnswer, PromptTokens, find_sources
from whichtoken.core.perturb import Perturbation
from whichtoken.core.picks import Link, Picks
from whichtoken.core.registry import method as make_method
from whichtoken.core.rows import Row
from whichtoken.core.trace import Ask, Method
from whichtoken.data.examples import as_rows
from whichtoken.data.prompts import Prompt, as_prompt, is_chat, parse_prompt
from whichtoken.data.sources import as_file
from whichtoken.errors import BadInput, BadSetting, UsageError, name_type
from whichtoken.models import LongTexts, Subject
from whichtoken.models.checks import count_embeddings
from whichtoken.models.generation import generate_ids
from whichtoken.records import Attribution, Reading
from whichtoken.targets import AnswerRequest, AnswerTokens, Generation, Part, Predicted, Scale
from whichtoken.tasks import prompts, texts
from whichtoken.tasks.foils import place_foil
from whichtoken.tasks.prompts import AnswerText, PromptDocument
from whichtoken.tasks.task import BenchInput, Opened, Piece, Reason, Scored, ScoredPiece, Task, Unit

LEVELS = ("token", "word", "sentence", "document")
BUT_LAST = "-but-last-word"  # of a level: the last word of the prompt, which dominates unfinished sentences, stays
NO_REFERENCE = "references are texts that hardly activate a class, and a language model predicts words, not classes"


@dataclass(frozen=True)
class RowGoal:
    """What is explained about a piece: some tokens of the answer, counted from its first."""

    answer: AnswerText
    first: int  # position of the answer's first token
    places: tuple[int, ...]
    request: AnswerRequest
    against: tuple[int, ...] = ()
    n_passes: int = 0  # of the model, to generate the answer


@dataclass(frozen=True)
class TextGeneration(Task):
    subject: Subject

    heads: ClassVar[tuple[str, ...]] = ("AutoModelForCausalLM",)
    name: ClassVar[str] = "generate"
    unit: ClassVar[str] = "prompt"
    purpose: ClassVar[str] = "generates text"
    keywords: ClassVar[tuple[str, ...]] = ("prompt",)
    input_hint: ClassVar[str] = (
        "prompt=..., a text or the messages of a chat, with generate=32 or continuation=...; or --prompt TEXT"
    )
    levels: ClassVar[tuple[str, ...]] = (*LEVELS, *(f"{level}{BUT_LAST}" for level in LEVELS))
    protocol: ClassVar[Mapping[str, Any]] = {
        "perturbations": ("delete",),
        "levels": ("sentence", "word", f"word{BUT_LAST}"),
        "metrics": ("aopc", "top-drop", "lds", "additivity"),
        "full metrics": ("normalised-aopc", "above-random"),
        "min_tokens": 2,
    }
    value_name: ClassVar[str] = "log-probability of the answer"
    no_result: ClassVar[str] = "a prompt of one word has nothing that can be removed before its last word"
    has_classes: ClassVar[bool] = False
    explained: ClassVar[str] = "answer"
    quick_method: ClassVar[str] = "alti"  # best of one pass in benchmarks/results/generation.md, except LRP

    def target(self, target: Any) -> AnswerRequest:
        """Return the request: None for the answer that the model generates, the scale, or an AnswerRequest."""
        if isinstance(target, AnswerRequest):
            return target
        if target is None or isinstance(target, Predicted):
            return AnswerRequest(Generation())
        if isinstance(target, str):
            return AnswerRequest(Generation(), scale=target)  # type: ignore[arg-type]  # checked there
        raise BadSetting("target", target, "'logit', 'logprob' or None (logit)")

    def for_answer(self, target: AnswerRequest, request: AnswerRequest) -> AnswerRequest:
        return replace(request, scale=target.scale)

    def choose_method(self, n_inputs: int | None) -> str:
        """Return the method to use if none is named; `gae` for the few architectures that `alti` does not read."""
        chosen = super().choose_method(n_inputs)
        return chosen if self.can_run(make_method(chosen)) is None else "gae"

    def can_run(self, method: Method) -> Reason | None:
        method = self.adapt(method)
        return _refuse(method) or super().can_run(method)

    def check_long(self, long: str | None) -> None:
        if long is not None:
            raise BadSetting("long", long, "None: a prompt is read whole, and refused if it is too long")

    def inputs(self, inputs: object) -> Iterable[Any]:
        inputs = as_rows(inputs)
        if isinstance(inputs, str | Prompt | Mapping) or is_chat(inputs):
            return [inputs]
        if not isinstance(inputs, Iterable):
            raise BadInput(f"inputs is {name_type(inputs)}; expected prompts: texts, or the messages of chats")
        return inputs

    def parse_row(self, row: Mapping[str, Any], index: int) -> Prompt:
        return parse_prompt(row, index)

    def encode(self, inputs: Sequence[Any], long: LongTexts | None, first: int) -> list[PromptDocument]:
        given = [as_prompt(item, number) for number, item in enumerate(inputs, first)]
        return [prompts.read_prompt(self.subject, prompt, number) for number, prompt in enumerate(given, first)]

    def document_key(self, document: PromptDocument) -> Any:
        own = document.prompt
        return own.text, own.messages, own.documents, own.continuation  # not where it was read

    def pieces(self, documents: Sequence[PromptDocument], target: AnswerRequest, first: int) -> list[Piece]:
        pieces = []
        for number, document in enumerate(documents, first):
            if target.sources == "document" and not document.prompt.documents:
                raise BadInput(": sources='document', but it has no documents; give them (documents=...)", index=number)
            answer, n_passes = self._find_answer(document, target, number)
            start, row = document.n_tokens, prompts.join_row(document, answer)
            if target.foil is None:
                whole = prompts.split_answer(answer, "answer")
                rows = [] if target.rows == "answer" else prompts.split_answer(answer, target.rows)
                goals = [RowGoal(answer, start, places, target, n_passes=n_passes) for places in (*whole, *rows)]
            else:
                place, other = place_foil(self.subject, document, answer, target.foil, number)
                goals = [RowGoal(answer, start, (place,), target, (other,), n_passes)]
            parts = partial(prompts.number_parts, document, len(answer.ids))
            pieces += [Piece(number, row, goal, segments=parts) for goal in goals]
        return pieces

    def _find_answer(self, document: PromptDocument, request: AnswerRequest, number: int) -> tuple[AnswerText, int]:
        """Return the answer, and how many passes it took to generate it."""
        if document.prompt.continuation is not None:
            answer = prompts.read_continuation(self.subject, document, number)
            self._check_length(document.n_tokens, len(answer.ids), number)
            return answer, 0
        how = request.generation
        if how is None:
            raise BadInput(
                "has no continuation; give one (continuation=...), or let the model answer (generate=32)", index=number
            )
        self._check_length(document.n_tokens, how.tokens, number)
        twin = self.subject.with_twin()
        twin.use_fast_attention()
        ids = generate_ids(twin.model, document.tokens.ids, how, self._stop_tokens)
        return prompts.read_generated(self.subject.tokenizer, document.tokens, ids, number), len(ids)

    @property
    def _stop_tokens(self) -> frozenset[int]:
        model, tokenizer = self.subject.model, self.subject.tokenizer
        configured = [
            getattr(x, "eos_token_id", None) for x in (getattr(model, "generation_config", None), model.config)
        ]
        found = [*configured, tokenizer.eos_token_id]
        listed = (token for one in found for token in (one if isinstance(one, list | tuple) else [one]))
        return frozenset(token for token in listed if token is not None)

    def _check_length(self, n_prompt: int, n_answer: int, number: int) -> None:
        limit = self.subject.limit
        if n_prompt + n_answer > limit:
            raise BadInput(
                f"has {n_prompt} tokens, and its answer up to {n_answer}, but the model reads {limit}; shorten it",
                index=number,
            )

    def picks(self, pieces: Sequence[Piece], logits: Tensor) -> Picks:
        goals: list[RowGoal] = [piece.goal for piece in pieces]
        against = [goal.against for goal in goals if goal.against]
        answers = [(goal.first, goal.answer.ids) for goal in goals]
        scale = goals[0].request.scale
        return pick_answers(answers, [goal.places for goal in goals], against, scale, logits.device)

    def record(
        self, document: PromptDocument, parts: Sequence[ScoredPiece], key: str, origin: Mapping[str, Any]
    ) -> Attribution:
        goal: RowGoal = parts[0].piece.goal
        answer, whole, tokens = goal.answer, parts[0].scored[key], prompts.join_tokens(document, goal.answer)
        logs = _token_logs(parts[0], answer)
        rows = [_make_row(part, part.scored[key], logs) for part in (parts[1:] or parts)]
        generated = GeneratedAnswer(
            ids=document.tokens.ids + answer.ids,
            first=goal.first,
            log_probabilities=tuple(logs),
            row_level=goal.request.rows,
            source_level=goal.request.sources,
            rows=tuple(rows),
            segments=document.segments,
            is_given=answer.is_given,
            foil=goal.request.foil or "",
        )
        label = prompts.text_of(answer, goal.places).strip()
        if goal.request.foil is not None:
            span, foil = answer.spans[goal.places[0]], goal.request.foil.strip()
            before = "" if span is None else answer.text[: span[0]].strip()
            label = f"{label} rather than {foil.removeprefix(before).strip() or foil}"
            generated = replace(generated, rows=(replace(generated.rows[0], text=label),))
        of_prompt = texts.list_control_tokens(document.tokens.tokens, document.tokens.control)
        return Attribution(
            texts=tokens.texts,
            tokens=document.tokens.tokens + answer.tokens,
            spans=tokens.spans,
            sequences=tokens.sequences,
            word_ids=tokens.word_ids,
            n_unknown=sum(document.tokens.unknown),
            control_tokens=tuple(dict.fromkeys((*of_prompt, *answer.control))),
            scores=whole.scores,
            target=parts[0].target,
            label=label,
            probability=None,
            value=parts[0].probability,
            n_cut=0,
            n_windows=1,
            details=whole.details,
            layers=whole.layers,
            confidence=whole.confidence,
            seconds=sum(part.scored[key].seconds for part in parts),
            evaluations=sum(part.scored[key].evaluations for part in parts) + goal.n_passes,
            generated=generated,
            **origin,
        )

    def reading(self) -> Reading:
        return "value"

    def removals(self) -> Mapping[str, Perturbation]:
        return texts.Removals(self.subject)

    def reopen(self, record: Attribution, item: Any = None) -> Opened:
        generated, target = record.generated, record.target
        if generated is None or not isinstance(target, AnswerTokens):
            raise UsageError(f"this attribution does not explain an answer, but {self.subject.title} generates text")
        self._check_ids(generated, target)
        n = len(record.tokens) - generated.first
        special = tuple(s != PROMPT for s in record.sequences)
        row = Row(generated.ids, (0,) * len(special), special, tail=n)
        places = [token - generated.first for token in target.tokens]
        against = [target.rather_than] if target.rather_than else []
        answer = (generated.first, generated.ids[generated.first :])
        picks = pick_answers([answer], [places], against, target.scale, self.subject.device)
        key = sha256(repr(generated.ids).encode()).hexdigest()[:16]
        return Opened(row, picks, key, len(row), sum(special))

    def _check_ids(self, generated: GeneratedAnswer, target: AnswerTokens) -> None:
        """Raise UsageError for ids that this model does not have; a record may come from a file."""
        known = range(min(count_embeddings(self.subject.model) or 0, self.subject.n_logits))
        of_answer = all(place >= generated.first for place in target.tokens)
        if not of_answer or not all(i in known for i in (*generated.ids, *target.rather_than)):
            raise UsageError(f"this attribution has tokens that {self.subject.title} does not have; explain it again")
        if len(generated.ids) > self.subject.limit:
            raise UsageError(f"this attribution has {len(generated.ids)} tokens; the model reads {self.subject.limit}")

    def units(self, record: Attribution, level: str) -> list[Unit]:
        """Return the removable parts of the prompt; at levels "...-but-last-word", its last word is not one."""
        assert record.generated is not None, "`reopen` checks this"
        tokens = PromptTokens(record.texts, record.spans, record.sequences, record.word_ids)
        named, segments = level.removesuffix(BUT_LAST), record.generated.segments
        groups = [source.tokens for source in find_sources(tokens, segments, named)]  # type: ignore[arg-type]
        if level.endswith(BUT_LAST):
            last = set(find_sources(tokens, segments, "word")[-1].tokens)
            groups = [left for group in groups if (left := tuple(i for i in group if i not in last))]
        return [Unit(group, sum(record.scores[i] for i in group), group) for group in groups]

    def bench_target(self, part: Part, n_tokens: int) -> AnswerRequest:
        return AnswerRequest(Generation(n_tokens))

    def describe_output(self, label: str) -> str:
        return f"the change of the {self.value_name}"

    def has_target(self, item: Any) -> bool:
        (document,) = self.encode([item], None, 0)
        return max(prompts.number_parts(document, 0, "word")) > 0

    def n_tokens(self, document: PromptDocument) -> int:
        return document.n_tokens

    def examples(self, source: Any, labels: Any, columns: Sequence[str] | None) -> Iterator[BenchInput]:
        """Read prompts: a jsonl, csv or parquet file with a column prompt or messages, or a list."""
        from whichtoken.data.files import read_file_rows

        file = as_file(source)
        rows = enumerate(self.inputs(source)) if file is None else read_file_rows(file)
        for number, row in rows:
            where = f"prompt {number}" if file is None else f"{file}, row {number}"
            prompt = replace(as_prompt(row, number), where=where)
            yield BenchInput(prompt, prompt.continuation, where, prompt.id or "", prompt.row)

    def facts(self) -> list[tuple[str, str]]:
        chats = getattr(self.subject.tokenizer, "chat_template", None) is not None
        return [
            ("longest text", f"{self.subject.limit} tokens, prompt and answer together; longer ones are refused"),
            ("generates text", "prompts and chats" if chats else "prompts; its tokenizer has no chat template"),
            ("vocabulary", f"{self.subject.n_logits} tokens"),
        ]


def _refuse(method: Method) -> Reason | None:
    """Return why no language model can be explained by a method."""
    if Ask.REFERENCES in method.needs.asks:
        return Reason(f"its {NO_REFERENCE}")
    if method.needs.view.hides:
        return Reason(
            "it hides special tokens, which here are the chat template and the answer",
            "use the method's default settings",
        )
    exploding = next((rules.name for rules, _ in method.needs.relevance if rules.carries == "relevance"), None)
    if exploding is not None:
        return Reason(
            f"under its rules ({exploding}), relevance grows to hundreds of times the logit in decoders",
            "use attn-lrp or cp-lrp",
        )
    return None


def _token_logs(part: ScoredPiece, answer: AnswerText) -> list[float]:
    """Return the log-probability of each token of the answer."""
    assert part.logits is not None, "scored pieces of this task have logits"
    logits = part.logits[: len(answer.ids)]
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    picked: list[float] = wide.gather(1, torch.tensor(answer.ids, device=wide.device)[:, None])[:, 0].tolist()
    return picked


def _make_row(part: ScoredPiece, scored: Scored, logs: Sequence[float]) -> AnswerRow:
    goal: RowGoal = part.piece.goal
    return AnswerRow(
        text=prompts.text_of(goal.answer, goal.places),
        tokens=tuple(goal.first + place for place in goal.places),
        scores=scored.scores,
        log_probability=sum(logs[place] for place in goal.places),
        confidence=scored.confidence,
    )


def pick_answers(
    answers: Sequence[tuple[int, Sequence[int]]],
    chosen: Sequence[Sequence[int]],
    against: Sequence[Sequence[int]],
    scale: Scale,
    device: torch.device,
) -> Picks:
    """Return the picks of a batch: some tokens of an answer, which is the end of its row. Its token k is read at place
    k of the logits (`Batch.read`), so that nothing moves when tokens before it are removed.

    `answers`: the position of the first token, and all ids. `chosen`: numbers of the explained tokens, from 0.
    `against`: for each of them another id, for all rows or none.
    """
    width = max(len(ids) for _, ids in answers)
    ids = torch.tensor([[*own, *[0] * (width - len(own))] for _, own in answers], device=device)
    # Beyond the end of a row's answer, any token of the row will do.
    sites = [[first - 1 + min(k, len(own) - 1) for k in range(width)] for first, own in answers]
    used, others = torch.zeros_like(ids, dtype=torch.bool), ids.clone()
    for row, numbers in enumerate(chosen):
        used[row, list(numbers)] = True
        if against:
            others[row, list(numbers)] = torch.tensor(against[row], device=device)
    places = torch.arange(width, device=device).expand(len(ids), -1)
    return Picks(
        places, ids, others if against else None, used, Link.LOG, torch.tensor(sites, device=device), scale=scale
    )
