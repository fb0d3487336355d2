"""One run: servers, the network, applications, workers and an operator, under one plan."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from random import Random

import offsets
from journal import ConnectionSettings, PollPacing, ProjectionsError
from offsets import ParkedSources
from projections import Backoff, RunSettings
from tests.simulation.application import load_history, simulated, write
from tests.simulation.arrangements import LEASE, Apart, Foreign, InlineToo, Part, Together
from tests.simulation.driver import SimulatedDatabase
from tests.simulation.faults import Faults
from tests.simulation.groups import Groups
from tests.simulation.history import Event
from tests.simulation.loop import Host, Livelock, SimulatedLoop, simulated_loop
from tests.simulation.network import Link, Network
from tests.simulation.plan import BUSY, Plan, Write
from tests.simulation.postgres.backend import Answer
from tests.simulation.postgres.errors import ServerError
from tests.simulation.postgres.server import Server
from tests.simulation.receivers import Request
from tests.simulation.seams import surroundings
from tests.simulation.webhooks import Webhooks
from tests.simulation.workers import Worker, Workers

ARRANGEMENTS: dict[str, type[Together]] = {
    "together": Together, "inline": InlineToo, "apart": Apart, "foreign": Foreign, "groups": Groups,
    "webhooks": Webhooks,
}  # fmt: skip
_AFTERWARDS = 0.5
"""Seconds for which a run goes on when all is handled: nothing more may happen then."""
_LOOK_EVERY = 0.1
_ALONE = 0.5
"""The share of runs in which nobody is started once faults are over, where somebody is left who can do it all."""
_WAITS_FOR_A_POLL = 1.0
"""Seconds after which an application waits no longer."""


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
        self.places = ARRANGEMENTS[plan.arrangement](
            loop, plan, simulated(plan, lambda: self.healed), lambda: self.healed
        )
        self.network = Network(loop, Random(f"network {plan.seed}"), plan.far)
        self.operator = Host("operator")
        self.operators_database: SimulatedDatabase
        self.workers = Workers(loop, self.network, self._work, self.tell)
        self.faults_are_over = False
        self.healed = False
        self._free_since = inf
        """Since when nothing has been in the way of workers, once all faults are over."""
        self.lost: set[Event] = set()
        """What was committed, and is gone with the last commits of a server."""
        self.acknowledged: list[Event] = []
        self._next_poll: asyncio.Future[None] | None = None
        self.died: list[str] = []
        self.faults = Faults(self)
        self.places.follow(self._watch, self.tell)
        self.network.watch = self._watch
        self.network.trace = self._trace_statement if trace else self.network.trace

    # The trace

    def tell(self, what: str) -> None:
        """Add a line to the trace."""
        if self._traces:
            self.lines.append(f"{self.loop.time():10.6f} {what}")

    def _trace_statement(self, link: Link, step: str, result: Answer | ServerError) -> None:
        said = (
            f"refused: {result.sqlstate} {result}"
            if isinstance(result, ServerError)
            else f"{result.count} rows"
        )
        where = "" if link.server is self.places.read_side else " of the journal"
        self.tell(f"{link.client} on {link.backend.host}{where}: {step}: {said}")

    def _watch(self, link: Link | Request, step: str, moment: str) -> ServerError | bool:
        if (step, moment) == ("poll_writers", "done") and self._next_poll is not None:
            self._next_poll, polled = None, self._next_poll
            polled.set_result(None) if not polled.done() else None
        if (step, moment) == (self.places.watched, "done"):
            self.died += self.places.passed_over()
        return self.faults.watch(link, step, moment)

    # Workers

    def _settings(self) -> RunSettings:
        def seconds(number: float) -> timedelta:
            return timedelta(seconds=number)

        settings = RunSettings(
            lease=seconds(LEASE), heartbeat=seconds(0.4), read_timeout=seconds(2), handler_timeout=seconds(3),
            pacing=PollPacing(seconds(0.06), seconds(0.4)), save_horizon_every=seconds(0.7), evict_every=seconds(0.9),
            page_bytes=self.plan.page_bytes, restart=Backoff(*map(seconds, self.plan.pauses)), cache_size=6,
        )  # fmt: skip
        # Not validated: of a run of seconds, a minute would never be over.
        return settings.model_copy(update={"retention": timedelta(minutes=self.plan.retention)})

    def connect(self, server: Server, connections: int) -> SimulatedDatabase:
        """A pool of a process."""
        settings = ConnectionSettings(
            max_connections=connections, pool_timeout=timedelta(seconds=3), listen_retry=timedelta(seconds=1)
        )
        return SimulatedDatabase(self.network, server, settings)

    async def _work(self, worker: Worker, take_over: bool) -> None:
        database = self.connect(self.places.read_side, self.plan.connections)
        first, *others = self.places.parts(worker.number, database, self.connect, self._settings())
        if not others:
            await self._again_and_again(worker, first, take_over)
            return
        async with asyncio.TaskGroup() as group:
            for part in (first, *others):
                group.create_task(self._again_and_again(worker, part, take_over))

    async def _again_and_again(self, worker: Worker, part: Part, take_over: bool) -> None:
        while not worker.stop.is_set():
            try:
                await part(worker.stop, take_over)
            except ProjectionsError as error:  # whoever runs a worker starts it again
                self.tell(f"{worker.host} ends: {error!r}")
                if self.loop.time() - self._free_since > self.places.lease:
                    self.died.append(f"{worker.host} ended, and no fault is left: {error!r}")
                await asyncio.sleep(0.3)
            except Exception as error:
                self.died.append(f"{worker.host} ended: {error!r}")
                raise

    # Servers

    def restart_server(self, server: Server, *, lost: int, after: float, promoted: bool = False) -> None:
        """Crash, and start again with all but some of the last commits."""
        if not server.up:
            return
        place = max(server.place - lost, self.places.first_place)
        server.crash()
        self.loop.at(self.loop.time() + after, self.loop.world, self._server_starts, server, place, promoted)

    def _server_starts(self, server: Server, place: int, promoted: bool) -> None:
        before = set(self.places.committed())
        server.start(place, promoted=promoted)
        self.lost |= before.difference(self.places.committed())
        self.tell(f"the server starts at commit {place}, on timeline {server.timeline}")

    # Applications

    async def pause(self, seconds: float) -> None:
        """Wait."""
        if seconds > 0:
            await asyncio.sleep(seconds)

    async def polled(self) -> None:
        """Wait until a worker has asked who writes."""
        if self._next_poll is None:
            self._next_poll = self.loop.create_future()
        await asyncio.wait([self._next_poll], timeout=_WAITS_FOR_A_POLL)

    async def _write_history(self) -> None:
        for number, one in enumerate(self.plan.history):
            await self._write(len(self.plan.writes) + number, one)
        if self.plan.history:
            await asyncio.sleep(60 * self.plan.retention / 2)

    async def _write(self, number: int, one: Write) -> None:
        database = self.connect(self.places.journal, 1)
        if one.ends == "import":
            self.acknowledged += await load_history(self, database, one)
        else:
            self.acknowledged += await write(self, database, one, f"w{number}")
        await database.close()
        if one.ends == "prepare":
            await self.pause(one.holds)
            await self._resolve(f"w{number}")

    async def _resolve(self, gid: str) -> None:
        how = "COMMIT" if int(gid[1:]) % 3 else "ROLLBACK"
        with suppress(ServerError, OSError):
            link = await self.network.connect(self.places.journal)
            try:
                await link.call(f"{how} PREPARED '{gid}'")
            finally:
                link.close()

    # The run

    async def main(self) -> str | None:
        """Run the plan; returns what went wrong."""
        await self.places.set_up()
        self.operators_database = self.connect(self.places.read_side, 3)
        await self.loop.start(Host("application before"), self._write_history())
        for number in range(self.plan.workers):
            self.workers.start(number)
        for number, one in enumerate(self.plan.writes):
            self.loop.at(one.at, Host(f"application {number}"), self._begin_to_write, number, one)
        await asyncio.sleep(BUSY + 0.01)
        await self._heal()
        return await self._settle() or await self.workers.end() or self._check()

    def _begin_to_write(self, number: int, one: Write) -> None:
        task = self.loop.create_task(self._write(number, one))
        assert task is not None

    async def _heal(self) -> None:
        """End all faults; what they have left behind is for the workers to mend."""
        self.faults_are_over = True
        self.faults.stop()
        self.network.heal()
        while not all(server.up for server in self.places.servers):
            await asyncio.sleep(_LOOK_EVERY)
        await self.workers.heal(self._goes_on_without_others)
        self.healed = True
        self.tell("all faults are over")
        self.loop.start(self.operator, self._operate())

    async def _operate(self) -> None:
        """Resume, end what is prepared, and have what is parked tried again; what fails is done again."""
        while True:
            with suppress(ProjectionsError, OSError, TimeoutError):
                async with self.operators_database.session() as session:
                    await offsets.set_paused(session, self.places.name, paused=False)
                    await ParkedSources(session).retry(self.places.name)
                for gid in list(self.places.journal.prepared):
                    await self._resolve(gid)
                await self.places.operate(self.operators_database)
            await asyncio.sleep(0.5)

    def _goes_on_without_others(self, places: Collection[int]) -> bool:
        """In half of the runs, those who are left have to do it alone."""
        return Random(f"end {self.plan.seed}").random() < _ALONE and self.places.goes_on_without(places)

    async def _settle(self) -> str | None:
        """Progress: while nothing is in the way, two leases never pass in which nothing of what is left is handled."""
        began = since = self._free_since = self.loop.time()
        handled = self.places.progress()
        while not self.died:
            await asyncio.sleep(_LOOK_EVERY)
            if self._is_over() and not self._problems():
                await asyncio.sleep(_AFTERWARDS)
                if self._is_over() and not self._check():
                    return None
            now, before, handled = self.loop.time(), handled, self.places.progress()
            if self._is_in_the_way():
                self._free_since = since = now
            if handled != before:
                since = now
            if now - since > 2 * self.places.lease:
                return f"standstill: nothing was in the way of anybody for {now - since:.1f} s, and {self._left()}"
            if now - began > self.places.settles:
                return f"not all is handled {self.places.settles:g} s after the last fault: {self._left()}"
        return self.died[0]

    def _left(self) -> str:
        if problems := self._problems():
            return problems[0]
        if unheld := self.places.unheld():
            return f"nobody holds the ranges from {unheld}"
        return "transactions are still open, or sources wait"

    def _is_writing(self) -> bool:
        writing = any(link.client.name.startswith("application") for link in self.network.links)
        return writing or bool(self.places.journal.prepared)

    def _is_in_the_way(self) -> bool:
        """Whether what faults have left behind still keeps workers from handling all, through no fault of theirs."""
        return self._is_writing() or self.network.is_disturbed or self.places.not_due()

    def _is_over(self) -> bool:
        """Whether nobody writes, no source waits (of what was lost, some may come again), and each range is held."""
        return not self._is_writing() and not self.places.waiting() and not self.places.unheld()

    # What must hold

    def _problems(self) -> list[str]:
        return self.places.problems(self.lost)

    def _check(self) -> str | None:
        found = [*self.died, *self._problems()]
        kept = {*self.places.committed(), *self.lost}
        found += [f"{one} was committed and is not there" for one in set(self.acknowledged) - kept]
        if ranges := self.places.untiled():
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
            outcome.committed = len(world.places.committed())
            outcome.faults, outcome.hit = world.faults.done, world.faults.hit
    finally:
        gc.enable()
    return outcome
