"""Subscriptions that do not say when they start do as their group was made with."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from journal import Database
from projections.subscriptions import InvalidSubscription, create_group, subscribe
from tests.fixtures.matching import execute, fetchval, happened, match
from tests.fixtures.past import catch_up, until_settled


@pytest.mark.slow
async def test_the_start_of_a_group_is_that_of_its_subscriptions(database: Database) -> None:
    await happened(database)
    await until_settled(database)
    async with database.transaction() as session:
        await create_group(session, "g", start="beginning")
        old = await subscribe(session, "g")
        new = await subscribe(session, "g", topics=["t"], start="now")
    await catch_up(database)
    await happened(database)
    await match(database)

    found = await fetchval(
        database, "SELECT array_agg(subscription_ids::text ORDER BY match_id) FROM projections.matches"
    )
    assert found == [f"{{{old}}}", f"{{{old},{new}}}"]


async def test_the_start_of_a_known_group_is_not_changed(database: Database) -> None:
    noon = datetime(2020, 1, 1, 12, tzinfo=UTC)
    async with database.session() as session:
        first = await create_group(session, "g", start=noon)
        assert await create_group(session, "g", start=noon.astimezone(timezone(timedelta(hours=9)))) == first
        assert await create_group(session, "g") == first
        for other in ("now", "beginning", noon + timedelta(microseconds=1)):
            with pytest.raises(
                InvalidSubscription, match="'g' is there, and its subscriptions start at 2020-01-01 12"
            ):
                await create_group(session, "g", start=other)
        second = await create_group(session, "h")
        assert await create_group(session, "h", start="now") == second
        with pytest.raises(
            InvalidSubscription, match=r"start from now on, not at 1970.* groups rewind.* --from"
        ):
            await create_group(session, "h", start="beginning")


async def test_a_start_is_refused_where_it_cannot_be(database: Database) -> None:
    async with database.session() as session:
        for start, reliable, said in (
            ("beginning", False, "only listens"),
            (datetime.now(UTC) + timedelta(hours=1), True, "in the future"),
            (
                datetime(2020, 1, 1, tzinfo=UTC).replace(tzinfo=None),
                True,
                "must be 'now', 'beginning', or a datetime with its zone",
            ),
        ):
            with pytest.raises(InvalidSubscription, match=said):
                await create_group(session, "g", start=start, reliable=reliable)
        await create_group(session, "l", reliable=False, start="now")
        await subscribe(session, "l", start="now")
        with pytest.raises(InvalidSubscription, match="group 'l' only listens"):
            await subscribe(session, "l", start="beginning")


async def test_the_start_is_that_of_whoever_makes_it_first(database: Database) -> None:
    async def make(start: str) -> int | None:
        try:
            async with database.transaction() as session:
                return await create_group(session, "g", start=start)
        except InvalidSubscription:
            return None

    for _ in range(10):
        made = await asyncio.gather(*(make(start) for start in ("now", "beginning") * 3))
        assert sorted(number is None for number in made) == [False] * 3 + [True] * 3
        assert len(set(made)) == 2
        await execute(database, "SELECT projections.remove_group_v1('g')")
