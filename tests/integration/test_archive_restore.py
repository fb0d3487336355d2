"""Archived partitions back in the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from journal import Database, HistoricEvent, import_events, make_partitions
from spark_projections.archive.files import ArchiveError, Bounds
from spark_projections.archive.manifest import Manifest
from spark_projections.archive.restore import Restored, restore_archive
from tests.fixtures.journal import event, uuid7
from tests.fixtures.locks import WAITING
from tests.fixtures.projections import EFFECTS, each_once, effects, execute, recording, running, until_effects
from tests.integration.archive_support import (
    DAY,
    ONE_DAY,
    SOURCES,
    change,
    drop,
    everything,
    export,
    filled,
    history,
    killed,
    partitions,
    query,
)


@pytest.fixture
async def journal(database: Database) -> Database:
    return await filled(database)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


async def test_restored_events_are_what_they_were(journal: Database, dsn: str, archive: Path) -> None:
    export(dsn, archive)
    before, names = everything(dsn), partitions(dsn)
    drop(dsn, names[0])
    drop(dsn, names[1])

    done = restore_archive(dsn, archive)

    days = [Bounds(DAY + n * ONE_DAY, DAY + (n + 1) * ONE_DAY) for n in range(3)]
    assert everything(dsn) == before
    assert partitions(dsn) == names
    assert done == [
        Restored(names[0], days[0], 20 * SOURCES, 0),
        Restored(names[1], days[1], 10 * SOURCES, 0),
        Restored(names[2], days[2], 0, 10 * SOURCES),
    ]


async def test_restored_partition_has_the_indexes_of_the_others(
    journal: Database, dsn: str, archive: Path
) -> None:
    count = "SELECT count(*) FROM pg_index WHERE indrelid = %s::regclass AND indisvalid"
    export(dsn, archive)
    name = f"projections.{partitions(dsn)[0]}"
    before = query(dsn, count, name)
    drop(dsn, partitions(dsn)[0])

    restore_archive(dsn, archive)

    assert query(dsn, count, name) == before
    assert query(dsn, "SELECT count(*) FROM pg_constraint WHERE conname = 'within_bounds'") == [(0,)]


async def test_types_and_times_choose_what_is_restored(journal: Database, dsn: str, archive: Path) -> None:
    export(dsn, archive)
    before = everything(dsn)
    for name in partitions(dsn):
        drop(dsn, name)

    ships = restore_archive(dsn, archive, entity_types=["ship/of=war %"])
    planes = restore_archive(
        dsn, archive, entity_types=["plane"], since=DAY + ONE_DAY, until=DAY + 2 * ONE_DAY
    )
    rest = restore_archive(dsn, archive)

    assert [(each.events, each.present) for each in ships] == [(10 * SOURCES, 0)]
    assert [each.bounds.from_timestamp for each in planes] == [DAY + ONE_DAY]
    assert [(each.events, each.present) for each in rest] == [
        (10 * SOURCES, 10 * SOURCES),
        (0, 10 * SOURCES),
        (10 * SOURCES, 0),
    ]
    assert everything(dsn) == before


async def test_restoring_what_is_there_changes_nothing(journal: Database, dsn: str, archive: Path) -> None:
    export(dsn, archive)
    before = everything(dsn)

    done = restore_archive(dsn, archive)

    assert sum(each.events for each in done) == 0
    assert everything(dsn) == before


async def test_detached_table_that_is_still_there_is_to_be_attached(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    before, name = everything(dsn), partitions(dsn)[0]
    change(dsn, f"ALTER TABLE projections.events DETACH PARTITION projections.{name}")

    with pytest.raises(ArchiveError, match="is there, detached") as caught:
        restore_archive(dsn, archive)
    change(dsn, str(caught.value).split("`")[1])

    assert everything(dsn) == before


async def test_archive_of_another_journal_is_refused(
    journal: Database, dsn: str, archive: Path, databases: Any, template: str
) -> None:
    export(dsn, archive)
    with databases.fresh(template) as other:
        with pytest.raises(ArchiveError, match=r"not the journal that the archive was made from: source 'N"):
            restore_archive(other, archive)

        assert (everything(other), partitions(other)) == ([], [])


async def test_changed_file_is_not_restored(journal: Database, dsn: str, archive: Path) -> None:
    export(dsn, archive)
    path = archive / Manifest.load(archive).files[0].path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    drop(dsn, partitions(dsn)[0])
    before = everything(dsn)

    with pytest.raises(ArchiveError, match=r"is not what was written \(SHA-256\)"):
        restore_archive(dsn, archive)

    assert everything(dsn) == before


async def test_events_imported_since_keep_their_place_beside_the_restored(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    before = everything(dsn)
    drop(dsn, partitions(dsn)[0])
    late = replace(next(history(prefix="late")), db_timestamp=DAY + ONE_DAY / 2)
    await import_events(journal, [late])

    with pytest.raises(ArchiveError, match="lie in the default partition: run `projections maintain`"):
        restore_archive(dsn, archive)
    await make_partitions(journal, ahead=1)
    restore_archive(dsn, archive)

    assert [row for row in everything(dsn) if "late" not in row[0]] == before
    assert len(everything(dsn)) == len(before) + 1


async def test_restore_tries_again_when_an_import_stands_in_the_way(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    before = everything(dsn)
    drop(dsn, partitions(dsn)[0])
    with psycopg.connect(dsn) as importer:
        importer.execute("LOCK TABLE projections.imports IN SHARE ROW EXCLUSIVE MODE")
        restoring = asyncio.create_task(asyncio.to_thread(restore_archive, dsn, archive))
        waits = f"SELECT count(*) > 0 FROM {WAITING} WHERE relation = 'projections.imports'::regclass"
        while not (await asyncio.to_thread(query, dsn, waits))[0][0]:
            pass

    await restoring

    assert everything(dsn) == before


async def test_live_projection_does_not_handle_restored_events_again(
    database: Database, dsn: str, archive: Path
) -> None:
    from journal import append

    def happened() -> Iterator[HistoricEvent]:
        for each in history(last=20):
            yield replace(each, event_type="Happened", payload={"n": 1}, version=1)

    await import_events(database, happened())
    await make_partitions(database, ahead=1)
    await execute(database, EFFECTS)
    total = 20 * SOURCES
    projection = recording()
    async with running(database, projection):
        await until_effects(database, total)
        export(dsn, archive)
        drop(dsn, partitions(dsn)[0])
        restored = await asyncio.to_thread(restore_archive, dsn, archive)
        async with database.transaction() as session:
            await append(session, [event("N0é", event_type="Happened")])
        await until_effects(database, total + 1)
    async with running(database, projection):
        async with database.transaction() as session:
            await append(session, [event("N1é", event_type="Happened")])
        await until_effects(database, total + 2)

    assert sum(each.events for each in restored) == 10 * SOURCES
    each_once(await effects(database), **{f"N{n}é": 20 + (n < 2) for n in range(SOURCES)})


async def test_event_id_and_time_of_an_archived_event_survive_a_restore(
    database: Database, dsn: str, archive: Path
) -> None:
    event_id = uuid7(DAY)
    await import_events(database, [replace(next(history()), event_id=event_id)])
    await make_partitions(database, ahead=1)
    export(dsn, archive)
    drop(dsn, partitions(dsn)[0])

    restore_archive(dsn, archive)

    assert query(dsn, "SELECT event_id, db_timestamp FROM projections.events") == [(event_id, DAY)]


async def test_restore_that_was_killed_before_its_commit_leaves_nothing_and_goes_on(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    before = everything(dsn)
    for name in partitions(dsn):
        drop(dsn, name)
    killed(
        "from spark_projections.archive import restore\n"
        "attach, calls = restore._attach, []\n"
        "def dying(*arguments):\n    attach(*arguments)\n    calls.append(1)\n    if len(calls) == 2: kill()\n"
        "restore._attach = dying\n"
        "restore.restore_archive(sys.argv[1], Path(sys.argv[2]))",
        dsn,
        archive,
    )
    there = partitions(dsn)

    done = restore_archive(dsn, archive)

    assert len(there) == 1
    assert [each.present for each in done] == [20 * SOURCES, 0, 0]
    assert everything(dsn) == before
