"""A partition leaves only when it was archived, where that is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal import Database, DatabaseError
from journal.partitions import Maintained, Partition
from spark_projections.archive.export import archive_partition
from spark_projections.archive.files import ArchiveError
from spark_projections.archive.restore import restore_archive
from tests.fixtures.archive import everything
from tests.fixtures.journal import count
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.retention import DAY, NAMES, PAST, filled, group, keep, match, past, retained


@pytest.fixture
async def journal(database: Database) -> Database:
    return await filled(database)


def problems(done: Maintained) -> list[str | None]:
    return [each.problem for each in done.dropped]


@pytest.mark.slow
async def test_each_partition_is_archived_before_it_is_dropped(journal: Database) -> None:
    archived: list[tuple[str, int, list[str]]] = []

    async def archive(partition: Partition) -> None:
        archived.append((partition.name, partition.rows, await past(journal)))

    done = await retained(journal, archive=archive)

    assert archived == [(name, 12, NAMES[number:]) for number, name in enumerate(NAMES)]
    assert [(each.archived, each.problem) for each in done.dropped] == [(True, None)] * 3


@pytest.mark.slow
async def test_plain_function_archives_too(journal: Database) -> None:
    archived: list[str] = []

    def archive(partition: Partition) -> None:
        archived.append(partition.name)

    await retained(journal, archive=archive)

    assert archived == NAMES


@pytest.mark.slow
async def test_partition_that_could_not_be_archived_stays_and_the_others_go(journal: Database) -> None:
    async def archive(partition: Partition) -> None:
        if partition.name == NAMES[1]:
            raise OSError("no space left on device")

    done = await retained(journal, archive=archive)

    assert problems(done) == [None, "not archived: OSError: no space left on device", None]
    assert await past(journal) == [NAMES[1]]


@pytest.mark.slow
async def test_partition_that_changes_after_it_was_archived_stays(journal: Database) -> None:
    async def archive(partition: Partition) -> None:
        if partition.name == NAMES[0]:
            await execute(
                journal,
                "INSERT INTO projections.events (db_timestamp, seq_nr, event_id, slice, version, source_id, "
                "entity_type, event_type, payload) VALUES ($1, 1, gen_random_uuid(), 1, 1, 'late', 'plane', 'L', '{}')",
                PAST,
            )

    done = await retained(journal, archive=archive)

    assert problems(done) == [
        f"partition {NAMES[0]} has 13 rows, of which 12 are archived",
        None,
        None,
    ]
    assert await count(journal) == 13


@pytest.mark.slow
@pytest.mark.parametrize("force", [False, True])
async def test_where_archiving_comes_first_a_run_without_it_drops_nothing(
    journal: Database, force: bool
) -> None:
    await keep(journal, "events", archive_first=True)

    done = await retained(journal, force=force)

    assert done.dropped == ()
    assert [[str(holder) for holder in each.holders] for each in done.kept] == [["to be archived first"]] * 3
    with pytest.raises(DatabaseError, match="to be archived first"):
        await fetchval(journal, "SELECT projections._drop_partition_v1($1, TRUE)", NAMES[0])


@pytest.mark.slow
async def test_what_is_kept_is_not_archived(journal: Database) -> None:
    await keep(journal, "events", retention="forever")

    def archive(_: Partition) -> None:
        raise AssertionError

    done = await retained(journal, archive=archive)

    assert done.dropped == ()


@pytest.mark.slow
async def test_matches_are_dropped_without_an_archive(database: Database) -> None:
    await execute(database, "SELECT projections._create_partition_v1($1, $2, 'matches')", PAST, PAST + DAY)
    await match(database, await group(database, reliable=False), PAST, PAST)

    def archive(_: Partition) -> None:
        raise AssertionError

    done = await retained(database, archive=archive)

    assert [(each.partition.name, each.problem) for each in done.dropped] == [
        ("matches_20200101t000000", None)
    ]


@pytest.mark.slow
async def test_archive_of_parquet_files_takes_each_partition_and_gives_it_back(
    journal: Database, dsn: str, tmp_path: Path
) -> None:
    before = everything(dsn)

    def archive(partition: Partition) -> None:
        archive_partition(dsn, tmp_path / "archive", partition)

    done = await retained(journal, archive=archive)

    assert problems(done) == [None] * 3
    assert everything(dsn) == []
    restore_archive(dsn, tmp_path / "archive")
    assert everything(dsn) == before


async def test_archive_whose_files_are_not_as_they_were_written_keeps_the_partition(
    journal: Database, dsn: str, tmp_path: Path
) -> None:
    directory = tmp_path / "archive"

    def archive(partition: Partition) -> None:
        archive_partition(dsn, directory, partition)
        for path in directory.rglob("*.parquet"):
            path.write_bytes(path.read_bytes()[:-1])
        archive_partition(dsn, directory, partition)

    done = await retained(journal, archive=archive)

    assert [str(problem).split(":")[:2] for problem in problems(done)] == [
        ["not archived", " ArchiveError"]
    ] * 3
    assert await past(journal) == NAMES


async def test_archive_that_lacks_events_keeps_the_partition(
    journal: Database, dsn: str, tmp_path: Path
) -> None:
    partition = Partition("events", NAMES[0], PAST, PAST + DAY, bytes=1, rows=13)

    with pytest.raises(ArchiveError, match="has 13 events, and the archive has 12 of them"):
        archive_partition(dsn, tmp_path / "archive", partition)
