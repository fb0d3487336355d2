"""What Prometheus is told: by a worker of what it does, and by the database of everything."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette

import offsets
from journal import ConnectionSettings, Database, Event, append, connect
from projections import Recovery, SliceRange
from projections.monitoring import serve_metrics
from projections.monitoring.cache import Cache, LookFailed
from projections.monitoring.metrics import write_metrics
from projections.monitoring.probes import delivering_app, monitor_probe, worker_app
from projections.monitoring.worker_metrics import WorkerMetrics
from projections.testing import run_until_caught_up
from projections.webhooks.delivery_metrics import WebhookMetrics
from tests.fixtures.http import Series, asking, counting, parse, pulse, series
from tests.fixtures.monitor import all_metrics, scraped, told_by, told_by_the_database
from tests.fixtures.projections import (
    EFFECTS,
    NO_RETRY,
    Happened,
    execute,
    failing,
    fetchval,
    happen,
    recording,
)

OPERATIONS = Path(__file__).parents[3] / "docs/operations"
LOW, HIGH = "0-511", "512-1023"
IN_LOW, IN_HIGH = "a", "yz"  # slices 97 and 801


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(max_connections=20)) as pool:
        await execute(pool, EFFECTS)
        yield pool


def ranges_of(samples: Iterable[Series], name: str) -> set[str]:
    return {dict(labels)["range"] for found, labels in samples if found == name}


@pytest.mark.slow
async def test_a_worker_tells_what_it_has_handled_by_range(journal: Database) -> None:
    async with counting(journal, recording(), ranges=2) as (metrics, told):
        await happen(journal, IN_LOW, IN_LOW, IN_HIGH)
        await told.first("handled", 2)
        samples = await scraped(worker_app(metrics, journal))

    def of(name: str, part: str) -> float:
        return samples[series(f"projections_{name}", projection="p", range=part)]

    assert of("worker_events_handled_total", LOW) == 2
    assert of("worker_events_handled_total", HIGH) == 1
    assert of("worker_batches_total", HIGH) == 1
    assert of("worker_handler_failures_total", LOW) == 0
    assert of("lag_seconds", LOW) == of("backlog_events", LOW) == 0
    assert samples[series("projections_worker_ranges", projection="p")] == 2
    assert samples[series("projections_worker_take_overs_total", projection="p")] == 0
    assert 0 <= samples[series("projections_worker_heartbeat_age_seconds")] < 30
    assert samples[series("projections_worker_lease_seconds")] == 10
    assert samples[series("projections_worker_event_loop_blocks_total")] == 0
    assert samples[series("projections_database_up")] == 1
    assert samples[series("projections_worker_batch_duration_seconds_count", projection="p")] >= 2


async def test_failures_skipped_events_and_parked_sources_are_counted_where_they_happen(
    journal: Database,
) -> None:
    skipping = recording(failing((IN_HIGH, 1)), "skips", recovery=Recovery.retry_and_skip(1))
    parking = recording(failing((IN_LOW, 1)), "parks", recovery=NO_RETRY)
    async with counting(journal, skipping, parking, ranges=2) as (metrics, told):
        await happen(journal, IN_LOW, IN_HIGH)
        await told.first("skipped")
        await told.first("parked")
        samples = told_by(metrics)

    def of(name: str, projection: str, part: str) -> float:
        return samples[series(f"projections_worker_{name}_total", projection=projection, range=part)]

    assert of("handler_failures", "skips", HIGH) == 2
    assert of("events_skipped", "skips", HIGH) == 1
    assert of("events_skipped", "skips", LOW) == 0
    assert of("handler_failures", "parks", LOW) == 1
    assert of("sources_parked", "parks", LOW) == 1
    assert of("sources_parked", "parks", HIGH) == 0


async def test_a_restart_is_counted_and_keeps_what_was_counted_before(journal: Database) -> None:
    failures = iter([True, False])

    async def fail_once(*_: Any) -> None:
        if next(failures, False):
            raise ValueError("once")

    async with counting(journal, recording(fail_once, recovery=Recovery.fail())) as (metrics, told):
        await happen(journal, "a")
        await told.first("handled")
        samples = told_by(metrics)

    assert samples[series("projections_worker_range_restarts_total", projection="p", range="0-1023")] == 1
    assert samples[series("projections_worker_handler_failures_total", projection="p", range="0-1023")] == 1


async def test_series_of_ranges_that_went_away_vanish(journal: Database) -> None:
    async with counting(journal, recording()) as (metrics, told):
        before = told_by(metrics)
        async with journal.session() as session:
            await offsets.rescale(session, "p", 2)
        await told.first("started", 3)
        between = told_by(metrics)
    after = told_by(metrics)

    counter = "projections_worker_events_handled_total"
    assert ranges_of(before, counter) == {"0-1023"}
    assert ranges_of(between, counter) == {LOW, HIGH}
    assert ranges_of(after, counter) == set()
    assert after[series("projections_worker_ranges", projection="p")] == 0


@pytest.mark.slow
async def test_a_range_that_was_lost_while_it_waited_for_a_restart_vanishes(journal: Database) -> None:
    await run_until_caught_up(journal, recording())
    metrics = WorkerMetrics()
    metrics.heartbeat(pulse())
    whole = SliceRange(0, 1023)
    metrics.started("p", whole)
    metrics.stopped("p", whole)
    metrics.failed("p", whole, ValueError())
    waiting = told_by(metrics)

    samples = await scraped(worker_app(metrics, journal))

    counter = "projections_worker_events_handled_total"
    assert ranges_of(waiting, counter) == {"0-1023"}
    assert ranges_of(samples, counter) == set()


@pytest.mark.slow
async def test_a_worker_tells_the_lag_of_its_own_ranges_only(journal: Database) -> None:
    await run_until_caught_up(journal, recording(), ranges=2)
    await happen(journal, IN_LOW, IN_HIGH, IN_HIGH)
    await execute(journal, "UPDATE projections.projection_ranges SET owner = 'this' WHERE min_slice = 512")
    metrics = WorkerMetrics()
    metrics.heartbeat(pulse())
    metrics.started("p", SliceRange(512, 1023))

    samples = await scraped(worker_app(metrics, journal))

    assert ranges_of(samples, "projections_lag_seconds") == {HIGH}
    assert samples[series("projections_backlog_events", projection="p", range=HIGH)] == 2
    assert samples[series("projections_lag_seconds", projection="p", range=HIGH)] > 0


async def test_take_overs_and_blocks_of_the_event_loop_are_counted(journal: Database) -> None:
    metrics = WorkerMetrics()
    metrics.taken_over("p", SliceRange(0, 511), "dead")
    metrics.taken_over("p", SliceRange(512, 1023), "dead")
    metrics.heartbeat(pulse(blocked=3))

    samples = told_by(metrics)

    assert samples[series("projections_worker_take_overs_total", projection="p")] == 2
    assert samples[series("projections_worker_event_loop_blocks_total")] == 3


async def test_the_length_of_batches_is_told_as_a_histogram() -> None:
    clock = iter([0.0, 0.003, 1.0, 61.0])
    metrics, whole = WorkerMetrics(lambda: next(clock)), SliceRange(0, 1023)
    for error in (None, ValueError()):
        metrics.batch_started("p", whole, [])
        metrics.batch_ended("p", whole, error)

    samples = told_by(metrics)

    name = "projections_worker_batch_duration_seconds"
    assert samples[series(f"{name}_bucket", projection="p", le="0.0025")] == 0
    assert samples[series(f"{name}_bucket", projection="p", le="0.005")] == 1
    assert samples[series(f"{name}_bucket", projection="p", le="30.0")] == 1
    assert samples[series(f"{name}_bucket", projection="p", le="+Inf")] == 2
    assert samples[series(f"{name}_sum", projection="p")] == 60.003


async def test_a_page_that_is_handled_inside_the_database_is_a_batch() -> None:
    metrics, whole = WorkerMetrics(), SliceRange(0, 1023)
    metrics.handled_page("p", whole, 20_000, datetime.now(UTC), 0.1)

    samples = told_by(metrics)

    assert (
        samples[series("projections_worker_events_handled_total", projection="p", range="0-1023")] == 20_000
    )
    assert samples[series("projections_worker_batch_duration_seconds_count", projection="p")] == 1


@pytest.mark.slow
async def test_a_worker_is_scraped_also_when_its_database_does_not_answer(dsn: str) -> None:
    async with connect(dsn) as database:
        async with counting(database, recording()) as (metrics, _):
            samples = told_by(metrics)
        app = worker_app(metrics, database)
        metrics.started("p", SliceRange(0, 1023))
    # The pool is closed: nothing is lent any more.

    samples = await scraped(app)

    assert samples[series("projections_database_up")] == 0
    assert samples[series("projections_worker_ranges", projection="p")] == 1
    assert ranges_of(samples, "projections_lag_seconds") == set()


@pytest.mark.slow
async def test_the_database_tells_of_projections_that_nobody_runs(journal: Database) -> None:
    await run_until_caught_up(journal, recording(failing((IN_HIGH, 1)), recovery=NO_RETRY), ranges=2)
    await run_until_caught_up(journal, recording(name="still"))
    await happen(journal, IN_LOW, IN_HIGH)
    await run_until_caught_up(journal, recording(failing((IN_HIGH, 1)), recovery=NO_RETRY))
    await happen(journal, IN_LOW)
    async with journal.session() as session:
        await offsets.set_paused(session, "still", paused=True)

    samples = await told_by_the_database(journal)

    def of(name: str, part: str, **labels: str) -> float:
        return samples[series(f"projections_{name}", projection="p", range=part, **labels)]

    assert of("backlog_events", LOW) == 1
    assert of("backlog_events", HIGH) == 0
    assert of("lag_seconds", LOW) > 0
    assert of("horizon_age_seconds", LOW) >= 0
    assert of("parked_sources", HIGH) == 1
    assert of("range_state", LOW, state="unclaimed") == 1
    assert of("range_state", LOW, state="running") == 0
    assert samples[series("projections_range_state", projection="still", range="0-1023", state="paused")] == 1
    assert samples[series("projections_handled_events_total", projection="p")] == 1
    assert samples[series("projections_paused", projection="p")] == 0
    assert samples[series("projections_paused", projection="still")] == 1
    assert samples[series("projections_workers", projection="p")] == 0
    assert samples[series("projections_oldest_parked_age_seconds", projection="p")] > 0
    assert samples[series("projections_oldest_parked_age_seconds", projection="still")] == 0
    assert samples[series("projections_open_writers")] == 0
    assert samples[series("projections_oldest_open_writer_age_seconds")] == 0


@pytest.mark.slow
async def test_workers_that_are_alive_are_counted_for_each_projection(journal: Database) -> None:
    async with counting(journal, recording()), counting(journal, recording(), recording(name="q")):
        samples = await told_by_the_database(journal)

    assert samples[series("projections_workers", projection="p")] == 2
    assert samples[series("projections_workers", projection="q")] == 1


async def test_a_writer_that_stays_open_is_told(journal: Database) -> None:
    async with journal.transaction() as session:
        await append(session, [Event("a", Happened(), "plane")])
        samples = await told_by_the_database(journal)

    assert samples[series("projections_open_writers")] == 1
    assert samples[series("projections_oldest_open_writer_age_seconds")] > 0


async def test_a_projection_that_has_not_begun_has_no_age_of_its_horizon(journal: Database) -> None:
    async with journal.session() as session:
        await offsets.register(session, "new", "plane", [SliceRange(0, 1023)])

    samples = await told_by_the_database(journal)

    assert ranges_of(samples, "projections_horizon_age_seconds") == set()
    assert ranges_of(samples, "projections_lag_seconds") == {"0-1023"}


async def test_scrapes_at_a_time_and_soon_after_look_at_the_database_once() -> None:
    looks, may_end = 0, asyncio.Event()

    async def look() -> int:
        nonlocal looks
        looks += 1
        await may_end.wait()
        return looks

    cache = Cache(look)
    asked = [asyncio.create_task(cache.get()) for _ in range(10)]
    asked[0].cancel()
    may_end.set()

    found = await asyncio.gather(*asked, return_exceptions=True)

    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == [1] * 9
    assert await cache.get() == 1


async def test_a_look_is_taken_anew_when_it_is_old() -> None:
    looks = iter(range(10))

    async def look() -> int:
        return next(looks)

    cache = Cache(look, keep=timedelta(0))

    assert [await cache.get(), await cache.get()] == [0, 1]


async def test_a_look_that_does_not_end_is_given_up_and_not_repeated_at_once() -> None:
    looks = 0

    async def look() -> None:
        nonlocal looks
        looks += 1
        await asyncio.Event().wait()

    cache = Cache(look, patience=timedelta(milliseconds=1))

    for _ in range(2):
        with pytest.raises(LookFailed, match=r"no answer within 0\.001 s"):
            await cache.get()
    assert looks == 1


async def everything(database: Database) -> list[Metric]:
    """All metrics that there are, with samples in each."""
    return [metric for found in (await all_metrics(database)).values() for metric in found]


async def test_names_and_labels_follow_the_rules(journal: Database) -> None:
    await happen(journal, "a")
    for metric in await everything(journal):
        assert metric.name.startswith(("projections_", "process_"))
        assert not metric.name.endswith("_total")
        assert metric.documentation.endswith(".")
        assert metric.samples, metric.name
        for sample in metric.samples:
            allowed = "projection range state le version python group code verdict role"
            assert set(sample.labels) <= {*allowed.split()}, metric.name


async def test_metrics_are_written_as_openmetrics_to_whoever_asks_for_it(journal: Database) -> None:
    await happen(journal, "a")
    metrics = await everything(journal)

    text, content_type = write_metrics(metrics, "application/openmetrics-text; version=1.0.0")

    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert {family.name for family in parse_openmetrics(text.decode())} == {metric.name for metric in metrics}


@pytest.mark.slow
async def test_every_series_names_its_database(journal: Database) -> None:
    await happen(journal, "a")
    name = await fetchval(journal, "SELECT current_database()")
    apps = (
        worker_app(WorkerMetrics(), journal, WebhookMetrics()),
        delivering_app(WebhookMetrics(), journal),
        Starlette(routes=monitor_probe(journal).routes),
    )
    for app in apps:
        async with asking(app) as client:
            text = (await client.get("/metrics")).text
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        assert len(samples) > 10
        assert {sample.labels.get("database") for sample in samples} == {name}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("served", "name"),
    [
        ({"workers": WorkerMetrics()}, "projections_range_state"),
        ({"webhooks": WebhookMetrics()}, "projections_webhook_requests_in_flight"),
    ],
    ids=["workers", "webhooks"],
)
async def test_an_application_serves_what_it_counts_to_those_who_have_the_token(
    journal: Database, monkeypatch: pytest.MonkeyPatch, served: dict[str, Any], name: str
) -> None:
    monkeypatch.setenv("PROJECTIONS_TOKEN", "a-token")
    async with serve_metrics(journal, "127.0.0.1:0", **served) as address, httpx.AsyncClient() as client:
        refused = await client.get(f"http://{address}/metrics")
        found = await client.get(f"http://{address}/metrics", headers={"authorization": "Bearer a-token"})

    assert (refused.status_code, found.status_code) == (401, 200)
    assert f"# HELP {name}" in found.text


async def test_nothing_is_served_where_there_is_nothing_to_count(journal: Database) -> None:
    with pytest.raises(TypeError, match="pass workers, webhooks or both"):
        async with serve_metrics(journal):
            pass


_NAME = re.compile(r"\bprojections_[a-z_]+\b")


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((OPERATIONS / "alert-rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    dashboard = json.loads((OPERATIONS / "grafana-dashboard.json").read_text())
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


async def sample_names(database: Database) -> set[str]:
    await happen(database, "a")
    text, _ = write_metrics(await everything(database))
    return {name for name, _ in parse(text.decode())}


async def test_alert_rules_name_metrics_that_exist(journal: Database) -> None:
    named = {name for rule in rules() for name in _NAME.findall(rule["expr"])}

    assert named
    assert named - await sample_names(journal) == set()


async def test_alert_rules_say_what_is_wrong_and_how_bad_it_is() -> None:
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert set(rule["annotations"]) == {"summary", "description"}


async def test_the_dashboard_names_metrics_that_exist(journal: Database) -> None:
    dashboard = json.loads((OPERATIONS / "grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in panels() for target in panel["targets"]]
    expressions += [
        one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"
    ]
    named = {name for expression in expressions for name in _NAME.findall(expression)}

    assert len(named) > 10
    assert named - await sample_names(journal) == set()


async def test_the_guide_explains_every_metric(journal: Database) -> None:
    guide = (OPERATIONS.parent / "guides/metrics.md").read_text()
    explained = set(re.findall(r"^\| `(projections_[a-z_]+)`", guide, re.MULTILINE))
    metrics = await everything(journal)
    suffixes = {"counter": "_total", "info": "_info"}
    own = {m.name + suffixes.get(m.type, "") for m in metrics if m.name.startswith("projections_")}

    assert explained == own


@pytest.mark.slow
@pytest.mark.parametrize("package", ["prometheus_client", "starlette", "uvicorn"])
def test_a_missing_package_is_named_with_the_extra_that_brings_it(package: str) -> None:
    modules = "projections.http.serving, projections.monitoring.web.app"
    program = f"import sys; sys.modules[{package!r}] = None; import {modules}"

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )

    assert done.returncode == 1
    assert "pip install 'slice-projections[monitor]'" in done.stderr.splitlines()[-1]
    assert package in done.stderr.splitlines()[-1]
