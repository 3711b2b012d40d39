"""CoNLL-U files: which words there are, where they stand in the text, and what is said of bad lines."""

import os
from pathlib import Path

import pytest
from tests.heads.corpus import conllu

import whichtoken as wt
from whichtoken.errors import BadInput
from whichtoken.heads import Sentence


def read(folder: Path, text: str, name: str = "c.conllu") -> list[Sentence]:
    (folder / name).write_bytes(text.encode())
    return list(wt.heads.read_conllu(folder / name))


def spelled(sentence: Sentence) -> list[str]:
    return [sentence.text[slice(*word.span)] for word in sentence.words]


DOGS = ["# sent_id = 1", "# text = Dogs  bark.", "1 Dogs 2 nsubj", "2 bark 0 root SpaceAfter=No", "3 . 2 punct"]


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_words_heads_and_relations(ends: str, tmp_path: Path) -> None:
    (first, second) = read(tmp_path, conllu(DOGS, ["1 Stop 0 root"]).replace("\n", ends))
    assert first.text == "Dogs  bark."
    assert [(word.span, word.head, word.relation) for word in first.words] == [
        ((0, 4), 1, "nsubj"),
        ((6, 10), None, "root"),
        ((10, 11), 1, "punct"),
    ]
    assert second.text == "Stop"
    assert second.where.endswith("c.conllu, line 7")


def test_a_text_that_is_missing_is_spelled_from_the_words(tmp_path: Path) -> None:
    (found,) = read(tmp_path, conllu(["# text_en = Hounds", *DOGS[2:]]))
    assert found.text == "Dogs bark."
    assert spelled(found) == ["Dogs", "bark", "."]


def test_words_written_as_one_have_their_own_part_if_there_is_one(tmp_path: Path) -> None:
    lines = [
        "# text = I don't.",
        "1 I 3 nsubj",
        "2-3 don't _ _ SpaceAfter=No",
        "2 do 0 root",
        "3 n't 2 advmod",
        "4 . 2 p",
    ]
    (found,) = read(tmp_path, conllu(lines))
    assert spelled(found) == ["I", "do", "n't", "."]
    lines = ["1-2 du _ _", "1 de 3 case", "2 le 3 det", "3 pain 0 root"]
    (found,) = read(tmp_path, conllu(lines))
    assert found.text == "du pain"
    assert spelled(found) == ["du", "du", "pain"]
    assert [word.head for word in found.words] == [2, 2, None]


def test_words_that_are_not_written_are_left_out(tmp_path: Path) -> None:
    lines = ["0.1 They _ _", *DOGS[2:4], "2.1 loudly _ _", DOGS[4]]
    (found,) = read(tmp_path, conllu(lines))
    assert spelled(found) == ["Dogs", "bark", "."]


def test_repeated_words_spaces_inside_words_and_other_scripts(tmp_path: Path) -> None:
    text = conllu(["# text = 電影 很好 1 000 很好 naïve 😀"]) + "\n".join(
        "\t".join([str(i), form, *"____", "0" if i == 1 else "1", "x", "_", "_"])
        for i, form in enumerate(["電影", "很好", "1 000", "很好", "naïve", "😀"], 1)
    )
    (found,) = read(tmp_path, text)
    assert [word.span for word in found.words] == [(0, 2), (3, 5), (6, 11), (12, 14), (15, 20), (21, 22)]


def test_passive_subjects_stay_what_they_are(tmp_path: Path) -> None:
    (found,) = read(tmp_path, conllu(["1 He 2 nsubj:pass", "2 won 0 root"]))
    assert found.words[0].relation == "nsubj:pass"


def test_several_files_follow_one_another(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(conllu([f"1 {name} 0 root"]), encoding="utf-8")
    assert [s.text for s in wt.heads.read_conllu(tmp_path / "a", str(tmp_path / "b"))] == ["a", "b"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["1 Dogs 2 nsubj", "3 bark 0 root"], "line 2: found word '3', expected word 2"),
        (["1 Dogs 2 nsubj"], "line 1: head '2' is not one of the words, 0 to 1"),
        (["1 Dogs x nsubj"], "line 1: head 'x' is not one of the words"),
        (["1 Dogs 1 nsubj"], "word 1 depends on word 1"),
        (["# text = Cats", "1 Dogs 0 root"], "line 2: the text continues with 'Cats', not with 'Dogs'"),
        (["1-2 don't _ _", "1 do 0 root"], "line 1: words 1 to 2 are not all present"),
        (["1 a 0 root", "1-2 b _ _"], "line 2: words 1-2 do not follow word 1"),
        (["1-2 ab _ _", "1-2 ab _ _"], "line 2: words 1-2 do not"),
        (["1-2 ab _ _"], "line 1: this sentence has no words"),
        (["one Dogs 0 root"], "line 1: found word 'one'"),
        (["1  0 root"], "line 1: word 1 has no form"),
        (["9" * 5000 + " Dogs 0 root"], "line 1: found word '999"),
        (["1 Dogs " + "9" * 5000 + " root"], "line 1: head '999"),
        (["1-" + "9" * 5000 + " don't _ _", "1 do 0 root"], "line 1: found word '1-999"),
        (["# only a comment"], "has no sentence in CoNLL-U format"),
    ],
)
def test_bad_sentences_are_named_by_file_and_line(lines: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        read(tmp_path, conllu(lines))
    assert message in str(caught.value)
    assert "c.conllu" in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1 Dogs\n", "line 1 has 1 tab-separated columns; CoNLL-U has 10"),
        (b"\n\n# caf\xe9\n", "line 3 is not UTF-8"),
        (b"1\0\n", "line 1 has a zero byte"),
        (b"", "has no sentence in CoNLL-U format"),
    ],
)
def test_files_that_are_something_else_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "c.conllu").write_bytes(content)
    with pytest.raises(BadInput, match=message):
        list(wt.heads.read_conllu(tmp_path / "c.conllu"))


def test_a_missing_file_is_missed_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no file"):
        wt.heads.read_conllu(tmp_path / "nowhere.conllu")
    with pytest.raises(BadInput, match="a list is not a path"):
        wt.heads.read_conllu([tmp_path])  # type: ignore[arg-type]
    os.mkfifo(tmp_path / "pipe")
    for path, message in ((tmp_path, "is a folder; give a file"), (tmp_path / "pipe", "is a pipe or a device")):
        with pytest.raises(BadInput, match=message):
            wt.heads.read_conllu(path)
