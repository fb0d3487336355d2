"""A session of the other system that loses its processor where it does most harm: nothing that it commits is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from journal import (
    ALL_TYPES,
    BEGINNING,
    CLOCK_MARGIN,
    Backtracking,
    Database,
    Log,
    Poll,
    ReadKeys,
    SliceReader,
    connect,
)
from journal.foreign import Constant, TableMapping, table_log
from journal.polling import WritersPoller
from journal.slices import ALL_SLICES
from tests.fixtures.foreign import FOREIGN
from tests.fixtures.frozen import Trap, cannot_trap
from tests.fixtures.locks import WAITING
from tests.fixtures.projections import until

TABLE = """
CREATE TABLE log (
    source text, number bigint, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (source, number)
);
CREATE INDEX ON log (at)
"""
MAPPING = TableMapping(
    table="log", source="source", number="number", position="at", bound="transaction-start",
    entity_type=Constant("thing"), event_type=Constant("Happened"), payload=Constant("{}"),
)  # fmt: skip
_STARTS = "pgstat_report_xact_timestamp"
"""Shows a transaction's start, which is taken; at its end shows that there is none."""
_SHOWS = "pgstat_report_activity"
"""Shows what a session does: nothing in between the clock and it."""


@dataclass(eq=False)
class Reader:
    """Reads a log by the machine of its bound, a poll at a time; it fills no gaps."""

    log: Log
    machine: Backtracking
    poller: WritersPoller
    polls: int = 0
    holders: frozenset[str] = frozenset()
    """As the last poll has shown them."""

    async def look(self) -> set[str]:
        """Poll, and read all that it says; returns the sources of the events that were read."""
        reader = SliceReader(ALL_TYPES, ALL_SLICES, queries=self.log.queries)
        place = self.machine.position.db_timestamp
        seen = await self.poller.look(self, reader.entity_types, place, self.polls, 0)
        self.polls, self.holders = seen.number, seen.poll.holders
        assert isinstance(self.machine.next_step(), Poll)
        self.machine.polled(seen.poll)
        found: set[str] = set()
        async with self.log.session() as session:
            while not isinstance(step := self.machine.next_step(), Poll):
                if isinstance(step, ReadKeys):
                    keys = await reader.keys(session, step.after, step.until)
                    found |= {key.source_id for key in keys}
                    self.machine.keys_read(keys[-1].position if keys else None, full=keys.more)
                else:
                    page = await reader.events(session, step.after, step.until)
                    found |= {event.source_id for event in page}
                    self.machine.events_read(page[-1].position if page else None, full=page.more)
        return found


@pytest.fixture
async def session(empty_dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """Of the other system."""
    connection = await asyncpg.connect(empty_dsn)
    await connection.execute(TABLE)
    yield connection
    await connection.close()


@pytest.fixture
async def reader(empty_dsn: str, session: asyncpg.Connection) -> AsyncIterator[Reader]:
    if why := cannot_trap():
        pytest.skip(why)
    if await session.fetchval("SELECT inet_server_addr() IS NOT NULL"):
        pytest.skip("the server may be on another machine")
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database:
        log = await table_log(database, MAPPING, name="theirs")
        poller = WritersPoller(log)
        yield Reader(log, log.bound(BEGINNING, margin=CLOCK_MARGIN, import_id=0), poller)
        await poller.close()


async def pass_by(reader: Reader) -> None:
    """Have the reader settle, as far as it may, what is stamped up to now, and for longer than any margin."""
    database = reader.log.database
    async with database.session() as session:
        now = await session.fetchval("SELECT clock_timestamp()")
    await until(database, "SELECT clock_timestamp() > $1::timestamptz + interval '400 ms'", now)
    for _ in range(3):
        await reader.look()


@pytest.mark.slow
@pytest.mark.parametrize("function", [_STARTS, _SHOWS])
async def test_a_session_that_is_frozen_between_its_stamp_and_showing_it_is_waited_for(
    session: asyncpg.Connection, reader: Reader, function: str
) -> None:
    await reader.look()
    with Trap(session.get_server_pid(), function) as trap:
        inserting = asyncio.ensure_future(session.execute("INSERT INTO log VALUES ('a', 1)"))
        await trap.caught()
        await pass_by(reader)
        assert reader.machine.horizon < await stamp_now(reader.log.database)
    await inserting
    assert "a" in await reader.look()


async def stamp_now(database: Database) -> Any:
    async with database.session() as session:
        return await session.fetchval("SELECT clock_timestamp()")


@pytest.mark.slow
@pytest.mark.parametrize("function", [_STARTS, _SHOWS])
async def test_the_first_message_of_a_session_is_no_exception(
    empty_dsn: str, session: asyncpg.Connection, reader: Reader, function: str
) -> None:
    await reader.look()
    new = await asyncpg.connect(empty_dsn)
    with Trap(new.get_server_pid(), function) as trap:
        inserting = asyncio.ensure_future(new.execute("INSERT INTO log VALUES ('a', 1)"))
        await trap.caught()
        await pass_by(reader)
    await inserting
    assert "a" in await reader.look()
    await new.close()


async def test_a_transaction_that_a_poll_shows_both_open_and_prepared_is_found(
    session: asyncpg.Connection, reader: Reader
) -> None:
    """It is prepared, and its session has not let go of it when it is seen."""
    await session.execute("BEGIN; INSERT INTO log VALUES ('a', 1)")
    await pass_by(reader)
    with Trap(session.get_server_pid(), _STARTS) as trap:
        preparing = asyncio.ensure_future(session.execute("PREPARE TRANSACTION 'one'"))
        await trap.caught()
        await reader.look()
        assert {holder[0] == "p" for holder in reader.holders} == {True, False}
    await preparing
    await pass_by(reader)
    await session.execute("COMMIT PREPARED 'one'")
    assert "a" in await reader.look()


async def test_a_message_with_several_transactions_stamps_all_of_them_with_its_start(
    session: asyncpg.Connection, reader: Reader
) -> None:
    """Between two of them it shows none."""
    await session.execute("SELECT")
    statements = "BEGIN; SELECT pg_advisory_lock(1); COMMIT; BEGIN; INSERT INTO log VALUES ('a', 1); COMMIT"
    async with reader.log.database.session() as other:
        await other.fetchval("SELECT pg_advisory_lock(1)")
        running = asyncio.ensure_future(session.execute(statements))
        await until(
            reader.log.database,
            f"SELECT count(*) = 1 FROM {WAITING} WHERE locktype = 'advisory'",
        )
        await pass_by(reader)
        with Trap(session.get_server_pid(), "StartTransactionCommand") as trap:
            await other.fetchval("SELECT pg_advisory_unlock(1)")
            await trap.caught()
            await pass_by(reader)
        await running
    assert "a" in await reader.look()
