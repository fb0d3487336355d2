"""No row leaves the journal that the archive does not hold as it is, whatever happens after an export."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journal import Database, DatabaseError, import_events
from journal.partitions import Partition
from spark_projections.archive.export import archive_partition
from spark_projections.archive.restore import restore_archive
from tests.fixtures.archive import archived, change, drop, everything, export, query
from tests.fixtures.projections import execute
from tests.fixtures.retention import HOUR, NAMES, PAST, filled, history, retained

_LATE = """
INSERT INTO projections.events
(db_timestamp, seq_nr, event_id, slice, version, source_id, entity_type, event_type, payload)
VALUES ('2020-01-01T01:00Z', 1, gen_random_uuid(), 1, 1, 'late', 'plane', 'L', '{}')
"""
_DELETE = "DELETE FROM projections.events WHERE source_id = 'a' AND seq_nr = 2"
CHANGES: dict[str, tuple[str, ...]] = {
    "updated": (
        "UPDATE projections.events SET payload = '{\"n\": 99}' WHERE source_id = 'a' AND seq_nr = 2",
    ),
    "metadata": ("UPDATE projections.events SET metadata = '{}' WHERE source_id = 'b' AND seq_nr = 1",),
    "deleted": (_DELETE,),
    "late commit": (_LATE,),
    "as many rows as before": (_DELETE, _LATE),
    "moved by a microsecond": (
        "UPDATE projections.events SET db_timestamp = db_timestamp + '1 us' WHERE (source_id, seq_nr) = ('a', 2)",
    ),
}


@pytest.fixture
async def journal(database: Database) -> Database:
    return await filled(database)


def held(dsn: str, directory: Path) -> set[tuple[Any, ...]]:
    """All that the journal or the archive has: keys, times and payloads."""
    text = "SELECT source_id, seq_nr, db_timestamp, payload::text, metadata::text FROM projections.events"
    kept = {
        (row["source_id"], row["seq_nr"], row["db_timestamp"], row["payload"], row["metadata"])
        for row in archived(directory)
    }
    return kept.union(query(dsn, text))


async def import_one(journal: Database) -> None:
    late = replace(history(1, 1)[0], source_id="late", db_timestamp=PAST + HOUR)
    await import_events(journal, [late])


@pytest.mark.daily(2)
@pytest.mark.parametrize("how", [*CHANGES, "imported", "restored"])
async def test_nothing_is_lost_that_was_changed_after_an_export(
    journal: Database, dsn: str, tmp_path: Path, how: str
) -> None:
    statements = export(dsn, tmp_path).detach
    assert len(statements) == len(NAMES)
    if how == "imported":
        await import_one(journal)
    elif how == "restored":
        drop(dsn, NAMES[0])
        restore_archive(dsn, tmp_path)
        change(dsn, *CHANGES["updated"])
    else:
        change(dsn, *CHANGES[how])
    before = held(dsn, tmp_path)

    with pytest.raises(DatabaseError, match="archived") as refused:
        await execute(journal, statements[0])
    assert refused.value.sqlstate == "PJ072"
    again = export(dsn, tmp_path)
    await retained(journal, archive=lambda partition: archive_partition(dsn, tmp_path, partition))

    assert held(dsn, tmp_path) >= before
    left = query(dsn, "SELECT name FROM projections.partitions WHERE to_timestamp < '2020-02-01Z' ORDER BY 1")
    grown = how in {"late commit", "imported"}  # what is new is exported, too, and then nothing is missing
    assert left == ([] if grown else [(NAMES[0],)])
    assert [*again.stuck] == ([] if grown else [NAMES[0]])
    assert [NAMES[0] in each for each in again.detach] == ([True] if grown else []) + [False, False]


async def test_row_that_changes_between_the_export_and_the_drop_keeps_the_partition(
    journal: Database, dsn: str, tmp_path: Path
) -> None:
    def archive(partition: Partition) -> None:
        archive_partition(dsn, tmp_path, partition)
        if partition.name == NAMES[0]:
            change(dsn, *CHANGES["as many rows as before"])

    export(dsn, tmp_path)
    before = held(dsn, tmp_path)
    done = await retained(journal, archive=archive)

    problems = [each.problem for each in done.dropped]
    assert problems == [f"rows of partition {NAMES[0]} were changed since they were archived", None, None]
    assert held(dsn, tmp_path) >= before


async def test_partition_that_is_what_was_archived_is_detached(
    journal: Database, dsn: str, tmp_path: Path
) -> None:
    before = everything(dsn)

    for statement in export(dsn, tmp_path).detach:
        await execute(journal, statement)

    assert everything(dsn) == []
    change(dsn, *(f"DROP TABLE projections.{name}" for name in NAMES))
    restore_archive(dsn, tmp_path)
    assert everything(dsn) == before
