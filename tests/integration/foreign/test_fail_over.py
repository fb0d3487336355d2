"""The server of another system's journal fails over, and what got lost numbers is handled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import asyncpg

from journal import Database, Log, connect
from journal.foreign import table_log
from tests.fixtures.failover import Pair, Server, pair
from tests.fixtures.foreign import FOREIGN, Orders
from tests.fixtures.projections import (
    EFFECTS,
    caught_up,
    effects,
    execute,
    running,
    until,
    until_effects,
)
from tests.integration.foreign.test_attacks import MAPPINGS, TABLE, insert
from tests.integration.going_back.test_two_databases import answered

_LOGGED_AHEAD = 33
"""Numbers that a sequence may draw until it writes to the log of the server again."""


class Servers(NamedTuple):
    """A primary with the table and its standby, and a database of read models on another server."""

    pair: Pair
    dsn: str
    journal: Database
    log: Log
    read_side: Database


@asynccontextmanager
async def servers_of(base_cluster: Server, dsn: str, bound: str) -> AsyncIterator[Servers]:
    async with pair(base_cluster, "one") as servers, connect(dsn) as read_side:
        await asyncio.to_thread(servers.follow)
        # Who may only read finds no server that is "read-write".
        theirs = servers.direct("one").replace("read-write", "primary")
        application = await asyncpg.connect(theirs)
        await application.execute(f"{TABLE}; CREATE INDEX ON orders (at)")
        await application.close()
        await execute(read_side, EFFECTS)
        async with connect(theirs, FOREIGN["asyncpg"]) as journal:
            log = await table_log(journal, MAPPINGS[bound], name="shop")
            yield Servers(servers, theirs, journal, log, read_side)


async def write(servers: Servers, *names: str) -> None:
    application = await asyncpg.connect(servers.dsn)
    await insert(application, *names)
    await application.close()


async def fail_over(servers: Servers) -> None:
    await servers.pair.fail_over()
    await answered(servers.journal)


async def test_numbers_that_are_drawn_again_are_read_again(base_cluster: Server, dsn: str) -> None:
    """Events of sources that have lost nothing have numbers that were passed already."""
    async with servers_of(base_cluster, dsn, "sequence") as servers:
        await write(servers, "a")
        async with running(servers.read_side, Orders, journal=servers.log, ranges=2):
            await until_effects(servers.read_side, 1)
            await asyncio.to_thread(servers.pair.cut)
            await write(servers, *["lost"] * (2 * _LOGGED_AHEAD))
            await until_effects(servers.read_side, 1 + 2 * _LOGGED_AHEAD)
        await fail_over(servers)
        await write(servers, "a", "new", *["other"] * (2 * _LOGGED_AHEAD))
        async with running(servers.read_side, Orders, journal=servers.log, ranges=2):
            await until(servers.read_side, "SELECT count(*) = 1 FROM projections.parked_sources")
        await caught_up(servers.read_side, Orders, journal=servers.log)
        handled = (await effects(servers.read_side))[1 + 2 * _LOGGED_AHEAD :]
    assert [one for one in handled if one[0] != "other"] == [("a", 2), ("new", 1)]
    assert [number for name, number in handled if name == "other"] == list(range(1, 2 * _LOGGED_AHEAD + 1))
