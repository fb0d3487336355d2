"""A journal of another system as batches and streams, against real writers and without Spark's JVM."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from journal import InvalidPayload, InvalidValue, slice_of
from journal.database.sync import connect_sync
from journal.foreign import Stored
from journal.writers import WritersInFlight
from spark_projections.rebuilds.pickling import cloudpickle
from spark_projections.source.options import parse_options
from spark_projections.source.source import JournalReader, SparkTable
from spark_projections.source.stream import ClockWentBack, JournalStreamReader
from tests.fixtures.commands import called
from tests.fixtures.foreign_tables import TABLE
from tests.fixtures.postgres import Databases

KEYS = StructType([StructField("source_id", StringType()), StructField("seq_nr", LongType())])
EVERYTHING = ReadAllAvailable()
MAPPING = """
table = "log"
source = "source"
number = "number"
position = "{position}"
bound = "{bound}"
entity_type = {{ constant = "plane" }}
event_type = {{ constant = "Happened" }}
payload = "body"
"""
BOUNDS = {"sequence": "id", "transaction-start": "at"}
INSERT = """
INSERT INTO log (source, number, body)
SELECT %s, coalesce(max(number), 0) + 1, '{"n": 1}' FROM log WHERE source = %s
"""
Key = tuple[str, int]


@pytest.fixture(params=BOUNDS)
def bound(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def read_side(databases: Databases, template: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with databases.fresh(template) as dsn:
        monkeypatch.setenv("PROJECTIONS_DSN", dsn)
        yield dsn


@pytest.fixture
def theirs(
    read_side: str, empty_dsn: str, bound: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The DSN of the application; the journal is attached to another database as ``theirs``."""
    with connect_sync(empty_dsn) as connection:
        connection.execute(TABLE.encode())
    (tmp_path / "theirs.toml").write_text(MAPPING.format(position=BOUNDS[bound], bound=bound))
    monkeypatch.setenv("THEIRS_DSN", empty_dsn)
    attach = ("journals", "attach", "table", "--name", "theirs", "--journal-variable", "THEIRS_DSN")
    done = called(*attach, "--mapping", str(tmp_path / "theirs.toml"), "--read-side", read_side)
    assert done.returncode == 0, done.stderr
    return empty_dsn


def add(connection: psycopg.Connection[Any], *sources: str) -> None:
    for source in sources:
        connection.execute(INSERT, (source, source))


def write(dsn: str, *sources: str) -> None:
    """Each in a transaction of its own."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        add(connection, *sources)


def options(**more: str) -> Any:
    return parse_options({"entitytype": "plane", "journal": "theirs", "splits": "3", **more})


def keys_of(reader: JournalReader | JournalStreamReader, partitions: Iterable[Any]) -> list[Key]:
    """What the executors read: the reader is pickled on its way."""
    taken = cloudpickle().loads(cloudpickle().dumps(reader))
    batches = [batch for partition in partitions for batch in taken.read(partition)]
    return [(row["source_id"], row["seq_nr"]) for batch in batches for row in batch.to_pylist()]


def read_all(**more: str) -> list[Key]:
    reader = JournalReader(options(wait="0", **more), SparkTable(KEYS))
    return sorted(keys_of(reader, reader.partitions()))


class Stream:
    """What Spark does with the reader of a stream."""

    def __init__(self, **more: str) -> None:
        self._more = more
        self.restart()
        self.offset = self.reader.initialOffset()

    def restart(self) -> None:
        """Go on from the checkpoint in another process."""
        self.reader = JournalStreamReader(options(**self._more), SparkTable(KEYS))

    def batch(self, limit: ReadLimit = EVERYTHING) -> list[Key]:
        start, self.offset = self.offset, self.reader.latestOffset(self.offset, limit)
        return keys_of(self.reader, self.reader.partitions(start, self.offset))

    def until(self, *wanted: Key, limit: ReadLimit = EVERYTHING) -> list[Key]:
        found: list[Key] = []
        while not set(wanted) <= set(found):
            found += self.batch(limit)
        return found


@pytest.mark.slow
def test_a_batch_has_what_was_committed_before_it(theirs: str) -> None:
    sources = [f"s{n}" for n in range(30)]
    write(theirs, *sources, "s1", "s1")
    every = sorted([(source, 1) for source in sources] + [("s1", 2), ("s1", 3)])

    assert read_all() == every
    low = [key for key in every if slice_of(key[0]) < 512]
    assert read_all(slices="0-511") == low
    assert read_all(sourceids='["s1", "s7"]', seqnrs="1-2") == [("s1", 1), ("s1", 2), ("s7", 1)]
    assert read_all(snapshot="none") == every
    assert read_all(eventtypes='["Other"]') == []


@pytest.mark.slow
def test_a_transaction_that_is_open_is_waited_for_or_lies_behind(theirs: str, bound: str) -> None:
    write(theirs, "a")
    with psycopg.connect(theirs, application_name="slow") as slow:
        add(slow, "late")
        write(theirs, "b")
        if bound == "sequence":
            with pytest.raises(WritersInFlight, match=r"slow.*\(option wait, in seconds\)"):
                read_all()
        else:  # it shows since when it is open, and nothing from then on is read
            assert read_all() == [("a", 1)]
        slow.commit()
    assert read_all() == [("a", 1), ("b", 1), ("late", 1)]


@pytest.mark.daily(1)
def test_times_are_those_of_the_journal_or_are_refused(theirs: str, bound: str) -> None:
    write(theirs, "a")
    at = datetime.now(UTC) + timedelta(seconds=1)
    if bound == "sequence":
        with pytest.raises(InvalidValue, match="option until: journal 'theirs' is in the order of a number"):
            read_all(until=at.isoformat())
        return
    assert read_all(until=at.isoformat()) == [("a", 1)]
    assert read_all(since=at.isoformat()) == []


@pytest.mark.slow
@pytest.mark.parametrize("limit", [EVERYTHING, ReadMaxRows(4)], ids=["unlimited", "limited"])
def test_a_stream_has_each_event_once_over_late_commits_and_restarts(theirs: str, limit: ReadLimit) -> None:
    sources = [f"s{n}" for n in range(12)]
    write(theirs, *sources)
    stream = Stream()
    found = stream.until(*((source, 1) for source in sources), limit=limit)
    with psycopg.connect(theirs) as first, psycopg.connect(theirs) as second:
        add(first, "early")
        write(theirs, "between")
        add(second, "later")
        write(theirs, "after")
        for turn in range(4):
            found += stream.batch(limit)
            assert not {source for source, _ in found} & {"early", "later"}
            if turn == 1:
                stream.restart()
        second.commit()
        found += stream.batch(limit) + stream.batch(limit)
        add(first, "early")
        first.commit()
    write(theirs, "last")
    stream.restart()
    found += stream.until(("early", 1), ("early", 2), ("later", 1), ("after", 1), ("last", 1), limit=limit)
    assert sorted(found) == sorted(
        [(source, 1) for source in (*sources, "between", "after", "later", "last", "early")] + [("early", 2)]
    )
    assert stream.batch(limit) == []


@pytest.mark.daily(1)
def test_a_stream_of_what_is_there_now_ends_behind_it(theirs: str) -> None:
    write(theirs, "a", "b")
    stream = Stream(wait="5")
    stream.reader.prepareForTriggerAvailableNow()
    write(theirs, "c")
    assert sorted(stream.batch()) == [("a", 1), ("b", 1)]
    assert stream.batch() == []


@pytest.mark.daily(1)
def test_a_sequence_that_is_set_back_ends_a_stream(theirs: str, bound: str) -> None:
    write(theirs, "a", "b", "c")
    stream = Stream()
    stream.until(("a", 1), ("b", 1), ("c", 1))
    if bound == "sequence":
        with connect_sync(theirs) as connection:
            connection.execute("DELETE FROM log WHERE id > 1; ALTER SEQUENCE log_id_seq RESTART WITH 2")
        with pytest.raises(ClockWentBack, match="stands at 2, and the stream has read up to 3"):
            stream.batch()


PAYLOAD = StructType(
    [
        StructField("source_id", StringType()),
        StructField("payload", StructType([StructField("n", IntegerType())])),
        StructField("payload_error", StringType()),
    ]
)


def twice(stored: Stored) -> str:
    """A decoder of a user."""
    assert isinstance(stored.data, str)
    if stored.source_id == "odd":
        raise ValueError("it is odd")
    return json.dumps({"n": 2 * json.loads(stored.data)["n"]})


@pytest.mark.slow
def test_payloads_come_through_a_decoder(theirs: str) -> None:
    write(theirs, "a", "odd")
    mine = {"decode": f"{__name__}:twice"}
    reader = JournalReader(options(mode="permissive", **mine), SparkTable(PAYLOAD, "permissive"))
    taken = cloudpickle().loads(cloudpickle().dumps(reader))
    rows = [row for one in reader.partitions() for batch in taken.read(one) for row in batch.to_pylist()]
    (a, odd) = sorted(rows, key=lambda row: str(row["source_id"]))
    assert (a["payload"], a["payload_error"]) == ({"n": 2}, None)
    assert odd["payload"] is None
    assert "source 'odd', seq_nr 1, cannot be decoded: it is odd" in odd["payload_error"]
    text = StructType([StructField("payload", StringType()), StructField("event_id", StringType())])
    with pytest.raises(InvalidPayload, match="source 'odd', seq_nr 1, cannot be decoded: it is odd"):
        list(reads(JournalReader(options(**mine), SparkTable(text))))
    assert read_all(**mine) == [("a", 1), ("odd", 1)]  # nothing is decoded that is not wanted
    plain = list(reads(JournalReader(options(), SparkTable(text))))
    assert [json.loads(row["payload"]) for row in plain] == [{"n": 1}, {"n": 1}]
    assert len({row["event_id"] for row in plain}) == 2
    assert plain == list(reads(JournalReader(options(), SparkTable(text))))


def reads(reader: JournalReader) -> Iterator[dict[str, Any]]:
    for partition in reader.partitions():
        for batch in reader.read(partition):
            yield from batch.to_pylist()


@pytest.mark.daily(1)
def test_what_cannot_be_is_refused(theirs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**more: str) -> str:
        with pytest.raises(Exception) as raised:
            read_all(**more)
        return str(raised.value)

    assert "no journal 'nothing' is attached" in refused(journal="nothing")
    assert "option decode 'json:nothing': module 'json' has no attribute 'nothing'" in refused(
        decode="json:nothing"
    )
    assert "write it as module:name" in refused(decode="json")
    with pytest.raises(InvalidValue, match="option decode: the payloads of this library's journal are JSON"):
        JournalReader(parse_options({"entitytype": "plane", "decode": "json:dumps"}), SparkTable(KEYS))
    reader = JournalReader(options(), SparkTable(KEYS))
    assert theirs.encode() not in cloudpickle().dumps(reader)
    monkeypatch.delenv("THEIRS_DSN")
    with pytest.raises(
        InvalidValue, match="no DSN: set THEIRS_DSN in the environment of the driver and of the exec"
    ):
        reader.partitions()
