"""Conditions that nobody has any more leave, with the functions that were made of them."""

from __future__ import annotations

import pytest

from journal import Database
from projections.subscriptions import remove_group, subscribe
from tests.fixtures import matching as support
from tests.fixtures.matching import execute, fetchval

CONDITION = "(e.payload ->> 'n')::int > 3"
FORGET = "SELECT projections._forget_conditions_v1()"
LEFT = """
SELECT (SELECT count(*) FROM projections.conditions)::text || ' ' || (
    SELECT count(*) FROM pg_proc WHERE pronamespace = 'projections_conditions'::regnamespace
)
"""


@pytest.fixture
async def subscribed(database: Database) -> int:
    return await support.subscribe(database, CONDITION)


async def test_it_leaves_with_the_last_subscription(database: Database, subscribed: int) -> None:
    await execute(database, "SELECT projections.unsubscribe_v1($1)", subscribed)

    forgotten = await fetchval(database, FORGET)

    assert (forgotten, await fetchval(database, LEFT)) == (1, "0 0")


async def test_it_leaves_with_the_group(database: Database, subscribed: int) -> None:
    async with database.session() as session:
        assert await remove_group(session, "g")
        assert not await remove_group(session, "g")

    assert await fetchval(database, FORGET) == 1


async def test_it_stays_while_a_subscription_has_it(database: Database, subscribed: int) -> None:
    await support.subscribe(database, CONDITION, "another")
    await execute(database, "SELECT projections.unsubscribe_v1($1)", subscribed)

    assert (await fetchval(database, FORGET), await fetchval(database, LEFT)) == (0, "1 1")


async def test_it_stays_while_somebody_is_subscribing(database: Database, subscribed: int) -> None:
    await execute(database, "SELECT projections.unsubscribe_v1($1)", subscribed)
    async with database.transaction() as session:
        await subscribe(session, "g", condition=CONDITION)

        assert await fetchval(database, FORGET) == 0

    await support.happened(database, payload={"n": 4})
    await support.match(database)
    assert len(await support.matched(database)) == 1


async def test_who_asks_for_it_again_gets_it_made_anew(database: Database, subscribed: int) -> None:
    await execute(database, "SELECT projections.unsubscribe_v1($1)", subscribed)
    await fetchval(database, FORGET)

    await support.subscribe(database, CONDITION)

    await support.happened(database, payload={"n": 4})
    await support.match(database)
    assert len(await support.matched(database)) == 1
