"""Head statistics, against the same counted slowly: one word, one head, one token at a time."""

from collections.abc import Sequence

import numpy as np
import pytest
from tests.heads.corpus import CORPUS, MUSIC, SHORT, SLOW, sentence

from whichtoken.heads import HeadRule, Sentence
from whichtoken.heads.count import HeadCounts, Pointers, align, restrict_to_window
from whichtoken.words import Span

LAYERS, HEADS = 2, 3


def tokens_of(found: Sentence, piece: int = 3) -> list[Span | None]:
    """A special token at each end; words in pieces of three letters."""
    spans = [
        (at, min(at + piece, word.span[1])) for word in found.words for at in range(word.span[0], word.span[1], piece)
    ]
    return [None, *spans, None]


def test_words_have_the_tokens_that_lie_in_them() -> None:
    assert align(SLOW, tokens_of(SLOW)) == [(1,), (2, 3), (4,), (5, 6), (7,)]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 2), (2, 5)], [(0,), (1,)]),  # do n't
        ([(0, 3), (3, 4), (4, 5)], [(), ()]),  # don ' t: the first token is of both
        ([(0, 5)], [(), ()]),
        ([(0, 2)], [(0,), ()]),  # nothing of n't
        ([None, (0, 0), (0, 2), (2, 3), (3, 3), (3, 5), None], [(2,), (3, 5)]),  # tokens without characters
    ],
)
def test_words_without_tokens_of_their_own_have_none(spans: list[Span | None], expected: list[tuple[int, ...]]) -> None:
    assert align(sentence("don't", ("do", 0, "root"), ("n't", 1, "advmod")), spans) == expected


def test_only_the_words_that_share_a_token_are_left_out() -> None:
    """Here the tokenizer takes "slow." for one token."""
    assert align(SLOW, [(0, 3), (4, 8), (9, 12), (13, 18)]) == [(0,), (1,), (2,), (), ()]


def test_the_space_before_a_byte_level_token_is_no_part_of_a_word_before() -> None:
    text = sentence("naïve  film😀", ("naïve", 2, "amod"), ("film", 0, "root"), ("😀", 2, "punct"))
    spans = [(0, 2), (2, 3), (2, 3), (3, 6), (6, 11), (11, 12), (11, 12), (12, 12)]
    assert align(text, spans) == [(0, 1, 2, 3), (4,), (5, 6)]


def test_words_with_a_token_outside_the_window_are_cut_off() -> None:
    assert restrict_to_window([(1,), (2, 3), (), (4,)], [0, 1, 2, 4, 7]) == [(1,), (), (), (3,)]


def pointers_of(corpus: Sequence[Sentence], seed: int = 0) -> list[Pointers]:
    """Chance, but in layer 0 head 0 looks at the token before, head 1 at the word depended on, head 2 at itself."""
    source, found = np.random.default_rng(seed), []
    for one in corpus:
        n = len(tokens_of(one))
        pointers = source.integers(0, n, (LAYERS, HEADS, n))
        pointers[0, 0] = np.maximum(0, np.arange(n) - 1)
        pointers[0, 2] = np.arange(n)
        words = align(one, tokens_of(one))
        for number, word in enumerate(one.words):
            if word.head is not None:
                pointers[0, 1, words[number][0]] = words[word.head][-1]
        found.append(pointers)
    return found


def tallied(corpus: Sequence[Sentence], rule: HeadRule, seed: int = 0) -> HeadCounts:
    tally = HeadCounts(rule, LAYERS, HEADS)
    for one, pointers in zip(corpus, pointers_of(corpus, seed), strict=True):
        tally.add(one, align(one, tokens_of(one)), pointers)
    return tally


def hits_and_misses(relation: str, pointers: Sequence[Pointers], layer: int, head: int) -> tuple[int, int]:
    """Counted one word at a time."""
    hits = misses = 0
    for one, pointed in zip(CORPUS, pointers, strict=True):
        spans = tokens_of(one)
        for word in one.words:
            if word.relation == relation and word.head is not None:
                first = next(i for i, span in enumerate(spans) if span and span[0] == word.span[0])
                key = spans[pointed[layer, head, first]]
                start, end = one.words[word.head].span
                hit = key is not None and start <= key[0] and key[1] <= end
                hits, misses = hits + hit, misses + (not hit)
    return hits, misses


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["nsubj", "obj", "amod"])
def test_relations_are_counted_as_the_paper_does(name: str, seed: int) -> None:
    rule = HeadRule(relations=("nsubj", "obj", "amod"))
    found = tallied(CORPUS, rule, seed).statistics("hand-made", 0, 0)
    relation = next(one for one in found.relations if one.name == name)
    distances = []
    for one in CORPUS:
        for i, word in enumerate(one.words):
            if word.relation == name and word.head is not None:
                distances.append((i + 1) - (word.head + 1))
    assert relation.n_found == relation.n_measured == len(distances) > 0
    assert relation.position_share == max(distances.count(d) for d in distances) / len(distances)
    assert distances.count(relation.position) / len(distances) == relation.position_share
    for layer in range(LAYERS):
        for head in range(HEADS):
            hits, misses = hits_and_misses(name, pointers_of(CORPUS, seed), layer, head)
            assert relation.shares[layer][head] == hits / (hits + misses)
    assert relation.best() == (0, 1, 1.0)


@pytest.mark.parametrize("seed", range(3))
def test_positions_are_counted_as_the_paper_does(seed: int) -> None:
    found = tallied(CORPUS, HeadRule(), seed).statistics("hand-made", 0, 0)
    for layer in range(LAYERS):
        for head in range(HEADS):
            offsets = []
            for pointed in pointers_of(CORPUS, seed):
                for i in range(pointed.shape[2]):
                    offsets.append(int(pointed[layer, head, i]) - i)
            best = max((offsets.count(o) for o in offsets if o != 0), default=0) / len(offsets)
            assert found.offset_shares[layer][head] == best
            chosen = found.offsets[layer][head]
            assert (offsets.count(chosen) / len(offsets) == best) if best else (chosen == 0)
    assert (found.corpus, found.n_sentences, found.n_words) == ("hand-made", 3, sum(len(one.words) for one in CORPUS))
    assert found.n_tokens == sum(len(tokens_of(one)) for one in CORPUS)


def test_heads_qualify_above_the_thresholds_only() -> None:
    tally = tallied([SLOW, MUSIC, SHORT] * 2, HeadRule(min_count=1))
    # nsubj: -2, -2, -1, -1 by words; the head that always hits needs more than 0.5 + 0.1. obj, amod: one place only.
    assert tally.syntactic()[0][1] == 1
    assert tally.positional()[0] == (1, 0, 0)
    share = tally.statistics("", 0, 0).offset_shares[0][0]
    assert tallied(CORPUS, HeadRule(positional=share)).positional()[0][0] == 0
    assert tallied(CORPUS, HeadRule(positional=share - 1e-9)).positional()[0][0] == 1
    assert tallied([SLOW, MUSIC, SHORT], HeadRule(min_count=4, syntactic=0.49)).syntactic()[0][1] == 1
    assert tallied([SLOW, MUSIC, SHORT], HeadRule(min_count=4, syntactic=0.5)).syntactic()[0][1] == 0


def test_a_relation_that_is_rare_makes_no_head_syntactic() -> None:
    for count, expected in ((4, 1), (5, 0)):
        assert tallied(CORPUS, HeadRule(min_count=count)).syntactic()[0][1] == expected


def test_looking_at_oneself_is_a_position_only_if_asked_for() -> None:
    assert tallied(CORPUS, HeadRule()).positional()[0][2] == 0
    assert tallied(CORPUS, HeadRule(count_self=True)).positional()[0][2] == 1
    assert tallied(CORPUS, HeadRule(count_self=True)).statistics("", 0, 0).offsets[0][2] == 0


def test_words_that_cannot_be_told_are_counted_and_not_measured() -> None:
    tally = HeadCounts(HeadRule(min_count=1), LAYERS, HEADS)
    spans: list[Span | None] = [(0, 3), (4, 8), (9, 12), (13, 18)]
    tally.add(SLOW, align(SLOW, spans), np.zeros((LAYERS, HEADS, 4), np.int64))
    found = tally.statistics("", 0, 0)
    assert (found.n_words, found.n_unaligned) == (5, 2)
    assert [(r.n_found, r.n_measured) for r in found.relations] == [(1, 0), (0, 0), (0, 0), (0, 0)]
    assert tally.syntactic() == ((0,) * HEADS,) * LAYERS


def test_a_low_threshold_may_find_several_positions() -> None:
    tally = HeadCounts(HeadRule(positional=0.3), 1, 1)
    tally.add(SHORT, [(0,), (1,), (2,)], np.array([[[1, 0, 1]]]))  # offsets 1, -1, -1
    assert tally.positional() == ((2,),)
    tally.add(SHORT, [(0,), (1,), (2,)], np.array([[[1, 0, 0, 0, 0]]]))  # a longer one widens the table: 1 -1 -2 -3 -4
    assert tally.positional() == ((1,),)
    assert tally.statistics("", 0, 0).offset_shares == ((3 / 8,),)
