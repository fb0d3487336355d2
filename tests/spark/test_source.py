"""The journal as a DataFrame on a real Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pyspark.errors import AnalysisException, PythonException

from journal import ALL_TYPES, EntityTypes, Event, SliceRange, append_sync, slice_of
from spark_projections.source.source import journal_frame, read_journal, register
from tests.fixtures.journal import event
from tests.fixtures.spark import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def address(dsn: str) -> str:
    """The DSN as it may travel."""
    if conninfo_to_dict(dsn).get("password"):
        pytest.skip("this server wants a password, which has to be in the environment of Spark")
    return dsn


@pytest.fixture
def fresh(spark: SparkSession) -> SparkSession:
    """A session whose settings are a test's own."""
    return spark.newSession()


@pytest.fixture
def filled(address: str) -> str:
    """Half of all events in one source, nothing in most slices, odd texts, missing values."""
    hot = [event("hot", {"n": number}) for number in range(100)]
    odd = [
        Event("é'\\", {"t": "é😀"}, "plane", "Landed😀", metadata={"m": None}, tags=("a,b", "é")),
        *[event(f"N{number % 20}", {"n": number, "at": "2026-01-01T00:00:00Z"}) for number in range(99)],
    ]
    with psycopg.connect(address) as connection:
        append_sync(connection, [*hot, *odd])
    return address


def keys(frame: DataFrame) -> list[tuple[str, int]]:
    return sorted((row.source_id, row.seq_nr) for row in frame.select("source_id", "seq_nr").collect())


@pytest.mark.slow
def test_the_whole_journal_is_read_in_ranges_that_are_balanced(fresh: SparkSession, filled: str) -> None:
    frame = read_journal(fresh, entity_type="plane", dsn=filled, splits=4)

    parts: dict[int, list[str]] = {}
    for row in frame.selectExpr("source_id", "spark_partition_id() AS part").collect():
        parts.setdefault(row.part, []).append(row.source_id)

    assert sum(len(part) for part in parts.values()) == 200
    assert 1 < len(parts) <= 4
    assert [len(part) < 120 for part in parts.values() if "hot" in part] == [True]
    assert frame.schema.simpleString() == (
        "struct<source_id:string,seq_nr:bigint,db_timestamp:timestamp,slice:int,event_id:string,entity_type:string,"
        "event_type:string,version:int,payload:string,metadata:string,tags:array<string>>"
    )


@pytest.mark.slow
def test_several_types_are_read_and_every_one(fresh: SparkSession, address: str) -> None:
    kinds = ("plane", "ship", "a,b")
    with psycopg.connect(address) as connection:
        append_sync(connection, [event(f"s{number}", entity_type=kinds[number % 3]) for number in range(30)])

    for types in (("plane", "ship"), ["a,b"], ALL_TYPES):
        wanted = [(f"s{number}", 1) for number in range(30) if kinds[number % 3] in EntityTypes.of(types)]
        assert keys(read_journal(fresh, entity_type=types, dsn=address, splits=3)) == sorted(wanted)
    with journal_frame(fresh, entity_type=("ship", "plane"), dsn=address) as frame:
        assert frame.groupBy("entity_type").count().count() == 2
    by_hand = fresh.read.format("journal").options(entitytype='["plane", "ship"]', dsn=address).load()
    assert by_hand.count() == 20
    assert fresh.read.format("journal").options(alltypes="true", dsn=address).load().count() == 30


@pytest.mark.slow
def test_values_come_as_they_were_written(fresh: SparkSession, filled: str) -> None:
    (row,) = read_journal(fresh, entity_type="plane", dsn=filled, source_ids=["é'\\"]).collect()

    assert (row.source_id, row.seq_nr, row.slice) == ("é'\\", 1, slice_of("é'\\"))
    assert (json.loads(row.payload), json.loads(row.metadata), row.tags) == (
        {"t": "é😀"},
        {"m": None},
        ["a,b", "é"],
    )
    assert abs(row.db_timestamp.astimezone(UTC) - datetime.now(UTC)).total_seconds() < 3600


@pytest.mark.slow
def test_arguments_leave_out_what_the_same_filters_do(fresh: SparkSession, filled: str) -> None:
    since = datetime(2020, 1, 1, tzinfo=UTC)
    narrow = read_journal(
        fresh, entity_type="plane", dsn=filled, splits=2, slices=SliceRange(1, 1022), since=since,
        event_types=["Landed", "none"], source_ids=["hot", "N1", "N2"], seq_nrs=(2, 50),
    )  # fmt: skip
    whole = read_journal(fresh, entity_type="plane", dsn=filled, splits=2)

    found = keys(narrow)

    assert ("hot", 50) in found
    assert found == keys(
        whole.filter(
            "slice BETWEEN 1 AND 1022 AND db_timestamp >= timestamp'2020-01-01 00:00:00Z' AND seq_nr BETWEEN 2 AND 50 "
            "AND event_type IN ('Landed', 'none') AND source_id IN ('hot', 'N1', 'N2')"
        )
    )


@pytest.mark.slow
def test_a_frame_is_one_state_of_the_journal_and_a_new_one_a_newer(fresh: SparkSession, filled: str) -> None:
    frame = read_journal(fresh, entity_type="plane", dsn=filled)
    counts = [frame.count()]
    with psycopg.connect(filled) as connection:
        append_sync(connection, [event("N1")])

    counts += [frame.count(), frame.filter("source_id = 'hot'").count()]
    counts += [frame.count(), read_journal(fresh, entity_type="plane", dsn=filled).count()]

    assert counts == [200, 200, 100, 200, 201]


@pytest.mark.slow
def test_sessions_know_the_source_beside_one_another(spark: SparkSession, address: str) -> None:
    for session in (spark, spark.newSession(), spark, spark.newSession()):
        register(session)
        frame = session.read.format("journal").options(entitytype="plane", dsn=address).load()
        assert "seq_nr" in frame.columns


def test_an_empty_journal_is_an_empty_frame(fresh: SparkSession, address: str) -> None:
    frame = read_journal(fresh, entity_type="plane", dsn=address, splits=1)

    assert frame.collect() == []
    assert frame.filter("slice = 1 AND slice = 2").collect() == []


@pytest.mark.slow
def test_a_schema_chooses_columns(fresh: SparkSession, filled: str) -> None:
    register(fresh)
    reader = fresh.read.format("journal").options(entitytype="plane", dsn=filled, splits="1")

    rows = reader.schema("seq_nr BIGINT, payload STRUCT<n: INT>, source_id STRING").load()

    assert rows.columns == ["seq_nr", "payload", "source_id"]
    assert rows.filter("source_id = 'hot'").selectExpr("sum(payload.n)").first()[0] == sum(range(100))
    with pytest.raises(
        AnalysisException, match="InvalidValue: schema: column seq_nr INT is not one of the journal"
    ):
        reader.schema("seq_nr INT").load().collect()


@pytest.mark.slow
def test_a_payload_becomes_columns(fresh: SparkSession, filled: str) -> None:
    frame = read_journal(
        fresh,
        entity_type="plane",
        dsn=filled,
        payload_schema="n INT, at TIMESTAMP, t STRING",
        columns=["payload"],
    )

    assert frame.selectExpr("sum(payload.n)", "count(payload.at)", "max(payload.t)").first() == (
        sum(range(100)) + sum(range(99)),
        99,
        "é😀",
    )


@pytest.mark.slow
def test_a_payload_that_does_not_fit_names_its_event(fresh: SparkSession, filled: str) -> None:
    frame = read_journal(fresh, entity_type="plane", dsn=filled, splits=1, payload_schema="t INT")

    with pytest.raises(PythonException) as caught:
        frame.collect()

    assert (
        "InvalidPayload: source \"é'\\\\\", seq_nr 1, event type 'Landed😀': field 't' does not fit payloadschema: "
        "string where number is wanted"
    ) in str(caught.value)


@pytest.mark.slow
def test_payloads_that_do_not_fit_are_null_and_counted_where_that_is_asked_for(
    fresh: SparkSession, filled: str
) -> None:
    with psycopg.connect(filled) as connection:
        append_sync(connection, [event("twice", {"n": 1})])
        connection.execute("ALTER TABLE projections.events DISABLE TRIGGER ALL")
        connection.execute(
            """UPDATE projections.events SET payload = '{"n": 1, "n": 2}' WHERE source_id = 'twice'"""
        )
    frame = read_journal(fresh, entity_type="plane", dsn=filled, payload_schema="n INT", mode="permissive")

    wrong = (
        frame.filter("payload_error IS NOT NULL").select("source_id", "payload", "payload_error").collect()
    )

    assert [tuple(row) for row in wrong] == [
        ("twice", None, "field 'n' does not fit payloadschema: Column(/n) was specified twice")
    ]
    assert frame.filter("payload IS NOT NULL").count() == frame.filter("payload_error IS NULL").count() == 200
    assert frame.columns[-1] == "payload_error"


def test_permissive_reading_needs_a_payload_schema(fresh: SparkSession, filled: str) -> None:
    with pytest.raises(AnalysisException, match="InvalidValue: option mode: permissive is for payloads"):
        read_journal(fresh, entity_type="plane", dsn=filled, mode="permissive").collect()


@pytest.mark.slow
def test_a_payload_of_megabytes_arrives_whole(fresh: SparkSession, address: str) -> None:
    text = "é" * 2_600_000
    with psycopg.connect(address) as connection:
        append_sync(connection, [event("big", {"text": text}), *[event("small")] * 10])

    frame = read_journal(fresh, entity_type="plane", dsn=address, payload_schema="text STRING")

    assert frame.selectExpr("max(length(payload.text))", "count(*)").first() == (len(text), 11)


@pytest.mark.slow
def test_an_exported_snapshot_is_one_moment_for_all_partitions(fresh: SparkSession, filled: str) -> None:
    with psycopg.connect(filled) as slow:
        append_sync(slow, [event("N1")])
        with journal_frame(fresh, entity_type="plane", dsn=filled) as frame:
            slow.commit()
            assert frame.count() == 200


def test_nothing_moves_to_a_new_partition_while_a_snapshot_is_held(fresh: SparkSession, filled: str) -> None:
    create = (
        "SELECT projections._create_partition_v1(t.at, t.at + '1 h') FROM date_trunc('hour', now()) AS t (at)"
    )
    with psycopg.connect(filled) as maintainer, journal_frame(fresh, entity_type="plane", dsn=filled):
        maintainer.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            maintainer.execute(create)


def test_an_error_in_the_block_of_a_snapshot_stays_what_it_is(fresh: SparkSession, address: str) -> None:
    with pytest.raises(FileNotFoundError), journal_frame(fresh, entity_type="plane", dsn=address):
        raise FileNotFoundError


def test_a_dsn_with_a_password_is_refused_by_name_of_the_option(fresh: SparkSession) -> None:
    register(fresh)
    reader = fresh.read.format("journal").options(entitytype="plane", dsn="postgresql://u:geheim@h/d")

    with pytest.raises(AnalysisException, match="InvalidValue: option dsn: holds a password") as caught:
        reader.load()

    assert "geheim" not in str(caught.value)


PROGRAM = """
from spark_projections.engine.session import spark_running
from spark_projections.source.source import read_journal
from tests.fixtures.spark import SMALL
from pyspark.errors import PythonException
import os, sys

log = {"enabled": "true", "dir": sys.argv[1], "compress": "false"}
conf = {**SMALL, **{f"spark.eventLog.{name}": value for name, value in log.items()}}
with spark_running("local[1,1]", conf=conf) as spark:
    frame = read_journal(spark, entity_type="plane").filter("seq_nr = 1")
    frame.explain(True)
    print(frame.count(), "events")
    try:
        read_journal(spark, entity_type="plane", payload_schema="n STRING").collect()
    except PythonException as error:
        print(error)
"""


@pytest.mark.slow
def test_a_password_of_the_environment_is_in_no_plan_event_log_or_error(address: str, tmp_path: Path) -> None:
    secret = "geheim4711"
    with psycopg.connect(address) as connection:
        append_sync(connection, [event("a", {"n": 1})])

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PROJECTIONS_DSN": with_password(address, secret)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    logged = "".join(file.read_text() for file in tmp_path.rglob("*") if file.is_file())
    assert "1 events" in done.stdout, done.stderr
    assert "InvalidPayload" in done.stdout
    assert "SparkListenerSQLExecutionStart" in logged
    assert [secret in text for text in (done.stdout, done.stderr, logged)] == [False] * 3


def with_password(dsn: str, secret: str) -> str:
    """The same address with a password, which a server that asks for none does not look at."""
    return make_conninfo(dsn, password=secret)
