"""Events of a source whose stamps are not in their order: of two transactions, the one that began first wrote last."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import asyncpg
import pytest

import offsets
from journal import BEGINNING, connect
from journal.foreign import table_log
from offsets.live import live_events
from projections import EventEnvelope, Session, handles, projection
from tests.fixtures.failover import Server, pair
from tests.fixtures.foreign import FOREIGN, Orders
from tests.fixtures.projections import (
    EFFECTS,
    Happened,
    caught_up,
    effects,
    execute,
    fetchval,
    record,
    running,
    until,
    until_effects,
)
from tests.integration.foreign.test_attacks import MAPPINGS, TABLE, insert
from tests.integration.going_back.test_two_databases import answered


async def write(dsn: str) -> None:
    """Four events of one source, each by a transaction that began before that of the event before."""
    connections = [await asyncpg.connect(dsn) for _ in range(4)]
    await connections[0].execute(TABLE)
    await connections[0].execute("CREATE INDEX ON orders (at)")
    for connection in connections:
        await connection.execute("BEGIN")
    for connection in reversed(connections):
        await insert(connection, "s")
        await connection.execute("COMMIT")
    for connection in connections:
        await connection.close()


def of(size: int) -> type:
    """A projection that reads so many events at a time."""

    @projection(f"orders-{size}", entity_type="order", batch_size=size)
    class Orders:
        @handles(Happened)
        async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
            await record(session, envelope)

    return Orders


@pytest.mark.slow
@pytest.mark.parametrize("bound", MAPPINGS)
@pytest.mark.parametrize("size", [1, 3, 100])
async def test_the_first_events_of_a_source_are_handled_in_the_order_of_their_numbers(
    empty_dsn: str, dsn: str, size: int, bound: str
) -> None:
    """They are there when the source is seen for the first time, and the last one is read first."""
    await write(empty_dsn)
    async with connect(dsn) as read_side, connect(empty_dsn, FOREIGN["asyncpg"]) as database:
        await execute(read_side, EFFECTS)
        log = await table_log(database, MAPPINGS[bound], name="shop")
        async with running(read_side, of(size), journal=log, ranges=1):
            await until_effects(read_side, 4)
        assert await effects(read_side) == [("s", number) for number in range(1, 5)]


async def test_a_source_that_a_start_cuts_is_handled_from_its_first_event_after_it(
    empty_dsn: str, dsn: str
) -> None:
    """Events 3 and 4 are stamped before the start, and come between 1 and 2, which are not, and 5."""
    await write(empty_dsn)
    owner = await asyncpg.connect(empty_dsn)
    async with connect(dsn) as read_side, connect(empty_dsn, FOREIGN["asyncpg"]) as database:
        await execute(read_side, EFFECTS)
        log = await table_log(database, MAPPINGS["transaction-start"], name="shop")
        await caught_up(read_side, Orders, journal=log)
        await execute(read_side, "DELETE FROM effects")
        async with read_side.session() as session:
            start = await owner.fetchval("SELECT at FROM orders WHERE version = 2")
            await offsets.set_offset(session, "orders", start)
        async with running(read_side, Orders, journal=log, ranges=1):
            await until_effects(read_side, 2)
            await insert(owner, "s")
            await until_effects(read_side, 5)
        assert await effects(read_side) == [("s", number) for number in range(1, 6)]
    await owner.close()


async def test_a_live_reader_gives_them_in_the_order_of_their_numbers(empty_dsn: str) -> None:
    await write(empty_dsn)
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database:
        log = await table_log(database, MAPPINGS["transaction-start"], name="shop")
        async with aclosing(live_events(log, "order", start=BEGINNING)) as events, asyncio.timeout(300):
            found = [(await anext(events)).seq_nr for _ in range(4)]
    assert found == [1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.parametrize("in_batches", [1, 2])
async def test_a_journal_that_has_lost_the_last_event_alone_has_the_later_stamp_before_it(
    base_cluster: Server, dsn: str, in_batches: int
) -> None:
    """It fails over between the two, of one batch or two; the first was not lost, and is not handled again."""

    async def lose(early: asyncpg.Connection) -> None:
        await asyncio.to_thread(servers.cut)
        await insert(early, "s")
        await early.execute("COMMIT")
        await early.close()

    async with pair(base_cluster, "one") as servers, connect(dsn) as read_side:
        await asyncio.to_thread(servers.follow)
        theirs = servers.direct("one").replace("read-write", "primary")  # who only reads may
        early, application = await asyncpg.connect(theirs), await asyncpg.connect(theirs)
        await application.execute(f"{TABLE}; CREATE INDEX ON orders (at)")
        await early.execute("BEGIN")
        await insert(application, "s")
        await execute(read_side, EFFECTS)
        async with connect(theirs, FOREIGN["asyncpg"]) as database:
            log = await table_log(database, MAPPINGS["transaction-start"], name="shop")
            if in_batches == 1:
                await lose(early)
            async with running(read_side, Orders, journal=log, ranges=1):
                if in_batches > 1:
                    await until_effects(read_side, 1)
                    await lose(early)
                await until_effects(read_side, 2)
                await application.close()
                await servers.fail_over()
                await answered(database)
                application = await asyncpg.connect(theirs)
                await insert(application, "s")
                await until(read_side, "SELECT count(*) = 1 FROM projections.parked_sources")
                async with read_side.session() as session:
                    (parked,) = await offsets.ParkedSources(session).list("orders")
                    assert (parked.seq_nr, "has lost event 2," in parked.error) == (2, True), parked.error
                    await offsets.ParkedSources(session).retry("orders", "s")
                await until_effects(read_side, 3)
                await insert(application, "s")
                await until_effects(read_side, 4)
            await application.close()
            await caught_up(read_side, Orders, journal=log)
        assert await effects(read_side) == [("s", 1), ("s", 2), ("s", 2), ("s", 3)]
        assert await fetchval(read_side, "SELECT count(*) FROM projections.parked_sources") == 0
