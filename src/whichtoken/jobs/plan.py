"""Plan a corpus job for a cluster: bytes, shards and hours by formulas, and a simulation of stragglers and failures.

docs/scaling.md names the assumptions. The simulation does what the engines do: a part is done by one worker, a part
whose worker dies is done again from its start, and nothing is done twice otherwise. No torch.
"""

import heapq
import math
from dataclasses import dataclass, field, fields
from random import Random

from whichtoken.errors import BadSetting

MOST_PARTS = 1_000_000  # that are simulated


@dataclass(frozen=True)
class ClusterPlan:
    """A job and a cluster. Times are in seconds, unless a name says hours."""

    texts: float = 1e9
    tokens_per_text: float = 250.0
    tokens_per_second: float = 50_000.0  # of one worker
    workers: int = 64
    rows_per_part: int = 8192
    methods: int = 1
    bytes_per_token: float = 16.0  # of a shard, texts included
    load_seconds: float = 60.0  # until a worker that was started again works
    hours_between_failures: float = 500.0  # of one worker
    straggler_share: float = 0.02  # of the workers
    straggler_slowness: float = 3.0  # how much longer a straggler takes
    part_spread: float = 0.2  # standard deviation of the logarithm of a part's duration
    rows_read_per_second: float = 10_000.0  # by the driver, into blocks, before the workers start
    tokens_checked_per_second: float = 3e6  # by the driver, in shards that an interrupted job finished

    def __post_init__(self) -> None:
        for of in fields(self):
            value = getattr(self, of.name)
            least = 0 if of.name in ("load_seconds", "straggler_share", "part_spread") else 1e-9
            if not value >= least or math.isinf(value):
                raise BadSetting(of.name, value, "at least 0" if least == 0 else "above 0")
        if self.straggler_share > 1:
            raise BadSetting("straggler_share", self.straggler_share, "at most 1")

    @property
    def tokens(self) -> float:
        return self.texts * self.tokens_per_text

    @property
    def parts(self) -> int:
        return math.ceil(self.texts / self.rows_per_part)

    @property
    def part_seconds(self) -> float:
        return self.rows_per_part * self.tokens_per_text / self.tokens_per_second

    @property
    def shard_bytes(self) -> float:
        return self.rows_per_part * self.tokens_per_text * self.bytes_per_token * self.methods

    @property
    def total_bytes(self) -> float:
        return self.tokens * self.bytes_per_token * self.methods

    @property
    def ideal_hours(self) -> float:
        return self.tokens / (self.tokens_per_second * self.workers) / 3600

    @property
    def failures(self) -> float:
        """How many workers are expected to die."""
        return self.workers * self.ideal_hours / self.hours_between_failures

    @property
    def lost_hours(self) -> float:
        """Hours of the job that failures cost: half a part and a start each, shared by all workers."""
        return self.failures * (self.part_seconds / 2 + self.load_seconds) / self.workers / 3600

    @property
    def straggler_hours(self) -> float:
        """Hours of the job that slow workers cost while there are parts for all: they do fewer."""
        speed = 1 - self.straggler_share * (1 - 1 / self.straggler_slowness)
        return self.ideal_hours * (1 / speed - 1)

    @property
    def tail_hours(self) -> float:
        """Hours until the last part is done when no others are left: at worst, a straggler has just begun it."""
        return self.part_seconds * (self.straggler_slowness if self.straggler_share else 1.0) / 3600

    @property
    def reading_hours(self) -> float:
        """Hours that the driver reads rows into blocks; the same corpus as several jobs reads them side by side."""
        return self.texts / self.rows_read_per_second / 3600

    @property
    def resuming_hours(self) -> float:
        """Hours until a job that was interrupted near its end goes on: the driver checks the hash of each shard."""
        return self.tokens * self.methods / self.tokens_checked_per_second / 3600

    @property
    def expected_hours(self) -> float:
        lost = self.lost_hours + self.straggler_hours + self.tail_hours
        return self.reading_hours + self.load_seconds / 3600 + self.ideal_hours + lost

    def formulas(self) -> list[tuple[str, str, str]]:
        """Return each quantity with its formula and its value."""
        return [
            ("tokens", "texts x tokens per text", f"{self.tokens:.4g}"),
            ("parts, one shard each", "texts / rows per part", f"{self.parts:,}"),
            ("part", "rows per part x tokens per text / tokens per second", f"{self.part_seconds:,.1f} s"),
            ("shard", "rows per part x tokens per text x bytes per token x methods", format_bytes(self.shard_bytes)),
            ("all shards", "tokens x bytes per token x methods", format_bytes(self.total_bytes)),
            ("ideal", "tokens / (tokens per second x workers)", f"{self.ideal_hours:,.2f} h"),
            ("workers that die", "workers x ideal / hours between failures", f"{self.failures:,.1f}"),
            ("lost to failures", "failures x (part / 2 + load) / workers", f"{self.lost_hours:,.3f} h"),
            ("lost to stragglers", "ideal x (1 / mean speed - 1)", f"{self.straggler_hours:,.3f} h"),
            ("tail", "part x slowness of a straggler", f"{self.tail_hours:,.3f} h"),
            ("reading", "texts / rows read per second", f"{self.reading_hours:,.2f} h"),
            ("resuming, at most", "tokens x methods / tokens checked per second", f"{self.resuming_hours:,.2f} h"),
            ("expected", "reading + load + ideal + lost + tail", f"{self.expected_hours:,.2f} h"),
        ]


@dataclass(frozen=True)
class SimulatedRun:
    """One run of a plan, from the time when the rows are read."""

    hours: float
    n_failures: int
    lost_hours: float  # of workers: parts that were not finished, and starts
    tail_hours: float  # between the first worker that finds no part left and the end
    done: int  # parts, each once


@dataclass
class _Cluster:
    """The state of a simulation: when each worker is free, and when it dies next."""

    plan: ClusterPlan
    random: Random
    speeds: list[float] = field(default_factory=list)
    deaths: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        plan = self.plan
        slow = [self.random.random() < plan.straggler_share for _ in range(plan.workers)]
        self.speeds = [1 / plan.straggler_slowness if is_slow else 1.0 for is_slow in slow]
        self.deaths = [self.draw_death(0.0) for _ in range(plan.workers)]

    def draw_death(self, now: float) -> float:
        return now + self.random.expovariate(1 / (self.plan.hours_between_failures * 3600))

    def draw_part(self) -> float:
        spread = self.plan.part_spread  # with this mean, the durations have the plan's
        return self.plan.part_seconds * math.exp(self.random.gauss(-(spread**2) / 2, spread))


def simulate(plan: ClusterPlan, seed: int = 0) -> SimulatedRun:
    """Run a plan, part by part, with workers that are slow and workers that die; the same seed gives the same run."""
    if plan.parts > MOST_PARTS:
        raise BadSetting("rows_per_part", plan.rows_per_part, f"larger: {plan.parts:,} parts are too many to simulate")
    cluster = _Cluster(plan, Random(seed))
    free = [(plan.load_seconds, worker) for worker in range(plan.workers)]
    heapq.heapify(free)
    again: list[tuple[float, float]] = []  # parts to do again: when that is known, and how long they take
    left, done, n_failures, lost, end = plan.parts, 0, 0, 0.0, 0.0
    idle_since = math.inf
    while left or again:
        now, worker = heapq.heappop(free)
        if left:
            left, duration = left - 1, cluster.draw_part()
        else:
            known, duration = heapq.heappop(again)
            idle_since = min(idle_since, now) if known > now else idle_since
            now = max(now, known)
        finish = now + duration / cluster.speeds[worker]
        death = cluster.deaths[worker]
        if death < finish:
            started = max(death, now) + plan.load_seconds
            n_failures, lost = n_failures + 1, lost + started - now
            heapq.heappush(again, (max(death, now), duration))
            heapq.heappush(free, (started, worker))
            cluster.deaths[worker] = cluster.draw_death(started)
        else:
            done, end = done + 1, max(end, finish)
            heapq.heappush(free, (finish, worker))
    idle_since = min(idle_since, free[0][0])
    return SimulatedRun(end / 3600, n_failures, lost / 3600, max(0.0, end - idle_since) / 3600, done)


def format_bytes(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:,.2f} {unit}"
    return f"{count / 1e3:,.1f} kB"
