"""Commands on a projection that reads several journals: what is told of each, and what is done to one or to all."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from journal.database.sync import connect_sync
from tests.acceptance.test_two_databases_cli import append, seen
from tests.fixtures.commands import APP, SEEN, called, environment, projections, running
from tests.fixtures.postgres import Databases

_MAPPING = """
table = "orders"
source = "source"
number = "version"
position = "id"
bound = "sequence"
entity_type = { constant = "plane" }
event_type = { constant = "Landed" }
payload = "body"
"""
_AWAY = "postgresql:///none?host=/nowhere"


@pytest.fixture
def read_side(databases: Databases, template: str) -> Iterator[str]:
    with databases.fresh(template) as dsn:
        with connect_sync(dsn) as connection:
            connection.execute(SEEN)
        yield dsn


@pytest.fixture
def second(databases: Databases, template: str) -> Iterator[str]:
    with databases.fresh(template) as dsn:
        yield dsn


def of_each(answer: str) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in json.loads(answer)["projections"]}


@pytest.mark.slow
def test_a_worker_and_what_is_asked_about_its_parts(app: Path, dsn: str, second: str, read_side: str) -> None:
    here = ["--read-side", read_side]
    both = [*here, "--journal", dsn, "--journal", f"shop={second}"]
    append(dsn, "a", "a", "b")
    given = append(second, "c", "c")
    append(second, "d", delay="late")

    done = projections("worker", "app:Delays", *both, "--until-caught-up", "--processes", "2", cwd=app)

    assert done.returncode == 0, done.stderr
    assert seen(read_side) == [("a", 1), ("a", 2), ("b", 1), ("c", 1), ("c", 2)]
    append(second, "e")
    lag = of_each(called("lag", "--json", *both).stdout)
    assert {name: (one["backlog"], one["journal"]) for name, one in lag.items()} == {
        "delays@journal": (0, "journal"), "delays@shop": (1, "shop"),
    }  # fmt: skip
    status = of_each(called("status", "delays@shop", "--json", *both).stdout)
    assert [(name, one["handled"], one["parked"]) for name, one in status.items()] == [("delays@shop", 2, 1)]
    assert "delays@journal" in called("status", *both).stdout
    listed = called("parked", "list", "delays", *here).stdout
    assert re.search(r"delays@shop\W+d\W+1", listed), listed
    assert called("parked", "drop", "delays", "--all", "--yes", *here).returncode == 0
    assert called("pause", "delays@shop", *here).stdout == "projection 'delays@shop' is paused\n"
    assert called("rescale", "delays@shop", "--ranges", "3", *here).returncode == 0
    offsets = of_each(called("offsets", "show", "delays", "--json", *here).stdout)
    assert {name: len(one["ranges"]) for name, one in offsets.items()} == {
        "delays@journal": 8, "delays@shop": 3,
    }  # fmt: skip
    assert called("rescale", "delays", "--ranges", "2", *here).stdout == (
        "projection 'delays@journal' had 8 ranges, and has 2 now\n"
        "projection 'delays@shop' had 3 ranges, and has 2 now\n"
    )
    assert called("resume", "delays", *here).returncode == 0
    waited = called(
        "wait", "delays", "--token", given, "--read-side", read_side, "--journal", f"shop={second}"
    )
    assert waited.stdout == "handled by 'delays'\n"
    verified = called("offsets", "verify", *both)
    assert (verified.returncode, verified.stdout) == (
        0,
        "the progress of every projection fits the journal\n",
    )

    refused = projections("worker", "app:Delays", *here, "--journal", dsn, "--until-caught-up", cwd=app)
    assert refused.returncode == 2
    assert "reads journal 'shop' of another database, too, which is not named" in refused.stderr
    assert "projections remove delays@shop" in refused.stderr
    removed = called("remove", "delays@shop", "--yes", *both)
    assert (
        "projection 'delays@shop' is removed: 2 ranges, offsets of 1 sources, 1 parked sources"
        in removed.stdout
    )
    assert (
        projections("worker", "app:Delays", *here, "--journal", dsn, "--until-caught-up", cwd=app).returncode
        == 0
    )
    assert list(of_each(called("lag", "--json", *here, "--journal", dsn).stdout)) == ["delays"]


@pytest.mark.slow
def test_one_of_ours_and_one_of_another_system_named_by_the_environment(
    app: Path, dsn: str, empty_dsn: str, read_side: str
) -> None:
    (app / "orders.toml").write_text(_MAPPING)
    with connect_sync(empty_dsn) as connection:
        connection.execute(
            "CREATE TABLE orders (source text, version int, id bigint GENERATED ALWAYS AS IDENTITY UNIQUE, body jsonb, "
            "PRIMARY KEY (source, version))"
        )
        connection.execute("""INSERT INTO orders (source, version, body) VALUES ('x', 1, '{"delay": 3}')""")
    attached = called(
        "journals",
        "attach",
        "table",
        empty_dsn,
        "--name",
        "orders",
        "--mapping",
        str(app / "orders.toml"),
        "--read-side",
        read_side,
    )
    assert attached.returncode == 0, attached.stderr
    append(dsn, "a")
    command = ["worker", "app:Delays", "--until-caught-up"]
    for named in (f"orders {dsn}", f"orders\n{dsn}\n"):
        env = environment(PROJECTIONS_JOURNAL=named, PROJECTIONS_READ_SIDE=read_side)
        done = projections(*command, cwd=app, env=env)
        assert done.returncode == 0, done.stderr
        assert seen(read_side) == [("a", 1), ("x", 1)]
    one = projections("wait", "delays", "--token", "x", cwd=app, env=env)
    assert one.returncode == 2
    assert "this reads one journal, and 2 are named" in one.stderr


def test_one_that_is_away_at_the_start_does_not_keep_the_other_waiting(
    app: Path, dsn: str, read_side: str
) -> None:
    append(dsn, "a")
    options = [
        "--journal",
        f"shop={_AWAY}",
        "--journal",
        dsn,
        "--read-side",
        read_side,
        "--http",
        "127.0.0.1:0",
    ]
    with running("app:Delays", *options, cwd=app) as worker:
        address = worker.until("serving")["address"]
        said = worker.until("journal_unavailable")["message"]
        assert "journal 'shop': no connection" in said
        while not seen(read_side):
            time.sleep(0.05)
        assert httpx.get(f"http://{address}/livez").status_code == 200
    looked = called("lag", *options[:-2])
    assert looked.returncode == 1
    assert "journal 'shop': no connection" in looked.stderr
    assert called("lag", "delays@journal", "--journal", dsn, "--read-side", read_side).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--journal", "a", "--journal", "b", "--journal-primary", "postgresql:///p"],
            "and no other journal",
        ),
        (
            ["--journal", "postgresql:///a", "--journal", "postgresql:///b"],
            "two journals are named 'journal'",
        ),
        (["--journal", "a=postgresql:///x", "--journal", "b=postgresql:///x"], "a journal is named twice"),
        (["--journal", "a=mysql://x", "--journal", "b"], "the DSN of the journal"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, read_side: str, arguments: list[str], said: str) -> None:
    (tmp_path / "app.py").write_text(APP)
    result = projections("worker", "app:Delays", *arguments, "--read-side", read_side, cwd=tmp_path)
    assert result.returncode in {1, 2}
    assert said in result.stderr, result.stderr


@pytest.mark.slow
def test_metrics_of_a_worker_tell_each_part_apart(app: Path, dsn: str, second: str, read_side: str) -> None:
    append(dsn, "a")
    append(second, "a", "b")
    options = [
        "--journal",
        dsn,
        "--journal",
        f"shop={second}",
        "--read-side",
        read_side,
        "--http",
        "127.0.0.1:0",
    ]
    with running("app:Gated", *options, cwd=app) as worker:
        address = worker.until("serving")["address"]
        wanted = [
            rf'{name}\{{[^}}]*projection="gated@{journal}"'
            for name in ("projections_lag_seconds", "projections_worker_events_handled_total")
            for journal in ("journal", "shop")
        ]
        while not all(re.search(one, httpx.get(f"http://{address}/metrics").text) for one in wanted):
            time.sleep(0.05)


@pytest.mark.slow
def test_a_worker_that_is_killed_in_a_batch_of_each_loses_and_doubles_nothing(
    app: Path, dsn: str, second: str, read_side: str
) -> None:
    """Killed while a handler of each journal waits; ranges are cut again; another takes over."""
    options = ["--journal", dsn, "--journal", f"shop={second}", "--read-side", read_side, "--lease", "1s"]
    append(dsn, *["a", "b"] * 5)
    append(second, *["c", "d"] * 5)
    with connect_sync(read_side) as gate:
        gate.execute("SELECT pg_advisory_lock(7)")
        with running("app:Gated", *options, "--ranges", "1", cwd=app) as worker:
            assert {line["seq_nr"] for line in worker.until_all("handling", 2)} == {1}
            worker.signal(signal.SIGKILL)
            worker.process.wait()
        assert called("rescale", "gated", "--ranges", "4", "--read-side", read_side).returncode == 0
    done = projections("worker", "app:Gated", *options, "--until-caught-up", cwd=app)

    assert done.returncode == 0, done.stderr
    assert seen(read_side) == [(source, number) for source in "abcd" for number in range(1, 6)]
