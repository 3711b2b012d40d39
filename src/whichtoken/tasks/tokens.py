"""The token classification task: models that give a label to every token, such as names of entities or parts of speech.

Words are explained: one that the caller chooses, or every entity that the model finds, each with a result of its own. A
word is read at its first token, as such models are trained. The scalar is the sum of the labels' logits over the words
of an entity, and the probability is the product of the labels' probabilities: given the text, a token classifier
predicts each label independently, so the product is the joint probability. For a contrast of labels, the scalar is the
difference of the two sums, and the probability is that of the first labels if only these and the others were possible.
The first tokens of the explained words are never removed. A long text is read in windows; a word is explained in the
one where it has the most context.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import Any, ClassVar, SupportsIndex

import torch
from torch import Tensor

from whichtoken.core.perturb import Perturbation
from whichtoken.core.picks import Axis, Link, Picks, track
from whichtoken.core.trace import Ask, Method
from whichtoken.data.examples import ImageExample, TextExample, check_texts
from whichtoken.data.prompts import Prompt
from whichtoken.data.tagged import TaggedExample, find_words, read_tagged, word_spans
from whichtoken.errors import BadInput, BadSetting, UsageError
from whichtoken.models import Document, LongTexts, Subject, window_row
from whichtoken.records import Attribution, Prediction
from whichtoken.targets import Class, Contrast, Part, Predicted, Span, TokenLabels, label_index
from whichtoken.tasks import entities, texts
from whichtoken.tasks.entities import OUTSIDE, FoundWords, LabelledWord, best_window, find_windows
from whichtoken.tasks.task import BenchInput, Gold, Opened, Piece, Reason, ScoredPiece, Task, Unit

NO_REFERENCE = "references are texts that hardly activate a class at the pooled position, and this model labels tokens"


@dataclass(frozen=True)
class Wanted:
    """Which words are explained, and which of their labels."""

    label: int | str | None = None  # an index, or a kind such as LOC; None: the predicted one
    rather_than: int | str | None = None
    token: str | int | tuple[int, int] | None = None  # a word, a position, or characters; None: every entity
    first: bool = False  # the first entity only, or where every word has a label, one word drawn by its text


@dataclass(frozen=True)
class Goal:
    """What is explained about a piece; positions are those of its window."""

    found: FoundWords
    window: int
    tokens: tuple[int, ...]
    n_passes: int  # of the model, to name the entities


@dataclass(frozen=True)
class TokenClassification(Task):
    subject: Subject

    heads: ClassVar[tuple[str, ...]] = ("AutoModelForTokenClassification",)
    name: ClassVar[str] = "tokens"
    unit: ClassVar[str] = "text"
    purpose: ClassVar[str] = "labels tokens"
    input_hint: ClassVar[str] = "texts, or lists of words"
    levels: ClassVar[tuple[str, ...]] = texts.LEVELS
    bench_long: ClassVar[LongTexts | None] = "truncate"
    protocol: ClassVar[Mapping[str, Any]] = {"metrics": ("aopc", "log-odds", "normalised-aopc", "agreement")}
    explained: ClassVar[str] = "label of the first entity"
    no_result: ClassVar[str] = "the model finds no entity here; to explain the label of any word, choose it: --token"

    def target(self, target: Any) -> Wanted | TokenLabels:
        """Return the target: the predicted label (None), another label or kind of label, a contrast, or TokenLabels."""
        labels = self.subject.labels
        if target is None or isinstance(target, Predicted):
            return Wanted()
        if isinstance(target, Wanted):
            return target
        if isinstance(target, Span):
            raise BadSetting("target", target, "a label: a Span is an answer, but this model does not answer questions")
        if isinstance(target, TokenLabels):
            pairs = [[label_index(name, labels) for name in names] for names in (target.labels, target.rather_than)]
            return TokenLabels(target.tokens, tuple(pairs[0]), tuple(pairs[1]))
        if isinstance(target, Contrast):
            toward, other = (entities.resolve_label(label, labels) for label in (target.label, target.rather_than))
            if toward == other:
                raise BadSetting("target", target, "a contrast of two different labels")
            return Wanted(toward, other)
        return Wanted(entities.resolve_label(target.label if isinstance(target, Class) else target, labels))

    def all_targets(self) -> list[Wanted]:
        return [Wanted(label) for label in range(len(self.subject.labels))]

    def for_token(self, target: Any, token: Any) -> Wanted:
        if not isinstance(target, Wanted):
            raise BadSetting("token", token, "None, if the target is TokenLabels, which says which tokens")
        return replace(target, token=_check_token(token))

    def can_run(self, method: Method) -> Reason | None:
        method = self.adapt(method)
        if Ask.REFERENCES in method.needs.asks:
            return Reason(f"its {NO_REFERENCE}")
        return super().can_run(method)

    def check_long(self, long: str | None) -> None:
        texts.check_long(long)

    def encode(self, inputs: Sequence[Any], long: LongTexts | None, first: int) -> list[Document]:
        """Tokenize texts, or lists of words, which are joined by spaces."""
        joined = [_join_words(item, number) for number, item in enumerate(inputs, first)]
        return self.subject.encode(joined, long or "window", first)

    def pieces(self, documents: Sequence[Document], target: Wanted | TokenLabels, first: int) -> list[Piece]:
        words = [entities.find_words(document) for document in documents]
        if isinstance(target, TokenLabels):
            found = [[self._requested(target, one, number)] for number, one in enumerate(documents, first)]
        elif target.token is not None:
            each = enumerate(zip(documents, words, strict=True), first)
            found = [
                [self._label(f, target) for f in entities.find_tokens(target.token, *one, number)]
                for number, one in each
            ]
        else:
            found = self._find_entities(documents, words, target)
        passes = isinstance(target, Wanted) and target.token is None and not self._is_drawn(target)
        return [
            self._piece(document, number, part, one, len(document.windows) * passes)
            for number, (document, of_document) in enumerate(zip(documents, found, strict=True), first)
            for part, one in enumerate(of_document)
        ]

    def _piece(self, document: Document, number: int, part: int, found: FoundWords, n_passes: int) -> Piece:
        k = best_window(find_windows(document), found.tokens)
        if k is None:
            raise BadInput(f": no window of the text contains all of {found.text!r:.60}", index=number)
        window = document.windows[k]
        goal = Goal(found, k, tuple(window.index(token) for token in found.tokens), n_passes)
        return texts.make_piece(number, document, window, goal, part)

    def _requested(self, target: TokenLabels, document: Document, number: int) -> FoundWords:
        for token in target.tokens:
            entities.check_place(token, document, number)
        labels, against = (tuple(map(index, x)) for x in (target.labels, target.rather_than))  # type: ignore[arg-type]
        return FoundWords(target.tokens, entities.text_between(document, target.tokens), labels, against or None)

    def _label(self, found: FoundWords, target: Wanted) -> FoundWords:
        """Return the words with the labels that are wanted for them."""
        names, n = self.subject.labels, len(found.tokens)
        labels = found.labels if target.label is None else entities.spread_label(target.label, n, names)
        against = None if target.rather_than is None else entities.spread_label(target.rather_than, n, names)
        return replace(found, labels=labels, against=against)

    def _is_drawn(self, target: Wanted) -> bool:
        return target.first and OUTSIDE not in self.subject.labels

    def _find_entities(
        self, documents: Sequence[Document], words: Sequence[Sequence[LabelledWord]], target: Wanted
    ) -> list[list[FoundWords]]:
        """Return the entities that the model names in each document."""
        if self._is_drawn(target):
            pairs = zip(documents, words, strict=True)
            return [[entities.join_found(one, [own[entities.draw_word(len(own), one)]])] for one, own in pairs]
        if OUTSIDE not in self.subject.labels:
            raise UsageError(
                f"{self.subject.title} gives every word a label and has no label {OUTSIDE!r} for words outside of "
                "entities; choose a word: token=..., or --token"
            )
        predicted = self._predict_labels(documents, words)
        found = []
        for document, own, labels in zip(documents, words, predicted, strict=True):
            groups = self._group(document, own, labels)
            of_words = [(entities.join_found(document, [own[i] for i in g]), [labels[i] for i in g]) for g in groups]
            named = [replace(one, labels=tuple(chosen)) for one, chosen in of_words]
            found.append([self._label(one, target) for one in (named[:1] if target.first else named)])
        return found

    def _group(self, document: Document, words: Sequence[LabelledWord], labels: Sequence[int]) -> list[list[int]]:
        windows = find_windows(document)

        def fits(group: Sequence[int]) -> bool:
            return best_window(windows, [words[i].first for i in group]) is not None

        return entities.group_entities([self.subject.labels[label] for label in labels], fits)

    def _predict_labels(
        self, documents: Sequence[Document], words: Sequence[Sequence[LabelledWord]]
    ) -> list[list[int]]:
        """Return the label of each word, read in the window where it has most context."""
        subject = self.subject
        places = [(number, k) for number, document in enumerate(documents) for k in range(len(document.windows))]
        rows = [window_row(documents[number], documents[number].windows[k]) for number, k in places]
        labels: dict[tuple[int, int], list[int]] = {}
        for group in subject.batches([len(row) for row in rows]):
            highest = subject.logits(subject.batch([rows[i] for i in group])).argmax(-1).tolist()
            labels.update((places[i], own) for i, own in zip(group, highest, strict=True))
        predicted = []
        for number, document in enumerate(documents):
            windows = find_windows(document)
            chosen = [(word.first, best_window(windows, [word.first])) for word in words[number]]
            own = [(first, k, document.windows[k]) for first, k in chosen if k is not None]
            predicted.append([labels[number, k][window.index(first)] for first, k, window in own])
        return predicted

    def picks(self, pieces: Sequence[Piece], logits: Tensor) -> Picks:
        goals: list[Goal] = [piece.goal for piece in pieces]
        tokens = [goal.tokens for goal in goals]
        highest = logits.argmax(-1)
        labels = [
            highest[row, list(goal.tokens)].tolist() if goal.found.labels is None else goal.found.labels
            for row, goal in enumerate(goals)
        ]
        against = [goal.found.against for goal in goals if goal.found.against is not None]
        return pick_words(tokens, labels, against, logits.device)

    def record(
        self, document: Document, parts: Sequence[ScoredPiece], key: str, origin: Mapping[str, Any]
    ) -> Attribution:
        (part,) = parts
        goal: Goal = part.piece.goal
        window, scored, target = document.windows[goal.window], part.scored[key], part.target
        assert isinstance(target, TokenLabels), "the target of labelled tokens"
        several = {"window": goal.window, "windows": len(document.windows)} if len(document.windows) > 1 else {}
        return Attribution(
            scores=scored.scores,
            target=target,
            label=f"{goal.found.text}: {self._show(target)}",
            probability=part.probability,
            predicted=self._prediction(goal, part.logits),
            n_cut=len(document.ids) - len(window),
            n_windows=1,
            details={**several, **scored.details},
            layers=scored.layers,
            confidence=scored.confidence,
            seconds=scored.seconds,
            evaluations=scored.evaluations + goal.n_passes,
            **texts.token_fields(document, window),
            **origin,
        )

    def _show(self, target: TokenLabels) -> str:
        labels, against = (
            entities.show_labels((label_index(x, self.subject.labels) for x in names), self.subject.labels)
            for names in (target.labels, target.rather_than or target.labels)
        )
        return f"{labels} rather than {against}" if target.rather_than else labels

    def _prediction(self, goal: Goal, logits: Tensor | None) -> Prediction | None:
        """Return the labels that the model predicts for the explained words, under the words' name as in `label`."""
        if logits is None:
            return None
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))[None]
        own = wide[0].argmax(-1)[list(goal.tokens)].tolist()
        picks = pick_words([goal.tokens], [own], [], logits.device)
        shown = entities.show_labels(own, self.subject.labels)
        return Prediction(f"{goal.found.text}: {shown}", float(track(picks, wide)))

    def removals(self) -> Mapping[str, Perturbation]:
        return texts.Removals(self.subject)

    def reopen(self, record: Attribution, item: Any = None) -> Opened:
        target = record.target
        if not isinstance(target, TokenLabels):
            raise UsageError(
                f"this attribution does not explain the label of a word, but {self.subject.title} labels words"
            )
        (document,) = self.subject.encode([record.texts], "window")
        if len(document.windows) > 1 and record.n_cut:  # it may have been truncated instead
            (cut,) = self.subject.encode([record.texts], "truncate")
            document = replace(document, windows=(*document.windows, *cut.windows))
        window = texts.find_window(document, record, self.subject.title)
        labels, against = (
            [label_index(label, self.subject.labels) for label in names]
            for names in (target.labels, target.rather_than)
        )
        picks = pick_words([target.tokens], [labels], [against] if against else [], self.subject.device)
        return texts.open_window(record, window, document, picks)

    def units(self, record: Attribution, level: str) -> list[Unit]:
        """Return the words of the text, or its tokens, except those that the labels are read from, which stay."""
        assert isinstance(record.target, TokenLabels), "`reopen` checks this"
        fixed = set(record.target.tokens)
        return [unit for unit in texts.units(record, level) if not fixed & set(unit.elements)]

    def n_tokens(self, document: Document) -> int:
        return len(document.windows[0])

    def bench_target(self, part: Part, n_tokens: int) -> Wanted:
        return Wanted(first=True)

    def has_target(self, item: Any) -> bool:
        """Return whether the model names an entity in this text, and other words remain to be removed."""
        documents = self.encode([item], self.bench_long, 0)
        words = entities.find_words(documents[0])
        found = self._find_entities(documents, [words], Wanted(first=True))[0]
        return bool(found) and len(found[0].tokens) < len(words)

    def gold(self, example: BenchInput, document: Document, index: int, part: Part) -> Gold | None:
        """Return the first entity by the tags of an example, or a drawn word if every word has a label. None if there
        is none, if truncation removed some of it, or if there are no other words.
        """
        if example.truth is None:
            raise BadInput(": this protocol explains gold labels, but there are none", place=example.where)
        names = self.subject.labels
        try:
            labels = [label_index(tag, names) for tag in example.truth]
        except UsageError as error:
            error.place, error.message = example.where or "an example", f": {error.message}"
            raise
        groups = entities.group_entities([names[label] for label in labels], lambda group: True)
        if OUTSIDE not in names:
            groups = [[entities.draw_word(len(labels), document)]]
        spans = word_spans(example.item)
        tokens = [entities.first_token(document, spans[i]) for i in (groups[0] if groups else ())]
        inside = [token for token in tokens if token is not None]
        if not inside or len(inside) < len(tokens) or len(inside) == len(spans):
            return None
        return Gold(TokenLabels(tuple(inside), tuple(labels[i] for i in groups[0])))

    def parse_row(self, row: Mapping[str, Any], index: int) -> TextExample | ImageExample | Prompt:
        words = None if "text" in row else find_words(row)
        return super().parse_row(row if words is None else {**row, "text": " ".join(words)}, index)

    def gold_name(self, label: Any) -> None:
        """Return None: a row has a label for each word, and a record is about some of them."""
        return

    def examples(self, source: Any, labels: Any, columns: Sequence[str] | None) -> Iterator[BenchInput]:
        """Read texts, or rows of words with tags."""
        if not isinstance(labels, str | None):
            raise BadSetting("labels", labels, "None, or the name of a column with a tag for each word")
        for example in read_tagged(source, labels, columns):
            if isinstance(example, TaggedExample):
                yield BenchInput(list(example.words), example.tags, example.where)
            else:
                yield BenchInput(example.texts, None, example.where)

    def reference_rule(self, rule: str) -> str:
        raise UsageError(f"{self.subject.title}: {NO_REFERENCE}; use methods without references")

    def facts(self) -> list[tuple[str, str]]:
        names = self.subject.labels
        cut = "longer ones are read in windows, or truncated (--long truncate)"
        kinds = dict.fromkeys(entities.split_tag(name)[1] for name in names if name != OUTSIDE)
        if OUTSIDE in names:
            read = ("names entities", f"{', '.join(kinds)}; each is explained, or the word that --token chooses")
        else:
            read = ("labels words", "every word; --token chooses the one to explain")
        return [
            ("longest text", f"{self.subject.limit} tokens; {cut}"),
            ("labels", ", ".join(f"{i} {name}" for i, name in enumerate(names))),
            read,
            ("head reads", "every token; a word's label is that of its first token"),
        ]


def _check_token(token: Any) -> str | int | tuple[int, int]:
    if isinstance(token, str) and token.strip():
        return token.strip()
    if isinstance(token, SupportsIndex) and not isinstance(token, bool):
        return index(token)
    if isinstance(token, tuple | list) and len(token) == 2:
        start, end = token
        if type(start) is type(end) is int and 0 <= start < end:
            return start, end
    raise BadSetting("token", token, "a word of the text, the position of a token, or characters (start, end)")


def _join_words(item: Any, number: int) -> tuple[str, ...]:
    if isinstance(item, list):
        if not item or not all(isinstance(word, str) and word.strip() for word in item):
            raise BadInput(f"is {item!r:.60}; expected a text, or a list of words", index=number)
        return (" ".join(item),)
    checked = check_texts(item, f"input {number}", number)
    if len(checked) == 2:
        raise BadInput(
            "is a pair of texts; a token classifier reads one: give a text, or a list of words", index=number
        )
    return checked


def pick_words(
    tokens: Sequence[Sequence[int]],
    labels: Sequence[Sequence[int]],
    against: Sequence[Sequence[int]],
    device: torch.device,
) -> Picks:
    """Return the picks of a batch: the labels of some words of each row, each read at one token. `against`: other
    labels, for all rows or none.
    """
    longest = max(map(len, tokens))

    def pad(rows: Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], device=device)

    places, used = pad(tokens), pad([[1] * len(row) for row in tokens]).bool()
    return Picks(places, pad(labels), pad(against) if against else None, used, Link.JOINT, places, Axis.PLACES)
