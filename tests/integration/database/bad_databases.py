"""Bad input, continued from bad_input.py: databases, DSNs and signals."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from datetime import timedelta

from journal import Session, schema
from tests.fixtures.commands import APP, SEEN, running
from tests.fixtures.journal import event
from tests.fixtures.schema import run as execute
from tests.integration.database.bad_input import (
    Bench,
    append_in,
    case,
    does,
    for_any,
    nothing,
    run_once,
    told,
)


async def connected(bench: Bench, dsn: str) -> str:
    async def attempt() -> None:
        async with bench.connect(dsn):
            pass

    return await told(attempt())


@case("no server at the start")
async def _(bench: Bench) -> str:
    return await connected(bench, "postgresql://user:secret@127.0.0.1:1/db")


@case("a connection lost in the middle")
async def _(bench: Bench) -> str:
    times: list[int] = []

    async def once(session: Session) -> None:
        times.append(1)
        if len(times) == 1:
            await session.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    async with bench.connect() as database:
        await append_in(database, [event("a")], None)
        await run_once(database, for_any(once))
    assert len(times) == 2
    return bench.logged("failed")


@case("a role that may connect no more")
async def _(bench: Bench) -> str:
    dsn = bench.login("projections_worker")
    execute(bench.dsn, f"ALTER ROLE {user_of(dsn)} CONNECTION LIMIT 0")
    return await connected(bench, dsn)


def user_of(dsn: str) -> str:
    return dict(part.split("=", 1) for part in dsn.split())["user"]


@case("a database that is read-only")
async def _(bench: Bench) -> str:
    dsn = bench.login("projections_worker")
    execute(bench.dsn, f"ALTER ROLE {user_of(dsn)} SET default_transaction_read_only = on")
    async with bench.connect(dsn) as database:
        return await told(run_once(database, does(nothing)))


async def with_version(bench: Bench, statement: str) -> str:
    execute(bench.dsn, statement)
    async with bench.connect() as database:
        return await told(run_once(database, does(nothing)))


@case("a database without the schema")
async def _(bench: Bench) -> str:
    async with bench.connect(bench.empty_dsn) as database:
        return await told(run_once(database, does(nothing)))


@case("an older schema")
async def _(bench: Bench) -> str:
    return await with_version(bench, "DELETE FROM projections.schema_versions WHERE version > 1")


@case("a newer schema")
async def _(bench: Bench) -> str:
    version = schema.SCHEMA_VERSION + 1
    return await with_version(bench, f"INSERT INTO projections.schema_versions (version) VALUES ({version})")


@case("a role without the grants of a worker")
async def _(bench: Bench) -> str:
    async with bench.connect(bench.login("projections_reader")) as database:
        return await told(run_once(database, does(nothing)))


@case("a role without a grant on the read model")
async def _(bench: Bench) -> str:
    execute(bench.dsn, SEEN)
    dsn = bench.login("projections_worker")
    async with bench.connect() as writer, bench.connect(dsn) as database:
        await append_in(writer, [event("a")], None)
        insert = for_any(lambda session: session.execute("INSERT INTO seen VALUES ('p', 'a', 1)"))
        async with asyncio.TaskGroup() as group:
            worker = group.create_task(run_once(database, insert))
            while not any(getattr(r, "action", None) == "failed" for r in bench.caplog.records):
                assert not worker.done()
                await asyncio.wait([worker], timeout=0.01)
            execute(bench.dsn, f"GRANT INSERT ON seen TO {user_of(dsn)}")
    assert execute(bench.dsn, "SELECT count(*) FROM seen") == [(1,)]
    assert execute(bench.dsn, "SELECT count(*) FROM projections.parked_sources") == [(0,)]
    return bench.logged("failed")


@case("a pool whose connections are all in use")
async def _(bench: Bench) -> str:
    async with (
        bench.connect(max_connections=4, pool_timeout=timedelta(seconds=0.05)) as database,
        AsyncExitStack() as held,
    ):
        for _ in range(4):
            await held.enter_async_context(database.session())
        return await told(run_once(database, does(nothing)))


def wrong_dsn(what: str, dsn: str) -> None:
    @case(what)
    async def attempt(bench: Bench) -> str:
        return await connected(bench, dsn)


wrong_dsn("an empty DSN", " ")
wrong_dsn("a DSN of another kind", "mysql://user:secret@localhost/db")
wrong_dsn("a DSN with / in the password", "postgresql://user:secret/more@localhost/db")
wrong_dsn("a DSN with @ in the password", "postgresql://user:secret@more@localhost/db")
wrong_dsn("a DSN with white space", "postgresql://user:secret more@localhost/db")
wrong_dsn("a DSN with a port that is not a number", "postgresql://user:secret@localhost:http/db")


@case("Ctrl-C while a worker runs")
async def _(bench: Bench) -> str:
    return await asyncio.to_thread(_interrupt, bench)


def _interrupt(bench: Bench) -> str:
    execute(bench.dsn, SEEN)
    (bench.folder / "app.py").write_text(APP)
    with running("app:Delays", "--dsn", bench.dsn, cwd=bench.folder) as worker:
        worker.until("started")
        worker.signal(signal.SIGINT)
        message = worker.until("stopping")["message"]
        assert worker.end() == 130
    return str(message)
