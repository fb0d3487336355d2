"""Commands that read the journal from a hot standby."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from journal import Database, Event, append
from tests.fixtures.commands import SEEN, called, environment, projections
from tests.fixtures.failover import Server
from tests.fixtures.hot_standby import hot_standby
from tests.fixtures.postgres import Databases
from tests.fixtures.projections import execute


async def land(journal: Database, *source_ids: str) -> str:
    async with journal.transaction() as session:
        events = [Event(one, {"delay": 1}, entity_type="plane", event_type="Landed") for one in source_ids]
        return (await append(session, events)).token


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["1", "2"])
async def test_a_worker_reads_the_standby_and_commands_count_what_the_primary_has(
    base_cluster: Server, databases: Databases, template: str, app: Path, processes: str
) -> None:
    async with hot_standby(base_cluster, databases, template) as servers:
        primary, standby = servers.both.primary.dsn("one"), servers.both.standby.dsn("one")
        read_side = servers.read_side_dsn
        await execute(servers.read_side, SEEN)
        named = environment(
            PROJECTIONS_JOURNAL=standby, PROJECTIONS_JOURNAL_PRIMARY=primary, PROJECTIONS_READ_SIDE=read_side
        )
        work = ["worker", "app:Delays", "--until-caught-up"]
        options = ["--journal", standby, "--journal-primary", primary, "--read-side", read_side]

        token = await land(servers.primary, "a", "a", "b")
        done = await asyncio.to_thread(projections, *work, *options, "--processes", processes, cwd=app)
        assert done.returncode == 0, done.stderr
        waited = await asyncio.to_thread(called, "wait", "delays", "--token", token, *options)
        assert waited.stdout == "handled by 'delays'\n"

        await servers.pause()
        await land(servers.primary, "a", "c")
        lag = await asyncio.to_thread(called, "lag", "--json", *options)
        assert json.loads(lag.stdout)["projections"][0]["backlog"] == 2
        verified = await asyncio.to_thread(called, "offsets", "verify", *options)
        assert "fits the journal" in verified.stdout
        servers.resume()
        done = await asyncio.to_thread(projections, *work, cwd=app, env=named)
        assert done.returncode == 0, done.stderr

        alone = await asyncio.to_thread(
            projections, *work, "--journal", standby, "--read-side", read_side, cwd=app
        )
        assert "name it alongside the standby (--journal-primary)" in alone.stderr
        assert alone.returncode == 1


_TABLE = "CREATE TABLE orders (id bigserial PRIMARY KEY, s text, n int, kind text, body json, UNIQUE (s, n))"
_MAPPING = """
source = "s"
number = "n"
position = "id"
bound = "sequence"
entity_type = { constant = "order" }
event_type = "kind"
payload = "body"
"""


@pytest.mark.slow
async def test_a_journal_of_another_system_is_attached_at_its_standby(
    base_cluster: Server, databases: Databases, template: str, tmp_path: Path
) -> None:
    (tmp_path / "orders.toml").write_text(_MAPPING)
    async with hot_standby(base_cluster, databases, template) as servers:
        await execute(servers.primary, _TABLE)
        await servers.replayed()
        attach = [
            "journals",
            "attach",
            "table",
            servers.both.standby.dsn("one"),
            "--name",
            "orders",
            "--table",
            "orders",
        ]
        attach += ["--mapping", f"{tmp_path}/orders.toml"]
        where = ["--read-side", servers.read_side_dsn]

        alone = await asyncio.to_thread(projections, *attach, *where)
        assert "Connect to the primary, or name it alongside the standby" in alone.stderr
        primary = ["--journal-primary", servers.both.primary.dsn("one")]
        attached = await asyncio.to_thread(projections, *attach, *where, *primary)
        assert attached.returncode == 0, attached.stderr
        lag = ["lag", "--journal", "orders", *where]
        assert (await asyncio.to_thread(projections, *lag)).returncode == 1
        assert (await asyncio.to_thread(projections, *lag, *primary)).returncode == 0


@pytest.mark.slow
def test_a_primary_needs_a_journal() -> None:
    result = projections("lag", "--dsn", "postgresql:///a", "--journal-primary", "postgresql:///b")

    assert (result.returncode, "name that by --journal" in result.stderr) == (2, True)
