"""A table that takes the place of another is what that one was, and the old one is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import offsets
from journal import Database, DatabaseError
from spark_projections.errors import SwapRefused
from spark_projections.rebuilds import bookkeeping
from spark_projections.rebuilds.rebuilding import rebuild
from tests.fixtures.projections import (
    execute,
    fetchval,
    happen,
)
from tests.fixtures.rebuilds import (
    EXACT,
    ONE,
    Counts,
    Effects,
    Gate,
    differing,
    fence_passes,
    schemas,
    state_of,
)

ADORNED = """
CREATE ROLE {role};
CREATE ROLE {role}_friend;
CREATE TABLE kinds (kind bigint PRIMARY KEY);
INSERT INTO kinds SELECT generate_series(1, 100);
DROP TABLE counts;
CREATE TABLE counts (
    source_id text CONSTRAINT the_key PRIMARY KEY,
    n bigint NOT NULL DEFAULT 0 CONSTRAINT not_negative CHECK (n >= 0),
    last bigint CONSTRAINT of_a_kind REFERENCES kinds,
    twice bigint GENERATED ALWAYS AS (n * 2) STORED,
    EXCLUDE USING btree (source_id WITH =)
) WITH (fillfactor = 70, autovacuum_enabled = false);
CREATE INDEX by_number ON counts (n DESC NULLS LAST) WITH (fillfactor = 60);
CREATE INDEX by_number_too ON counts (n DESC NULLS LAST) WITH (fillfactor = 60);
CREATE UNIQUE INDEX "Some of them" ON counts (lower(source_id), last) INCLUDE (n) WHERE n > 1;
CREATE STATISTICS together ON n, last FROM counts;
ALTER TABLE counts ALTER COLUMN n SET STATISTICS 500;
COMMENT ON TABLE counts IS 'What there is';
COMMENT ON COLUMN counts.n IS 'How often';
COMMENT ON INDEX by_number IS 'For the page';
GRANT SELECT, INSERT ON counts TO {role}_friend WITH GRANT OPTION;
GRANT SELECT ON counts TO PUBLIC;
GRANT UPDATE (n) ON counts TO {role}_friend;
ALTER TABLE counts OWNER TO {role};
"""
LOOK = {
    "columns": """
        SELECT a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated, a.attidentity,
            coalesce(a.attstattarget, -1), pg_get_expr(d.adbin, d.adrelid), col_description(a.attrelid, a.attnum),
            (SELECT array_agg(x.x::text ORDER BY x.x::text) FROM unnest(a.attacl) AS x (x))
        FROM pg_attribute AS a LEFT JOIN pg_attrdef AS d ON a.attrelid = d.adrelid AND a.attnum = d.adnum
        WHERE a.attrelid = 'counts'::regclass AND a.attnum > 0 ORDER BY 1
    """,
    "table": """
        SELECT c.relname, pg_get_userbyid(c.relowner), c.reloptions, obj_description(c.oid, 'pg_class'),
            c.relpersistence, n.nspname,
            (SELECT array_agg(x.x::text ORDER BY x.x::text) FROM unnest(c.relacl) AS x (x)),
            projections._table_shape_v1(c.oid::regclass)
        FROM pg_class AS c INNER JOIN pg_namespace AS n ON c.relnamespace = n.oid WHERE c.oid = 'counts'::regclass
    """,
    "constraints": """
        SELECT conname, contype::text, pg_get_constraintdef(oid), convalidated FROM pg_constraint
        WHERE conrelid = 'counts'::regclass ORDER BY 1
    """,
    "indexes": """
        SELECT pg_get_indexdef(i.indexrelid), obj_description(i.indexrelid, 'pg_class'), i.indisvalid, i.indisprimary
        FROM pg_index AS i WHERE i.indrelid = 'counts'::regclass ORDER BY 1
    """,
    "statistics": "SELECT stxkeys::text, stxkind::text FROM pg_statistic_ext WHERE stxrelid = 'counts'::regclass",
}


async def number_of(database: Database, name: str) -> int:
    async with database.session() as session:
        return (await offsets.status(session, name)).projection_id


async def look(database: Database) -> dict[str, Any]:
    async with database.session() as session:
        return {
            name: [tuple(row.values()) for row in await session.fetch(query)] for name, query in LOOK.items()
        }


@pytest.mark.slow
async def test_a_renamed_table_is_what_the_old_one_was(journal: Database, dsn: str) -> None:
    role = (
        f"owner_{await fetchval(journal, 'SELECT oid FROM pg_database WHERE datname = current_database()')}"
    )
    await execute(journal, ADORNED.format(role=role))
    try:
        before, oid = await look(journal), await fetchval(journal, "SELECT 'counts'::regclass::oid")
        await happen(journal, "a", "a", "b")
        await fence_passes(journal)

        await rebuild(journal, dsn, Counts, ONE)

        assert await look(journal) == before
        assert await fetchval(journal, "SELECT 'counts'::regclass::oid") != oid
        assert await fetchval(journal, "SELECT array_agg(twice ORDER BY n) FROM counts") == [2, 4]
    finally:
        await execute(
            journal, f"DROP OWNED BY {role}, {role}_friend CASCADE; DROP ROLE {role}, {role}_friend"
        )


async def test_names_of_indexes_that_the_database_would_give_to_others_are_kept(journal: Database) -> None:
    await execute(
        journal,
        "CREATE TABLE crossed (b int, c int); CREATE SCHEMA built; "
        "CREATE INDEX crossed_b_idx ON crossed (c); CREATE INDEX crossed_c_idx ON crossed (b); "
        "CREATE STATISTICS crossed_b_c_stat1 ON b, c FROM crossed; "
        "CREATE STATISTICS crossed_b_c_stat (mcv) ON b, c FROM crossed; "
        "CREATE STATISTICS crossed_expr_stat ON b, (c + 1) FROM crossed",
    )
    named = """
    SELECT array_agg(x.name || ' ' || x.shape ORDER BY x.name)
    FROM projections._index_shapes_v1($1::text::regclass) AS x
    """

    await execute(journal, "SELECT projections._clone_table_v1('crossed', 'built')")

    assert await fetchval(journal, named, "built.crossed") == await fetchval(journal, named, "crossed")


async def test_what_default_privileges_give_is_taken_from_the_new_table(journal: Database, dsn: str) -> None:
    role = (
        f"guest_{await fetchval(journal, 'SELECT oid FROM pg_database WHERE datname = current_database()')}"
    )
    await execute(
        journal,
        f"CREATE ROLE {role}; ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO {role}, PUBLIC; "
        f"GRANT SELECT ON counts TO {role}; CREATE SCHEMA built",
    )
    try:
        await execute(journal, "SELECT projections._clone_table_v1('counts', 'built')")

        granted = (
            "SELECT array_agg(g.privilege_type) FROM pg_class AS c, aclexplode(c.relacl) AS g "
            "WHERE c.oid = 'built.counts'::regclass AND g.grantee <> c.relowner"
        )
        assert await fetchval(journal, granted) == ["SELECT"]
    finally:
        await execute(
            journal,
            f"ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM {role}, PUBLIC; "
            f"DROP OWNED BY {role}; DROP ROLE {role}",
        )


CHANGES = {
    "owner": "ALTER TABLE counts OWNER TO {role}",
    "grant": "GRANT SELECT ON counts TO {role}",
    "grant to all": "GRANT SELECT ON counts TO PUBLIC",
    "grant of a column": "GRANT UPDATE (n) ON counts TO {role}",
    "revoke": "REVOKE SELECT ON effects FROM {role}_friend",
    "revoke of a column": "REVOKE UPDATE (seq_nr) ON effects FROM {role}_friend",
    "option": "REVOKE GRANT OPTION FOR INSERT ON effects FROM {role}_friend",
    "settings": "ALTER TABLE counts SET (fillfactor = 50)",
    "statistics": "CREATE STATISTICS new_ones ON n, last FROM counts",
    "target": "ALTER TABLE counts ALTER COLUMN n SET STATISTICS 7",
}


@pytest.fixture
async def shared(journal: Database) -> AsyncIterator[str]:
    """A role, and a friend of it who may do much with the table of effects."""
    role = f"role_{await fetchval(journal, 'SELECT oid FROM pg_database WHERE datname = current_database()')}"
    await execute(
        journal,
        f"CREATE ROLE {role}; CREATE ROLE {role}_friend; GRANT SELECT, UPDATE (seq_nr) ON effects TO {role}_friend; "
        f"GRANT INSERT ON effects TO {role}_friend WITH GRANT OPTION",
    )
    yield role
    await execute(journal, f"DROP OWNED BY {role}, {role}_friend CASCADE; DROP ROLE {role}, {role}_friend")


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_change_that_a_swap_would_undo_refuses_it(
    journal: Database, dsn: str, shared: str, change: str
) -> None:
    definition = Effects if "effects" in change else Counts
    await happen(journal, "a")
    await fence_passes(journal)

    with pytest.raises(SwapRefused, match="was changed since the rebuild began"):
        await Gate(journal, dsn, definition).at("swap", lambda: execute(journal, change.format(role=shared)))

    assert await state_of(journal) == "verified"


async def test_grants_that_change_nothing_do_not_refuse_a_swap(
    journal: Database, dsn: str, shared: str
) -> None:
    await happen(journal, "a")
    await fence_passes(journal)
    again = (
        f"GRANT SELECT ON effects TO {shared}_friend; GRANT SELECT ON effects TO {shared}; "
        f"REVOKE SELECT ON effects FROM {shared}; ANALYZE effects"
    )

    await Gate(journal, dsn, Effects).at("swap", lambda: execute(journal, again))

    assert await state_of(journal) == "swapped"


async def test_a_table_of_another_schema_keeps_its_place(journal: Database, dsn: str) -> None:
    await execute(journal, "CREATE SCHEMA elsewhere; ALTER TABLE effects SET SCHEMA elsewhere")
    await execute(journal, "CREATE TABLE effects (LIKE elsewhere.effects INCLUDING ALL)")
    await execute(journal, "INSERT INTO elsewhere.effects (source_id, seq_nr) VALUES ('untouched', 1)")
    await happen(journal, "a")
    await fence_passes(journal)

    await rebuild(journal, dsn, Effects, ONE)

    assert await differing(journal) == EXACT
    assert await fetchval(journal, "SELECT array_agg(source_id) FROM elsewhere.effects") == ["untouched"]


@pytest.mark.slow
async def test_the_old_table_is_kept_until_it_is_dropped(journal: Database, dsn: str) -> None:
    await execute(journal, "INSERT INTO counts (source_id, n) VALUES ('of older code', 7)")
    await happen(journal, "a")
    await fence_passes(journal)
    result = await rebuild(journal, dsn, Counts, ONE)
    kept = await fetchval(journal, f"SELECT n FROM {result.old_schema}.counts")

    async with journal.session() as session:
        await session.begin()
        dropped = await bookkeeping.drop_old(session, await number_of(journal, "counts"))
        await session.commit()

    assert kept == 7
    assert dropped == [f"{result.old_schema}.counts"]
    assert await schemas(journal) == []
    assert await state_of(journal) == "dropped"


@pytest.mark.slow
async def test_an_old_table_that_something_depends_on_is_not_dropped(journal: Database, dsn: str) -> None:
    await happen(journal, "a")
    await fence_passes(journal)
    result = await rebuild(journal, dsn, Counts, ONE)
    await execute(journal, f"CREATE VIEW former AS SELECT * FROM {result.old_schema}.counts")

    async with journal.session() as session:
        await session.begin()
        with pytest.raises(DatabaseError, match="depend on it"):
            await bookkeeping.drop_old(session, await number_of(journal, "counts"))
        await session.rollback()

    assert await fetchval(journal, "SELECT count(*) FROM former") == 0
    assert await schemas(journal) == [result.old_schema]
