"""Errors say which input they are about, as a number that programs can read and as a name that people know."""

import copy
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import FATAL, KINDS, image_model_of, language_subject, model_of, panicking_tokenizer, question_subject
from tokenizers import Regex, decoders, models

import whichtoken as wt
from whichtoken.cli.run import main
from whichtoken.errors import BadInput, NotFinite, WhichTokenError


def subject() -> wt.Subject:
    return wt.Subject(model_of("bert"), KINDS["bert"].tokenizer())


def test_a_message_continues_the_name_of_the_input() -> None:
    error = BadInput("has no words", index=3)
    assert (error.index, str(error)) == (3, "input 3 has no words")
    assert str(BadInput(": no such file", index=3, place="boot.png")) == "boot.png: no such file"
    assert error.message_for("reviews.csv, row 7") == "reviews.csv, row 7 has no words"
    assert str(WhichTokenError("the model is not there")) == "the model is not there"


def test_a_message_is_one_line_of_bounded_length_whatever_a_file_holds() -> None:
    assert str(BadInput("a\nb\x1b[2J\ud800\u202e é電")) == r"a\nb\x1b[2J\ud800\u202e é電"
    assert str(BadInput("is empty", place="a\r.csv, row 3")) == r"a\r.csv, row 3 is empty"
    message = str(BadInput(f"x.csv: no column {'k' * 5000}; rename it"))
    assert len(message) < 1000
    assert message.startswith("x.csv: no column kkk")
    assert message.endswith("kkk; rename it")


def test_the_index_of_an_empty_text() -> None:
    with pytest.raises(BadInput, match="input 2 has an empty text") as caught:
        wt.explain(subject(), ["slow", "film", " "])
    assert caught.value.index == 2


def test_the_index_counts_through_chunks() -> None:
    results = wt.explain_each(subject(), [*["slow"] * 200, ""])
    with pytest.raises(BadInput) as caught:
        list(results)
    assert caught.value.index == 200


def test_the_index_of_an_answer_that_is_not_there() -> None:
    pairs = [("is it slow?", "the film is slow"), ("is it slow?", "it is")]
    with pytest.raises(BadInput, match="input 1: the context does not contain the answer 'slow'") as caught:
        wt.explain(question_subject(), pairs, target="slow")
    assert caught.value.index == 1


def test_an_image_is_named_by_its_file_and_has_an_index(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    with pytest.raises(BadInput, match=r"empty.png is empty, 0 bytes") as caught:
        wt.explain(wt.Subject(image_model_of("vit"), None), images=[tmp_path / "empty.png"])
    assert caught.value.index == 0


def test_the_index_of_an_input_that_gives_nan() -> None:
    broken = subject()
    broken.model.bert.embeddings.word_embeddings.weight.data[
        KINDS["bert"].tokenizer().convert_tokens_to_ids("film")
    ] = float("nan")
    with pytest.raises(NotFinite, match=r"input 1: .* gives NaN or infinite logits") as caught:
        wt.explain(broken, ["slow", "film"])
    assert caught.value.index == 1


@pytest.mark.parametrize("bad", [FATAL, ("the film is slow", FATAL)])
def test_a_text_on_which_the_tokenizer_panics_is_a_bad_input(bad: Any) -> None:
    """A panic of the tokenizer's Rust code is no Exception."""
    brittle = wt.Subject(model_of("bert"), panicking_tokenizer())
    inputs = ["slow", ("it is", "slow"), bad, "film"]
    for _ in range(2):
        with pytest.raises(BadInput, match=r"input 2: the tokenizer fails .*retry-limit.*; change or remove") as caught:
            wt.explain(brittle, inputs, "attcat")
        assert caught.value.index == 2
    del inputs[2]
    skipped: list[Any] = []
    many = [*inputs, FATAL, *inputs, FATAL]
    found = list(wt.explain_each(brittle, many, "attcat", on_bad_input=lambda item, error: skipped.append(error.index)))
    assert [result["attcat"].texts[0] for result in found] == ["slow", "it is", "film"] * 2
    assert skipped == [3, 7]


def test_an_error_that_the_tokenizer_raises_is_about_its_text() -> None:
    tokenizer = KINDS["bert"].tokenizer()
    closed = copy.deepcopy(tokenizer)
    vocabulary = {token: number for token, number in tokenizer.get_vocab().items() if token != "[UNK]"}
    closed.backend_tokenizer.model = models.WordLevel(vocabulary, unk_token="[UNK]")
    with pytest.raises(BadInput, match=r"input 1: the tokenizer fails on 'qwertz': .*\[UNK\]"):
        wt.explain(wt.Subject(model_of("bert"), closed), ["slow", "qwertz"], "attcat")


def test_an_answer_on_which_the_tokenizer_panics_is_about_its_prompt() -> None:
    brittle = language_subject("llama")
    tokenizer = copy.deepcopy(brittle.tokenizer)
    replaced = decoders.Replace(Regex(r"(.+)+\d$"), "")
    tokenizer.backend_tokenizer.decoder = decoders.Sequence([decoders.Fuse(), replaced])
    with pytest.raises(BadInput, match=r"input 0: the tokenizer fails .*retry-limit"):
        wt.explain(wt.Subject(brittle.model, tokenizer), prompt="the film is", methods="attcat", generate=30)


def test_the_command_line_names_the_row_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without parsing the message: a text may itself speak of "input 0"."""
    subject().model.float().save_pretrained(tmp_path / "model")
    KINDS["bert"].tokenizer().save_pretrained(tmp_path / "model")
    rows = ["text", "input 0 is slow", " ".join(["slow"] * 60)]
    (tmp_path / "texts.csv").write_text("\n".join(rows) + "\n")
    words = ["explain", "--file", str(tmp_path / "texts.csv"), "--model", str(tmp_path / "model"), "--long", "error"]
    with pytest.raises(SystemExit):
        main([*words, "--method", "attcat"])
    assert "texts.csv, row 3 has 62 tokens, the model takes 40" in capsys.readouterr().err
