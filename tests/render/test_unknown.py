"""Texts that the tokenizer does not know: the record counts the tokens, and every picture says so."""

import json
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from io import StringIO
from pathlib import Path

import matplotlib as mpl
import pytest
from rich.console import Console
from tests.render.shown import FINE
from tests.tiny import KINDS, model_of, question_subject

import whichtoken as wt
from whichtoken.records import Attribution
from whichtoken.render import figures
from whichtoken.render.html import fragment, to_html
from whichtoken.render.latex import to_latex
from whichtoken.render.rows import Look, panels
from whichtoken.render.terminal import print_each

SubjectOf = Callable[..., wt.Subject]
SENTENCE = "3 of 4 tokens are unknown to the tokenizer, so these scores say little"
UNKNOWN = replace(FINE, n_unknown=3)  # FINE has 4 words, each one token


@pytest.mark.parametrize(
    ("kind", "count"), [("bert", 2), ("distilbert", 2), ("mpnet", 2), ("roberta", 0), ("llama", 0)]
)
def test_a_result_counts_the_tokens_that_the_tokenizer_does_not_know(
    kind: str, count: int, subject_of: SubjectOf
) -> None:
    result = wt.explain(subject_of(kind), ["it is ψψ slow Ω", "it is slow"], ["raw-attention"])
    assert [item["raw-attention"].n_unknown for item in result] == [count, 0]


def test_a_result_counts_unknown_pieces_that_keep_their_text(subject_of: SubjectOf) -> None:
    """Sentence pieces are not shown as <unk>; only their ids tell."""
    found = wt.explain(subject_of("xlm-roberta"), ["slow Ω"], ["raw-attention"])[0]["raw-attention"]
    assert "<unk>" not in found.tokens
    assert found.n_unknown == 1


def test_special_tokens_are_known_also_where_they_have_the_id_of_unknown_ones() -> None:
    tokenizer = deepcopy(KINDS["bert"].tokenizer())
    tokenizer.unk_token = "[SEP]"  # GPT-2's tokenizer has one token for both
    found = wt.explain(wt.Subject(model_of("bert"), tokenizer), ["it is slow"], ["raw-attention"])
    assert found[0]["raw-attention"].n_unknown == 0


def test_only_tokens_that_were_read_count(subject_of: SubjectOf) -> None:
    long = "Ω " * 60
    subject = subject_of("bert")
    cut = wt.explain(subject, [long], ["raw-attention"], long="truncate")[0]["raw-attention"]
    windows = wt.explain(subject, [long], ["raw-attention"], long="window")[0]["raw-attention"]
    assert cut.n_unknown == len(cut.tokens) - 2
    assert windows.n_unknown == 60


def test_an_answer_counts_its_question_too() -> None:
    found = wt.explain(question_subject(), question="Ω?", context="slow ψ film", methods=["raw-attention"])
    assert found[0]["raw-attention"].n_unknown == 2


def test_a_note_appears_when_more_than_half_are_unknown() -> None:
    for count, notes in (0, ()), (1, ()), (2, ()), (3, (SENTENCE,)):
        assert panels(replace(FINE, n_unknown=count), Look())[0].notes == notes


def test_every_picture_says_it(tmp_path: Path) -> None:
    file = StringIO()
    print_each(Console(file=file, width=120), [{"attcat": UNKNOWN}], Look())
    shown = {"terminal": file.getvalue(), "page": to_html(UNKNOWN), "notebook": fragment(UNKNOWN)}
    with mpl.rc_context({"svg.fonttype": "none"}):
        for name, drawn in ("methods", UNKNOWN), ("layers", replace(UNKNOWN, layers=(UNKNOWN.scores,))):
            drawing = figures.plot(drawn, tmp_path / f"{name}.svg", Look()).read_text()
            shown[name] = " ".join(re.findall(r"<text [^>]*>([^<]*)</text>", drawing))  # titles may have several lines
    shown["latex"] = to_latex(UNKNOWN)
    assert [name for name, text in shown.items() if SENTENCE not in text] == []


def test_json_is_readable_both_ways() -> None:
    assert Attribution.from_json(UNKNOWN.to_json()) == UNKNOWN
    stored = json.loads(FINE.to_json())
    assert "n_unknown" not in stored  # so that versions without the field can read it
    assert Attribution.from_json(json.dumps(stored)).n_unknown == 0
