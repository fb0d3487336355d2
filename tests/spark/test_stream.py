"""The journal as a stream on a real Spark: checkpoints, late commits, limits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from journal import Event, append_sync
from spark_projections.source.source import register
from tests.fixtures.journal import event

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


class Sink:
    """Keeps what comes, and may break once in the middle of a batch."""

    def __init__(self) -> None:
        self.keys: list[tuple[str, int]] = []
        self.sizes: list[int] = []
        self.breaks = False

    def __call__(self, frame: DataFrame, _: int) -> None:
        found = [(row.source_id, row.seq_nr) for row in frame.collect()]
        if self.breaks:
            raise ConnectionError("the sink is gone")
        self.keys += found
        self.sizes.append(len(found))


@pytest.fixture
def address(dsn: str) -> str:
    if conninfo_to_dict(dsn).get("password"):
        pytest.skip("this server wants a password, which has to be in the environment of Spark")
    return dsn


def append(dsn: str, *events: Event) -> None:
    with psycopg.connect(dsn) as connection:
        append_sync(connection, events)


def start(spark: SparkSession, dsn: str, checkpoint: Path, sink: Sink, **options: Any) -> StreamingQuery:
    register(spark)
    frame = (
        spark.readStream.format("journal").options(entitytype="plane", dsn=dsn, splits=2, **options).load()
    )
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def run(spark: SparkSession, dsn: str, checkpoint: Path, sink: Sink, **options: Any) -> None:
    query = start(spark, dsn, checkpoint, sink, **options)
    assert query.awaitTermination(60)


@pytest.mark.slow
def test_a_late_commit_comes_once_over_restarts(spark: SparkSession, address: str, tmp_path: Path) -> None:
    sink = Sink()
    append(address, event("before"))
    run(spark, address, tmp_path, sink)

    with psycopg.connect(address) as writer:
        append_sync(writer, [event("late")])
        append(address, event("after"))
        with pytest.raises(Exception, match="WritersInFlight"):
            run(spark, address, tmp_path, sink, wait=0)
        writer.commit()
    for _ in range(2):
        run(spark, address, tmp_path, sink)

    assert Counter(sink.keys) == Counter([("before", 1), ("late", 1), ("after", 1)])


@pytest.mark.slow
def test_a_stream_that_broke_goes_on_from_its_checkpoint(
    spark: SparkSession, address: str, tmp_path: Path
) -> None:
    sink = Sink()
    append(address, *[event(f"N{number % 10}") for number in range(40)])
    sink.breaks = True
    with pytest.raises(Exception, match="the sink is gone"):
        run(spark, address, tmp_path, sink, maxrows=20)
    append(address, event("new"))
    sink.breaks = False

    run(spark, address, tmp_path, sink, maxrows=20)

    expected = [(f"N{number}", seq_nr) for number in range(10) for seq_nr in range(1, 5)]
    assert sorted(sink.keys) == sorted([*expected, ("new", 1)])
    assert max(sink.sizes) <= 20
