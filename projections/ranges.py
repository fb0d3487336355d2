"""The claimed ranges of one projection in one process: kept running, kept alive, until one of them is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

import offsets
from journal import DatabaseError, ProjectionsError
from offsets import Claim, OffsetStore, RangeLost, TransactionEnded
from projections.handlers import Projection
from projections.process import Process
from projections.slice_range import RangeRunner
from projections.tables import TableError

log = logging.getLogger("projections")

# Starting again would repeat the fault for ever, or worse: a handler that commits by itself repeats its effects.
_FATAL = (TransactionEnded, TableError)


class Ranges:
    """
    Runs claimed ranges.

    Args:
        process: The process.
        projection: What to run.
        claims: Its ranges, all held by this process.
    """

    def __init__(self, process: Process, projection: Projection, claims: Sequence[Claim]) -> None:
        self._process = process
        self._projection = projection
        self._id = claims[0].projection_id
        self._running = {c.slices.min_slice: RangeRunner(projection, c, process) for c in claims}
        self._ending = asyncio.Event()
        self._paused = False

    async def run(self, until: datetime | None) -> None:
        """
        Run until the process stops, or until everything before a time is handled.

        Raises:
            RangeLost: A range belongs to another worker now, or the ranges were cut anew.
            TransactionEnded, TableError: What starting again can not heal.
        """
        await self._renew()  # whether it is paused must be known before the first batch
        tasks = [asyncio.create_task(work) for work in (
            *(self._keep(min_slice) for min_slice in self._running), self._heartbeat(), self._evict(), self._end(until)
        )]  # fmt: skip
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            for task in tasks:  # not a graceful stop: a handler that hangs must not outlive this
                task.cancel()
            raise
        finally:
            self._ending.set()
            for runner in self._running.values():
                runner.stop()
            for task in tasks[len(self._running) :]:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            await self._release()
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _end(self, until: datetime | None) -> None:
        while until is not None and any(runner.horizon < until for runner in self._running.values()):
            await self._process.pause(0.01)
            if self._process.stop.is_set():
                return
        if until is None:
            await self._process.stop.wait()

    async def _keep(self, min_slice: int) -> None:
        """Run one range; a failure starts it again after a pause, from its stored offset."""
        failures = 0
        while not self._ending.is_set():
            runner = self._running[min_slice]
            horizon = runner.horizon
            try:
                await self._run_once(runner)
            except (RangeLost, *_FATAL):
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the range starts again
                failures = 1 if runner.horizon > horizon else failures + 1
                await self._pause_after(runner, error, failures)
                claim = await self._read_back(runner.claim)
                if claim is None:
                    return
                self._running[min_slice] = RangeRunner(self._projection, claim, self._process)
            else:
                return

    async def _run_once(self, runner: RangeRunner) -> None:
        name, slices = self._projection.name, runner.claim.slices
        runner.pause(paused=self._paused)
        self._process.observer.started(name, slices)
        log.info("%s: slices %s started", name, slices, extra={"action": "started", "projection": name})
        try:
            await runner.run()
        finally:
            self._process.observer.stopped(name, slices)
            log.info("%s: slices %s stopped", name, slices, extra={"action": "stopped", "projection": name})

    async def _pause_after(self, runner: RangeRunner, error: Exception, failures: int) -> None:
        name, slices = self._projection.name, runner.claim.slices
        self._process.observer.failed(name, slices, error)
        delay = self._process.settings.restart.delay(failures).total_seconds()
        log.error(
            "%s: slices %s failed, starting again in %.1f s: %s", name, slices, delay, error,
            # What the library did not foresee is shown whole.
            exc_info=None if isinstance(error, ProjectionsError) else error,
            extra={"action": "failed", "projection": name},
        )  # fmt: skip
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), delay)

    async def _read_back(self, claim: Claim) -> Claim | None:
        """The claim anew, with the offset as the database has it: the outcome of the last COMMIT may be unknown."""
        process, settings = self._process, self._process.settings
        while not self._ending.is_set():
            try:
                async with process.database.session() as session:
                    again = await offsets.claim(
                        session, self._id, claim.slices.min_slice, process.owner, settings.lease
                    )
            except DatabaseError as error:  # also read-only, as a standby is until it is promoted
                log.error(  # noqa: TRY400 - where it was noticed says nothing
                    "%s", error, extra={"action": "database_unavailable", "projection": self._projection.name}
                )
                await process.pause(settings.heartbeat.total_seconds())
            else:
                if again is None or again.slices != claim.slices or again.epoch != claim.epoch + 1:
                    raise RangeLost(f"slices {claim.slices} were claimed by another")
                return again
        return None

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(self._process.settings.heartbeat.total_seconds())
            try:
                await self._renew()
            except RangeLost:
                raise
            except ProjectionsError as error:
                log.warning("heartbeat: %s", error, extra={"action": "heartbeat_failed"})

    async def _renew(self) -> None:
        """Prolong the leases, and take in what was decided meanwhile."""
        process = self._process
        async with process.database.session() as session:
            held, paused, decided = await offsets.renew(
                session, self._id, process.owner, process.settings.lease
            )
        if len(held) < len(self._running):
            raise RangeLost("ranges were claimed by another, or cut anew")
        if paused != self._paused:
            action = "paused" if paused else "resumed"
            log.info(
                "%s: %s",
                self._projection.name,
                action,
                extra={"action": action, "projection": self._projection.name},
            )
        self._paused = paused
        for runner in self._running.values():
            runner.pause(paused=paused)
            if decided:
                runner.decided()

    async def _evict(self) -> None:
        process, settings = self._process, self._process.settings
        while True:
            await asyncio.sleep(settings.evict_every.total_seconds())
            try:
                async with process.database.session() as session:
                    await offsets.evict(session, self._id, settings.retention)
            except ProjectionsError as error:
                log.warning("eviction: %s", error, extra={"action": "eviction_failed"})

    async def _release(self) -> None:
        with suppress(ProjectionsError):
            async with self._process.database.session() as session:
                for runner in self._running.values():
                    await OffsetStore(runner.claim).release(session)
