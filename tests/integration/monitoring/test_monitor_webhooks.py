"""What the monitor's page is sent of endpoints and their deliveries, and what its buttons do with them."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from journal import Database
from projections.monitoring.web.snapshot_json import DEAD_LISTED, LISTED
from projections.webhooks import endpoint_stats
from projections.webhooks.stats import newest_dead, webhook_totals
from tests.fixtures.monitor import act_alone, first, monitoring
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.webhooks import deliver_events, end_all, endpoint, states, take

SECRET_URL = "https://user:pw@example.com:8443/T000/secret?token=secret"
STATE = "SELECT state FROM projections.webhook_endpoints WHERE endpoint_id = $1"


@pytest.fixture
async def hooks(database: Database) -> Database:
    """Endpoint a with two that arrived, two dead letters and one to come; b with nothing, and a URL with secrets."""
    await endpoint(database, "a")
    await endpoint(database, "b", tenant="globex", url=SECRET_URL)
    await deliver_events(database, "a", ids=["ev-1", "ev-2"])
    await end_all(database, await take(database), "done", took=timedelta(milliseconds=40))
    await deliver_events(database, "a", ids=["ev-3", "ev-4"])
    await end_all(database, await take(database), "dead", took=timedelta(milliseconds=10))
    await deliver_events(database, "a", ids=["ev-5"], not_before=datetime.now(UTC) + timedelta(hours=1))
    return database


async def document(database: Database) -> dict[str, Any]:
    async with monitoring(database) as client:
        return await first(client, lambda found: "endpoints" in found)


@pytest.mark.slow
async def test_the_stream_tells_which_urls_are_verified(hooks: Database) -> None:
    await execute(hooks, "UPDATE projections.webhook_endpoints SET verified_url = url")
    await execute(hooks, "UPDATE projections.webhook_endpoints SET url = url || '/' WHERE endpoint_id = 'b'")
    found = await document(hooks)
    assert {each["id"]: each["verified"] for each in found["endpoints"]} == {"a": True, "b": False}


async def test_the_stream_tells_how_endpoints_fare(hooks: Database) -> None:
    found = await document(hooks)

    told, quiet = found["endpoints"]
    assert (told["id"], told["tenant"], told["host"], told["state"]) == ("a", "acme", "example.com", "active")
    assert (told["success"], told["attempts"]) == (0.5, 4)
    assert (told["median"], told["slowest_percent"]) == (pytest.approx(0.025), pytest.approx(0.04))
    assert [told[name] for name in ("pending", "waiting", "in_flight", "dead")] == [1, 0, 0, 2]
    assert (told["failures"], told["lag"] > 0, told["failing_since"] <= found["at"]) == (2, True, True)
    assert (quiet["id"], quiet["success"], quiet["median"], quiet["failing_since"]) == ("b", None, None, None)
    assert (found["webhooks"]["active"], found["webhooks"]["dead"]) == (2, 2)


@pytest.mark.slow
async def test_of_a_url_only_the_host_is_told(hooks: Database) -> None:
    found = await document(hooks)

    assert found["endpoints"][1]["host"] == "example.com:8443"
    assert "secret" not in json.dumps(found)
    assert "pw" not in json.dumps(found)


@pytest.mark.slow
async def test_the_stream_tells_of_dead_letters_with_their_codes(hooks: Database) -> None:
    newest, oldest = (await document(hooks))["dead_deliveries"]

    assert (newest["event"], oldest["event"]) == ("ev-4", "ev-3")
    assert (newest["endpoint"], newest["topic"], newest["code"], newest["attempts"]) == ("a", "t", "500", 1)


@pytest.mark.slow
async def test_of_many_dead_letters_the_newest_of_each_endpoint_are_listed(hooks: Database) -> None:
    await deliver_events(hooks, "a", DEAD_LISTED)
    await deliver_events(hooks, "b", ids=["rare"], tenant="globex")
    await execute(hooks, "UPDATE projections.webhook_deliveries SET state = 'dead' WHERE state = 'pending'")

    found = await document(hooks)

    of_a = [one for one in found["dead_deliveries"] if one["endpoint"] == "a"]
    assert len(of_a) == DEAD_LISTED
    assert {"ev-3", "ev-4"}.isdisjoint(one["event"] for one in of_a)
    assert [one["event"] for one in found["dead_deliveries"] if one["endpoint"] == "b"] == ["rare"]
    assert found["webhooks"]["dead"] == DEAD_LISTED + 4


@pytest.mark.slow
async def test_of_many_endpoints_those_with_troubles_are_listed(hooks: Database) -> None:
    for number in range(LISTED):
        await endpoint(hooks, f"0{number:03}")
    await execute(hooks, "SELECT projections._set_endpoint_state_v1(NULL, 'b', 'paused', NULL)")

    found = await document(hooks)

    listed = [one["id"] for one in found["endpoints"]]
    assert (len(listed), found["webhooks"]["active"]) == (LISTED, LISTED + 1)
    assert {"a", "b"} <= set(listed)


async def test_without_endpoints_nothing_is_told_of_them(database: Database) -> None:
    found = await document(database)

    assert (found["endpoints"], found["dead_deliveries"]) == ([], [])


async def test_success_and_times_are_of_the_newest_attempts_alone(hooks: Database) -> None:
    async with hooks.session() as session:
        (newest, _), (whole, _) = (
            await endpoint_stats(session, sample=2),
            await endpoint_stats(session, sample=None),
        )

    assert (newest.succeeded, newest.failed, newest.success) == (0, 2, 0.0)
    assert (whole.succeeded, whole.failed) == (2, 2)


async def test_attempts_of_more_than_an_hour_ago_are_left_out(hooks: Database) -> None:
    await execute(
        hooks, "UPDATE projections.webhook_attempts SET attempted_at = attempted_at - interval '61 minutes'"
    )

    async with hooks.session() as session:
        found, _ = await endpoint_stats(session)

    assert (found.success, found.median) == (None, None)


@pytest.mark.parametrize(("state", "rest"), [("waiting", ""), ("dead", "ORDER BY delivery_id DESC LIMIT 20")])
async def test_what_is_held_is_found_by_an_index_in_its_order(hooks: Database, state: str, rest: str) -> None:
    """Whatever has been delivered meanwhile: PostgreSQL would rather read the whole of so small a table."""
    async with hooks.transaction() as session:
        await session.execute("SET LOCAL enable_seqscan = off")
        plan = await session.fetch(
            f"EXPLAIN SELECT delivery_id FROM projections.webhook_deliveries "
            f"WHERE endpoint_id = 'a' AND state = '{state}' {rest}"
        )

    told = "\n".join(row["QUERY PLAN"] for row in plan)
    assert "webhook_deliveries_held_idx" in told
    assert "Sort" not in told


async def test_what_is_in_flight_or_waits_counts_for_the_lag_and_what_is_dead_does_not(
    database: Database,
) -> None:
    await endpoint(database, "a", ordering="key")
    await deliver_events(database, "a", 2, key="k")
    await take(database)
    await execute(
        database, "UPDATE projections.webhook_deliveries SET created_at = created_at - interval '1 minute'"
    )

    async with database.session() as session:
        (found,) = await endpoint_stats(session)
        totals = await webhook_totals(session)

    assert (found.pending, found.waiting, found.in_flight) == (0, 1, 1)
    assert 60 <= found.lag == pytest.approx(totals.lag, abs=5)
    assert totals.overdue == 0


async def test_dead_letters_are_listed_within_both_limits(hooks: Database) -> None:
    async with hooks.session() as session:
        one = await newest_dead(session, ["a", "b"], each=1, limit=10)
        none = await newest_dead(session, ["b"], each=10, limit=10)

    assert ([found.event_id for found in one], none) == (["ev-4"], [])


@pytest.mark.slow
async def test_a_dead_letter_is_sent_again(hooks: Database) -> None:
    answered = await act_alone(hooks, "retry-delivery", endpoint="a", event_id="ev-3")

    assert answered.json() == {"done": "ev-3 is sent again"}
    assert await states(hooks, "a") == ["done", "done", "pending", "dead", "pending"]


@pytest.mark.slow
async def test_a_dead_letter_is_dropped(hooks: Database) -> None:
    answered = await act_alone(hooks, "drop-delivery", endpoint="a", event_id="ev-3")

    assert answered.json() == {"done": "ev-3 is dropped"}
    assert await states(hooks, "a") == ["done", "done", "dropped", "dead", "pending"]


@pytest.mark.slow
async def test_what_has_been_sent_again_meanwhile_is_left_alone(hooks: Database) -> None:
    await act_alone(hooks, "retry-delivery", endpoint="a", event_id="ev-3")
    await end_all(hooks, await take(hooks), "done")

    answered = await act_alone(hooks, "retry-delivery", endpoint="a", event_id="ev-3")

    assert (answered.status_code, "is done, not dead" in answered.json()["error"]) == (409, True)
    assert (await states(hooks, "a"))[2] == "done"


@pytest.mark.slow
async def test_all_dead_letters_of_an_endpoint_are_sent_again(hooks: Database) -> None:
    await deliver_events(hooks, "b", tenant="globex")
    await end_all(hooks, await take(hooks), "dead")

    answered = await act_alone(hooks, "retry-endpoint", endpoint="a")

    assert answered.json() == {"done": "2 deliveries are sent again to a"}
    assert await states(hooks, "a") == ["done", "done", *["pending"] * 3]
    assert await states(hooks, "b") == ["dead"]


@pytest.mark.slow
async def test_an_endpoint_is_paused_resumed_and_enabled(hooks: Database) -> None:
    seen = []
    for action in ("pause-endpoint", "resume-endpoint"):
        seen.append(
            ((await act_alone(hooks, action, endpoint="a")).json(), await fetchval(hooks, STATE, "a"))
        )
    await execute(
        hooks, "SELECT projections._set_endpoint_state_v1(NULL, 'a', 'disabled', 'it answered 410 Gone')"
    )
    seen.append(
        ((await act_alone(hooks, "enable-endpoint", endpoint="a")).json(), await fetchval(hooks, STATE, "a"))
    )

    assert seen == [
        ({"done": "a is paused"}, "paused"),
        ({"done": "a goes on"}, "active"),
        ({"done": "a is enabled"}, "active"),
    ]


@pytest.mark.slow
async def test_resume_does_not_enable_what_has_been_disabled_meanwhile(hooks: Database) -> None:
    await execute(hooks, "SELECT projections._set_endpoint_state_v1(NULL, 'a', 'disabled', NULL)")

    answered = await act_alone(hooks, "resume-endpoint", endpoint="a")

    assert (answered.status_code, answered.json()["error"]) == (
        409,
        "endpoint 'a' is disabled, not paused: enable it first",
    )
    assert await fetchval(hooks, STATE, "a") == "disabled"


@pytest.mark.slow
async def test_dead_letters_of_a_disabled_endpoint_stay(hooks: Database) -> None:
    await execute(hooks, "SELECT projections._set_endpoint_state_v1(NULL, 'a', 'disabled', NULL)")

    one = await act_alone(hooks, "retry-delivery", endpoint="a", event_id="ev-3")
    every = await act_alone(hooks, "retry-endpoint", endpoint="a")

    assert (one.status_code, every.status_code) == (409, 409)
    assert "disabled" in one.json()["error"]
    assert (await states(hooks, "a"))[2:4] == ["dead", "dead"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "body", "status"),
    [
        ("pause-endpoint", {"endpoint": "x"}, 409),
        ("pause-endpoint", {"endpoint": "a", "tenant": "acme"}, 400),
        ("enable-endpoint", {"endpoint": "a"}, 409),
        ("retry-delivery", {"endpoint": "a"}, 400),
        ("retry-delivery", {"endpoint": "a", "event_id": 3}, 400),
        ("retry-delivery", {"endpoint": "b", "event_id": "ev-3"}, 409),
        ("drop-delivery", {"endpoint": "b", "event_id": "ev-3"}, 409),
        ("retry-endpoint", {"endpoint": "b"}, 409),
        ("retry-endpoint", {}, 400),
    ],
)
async def test_what_can_not_be_is_refused_and_changes_nothing(
    hooks: Database, action: str, body: dict[str, Any], status: int
) -> None:
    answered = await act_alone(hooks, action, **body)

    assert answered.status_code == status
    assert answered.json()["error"]
    assert await states(hooks, "a") == ["done", "done", "dead", "dead", "pending"]
    assert await fetchval(hooks, STATE, "a") == "active"


@pytest.mark.slow
async def test_actions_of_endpoints_come_from_the_page_alone(hooks: Database) -> None:
    names = (
        "pause-endpoint",
        "resume-endpoint",
        "enable-endpoint",
        "retry-delivery",
        "drop-delivery",
        "retry-endpoint",
    )
    async with monitoring(hooks) as client:
        answered = [await client.post(f"/actions/{name}", json={"endpoint": "a"}) for name in names]

    assert [one.status_code for one in answered] == [403] * 6
    assert await fetchval(hooks, STATE, "a") == "active"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("missing", "modules"),
    [
        (
            ("aiohttp", "yarl", "multidict", "cryptography", "cronsim"),
            "projections.monitoring.web.app, projections.monitoring.probes, projections.monitoring.tracing",
        ),
        (
            ("aiohttp", "cryptography", "cronsim", "prometheus_client", "starlette", "uvicorn"),
            "projections.monitoring",
        ),
    ],
    ids=["a monitor", "a snapshot"],
)
def test_what_is_monitored_needs_none_of_what_delivering_needs(
    missing: tuple[str, ...], modules: str
) -> None:
    program = f"""
import sys
for name in {missing}:
    sys.modules[name] = None
import {modules}
from projections.extras import registered
assert len(registered("projections.monitoring")) == 2
"""

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
