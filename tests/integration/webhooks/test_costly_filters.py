"""Filters that would look at more of an event than they may: the pair is set apart, and everything else goes on."""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from journal import tasks
from projections import RunSettings, run
from projections.interests.errors import FilterTooCostly
from projections.interests.filter_cost import MOST_CHARACTERS, VALUE
from projections.interests.filters import parse_filter
from projections.interests.json_values import read_json
from projections.webhooks import FanOut, send
from projections.webhooks.deliveries import Deliveries, DeliveryFilter
from projections.webhooks.messages import Message, message_of
from tests.fixtures.loop_clock import pass_time
from tests.fixtures.projections import fetchval
from tests.fixtures.webhooks import deliver_events, end_all, endpoint, fan_out, states, take

if TYPE_CHECKING:
    from collections.abc import Iterator

    from journal import Database, EventEnvelope

# Each text repeats itself, which is what a search for it takes longest with.
_NEEDLE = "a" * 49 + "b" + "a" * 49
_SEARCHES = {"data": {"$or": [{"$in": f"{_NEEDLE}{number}"} for number in range(98)]}}
_HAYSTACK = "a" * 1_000_000
_COUNT = "SELECT count(*) FROM projections.webhook_deliveries"


@contextmanager
def counted() -> Iterator[list[int]]:
    """Count the calls of functions, those written in C too."""
    calls = [0]

    def call(frame: Any, event: str, argument: Any) -> None:
        calls[0] += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(call)
    try:
        yield calls
    finally:
        sys.setprofile(before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("condition", "data"),
    [
        (_SEARCHES["data"], _HAYSTACK),
        ({"$any": {"x": _SEARCHES["data"]}}, [{"x": "a" * 29_999}] * 33),
        ([7] * 5000, [1] * 100_000 + [7]),
        ({"$any": {"$or": list(range(2, 2500))}}, [1] * 100_000),
        ({"$any": {"x": {"$in": list(range(2, 2500))}}}, [{"x": 1}] * 50_000),
        ([{"$or": [{"$exist": False}] * 90}], [1] * 100_000),
        ([{"$eq": [1] * 4000}, {"$any": 2}], [[1] * 4000] * 100),
        ([{"$in": [Decimal("1.5")]}], [Decimal("1." + "1" * 100_000)] * 300),
        ([{"$lt": "a" * 15_000}], ["a" * 20_000] * 400),
        ([{"$startsWith": ["a" * 15_000]}], ["a" * 14_999 + "b"] * 400),
        ([{f"x{n}": {"$exist": False} for n in range(90)} | {"y": 1}], [{}] * 1000),
        ([{"$not": {"$not": {"$not": {"a": {"b": {"c": 1}}}}}}], [{"a": {"b": {"c": 2}}}] * 100_000),
    ],
    ids=[
        "texts", "items", "list", "or", "in", "operators", "equal", "digits", "order", "affix", "fields", "nested",
    ],
)  # fmt: skip
def test_what_a_filter_looks_at_is_bounded(condition: Any, data: Any) -> None:
    costly = parse_filter({"data": condition})
    with counted() as calls, pytest.raises(FilterTooCostly, match="looks at more than 4,000,000 characters"):
        costly.matches({"id": "e1", "data": data})
    assert calls[0] < 20 * MOST_CHARACTERS / VALUE


def test_members_of_a_list_are_looked_up_and_not_walked() -> None:
    chosen = parse_filter({"data": {"sku": {"$in": [f"s{number}" for number in range(1500)]}}})
    few = parse_filter({"data": {"sku": {"$in": ["s1"]}}})
    with counted() as calls:
        assert chosen.matches({"data": {"sku": "s1499"}})
    with counted() as calls_of_few:
        assert few.matches({"data": {"sku": "s1"}})
    assert calls[0] == calls_of_few[0]


async def _costly(database: Database, endpoints: int = 12) -> None:
    for number in range(endpoints):
        await endpoint(database, f"ep_{number:02}", filter=_SEARCHES)


@pytest.mark.slow
async def test_one_message_sets_its_pairs_apart_and_everything_else_goes_on(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await _costly(database)
    await endpoint(database, "ep_plain")
    await endpoint(database, "ep_other", tenant="globex")
    async with database.transaction() as session:
        await send(session, "acme", "a.b", _HAYSTACK)
        await send(session, "acme", "a.b", _NEEDLE + "5")
        await send(session, "globex", "a.b", {})

    await run(database, FanOut(), until_caught_up=True)

    assert await fetchval(database, "SELECT count(*) FROM projections.parked_sources") == 0
    assert await fetchval(database, f"{_COUNT} WHERE endpoint_id = 'ep_plain' AND state = 'pending'") == 2
    assert await fetchval(database, f"{_COUNT} WHERE tenant = 'globex' AND state = 'pending'") == 1
    assert (
        await fetchval(database, f"{_COUNT} WHERE state = 'dead' AND last_code = 'filter_too_costly'") == 12
    )
    assert await fetchval(database, f"{_COUNT} WHERE endpoint_id LIKE 'ep_0%' AND state = 'pending'") == 10
    assert caplog.text.count("is set apart for endpoint") == 12


@pytest.mark.slow
async def test_data_beyond_what_filters_read_are_not_read(database: Database) -> None:
    await endpoint(database, "ep_0", filter={"data": {"n": 1}})
    async with database.transaction() as session:
        await send(session, "acme", "a.b", {"n": 1, "text": "a" * MOST_CHARACTERS})

    await run(database, FanOut(), until_caught_up=True)

    assert (
        await fetchval(database, "SELECT last_code FROM projections.webhook_deliveries")
        == "filter_too_costly"
    )


@pytest.mark.slow
async def test_others_have_their_turn_between_two_filters(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_TURN", -1.0)
    await _costly(database)
    turns = 0
    searched: list[int] = []

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def over(self: tasks.Turn) -> None:
        searched.append(turns)
        await _over(self)

    _over = tasks.Turn.over
    monkeypatch.setattr(tasks.Turn, "over", over)
    async with database.transaction() as session:
        await send(session, "acme", "a.b", _HAYSTACK)
    ticking = asyncio.create_task(tick())
    await run(database, FanOut(), until_caught_up=True)
    await tasks.end(ticking)

    assert len(searched) == 1 + 2 * 12  # for the message, to load each, and to ask each
    assert len(set(searched)) == len(searched)


@pytest.mark.slow
async def test_a_fan_out_that_outlasts_its_time_is_narrowed_down_to_its_event(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await endpoint(database, "ep_0")
    reached, limit = False, timedelta(seconds=5)

    def message(envelope: EventEnvelope) -> Message | None:
        nonlocal reached
        reached = reached or envelope.event_type == "bad"
        return message_of(envelope)

    async def over(_: tasks.Turn) -> None:
        nonlocal reached
        if reached:
            reached = False
            pass_time(limit)
            await asyncio.Event().wait()

    monkeypatch.setattr(tasks.Turn, "over", over)
    async with database.transaction() as session:
        for topic in ("a", "b", "bad", "c"):
            await send(session, "acme", topic, {})
    settings = RunSettings(handler_timeout=limit, lease=timedelta(hours=1))
    await run(database, FanOut(message=message), until_caught_up=True, settings=settings)

    topics = "SELECT array_agg(topic ORDER BY topic) FROM projections.webhook_deliveries"
    assert await fetchval(database, topics) == ["a", "b", "c"]
    assert "handler_timeout" in await fetchval(database, "SELECT error FROM projections.parked_sources")


@pytest.mark.slow
async def test_what_was_set_apart_is_sent_when_it_is_tried_again(database: Database) -> None:
    await _costly(database, 1)
    async with database.transaction() as session:
        sent = await send(session, "acme", "a.b", _HAYSTACK)
    await run(database, FanOut(), until_caught_up=True)

    deliveries = Deliveries(database)
    (dead,) = await deliveries.list(DeliveryFilter(states=["dead"]))
    assert (dead.event_id, dead.attempts, dead.finished_at is None) == (str(sent.event_id), 0, False)
    assert (await deliveries.show("acme", "ep_00", dead.event_id)).data is not None
    await deliveries.retry("acme", "ep_00", dead.event_id)
    (claimed,) = await take(database)
    assert claimed.event_id == dead.event_id


@pytest.mark.parametrize("on_dead", ["skip", "block"])
async def test_what_is_set_apart_keeps_its_place_in_an_order(database: Database, on_dead: str) -> None:
    await endpoint(database, "ep_0", ordering="endpoint", on_dead=on_dead)
    async with database.session() as session:
        await fan_out(session, "ep_0", 3, set_apart=["filter_too_costly", None, None])

    blocked = on_dead == "block"
    assert await states(database, "ep_0") == ["dead", "waiting" if blocked else "pending", "waiting"]
    if not blocked:
        await end_all(database, await take(database), "done")
        assert await states(database, "ep_0") == ["dead", "done", "pending"]


async def test_what_is_set_apart_behind_others_lets_them_go_first(database: Database) -> None:
    await endpoint(database, "ep_0", ordering="endpoint", on_dead="block")
    await deliver_events(database, "ep_0", 3, set_apart=[None, "filter_too_costly", None])
    assert await states(database, "ep_0") == ["pending", "dead", "waiting"]
    await end_all(database, await take(database), "done")
    assert await states(database, "ep_0") == ["done", "dead", "waiting"]


@pytest.mark.slow
async def test_filters_of_all_endpoints_together_look_at_no_more_of_a_message_than_they_may(
    database: Database,
) -> None:
    searches = {"data": {"$or": [{"$in": f"{_NEEDLE}{number}"} for number in range(3)]}}
    for number in range(8):
        await endpoint(database, f"ep_{number}", filter=searches)
    await endpoint(database, "ep_other", tenant="globex", filter=searches)
    async with database.transaction() as session:
        await send(session, "acme", "a.b", _HAYSTACK)
        await send(session, "globex", "a.b", _HAYSTACK)
    await run(database, FanOut(), until_caught_up=True)
    assert await fetchval(database, f"{_COUNT} WHERE tenant = 'acme' AND state = 'dead'") == 6
    assert await fetchval(database, f"{_COUNT} WHERE tenant = 'globex'") == 0


async def test_data_of_too_many_values_are_not_read(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await endpoint(database, "ep_0", filter={"data": {"n": 1}})
    await endpoint(database, "ep_1")
    async with database.transaction() as session:
        await send(session, "acme", "a.b", [1] * 100_000)
    read: list[int] = []
    monkeypatch.setattr(
        "projections.webhooks.fan_out.read_json", lambda text: read.append(len(text)) or read_json(text)
    )
    await run(database, FanOut(), until_caught_up=True)
    assert await states(database, "ep_0") == ["dead"]
    assert await states(database, "ep_1") == ["pending"]
    assert max(read) < 100  # the filter
