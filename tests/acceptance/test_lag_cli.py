"""`projections lag`, `workers` and `rescale` as a user runs them."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from journal import Event, append_sync, slice_of
from journal.database.sync import connect_sync
from tests.fixtures.commands import APP, COMMAND, SEEN, called, environment, projections, running
from tests.fixtures.postgres import Databases


@pytest.fixture(scope="module")
def made_behind(
    databases: Databases, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """What `behind` is a copy of."""
    app = tmp_path_factory.mktemp("app")
    (app / "app.py").write_text(APP)
    with databases.fresh(template) as dsn:
        with connect_sync(dsn) as connection:
            connection.execute(SEEN)
        append(dsn, "N0", "N1", "N2", "N3")
        run = projections("worker", "app:Delays", "--dsn", dsn, "--ranges", "4", "--until-caught-up", cwd=app)
        assert run.returncode == 0, run.stderr
        append(dsn, "N0", "N0", "N1")
        yield dsn


@pytest.fixture
def behind(databases: Databases, made_behind: str) -> Iterator[str]:
    """`delays` has handled the events of N0 to N3, and three of N0 and N1 have come since."""
    with databases.copy(made_behind) as dsn:
        yield dsn


def append(dsn: str, *source_ids: str) -> None:
    with connect_sync(dsn) as connection:
        append_sync(connection, [Event(name, {"delay": 1}, "plane", "Landed") for name in source_ids])


def values(*arguments: str) -> Any:
    result = called(*arguments, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def rows(table: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in table.splitlines() if line[:1] == "│"
    ]


@pytest.mark.slow
def test_lag_and_backlog_of_each_range(behind: str) -> None:
    (found,) = values("lag", "--dsn", behind)["projections"]
    table = rows(called("lag", "delays", "--ranges", "--dsn", behind).stdout)

    assert (found["name"], found["backlog"], found["handled"]) == ("delays", 3, 4)
    assert found["lag_seconds"] == max(part["lag_seconds"] for part in found["ranges"]) > 0
    assert len(found["ranges"]) == len(table) == 4
    assert [row[1] for row in table] == ["0-255", "256-511", "512-767", "768-1023"]
    assert [int(row[5]) for row in table] == [part["backlog"] for part in found["ranges"]]


def test_lag_of_each_slice_that_is_behind(behind: str) -> None:
    result = called("lag", "--slices", "--dsn", behind)

    table = rows(result.stdout)
    assert {(row[1], row[5]) for row in table} == {(str(slice_of("N0")), "2"), (str(slice_of("N1")), "1")}
    assert "projection 'delays': 1,022 slices with nothing to handle" in result.stdout


def test_lag_by_slice_tells_all_slices_as_json(behind: str) -> None:
    (found,) = values("lag", "delays", "--slices", "--dsn", behind)["projections"]

    assert [one["slice"] for one in found["slices"]] == list(range(1024))
    one = found["slices"][slice_of("N0")]
    assert (one["backlog"], one["parked"], one["owner"], one["epoch"], one["state"]) == (
        2,
        0,
        None,
        1,
        "unclaimed",
    )
    assert one["handled_at"] is not None


@pytest.mark.slow
def test_lag_by_worker_names_what_nobody_runs(behind: str) -> None:
    found = values("lag", "--workers", "--dsn", behind)["workers"]
    table = rows(called("lag", "--workers", "--dsn", behind).stdout)

    (nobody,) = found
    assert (nobody["owner"], nobody["ranges"], nobody["slices"], nobody["backlog"]) == (None, 4, 1024, 3)
    assert table[0][:3] == ["nobody", "4", "1024"]


@pytest.mark.slow
def test_lag_by_worker_names_a_worker_that_runs(app: Path, behind: str) -> None:
    with running("app:Delays", "--dsn", behind, cwd=app) as worker:
        worker.until("started")

        (found,) = values("lag", "--workers", "--dsn", behind)["workers"]

    assert f":{worker.process.pid}:" in found["owner"]
    assert (found["ranges"], found["slices"]) == (4, 1024)


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "code"), [("2h", 0), ("0ms", 3), ("0.5ms", 3)])
def test_fail_above_tells_by_the_exit_code_whether_the_lag_is_above(
    behind: str, limit: str, code: int
) -> None:
    result = called("lag", "--fail-above", limit, "--dsn", behind)

    assert result.returncode == code
    assert [row[:3] for row in rows(result.stdout)] == [["delays", "4", "unclaimed"]]
    assert bool(re.fullmatch(r"lag above .* s: delays \(.*\)\n", result.stderr)) == (code == 3)


def test_fail_above_prints_json_as_usual(behind: str) -> None:
    result = called("lag", "--fail-above", "0s", "--json", "--dsn", behind)

    assert result.returncode == 3
    assert json.loads(result.stdout)["projections"][0]["backlog"] == 3


@pytest.mark.slow
def test_nothing_behind_is_not_above(app: Path, behind: str) -> None:
    projections("worker", "app:Delays", "--dsn", behind, "--until-caught-up", cwd=app)

    assert called("lag", "--fail-above", "0s", "--dsn", behind).returncode == 0


@pytest.mark.parametrize("text", ["30", "5x", "-1s", "1m30", "s", ""])
def test_a_wrong_duration_is_told(text: str) -> None:
    result = called("lag", "--fail-above", text)

    assert (result.returncode, result.stdout) == (2, "")
    assert f"{text!r} is not a duration: write 500ms, 30s, 5m, 1h30m or 1d" in result.stderr


def test_one_view_is_shown_at_a_time() -> None:
    result = called("lag", "--ranges", "--slices")

    assert (result.returncode, result.stdout) == (2, "")
    assert "pass at most one of --ranges, --slices, --workers" in result.stderr


def test_watching_does_not_fail_above() -> None:
    result = called("lag", "--watch", "--fail-above", "1s")

    assert result.returncode == 2
    assert "without --fail-above" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_watching_a_pipe_prints_one_look_after_another(
    behind: str, number: signal.Signals, code: int
) -> None:
    command = [*COMMAND, "lag", "--watch", "--json", "--dsn", behind]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        looks = [json.loads(process.stdout.readline())["projections"][0]["backlog"]]
        append(behind, "N2")
        while looks[-1] == 3:
            looks.append(json.loads(process.stdout.readline())["projections"][0]["backlog"])
        process.send_signal(number)
        _, errors = process.communicate(timeout=300)

    assert looks[-1] == 4
    assert (process.returncode, errors) == (code, "")


@contextmanager
def on_a_terminal(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment(TERM="xterm", COLUMNS="200"),
        ) as process:
            os.close(theirs)
            try:
                yield process, ours
            finally:
                process.kill()
    finally:
        os.close(ours)


@pytest.mark.slow
def test_watching_on_a_terminal_draws_over_the_look_before_until_ctrl_c(behind: str) -> None:
    with on_a_terminal("lag", "--watch", "--dsn", behind) as (process, terminal):
        output = b""
        while output.count(b"projection") < 2:
            output += os.read(terminal, 65_536)
        process.send_signal(signal.SIGINT)
        code = process.wait(30)

    assert code == 130
    assert b"\x1b[1A" in output


@pytest.mark.slow
def test_workers_are_shown_with_what_they_hold(app: Path, behind: str) -> None:
    with running("app:Delays", "--dsn", behind, cwd=app) as worker:
        worker.until("started")

        (found,) = values("workers", "--dsn", behind)["workers"]
        (row,) = rows(called("workers", "--dsn", behind).stdout)
        shown = values("workers", "show", found["owner"], "--dsn", behind)
        told = called("workers", "show", found["owner"], "--dsn", behind).stdout

    assert (found["pid"], found["state"]) == (worker.process.pid, "alive")
    assert (found["ranges"], found["slices"]) == (4, {"delays": 1024})
    assert "delays (1,024 slices)" in row
    assert row[0] == found["owner"]
    assert row[2:4] == [str(worker.process.pid), "alive"]
    assert [(one["projection"], one["min_slice"], one["error"]) for one in shown["held"]] == [
        ("delays", first, None) for first in (0, 256, 512, 768)
    ]
    assert told.startswith(f"worker       {found['owner']}\n")
    assert len(rows(told)) == 4


def test_a_worker_that_is_not_there_is_told(behind: str) -> None:
    result = called("workers", "show", "nobody", "--dsn", behind)

    assert (result.returncode, "there is no worker 'nobody'" in result.stderr) == (1, True)


def test_workers_that_leave_and_that_are_gone_are_told_apart(behind: str) -> None:
    with connect_sync(behind) as connection:
        connection.execute(
            "INSERT INTO projections.workers (owner, host, pid, projection_ids, lease_until, leaving) VALUES "
            "('a', 'h', 1, '{1}', clock_timestamp() + INTERVAL '1 hour', TRUE),"
            "('b', 'h', 2, '{1}', clock_timestamp() - INTERVAL '1 s', FALSE)"
        )

    found = {one["owner"]: one["state"] for one in values("workers", "--dsn", behind)["workers"]}

    assert found == {"a": "leaving", "b": "lease ended"}


def test_no_workers_are_an_empty_list(dsn: str) -> None:
    assert values("workers", "--dsn", dsn) == {"workers": []}


def test_mode_is_set_and_shown(behind: str) -> None:
    set_to = called("mode", "delays", "inline", "--dsn", behind)
    shown = called("status", "delays", "--dsn", behind).stdout
    found = values("status", "delays", "--dsn", behind)
    back = values("mode", "delays", "live", "--dsn", behind)

    assert (set_to.returncode, set_to.stdout) == (0, "projection 'delays' is inline\n")
    assert "projection 'delays' is inline: who appends by projections.Inline handles what it appends" in shown
    assert [one["mode"] for one in found["projections"]] == ["inline"]
    assert back == {"name": "delays", "mode": "live", "running": False}


def test_rescale_cuts_into_another_number_of_ranges_and_keeps_progress(behind: str) -> None:
    before = values("lag", "--slices", "--dsn", behind)["projections"][0]

    result = called("rescale", "delays", "--ranges", "6", "--dsn", behind)

    after = values("lag", "--slices", "--dsn", behind)["projections"][0]
    assert (result.returncode, result.stdout) == (0, "projection 'delays' had 4 ranges, and has 6 now\n")
    assert (before["handled"], before["backlog"]) == (after["handled"], after["backlog"]) == (4, 3)
    assert [one["backlog"] for one in before["slices"]] == [one["backlog"] for one in after["slices"]]


def test_rescale_tells_as_json_what_was_and_what_is(behind: str) -> None:
    found = values("rescale", "delays", "--ranges", "1024", "--dsn", behind)

    assert found == {"name": "delays", "ranges_before": 4, "ranges": 1024, "running": False}
    assert len(values("lag", "--dsn", behind)["projections"][0]["ranges"]) == 1024


def test_rescale_to_what_is_changes_nothing(behind: str) -> None:
    result = called("rescale", "delays", "--ranges", "4", "--dsn", behind)

    assert (result.returncode, result.stdout) == (0, "projection 'delays' has 4 ranges already\n")
    assert {part["epoch"] for part in values("lag", "--dsn", behind)["projections"][0]["ranges"]} == {1}


@pytest.mark.slow
def test_a_worker_goes_on_with_the_new_ranges(app: Path, behind: str) -> None:
    with running("app:Delays", "--dsn", behind, cwd=app) as worker:
        worker.until("started")
        called("rescale", "delays", "--ranges", "2", "--dsn", behind)
        append(behind, "N5")

        with connect_sync(behind) as connection:
            asked = "SELECT count(*) FROM seen WHERE source_id = 'N5'"
            while (connection.execute(asked).fetchone() or (0,))[0] == 0:
                connection.rollback()

    assert len(values("lag", "--dsn", behind)["projections"][0]["ranges"]) == 2


@pytest.mark.parametrize("number", ["0", "1025", "x"])
def test_there_are_between_1_and_1024_ranges(number: str) -> None:
    result = called("rescale", "delays", "--ranges", number)

    assert (result.returncode, result.stdout) == (2, "")


@pytest.mark.parametrize(
    "command", [["lag", "nope"], ["mode", "nope", "inline"], ["rescale", "nope", "--ranges", "2"]]
)
def test_an_unknown_projection_is_told_with_those_that_are_known(behind: str, command: list[str]) -> None:
    result = called(*command, "--dsn", behind)

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "error: no projection 'nope' has run on this database; known: delays\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["lag"], ["lag", "--watch"], ["workers"], ["rescale", "x", "--ranges", "2"]]
)
def test_a_database_without_the_schema_is_told_what_to_do(empty_dsn: str, command: list[str]) -> None:
    result = called(*command, "--dsn", empty_dsn)

    assert result.returncode == 1
    assert result.stderr == (
        "error: the schema projections is not installed in this database: run `projections schema install`\n"
    )
