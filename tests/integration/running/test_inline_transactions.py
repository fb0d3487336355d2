"""Handling inline in the transactions that applications have: nested, limited, cancelled, isolated, at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from typing import Any

import asyncpg
import pytest
from sqlalchemy.exc import SQLAlchemyError

from journal import Database, DatabaseError, DatabaseUnavailable
from projections import Changes, EventEnvelope, Inline, ProjectionFailed, Session, Table, handles, projection
from projections.testing import run_until_caught_up
from spark_projections.rebuilds.rebuilding import rebuild
from spark_projections.rebuilds.repairing import repair, verify
from tests.fixtures.connections import (
    WAYS,
    Way,
    by_asyncpg,
    by_psycopg_async,
    by_psycopg_session,
    by_session,
    by_sqlalchemy_asyncpg,
)
from tests.fixtures.inline import (
    DELAYS,
    TWINS,
    WRONG,
    Counting,
    counted,
    counting,
    event,
    inline,
    inline_journal,
    mode,
)
from tests.fixtures.locks import WAITING
from tests.fixtures.projections import NO_RETRY, Failure, Happened, execute, fetchval, happen, running, until
from tests.fixtures.rebuilds import ONE, Counts

ASYNC = [by_asyncpg, by_session, by_sqlalchemy_asyncpg, by_psycopg_async, by_psycopg_session]
REFUSED = (DatabaseError, asyncpg.InterfaceError, SQLAlchemyError)
LOW, HIGH = (Table(name, key="kind", increment="n") for name in ("low", "high"))
_GONE = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)"


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with inline_journal(dsn) as database:
        yield database


async def handled_once(journal: Database, definition: Any = DELAYS) -> None:
    """Each event that is in the journal is handled once, when workers have handled the rest."""
    await run_until_caught_up(journal, definition)
    assert await fetchval(journal, WRONG) == 0
    events = await fetchval(journal, "SELECT count(*) FROM projections.events")
    assert await fetchval(journal, "SELECT coalesce(sum(n), 0) FROM kinds") == events


@pytest.mark.parametrize("way", WAYS)
class TestSavepoints:
    @pytest.mark.slow
    async def test_what_is_undone_is_not_handled(self, journal: Database, dsn: str, way: Way) -> None:
        async with way(dsn) as caller:
            await caller.call(TWINS, [event("a")])
            for _ in range(2):
                await caller.execute("SAVEPOINT one")
                await caller.call(TWINS, [event("a"), event("b")])
                await caller.execute("ROLLBACK TO one")
            await caller.call(TWINS, [event("a")])

        assert await counted(journal) == (2, 0)
        await handled_once(journal)

    @pytest.mark.slow
    async def test_a_handler_that_fails_is_undone_by_one(self, journal: Database, dsn: str, way: Way) -> None:
        async with way(dsn) as caller:
            await caller.execute("SAVEPOINT one")
            with pytest.raises(ProjectionFailed):
                await caller.call(TWINS, [event("a"), event("b", -1)])
            with pytest.raises(Exception, match="aborted"):
                await caller.execute("SELECT 1")
            await caller.execute("ROLLBACK TO one")
            await caller.call(TWINS, [event("a")])

        assert await counted(journal) == (1, 0)
        await handled_once(journal)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("setting", "state"), [("lock_timeout", "55P03"), ("statement_timeout", "57014")])
async def test_a_limit_of_the_session_is_no_failure_of_the_handler(
    journal: Database, dsn: str, way: Way, setting: str, state: str
) -> None:
    async with by_asyncpg(dsn) as other:
        await other.call(TWINS, [event("a")])  # has the row that all sources share
        with suppress(*REFUSED):
            async with way(dsn) as caller:
                await caller.execute(f"SET LOCAL {setting} = 100")
                with pytest.raises(DatabaseError, match="timeout") as refused:
                    await caller.call(TWINS, [event("b")])

    assert refused.value.sqlstate == state
    assert await counted(journal) == (1, 0)
    await handled_once(journal)


async def test_a_connection_that_is_lost_on_the_way_commits_nothing(journal: Database, dsn: str) -> None:
    async with by_asyncpg(dsn) as other:
        await other.call(TWINS, [event("a")])
        lost = await asyncpg.connect(dsn)
        await lost.execute("BEGIN")
        late = asyncio.create_task(TWINS[0](lost, [event("b")]))
        await until(journal, f"SELECT EXISTS (SELECT FROM {WAITING})")
        await execute(journal, f"SELECT pg_terminate_backend({lost.get_server_pid()})")
        with pytest.raises(DatabaseUnavailable):
            await late

    assert await counted(journal) == (1, 0)
    await handled_once(journal)


async def test_a_transaction_that_idled_too_long_commits_nothing(journal: Database, dsn: str) -> None:
    with suppress(*REFUSED):
        async with by_psycopg_async(dsn) as caller:
            await caller.execute("SET LOCAL idle_in_transaction_session_timeout = 50")
            await caller.call(TWINS, [event("a")])
            await until(journal, _GONE, caller.connection.info.backend_pid)
            with pytest.raises(DatabaseUnavailable):
                await caller.call(TWINS, [event("a")])

    assert await fetchval(journal, "SELECT count(*) FROM projections.events") == 0
    await handled_once(journal)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
async def test_appends_beside_repairs_and_comparisons(journal: Database, dsn: str, level: str) -> None:
    await happen(journal, *"abc")
    await run_until_caught_up(journal, Counts)
    await mode(journal, "inline", "counts")
    inline, over = Inline(Counts), asyncio.Event()

    async def often() -> None:
        connection = await asyncpg.connect(dsn)
        while not over.is_set():
            with suppress(*REFUSED, asyncpg.SerializationError):
                async with connection.transaction(isolation=level.lower().replace(" ", "_")):
                    await inline.append(connection, [event("a"), event("b")])
        await connection.close()

    async with running(journal, Counts, ranges=2):
        appending = [asyncio.create_task(often()) for _ in range(2)]
        for _ in range(3):
            await execute(journal, "UPDATE counts SET n = n + 100 WHERE source_id = 'a'")
            assert (await repair(journal, Counts, ["a"])).differing == 1
            assert (await verify(journal, Counts, sources=None)).differing == 0
        over.set()
        await asyncio.gather(*appending)
    await run_until_caught_up(journal, Counts)

    assert await fetchval(journal, WRONG) == 0


async def test_a_rebuild_of_another_version_beside_appends_of_both(journal: Database, dsn: str) -> None:
    later = counting(version=2, recovery=NO_RETRY)
    inlines, over = [Inline(DELAYS), Inline(later)], asyncio.Event()
    await inline(journal, event("a"))

    async def often(inline: Inline) -> None:
        while not over.is_set():
            async with journal.transaction() as session:
                await inline.append(session, [event("a"), event("b")])

    appending = [asyncio.create_task(often(one)) for one in inlines]
    await rebuild(journal, dsn, later, ONE)
    over.set()
    await asyncio.gather(*appending)
    await run_until_caught_up(journal, later)
    handled = await counted(journal)
    for one in inlines:
        async with journal.transaction() as session:
            await one.append(session, [event(f"{one is inlines[0]}")])

    assert await counted(journal) == (handled[0] + 1, handled[1])
    await handled_once(journal, later)


async def test_projections_that_write_tables_in_opposite_order_do_not_deadlock(journal: Database) -> None:
    class Opposite(Counting):
        @handles(Happened)
        def happened(self, event: Happened, envelope: EventEnvelope) -> Changes:
            return [LOW.upsert(kind="all", n=1), HIGH.upsert(kind="all", n=1)][:: -1 if self.back else 1]

        back = False

    there = projection("there", entity_type="plane")(type("There", (Opposite,), {}))
    back = projection("back", entity_type="plane")(type("Back", (Opposite,), {"back": True}))
    for table in (LOW, HIGH):
        await execute(journal, f"CREATE TABLE {table} (kind text PRIMARY KEY, n bigint NOT NULL DEFAULT 0)")
    await run_until_caught_up(journal, there, back)
    for name in ("there", "back"):
        await mode(journal, "inline", name)

    async def often(inline: Inline, source: str) -> None:
        for _ in range(15):
            async with journal.transaction() as session:
                await inline.append(session, [event(source)])
            await happen(journal, source)

    async with running(journal, there, back):
        given = [Inline(there, back), Inline(back, there), Inline(there), Inline(back)]
        await asyncio.gather(*(often(inline, f"{n}") for n, inline in enumerate(given)))
    await run_until_caught_up(journal, there, back)

    for table in (LOW, HIGH):
        assert await fetchval(journal, f"SELECT n FROM {table}") == 2 * 4 * 30


@pytest.mark.parametrize("way", ASYNC)
class TestOneConnection:
    @pytest.mark.slow
    async def test_appends_at_once_are_handled_or_refused(
        self, journal: Database, dsn: str, way: Way
    ) -> None:
        for turn in range(10):
            with suppress(*REFUSED):  # where it takes one statement at a time
                async with way(dsn) as caller:
                    events = [[event("a"), event(f"{number}")] for number in range(3)]
                    appends = [caller.call(TWINS, some) for some in events]
                    await asyncio.gather(*appends, return_exceptions=turn % 2 == 0)

        await handled_once(journal)

    async def test_a_handler_whose_statement_still_runs_when_it_fails_commits_nothing(
        self, journal: Database, dsn: str, way: Way
    ) -> None:
        @projection("q", entity_type="plane")
        class Gathering:
            @handles(Happened)
            async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
                async with asyncio.TaskGroup() as group:
                    group.create_task(shielded(session.execute("SELECT pg_sleep(0.05)")))
                    group.create_task(session.execute("SELECT 1"))
                raise Failure("where both were taken, one after the other")

        await mode(journal, "inline", "q")
        with suppress(Exception):
            async with way(dsn) as caller:
                with pytest.raises(ProjectionFailed):
                    await Inline(Gathering).append(caller.connection, [event()])
                await asyncio.sleep(0.1)

        assert await fetchval(journal, "SELECT count(*) FROM projections.events") == 0

    @pytest.mark.slow
    async def test_what_is_cancelled_at_any_moment_is_handled_or_not_there(
        self, journal: Database, dsn: str, way: Way
    ) -> None:
        chance = random.Random(1)
        for _ in range(60):
            with suppress(*REFUSED):  # some say that there was an error before it
                async with way(dsn) as caller:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(chance.uniform(0.0001, 0.015)):
                            await caller.call(TWINS, [event("a"), event("b")])

        await handled_once(journal)


async def shielded(call: Awaitable[Any]) -> None:
    """Goes on after it was cancelled, as a call that somebody else has begun."""
    await asyncio.shield(asyncio.ensure_future(call))
