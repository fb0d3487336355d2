"""The servers that tests of a database that goes back in time use do what those tests rely on."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal import ConnectionSettings, Database, connect, generation
from tests.fixtures.failover import Server, dump, pair, restore
from tests.fixtures.postgres import Run, binaries_for
from tests.fixtures.projections import execute, fetchval, happen

_COUNT = "SELECT count(*) FROM projections.events"


async def _counts(*databases: Database) -> list[int]:
    return [await fetchval(database, _COUNT) for database in databases]


@pytest.mark.slow
async def test_a_fail_over_loses_what_came_after_the_cut_and_begins_a_timeline(base_cluster: Server) -> None:
    async with pair(base_cluster, "one", pooler=True) as servers:
        servers.follow()
        async with (
            connect(servers.direct("one")) as direct,
            connect(servers.direct("one"), ConnectionSettings(driver="psycopg")) as psycopg,
            connect(servers.pooled("one"), ConnectionSettings(pgbouncer=True)) as pooled,
        ):
            databases = (direct, psycopg, pooled)
            await happen(direct, "a")
            servers.cut()
            await happen(direct, "a", "b")
            before = await _counts(*databases)
            async with pooled.session() as session:
                generation_before = await generation(session)

            await servers.fail_over()

            async with pooled.session() as session:  # it has kept its connection, and heard of nothing
                generation_after = await generation(session)
                assert await session.fetchval(_COUNT) == 1
        async with connect(servers.direct("one")) as direct:
            after = await _counts(direct)

    assert before == [3, 3, 3]
    assert after == [1]
    assert generation_after.timeline == generation_before.timeline + 1
    assert not generation_after.follows(generation_before)


@pytest.mark.slow
async def test_a_restore_to_a_point_in_time_takes_the_address_of_the_old_server(base_cluster: Server) -> None:
    async with pair(base_cluster, "one") as servers:
        servers.back_up()
        async with connect(servers.primary.dsn("one")) as database:
            await happen(database, "a")
            mark = servers.mark()
            await happen(database, "a", "b")
            before = await fetchval(database, _COUNT)
        await servers.swap_in(mark)
        async with connect(servers.primary.dsn("one")) as database:
            after = await fetchval(database, _COUNT)
            timeline = await fetchval(database, "SELECT timeline FROM projections.generation_v1()")

    assert (before, after, timeline) == (3, 1, 2)


@pytest.mark.daily(1)
@pytest.mark.parametrize("how", ["drop", "data"])
async def test_a_dump_is_restored_over_what_is_there(
    dsn: str, database: Database, postgres_run: Run, tmp_path: Path, how: str
) -> None:
    client = binaries_for(postgres_run.kind).directory
    if not (client / "pg_restore").exists():
        pytest.skip(f"{client} has no pg_restore: install PostgreSQL's client packages")
    await execute(database, "CREATE TABLE mine (n int)")
    await happen(database, "a")
    made = dump(client, dsn, tmp_path / "dump")
    await happen(database, "a", "b")

    restore(client, dsn, made, how)

    assert await fetchval(database, _COUNT) == 1
    await happen(database, "a")
    assert await fetchval(database, "SELECT max(seq_nr) FROM projections.events") == 2
