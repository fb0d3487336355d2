"""message-db and Emmett as npm has them, read while they are written to; and what they have written, everywhere."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from pydantic import BaseModel

from journal import Database, EventEnvelope, Session, connect, current_events
from journal.foreign import TableMapping, emmett, message_db, table_log
from projections import handles, projection
from tests.fixtures import node_systems
from tests.fixtures.foreign import FOREIGN, Follower, OnlyForward, stored_keys, write_late
from tests.fixtures.projections import EFFECTS, caught_up, effects, execute, record, running

CATEGORIES = ("account", "cart", "order", "fee")
needs_npm = pytest.mark.skipif(
    not all(map(shutil.which, node_systems.PROGRAMS)), reason="needs npm and Node, which fetch and run them"
)


class Paid(BaseModel):
    amount: str


@projection("payments", entity_type=CATEGORIES)
class Payments:
    @handles(Paid)
    async def paid(self, session: Session, event: Paid, envelope: EventEnvelope) -> None:
        await record(session, envelope)


@pytest.mark.parametrize(("system", "mapping"), [("message-db", message_db()), ("emmett", emmett())])
async def test_golden_rows_are_read(empty_dsn: str, system: str, mapping: TableMapping) -> None:
    connection = await asyncpg.connect(empty_dsn)
    await node_systems.load_golden(connection, system)
    await connection.close()
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database:
        log = await table_log(database, mapping, name=system)
        opened, paid, more = [e async for e in current_events(log, "account")]
    assert [(e.source_id, e.seq_nr, e.event_type) for e in (opened, paid, more)] == [
        ("account-7", 1, "Opened"), ("account-7", 2, "Paid"), ("account-7", 3, "Paid"),
    ]  # fmt: skip
    assert (opened.payload["owner"], opened.payload["at"]) == ("Zoë 😀", "1970-01-01T00:00:00.000Z")
    assert opened.metadata == {"by": "x"}
    assert paid.payload == {"amount": "12345678901234567890.50", "number": "9007199254740993"}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("node")
    node_systems.fetch(directory)
    return directory


async def emmett_process(packages: Path, dsn: str, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec("node", "emmett.mjs", dsn, *arguments, cwd=packages)


async def emmett_ends(packages: Path, dsn: str, *arguments: str) -> None:
    assert await (await emmett_process(packages, dsn, *arguments)).wait() == 0


@needs_npm
@pytest.mark.slow
@pytest.mark.parametrize("system", ["message-db", "emmett"])
async def test_golden_rows_and_tables_are_those_of_the_real_package(
    empty_dsn: str, databases: Any, packages: Path, system: str
) -> None:
    ddl, table = node_systems.TABLES[system]
    connection = await asyncpg.connect(empty_dsn)
    if system == "emmett":
        await emmett_ends(packages, empty_dsn, "schema")
        await emmett_ends(packages, empty_dsn, "golden")
    else:
        await node_systems.install_message_db(connection, packages)
        for row in node_systems.golden(system):
            await connection.fetchval(
                "SELECT write_message(gen_random_uuid()::varchar, $1, $2, $3::text::jsonb, nullif($4, 'null')::jsonb)",
                row["stream_name"], row["type"], json.dumps(row["data"]), json.dumps(row["metadata"]),
            )  # fmt: skip
    with databases.fresh("template0") as other:
        ours = await asyncpg.connect(other)
        await ours.execute(ddl)
        assert await node_systems.columns(connection, table) == await node_systems.columns(ours, table)
        await ours.close()
    assert await node_systems.rows(connection, table) == node_systems.golden(system)
    await connection.close()


async def at_once(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(statement)
    await connection.close()


async def project_while_written(  # noqa: PLR0917 - called in two places
    database: Database, read_side: Database, mapping: TableMapping,
    write: Callable[[int], Awaitable[None]], delete: Callable[[], Awaitable[None]], keys: tuple[str, str, str],
) -> None:  # fmt: skip
    """Run a projection and both followers while an application writes, twice; events are deleted in between."""
    await execute(read_side, EFFECTS)
    log = await table_log(database, mapping, name="events")
    ended, followers = asyncio.Event(), [Follower(log), Follower(log, OnlyForward)]
    async with asyncio.TaskGroup() as group:
        following = [group.create_task(follower.run(ended)) for follower in followers]
        async with running(read_side, Payments, journal=log, ranges=4):
            await write(1)
        await caught_up(read_side, Payments, journal=log)
        stored = await stored_keys(database, *keys)
        while not set(followers[0].handled) >= stored:
            await asyncio.sleep(0.05)
        await delete()
        async with running(read_side, Payments, journal=log, ranges=4):  # goes on where it stood
            await write(2)
        ended.set()
        await asyncio.gather(*following)
    await caught_up(read_side, Payments, journal=log)
    stored |= await stored_keys(database, *keys)
    right, wrong = (len(stored - set(follower.handled)) for follower in followers)
    print(f"{len(stored)} stored, lost {right}; going forward {wrong}")
    assert right == 0 < wrong
    handled = await effects(read_side)
    assert sorted(handled) == sorted(stored)
    for source in {source for source, _ in handled}:
        numbers = [number for of, number in handled if of == source]
        assert numbers == list(range(1, len(numbers) + 1))


@needs_npm
@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_nothing_of_a_running_application_of_emmett_is_lost_or_out_of_order(
    empty_dsn: str, dsn: str, packages: Path
) -> None:
    await emmett_ends(packages, empty_dsn, "schema")
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database, connect(dsn) as read_side:

        async def write(times: int) -> None:
            if times == 2:
                await emmett_ends(packages, empty_dsn, "write", "5", "a")
                return
            application = await emmett_process(packages, empty_dsn, "write", "100", "a")
            while len(await stored_keys(database, *keys)) < 300:
                await asyncio.sleep(0.1)
            application.kill()  # in the middle of transactions
            await application.wait()

        keys = ("emt_messages", "stream_id", "stream_position")

        async def delete() -> None:
            await at_once(empty_dsn, "DELETE FROM emt_messages WHERE stream_position % 2 = 0")

        await project_while_written(database, read_side, emmett(), write, delete, keys)


@needs_npm
@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_nothing_that_functions_of_message_db_write_is_lost_or_out_of_order(
    empty_dsn: str, dsn: str, packages: Path
) -> None:
    connection = await asyncpg.connect(empty_dsn)
    await node_systems.install_message_db(connection, packages)
    await connection.close()

    async def insert(connection: asyncpg.Connection, stream: str, last: int, count: int) -> None:
        await node_systems.write_messages(connection, stream, count)

    async def write(times: int) -> None:
        streams = [f"{category}-{n}" for category in CATEGORIES for n in range(3)]
        await asyncio.gather(
            *(write_late(empty_dsn, streams, 5, 10 * times + seed, insert) for seed in range(8))
        )

    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database, connect(dsn) as read_side:
        keys = ("message_store.messages", "stream_name", "position + 1")

        async def delete() -> None:
            await at_once(
                empty_dsn,
                "DELETE FROM message_store.messages AS m WHERE position < (SELECT max(o.position) FROM "
                "message_store.messages AS o WHERE o.stream_name = m.stream_name)",
            )

        await project_while_written(database, read_side, message_db(), write, delete, keys)
