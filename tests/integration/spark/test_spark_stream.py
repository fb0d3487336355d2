"""The planning of batches and streams against real writers, without Spark's JVM."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import LongType, StringType, StructField, StructType

from journal import ALL_TYPES, Event, InvalidValue, append_sync, connect, import_events
from journal.events import HistoricEvent
from journal.writers import WritersInFlight
from spark_projections.reading.horizon import settled_now
from spark_projections.reading.logs import ReadLog
from spark_projections.source.options import options_of, parse_options
from spark_projections.source.source import JournalDataSource, JournalReader, SparkTable
from spark_projections.source.stream import ClockWentBack, HistoryBehindStream, JournalStreamReader
from tests.fixtures.journal import PAST, event, historic

KEYS = StructType([StructField("source_id", StringType()), StructField("seq_nr", LongType())])
EVERYTHING = ReadAllAvailable()
Key = tuple[str, int]


@pytest.fixture(autouse=True)
def dsn_in_the_environment(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROJECTIONS_DSN", dsn)


def keys_of(reader: JournalReader | JournalStreamReader, partitions: Iterable[Any]) -> list[Key]:
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    return [(row["source_id"], row["seq_nr"]) for batch in batches for row in batch.to_pylist()]


class Stream:
    """What Spark does with the reader of a stream."""

    def __init__(self, types: Any = "plane", **options: str) -> None:
        self._options = {**options_of(entity_type=types), "splits": "2", **options}
        self.offset: dict[str, int] = {}
        self.restart()
        self.offset = self.reader.initialOffset()

    def restart(self, **options: str) -> None:
        """Go on from the checkpoint in another process."""
        self._options |= options
        self.reader = JournalStreamReader(parse_options(self._options), SparkTable(KEYS))

    def batch(self, limit: ReadLimit = EVERYTHING) -> list[Key]:
        """One micro-batch, or nothing when there is none."""
        start, self.offset = self.offset, self.reader.latestOffset(self.offset, limit)
        return keys_of(self.reader, self.reader.partitions(start, self.offset))

    def until(self, *wanted: Key, limit: ReadLimit = EVERYTHING) -> list[Key]:
        """Run micro-batches until all of these have come: what is just appended settles a moment later."""
        found: list[Key] = []
        while not set(wanted) <= set(found):
            found += self.batch(limit)
        return found


def append(dsn: str, *events: Event) -> None:
    with psycopg.connect(dsn) as connection:
        append_sync(connection, events)


def load(dsn: str, *events: HistoricEvent) -> None:
    async def run() -> None:
        async with connect(dsn) as database:
            await import_events(database, events)

    asyncio.run(run())


@contextmanager
def open_append(dsn: str, *events: Event) -> Iterator[psycopg.Connection[Any]]:
    """Events that are not committed yet."""
    with psycopg.connect(dsn, application_name="slow writer") as connection:
        append_sync(connection, events)
        yield connection


def read_all(**options: str) -> list[Key]:
    reader = JournalReader(parse_options({"entitytype": "plane", "wait": "0", **options}), SparkTable(KEYS))
    return keys_of(reader, reader.partitions())


@pytest.mark.slow
def test_a_batch_has_what_was_committed_before_it(dsn: str) -> None:
    append(dsn, *[event(f"N{number}") for number in range(50)])

    assert sorted(read_all()) == sorted((f"N{number}", 1) for number in range(50))


@pytest.mark.slow
@pytest.mark.parametrize("types", [("plane", "ship"), ALL_TYPES], ids=["two", "all"])
@pytest.mark.parametrize("limit", [EVERYTHING, ReadMaxRows(3)], ids=["unlimited", "limited"])
def test_a_stream_of_several_types_has_each_event_once(dsn: str, types: Any, limit: ReadLimit) -> None:
    append(dsn, *[event(f"N{number}", entity_type=("plane", "ship")[number % 2]) for number in range(20)])
    stream = Stream(types)
    wanted = [(f"N{number}", 1) for number in range(20)]
    assert sorted(stream.until(*wanted, limit=limit)) == sorted(wanted)
    with open_append(dsn, event("late", entity_type="ship")) as slow:
        append(dsn, event("N0"))
        assert stream.batch(limit) == []  # not settled
        slow.commit()
    assert sorted(stream.until(("late", 1), ("N0", 2), limit=limit)) == [("N0", 2), ("late", 1)]
    stream.restart(onimport="reread")
    load(dsn, replace(historic("old", 1), entity_type="ship"))

    assert ("old", 1) in stream.until(("old", 1), limit=limit)


def test_a_batch_of_an_empty_journal_is_empty() -> None:
    assert read_all() == []


@pytest.mark.slow
def test_all_partitions_of_a_batch_end_at_one_time(dsn: str) -> None:
    append(dsn, *[event(f"N{number}") for number in range(50)])
    reader = JournalReader(parse_options({"entitytype": "plane", "splits": "4"}), SparkTable(KEYS))

    partitions = reader.partitions()
    append(dsn, *[event(f"N{number}") for number in range(50)])

    assert len(partitions) == 4
    assert sorted(keys_of(reader, partitions)) == sorted((f"N{number}", 1) for number in range(50))


def test_a_batch_waits_for_an_append_that_is_in_flight(dsn: str) -> None:
    with open_append(dsn, event("late")) as writer:
        at = settled_now(ReadLog(dsn), timedelta(seconds=60), pause=lambda _: writer.commit())

    reader = JournalReader(
        parse_options({"entitytype": "plane", "snapshot": "none", "until": at.isoformat()}), SparkTable(KEYS)
    )
    assert keys_of(reader, reader.partitions()) == [("late", 1)]


def test_a_batch_names_the_writer_that_it_does_not_wait_for_any_longer(dsn: str) -> None:
    with (
        open_append(dsn, event("late")) as writer,
        pytest.raises(WritersInFlight, match=rf"process {writer.info.backend_pid} \(slow writer, open since"),
    ):
        read_all()


def test_a_batch_names_no_writer_that_came_after_it_began(dsn: str) -> None:
    with open_append(dsn, event("late")) as late, psycopg.connect(dsn) as later:

        def come(_: float) -> None:
            append_sync(later, [event("later")])

        with pytest.raises(WritersInFlight, match=rf"process {late.info.backend_pid} ") as caught:
            settled_now(ReadLog(dsn), timedelta(0), pause=come)

        assert f"process {later.info.backend_pid} " not in str(caught.value)


@pytest.mark.slow
def test_a_batch_of_what_each_partition_sees_waits_for_nobody(dsn: str) -> None:
    append(dsn, event("a"))
    with open_append(dsn, event("late")):
        assert read_all(snapshot="none") == [("a", 1)]


@pytest.mark.slow
def test_a_stream_delivers_a_late_commit_once(dsn: str) -> None:
    stream = Stream()
    append(dsn, event("before"))
    found = stream.until(("before", 1))

    with open_append(dsn, event("late")) as writer:
        append(dsn, event("after"))
        found += stream.batch() + stream.batch()
        assert found == [("before", 1)]
        writer.commit()
    found += stream.until(("late", 1), ("after", 1))

    assert sorted(found + stream.batch()) == [("after", 1), ("before", 1), ("late", 1)]


@pytest.mark.slow
def test_a_writer_that_comes_and_goes_between_two_looks_is_not_missed(dsn: str) -> None:
    stream = Stream()
    append(dsn, event("before"))
    found = stream.until(("before", 1))

    with open_append(dsn, event("late")) as writer:
        append(dsn, event("after"))
        writer.commit()
    found += stream.until(("after", 1), ("late", 1))

    assert sorted(found) == [("after", 1), ("before", 1), ("late", 1)]


@pytest.mark.slow
def test_a_stream_that_starts_beside_an_open_writer_reads_what_is_older(dsn: str) -> None:
    load(dsn, historic("old", 1))
    with open_append(dsn, event("late")) as writer:
        stream = Stream()
        assert stream.until(("old", 1)) == [("old", 1)]
        writer.commit()

    assert stream.until(("late", 1)) == [("late", 1)]


@pytest.mark.slow
def test_a_stream_goes_on_where_its_checkpoint_is(dsn: str) -> None:
    stream = Stream()
    append(dsn, *[event("a")] * 3)
    found = stream.until(("a", 3), limit=ReadMaxRows(2))
    stream.restart(splits="7")
    append(dsn, *[event("a")] * 3)

    found += stream.until(("a", 6), limit=ReadMaxRows(2))

    assert found == [("a", number) for number in range(1, 7)]


@pytest.mark.slow
def test_without_news_the_offset_stays_the_same(dsn: str) -> None:
    stream = Stream()
    append(dsn, event("a"))
    stream.until(("a", 1))
    before = dict(stream.offset)

    assert stream.batch() == []
    assert stream.offset == before


@pytest.mark.slow
def test_a_micro_batch_has_no_more_events_than_asked_for(dsn: str) -> None:
    load(dsn, *[historic(f"N{number}", 1, seconds=number) for number in range(100)])
    stream = Stream()

    sizes: list[int] = []
    while sum(sizes) < 100:
        sizes.append(len(stream.batch(ReadMaxRows(10))))

    assert sum(sizes) == 100
    assert max(sizes) <= 10


@pytest.mark.slow
def test_more_events_of_one_time_than_asked_for_come_together_and_once(dsn: str) -> None:
    load(
        dsn,
        *[historic(f"N{number}", 1, db_timestamp=PAST) for number in range(50)],
        historic("z", 1, seconds=9),
    )
    stream = Stream(splits="1")

    assert len(stream.batch(ReadMaxRows(5))) == 50
    assert stream.until(("z", 1), limit=ReadMaxRows(5)) == [("z", 1)]


def test_a_stream_reads_from_since_to_until(dsn: str) -> None:
    load(dsn, *[historic("a", number) for number in range(1, 10)])
    second = timedelta(seconds=1)
    stream = Stream(since=(PAST + 3 * second).isoformat(), until=(PAST + 5 * second).isoformat())

    assert stream.until(("a", 5)) == [("a", 3), ("a", 4), ("a", 5)]
    assert stream.batch() == []


def test_a_stream_may_begin_later_than_now(dsn: str) -> None:
    append(dsn, event("a"))
    stream = Stream(since=(datetime.now(UTC) + timedelta(hours=1)).isoformat())

    assert stream.batch() == []


@pytest.mark.slow
def test_available_now_ends_behind_what_there_was(dsn: str) -> None:
    append(dsn, event("a"))
    stream = Stream()

    stream.reader.prepareForTriggerAvailableNow()
    append(dsn, event("b"))

    assert stream.batch() == [("a", 1)]
    assert stream.batch() == []


def test_available_now_names_the_writer_that_it_does_not_wait_for_any_longer(dsn: str) -> None:
    stream = Stream(wait="0")

    with open_append(dsn, event("late")), pytest.raises(WritersInFlight, match="slow writer"):
        stream.reader.prepareForTriggerAvailableNow()


def started_stream(dsn: str, **options: str) -> Stream:
    """A stream that has read up to now."""
    stream = Stream(**options)
    append(dsn, event("now"))
    stream.until(("now", 1))
    return stream


@pytest.mark.slow
def test_history_behind_a_stream_stops_it_with_what_to_do(dsn: str) -> None:
    stream = started_stream(dsn)
    load(dsn, historic("old", 1))

    for _ in range(2):
        with pytest.raises(
            HistoryBehindStream, match=r"'plane' from 2020-01-01.*new checkpoint.*reread.*skip"
        ):
            stream.batch()


@pytest.mark.slow
def test_history_behind_a_stream_is_read_with_all_that_follows_it(dsn: str) -> None:
    load(dsn, historic("older", 1, seconds=-1))
    stream = started_stream(dsn, onimport="reread")
    load(dsn, historic("old", 1))
    stream.restart()
    append(dsn, event("new"))

    assert sorted(stream.until(("new", 1))) == [("new", 1), ("now", 1), ("old", 1)]
    assert stream.batch() == []


@pytest.mark.slow
def test_history_before_since_is_not_read_when_a_stream_goes_back(dsn: str) -> None:
    stream = started_stream(dsn, onimport="reread", since=(PAST + timedelta(seconds=2)).isoformat())
    load(dsn, historic("old", 1), historic("old", 2))

    assert sorted(stream.until(("old", 2), ("now", 1))) == [("now", 1), ("old", 2)]


@pytest.mark.slow
def test_history_behind_a_stream_is_left_out_on_demand(dsn: str) -> None:
    stream = started_stream(dsn, onimport="skip")
    load(dsn, historic("old", 1))
    append(dsn, event("new"))

    assert stream.until(("new", 1)) == [("new", 1)]


@pytest.mark.slow
def test_history_of_another_entity_type_does_not_concern_a_stream(dsn: str) -> None:
    stream = started_stream(dsn)
    load(dsn, HistoricEvent("s", {}, "ship", "Sailed", seq_nr=1, db_timestamp=PAST))
    append(dsn, event("new"))

    assert stream.until(("new", 1)) == [("new", 1)]


def test_history_ahead_of_a_stream_is_read_as_usual(dsn: str) -> None:
    stream = Stream()
    load(dsn, historic("old", 1))

    assert stream.until(("old", 1)) == [("old", 1)]


def test_a_clock_that_went_back_stops_a_stream(dsn: str) -> None:
    stream = started_stream(dsn)
    stream.offset = {name: value + 60_000_000 for name, value in stream.offset.items()} | {"import_id": 0}

    with pytest.raises(ClockWentBack, match="read up to"):
        stream.batch()


def test_a_checkpoint_of_other_slices_is_refused() -> None:
    stream = Stream()
    stream.restart(slices="0-99")

    with pytest.raises(InvalidValue, match=r"'0-99'.*0-1023"):
        stream.batch()


def test_a_stream_takes_no_snapshot() -> None:
    source = JournalDataSource({"entitytype": "plane", "snapshot": "none"})

    with pytest.raises(InvalidValue, match="snapshot: a stream reads up to the settled horizon"):
        source.streamReader(KEYS)


def test_a_checkpoint_of_another_source_is_refused() -> None:
    stream = Stream()
    stream.offset = {"logOffset": 3}

    with pytest.raises(InvalidValue, match="logOffset"):
        stream.batch()
