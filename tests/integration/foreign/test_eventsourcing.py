"""The journal of a real application of the package ``eventsourcing``, read while it is written to."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from uuid import UUID, uuid4

import pytest
from eventsourcing.application import Application
from eventsourcing.cryptography import AESCipher
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import IntegrityError
from eventsourcing.postgres import PostgresApplicationRecorder
from psycopg import Rollback
from psycopg.conninfo import conninfo_to_dict
from pydantic import BaseModel

from journal import (
    ALL_TYPES,
    ConnectionSettings,
    EventEnvelope,
    InvalidPayload,
    Session,
    connect,
    current_events,
    decode,
    event_type,
    read_source,
)
from journal.foreign import eventsourcing, states, table_log
from projections import handles, projection
from tests.fixtures.foreign import Follower, OnlyForward, stored_keys
from tests.fixtures.projections import (
    EFFECTS,
    caught_up,
    effects,
    execute,
    fetchval,
    record,
    running,
    until_effects,
)

FOREIGN = ConnectionSettings(foreign_journal=True)


class Account(Aggregate):
    @event("Opened")
    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.balance = Decimal(0)

    @event("Paid")
    def pay(self, amount: Decimal, by: UUID) -> None:
        self.balance += amount


class Owner(BaseModel):
    owner: str


@event_type(f"{__name__}:Account.Paid")
class Paid(BaseModel):
    amount: Decimal
    by: UUID


@projection("payments", entity_type="aggregate")
class Payments:
    @handles(Paid)
    async def paid(self, session: Session, event: Paid, envelope: EventEnvelope) -> None:
        await record(session, envelope)
        await session.execute("UPDATE total SET amount = amount + $1", event.amount)


class Bank(Application[UUID]):
    name = "bank"


def environment(dsn: str, **more: str) -> dict[str, str]:
    said = conninfo_to_dict(dsn)
    return {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": str(said["dbname"]),
        "POSTGRES_HOST": str(said["host"]),
        "POSTGRES_PORT": str(said.get("port", 5432)),
        "POSTGRES_USER": str(said.get("user", "postgres")),
        "POSTGRES_PASSWORD": str(said.get("password", "-")),
        "POSTGRES_MAX_OVERFLOW": "30",
        **more,
    }


def ciphered() -> dict[str, str]:
    return {"CIPHER_TOPIC": "eventsourcing.cryptography:AESCipher", "CIPHER_KEY": AESCipher.create_key(16)}


def write(bank: Bank, seconds: float, seed: int) -> None:
    """Save aggregates, several in a transaction; some conflict, and are rolled back."""
    chance, until = random.Random(seed), time.monotonic() + seconds
    known: list[UUID] = []
    while time.monotonic() < until:
        accounts = []
        for _ in range(chance.randint(1, 3)):
            is_new = not known or chance.random() < 0.2
            account = Account(owner="x") if is_new else bank.repository.get(chance.choice(known))
            for _ in range(chance.randint(1, 3)):
                account.pay(Decimal("1.50"), by=uuid4())
            accounts.append(account)
        with suppress(IntegrityError):  # one aggregate twice in a transaction
            bank.save(*accounts)
            known += [account.id for account in accounts if account.id not in known]
        time.sleep(chance.random() * 0.004)


def write_slowly(bank: Bank, seconds: float, seed: int) -> None:
    """The package's own inserts, in transactions that stay open after them, or are rolled back."""
    chance, until = random.Random(seed), time.monotonic() + seconds
    recorder = bank.recorder
    assert isinstance(recorder, PostgresApplicationRecorder)
    while time.monotonic() < until:
        account = Account(owner="slow")
        account.pay(Decimal(2), by=uuid4())
        events = [bank.mapper.to_stored_event(one) for one in account.collect_events()]
        with (
            recorder.datastore.get_connection() as connection,
            suppress(Rollback),
            connection.transaction(),
            connection.cursor() as cursor,
        ):
            if recorder.datastore.enable_db_functions:
                values = [
                    recorder.construct_pg_stored_event(
                        e.originator_id, e.originator_version, e.topic, e.state
                    )
                    for e in events
                ]
                cursor.execute(recorder.sql_invoke_pg_function_insert_events, (values,))
            else:
                recorder._insert_stored_events(cursor, events)
            time.sleep(chance.random() * 0.3)
            if chance.random() < 0.3:
                raise Rollback
        time.sleep(chance.random() * 0.05)


@contextmanager
def writers(dsn: str, seconds: float, **env: str) -> Iterator[asyncio.Event]:
    """Applications that write at a time, each in a thread of its own; the event is set when they have ended."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    banks = [Bank(env=environment(dsn, **env)) for _ in range(5)]
    threads = [
        threading.Thread(target=write_slowly if n < 2 else write, args=(bank, seconds, n))
        for n, bank in enumerate(banks)
    ]

    def run() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for bank in banks:
            bank.close()
        loop.call_soon_threadsafe(ended.set)

    running = threading.Thread(target=run)
    running.start()
    try:
        yield ended
    finally:
        running.join()


@pytest.mark.daily(1)
@pytest.mark.parametrize("functions", ["no", "yes"])
@pytest.mark.parametrize("ids", ["uuid", "text"])
async def test_nothing_of_a_running_application_is_lost_or_out_of_order(
    empty_dsn: str, functions: str, ids: str
) -> None:
    env = {"POSTGRES_ENABLE_DB_FUNCTIONS": functions, "ORIGINATOR_ID_TYPE": ids}
    Bank(env=environment(empty_dsn, **env)).close()  # makes its table
    async with connect(empty_dsn, FOREIGN) as database:
        log = await table_log(database, eventsourcing("bank_events"), name="bank")
        with writers(empty_dsn, 6, **env) as ended:
            follower = Follower(log)
            await follower.run(ended)
        assert set(follower.handled) == await stored_keys(
            database, "bank_events", "originator_id", "originator_version"
        )
        assert len(follower.handled) > 100


async def test_reading_forward_only_loses_events_where_functions_of_the_database_insert(
    empty_dsn: str,
) -> None:
    """What its documentation promises of notification ids, their order of commits, is not so with these."""
    env = {"POSTGRES_ENABLE_DB_FUNCTIONS": "yes"}
    Bank(env=environment(empty_dsn, **env)).close()
    async with connect(empty_dsn, FOREIGN) as database:
        log = await table_log(database, eventsourcing("bank_events"), name="bank")
        with writers(empty_dsn, 6, **env) as ended:
            follower = Follower(log, OnlyForward)
            await follower.run(ended)
        stored = await stored_keys(database, "bank_events", "originator_id", "originator_version")
    assert stored - set(follower.handled)


@pytest.mark.parametrize("packed", [False, True])
async def test_states_are_decoded_by_the_applications_own_mapper(empty_dsn: str, packed: bool) -> None:
    env = {"COMPRESSOR_TOPIC": "zlib", **ciphered()} if packed else {}
    bank = Bank(env=environment(empty_dsn, **env))
    account = Account(owner="Zoë")
    account.pay(Decimal("1.50"), by=UUID(int=7))
    bank.save(account)
    bank.close()
    async with connect(empty_dsn, FOREIGN) as database:
        decoder = states(Bank, env) if packed else states(bank.mapper)
        log = await table_log(database, eventsourcing("bank_events"), name="bank", decode=decoder)
        async with database.session() as session:
            opened, paid = [e async for e in read_source(session, str(account.id), queries=log.queries)]
    assert opened.event_type == f"{__name__}:Account.Opened"
    assert opened.payload["owner"] == "Zoë"
    assert (paid.payload["amount"], paid.payload["by"]) == ("1.50", str(UUID(int=7)))
    assert (paid.entity_type, paid.version, paid.seq_nr) == ("aggregate", 1, 2)


async def test_a_state_that_cannot_be_deciphered_says_whose_it_is(empty_dsn: str) -> None:
    bank = Bank(env=environment(empty_dsn, **ciphered()))
    account = Account(owner="x")
    bank.save(account)
    bank.close()
    async with connect(empty_dsn, FOREIGN) as database:
        decoder = states(Bank, ciphered())
        log = await table_log(database, eventsourcing("bank_events"), name="bank", decode=decoder)
        async with database.session() as session:
            (opened,) = [e async for e in read_source(session, str(account.id), queries=log.queries)]
    with pytest.raises(InvalidPayload, match=f"the payload of event .* of source '{account.id}', seq_nr 1"):
        decode(Owner, opened)


async def test_a_projection_runs_on_an_application_in_another_database(empty_dsn: str, dsn: str) -> None:
    Bank(env=environment(empty_dsn)).close()
    async with connect(empty_dsn, FOREIGN) as database, connect(dsn) as read_side:
        await execute(read_side, f"{EFFECTS}; CREATE TABLE total AS SELECT 0::numeric AS amount")
        log = await table_log(database, eventsourcing("bank_events"), name="bank", decode=states(Bank))
        with writers(empty_dsn, 5) as ended:
            async with running(read_side, Payments, journal=log, ranges=4):
                await asyncio.sleep(2)
            async with running(read_side, Payments, journal=log, ranges=4):  # goes on where it stood
                await ended.wait()
        bank = Bank(env=environment(empty_dsn))
        last = bank.recorder.max_notification_id()
        bank.close()
        await caught_up(read_side, Payments, journal=log)
        async with database.session() as session:
            rows = await session.fetch(
                "SELECT originator_id::text AS source, originator_version AS number FROM bank_events "
                "WHERE topic LIKE '%Paid'"
            )
        handled = await effects(read_side)
        assert sorted(handled) == sorted((row["source"], row["number"]) for row in rows)
        assert len(handled) > 100
        for source in {source for source, _ in handled}:
            numbers = [number for of, number in handled if of == source]
            assert numbers == sorted(numbers)
        paid = [e async for e in current_events(log, ALL_TYPES) if e.event_type.endswith("Paid")]
        assert await fetchval(read_side, "SELECT amount FROM total") == sum(
            Decimal(e.payload["amount"]) for e in paid
        )
        assert paid[-1].db_timestamp.timestamp() * 1e6 <= last


async def test_rows_that_were_deleted_hold_nobody_up(empty_dsn: str, dsn: str) -> None:
    bank = Bank(env=environment(empty_dsn))
    account = Account(owner="x")
    for _ in range(6):
        account.pay(Decimal(1), by=uuid4())
    bank.save(account)
    async with (
        connect(empty_dsn, FOREIGN) as database,
        connect(empty_dsn) as owner,
        connect(dsn) as read_side,
    ):
        await execute(read_side, f"{EFFECTS}; CREATE TABLE total AS SELECT 0::numeric AS amount")
        await execute(owner, "DELETE FROM bank_events WHERE originator_version <= 3")
        log = await table_log(database, eventsourcing("bank_events"), name="bank", decode=states(bank.mapper))
        async with running(read_side, Payments, journal=log):
            await until_effects(read_side, 4)
            await execute(owner, "DELETE FROM bank_events WHERE originator_version <= 5")
            account.pay(Decimal(1), by=uuid4())
            bank.save(account)
            await until_effects(read_side, 5)
        assert [number for _, number in await effects(read_side)] == [4, 5, 6, 7, 8]
    bank.close()
