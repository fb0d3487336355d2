"""Append, publish, send and subscribe: the same call on every kind of connection."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
import psycopg
import pytest

from journal import Database, Event, EventIdConflict, InvalidEvent, append, append_sync
from projections.subscriptions import (
    InvalidSubscription,
    Publication,
    publish,
    publish_all,
    publish_all_sync,
    publish_sync,
    subscribe,
    subscribe_sync,
    unsubscribe,
    unsubscribe_sync,
)
from projections.subscriptions.errors import InvalidCondition
from projections.webhooks import send, send_sync
from projections.webhooks.errors import InvalidMessage
from tests.fixtures.connections import WAYS, Caller, Way
from tests.fixtures.journal import stored
from tests.fixtures.projections import fetchval

APPEND = (append, append_sync)
PUBLISH = (publish, publish_sync)
PUBLISH_ALL = (publish_all, publish_all_sync)
SEND = (send, send_sync)
SUBSCRIBE = (subscribe, subscribe_sync)
UNSUBSCRIBE = (unsubscribe, unsubscribe_sync)
TWINS = [APPEND, PUBLISH, PUBLISH_ALL, SEND, SUBSCRIBE, UNSUBSCRIBE]
ID = UUID(int=7)
LATER = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request: pytest.FixtureRequest) -> Way:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize("twins", TWINS, ids=lambda twins: twins[0].__name__)
def test_twins_have_one_signature(twins: tuple[Callable[..., Any], Callable[..., Any]]) -> None:
    asynchronous, synchronous = twins

    assert inspect.signature(asynchronous) == inspect.signature(synchronous)
    assert synchronous.__name__ == f"{asynchronous.__name__}_sync"
    assert inspect.iscoroutinefunction(asynchronous)
    assert not inspect.iscoroutinefunction(synchronous)


async def test_every_verb_commits_with_the_callers_transaction(
    way: Way, dsn: str, database: Database
) -> None:
    async with way(dsn) as caller:
        number = await _all_verbs(caller)

    assert [e.payload_json for e in await stored(database, "a")] == ['{"n":1}']
    published = await stored(database, "publisher/p")
    assert [(e.event_type, e.payload_json) for e in published] == [
        ("t.one", '{"n":2}'),
        ("t.two", "3"),
        ("t.two", "4"),
    ]
    (sent,) = await stored(database, await fetchval(database, _SENT))
    assert (sent.event_type, sent.payload_json) == ("order.paid", '{"n":5}')
    assert await fetchval(database, _ASKED, number) == 'g {a,b} {"x": "é", "contains": {"n": 1}} 01:30:00'
    assert await fetchval(database, _SUBSCRIPTIONS) == 1


async def test_every_verb_rolls_back_with_the_callers_transaction(
    way: Way, dsn: str, database: Database
) -> None:
    async def write_and_fail() -> None:
        async with way(dsn) as caller:
            await _all_verbs(caller)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await write_and_fail()

    assert await fetchval(database, "SELECT count(*) FROM projections.events") == 0
    assert await fetchval(database, _SUBSCRIPTIONS) == 0


class Wrong(NamedTuple):
    twins: Any
    arguments: tuple[Any, ...]
    error: type[Exception]
    options: Mapping[str, Any] = MappingProxyType({})


WRONG = {
    "no type": Wrong(APPEND, ([Event("a", {}, "", "t")],), InvalidEvent),
    "no topic": Wrong(PUBLISH, ("", 1), InvalidEvent),
    "no such subscription": Wrong(PUBLISH, ("t", 1), InvalidSubscription, {"subscription_id": 99}),
    "one id twice": Wrong(
        PUBLISH_ALL, ([Publication("t", n, event_id=ID) for n in (1, 2)],), EventIdConflict
    ),
    "no tenant": Wrong(SEND, ("", "t", 1), InvalidMessage),
    "no condition": Wrong(SUBSCRIBE, ("g",), InvalidCondition, {"condition": "nonsense("}),
    "an empty list": Wrong(SUBSCRIBE, ("g",), InvalidSubscription, {"topics": []}),
    "no group": Wrong(SUBSCRIBE, ("",), InvalidSubscription),
}


@pytest.mark.daily(20)
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_every_verb_raises_the_same_on_every_connection(way: Way, dsn: str, wrong: Wrong) -> None:
    async def write() -> None:
        async with way(dsn) as caller:
            await caller.call(wrong.twins, *wrong.arguments, **wrong.options)

    with pytest.raises(wrong.error):
        await write()


OTHER = {
    "append": (APPEND, ([Event("a", {}, "plane", "t")],)),
    "publish": (PUBLISH, ("t", 1)),
    "publish_all": (PUBLISH_ALL, ([Publication("t", 1)],)),
    "send": (SEND, ("acme", "t", 1)),
    "subscribe": (SUBSCRIBE, ("g",)),
    "unsubscribe": (UNSUBSCRIBE, (1,)),
}


@pytest.mark.parametrize("name", OTHER)
async def test_a_connection_of_the_other_kind_is_refused_with_what_to_call(dsn: str, name: str) -> None:
    (asynchronous, synchronous), arguments = OTHER[name]
    other = await asyncpg.connect(dsn)

    with psycopg.connect(dsn) as connection, pytest.raises(TypeError, match="with the ending _sync"):
        await asynchronous(connection, *arguments)
    with pytest.raises(TypeError, match="without the ending _sync"):
        synchronous(other, *arguments)

    await other.close()


_SENT = "SELECT source_id FROM projections.events WHERE entity_type = 'webhook-message'"
_SUBSCRIPTIONS = "SELECT count(*) FROM projections.subscriptions"
_ASKED = """
SELECT g.name || ' ' || s.topics::text || ' ' || s.params::text || ' ' || s.expires_after::text
FROM projections.subscriptions AS s INNER JOIN projections.subscription_groups AS g ON s.group_id = g.group_id
WHERE s.subscription_id = $1
"""


async def _all_verbs(caller: Caller) -> int:
    await caller.call(APPEND, [Event("a", {"n": 1}, "plane", "Landed")])
    await caller.call(PUBLISH, "t.one", {"n": 2}, publisher="p", event_id=ID, metadata={"by": "me"})
    await caller.call(PUBLISH_ALL, [Publication("t.two", 3), Publication("t.two", 4)], publisher="p")
    await caller.call(
        SEND, "acme", "order.paid", {"n": 5}, order_key="o-1", not_before=LATER, metadata={"a": "b"}
    )
    number: int = await caller.call(
        SUBSCRIBE,
        "g",
        topics=["a", "b"],
        contains={"n": 1},
        params={"x": "é"},
        expires_after=timedelta(minutes=90),
    )
    gone = await caller.call(SUBSCRIBE, "g", entity_types=["plane"])
    assert await caller.call(UNSUBSCRIBE, gone)
    assert not await caller.call(UNSUBSCRIBE, gone)
    return number
