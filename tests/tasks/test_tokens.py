"""Models that label tokens: which words are explained, which of their labels, and what remains without other words."""

import json
import math
from functools import cache
from typing import Any

import pytest
import torch
from tests.tiny import MAIN_KINDS, TAGS, question_subject, token_subject, wordpiece
from transformers import pipeline

import whichtoken as wt
from whichtoken.errors import BadArtifact, BadInput, BadSetting, UnknownName, UsageError
from whichtoken.render.latex import escape
from whichtoken.tasks import entities, task_for
from whichtoken.tasks.tokens import pick_words

TEXT = "The actors were won, but the music was slow and touching, it is the end of a rare plot."
LONG = " ".join(["The film was slow, but the music was touching and it is the end."] * 4)
POS = ("ADJ", "DET", "NOUN", "VERB")


@cache
def subject_for(kind: str = "bert", labels: tuple[str, ...] = TAGS) -> wt.Subject:
    return token_subject(kind, labels=labels)


def model_logits(subject: wt.Subject, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = subject.model(input_ids=torch.tensor([ids])).logits[0]
    return logits


def explained(text: str = TEXT, **arguments: Any) -> list[wt.Attribution]:
    return [result["attcat"] for result in wt.explain(subject_for(), [text], ["attcat"], **arguments)]


# What is explained


def test_the_scalar_is_a_sum_of_logits_and_the_probability_a_product() -> None:
    torch.manual_seed(1)
    logits = torch.randn(2, 6, 4, dtype=torch.float64)
    tokens, labels, against = [(1, 4), (3,)], [(2, 0), (1,)], [(1, 1), (3,)]
    plain = pick_words(tokens, labels, [], logits.device)
    contrast = pick_words(tokens, labels, against, logits.device)
    for row in range(2):
        scalar, difference, probability, other = 0.0, 0.0, 1.0, 1.0
        for token, label, rather in zip(tokens[row], labels[row], against[row], strict=True):
            scalar += float(logits[row, token, label])
            difference += float(logits[row, token, label] - logits[row, token, rather])
            total = sum(math.exp(float(value)) for value in logits[row, token])
            probability *= math.exp(float(logits[row, token, label])) / total
            other *= math.exp(float(logits[row, token, rather])) / total
        assert float(plain.scalar(logits)[row]) == pytest.approx(scalar, abs=1e-12)
        assert float(plain.tracked(plain.read(logits))[row]) == pytest.approx(probability, abs=1e-12)
        assert float(contrast.scalar(logits)[row]) == pytest.approx(difference, abs=1e-12)
        share = probability / (probability + other)
        assert float(contrast.tracked(contrast.read(logits))[row]) == pytest.approx(share, abs=1e-12)
        assert plain.target(row) == wt.TokenLabels(tokens[row], labels[row])
        assert contrast.target(row) == wt.TokenLabels(tokens[row], labels[row], against[row])
    span = plain.span()
    assert span is not None
    assert span.tolist() == [[1, 4], [3, 3]]
    signs = [(sign, term.scalar(logits)) for sign, term in contrast.terms()]
    joined = torch.stack([sign * part for sign, part in signs]).sum(0)
    assert torch.allclose(joined, contrast.scalar(logits))


def test_the_scores_are_of_the_words_label() -> None:
    """Gradient x input, written slowly: of the logit at the word's first token."""
    subject = subject_for()
    encoded = subject.tokenizer(TEXT)
    place = encoded.tokens().index("music")
    embedded = subject.model.bert.embeddings(torch.tensor([encoded["input_ids"]])).detach().requires_grad_()
    hidden = subject.model.bert.encoder(embedded).last_hidden_state
    logits = subject.model.classifier(hidden)[0, place]
    label = int(logits.argmax())
    (gradient,) = torch.autograd.grad(logits[label], embedded)
    (result,) = wt.explain(subject, [TEXT], ["gradient-x-input"], token="music")
    record = result["gradient-x-input"]
    assert record.scores == pytest.approx((gradient * embedded)[0].sum(-1).tolist(), abs=1e-9)
    assert record.target == wt.TokenLabels((place,), (label,))
    assert record.label == f"music: {TAGS[label]}"
    assert record.probability == pytest.approx(float(logits.detach().softmax(-1)[label]))
    assert record.predicted is not None
    assert (record.predicted.label, record.predicted.probability) == (record.label, record.probability)


def test_without_a_word_every_entity_is_explained_as_transformers_finds_it() -> None:
    subject = subject_for()
    named = pipeline("token-classification", model=subject.model, tokenizer=wordpiece(), aggregation_strategy="first")
    for text in (TEXT, "A man is touching the music, but it is slow, and the actors were charming!"):
        expected = [(group["start"], group["end"], group["entity_group"]) for group in named(text)]
        found = explained(text)
        assert len(expected) > 3
        assert any(" " in text[start:end] for start, end, _ in expected), "some entity has several words"
        spans = [[record.spans[i] for i in record.target.tokens] for record in found]  # type: ignore[union-attr]
        words = [
            ((of_word[0] or (0,))[0], record.label.split(": ")) for of_word, record in zip(spans, found, strict=True)
        ]
        assert [(start, text[start:end], kind) for start, end, kind in expected] == [
            (start, name, label.removeprefix("B-").removeprefix("I-")) for start, (name, label) in words
        ]


def test_an_entitys_probability_is_that_of_all_its_labels() -> None:
    logits = model_logits(subject_for(), wordpiece()(TEXT)["input_ids"]).softmax(-1)
    several = [record for record in explained() if len(record.target.tokens) > 1]  # type: ignore[union-attr]
    assert several
    for record in several:
        target = record.target
        assert isinstance(target, wt.TokenLabels)
        read = [float(logits[i, int(label)]) for i, label in zip(target.tokens, target.labels, strict=True)]
        product = math.prod(read)
        assert record.probability == pytest.approx(product)
        assert [TAGS[label][2:] for label in target.labels] == [record.label.split(": ")[1]] * len(target.labels)  # type: ignore[index]


def test_a_text_without_entities_has_no_result() -> None:
    outside = subject_for(labels=("O",))
    assert wt.explain(outside, [TEXT, "it is slow"], methods="attcat") == []
    assert wt.explain(outside, ["it is slow"], token="slow", methods="attcat")[0]["attcat"].label == "slow: O"


# Which word


def places(records: list[wt.Attribution]) -> list[tuple[int, ...]]:
    return [record.target.tokens for record in records if isinstance(record.target, wt.TokenLabels)]


def test_a_word_is_found_by_its_text_its_position_and_its_characters() -> None:
    tokens = wordpiece()(TEXT).tokens()
    at = tokens.index("music")
    assert places(explained(token="music")) == [(at,)]
    assert places(explained(token=at)) == [(at,)]
    assert places(explained(token=(TEXT.index("usi"), TEXT.index("usi") + 3))) == [(at,)]
    assert places(explained(token="the music was")) == [(at - 1, at, at + 1)]
    assert places(explained(token=tokens.index("##n"))) == [(tokens.index("##n"),)]  # a token within a word


def test_every_occurrence_has_a_result_and_case_is_ignored_only_if_it_must_be() -> None:
    tokens = wordpiece()(TEXT).tokens()
    every = [(i,) for i, token in enumerate(tokens) if token == "the"]
    assert len(every) == 3
    assert places(explained(token="the")) == every[1:]
    assert places(explained(token="The")) == every[:1]
    assert places(explained(token="THE")) == every
    assert [record.label.split(":")[0] for record in explained(token="THE")] == ["The", "the", "the"]


def test_a_word_is_not_found_inside_another_unless_its_script_has_no_case() -> None:
    with pytest.raises(
        BadInput, match=r"input 0: the text has no word 'act'; its words are: The actors were won , but"
    ):
        explained(token="act")
    assert places(explained("很好電影", token="電影")) == [(3, 4)]


@pytest.mark.parametrize("kind", MAIN_KINDS)
def test_words_are_the_same_for_every_tokenizer(kind: str) -> None:
    text = "The actors, were won:it is the-end!"
    (document,) = subject_for(kind).encode([(text,)])
    words = entities.find_words(document)
    expected = ["The", "actors", ",", "were", "won", ":", "it", "is", "the", "-", "end", "!"]
    assert [text[slice(*word.span)] for word in words] == expected
    starts = [document.spans[word.first] for word in words]
    assert all(span is not None and span[0] <= word.span[0] for span, word in zip(starts, words, strict=True))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"token": "rhubarb"}, BadInput, "input 0: the text has no word 'rhubarb'; its words are: The actors were won"),
        ({"token": 0}, BadInput, "input 0: there is no token 0 with a label to explain; allowed: 1 to 2"),
        ({"token": 99}, BadInput, "there is no token 99"),
        ({"token": (500, 510)}, BadInput, "no word lies at characters 500 to 510; the text has 87"),
        ({"token": (3, 4)}, BadInput, "no word lies at characters 3 to 4"),
        ({"token": (4, 3)}, BadSetting, "a word of the text, the position of a token, or characters"),
        ({"token": True}, BadSetting, "token=True is not allowed"),
        ({"token": ""}, BadSetting, "token='' is not allowed"),
        ({"token": 1.5}, BadSetting, "token=1.5 is not allowed"),
        ({"target": "B-LOK"}, UnknownName, "unknown label 'B-LOK'; did you mean 'B-LOC'"),
        ({"target": 7}, BadSetting, "one of the model's 5 labels"),
        ({"target": wt.Span(1, 2)}, BadSetting, "this model does not answer questions"),
        ({"target": wt.Contrast("LOC", "loc")}, BadSetting, "two different labels"),
        ({"target": wt.TokenLabels((0,), (1,))}, BadInput, "there is no token 0"),
        ({"target": wt.TokenLabels((1,), ("B-LOK",))}, UnknownName, "B-LOK"),
        ({"target": wt.TokenLabels((1,), (1,)), "token": "the"}, BadSetting, "TokenLabels, which says which tokens"),
        ({"long": "shorten"}, BadSetting, "long='shorten'"),
    ],
)
def test_a_wrong_call_says_what_is_allowed(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        explained(**arguments)


def test_labels_without_an_outside_need_a_word() -> None:
    subject = subject_for(labels=POS)
    with pytest.raises(UsageError, match=r"bert gives every word a label and has no label 'O'.*choose a word: token="):
        wt.explain(subject, [TEXT], methods="attcat")
    assert wt.explain(subject, [TEXT], token="music", methods="attcat")[0]["attcat"].label.split(": ")[1] in POS


def test_other_models_take_no_word() -> None:
    with pytest.raises(UsageError, match="a token was given, but bert answers questions; leave it out"):
        wt.explain(question_subject(), question="Is it slow?", context="It is.", token="slow")


def test_inputs_are_texts_or_lists_of_words() -> None:
    words = ["The", "film", "was", "slow"]
    (joined,) = explained(" ".join(words), token="slow")
    (split,) = [r["attcat"] for r in wt.explain(subject_for(), [words], ["attcat"], token="slow")]
    assert split == joined
    with pytest.raises(BadInput, match="input 0 is a pair of texts; a token classifier reads one"):
        wt.explain(subject_for(), [("The film", "was slow")])
    with pytest.raises(BadInput, match=r"input 1 is \['a', 3\]; expected a text, or a list of words"):
        wt.explain(subject_for(), ["it", ["a", 3]])


# Which label


def test_the_target_is_a_label_a_kind_a_contrast_or_the_tokens_themselves() -> None:
    (one,) = explained(token="the music was", target="B-PER")
    at = one.target.tokens  # type: ignore[union-attr]
    assert one.target == wt.TokenLabels(at, (3, 4, 4))
    assert one.label == "the music was: PER"
    assert one.predicted is not None
    assert one.predicted.label != one.label
    assert explained(token="the music was", target=" per ".strip()) == [one]
    assert explained(target=wt.TokenLabels(at, ("B-PER", "I-PER", "I-PER"))) == [one]
    (contrast,) = explained(token="music", target=wt.Contrast("I-LOC", 0))
    assert contrast.target == wt.TokenLabels((at[1],), (2,), (0,))
    assert contrast.label == "music: I-LOC rather than O"
    logits = model_logits(subject_for(), wordpiece()(TEXT)["input_ids"])[at[1]]
    assert contrast.probability == pytest.approx(1 / (1 + math.exp(float(logits[0] - logits[2]))))


def test_all_labels_of_a_word() -> None:
    found = explained(token="music", targets="all")
    assert [record.label for record in found] == [f"music: {tag}" for tag in TAGS]
    assert sum(record.output for record in found) == pytest.approx(1)
    named = len(explained())
    assert len(explained(targets=["LOC", "PER"])) == 2 * named


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O B-A I-A O", [[1, 2]]),
        ("I-A I-A I-B", [[0, 1], [2]]),
        ("B-A B-A I-A", [[0], [1, 2]]),
        ("B-A O I-A", [[0], [2]]),
        ("S-A I-A E-A I-A", [[0], [1, 2], [3]]),
        ("U-A B-A L-A U-A", [[0], [1, 2], [3]]),
        ("B-A L-A I-A", [[0, 1], [2]]),
        ("I-A S-A I-A U-A", [[0], [1], [2], [3]]),
        ("A A B O A", [[0, 1], [2], [4]]),
        ("O O", []),
    ],
)
def test_tags_make_entities(tags: str, expected: list[list[int]]) -> None:
    assert entities.group_entities(tags.split(), lambda group: True) == expected


@pytest.mark.parametrize(
    ("label", "n", "expected"),
    [
        ("B-A", 3, ("B-A", "I-A", "E-A")),
        ("A", 1, ("S-A",)),
        ("A", 2, ("B-A", "E-A")),
        ("I-A", 2, ("I-A", "E-A")),
        ("O", 2, ("O", "O")),
        ("C", 2, ("C", "C")),
        ("S-A", 1, ("S-A",)),
    ],
)
def test_a_label_is_spread_over_words(label: str, n: int, expected: tuple[str, ...]) -> None:
    labels = ["O", "B-A", "I-A", "E-A", "S-A", "C"]
    spread = entities.spread_label(entities.resolve_label(label, labels), n, labels)
    assert tuple(labels[i] for i in spread) == expected


# Long texts


def test_a_word_of_a_long_text_is_explained_where_it_has_most_context() -> None:
    subject = subject_for()
    (document,) = subject.encode([(LONG,)], "window")
    assert len(document.windows) > 2
    found = explained(LONG, token="music")
    assert len(found) == 4
    for record in found:
        target, window = record.target, document.windows[record.details["window"]]
        assert isinstance(target, wt.TokenLabels)
        assert record.tokens == tuple(document.tokens[i] for i in window)
        assert record.tokens[target.tokens[0]] == "music"
        logits = model_logits(subject, [document.ids[i] for i in window])[target.tokens[0]]
        assert target.labels == (int(logits.argmax()),)
        assert record.probability == pytest.approx(float(logits.softmax(-1).max()))
        at, context = window[target.tokens[0]], []
        for other in document.windows:
            if at in other:
                content = [i for i in other if document.sequences[i] is not None]
                left = math.inf if content[0] == 1 else at - content[0]
                right = math.inf if content[-1] == len(document.ids) - 2 else content[-1] - at
                context.append((min(left, right), other == window))
        assert max(context)[1], "no other window has more context"
    assert len({record.details["window"] for record in found}) > 1
    assert [len(set(c.probability)) > 1 for c in wt.degrade(subject, found)] == [True] * 4


def test_entities_of_a_long_text_are_found_once_each_and_truncated_ones_not_at_all() -> None:
    found = explained(LONG)
    starts = [record.spans[record.target.tokens[0]] for record in found]  # type: ignore[union-attr]
    assert starts == sorted(set(starts), key=lambda span: span or ())
    assert any(span and span[0] > 200 for span in starts)
    cut = explained(LONG, long="truncate")
    assert cut
    assert len(cut) < len(found)
    assert len(explained(LONG, token="music", long="truncate")) < 4
    with pytest.raises(BadInput, match=r"no word 'plot'.*of its tokens were truncated"):
        explained(LONG + " plot", token="plot", long="truncate")
    assert len(explained(LONG + " plot", token="plot")) == 1


def test_an_entity_ends_where_no_window_holds_more_of_it() -> None:
    """A model that gives every word the same label names entities of the size of a window."""
    subject = token_subject(labels=("I-LOC", "O"))
    with torch.no_grad():
        subject.model.classifier.bias.copy_(torch.tensor([1e3, 0.0]))
    records = [result["random"] for result in wt.explain(subject, [LONG], ["random"])]
    (document,) = subject.encode([(LONG,)], "window")
    n_words = len(entities.find_words(document))
    assert 1 < len(records) < n_words
    assert sum(len(tokens) for tokens in places(records)) == n_words


# Removal


@pytest.mark.parametrize(("how", "level"), [("delete", "token"), ("mask", "token"), ("delete", "word")])
def test_the_label_is_read_where_the_word_has_moved(how: str, level: str) -> None:
    subject = subject_for()
    record = explained(token="the music")[0]
    target = record.target
    assert isinstance(target, wt.TokenLabels)
    (curve,) = wt.degrade(subject, [record], how, grid="all", level=level)
    units = task_for(subject).units(record, level)
    assert not {i for unit in units for i in unit.elements} & set(target.tokens)
    ids, mask = wordpiece()(TEXT)["input_ids"], wordpiece().mask_token_id
    ranked = sorted(units, key=lambda unit: -unit.score)
    for step, probability in enumerate(curve.probability):
        gone = {i for unit in ranked[:step] for i in unit.elements}
        kept = [i for i in range(len(ids)) if how == "mask" or i not in gone]
        left = model_logits(subject, [mask if i in gone else ids[i] for i in kept]).softmax(-1)
        pairs = zip(target.tokens, target.labels, strict=True)
        read = [float(left[kept.index(token), int(label)]) for token, label in pairs]
        expected = math.prod(read)
        assert probability == pytest.approx(expected, abs=1e-12)
    assert len(curve.probability) > 10


def test_methods_that_delete_keep_the_word() -> None:
    for result in wt.explain(subject_for(), [TEXT], ["tis", "refined-noise"], token="music"):
        for record in result.values():
            assert all(math.isfinite(score) for score in record.scores)


def test_contrast_cat_is_refused_with_a_reason() -> None:
    with pytest.raises(UsageError, match="contrast-cat cannot explain texts: its references are texts that hardly"):
        wt.explain(subject_for(), [TEXT], ["contrast-cat"])
    with pytest.raises(UsageError, match="use methods without references"):
        wt.references.build(subject_for(), [TEXT])


# Records


def test_a_record_survives_json_and_a_damaged_one_is_refused() -> None:
    for record in (*explained(), *explained(token="music", target=wt.Contrast(1, 2))):
        assert wt.Attribution.from_json(record.to_json()) == record
    record = explained(token="the music", target="LOC")[0]
    target = json.loads(record.to_json())["target"]
    for change, message in (
        ({"tokens": [1, 99]}, "expected the positions of tokens of the"),
        ({"tokens": [-1, 2]}, "expected the positions of tokens"),
        ({"tokens": [2, 1]}, "at least one token, in ascending order"),
        ({"tokens": []}, "at least one token"),
        ({"labels": [1]}, "one label for each token"),
        ({"labels": [1, -2]}, "expected labels by index, from 0"),
        ({"rather_than": [1]}, "one label for each token"),
        ({"rather_than": [1, True]}, "target"),
        ({"tokens": "12"}, "target"),
        ({"label": 1}, "target"),
    ):
        damaged = json.dumps(json.loads(record.to_json()) | {"target": target | change})
        with pytest.raises(BadArtifact, match=message):
            wt.Attribution.from_json(damaged)


def test_a_record_of_another_task_is_refused() -> None:
    (answer,) = wt.explain(question_subject(), question="Is it slow?", context="It is.")
    with pytest.raises(UsageError, match="these attributions explain a model other than"):
        wt.degrade(subject_for(), [answer["gae"]])
    with pytest.raises(UsageError, match="does not explain the label of a word, but bert labels words"):
        task_for(subject_for()).reopen(answer["gae"])


def test_pictures_show_the_word_and_its_label() -> None:
    (record,) = explained(token="music", target="B-LOC")
    assert "music: B-LOC" in record.to_html()
    assert escape("music: B-LOC") in record.to_latex()


def test_rows_of_a_data_set_of_words_can_be_explained() -> None:
    row = {"tokens": ["rare", "film", "music"], "ner_tags": [0, 1, 0], "id": "7"}
    (found,) = wt.explain(subject_for(), [row], ["attcat"], token="film")
    record = found["attcat"]
    assert record.texts == ("rare film music",)
    assert record.source is not None
    assert (record.source.id, record.source.gold) == ("7", None)


def test_a_pipeline_of_transformers_can_be_explained() -> None:
    subject = subject_for()
    tagger = pipeline("token-classification", model=subject.model, tokenizer=subject.tokenizer)
    (found,) = wt.explain(tagger, "rare film music", "attcat", token="film")
    (same,) = wt.explain(subject, "rare film music", "attcat", token="film")
    assert found["attcat"].scores == same["attcat"].scores
