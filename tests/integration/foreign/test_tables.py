"""Any table as a journal: what a mapping says, what is checked before it is read, and that nothing of it is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import asyncpg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from journal import (
    ALL_TYPES,
    BEGINNING,
    Database,
    InvalidValue,
    Position,
    SliceRange,
    SliceReader,
    connect,
    current_events,
    entity_types,
    find_event,
    latest_seq_nr,
    read_source,
    slice_of,
)
from journal.backtracking import END_OF_TIME, WriterLockBacktracking
from journal.errors import ForeignJournalError, ReadOnlyDatabase
from journal.foreign import Constant, Expression, TableMapping, table_log
from journal.foreign.checking import check, page_time
from journal.slices import ALL_SLICES
from tests.fixtures.foreign import FOREIGN, Follower, OnlyForward, stored_keys, write_late
from tests.fixtures.locks import OWN_LOCKS

TABLE = """
CREATE TABLE "Order log" (
    "order" varchar(300) NOT NULL, version int NOT NULL, id bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    kind text NOT NULL, body jsonb NOT NULL, labels text[], event uuid, revision smallint,
    gone boolean NOT NULL DEFAULT FALSE,
    at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY ("order", version)
)
"""
MAPPING = TableMapping(
    table="Order log", source="order", number="version", position="id", bound="sequence",
    entity_type=Expression("split_part(\"order\", '-', 1) -- the first part"), event_type="kind",
    payload=Expression("body -> 'data'"), metadata=Expression("body -> 'meta'"), tags="labels", event_id="event",
    version="revision", deleted="gone",
)  # fmt: skip
BY_TIME = replace(MAPPING, position="at", bound="transaction-start")


@pytest.fixture
async def foreign(empty_dsn: str, owner: asyncpg.Connection) -> AsyncIterator[Database]:
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database:
        yield database


@pytest.fixture
async def psycopg(empty_dsn: str) -> AsyncIterator[Database]:
    async with connect(empty_dsn, FOREIGN["psycopg"]) as database:
        yield database


async def insert(owner: asyncpg.Connection, order: str, version: int, **values: Any) -> None:
    row = {"order": order, "version": version, "kind": "Placed", "body": '{"data": {"n": 1}}', **values}
    names = ", ".join(f'"{name}"' for name in row)
    places = ", ".join(f"${n}" for n in range(1, len(row) + 1))
    await owner.execute(f'INSERT INTO "Order log" ({names}) VALUES ({places})', *row.values())


async def test_a_row_is_an_event(owner: asyncpg.Connection, foreign: Database) -> None:
    event_id = UUID(int=9)
    body = '{"data": {"n": 1.50}, "meta": {"by": "x"}}'
    await insert(owner, "shop-1", 1, body=body, labels=["a", "b"], event=event_id, revision=3)
    await insert(owner, "shop-1", 2)
    await insert(owner, "shop-1", 3, gone=True)
    log = await table_log(foreign, MAPPING, name="orders")
    async with foreign.session() as session:
        first, second = [e async for e in read_source(session, "shop-1", queries=log.queries)]
        backwards = [e async for e in read_source(session, "shop-1", backwards=True, queries=log.queries)]
        assert await find_event(session, event_id, queries=log.queries) == first
        assert await latest_seq_nr(session, "shop-1", queries=log.queries) == 2
        assert await entity_types(session, queries=log.queries) == ["shop"]
    assert backwards == [second, first]
    assert first[:8] == (
        "shop-1", 1, datetime(1970, 1, 1, 0, 0, 0, 1, UTC), slice_of("shop-1"), event_id, "shop", "Placed", 3,
    )  # fmt: skip
    assert (first.payload, first.metadata, first.tags) == ({"n": 1.5}, {"by": "x"}, ["a", "b"])
    assert (second.version, second.metadata_json, second.tags) == (
        1,
        None,
        None,
    ) or second.version is not None
    assert [e async for e in current_events(log, "shop")] == [first, second]


async def test_an_event_without_an_id_has_always_the_same(
    owner: asyncpg.Connection, foreign: Database
) -> None:
    await insert(owner, "shop-1", 1)
    found = []
    for name in ("orders", "orders", "others"):
        log = await table_log(foreign, MAPPING, name=name)
        found += [e.event_id async for e in current_events(log, ALL_TYPES)]
    named = uuid5(uuid5(NAMESPACE_URL, "slice-projections:orders"), "shop-1/1")
    assert found[0] == found[1] == named != found[2]


@pytest.mark.slow
@pytest.mark.parametrize("mapping", [MAPPING, BY_TIME], ids=["sequence", "transaction-start"])
async def test_slices_and_pages_are_those_of_our_own_journal(
    owner: asyncpg.Connection, foreign: Database, mapping: TableMapping
) -> None:
    chance = random.Random(7)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789-|äß€漢𝄞😀"
    names = {
        "".join(chance.choices(letters, k=chance.choice([1, 3, 20, 36, 64, 65, 120, 255])))
        for _ in range(300)
    }
    names |= {"p20180", "-", "😀" * 255, "x" * 64}
    async with owner.transaction():  # all with one time
        for name in sorted(names):
            await insert(owner, name, 1)
    log = await table_log(foreign, mapping, name="orders")
    found, keys = [], []
    for slices in (SliceRange(0, 100), SliceRange(101, 1022), SliceRange(1023, 1023)):
        reader, place = (
            SliceReader(ALL_TYPES, slices, page_size=7, queries=log.queries),
            Position.before(BEGINNING),
        )
        async with foreign.session() as session:
            keys += await SliceReader(ALL_TYPES, slices, queries=log.queries).keys(
                session, place, END_OF_TIME
            )
            while page := await reader.events(session, place, END_OF_TIME):
                assert all(e.slice == slice_of(e.source_id) and e.slice in slices for e in page)
                assert [e.position for e in page] == sorted(e.position for e in page)
                assert page[0].position > place
                place = page[-1].position
                found += page
            loaded, left = await reader.load(session, keys[-1:])
            assert [e[:11] for e in loaded] == [e[:11] for e in found[-1:]]
            assert not left
    assert sorted(e.source_id for e in found) == sorted(names)
    assert [key[:4] for key in keys] == [e[:4] for e in found]


async def test_a_page_ends_with_its_bytes(owner: asyncpg.Connection, foreign: Database) -> None:
    for n in range(1, 5):
        await insert(owner, "a", n, body='{"data": "' + "x" * 1000 + '"}')
    log = await table_log(foreign, MAPPING, name="orders")
    reader = SliceReader(ALL_TYPES, ALL_SLICES, page_bytes=2000, queries=log.queries)
    async with foreign.session() as session:
        page = await reader.events(session, Position.before(BEGINNING), END_OF_TIME)
    assert (len(page), page.more) == (2, True)


async def test_a_pages_cost_does_not_depend_on_statistics(
    owner: asyncpg.Connection, foreign: Database
) -> None:
    await owner.execute(
        'INSERT INTO "Order log" ("order", version, kind, body) '
        "SELECT 'a-' || n, 1, 'Placed', '{}' FROM generate_series(1, 20000) AS n"
    )
    await owner.execute('CREATE INDEX ON "Order log" (at)')
    for mapping in (MAPPING, BY_TIME):
        log = await table_log(foreign, mapping, name="orders")
        async with foreign.session() as session:
            page = (["a"], 0, 511, *Position.before(BEGINNING), END_OF_TIME, 100, 2**20)
            rows = await session.fetch(
                f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {log.queries.events}", *page
            )
        plan = "\n".join(row["QUERY PLAN"] for row in rows)
        assert "Index Scan using" in plan
        assert "Seq Scan" not in plan


async def test_sessions_for_a_foreign_journal_write_nothing(
    owner: asyncpg.Connection, foreign: Database
) -> None:
    async with foreign.session() as session:
        with pytest.raises(ReadOnlyDatabase):
            await session.execute('DELETE FROM public."Order log"')


async def test_names_are_quoted(empty_dsn: str, owner: asyncpg.Connection, foreign: Database) -> None:
    hostile = 'x"; DROP TABLE "Order log"; -- foreign_events time_of(e.place)'[:60]
    quoted = '"' + hostile.replace('"', '""') + '"'
    await owner.execute(f'ALTER TABLE "Order log" RENAME COLUMN kind TO {quoted}')
    await owner.execute(f'CREATE SCHEMA {quoted}; ALTER TABLE "Order log" SET SCHEMA {quoted}')
    await owner.execute(
        f'INSERT INTO {quoted}."Order log" ("order", version, {quoted}, body) VALUES ($1, 1, $2, $3)',
        "a",
        "K",
        "{}",
    )
    mapping = replace(MAPPING, schema=hostile, event_type=hostile, entity_type=Constant("it's foreign_table"))
    log = await table_log(foreign, mapping, name="orders")
    (event,) = [e async for e in current_events(log, ALL_TYPES)]
    assert (event.event_type, event.entity_type) == ("K", "it's foreign_table")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"table": "nothing"}, 'source: .*relation "public.nothing" does not exist'),
        ({"schema": "nowhere"}, "source: .*nowhere"),
        ({"event_type": "knd"}, "event_type: .*knd.* does not exist"),
        ({"number": "kind"}, "number: its type is text, and must be bigint or integer or smallint"),
        ({"payload": "labels"}, "payload: its type is text\\[\\]"),
        ({"deleted": Expression("kind")}, "deleted: its type is text, and must be boolean"),
        ({"entity_type": Expression("kind, body")}, "entity_type: "),
        ({"entity_type": Expression("kind FROM x); SELECT (1")}, "entity_type: "),
        ({"position": "at"}, "position: its type is timestamp with time zone, and must be bigint"),
        ({"position": "version"}, "position: it is filled from 0 sequences"),
        ({"position": "version", "sequence": "nothing"}, "position: it is filled from 0 sequences"),
        ({"position": "id", "bound": "transaction-start"}, "position: its type is bigint"),
    ],
)
async def test_what_does_not_fit_is_refused(foreign: Database, change: dict[str, Any], message: str) -> None:
    async with foreign.session() as session:
        with pytest.raises(ForeignJournalError, match=message):
            await check(session, replace(MAPPING, **change))


async def test_numbers_must_be_unique_in_a_source(owner: asyncpg.Connection, foreign: Database) -> None:
    await owner.execute('ALTER TABLE "Order log" DROP CONSTRAINT "Order log_pkey"')
    await insert(owner, "a", 1)
    async with foreign.session() as session:
        assert "CREATE UNIQUE INDEX" in (await check(session, MAPPING)).advice[0]
        await insert(owner, "a", 1, gone=True)
        await check(session, MAPPING)
        await insert(owner, "a", 1)
        with pytest.raises(ForeignJournalError, match="source 'a' has number 1 more than once"):
            await check(session, MAPPING)


async def test_a_sequence_that_sessions_keep_numbers_of_is_refused(
    owner: asyncpg.Connection, foreign: Database
) -> None:
    await owner.execute('ALTER SEQUENCE "Order log_id_seq" CACHE 10')
    async with foreign.session() as session:
        with pytest.raises(ForeignJournalError, match="without CACHE"):
            await check(session, MAPPING)


async def test_what_is_not_written_by_locking_it_is_refused(
    owner: asyncpg.Connection, foreign: Database
) -> None:
    """A view of the same rows would look right, and lose what commits late."""
    await owner.execute(
        'CREATE VIEW shown AS SELECT * FROM "Order log"; CREATE TABLE heir () INHERITS ("Order log");'
        "CREATE TABLE whole (s text, n bigint, id bigserial, at timestamptz, PRIMARY KEY (s, n)) PARTITION BY HASH (s);"
        "CREATE TABLE part PARTITION OF whole FOR VALUES WITH (MODULUS 1, REMAINDER 0)"
    )
    whole = TableMapping(
        table="whole", source="s", number="n", position="id", bound="sequence", entity_type=Constant("x"),
        event_type="s", payload=Constant("{}"),
    )  # fmt: skip
    async with foreign.session() as session:
        for mapping, said in (
            (replace(BY_TIME, table="shown"), "is not a table of its own"),
            (MAPPING, "is not a table of its own"),
            (replace(whole, table="part"), "is a partition: map the whole table"),
        ):
            with pytest.raises(ForeignJournalError, match=said):
                await check(session, mapping)
        await check(session, whole)


async def test_rows_of_a_subscription_are_refused(owner: asyncpg.Connection, foreign: Database) -> None:
    await owner.execute("CREATE SUBSCRIPTION s CONNECTION 'dbname=x' PUBLICATION p WITH (connect = false)")
    await owner.execute(
        "INSERT INTO pg_subscription_rel (srsubid, srrelid, srsubstate) "
        """SELECT oid, '"Order log"'::regclass, 'r' FROM pg_subscription WHERE subname = 's'"""
    )
    try:
        async with foreign.session() as session:
            with pytest.raises(ForeignJournalError, match="is filled by a subscription"):
                await check(session, MAPPING)
    finally:
        await owner.execute("ALTER SUBSCRIPTION s SET (slot_name = NONE)")
        await owner.execute("DROP SUBSCRIPTION s")


async def test_what_a_role_may_not_see_is_refused(
    empty_dsn: str, owner: asyncpg.Connection, login: Any
) -> None:
    said = conninfo_to_dict(login(None))
    dsn = make_conninfo(empty_dsn, user=said["user"], password=said["password"])
    async with connect(dsn, FOREIGN["asyncpg"]) as database, database.session() as session:
        role = await session.fetchval("SELECT current_user")
        with pytest.raises(ForeignJournalError, match=f'GRANT SELECT ON "public"."Order log" TO "{role}"'):
            await check(session, MAPPING)
        await owner.execute('CREATE SCHEMA hidden CREATE TABLE log (LIKE public."Order log")')
        with pytest.raises(ForeignJournalError, match=f'GRANT USAGE ON SCHEMA "hidden" TO "{role}"'):
            await check(session, replace(MAPPING, schema="hidden", table="log"))
        await owner.execute(f'GRANT SELECT ON "Order log" TO {role}')
        with pytest.raises(ForeignJournalError, match="GRANT SELECT ON SEQUENCE"):
            await check(session, MAPPING)
        with pytest.raises(ForeignJournalError, match=f"GRANT pg_read_all_stats TO {role}"):
            await check(session, BY_TIME)
        await owner.execute(f'GRANT SELECT ON SEQUENCE "Order log_id_seq" TO {role}')
        await check(session, MAPPING)
        await owner.execute(f"GRANT pg_read_all_stats TO {role}")
        advice = (await check(session, BY_TIME)).advice
        assert [
            a
            for a in advice
            if 'CREATE INDEX CONCURRENTLY ON "public"."Order log" ("at", "order", "version")' in a
        ]
        database_name = await session.fetchval("SELECT current_database()")
        await owner.execute(f"ALTER ROLE {role} IN DATABASE {database_name} SET track_activities = off")
        with pytest.raises(ForeignJournalError, match="track_activities is off"):
            await check(session, BY_TIME)
        await owner.execute(f"DROP OWNED BY {role}")


def test_a_mapping_is_written_in_toml_too() -> None:
    text = """
        table = "Order log"
        source = "order"
        number = "version"
        position = "id"
        bound = "sequence"
        entity_type = { constant = "order" }
        event_type = "kind"
        payload = { sql = "body -> 'data'" }
    """
    mapping = TableMapping.from_toml(text)
    assert (mapping.entity_type, mapping.payload) == (Constant("order"), Expression("body -> 'data'"))
    for wrong, message in (
        (text.replace("kind", "kind\\u0000"), "event_type"),
        (text.replace("event_type", "event_tpye"), "'event_tpye' is not known. Did you mean 'event_type'"),
        (text.replace("bound", "#"), "bound must be given"),
        (text.replace('"sequence"', '"clock"'), "bound must be"),
        (text.replace("constant", "text"), "entity_type must be"),
        (text + "version = 1", "version must be"),
        (text + "=", "not TOML"),
    ):
        with pytest.raises(InvalidValue, match=message):
            TableMapping.from_toml(wrong)


_LOCKS = f"""EXISTS (
    SELECT 1 FROM {OWN_LOCKS}
    WHERE l.pid = a.pid AND l.relation = 'public."Order log"'::regclass AND l.mode = 'RowExclusiveLock'
)"""


async def write(dsn: str, seconds: float, seed: int) -> None:
    async def rows(connection: asyncpg.Connection, order: str, last: int, count: int) -> None:
        for n in range(last + 1, last + count + 1):
            await insert(connection, order, n)

    await write_late(dsn, (f"{seed}-{n}" for n in range(5)), seconds, seed, rows)


@pytest.mark.parametrize("driver", FOREIGN)
async def test_a_page_that_takes_too_long_is_given_up(
    empty_dsn: str, owner: asyncpg.Connection, driver: str
) -> None:
    await insert(owner, "order-1", 1)
    slow = replace(MAPPING, payload=Expression("(SELECT '{}'::text FROM pg_sleep(60) WHERE version = 1)"))
    async with connect(empty_dsn, FOREIGN[driver]) as database:
        for mapping in (MAPPING, slow):
            async with database.session() as session:
                checked = await check(session, mapping)
            took = await page_time(database, checked, timedelta(seconds=0.2 if mapping is slow else 60))
            assert (took is None) == (mapping is slow)


async def begin_early(dsn: str, seconds: float) -> None:
    """Insert, and commit at once, in a transaction that has begun long before."""
    connection = await asyncpg.connect(dsn)
    async with connection.transaction():
        await connection.execute("SELECT 1")
        await asyncio.sleep(seconds)
        await insert(connection, "late", 1)
    await connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("mapping", [MAPPING, BY_TIME], ids=["sequence", "transaction-start"])
async def test_the_bound_finds_every_late_commit_and_the_wrong_ones_do_not(
    empty_dsn: str, foreign: Database, psycopg: Database, mapping: TableMapping
) -> None:
    log = await table_log(foreign, mapping, name="orders")
    also = await table_log(psycopg, mapping, name="orders")
    followers = [Follower(log), Follower(also), Follower(log, OnlyForward)]
    if mapping is BY_TIME:
        # That of our own journal: who takes the lock of the table after a poll is stamped after it.
        query = log.queries.poll.replace(
            "AND a.pid <> pg_backend_pid()", f"AND a.pid <> pg_backend_pid() AND {_LOCKS}"
        )
        by_lock = replace(log, queries=replace(log.queries, poll=query))
        followers.append(Follower(by_lock, lambda: WriterLockBacktracking(BEGINNING)))
    ended = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(follower.run(ended)) for follower in followers]
        await asyncio.gather(begin_early(empty_dsn, 3), *(write(empty_dsn, 6, seed) for seed in range(10)))
        ended.set()
        await asyncio.gather(*running)
    stored = await stored_keys(foreign, '"Order log"', '"order"', "version")
    lost = [len(stored - set(follower.handled)) for follower in followers]
    print(f"{mapping.bound}: {len(stored)} stored, lost {lost}")
    assert lost[:2] == [0, 0]
    assert all(lost[2:])
    assert not set(followers[0].handled) - stored


@pytest.mark.slow
async def test_a_prepared_transaction_is_waited_for(
    empty_dsn: str, owner: asyncpg.Connection, foreign: Database
) -> None:
    for mapping in (MAPPING, BY_TIME):
        log, ended = await table_log(foreign, mapping, name="orders"), asyncio.Event()
        follower = Follower(log, restarts=False)
        async with asyncio.TaskGroup() as group:
            group.create_task(follower.run(ended))
            prepared = await asyncpg.connect(empty_dsn)
            await prepared.execute("BEGIN")
            await insert(prepared, f"late-{mapping.bound}", 1)
            await asyncio.sleep(0.1)
            await insert(owner, f"early-{mapping.bound}", 1)
            await asyncio.sleep(0.1)
            await prepared.execute("PREPARE TRANSACTION 'one'")
            await asyncio.sleep(0.5)
            await insert(owner, f"early-{mapping.bound}", 2)
            await asyncio.sleep(0.5)
            await prepared.execute("COMMIT PREPARED 'one'")
            await prepared.close()
            ended.set()
        assert (f"late-{mapping.bound}", 1) in follower.handled
