"""The plan of a cluster: formulas by hand, and a simulation that agrees with them where they are exact."""

from dataclasses import replace

import pytest

from whichtoken.cli.run import main
from whichtoken.errors import BadSetting
from whichtoken.jobs.plan import ClusterPlan, format_bytes, simulate

CALM = ClusterPlan(1000, 10, 100, 4, 10, 2, 5.0, 0.0, 1e12, 0.0, 1.0, 0.0)  # 100 parts of 1 s on 4 workers


def test_formulas() -> None:
    assert (CALM.parts, CALM.part_seconds, CALM.shard_bytes, CALM.total_bytes) == (100, 1.0, 1000.0, 100_000.0)
    assert CALM.ideal_hours * 3600 == pytest.approx(25)
    failing = replace(CALM, hours_between_failures=25 / 3600, load_seconds=2.0)
    assert failing.failures == pytest.approx(4)
    assert failing.lost_hours * 3600 == pytest.approx(4 * (0.5 + 2) / 4)
    slow = replace(CALM, straggler_share=0.5, straggler_slowness=2.0)
    assert slow.straggler_hours * 3600 == pytest.approx(25 / 0.75 - 25)
    assert slow.tail_hours * 3600 == pytest.approx(2)
    assert replace(CALM, rows_read_per_second=100).reading_hours * 3600 == pytest.approx(10)
    assert replace(CALM, tokens_checked_per_second=100).resuming_hours * 3600 == pytest.approx(200)
    assert [format_bytes(n) for n in (1500, 2.5e6, 3e9, 4e12)] == ["1.5 kB", "2.50 MB", "3.00 GB", "4.00 TB"]


def test_a_calm_run_takes_the_ideal_time() -> None:
    run = simulate(CALM)
    assert run.hours * 3600 == pytest.approx(25)
    assert (run.done, run.n_failures, run.lost_hours) == (100, 0, 0.0)


def test_every_part_is_done_once_however_many_workers_die() -> None:
    plan = replace(CALM, hours_between_failures=5 / 3600, load_seconds=0.5)
    run = simulate(plan)
    assert run.done == 100
    assert run.n_failures > 5
    assert run.hours > CALM.ideal_hours + run.lost_hours / 4 * 0.9
    assert simulate(plan) == run
    assert simulate(plan, 1) != run


def test_all_workers_slow_take_as_much_longer() -> None:
    assert simulate(replace(CALM, straggler_share=1.0, straggler_slowness=3.0)).hours * 3600 == pytest.approx(75)


def test_a_straggler_that_has_the_last_part_is_waited_for() -> None:
    run = simulate(replace(CALM, straggler_share=0.3, straggler_slowness=10.0), seed=1)
    assert run.hours > CALM.ideal_hours
    assert run.tail_hours * 3600 > 1


def test_spread_keeps_the_mean() -> None:
    runs = [simulate(replace(CALM, part_spread=0.5), seed).hours * 3600 for seed in range(20)]
    assert sum(runs) / 20 == pytest.approx(25, rel=0.06)


def test_plans_that_cannot_be() -> None:
    for values in (
        {"texts": 0.0},
        {"straggler_share": 1.5},
        {"load_seconds": -1.0},
        {"tokens_per_second": float("nan")},
    ):
        with pytest.raises(BadSetting):
            replace(CALM, **values)  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="100,000,000 parts are too many to simulate"):
        simulate(replace(CALM, texts=1e9))


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main(["corpus", "plan", "--texts", "1e6", "--rows-per-part", "1000", "--workers", "8", "--runs", "2"])
    assert ending.value.code == 0
    shown = capsys.readouterr().out
    assert "parts, one shard each" in shown
    assert "1,000" in shown
    assert "times the ideal" in shown
