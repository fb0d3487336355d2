"""
Rebuilds of one read model, beside what computes the same rows with no projection behind it.

That is one statement in the database, polars with what ADBC reads, and Spark with its own JDBC reader. They take no
fence, store no offsets, verify nothing and swap nothing; a rebuild does all that within its time. Spark has started
before. Polars and Maven, which brings the JDBC driver, are left out where they are missing.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote_plus

import psycopg
from adbc_driver_postgresql import dbapi
from psycopg.conninfo import conninfo_to_dict

from journal import ConnectionSettings, connect
from projections import run
from spark_projections import RebuildOptions, rebuild
from spark_projections.engine.session import spark_running
from tests.benchmarks import workload
from tests.benchmarks.harness import Contender, Goal, Line, Sizes, compare
from tests.benchmarks.server import Server, forget_projections, settle
from tests.fixtures.java import has_java

_JARS = (
    "org.postgresql:postgresql:42.7.3",
    "com.kohlschutter.junixsocket:junixsocket-common:2.10.1",
    "com.kohlschutter.junixsocket:junixsocket-native-common:2.10.1",
)
"""The driver, and what it takes to reach a server by its socket in the file system."""
_CORES = 2
_PLAIN = "delays_by_hand"
_IN_SQL = "delays_in_sql"
_PAYLOADS = f"""
SELECT payload FROM projections.events WHERE entity_type = '{workload.ENTITY_TYPE}' AND event_type = 'Landed'
"""
_STATEMENT = f"""
CREATE TABLE {_PLAIN} AS
SELECT carrier, day, count(*) AS flights, sum(delay) AS delay, max(delay) AS worst
FROM (
    SELECT payload ->> 'carrier' AS carrier, (payload ->> 'day')::date AS day, (payload ->> 'delay')::integer AS delay
    FROM ({_PAYLOADS}) AS e
) AS landed
GROUP BY carrier, day
"""
_BY_STATEMENT = "CREATE TABLE AS SELECT"
_BY_POLARS = "polars and ADBC"
_BY_JDBC = "Spark's JDBC reader"


def _by_statement(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_STATEMENT)


def _by_polars(dsn: str) -> None:
    """Read all payloads, decode and group them as columns, and write the rows."""
    import polars as pl

    with dbapi.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.execute(_PAYLOADS.replace("payload", "payload::text AS payload", 1))
        read = pl.from_arrow(cursor.fetch_arrow_table())
        assert isinstance(read, pl.DataFrame)
        fields = {"carrier": pl.String, "day": pl.String, "delay": pl.Int64}
        rows = (
            read.lazy()
            .select(pl.col("payload").str.json_decode(pl.Struct(fields)).alias("event"))
            .unnest("event")
            .group_by("carrier", pl.col("day").str.to_date())
            .agg(
                pl.len().cast(pl.Int64).alias("flights"),
                pl.col("delay").sum(),
                pl.col("delay").max().alias("worst"),
            )
            .collect()
        )
        cursor.adbc_ingest(_PLAIN, rows.to_arrow())
        connection.commit()


def _for_jdbc(dsn: str) -> tuple[str, dict[str, str]]:
    """The URL and the properties of a connection."""
    said = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    host, port = said["host"], said.get("port", "5432")
    login = {"user": said["user"], "driver": "org.postgresql.Driver", "fetchsize": "10000"}
    if "password" in said:
        login["password"] = said["password"]
    if not host.startswith("/"):
        return f"jdbc:postgresql://{host}:{port}/{said['dbname']}", login
    factory = "org.newsclub.net.unix.AFUNIXSocketFactory$FactoryArg"
    place = quote_plus(f"{host}/.s.PGSQL.{port}")
    more = f"sslmode=disable&socketFactory={factory}&socketFactoryArg={place}"  # Spark loses the case of properties
    return f"jdbc:postgresql://localhost/{said['dbname']}?{more}", login


def _by_jdbc(spark: Any, dsn: str) -> None:
    """Each task reads a range of slices; Spark decodes, groups and writes."""
    from pyspark.sql import functions as of

    url, login = _for_jdbc(dsn)
    asked = _PAYLOADS.replace("payload", "payload::text AS payload, slice", 1)
    cuts = [i * 1024 // (2 * _CORES) for i in range(2 * _CORES + 1)]
    ranges = [f"slice >= {low} AND slice < {high}" for low, high in itertools.pairwise(cuts)]
    event = of.from_json("payload", "carrier string, day date, delay int")
    frame = (
        spark.read.jdbc(url, f"({asked}) AS e", predicates=ranges, properties=login)
        .select(event.alias("event"))
        .select("event.*")
        .groupBy("carrier", "day")
        .agg(
            of.count("*").alias("flights"),
            of.sum("delay").alias("delay"),
            of.max("delay").alias("worst"),
        )
    )
    frame.write.jdbc(url, _PLAIN, properties=login)


class _Work:
    """A journal, and every way to make the read model of it."""

    def __init__(self, dsn: str, count: int, sources: int) -> None:
        self._dsn, self._count = dsn, count
        self._expected = workload.expected(count, sources)

    def plain(self, make: Callable[[str], None]) -> Contender:
        return self._measured(lambda: asyncio.to_thread(make, self._dsn), _PLAIN)

    def rebuilt(self, definition: Any, table: str, context: Any = None) -> Contender:
        async def work() -> None:
            async with connect(self._dsn, ConnectionSettings(max_connections=2)) as database:
                await rebuild(database, self._dsn, definition, RebuildOptions(), spark=context)

        return self._measured(work, table)

    def live(self, definition: Any, table: str) -> Contender:
        async def work() -> None:
            async with connect(self._dsn) as database:
                await run(database, definition, ranges=1, until_caught_up=True)

        return self._measured(work, table)

    def _measured(self, work: Callable[[], Any], table: str) -> Contender:
        async def measured() -> float:
            await asyncio.to_thread(self._clear)
            await asyncio.to_thread(settle, self._dsn)
            begun = time.perf_counter()
            await work()
            took = time.perf_counter() - begun
            workload.check(self._dsn, self._expected, table)
            return took

        return measured

    def _clear(self) -> None:
        with psycopg.connect(self._dsn) as connection:
            forget_projections(connection)
            connection.execute(f"DROP TABLE IF EXISTS {_PLAIN}; TRUNCATE delays, {_IN_SQL}")


def _jars(directory: Path) -> str | None:
    """The JDBC driver for Spark's settings, where Maven gets it."""
    if not has_java:
        return None
    for jar in _JARS:
        copy = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={jar}", f"-DoutputDirectory={directory}"]
        subprocess.run(copy, cwd=directory, check=True, capture_output=True, timeout=300)
    return ",".join(map(str, directory.glob("*.jar")))


async def measure_rebuild(server: Server, sizes: Sizes) -> list[Line]:
    """Seconds of each, all of them within one session of Spark."""
    count = sizes.batch[0]
    with TemporaryDirectory() as directory, server.database() as dsn:
        workload.fill(dsn, count, sizes.batch_sources)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE projections.events")
        async with connect(dsn) as database:  # which makes the table of the read model
            await run(database, workload.BySql, ranges=1, until_caught_up=True)
        jars = _jars(Path(directory))
        work = _Work(dsn, count, sizes.batch_sources)
        with spark_running(f"local[{_CORES},4]", conf={"spark.jars": jars} if jars else {}) as spark:
            rounds = await compare(
                {
                    _BY_STATEMENT: work.plain(_by_statement),
                    **({_BY_POLARS: work.plain(_by_polars)} if find_spec("polars") else {}),
                    **({_BY_JDBC: work.plain(partial(_by_jdbc, spark))} if jars else {}),
                    **_ours(work, spark.sparkContext),
                },
                sizes.batch_rounds,
            )
    return [
        rounds.line(f"{what} of {count:,} events", "s", what, beside, goal)
        for what, besides in _COMPARED.items()
        for beside, goal in besides.items()
        if beside in rounds.measures
    ]


_SQL, _TABLE = "read model in SQL", "table handler"


def _ours(work: _Work, context: Any) -> Mapping[str, Contender]:
    return {
        f"rebuild, {_SQL}": work.rebuilt(workload.BySql, _IN_SQL),
        f"rebuild on Spark, {_SQL}": work.rebuilt(workload.BySql, _IN_SQL, context),
        f"rebuild, {_TABLE}": work.rebuilt(workload.ByTable, "delays"),
        f"rebuild on Spark, {_TABLE}": work.rebuilt(workload.ByTable, "delays", context),
        f"live, {_SQL}": work.live(workload.BySql, _IN_SQL),
    }


_COMPARED: Mapping[str, Mapping[str, Goal | None]] = {
    f"rebuild, {_SQL}": {_BY_STATEMENT: Goal(3, at_most=True), _BY_POLARS: None},
    f"rebuild on Spark, {_SQL}": {_BY_STATEMENT: Goal(3, at_most=True), _BY_JDBC: Goal(1, at_most=True)},
    f"rebuild, {_TABLE}": {_BY_STATEMENT: Goal(6, at_most=True), _BY_POLARS: None},
    f"rebuild on Spark, {_TABLE}": {_BY_STATEMENT: None, _BY_JDBC: None},
    f"live, {_SQL}": {_BY_STATEMENT: None},
    _BY_POLARS: {_BY_STATEMENT: None},
    _BY_JDBC: {_BY_STATEMENT: None},
}
