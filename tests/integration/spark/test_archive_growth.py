"""Late imports into times that are archived: a partition grows by further files; one that is stuck is alone in that."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from journal import Database, EntityTypes, import_events
from journal.partitions import Partition
from journal.partitions.making import make_partitions
from spark_projections.archive.check import verify_archive
from spark_projections.archive.export import archive_partition
from spark_projections.archive.history import read_with_archive
from spark_projections.archive.manifest import Manifest
from spark_projections.archive.restore import restore_archive
from spark_projections.reading.batches import Reading
from tests.fixtures.archive import (
    DAY,
    ONE_DAY,
    archived,
    change,
    drop,
    drop_all,
    everything,
    export,
    filled,
    history,
    partitions,
    query,
    rows,
)
from tests.fixtures.retention import NAMES, past, retained
from tests.fixtures.retention import filled as filled_for_retention


@pytest.fixture
async def journal(database: Database) -> Database:
    return await filled(database)


async def import_late(journal: Database, prefix: str = "late", at: timedelta = ONE_DAY / 2) -> None:
    """One event of a new source, into the first day, in a partition where that is gone."""
    await import_events(journal, [replace(next(history(prefix=prefix)), db_timestamp=DAY + at)])
    await make_partitions(journal, ahead=1, interval=ONE_DAY)


def keys(found: Iterable[dict[str, Any]]) -> list[tuple[str, int]]:
    return sorted((row["source_id"], row["seq_nr"]) for row in found)


# At the time of an event that has left, too: of the first one of a file, and of the newest.
@pytest.mark.slow
@pytest.mark.parametrize(
    "at", [ONE_DAY / 2, timedelta(0), 9 * timedelta(hours=2.4) + timedelta(microseconds=3)]
)
async def test_partition_that_left_and_was_made_again_grows_by_a_further_file(
    journal: Database, dsn: str, archive: Path, at: timedelta
) -> None:
    before = everything(dsn)
    export(dsn, archive)
    drop_all(dsn)
    await import_late(journal, at=at)
    late = everything(dsn)

    done = export(dsn, archive)
    again = export(dsn, archive)

    assert (done.rows, done.files, done.stuck, done.again) == (1, 1, {}, tuple(partitions(dsn)))
    assert done.detachable == tuple(partitions(dsn))
    assert (again.files, again.unchanged) == (0, tuple(partitions(dsn)))
    assert verify_archive(archive, journal=dsn, processes=1).differences == ()
    drop_all(dsn)
    restore_archive(dsn, archive)
    assert sorted(everything(dsn)) == sorted([*before, *late])


@pytest.mark.slow
async def test_archive_that_has_grown_is_read_with_the_journal_once_and_whole(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    wanted = keys(archived(archive))
    drop_all(dsn)
    for number, last in enumerate(("a", "b", "c")):
        await import_late(journal, prefix=last, at=(number + 1) * timedelta(hours=1))
        wanted.append((f"{last}0é", 1))
        assert keys(rows(read_with_archive(dsn, archive, Reading(EntityTypes(("plane",)))))) == sorted(wanted)
        export(dsn, archive)
        assert keys(rows(read_with_archive(dsn, archive, Reading(EntityTypes(("plane",)))))) == sorted(wanted)
        if last == "b":
            drop(dsn, partitions(dsn)[0])
    assert keys(archived(archive)) == sorted(wanted)


@pytest.mark.slow
async def test_further_file_has_only_what_the_archive_lacks_whatever_the_cut(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive, rows_per_file=40)
    old = {each.path: each for each in Manifest.load(archive).files}
    for number in range(9):
        await import_late(journal, prefix=f"late{number}", at=(number + 1) * timedelta(hours=1))

    done = export(dsn, archive, rows_per_file=25)

    assert (done.rows, done.stuck) == (9, {})
    kept = {each.path: each for each in Manifest.load(archive).files}
    assert {path: kept[path].sha256 for path in old} == {path: each.sha256 for path, each in old.items()}
    found = verify_archive(archive, journal=dsn, processes=1)
    assert (found.doubled, found.differences) == ((), ())


@pytest.mark.slow
async def test_partition_that_lost_a_part_is_stuck_and_the_others_are_exported(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive, until=DAY + ONE_DAY)
    change(dsn, "DELETE FROM projections.events WHERE entity_type = 'plane' AND seq_nr = 10")

    done = export(dsn, archive)

    first, *others = partitions(dsn)
    assert done.partitions == done.detachable == tuple(others)
    assert list(done.stuck) == [first]
    assert "lacks events of type 'plane' that the archive holds" in done.stuck[first]
    assert (
        "Export to another directory, or, to give up the lost events, move entity_type=plane/"
        in done.stuck[first]
    )
    assert "--forget-missing" in done.stuck[first]


async def test_event_that_was_changed_since_makes_a_grown_partition_stuck(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    named = Manifest.load(archive).files
    change(dsn, "UPDATE projections.events SET payload = '{}' WHERE source_id = 'N1é' AND seq_nr = 5")
    await import_late(journal)

    done = export(dsn, archive)

    assert "are not as they were when they were exported" in done.stuck[partitions(dsn)[0]]
    assert [each.path for each in Manifest.load(archive).files] == [each.path for each in named]


@pytest.mark.slow
async def test_file_that_is_damaged_makes_its_partition_stuck_when_that_has_grown(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    (file,) = Manifest.load(archive).of(Manifest.load(archive).files[0].bounds, "plane")
    (archive / file.path).unlink()
    await import_late(journal)

    done = export(dsn, archive)

    assert file.path in done.stuck[partitions(dsn)[0]]


@pytest.mark.slow
async def test_late_import_into_a_dropped_time_stops_neither_archiving_nor_retention(
    database: Database, dsn: str, tmp_path: Path
) -> None:
    journal = await filled_for_retention(database)

    def archive(partition: Partition) -> None:
        archive_partition(dsn, tmp_path / "archive", partition)

    before = everything(dsn)
    await retained(journal, archive=archive)
    bounds = Manifest.load(tmp_path / "archive").files[0].bounds
    await import_events(journal, [replace(next(history(prefix="late")), db_timestamp=bounds.from_timestamp)])
    await make_partitions(journal, ahead=1, interval=ONE_DAY)
    late = everything(dsn)

    done = await retained(journal, archive=archive)

    assert [(each.partition.name, each.archived, each.problem) for each in done.dropped] == [
        (NAMES[0], True, None)
    ]
    assert (await past(journal), query(dsn, "SELECT count(*) FROM projections.events")) == ([], [(0,)])
    restore_archive(dsn, tmp_path / "archive")
    assert sorted(everything(dsn)) == sorted([*before, *late])


@pytest.mark.slow
@pytest.mark.parametrize("interval", [timedelta(hours=6), timedelta(days=7)], ids=["shorter", "longer"])
async def test_partition_of_another_interval_holds_up_no_other_and_leaves_by_another_directory(
    journal: Database, dsn: str, tmp_path: Path, interval: timedelta
) -> None:
    export(dsn, tmp_path / "archive")
    drop_all(dsn)
    for days, prefix in ((0.5, "late"), (40, "later")):
        late = replace(next(history(prefix=prefix)), db_timestamp=DAY + days * ONE_DAY)
        await import_events(journal, [late])
    await make_partitions(journal, ahead=1, interval=interval)
    stuck, other = [
        query(
            dsn,
            "SELECT tableoid::regclass::text FROM projections.events WHERE source_id LIKE %s",
            f"{prefix}%",
        )
        for prefix in ("late0", "later0")
    ]

    done = export(dsn, tmp_path / "archive")
    (name,) = done.stuck
    (before,) = re.findall("export OTHER --until ([0-9TZ:-]+)`", done.stuck[name])
    elsewhere = export(dsn, tmp_path / "other", until=datetime.fromisoformat(before))

    assert f"projections.{name}" == stuck[0][0]
    assert other[0][0] in {f"projections.{each}" for each in done.detachable}
    assert name not in done.detachable
    assert (elsewhere.detachable, elsewhere.stuck) == ((name,), {})


@pytest.mark.slow
async def test_partition_that_is_stuck_is_kept_and_those_after_it_are_archived_and_dropped(
    database: Database, dsn: str, tmp_path: Path
) -> None:
    journal = await filled_for_retention(database)
    first = query(dsn, "SELECT min(db_timestamp) FROM projections.events")[0][0]
    export(dsn, tmp_path, until=first + ONE_DAY)
    change(
        dsn,
        "DELETE FROM projections.events AS e WHERE e.db_timestamp = "
        f"(SELECT max(n.db_timestamp) FROM projections.{NAMES[0]} AS n)",
    )

    done = await retained(journal, archive=lambda partition: archive_partition(dsn, tmp_path, partition))

    assert [each.partition.name for each in done.dropped if each.problem is None] == NAMES[1:]
    (problem,) = [each.problem for each in done.dropped if each.problem is not None]
    assert problem.startswith("not archived: ArchiveError: partition ")
    assert await past(journal) == NAMES[:1]
