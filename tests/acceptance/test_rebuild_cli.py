"""`projections rebuild` as a user runs it; what it does is tested in tests/integration."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from journal.database.sync import connect_sync
from tests.fixtures.commands import COMMAND, called, environment, gate, projections, query

MODULE = '''
from pydantic import BaseModel
from projections import Changes, EventEnvelope, Session, Table, handles, projection

class Landed(BaseModel):
    delay: int

DELAYS = Table("delays", key="source_id", source="source_id", increment=("n", "delay"))

@projection("delays", entity_type="plane")
class Delays:
    @handles(Landed)
    def landed(self, event: Landed, envelope: EventEnvelope) -> Changes:
        return DELAYS.upsert(source_id=envelope.source_id, n=1, delay=event.delay)

@projection("gated", entity_type="plane", tables=("delays",), batch_size=10)
class Gated:
    """Waits for a lock that the test holds."""

    @handles(Landed)
    async def landed(self, session: Session, event: Landed, envelope: EventEnvelope) -> None:
        await session.fetchval("SELECT pg_advisory_xact_lock_shared(7)")
        await session.execute(
            "INSERT INTO delays AS d VALUES ($1, 1, 1) ON CONFLICT (source_id) DO UPDATE SET n = d.n + 1",
            envelope.source_id,
        )
'''
TABLE = "CREATE TABLE delays (source_id text PRIMARY KEY, n bigint NOT NULL DEFAULT 0, delay bigint NOT NULL DEFAULT 0)"
LEFT = "SELECT nspname FROM pg_namespace WHERE nspname ~ '^projections_(rebuild|old)_' ORDER BY 1"
ROWS = "SELECT count(*), sum(n) FROM delays"
# In this database: others of the server belong to other tests.
_WAITS = """
FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
WAITING = f"SELECT count(*) > 0 {_WAITS}"
LET_GO = f"SELECT pg_terminate_backend(pid) {_WAITS}"


@pytest.fixture
def module(tmp_path: Path, filled: str) -> Path:
    """A directory with a user's module, whose read model is empty; the journal has 100 events of 20 sources."""
    (tmp_path / "flights.py").write_text(MODULE)
    with connect_sync(filled) as connection:
        connection.execute(TABLE)
    return tmp_path


def rebuild(module: Path, dsn: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return projections("rebuild", *arguments, "--dsn", dsn, cwd=module)


def rebuilt(module: Path, dsn: str, *arguments: str) -> dict[str, Any]:
    done = rebuild(
        module, dsn, "delays", "--app", "flights", "--engine", "local", "--splits", "1", "--json", *arguments
    )
    assert done.returncode == 0, done.stderr
    values: dict[str, Any] = json.loads(done.stdout)
    return values


@contextmanager
def waiting(module: Path, dsn: str) -> Iterator[subprocess.Popen[str]]:
    """A rebuild in the middle of its fold, for the length of the block."""
    command = [
        *COMMAND,
        "rebuild",
        "flights:Gated",
        "--engine",
        "local",
        "--splits",
        "1",
        "--dsn",
        dsn,
        "--json",
    ]
    with subprocess.Popen(
        command, cwd=module, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        try:
            while query(dsn, WAITING) != [(True,)]:
                assert process.poll() is None, process.communicate()
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_it_prints_one_json_object_and_fills_the_table(module: Path, filled: str) -> None:
    values = rebuilt(module, filled)

    assert query(filled, ROWS) == [(20, 100)]
    assert values["events"] == 100
    assert values["sources"] == values["sampled"] == 20
    assert values["rows"] == {"delays": 20}
    assert values["rows_before"] == {"delays": 0}
    assert values["slices"] == "0-1023"
    assert set(values["seconds"]) == {"fence", "fold", "combine", "verify", "swap"}


@pytest.mark.slow
def test_progress_is_on_stderr(module: Path, filled: str) -> None:
    done = rebuild(module, filled, "flights:Delays", "--engine", "local", "--splits", "1")

    assert [line.partition(":")[0] for line in done.stderr.splitlines()][:2] == ["fence", "fold"]
    assert "fold: 100 of 100 events" in done.stderr
    assert "Rebuilt delays" in done.stdout


@pytest.mark.slow
def test_a_dry_run_changes_nothing(module: Path, filled: str) -> None:
    done = rebuild(module, filled, "delays", "-a", "flights", "--dry-run", "--json")

    assert json.loads(done.stdout)["events"] == 100
    assert json.loads(done.stdout)["tables"] == {"delays": "a source's own rows"}
    assert query(filled, ROWS) == [(0, None)]
    assert query(filled, LEFT) == []


@pytest.mark.slow
def test_old_tables_are_kept_until_they_are_dropped(module: Path, filled: str) -> None:
    values = rebuilt(module, filled)
    assert query(filled, LEFT) == [(values["old_schema"],)]

    listed = json.loads(called("rebuilds", "--json", "--dsn", filled).stdout)["rebuilds"]
    assert [(one["projection"], one["state"], one["schema"]) for one in listed] == [
        ("delays", "swapped", values["old_schema"])
    ]
    done = called("rebuilds", "drop-old", "delays", "--dsn", filled)

    assert done.stdout == f"dropped {values['old_schema']}.delays\n"
    assert query(filled, LEFT) == []


@pytest.mark.slow
def test_a_range_of_slices_is_rebuilt(module: Path, filled: str) -> None:
    rebuilt(module, filled)

    values = rebuilt(module, filled, "--slices", "0-511")

    assert values["slices"] == "0-511"
    assert 0 < values["events"] < 100
    assert query(filled, ROWS) == [(20, 100)]


@pytest.mark.daily(1)
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["delays"], 2, "where is 'delays' defined? Add --app MODULE, or write MODULE:OBJECT"),
        (["arrivals", "--app", "flights"], 2, "no projection 'arrivals' in flights; there are delays, gated"),
        (["flights:Delays", "--slices", "7-2000"], 2, "'7-2000' is not a range of slices"),
        (["flights:Delays", "--until", "yesterday"], 2, "'yesterday' is not a time"),
        (["flights:Gated", "--slices", "0-9"], 1, "the rows of table delays cannot be told apart by slice"),
    ],
)
def test_what_can_not_be_done_is_said(
    module: Path, filled: str, arguments: list[str], code: int, said: str
) -> None:
    done = rebuild(module, filled, *arguments)

    assert done.returncode == code
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize("verb", ["cancel", "drop-old"])
def test_a_projection_that_there_is_not_has_no_rebuilds(filled: str, verb: str) -> None:
    refused = called("rebuilds", verb, "nobody", "--dsn", filled)

    assert (refused.returncode, "no projection 'nobody' has run" in refused.stderr) == (1, True)
    assert called("rebuilds", "--dsn", filled).stdout == (
        "no rebuild is unfinished, and no replaced table is kept\n"
    )


@pytest.mark.slow
def test_ctrl_c_removes_what_was_built(module: Path, filled: str) -> None:
    with gate(filled), waiting(module, filled) as process:
        process.send_signal(signal.SIGINT)
        while process.poll() is None:
            # The task is in a batch, and sees it at its next: let it go on. It may have begun it again.
            query(filled, LET_GO)
        _, said = process.communicate(timeout=300)

    assert (process.returncode, query(filled, LEFT)) == (130, [])
    assert "stopped; what was built is removed" in said


@pytest.mark.slow
def test_a_second_rebuild_is_refused_before_spark_starts(module: Path, filled: str) -> None:
    with gate(filled), waiting(module, filled):
        beside = rebuild(module, filled, "flights:Gated", "--master", "spark://127.0.0.1:1")
        query(filled, LET_GO)

    assert beside.returncode == 1
    assert "projection 'gated' is being rebuilt already, by process" in beside.stderr


@pytest.mark.slow
def test_a_killed_rebuild_is_gone_on_with(module: Path, filled: str) -> None:
    with gate(filled), waiting(module, filled) as process:
        process.kill()
        process.wait()
    done = rebuild(module, filled, "flights:Gated", "--engine", "local", "--splits", "1", "--json")

    assert done.returncode == 0, done.stderr
    assert "goes on with the rebuild that was begun at" in done.stderr
    assert json.loads(done.stdout)["resumed"] is True
    assert query(filled, ROWS) == [(20, 100)]


@pytest.mark.slow
def test_what_a_killed_rebuild_has_left_is_removed_when_asked(module: Path, filled: str) -> None:
    with gate(filled), waiting(module, filled) as process:
        process.kill()
        process.wait()

    assert "'gated': a rebuild is unfinished since" in called("status", "--dsn", filled).stdout

    listed = called("rebuilds", "list", "--dsn", filled).stdout
    assert all(word in listed for word in ("gated", "0-1023", "folding", "projections_rebuild_1"))
    done = called("rebuilds", "cancel", "gated", "--dsn", filled)

    assert done.stdout == "dropped projections_rebuild_1\n"
    assert query(filled, LEFT) == []
