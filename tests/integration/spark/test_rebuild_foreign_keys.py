"""Foreign keys of a table that is rebuilt: the new one has them, and nobody waits for long while they are added."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from journal import ConnectionSettings, Database, DatabaseError, OwnedSession, connect
from spark_projections.rebuilds.bookkeeping import RebuiltTable
from spark_projections.rebuilds.swapping import copy_foreign_keys
from tests.fixtures.journal import pid
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.rebuilds import Kept

TABLE = RebuiltTable(1, "public", "landings")
MADE = """
CREATE TABLE planes (plane text PRIMARY KEY);
INSERT INTO planes VALUES ('a'), ('b');
CREATE TABLE landings (
    n int PRIMARY KEY,
    plane text CONSTRAINT of_a_plane REFERENCES planes ON DELETE RESTRICT DEFERRABLE,
    before int CONSTRAINT after_another REFERENCES landings
);
CREATE SCHEMA built;
SELECT projections._clone_table_v1('landings', 'built');
INSERT INTO built.landings VALUES (1, 'a', NULL), (2, 'b', 1);
"""
KEYS = """
SELECT coalesce(array_agg(format('%s %s %s', conname, pg_get_constraintdef(oid), convalidated) ORDER BY conname), '{}')
FROM pg_constraint WHERE contype = 'f' AND conrelid = $1::text::regclass
"""
OF_A_PLANE = "of_a_plane FOREIGN KEY (plane) REFERENCES planes(plane) ON DELETE RESTRICT DEFERRABLE"


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[Database]:
    """A table with foreign keys, and a full clone of it without them."""
    async with connect(dsn, ConnectionSettings(max_connections=5)) as pool:
        await execute(pool, MADE)
        yield pool


@pytest.fixture
async def session(database: Database) -> AsyncIterator[OwnedSession]:
    async with database.session() as found:
        yield found


async def copy(session: OwnedSession, told: Kept | None = None) -> None:
    await copy_foreign_keys(session, [TABLE], "built", (told or Kept()).waiting)


async def test_a_clone_has_the_keys_of_its_table_and_they_are_valid(session: OwnedSession) -> None:
    await copy(session)

    assert await session.fetchval(KEYS, "built.landings") == [
        "after_another FOREIGN KEY (before) REFERENCES built.landings(n) t",
        f"{OF_A_PLANE} t",
    ]


async def test_copying_keys_again_goes_on_with_those_that_are_there(session: OwnedSession) -> None:
    await session.execute("SELECT projections._copy_foreign_keys_v1('landings', 'built.landings')")
    added = await session.fetchval(KEYS, "built.landings")

    await copy(session)
    await copy(session)

    assert [text.removesuffix(" NOT VALID f") + " t" for text in added] == await session.fetchval(
        KEYS, "built.landings"
    )


async def test_a_row_that_refers_to_nothing_is_refused(session: OwnedSession) -> None:
    await session.execute("INSERT INTO built.landings VALUES (3, 'nowhere', NULL)")

    with pytest.raises(DatabaseError, match="of_a_plane") as caught:
        await copy(session)

    assert caught.value.sqlstate == "23503"


async def test_a_key_that_is_not_valid_on_the_table_is_not_checked(session: OwnedSession) -> None:
    await session.execute("ALTER TABLE landings DROP CONSTRAINT of_a_plane")
    await session.execute(
        "ALTER TABLE landings ADD CONSTRAINT of_a_plane FOREIGN KEY (plane) REFERENCES planes NOT VALID"
    )
    await session.execute("INSERT INTO built.landings VALUES (3, 'nowhere', NULL)")

    await copy(session)

    found = await session.fetchval(KEYS, "built.landings")
    assert found[1] == "of_a_plane FOREIGN KEY (plane) REFERENCES planes(plane) NOT VALID f"


async def test_a_key_to_a_partitioned_table_is_copied_once(session: OwnedSession) -> None:
    await session.execute("CREATE TABLE places (place int PRIMARY KEY) PARTITION BY LIST (place)")
    for n in (1, 2):
        await session.execute(f"CREATE TABLE places_{n} PARTITION OF places FOR VALUES IN ({n})")
    await session.execute("INSERT INTO places VALUES (1), (2)")
    await session.execute("ALTER TABLE landings ADD COLUMN place int CONSTRAINT at_a_place REFERENCES places")
    await session.execute("DROP TABLE built.landings")
    await session.execute("SELECT projections._clone_table_v1('landings', 'built')")
    await session.execute("INSERT INTO built.landings (n, place) VALUES (1, 1), (2, 2)")

    await copy(session)

    named = (
        "SELECT count(*) FROM pg_constraint "
        "WHERE contype = 'f' AND conrelid = $1::text::regclass AND conparentid = 0"
    )
    assert await session.fetchval(named, "built.landings") == await session.fetchval(named, "landings") == 3
    with pytest.raises(DatabaseError, match="at_a_place"):
        await session.execute("INSERT INTO built.landings (n, place) VALUES (3, 3)")


async def test_what_is_referred_to_is_written_while_rows_are_checked(
    database: Database, session: OwnedSession
) -> None:
    await session.execute("SELECT projections._copy_foreign_keys_v1('landings', 'built.landings')")
    await session.begin()
    await session.execute("SELECT projections._validate_foreign_keys_v1('landings', 'built.landings')")

    async with database.transaction() as other:
        await other.execute("SET LOCAL lock_timeout = '1ms'")
        await other.execute("INSERT INTO planes VALUES ('c')")
        await other.execute("UPDATE planes SET plane = 'd' WHERE plane = 'c'")

    await session.commit()
    assert await fetchval(database, "SELECT max(plane) FROM planes") == "d"


@pytest.mark.slow
async def test_a_writer_of_what_is_referred_to_is_named_and_holds_nobody_else_up(
    database: Database, session: OwnedSession
) -> None:
    told = Kept()
    async with database.session() as writer:
        await writer.begin()
        await writer.execute("INSERT INTO planes VALUES ('late')")
        task = asyncio.create_task(copy(session, told))
        said, number = await told.until_waiting(), await pid(writer)
        await execute(database, "INSERT INTO planes VALUES ('other')")
        await told.until_waiting()
        await writer.commit()
        await task

    assert said.startswith('the tables that "public"."landings" refers to are in use')
    assert f"process {number} (" in said
    assert (await session.fetchval(KEYS, "built.landings"))[1] == f"{OF_A_PLANE} t"


async def test_rows_that_only_a_table_without_its_keys_refers_to_can_be_deleted(
    session: OwnedSession,
) -> None:
    await session.execute("INSERT INTO landings VALUES (1, 'a', NULL)")

    await session.execute("SELECT projections._drop_foreign_keys_v1('landings')")

    await session.execute("DELETE FROM planes")
    assert await session.fetchval(KEYS, "landings") == []
    assert await session.fetchval("SELECT plane FROM landings") == "a"
