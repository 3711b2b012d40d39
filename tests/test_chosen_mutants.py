"""The table of chosen mutants fits the source and the tests, so that it stays true as they change."""

from pathlib import Path

import pytest
from tests.chosen_mutants import CHOSEN, Chosen

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("chosen", CHOSEN, ids=lambda chosen: f"{chosen.path} {chosen.before}")
def test_a_chosen_mutant_changes_one_place_and_names_tests_that_exist(chosen: Chosen) -> None:
    source = (ROOT / "src" / "whichtoken" / chosen.path).read_text(encoding="utf-8")
    assert source.count(chosen.before) == 1
    compile(source.replace(chosen.before, chosen.after), chosen.path, "exec")
    assert chosen.after != chosen.before
    for test in chosen.tests.split():
        file, _, name = test.partition("::")
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert f"def {name.partition('[')[0] or 'test_'}" in text, test


def test_the_table_is_large_and_touches_many_files() -> None:
    assert len({(chosen.path, chosen.before, chosen.after) for chosen in CHOSEN}) == len(CHOSEN) >= 60
    assert len({chosen.path for chosen in CHOSEN}) >= 25
