"""A worker that is short of memory goes on with less at a time, and ends when it is told to, whatever it waits for."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE

import pytest

from journal import Database, Event, RawJson, append
from tests.fixtures.commands import environment
from tests.fixtures.projections import (
    EFFECTS,
    each_once,
    effects,
    execute,
)

MIB = 2**20

# Handles what it is told to with so many bytes of memory more than it has after its start.
LIMITED = """
import asyncio, logging, resource, sys
from journal import ConnectionSettings, connect
from projections import run
from tests.fixtures.projections import recording, settings

logging.basicConfig(level=logging.INFO, format="%(message)s")

def limit(more):
    with open("/proc/self/statm") as statm:
        size = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + more, size + more))

async def main(dsn, driver, more, ranges):
    async with connect(dsn, ConnectionSettings(driver=driver, max_connections=20)) as database:
        async def limited(session, event, envelope):
            pass
        limit(int(more))
        await run(database, recording(), ranges=int(ranges), settings=settings(), until_caught_up=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def heavy(database: Database, source_id: str, number: int, size: int) -> None:
    payload = RawJson('{"n": 1, "pad": "%s"}' % ("x" * size))
    for _ in range(number):
        async with database.transaction() as session:
            await append(session, [Event(source_id, payload, "plane", "Happened")])


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_process_with_less_memory_than_a_page_handles_all(
    database: Database, dsn: str, driver: str
) -> None:
    await execute(database, EFFECTS)
    for source_id in ("a", "b"):
        await heavy(database, source_id, 15, 5 * MIB)

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LIMITED, dsn, driver, str(60 * MIB), "2", stderr=PIPE, env=environment()
    )
    _, said = await asyncio.wait_for(process.communicate(), 100)

    print(said.decode())
    assert process.returncode == 0, said.decode()
    each_once(await effects(database), a=15, b=15)
