"""Imports beside others: readers, appenders, evictions, roles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from journal import (
    ALL_SLICES,
    ConnectionSettings,
    Database,
    DatabaseError,
    EntityTypes,
    InvalidEvent,
    Position,
    ReadEvents,
    ReadKeys,
    SliceReader,
    WriterLockBacktracking,
    WritersPoller,
    append,
    connect,
)
from journal.importing import import_events
from offsets import evict
from tests.fixtures.journal import PAST, count, event, historic, pid, stored, until_blocked


@pytest.fixture(params=["asyncpg", "psycopg"])
async def database(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(driver=request.param)) as pool:
        yield pool


async def _until_anyone_is_blocked_by(database: Database, blocker: int) -> None:
    async with database.session() as session:
        while not await session.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))", blocker
        ):
            await asyncio.sleep(0.001)


async def test_append_to_the_same_source_waits_for_the_chunk(database: Database) -> None:
    """Both go on at the next number: what comes second fails or follows, nothing is stored twice."""
    async with database.session() as appender:
        await appender.begin()
        (first,) = await append(appender, [event("a")])
        importing = asyncio.create_task(import_events(database, [historic("a", 1)]))
        await _until_anyone_is_blocked_by(database, await pid(appender))
        await appender.commit()

    with pytest.raises(InvalidEvent, match="source 'a' has seq_nr 1 where 2 is due"):
        await importing
    assert [e.event_id for e in await stored(database, "a")] == [first.event_id]


async def test_imports_follow_one_another(database: Database) -> None:
    async with database.session() as other:
        await other.begin()
        await other.execute("LOCK TABLE projections.imports IN SHARE ROW EXCLUSIVE MODE")
        importing = asyncio.create_task(import_events(database, [historic("a", 1)]))
        await _until_anyone_is_blocked_by(database, await pid(other))
        await other.commit()
        await importing

    assert await count(database, "projections.imports") == 1


async def _read(
    database: Database, state: WriterLockBacktracking, poller: WritersPoller
) -> list[tuple[str, int]]:
    """One poll and all reads that follow it; the events that were read."""
    reader, found, number = SliceReader("plane", ALL_SLICES, 10), [], poller.number
    look = await poller.look(
        "test", EntityTypes(("plane",)), state.position.db_timestamp, number, state.import_id
    )
    state.polled(look.poll)
    async with database.session() as session:
        while isinstance(step := state.next_step(), ReadKeys | ReadEvents):
            read: Any = reader.keys if isinstance(step, ReadKeys) else reader.events
            told = state.keys_read if isinstance(step, ReadKeys) else state.events_read
            page = await read(session, step.after, step.until)
            last = page[-1] if page else None
            told(
                last and Position(last.db_timestamp, last.slice, last.source_id, last.seq_nr),
                full=len(page) == 10,
            )
            found += [(e.source_id, e.seq_nr) for e in page]
    return found


async def test_reader_that_is_past_these_times_goes_back_to_them(database: Database) -> None:
    async with database.transaction() as session:
        await append(session, [event("live") for _ in range(25)])
    poller, state = WritersPoller(database), WriterLockBacktracking(PAST)
    while ("live", 25) not in await _read(database, state, poller):
        pass
    before = state.horizon

    await import_events(database, [historic("old", n) for n in range(1, 26)], chunk=10)
    found = await _read(database, state, poller)

    assert {("old", n) for n in range(1, 26)} <= set(found)
    assert before > PAST + timedelta(days=1)
    await _read(database, state, poller)
    assert state.horizon >= before


async def test_reader_of_another_entity_type_does_not_go_back(database: Database) -> None:
    poller = WritersPoller(database)
    await import_events(database, [historic("old", 1)])

    look = await poller.look("test", EntityTypes(("ship",)), PAST, 0, 0)

    assert look.poll.imports == {}


async def _project(database: Database, evicted_before: datetime) -> None:
    async with database.session() as session:
        await session.execute(
            "INSERT INTO projections.projections (name, entity_types, evicted_before) "
            "VALUES ('delays', '{plane}', $1)",
            evicted_before,
        )


async def test_import_of_evicted_time_is_refused(database: Database) -> None:
    await _project(database, PAST + timedelta(seconds=2))

    with pytest.raises(InvalidEvent, match="projection 'delays' no longer knows what it handled before"):
        await import_events(database, [historic("a", 1)])
    await import_events(database, [historic("a", 1, seconds=1)])

    assert await count(database) == 1


async def test_matching_refuses_no_import(database: Database) -> None:
    """It reads every type, also one whose history is imported while it runs; such history is for nobody."""
    await _project(database, PAST + timedelta(seconds=2))
    async with database.session() as session:
        await session.execute("UPDATE projections.projections SET name = 'matching', entity_types = NULL")

    await import_events(database, [historic("a", 1)])

    assert await count(database) == 1


async def test_import_and_eviction_wait_for_each_other(database: Database) -> None:
    """An import that has checked the bound would miss a bound that moves before it commits."""
    await _project(database, datetime(1971, 1, 1, tzinfo=UTC))
    async with database.session() as evicting:
        await evicting.begin()
        await evicting.execute(
            "SELECT projections._evict_offsets_v1(p.projection_id, '0', '') FROM projections.projections AS p"
        )
        await evicting.execute("UPDATE projections.projections SET evicted_before = now()")
        importing = asyncio.create_task(import_events(database, [historic("a", 1)]))
        await _until_anyone_is_blocked_by(database, await pid(evicting))
        await evicting.commit()

    with pytest.raises(InvalidEvent, match="cannot be imported: projection 'delays'"):
        await importing


async def test_import_and_eviction_do_not_trust_a_snapshot_from_before_their_lock(database: Database) -> None:
    """In REPEATABLE READ neither would see what the other has committed."""
    for call in ("_import_events_v1()", "_evict_offsets_v1(1, '0', '')"):
        async with database.session() as session:
            await session.begin()
            await session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            with pytest.raises(DatabaseError, match="needs the isolation level READ COMMITTED"):
                await session.execute(f"SELECT projections.{call}")
            await session.rollback()


async def test_import_and_eviction_work_where_the_default_is_serializable(
    database: Database, dsn: str
) -> None:
    async with database.session() as session:
        name = await session.fetchval("SELECT quote_ident(current_database())")
        await session.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")

    async with connect(dsn) as serializable:
        await _project(serializable, datetime(1971, 1, 1, tzinfo=UTC))
        result = await import_events(serializable, [historic("a", 1)])
        async with serializable.session() as session:
            await evict(session, 1, timedelta(0))

    assert result.events == 1


async def test_role_without_the_grant_is_told_so(database: Database, dsn: str) -> None:
    async with database.session() as session:
        await session.execute("SET ROLE projections_reader")
        await session.begin()
        with pytest.raises(DatabaseError, match="permission denied"):
            await session.execute("SELECT projections._import_events_v1()")
        await session.rollback()
        await session.execute("RESET ROLE")


async def test_writers_role_may_import(database: Database, dsn: str) -> None:
    async with database.session() as session:
        await session.execute("SET ROLE projections_writer")
        await session.begin()
        await session.execute(
            "CREATE TEMPORARY TABLE projections_import (source_id text, entity_type text, event_type text, "
            "payload text, version smallint, metadata text, tags text, event_id uuid, seq_nr bigint, "
            "db_timestamp timestamptz) ON COMMIT DROP"
        )
        await session.execute("SELECT projections._import_events_v1()")
        await session.commit()
        await session.execute("RESET ROLE")


async def test_blocked_import_is_seen_as_a_writer(database: Database) -> None:
    """The import takes the append lock before its rows: a reader's poll counts it among the writers."""
    async with database.session() as gate, database.session() as session:
        await gate.begin()
        await append(gate, [event("a")])
        await session.begin()
        session_pid = await pid(session)
        importing = asyncio.create_task(
            session.execute("SELECT projections._lock_sources_v1(ARRAY['a'], ARRAY['plane'])")
        )
        await until_blocked(database, [session_pid])
        async with database.session() as look:
            rows = await look.fetch("SELECT pid FROM projections.writers_in_flight_v1()")
        await gate.rollback()
        await importing
        await session.rollback()

    assert session_pid in {row["pid"] for row in rows}
