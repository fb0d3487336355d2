"""
The ranges of one projection that this process holds: begun, given up and dropped as heartbeats say.

Of a projection that reads several journals, those of one of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import offsets
from journal import DatabaseError, DatabaseUnavailable, ProjectionsError, Session, SliceRange
from journal.service import Service
from offsets import Heartbeat, Held, Progress, Registered
from projections.defining import Projection
from projections.failing import Streak
from projections.running.process import Process
from projections.running.range_supervisor import RangeSupervisor
from projections.running.read_journal import ReadJournal

log = logging.getLogger("projections")


_LOCKED = "55P03"


class Ranges:
    """
    Runs what is held.

    Args:
        process: The process.
        projection: The projection whose ranges are run.
        projection_id: Its number in the database.
        group: The tasks of the process; a fault that starting again does not heal ends them all.
        cut: How its slices are cut where it has never run.
        read: The journal that they read.
    """

    def __init__(
        self,
        process: Process,
        projection: Projection,
        projection_id: int,
        group: asyncio.TaskGroup,
        cut: Sequence[SliceRange],
        *,
        read: ReadJournal,
    ) -> None:
        # Under the name of the part in all that is reported of it.
        self.projection = replace(projection, name=read.part_of(projection.name))
        self.projection_id = projection_id
        self.registered = Registered(projection.name, projection.version, projection.entity_types)
        self._cut = cut
        self._process = process
        self._log = read
        self._group = group
        self._keepers: dict[int, RangeSupervisor] = {}
        self._ended: dict[int, tuple[int, float]] = {}
        self._told: Heartbeat | None = None
        self._saved: set[Progress] = set()
        self._deleted = False
        # Until a heartbeat has shown the projection: where it is missing, it may have been lost as well as deleted.
        self._lost = True
        self._runs = projection.version, projection.entity_types
        self._streak = Streak(process.settings.alike_failures)

    @property
    def progress(self) -> list[Progress]:
        """What runs here, and how far it is."""
        return [keeper.progress for _, keeper in sorted(self._keepers.items())]

    @property
    def idle(self) -> bool:
        """Whether nothing runs here."""
        return not self._keepers

    def told(self, heartbeat: Heartbeat, sent_at: float, *, went_back: bool) -> None:
        """
        Do what a heartbeat says: what the database shows as ours is what is to run.

        Args:
            heartbeat: Its answer.
            sent_at: When it was sent, by the clock of the loop: of a range that has ended here since it knows nothing.
            went_back: Whether the answer said that the database went back in time.
        """
        # Heartbeats count from the start again: a database that goes back before the next one does not show it.
        self._deleted, self._lost = False, went_back
        self._compare(heartbeat)
        self._pause(paused=heartbeat.paused)
        self._told = heartbeat
        held = {one.claim.slices.min_slice: one for one in heartbeat.held}
        for min_slice, keeper in self._keepers.items():
            one = held.pop(min_slice, None)
            if one is None or not keeper.holds(one.claim.epoch):
                keeper.drop()
            elif not one.kept:
                keeper.give_up()
            elif heartbeat.decided:
                keeper.decided()
        for min_slice, one in held.items():
            epoch, ended_at = self._ended.get(min_slice, (-1, 0.0))
            if one.claim.epoch > epoch or sent_at > ended_at:
                self._begin(one, len(heartbeat.held))

    def start_again(self, error: ProjectionsError) -> None:
        """What the ranges remember is worth nothing: each begins again with what is stored."""
        for keeper in self._keepers.values():
            keeper.start_again(error)

    def stop(self) -> None:
        """Finish the current batches, and release all."""
        for keeper in self._keepers.values():
            keeper.give_up()

    def drop(self) -> None:
        """The lease has ended: everything may be another's."""
        for keeper in self._keepers.values():
            keeper.drop()

    def _compare(self, told: Heartbeat) -> None:
        """Say once when another version runs, or this one with other entity types: then this worker has no range."""
        runs, own = (told.version, told.entity_types), self.projection
        if runs == self._runs:
            return
        self._runs = runs
        if told.version != own.version:
            log.warning(
                "%s: version %d runs, and this code is version %d: it handles nothing. Start workers with version %d, "
                "or rebuild the projection with version %d",
                own.name, told.version, own.version, told.version, own.version,
                extra={"action": "other_version", "projection": own.name},
            )  # fmt: skip
        elif told.entity_types != own.entity_types:
            log.error(
                "%s: %s: it waits; raise its version and rebuild it, or run the code that was rebuilt",
                own.name, own.reads_others(told.entity_types),
                extra={"action": "other_entity_types", "projection": own.name},
            )  # fmt: skip

    def deleted(self, *, went_back: bool) -> bool:
        """
        The database does not know the projection any more.

        Returns:
            Whether it is to be registered again: the database went back to before that was done, or may have.
        """
        if went_back and not self._deleted:
            self._lost = True
        if not self._deleted and not self._lost:
            self._deleted = True
            log.error(
                "%s: deleted while it runs: nothing of it is handled until this process starts again",
                self.projection.name, extra={"action": "deleted", "projection": self.projection.name},
            )  # fmt: skip
        self.drop()
        return self._lost

    async def register(self, session: Session) -> None:
        """Make the projection known again; the next heartbeat gives it ranges."""
        p = self.projection
        self.projection_id = await register(self._process, self._log, session, p, self._cut)
        log.error(
            "%s: the database does not know it any more, because it went back in time: registered again, and it begins "
            "at the beginning", p.name, extra={"action": "registered_again", "projection": p.name},
        )  # fmt: skip

    def caught_up(self) -> bool:
        """
        Whether everything from before the start is handled in all ranges, as the last heartbeat has shown them.

        What is remembered here does not count: it may be lost with a range, or with the release of one.
        """
        told, until = self._told, self._log.until
        if until is None or told is None or told.awaited or told.uneven:
            return False
        elsewhere = told.others_horizon is None or told.others_horizon >= until
        return elsewhere and self._stored(until)

    def to_be_stored(self) -> bool:
        """Whether all from before the start is handled in the ranges of this process, and that is not stored yet."""
        if (until := self._log.until) is None:
            return False
        handled = all(keeper.progress.horizon >= until for keeper in self._keepers.values())
        return handled and self._told is not None and not self._stored(until)

    def _stored(self, until: datetime) -> bool:
        return self._told is not None and all(one.claim.horizon >= until for one in self._told.held)

    def chores(self) -> Iterable[tuple[Service, float]]:
        """What is to be done now and then, and in how many seconds first: storing horizons, evicting offsets."""
        settings = self._process.settings
        if self._log.log.is_by_number:
            yield _chore("watermark", settings.save_horizon_every, self._note_watermark)[0], 0.0
        yield _chore("horizon", settings.save_horizon_every, self.save_horizons)
        yield _chore("eviction", settings.evict_every, self._evict)

    async def save_horizons(self) -> None:
        """Store how far the ranges are that have moved since the last time."""
        progress = self.progress
        if moved := [one for one in progress if one not in self._saved]:
            async with self._process.database.session() as session:
                session.patience = self._process.settings.read_timeout
                refused = await self._save(session, moved)
            for one in moved:
                if one not in refused:
                    self._process.observer.progressed(self.projection.name, one.claim.slices, one.horizon)
        self._saved = set(progress)

    async def _save(self, session: Session, moved: Sequence[Progress]) -> Sequence[Progress]:
        try:
            refused = await offsets.save_horizons(session, self.projection_id, moved)
        except DatabaseUnavailable as error:  # nobody knows whether they are stored
            self._start_again((one, error) for one in moved)
            raise
        self._start_again(refused)
        return [one for one, _ in refused]

    def _start_again(self, refused: Iterable[tuple[Progress, ProjectionsError]]) -> None:
        for one, error in refused:
            if keeper := self._keepers.get(one.claim.slices.min_slice):
                keeper.start_again(error, one.store)

    async def _note_watermark(self) -> None:
        async with self._process.database.session() as session:
            await offsets.note_watermark(session, self._log.log, self._process.settings.retention)

    async def _evict(self) -> None:
        # One at a time, or those of many projections would keep the connections that their ranges need.
        async with self._process.evicting, self._process.database.session() as session:
            try:
                await offsets.evict(session, self.projection_id, self._process.settings.retention)
            except DatabaseError as error:
                if error.sqlstate != _LOCKED:
                    raise
                log.info("eviction: an import runs, next time", extra={"action": "eviction_put_off"})

    def _pause(self, *, paused: bool) -> None:
        if paused != (self._told is not None and self._told.paused):
            action, name = "paused" if paused else "resumed", self.projection.name
            log.info("%s: %s", name, action, extra={"action": action, "projection": name})
            for keeper in self._keepers.values():
                keeper.pause(paused=paused)

    def _begin(self, one: Held, held: int) -> None:
        if one.taken_from is not None:
            self._process.observer.taken_over(self.projection.name, one.claim.slices, one.taken_from)
            log.warning(
                "%s: slices %s taken over from %s, whose lease has ended",
                self.projection.name, one.claim.slices, one.taken_from,
                extra={"action": "taken_over", "projection": self.projection.name, "slices": str(one.claim.slices)},
            )  # fmt: skip
        assert self._told is not None  # noqa: S101 - a heartbeat has told
        cache_size = self._process.settings.cache_size // held // len(self._process.logs)
        keeper = RangeSupervisor(
            self._process, self.projection, one.claim, cache_size, self._streak,
            read=self._log, paused=self._told.paused,
        )  # fmt: skip
        if not one.kept:  # a release that failed, or an assignment that has changed since it was claimed
            keeper.give_up()
        self._keepers[one.claim.slices.min_slice] = keeper
        self._group.create_task(self._keep(one.claim.slices.min_slice, keeper))

    async def _keep(self, min_slice: int, keeper: RangeSupervisor) -> None:
        try:
            await keeper.run()
        finally:
            del self._keepers[min_slice]
            self._ended[min_slice] = keeper.progress.claim.epoch, asyncio.get_running_loop().time()
            self._process.changed()


async def register(
    process: Process, read: ReadJournal, session: Session, projection: Projection, cut: Sequence[SliceRange]
) -> int:
    """Make known that a process runs a projection on one of its journals; see :func:`offsets.register`."""
    number = await offsets.register(
        session, projection.name, projection.entity_types, cut, projection.version,
        journal=read.stored_name, journals=[one.stored_name for one in process.logs],
    )  # fmt: skip
    if projection.read_models:
        noted = [
            offsets.NotedReadModel(one.name, ".".join(one.table.qualified_name), one.sql)
            for one in projection.read_models
        ]
        await offsets.note_read_models(session, number, projection.version, noted)
    return number


def _chore(name: str, every: timedelta, work: Callable[[], Awaitable[None]]) -> tuple[Service, float]:
    seconds = every.total_seconds()

    async def step() -> float:
        await work()
        return seconds

    return Service(name, step, restart=lambda _: every), seconds
