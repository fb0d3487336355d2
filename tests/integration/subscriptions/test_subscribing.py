"""Subscribing from Python: what is asked for, what is the same, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from journal import ALL_TYPES, Database, DatabaseError, EntityTypes, InvalidValue
from projections.subscriptions import (
    InvalidSubscription,
    create_group,
    cursors,
    group_names,
    subscribe,
    unsubscribe,
)
from projections.subscriptions.errors import InvalidCondition
from projections.subscriptions.subscribing import keep_subscriptions
from tests.fixtures.projections import fetchval
from tests.fixtures.subscriptions import landed, match_all, peek


async def matched(database: Database) -> list[str]:
    """The sources of what matched for the group."""
    async with database.session() as session:
        return [match.envelope.source_id for match in await peek(session, "g", limit=99) if match.envelope]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, ["a", "b", "c"]),
        ({"topics": ["Landed"]}, ["a", "b", "c"]),
        ({"topics": ["L*d"]}, ["a", "b", "c"]),
        ({"topics": ["landed", "Lande_"]}, []),
        ({"entity_types": ["train"]}, []),
        ({"entity_types": ["train", "plane"]}, ["a", "b", "c"]),
        ({"entity_types": ALL_TYPES}, ["a", "b", "c"]),
        ({"entity_types": EntityTypes.of(("train,plane",))}, []),
        ({"contains": {"where": {"to": "LAX"}}}, ["a", "c"]),
        ({"condition": "e.source_id = s.params ->> 'me'", "params": {"me": "b"}}, ["b"]),
        (
            {
                "contains": {"late": True},
                "condition": "e.source_id = 'b' OR e.source_id = 'c' -- these",
            },
            ["c"],
        ),
    ],
)
async def test_a_group_gets_what_it_asks_for(
    database: Database, asked: Mapping[str, Any], expected: list[str]
) -> None:
    async with database.session() as session:
        await subscribe(session, "g", **asked)

    await landed(database, "a", where={"to": "LAX", "from": "JFK"}, late=False)
    await landed(database, "b", where={"to": "SFO"}, late=False)
    await landed(database, "c", where={"to": "LAX"}, late=True)
    await match_all(database)

    assert await matched(database) == expected


async def test_subscriptions_that_differ_in_contents_share_one_condition(database: Database) -> None:
    async with database.session() as session:
        made = {await subscribe(session, "g", contains={"n": number}) for number in range(5)}

    assert len(made) == 5
    assert await fetchval(database, "SELECT count(*) FROM projections.conditions") == 1


async def test_asking_for_the_same_again_is_the_same_subscription(database: Database) -> None:
    async with database.session() as session:
        first = await subscribe(session, "g", topics=["a", "b"], params={"x": 1, "y": 2})

        assert await subscribe(session, "g", topics=["b", "a"], params={"y": 2, "x": 1}) == first
        assert await subscribe(session, "g", topics=["b"], params={"x": 1, "y": 2}) != first
        assert await subscribe(session, "other", topics=["a", "b"], params={"x": 1, "y": 2}) != first


async def test_a_subscription_can_be_kept_and_removed(database: Database) -> None:
    async with database.session() as session:
        made = await subscribe(session, "g", expires_after=timedelta(hours=1))
        assert await keep_subscriptions(session, [made, made + 1]) == [made]

        assert await unsubscribe(session, made)

        assert not await unsubscribe(session, made)
        assert await keep_subscriptions(session, [made]) == []


async def test_a_subscription_that_is_rolled_back_was_never_made(database: Database) -> None:
    async with database.session() as session:
        await session.begin()
        await subscribe(session, "g")
        await session.rollback()

        assert await group_names(session) == []


async def test_a_known_group_stays_as_it_is(database: Database) -> None:
    async with database.session() as session:
        first = await create_group(session, "g", ranges=3)

        assert await create_group(session, "g", ranges=5) == first
        assert len(await cursors(session, "g")) == 3
        assert await group_names(session) == ["g"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"topics": []}, InvalidSubscription, "topics names nothing"),
        ({"topics": "orders"}, InvalidSubscription, r"not one string: \['orders'\]"),
        ({"topics": [""]}, InvalidSubscription, "topics has ''"),
        ({"topics": ["a", None]}, InvalidSubscription, "topics has None"),
        ({"topics": ["a", "a..b"]}, InvalidSubscription, "'a..b' has an empty segment"),
        ({"topics": ["a**"]}, InvalidSubscription, r"'a\*\*' has \*\* as part of a segment"),
        ({"condition": "e.topic = '\0'"}, InvalidSubscription, "condition holds the character NUL"),
        ({"entity_types": []}, InvalidSubscription, "entity_types names nothing"),
        ({"entity_types": [7]}, InvalidSubscription, "entity_types has 7"),
        ({"entity_types": ["k,r"]}, InvalidSubscription, "write 'k', 'r', each by itself"),
        ({"entity_types": ["k", "k"]}, InvalidSubscription, "entity_types names 'k' twice"),
        ({"entity_types": ["ALL_TYPES"]}, InvalidSubscription, "leave it out for every type"),
        ({"entity_types": ["x" * 256]}, InvalidSubscription, "1 to 255 characters"),
        ({"start": "Beginning"}, InvalidSubscription, "start must be 'now', 'beginning', or a datetime with"),
        ({"start": "beginning", "reliable": False}, InvalidSubscription, "only listens"),
        ({"params": ["x"]}, InvalidSubscription, "params must be a mapping, not list"),
        ({"params": {"x": float("nan")}}, InvalidSubscription, "params"),
        ({"params": {"x": "y" * 1_000_000}}, InvalidSubscription, "at most 64 KiB"),
        ({"contains": "x"}, InvalidSubscription, "contains must be a mapping, not str"),
        ({"contains": {"x": 1}, "params": {"contains": 1}}, InvalidSubscription, "params has 'contains'"),
        ({"expires_after": timedelta(0)}, InvalidSubscription, "longer than 0"),
        ({"expires_after": timedelta(-1)}, InvalidSubscription, "longer than 0"),
        ({"condition": "e.nothing = 1"}, InvalidCondition, "nothing"),
        ({"condition": "1"}, InvalidCondition, "boolean"),
        ({"condition": "e.payload @>"}, InvalidCondition, "condition"),
        ({"condition": "TRUE) OR (TRUE", "contains": {"x": 1}}, InvalidCondition, "not a condition"),
        ({"condition": ""}, InvalidCondition, "condition"),
    ],
)
async def test_what_can_not_be_asked_for_is_refused_and_leaves_nothing(
    database: Database, asked: Mapping[str, Any], error: type[Exception], message: str
) -> None:
    async with database.session() as session:
        with pytest.raises(error, match=message):
            await subscribe(session, "g", **asked)

    assert await fetchval(database, "SELECT count(*) FROM projections.subscriptions") == 0


@pytest.mark.parametrize("name", ["", "g" * 256])
async def test_a_group_has_a_name_of_1_to_255_characters(database: Database, name: str) -> None:
    async with database.session() as session:
        with pytest.raises(InvalidSubscription, match="1 to 255 characters"):
            await create_group(session, name)


@pytest.mark.parametrize("ranges", [0, -1, 1025])
async def test_a_group_has_1_to_1024_ranges(database: Database, ranges: int) -> None:
    async with database.session() as session:
        with pytest.raises(InvalidValue, match=str(ranges)):
            await create_group(session, "g", ranges=ranges)


@pytest.mark.parametrize("name", ["g\0", 7, None])
async def test_a_group_has_a_name_that_can_be_stored(database: Database, name: Any) -> None:
    async with database.session() as session:
        for call in (create_group, subscribe):
            with pytest.raises(InvalidSubscription, match=r"^group "):
                await call(session, name)


@pytest.mark.parametrize("number", ["x", 10**30, None])
async def test_a_subscription_is_named_by_its_number(database: Database, number: Any) -> None:
    async with database.session() as session:
        with pytest.raises(InvalidSubscription, match="a number of 64 bits, not"):
            await unsubscribe(session, number)


async def test_plain_sql_is_refused_what_python_is(database: Database) -> None:
    for statement in (
        "SELECT projections.subscribe_v1('g', p_topics => '{a..b}')",
        "SELECT projections.publish_v1('p', '{a.}', '{1}')",
    ):
        with pytest.raises(DatabaseError, match="has an empty segment"):
            await fetchval(database, statement)
