"""Handling inline on a database that goes back in time, with its read models and the modes of its projections."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import Any, NamedTuple

import pytest

import offsets
from journal import ConnectionSettings, Database, ProjectionsError, connect
from projections import Inline
from projections.testing import run_until_caught_up
from tests.fixtures.failover import Server, pair
from tests.fixtures.going_back import go_back, remember
from tests.fixtures.inline import COUNTED, DELAYS, WRONG, event, inline_journal, mode, prepare
from tests.fixtures.projections import execute, fetchval, happen, running, until

SOURCES = [f"s{number}" for number in range(6)]


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with inline_journal(dsn) as database:
        yield database


async def handled_once(database: Database) -> None:
    await until(database, f"SELECT ({COUNTED}) = (SELECT count(*) FROM projections.events)")
    assert await fetchval(database, WRONG) == 0
    assert await fetchval(database, f"SELECT sum(n) = ({COUNTED}) FROM kinds")


async def append_both(database: Database, inline: Inline, chance: random.Random, turns: int) -> None:
    """Append inline and without it, from several connections at once."""

    async def often() -> None:
        for _ in range(turns):
            some = chance.sample(SOURCES, 3)
            if chance.random() < 0.3:
                await happen(database, *some)
                continue
            async with database.transaction() as session:
                await inline.append(session, [event(source) for source in some])

    await asyncio.gather(*(often() for _ in range(3)))


@pytest.mark.daily(1)
@pytest.mark.parametrize("before", ["inline", "live"])
@pytest.mark.parametrize("after", ["inline", "live"])
async def test_what_is_appended_later_is_handled_once_beside_workers_that_stay(
    journal: Database, before: offsets.Mode, after: offsets.Mode
) -> None:
    inline, chance = Inline(DELAYS), random.Random(before + after)
    await mode(journal, before)
    async with running(journal, DELAYS, ranges=3):
        await append_both(journal, inline, chance, 3)
        await remember(journal)
        await append_both(journal, inline, chance, 2)
        await mode(journal, after)
        await append_both(journal, inline, chance, 4)

        await go_back(journal)

        await append_both(journal, inline, chance, 5)
        await handled_once(journal)
    assert await fetchval(journal, "SELECT mode FROM projections.projections WHERE name = 'p'") == before
    await run_until_caught_up(journal, DELAYS)
    await handled_once(journal)


class Case(NamedTuple):
    """A database with a worker and who appends, and the mode before and after the time that is lost."""

    driver: Any
    before: offsets.Mode
    after: offsets.Mode

    @property
    def name(self) -> str:
        return "_".join(self)


CASES = [
    Case("asyncpg", "inline", "inline"),
    Case("psycopg", "inline", "live"),
    Case("asyncpg", "live", "inline"),
    Case("psycopg", "live", "live"),
]


async def reachable(database: Database) -> None:
    async with asyncio.timeout(300):
        while True:
            with suppress(ProjectionsError, TimeoutError):
                return await execute(database, "INSERT INTO kinds SELECT WHERE FALSE")


@pytest.mark.slow
async def test_what_the_promoted_standby_holds_is_handled_once(base_cluster: Server) -> None:
    inline, chance = Inline(DELAYS), random.Random(1)
    async with pair(base_cluster, *(case.name for case in CASES)) as servers, AsyncExitStack() as stack:
        for case in CASES:
            async with connect(servers.primary.dsn(case.name)) as database:
                await prepare(database)
                await mode(database, case.before)
        await asyncio.to_thread(servers.follow)
        databases = []
        for case in CASES:
            options = ConnectionSettings(driver=case.driver, max_connections=10)
            database = await stack.enter_async_context(connect(servers.direct(case.name), options))
            await stack.enter_async_context(running(database, DELAYS, ranges=3))
            databases.append(database)
        for database in databases:
            await append_both(database, inline, chance, 3)
        await asyncio.to_thread(servers.cut)
        for case, database in zip(CASES, databases, strict=True):
            await append_both(database, inline, chance, 2)
            await mode(database, case.after)
            await append_both(database, inline, chance, 2)
            await handled_once(database)

        await servers.fail_over()

        for case, database in zip(CASES, databases, strict=True):
            await reachable(database)
            await append_both(database, inline, chance, 5)
            await handled_once(database)
            found = await fetchval(database, "SELECT mode FROM projections.projections WHERE name = 'p'")
            assert found == case.before, case
