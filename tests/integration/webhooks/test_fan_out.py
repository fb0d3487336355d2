"""Fan-out of events for very many endpoints, and of messages that cannot be."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from journal import Database, Event, RawJson, append, event_type
from projections import run
from projections.webhooks import FanOut, send
from projections.webhooks import fan_out as module
from projections.webhooks.messages import MESSAGE
from tests.fixtures.projections import fetchval
from tests.fixtures.webhooks import endpoint

COUNT = "SELECT count(*) FROM projections.webhook_deliveries"


@pytest.mark.slow
async def test_many_endpoints_get_each_event_in_portions(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TOGETHER", 4)
    for number in range(3):
        await endpoint(database, f"ep_{number}")
    async with database.transaction() as session:
        for number in range(5):
            await send(session, "acme", "a.b", {"n": number})

    await run(database, FanOut(), until_caught_up=True)

    assert await fetchval(database, COUNT) == 15
    logged = "SELECT count(*) FROM projections.webhook_events WHERE cardinality(endpoint_ids) = 3"
    assert await fetchval(database, logged) == 5


@pytest.mark.slow
async def test_a_time_without_a_zone_parks_its_source_alone(database: Database) -> None:
    await endpoint(database, "ep_0")
    async with database.transaction() as session:
        wrong = {"tenant": "acme", "not_before": "2030-01-01T00:00:00"}
        await append(session, [Event("odd", {}, MESSAGE, "a.b", 1, metadata=wrong)])
        await send(session, "acme", "a.b", {})

    await run(database, FanOut(), until_caught_up=True)

    assert await fetchval(database, COUNT) == 1
    assert (
        await fetchval(database, "SELECT count(*) FROM projections.parked_sources WHERE source_id = 'odd'")
        == 1
    )


async def test_messages_without_a_key_wait_for_no_one(database: Database) -> None:
    await endpoint(database, "ep_0", ordering="key")
    async with database.transaction() as session:
        for number in range(100):  # more than a tenant has sources for them
            await send(session, "acme", "a.b", {"n": number})

    await run(database, FanOut(), until_caught_up=True)

    assert await fetchval(database, f"{COUNT} WHERE state = 'pending'") == 100


@event_type("fan-out.weighed", version=2, upcast={1: lambda old: {"grams": old["kg"] * 1000}})
class Weighed(BaseModel):
    grams: int


async def test_filters_and_receivers_see_the_newest_version(database: Database) -> None:
    await endpoint(database, "ep_0", filter={"data": {"grams": {"$gt": 1500}}})
    old = [
        Event(
            "scale", RawJson(f'{{"kg": {kg}}}'), "scales", "fan-out.weighed", 1, metadata={"tenant": "acme"}
        )
        for kg in (1, 2)
    ]
    async with database.transaction() as session:
        await append(session, old)

    await run(database, FanOut("scales"), until_caught_up=True)

    assert await fetchval(database, "SELECT array_agg(data) FROM projections.webhook_events") == [
        '{"grams":2000}'
    ]
