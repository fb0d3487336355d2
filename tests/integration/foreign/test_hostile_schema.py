"""What the owner of a journal has put before, or beside, PostgreSQL's own functions is not run by those who read it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from journal import ConnectionSettings, Database, SliceRange, connect
from journal.entity_types import EntityTypes
from journal.foreign import TableMapping, table_log
from offsets import Elsewhere
from spark_projections.reading.batches import Reading
from spark_projections.reading.horizon import settled_now
from spark_projections.reading.logs import ReadLog
from tests.fixtures.commands import called
from tests.fixtures.foreign import FOREIGN, Orders
from tests.fixtures.moving import take_over
from tests.fixtures.pgbouncer import pooler
from tests.fixtures.projections import caught_up, effects

TABLE = """
CREATE TYPE kind AS ENUM ('Happened', 'order');
CREATE TABLE orders (
    id bigserial, name text, version int, at timestamptz NOT NULL DEFAULT now(), body jsonb NOT NULL DEFAULT '{}',
    kind kind NOT NULL DEFAULT 'Happened', owned kind NOT NULL DEFAULT 'order', PRIMARY KEY (name, version)
);
INSERT INTO orders (name, version) VALUES ('a', 1), ('b', 1), ('a', 2);
CREATE TABLE pekko_projection_offset_store (
    projection_name text, projection_key text, current_offset text, manifest text, mergeable boolean,
    last_updated bigint
);
INSERT INTO pekko_projection_offset_store VALUES ('orders', 'any', '1', 'SEQ', FALSE, 0)
"""
# Each writes who ran it, past a transaction that may only read, and fails.
TRAP = """
CREATE SCHEMA evil;
GRANT USAGE ON SCHEMA evil TO public;
CREATE FUNCTION evil.trap() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE 'trapped';
END $$;
CREATE FUNCTION evil.written(public.kind) RETURNS text LANGUAGE plpgsql AS $$
BEGIN PERFORM evil.trap(); RETURN 'Trapped'; END $$;
CREATE CAST (public.kind AS text) WITH FUNCTION evil.written(public.kind);
CREATE DOMAIN evil.text AS pg_catalog.text;
"""
# All functions and operators of PostgreSQL that a query could name, once more in a schema before its own.
TRAPS = """
DO $traps$
DECLARE
    f record;
BEGIN
    FOR f IN
        SELECT p.proname AS name, p.proretset AS is_set, format_type(p.prorettype, NULL) AS returned,
            pg_get_function_identity_arguments(p.oid) AS arguments
        FROM pg_proc AS p
        WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND p.provariadic = 0
            AND NOT p.proargtypes::oid[] && ARRAY['"any"', 'internal', 'cstring']::regtype[]::oid[]
            AND p.proname = ANY ($names$NAMES$names$::text[])
    LOOP
        EXECUTE format(
            'CREATE FUNCTION evil.%I(%s) RETURNS %s%s LANGUAGE plpgsql AS $f$ BEGIN RAISE ''trapped by %s''; END $f$',
            f.name, f.arguments, CASE WHEN f.is_set THEN 'SETOF ' ELSE '' END, f.returned, f.name
        );
    END LOOP;
    FOR f IN
        SELECT o.oid, o.oprname AS name, format_type(o.oprleft, NULL) AS l, format_type(o.oprright, NULL) AS r,
            format_type(o.oprresult, NULL) AS returned
        FROM pg_operator AS o
        WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprleft <> 0
            AND o.oprname = ANY ('{=,<>,<,<=,>,>=,+,-,*,||,->>}') AND NOT EXISTS (
                SELECT FROM pg_type AS t WHERE t.oid IN (o.oprleft, o.oprright, o.oprresult) AND t.typtype = 'p'
            )
    LOOP
        EXECUTE format(
            'CREATE FUNCTION evil.operator_%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS '
            '$f$ BEGIN RAISE ''trapped by %s of %s and %s''; END $f$', f.oid, f.l, f.r, f.returned, f.name, f.l, f.r
        );
        EXECUTE format(
            'CREATE OPERATOR evil.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = evil.operator_%s)',
            f.name, f.l, f.r, f.oid
        );
    END LOOP;
END $traps$
"""
FUNCTIONS = (
    "now,length,octet_length,abs,get_byte,convert_to,current_database,pg_backend_pid,extract,pg_is_in_recovery,"
    "to_regclass,format_type,pg_typeof,set_config,current_setting,pg_column_size,pg_column_compression,unnest,"
    "clock_timestamp,statement_timestamp,pg_advisory_unlock_all,pg_export_snapshot,floor,mod,split_part,position,"
    "substring,pg_current_wal_insert_lsn,pg_control_system,pg_control_checkpoint,pg_postmaster_start_time,greatest,"
    "pg_encoding_to_char,has_sequence_privilege,pg_get_serial_sequence,pg_has_role,generate_series,date_part,"
    "pg_last_xact_replay_timestamp,version"
)
PATH = "ALTER DATABASE {} SET search_path = evil, pg_catalog, public"
MAPPING = TableMapping(
    table="orders", source="name", number="version", position="id", bound="sequence", entity_type="owned",
    event_type="kind", payload="body",
)  # fmt: skip


@pytest.fixture
def hostile(empty_dsn: str) -> str:
    """A database whose owner has laid traps."""
    with psycopg.connect(empty_dsn) as owner:
        for statement in (TABLE, TRAP, TRAPS.replace("NAMES", f"{{{FUNCTIONS}}}")):
            owner.execute(statement.encode())
        owner.execute(sql.SQL(PATH).format(sql.Identifier(owner.info.dbname)))
    with psycopg.connect(empty_dsn, autocommit=True) as caught:
        for query in ("SELECT now()", "SELECT 1 = 1", "SELECT kind::pg_catalog.text FROM public.orders"):
            with pytest.raises(psycopg.errors.RaiseException, match="trapped"):  # they work
                caught.execute(query.encode())
    return empty_dsn


@pytest.mark.slow
@pytest.mark.parametrize("bound", ["sequence", "transaction-start"])
@pytest.mark.parametrize("driver", FOREIGN)
@pytest.mark.parametrize("pooled", [False, True])
async def test_a_table_is_read_without_running_anything_of_its_owner(
    hostile: str, read_side: Database, driver: str, bound: str, pooled: bool
) -> None:
    mapping = MAPPING if bound == "sequence" else replace(MAPPING, position="at", bound="transaction-start")
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(pooler(hostile)) if pooled else hostile
        settings: ConnectionSettings = FOREIGN[driver]
        database = await stack.enter_async_context(connect(address, settings))
        log = await table_log(database, mapping, name="shop")
        await caught_up(read_side, Orders, journal=log)
        assert sorted(await effects(read_side)) == [("a", 1), ("a", 2), ("b", 1)]


async def test_where_another_framework_stands_is_read_without_running_anything_of_its_owner(
    hostile: str, read_side: Database
) -> None:
    async with connect(hostile, FOREIGN["asyncpg"]) as database:
        log = await table_log(database, MAPPING, name="shop")
        await take_over(read_side, log, Orders, Elsewhere(framework="pekko", name="orders"))
        await caught_up(read_side, Orders, journal=log)
        assert sorted(await effects(read_side)) == [("a", 2), ("b", 1)]


async def test_rebuilds_and_spark_read_it_without_running_anything_of_its_owner(hostile: str) -> None:
    async with connect(hostile, FOREIGN["asyncpg"]) as database:
        read = ReadLog.of(await table_log(database, MAPPING, name="shop"))
    types = EntityTypes.of("order")

    def pages() -> list[tuple[str, int, str]]:
        settled_now(read, timedelta(seconds=10))
        assert sum(read.counts(types).values()) == 3
        reading = Reading(types, slices=SliceRange(0, 1022), order="source")
        return [(e.source_id, e.seq_nr, e.event_type) for page in read.pages(reading, 2) for e in page]

    assert await asyncio.to_thread(pages) == [
        ("a", 1, "Happened"),
        ("a", 2, "Happened"),
        ("b", 1, "Happened"),
    ]


def test_attaching_runs_nothing_of_its_owner(hostile: str, dsn: str, tmp_path: Path) -> None:
    mapping = tmp_path / "orders.toml"
    mapping.write_text(
        'table = "orders"\nsource = "name"\nnumber = "version"\nposition = "id"\nbound = "sequence"\n'
        'entity_type = "owned"\nevent_type = "kind"\npayload = "body"\n'
    )
    done = called(
        "journals", "attach", "table", hostile, "--name", "shop", "--mapping", str(mapping), "--dsn", dsn
    )
    assert done.returncode == 0, done.stderr
