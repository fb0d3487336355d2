"""Commands on projections whose read models are in another database than their journal."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from journal import Event, append_sync
from journal.database.sync import connect_sync
from tests.fixtures.commands import SEEN, called, environment, projections, running
from tests.fixtures.postgres import Databases


@pytest.fixture
def read_side(databases: Databases, template: str) -> Iterator[str]:
    with databases.fresh(template) as dsn:
        with connect_sync(dsn) as connection:
            connection.execute(SEEN)
        yield dsn


def append(dsn: str, *source_ids: str, delay: Any = 3) -> str:
    with connect_sync(dsn) as connection:
        events = [
            Event(one, {"delay": delay}, entity_type="plane", event_type="Landed") for one in source_ids
        ]
        return append_sync(connection, events).token


def seen(dsn: str) -> list[tuple[str, int]]:
    with connect_sync(dsn) as connection:
        return connection.execute("SELECT source_id, seq_nr FROM seen ORDER BY 1, 2").fetchall()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_worker_and_what_is_asked_about_it(app: Path, dsn: str, read_side: str, processes: int) -> None:
    both = ["--journal", dsn, "--read-side", read_side]
    given = append(dsn, "a", "a", "b")

    done = projections(
        "worker", "app:Delays", *both, "--until-caught-up", "--processes", str(processes), cwd=app
    )

    assert done.returncode == 0, done.stderr
    assert seen(read_side) == [("a", 1), ("a", 2), ("b", 1)]
    assert called("wait", "delays", "--token", given, *both).stdout == "handled by 'delays'\n"
    append(dsn, "a", "c", "c")
    (lag,) = json.loads(called("lag", "--json", *both).stdout)["projections"]
    assert (lag["backlog"], lag["parked"]) == (3, 0)
    assert lag["lag_seconds"] > 0
    (status,) = json.loads(called("status", "--json", *both).stdout)["projections"]
    assert (status["backlog"], status["handled"], status["has_events"]) == (3, 3, True)
    verified = called("offsets", "verify", *both)
    assert (verified.returncode, verified.stdout) == (
        0,
        "the progress of every projection fits the journal\n",
    )


@pytest.mark.slow
def test_the_environment_names_them(app: Path, dsn: str, read_side: str) -> None:
    append(dsn, "a")
    named = environment(PROJECTIONS_JOURNAL=dsn, PROJECTIONS_READ_SIDE=read_side)
    command = ["worker", "app:Delays", "--until-caught-up"]
    assert projections(*command, cwd=app, env=named).returncode == 0
    one = environment(PROJECTIONS_DSN=dsn, PROJECTIONS_READ_SIDE=read_side)
    append(dsn, "a")
    assert projections(*command, cwd=app, env=one).returncode == 0

    assert seen(read_side) == [("a", 1), ("a", 2)]
    listed = projections("offsets", "list", "--json", env=one)
    assert [one["name"] for one in json.loads(listed.stdout)["projections"]] == ["delays"]


@pytest.mark.slow
def test_parked_sources_are_decided_about_on_the_read_side(app: Path, dsn: str, read_side: str) -> None:
    both = ["--journal", dsn, "--read-side", read_side]
    append(dsn, "a", delay="late")
    append(dsn, "a", "b")
    assert projections("worker", "app:Delays", *both, "--until-caught-up", cwd=app).returncode == 0
    (lag,) = json.loads(called("lag", "--json", "--slices", *both).stdout)["projections"]
    assert (lag["backlog"], lag["parked"]) == (0, 1)
    shown = json.loads(called("parked", "show", "delays", "a", "--json", *both).stdout)
    assert (shown["journal"], shown["payload"]) == ("journal", '{"delay":"late"}')
    unnamed = called("parked", "show", "delays", "a", "--dsn", read_side).stdout
    assert "payload: it is in journal 'journal', which --journal names\n" in unnamed

    assert called("parked", "drop", "delays", "a", "--yes", "--read-side", read_side).returncode == 0
    assert projections("worker", "app:Delays", *both, "--until-caught-up", cwd=app).returncode == 0

    assert seen(read_side) == [("a", 2), ("b", 1)]


@pytest.mark.slow
@pytest.mark.parametrize("command", [["workers"], ["parked"], ["rebuilds"], ["journals"]])
def test_no_server_is_started_for_what_asks_the_read_side_alone(
    tmp_path: Path, read_side: str, command: list[str]
) -> None:
    home = tmp_path / "home"
    named = projections(*command, "--read-side", read_side, env=environment(PROJECTIONS_HOME=str(home)))
    known = environment(PROJECTIONS_HOME=str(home), PROJECTIONS_READ_SIDE=read_side)
    by_environment = projections(*command, env=known)

    assert (named.returncode, by_environment.returncode) == (0, 0), named.stderr + by_environment.stderr
    assert named.stdout == by_environment.stdout
    assert not home.exists()


@pytest.mark.slow
def test_without_the_journal_it_says_what_to_name(app: Path, dsn: str, read_side: str) -> None:
    both = ["--journal", dsn, "--read-side", read_side]
    assert projections("worker", "app:Delays", *both, "--until-caught-up", cwd=app).returncode == 0

    for command in (["lag"], ["status"], ["offsets", "verify"]):
        result = projections(*command, "--dsn", read_side, cwd=app)
        assert result.returncode in {1, 2}, command
        assert "reads journal 'journal' of another database" in result.stderr, result.stderr
    result = projections("worker", "app:Delays", "--dsn", read_side, "--until-caught-up", cwd=app)
    assert result.returncode == 2
    assert "projection 'delays' reads journal 'journal' of another database, not that" in result.stderr


@pytest.mark.slow
def test_a_journal_that_cannot_be_reached_is_named(app: Path, read_side: str) -> None:
    away = "postgresql:///none?host=/nowhere"
    result = projections("worker", "app:Delays", "--journal", away, "--read-side", read_side, cwd=app)
    assert result.returncode == 1
    assert "journal: no connection to the database" in result.stderr
    result = projections("worker", "app:Delays", "--journal", read_side, "--read-side", away, cwd=app)
    assert "read side: no connection to the database" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lag", "--dsn", "x", "--journal", "x", "--read-side", "x"], "--dsn is the database of both"),
        (["lag", "--journal", "mysql://nothing"], "the DSN of the journal does not begin with postgresql://"),
        (
            ["worker", "--subscriptions", "--journal", "postgresql:///a", "--read-side", "postgresql:///b"],
            "run them there",
        ),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], said: str) -> None:
    result = projections(*arguments)
    assert result.returncode == 2 or "DSN" in said
    assert said in result.stderr


@pytest.mark.slow
def test_metrics_of_a_worker_tell_the_lag(app: Path, dsn: str, read_side: str) -> None:
    append(dsn, "a")
    options = ["--journal", dsn, "--read-side", read_side, "--http", "127.0.0.1:0"]
    with running("app:Delays", *options, cwd=app) as worker:
        address = worker.until("serving")["address"]
        while "lag_seconds{" not in (text := httpx.get(f"http://{address}/metrics").text):
            time.sleep(0.05)
    assert "projections_database_up" in text
