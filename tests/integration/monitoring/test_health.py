"""What probes are told, who is told, and how the server lives inside of a process."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from journal import ConnectionSettings, Database, connect
from projections import SliceRange
from projections.http.addresses import Address
from projections.http.authentication import TokenMissing
from projections.http.serving import AddressInUse, serving
from projections.monitoring import health, probes
from projections.monitoring.probes import monitor_probe, worker_app
from projections.monitoring.worker_metrics import WorkerMetrics
from projections.testing import run_until_caught_up
from tests.fixtures.http import ANY_PORT, asking, counting, pulse
from tests.fixtures.projections import EFFECTS, execute, happen, recording

TOKEN = "open-sesame-open"


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(max_connections=20)) as pool:
        await execute(pool, EFFECTS)
        yield pool


def monitor(database: Database) -> Starlette:
    probe = monitor_probe(database)
    return Starlette(routes=probe.routes, lifespan=probe.lifespan)


def joined_metrics(age: float = 0.0) -> WorkerMetrics:
    metrics = WorkerMetrics()
    metrics.heartbeat(pulse(age=age))
    return metrics


async def get(app: Any, path: str) -> httpx.Response:
    async with asking(app) as client:
        return await client.get(path)


@pytest.fixture
async def closed(dsn: str) -> Database:
    """A database that lends nothing any more."""
    async with connect(dsn) as pool:
        pass
    return pool


async def test_a_process_is_alive_while_its_event_loop_turns(journal: Database) -> None:
    response = await get(monitor(journal), "/livez")

    assert response.status_code == 200
    assert response.json()["status"] == "ok"


async def test_a_process_is_not_alive_when_its_event_loop_hardly_turns(
    journal: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "SLOW_TURN", timedelta(0))

    response = await get(monitor(journal), "/livez")

    assert response.status_code == 503
    assert response.json()["status"] == "failing"
    assert response.json()["event_loop_turn_seconds"] > 0


async def test_a_turn_of_the_event_loop_takes_as_long_as_what_runs_in_it() -> None:
    def hold_the_loop() -> None:
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            pass

    asyncio.get_running_loop().call_soon(hold_the_loop)

    assert await health.time_of_a_turn() >= timedelta(seconds=0.05)


@pytest.mark.slow
async def test_a_worker_is_ready_once_it_has_joined(journal: Database) -> None:
    before = await get(worker_app(WorkerMetrics(), journal), "/readyz")
    async with counting(journal, recording()) as (metrics, _):
        after = await get(worker_app(metrics, journal), "/readyz")

    assert (before.status_code, after.status_code) == (503, 200)
    assert before.json() == {"status": "failing", "reason": "the worker has not joined yet"}
    assert after.json() == {"status": "ok"}


async def test_a_worker_whose_lease_has_ended_is_not_ready(journal: Database) -> None:
    response = await get(worker_app(joined_metrics(age=11), journal), "/readyz")

    assert response.status_code == 503
    assert response.json()["reason"] == "the worker's lease has ended"


@pytest.mark.slow
async def test_without_its_database_a_process_is_alive_and_not_ready(closed: Database) -> None:
    for app in (monitor(closed), worker_app(joined_metrics(), closed)):
        async with asking(app) as client:
            ready, alive = await client.get("/readyz"), await client.get("/livez")

        assert (ready.status_code, alive.status_code) == (503, 200)
        assert ready.json() == {"status": "failing", "reason": "the database does not answer"}


async def old_backlog(database: Database) -> None:
    """An event of an hour ago in each half of the slices, of which nothing is handled."""
    await run_until_caught_up(database, recording(), ranges=2)
    await happen(database, "a", "yz")
    for table in ("events", "sources"):
        await execute(
            database, f"UPDATE projections.{table} SET db_timestamp = db_timestamp - interval '1 hour'"
        )
    await execute(database, "UPDATE projections.projection_ranges SET horizon = horizon - interval '2 hours'")


@pytest.mark.slow
async def test_a_lag_that_lasts_is_told_with_projection_and_range(journal: Database) -> None:
    await old_backlog(journal)

    response = await get(monitor(journal), "/lagz?above=30s&for=5m")

    told = response.json()
    assert response.status_code == 503
    assert (told["status"], told["above_seconds"], told["for_seconds"]) == ("failing", 30, 300)
    assert {(one["projection"], one["range"]) for one in told["lagging"]} == {
        ("p", "0-511"),
        ("p", "512-1023"),
    }
    assert all(3600 < one["lag_seconds"] < 3700 for one in told["lagging"])
    assert all(datetime.fromisoformat(one["since"]) for one in told["lagging"])


@pytest.mark.slow
async def test_a_lag_is_fine_below_the_limit_and_within_the_time(journal: Database) -> None:
    await old_backlog(journal)

    async with asking(monitor(journal)) as client:
        found = [await client.get(f"/lagz?{query}") for query in ("above=2h&for=0s", "above=30s&for=2h")]

    assert [response.status_code for response in found] == [200, 200]
    assert found[0].json() == {"status": "ok", "above_seconds": 7200, "for_seconds": 0, "lagging": []}


@pytest.mark.slow
async def test_a_worker_checks_the_lag_of_its_own_ranges_only(journal: Database) -> None:
    await old_backlog(journal)
    await execute(journal, "UPDATE projections.projection_ranges SET owner = 'this' WHERE min_slice = 512")
    metrics = joined_metrics()
    metrics.started("p", SliceRange(512, 1023))

    response = await get(worker_app(metrics, journal), "/lagz")

    assert [one["range"] for one in response.json()["lagging"]] == ["512-1023"]


async def test_a_lag_that_can_not_be_known_is_not_fine(closed: Database) -> None:
    response = await get(monitor(closed), "/lagz")

    assert response.status_code == 503
    assert response.json()["reason"]


async def test_a_text_that_is_not_a_duration_is_refused(journal: Database) -> None:
    response = await get(monitor(journal), "/lagz?above=soon")

    assert response.status_code == 400
    assert "write 500ms, 30s, 5m, 1h30m or 1d" in response.json()["reason"]


@pytest.mark.slow
async def test_probes_need_no_token_and_metrics_do(journal: Database) -> None:
    async with asking(monitor(journal), TOKEN) as client:
        paths = ("/livez", "/readyz", "/metrics", "/lagz")
        without = [(await client.get(path)).status_code for path in paths]
        with_token = [(await client.get(path, auth=("me", TOKEN))).status_code for path in paths]

    assert without == [200, 200, 401, 401]
    assert with_token == [200] * 4


async def test_an_address_that_others_reach_is_not_served_without_a_token(journal: Database) -> None:
    with pytest.raises(TokenMissing, match="set PROJECTIONS_TOKEN"):
        async with serving(Address("0.0.0.0", 0), monitor(journal)):
            pass


async def test_an_address_in_use_is_named(journal: Database) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            AddressInUse, match=f"nothing can listen at 127.0.0.1:{port}: Address already in use"
        ):
            async with serving(Address("127.0.0.1", port), monitor(journal)):
                pass


@pytest.mark.slow
@pytest.mark.parametrize("host", ["localhost", "::1"])
async def test_other_names_of_loopback_are_served(journal: Database, host: str) -> None:
    async with serving(Address(host, 0), monitor(journal)) as address, httpx.AsyncClient() as client:
        assert (await client.get(f"http://{address}/livez")).status_code == 200


async def test_a_page_of_another_site_is_not_answered(journal: Database) -> None:
    async with asking(monitor(journal)) as client:
        response = await client.get("/metrics", headers={"host": "rebound.example"})

    assert response.status_code == 421


async def test_serving_leaves_the_signals_of_the_process_alone(journal: Database) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    async with serving(ANY_PORT, monitor(journal)):
        during = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    assert during == before


async def test_an_application_that_does_not_start_is_an_error_and_ends_nothing_else() -> None:
    @asynccontextmanager
    async def fail(_: Starlette) -> AsyncIterator[None]:
        raise ValueError("no")
        yield

    with pytest.raises(RuntimeError, match="did not start"):
        async with serving(ANY_PORT, Starlette(lifespan=fail)):
            pass


@pytest.mark.slow
async def test_an_answer_under_way_does_not_keep_the_server_from_ending(journal: Database) -> None:
    asked, closed = asyncio.Event(), asyncio.Event()

    async def wait(_: Any) -> Response:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            closed.set()
        return Response()

    async with httpx.AsyncClient(timeout=300) as client:
        async with serving(ANY_PORT, Starlette(routes=[Route("/", wait)])) as address:
            task = asyncio.create_task(client.get(f"http://{address}/"))
            await asked.wait()
        await closed.wait()
        with pytest.raises(httpx.HTTPError):
            (await task).raise_for_status()
