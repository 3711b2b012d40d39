"""Agreement with human rationales: reading them, and ERASER's metrics by hand and against a slow rewrite."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.render.shown import FINE

from whichtoken.errors import BadInput, BadSetting, UnknownName, UsageError
from whichtoken.metrics._plausibility import (
    Plausibility,
    Rationale,
    auprc,
    iou_f1,
    plausibility,
    runs,
    token_f1,
    top_tokens,
)
from whichtoken.records import Attribution
from whichtoken.reproduce.sst_trees import SentimentTree, read_sst_trees, sst_rationale

TREE = r"(1 (3 (2 -LRB-) (4 (3 funny) (2 -RRB-))) (1 (2 and\/or) (0 (1 not) (2 \*\*\*))))"
POSITIONS = st.sets(st.integers(0, 9))
SCORED = st.lists(st.tuples(st.integers(-2, 2), st.booleans()), min_size=1, max_size=12)


def attribution_of(
    texts: tuple[str, ...],
    spans: tuple[tuple[int, int] | None, ...],
    sequences: tuple[int | None, ...],
    scores: tuple[float, ...],
) -> Attribution:
    """An attribution to "positive" whose tokens are named by their positions."""
    names, no_ids = tuple(str(i) for i in range(len(spans))), (None,) * len(spans)
    return replace(FINE, texts=texts, tokens=names, spans=spans, sequences=sequences, word_ids=no_ids, scores=scores)


def special(*texts: str, scores: tuple[float, ...]) -> Attribution:
    """A token for each word, and one that is special at the start of each text and at the end."""
    spans: list[tuple[int, int] | None] = []
    sequences: list[int | None] = []
    for sequence, text in enumerate(texts):
        spans, sequences, start = [*spans, None], [*sequences, None], 0
        for word in text.split():
            spans.append((start, start + len(word)))
            sequences.append(sequence)
            start += len(word) + 1
    return attribution_of(texts, (*spans, None), (*sequences, None), scores)


def written(folder: Path, text: str, name: str = "dev.txt") -> Path:
    (folder / name).write_bytes(text.encode())
    return folder / name


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_trees_are_read_with_their_words_unescaped(ends: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"{TREE}\n\n(2 (2 Næs) (2 .))\n(4 Wow)\n".replace("\n", ends))
    first, second, third = read_sst_trees(path)
    assert first == SentimentTree(("(", "funny", ")", "and/or", "not", "***"), (2, 3, 2, 2, 1, 2), 1)
    assert first.text == "( funny ) and/or not ***"
    assert (second.text, second.where) == ("Næs .", f"{path}, line 3")
    assert [tree.label for tree in (first, second, third)] == ["negative", None, "positive"]
    assert list(read_sst_trees(tmp_path, "dev")) == [first, second, third]


@pytest.mark.parametrize(
    "bad",
    [
        "It works",
        "*",
        "()",
        "(5 (2 It) (4 works))",
        "(3 (2 It) (4 works)",
        "(3 (2 It) (4 works)))",
        "(3 (2 It) works)",
        "(3 (2 It) *)",
        "(3 (2 It)) (4 works)",
        "(3 (2 It works))",
        "((2 It) (4 works))",
    ],
)
def test_a_bad_tree_is_named_by_file_and_line(bad: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"(2 Fine)\n{bad}\n")
    trees = read_sst_trees(path)
    assert next(trees).text == "Fine"
    with pytest.raises(BadInput, match=r"dev\.txt, line 2 is .*; expected one tree"):
        next(trees)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"there is no file .*test\.txt"):
        read_sst_trees(tmp_path, "test")
    with pytest.raises(BadInput, match="there is no file"):
        read_sst_trees(tmp_path)
    (tmp_path / "dev.txt").write_bytes(b"(2 na\xefve)\n")
    with pytest.raises(BadInput, match="line 1 is not UTF-8"):
        list(read_sst_trees(tmp_path, "dev"))


@pytest.mark.parametrize(
    ("label", "words"), [("negative", ["not"]), (0, ["not"]), ("POSITIVE", ["funny"]), (1, ["funny"])]
)
def test_words_speak_for_a_label_by_themselves(label: str | int, words: list[str], tmp_path: Path) -> None:
    (tree,) = read_sst_trees(written(tmp_path, TREE))
    rationale = sst_rationale(tree, label)
    assert [rationale.texts[s][start:end] for s, start, end in rationale.spans] == words
    assert (rationale.texts, rationale.label) == ((tree.text,), label)
    for unknown in ("neutral", 2):
        with pytest.raises(UnknownName, match="label of SST-2"):
            sst_rationale(tree, unknown)


@pytest.mark.parametrize("span", [(1, 0, 1), (-1, 0, 1), (0, 2, 2), (0, 3, 1), (0, 0, 5), (0, -1, 2)])
def test_a_rationale_lies_in_its_texts(span: tuple[int, int, int]) -> None:
    assert Rationale(("good",), ((0, 0, 4),)).label is None
    with pytest.raises(BadInput, match=f"marks characters {span[1]} to {span[2]} of text {span[0]}"):
        Rationale(("good",), (span,))


def test_the_highest_tokens_and_runs_of_them() -> None:
    assert top_tokens([0.5, 0.9, 0.5, 0.7], 3) == (1, 3, 0)
    assert top_tokens([0.5], 3) == (0,)
    assert runs([4, 1, 2, 7, 2]) == ((1, 3), (4, 5), (7, 8))
    assert runs([]) == ()


@given(POSITIONS)
def test_runs_hold_the_positions_and_do_not_touch(positions: set[int]) -> None:
    found = runs(positions)
    assert {position for run in found for position in range(*run)} == positions
    assert all(a[1] < b[0] for a, b in pairwise(found))


def test_token_f1_by_hand() -> None:
    # precision 1/2, recall 1/3: 2 * 1/6 / (5/6) = 2/5
    assert token_f1([1, 2], [2, 3, 4]) == pytest.approx(2 / 5)
    assert token_f1([1], [2]) == token_f1([], []) == 0.0


def test_iou_f1_by_hand() -> None:
    # 0-2 and 0-3 share 2 of 3 tokens: a match; 5-6 and 5-8 share 1 of 3; nothing is near 9-10.
    # Chosen 1 of 3, gold 1 of 2: 2 * 1/6 / (5/6) = 2/5
    chosen, gold = [(0, 2), (5, 6), (9, 10)], [(0, 3), (5, 8)]
    assert iou_f1(chosen, gold) == pytest.approx(2 / 5)
    # From 1/3 on, chosen 2 of 3 and gold 2 of 2: 2 * 2/3 / (5/3) = 4/5
    assert iou_f1(chosen, gold, threshold=1 / 3) == pytest.approx(4 / 5)
    assert iou_f1(chosen, gold, threshold=0.7) == 0.0
    assert iou_f1([(0, 1)], [(0, 2)]) == 1.0  # half is enough
    # Runs that touch can match one together; neither side is counted twice.
    assert iou_f1([(0, 4)], [(0, 2), (2, 4)]) == iou_f1([(0, 2), (2, 4)], [(0, 4)]) == 1.0
    assert iou_f1([], gold) == iou_f1(chosen, []) == 0.0
    for threshold in (0.0, 1.1):
        with pytest.raises(BadSetting, match="threshold="):
            iou_f1(chosen, gold, threshold)


@given(POSITIONS, POSITIONS)
def test_iou_f1_is_that_of_eraser_which_counts_chosen_runs_that_match(chosen: set[int], gold: set[int]) -> None:
    matched = 0
    for run in runs(chosen):
        one = set(range(*run))
        matched += any(len(one & set(range(*g))) / len(one | set(range(*g))) >= 0.5 for g in runs(gold))
    expected = 2 * matched / (len(runs(chosen)) + len(runs(gold))) if matched else 0.0
    assert iou_f1(runs(chosen), runs(gold)) == pytest.approx(expected)
    assert iou_f1(runs(gold), runs(chosen)) == pytest.approx(expected)


def test_auprc_by_hand() -> None:
    # Ranked gold, other, gold: (recall, precision) (0, 1) (1/2, 1) (1/2, 1/2) (1, 2/3): 1/2 + 1/2 * (1/2 + 2/3) / 2
    assert auprc([0.9, 0.5, 0.7], [0, 1]) == pytest.approx(1 / 2 + 7 / 24)
    # All tied, one of four: from (0, 1) to (1, 1/4)
    assert auprc([0.0] * 4, [2]) == pytest.approx(5 / 8)
    assert auprc([3.0, 2.0, 1.0], [0, 1]) == 1.0
    assert auprc([1e308, -1e308], [0]) == 1.0
    for gold in ([], [3]):
        with pytest.raises(UsageError, match="of 3 tokens; give at least one"):
            auprc([1.0, 2.0, 3.0], gold)


@given(SCORED)
def test_auprc_is_the_area_over_all_thresholds(scored: list[tuple[int, bool]]) -> None:
    gold = [i for i, (_, marked) in enumerate(scored) if marked]
    if not gold:
        return
    points = [(0.0, 1.0)]
    for threshold in sorted({score for score, _ in scored}, reverse=True):
        chosen = [marked for score, marked in scored if score >= threshold]
        points.append((sum(chosen) / len(gold), sum(chosen) / len(chosen)))
    expected = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(points))
    assert auprc([score for score, _ in scored], gold) == pytest.approx(expected)


def test_plausibility_of_a_data_set_by_hand() -> None:
    first = special("a good film it is", scores=(9.0, 0.1, 0.6, 0.5, 0.2, 0.3, 9.0))
    second = special("so very dull", scores=(9.0, 0.5, 0.1, 0.4, 9.0))
    third = special("no comment", scores=(0.0, 0.1, 0.2, 0.0))
    rationales = [
        Rationale(first.texts, ((0, 2, 6), (0, 7, 9), (0, 15, 17)), "Positive"),  # good, fi[lm], is
        Rationale(second.texts, ((0, 8, 12),), 1),  # dull
        Rationale(third.texts, ()),
    ]
    found = plausibility([first, second, third], rationales)
    # Shares 3/5 and 1/3, in the mean 7/15: k = round(7/3) = 2, and round(7/5) = 1.
    # First: "good film" of "good film" and "is": precision 1, recall 2/3, F1 4/5; runs 1 of 1, and 1 of 2, F1 2/3;
    # the three rank highest, area 1. Second: "so" of "dull", which ranks second: (0, 1) (0, 0) (1, 1/2) (1, 1/3).
    assert found[0] is not None
    assert found[1] is not None
    assert (found[0].token_f1, found[0].iou_f1, found[0].auprc) == pytest.approx((4 / 5, 2 / 3, 1.0))
    assert (found[1].token_f1, found[1].iou_f1, found[1].auprc) == pytest.approx((0.0, 0.0, 1 / 4))
    assert found[2] is None


def test_at_least_one_token_is_chosen() -> None:
    long = special("a b c d e f g h i j", scores=(0.0, *(float(i) for i in range(10)), 0.0))
    short = special("a b", scores=(0.0, 2.0, 1.0, 0.0))
    marked = [Rationale(long.texts, ((0, 18, 19),)), Rationale(short.texts, ((0, 0, 1),))]
    # Shares 1/10 and 1/2, in the mean 3/10: 3 of ten, and round(0.6) = 1 of two.
    assert [one and one.token_f1 for one in plausibility([long, short], marked)] == pytest.approx([2 / (3 + 1), 1.0])
    # Four times 1/10 and 1/2, in the mean 9/50: 2 of ten, and round(0.36) = 0 of two.
    found = plausibility([long] * 4 + [short], marked[:1] * 4 + marked[1:])
    assert [one and one.token_f1 for one in found] == pytest.approx([2 / (2 + 1)] * 4 + [1.0])


def test_texts_without_a_rationale_do_not_lower_how_many_are_chosen() -> None:
    marked = special("a b c d", scores=(0.0, 4.0, 3.0, 2.0, 1.0, 0.0))
    rationales = [Rationale(marked.texts, ((0, 0, 3),)), Rationale(marked.texts, ())]
    assert plausibility([marked, marked], rationales) == [Plausibility(1.0, 1.0, 1.0), None]  # 2 of 4, not 1


def test_a_token_beside_a_rationale_is_not_gold() -> None:
    pieces = attribution_of(("unfunny",), ((0, 2), (2, 5), (5, 7)), (0, 0, 0), (3.0, 2.0, 1.0))
    found = plausibility([pieces], [Rationale(pieces.texts, ((0, 2, 5),))])
    assert found == [Plausibility(0.0, 0.0, 0.25)]  # ranked second: (0, 1) (0, 0) (1, 1/2)


def test_a_rationale_of_a_pair_marks_its_own_text() -> None:
    pair = special("so good", "so good", scores=(0.0, 0.1, 0.2, 0.0, 0.3, 0.9, 0.0))
    found = {s: plausibility([pair], [Rationale(pair.texts, ((s, 3, 7),))])[0] for s in (0, 1)}
    assert found[1] == Plausibility(1.0, 1.0, 1.0)
    assert found[0] is not None
    assert found[0].token_f1 == 0.0


def test_what_does_not_belong_together_is_refused() -> None:
    tokens = special("so good", scores=(0.0, 0.1, 0.2, 0.0))
    rationale = Rationale(tokens.texts, ((0, 3, 7),), "positive")
    assert plausibility([], []) == []
    with pytest.raises(UsageError, match="1 attributions and 2 rationales"):
        plausibility([tokens], [rationale, rationale])
    with pytest.raises(UsageError, match="in the order of the attributions"):
        plausibility([tokens], [replace(rationale, texts=("so fine",))])
    with pytest.raises(UsageError, match="a rationale for 'negative' does not apply to an attribution for 'positive'"):
        plausibility([tokens], [replace(rationale, label="negative")])
