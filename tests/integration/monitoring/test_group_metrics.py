"""What Prometheus and probes are told of groups of consumers."""

from __future__ import annotations

from math import isnan

import pytest

from journal import Database
from projections.monitoring.probes import worker_app
from projections.monitoring.worker_metrics import WorkerMetrics
from projections.subscriptions import create_group, rewind_group, subscribe
from tests.fixtures.http import Series, asking, scrape, series
from tests.fixtures.matching import match
from tests.fixtures.monitor import monitor, told_by_the_database
from tests.fixtures.projections import execute
from tests.fixtures.subscriptions import landed_and_matched

FAIL = "SELECT projections.fail_batch_v1('g', 'h', 1, 'why', $1::text::interval, $2)"

PAST = ("catching_up_subscriptions", "catching_up_events", "catching_up_remaining_seconds")


@pytest.fixture
async def group(database: Database) -> Database:
    """Group g in two ranges, of which one has a match; a match of two hours ago."""
    async with database.transaction() as session:
        await create_group(session, "g", ranges=2)
        await subscribe(session, "g", topics=["Landed"])
        await subscribe(session, "g", condition="e.seq_nr > 1")
    await landed_and_matched(database, "a")
    await execute(database, "UPDATE projections.matches SET db_timestamp = db_timestamp - interval '2 hours'")
    return database


def of(samples: dict[Series, float], name: str) -> float:
    return samples[series(f"projections_group_{name}", group="g")]


async def test_lag_backlog_and_ranges_of_groups_are_told(group: Database) -> None:
    samples = await told_by_the_database(group)

    assert 7200 <= of(samples, "lag_seconds") < 7300
    assert of(samples, "backlog_matches") == 1
    assert (of(samples, "ranges"), of(samples, "ranges_without_reader")) == (2, 2)
    assert (of(samples, "retries"), of(samples, "dead_letters")) == (0, 0)
    assert samples[series("projections_quarantined_conditions")] == 0


@pytest.mark.slow
async def test_failed_batches_and_conditions_set_apart_are_counted(group: Database) -> None:
    for number, delay in enumerate((None, None, "1 hour")):
        await execute(group, FAIL, delay, f'[{{"match_id": {number}}}]')
    await execute(group, "SELECT projections._quarantine_condition_v1(1, 'why')")

    samples = await told_by_the_database(group)

    assert (of(samples, "retries"), of(samples, "dead_letters")) == (1, 2)
    assert samples[series("projections_quarantined_conditions")] == 1


async def test_events_that_a_condition_failed_on_are_counted(group: Database) -> None:
    put_aside = """
    INSERT INTO projections.unanswered (
        condition_id, entity_type, source_id, seq_nr, db_timestamp, slice, topic, as_of, error, due
    )
    SELECT 1, 'plane', 'a', n, now(), 1, 't', now(), 'why', FALSE FROM generate_series(1, 2) AS n
    """
    await execute(group, put_aside)
    await execute(group, "SELECT projections._retry_unanswered_v1(1)")

    assert (await told_by_the_database(group))[series("projections_events_set_apart")] == 1


async def test_a_group_that_is_read_has_no_range_without_reader(group: Database) -> None:
    await execute(group, "SELECT projections.poll_group_v1('g', 'me', '1 hour')")

    assert of(await told_by_the_database(group), "ranges_without_reader") == 0


async def test_no_label_names_a_subscription_or_a_reader(group: Database) -> None:
    samples = await told_by_the_database(group)

    labels = {label for name, found in samples for label, _ in found if name.startswith("projections_group")}
    assert labels == {"group"}


async def test_a_group_that_lags_for_long_fails_the_lag_check_of_a_monitor(group: Database) -> None:
    async with asking(monitor(group)) as client:
        failing = await client.get("/lagz?above=1h&for=30m")
        fine = await client.get("/lagz?above=3h&for=30m")

    (found,) = failing.json()["lagging"]
    assert (failing.status_code, fine.status_code) == (503, 200)
    assert (found["group"], found["range"]) == ("g", "0-511")
    assert 7200 <= found["lag_seconds"] < 7300


@pytest.mark.slow
async def test_a_group_that_is_rewound_says_so_lags_and_fails_the_lag_check(group: Database) -> None:
    """Also where nobody matches; the past that it asked for counts from the first event on."""
    await execute(group, "DELETE FROM projections.matches")
    await execute(group, "UPDATE projections.events SET db_timestamp = db_timestamp - interval '2 hours'")
    before = await told_by_the_database(group)
    async with group.session() as session:
        await rewind_group(session, "g", "beginning")

    samples = await told_by_the_database(group)
    async with asking(monitor(group)) as client:
        failing = await client.get("/lagz?above=1h&for=30m")

    assert [of(before, name) for name in PAST] == [0, 0, 0]
    assert of(before, "lag_seconds") == 0
    assert (of(samples, PAST[0]), of(samples, PAST[1])) == (2, 0)
    assert isnan(of(samples, PAST[2]))
    assert 7200 <= of(samples, "lag_seconds") < 7300
    assert failing.status_code == 503
    assert [found["range"] for found in failing.json()["lagging"]] == ["0-511", "512-1023"]


@pytest.mark.slow
async def test_a_group_that_has_caught_up_lags_no_more(group: Database) -> None:
    await execute(group, "DELETE FROM projections.matches")
    async with group.session() as session:
        await rewind_group(session, "g", "beginning")
    await match(group)

    samples = await told_by_the_database(group)

    assert [of(samples, name) for name in PAST] == [0, 0, 0]
    assert of(samples, "backlog_matches") == 1


async def test_a_worker_does_not_answer_for_groups(group: Database) -> None:
    async with asking(worker_app(WorkerMetrics(), group)) as client:
        check, samples = await client.get("/lagz?above=1s&for=1s"), await scrape(client)

    assert check.status_code == 200
    assert not any(name.startswith("projections_group") for name, _ in samples)
