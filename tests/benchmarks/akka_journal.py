"""A journal of Akka Persistence R2DBC with the workload in it, Akka itself, and our projections of the journal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from itertools import count

import psycopg

from journal import ConnectionSettings, EventEnvelope, Log, Session, connect, event_type
from journal.embedded import DSN_VARIABLE
from journal.foreign import AttachedJournal, attach, pekko_payloads, pekko_r2dbc, table_log
from projections import Changes, Group, Recovery, handles, handles_group, projection
from tests.benchmarks import workload
from tests.fixtures.akka import TABLES
from tests.fixtures.java import JavaProgram, r2dbc_url

NAME = "akka"
"""Of the journal, as ours know it."""
ENTITY_TYPE = "plane"
WARM_UP = "warm"
"""The entity type of the events that a virtual machine gets warm with."""
RANGES = 4
"""What Akka runs in parallel."""
GROUP = 500
"""Events of Akka's groups: with more it is no faster."""
INDEX = "suggested"
DEFAULTS = ("3s", "100ms")
QUICK = ("5ms", "0ms")
"""As often as ours, and no longer behind the current time than ours, which is not."""
SUGGESTED_INDEX = (
    f"CREATE INDEX {INDEX} ON event_journal (db_timestamp, slice, entity_type, persistence_id, seq_nr)"
)
_PATIENCE = 120.0
_FILL = f"""
INSERT INTO event_journal (
    slice, entity_type, persistence_id, seq_nr, db_timestamp, writer, adapter_manifest, event_ser_id,
    event_ser_manifest, event_payload
)
SELECT
    projections.slice_of_v1(e.id), %(type)s, e.id, e.n / %(sources)s + 1, e.at, 'writer', '', 31,
    'interop.Events$Landed', convert_to({workload.PAYLOAD}, 'UTF8')
FROM (
    SELECT
        n, %(type)s || '|N' || (n * {workload.STEP} %% %(sources)s) AS id,
        now() - interval '1 hour' - (%(count)s - n) * interval '4 milliseconds' AS at
    FROM generate_series(0, %(count)s::bigint - 1) AS n
) AS e
ORDER BY e.n
"""


def create(dsn: str) -> None:
    """Make the tables of Akka."""
    with psycopg.connect(dsn) as connection:
        connection.execute(TABLES)


def fill(dsn: str, count: int, sources: int, entity_type: str = ENTITY_TYPE) -> None:
    """Put the events of the workload into its tables, in its format: 250 in a second, up to an hour ago."""
    values = {"count": count, "sources": sources, "type": entity_type, "carriers": workload.CARRIERS}
    with psycopg.connect(dsn) as connection:
        connection.execute(
            TABLES.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS").replace(
                "CREATE INDEX", "CREATE INDEX IF NOT EXISTS"
            )
        )
        connection.execute(_FILL, values)


@event_type("interop.Events$Landed")
class Landed(workload.Landed):
    """A plane has landed, as Jackson writes it."""


@projection("by-table", entity_type=ENTITY_TYPE, batch_size=workload.BATCH, recovery=Recovery.fail())
class ByTable:
    """The framework folds and writes."""

    @handles(Landed)
    def landed(self, event: Landed, envelope: EventEnvelope) -> Changes:
        return workload.DELAYS.upsert(
            carrier=event.carrier, day=event.day, flights=1, delay=event.delay, worst=event.delay
        )


_WITHIN = timedelta(milliseconds=500)


@projection(
    "by-group",
    entity_type=ENTITY_TYPE,
    group=Group(size=workload.BATCH, within=_WITHIN),
    recovery=Recovery.fail(),
)
class ByGroup:
    """The handler folds, as Akka's does."""

    @handles_group(Landed)
    async def landed(self, session: Session, events: Sequence[tuple[Landed, EventEnvelope]]) -> None:
        await workload.write_folded(session, [(e.carrier, e.day, e.delay) for e, _ in events])


@projection("by-event", entity_type=ENTITY_TYPE, batch_size=workload.BATCH, recovery=Recovery.fail())
class ByEvent:
    """A statement for each event."""

    @handles(Landed)
    async def landed(self, session: Session, event: Landed, envelope: EventEnvelope) -> None:
        await session.execute(workload.UPSERT_ONE, event.carrier, event.day, event.delay)


@projection(
    "by-event-together",
    entity_type=ENTITY_TYPE,
    group=Group(size=workload.BATCH, within=_WITHIN),
    recovery=Recovery.fail(),
)
class ByEventTogether:
    """The same statement for each event; those of a batch are sent without waiting for one after another."""

    @handles_group(Landed)
    async def landed(self, session: Session, events: Sequence[tuple[Landed, EventEnvelope]]) -> None:
        await session.executemany(workload.UPSERT_ONE, [(e.carrier, e.day, e.delay) for e, _ in events])


@asynccontextmanager
async def journal_of(dsn: str) -> AsyncIterator[Log]:
    """The journal as our projections read it."""
    async with connect(dsn, ConnectionSettings(foreign_journal=True)) as elsewhere:
        yield await table_log(elsewhere, pekko_r2dbc(), name=NAME, decode=pekko_payloads())


async def attach_journal(dsn: str) -> None:
    """Let worker processes read it, which get the DSN by the environment."""
    async with connect(dsn) as database, database.session() as session:
        await attach(session, AttachedJournal(NAME, "akka-r2dbc", "", dsn_variable=DSN_VARIABLE))


class Akka:
    """The running program; see ``tests/interop/akka``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = count(1)
        self._changed = asyncio.Event()
        self.persisted: dict[tuple[str, int], float] = {}
        """When an event was persisted, by the clock of time.monotonic(), in seconds."""
        self.handled: dict[tuple[str, int], float] = {}
        """When its effects were committed."""
        self._stopped = 0

    def project(self, kind: str, entity_type: str = ENTITY_TYPE) -> None:
        """Begin a projection that has never run: "exactly-once" or "grouped"."""
        self.say(f"project {kind}-{next(self._numbers)} {entity_type} {kind} {RANGES} {GROUP}")

    def say(self, line: str) -> None:
        """Tell it what to do."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    async def listen(self, ready: asyncio.Event) -> None:
        """Take in what it says, until it ends."""
        assert self._process.stdout is not None
        while line := (await self._process.stdout.readline()).decode().split():
            match line:
                case ["ready"]:
                    ready.set()
                case ["persisted" | "handled" as what, source_id, number, at]:
                    told = self.persisted if what == "persisted" else self.handled
                    told[source_id, int(number)] = int(at) / 1e9
                case ["stopped", *_]:
                    self._stopped += 1
            self._changed.set()

    async def stop(self) -> None:
        """Stop the projection."""
        self._stopped = 0
        self.say("stop")
        await self._until(lambda: self._stopped == RANGES)

    async def until(self, *, persisted: int = 0, handled: int = 0) -> None:
        """Wait until it has said so many things."""
        await self._until(lambda: len(self.persisted) >= persisted and len(self.handled) >= handled)

    async def _until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(_PATIENCE):
            while not true():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def akka(program: JavaProgram, dsn: str, query: tuple[str, str] = DEFAULTS) -> AsyncIterator[Akka]:
    """
    Run the program, ready to do something, for the length of the block.

    Args:
        program: Its classes.
        dsn: Where the tables are.
        query: Its settings ``refresh-interval`` and ``behind-current-time``.
    """
    async with program.running("Beside", r2dbc_url(dsn), *query, heard=True) as process:
        running, ready = Akka(process), asyncio.Event()
        listening = asyncio.create_task(running.listen(ready))
        try:
            async with asyncio.timeout(_PATIENCE):
                await ready.wait()
            yield running
        finally:
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening


async def until_projected(dsn: str, flights: int) -> tuple[float, float]:
    """Wait until the read model has them all; when it had the first, and when the last, by time.monotonic()."""
    first = 0.0
    async with connect(dsn, ConnectionSettings(max_connections=1)) as database, database.session() as session:
        async with asyncio.timeout(_PATIENCE * 20):
            while (found := await session.fetchval("SELECT coalesce(sum(flights), 0) FROM delays")) < flights:
                if found and not first:
                    first = time.monotonic()
                await asyncio.sleep(0.01)
    return first or time.monotonic(), time.monotonic()
