"""A schema of another version: every command refuses it, and a worker notices that it has become so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from journal import Database, OtherSchemaVersion
from journal.database.sync import connect_sync
from journal.partitions import maintain
from journal.partitions.periodic import take_turn
from journal.schema import SCHEMA_VERSION
from projections import EventEnvelope, Session, run
from projections.subscriptions import Consumer
from tests.acceptance.test_pooler_cli import COMMANDS
from tests.fixtures.commands import APP, called, projections
from tests.fixtures.postgres import Databases
from tests.fixtures.projections import (
    EFFECTS,
    Happened,
    Told,
    each_once,
    effects,
    execute,
    fetchval,
    happen,
    recording,
    running,
    settings,
    until,
)
from tests.fixtures.subscriptions import Seen, quick

NEWER = "INSERT INTO projections.schema_versions (version) VALUES ($1)"
CURRENT = "DELETE FROM projections.schema_versions WHERE version = $1"
OTHERWISE = {"schema", "doctor"}
"""What tells of versions by itself."""
OF_FILES = "--handled HANDLED"
"""An audit reads its files before it asks a database, or asks none."""
NAMES = {"ENDPOINT": "ep_1", "SCHEDULE": "sch_1", "NONE": "00000000-0000-0000-0000-000000000000"}


@pytest.fixture
async def journal(database: Database) -> Database:
    await execute(database, EFFECTS)
    return database


@pytest.fixture(scope="module")
def newer(databases: Databases, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with an application, and a file that says where a database with a newer schema is."""
    directory = tmp_path_factory.mktemp("newer")
    (directory / "app.py").write_text(APP.replace('"delays", ', '"delays", tables=("seen",), ', 1))
    (directory / "flights.csv").write_text("source_id,event_type,payload,db_timestamp\n")
    with databases.fresh(template) as dsn:
        with connect_sync(dsn) as connection:
            connection.execute(
                "INSERT INTO projections.schema_versions (version) VALUES (%s)", (SCHEMA_VERSION + 1,)
            )
        (directory / "dsn").write_text(dsn)
        yield directory


@pytest.mark.parametrize(
    "line", [line for line in COMMANDS if line.split()[0] not in OTHERWISE and OF_FILES not in line]
)
def test_every_command_refuses_another_version(newer: Path, line: str) -> None:
    names = NAMES | {"FILE": str(newer / "flights.csv"), "DIRECTORY": str(newer / "archive")}
    arguments = [names.get(word, word.replace("_", " ") if "*" in word else word) for word in line.split()]
    own = ("--dsn", (newer / "dsn").read_text())

    if arguments[0] in {"worker", "rebuild"}:
        result = projections(*arguments, *own, cwd=newer)
    else:
        result = called(*arguments, *own)

    assert result.returncode == (2 if arguments[0] == "verify" else 1)  # of verify, 1 is that rows differ
    assert (
        f"this database has schema version {SCHEMA_VERSION + 1}, newer than this library's" in result.stderr
    )


async def test_maintenance_refuses_another_version(journal: Database) -> None:
    await execute(journal, NEWER, SCHEMA_VERSION + 1)

    with pytest.raises(OtherSchemaVersion):
        await maintain(journal)
    with pytest.raises(OtherSchemaVersion):
        await take_turn(journal, settings().heartbeat)


@pytest.mark.parametrize("gone", [False, True], ids=["functions as before", "functions gone"])
async def test_a_worker_ends_when_the_version_changes_and_leaves_nothing_held(
    journal: Database, gone: bool
) -> None:
    """In the middle of a batch, which is rolled back."""

    async def wait(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        await asyncio.Event().wait()

    told = Told()
    await happen(journal, "a")
    task = asyncio.create_task(run(journal, recording(wait), settings=settings(), observer=told, ranges=2))
    await told.first("started", 2)

    if gone:
        await execute(
            journal,
            "ALTER FUNCTION projections.heartbeat_v1("
            "text, text, integer, interval, integer[], text[], integer[], boolean, bigint, bigint, text[]) "
            "RENAME TO gone_v1",
        )
    await execute(journal, NEWER, SCHEMA_VERSION + 1)

    async with asyncio.timeout(300):
        with pytest.raises(OtherSchemaVersion, match=f"schema version {SCHEMA_VERSION + 1}, newer than"):
            await task
    assert await effects(journal) == []
    assert await fetchval(journal, "SELECT count(*) FROM projections.workers") == 0
    assert await fetchval(journal, "SELECT count(owner) FROM projections.projection_ranges") == 0


async def test_a_consumer_ends_when_the_version_changes(journal: Database) -> None:
    consumer = Consumer(journal, "g", settings=quick(keep_every=timedelta(milliseconds=50)))
    consumer.handle(Seen(), name="mails")
    task = asyncio.create_task(consumer.run(asyncio.Event()))
    await until(journal, "SELECT count(*) = 1 FROM projections.workers")

    await execute(journal, NEWER, SCHEMA_VERSION + 1)

    async with asyncio.timeout(300):
        with pytest.raises(OtherSchemaVersion):
            await task
    assert await fetchval(journal, "SELECT count(*) FROM projections.workers") == 0


async def test_a_worker_waits_while_the_schema_is_restored(journal: Database) -> None:
    """For a moment no version is there."""
    async with running(journal, recording()) as told:
        await told.first("started")
        async with journal.session() as session:
            await session.execute("DELETE FROM projections.schema_versions")
            beats = await session.fetchval("SELECT max(beats) FROM projections.workers")
            await until(journal, "SELECT max(beats) > $1 + 2 FROM projections.workers", beats)
            await session.execute(NEWER, SCHEMA_VERSION)
        await happen(journal, "a")
        await until(journal, "SELECT count(*) = 1 FROM effects")

    each_once(await effects(journal), a=1)
