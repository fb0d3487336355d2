"""Behind PgBouncer in transaction mode, where no session belongs to anybody: claims hold and nothing is repeated."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import offsets
from journal import ConnectionSettings, Database, connect
from tests.fixtures.pgbouncer import pooler
from tests.fixtures.projections import until
from tests.fixtures.workers import appending, claimed_after, prepare, seen_once, send, shared_by, worker

pytestmark = pytest.mark.slow


@pytest.fixture
async def journal(dsn: str, tmp_path: Path) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(max_connections=5)) as pool:
        await prepare(pool, tmp_path)
        yield pool


@pytest.fixture
async def bouncer(dsn: str) -> AsyncIterator[str]:
    async with pooler(dsn) as address:
        yield address


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_ranges_move_between_workers_and_each_event_is_handled_once(
    journal: Database, bouncer: str, tmp_path: Path, driver: str
) -> None:
    options = ("--driver", driver, "--lease", "2s")
    async with AsyncExitStack() as workers:
        first, second = [await workers.enter_async_context(worker(bouncer, tmp_path, *options)) for _ in "12"]
        await shared_by(journal, 2)
        async with appending(journal):
            await until(journal, "SELECT count(DISTINCT pid) = 2 FROM seen")
            stopped_at = await send(journal, first, signal.SIGTERM)
            await shared_by(journal, 1)
            after_stop = await claimed_after(journal, stopped_at)

            await workers.enter_async_context(worker(bouncer, tmp_path, *options))
            await shared_by(journal, 2)
            for ranges in [3, 100, 1, 8]:
                async with journal.session() as session:
                    await offsets.rescale(session, "seen", ranges)
            await shared_by(journal, 2)
            killed_at = await send(journal, second, signal.SIGKILL)
            await shared_by(journal, 1)
            after_kill = await claimed_after(journal, killed_at)
        await seen_once(journal)

    assert (len(after_stop), len(after_kill)) == (4, 4)
    assert max(after_stop) < 1
    assert max(after_kill) < 3
