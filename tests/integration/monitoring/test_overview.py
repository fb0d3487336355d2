"""One line for each projection: its state is what the commands say, and a look stays cheap."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

import offsets
from journal import Database, Log, connect
from projections.monitoring.lag import projection_lags
from projections.monitoring.overview import overview
from projections.monitoring.web.feed import Feed
from tests.fixtures.commands import called
from tests.fixtures.monitor import WATCHED_ONLY, detail, first, monitoring
from tests.fixtures.projections import execute, fetchval, happen
from tests.fixtures.states import STATES, in_every_state
from tests.integration.running.test_many_projections import Counting

REGISTER = """
SELECT count(projections.register_projection_v1('p' || n, '{plane}', ARRAY(SELECT generate_series(0, 1023))))
FROM generate_series(1, $1::integer) AS n
"""
BEHIND = "UPDATE projections.projection_ranges SET horizon = '2000-01-01', handled_until = '2000-01-01'"


def told(dsn: str, command: str) -> tuple[dict[str, str], dict[str, str]]:
    """What a command says of each projection: in JSON its state, and in its table the states of its ranges."""
    found = json.loads(called(command, "--dsn", dsn, "--json").stdout)["projections"]
    lines = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in called(command, "--dsn", dsn).stdout.splitlines()
        if line.startswith("│")
    ]
    place = 2  # of the state, in the tables of both commands
    return {one["name"]: one["state"] for one in found}, {line[0]: line[place] for line in lines}


async def test_commands_and_page_tell_the_same_state_whatever_it_is(database: Database, dsn: str) -> None:
    await in_every_state(database)
    async with monitoring(database) as client:
        lines = {one["name"]: one for one in (await first(client))["projections"]}
        pages = {name: await detail(client, name) for name in STATES}
    answers = [await asyncio.to_thread(told, dsn, command) for command in ("lag", "status")]

    wanted = {name: said.split(",")[0].lstrip("0123456789 ") for name, said in STATES.items()}
    assert {name: one["states"] for name, one in lines.items()} == STATES
    assert {name: one["states"] for name, one in pages.items()} == STATES
    assert {name: one["state"] for name, one in lines.items()} == wanted
    assert {name: one["state"] for name, one in pages.items()} == wanted
    assert answers == [(wanted, STATES)] * 2
    assert {name for name, one in lines.items() if not one["trouble"]} == {
        "paused", "paused-and-parked", "running",
    }  # fmt: skip


async def test_a_line_sums_up_what_the_ranges_have(database: Database) -> None:
    await happen(database, "a", "b", "b")
    await in_every_state(database)
    await execute(database, BEHIND)
    await execute(database, "UPDATE projections.projection_ranges SET handled = min_slice")
    async with database.session() as session:
        lines = {one.summary.name: one for one in (await overview(session)).projections}
        lags = {one.name: one for one in await projection_lags(session, by_slice=False)}

    assert lines.keys() == lags.keys()
    for name, line in lines.items():
        lag = lags[name]
        assert (line.waits.backlog, line.waits.parked, line.handled) == (lag.backlog, lag.parked, lag.handled)
        assert line.ranges_in == lag.ranges_in
        assert line.waits.backlog == 3
        assert line.lag == pytest.approx(lag.lag, abs=5)
    assert lines["unclaimed"].owners == []
    assert lines["running"].owners == ["host-1:1:aaaaaaaa"]


async def test_one_that_runs_and_is_far_behind_is_trouble_all_the_same(database: Database) -> None:
    await in_every_state(database)
    async with database.session() as session:
        (running,) = [one for one in (await overview(session)).projections if one.summary.name == "running"]

    assert not running.in_trouble
    for lag, trouble in ((59.0, False), (60.0, True)):
        behind = type(running)(running.summary, running.waits._replace(lag=lag), internal=False)
        assert (behind.state, behind.in_trouble) == ("running", trouble)


async def test_what_the_library_runs_for_itself_is_told_apart(database: Database) -> None:
    async with database.session() as session:
        for name in ("matching", "webhooks/plane", "webhooks-of-mine", "p"):
            await offsets.register(session, name, "plane")
        found = await overview(session)

    assert {one.summary.name for one in found.projections if one.internal} == {"matching", "webhooks/plane"}


async def test_a_journal_that_is_away_hides_no_other_projection(database: Database, dsn: str) -> None:
    async with database.session() as session:
        await offsets.register(session, "here", "plane")
        await offsets.register(session, "away", "plane", journal="far")
        await offsets.register(session, "unnamed", "plane", journal="nobody-told")
    async with connect(dsn) as gone:
        log = Log(gone, name="far")
    feed = Feed(database, **WATCHED_ONLY, journal=log)
    async with asyncio.timeout(300), feed.running():
        _, document = await feed.after(0)
    lines = {one["name"]: one for one in json.loads(document)["projections"]}

    assert {name: one["state"] for name, one in lines.items()} == {
        "here": "unclaimed", "away": "unreachable", "unnamed": "unreachable",
    }  # fmt: skip
    assert "nobody-told" in lines["unnamed"]["reason"]
    assert lines["away"]["reason"]
    assert lines["away"]["trouble"]


async def _statements(database: Database) -> tuple[int, float]:
    async with database.session() as session:
        counting: Any = Counting(session)
        begun = time.perf_counter()
        await overview(counting)
        return counting.statements, time.perf_counter() - begun


@pytest.mark.slow
async def test_a_look_at_a_hundred_thousand_ranges_is_a_few_statements_and_a_small_document(
    database: Database,
) -> None:
    await happen(database, *(f"s{number}" for number in range(200)))
    await execute(database, REGISTER, 1)
    of_one, _ = await _statements(database)
    await execute(database, REGISTER, 100)
    seconds = min([(await _statements(database))[1] for _ in range(3)])
    statements, _ = await _statements(database)
    async with asyncio.timeout(300), monitoring(database) as client:
        found = await first(client)

    assert await fetchval(database, "SELECT count(*) FROM projections.projection_ranges") == 102_400
    assert (statements, of_one) == (of_one, statements)
    assert statements <= 20
    assert seconds < 20  # the quickest of three; 0.4 on a quiet machine
    assert len(found["projections"]) == 100
    assert {one["backlog"] for one in found["projections"]} == {200}
    assert len(json.dumps(found)) < 60_000
