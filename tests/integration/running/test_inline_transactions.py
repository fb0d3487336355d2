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

from journal import Database, DatabaseError
from projections import EventEnvelope, HandlerFailed, Inline, Session, handles, projection
from projections.testing import run_until_caught_up
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
    counted,
    event,
    inline_journal,
    mode,
)
from tests.fixtures.projections import Failure, Happened, fetchval

ASYNC = [by_asyncpg, by_session, by_sqlalchemy_asyncpg, by_psycopg_async, by_psycopg_session]
REFUSED = (DatabaseError, asyncpg.InterfaceError, SQLAlchemyError)
_WRONG = """
SELECT count(*) FROM projections.sources AS s FULL JOIN counts AS c USING (source_id)
WHERE (s.seq_nr, s.seq_nr) IS DISTINCT FROM (c.n, c.last)
"""


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with inline_journal(dsn) as database:
        yield database


async def handled_once(journal: Database) -> None:
    """Each event that is in the journal is handled once, when workers have handled the rest."""
    await run_until_caught_up(journal, DELAYS)
    assert await fetchval(journal, _WRONG) == 0
    events = await fetchval(journal, "SELECT count(*) FROM projections.events")
    assert await fetchval(journal, "SELECT coalesce(sum(n), 0) FROM kinds") == events


@pytest.mark.parametrize("way", WAYS)
class TestSavepoints:
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

    async def test_a_handler_that_fails_is_undone_by_one(self, journal: Database, dsn: str, way: Way) -> None:
        async with way(dsn) as caller:
            await caller.execute("SAVEPOINT one")
            with pytest.raises(HandlerFailed):
                await caller.call(TWINS, [event("a"), event("b", -1)])
            with pytest.raises(Exception, match="aborted"):
                await caller.execute("SELECT 1")
            await caller.execute("ROLLBACK TO one")
            await caller.call(TWINS, [event("a")])

        assert await counted(journal) == (1, 0)
        await handled_once(journal)


@pytest.mark.parametrize("way", ASYNC)
class TestOneConnection:
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
                with pytest.raises(HandlerFailed):
                    await Inline(Gathering).append(caller.connection, [event()])
                await asyncio.sleep(0.1)

        assert await fetchval(journal, "SELECT count(*) FROM projections.events") == 0

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
