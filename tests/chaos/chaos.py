"""Everything that may go wrong, at random moments from one seed, while events are appended and handled."""

from __future__ import annotations

import asyncio
import random
import re
import signal
import sys
import time
from asyncio.subprocess import Process
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import offsets
from journal import Database, Event, ProjectionsError, append
from projections.auditing import Audit, History, query
from tests.chaos.cluster import LOST, Cluster
from tests.chaos.faults import KINDS, Plan, end_prepared
from tests.chaos.worker import LEASE
from tests.fixtures.projections import Happened

ROOT = Path(__file__).parents[2]
SOURCES = [f"source {number}" for number in range(200)]
APPENDERS = 6
WORKERS = 4
CONNECTIONS = APPENDERS + 6

_RAISED = re.compile(r"^([a-z_.]+\.[A-Z]\w+): ", re.MULTILINE)
_AT_START = ("journal.errors.Database", "journal.errors.JournalUnavailable")
_STUCK = 120.0
"""Seconds without a fault that hits, or an event that is handled, after which a run is given up."""
_PAUSES = {"servers": 1.5, "ranges": 0.5, "transactions": 0.2}
"""Seconds between two faults of a lane, about; of others there is no more than a moment."""
ANYWHERE = ("cancel", "terminate", "cut", "lost answer", "kill", "stop", "freeze", "black hole", "crash")


class Chaos:
    """
    Appenders, worker processes and what happens to them.

    Args:
        clusters: The journal's database, and that of the read models, if it is another.
        logs: A directory for what the workers say.
        plan: The faults that are to hit.
        seed: Of all that is chosen.
    """

    module = "tests.chaos.worker"
    """What a worker runs."""
    kinds: ClassVar[Sequence[str]] = (*ANYWHERE, "rescale", "late commit", "prepared")
    """The faults that it is made for."""
    journals = 1
    """Clusters, from the first on, that have a journal."""

    def __init__(self, clusters: Sequence[Cluster], logs: Path, plan: Plan, seed: int) -> None:
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self.plan = plan
        self.clusters = [*clusters]
        self.journal, self.read_side = self.clusters[0], self.clusters[-1]
        self._random = random.Random(seed)
        self._database = self.journal.database
        self._logs = logs
        self._started: set[Process] = set()
        self._left: list[Process] = []
        """Workers that all faults have left alive."""
        self._last_hit = time.monotonic()
        self._last_error = ""

    @asynccontextmanager
    async def around(self) -> AsyncIterator[None]:
        """What runs from before :meth:`prepare` to after :meth:`check`."""
        yield

    async def prepare(self) -> None:
        """What must be there before anything happens."""
        raise NotImplementedError

    async def check(self) -> dict[str, Audit]:
        """Compare what was committed with what was handled, by name, after :meth:`catch_up`; assert all else."""
        raise NotImplementedError

    async def run(self) -> None:
        """Let it all happen until every fault of the plan has hit, and see that it goes on; all workers end then."""
        async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as group:
            group.create_task(self._limit(limit))
            for task in self._tasks():
                group.create_task(task)
            by_lane = defaultdict(list)
            for kind in self.plan.left:
                by_lane[KINDS[kind].lane].append(kind)
            for lane, kinds in by_lane.items():
                if lane != "processes":
                    group.create_task(self._inject(lane, kinds, self._choices()))
        await self.settle()
        await self._go_on_alone()
        self.counts["take-overs"] = sum(
            path.read_text().count(" taken over from ") for path in self._logs.iterdir()
        )

    async def _limit(self, limit: asyncio.Timeout) -> None:
        """When all has happened, everything ends soon."""
        await self._pause(float("inf"))
        limit.reschedule(asyncio.get_running_loop().time() + _STUCK)
        await end_prepared(self.journal)  # one whose answer was lost, which appenders wait for

    def _tasks(self) -> list[Any]:
        """Who appends and who works."""
        return [
            *(self._appender(self._choices()) for _ in range(APPENDERS)),
            *(self._workers(self._choices()) for _ in range(WORKERS)),
        ]

    async def settle(self) -> None:
        """Leave nothing open or cut off that would hold readers back."""
        for cluster in self.clusters:
            cluster.proxy.go_on()
        await end_prepared(self.journal)

    def goes_on_alone(self, *options: str) -> bool:
        """Whether a worker with these options, when all faults are over, is to handle what is left before it ends."""
        return False

    async def _left_to_handle(self) -> int:
        """How many events are committed and not handled."""
        raise NotImplementedError

    async def _go_on_alone(self) -> None:
        """Progress: workers that are left alive handle the rest. One that is started might hide that they do not."""

        async def left() -> int | None:
            with suppress(ProjectionsError, OSError):  # a connection of the pool that a fault has ended
                return max(await self._left_to_handle(), 0)
            return None

        async def done() -> bool:
            alive = any(process.returncode is None for process in self._left)
            return not alive or await left() == 0  # what the database does to one that starts may end it

        await self.until(done, left)
        self.counts["left alive"] = len(self._left)
        while self._left:
            process = self._left.pop()
            await self._stop(process)
            await self._check_end(process)

    async def _stop(self, process: Process) -> None:
        self.counts["clean stops"] += 1
        with suppress(ProcessLookupError):  # it has just ended by itself
            process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), 60)

    async def catch_up(self) -> None:
        """A worker that nothing happens to handles what is left, for as long as it gets on."""
        process = await self._start("asyncpg", "until_caught_up")
        await self.until(lambda: _ended(process), self._effects)
        assert process.returncode == 0, _said(process)

    async def until(self, done: Callable[[], Awaitable[bool]], handled: Callable[[], Awaitable[Any]]) -> None:
        """Wait, for as long as what is handled changes."""
        before, changed = None, time.monotonic()
        while not await done():
            if (now := await handled()) != before:
                before, changed = now, time.monotonic()
            waited = time.monotonic() - changed
            assert waited < _STUCK, f"nothing handled for {waited:.0f} s, after {now}; {self._last_said()}"
            await asyncio.sleep(0.2)

    def _last_said(self) -> str:
        newest = max(self._logs.iterdir(), key=lambda path: path.stat().st_mtime)
        return newest.read_text()[-3000:]

    async def _effects(self) -> int:
        async with self.read_side.database.session() as session:
            return int(await session.fetchval("SELECT count(*) FROM effects"))

    def _choices(self) -> random.Random:
        """For one task: what it chooses does not depend on when it runs."""
        return random.Random(self._random.randrange(2**32))

    @property
    def _going_on(self) -> bool:
        if self.plan.done:
            return False
        if time.monotonic() - self._last_hit > _STUCK:
            raise AssertionError(
                f"no fault has hit for {_STUCK:g} s; still to come: {+self.plan.left}; {self._last_error}"
            )
        return True

    async def _pause(self, seconds: float) -> None:
        """Wait, or until all has happened."""
        until = time.monotonic() + seconds
        while self._going_on and (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, 0.2))

    def told(self, kind: str, *, hit: bool) -> None:
        """A fault was injected."""
        self.plan.told(kind, hit=hit)
        if hit:
            self._last_hit = time.monotonic()

    async def _inject(self, lane: str, kinds: Sequence[str], choices: random.Random) -> None:
        while (kind := self.plan.take(kinds, choices)) is not None:
            await self._pause(_PAUSES.get(lane, 0.02) * choices.uniform(0.3, 1.7))
            hit = False
            inject = KINDS[kind].inject
            assert inject is not None
            try:
                hit = await inject(self, choices)
            except (ProjectionsError, *LOST) as error:
                self.counts[f"{kind}: {type(error).__name__}"] += 1
                self._last_error = repr(error)
            self.told(kind, hit=hit)
            assert self._going_on or self.plan.done

    async def _appender(self, choices: random.Random) -> None:
        while self._going_on:
            try:
                await self._append(choices)
            except (ProjectionsError, OSError):
                await asyncio.sleep(0.05)  # the server is away, or this connection
            await asyncio.sleep(choices.uniform(0, 0.05))

    def _event(self, source_id: str, choices: random.Random, journal: int = 0) -> Event:
        """What is appended, with the number of its journal."""
        return Event(source_id, Happened(n=journal), "plane")

    def _events(self, choices: random.Random, journal: int = 0) -> list[Event]:
        sources = sorted(choices.sample(SOURCES, choices.randint(1, 4)))
        return [self._event(one, choices, journal) for one in sources]

    async def append_to(self, connection: Any, choices: random.Random, journal: int = 0) -> None:
        """Append one to four events in the transaction of a connection or a session to one of the journals."""
        await append(connection, self._events(choices, journal))

    async def late(self, choices: random.Random, seconds: float) -> None:
        """One transaction that stays open for long."""
        async with self._database.transaction() as session:
            await self.append_to(session, choices)
            await asyncio.sleep(seconds)

    async def _append(self, choices: random.Random) -> None:
        """One transaction; some are rolled back."""
        journal = choices.randrange(self.journals)
        with suppress(_RolledBackError):
            async with self.clusters[journal].database.transaction() as session:
                await self.append_to(session, choices, journal)
                if choices.random() < 0.1:
                    self.counts["roll-backs"] += 1
                    raise _RolledBackError

    async def _workers(self, choices: random.Random, *options: str) -> None:
        """One worker after the other: stopped past its lease, killed, or told to end."""
        while self._going_on:
            process = await self._start(choices.choice(["asyncpg", "psycopg"]), *options)
            try:
                kills = await self._live(process, choices)
                if process.returncode is None and not kills:
                    if not self._going_on and self.goes_on_alone(*options):
                        self._left.append(process)
                        return
                    await self._stop(process)
            finally:
                killed = process.returncode is None and process not in self._left
                if killed:
                    process.kill()
                    await process.wait()
            if kills:
                self.told("kill", hit=killed)
            await self._check_end(process)

    async def _live(self, process: Process, choices: random.Random) -> bool:
        """Stop and continue it some times; returns whether it is to be killed."""
        for _ in range(4):
            await self._pause(choices.uniform(0.2, 2.0))
            kind = self.plan.take(["stop", "kill"], choices)
            if process.returncode is not None or not self._going_on:
                return False
            if kind == "kill":
                return True
            if kind == "stop":
                process.send_signal(signal.SIGSTOP)
                await self._pause(LEASE.total_seconds() * choices.uniform(1.2, 3))
                with suppress(ProcessLookupError):  # killed by somebody else while it was stopped
                    process.send_signal(signal.SIGCONT)
                self.told("stop", hit=process.returncode is None)
            elif choices.random() < 0.2:
                break
        return False

    async def _start(self, *options: str) -> Process:
        self.counts["workers"] += 1
        with (self._logs / f"{type(self).__name__} {self.counts['workers']}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self.module, self.read_side.dsn, *options, *self._elsewhere()),
                cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=log,
            )  # fmt: skip
        self._started = {one for one in self._started if one.returncode is None} | {process}
        process.log = log.name  # type: ignore[attr-defined]
        assert process.stdout is not None
        await asyncio.wait_for(process.stdout.readline(), 120)
        return process

    async def end(self) -> None:
        """Kill the processes that still run, whatever they do."""
        for process in self._started:
            if process.returncode is None:
                process.kill()
            await process.wait()

    def _elsewhere(self) -> list[str]:
        both = ["both"] if self.journals > 1 else []
        return [f"journal={self.journal.dsn}", *both] if len(self.clusters) > 1 else []

    async def _check_end(self, process: Process) -> None:
        """Only what the database does to it when it starts lets a worker end by itself."""
        if process.returncode not in {0, -signal.SIGKILL}:
            said = _said(process)
            raised = _RAISED.findall(said) or [""]
            assert raised[-1].startswith(_AT_START), f"a worker ended by itself: {said[-3000:]}"
            self.counts["failed starts"] += 1

    async def _now_and_then(
        self, do: Callable[[random.Random], Awaitable[str]], seconds: float, choices: random.Random
    ) -> None:
        while self._going_on:
            await self._pause(choices.uniform(0.5, 1.5) * seconds)
            if self._going_on:
                with suppress(ProjectionsError, OSError):
                    self.counts[await do(choices)] += 1

    async def rescale(self, choices: random.Random) -> None:
        """Cut the ranges anew."""
        async with self.read_side.database.session() as session:
            await offsets.rescale(session, "chaos", choices.choice([1, 2, 3, 4, 8, 13, 32, 64, 100]))


class _RolledBackError(Exception):
    pass


async def _ended(process: Process) -> bool:
    return process.returncode is not None


def _said(process: Process) -> str:
    return Path(process.log).read_text()  # type: ignore[attr-defined]


async def tell(database: Database, sql: str, to: Callable[..., None]) -> None:
    """Tell a history of the rows of a query: a source and a number each, and perhaps an id."""
    async with database.session() as session:
        async for row in query(session, sql):
            to(*row.values())


async def audit(
    committed: Database, events: str, handled: Database, effects: str, *, name: str = "projection"
) -> dict[str, Audit]:
    """Compare the rows of two queries."""
    with History() as history:
        history.expect(name)
        await tell(committed, events, history.committed)
        await tell(handled, effects, partial(history.handled, projection=name))
        return dict(history.audit())
