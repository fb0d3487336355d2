"""Executors, machines, worker processes and the database server are killed while a read model is rebuilt."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from journal import ConnectionSettings, Database, Event, ProjectionsError, append, connect
from journal.schema import install
from spark_projections.errors import SwapRefused
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import rebuild
from tests.chaos.server import server_of_its_own, stop_at_once
from tests.fixtures.commands import environment
from tests.fixtures.projections import Happened, fetchval, happen, until, until_effects
from tests.fixtures.rebuilds import (
    ADVISORY_LOCKS,
    EXACT,
    ONE,
    Effects,
    differing,
    fence_passes,
    held,
    make_read_models,
    until_held_up,
)
from tests.fixtures.spark import StandaloneCluster, standalone_cluster
from tests.fixtures.workers import shared_by, worker

__all__ = ["standalone_cluster"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

APP = "from tests.fixtures.rebuilds import Effects as Seen\n"
DRIVER = """
import asyncio, json, sys
from journal import connect
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import rebuild
from spark_projections.engine.session import spark_running
from tests.fixtures.rebuilds import Effects

async def main(dsn, master, conf):
    with spark_running(master, conf=conf) as spark:
        async with connect(dsn) as database:
            result = await rebuild(database, dsn, Effects, RebuildOptions(splits=4), spark=spark.sparkContext)
    print("events", result.events, "resumed", result.resumed)

asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
"""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
}


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(max_connections=15)) as pool:
        await make_read_models(pool)
        yield pool


async def write(database: Database) -> None:
    """200 events over all slices; one waits for a lock after the first batches of its part."""
    async with database.transaction() as session:
        events = [Event(f"s{n % 40}", Happened(), "plane") for n in range(199)]
        await append(session, [*events, Event("s39", Happened(n=1), "plane")])
    await fence_passes(database)


@asynccontextmanager
async def driver(dsn: str, cluster: StandaloneCluster, **conf: str) -> AsyncIterator[Process]:
    """A process that rebuilds on the cluster, killed at the end of the block if it is still there."""
    settings: Mapping[str, str] = {**cluster.conf(), **conf}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DRIVER, dsn, cluster.master_url, json.dumps(settings),
        env=environment(), stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def until_begun(database: Database, process: Process, tasks: int = 1) -> None:
    """Wait until so many tasks are held up: a cluster takes its time to start."""
    async with asyncio.timeout(150):
        while process.returncode is None:
            with suppress(TimeoutError):
                await until_held_up(database, tasks)
                return
    await said(process)


async def said(process: Process) -> str:
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()[-3000:]
    return out.decode()


async def test_a_killed_executor_is_followed_by_another(
    journal: Database, dsn: str, standalone_cluster: StandaloneCluster
) -> None:
    await write(journal)
    async with held(journal) as let_go, driver(dsn, standalone_cluster) as process:
        await until_begun(journal, process)
        for executor in standalone_cluster.executors():
            executor.send_signal(signal.SIGKILL)
        await until_begun(journal, process, 2)
        await let_go()
        text = await said(process)

    assert "events 200 resumed False" in text
    assert await differing(journal) == EXACT


async def test_a_machine_that_goes_is_done_without(
    journal: Database, dsn: str, standalone_cluster: StandaloneCluster
) -> None:
    await write(journal)
    async with held(journal) as let_go, driver(dsn, standalone_cluster) as process:
        await until_begun(journal, process)
        standalone_cluster.kill_worker(1)
        await let_go()
        text = await said(process)

    assert "events 200 resumed False" in text
    assert await differing(journal) == EXACT


async def test_a_task_that_spark_starts_a_second_time_waits_for_the_first(
    journal: Database, dsn: str, standalone_cluster: StandaloneCluster
) -> None:
    await write(journal)
    async with held(journal) as let_go, driver(dsn, standalone_cluster, **SPECULATION) as process:
        await until_begun(journal, process)
        await until_begun(journal, process, 2)
        await let_go()
        text = await said(process)

    assert "events 200 resumed False" in text
    assert await differing(journal) == EXACT


async def test_what_a_killed_driver_of_spark_left_is_gone_on_with(
    journal: Database, dsn: str, standalone_cluster: StandaloneCluster
) -> None:
    await write(journal)
    async with held(journal):
        async with driver(dsn, standalone_cluster) as process:
            await until_begun(journal, process)
            process.kill()
        before = await fetchval(journal, "SELECT sum(events)::int FROM projections.rebuild_parts")
    await until(journal, f"SELECT count(*) = 0 FROM {ADVISORY_LOCKS}")

    result = await rebuild(journal, dsn, Effects, ONE)

    assert 0 < before < 200
    assert (result.events, result.resumed) == (200, True)
    assert await differing(journal) == EXACT


async def test_the_server_crashes_while_parts_are_folded() -> None:
    async with server_of_its_own() as (server, dsn):
        await asyncio.to_thread(install, dsn)
        async with connect(dsn, ConnectionSettings(max_connections=8)) as database:
            await make_read_models(database)
            await write(database)
            async with connect(dsn) as holder, holder.session() as session:
                await session.fetchval("SELECT pg_advisory_lock(1)")
                task = asyncio.create_task(rebuild(database, dsn, Effects, RebuildOptions(splits=4)))
                await until_held_up(database)
                await asyncio.to_thread(stop_at_once, server)
                with pytest.raises(ProjectionsError):
                    await task
            await asyncio.to_thread(server.start)
            before = await fetchval(database, "SELECT sum(events)::int FROM projections.rebuild_parts")

            result = await rebuild(database, dsn, Effects, RebuildOptions(splits=4))

            assert 0 < before < 200
            assert (result.events, result.resumed) == (200, True)
            assert await differing(database) == EXACT


async def append_on(database: Database, stop: asyncio.Event, number: int) -> None:
    """Append all the time; every tenth transaction stays open for a while."""
    turn = 0
    while not stop.is_set():
        turn += 1
        async with database.transaction() as session:
            sources = sorted({f"s{number}-{turn % 13}", f"t{number}-{turn % 7}"})
            await append(session, [Event(source_id, Happened(), "plane") for source_id in sources])
            if turn % 10 == 0:
                await session.execute("SELECT pg_sleep(0.3)")


async def test_worker_processes_go_on_over_rebuilds_while_appenders_are_late(
    journal: Database, dsn: str, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(APP)
    stop = asyncio.Event()
    async with worker(dsn, tmp_path), worker(dsn, tmp_path) as second:
        await happen(journal, "first")
        await shared_by(journal, 2)
        appenders = [asyncio.create_task(append_on(journal, stop, number)) for number in range(3)]
        await until_effects(journal, 200)
        swapped = 0
        while swapped < 4:
            try:
                await rebuild(journal, dsn, Effects, RebuildOptions(splits=1 + swapped % 2 * 3))
            except SwapRefused:
                continue  # goes on with the swap
            swapped += 1
            if swapped == 2:
                second.send_signal(signal.SIGKILL)
            events = await fetchval(journal, "SELECT count(*) FROM effects")
            await until_effects(journal, events + 50)
        stop.set()
        await asyncio.gather(*appenders)
        await until_effects(journal, await fetchval(journal, "SELECT count(*) FROM projections.events"))

        assert await differing(journal) == EXACT
    assert await fetchval(journal, "SELECT count(*) FROM projections.parked_sources") == 0
