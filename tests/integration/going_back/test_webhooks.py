"""Webhooks whose database goes back in time: what a process holds in memory is of no effect on what is new."""

from __future__ import annotations

import pytest

from journal import Database
from projections.webhooks.fan_out import _KnownEndpoints
from projections.webhooks.sender import HttpSender
from tests.fixtures.going_back import go_back, remember
from tests.fixtures.projections import execute
from tests.fixtures.raw_server import RawServer, respond
from tests.fixtures.schedules import due, made, messages
from tests.fixtures.webhook_delivery import (
    LOCAL,
    TENANT,
    Gate,
    attempts,
    delivering,
    endpoints,
    finished,
    hook,
    sent,
)
from tests.fixtures.webhooks import deliver_events, end_all, endpoint, send_ticks, states, take


@pytest.mark.slow
@pytest.mark.parametrize("verdict", ["done", "dead", "retry", "release"])
async def test_what_came_of_an_attempt_of_a_lost_history_touches_no_other(
    database: Database, verdict: str
) -> None:
    ep = await endpoint(database, "ep_1")
    await remember(database)
    await deliver_events(database, ep)
    (lost,) = await take(database)
    await go_back(database)
    await deliver_events(database, ep)
    (taken,) = await take(database)
    assert lost.delivery_id == taken.delivery_id

    assert await end_all(database, [lost], verdict) == set()

    assert await states(database, ep) == ["leased"]
    assert await end_all(database, [taken], "done") == {taken.delivery_id}


async def test_a_request_on_its_way_is_made_again_where_its_attempt_is_forgotten(database: Database) -> None:
    async with RawServer(respond(204)) as server, HttpSender(LOCAL) as own:
        await hook(database, server.url)
        await sent(database)
        await remember(database)
        gate = Gate(own, after=True)
        async with delivering(database, gate) as running:
            await gate.reached.get()
            await go_back(database)
            await gate.reached.get()
            gate.after.set()
            await finished(database)
            await running.watch.until(lambda: len(running.watch.attempts) == 2)

        first, second = (dict(request.headers)["webhook-id"] for request in server.requests)
        assert first == second
    assert await attempts(database) == [(1, "success", "204")]


async def test_a_tick_that_was_forgotten_is_sent_again_under_its_id(database: Database) -> None:
    schedule = await made(database)
    await due(database, schedule)
    await remember(database)
    ids = set()
    for _ in range(2):
        assert (await send_ticks(database)).sent == 1
        (message,) = await messages(database, schedule)
        ids.add(message["event_id"])
        await go_back(database)

    assert len(ids) == 1


async def test_what_an_endpoint_wants_is_read_again_where_a_version_is_another(database: Database) -> None:
    ep, _ = await hook(database, "http://127.0.0.1:8080/")
    known = _KnownEndpoints()
    await remember(database)
    for topic in ("a", "b"):
        await endpoints(database).change(TENANT, ep, {"topics": [topic]})
        async with database.session() as session:
            ((_, interest),) = (await known.of(session, {TENANT}))[TENANT]
        assert interest.topics.matches(topic)
        await go_back(database)


async def test_a_secret_that_was_lost_signs_nothing(database: Database) -> None:
    ep = await endpoint(database, "ep_1")
    await remember(database)
    await execute(database, "UPDATE projections.webhook_secrets SET secret = 'plain:whsec_lost'")
    await deliver_events(database, ep, 2)
    assert [one.secrets for one in await take(database, 1)] == [["plain:whsec_lost"]]
    await go_back(database)
    await deliver_events(database, ep)

    assert "plain:whsec_lost" not in (await take(database))[0].secrets
