"""`projections worker --processes N`: shared ranges, processes that die, and one end for all."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from journal.database.sync import connect_sync
from tests.fixtures.commands import (
    APP,
    SEEN,
    Running,
    append_events,
    gate,
    owners,
    projections,
    query,
    running,
    seen,
)


def holders(dsn: str) -> list[tuple[Any, ...]]:
    """Pid of each worker that owns ranges, and how many."""
    return query(
        dsn,
        "SELECT w.pid, count(*) FROM projections.projection_ranges AS r JOIN projections.workers AS w USING (owner) "
        "GROUP BY w.pid ORDER BY w.pid",
    )


@contextmanager
def two_processes(
    app: Path, dsn: str, *more: str, target: str = "app:Delays"
) -> Iterator[tuple[Running, list[int]]]:
    """A supervisor whose two processes hold a range each, and their pids."""
    options = [target, "--ranges", "2", "--processes", "2", "--dsn", dsn, *more]
    with running(*options, cwd=app) as run:
        pids = [line["child_pid"] for line in run.until_all("process_started", 2)]
        while [pid for pid, _ in holders(dsn)] != sorted(pids):
            run.until("started")
        yield run, pids


@pytest.mark.slow
def test_processes_share_the_ranges_and_end_together_by_sigterm(app: Path, filled: str) -> None:
    with two_processes(app, filled) as (run, pids):
        shared = holders(filled)

        run.signal(signal.SIGTERM)

        assert run.end() == 0
    assert shared == [(pid, 1) for pid in sorted(pids)]
    assert owners(filled) == [(None,)]
    assert query(filled, "SELECT owner FROM projections.workers") == []
    assert {line["pid"] for line in run.log} == {run.process.pid, *pids}


@pytest.mark.slow
def test_ctrl_c_ends_processes_with_the_exit_code_of_a_single_one(app: Path, filled: str) -> None:
    with two_processes(app, filled) as (run, _):
        run.signal(signal.SIGINT)

        assert run.end() == 130
    assert owners(filled) == [(None,)]


@pytest.mark.slow
def test_processes_that_get_the_signal_too_finish_their_batches(app: Path, dsn: str) -> None:
    """As a service manager does it: SIGTERM to each process of a service."""
    with connect_sync(dsn) as connection:
        connection.execute(SEEN)
    with two_processes(app, dsn, target="app:Gated") as (run, pids):
        with gate(dsn):
            append_events(dsn, 100)
            while {line["pid"] for line in run.log if line["action"] == "handling"} != set(pids):
                run.until("handling")
            run.signal(signal.SIGTERM)
            run.until("stopping")
            for pid in pids:
                os.kill(pid, signal.SIGTERM)
            run.until_all("stopping", 2)

        assert run.end() == 0
    assert seen(dsn, "gated") == 20
    assert owners(dsn) == [(None,)]


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="waits for a process that is not a child, as Linux can"
)
def test_a_second_signal_kills_the_processes_too(app: Path, filled: str) -> None:
    with running("app:Gated", "--processes", "2", "--dsn", filled, cwd=app) as run, gate(filled):
        pids = [line["child_pid"] for line in run.until_all("process_started", 2)]
        handles = [os.pidfd_open(pid) for pid in pids]
        run.until("handling")
        run.signal(signal.SIGTERM)
        run.until("stopping")

        run.signal(signal.SIGTERM)

        # Sooner than they would end by themselves when their supervisor is gone.
        assert all(select.select([handle], [], [], 5)[0] for handle in handles)
        assert run.end() == -signal.SIGTERM
    for handle in handles:
        os.close(handle)


@pytest.mark.slow
def test_a_process_that_is_killed_is_replaced_and_its_range_runs_on(app: Path, filled: str) -> None:
    with two_processes(app, filled, "--lease", "1s") as (run, pids):
        os.kill(pids[0], signal.SIGKILL)

        ended, started = run.until("process_ended"), run.until("process_started")
        while [pid for pid, _ in holders(filled)] != sorted([pids[1], started["child_pid"]]):
            run.until("started")
        append_events(filled, 100)
        run.signal(signal.SIGTERM)
        assert run.end() == 0

    assert (ended["child"], ended["exit_code"]) == (started["child"], -signal.SIGKILL)


@pytest.mark.slow
def test_processes_end_when_their_supervisor_is_killed(app: Path, filled: str) -> None:
    with two_processes(app, filled) as (run, _):
        run.signal(signal.SIGKILL)

        assert run.end() == -signal.SIGKILL  # the log ends when the last that writes to it has
    assert query(filled, "SELECT owner FROM projections.workers") == []


@pytest.mark.slow
def test_processes_catch_up_and_exit_0(app: Path, filled: str) -> None:
    result = projections(
        "worker", "app", "--dsn", filled, "--processes", "2", "--until-caught-up", "--take-over", cwd=app
    )

    assert (result.returncode, seen(filled), seen(filled, "gated")) == (0, 100, 100)


@pytest.mark.daily(1)
@pytest.mark.parametrize(
    ("target", "code", "message"),
    [("nowhere", 2, "there is no module 'nowhere'"), ("app", 1, "the schema projections is not installed")],
)
def test_what_no_process_could_start_with_is_told_once(
    app: Path, empty_dsn: str, target: str, code: int, message: str
) -> None:
    result = projections("worker", target, "--processes", "2", "--dsn", empty_dsn, cwd=app)

    assert (result.returncode, result.stderr.count(message)) == (code, 1)


@pytest.mark.slow
def test_a_process_that_can_not_start_ends_all_with_its_exit_code(app: Path, filled: str) -> None:
    once = "import sys\nif '--supervised' in sys.argv: raise RuntimeError('not here')\n"
    (app / "app.py").write_text(once + APP)

    result = projections("worker", "app", "--processes", "2", "--dsn", filled, cwd=app)

    assert result.returncode == 1
    assert "cannot be imported: RuntimeError: not here" in result.stderr
    assert "could not start, exit code 1: all end" in result.stderr
    assert "starting again" not in result.stderr


@pytest.mark.slow
def test_the_dsn_is_not_on_the_command_line_of_the_processes(app: Path, filled: str) -> None:
    with two_processes(app, filled) as (run, pids):
        command = ["ps", "-o", "args=", *(part for pid in pids for part in ("-p", str(pid)))]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        run.signal(signal.SIGTERM)
        run.end()

    assert (lines.count("--supervised"), lines.count("postgresql://")) == (2, 0)
