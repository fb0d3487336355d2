"""Rebuilds from journals that other systems write: nothing lost or doubled, and decoders in other processes."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import asyncpg
import pytest
from pydantic import BaseModel

from journal import Database, EventEnvelope, connect, current_events, event_type
from journal.foreign import eventsourcing, pekko_payloads, pekko_r2dbc, states, table_log
from projections import Changes, Table, handles, projection
from spark_projections.errors import NotRebuildable
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import rebuild
from spark_projections.rebuilds.repairing import repair, verify
from tests.fixtures.bank import Account, Bank, ciphered, environment, writers
from tests.fixtures.bank import Paid as BankPaid
from tests.fixtures.foreign import FOREIGN
from tests.fixtures.foreign_tables import read_side
from tests.fixtures.pekko import GOLDEN, R2dbcJournal
from tests.fixtures.projections import caught_up, execute, fetchval, running, until

__all__ = ["read_side"]

pytest.importorskip("cbor2")

BALANCES = Table("balances", key="account", source="account", increment=("amount", "events"), maximum="last")
TOTALS = Table("total", key="kind", increment=("amount", "events"))
NUMBERS = Table("numbers", key="account", source="account", increment="events", maximum="last")
_SUMS = "amount numeric NOT NULL DEFAULT 0, events bigint NOT NULL DEFAULT 0"
CREATE = (
    f"CREATE TABLE balances (account text PRIMARY KEY, {_SUMS}, last bigint)",
    f"CREATE TABLE total (kind text PRIMARY KEY, {_SUMS})",
    "CREATE TABLE numbers (account text PRIMARY KEY, events bigint NOT NULL DEFAULT 0, last bigint)",
)


@event_type("interop.Events$Paid")
class Paid(BaseModel):
    amount: Decimal


@event_type("com.google.protobuf.Struct")
class Note(BaseModel):
    n: float


@projection("balances", entity_type="aggregate")
class Balances:
    @handles(BankPaid)
    def paid(self, event: BankPaid, envelope: EventEnvelope) -> Changes:
        return both(envelope, event.amount)


@projection("numbers", entity_type="aggregate")
class Numbers:
    @handles(BankPaid)
    def paid(self, event: BankPaid, envelope: EventEnvelope) -> Changes:
        return NUMBERS.upsert(account=envelope.source_id, events=1, last=envelope.seq_nr)


@projection("accounts", entity_type="account")
class Accounts:
    @handles(Paid)
    def paid(self, event: Paid, envelope: EventEnvelope) -> Changes:
        return both(envelope, event.amount)

    @handles(Note)
    def noted(self, event: Note, envelope: EventEnvelope) -> Changes:
        return both(envelope, Decimal(str(event.n)))


def both(envelope: EventEnvelope, amount: Decimal) -> Changes:
    own = BALANCES.upsert(account=envelope.source_id, amount=amount, events=1, last=envelope.seq_nr)
    return [own, TOTALS.upsert(kind=envelope.entity_type, amount=amount, events=1)]


@pytest.fixture
async def tables(read_side: Database) -> Database:
    for statement in CREATE:
        await execute(read_side, statement)
    return read_side


async def expected(log: object, event_type: str) -> dict[str, tuple[Decimal, int]]:
    found: dict[str, tuple[Decimal, int]] = {}
    async for e in current_events(log, ("aggregate", "account")):  # type: ignore[arg-type]
        if e.event_type.endswith(event_type):
            amount, events = found.get(e.source_id, (Decimal(0), 0))
            found[e.source_id] = amount + Decimal(str(e.payload["amount"])), events + 1
    return found


async def balances(database: Database) -> dict[str, tuple[Decimal, int]]:
    async with database.session() as session:
        rows = await session.fetch("SELECT account, amount, events FROM balances")
    return {row["account"]: (row["amount"], row["events"]) for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("functions", ["no", "yes"])
async def test_a_running_application_of_eventsourcing(
    empty_dsn: str, tables: Database, functions: str
) -> None:
    """States are ciphered and packed; two rebuilds run at once, beside workers and writers."""
    env = {"COMPRESSOR_TOPIC": "zlib", "POSTGRES_ENABLE_DB_FUNCTIONS": functions, **ciphered()}
    Bank(env=environment(empty_dsn, **env)).close()
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database:
        log = await table_log(database, eventsourcing("bank_events"), name="bank", decode=states(Bank, env))
        with writers(empty_dsn, 8, **env) as ended:
            async with running(tables, Balances, Numbers, journal=log, ranges=2):
                await until(tables, "SELECT sum(events) > 50 FROM balances")
                rebuilds = [
                    rebuild(tables, tables.dsn, one, RebuildOptions(splits=2), journal=log)
                    for one in (Balances, Numbers)
                ]
                results = await asyncio.gather(*rebuilds)
                await ended.wait()
        await caught_up(tables, Balances, Numbers, journal=log)
        assert await balances(tables) == await expected(log, "Paid")
        for one in (Balances, Numbers):
            assert (await verify(tables, one, sources=None, journal=log)).differing == 0
    assert min(result.events for result in results) > 50
    sums = "(SELECT sum(b.amount) FROM balances AS b), (SELECT sum(b.events) FROM balances AS b)"
    assert await fetchval(tables, f"SELECT (t.amount, t.events) = ({sums}) FROM total AS t")


async def test_a_mapper_cannot_be_taken_to_tasks(empty_dsn: str, tables: Database) -> None:
    bank = Bank(env=environment(empty_dsn))
    account = Account(owner="x")
    bank.save(account)
    bank.close()
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database:
        log = await table_log(database, eventsourcing("bank_events"), name="bank", decode=states(bank.mapper))
        with pytest.raises(
            NotRebuildable,
            match=r"the decoder of journal 'bank' cannot be taken .*pass the application's class",
        ):
            await rebuild(tables, tables.dsn, Balances, journal=log)


@pytest.mark.slow  # an application of eventsourcing is the daily one; tables like these are in test_rebuild_foreign.py
@pytest.mark.parametrize(("partitions", "payload"), [(4, "BYTEA"), (1, "JSONB")])
async def test_a_journal_of_pekko_that_is_written_to(
    empty_dsn: str, tables: Database, partitions: int, payload: str
) -> None:
    from google.protobuf.struct_pb2 import Struct

    theirs = R2dbcJournal(empty_dsn, partitions, payload)
    await theirs.create()
    decode = pekko_payloads(protobuf={"com.google.protobuf.Struct": Struct})
    paid = GOLDEN["cbor"] if payload == "BYTEA" else (31, "interop.Events$Paid", '{"amount": "1.50"}')
    noted = GOLDEN["protobuf"] if payload == "BYTEA" else (31, "com.google.protobuf.Struct", '{"n": 1.5}')
    connection = await asyncpg.connect(empty_dsn)
    await theirs.persist(connection, "account|first", 0, paid, noted, paid)
    await connection.close()
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database:
        log = await table_log(database, pekko_r2dbc(partitions=partitions), name="pekko", decode=decode)
        async with running(tables, Accounts, journal=log, ranges=4):
            writing = asyncio.gather(*(theirs.write(8, seed, paid) for seed in range(4)))
            await until(tables, "SELECT sum(events) > 50 FROM balances")
            result = await rebuild(tables, tables.dsn, Accounts, RebuildOptions(splits=3), journal=log)
            await writing
        await caught_up(tables, Accounts, journal=log)
        found, stored = await balances(tables), await theirs.stored()
        assert {account: events for account, (_, events) in found.items()} == {
            source: sum(1 for other, _ in stored if other == source)
            for source, _ in stored
            if source.startswith("account|")
        }
        assert (await verify(tables, Accounts, sources=None, journal=log)).differing == 0
        await execute(tables, "UPDATE balances SET amount = 0 WHERE account = 'account|first'")
        repaired = await verify(tables, Accounts, sources=None, journal=log)
        assert repaired.differing == 1
        with pytest.raises(NotRebuildable, match="made of the events of several sources"):
            await repair(tables, Accounts, ["account|first"], journal=log)
    assert result.events > 20
