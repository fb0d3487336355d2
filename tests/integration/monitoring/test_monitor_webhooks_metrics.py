"""What Prometheus and probes are told of webhooks: by the database of all, and by a process of what it delivers."""

from __future__ import annotations

import asyncio
import json
import math
from datetime import UTC, datetime, timedelta

import pytest

from journal import Database
from projections.monitoring.probes import delivering_app, worker_app
from projections.monitoring.worker_metrics import WorkerMetrics
from projections.webhooks.deliverer import deliver
from projections.webhooks.delivery_metrics import WebhookMetrics
from projections.webhooks.failure_codes import FAILURES
from projections.webhooks.outgoing import Outgoing
from projections.webhooks.response_reading import Reply
from tests.fixtures.attempts import claimed, reply
from tests.fixtures.http import Series, asking, pulse, scrape, series
from tests.fixtures.monitor import told_by, told_by_the_database
from tests.fixtures.projections import execute
from tests.fixtures.webhooks import deliver_events, end_all, endpoint, take

_CREDENTIAL = """
INSERT INTO projections.webhook_credentials (endpoint_id, kind, facts, secret) VALUES ($1, $2, $3::text::json, 's')
"""
OUTGOING = Outgoing("https://example.com/hook", (), b"{}")


def of(samples: dict[Series, float], name: str, **labels: str) -> float:
    return samples[series(f"projections_webhook_{name}", **labels)]


class Held:
    """A sender whose answers the test lets go."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()
        self.closed = False

    async def send(self, _: Outgoing) -> Reply:
        self.begun.set()
        await self.let_go.wait()
        return reply("204")

    async def aclose(self) -> None:
        self.closed = True


async def test_endpoints_and_deliveries_are_told_by_state(database: Database) -> None:
    await endpoint(database, "a")
    await endpoint(database, "b", ordering="key")
    await endpoint(database, "c")
    await deliver_events(database, "a")
    await end_all(database, await take(database), "dead")
    await deliver_events(database, "b", 3, key="k")
    await take(database)
    await deliver_events(database, "a", 2)
    await execute(database, "SELECT projections._set_endpoint_state_v1(NULL, 'c', 'paused', NULL)")

    samples = await told_by_the_database(database)

    assert [of(samples, "endpoints", state=state) for state in ("active", "paused", "disabled")] == [2, 1, 0]
    told = [of(samples, "deliveries", state=one) for one in ("dead", "in_flight", "waiting", "pending")]
    assert told == [1, 1, 2, 2]


async def test_without_endpoints_all_of_them_are_zero(database: Database) -> None:
    samples = await told_by_the_database(database)

    assert samples.pop(series("projections_webhook_certificate_expires_in_seconds")) == math.inf
    assert {value for (name, _), value in samples.items() if name.startswith("projections_webhook_")} == {0}


async def test_what_is_due_and_nobody_takes_is_overdue(database: Database) -> None:
    await endpoint(database, "a")
    await deliver_events(database, "a")
    await execute(
        database,
        "UPDATE projections.webhook_deliveries "
        "SET next_at = next_at - interval '10 min', created_at = created_at - interval '1 h'",
    )
    await execute(
        database, "UPDATE projections.webhook_endpoints SET updated_at = updated_at - interval '1 day'"
    )

    samples = await told_by_the_database(database)

    assert 600 <= of(samples, "overdue_seconds") < 700
    assert 3600 <= of(samples, "lag_seconds") < 3700


async def test_what_was_in_flight_when_all_processes_died_is_overdue(database: Database) -> None:
    await endpoint(database, "a")
    await deliver_events(database, "a")
    await take(database)
    await execute(
        database,
        "UPDATE projections.webhook_deliveries SET lease_until = clock_timestamp() - interval '10 min'",
    )
    await execute(
        database, "UPDATE projections.webhook_endpoints SET updated_at = updated_at - interval '1 day'"
    )

    samples = await told_by_the_database(database)

    assert (of(samples, "deliveries", state="in_flight"), of(samples, "deliveries", state="pending")) == (
        0,
        1,
    )
    assert 600 <= of(samples, "overdue_seconds") < 700


@pytest.mark.slow
@pytest.mark.parametrize(
    "held",
    [
        "UPDATE projections.webhook_circuits SET blocked_until = clock_timestamp() + interval '1 min'",
        "UPDATE projections.webhook_endpoints SET state = 'disabled'",
        "UPDATE projections.webhook_deliveries SET next_at = clock_timestamp() + interval '1 min'",
        "UPDATE projections.webhook_circuits SET refilled_at = clock_timestamp()",
    ],
)
async def test_what_is_held_back_is_not_overdue(database: Database, held: str) -> None:
    await endpoint(database, "a")
    await deliver_events(database, "a")
    await execute(database, "UPDATE projections.webhook_deliveries SET next_at = next_at - interval '10 min'")
    await execute(
        database, "UPDATE projections.webhook_endpoints SET updated_at = updated_at - interval '1 day'"
    )
    await execute(database, held)

    assert of(await told_by_the_database(database), "overdue_seconds") < 60


@pytest.mark.slow
async def test_an_endpoint_that_fails_is_told_with_for_how_long(database: Database) -> None:
    await endpoint(database, "a")
    await deliver_events(database, "a")
    await end_all(database, await take(database), "retry", delay=timedelta(hours=1))
    await execute(
        database, "UPDATE projections.webhook_circuits SET failing_since = failing_since - interval '2 h'"
    )

    samples = await told_by_the_database(database)

    assert of(samples, "failing_endpoints") == 1
    assert 7200 <= of(samples, "failing_seconds") < 7300


async def test_an_endpoint_that_failed_and_has_nothing_to_send_does_not_fail(database: Database) -> None:
    await endpoint(database, "a")
    await deliver_events(database, "a")
    await end_all(database, await take(database), "dead")

    samples = await told_by_the_database(database)

    assert (of(samples, "failing_endpoints"), of(samples, "failing_seconds")) == (0, 0)


@pytest.mark.slow
async def test_client_certificates_tell_when_the_next_one_expires(database: Database) -> None:
    samples = await told_by_the_database(database)
    assert of(samples, "expired_certificates") == 0

    ends = {"none": None, "gone": -1, "soon": 3, "later": 90, "disabled": 1, "long gone": -400, "paused": 2}
    for name, days in ends.items():
        await endpoint(database, name)
        if days is not None:
            until = (datetime.now(UTC) + timedelta(days=days)).isoformat()
            facts = json.dumps(
                {"subject": "CN=s", "fingerprint": "0", "not_before": until, "not_after": until}
            )
            await execute(database, _CREDENTIAL, name, "certificate", facts)
    facts = json.dumps({"token_url": "https://example.com/", "client_id": "c"})
    await execute(database, _CREDENTIAL, "soon", "oauth", facts)
    for name in ("disabled", "paused"):
        await execute(database, "SELECT projections._set_endpoint_state_v1(NULL, $1, $2, NULL)", name, name)

    samples = await told_by_the_database(database)

    assert of(samples, "expired_certificates") == 2
    assert (
        timedelta(days=1.9)
        < timedelta(seconds=of(samples, "certificate_expires_in_seconds"))
        < timedelta(days=2)
    )
    assert of(samples, "endpoints", state="active") == 5


async def test_no_label_names_an_endpoint_or_a_tenant(database: Database) -> None:
    await endpoint(database, "a")
    metrics = WebhookMetrics()
    metrics.attempted(claimed(), reply("500"), "retry")

    samples = {**await told_by_the_database(database), **told_by(metrics)}

    labels = {
        label for name, found in samples for label, _ in found if name.startswith("projections_webhook")
    }
    assert labels == {"state", "code", "verdict", "le"}


def test_attempts_are_counted_by_class_of_code_and_verdict() -> None:
    metrics = WebhookMetrics()
    for code, verdict in (
        ("200", "done"),
        ("204", "done"),
        ("503", "retry"),
        ("410", "dead"),
        ("timeout", "retry"),
    ):
        metrics.attempted(claimed(), reply(code), verdict)

    samples = told_by(metrics)

    assert of(samples, "attempts_total", code="2xx", verdict="done") == 2
    assert of(samples, "attempts_total", code="5xx", verdict="retry") == 1
    assert of(samples, "attempts_total", code="4xx", verdict="dead") == 1
    assert of(samples, "attempts_total", code="timeout", verdict="retry") == 1


def test_codes_that_a_sender_makes_up_are_one_series() -> None:
    metrics = WebhookMetrics()
    for code in (*FAILURES, "made up", "999", "https://example.com", "\N{SUPERSCRIPT TWO}"):
        metrics.attempted(claimed(), reply(code), "retry")

    samples = told_by(metrics)

    codes = {dict(labels)["code"] for name, labels in samples if name.endswith("attempts_total")}
    assert codes == {*FAILURES, "other"}
    assert of(samples, "attempts_total", code="other", verdict="retry") == 4


def test_times_of_attempts_and_from_event_to_delivery_are_histograms() -> None:
    metrics = WebhookMetrics()
    metrics.attempted(claimed(timedelta(seconds=20)), reply("500", timedelta(milliseconds=30)), "retry")
    metrics.attempted(claimed(timedelta(seconds=80)), reply("200", timedelta(milliseconds=70)), "done")

    samples = told_by(metrics)

    assert of(samples, "attempt_duration_seconds_bucket", le="0.05") == 1
    assert of(samples, "attempt_duration_seconds_sum") == pytest.approx(0.1)
    assert of(samples, "delivered_after_seconds_count") == 1
    assert of(samples, "delivered_after_seconds_sum") == pytest.approx(80.07)


async def test_requests_on_their_way_are_counted_by_a_watched_sender() -> None:
    metrics, held = WebhookMetrics(), Held()
    sender = metrics.watching(held)
    task = asyncio.create_task(sender.send(OUTGOING))
    await held.begun.wait()
    during = of(told_by(metrics), "requests_in_flight")
    held.let_go.set()
    answered = await task
    await sender.aclose()

    assert (during, of(told_by(metrics), "requests_in_flight")) == (1, 0)
    assert (answered.code, held.closed) == ("204", True)


async def test_a_request_that_is_given_up_is_on_its_way_no_longer() -> None:
    metrics, held = WebhookMetrics(), Held()
    task = asyncio.create_task(metrics.watching(held).send(OUTGOING))
    await held.begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert of(told_by(metrics), "requests_in_flight") == 0


async def test_a_process_that_delivers_serves_what_it_counts_and_that_it_is_ready(database: Database) -> None:
    await endpoint(database, "a")
    await deliver_events(database, "a")
    metrics, held, stop = WebhookMetrics(), Held(), asyncio.Event()
    app = delivering_app(metrics, database)
    async with asyncio.timeout(300), asking(app) as client:
        before = (await client.get("/readyz")).status_code
        task = asyncio.create_task(deliver(database, metrics.watching(held), observer=metrics, stop=stop))
        await held.begun.wait()
        during, ready = await scrape(client), (await client.get("/readyz")).status_code
        held.let_go.set()
        stop.set()
        await task
        after = await scrape(client)

    assert (before, ready) == (503, 200)
    assert (of(during, "requests_in_flight"), of(during, "deliverer_ready")) == (1, 1)
    assert of(after, "attempts_total", code="2xx", verdict="done") == 1
    assert of(after, "outcomes_lost_total") == 0
    assert after[series("projections_database_up")] == 1


async def test_an_outcome_that_was_not_stored_is_counted(database: Database) -> None:
    await endpoint(database, "a")
    await deliver_events(database, "a")
    metrics, held, stop = WebhookMetrics(), Held(), asyncio.Event()
    async with asyncio.timeout(300):
        task = asyncio.create_task(deliver(database, held, observer=metrics, stop=stop))
        await held.begun.wait()
        await execute(database, "DELETE FROM projections.webhook_endpoints")
        held.let_go.set()
        stop.set()
        await task

    assert of(told_by(metrics), "outcomes_lost_total") == 1


async def test_a_worker_that_also_delivers_serves_both(database: Database) -> None:
    workers, metrics = WorkerMetrics(), WebhookMetrics()
    workers.heartbeat(pulse())
    async with asking(worker_app(workers, database, metrics)) as client:
        unready = (await client.get("/readyz")).json()
        metrics.ready(ready=True)
        ready = (await client.get("/readyz")).status_code
        samples = await scrape(client)

    assert (unready["reason"], ready) == ("no delivery has been asked for yet", 200)
    assert of(samples, "deliverer_ready") == 1
    assert samples[series("projections_worker_lease_seconds")] == 10
