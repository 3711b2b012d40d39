"""Sentences: split by the rules of the text's language, as slices of the text, and nothing lost."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from whichtoken.sentences import LINE_BREAK, detect_language, sentence_groups, split_sentences

GAPS = {"Japanese": "", "Chinese": ""}  # what is between two sentences, if not a space
# Where the rules split what they should not: abbreviations that sentencex does not know, and a Japanese quotation.
SPLIT_TOO_OFTEN = {
    "Er starb im 77.| Lebensjahr.",
    "Le prix est de 3,50 €, c.-à-d.| trop cher.",
    "J.-P.| Morel habite au 5, av. Foch.",
    "彼は「もう終わった。」|と言った。",
    "山田さんはDr.| Smithに会いました。",
    "डॉ.| शर्मा दिल्ली में रहते हैं।",
    "وصل د.| أحمد في الساعة 5.30 مساءً.",
}


def sentences_of(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text)]


def texts_in(language: str) -> list[list[str]]:
    """The texts of sentences.txt in a language, each as the list of its sentences. They were written for this test."""
    parts = Path(__file__).with_suffix("").with_name("sentences.txt").read_text(encoding="utf-8").split("# ")
    (listed,) = [part.removeprefix(language) for part in parts if part.startswith(f"{language}\n")]
    return [text.split("\n") for text in listed.strip().split("\n\n")]


def difference(sentences: list[str], gap: str) -> list[str]:
    """The sentences that were split, with a mark at each border; those that were joined have one, too."""
    whole, at, expected = gap.join(sentences), 0, set[int]()
    for sentence in sentences:
        at = whole.index(sentence, at) + len(sentence)
        expected.add(at)
    found = {end for _, end in split_sentences(whole)}
    return [mark(whole, expected, border) for border in sorted(found ^ expected)]


def mark(whole: str, expected: set[int], border: int) -> str:
    first = max((end for end in expected if end < border), default=0)
    last = min((end for end in expected if end > border), default=len(whole))
    return f"{whole[first:border]}|{whole[border:last]}".strip()


def test_sentences_in_eight_languages() -> None:
    languages = ("English", "German", "French", "Spanish", "Japanese", "Chinese", "Hindi", "Arabic")
    texts = [(text, GAPS.get(language, " ")) for language in languages for text in texts_in(language)]
    assert sum(len(sentences) for sentences, _ in texts) == 91
    assert {line for text in texts for line in difference(*text)} == SPLIT_TOO_OFTEN


@pytest.mark.parametrize(
    ("language", "code"),
    [("English", "en"), ("German", "de"), ("French", "fr"), ("Spanish", "es"), ("Hindi", "hi"), ("Arabic", "ar")],
)
def test_the_language_is_found_by_script_and_frequent_words(language: str, code: str) -> None:
    assert {detect_language(" ".join(sentences)) for sentences in texts_in(language)} == {code}


@pytest.mark.parametrize(
    ("text", "language"),
    [("", "en"), ("1234 !", "en"), ("Xyz", "en"), ("これは GPT です", "ja"), ("ไทย", "en")],
)
def test_the_language_of_other_texts(text: str, language: str) -> None:
    assert detect_language(text) == language


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One line\nthe next. Its end\n\n\n  Another", ["One line", "the next.", "Its end", "Another"]),
        ("A film.<br />Another.<br><br>Last", ["A film.", "Another.", "Last"]),
        (
            "1. Paris is big.\n2. Rome is old. 3. Bonn is small.",
            ["1. Paris is big.", "2. Rome is old.", "3. Bonn is small."],
        ),
        ("I love it. :) It is great!!! I do", ["I love it.", ":) It is great!!!", "I do"]),
        ("I love it. :)", ["I love it. :)"]),
        ("Well… Then it ended. He waited... for me.", ["Well…", "Then it ended.", "He waited... for me."]),
        ("He said: “It is done. I left.” Then", ["He said: “It is done.", "I left.”", "Then"]),
        ('"It is done. I left. Really."', ['"It is done.', "I left.", 'Really."']),
        ("“Is it true?” she asked.", ["“Is it true?” she asked."]),
        ("「はい。」『いいえ。』", ["「はい。」", "『いいえ。』"]),
        ("Import os.Path. See example.Com or a.B().", ["Import os.Path.", "See example.Com or a.B()."]),
        ("It fell by 3.5. Then 1,000.50 more.", ["It fell by 3.5.", "Then 1,000.50 more."]),
        (
            "Plan A\N{NO-BREAK SPACE}. Then\N{LINE SEPARATOR}. B",
            ["Plan A\N{NO-BREAK SPACE}.", "Then\N{LINE SEPARATOR}.", "B"],
        ),
        ("", []),
        (" \n\t", []),
        ("...", ["..."]),
        ("No end", ["No end"]),
    ],
)
def test_lines_lists_quotations_and_numbers(text: str, expected: list[str]) -> None:
    assert sentences_of(text) == expected


def test_a_text_of_any_length_is_split() -> None:
    for shift in range(5):  # somewhere, the part that is split at once ends inside of this title
        text = f"{'x' * shift}{'Go on. ' * 713} He met Prof. Lee."
        assert sentences_of(text)[-1] == "He met Prof. Lee."
    assert sentences_of("This is one. " * 2_000) == ["This is one."] * 2_000
    assert sentences_of("word " * 5_000) == [("word " * 5_000).strip()]


@given(
    text=st.text(
        alphabet=st.one_of(st.characters(codec="utf-8"), st.sampled_from(" .!?…\"'“”「」。\n\u2028\xa0Aa1")),
        max_size=60,
    )
)
@example("I\u2028. B\x85. C\u3000.")
@example("<br>a. <br/>B.\r\nc")
def test_any_text(text: str) -> None:
    spans = split_sentences(text)
    for left, right in itertools.pairwise(spans):
        assert left[1] <= right[0]
    assert all(text[start:end] == text[start:end].strip() != "" for start, end in spans)
    between = [text[left[1] : right[0]] for left, right in itertools.pairwise([(0, 0), *spans, (len(text),) * 2])]
    assert not LINE_BREAK.sub("", " ".join(between)).strip(), "nothing visible is lost"


def test_tokens_between_sentences_belong_to_the_one_before_and_special_ones_to_none() -> None:
    text = "<br>Dr. A left.\n\n B stayed"
    pieces = ("<br>", "Dr.", " A", " left.", "\n", "\n", " ", "B", " stayed")
    starts = list(itertools.accumulate((len(piece) for piece in pieces), initial=0))
    spans = [None, *itertools.pairwise(starts)]
    assert sentence_groups((text,), spans, [None, *[0] * len(pieces)]) == ((1, 2, 3, 4, 5, 6, 7), (8, 9))


def test_the_package_is_imported_when_the_first_text_is_split() -> None:
    code = "import sys, whichtoken.answers, whichtoken.cli.app; sys.exit('sentencex' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
