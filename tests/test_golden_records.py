"""Records are what they were before code was moved: see golden_records.py."""

import pytest
from tests.golden_records import GOLDEN, differences, read, without_costs


@pytest.mark.parametrize("name", GOLDEN)
def test_records_are_what_they_were(name: str) -> None:
    """Sums are rounded differently on other processors, and in memory of another alignment."""
    assert list(differences(without_costs(GOLDEN[name]()), read(name), 1e-9)) == []


def test_differences_are_found() -> None:
    record = {"scores": [1.0, 2.0], "layers": [[1.0, 2.0], [0.0, 0.0]], "revision": "a", "label": "b", "n": 1}
    assert list(differences(record, record, 0.0)) == []
    for tolerance in (0.0, 1e-9):
        for key, other in (
            ("scores", [1.0, 2.1]),
            ("scores", [1.0]),
            ("layers", [[1.0, 2.0]]),
            ("label", "c"),
            ("n", 2),
        ):
            (found,) = differences(record, {**record, key: other}, tolerance)
            assert found.startswith(f".{key}")
        assert list(differences(record, {"scores": [1.0, 2.0]}, tolerance))
    close = {**record, "scores": [1.0, 2.0 + 1e-12], "layers": [[1.0, 2.0], [0.0, 1e-12]], "revision": "other"}
    assert list(differences(record, close, 1e-9)) == []
    assert len(list(differences(record, close, 0.0))) == 3
