"""What endpoints may ask for: refused where somebody asks for more, and held to it where it is stored."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from journal import Database, DatabaseError, connect
from projections.failing.retries import Backoff
from projections.webhooks.claims import reap
from projections.webhooks.endpoint_bounds import bounds, change_bound
from projections.webhooks.endpoints import Endpoints, EndpointSettings
from projections.webhooks.errors import InvalidEndpoint
from projections.webhooks.retry_policy import RetryPolicy
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.webhooks import deliver_events, end_all, endpoint, states, take

URL = "https://example.com/hook"
AT_ONCE = RetryPolicy(schedule=(timedelta(0),) * 100, timeout=timedelta(seconds=60), breaker_failures=10**9)


async def bound(database: Database, name: Any, **values: Any) -> None:
    async with database.session() as session:
        await change_bound(session, name, **values)


@pytest.fixture
async def bounded(database: Database) -> Database:
    """With bounds for everything."""
    await bound(database, "max_in_flight", most=2)
    await bound(database, "timeout", least=2, most=20)
    await bound(database, "pause", least=60, most=600)
    await bound(database, "attempts", most=3)
    await bound(database, "breaker_failures", most=3)
    await bound(database, "breaker_pause", least=100, most=200)
    return database


@pytest.mark.slow
async def test_a_fresh_installation_has_bounds(empty_dsn: str) -> None:
    from journal.schema import install

    install(empty_dsn)
    async with connect(empty_dsn) as database, database.session() as session:
        assert {one.name: (one.least, one.most) for one in await bounds(session)} == {
            "attempts": (None, 25), "breaker_failures": (None, 100), "breaker_pause": (5, None),
            "max_in_flight": (1, 100), "pause": (1, None), "timeout": (1, 30),
        }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"max_in_flight": 3}, "max_in_flight can be at most 2 here, not 3"),
        ({"policy": {"timeout": 21}}, "timeout .* can be 2 to 20 here, not 21"),
        ({"policy": {"schedule": [0]}}, "a pause of policy.schedule .* can be 60 to 600 here, not 0"),
        ({"policy": {"schedule": [60, 60, 60]}}, "attempts .* can be at most 3 here, not 4"),
        ({"policy": {"breaker_failures": 4}}, "breaker_failures can be at most 3 here, not 4"),
        (
            {"policy": {"breaker_pause": {"first": 1, "longest": 100, "jitter": 0}}},
            "breaker_pause.first .* can be 100 to 200 here, not 1",
        ),
    ],
)
async def test_what_asks_for_more_is_refused(bounded: Database, asked: dict[str, Any], says: str) -> None:
    endpoints = Endpoints(bounded)
    made = await endpoints.create("acme", EndpointSettings(url=URL))  # defaults are held to it, not refused
    with pytest.raises(InvalidEndpoint, match=says):
        await endpoints.create("acme", EndpointSettings.model_validate({"url": URL} | asked))
    with pytest.raises(InvalidEndpoint, match=says):
        await endpoints.change("acme", made.endpoint.endpoint_id, asked)
    await endpoints.change("acme", made.endpoint.endpoint_id, {"url": URL + "/other"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("max_in_flight", {"most": 0.4}, "is 1 to 1000, not 0.4"),
        ("max_in_flight", {"least": 5e9}, "is 1 to 1000, not 5e"),
        ("max_in_flight", {"most": 2.5}, "is a whole number, not 2.5"),
        ("attempts", {"most": 0.5}, "is 1 to 101, not 0.5"),
        ("timeout", {"least": 86_400}, "is 1 to 60, not 86400"),
        ("breaker_failures", {"most": float("nan")}, "is 1 to .* not nan"),
        ("pause", {"least": -1}, "is 0 to .* not -1"),
        ("timeout", {"least": 20, "most": 10}, "least timeout would be 20, more than the most, 10"),
    ],
)
async def test_a_bound_that_would_let_nobody_send_is_refused(
    database: Database, name: Any, values: dict[str, float], says: str
) -> None:
    with pytest.raises(InvalidEndpoint, match=says):
        await bound(database, name, **values)


@pytest.mark.parametrize("change", ["most = 0.4", "least = 5000000000", "most = 'NaN'"])
async def test_the_database_refuses_it_too(database: Database, change: str) -> None:
    with pytest.raises(DatabaseError, match="violates check constraint"):
        await execute(
            database, f"UPDATE projections.webhook_limits SET {change} WHERE name = 'max_in_flight'"
        )


@pytest.mark.slow
async def test_what_is_stored_is_held_to_later_bounds_when_it_is_used(database: Database) -> None:
    ep = await endpoint(database, "ep_1", policy=AT_ONCE, max_in_flight=1000)
    await deliver_events(database, ep, 5)
    await bound(database, "max_in_flight", most=2)
    await bound(database, "timeout", most=20)
    await bound(database, "pause", least=60)
    await bound(database, "attempts", most=3)

    taken = await take(database)

    assert len(taken) == 2
    assert taken[0].policy.timeout == timedelta(seconds=20)
    assert taken[0].policy.schedule == (timedelta(seconds=60),) * 2
    lease = "SELECT max(extract(EPOCH FROM lease_until - now())) <= 35 FROM projections.webhook_deliveries"
    assert await fetchval(database, lease)
    stored = json.loads(await fetchval(database, "SELECT policy::text FROM projections.webhook_endpoints"))
    assert (stored["timeout"], len(stored["schedule"])) == (60, 100)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["null", '"odd"', "{}"])
async def test_a_schedule_that_is_none_stops_nobody(database: Database, schedule: str) -> None:
    odd = await endpoint(database, "ep_1")
    await execute(
        database,
        f"""UPDATE projections.webhook_endpoints SET policy = policy || '{{"schedule": {schedule}}}'""",
    )
    other = await endpoint(database, "ep_2")
    for name in (odd, other):
        await deliver_events(database, name)
    assert {one.endpoint_id for one in await take(database)} == {odd, other}


async def test_the_circuit_of_what_never_opens_it_opens(database: Database) -> None:
    policy = AT_ONCE.model_copy(
        update={"breaker_pause": Backoff(timedelta(seconds=1), timedelta(seconds=1), 0)}
    )
    ep = await endpoint(database, "ep_1", policy=policy)
    await deliver_events(database, ep, 5)
    await bound(database, "breaker_failures", most=3)
    await bound(database, "breaker_pause", least=100)
    await end_all(database, await take(database, 3), "retry")
    assert await take(database) == []
    pause = "SELECT extract(EPOCH FROM blocked_until - now())::float8 FROM projections.webhook_circuits"
    assert 90 < await fetchval(database, pause) <= 100


async def test_attempts_of_lost_processes_count_against_the_bound(database: Database) -> None:
    ep = await endpoint(database, "ep_1", policy=AT_ONCE)
    await deliver_events(database, ep)
    await bound(database, "attempts", most=1)
    await take(database)
    await execute(database, "UPDATE projections.webhook_deliveries SET lease_until = now() - interval '1 s'")
    async with database.session() as session:
        await reap(session)
    assert await states(database, ep) == ["dead"]


@pytest.mark.slow
async def test_a_worker_holds_endpoints_to_the_bounds_and_cannot_change_them(
    bounded: Database, login: Any
) -> None:
    ep = await endpoint(bounded, "ep_1", policy=AT_ONCE, max_in_flight=1000)
    await deliver_events(bounded, ep, 5)
    async with connect(login("projections_worker")) as worker:
        assert len(await take(worker)) == 2
        with pytest.raises(Exception, match="permission denied"):
            await bound(worker, "max_in_flight", most=1000)


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("nothing", {}, "there is no bound 'nothing'; there are max_in_flight"),
        ("timeout", {"least": 21}, "the least timeout would be 21, more than the most, 20"),
        ("timeout", {"most": 0}, "is 1 to 60, not 0"),
    ],
)
async def test_a_bound_that_cannot_be_is_refused(
    bounded: Database, name: str, values: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidEndpoint, match=says):
        await bound(bounded, name, **values)
