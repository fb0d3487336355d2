"""What an export waits for, and which partitions something still has to read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from journal import Database, append_sync
from spark_projections.archive.journal_queries import autocommit
from spark_projections.reading.horizon import wait_for_appends
from tests.fixtures.archive import change, drop, export, filled, partitions, query
from tests.fixtures.journal import event

FOREVER = datetime(9999, 1, 1, tzinfo=UTC)


@pytest.fixture
async def journal(database: Database) -> Database:
    return await filled(database)


async def test_export_waits_for_appends_that_may_still_write_there_and_names_them(
    journal: Database, dsn: str, archive: Path
) -> None:
    writer = psycopg.connect(make_conninfo(dsn, application_name="slow writer"))
    writer.execute("LOCK TABLE projections.sources IN ROW EXCLUSIVE MODE")
    began = writer.execute("SELECT now()").fetchall()[0][0]
    for (name,) in query(dsn, "SELECT name FROM projections.partitions WHERE to_timestamp > now()"):
        if name.startswith("events_2"):
            drop(dsn, name)
    change(dsn, f"SELECT projections._create_partition_v1('2020-01-04T00:00:00Z', '{began}')")
    said: list[str] = []

    def say(text: str) -> None:
        assert not (archive / "_manifest.json").exists()
        said.append(text)
        writer.close()

    export(dsn, archive, say=say)

    assert len(said) == 1
    assert said[0].startswith("waiting for transactions that have appended and are open: process ")
    assert "(slow writer, open since" in said[0]


@pytest.mark.slow
async def test_export_does_not_wait_for_appends_that_began_after_its_partitions(
    journal: Database, dsn: str, archive: Path
) -> None:
    with psycopg.connect(dsn) as writer:
        append_sync(writer, [event("now")])
        done = export(dsn, archive, say=pytest.fail)
        writer.rollback()

    assert done.partitions == tuple(partitions(dsn))


@pytest.mark.slow
async def test_export_waits_for_an_import_which_writes_into_any_time(
    journal: Database, dsn: str, archive: Path
) -> None:
    writer = psycopg.connect(make_conninfo(dsn, application_name="an import"))
    writer.execute("LOCK TABLE projections.imports IN SHARE ROW EXCLUSIVE MODE")
    writer.execute("LOCK TABLE projections.sources IN ROW EXCLUSIVE MODE")
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        writer.close()

    export(dsn, archive, say=say)

    assert len(said) == 1


@pytest.mark.parametrize("prepared", ["before", "meanwhile"])
def test_append_that_is_prepared_is_waited_for_until_it_is_committed(dsn: str, prepared: str) -> None:
    name, said = uuid4(), list[str]()
    with autocommit(dsn) as looking, psycopg.connect(dsn, autocommit=True) as writer:
        writer.execute("BEGIN")
        append_sync(writer, [event("late")])
        statements = [f"PREPARE TRANSACTION '{name}'", "SELECT 1", f"COMMIT PREPARED '{name}'"]
        if prepared == "before":
            writer.execute(statements.pop(0))

        wait_for_appends(looking, FOREVER, said.append, pause=lambda _: writer.execute(statements.pop(0)))

    assert statements == []
    assert len(said) == 1
    assert ("a prepared transaction" in said[0]) == (prepared == "before")


async def test_partition_that_a_projection_has_not_passed_may_not_be_detached(
    journal: Database, dsn: str, archive: Path
) -> None:
    change(
        dsn,
        "INSERT INTO projections.projections (name, entity_types) VALUES ('slow', '{plane}')",
        "INSERT INTO projections.projection_ranges (projection_id, min_slice, max_slice, horizon) "
        "SELECT projection_id, 0, 1023, '2020-01-02T12:00:00Z' FROM projections.projections",
    )

    done = export(dsn, archive)

    first, second, third = partitions(dsn)
    assert done.detachable == (first,)
    assert done.behind == {second: ("slow",), third: ("slow",)}


@pytest.mark.daily(4)
@pytest.mark.parametrize("state", ["folding", "verified"])
@pytest.mark.parametrize("fence", ["2020-01-02T12:00:00Z", "2020-02-01T00:00:00Z"])
async def test_partition_may_not_be_detached_while_a_rebuild_is_unfinished(
    journal: Database, dsn: str, archive: Path, state: str, fence: str
) -> None:
    rebuilt(dsn, state, fence)

    done = export(dsn, archive)

    assert done.behind == dict.fromkeys(partitions(dsn), ("rebuilt",))
    assert done.detachable == ()


@pytest.mark.slow
@pytest.mark.parametrize("state", ["swapped", "cancelled", "dropped"])
async def test_finished_rebuild_keeps_no_partition(
    journal: Database, dsn: str, archive: Path, state: str
) -> None:
    rebuilt(dsn, state, "2020-01-02T12:00:00Z")

    done = export(dsn, archive)

    assert (done.behind, done.detachable) == ({}, tuple(partitions(dsn)))


def rebuilt(dsn: str, state: str, fence: str) -> None:
    change(
        dsn,
        "INSERT INTO projections.projections (name, entity_types) VALUES ('rebuilt', '{plane}')",
        f"SELECT projections._begin_rebuild_v1(projection_id, 0, 1023, 1, '{fence}', 0, '', 'rename', "
        "'{0}', '{1023}', '{}', '{}', '{}', '{}', '{plane}') FROM projections.projections",
        f"UPDATE projections.rebuilds SET state = '{state}'",
    )
