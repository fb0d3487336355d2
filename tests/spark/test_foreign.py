"""A journal of another system on a real Spark: as a DataFrame, as a stream, and rebuilt from by its executors."""

from __future__ import annotations

import asyncio
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from psycopg.conninfo import conninfo_to_dict
from pydantic import BaseModel

from journal import EventEnvelope, connect, event_type
from journal.database.sync import connect_sync
from journal.foreign import eventsourcing, states, table_log
from projections import Changes, Table, handles, projection
from spark_projections.rebuilds.options import RebuildOptions, RebuildResult
from spark_projections.rebuilds.rebuilding import rebuild
from spark_projections.source.source import journal_frame, read_journal, register
from tests.fixtures.bank import Account, Bank, environment
from tests.fixtures.commands import called
from tests.fixtures.foreign import FOREIGN
from tests.fixtures.postgres import Databases

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PACKED = {"COMPRESSOR_TOPIC": "zlib"}
BALANCES = Table("balances", key="account", source="account", increment=("amount", "events"))


@event_type("tests.fixtures.bank:Account.Paid")
class Paid(BaseModel):
    amount: Decimal


@projection("balances", entity_type="aggregate")
class Balances:
    @handles(Paid)
    def paid(self, event: Paid, envelope: EventEnvelope) -> Changes:
        return BALANCES.upsert(account=envelope.source_id, amount=event.amount, events=1)


def pay(dsn: str, accounts: int, payments: int, **env: str) -> set[str]:
    """What the package itself saves."""
    bank = Bank(env=environment(dsn, **env))
    ids = set()
    for _ in range(accounts):
        account = Account(owner="x")
        for _ in range(payments):
            account.pay(Decimal("1.50"), by=uuid4())
        bank.save(account)
        ids.add(str(account.id))
    bank.close()
    return ids


@pytest.fixture
def bank(empty_dsn: str) -> str:
    if conninfo_to_dict(empty_dsn).get("password"):
        pytest.skip("this server wants a password, which has to be in the environment of Spark")
    return empty_dsn


@pytest.fixture
def read_side(databases: Databases, template: str) -> Any:
    with databases.fresh(template) as dsn:
        with connect_sync(dsn) as connection:
            connection.execute(
                "CREATE TABLE balances (account text PRIMARY KEY, amount numeric NOT NULL DEFAULT 0, "
                "events bigint NOT NULL DEFAULT 0)"
            )
        yield dsn


def attach(bank: str, read_side: str) -> None:
    done = called(
        "journals",
        "attach",
        "eventsourcing",
        bank,
        "--name",
        "bank",
        "--table",
        "bank_events",
        "--read-side",
        read_side,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_dataframe_of_what_another_package_writes(spark: SparkSession, bank: str, read_side: str) -> None:
    ids = pay(bank, 8, 3)
    attach(bank, read_side)
    named: dict[str, Any] = {"entity_type": "aggregate", "dsn": read_side, "journal": "bank", "splits": 3}
    frame = read_journal(spark, **named, payload_schema="owner STRING", mode="permissive")
    assert frame.count() == 32
    assert {row.source_id for row in frame.filter("payload.owner = 'x'").collect()} == ids
    with journal_frame(spark, **named) as exported:
        pay(bank, 1, 1)
        assert exported.count() == 32
    assert frame.count() == 32
    assert read_journal(spark, **named).count() == 34


@pytest.mark.slow  # its reader is tested without a JVM in tests/integration/spark
def test_a_stream_of_what_another_package_writes(
    spark: SparkSession, bank: str, read_side: str, tmp_path: Path
) -> None:
    pay(bank, 8, 3)
    attach(bank, read_side)
    register(spark)
    found: list[tuple[str, int]] = []

    def keep(batch: DataFrame, _: int) -> None:
        found.extend((row.source_id, row.seq_nr) for row in batch.collect())

    for more in (0, 2):
        pay(bank, more, 1)
        options = {
            "entitytype": "aggregate",
            "dsn": read_side,
            "journal": "bank",
            "splits": "2",
            "maxrows": "10",
        }
        stream = spark.readStream.format("journal").options(**options).load()
        writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "c"))
        assert writer.trigger(availableNow=True).start().awaitTermination(200)
    assert set(Counter(found).values()) == {1}
    assert len(found) == 36


@pytest.mark.slow
def test_executors_make_the_mapper_of_an_application(spark: SparkSession, bank: str, read_side: str) -> None:
    ids = pay(bank, 10, 4, **PACKED)

    async def run() -> RebuildResult:
        async with connect(bank, FOREIGN["asyncpg"]) as database, connect(read_side) as target:
            log = await table_log(
                database, eventsourcing("bank_events"), name="bank", decode=states(Bank, PACKED)
            )
            options = RebuildOptions(splits=4)
            return await rebuild(target, read_side, Balances, options, spark=spark.sparkContext, journal=log)

    result = asyncio.run(run())
    assert result.events == 50
    with connect_sync(read_side) as connection:
        rows = connection.execute("SELECT account, amount, events FROM balances").fetchall()
    assert {(account, amount, events) for account, amount, events in rows} == {
        (account, Decimal("6.00"), 4) for account in ids
    }
