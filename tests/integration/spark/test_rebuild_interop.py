"""Rebuilds beside real applications of other systems, which write, delete and are killed: on the JVM and on Node."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import asyncpg
import pytest
from pydantic import BaseModel

from journal import Database, EventEnvelope, Log, connect, event_type
from journal.foreign import emmett, message_db, pekko_payloads, pekko_r2dbc, table_log
from projections import Changes, Table, handles, projection
from spark_projections.errors import RebuildFailed
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import rebuild
from spark_projections.rebuilds.repairing import verify
from tests.fixtures import node_systems
from tests.fixtures.akka import TABLES
from tests.fixtures.foreign import FOREIGN, stored_keys, write_late
from tests.fixtures.foreign_tables import read_side
from tests.fixtures.java import JavaProgram, ended, needs_java, r2dbc_url
from tests.fixtures.projections import caught_up, execute, fetchval, running

__all__ = ["read_side"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
needs_npm = pytest.mark.skipif(not all(map(shutil.which, node_systems.PROGRAMS)), reason="needs npm and Node")

CATEGORIES = ("account", "cart", "order", "fee")
ROWS = Table("counts", key="source_id", increment="n", maximum="last", source="source_id")
MANY = "SELECT coalesce(sum(n), 0) > $1 FROM counts"
TWO = RebuildOptions(splits=2)


class Paid(BaseModel):
    amount: str


@event_type("interop.Events$Paid")
class AkkaPaid(BaseModel):
    amount: int


def counted(envelope: EventEnvelope) -> Changes:
    return ROWS.upsert(source_id=envelope.source_id, n=1, last=envelope.seq_nr)


@projection("payments", entity_type=CATEGORIES)
class Payments:
    @handles(Paid)
    def paid(self, event: Paid, envelope: EventEnvelope) -> Changes:
        return counted(envelope)


@projection("accounts", entity_type="account")
class Accounts:
    @handles(AkkaPaid)
    def paid(self, event: AkkaPaid, envelope: EventEnvelope) -> Changes:
        return counted(envelope)


@projection("carts", entity_type="cart")
class Carts:
    @handles(AkkaPaid)
    def paid(self, event: AkkaPaid, envelope: EventEnvelope) -> Changes:
        return counted(envelope)


async def until(database: Database, sql: str, *args: object) -> None:
    """Wait for a machine or a runtime that takes its time."""
    async with asyncio.timeout(240), database.session() as session:
        while not await session.fetchval(sql, *args):
            await asyncio.sleep(0.05)


async def rows(database: Database) -> dict[str, tuple[int, int]]:
    async with database.session() as session:
        found = await session.fetch("SELECT source_id, n, last FROM counts")
    return {row["source_id"]: (row["n"], row["last"]) for row in found}


async def exact(database: Database, read_side: Database, log: Log, keys: tuple[str, str, str]) -> None:
    """Each event that is stored counts once, and no other."""
    await caught_up(read_side, Payments, journal=log)
    assert (await verify(read_side, Payments, sources=None, journal=log)).differing == 0
    stored = await stored_keys(database, *keys)
    of = {source: [number for one, number in stored if one == source] for source, _ in stored}
    assert await rows(read_side) == {source: (len(numbers), max(numbers)) for source, numbers in of.items()}


@needs_npm
async def test_an_application_of_emmett_that_is_killed_while_one_rebuilds(
    empty_dsn: str, read_side: Database, tmp_path: Path
) -> None:
    await asyncio.to_thread(node_systems.fetch, tmp_path)

    async def emmett_runs(*arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec("node", "emmett.mjs", empty_dsn, *arguments, cwd=tmp_path)

    assert await (await emmett_runs("schema")).wait() == 0
    keys = ("emt_messages", "stream_id", "stream_position")
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database:
        log = await table_log(database, emmett(), name="emmett")
        async with running(read_side, Payments, journal=log, ranges=2):
            application = await emmett_runs("write", "100", "a")
            await until(read_side, MANY, 100)
            work = asyncio.create_task(rebuild(read_side, read_side.dsn, Payments, TWO, journal=log))
            await until(read_side, "SELECT count(*) = 1 FROM projections.rebuilds")
            await until(read_side, MANY, 300)
            application.kill()  # in the middle of transactions
            await application.wait()
            first = await work
            second = await rebuild(read_side, read_side.dsn, Payments, TWO, journal=log)
        await exact(database, read_side, log, keys)
    print(f"{first.events} and {second.events} events rebuilt while Emmett wrote")
    assert 100 < first.events <= second.events


@needs_npm
async def test_functions_of_message_db_that_commit_late_while_one_rebuilds(
    empty_dsn: str, read_side: Database, tmp_path: Path
) -> None:
    await asyncio.to_thread(node_systems.fetch, tmp_path)
    connection = await asyncpg.connect(empty_dsn)
    await node_systems.install_message_db(connection, tmp_path)
    await connection.close()

    async def insert(connection: asyncpg.Connection, stream: str, last: int, count: int) -> None:
        await node_systems.write_messages(connection, stream, count)

    streams = [f"{category}-{n}" for category in CATEGORIES for n in range(3)]
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database:
        log = await table_log(database, message_db(), name="store")
        async with running(read_side, Payments, journal=log, ranges=2):
            writing = asyncio.gather(*(write_late(empty_dsn, streams, 12, seed, insert) for seed in range(6)))
            await until(read_side, MANY, 50)
            result = await rebuild(read_side, read_side.dsn, Payments, TWO, journal=log)
            await writing
        await exact(database, read_side, log, ("message_store.messages", "stream_name", "position + 1"))
    print(f"{result.events} events rebuilt while message-db wrote")
    assert result.events > 50


@needs_java
async def test_an_application_of_akka_that_deletes_events_while_one_rebuilds(
    dsn: str, read_side: Database, tmp_path: Path
) -> None:
    akka = await asyncio.to_thread(JavaProgram, "akka", tmp_path)
    async with connect(dsn, FOREIGN["asyncpg"]) as database, connect(dsn) as owner:
        await execute(owner, TABLES)
        log = await table_log(database, pekko_r2dbc(), name="bank", decode=pekko_payloads())
        async with (
            akka.running("Writer", r2dbc_url(dsn), 40, 5) as application,
            running(read_side, Accounts, journal=log, ranges=2),
        ):
            await until(read_side, MANY, 200)
            first = await rebuild(read_side, read_side.dsn, Accounts, TWO, journal=log)
            before = await fetchval(read_side, "SELECT sum(n) FROM counts")
            await until(read_side, MANY, before + 200)
            second = await rebuild(read_side, read_side.dsn, Accounts, TWO, journal=log)
            await ended(application)
        await caught_up(read_side, Accounts, journal=log)
        assert (await verify(read_side, Accounts, sources=None, journal=log)).differing == 0
        stored = await stored_keys(database, "event_journal WHERE NOT deleted", "persistence_id", "seq_nr")
        of: dict[str, list[int]] = {}
        for source, number in stored:
            of.setdefault(source, []).append(number)
        accounts = {name: numbers for name, numbers in of.items() if name.startswith("account|")}
        assert await rows(read_side) == {name: (max(all_), max(all_)) for name, all_ in accounts.items()}
        print(f"{first.events} and {second.events} events rebuilt while Akka wrote")
        assert first.events < second.events

        await execute(read_side, "DELETE FROM counts")
        with pytest.raises(RebuildFailed, match=r"follows seq_nr .*--from-first-kept"):
            await rebuild(read_side, read_side.dsn, Carts, TWO, journal=log)
        kept = RebuildOptions(splits=2, from_first_kept=True, restart=True)
        await rebuild(read_side, read_side.dsn, Carts, kept, journal=log)
        carts = {name: numbers for name, numbers in of.items() if name.startswith("cart|")}
        assert await rows(read_side) == {name: (len(all_), max(all_)) for name, all_ in carts.items()}
