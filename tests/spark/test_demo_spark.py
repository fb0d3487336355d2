"""`projections demo --spark`, as a user runs it."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from typing import Any, NamedTuple

import psutil
import pytest

from journal import connect
from journal.database.sync import connect_sync
from projections.demo.database import prepare
from tests.acceptance.test_demo import EVENTS as FEWER
from tests.acceptance.test_demo import GOOD, MEASURED, MOVES, WORKERS, good, run, start
from tests.fixtures.postgres import Databases

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

EVENTS = 5000
REBUILT = ["rebuilt_matches", "rebuild_seconds", "rebuild_rows_per_s"]
SPARK_ENDS = 30  # seconds
_SCHEMAS = "SELECT nspname FROM pg_namespace WHERE nspname ~ '^projections_(old|rebuild)_' ORDER BY nspname"


class Finished(NamedTuple):
    """A run that has come to its end."""

    dsn: str
    code: int
    printed: dict[str, Any]
    errors: str


def schemas(dsn: str) -> list[str]:
    """What rebuilds have made and left."""
    with connect_sync(dsn) as connection:
        return [row[0] for row in connection.execute(_SCHEMAS)]


def stop_in_rebuild(dsn: str, number: signal.Signals, told: str) -> tuple[int, str]:
    """Send a signal when a line of the progress begins so; returns the exit code and the rest of stderr."""
    with start(dsn, "--spark") as process:
        assert any(line.startswith(told) for line in process.stderr or ())
        below = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        _, errors = process.communicate(timeout=300)
    _, alive = psutil.wait_procs(below, timeout=SPARK_ENDS)
    assert not alive
    return process.returncode, errors


@pytest.fixture(scope="module")
def finished(databases: Databases) -> Iterator[Finished]:
    with databases.fresh("template0") as fresh:
        yield Finished(fresh, *run(fresh, "--spark", events=EVENTS))


def test_run_ends_with_every_event_counted_once(finished: Finished) -> None:
    counts = {**GOOD, "appended": EVENTS, "handled": EVENTS}

    assert (finished.code, {name: finished.printed.get(name) for name in GOOD}) == (0, counts), (
        finished.errors
    )


def test_what_spark_built_matches_and_is_measured(finished: Finished) -> None:
    printed = finished.printed

    assert list(printed) == [*GOOD, *MEASURED, *MOVES, *REBUILT, "seconds"]
    assert printed["rebuilt_matches"] is True
    assert 0 < printed["rebuild_seconds"] < printed["seconds"]
    assert printed["rebuild_rows_per_s"] > 0


def test_other_half_is_appended_while_spark_is_at_work(finished: Finished) -> None:
    lines = finished.errors.splitlines()
    begun = next(number for number, line in enumerate(lines) if line.startswith("rebuilding"))
    appended = [
        int(line.split()[1].rstrip(",").replace(",", "")) for line in lines if line.startswith("appended")
    ]
    before = sum(line.startswith("appended") for line in lines[:begun])

    half = (EVENTS - 300) // 2
    assert max(appended[:before]) == half
    assert appended[before] > half


def test_both_read_models_are_rebuilt_stage_by_stage(finished: Finished) -> None:
    told = re.findall(r"^rebuilding (\w+) with Spark: (\w+)$", finished.errors, re.MULTILINE)

    stages = ["fence", "fold", "combine", "verify", "swap"]
    assert told == [(table, stage) for table in ("carrier_delays", "airport_departures") for stage in stages]
    assert re.search(
        r"^folded [\d,]+ of about [\d,]+ events, [\d,]+ a second$", finished.errors, re.MULTILINE
    )


async def test_next_run_begins_anew_without_what_rebuilds_have_left(finished: Finished) -> None:
    kept = schemas(finished.dsn)

    async with connect(finished.dsn) as database, database.transaction() as session:
        begun = await prepare(session, "other data", 10, reset=False)

    assert kept == ["projections_old_1", "projections_old_2"]
    assert (begun.appended, schemas(finished.dsn)) == (0, [])


@pytest.mark.parametrize(
    "line",
    ["stopped half way, until Spark is ready", "rebuilding carrier_delays with Spark: fold"],
)
def test_ctrl_c_leaves_no_java_and_nothing_built(empty_dsn: str, line: str) -> None:
    stopped, told = stop_in_rebuild(empty_dsn, signal.SIGINT, line)

    assert (stopped, "run it again to go on" in told, "Traceback" in told) == (130, True, False), told
    assert schemas(empty_dsn) == []


@pytest.mark.parametrize(
    "told",
    [
        "rebuilding carrier_delays with Spark: fold",
        "rebuilding airport_departures with Spark: swap",
        "rebuilt demo-airport-departures",
    ],
)
def test_run_after_sigkill_in_the_rebuild_ends_with_every_event_counted_once(
    empty_dsn: str, told: str
) -> None:
    killed, _ = stop_in_rebuild(empty_dsn, signal.SIGKILL, told)

    code, printed, errors = run(empty_dsn, "--spark")

    assert (killed, code, good(printed), printed.get("rebuilt_matches")) == (
        -signal.SIGKILL, 0, True, True,
    ), errors  # fmt: skip


def test_run_without_spark_goes_on_after_sigkill_in_the_rebuild(empty_dsn: str) -> None:
    stop_in_rebuild(empty_dsn, signal.SIGKILL, "rebuilding carrier_delays with Spark: fold")

    code, printed, errors = run(empty_dsn)

    assert (code, good(printed), "rebuilt_matches" in printed) == (0, True, False), errors
    assert schemas(empty_dsn) == []


def test_run_with_workers_is_rebuilt_while_one_is_killed(empty_dsn: str) -> None:
    code, printed, errors = run(empty_dsn, "--spark", "--workers", str(WORKERS))

    assert (code, good(printed), printed.get("rebuilt_matches")) == (0, True, True), errors
    assert (printed["takeovers"] >= 4, printed["rescales"]) == (True, 1), errors


@pytest.mark.parametrize("events", [1, 30, FEWER - 1])
def test_few_events_are_enough(empty_dsn: str, events: int) -> None:
    code, printed, errors = run(empty_dsn, "--spark", events=events)

    assert (code, printed.get("appended"), printed.get("handled"), printed.get("rebuilt_matches")) == (
        0, events, events, True,
    ), errors  # fmt: skip


@pytest.mark.slow
def test_read_models_in_sql_are_rebuilt_by_their_statements(empty_dsn: str) -> None:
    code, printed, errors = run(empty_dsn, "--sql", "--spark", events=EVENTS)

    assert (code, good(printed), printed["rebuilt_matches"]) == (0, True, True), errors
