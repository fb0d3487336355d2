"""Bugs by which nothing is lost or doubled, and something is never done: once all faults are over, it stands still."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from projections.running.range_supervisor import RangeSupervisor
from projections.running.ranges import Ranges
from tests.mutants.layers import Simulation
from tests.mutants.mutant import mutant
from tests.mutants.seeding import method
from tests.simulation.postgres import holding
from tests.simulation.postgres.backend import Backend


@mutant(
    "a-range-that-ended-is-not-begun-again",
    "a worker does not begin a range that has ended in it before, though it holds it again",
    "projections/running/ranges.py: Ranges._begin",
    Simulation(60),
)
def _never_again() -> AbstractContextManager[Any]:
    right = Ranges._begin

    def begin(self: Ranges, one: Any, held: int) -> None:
        if one.claim.slices.min_slice not in self._ended:
            right(self, one, held)

    return method(Ranges, "_begin", begin)


@mutant(
    "the-ranges-of-the-dead-are-not-assigned",
    "a worker whose lease has ended still counts as one that ranges are assigned to",
    "sql/functions/holding/_uneven_v1.sql",
    Simulation(60),
)
def _the_dead_count() -> AbstractContextManager[Any]:
    def uneven(db: Backend, ids: Sequence[int]) -> list[int]:
        found = []
        for number in ids:
            ranges = db.select("projection_ranges", lambda r, number=number: r["projection_id"] == number)
            workers = db.select("workers", lambda w, number=number: number in w["projection_ids"])
            held = [sum(r["assigned_to"] == w["owner"] for r in ranges) for w in workers]
            if ranges and held and (max(held) - min(held) > 1 or sum(held) < len(ranges)):
                found.append(number)
        return found

    return method(holding, "_uneven", uneven)


@mutant(
    "a-resumed-range-is-not-woken",
    "a range that was paused is not told that its projection goes on",
    "projections/running/range_supervisor.py: RangeSupervisor.pause",
    Simulation(60),
)
def _stays_paused() -> AbstractContextManager[Any]:
    right = RangeSupervisor.pause

    def pause(self: RangeSupervisor, *, paused: bool) -> None:
        if paused:
            right(self, paused=True)
        self._paused = paused

    return method(RangeSupervisor, "pause", pause)


@mutant(
    "a-decision-wakes-nobody",
    "a range is not told that somebody has decided about a source that is parked",
    "projections/running/range_supervisor.py: RangeSupervisor.decided",
    Simulation(60),
)
def _decides_for_nobody() -> AbstractContextManager[Any]:
    return method(RangeSupervisor, "decided", lambda _: None)
