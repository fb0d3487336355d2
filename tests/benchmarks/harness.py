"""Measuring: contenders take turns in the same run, and what counts is the median over the rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from statistics import median

Contender = Callable[[], Awaitable[float]]
"""One round of one way to do the work; returns its measure, such as events per second."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: the full run, or a quick one that shows only that everything works."""

    rounds: int = 5
    sources: int = 4_000
    few_sources: int = 500
    many_sources: int = 50_000
    most_sources: int = 200_000
    append: int = 50_000
    append_small: int = 10_000
    append_single: int = 1_500
    imported: int = 50_000
    captured: int = 50_000
    backlog: int = 10_000
    large_backlog: int = 1_000_000
    read: int = 200_000
    clustered: int = 1_000_000
    first_batches: int = 40
    projected: int = 100_000
    peer: int = 5_000
    latencies: int = 300
    waits: int = 10
    idle_settle: float = 12.0  # a session that goes idle tells within 10 seconds what it has done
    idle_seconds: float = 20.0  # twice the 10 seconds after which a range looks again
    shared: int = 200_000
    worker_rounds: int = 3
    matched: int = 200_000
    subscriptions: int = 10_000
    batch: tuple[int, ...] = (1_000_000, 5_000_000)
    batch_sources: int = 50_000
    batch_rounds: int = 2
    repaired: int = 200_000
    scale: tuple[int, ...] = (1_000_000, 3_000_000, 10_000_000)
    scale_sources: int = 1_000_000
    scale_more: int = 50_000
    delivered: int = 10_000
    akka_each: int = 20_000
    akka_backlog: int = 1_000_000
    akka_warm_up: int = 30_000
    akka_latencies: int = 300
    akka_latencies_warm_up: int = 200
    akka_rounds: int = 3


QUICK = Sizes(
    rounds=1, sources=1_000, append=2_000, append_small=500, append_single=50, imported=2_000, captured=500,
    backlog=500, large_backlog=5_000, read=2_000, first_batches=3, projected=3_000, peer=200, latencies=10, waits=1,
    most_sources=3_000, idle_settle=0.0, idle_seconds=1.0, shared=5_000, worker_rounds=1, clustered=20_000,
    scale=(2_000, 5_000), scale_sources=1_000, scale_more=500,
    matched=2_000, subscriptions=40, batch=(5_000,), batch_sources=500, batch_rounds=1, delivered=200, repaired=2_000,
    akka_each=500, akka_backlog=2_000, akka_warm_up=500, akka_latencies=10, akka_latencies_warm_up=5, akka_rounds=1,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Goal:
    """What a line should reach: its ratio, or its value where ``absolute``."""

    limit: float
    at_most: bool = False
    absolute: bool = False

    def met(self, value: float, ratio: float | None) -> bool:
        """Whether a measurement reaches it."""
        measured = value if self.absolute or ratio is None else ratio
        return measured <= self.limit if self.at_most else measured >= self.limit

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.limit:g}{'' if self.absolute else 'x'}"


@dataclass(frozen=True, slots=True)
class Line:
    """One measurement, beside what it is compared with."""

    what: str
    value: float
    unit: str
    beside: str | None = None
    beside_value: float | None = None
    ratio: float | None = None
    goal: Goal | None = None

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None without a goal."""
        return self.goal.met(self.value, self.ratio) if self.goal else None

    def as_json(self) -> dict[str, object]:
        """The line for ``--json``."""
        plain = {
            name: getattr(self, name) for name in ("what", "value", "unit", "beside", "beside_value", "ratio")
        }
        return {**plain, "goal": str(self.goal) if self.goal else None, "met": self.met}


@dataclass(frozen=True, slots=True)
class Rounds:
    """The measures of contenders, one of each round."""

    measures: Mapping[str, list[float]] = field(default_factory=dict)

    def median(self, name: str) -> float:
        """The typical measure of a contender."""
        return median(self.measures[name])

    def line(self, what: str, unit: str, ours: str, beside: str, goal: Goal | None = None) -> Line:
        """Ours beside another; the ratio is taken within each round, so that a slow moment meets both."""
        pairs = zip(self.measures[ours], self.measures[beside], strict=True)
        ratio = median(mine / other for mine, other in pairs)
        return Line(what, self.median(ours), unit, beside, self.median(beside), ratio, goal)


async def compare(contenders: Mapping[str, Contender], rounds: int) -> Rounds:
    """Let contenders take turns; every second round goes the other way, so that no place is the better one."""
    measures: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        order = list(contenders) if number % 2 == 0 else list(contenders)[::-1]
        for name in order:
            measures[name].append(await contenders[name]())
            await asyncio.sleep(0)
    return Rounds(measures)
