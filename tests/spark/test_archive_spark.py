"""The archive and the loading of history on Spark, compared with what local processes do."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel

from journal import EntityTypes, HistoricEvent, RawJson, SliceRange, event_type, import_events, slice_of
from journal.database import connect
from journal.partitions.making import make_partitions
from projections.webhooks.messages import message_event
from spark_projections.archive.check import verify_archive
from spark_projections.archive.export import export_archive
from spark_projections.archive.history import read_history
from spark_projections.archive.manifest import Manifest
from spark_projections.backfill.backfill import Backfilled, backfill
from spark_projections.backfill.mapping import Mapped
from spark_projections.engine.parallel import PartFailed
from spark_projections.reading.batches import COLUMNS, Reading, read_batches
from tests.fixtures.commands import query
from tests.fixtures.journal import historic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


DAY = datetime(2020, 1, 1, tzinfo=UTC)
TYPE = "ship/of=war %"


def history() -> list[HistoricEvent]:
    return [
        HistoricEvent(
            f"N{source}é",
            RawJson(f'{{"z": 1.0,  "a": "ü{number}"}}'),
            TYPE,
            "Landed",
            tags=["a,b"] if number % 2 else (),
            metadata={"by": None} if source % 2 else None,
            seq_nr=number,
            db_timestamp=DAY + timedelta(hours=6 * number),
        )
        for number in range(1, 11)
        for source in range(8)
    ]


@pytest.fixture
def journal(dsn: str) -> str:
    async def fill() -> None:
        async with connect(dsn) as database:
            await import_events(database, history())
            await make_partitions(database, ahead=1)

    asyncio.run(fill())
    return dsn


def rows(found: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in found), key=lambda row: (row[0].encode(), row[1]))


def micros(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Spark collects times without a zone, in the session's, which is UTC."""
    at = row[2].replace(tzinfo=UTC) if row[2].tzinfo is None else row[2]
    return (*row[:2], at, *row[3:])


@pytest.mark.slow
def test_export_on_spark_writes_what_local_processes_write(
    spark: SparkSession, journal: str, tmp_path: Path
) -> None:
    local = export_archive(journal, tmp_path / "local", processes=1, rows_per_file=20)
    done = export_archive(journal, tmp_path / "spark", spark=spark.sparkContext, rows_per_file=20)

    assert (done.rows, done.files, done.partitions) == (local.rows, local.files, local.partitions)
    assert verify_archive(tmp_path / "spark", journal=journal, processes=1).differences == ()
    contents = [
        sorted((each.date, each.slices, each.content) for each in Manifest.load(tmp_path / name).files)
        for name in ("local", "spark")
    ]
    assert contents[0] == contents[1]


@pytest.mark.slow
def test_spark_reads_the_directory_itself_with_its_escaped_types(
    spark: SparkSession, journal: str, tmp_path: Path
) -> None:
    export_archive(journal, tmp_path, processes=1)

    found = spark.read.parquet(str(tmp_path)).select("entity_type", "date").distinct().collect()

    assert {(row["entity_type"], str(row["date"])) for row in found} == {
        (TYPE, f"2020-01-0{day}") for day in (1, 2, 3)
    }


@event_type("archive.weighed", version=2, upcast={1: lambda old: {"g": old["kg"] * 1000}})
class Weighed(BaseModel):
    g: int


@pytest.mark.slow
def test_archive_and_journal_show_the_newest_version(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    old = [
        HistoricEvent(
            "s", RawJson(f'{{"kg": {day}}}'), "scales", "archive.weighed", 1, seq_nr=day,
            db_timestamp=DAY + timedelta(days=day),
        )
        for day in (1, 2)
    ]  # fmt: skip

    async def fill() -> None:
        async with connect(dsn) as database:
            await import_events(database, old)
            await make_partitions(database, ahead=1)

    asyncio.run(fill())
    export_archive(dsn, tmp_path, processes=1, until=DAY + timedelta(days=2))

    def found(**more: Any) -> list[tuple[Any, ...]]:
        frame = read_history(spark, tmp_path, "scales", dsn=dsn, columns=["payload", "seq_nr"], **more)
        return sorted(map(tuple, frame.collect()), key=lambda row: row[1])

    assert found() == [('{"g":1000}', 1), ('{"g":2000}', 2)]
    assert found(models=()) == [('{"kg": 1}', 1), ('{"kg": 2}', 2)]
    assert found(models=[Weighed]) == found()


@pytest.mark.slow
def test_archive_and_journal_are_one_data_frame(spark: SparkSession, journal: str, tmp_path: Path) -> None:
    export_archive(journal, tmp_path, processes=1, until=DAY + timedelta(days=2))
    stored = [
        tuple(row.values())
        for batch in read_batches(journal, Reading(EntityTypes((TYPE,))))
        for row in batch.to_pylist()
    ]
    query_partition = "SELECT name FROM projections.partitions WHERE from_timestamp = '2020-01-01T00:00:00Z'"
    ((name,),) = query(journal, query_partition)

    async def drop_and_import() -> None:
        async with connect(journal) as database:
            async with database.session() as session:
                await session.execute(f"ALTER TABLE projections.events DETACH PARTITION projections.{name}")
            late = replace(historic("late", 1), entity_type=TYPE, db_timestamp=DAY + timedelta(hours=1))
            await import_events(database, [late])

    asyncio.run(drop_and_import())
    frame = read_history(spark, tmp_path, TYPE, dsn=journal)
    part = read_history(
        spark,
        tmp_path,
        TYPE,
        dsn=journal,
        since=DAY + timedelta(days=1),
        source_ids=["N1é"],
        columns=["seq_nr"],
    )

    found = [micros(row) for row in rows(frame.collect())]
    assert frame.columns == list(COLUMNS)
    assert [row for row in found if row[0] != "late"] == rows(stored)
    assert len(found) == len(stored) + 1
    assert sorted(row[0] for row in part.collect()) == [4, 5, 6, 7, 8, 9, 10]


_MANY_ERASED = """
INSERT INTO projections.erased_messages (event_id, tenant)
SELECT gen_random_uuid(), 'acme' FROM generate_series(1, 1000)
"""


@pytest.mark.slow
def test_data_frame_has_no_payload_that_was_erased(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    events = [message_event("acme", "landed", {"n": n}, message_id=f"m{n}", order_key="k") for n in (1, 2, 3)]
    sent = [
        HistoricEvent(
            one.source_id, one.payload, one.entity_type, one.event_type, metadata=one.metadata,
            event_id=one.event_id, seq_nr=number, db_timestamp=DAY + number * timedelta(hours=1),
        )
        for number, one in enumerate(events, start=1)
    ]  # fmt: skip

    async def erase() -> None:
        async with connect(dsn) as database:
            await import_events(database, sent)
            await make_partitions(database, ahead=1)
            export_archive(dsn, tmp_path, processes=1)
            async with database.session() as session:
                await session.execute(
                    "INSERT INTO projections.erased_messages (event_id, tenant) "
                    "VALUES ($1, 'acme'), ($2, 'other'), ($3, '')",
                    *(one.event_id for one in events),
                )
                await session.execute(_MANY_ERASED)

    asyncio.run(erase())
    frame = read_history(spark, tmp_path, "webhook-message", dsn=dsn, columns=["seq_nr", "payload"])

    assert sorted(map(tuple, frame.collect())) == [(1, "null"), (2, '{"n":2}'), (3, "null")]
    plan = frame._jdf.queryExecution().toString()
    assert str(events[0].event_id) not in plan
    assert len(plan) < 20_000


@pytest.mark.slow
def test_history_of_slices_without_events_is_an_empty_frame(
    spark: SparkSession, journal: str, tmp_path: Path
) -> None:
    export_archive(journal, tmp_path, processes=1)
    used = {slice_of(event.source_id) for event in history()}
    unused = next(number for number in range(1024) if number not in used)
    during = {"since": DAY + timedelta(hours=6), "until": DAY + timedelta(hours=12)}

    frame = read_history(
        spark, tmp_path, TYPE, dsn=journal, slices=SliceRange(unused, unused), columns=["seq_nr"], **during
    )

    assert (frame.columns, frame.collect()) == (["seq_nr"], [])


@pytest.mark.slow
def test_history_is_read_in_one_session_after_another(
    spark: SparkSession, journal: str, tmp_path: Path
) -> None:
    export_archive(journal, tmp_path, processes=1)

    frames = [read_history(session, tmp_path, TYPE, dsn=journal) for session in (spark, spark.newSession())]

    assert [frame.columns for frame in frames] == [list(COLUMNS)] * 2


def write(path: Path, numbers: range, **values: Any) -> Path:
    records = [
        {
            "source_id": f"N{source}",
            "event_type": "Landed",
            "payload": f'{{"n":  {number}}}',
            "db_timestamp": DAY + timedelta(hours=number),
            **values,
        }
        for number in reversed(numbers)
        for source in range(6)
    ]
    pq.write_table(pa.Table.from_pylist(records), path, row_group_size=25)
    return path


@pytest.mark.slow
def test_backfill_on_spark_numbers_over_all_files_and_goes_on_after_a_break(
    spark: SparkSession, dsn: str, tmp_path: Path
) -> None:
    files = [write(tmp_path / "b.parquet", range(11, 21)), write(tmp_path / "a.parquet", range(1, 11))]
    mapped = Mapped("plane", "parquet")
    backfill(dsn, files[1:], mapped, spark=spark.sparkContext, chunk=7)

    checked = backfill(dsn, files, mapped, spark=spark.sparkContext, chunk=7, dry_run=True)
    done = backfill(dsn, files, mapped, spark=spark.sparkContext, chunk=7)

    assert checked == done == Backfilled(60, 60, 6)
    stored = query(dsn, "SELECT source_id, seq_nr, payload::text FROM projections.events ORDER BY 1, 2")
    assert stored == [(f"N{s}", n, f'{{"n":  {n}}}') for s in range(6) for n in range(1, 21)]


@pytest.mark.slow
def test_bad_row_on_spark_is_named_without_a_trace_of_java(
    spark: SparkSession, dsn: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.parquet", range(1, 3), payload="{")

    with pytest.raises(PartFailed, match=r"a\.parquet, row 1: source 'N0': payload is not JSON") as caught:
        backfill(dsn, [path], Mapped("plane", "parquet"), spark=spark.sparkContext)

    assert "\n" not in str(caught.value)
    assert query(dsn, "SELECT count(*) FROM projections.events") == [(0,)]
