"""One claimed range, kept running: started again after failures, until it is given up or another's."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import offsets
from journal import (
    DatabaseError,
    DatabaseUnavailable,
    DatabaseWentBack,
    JournalUnavailable,
    ProjectionsError,
    SchemaError,
)
from journal.database import Fault, fault_of, sqlstate_of
from journal.tasks import end, happens
from offsets import Claim, OffsetStore, Progress, RangeLost, TransactionEnded
from projections.defining import Projection, TableError
from projections.errors import ProjectionFailed, said, storable
from projections.failing import Streak
from projections.running.process import Process
from projections.running.range_runner import RangeRunner
from projections.running.read_journal import ReadJournal
from projections.running.settings import pause_after
from projections.running.tracebacks import shown_trace

log = logging.getLogger("projections")

# Starting again would repeat the fault again and again, or worse: a handler that commits by itself repeats its effects.
_FATAL = (TransactionEnded, TableError)


class RangeSupervisor:
    """
    Keeps a range running.

    Args:
        process: The process.
        projection: The projection whose range is run.
        claim: The range.
        cache_size: How many sources' offsets to keep in memory.
        streak: Notices that sources fail alike, in all ranges of the projection here.
        read: The journal that it reads.
        paused: Begin paused, until it is resumed.
    """

    def __init__(
        self,
        process: Process,
        projection: Projection,
        claim: Claim,
        cache_size: int,
        streak: Streak,
        *,
        read: ReadJournal,
        paused: bool,
    ) -> None:
        self._process = process
        self._log = read
        self._projection = projection
        self._cache_size = cache_size
        self._streak = Streak(process.settings.alike_failures, streak)
        self._paused = paused
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._generation = read.poller.generation
        self._runner = self._new_runner(claim)
        self._claiming = False

    @property
    def progress(self) -> Progress:
        """How far the range is."""
        return self._runner.progress

    def holds(self, epoch: int) -> bool:
        """Whether an epoch that the database shows is the one that this range runs with, or is about to."""
        return self._claiming or epoch <= self._runner.claim.epoch

    def pause(self, *, paused: bool) -> None:
        """Pause after the current batch, or go on."""
        self._paused = paused
        self._runner.pause(paused=paused)

    def decided(self) -> None:
        """Somebody has decided about a parked source of the projection."""
        self._runner.decided()

    def start_again(self, error: ProjectionsError, store: OffsetStore | None = None) -> None:
        """Drop what the range remembers, and begin again; see :meth:`RangeRunner.start_again`."""
        self._runner.start_again(error, store)

    def give_up(self) -> None:
        """Finish the current batch, store how far it is, and release the range."""
        self._ending.set()
        self._runner.stop()

    def drop(self) -> None:
        """It is another's: whatever it is doing cannot be committed any more."""
        self.give_up()  # for a cancellation that gets lost: asyncio.wait_for of Python 3.11 returns what is just there
        self._cancel()

    def _cancel(self) -> None:
        # Once: a second cancellation would end what the first has begun, and a connection would never be given back.
        if self._task is not None and not self._task.cancelling():
            self._task.cancel()

    async def run(self) -> None:
        """
        Run until :meth:`give_up` or :meth:`drop`, or until the range is found to be another's.

        Raises:
            TransactionEnded, TableError: What starting again cannot heal.
        """
        self._task = asyncio.create_task(self._run())
        try:
            await asyncio.wait([self._task])
        except asyncio.CancelledError:
            self.drop()
            await end(self._task)
            raise
        if not self._task.cancelled():
            self._task.result()

    async def _run(self) -> None:
        try:
            await self._keep()
        except RangeLost as error:
            log.warning("%s: %s", self._projection.name, error, extra=self._extra("range_lost"))
        else:
            await self._release()

    async def _keep(self) -> None:
        """Run; a failure starts it again after a pause, from its stored offset."""
        failures, warned = 0, False
        while not self._ending.is_set():
            runner = self._runner
            begun_at = runner.progress.horizon
            try:
                await self._run_once(runner)
            except (RangeLost, *_FATAL):
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the range starts again
                moved = runner.progress.horizon > begun_at
                failures = 1 if moved else failures + 1
                self._process.pages.failed(error)
                if isinstance(error, DatabaseWentBack) and (moved or not warned):
                    warned = True
                    self._tell_went_back(runner, error)
                else:
                    await self._pause_after(runner, error, failures)
                await self._claim_again(runner)

    async def _run_once(self, runner: RangeRunner) -> None:
        name, slices = self._projection.name, runner.claim.slices
        self._process.observer.started(name, slices)
        log.info("%s: slices %s started", name, slices, extra=self._extra("started"))
        try:
            await runner.run()
        finally:
            self._process.observer.stopped(name, slices)
            log.info("%s: slices %s stopped", name, slices, extra=self._extra("stopped"))

    def _tell_went_back(self, runner: RangeRunner, error: DatabaseWentBack) -> None:
        """The first time there is nothing to wait for."""
        name, slices = self._projection.name, runner.claim.slices
        self._process.observer.went_back(name, slices, error)
        self._process.tables.forget()
        self._process.read_models.forget()
        log.error(
            "%s: slices %s: %s; what was remembered is dropped, starting again as it is stored", name, slices, error,
            extra=self._extra("went_back"),
        )  # fmt: skip

    async def _pause_after(self, runner: RangeRunner, error: Exception, failures: int) -> None:
        name, slices = self._projection.name, runner.claim.slices
        self._process.observer.failed(name, slices, error)
        of_the_database = fault_of(error) is Fault.DATABASE
        delay = pause_after(self._process.settings, failures, of_the_database=of_the_database)
        text = self._said(error)
        log.error(
            "%s: slices %s failed, starting again in %.1f s: %s", name, slices, delay.total_seconds(), text,
            # What the library did not foresee is shown whole.
            exc_info=None if isinstance(error, ProjectionsError) else shown_trace(error),
            extra=self._extra("failed"),
        )  # fmt: skip
        with suppress(ProjectionsError):  # the database may be what has failed
            async with self._process.database.session() as session:
                await OffsetStore(runner.claim).failed(session, failures, storable(text, 2000), delay)
        await happens(self._ending, delay.total_seconds())

    async def _claim_again(self, before: RangeRunner) -> None:
        """
        Claim it again, with the offset as the database has it: the outcome of the last COMMIT may be unknown.

        The horizon is the lower one of the database's and of the runner before: this one may have noticed that the
        clock went back, and not have stored it.
        """
        self._claiming = True
        while not self._ending.is_set():
            try:
                async with self._process.database.session() as session:
                    again = await offsets.claim_again(session, before.claim)
            except (
                DatabaseError,
                SchemaError,
            ) as error:  # a standby is read-only; a restore drops the schema first
                log.error("%s", error, extra=self._extra("database_unavailable"))  # noqa: TRY400 - it says where
                await happens(self._ending, self._process.settings.heartbeat.total_seconds())
            else:
                if again is None:
                    raise RangeLost.of(before.claim.slices)
                horizon = min(again.horizon, before.progress.horizon)
                self._runner = self._new_runner(again._replace(horizon=horizon))
                break
        self._claiming = False

    def _new_runner(self, claim: Claim) -> RangeRunner:
        poller = self._log.poller
        if (back_to := poller.back_to(self._generation)) is not None:
            # The horizon is of another server's clock, which may have been ahead of the one that stamps events now.
            claim = claim._replace(horizon=min(claim.horizon, back_to))
        self._generation = poller.generation
        runner = RangeRunner(
            self._projection, claim, self._process, self._cache_size, self._streak, read=self._log
        )
        runner.pause(paused=self._paused)
        return runner

    async def _release(self) -> None:
        store, horizon, import_id = self._runner.progress
        try:
            async with self._process.database.session() as session:
                session.patience = self._process.settings.read_timeout
                released = await store.release(session, horizon, import_id)
        except ProjectionsError as error:  # the next heartbeat shows it as ours, and it is released then
            log.warning(
                "slices %s could not be given back; others take them when the lease ends: %s",
                store.claim.slices, error,
                extra=self._extra("release_failed"),
            )  # fmt: skip
        else:
            if not released:  # likewise, if it is ours
                log.info(
                    "slices %s need not be given back: a rescale or another worker was faster, or the database went "
                    "back in time; nothing is lost", store.claim.slices, extra=self._extra("release_overtaken"),
                )  # fmt: skip

    def _said(self, error: Exception) -> str:
        """An error, and of which of two databases it is."""
        of_read_side = isinstance(error, DatabaseUnavailable) and not isinstance(error, JournalUnavailable)
        where = "read side: " if of_read_side and self._process.apart else ""
        return f"{where}{_said(error)}"

    def _extra(self, action: str) -> dict[str, object]:
        return {
            "action": action,
            "projection": self._projection.name,
            "slices": str(self._runner.claim.slices),
        }


def _said(error: Exception) -> str:
    """An error, and what is to be done where no event is at fault and only somebody who fixes it can help."""
    text = said(error)
    fault = fault_of(error)
    if (
        isinstance(error, ProjectionFailed)
        or sqlstate_of(error) is None
        or fault not in {Fault.BATCH, Fault.PROJECTION}
    ):
        return text
    return f"{text}. No event is at fault, and none is set aside: {fault.value}"
