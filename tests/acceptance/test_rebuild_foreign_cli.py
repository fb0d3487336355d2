"""Rebuilding, comparing and repairing from a journal of another system that is attached by a name."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from journal.database.sync import connect_sync
from tests.fixtures.commands import COMMAND, environment, projections, query
from tests.fixtures.postgres import Databases

APP = """
import asyncio
import os

from pydantic import BaseModel
from projections import Changes, EventEnvelope, Session, Table, handles, projection

BALANCES = Table("balances", key="account", source="account", increment=("amount", "events"))


class Paid(BaseModel):
    amount: int


@projection("balances", entity_type="account")
class Balances:
    @handles(Paid)
    def paid(self, event: Paid, envelope: EventEnvelope) -> Changes:
        return BALANCES.upsert(account=envelope.source_id, amount=event.amount, events=1)


@projection("gated", entity_type="account", batch_size=10, tables=("paid",))
class Gated:
    @handles(Paid)
    async def paid(self, session: Session, event: Paid, envelope: EventEnvelope) -> None:
        await session.execute("INSERT INTO paid VALUES ($1, $2)", envelope.source_id, envelope.seq_nr)
        if envelope.seq_nr == 15:
            await session.fetchval("SELECT pg_advisory_xact_lock_shared(7)")
"""
MAPPING = """
table = "orders"
source = "account"
number = "version"
position = "id"
bound = "sequence"
entity_type = { constant = "account" }
event_type = { constant = "Paid" }
payload = "body"
"""
ORDERS = """
CREATE TABLE orders (id bigserial, account text, version int, body jsonb, UNIQUE (account, version));
INSERT INTO orders (account, version, body)
SELECT 'a' || s, n, '{"amount": 2}' FROM generate_series(1, 20) AS n, generate_series(1, 3) AS s ORDER BY n, s
"""
READ_MODELS = """
CREATE TABLE balances (account text PRIMARY KEY, amount bigint NOT NULL DEFAULT 0, events bigint NOT NULL DEFAULT 0);
CREATE TABLE paid (account text, seq_nr bigint, PRIMARY KEY (account, seq_nr))
"""
RIGHT = "SELECT count(*), sum(amount)::int, sum(events)::int FROM balances"
WAITING = (
    "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()"
)
GONE = (
    "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name LIKE 'slice-projections rebuild %' "
    "AND datname = current_database()"
)


@pytest.fixture
def where(databases: Databases, template: str, empty_dsn: str, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    (tmp_path / "bank.py").write_text(APP)
    (tmp_path / "orders.toml").write_text(MAPPING)
    with connect_sync(empty_dsn) as connection:
        connection.execute(ORDERS)
    with databases.fresh(template) as read_side:
        with connect_sync(read_side) as connection:
            connection.execute(READ_MODELS)
        attach = (
            "journals",
            "attach",
            "table",
            "--name",
            "orders",
            "--journal-variable",
            "ORDERS_DSN",
            "--mapping",
            "orders.toml",
        )
        env = environment(ORDERS_DSN=empty_dsn)
        done = projections(*attach, "--read-side", read_side, cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stderr
        yield read_side, empty_dsn, str(tmp_path)


def run(where: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    read_side, dsn, directory = where
    env = environment(ORDERS_DSN=dsn)
    return projections(
        *arguments, "--journal", "orders", "--read-side", read_side, cwd=Path(directory), env=env
    )


@pytest.mark.slow
def test_all_of_it_is_rebuilt_compared_and_repaired(where: tuple[str, ...]) -> None:
    local = ("--engine", "local", "--splits", "2", "--json")

    dry = run(where, "rebuild", "bank:Balances", "--dry-run", "--json")
    assert (dry.returncode, json.loads(dry.stdout)["events"]) == (0, 60), dry.stderr
    done = run(where, "rebuild", "bank:Balances", *local)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["events"] == 60
    assert query(where[0], RIGHT) == [(3, 120, 60)]
    work = run(where, "worker", "bank:Balances", "--until-caught-up")
    assert work.returncode == 0, work.stderr
    assert query(where[0], RIGHT) == [(3, 120, 60)]

    assert run(where, "verify", "bank:Balances", "--all").returncode == 0
    with connect_sync(where[0]) as connection:
        connection.execute("UPDATE balances SET amount = 1 WHERE account = 'a2'")
    found = run(where, "verify", "bank:Balances", "--json")
    assert (found.returncode, json.loads(found.stdout)["differing"]) == (1, 1), found.stderr
    mend = ("rebuild", "bank:Balances", "--source", "a2")
    assert "1 row of 1 source would be replaced" in run(where, *mend, "--dry-run").stdout
    assert "1 row of 1 source replaced" in run(where, *mend).stdout
    assert query(where[0], RIGHT) == [(3, 120, 60)]
    unnamed = projections("verify", "bank:Balances", "--dsn", where[0], cwd=Path(where[2]))
    assert unnamed.returncode == 2
    assert "reads journal 'orders' of another database, and none was named" in unnamed.stderr


@pytest.mark.slow
def test_one_that_was_killed_is_gone_on_with(where: tuple[str, ...]) -> None:
    read_side, dsn, directory = where
    command = ["rebuild", "bank:Gated", "--engine", "local", "--splits", "1"]
    both = ["--journal", "orders", "--read-side", read_side]
    with connect_sync(read_side) as gate:
        gate.execute("SELECT pg_advisory_lock(7)")
        with subprocess.Popen(
            [*COMMAND, *command, *both],
            cwd=directory,
            env=environment(ORDERS_DSN=dsn),
            stderr=subprocess.PIPE,
        ) as process:
            while query(read_side, WAITING) != [(True,)]:
                assert process.poll() is None, process.communicate()
            process.send_signal(signal.SIGKILL)
    while query(read_side, GONE) != [(True,)]:
        pass
    again = run(where, *command, "--json")

    assert again.returncode == 0, again.stderr
    said = json.loads(again.stdout)
    assert (said["events"], said["resumed"]) == (60, True)
    assert query(read_side, "SELECT count(*) FROM paid") == [(60,)]
