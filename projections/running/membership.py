"""
A process among the others that run the same projections: it says that it is alive, and learns what is its own.

The database is what all agree on: each heartbeat assigns ranges where that is due, and returns those that this process
owns. Nothing is negotiated between processes, and nothing depends on their clocks.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import timedelta

import offsets
from journal import DatabaseWentBack, KeptSession, OtherSchemaVersion, ProjectionsError, SchemaError, Session
from journal.schema import check_version
from journal.service import Service, log_failure
from journal.tasks import running
from projections.running.observer import Pulse
from projections.running.process import Process
from projections.running.ranges import Ranges

log = logging.getLogger("projections")

_SOON = 0.05
"""Seconds to the next heartbeat when a range is to come from another worker; doubled while it does not."""
_OFTEN = 0.01
"""Seconds between looks at what this process itself is about to end."""
_GOODBYE = 2
"""Seconds that leaving may take at the end: a database that does not answer learns it from the lease."""


class Membership:
    """Takes part, from joining to leaving."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._settings = process.settings
        self._ranges: dict[int, Ranges] = {}
        self._session = KeptSession(process.database.session)
        self._service = Service(
            "heartbeat", self._step, restart=self._restart, failed=self._failed, goes_on=self._goes_on
        )
        process.changed = self._service.wake
        self._alive_at = asyncio.get_running_loop().time()
        self._until_caught_up = False
        self._soon = _SOON
        self._idle = False

    def add(self, ranges: Ranges) -> None:
        """Run one more projection, from the next heartbeat on."""
        self._ranges[ranges.projection_id] = ranges

    async def run(self, *, until_caught_up: bool) -> None:
        """
        Take part until the process stops, or until all from before the start is handled; then finish the current work.

        Args:
            until_caught_up: End then; else only when the process stops.

        Raises:
            OtherSchemaVersion: The schema was upgraded, or an older one restored: this code does not fit it any more.
        """
        self._until_caught_up = until_caught_up
        chores = [self._storing().run()] if until_caught_up else []
        try:
            async with running(*chores):
                await self._service.run(self._process.stop)
        except BaseException:
            await self._drop_all()
            raise
        finally:
            await self._session.close_within(_GOODBYE)  # a statement of it may have been cancelled, or wait
            with suppress(ProjectionsError, TimeoutError):
                async with asyncio.timeout(_GOODBYE):
                    await offsets.leave(await self._session.get(), self._process.worker.owner)
            await self._session.close_within(_GOODBYE)

    async def _drop_all(self) -> None:
        """End what runs, before the ranges are free: no handler is to go on alongside that of the next owner."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.lease.total_seconds()):
                while self._is_running:
                    for ranges in self._ranges.values():
                        ranges.drop()
                    await asyncio.sleep(_OFTEN)

    @property
    def _is_running(self) -> bool:
        return not all(ranges.idle for ranges in self._ranges.values())

    @property
    def _is_caught_up(self) -> bool:
        begun = all(read.until is not None for read in self._process.logs)
        return self._until_caught_up and begun and all(ranges.caught_up() for ranges in self._ranges.values())

    def _goes_on(self) -> bool:
        return self._is_running or not self._service.stopping.is_set()

    async def _step(self) -> float:
        """
        Send a heartbeat and do what it says; returns when another should follow.

        At the end it has the ranges assigned to others while the last batches end: they begin as soon as each is
        released.
        """
        if self._is_caught_up:
            self._service.stop()
        leaving = self._service.stopping.is_set()
        try:
            # A network that is cut says nothing: a heartbeat without an answer must end with the lease.
            async with asyncio.timeout(self._patience()):
                soon = await self._beat(leaving=leaving)
        except (ProjectionsError, TimeoutError) as error:
            await self._session.close_within(1)
            if isinstance(error, SchemaError):
                await self._look_at_version()
            raise
        finally:
            for ranges in self._ranges.values() if leaving else ():
                ranges.stop()  # also what an answer from before a release has begun again
        if self._is_caught_up and not leaving:
            return 0
        every = self._settings.heartbeat.total_seconds()
        pause, self._soon = (min(self._soon, every), 2 * self._soon) if soon else (every, _SOON)
        return pause

    def _restart(self, failures: int) -> timedelta:
        """Later and later, but often enough to keep the lease once the database is back."""
        every = self._settings.heartbeat
        return max(every, min(every * failures, self._settings.lease / 5))

    def _storing(self) -> Service:
        """Stores what is handled as soon as that is all: the heartbeat that follows shows it, here and elsewhere."""
        return Service("horizon", self._store, restart=lambda _: self._settings.heartbeat)

    async def _store(self) -> float:
        handled = [ranges for ranges in self._ranges.values() if ranges.to_be_stored()]
        if handled and not self._service.failures:
            for ranges in handled:
                await ranges.save_horizons()
            self._service.wake()
        return _OFTEN

    async def _look_at_version(self) -> None:
        """A heartbeat calls what is not there: the schema is of another version, or is being restored."""
        try:
            async with asyncio.timeout(_GOODBYE):
                await check_version(await self._session.get())
        except OtherSchemaVersion:
            raise
        except (ProjectionsError, TimeoutError):
            await self._session.close_within(_GOODBYE)

    def _patience(self) -> float:
        half = self._settings.lease.total_seconds() / 2
        left = self._alive_at + 2 * half - asyncio.get_running_loop().time()
        return min(half, left) if left > 0 else half

    async def _beat(self, *, leaving: bool) -> bool:
        loop, session, soon = asyncio.get_running_loop(), await self._session.get(), False
        sent_at, asked = loop.time(), dict(self._ranges)  # more may be added meanwhile
        told = await offsets.heartbeat(
            session,
            self._process.worker,
            self._settings.lease,
            {number: ranges.registered for number, ranges in asked.items()},
            self._process.beats,
            leaving=leaving,
        )
        self._alive_at = sent_at
        self._process.observer.heartbeat(
            Pulse(self._process.worker.owner, sent_at, self._settings.lease, self._process.monitor.blocked)
        )
        went_back = self._process.beats.went_back
        if went_back:
            for ranges in asked.values():
                ranges.start_again(DatabaseWentBack("the database has lost a heartbeat of this worker"))
        for heartbeat in told:
            self._ranges[heartbeat.projection_id].told(heartbeat, sent_at, went_back=went_back)
            soon = soon or heartbeat.uneven or heartbeat.awaited > 0
        for gone in asked.keys() - {heartbeat.projection_id for heartbeat in told}:
            if self._ranges[gone].deleted(went_back=went_back):
                await self._register_again(session, gone)
                soon = True
        self._tell_whether_idle(idle=bool(told) and not (leaving or soon or any(one.held for one in told)))
        return soon

    async def _register_again(self, session: Session, gone: int) -> None:
        """The database went back to before a projection was made; its number may be another's now."""
        ranges = self._ranges[gone]
        await ranges.register(session)
        self._ranges = {ranges.projection_id: ranges for ranges in self._ranges.values()}

    def _tell_whether_idle(self, *, idle: bool) -> None:
        if idle and not self._idle:
            log.info(
                "this worker has no range: other workers hold them all, or run another version",
                extra={"action": "idle"},
            )
        self._idle = idle

    def _failed(self, error: Exception) -> None:
        if isinstance(error, OtherSchemaVersion) or not isinstance(error, ProjectionsError | TimeoutError):
            raise error
        log_failure("heartbeat", error, action="heartbeat_failed")
        if asyncio.get_running_loop().time() - self._alive_at >= self._settings.lease.total_seconds():
            # Others may run the ranges by now. What is in flight here could not be committed; effects outside the
            # database could happen twice.
            running = [ranges for ranges in self._ranges.values() if not ranges.idle]
            for ranges in running:
                ranges.drop()
            if running:
                log.error(
                    "the lease has ended without an answer: all ranges are dropped",
                    extra={"action": "lease_ended"},
                )
