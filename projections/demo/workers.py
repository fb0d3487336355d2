"""
The worker processes of the demo, and what happens to them: they start, share the ranges, one is killed.

What they tell is shown; what counts is read from the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, NamedTuple, TypeVar

import offsets
from journal import NUMBER_OF_SLICES, Database, Log, NotFound
from journal.tasks import end, running
from offsets import RangeStatus
from projections.demo.child import Child, child
from projections.demo.progress import Reporter
from projections.demo.read_models import PROJECTIONS
from projections.demo.stopping import StopRequest
from projections.demo.watch import Watch
from projections.monitoring import projection_lags
from projections.terminal.connection import Sides

_LOOK = 0.1
"""Seconds between looks at the database while something is awaited."""
_MEASURE = 0.5
"""Seconds between measurements of the lag."""

T = TypeVar("T")


class Moves(NamedTuple):
    """What happened to the ranges, as the workers and the database tell."""

    takeovers: int = 0
    """Ranges that were taken over from a worker whose lease had ended."""
    rescales: int = 0
    """How often the slices were cut into another number of ranges."""


class Crew:
    """Worker processes that run the projections; :func:`crew` starts them."""

    def __init__(
        self,
        database: Database,
        members: Sequence[Child],
        ranges: int,
        report: Reporter,
        stopping: StopRequest,
        *,
        inline: bool,
        journal: Log | None = None,
    ) -> None:
        self._database = database
        self._journal = journal
        self._inline = inline
        self._cut = ranges
        self._members = list(members)
        self._report = report
        self._stopping = stopping
        self._watch: Watch | None = None
        self._takeovers = 0
        self._rescales = 0
        self._listening: list[asyncio.Task[None]] = []

    @property
    def moves(self) -> Moves:
        """What has happened to the ranges until now."""
        return Moves(self._takeovers, self._rescales)

    async def join(self) -> None:
        """Wait until each holds ranges."""
        self._listening = [
            asyncio.create_task(self._follow(member), name=str(member)) for member in self._members
        ]
        pids = {member.pid for member in self._members}
        await self._until(lambda: self._holding(pids))
        if len(pids) > 1:
            ranges = sum(len(held) for held in (await self._ranges()).values())
            self._report.step(f"{len(pids)} workers share {ranges} ranges of {len(PROJECTIONS)} projections")

    async def during(self, watch: Watch, work: Coroutine[Any, Any, T]) -> T:
        """Do something while they run, then let them catch up."""
        self._watch = watch
        async with running(self._measure(watch)) as measuring:
            result = await self._stopping.unless(work, *measuring, *self._alive())
            await self._until(lambda: self._caught_up(watch))
            return result

    async def incidents(self, watch: Watch, left: int) -> None:
        """What happens to workers in a year happens to several while the events are appended; to one, nothing."""
        if len(self._members) == 1:
            return
        begin = watch.appended
        await watch.reached(begin + left // 4)
        await self._rescale()
        await watch.reached(begin + left // 2)
        await self._kill_one(watch)

    async def _rescale(self) -> None:
        """Cut the slices of all projections again, while they run."""
        cut = 2 * self._cut if 2 * self._cut <= NUMBER_OF_SLICES else self._cut // 2
        async with self._database.session() as session:
            for name in PROJECTIONS:
                await offsets.rescale(session, name, cut)
        if all(len(held) == cut for held in (await self._ranges()).values()):
            self._rescales += 1
            self._report.step(f"rescaled each projection from {self._cut} to {cut} ranges")

    async def _kill_one(self, watch: Watch) -> None:
        """Kill one that holds ranges, and wait until others have taken them over."""
        victim = self._members.pop()
        await self._until(lambda: self._holding({victim.pid}))
        victim.kill()
        loop = asyncio.get_running_loop()
        killed_at, watch.longest_lag = loop.time(), 0.0
        left = await self._held_by(victim)
        self._report.step(f"killed {victim} (SIGKILL), which held {len(left)} ranges")
        await self._until(lambda: self._taken_over(victim))
        await self._look(watch)
        self._report.step(
            f"the others took over after {loop.time() - killed_at:.1f} s"
            + (f": the lag had risen to {watch.longest_lag:.1f} s" if watch.longest_lag else "")
        )

    async def leave(self) -> None:
        """Let all finish their current work, and hear what they have still to say."""
        for member in self._members:
            await member.stop()
        await asyncio.gather(*self._listening)

    async def silence(self) -> None:
        """Hear nothing more."""
        await end(*self._listening)

    def _alive(self) -> list[asyncio.Task[None]]:
        """Those that listen to a worker that has not been killed: they end only by a failure."""
        names = {str(member) for member in self._members}
        return [task for task in self._listening if task.get_name() in names]

    async def _follow(self, member: Child) -> None:
        async for said in member.said:
            if "failed" in said:
                self._report.step(f"{member}: {said['failed']}")
            elif "taken_over" in said:
                self._takeovers += 1
            elif self._watch is not None:
                self._watch.effects(
                    said["at"], [(source_id, seq_nr) for source_id, seq_nr in said["effects"]]
                )

    async def _until(self, true: Callable[[], Awaitable[bool]]) -> None:
        async def look() -> None:
            while not await true():  # noqa: ASYNC110 - the database is asked
                await asyncio.sleep(_LOOK)

        await self._stopping.unless(look(), *self._alive())

    async def _ranges(self) -> dict[str, list[RangeStatus]]:
        async with self._database.session() as session:
            return {name: (await offsets.status(session, name)).ranges for name in PROJECTIONS}

    async def _holding(self, pids: set[int]) -> bool:
        async with self._database.session() as session:
            workers = await offsets.workers(session)
        return {w.pid for w in workers if w.alive and w.ranges} >= pids and await self._all_held()

    async def _all_held(self) -> bool:
        with suppress(NotFound):
            ranges = [one for held in (await self._ranges()).values() for one in held]
            return all(one.alive and one.owner == one.assigned_to for one in ranges)
        return False

    async def _held_by(self, member: Child) -> list[RangeStatus]:
        async with self._database.session() as session:
            owners = {w.owner for w in await offsets.workers(session) if w.pid == member.pid}
        return [one for held in (await self._ranges()).values() for one in held if one.owner in owners]

    async def _taken_over(self, victim: Child) -> bool:
        return not await self._held_by(victim) and await self._all_held()

    async def _caught_up(self, watch: Watch) -> bool:
        return await self._look(watch) == 0

    async def _measure(self, watch: Watch) -> None:
        while True:
            await self._look(watch)
            await asyncio.sleep(_MEASURE)

    async def _look(self, watch: Watch) -> int:
        """Measure, by the database; returns the backlog."""
        async with self._database.session() as session:
            found = await projection_lags(session, list(PROJECTIONS), journal=self._journal)
        # Each projection handles every event, and each event has its effect in one of them.
        handled = sum(one.handled for one in found) // len(PROJECTIONS)
        if self._inline:
            handled = max(0, watch.appended - max(one.backlog for one in found))
        # The places of another system's events are no times.
        has_times = self._journal is None or self._journal.has_tokens
        watch.measured(handled, max(one.lag for one in found) if has_times else None)
        return sum(one.backlog for one in found)


@asynccontextmanager
async def crew(
    database: Database,
    where: Sides,
    report: Reporter,
    stopping: StopRequest,
    *,
    workers: int,
    ranges: int,
    inline: bool,
    sql: bool = False,
    journal: Log | None = None,
) -> AsyncIterator[Crew]:
    """Run workers for the length of the block; they end with it, and with this process."""
    if workers > 1:
        report.step(f"starting {workers} workers")
    async with AsyncExitStack() as stack:
        members = []
        for number in range(1, workers + 1):
            member = await stack.enter_async_context(child("worker", f"worker {number}"))
            await member.tell(dsn=where.read_side, journals=where.journals, ranges=ranges, sql=sql)
            members.append(member)
        found = Crew(database, members, ranges, report, stopping, inline=inline, journal=journal)
        stack.push_async_callback(found.silence)
        await found.join()
        yield found
        await found.leave()


async def settle(database: Database, ranges: int) -> None:
    """
    Leave nothing of an earlier run's workers, and cut the slices as this one begins.

    Workers that were killed would keep their ranges until their leases end. Only one demo runs on a database, so
    all of them are of runs that have ended.
    """
    async with database.session() as session:
        for worker in await offsets.workers(session):
            if PROJECTIONS.keys() >= set(worker.slices):
                await offsets.leave(session, worker.owner)
        for name in PROJECTIONS:
            with suppress(NotFound):  # it is cut when it runs for the first time
                if len((await offsets.status(session, name)).ranges) != ranges:
                    await offsets.rescale(session, name, ranges)
