"""What a role needs to rebuild: the rights of a worker, its tables, and schemas of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from journal import ConnectionSettings, Database, MissingPrivilege, connect
from projections.testing import run_until_caught_up
from spark_projections.rebuilds import bookkeeping
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import rebuild
from tests.fixtures.projections import execute, fetchval, happen
from tests.fixtures.rebuilds import ONE, Counts, Effects, fence_passes, schemas


@pytest.fixture
async def journal(journal: Database) -> Database:
    await happen(journal, "a", "b", "a")
    await fence_passes(journal)
    return journal


@pytest.fixture
async def own(journal: Database, login: Callable[[str | None], str]) -> str:
    """The DSN of a role that may make schemas and owns its tables."""
    found = login("projections_worker")
    async with connect(found) as pool:
        role, name = await fetchval(pool, "SELECT ARRAY[current_user::text, current_database()::text]")
    for statement in (
        f"GRANT CREATE ON DATABASE {name} TO {role}",
        f"GRANT CREATE, USAGE ON SCHEMA public TO {role}",
        f"ALTER TABLE counts OWNER TO {role}",
        f"ALTER TABLE effects OWNER TO {role}",
    ):
        await execute(journal, statement)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("definition", [Counts, Effects])
async def test_a_worker_that_owns_its_tables_may_rebuild_them(
    journal: Database, own: str, definition: type, in_place: bool
) -> None:
    async with connect(own, ConnectionSettings(max_connections=8)) as database:
        result = await rebuild(database, own, definition, RebuildOptions(splits=1, in_place=in_place))
        await happen(journal, "c")
        await run_until_caught_up(database, definition)
        async with database.session() as session:
            await session.begin()
            await bookkeeping.drop_old(
                session, await fetchval(journal, "SELECT projection_id FROM projections.projections")
            )
            await session.commit()

    (table,) = result.rows
    assert result.events == 3
    assert await fetchval(journal, f"SELECT count(*) FROM {table}") == (3 if table == "counts" else 4)
    assert await schemas(journal) == []


async def test_a_role_that_may_make_no_schemas_is_told(
    journal: Database, login: Callable[[str | None], str]
) -> None:
    found = login("projections_worker")

    async with connect(found) as database:
        with pytest.raises(MissingPrivilege, match="permission denied for database"):
            await rebuild(database, found, Counts, ONE)

    assert await fetchval(journal, "SELECT count(*) FROM projections.rebuilds") == 0


async def test_a_role_that_does_not_own_the_table_is_told_before_anything_is_read(
    journal: Database, own: str
) -> None:
    await execute(journal, "ALTER TABLE counts OWNER TO CURRENT_USER; GRANT ALL ON counts TO PUBLIC")

    async with connect(own) as database:
        with pytest.raises(MissingPrivilege):
            await rebuild(database, own, Counts, ONE)

    assert await fetchval(journal, "SELECT count(*) FROM projections.rebuilds") == 0
    assert await schemas(journal) == []
