"""Special tokens in a user's text, such as [SEP]: read as the model's pipeline reads them, named, or read as text."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from tests.test_records import ATTRIBUTION
from tests.tiny import CHAT, image_model_of, language_subject, question_subject, token_subject
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import whichtoken as wt
from whichtoken.errors import BadInput, BadSetting, UsageError
from whichtoken.render.rows import Look, panels

SubjectOf = Callable[..., wt.Subject]
TYPED = {"bert": "[SEP]", "roberta": "</s>", "gpt2": "<|endoftext|>", "xlm-roberta": "</s>", "albert": "[MASK]"}
each_kind = pytest.mark.parametrize("kind", TYPED)


def explain(subject: wt.Subject, text: Any, **arguments: Any) -> wt.Attribution:
    return wt.explain(subject, [text], methods="random", **arguments)[0]["random"]


def content(record: wt.Attribution, sequence: int = 0) -> list[str]:
    return [token for token, own in zip(record.tokens, record.sequences, strict=True) if own == sequence]


def notes(record: wt.Attribution) -> tuple[str, ...]:
    return panels(record, Look())[0].notes


@cache
def speaker(kind: str = "llama") -> wt.Subject:
    """A language model whose chat template ends each message with a special token."""
    made = language_subject(kind, chat=True)
    made.tokenizer.chat_template = CHAT.replace("\n{% endfor", "{{ eos_token }}\n{% endfor")
    return made


def ask(subject: wt.Subject, prompt: Any, **arguments: Any) -> wt.Attribution:
    given: dict[str, Any] = {"generate": 1} if "continuation" not in arguments else {}
    return wt.explain(subject, prompt=prompt, methods="random", **given, **arguments)[0]["random"]


@each_kind
def test_by_default_the_model_reads_what_its_own_tokenizer_makes_of_the_text(kind: str, subject_of: SubjectOf) -> None:
    subject, typed = subject_of(kind), TYPED[kind]
    record = explain(subject, f"slow film {typed} it is{typed}")
    assert list(record.tokens) == subject.tokenizer(record.texts[0]).tokens()
    assert content(record).count(typed) == 2
    assert record.control_tokens == (typed,)
    assert notes(record) == (
        f"the text contains {typed}: the model reads it as a control token, not as text (--special-tokens text "
        "changes that)",
    )
    assert panels(record, Look())[0].warnings == ()


def test_words_that_the_tokenizer_does_not_know_are_not_control_tokens(subject_of: SubjectOf) -> None:
    record = explain(subject_of("bert"), "slow € film")
    assert record.n_unknown == 1
    assert record.control_tokens == ()
    record = explain(subject_of("bert"), ("slow [UNK] film [PAD]", "it is [UNK]"))
    assert record.control_tokens == ("[UNK]", "[PAD]")
    assert notes(record)[0].startswith("the text contains [UNK], [PAD]: the model reads them as control tokens")


def test_tokens_that_were_cut_are_not_named(subject_of: SubjectOf) -> None:
    assert explain(subject_of("bert"), "slow " * 50 + "[SEP]").control_tokens == ()
    assert explain(subject_of("bert"), "slow " * 50 + "[SEP]", long="window").control_tokens == ("[SEP]",)


@each_kind
def test_special_tokens_can_be_read_as_text(kind: str, subject_of: SubjectOf) -> None:
    subject, typed = subject_of(kind), TYPED[kind]
    text = f"slow film {typed} it is{typed}"
    record = explain(replace(subject, special_tokens="text"), text)
    assert record.texts == (text,)
    assert record.control_tokens == ()
    assert notes(record) == ()
    assert typed not in content(record)
    assert "".join(word.text for word in record.words()) == text.replace(" ", "")
    plain = explain(subject, "slow film it is")
    around = [token for token, s in zip(record.tokens, record.sequences, strict=True) if s is None]
    assert around == [token for token, s in zip(plain.tokens, plain.sequences, strict=True) if s is None]
    if kind not in ("xlm-roberta", "albert"):  # of these models, transformers' own option keeps the special tokens
        tokenizer = copy.deepcopy(subject.tokenizer)
        assert list(record.tokens) == tokenizer(text, split_special_tokens=True).tokens()
    assert explain(replace(subject, special_tokens="text"), "slow film it is") == plain


def test_questions_and_tokens_are_read_as_text_too() -> None:
    question = replace(question_subject(), special_tokens="text")
    record = wt.explain(question, question="it [SEP] is", context="slow [SEP] film", methods="random")[0]["random"]
    assert record.control_tokens == ()
    assert record.tokens.count("[SEP]") == 2
    named = wt.explain(question_subject(), question="it is", context="slow [SEP] film", methods="random")[0]["random"]
    assert named.control_tokens == ("[SEP]",)
    words = wt.explain(replace(token_subject(), special_tokens="text"), ["slow [SEP]"], methods="random", token=1)
    assert words[0]["random"].tokens.count("[SEP]") == 1


def test_an_explanation_is_reopened_with_the_same_reading_only(subject_of: SubjectOf) -> None:
    subject = subject_of("bert")
    as_text = replace(subject, special_tokens="text")
    record = explain(as_text, "slow [SEP] film")
    (curve,) = wt.degrade(as_text, [record])
    assert curve.probability[0] == pytest.approx(record.probability)
    with pytest.raises(UsageError, match="tokens are not those"):
        wt.degrade(subject, [record])


def test_tokens_that_were_added_later_keep_their_ids() -> None:
    """Their ids leave gaps, as those of some models on the hub do."""
    subject = language_subject("gpt2")
    tokenizer = copy.deepcopy(subject.tokenizer)
    tokenizer.add_tokens(["<call>"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_end|>"]})
    subject.model.resize_token_embeddings(len(tokenizer))
    subject = wt.Subject(subject.model, tokenizer)
    text = "film <call> it<|im_end|> is"
    record = ask(replace(subject, special_tokens="text"), text)
    assert record.generated is not None
    ids = list(record.generated.ids[: record.generated.first])
    assert tokenizer.convert_tokens_to_ids("<call>") in ids
    assert ids == tokenizer(text, split_special_tokens=True)["input_ids"]
    assert ask(subject, text).control_tokens == ("<|im_end|>",)


def test_control_tokens_in_messages_are_a_warning_and_the_template_keeps_its_own() -> None:
    chat = [{"role": "system", "content": "It is."}, {"role": "user", "content": "a</s>\n<system> film"}]
    record = ask(speaker(), chat)
    assert record.control_tokens == ("</s>",)
    (warning,) = panels(record, Look())[0].warnings
    assert warning == (
        "Warning: the user message contains </s>: the model reads it as a control token, not as text (--special-tokens "
        "text changes that)"
    )
    assert notes(record) == (warning,)
    assert record.generated is not None
    assert (
        list(record.generated.ids[: record.generated.first])
        == (speaker().tokenizer(record.texts[0], add_special_tokens=False)["input_ids"])
    )
    as_text = ask(replace(speaker(), special_tokens="text"), chat)
    assert as_text.texts[0] == record.texts[0]
    assert as_text.control_tokens == ()
    assert "</s>" not in content(as_text)
    assert as_text.tokens.count("</s>") == record.tokens.count("</s>") - 1 == 2
    assert as_text.tokens[0] == "<s>"
    roles = [segment for segment in as_text.generated.segments if segment.kind == "role"]  # type: ignore[union-attr]
    assert [as_text.texts[0][slice(*role.span)] for role in roles] == [message["content"] for message in chat]


@pytest.mark.parametrize("chat", [True, False])
def test_control_tokens_in_documents_are_a_warning_that_names_the_document(chat: bool) -> None:
    prompt = [{"role": "user", "content": "Who?"}] if chat else "Who? <s>"
    record = ask(speaker(), prompt, documents={"good": "a film", "bad": "the </s> end"})
    shown = panels(record, Look())[0]
    assert [line.partition(":")[2].partition(":")[0] for line in shown.warnings] == [" bad contains </s>"]
    assert len(shown.notes) == (1 if chat else 2)
    as_text = ask(replace(speaker(), special_tokens="text"), prompt, documents=["the </s> end"])
    assert as_text.control_tokens == ()
    assert notes(as_text) == ()


def test_a_given_answer_is_read_in_the_same_way() -> None:
    for prompt in ("a film", [{"role": "user", "content": "a film"}]):
        record = ask(speaker(), prompt, continuation="it is</s>")
        assert record.control_tokens == ("</s>",)
        assert record.tokens[-1] == "</s>"
        as_text = ask(replace(speaker(), special_tokens="text"), prompt, continuation="it is</s>")
        assert as_text.control_tokens == ()
        assert as_text.texts[1] == "it is</s>"
        assert len(as_text.tokens) == len(record.tokens) + 3


def test_records_name_control_tokens_only_if_there_are_some() -> None:
    stored = json.loads(ATTRIBUTION.to_json())
    assert "control_tokens" not in stored  # so that versions without the field can read it
    assert wt.Attribution.from_json(json.dumps(stored)).control_tokens == ()
    record = ask(speaker(), "a</s>")
    assert json.loads(record.to_json())["control_tokens"] == ["</s>"]
    assert wt.Attribution.from_json(record.to_json()) == record


def test_the_note_is_on_pages_and_escaped() -> None:
    record = ask(speaker(), [{"role": "user", "content": "a</s>"}])
    page = record.to_html()
    assert '<p class="warning">Warning: the user message contains &lt;/s&gt;: the model reads it' in page
    assert "the user message contains" in record.to_latex()


@pytest.mark.parametrize("wrong", ["parse", None, True])
def test_other_readings_are_refused(wrong: Any, subject_of: SubjectOf) -> None:
    with pytest.raises(BadSetting, match=r"special_tokens=.* is not allowed; it must be 'control', as the model's own"):
        replace(subject_of("bert"), special_tokens=wrong)
    with pytest.raises(BadSetting, match="special_tokens="):
        wt.load(special_tokens=wrong)


def test_a_model_of_images_has_no_text_to_read() -> None:
    refused = "special_tokens='text' is not allowed; it must be 'control': a model that reads images reads no text"
    with pytest.raises(BadSetting, match=refused):
        wt.Subject(image_model_of("vit"), None, special_tokens="text")


def test_a_tokenizer_that_has_no_other_reading_is_refused() -> None:
    """Its merges make the special token out of letters."""
    merges = [("<", "/"), ("</", "s"), ("</s", ">")]
    pieces = ["<unk>", "</s>", "<", "/", "s", ">", "</", "</s", "a", "b"]
    backend = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")
    subject = replace(language_subject("gpt2"), processor=tokenizer, special_tokens="text")
    assert ask(subject, "a b").control_tokens == ()
    with pytest.raises(BadInput, match=r"input 0: the tokenizer has no other reading of '</s>'; remove it, or leave"):
        ask(subject, "a </s> b")
