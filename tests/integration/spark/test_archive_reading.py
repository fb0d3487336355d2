"""Archive and journal read as one."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journal import ALL_TYPES, Database, EntityTypes, SliceRange, import_events
from spark_projections.archive.files import ArchiveError
from spark_projections.archive.history import plan_history, read_with_archive
from spark_projections.archive.manifest import Manifest
from spark_projections.reading.batches import Reading, read_batches
from tests.fixtures.archive import (
    DAY,
    ONE_DAY,
    by_source,
    drop,
    export,
    filled,
    history,
    partitions,
    rows,
)


@pytest.fixture
async def journal(database: Database) -> Database:
    return await filled(database)


@pytest.mark.daily(1)
@pytest.mark.parametrize(
    "types", [("plane",), ("plane", "ship/of=war %"), ALL_TYPES], ids=["one", "two", "all"]
)
@pytest.mark.parametrize("gone", [(), (0,), (1,), (0, 1, 2)])
async def test_history_is_read_once_and_whole_whatever_has_left_the_journal(
    journal: Database, dsn: str, archive: Path, gone: tuple[int, ...], types: Any
) -> None:
    reading = Reading(EntityTypes.of(types))
    await import_events(journal, history(first=31, last=35))  # in the default partition
    export(dsn, archive)
    wanted = rows(read_batches(dsn, replace(reading, order="source")))
    names = partitions(dsn)
    for number in gone:
        drop(dsn, names[number])

    assert by_source(rows(read_with_archive(dsn, archive, replace(reading, order="source")))) == wanted
    assert by_source(rows(read_with_archive(dsn, archive, reading))) == wanted


@pytest.mark.slow
async def test_small_bands_keep_each_source_together_and_in_order(
    journal: Database, dsn: str, archive: Path
) -> None:
    await import_events(journal, history(first=31, last=35))
    export(dsn, archive)
    wanted = rows(read_batches(dsn, Reading(EntityTypes(("plane",)), order="source")))
    drop(dsn, partitions(dsn)[0])

    found = rows(
        read_with_archive(dsn, archive, Reading(EntityTypes(("plane",)), order="source"), band_rows=50)
    )

    assert found == sorted(wanted, key=lambda row: (row["slice"], row["source_id"].encode(), row["seq_nr"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 12))]
)
async def test_any_reading_gives_what_the_journal_alone_gave(
    journal: Database, dsn: str, archive: Path, seed: int
) -> None:
    choose = random.Random(seed)
    await import_events(journal, history(first=31, last=40))
    export(dsn, archive, rows_per_file=choose.choice([20, 60, 1000]))
    times = [e.db_timestamp for e in history(last=40)] + [DAY + n * ONE_DAY for n in range(4)]
    low = choose.randint(0, 1023)
    reading = Reading(
        EntityTypes.of(choose.choice(["plane", ("plane", "ship/of=war %"), ALL_TYPES])),
        slices=choose.choice([SliceRange(0, 1023), SliceRange(low, choose.randint(low, 1023))]),
        since=choose.choice([None, *times]),
        until=choose.choice([None, *times]),
        event_types=choose.choice([(), ("Landed",)]),
        source_ids=choose.choice([(), ("N1é", "N5é", "none")]),
        columns=choose.choice([Reading(EntityTypes(("plane",))).columns, ("payload", "seq_nr"), ("slice",)]),
        seq_nrs=choose.choice([Reading(EntityTypes(("plane",))).seq_nrs, (5, 33)]),
    )
    columns = (*reading.columns, *({"source_id", "seq_nr"} - set(reading.columns)))
    reading = replace(reading, columns=columns)
    wanted = by_source(rows(read_batches(dsn, reading)))
    for name in choose.sample(partitions(dsn), choose.randint(0, 3)):
        drop(dsn, name)

    assert by_source(rows(read_with_archive(dsn, archive, reading))) == wanted
    in_bands = read_with_archive(dsn, archive, replace(reading, order="source"), band_rows=50)
    assert by_source(rows(in_bands)) == wanted


@pytest.mark.daily(1)
@pytest.mark.parametrize("gone", [False, True], ids=["attached", "detached"])
async def test_event_imported_after_the_export_is_read_too(
    journal: Database, dsn: str, archive: Path, gone: bool
) -> None:
    export(dsn, archive)
    wanted = rows(read_batches(dsn, Reading(EntityTypes(("plane",)))))
    if gone:
        drop(dsn, partitions(dsn)[0])
    await import_events(journal, [replace(next(history(prefix="late")), db_timestamp=DAY + ONE_DAY / 2)])

    found = rows(read_with_archive(dsn, archive, Reading(EntityTypes(("plane",)))))

    assert by_source([row for row in found if row["source_id"] != "late0é"]) == by_source(wanted)
    assert len(found) == len(wanted) + 1


@pytest.mark.slow
async def test_what_is_in_the_archive_is_not_asked_of_the_journal(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)

    plan = plan_history(dsn, archive, Reading(EntityTypes(("plane",)), since=DAY, until=DAY + 4 * ONE_DAY))

    assert [(part.since, part.until) for part in plan.journal] == [(DAY + 3 * ONE_DAY, DAY + 4 * ONE_DAY)]
    assert len(plan.files) == 3


@pytest.mark.slow
async def test_file_that_is_gone_is_named_when_the_archive_is_read(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    path = archive / Manifest.load(archive).files[0].path
    path.unlink()

    with pytest.raises(ArchiveError, match=path.name):
        rows(read_with_archive(dsn, archive, Reading(EntityTypes(("plane",)))))
