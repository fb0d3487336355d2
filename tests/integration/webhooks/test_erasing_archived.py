"""A payload that was erased does not come back from an archive, and is taken out of its files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

import pyarrow.parquet as pq
import pytest

from journal import Database, EntityTypes, HistoricEvent, NotFound, import_events
from projections.webhooks.deliveries import Deliveries
from projections.webhooks.erasing import Erased
from projections.webhooks.messages import message_event, message_uuid
from spark_projections.archive.check import verify_archive
from spark_projections.archive.erasing import erase_archive
from spark_projections.archive.history import read_with_archive
from spark_projections.archive.manifest import Manifest
from spark_projections.archive.repair import repair_archive
from spark_projections.archive.restore import restore_archive
from spark_projections.reading.batches import Reading
from tests.fixtures.archive import DAY, ONE_DAY, archived, drop_all, export, query, rows
from tests.fixtures.locks import WAITING
from tests.fixtures.projections import execute, until

SECRET, OTHER = "Ada Lovelace", "Grace Hopper"
EVENTS = "SELECT payload::text FROM projections.events WHERE entity_type = 'webhook-message' ORDER BY seq_nr"


@pytest.fixture
async def journal(database: Database) -> Database:
    """Two messages of a closed day, in a partition of their own, and an event with an id of the application's."""
    found = []
    for number, who in enumerate((SECRET, OTHER), start=1):
        event = message_event("acme", "landed", {"who": who}, message_id=f"m{number}", order_key="k")
        assert event.event_id is not None
        found.append(
            HistoricEvent(
                event.source_id, event.payload, event.entity_type, event.event_type, metadata=event.metadata,
                event_id=event.event_id, seq_nr=number, db_timestamp=DAY + number * ONE_DAY / 4,
            )
        )  # fmt: skip
    await import_events(database, found)
    await execute(database, "SELECT projections._create_partition_v1($1, $2)", DAY, DAY + ONE_DAY)
    return database


def on_disk(directory: Path) -> str:
    """All that the files of an archive hold, whether or not a manifest names them."""
    return "".join(
        str(pq.read_table(path, partitioning=None).to_pylist()) for path in directory.rglob("*.parquet")
    )


def read(dsn: str, directory: Path, order: str) -> list[str]:
    reading = Reading(EntityTypes(("webhook-message",)), columns=("seq_nr", "payload"), order=order)
    found = rows(read_with_archive(dsn, directory, reading))
    return [row["payload"] for row in sorted(found, key=lambda row: row["seq_nr"])]


async def test_payload_of_a_partition_that_is_in_both_leaves_the_files_with_the_next_export(
    journal: Database, dsn: str, tmp_path: Path
) -> None:
    statement = export(dsn, tmp_path).detach[0]

    assert await Deliveries(journal).erase("acme", "m1") == Erased(1, 0)
    done = export(dsn, tmp_path)

    assert SECRET not in on_disk(tmp_path)
    assert OTHER in on_disk(tmp_path)
    assert (done.stuck, len(done.detach)) == ({}, 1)
    assert done.detach[0] != statement
    assert verify_archive(tmp_path, journal=dsn, processes=1).differences == ()
    await execute(journal, done.detach[0])


async def test_payload_whose_partition_has_left_does_not_come_back(
    journal: Database, dsn: str, tmp_path: Path
) -> None:
    export(dsn, tmp_path)
    drop_all(dsn)

    with pytest.raises(NotFound, match="archive erase"):
        await Deliveries(journal).erase("acme", "m1")

    for order in ("none", "source"):
        assert read(dsn, tmp_path, order) == ["null", f'{{"who":"{OTHER}"}}']
    restore_archive(dsn, tmp_path)
    assert query(dsn, EVENTS) == [("null",), (f'{{"who":"{OTHER}"}}',)]
    assert export(dsn, tmp_path).stuck == {}
    assert SECRET not in on_disk(tmp_path)


async def test_payload_that_is_being_erased_does_not_come_back_either(
    journal: Database, dsn: str, tmp_path: Path
) -> None:
    export(dsn, tmp_path)
    drop_all(dsn)
    ids = [str(message_uuid("acme", "m1"))]

    async with journal.session() as session, session.transaction():
        await session.fetch("SELECT erased FROM projections._erase_messages_v1('acme', $1)", ids)
        restoring = asyncio.create_task(asyncio.to_thread(restore_archive, dsn, tmp_path))
        await until(journal, f"SELECT count(*) = 1 FROM {WAITING}")
    await restoring

    assert query(dsn, EVENTS) == [("null",), (f'{{"who":"{OTHER}"}}',)]


async def test_payload_whose_partition_has_left_is_taken_out_of_the_files(
    journal: Database, dsn: str, tmp_path: Path
) -> None:
    export(dsn, tmp_path)
    before = archived(tmp_path, "webhook-message")
    drop_all(dsn)
    with pytest.raises(NotFound):
        await Deliveries(journal).erase("acme", "m1")
    with pytest.raises(NotFound):
        await Deliveries(journal).erase("globex", UUID(before[1]["event_id"]))  # not its own

    done, again = erase_archive(dsn, tmp_path), erase_archive(dsn, tmp_path)

    assert (done.messages, len(done.files), again.messages, again.files) == (1, 1, 0, ())
    assert archived(tmp_path, "webhook-message") == [before[0] | {"payload": "null"}, before[1]]
    assert SECRET not in on_disk(tmp_path)
    assert verify_archive(tmp_path, processes=1).differences == ()


@pytest.mark.parametrize("broke", ["before the manifest was written", "after it"])
async def test_erasure_that_was_killed_is_gone_on_with(
    journal: Database, dsn: str, tmp_path: Path, broke: str
) -> None:
    export(dsn, tmp_path)
    (old,) = Manifest.load(tmp_path).files
    text = (tmp_path / old.path).read_bytes()
    await Deliveries(journal).erase("acme", "m1")
    if broke == "after it":
        erase_archive(dsn, tmp_path)
        (tmp_path / old.path).write_bytes(text)
    else:
        (tmp_path / old.path.replace(".parquet", "~0123456789ab.parquet")).write_bytes(text)

    repaired = repair_archive(tmp_path, processes=1)
    export(dsn, tmp_path)

    assert (repaired.problems, repaired.taken_in, repaired.missing) == ((), (), ())
    assert SECRET not in on_disk(tmp_path)
    assert verify_archive(tmp_path, journal=dsn, processes=1).differences == ()
