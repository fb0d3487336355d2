"""Closed partitions as Parquet files: exported, verified, restored, and read as one with the journal."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest
from psycopg.conninfo import make_conninfo

from journal import Database, HistoricEvent, RawJson, SliceRange, import_events, maintain, slice_of
from journal.drivers.sync import connect_sync
from spark_projections.archive import Exported, export_archive
from spark_projections.archive_check import verify_archive
from spark_projections.history import plan_history, read_archive, read_with_archive
from spark_projections.manifest import ArchiveError, Bounds, Manifest, directory_of, locked
from spark_projections.reading import Reading, read_batches
from spark_projections.restore import Restored, restore_archive
from tests.fixtures.commands import environment
from tests.fixtures.journal import event, uuid7
from tests.fixtures.projections import EFFECTS, each_once, effects, execute, recording, running, until_effects

DAY = datetime(2020, 1, 1, tzinfo=UTC)
ONE_DAY = timedelta(days=1)
SOURCES = 12


def history(
    first: int = 1, last: int = 30, entity_type: str = "plane", prefix: str = "N"
) -> Iterator[HistoricEvent]:
    """Ten events a day of each source: ties over sources, NULLs, unicode, text that no parser would write back."""
    for number in range(first, last + 1):
        for source in range(SOURCES):
            yield HistoricEvent(
                f"{prefix}{source}é",
                RawJson(f'{{"z": 1.0,  "a":"ü\\u00e9{number}", "e": 1E2}}'),
                entity_type,
                "Landed" if number % 2 else "Happened",
                version=1 + number % 3,
                tags=["a,b", 'q"uote', "\\"] if number % 3 == 0 else (),
                metadata={"by": None} if source % 2 else None,
                seq_nr=number,
                db_timestamp=DAY + timedelta(hours=2.4 * (number - 1), microseconds=source // 3),
            )


@pytest.fixture
async def journal(database: Database) -> Database:
    """Three days of events, each day in a partition of its own."""
    await import_events(database, history())
    await import_events(database, history(last=10, entity_type="ship/of=war %", prefix="S"))
    await maintain(database, ahead=1)
    return database


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def export(dsn: str, archive: Path, **options: Any) -> Exported:
    return export_archive(dsn, archive, **{"processes": 1, **options})


def query(dsn: str, sql: str, *args: Any) -> list[tuple[Any, ...]]:
    with connect_sync(dsn) as connection:
        return connection.execute(sql, args or None).fetchall()


def change(dsn: str, *statements: str) -> None:
    with connect_sync(dsn) as connection:
        for statement in statements:
            connection.execute(statement)


def rows(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def by_source(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: (row["source_id"].encode(), row["seq_nr"]))


def everything(dsn: str) -> list[tuple[Any, ...]]:
    return query(dsn, "SELECT e::text FROM projections.events AS e ORDER BY e.source_id, e.seq_nr")


def partitions(dsn: str) -> list[str]:
    found = query(
        dsn, "SELECT name FROM projections.partitions WHERE to_timestamp < now() ORDER BY from_timestamp"
    )
    return [name for (name,) in found]


def drop(dsn: str, name: str) -> None:
    change(
        dsn,
        f"ALTER TABLE projections.events DETACH PARTITION projections.{name}",
        f"DROP TABLE projections.{name}",
    )


# Export


async def test_every_event_of_closed_partitions_is_written_as_it_is(
    journal: Database, dsn: str, archive: Path
) -> None:
    done = export(dsn, archive)

    for entity_type in ("plane", "ship/of=war %"):
        stored = rows(read_batches(dsn, Reading(entity_type)))
        kept = rows(read_archive(archive, Reading(entity_type)))
        assert by_source(kept) == by_source(stored)
    assert (done.partitions, done.rows, done.files) == (tuple(partitions(dsn)), 40 * SOURCES, 4)
    assert done.detachable == done.partitions


async def test_rows_of_a_file_are_in_slice_order_and_slices_share_no_file(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive, entity_types=["plane"], rows_per_file=35)

    slices: dict[str, list[int]] = {}
    for file in Manifest.load(archive).files:
        table = pq.read_table(archive / file.path, partitioning=None)
        keys = [(row["slice"], row["source_id"].encode(), row["seq_nr"]) for row in table.to_pylist()]
        assert keys == sorted(keys)
        assert file.rows == len(keys) <= 35
        slices.setdefault(str(file.date), []).extend(sorted({key[0] for key in keys}))
    assert len(slices) == 3
    for found in slices.values():
        assert found == sorted({slice_of(f"N{source}é") for source in range(SOURCES)})


async def test_slice_with_more_events_than_a_file_takes_is_sorted_by_the_database(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive, entity_types=["plane"], rows_per_file=1)

    assert verify_archive(archive, journal=dsn, processes=1).differences == ()
    assert {file.slices.max_slice - file.slices.min_slice for file in Manifest.load(archive).files} == {0}


async def test_events_of_the_default_partition_and_of_an_open_one_are_not_exported(
    database: Database, dsn: str, archive: Path
) -> None:
    await import_events(database, history())
    await maintain(database, ahead=1)
    await import_events(database, [replace(next(history(prefix="old")), db_timestamp=DAY - ONE_DAY)])
    async with database.transaction() as session:
        from journal import append

        await append(session, [event("now")])

    export(dsn, archive)

    assert {row["source_id"] for row in rows(read_archive(archive, Reading("plane")))} == {
        f"N{n}é" for n in range(SOURCES)
    }


async def test_before_leaves_out_partitions_that_end_later(
    journal: Database, dsn: str, archive: Path
) -> None:
    done = export(dsn, archive, before=DAY + 2 * ONE_DAY)

    assert done.partitions == tuple(partitions(dsn)[:2])


async def test_partition_with_a_type_that_is_not_archived_may_not_be_detached(
    journal: Database, dsn: str, archive: Path
) -> None:
    done = export(dsn, archive, entity_types=["plane"])

    assert done.detachable == tuple(partitions(dsn)[1:])


async def test_partition_that_a_projection_has_not_passed_may_not_be_detached(
    journal: Database, dsn: str, archive: Path
) -> None:
    change(
        dsn,
        "INSERT INTO projections.projections (name, entity_type) VALUES ('slow', 'plane')",
        "INSERT INTO projections.projection_ranges (projection_id, min_slice, max_slice, horizon) "
        "SELECT projection_id, 0, 1023, '2020-01-02T12:00:00Z' FROM projections.projections",
    )

    done = export(dsn, archive)

    first, second, third = partitions(dsn)
    assert done.detachable == (first,)
    assert done.behind == {second: ("slow",), third: ("slow",)}


async def test_second_export_writes_only_what_is_new(journal: Database, dsn: str, archive: Path) -> None:
    export(dsn, archive, before=DAY + 2 * ONE_DAY)
    before = {file.path for file in Manifest.load(archive).files}

    second = export(dsn, archive)
    third = export(dsn, archive)

    assert second.partitions == tuple(partitions(dsn)[2:])
    assert (third.files, third.rows, third.unchanged) == (0, 0, tuple(partitions(dsn)))
    assert before < {file.path for file in Manifest.load(archive).files}


async def test_partition_that_an_import_changed_is_exported_again_and_said(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    old = {file.path for file in Manifest.load(archive).files if file.bounds.from_timestamp == DAY}
    await import_events(journal, [replace(next(history(prefix="late")), db_timestamp=DAY + ONE_DAY / 2)])
    said: list[str] = []

    done = export(dsn, archive, say=said.append)

    changed = partitions(dsn)[0]
    assert (done.partitions, done.again) == ((changed,), (changed,))
    assert said == [
        f"partition {changed} has changed since it was exported (an import): it is exported again"
    ]
    assert by_source(rows(read_archive(archive, Reading("plane")))) == by_source(
        rows(read_batches(dsn, Reading("plane")))
    )
    assert len([path for path in old if not (archive / path).exists()]) == 1


async def test_import_into_another_partition_leaves_the_others_as_they_are(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    await import_events(journal, [replace(next(history(prefix="late")), db_timestamp=DAY + 2.5 * ONE_DAY)])

    done = export(dsn, archive)

    assert done.partitions == (partitions(dsn)[2],)
    assert done.unchanged == tuple(partitions(dsn)[:2])


async def test_partition_made_anew_does_not_replace_the_archive_of_the_one_that_left(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    drop(dsn, partitions(dsn)[0])
    await import_events(journal, [replace(next(history(prefix="late")), db_timestamp=DAY + ONE_DAY / 2)])
    await maintain(journal, ahead=1)

    with pytest.raises(ArchiveError, match=r"lacks events of type 'plane' that the archive holds"):
        export(dsn, archive)

    assert verify_archive(archive, processes=1).differences == ()


async def test_export_waits_for_appends_in_flight_and_names_them(
    journal: Database, dsn: str, archive: Path
) -> None:
    writer = psycopg.connect(make_conninfo(dsn, application_name="slow writer"))
    writer.execute("LOCK TABLE projections.sources IN ROW EXCLUSIVE MODE")
    said: list[str] = []

    def say(text: str) -> None:
        assert not (archive / "_manifest.json").exists()
        said.append(text)
        writer.close()

    export(dsn, archive, say=say)

    assert len(said) == 1
    assert said[0].startswith("waiting for transactions that have appended and are open: pid ")
    assert "(slow writer)" in said[0]


async def test_two_exports_into_one_directory_are_refused(journal: Database, dsn: str, archive: Path) -> None:
    with (
        locked(archive),
        pytest.raises(ArchiveError, match=r"another export into .* is at work, process \d+"),
    ):
        export(dsn, archive)


async def test_export_that_broke_goes_on_with_the_partitions_that_are_missing(
    database: Database, dsn: str, archive: Path
) -> None:
    await import_events(database, history(last=200))
    await maintain(database, ahead=1)

    def stop(done: int, _: int) -> None:
        if done > 170 * SOURCES:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(dsn, archive, progress=stop)
    there = len(Manifest.load(archive).files)
    done = export(dsn, archive)

    assert 0 < there < 20
    assert done.files == 20 - there
    assert verify_archive(archive, journal=dsn, processes=1).differences == ()


async def test_files_that_a_broken_export_left_behind_go(journal: Database, dsn: str, archive: Path) -> None:
    export(dsn, archive)
    known = archive / Manifest.load(archive).files[0].path
    left = known.with_name("part-left-behind.parquet")
    attempt = archive / "_attempts" / "token.parquet"
    attempt.parent.mkdir()
    for path in (left, attempt):
        shutil.copy(known, path)

    export(dsn, archive)

    assert (left.exists(), attempt.exists(), known.exists()) == (False, False, True)


async def test_directory_that_can_not_be_written_is_named(journal: Database, dsn: str, archive: Path) -> None:
    archive.mkdir()
    (archive / "entity_type=plane").write_text("in the way")

    with pytest.raises(ArchiveError, match=r"archive can not be written: .*entity_type=plane"):
        export(dsn, archive, entity_types=["plane"])


async def test_processes_write_the_same_events_as_one(journal: Database, dsn: str, archive: Path) -> None:
    export(dsn, archive, processes=2, rows_per_file=50)

    assert verify_archive(archive, journal=dsn, processes=1).differences == ()


def test_entity_type_that_is_too_long_for_a_file_name_is_shortened() -> None:
    names = [directory_of("ü" * 254 + last, DAY.date()) for last in "ab"]

    assert names[0] != names[1]
    assert all(len(name.split("/")[0].encode()) < 255 for name in names)


# Verify


async def test_journal_computes_the_same_checksum_as_the_files(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)

    found = verify_archive(archive, journal=dsn, processes=1)

    assert (found.files, found.rows, found.compared, found.gone, found.differences) == (
        4,
        40 * SOURCES,
        4,
        0,
        (),
    )


async def test_changed_byte_shortened_file_and_missing_file_are_found(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    paths = [archive / file.path for file in Manifest.load(archive).files]
    content = bytearray(paths[0].read_bytes())
    content[len(content) // 2] ^= 1
    paths[0].write_bytes(content)
    paths[1].write_bytes(paths[1].read_bytes()[:-1])
    paths[2].unlink()

    found = verify_archive(archive, processes=1)

    assert len(found.differences) == 3
    for path, part in zip(paths, ("SHA-256", "bytes, not", "No such file"), strict=False):
        (line,) = [line for line in found.differences if str(path.relative_to(archive)) in line]
        assert part in line


async def test_event_that_is_not_as_in_the_journal_is_found(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    change(dsn, "UPDATE projections.events SET payload = '{}' WHERE source_id = 'N1é' AND seq_nr = 15")

    found = verify_archive(archive, journal=dsn, processes=1)

    assert len(found.differences) == 1
    assert found.differences[0].startswith("entity type 'plane', 2020-01-02: the journal has 120 events")


async def test_partitions_that_left_the_journal_are_counted(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    drop(dsn, partitions(dsn)[0])

    found = verify_archive(archive, journal=dsn, processes=1)

    assert (found.compared, found.gone, found.differences) == (2, 2, ())


def test_directory_without_a_manifest_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"is no archive: it has no _manifest\.json"):
        verify_archive(tmp_path)


def test_manifest_of_a_later_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_manifest.json").write_text('{"format": 2}')

    with pytest.raises(ArchiveError, match="has the format 2, this version reads 1"):
        Manifest.load(tmp_path)


async def test_manifest_is_read_as_it_was_written(journal: Database, dsn: str, archive: Path) -> None:
    export(dsn, archive)
    manifest = Manifest.load(archive)

    manifest.save(archive)

    assert Manifest.load(archive).files == manifest.files


# Restore


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
    await maintain(journal, ahead=1)
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
        waits = "SELECT count(*) > 0 FROM pg_locks WHERE relation = 'projections.imports'::regclass AND NOT granted"
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
    await maintain(database, ahead=1)
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


# Archive and journal as one


@pytest.mark.parametrize("gone", [(), (0,), (1,), (0, 1, 2)])
async def test_history_is_read_once_and_whole_whatever_has_left_the_journal(
    journal: Database, dsn: str, archive: Path, gone: tuple[int, ...]
) -> None:
    await import_events(journal, history(first=31, last=35))  # in the default partition
    export(dsn, archive)
    wanted = rows(read_batches(dsn, Reading("plane", order="source")))
    names = partitions(dsn)
    for number in gone:
        drop(dsn, names[number])

    assert rows(read_with_archive(dsn, archive, Reading("plane", order="source"))) == wanted
    assert by_source(rows(read_with_archive(dsn, archive, Reading("plane")))) == wanted


async def test_small_bands_keep_each_source_together_and_in_order(
    journal: Database, dsn: str, archive: Path
) -> None:
    await import_events(journal, history(first=31, last=35))
    export(dsn, archive)
    wanted = rows(read_batches(dsn, Reading("plane", order="source")))
    drop(dsn, partitions(dsn)[0])

    found = rows(read_with_archive(dsn, archive, Reading("plane", order="source"), band_rows=50))

    assert found == sorted(wanted, key=lambda row: (row["slice"], row["source_id"].encode(), row["seq_nr"]))


@pytest.mark.parametrize("seed", range(12))
async def test_any_reading_gives_what_the_journal_alone_gave(
    journal: Database, dsn: str, archive: Path, seed: int
) -> None:
    choose = random.Random(seed)
    await import_events(journal, history(first=31, last=40))
    export(dsn, archive, rows_per_file=choose.choice([20, 60, 1000]))
    times = [e.db_timestamp for e in history(last=40)] + [DAY + n * ONE_DAY for n in range(4)]
    low = choose.randint(0, 1023)
    reading = Reading(
        "plane",
        slices=choose.choice([SliceRange(0, 1023), SliceRange(low, choose.randint(low, 1023))]),
        since=choose.choice([None, *times]),
        until=choose.choice([None, *times]),
        event_types=choose.choice([(), ("Landed",)]),
        source_ids=choose.choice([(), ("N1é", "N5é", "none")]),
        columns=choose.choice([Reading("plane").columns, ("payload", "seq_nr"), ("slice",)]),
        seq_nrs=choose.choice([Reading("plane").seq_nrs, (5, 33)]),
    )
    columns = (*reading.columns, *({"source_id", "seq_nr"} - set(reading.columns)))
    reading = replace(reading, columns=columns)
    wanted = by_source(rows(read_batches(dsn, reading)))
    for name in choose.sample(partitions(dsn), choose.randint(0, 3)):
        drop(dsn, name)

    assert by_source(rows(read_with_archive(dsn, archive, reading))) == wanted
    in_bands = read_with_archive(dsn, archive, replace(reading, order="source"), band_rows=50)
    assert by_source(rows(in_bands)) == wanted


@pytest.mark.parametrize("gone", [False, True], ids=["attached", "detached"])
async def test_event_imported_after_the_export_is_read_too(
    journal: Database, dsn: str, archive: Path, gone: bool
) -> None:
    export(dsn, archive)
    wanted = rows(read_batches(dsn, Reading("plane")))
    if gone:
        drop(dsn, partitions(dsn)[0])
    await import_events(journal, [replace(next(history(prefix="late")), db_timestamp=DAY + ONE_DAY / 2)])

    found = rows(read_with_archive(dsn, archive, Reading("plane")))

    assert by_source([row for row in found if row["source_id"] != "late0é"]) == by_source(wanted)
    assert len(found) == len(wanted) + 1


async def test_what_is_in_the_archive_is_not_asked_of_the_journal(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)

    plan = plan_history(dsn, archive, Reading("plane", since=DAY, until=DAY + 4 * ONE_DAY))

    assert [(part.since, part.until) for part in plan.journal] == [(DAY + 3 * ONE_DAY, DAY + 4 * ONE_DAY)]
    assert len(plan.files) == 3


async def test_file_that_is_gone_is_named_when_the_archive_is_read(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    path = archive / Manifest.load(archive).files[0].path
    path.unlink()

    with pytest.raises(ArchiveError, match=path.name):
        rows(read_archive(archive, Reading("plane")))


async def test_event_id_and_time_of_an_archived_event_survive_a_restore(
    database: Database, dsn: str, archive: Path
) -> None:
    event_id = uuid7(DAY)
    await import_events(database, [replace(next(history()), event_id=event_id)])
    await maintain(database, ahead=1)
    export(dsn, archive)
    drop(dsn, partitions(dsn)[0])

    restore_archive(dsn, archive)

    assert query(dsn, "SELECT event_id, db_timestamp FROM projections.events") == [(event_id, DAY)]


async def test_reader_may_export_verify_and_read(
    journal: Database, dsn: str, archive: Path, login: Callable[[str | None], str]
) -> None:
    reader = login("projections_reader")

    done = export(reader, archive)

    assert done.rows == 40 * SOURCES
    assert verify_archive(archive, journal=reader, processes=1).differences == ()
    assert len(rows(read_with_archive(reader, archive, Reading("plane")))) == 30 * SOURCES


def killed(program: str, *arguments: str | Path) -> None:
    """Run a program that kills itself with SIGKILL on its way."""
    head = "import os, signal, sys\nfrom pathlib import Path\nkill = lambda: os.kill(os.getpid(), signal.SIGKILL)\n"
    done = subprocess.run(
        [sys.executable, "-c", head + program, *map(str, arguments)],
        env=environment(),
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL


async def test_export_that_was_killed_goes_on(database: Database, dsn: str, archive: Path) -> None:
    await import_events(database, history(last=120))
    await maintain(database, ahead=1)
    killed(
        "from spark_projections.archive import export_archive\n"
        "def progress(done, total):\n    if done > total // 2: kill()\n"
        "export_archive(sys.argv[1], Path(sys.argv[2]), processes=1, progress=progress)",
        dsn,
        archive,
    )
    there = len(Manifest.load(archive).files)

    done = export(dsn, archive)

    assert 0 < there < 12
    assert done.files == 12 - there
    assert verify_archive(archive, journal=dsn, processes=1).differences == ()
    assert len(list(archive.rglob("*.parquet"))) == 12


async def test_restore_that_was_killed_before_its_commit_leaves_nothing_and_goes_on(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    before = everything(dsn)
    for name in partitions(dsn):
        drop(dsn, name)
    killed(
        "from spark_projections import restore\n"
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
