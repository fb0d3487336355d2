"""Moving many offsets of another framework over: what is told meanwhile, and that it can be killed at any time."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from journal import slice_of
from journal.database.sync import connect_sync
from tests.fixtures.akka import TABLES
from tests.fixtures.commands import COMMAND, called, environment, projections, query
from tests.fixtures.postgres import Databases

_MODULE = """
from pydantic import BaseModel
from journal import event_type
from projections import handles, projection

@event_type("Opened")
class Opened(BaseModel):
    pass

@projection("accounts", entity_type="account")
class Accounts:
    @handles(Opened)
    async def opened(self, session, event, envelope):
        pass
"""
_SOURCES = 3_000
_EVENTS = """
INSERT INTO event_journal (
    slice, entity_type, persistence_id, seq_nr, db_timestamp, event_ser_id, event_ser_manifest, event_payload, writer
) SELECT
    s.slice, 'account', s.id, 1, '2026-01-01Z'::timestamptz + s.n * interval '1 microsecond', 31, 'Opened', '{}', ''
FROM unnest(%s::text[], %s::int[]) WITH ORDINALITY AS s (id, slice, n)
"""
_OFFSETS = """
INSERT INTO akka_projection_timestamp_offset_store
SELECT 'accounts', '0-1023', slice, persistence_id, 1, db_timestamp, now() FROM event_journal
"""
_HALF = 512
_HOLD = f"""
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN PERFORM pg_advisory_xact_lock_shared(8); RETURN new; END$$;
CREATE TRIGGER hold BEFORE INSERT ON projections.source_offsets FOR EACH ROW WHEN (new.slice >= {_HALF})
EXECUTE FUNCTION hold()
"""
_WAITING = """
SELECT count(*) FROM pg_locks AS l INNER JOIN pg_database AS d ON d.oid = l.database
WHERE NOT l.granted AND l.locktype = 'advisory' AND d.datname = current_database()
"""
_STORED = "SELECT source_id, seq_nr, slice FROM projections.source_offsets ORDER BY source_id"


@pytest.fixture
def read_side(databases: Databases, template: str) -> Iterator[str]:
    with databases.fresh(template) as dsn:
        yield dsn


@pytest.fixture
def names(empty_dsn: str) -> list[str]:
    """Of sources that a projection of Akka has handled."""
    names = [f"account|{n}" for n in range(_SOURCES)]
    with psycopg.connect(empty_dsn) as connection:
        connection.execute(TABLES)
        connection.execute(_EVENTS, (names, list(map(slice_of, names))))
        connection.execute(_OFFSETS)
    return names


def until(true: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextmanager
def started(
    command: list[str], directory: Path
) -> Iterator[tuple[subprocess.Popen[str], Callable[[str], bool]]]:
    """A command whose errors and progress go to a terminal, and whether that shows a text by now."""
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    shown = bytearray()

    def shows(text: str) -> bool:
        with suppress(BlockingIOError):
            shown.extend(os.read(master, 1 << 16))
        return text.encode() in shown

    with subprocess.Popen(
        [*COMMAND, *command], cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave, text=True,
        env=environment(TERM="xterm"),
    ) as process:  # fmt: skip
        try:
            yield process, shows
        finally:
            process.kill()
            os.close(slave)
            os.close(master)


@pytest.mark.slow
def test_one_that_is_killed_in_the_middle_has_stored_nothing_and_the_next_stores_all(
    tmp_path: Path, empty_dsn: str, read_side: str, names: list[str]
) -> None:
    (tmp_path / "bank.py").write_text(_MODULE)
    where = ["--read-side", read_side]
    assert (
        called("journals", "attach", "akka-r2dbc", empty_dsn, "--name", "bank", "--dsn", read_side).returncode
        == 0
    )
    move = ["offsets", "import", "bank:Accounts", "--from", "akka", "--journal", "bank", *where, "--json"]
    with connect_sync(read_side) as connection:
        connection.execute(_HOLD.encode())
    half = sum(slice_of(name) < _HALF for name in names)

    with psycopg.connect(read_side) as holding:
        holding.execute("SELECT pg_advisory_xact_lock(8)")
        with started(move, tmp_path) as (first, shows):
            until(lambda: shows(f"offsets of {half:,} sources"))
            until(lambda: query(read_side, _WAITING) == [(1,)])
            first.kill()
            first.wait()
        # The server does not know yet that its client is gone.
        with started(move, tmp_path) as (second, _):
            until(lambda: query(read_side, _WAITING) == [(2,)])
            assert query(read_side, _STORED) == []
            holding.rollback()
            printed, _ = second.communicate(timeout=300)

    assert second.returncode == 0
    answer = json.loads(printed)
    assert (answer["name"], answer["sources"], answer["deleted"], answer["stored"]) == (
        "accounts",
        _SOURCES,
        0,
        True,
    )
    assert query(read_side, _STORED) == [(name, 1, slice_of(name)) for name in sorted(names)]
    third = projections(*move, cwd=tmp_path)
    assert (third.returncode, "has begun already" in third.stderr) == (1, True)
