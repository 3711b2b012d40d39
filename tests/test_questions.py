"""Questions: every method explains the answer that a model finds in a context."""

from dataclasses import replace
from functools import cache
from typing import Any, get_args

import pytest
import torch
from tests.tiny import QUESTION_KINDS, question_subject, span_goal, with_heads

import whichtoken as wt
from whichtoken.core.trace import Site, needs
from whichtoken.errors import BadInput, BadSetting, LibraryMismatch, UsageError
from whichtoken.models import LogitCache, LongTexts, ModelProbe, capture, window_row
from whichtoken.targets import Part
from whichtoken.tasks import task_for
from whichtoken.tasks.answer import CONTEXT, LONGEST_ANSWER, best_span

PAIRS = [
    ("Is it slow?", "The film was slow, but the music was touching."),
    ("a man", "It is a rare plot."),
    ("Who won", "The actors were won, it was the end of a man."),
]
OTHERS = [
    ("Is it rare?", "Nobody did sleep, it was the end of the film."),
    ("the plot", "A man is touching the music."),
]
LONG = ("Is it slow?", " ".join(["The film was slow, but the music was touching and it is the end."] * 3))
each_kind = pytest.mark.parametrize("kind", [pytest.param(k, marks=pytest.mark.xdist_group(k)) for k in QUESTION_KINDS])


@cache
def subject_for(kind: str, attention: str | None = None) -> wt.Subject:
    subject = with_heads(question_subject(kind, attention))
    recipe: dict[str, Any] = {"min_tokens": 1, "layers": "all", "dtype": "float64", "gamma": 1.0}
    return subject.with_references(wt.references.build(subject, OTHERS, **recipe))


@cache
def together(kind: str) -> wt.Results:
    return wt.explain(subject_for(kind), PAIRS, ["attcat", "gae"])


@each_kind
def test_the_answer_is_the_best_stretch_of_the_context(kind: str) -> None:
    subject = subject_for(kind)
    for pair, result in zip(PAIRS, together(kind), strict=True):
        found = result["attcat"]
        encoded = subject.tokenizer(*pair, return_tensors="pt")
        with torch.no_grad():
            output = subject.model(**encoded)
        inside = [i for i, sequence in enumerate(encoded.sequence_ids()) if sequence == 1]
        scored = {
            (i, j): float(output.start_logits[0, i] + output.end_logits[0, j])
            for i in inside
            for j in inside
            if i <= j < i + LONGEST_ANSWER
        }
        best = max(scored, key=scored.__getitem__)
        assert found.target == wt.Span(*best)
        p = output.start_logits.softmax(-1)[0, best[0]] * output.end_logits.softmax(-1)[0, best[1]]
        assert found.probability == pytest.approx(float(p), rel=1e-6)
        assert pair[1].find(found.label) >= 0


def test_maps_of_start_and_end_are_added() -> None:
    subject, methods = subject_for("bert"), ["gae", "attcat", "raw-attention", "transatt", "full-lrp"]
    answer = together("bert")[0]["gae"].target
    assert isinstance(answer, wt.Span)
    parts = {
        part: wt.explain(subject, PAIRS[:1], methods, target=replace(answer, part=part))[0] for part in get_args(Part)
    }
    assert all(result["gae"].target == replace(answer, part=part) for part, result in parts.items())
    for name in methods:
        both, one, start, end = (torch.tensor(parts[p][name].scores) for p in ("both", "sum", "start", "end"))
        assert torch.allclose(both, start + end, rtol=1e-6, atol=1e-12), name
        if name == "attcat":  # linear in the gradient, so the map of the sum is the sum of the maps
            assert torch.allclose(both, one, rtol=1e-5, atol=1e-9)
        else:
            assert not torch.allclose(both, one, rtol=1e-3), name
    p = {part: result["gae"].output for part, result in parts.items()}
    assert p["both"] == p["sum"] == pytest.approx(p["start"] * p["end"])


def test_the_row_of_the_explained_token_is_read_out_and_its_own_entry_is_kept() -> None:
    subject = subject_for("bert")
    span = wt.Span(6, 8, part="start")
    found = wt.explain(subject, PAIRS[:1], ["raw-attention", "rollout", "gae"], target=span)[0]
    document = subject.encode(PAIRS[:1])[0]
    batch = subject.batch([window_row(document, document.windows[0])])
    goal = span_goal(torch.tensor([6]), torch.tensor([8]), "start")
    trace = capture(subject, batch, lambda logits: goal, needs("attention"))
    row = trace.value(Site.ATTENTION)[-1][0].mean(0)[6]
    assert torch.allclose(torch.tensor(found["raw-attention"].scores, dtype=row.dtype), row)
    assert found["raw-attention"].scores[6] > 0
    dropped = wt.method("raw-attention", keep_self=False)
    assert wt.explain(subject, PAIRS[:1], [dropped], target=span)[0][dropped.label].scores[6] == 0
    every = wt.method("raw-attention", preset="qa-repo")
    mean = trace.value(Site.ATTENTION)[-1][0].mean(0).mean(0)
    scores = wt.explain(subject, PAIRS[:1], [every], target=span)[0][every.label].scores
    assert torch.allclose(torch.tensor(scores, dtype=mean.dtype), mean)


def test_relevance_starts_at_the_answers_token_alone() -> None:
    """At the last block only its row of attention has any (spec: not so in Mask-LRP's code)."""
    from whichtoken.lrp import C21

    subject = subject_for("bert")
    document = subject.encode(PAIRS[:1])[0]
    batch = subject.batch([window_row(document, document.windows[0])])
    goal = span_goal(torch.tensor([6]), torch.tensor([8]), "end")
    trace = capture(subject, batch, lambda logits: goal, needs(relevance=(C21, "attention embeddings")))
    rows = trace.relevance(C21, Site.ATTENTION)[-1][0].abs().sum((0, 2))
    assert rows.nonzero().flatten().tolist() == [8]
    assert float(trace.relevance(C21, Site.EMBEDDINGS)[0].sum()) == pytest.approx(1, abs=1e-6)


def test_the_window_with_the_best_answer_is_explained() -> None:
    subject = subject_for("bert")
    found = wt.explain(subject, [LONG], ["attcat"])[0]["attcat"]
    document = subject.encode([LONG], "window", only=CONTEXT)[0]
    assert len(document.windows) > 2
    rows = [window_row(document, window) for window in document.windows]
    best = []
    for window, row in zip(document.windows, rows, strict=True):
        logits = subject.logits(subject.batch([row]))
        context = torch.tensor([[document.sequences[i] == 1 for i in window]])
        best.append(float(best_span(logits, context)[1]))
    chosen = best.index(max(best))
    assert found.details["window"] == chosen
    assert found.details["windows"] == len(document.windows)
    assert found.tokens == tuple(document.tokens[i] for i in document.windows[chosen])
    assert found.n_cut == len(document.ids) - len(found.tokens)
    cut = wt.explain(subject, [LONG], ["attcat"], long="truncate")[0]["attcat"]
    assert cut.tokens[: len(cut.tokens) - 1] == document.tokens[: len(cut.tokens) - 1]
    assert len(cut.tokens) == subject.limit
    with pytest.raises(BadInput, match="tokens, the model takes"):
        wt.explain(subject, [LONG], long="error")


def test_the_question_is_never_cut() -> None:
    subject = subject_for("bert")
    question = " ".join(["slow"] * 30)
    ways: tuple[LongTexts, ...] = ("truncate", "window")
    for long in ways:
        document = task_for(subject).encode([(question, LONG[1])], long, 0)[0]
        for window in document.windows:
            assert sum(document.sequences[i] == 0 for i in window) == 30
    with pytest.raises(BadInput, match="its question leaves no room for the context"):
        wt.explain(subject, [(" ".join(["slow"] * 60), "It is.")])


def test_an_answer_can_be_named_by_its_text() -> None:
    subject = subject_for("bert")
    found = wt.explain(subject, PAIRS[:1], ["gae"], target="the music")[0]["gae"]
    assert isinstance(found.target, wt.Span)
    assert found.target.start is not None
    assert found.target.end is not None
    assert found.label == "the music"
    assert found.tokens[found.target.start : found.target.end + 1] == ("the", "music")
    with pytest.raises(BadInput, match="input 0: the context does not contain the answer 'rhubarb'"):
        wt.explain(subject, PAIRS[:1], target="rhubarb")
    assert wt.explain(subject, [LONG], target="the end.")[0]["gae"].label == "the end."
    for answer in ("slow", "."):  # tokens that touch it are no part of it
        assert wt.explain(subject, PAIRS[:1], target=answer)[0]["gae"].label == answer


def test_each_end_by_itself_as_the_papers_choose_them() -> None:
    subject = subject_for("bert")
    for pair in PAIRS:
        found = wt.explain(subject, [pair], target=wt.Span(free=True))[0]["gae"]
        with torch.no_grad():
            output = subject.model(**subject.tokenizer(*pair, return_tensors="pt"))
        assert found.target == wt.Span(int(output.start_logits.argmax()), int(output.end_logits.argmax()))


def test_the_answer_moves_with_its_tokens_when_others_are_deleted() -> None:
    subject = subject_for("bert")
    document = subject.encode(PAIRS[:1])[0]
    batch = subject.batch([window_row(document, document.windows[0])])
    probe = ModelProbe(
        subject, batch, span_goal(torch.tensor([9]), torch.tensor([11]), "sum"), cache=LogitCache(subject)
    )
    keep = torch.ones(1, 3, batch.ids.shape[1], dtype=torch.bool)
    keep[0, 0, 6:8] = False  # two before the answer
    keep[0, 1] = False  # all that may go: its ends stay, and special tokens
    found = probe.keep(keep)[0]
    for row, left in enumerate(
        [
            [i for i in range(batch.ids.shape[1]) if i not in (6, 7)],
            [i for i, special in enumerate(batch.special[0].tolist()) if special or i in (9, 11)],
            list(range(batch.ids.shape[1])),
        ]
    ):
        with torch.no_grad():
            output = subject.model(input_ids=batch.ids[:, left], token_type_ids=batch.types[:, left])
        p = output.start_logits.softmax(-1)[0, left.index(9)] * output.end_logits.softmax(-1)[0, left.index(11)]
        assert float(found[row]) == pytest.approx(float(p), rel=1e-9)
    inside = probe.keep_in_place(keep)[0]
    assert float(inside[2]) == pytest.approx(float(found[2]), rel=1e-9)
    assert float(inside[1]) != pytest.approx(float(found[1]), rel=1e-3)  # positions are kept


def test_contrast_cat_contrasts_with_questions_whose_answer_is_elsewhere() -> None:
    """Our extension: p at the place of the explained answer is under gamma."""
    plain = question_subject("bert")
    library = wt.references.build(plain, PAIRS, min_tokens=1, dtype="float64", gamma=0.01, layers="all")
    assert library.labels == ("answer",)
    subject = plain.with_references(library)
    order = [reference.sha256 for reference in library.references[0]]
    assert len(order) == 3
    packed = library.packed[0]
    assert packed is not None
    for start, end in ((6, 8), (9, 9), (12, 14), (6, 14)):  # one reference ends between 6 and 14
        span = torch.tensor([[start, end]])
        p = library.answer_probabilities(0, span)[0]
        assert packed.answers is not None
        for i in range(3):
            expected = packed.answers[i, 0, start] * packed.answers[i, 1, end]
            assert float(p[i]) == pytest.approx(float(expected))
        reach = [i for i in range(3) if library.references[0][i].n_tokens > end]
        low = [i for i in reach if p[i] < 0.01] or [min(reach, key=lambda i: float(p[i]))]
        target = wt.Span(start, end, part="start")
        found = wt.explain(subject, PAIRS[:1], ["contrast-cat"], target=target)[0]["contrast-cat"]
        assert found.details["references"] == low
        assert found.tuned_on_deletion
    assert library.answer_probabilities(0, torch.tensor([[100, 2]])).tolist() == [[0, 0, 0]]
    every = plain.with_references(wt.references.build(plain, PAIRS, min_tokens=1, rule="lowest"))
    found = wt.explain(every, PAIRS[:1], ["contrast-cat"], target=wt.Span(6, 8, "start"))[0]["contrast-cat"]
    assert found.details["references"] == [0, 1, 2]
    stored = wt.references.build(plain, PAIRS, min_tokens=1, compress="int8")
    assert wt.explain(plain.with_references(stored), PAIRS[:1], ["contrast-cat"])[0]["contrast-cat"].scores


def test_a_library_of_questions_is_stored_and_read(tmp_path: Any) -> None:
    subject = question_subject("bert")
    library = wt.references.build(subject, PAIRS, min_tokens=1, out=tmp_path / "library")
    again = wt.references.load(tmp_path / "library", subject)
    span = torch.tensor([[6, 7]])
    assert torch.equal(library.answer_probabilities(0, span), again.answer_probabilities(0, span))
    assert torch.equal(library.subset(2).answer_probabilities(0, span), again.answer_probabilities(0, span)[:, :2])
    assert "checked for each answer" in library.summary()
    small = wt.references.build(subject, PAIRS, min_tokens=1, compress="int8")
    assert torch.equal(small.answer_probabilities(0, span), library.answer_probabilities(0, span))
    with pytest.raises(BadSetting, match="answers to questions have no classes"):
        wt.references.build(subject, PAIRS, rule="same-class")


def test_a_library_of_texts_is_no_library_of_questions() -> None:
    from tests.tiny import KINDS, model_of, with_references

    classes = with_references(wt.Subject(model_of("bert", labels=1), KINDS["bert"].tokenizer(), name="bert"))
    assert classes.references is not None
    with pytest.raises(LibraryMismatch):
        question_subject("bert").with_references(classes.references)
    with pytest.raises(LibraryMismatch, match="not built from questions"):
        classes.references.answer_probabilities(0, torch.tensor([[1, 2]]))


def test_what_is_wrong_is_said() -> None:
    subject = subject_for("bert")
    with pytest.raises(BadInput, match=r"input 0 is one text; bert answers questions: give \(question, context\)"):
        wt.explain(subject, ["a text"])
    with pytest.raises(UsageError, match="a question was given without a context"):
        wt.explain(subject, question="Who?")
    with pytest.raises(UsageError, match="1 questions and 2 contexts"):
        wt.explain(subject, question=["Who?"], context=["It is.", "It was."])
    with pytest.raises(UsageError, match="give exactly one of inputs, images, prompt, or question with context"):
        wt.explain(subject)
    with pytest.raises(BadInput, match="there is no span from token 3 to 99"):
        wt.explain(subject, PAIRS[:1], target=wt.Span(3, 99))
    with pytest.raises(BadSetting, match="a span with both ends"):
        wt.Span(3)
    with pytest.raises(BadSetting, match="part"):
        wt.Span(part="middle")  # type: ignore[arg-type]
    for ends in (("a", "b"), (6.7, 8.2), (True, 8)):
        with pytest.raises(BadSetting, match="a span of token indices"):
            wt.Span(*ends)
    with pytest.raises(BadSetting, match="the text of an answer"):
        wt.explain(subject, PAIRS[:1], target=3)
    with pytest.raises(UsageError, match="answers questions"):
        wt.degrade(subject, [replace(together("bert")[0]["attcat"], target=wt.Class(0))])


def test_question_and_context_may_be_texts_or_lists() -> None:
    subject = subject_for("bert")
    one = wt.explain(subject, question=PAIRS[0][0], context=PAIRS[0][1])
    assert one == wt.explain(subject, PAIRS[:1])
    several = wt.explain(subject, question=["a man", "slow"], context=PAIRS[1][1])
    assert [result["gae"].texts for result in several] == [("a man", PAIRS[1][1]), ("slow", PAIRS[1][1])]


def test_a_classifier_is_not_asked_for_spans() -> None:
    from tests.tiny import KINDS, model_of

    subject = wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())
    with pytest.raises(BadSetting, match="this model does not answer questions"):
        wt.explain(subject, ["It is."], target=wt.Span())
    with pytest.raises(UsageError, match=r"question was given, but .* classifies texts; give texts, or pairs of texts"):
        wt.explain(subject, question="Is it?", context="It is.")


def test_a_text_without_a_question_is_no_reference_but_will_do_for_heads() -> None:
    from tests.heads.corpus import CORPUS as PARSED

    subject = question_subject("bert")
    with pytest.raises(BadInput, match="a reference library for questions needs pairs"):
        wt.references.build(subject, ["The film was slow."], min_tokens=1)
    mask = wt.heads.build(subject, PARSED)
    assert mask.n_layers == subject.n_layers


def test_padding_is_no_answer() -> None:
    subject = question_subject("bert")
    rows = [window_row(document, document.windows[0]) for document in subject.encode(PAIRS)]
    together = subject.logits(subject.batch(rows)).softmax(-1)
    for found, row in zip(together, rows, strict=True):
        alone = subject.logits(subject.batch([row])).softmax(-1)[0]
        assert torch.allclose(found[:, : len(row.ids)], alone, rtol=1e-9)
        assert (found[:, len(row.ids) :] == 0).all()


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_reference_must_reach_the_place_of_the_answer(beyond: int) -> None:
    """Beyond its end there is nothing to contrast with, however low the probability is there."""
    plain = question_subject("bert")
    library = wt.references.build(plain, PAIRS, min_tokens=1, dtype="float64", gamma=1.0, layers="all")
    lengths = [reference.n_tokens for reference in library.references[0]]
    place = sorted(lengths)[0] + beyond  # the last token of a reference is at its length - 1
    found = wt.explain(plain.with_references(library), PAIRS[:1], ["contrast-cat"], target=wt.Span(place, place, "end"))
    used = found[0]["contrast-cat"].details["references"]
    assert used == [i for i, length in enumerate(lengths) if length > place]
    assert 0 < len(used) < 3


@pytest.mark.parametrize("name", ["gae", "raw-attention", "full-lrp"])
def test_both_ends_are_dropped_when_their_entries_are_not_kept(name: str) -> None:
    method = wt.method(name, keep_self=False)
    scores = wt.explain(subject_for("bert"), PAIRS[:1], [method], target=wt.Span(6, 8, "sum"))[0][method.label].scores
    assert [i for i, score in enumerate(scores) if score == 0] == [6, 8]


def test_tis_never_takes_the_ends_of_an_answer_out() -> None:
    scores = wt.explain(subject_for("bert"), PAIRS[:1], ["tis"], target=wt.Span(6, 8, "sum"))[0]["tis"].scores
    assert (scores[6], scores[8]) == (0, 0)
    assert max(scores) == 1


def test_a_sanity_check_compares_words_of_the_context() -> None:
    """The answer of the untouched model is explained on both, and its ends have no rank."""
    subject = subject_for("bert")
    (found,) = wt.metrics.sanity_check(subject, PAIRS, ["attcat"], depths=[1])
    taus, other = [], wt.metrics.randomised(subject, 1)
    for pair in PAIRS:
        before = wt.explain(subject, [pair], ["attcat"])[0]["attcat"]
        assert isinstance(before.target, wt.Span)
        after = wt.explain(other, [pair], ["attcat"], target=before.target)[0]["attcat"]
        ends = (before.target.start, before.target.end)
        ranked = [i for i, sequence in enumerate(before.sequences) if sequence == CONTEXT and i not in ends]
        pairs = [(before.scores[i], after.scores[i]) for i in ranked]
        signs = [(a - c) * (b - d) for n, (a, b) in enumerate(pairs) for c, d in pairs[:n]]
        taus.append(sum(1 if sign > 0 else -1 for sign in signs) / len(signs))
        assert 0 not in signs
    assert found.tau == pytest.approx(sum(taus) / len(taus))
    assert found.n_texts == len(PAIRS)
