"""`projections status`, `offsets`, `parked`, `pause`, `resume` and `doctor` as a user runs them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import journal
from journal import Event, append_sync, schema
from journal.database.sync import connect_sync
from tests.fixtures.commands import APP, COMMAND, SEEN, called, environment, projections, running
from tests.fixtures.postgres import Databases

BEGINNING = "1970-01-01T00:00:00+00:00"


@pytest.fixture(scope="module")
def made_handled(
    databases: Databases, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """What `handled` is a copy of."""
    app = tmp_path_factory.mktemp("app")
    (app / "app.py").write_text(APP)
    with databases.fresh(template) as dsn:
        with connect_sync(dsn) as connection:
            connection.execute(SEEN)
            append_sync(connection, [event(f"N{n}", {} if n in {1, 2} else {"delay": 1}) for n in range(4)])
        assert run(app, dsn) == 0
        yield dsn


@pytest.fixture
def handled(databases: Databases, made_handled: str) -> Iterator[str]:
    """`delays` has handled events of four sources; those of N1 and N2 do not fit their model and are parked."""
    with databases.copy(made_handled) as dsn:
        yield dsn


def event(source_id: str, payload: Any) -> Event:
    return Event(source_id, payload, entity_type="plane", event_type="Landed")


def run(app: Path, dsn: str) -> int:
    result = projections("worker", "app:Delays", "--dsn", dsn, "--ranges", "1", "--until-caught-up", cwd=app)
    return result.returncode


def values(*arguments: str) -> Any:
    result = called(*arguments, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def seen(dsn: str) -> list[str]:
    with connect_sync(dsn) as connection:
        return [row[0] for row in connection.execute("SELECT source_id FROM seen ORDER BY 1").fetchall()]


def append(dsn: str, *events: Event) -> None:
    with connect_sync(dsn) as connection:
        append_sync(connection, events)


def wait_until_older_than(dsn: str, pid: int, seconds: float) -> None:
    """Ask until a writer's transaction is as old as that."""
    with connect_sync(dsn) as connection:
        asked = "SELECT age FROM projections.writers_in_flight_v1() WHERE pid = %s"
        while (connection.execute(asked, [pid]).fetchone() or (timedelta(0),))[0].total_seconds() < seconds:
            connection.rollback()


def forget_seen(dsn: str) -> None:
    with connect_sync(dsn) as connection:
        connection.execute("TRUNCATE seen")


def parked(dsn: str) -> dict[str, str]:
    found = values("parked", "list", "delays", "--dsn", dsn)["parked"]
    return {one["source_id"]: one["decision"] for one in found}


def answer(arguments: list[str], text: str) -> tuple[int, str]:
    """Run a command on a terminal and type an answer."""
    ours, theirs = pty.openpty()
    pipe: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen([*COMMAND, *arguments], stdin=theirs, env=environment(), **pipe) as process:
        os.write(ours, text.encode())
        output, _ = process.communicate()
    os.close(ours)
    os.close(theirs)
    return process.returncode, output


@pytest.mark.slow
def test_status_tells_what_a_projection_does(handled: str) -> None:
    append(handled, event("N0", {"delay": 1}), event("N1", {"delay": 1}))

    (found,) = values("status", "--dsn", handled)["projections"]

    assert found["name"] == "delays"
    assert (found["paused"], found["has_events"]) == (False, True)
    assert (found["backlog"], found["parked"], found["handled"]) == (1, 2, 2)
    assert found["lag_seconds"] > 0
    (part,) = found["ranges"]
    assert (part["min_slice"], part["max_slice"], part["owner"], part["alive"]) == (0, 1023, None, False)
    assert (part["state"], part["backlog"], part["parked"]) == ("unclaimed", 1, 2)
    assert part["horizon"] > BEGINNING


@pytest.mark.slow
def test_status_names_the_owner_of_a_range_that_runs(app: Path, handled: str) -> None:
    with running("app:Delays", "--dsn", handled, cwd=app) as worker:
        worker.until("started")

        (found,) = values("status", "delays", "--dsn", handled)["projections"]
        table = called("status", "--dsn", handled).stdout

    assert found["ranges"][0]["alive"]
    assert f":{worker.process.pid}:" in found["ranges"][0]["owner"]
    assert found["ranges"][0]["epoch"] == 2
    assert found["ranges"][0]["state"] == "parked"
    assert found["ranges"][0]["owner"] in table


@pytest.mark.slow
def test_status_counts_parked_sources_in_the_range_they_belong_to(handled: str) -> None:
    called("rescale", "delays", "--ranges", "4", "--dsn", handled)

    table = called("status", "--ranges", "--dsn", handled).stdout

    rows = [line.split("│") for line in table.splitlines() if "│ delays" in line]
    assert len(rows) == 4
    assert sum(int(row[-2]) for row in rows) == 2


def test_status_tells_why_a_range_is_restarting(handled: str) -> None:
    with connect_sync(handled) as connection:
        connection.execute(
            "INSERT INTO projections.workers (owner, host, pid, projection_ids, lease_until) "
            "VALUES ('w', 'h', 1, '{1}', clock_timestamp() + INTERVAL '1 hour')"
        )
        connection.execute("UPDATE projections.projection_ranges SET owner = 'w'")
        connection.execute(
            "SELECT projections._fail_range_v1(1, 0, epoch, 3, 'no [table]', '1 hour') "
            "FROM projections.projection_ranges"
        )

    (part,) = values("status", "--dsn", handled)["projections"][0]["ranges"]
    text = called("status", "--dsn", handled).stdout

    assert (part["state"], part["failures"], part["error"]) == ("restarting", 3, "no [table]")
    assert "slices 0-1023: failed 3 times in a row, starts again in 59 min" in text
    assert text.endswith(": no [table]\n")


def test_status_tells_which_open_transaction_holds_the_horizon_back(handled: str) -> None:
    with connect_sync(handled, application_name="slow-writer") as writer:
        append_sync(writer, [event("N0", {"delay": 1})])
        pid = writer.info.backend_pid
        wait_until_older_than(handled, pid, seconds=1.1)

        (found,) = values("status", "--dsn", handled)["writers"]
        text = called("status", "--dsn", handled).stdout

    assert (found["pid"], found["application_name"]) == (pid, "slow-writer")
    assert found["age_seconds"] > 1
    assert f"by an open transaction that has appended: pid {pid} (slow-writer)" in text


@pytest.mark.slow
def test_a_range_that_stopped_before_it_handled_anything_is_at_the_beginning(app: Path, handled: str) -> None:
    called("offsets", "clear", "delays", "--yes", "--dsn", handled)
    called("pause", "delays", "--dsn", handled)
    with running("app:Delays", "--dsn", handled, cwd=app) as worker:
        worker.until("started")
        worker.process.terminate()
        worker.process.wait(30)

    shown = called("offsets", "list", "--dsn", handled).stdout
    (found,) = values("status", "--dsn", handled)["projections"]

    assert "at the beginning" in shown
    assert (found["backlog"], found["ranges"][0]["horizon"]) == (4, BEGINNING)


@pytest.mark.slow
def test_status_of_an_unknown_projection_names_the_known_ones(handled: str) -> None:
    result = called("status", "delay", "--dsn", handled)

    assert (result.returncode, result.stdout) == (1, "")
    said = "no projection 'delay' has run on this database; known: delays. Did you mean 'delays'?"
    assert result.stderr == f"error: {said}\n"


@pytest.mark.slow
def test_status_says_that_a_projection_has_nothing_to_read(app: Path, dsn: str) -> None:
    run(app, dsn)

    assert "no events of type 'plane'" in called("status", "--dsn", dsn).stdout
    assert not values("status", "--dsn", dsn)["projections"][0]["has_events"]


@pytest.mark.slow
def test_a_paused_projection_handles_nothing_until_it_is_resumed(app: Path, handled: str) -> None:
    called("pause", "delays", "--dsn", handled)
    append(handled, event("N9", {"delay": 1}))
    with running("app:Delays", "--dsn", handled, "--until-caught-up", cwd=app) as worker:
        worker.until("paused")
        before = seen(handled)
        state = called("status", "--dsn", handled).stdout

        resumed = called("resume", "delays", "--dsn", handled)

        assert worker.end() == 0
    assert (resumed.stdout, resumed.stderr) == ("projection 'delays' is not paused\n", "")
    assert "paused" in state
    assert before == ["N0", "N3"]
    assert seen(handled) == ["N0", "N3", "N9"]


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_an_unknown_projection_is_neither_paused_nor_resumed(handled: str, command: str) -> None:
    result = called(command, "nope", "--dsn", handled)

    assert (result.returncode, result.stdout) == (1, "")


def test_offsets_show_where_each_range_stands(handled: str) -> None:
    (found,) = values("offsets", "show", "delays", "--dsn", handled)["projections"]
    table = called("offsets", "list", "--dsn", handled).stdout

    (part,) = found["ranges"]
    assert found["entity_type"] == "plane"
    assert part["horizon"] > BEGINNING
    assert part["handled_at"] > BEGINNING
    assert "0-1023" in table


@pytest.mark.slow
def test_a_cleared_offset_has_every_event_handled_again(app: Path, handled: str) -> None:
    result = called("offsets", "clear", "delays", "--yes", "--dsn", handled)
    forget_seen(handled)
    run(app, handled)

    assert (result.returncode, result.stdout) == (0, "projection 'delays' starts at the beginning\n")
    assert seen(handled) == ["N0", "N3"]


@pytest.mark.slow
def test_an_offset_set_to_a_time_leaves_out_what_is_older(app: Path, handled: str) -> None:
    forget_seen(handled)
    with connect_sync(handled) as connection:
        (now,) = connection.execute("SELECT clock_timestamp()").fetchone() or ()
    append(handled, event("N0", {"delay": 1}), event("N8", {"delay": 1}))

    result = called("offsets", "set", "delays", "--from", now.isoformat(), "--yes", "--dsn", handled)
    run(app, handled)

    assert (result.returncode, result.stdout) == (0, f"projection 'delays' starts at {now.isoformat()}\n")
    assert seen(handled) == ["N0", "N8"]


@pytest.mark.parametrize(
    ("time", "message"),
    [
        (
            "2026-01-31",
            "'2026-01-31' has no zone: write 2026-01-31T00:00:00Z for UTC",
        ),
        (
            "yesterday",
            "'yesterday' is not a time: write beginning, or 2h for two hours ago, or 2026-01-31T12:00:00Z",
        ),
        ("10000-01-01T00:00:00Z", "'10000-01-01T00:00:00Z' is not a time"),
    ],
)
def test_a_wrong_time_changes_nothing_and_is_told(handled: str, time: str, message: str) -> None:
    before = values("offsets", "list", "--dsn", handled)

    result = called("offsets", "set", "delays", "--from", time, "--yes", "--dsn", handled)

    assert result.returncode == 2
    assert message in result.stderr
    assert values("offsets", "list", "--dsn", handled) == before


DESTRUCTIVE = [
    ["offsets", "clear", "delays"],
    ["offsets", "set", "delays", "--from", "2026-01-01T00:00:00Z"],
    ["parked", "drop", "delays", "--all"],
]


@pytest.mark.slow
@pytest.mark.parametrize("command", DESTRUCTIVE)
def test_what_can_not_be_undone_is_not_done_unasked(handled: str, command: list[str]) -> None:
    before = values("offsets", "list", "--dsn", handled), parked(handled)

    unasked = called(*command, "--dsn", handled)
    refused = answer([*command, "--dsn", handled], "n\n")

    assert (unasked.returncode, unasked.stderr) == (
        1,
        "error: cannot ask for confirmation without a terminal: pass --yes\n",
    )
    assert refused[0] == 1
    assert "[y/N]" in refused[1]
    assert (values("offsets", "list", "--dsn", handled), parked(handled)) == before


@pytest.mark.slow
def test_an_answer_on_the_terminal_is_followed(handled: str) -> None:
    code, output = answer(["parked", "drop", "delays", "--all", "--dsn", handled], "y\n")

    assert code == 0
    assert output.endswith("parked events dropped: 2\n")


def test_a_parked_source_is_shown_with_where_its_event_failed(handled: str) -> None:
    found = values("parked", "show", "delays", "N1", "--dsn", handled)
    text = called("parked", "show", "delays", "N1", "--dsn", handled).stdout
    nobody = called("parked", "show", "delays", "N9", "--dsn", handled)

    assert (found["source_id"], found["seq_nr"], found["decision"]) == ("N1", 1, "waiting")
    assert "Traceback (most recent call last):" in found["traceback"]
    assert "does not fit Landed" in found["traceback"]
    assert found["payload"] == "{}"
    assert text.splitlines()[:3] == ["projection: delays", "source id: N1", "seq nr: 1"]
    assert "payload: {}" in text.splitlines()
    assert "  Traceback (most recent call last):" in text.splitlines()
    assert (nobody.returncode, nobody.stderr) == (
        1,
        "error: source 'N9' of projection 'delays' is not parked\n",
    )


@pytest.mark.slow
def test_a_long_payload_of_a_parked_source_is_cut_for_people(app: Path, dsn: str) -> None:
    with connect_sync(dsn) as connection:
        connection.execute(SEEN)
    append(dsn, event("N1", {"note": "x" * 5000 + "\x1b"}))
    assert run(app, dsn) == 0

    text = called("parked", "show", "delays", "N1", "--dsn", dsn).stdout
    (line,) = (line for line in text.splitlines() if line.startswith("payload: "))
    found = values("parked", "show", "delays", "N1", "--dsn", dsn)

    assert line.startswith('payload: {"note":"xxx')
    assert line.endswith("… (5,017 characters: --json has all of them)")
    assert len(line) < 4100
    assert json.loads(found["payload"]) == {"note": "x" * 5000 + "\x1b"}


def test_parked_sources_are_listed_with_their_event_and_reason(handled: str) -> None:
    (found,) = values("parked", "list", "--source", "N1", "--dsn", handled)["parked"]
    table = called("parked", "list", "delays", "--dsn", handled).stdout

    assert (found["projection"], found["source_id"]) == ("delays", "N1")
    assert (found["source_id"], found["seq_nr"], found["event_type"], found["attempts"]) == (
        "N1",
        1,
        "Landed",
        1,
    )
    assert found["decision"] == "waiting"
    assert (
        found["error"] == "event 'Landed' of source 'N1', seq_nr 1 does not fit Landed: delay: Field required"
    )
    assert found["error"] in table


def test_a_retry_waits_for_its_outcome(app: Path, handled: str) -> None:
    alone = called("parked", "retry", "delays", "--all", "--wait", "1ms", "--json", "--dsn", handled)
    assert alone.returncode == 1
    assert json.loads(alone.stdout) == {
        "retried": 2, "handled": 0, "failed": 0, "undone": 2, "running": False,
    }  # fmt: skip
    run(app, handled)
    assert parked(handled) == {"N1": "waiting", "N2": "waiting"}
    with running("app:Delays", "--dsn", handled, cwd=app) as worker:
        worker.until("started")
        again = called("parked", "retry", "delays", "N1", "--wait", "5m", "--dsn", handled)
        resumed = values("resume", "delays", "--dsn", handled)
    assert again.stdout == "parked events handled: 0, failed again: 1, not handled yet: 0\n"
    assert (again.returncode, again.stderr, resumed["running"]) == (1, "", True)


@pytest.mark.slow
def test_one_source_is_retried_and_the_other_waits_on(app: Path, handled: str) -> None:
    result = called("parked", "retry", "delays", "N1", "--dsn", handled)
    assert (result.returncode, result.stdout) == (0, "parked events to be retried: 1\n")
    assert result.stderr == "no worker of projection 'delays' runs: it is done when one does\n"
    assert parked(handled) == {"N1": "retry", "N2": "waiting"}
    (app / "app.py").write_text(APP.replace("delay: int", "delay: int = 0"))

    run(app, handled)

    assert parked(handled) == {"N2": "waiting"}
    assert seen(handled) == ["N0", "N1", "N3"]


@pytest.mark.slow
def test_dropped_events_are_passed_over_and_their_sources_go_on(app: Path, handled: str) -> None:
    result = called("parked", "drop", "delays", "--all", "--yes", "--dsn", handled)
    append(handled, event("N1", {"delay": 1}))

    run(app, handled)

    assert (result.returncode, result.stdout) == (0, "parked events dropped: 2\n")
    assert parked(handled) == {}
    assert seen(handled) == ["N0", "N1", "N3"]


def test_a_source_that_does_not_wait_is_told(handled: str) -> None:
    result = called("parked", "retry", "delays", "N3", "--dsn", handled)

    assert result.returncode == 1
    assert result.stderr == "error: source 'N3' of projection 'delays' is not waiting for a decision\n"


@pytest.mark.parametrize("arguments", [[], ["N1", "--all"]])
def test_a_decision_names_one_source_or_all(handled: str, arguments: list[str]) -> None:
    result = called("parked", "retry", "delays", *arguments, "--dsn", handled)

    assert result.returncode == 2
    assert "pass either SOURCE or --all" in result.stderr


def test_doctor_tells_what_is_installed_and_which_database_is_used(handled: str) -> None:
    found = json.loads(called("doctor", "--dsn", handled, "--json").stdout)

    assert found["library"] == journal.__file__
    assert found["Python"].startswith(".".join(map(str, sys.version_info[:3])))
    assert found["schema version"] == schema.SCHEMA_VERSION
    assert found["projections"] == ["delays"]
    assert found["database from"] == "--dsn"
    assert found["writers in flight"] == []
    assert found["problems"] == ["no worker runs projection 'delays'; start projections worker"]
    assert {"asyncpg", "psycopg", "PostgreSQL"} <= set(found)


def test_doctor_names_who_holds_the_append_lock(handled: str) -> None:
    with connect_sync(handled, application_name="slow-writer") as writer:
        append_sync(writer, [event("N0", {"delay": 1})])

        (found,) = json.loads(called("doctor", "--dsn", handled, "--json").stdout)["writers in flight"]
        text = called("doctor", "--dsn", handled).stdout
        pid = writer.info.backend_pid

    assert (found["pid"], found["application_name"]) == (pid, "slow-writer")
    assert f"pid {found['pid']} (slow-writer), open for " in text


def test_doctor_fails_where_the_schema_is_missing(empty_dsn: str) -> None:
    result = called("doctor", "--dsn", empty_dsn)

    assert result.returncode == 1
    assert "PROBLEM database: the schema projections is not installed" in result.stdout


@pytest.mark.slow
def test_doctor_tells_of_a_database_that_can_not_be_reached_without_the_password() -> None:
    result = projections("doctor", env=environment(PROJECTIONS_DSN="postgresql://u:hunter2@localhost:1/db"))

    assert result.returncode == 1
    assert "PROBLEM database: no connection to the database: " in result.stdout
    assert "database from: PROJECTIONS_DSN" in result.stdout
    assert "hunter2" not in result.stdout + result.stderr


@pytest.mark.parametrize(
    "command", [["status"], ["offsets", "list"], ["parked", "list", "x"], ["pause", "x"]]
)
def test_a_database_without_the_schema_is_told_what_to_do(empty_dsn: str, command: list[str]) -> None:
    result = called(*command, "--dsn", empty_dsn)

    assert result.returncode == 1
    assert result.stderr == (
        "error: the schema projections is not installed in this database: run `projections schema install`\n"
    )


# ---- remove ----


def test_remove_lists_what_goes_and_needs_a_yes(handled: str) -> None:
    refused = called("remove", "delays", "--dsn", handled)

    assert (refused.returncode, "pass --yes" in refused.stderr) == (1, True)
    assert [one["name"] for one in values("status", "--dsn", handled)["projections"]] == ["delays"]


def test_remove_takes_a_projection_away(handled: str) -> None:
    removed = values("remove", "delays", "--yes", "--dsn", handled)

    assert removed == {"name": "delays", "ranges": 1, "sources": 2, "parked": 2, "rebuilds": 0}
    assert values("status", "--dsn", handled)["projections"] == []
    assert "no projection 'delays' has run" in called("remove", "delays", "--yes", "--dsn", handled).stderr
