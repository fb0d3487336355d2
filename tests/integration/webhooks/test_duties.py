"""What one process at a time does for all webhooks: by whom, through which failures, and with what effect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from journal import Database
from journal.tasks import running
from projections.webhooks.duties import Duties
from tests.fixtures.locks import WAITING
from tests.fixtures.projections import QUICK, execute, fetchval, until
from tests.fixtures.webhooks import deliver_events, end_all, endpoint, states, take

SHORT = timedelta(milliseconds=100)
PENDING = "SELECT EXISTS (SELECT FROM projections.webhook_deliveries WHERE state = 'pending')"
TAKEN = "SELECT taken_at FROM projections.turns WHERE chore = 'webhooks'"


@asynccontextmanager
async def on_duty(database: Database, **options: Any) -> AsyncIterator[Duties]:
    """Do the duties for the length of the block, then stop as a user would."""
    stop = asyncio.Event()
    duties = Duties(database, **{"every": SHORT, "restart": QUICK} | options)
    task = asyncio.create_task(duties.run(stop))
    try:
        yield duties
    finally:
        stop.set()
        async with asyncio.timeout(300):
            await task


async def waiting_behind_nothing(database: Database, deliveries: int = 3) -> str:
    """Deliveries of one order, the first of which was ended without a word to the others."""
    ep = await endpoint(database, "ep_1", ordering="key")
    await deliver_events(database, ep, deliveries, key="k")
    await execute(
        database, "UPDATE projections.webhook_deliveries SET state = 'done' WHERE state = 'pending'"
    )
    return ep


async def until_taken(database: Database) -> None:
    """Wait for a turn that is not the last one."""
    before = await fetchval(database, TAKEN)
    await until(database, f"SELECT ({TAKEN}) IS DISTINCT FROM $1", before)


async def take_turn(database: Database, every: timedelta) -> Any:
    return await fetchval(database, "SELECT projections._take_turn_v1('webhooks', $1)", every)


class TestTurns:
    @pytest.mark.slow
    async def test_one_of_two_does_and_the_other_after_that_time(self, database: Database) -> None:
        hour = timedelta(hours=1)
        turns = [await take_turn(database, hour) for _ in range(2)]
        await waiting_behind_nothing(database)
        async with on_duty(database, every=hour) as duties:
            passed_over = await duties._turns._take(), await fetchval(database, PENDING)
        async with on_duty(database):
            await until(database, PENDING)

        assert (turns, passed_over) == ([True, False], (hour.total_seconds() / 4, False))

    @pytest.mark.slow
    async def test_the_turn_of_one_that_died_is_followed_by_another(self, database: Database) -> None:
        await waiting_behind_nothing(database)
        await take_turn(database, timedelta(hours=1))

        async with on_duty(database, every=SHORT * 3):
            await until(database, PENDING)

    async def test_one_that_is_cancelled_leaves_what_it_has_not_done_to_the_next(
        self, database: Database
    ) -> None:
        await waiting_behind_nothing(database)
        async with database.session() as session:
            await session.begin()
            await session.execute("LOCK TABLE projections.webhook_deliveries")
            async with running(Duties(database, every=SHORT).run(asyncio.Event())):
                await until_taken(database)
            await session.rollback()
        left = await fetchval(database, PENDING)

        async with on_duty(database):
            await until(database, PENDING)

        assert not left

    async def test_one_that_does_nothing_leaves_the_turn_as_it_is(self, database: Database) -> None:
        await take_turn(database, timedelta(hours=1))
        before = await fetchval(database, TAKEN)
        stop = asyncio.Event()
        duties = Duties(database)
        await duties._turns._take()
        stop.set()

        await duties.run(stop)

        assert await fetchval(database, TAKEN) == before

    async def test_of_many_at_once_one_has_the_turn(self, database: Database) -> None:
        turns = await asyncio.gather(*(take_turn(database, timedelta(hours=1)) for _ in range(5)))

        assert sorted(turns) == [False] * 4 + [True]

    async def test_a_clock_that_was_ahead_keeps_nobody_from_it(self, database: Database) -> None:
        await execute(database, "INSERT INTO projections.turns VALUES ('webhooks', now() + interval '1 day')")

        assert await take_turn(database, timedelta(hours=1))


class TestFailures:
    async def test_a_database_that_goes_away_is_waited_for(
        self, database: Database, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with on_duty(database):
            await until_taken(database)
            async with database.session() as session:
                await session.fetchval(
                    "SELECT count(pg_terminate_backend(a.pid)) FROM pg_stat_activity AS a "
                    "WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() "
                    "AND a.backend_type = 'client backend'"
                )
            await until_taken(database)

    @pytest.mark.slow
    async def test_a_duty_that_fails_holds_no_other_up_and_is_done_when_it_can_be(
        self, database: Database, caplog: pytest.LogCaptureFixture
    ) -> None:
        await execute(
            database,
            "ALTER FUNCTION projections._forget_deliveries_v1 RENAME TO forgotten",
        )
        async with on_duty(database) as duties:
            await waiting_behind_nothing(database, 2)
            await until(database, PENDING)
            forgetting = duties._turns._works[0]
            async with asyncio.timeout(300):
                while not forgetting.failures:
                    await asyncio.sleep(0.001)
            await execute(database, "ALTER FUNCTION projections.forgotten RENAME TO _forget_deliveries_v1")
            async with asyncio.timeout(300):
                while forgetting.failures:
                    await asyncio.sleep(0.001)

        assert "webhooks wait, with their old deliveries" in caplog.text


class TestWaiting:
    @pytest.mark.slow
    async def test_what_waits_behind_nothing_is_let_go(self, database: Database) -> None:
        ep = await waiting_behind_nothing(database)

        async with on_duty(database):
            await until(database, PENDING)

        assert await states(database, ep) == ["done", "pending", "waiting"]

    async def test_what_waited_for_a_dead_letter_goes_on_when_these_are_skipped(
        self, database: Database
    ) -> None:
        ep = await endpoint(database, "ep_1", ordering="key", on_dead="block")
        await deliver_events(database, ep, 3, key="k")
        await end_all(database, await take(database), "dead")
        blocked = await release(database), await states(database, ep)
        await execute(
            database, """SELECT projections._change_endpoint_v1('acme', 'ep_1', '{"on_dead": "skip"}')"""
        )

        released = await release(database)

        assert blocked == (0, ["dead", "waiting", "waiting"])
        assert (released, await states(database, ep)) == (1, ["dead", "pending", "waiting"])

    async def test_what_waits_for_one_on_its_way_waits_on(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", ordering="endpoint")
        await deliver_events(database, ep, 2)
        pending = await release(database), await states(database, ep)
        await take(database)

        assert pending == (0, ["pending", "waiting"])
        assert (await release(database), await states(database, ep)) == (0, ["leased", "waiting"])

    @pytest.mark.slow
    async def test_orders_are_walked_a_few_at_a_time(self, database: Database) -> None:
        for name in ("ep_1", "ep_2"):
            await endpoint(database, name, ordering="key", on_dead="block")
            for key in ("a", "b", "c"):
                await deliver_events(database, name, key=key)
        found, place = [], ("", "")
        while place[0] is not None:
            place = await walked(database, *place, 2)
            found.append(place)

        assert found == [("ep_1", "b"), ("ep_2", "a"), ("ep_2", "c"), (None, None)]

    @pytest.mark.slow
    async def test_what_another_has_locked_is_left_to_it(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", ordering="key", on_dead="block")
        await deliver_events(database, ep, 2, key="k")
        await end_all(database, await take(database), "dead")
        await execute(database, "UPDATE projections.webhook_endpoints SET on_dead = 'skip'")
        async with database.session() as session:
            await session.begin()
            await session.fetch("SELECT FROM projections.webhook_deliveries FOR UPDATE")

            released = await release(database)

            waiting = await fetchval(database, f"SELECT count(*) FROM {WAITING}")
            await session.commit()
        assert (released, waiting) == (0, 0)
        assert await release(database) == 1


async def release(database: Database) -> int:
    return int(await fetchval(database, "SELECT released FROM projections._release_waiting_v1()"))


async def walked(database: Database, endpoint_id: str, key: str, limit: int) -> tuple[Any, Any]:
    async with database.session() as session:
        row = await session.fetchrow(
            "SELECT last_endpoint_id, last_key FROM projections._release_waiting_v1($1, $2, $3)",
            endpoint_id,
            key,
            limit,
        )
    assert row is not None
    return row["last_endpoint_id"], row["last_key"]
