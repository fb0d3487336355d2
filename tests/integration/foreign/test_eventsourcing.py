"""The journal of a real application of the package ``eventsourcing``, read while it is written to."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID, uuid4

import pytest

from journal import (
    ALL_TYPES,
    InvalidPayload,
    connect,
    current_events,
    decode,
    read_source,
)
from journal.foreign import eventsourcing, states, table_log
from tests.fixtures.bank import Account, Bank, Owner, Payments, ciphered, environment, writers
from tests.fixtures.foreign import FOREIGN, Follower, OnlyForward, stored_keys
from tests.fixtures.projections import (
    EFFECTS,
    caught_up,
    effects,
    execute,
    fetchval,
    running,
    until_effects,
)


@pytest.mark.slow
@pytest.mark.parametrize("functions", ["no", "yes"])
@pytest.mark.parametrize("ids", ["uuid", "text"])
async def test_nothing_of_a_running_application_is_lost_or_out_of_order(
    empty_dsn: str, functions: str, ids: str
) -> None:
    env = {"POSTGRES_ENABLE_DB_FUNCTIONS": functions, "ORIGINATOR_ID_TYPE": ids}
    Bank(env=environment(empty_dsn, **env)).close()  # makes its table
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database:
        log = await table_log(database, eventsourcing("bank_events"), name="bank")
        with writers(empty_dsn, 6, **env) as ended:
            follower = Follower(log)
            await follower.run(ended)
        assert set(follower.handled) == await stored_keys(
            database, "bank_events", "originator_id", "originator_version"
        )
        assert len(follower.handled) > 100


@pytest.mark.slow
async def test_reading_forward_only_loses_events_where_functions_of_the_database_insert(
    empty_dsn: str,
) -> None:
    """What its documentation promises of notification ids, their order of commits, is not so with these."""
    env = {"POSTGRES_ENABLE_DB_FUNCTIONS": "yes"}
    Bank(env=environment(empty_dsn, **env)).close()
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database:
        log = await table_log(database, eventsourcing("bank_events"), name="bank")
        with writers(empty_dsn, 6, **env) as ended:
            follower = Follower(log, OnlyForward)
            await follower.run(ended)
        stored = await stored_keys(database, "bank_events", "originator_id", "originator_version")
    assert stored - set(follower.handled)


@pytest.mark.parametrize("driver", FOREIGN)
@pytest.mark.parametrize("packed", [False, True])
async def test_states_are_decoded_by_the_applications_own_mapper(
    empty_dsn: str, packed: bool, driver: str
) -> None:
    env = {"COMPRESSOR_TOPIC": "zlib", **ciphered()} if packed else {}
    bank = Bank(env=environment(empty_dsn, **env))
    account = Account(owner="Zoë")
    account.pay(Decimal("1.50"), by=UUID(int=7))
    bank.save(account)
    bank.close()
    async with connect(empty_dsn, FOREIGN[driver]) as database:
        decoder = states(Bank, env) if packed else states(bank.mapper)
        log = await table_log(database, eventsourcing("bank_events"), name="bank", decode=decoder)
        async with database.session() as session:
            opened, paid = [e async for e in read_source(session, str(account.id), queries=log.queries)]
    assert opened.event_type == f"{Account.__module__}:Account.Opened"
    assert opened.payload["owner"] == "Zoë"
    assert (paid.payload["amount"], paid.payload["by"]) == ("1.50", str(UUID(int=7)))
    assert (paid.entity_type, paid.version, paid.seq_nr) == ("aggregate", 1, 2)


async def test_a_state_that_cannot_be_deciphered_says_whose_it_is(empty_dsn: str) -> None:
    bank = Bank(env=environment(empty_dsn, **ciphered()))
    account = Account(owner="x")
    bank.save(account)
    bank.close()
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database:
        decoder = states(Bank, ciphered())
        log = await table_log(database, eventsourcing("bank_events"), name="bank", decode=decoder)
        async with database.session() as session:
            (opened,) = [e async for e in read_source(session, str(account.id), queries=log.queries)]
    with pytest.raises(InvalidPayload, match=f"the payload of event .* of source '{account.id}', seq_nr 1"):
        decode(Owner, opened)


@pytest.mark.slow
async def test_a_projection_runs_on_an_application_in_another_database(empty_dsn: str, dsn: str) -> None:
    Bank(env=environment(empty_dsn)).close()
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database, connect(dsn) as read_side:
        await execute(read_side, f"{EFFECTS}; CREATE TABLE total AS SELECT 0::numeric AS amount")
        log = await table_log(database, eventsourcing("bank_events"), name="bank", decode=states(Bank))
        with writers(empty_dsn, 5) as ended:
            async with running(read_side, Payments, journal=log, ranges=4):
                await until_effects(read_side, 20)
            async with running(read_side, Payments, journal=log, ranges=4):  # goes on where it stood
                await ended.wait()
        bank = Bank(env=environment(empty_dsn))
        last = bank.recorder.max_notification_id()
        bank.close()
        await caught_up(read_side, Payments, journal=log)
        async with database.session() as session:
            rows = await session.fetch(
                "SELECT originator_id::text AS source, originator_version AS number FROM public.bank_events "
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
        connect(empty_dsn, FOREIGN["asyncpg"]) as database,
        connect(empty_dsn) as owner,
        connect(dsn) as read_side,
    ):
        await execute(read_side, f"{EFFECTS}; CREATE TABLE total AS SELECT 0::numeric AS amount")
        await execute(owner, "DELETE FROM public.bank_events WHERE originator_version <= 3")
        log = await table_log(database, eventsourcing("bank_events"), name="bank", decode=states(bank.mapper))
        async with running(read_side, Payments, journal=log):
            await until_effects(read_side, 4)
            await execute(owner, "DELETE FROM public.bank_events WHERE originator_version <= 5")
            account.pay(Decimal(1), by=uuid4())
            bank.save(account)
            await until_effects(read_side, 5)
        assert [number for _, number in await effects(read_side)] == [4, 5, 6, 7, 8]
    bank.close()
