"""What runs all the time is never compiled, whatever the server's settings are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest

from journal import ConnectionSettings, connect, schema
from journal.embedded import EmbeddedServer
from journal.embedded.binaries import from_system
from tests.fixtures.connections import with_default
from tests.fixtures.hot_paths import BEFORE, FILL, PATHS, UNSET
from tests.fixtures.pgbouncer import pooler
from tests.fixtures.plans import COMPILE_ALL, explained, prepare
from tests.fixtures.postgres import SETTINGS
from tests.fixtures.projections import fetchval

NEEDED = "needs a PostgreSQL with LLVM: install Debian's package postgresql"


# Every expression is worth it, says the planner then.
@pytest.fixture(scope="module")
def with_llvm() -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A connection that compiles all that it can, to a server that can."""
    binaries = from_system()
    if binaries is None:
        pytest.skip(NEEDED)
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory()))
        place.chmod(0o755)  # the server may run as somebody else
        dsn = stack.enter_context(EmbeddedServer(place / "server", SETTINGS, binaries=binaries))
        connection = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        connection.execute("SET jit = on")
        if connection.execute("SELECT pg_jit_available()").fetchone() != (True,):
            pytest.skip(NEEDED)
        connection.execute("SET jit = off")
        schema.install(dsn)
        for statement in FILL:
            connection.execute(statement.encode())
        connection.execute(COMPILE_ALL)
        prepare(connection)
        yield connection


@pytest.mark.slow
def test_the_server_compiles_what_is_not_ours(with_llvm: psycopg.Connection[tuple[object, ...]]) -> None:
    with explained(with_llvm) as heard:
        with_llvm.execute("SELECT count(*) FROM projections.events AS e WHERE e.seq_nr > 1")

    assert heard[0].compiled > 0


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_nothing_inside_of_a_function_is_compiled(
    with_llvm: psycopg.Connection[tuple[object, ...]], path: str
) -> None:
    with with_llvm.transaction(force_rollback=True):
        for statement in BEFORE.get(path, ()):
            with_llvm.execute(statement.encode())
        with explained(with_llvm) as heard:
            with_llvm.execute(PATHS[path].encode())

    inside = [one for one in heard if one.query != PATHS[path]]
    assert inside
    assert [one.query for one in inside if one.compiled] == []


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_no_statement_of_the_library_compiles_anything(dsn: str, driver: Any) -> None:
    await with_default(dsn, "jit = on")

    async with connect(dsn, ConnectionSettings(driver=driver)) as database:
        assert await fetchval(database, "SHOW jit") == "off"


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_no_transaction_behind_a_pooler_compiles_anything(dsn: str, driver: Any) -> None:
    await with_default(dsn, "jit = on")

    async with pooler(dsn) as address, connect(address, ConnectionSettings(driver=driver)) as database:
        assert await fetchval(database, "SHOW jit") == "on"
        async with database.transaction() as session:
            assert await session.fetchval("SHOW jit") == "off"


@pytest.mark.slow
def test_every_function_with_settings_runs_without_jit(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'projections'::regnamespace "
            "AND NOT coalesce('jit=off' = ANY(proconfig), FALSE)"
        ).fetchall()

    assert {name for (name,) in found} == UNSET
