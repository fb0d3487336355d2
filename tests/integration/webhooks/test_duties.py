"""What one process at a time does for all webhooks: by whom, through which failures, and with what effect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from journal import Database
from projections.webhooks.duties import Duties
from tests.fixtures.locks import WAITING
from tests.fixtures.projections import QUICK, execute, fetchval, until
from tests.fixtures.webhooks import deliver_events, end_all, endpoint, states, take

SHORT = timedelta(milliseconds=100)
PENDING = "SELECT EXISTS (SELECT FROM projections.webhook_deliveries WHERE state = 'pending')"
OWNERS = "SELECT owner FROM projections.webhook_duties WHERE lease_until > clock_timestamp()"


@asynccontextmanager
async def on_duty(database: Database, **options: Any) -> AsyncIterator[tuple[Duties, asyncio.Task[None]]]:
    """Do the duties for the length of the block, then stop as a user would."""
    stop = asyncio.Event()
    duties = Duties(database, **{"lease": SHORT * 50, "every": SHORT, "restart": QUICK} | options)
    task = asyncio.create_task(duties.run(stop))
    try:
        yield duties, task
    finally:
        stop.set()
        async with asyncio.timeout(30):
            await asyncio.gather(task, return_exceptions=True)
    if not task.cancelled():
        task.result()


async def owner(database: Database) -> Any:
    return await fetchval(database, OWNERS)


async def until_owned(database: Database, duties: Duties) -> None:
    await until(database, f"SELECT EXISTS ({OWNERS} AND owner = $1)", duties._owner)
    async with asyncio.timeout(30):
        while not duties._on_duty:
            await asyncio.sleep(0)


class TestTurns:
    async def test_one_of_two_does_and_the_other_goes_on_when_it_stops(self, database: Database) -> None:
        async with on_duty(database, lease=timedelta(hours=1)) as (first, _):
            await until_owned(database, first)
            second = Duties(database, lease=SHORT)
            await second._take()
            passed_over = second._on_duty
        async with on_duty(database) as (third, _):
            await until_owned(database, third)

        assert not passed_over

    async def test_the_lease_is_given_back_also_by_one_that_is_cancelled(self, database: Database) -> None:
        async with on_duty(database, lease=timedelta(hours=1)) as (duties, task):
            await until_owned(database, duties)
            task.cancel()

        assert await owner(database) is None

    async def test_another_goes_on_when_the_lease_of_one_that_died_is_over(self, database: Database) -> None:
        await fetchval(
            database, "SELECT projections.take_webhook_duty_v1('webhooks', 'dead', '300 milliseconds')"
        )
        async with on_duty(database, lease=SHORT * 5) as (duties, _):
            await until_owned(database, duties)

    async def test_one_that_lost_its_lease_does_no_more(self, database: Database) -> None:
        duties = Duties(database)
        await duties._take()
        await execute(
            database,
            "UPDATE projections.webhook_duties SET owner = 'another', lease_until = now() + interval '1 hour'",
        )

        await duties._take()

        assert not duties._on_duty

    async def test_one_that_does_nothing_gives_nothing_back(self, database: Database) -> None:
        await fetchval(database, "SELECT projections.take_webhook_duty_v1('webhooks', 'busy', '1 hour')")
        stop = asyncio.Event()
        duties = Duties(database)
        await duties._take()
        stop.set()

        await duties.run(stop)

        assert await owner(database) == "busy"


class TestFailures:
    async def test_a_database_that_goes_away_is_waited_for(
        self, database: Database, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with on_duty(database) as (duties, _):
            await until_owned(database, duties)
            async with database.session() as session:
                await session.fetchval(
                    "SELECT count(pg_terminate_backend(a.pid)) FROM pg_stat_activity AS a "
                    "WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() "
                    "AND a.backend_type = 'client backend'"
                )
            await execute(database, "DELETE FROM projections.webhook_duties")
            await until(database, f"SELECT EXISTS ({OWNERS} AND owner = $1)", duties._owner)

    async def test_a_duty_that_fails_holds_no_other_up_and_is_done_when_it_can_be(
        self, database: Database, caplog: pytest.LogCaptureFixture
    ) -> None:
        await execute(
            database,
            "ALTER FUNCTION projections.forget_deliveries_v1 RENAME TO forgotten",
        )
        async with on_duty(database) as (duties, _):
            ep = await endpoint(database, "ep_1", ordering="key")
            await deliver_events(database, ep, 2, key="k")
            await execute(
                database, "UPDATE projections.webhook_deliveries SET state = 'done' WHERE state = 'pending'"
            )
            await until(database, PENDING)
            forgetting = duties._duties[0]
            async with asyncio.timeout(30):
                while not forgetting.failures:
                    await asyncio.sleep(0)
            await execute(database, "ALTER FUNCTION projections.forgotten RENAME TO forget_deliveries_v1")
            async with asyncio.timeout(30):
                while forgetting.failures:
                    await asyncio.sleep(0)

        assert "webhooks wait, with their old deliveries" in caplog.text


class TestWaiting:
    async def test_what_waits_behind_nothing_is_let_go(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", ordering="key")
        await deliver_events(database, ep, 3, key="k")
        await execute(
            database, "UPDATE projections.webhook_deliveries SET state = 'done' WHERE state = 'pending'"
        )

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
            database, """SELECT projections.change_endpoint_v1('acme', 'ep_1', '{"on_dead": "skip"}')"""
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
    return int(await fetchval(database, "SELECT released FROM projections.release_waiting_v1()"))


async def walked(database: Database, endpoint_id: str, key: str, limit: int) -> tuple[Any, Any]:
    async with database.session() as session:
        row = await session.fetchrow(
            "SELECT last_endpoint_id, last_key FROM projections.release_waiting_v1($1, $2, $3)",
            endpoint_id,
            key,
            limit,
        )
    assert row is not None
    return row["last_endpoint_id"], row["last_key"]
