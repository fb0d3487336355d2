"""The journal of Pekko Persistence R2DBC, read while a writer does what its driver does."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from pydantic import BaseModel

from journal import (
    ALL_TYPES,
    BEGINNING,
    Position,
    SliceRange,
    SliceReader,
    connect,
    current_events,
    entity_types,
    event_type,
    read_source,
)
from journal.backtracking import END_OF_TIME
from journal.foreign import pekko_payloads, pekko_r2dbc, table_log
from journal.foreign.checking import check
from journal.slices import ALL_SLICES, slice_ranges
from projections import EventEnvelope, Recovery, Session, handles, projection
from tests.fixtures.foreign import FOREIGN, Follower, OnlyForward
from tests.fixtures.pekko import GOLDEN, R2dbcJournal
from tests.fixtures.projections import (
    EFFECTS,
    caught_up,
    effects,
    execute,
    fetchval,
    record,
    running,
    until,
    until_effects,
)

pytest.importorskip("cbor2")

JSON = (31, "interop.Events$Opened", '{"owner": "x"}')
INDEX = "CREATE INDEX ON {} (db_timestamp, slice, entity_type, persistence_id, seq_nr)"


@event_type(
    "interop.Events$Opened", version=3, upcast={1: lambda payload: payload, 2: lambda payload: payload}
)
class Opened(BaseModel):
    owner: str


@event_type("interop.Events$Paid")
class Paid(BaseModel):
    amount: str
    key: str


@projection("accounts", entity_type="account", recovery=Recovery.retry_and_park(0))
class Accounts:
    @handles(Opened)
    async def opened(self, session: Session, event: Opened, envelope: EventEnvelope) -> None:
        await record(session, envelope)

    @handles(Paid)
    async def paid(self, session: Session, event: Paid, envelope: EventEnvelope) -> None:
        await record(session, envelope)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("partitions", "payload", "indexed"),
    [(1, "BYTEA", False), (4, "BYTEA", False), (1, "JSONB", True), (2, "BYTEA", True)],
)
async def test_every_late_commit_is_found(
    empty_dsn: str, partitions: int, payload: str, indexed: bool
) -> None:
    journal = R2dbcJournal(empty_dsn, partitions, payload)
    await journal.create()
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database, connect(empty_dsn) as owner:
        if indexed:
            for table in journal.tables:
                await execute(owner, INDEX.format(table))
        log = await table_log(
            database, pekko_r2dbc(partitions=partitions), name="pekko", decode=pekko_payloads()
        )
        ended, followers = asyncio.Event(), [Follower(log), Follower(log, OnlyForward)]
        written = JSON if payload == "JSONB" else GOLDEN["cbor"]
        async with asyncio.TaskGroup() as group:
            following = [group.create_task(follower.run(ended)) for follower in followers]
            await asyncio.gather(*(journal.write(5, seed, written) for seed in range(8)))
            ended.set()
            await asyncio.gather(*following)
        stored = await journal.stored()
        right, wrong = (len(stored - set(follower.handled)) for follower in followers)
        print(f"{partitions} {payload}: {len(stored)} stored, lost {right}; going forward {wrong}")
        assert right == 0 < wrong
        assert set(followers[0].handled) == stored


@pytest.mark.slow
@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("partitions", [1, 2])
async def test_pages_are_whole_and_in_order(empty_dsn: str, partitions: int, indexed: bool) -> None:
    journal = R2dbcJournal(empty_dsn, partitions, "JSONB")
    await journal.create()
    connection = await asyncpg.connect(empty_dsn)
    for n in range(40):  # one that has many at a time, and many that have few
        await journal.persist(connection, f"account|{n}", 0, *[JSON] * (200 if n == 7 else 3))
        await journal.persist(connection, f"cart|{n}", 0, JSON)
    if indexed:
        for table in journal.tables:
            await connection.execute(INDEX.format(table))
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database, database.session() as session:
        log = await table_log(database, pekko_r2dbc(partitions=partitions), name="pekko")
        assert await entity_types(session, queries=log.queries) == ["account", "cart"]
        for types, count in (("account", 317), (("account", "cart"), 357), (ALL_TYPES, 357)):
            for slices in ([ALL_SLICES], slice_ranges(3)):
                found: list[EventEnvelope] = []
                for one in slices:
                    found += [
                        e async for e in _pages(session, SliceReader(types, one, 25, queries=log.queries))
                    ]
                    keys = [
                        key async for key in _keys(session, SliceReader(types, one, 25, queries=log.queries))
                    ]
                    assert keys == [
                        (e.source_id, e.seq_nr) for e in found if e.slice in range(one[0], one[1] + 1)
                    ]
                assert len({(e.source_id, e.seq_nr) for e in found}) == len(found) == count
        keys = await SliceReader(ALL_TYPES, ALL_SLICES, queries=log.queries).keys(
            session, Position.before(BEGINNING), END_OF_TIME
        )
        assert [key.position for key in keys] == sorted(key.position for key in keys)
    await connection.close()


@pytest.mark.parametrize("indexed", [False, True])
async def test_a_window_is_read_to_its_end_where_one_slice_has_most_of_it(
    empty_dsn: str, indexed: bool
) -> None:
    """Pages by slice end early then: who takes such a page for the last loses what has committed late behind it."""
    journal = R2dbcJournal(empty_dsn, 1, "JSONB")
    await journal.create()
    connection = await asyncpg.connect(empty_dsn)
    if indexed:
        await connection.execute(INDEX.format("event_journal"))
    for n in range(0, 300, 3):
        await journal.persist(connection, "account|1", n, *[JSON] * 3)
    await connection.close()
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database, database.session() as session:
        log = await table_log(database, pekko_r2dbc(), name="pekko")
        reader = SliceReader("account", ALL_SLICES, 1000, queries=log.queries)
        keys = [key async for key in _keys(session, reader)]
    assert keys == [("account|1", n) for n in range(1, 301)]


async def test_near_its_end_a_log_is_read_in_one_pass_and_is_the_same(empty_dsn: str) -> None:
    journal = R2dbcJournal(empty_dsn, 1, "JSONB")
    await journal.create()
    async with connect(empty_dsn) as owner, connect(empty_dsn, FOREIGN["asyncpg"]) as database:
        await execute(
            owner,
            "INSERT INTO event_journal "
            "SELECT n % 1024, 'account', 'account|' || n, 1, now() + n * interval '1 ms', 31, 'x', '{}', "
            "n % 7 = 0, '' FROM generate_series(1, 400) AS n",
        )
        log = await table_log(database, pekko_r2dbc(), name="pekko")
        reader = SliceReader("account", ALL_SLICES, 1000, queries=log.queries)
        async with database.session() as session:
            whole = [e async for e in _pages(session, reader)]
            assert len(whole) == 400 - 400 // 7
            for left in (1, 255, 256, 257, 258):
                place = whole[-left - 1].position
                page = await reader.events(session, place, END_OF_TIME)
                assert page[:250] == whole[-left:][:250]
                assert len(page) == left or page.more
            until = whole[-3].db_timestamp
            page = await reader.events(session, whole[-6].position, until)
            assert (page, page.more) == (whole[-5:-2], False)


async def _keys(session: Session, reader: SliceReader) -> Any:
    """Those of a window, whose end is where a page says that nothing follows."""
    place = Position.before(BEGINNING)
    while page := await reader.keys(session, place, END_OF_TIME):
        for key in page:
            yield key[:2]
        if not page.more:
            return
        place = page[-1].position


async def _pages(session: Session, reader: SliceReader) -> Any:
    place = Position.before(BEGINNING)
    while page := await reader.events(session, place, END_OF_TIME):
        assert [e.position for e in page] == sorted(e.position for e in page)
        assert page[0].position > place
        assert all(e.slice in SliceRange(*reader.slices) for e in page)
        place = page[-1].position
        for envelope in page:
            yield envelope
        if not page.more:
            return


async def test_deep_behind_a_page_reads_its_slices_and_not_all_that_follows(empty_dsn: str) -> None:
    journal = R2dbcJournal(empty_dsn, payload="JSONB")
    await journal.create()
    async with connect(empty_dsn) as owner, connect(empty_dsn, FOREIGN["asyncpg"]) as database:
        await execute(
            owner,
            "INSERT INTO event_journal "
            "SELECT n % 1024, 'account', 'account|' || n, 1, now() + n * interval '1 ms', 31, 'x', '{}', "
            "FALSE, '' FROM generate_series(1, 60000) AS n",
        )
        async with database.session() as session:
            checked = await check(session, pekko_r2dbc())
            assert (
                'ON "public"."event_journal" ("db_timestamp", "slice", "entity_type", ' in checked.advice[0]
            )
            page = (["account"], 0, 255, *Position.before(BEGINNING), END_OF_TIME, 1000, 2**20)
            rows = await session.fetch(
                f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) {checked.queries['events']}", *page
            )
        plan = "\n".join(row["QUERY PLAN"] for row in rows)
        assert "Seq Scan" not in plan
        read = int(plan.partition("shared hit=")[2].split()[0])
        assert read < 7000, plan


@pytest.mark.parametrize("driver", FOREIGN)
async def test_the_parts_of_an_event(empty_dsn: str, driver: str) -> None:
    journal = R2dbcJournal(empty_dsn)
    await journal.create()
    connection = await asyncpg.connect(empty_dsn)
    await journal.persist(
        connection, "account|1", 0, GOLDEN["json version 3"], GOLDEN["cbor lz4"], tags=["a", "b"]
    )
    await journal.persist(connection, "account|1", 2, GOLDEN["string"])
    await connection.execute(
        "UPDATE event_journal SET meta_ser_id = 31, meta_ser_manifest = 'm', meta_payload = $1 WHERE seq_nr = 1",
        b'{"by": 1}',
    )
    async with connect(empty_dsn, FOREIGN[driver]) as database:
        log = await table_log(database, pekko_r2dbc(), name="pekko", decode=pekko_payloads())
        opened, paid, said = [e async for e in current_events(log, "account")]
        assert (opened.event_type, opened.version, opened.tags) == ("interop.Events$Opened", 3, ["a", "b"])
        assert (opened.payload["owner"], opened.metadata) == ("Zoë 😀", {"by": 1})
        assert (paid.event_type, paid.version, paid.payload["amount"]) == (
            "interop.Events$Paid", 1, "12345678901234567890.50",
        )  # fmt: skip
        assert opened.db_timestamp == paid.db_timestamp < said.db_timestamp
        assert (said.event_type, said.payload, said.metadata_json) == ("serializer 20", 'plain "text"', None)
        await journal.delete(connection, "account|1", 2)
        async with database.session() as session:
            assert [e.seq_nr async for e in read_source(session, "account|1", queries=log.queries)] == [3]
    await connection.close()


async def test_a_projection_runs_parks_what_it_cannot_read_and_passes_over_the_rest(
    empty_dsn: str, dsn: str
) -> None:
    journal = R2dbcJournal(empty_dsn)
    await journal.create()
    connection = await asyncpg.connect(empty_dsn)
    opened, paid, unknown = GOLDEN["json gzip"], GOLDEN["cbor"], (4711, "interop.Events$Paid", b"?")
    await journal.persist(connection, "account|1", 0, opened, paid, (4711, "other", b"?"))
    await journal.persist(connection, "account|2", 0, opened, unknown, paid)
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database, connect(dsn) as read_side:
        await execute(read_side, EFFECTS)
        log = await table_log(database, pekko_r2dbc(), name="pekko", decode=pekko_payloads())
        async with running(read_side, Accounts, journal=log):
            await until(read_side, "SELECT count(*) = 1 FROM projections.parked_sources")
            await until_effects(read_side, 3)
            await journal.persist(connection, "account|1", 3, paid)
            await until_effects(read_side, 4)
            error = await fetchval(read_side, "SELECT error FROM projections.parked_sources")
            await journal.persist(connection, "account|3", 0, opened, opened, opened)
            await until_effects(read_side, 7)
            await journal.delete(connection, "account|3", 3)
            await journal.persist(connection, "account|3", 3, opened)
            await until_effects(read_side, 8)
        assert "source 'account|2', seq_nr 2, serializer 4711, manifest 'interop.Events$Paid'" in error
        await caught_up(read_side, Accounts, journal=log)
        assert sorted(await effects(read_side)) == [
            ("account|1", 1), ("account|1", 2), ("account|1", 4), ("account|2", 1), ("account|3", 1), ("account|3", 2),
            ("account|3", 3), ("account|3", 4),
        ]  # fmt: skip
    await connection.close()
