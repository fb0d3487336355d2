"""On a server that compiles, no plan of a statement of the library is compiled, as the server's log tells."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg
import psycopg
import pytest

from journal import ConnectionSettings, Database, append, append_sync, connect, schema
from journal.embedded import EmbeddedServer
from journal.embedded.binaries import from_system
from projections import Inline
from projections.monitoring import projection_lags
from projections.subscriptions import create_group, subscribe
from projections.testing import run_until_caught_up
from tests.fixtures.inline import DELAYS, Recording, event, prepare
from tests.fixtures.inline import mode as set_mode
from tests.fixtures.pgbouncer import pooler
from tests.fixtures.postgres import SETTINGS
from tests.fixtures.read_models import Delays, land, landing
from tests.fixtures.subscriptions import match_all, peek

NEEDED = "needs a PostgreSQL with LLVM: install Debian's package postgresql"
TELLING = {
    "jit": "on",
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_format": "json",
}
WORST = {"jit_above_cost": "0", "jit_inline_above_cost": "0", "jit_optimize_above_cost": "0"}
_PLAN = re.compile(r"plan:\n(\t\{\n.*?\n\t\})", re.DOTALL)


class Compiling:
    """A server, and what it has told of plans."""

    def __init__(self, dsn: str, log: Path) -> None:
        self.dsn = dsn
        self._log = log
        self._read = 0

    def plans(self) -> list[dict[str, Any]]:
        """The plans since this was asked last, those of statements inside of functions too."""
        told = self._log.read_text(errors="replace")
        new, self._read = told[self._read :], len(told)
        return [json.loads(found.replace("\n\t", "\n")) for found in _PLAN.findall(new)]

    def compiled(self) -> list[str]:
        """The statements among them that were compiled."""
        plans = self.plans()
        assert len(plans) > 10
        return [plan["Query Text"] for plan in plans if "JIT" in plan]


@contextmanager
def compiling(**settings: str) -> Iterator[Compiling]:
    binaries = from_system()
    if binaries is None:
        pytest.skip(NEEDED)
    with TemporaryDirectory() as place:
        Path(place).chmod(0o755)  # the server may run as somebody else
        root = Path(place) / "server"
        with EmbeddedServer(root, {**SETTINGS, **TELLING, **settings}, binaries=binaries) as dsn:
            with psycopg.connect(dsn) as connection:
                if connection.execute("SELECT pg_jit_available()").fetchone() != (True,):
                    pytest.skip(NEEDED)
            schema.install(dsn)
            yield Compiling(dsn, root / "server.log")


async def work(database: Database) -> None:
    """Append, handle by tables, statements and read models in SQL, live and inline, match, read and look at the lag."""
    await prepare(database)
    await set_mode(database, "live")
    await land(
        database, *[event(f"s{n % 7}") for n in range(20)], *[landing(f"r{n}", delay=n) for n in range(20)]
    )
    await run_until_caught_up(database, DELAYS, Recording, Delays)
    await set_mode(database, "inline")
    await set_mode(database, "inline", "delays")
    async with database.transaction() as session:
        await create_group(session, "g")
        await subscribe(session, "g", condition="e.seq_nr > 0")
        await Inline(DELAYS, Delays).append(session, [event("s1"), landing("r1", delay=3)])
    await match_all(database)
    async with database.session() as session:
        assert await peek(session, "g")
        await projection_lags(session)


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_nothing_of_our_own_sessions_is_compiled_whatever_it_costs(driver: Any) -> None:
    with compiling(**WORST) as server:
        with psycopg.connect(server.dsn) as connection:
            connection.execute("SELECT count(*) FROM projections.events AS e WHERE e.seq_nr > 1")
        assert any("JIT" in plan for plan in server.plans())

        async with connect(server.dsn, ConnectionSettings(driver=driver)) as database:
            await work(database)

        assert server.compiled() == []


@pytest.mark.slow
async def test_nothing_of_a_callers_connection_costs_enough_to_be_compiled() -> None:
    with compiling() as server:
        async with connect(server.dsn) as database:
            await work(database)
        server.plans()

        many = [event(f"m{n}") for n in range(5_000)]
        with psycopg.connect(server.dsn) as caller:
            Inline(DELAYS, Delays).append_sync(caller, [*many[:2_500], landing("r2", delay=1)])
            append_sync(caller, many[2_500:])
        connection = await asyncpg.connect(server.dsn)
        async with connection.transaction():
            await Inline(DELAYS, Delays).append(connection, [*many[:2_500], landing("r3", delay=1)])
            await append(connection, many[2_500:])
        await connection.close()

        assert server.compiled() == []


@pytest.mark.slow
async def test_nothing_behind_a_pooler_costs_enough_to_be_compiled() -> None:
    with compiling() as server:
        async with pooler(server.dsn) as address, connect(address) as database:
            await work(database)

        # asyncpg looks up types that are new to it with JIT off, and the pooler may lend it another server for that.
        assert [query for query in server.compiled() if "typeinfo_tree" not in query] == []
