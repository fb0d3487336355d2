"""One run: the server, the network, applications, workers and an operator, under one plan."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

import offsets
from journal import ConnectionSettings, PollPacing, ProjectionsError
from offsets import ParkedSources
from projections import Backoff, RunSettings, run
from tests.simulation.application import NAME, simulated, write
from tests.simulation.driver import SimulatedDatabase
from tests.simulation.faults import Faults
from tests.simulation.history import Event, problems
from tests.simulation.loop import Host, Livelock, SimulatedLoop, simulated_loop
from tests.simulation.network import Network
from tests.simulation.plan import BUSY, Plan, Write
from tests.simulation.postgres.backend import Answer, Backend
from tests.simulation.postgres.errors import ServerError
from tests.simulation.postgres.server import Server
from tests.simulation.postgres.storage import Snapshot, Transaction
from tests.simulation.seams import surroundings

SETTLES = 40.0
"""Seconds after the last fault in which everything must be handled."""
_AFTERWARDS = 0.5
"""Seconds for which a run goes on when all is handled: nothing more may happen then."""
_STOPS = 15.0
"""Seconds that workers may take to stop: what a process that hangs has locked is free after ten."""
_LOOK_EVERY = 0.1


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    plan: Plan
    failure: str | None = None
    events: int = 0
    """Callbacks that have run."""
    committed: int = 0
    took: float = 0.0
    """Seconds of virtual time."""
    faults: Counter[str] = field(default_factory=Counter)
    hit: Counter[tuple[str, str]] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Worker:
    """A process that runs the projection, and those that come after it in its place."""

    number: int
    host: Host
    stop: asyncio.Event
    task: asyncio.Task[None] | None = None
    hangs: bool = False
    """It is frozen for ever: nobody waits for it."""
    leaves: bool = False
    """It was asked to end."""


class World:
    """
    Everything that is in a run.

    Args:
        loop: Runs it.
        plan: What happens from outside.
        trace: Keep a line for each thing that happens.
    """

    def __init__(self, loop: SimulatedLoop, plan: Plan, *, trace: bool) -> None:
        self.loop = loop
        self.plan = plan
        self.lines: list[str] = []
        self._traces = trace
        self.server = Server(loop, Random(f"server {plan.seed}"))
        self.network = Network(loop, Random(f"network {plan.seed}"), self.server)
        self.operator = Host("operator")
        self.operators_database: SimulatedDatabase
        self.workers: dict[int, Worker] = {}
        self.faults_are_over = False
        self.healed = False
        self.lost_commits = False
        self.acknowledged: list[Event] = []
        self._projection = simulated(plan, lambda: self.healed)
        self._starts = 0
        self.died: list[str] = []
        self.faults = Faults(self)
        self.network.watch = self.faults.watch
        self.network.trace = self._trace_statement if trace else self.network.trace

    # The trace

    def tell(self, what: str) -> None:
        """Add a line to the trace."""
        if self._traces:
            self.lines.append(f"{self.loop.time():10.6f} {what}")

    def _trace_statement(self, host: Host, backend: Backend, step: str, result: Answer | ServerError) -> None:
        said = (
            f"refused: {result.sqlstate} {result}"
            if isinstance(result, ServerError)
            else f"{result.count} rows"
        )
        self.tell(f"{host} on {backend.host}: {step}: {said}")

    # Workers

    def _settings(self) -> RunSettings:
        def seconds(number: float) -> timedelta:
            return timedelta(seconds=number)

        return RunSettings(
            lease=seconds(1.2), heartbeat=seconds(0.4), read_timeout=seconds(2), handler_timeout=seconds(3),
            pacing=PollPacing(seconds(0.06), seconds(0.4)), save_horizon_every=seconds(0.7), evict_every=seconds(0.9),
            retention=timedelta(minutes=self.plan.retention), page_bytes=self.plan.page_bytes,
            restart=Backoff(seconds(0.05), seconds(0.5)), cache_size=6,
        )  # fmt: skip

    def start_worker(self, number: int, *, take_over: bool = False) -> None:
        """Start a process in the place of a worker."""
        self._starts += 1
        host = Host(f"worker {number}.{self._starts}")
        worker = self.workers[number] = Worker(number, host, asyncio.Event())
        worker.task = self.loop.start(host, self._work(worker, take_over=take_over))
        self.tell(f"{host} starts")

    async def _work(self, worker: Worker, *, take_over: bool) -> None:
        settings = ConnectionSettings(
            max_connections=self.plan.connections,
            pool_timeout=timedelta(seconds=3),
            listen_retry=timedelta(seconds=1),
        )
        database = SimulatedDatabase(self.network, settings)
        while not worker.stop.is_set():
            try:
                await run(
                    database, self._projection, ranges=self.plan.ranges, settings=self._settings(), stop=worker.stop,
                    take_over=take_over,
                )  # fmt: skip
            except ProjectionsError as error:  # whoever runs a worker starts it again
                self.tell(f"{worker.host} ends: {error!r}")
                await asyncio.sleep(0.3)
            except Exception as error:
                self.died.append(f"{worker.host} ended: {error!r}")
                raise

    def host(self, number: int) -> Host:
        """The process that is in the place of a worker now."""
        return self.workers[number].host

    def worker_of(self, host: Host) -> int | None:
        """Whose place a process is in."""
        return next((number for number, worker in self.workers.items() if worker.host is host), None)

    def steps_of(self, number: int) -> list[str]:
        """What a worker is doing, by the statements that it waits for."""
        links = self.network.links_of(self.host(number)) if number in self.workers else []
        return sorted({link.step for link in links if link.step})

    def kill(self, number: int, *, silently: bool, again_after: float) -> None:
        """End a process at once; another one comes in its place."""
        if not self.host(number).dead:
            self.network.die(self.host(number), silently=silently)
            self.loop.at(self.loop.time() + again_after, self.loop.world, self._start_again, number)

    def hang(self, number: int, *, again_after: float) -> None:
        """Stop a process for ever, whose connections stay; another one comes in its place."""
        self.workers[number].hangs = self.host(number).frozen = True
        self.loop.at(self.loop.time() + again_after, self.loop.world, self._start_again, number)

    def freeze(self, number: int, seconds: float) -> None:
        """Stop a process for a while."""
        if self.workers[number].hangs:
            return
        host = self.host(number)
        host.frozen = True
        self.loop.at(self.loop.time() + seconds, self.loop.world, self._thaw, host)

    def _thaw(self, host: Host) -> None:
        if any(worker.host is host and worker.hangs for worker in self.workers.values()):
            return
        host.frozen = False
        self.loop.wake(host)
        self.tell(f"{host} goes on")

    def stop(self, number: int, *, again_after: float) -> None:
        """Ask a process to end in order; another one comes in its place."""
        worker = self.workers[number]
        worker.leaves = True
        self.loop.at(self.loop.time(), worker.host, worker.stop.set)
        self.loop.at(self.loop.time() + 0.5 + again_after, self.loop.world, self._start_again, number)

    def _start_again(self, number: int) -> None:
        """Once it has ended; when all faults are over, whoever is missing has been started."""
        if self.faults_are_over:
            return
        if self._has_ended(number):
            self.start_worker(number)
        else:
            self.loop.at(self.loop.time() + 0.5, self.loop.world, self._start_again, number)

    def _has_ended(self, number: int) -> bool:
        worker = self.workers[number]
        return worker.host.dead or worker.hangs or (worker.task is not None and worker.task.done())

    def join(self, *, take_over: bool) -> None:
        """Start one more process."""
        self.start_worker(max(self.workers, default=0) + 1, take_over=take_over)

    # The server

    def restart_server(self, *, lost: int, after: float, promoted: bool = False) -> None:
        """Crash, and start again with all but some of the last commits."""
        if not self.server.up:
            return
        self.lost_commits |= lost > 0
        place = max(self.server.place - lost, 0)
        self.server.crash()
        self.loop.at(self.loop.time() + after, self.loop.world, self._server_starts, place, promoted)

    def _server_starts(self, place: int, promoted: bool) -> None:
        self.server.start(place, promoted=promoted)
        self.tell(f"the server starts at commit {place}, on timeline {self.server.timeline}")

    # Applications

    async def pause(self, seconds: float) -> None:
        """Wait."""
        if seconds > 0:
            await asyncio.sleep(seconds)

    async def _write(self, number: int, one: Write) -> None:
        database = SimulatedDatabase(self.network, ConnectionSettings(max_connections=1))
        self.acknowledged += await write(database, one, f"w{number}", self.pause)
        await database.close()
        if one.ends == "prepare":
            await self.pause(one.holds)
            await self._resolve(f"w{number}")

    async def _resolve(self, gid: str) -> None:
        how = "COMMIT" if int(gid[1:]) % 3 else "ROLLBACK"
        with suppress(ServerError, OSError):
            link = await self.network.connect()
            try:
                await link.call(f"{how} PREPARED '{gid}'")
            finally:
                link.close()

    # The run

    async def main(self) -> str | None:
        """Run the plan; returns what went wrong."""
        self.operators_database = SimulatedDatabase(self.network, ConnectionSettings(max_connections=3))
        for number in range(self.plan.workers):
            self.start_worker(number)
        for number, one in enumerate(self.plan.writes):
            self.loop.at(one.at, Host(f"application {number}"), self._begin_to_write, number, one)
        await asyncio.sleep(BUSY + 0.01)
        await self._heal()
        failure = await self._settle()
        return failure or await self._stop_all()

    def _begin_to_write(self, number: int, one: Write) -> None:
        task = self.loop.create_task(self._write(number, one))
        assert task is not None

    async def _heal(self) -> None:
        """End all faults; what they have left behind is for the workers to mend."""
        self.faults_are_over = True
        self.faults.stop()
        self.network.heal()
        while not self.server.up:
            await asyncio.sleep(_LOOK_EVERY)
        for number, worker in list(self.workers.items()):
            if worker.host.frozen:
                self._thaw(worker.host)
            if self._has_ended(number) or worker.leaves:
                await self._ended(worker)
                self.start_worker(number)
        self.healed = True
        self.tell("all faults are over")
        self.loop.start(self.operator, self._operate())

    async def _ended(self, worker: Worker) -> None:
        while not self._has_ended(worker.number):
            await asyncio.sleep(_LOOK_EVERY)

    async def _operate(self) -> None:
        """Resume, end what is prepared, and have what is parked tried again; what fails is done again."""
        while True:
            with suppress(ProjectionsError, OSError, TimeoutError):
                async with self.operators_database.session() as session:
                    await offsets.set_paused(session, NAME, paused=False)
                    await ParkedSources(session).retry(NAME)
                for gid in list(self.server.prepared):
                    await self._resolve(gid)
            await asyncio.sleep(0.5)

    async def _settle(self) -> str | None:
        until = self.loop.time() + SETTLES
        while self.loop.time() < until and not self.died:
            await asyncio.sleep(_LOOK_EVERY)
            if self._is_over() and not self._problems():
                await asyncio.sleep(_AFTERWARDS)
                return self._check()
        found = self.died or self._problems() or ["transactions are still open"]
        return (
            f"not all is handled {SETTLES:g} s after the last fault: {found[0]}"
            if not self.died
            else found[0]
        )

    def _is_over(self) -> bool:
        """Whether nobody writes any more."""
        writing = any(link.client.name.startswith("application") for link in self.network.links)
        return not writing and not self.server.prepared

    async def _stop_all(self) -> str | None:
        for worker in self.workers.values():
            self.loop.at(self.loop.time(), worker.host, worker.stop.set)
        until = self.loop.time() + _STOPS
        while self.loop.time() < until and not all(map(self._has_ended, self.workers)):
            await asyncio.sleep(_LOOK_EVERY)
        if left := [
            str(worker.host) for number, worker in self.workers.items() if not self._has_ended(number)
        ]:
            return f"{', '.join(left)} did not stop within {_STOPS:g} s"
        return self._check()

    # What must hold

    def _rows(self, table: str) -> Any:
        return self.server.tables[table].rows(Snapshot(self.server.place, Transaction("0/0")))

    def committed(self) -> list[Event]:
        """What is in the log."""
        return [(row["source_id"], row["seq_nr"]) for _, row in self._rows("events")]

    def _problems(self) -> list[str]:
        table = self.server.tables["handled"]
        placed = sorted((table.newest(key).made_by.place, key, row) for key, row in self._rows("handled"))  # type: ignore[union-attr]
        return problems(self.committed(), [(row["source_id"], row["seq_nr"]) for _, _, row in placed])

    def _check(self) -> str | None:
        found = [*self.died, *self._problems()]
        if not self.lost_commits:
            found += [
                f"{one} was committed and is not there"
                for one in set(self.acknowledged) - set(self.committed())
            ]
        ranges = sorted((row["min_slice"], row["max_slice"]) for _, row in self._rows("projection_ranges"))
        if [first for first, _ in ranges] != [0, *(last + 1 for _, last in ranges[:-1])] or ranges[-1][
            1
        ] != 1023:
            found.append(f"the ranges do not tile the slices: {ranges}")
        return found[0] if found else None


def simulate(plan: Plan, *, trace: bool = False) -> Outcome:
    """Run a plan. The same plan gives the same outcome, down to each line of the trace."""
    choices = Random(f"schedule {plan.seed}")
    outcome = Outcome(plan)
    gc.disable()
    try:
        with surroundings(choices), simulated_loop(choices) as loop:
            world = World(loop, plan, trace=trace)
            try:
                outcome.failure = loop.run_until_complete(world.main())
            except Livelock as error:
                outcome.failure = str(error)
            for context in loop.errors:
                outcome.failure = outcome.failure or f"{context['message']}: {context.get('exception')!r}"
            outcome.events, outcome.took, outcome.trace = loop.steps, loop.time(), world.lines
            outcome.committed = len(world.committed())
            outcome.faults, outcome.hit = world.faults.done, world.faults.hit
    finally:
        gc.enable()
    return outcome
