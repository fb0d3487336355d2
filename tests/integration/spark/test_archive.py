"""Closed partitions as Parquet files: exported and verified."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from journal import Database, EntityTypes, import_events, slice_of
from journal.partitions.making import make_partitions
from spark_projections.archive.check import check_archived_file, verify_archive
from spark_projections.archive.files import ArchiveError, directory_of, sha256_of
from spark_projections.archive.history import read_with_archive
from spark_projections.archive.locking import locked
from spark_projections.archive.manifest import Manifest
from spark_projections.reading.batches import Reading, read_batches
from tests.fixtures.archive import (
    DAY,
    ONE_DAY,
    SOURCES,
    archived,
    by_source,
    change,
    drop,
    export,
    filled,
    history,
    killed,
    partitions,
    rows,
)
from tests.fixtures.journal import event


@pytest.fixture
async def journal(database: Database) -> Database:
    return await filled(database)


@pytest.mark.slow
async def test_every_event_of_closed_partitions_is_written_as_it_is(
    journal: Database, dsn: str, archive: Path
) -> None:
    done = export(dsn, archive)

    for entity_type in ("plane", "ship/of=war %"):
        stored = rows(read_batches(dsn, Reading(EntityTypes((entity_type,)))))
        kept = archived(archive, entity_type)
        assert by_source(kept) == by_source(stored)
    assert (done.partitions, done.rows, done.files) == (tuple(partitions(dsn)), 40 * SOURCES, 4)
    assert done.detachable == done.partitions


@pytest.mark.slow
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


@pytest.mark.slow
async def test_slice_with_more_events_than_a_file_takes_is_sorted_by_the_database(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive, entity_types=["plane"], rows_per_file=1)

    assert verify_archive(archive, journal=dsn, processes=1).differences == ()
    assert {file.slices.max_slice - file.slices.min_slice for file in Manifest.load(archive).files} == {0}


@pytest.mark.slow
async def test_events_of_the_default_partition_and_of_an_open_one_are_not_exported(
    database: Database, dsn: str, archive: Path
) -> None:
    await import_events(database, history())
    await make_partitions(database, ahead=1)
    await import_events(database, [replace(next(history(prefix="old")), db_timestamp=DAY - ONE_DAY)])
    async with database.transaction() as session:
        from journal import append

        await append(session, [event("now")])

    export(dsn, archive)

    assert {row["source_id"] for row in archived(archive)} == {f"N{n}é" for n in range(SOURCES)}


@pytest.mark.slow
async def test_before_leaves_out_partitions_that_end_later(
    journal: Database, dsn: str, archive: Path
) -> None:
    done = export(dsn, archive, until=DAY + 2 * ONE_DAY)

    assert done.partitions == tuple(partitions(dsn)[:2])


@pytest.mark.slow
async def test_partition_with_a_type_that_is_not_archived_may_not_be_detached(
    journal: Database, dsn: str, archive: Path
) -> None:
    done = export(dsn, archive, entity_types=["plane"])

    assert done.detachable == tuple(partitions(dsn)[1:])


@pytest.mark.slow
async def test_second_export_writes_only_what_is_new(journal: Database, dsn: str, archive: Path) -> None:
    export(dsn, archive, until=DAY + 2 * ONE_DAY)
    before = {file.path for file in Manifest.load(archive).files}

    second = export(dsn, archive)
    third = export(dsn, archive)

    assert second.partitions == tuple(partitions(dsn)[2:])
    assert (third.files, third.rows, third.unchanged) == (0, 0, tuple(partitions(dsn)))
    assert before < {file.path for file in Manifest.load(archive).files}


async def test_partition_that_an_import_changed_grows_by_a_further_file_and_it_is_said(
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
        f"partition {changed} has grown since it was exported (an import): further files take what is new"
    ]
    assert by_source(archived(archive)) == by_source(
        rows(read_batches(dsn, Reading(EntityTypes(("plane",)))))
    )
    assert all((archive / path).exists() for path in old)
    assert done.rows == 1
    assert verify_archive(archive, journal=dsn, processes=1).differences == ()


@pytest.mark.slow
async def test_import_into_another_partition_leaves_the_others_as_they_are(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    await import_events(journal, [replace(next(history(prefix="late")), db_timestamp=DAY + 2.5 * ONE_DAY)])

    done = export(dsn, archive)

    assert done.partitions == (partitions(dsn)[2],)
    assert done.unchanged == tuple(partitions(dsn)[:2])


async def test_two_exports_into_one_directory_are_refused(journal: Database, dsn: str, archive: Path) -> None:
    with (
        locked(archive),
        pytest.raises(ArchiveError, match=r"another export into .* is at work, process \d+"),
    ):
        export(dsn, archive)


@pytest.mark.slow
async def test_directory_without_locks_is_not_written_and_verified_whole(
    journal: Database, dsn: str, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(dsn, archive)
    unnamed = archive / Manifest.load(archive).files[0].path.replace("part-", "part-unnamed-")
    unnamed.write_bytes(b"")

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)

    with pytest.raises(ArchiveError, match=r"cannot be locked \(No locks available\)"):
        export(dsn, archive)
    assert verify_archive(archive, processes=1).unnamed == (str(unnamed.relative_to(archive)),)


@pytest.mark.slow
async def test_export_that_broke_goes_on_with_the_partitions_that_are_missing(
    database: Database, dsn: str, archive: Path
) -> None:
    await import_events(database, history(last=200))
    await make_partitions(database, ahead=1)

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


@pytest.mark.slow
async def test_attempts_that_a_broken_export_left_behind_go(
    journal: Database, dsn: str, archive: Path
) -> None:
    attempt = archive / "_attempts" / "token.parquet"
    attempt.parent.mkdir(parents=True)
    attempt.write_bytes(b"half")

    export(dsn, archive)

    assert not attempt.exists()


@pytest.mark.slow
async def test_directory_that_can_not_be_written_is_named(journal: Database, dsn: str, archive: Path) -> None:
    archive.mkdir()
    (archive / "entity_type=plane").write_text("in the way")

    with pytest.raises(ArchiveError, match=r"archive cannot be written: .*entity_type=plane"):
        export(dsn, archive, entity_types=["plane"])


@pytest.mark.slow
async def test_processes_write_the_same_events_as_one(journal: Database, dsn: str, archive: Path) -> None:
    export(dsn, archive, processes=2, rows_per_file=50)

    assert verify_archive(archive, journal=dsn, processes=1).differences == ()


def test_entity_type_that_is_too_long_for_a_file_name_is_shortened() -> None:
    names = [directory_of("ü" * 254 + last, DAY.date()) for last in "ab"]

    assert names[0] != names[1]
    assert all(len(name.split("/")[0].encode()) < 255 for name in names)


@pytest.mark.slow
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


async def test_rows_that_are_not_those_of_the_manifest_are_found_whatever_its_checksum_of_the_file(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    file = Manifest.load(archive).files[0]
    path = archive / file.path
    table = pq.read_table(path, partitioning=None)

    def said(other: pa.Table) -> str | None:
        pq.write_table(other, path)
        return check_archived_file(archive, replace(file, bytes=path.stat().st_size, sha256=sha256_of(path)))[
            1
        ]

    turned = table.take([1, 0, *range(2, len(table))])
    emptied = table.set_column(8, "payload", pa.array(["{}"] * len(table)))
    assert said(table) is None
    assert "is not in order" in str(said(turned))
    assert "not those that the manifest's checksum was made from" in str(said(emptied))
    assert "it has 119 events, the manifest says 120" in str(said(table.slice(1)))


async def test_event_that_is_not_as_in_the_journal_is_found(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    change(dsn, "UPDATE projections.events SET payload = '{}' WHERE source_id = 'N1é' AND seq_nr = 15")

    found = verify_archive(archive, journal=dsn, processes=1)

    assert len(found.differences) == 1
    assert found.differences[0].startswith("entity type 'plane', 2020-01-02: the journal has 120 events")


@pytest.mark.slow
async def test_partitions_that_left_the_journal_are_counted(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    drop(dsn, partitions(dsn)[0])

    found = verify_archive(archive, journal=dsn, processes=1)

    assert (found.compared, found.gone, found.differences) == (2, 2, ())


def test_directory_without_a_manifest_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"is not an archive: it has no _manifest\.json"):
        verify_archive(tmp_path)


def test_manifest_of_a_later_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_manifest.json").write_text('{"format": 3}')

    with pytest.raises(ArchiveError, match="has the format 3, this version reads 2"):
        Manifest.load(tmp_path)


@pytest.mark.slow
async def test_manifest_is_read_as_it_was_written(journal: Database, dsn: str, archive: Path) -> None:
    export(dsn, archive)
    manifest = Manifest.load(archive)

    manifest.save(archive)

    assert Manifest.load(archive).files == manifest.files


@pytest.mark.slow
async def test_reader_may_export_verify_and_read(
    journal: Database, dsn: str, archive: Path, login: Callable[[str | None], str]
) -> None:
    reader = login("projections_reader")

    done = export(reader, archive)

    assert done.rows == 40 * SOURCES
    assert verify_archive(archive, journal=reader, processes=1).differences == ()
    assert len(rows(read_with_archive(reader, archive, Reading(EntityTypes(("plane",)))))) == 30 * SOURCES


@pytest.mark.slow
async def test_export_that_was_killed_goes_on(database: Database, dsn: str, archive: Path) -> None:
    await import_events(database, history(last=120))
    await make_partitions(database, ahead=1)
    killed(
        "from spark_projections.archive.export import export_archive\n"
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
