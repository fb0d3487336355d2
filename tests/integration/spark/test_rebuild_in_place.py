"""What hangs on a table is named before it would be lost, and stays where rows are replaced."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from journal import (
    Database,
    Event,
    append,
)
from projections.testing import run_until_caught_up
from spark_projections.errors import NotRebuildable, SwapRefused
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import rebuild
from tests.fixtures.projections import execute, fetchval, happen
from tests.fixtures.rebuilds import (
    EXACT,
    ONE,
    Counts,
    Effects,
    differing,
    fence_passes,
    schemas,
    state_of,
)

HANGS = {
    "view public.seen reads it": "CREATE VIEW seen AS SELECT * FROM counts",
    "materialized view public.seen reads it": "CREATE MATERIALIZED VIEW seen AS SELECT * FROM counts",
    "foreign key of_a_count of public.refers": (
        "CREATE TABLE refers (source_id text CONSTRAINT of_a_count REFERENCES counts ON DELETE CASCADE); "
        "INSERT INTO refers VALUES ('what serves'), ('a'), (NULL)"
    ),
    "trigger no_news": (
        "CREATE TRIGGER no_news BEFORE UPDATE ON counts FOR EACH ROW "
        "EXECUTE FUNCTION suppress_redundant_updates_trigger()"
    ),
    "rule as_well": "CREATE RULE as_well AS ON DELETE TO counts DO ALSO NOTHING",
    "it has row security": "ALTER TABLE counts ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON counts USING (n > 0)",
    "it is partitioned": (
        "ALTER TABLE counts RENAME TO was; "
        "CREATE TABLE counts (source_id text PRIMARY KEY, n bigint NOT NULL DEFAULT 0, last bigint) "
        "PARTITION BY HASH (source_id); "
        "CREATE TABLE counts_0 PARTITION OF counts FOR VALUES WITH (MODULUS 2, REMAINDER 0); "
        "CREATE TABLE counts_1 PARTITION OF counts FOR VALUES WITH (MODULUS 2, REMAINDER 1); "
        "INSERT INTO counts SELECT * FROM was"
    ),
    "inherits": "CREATE TABLE child () INHERITS (counts)",
    "sequence public.counts_id_seq belongs to a column of it": "ALTER TABLE counts ADD COLUMN id bigserial",
    "publication all_news": "CREATE PUBLICATION all_news FOR TABLE counts",
    "publication everything would not publish the rows of a new table": "CREATE PUBLICATION everything FOR ALL TABLES",
    "function public.first_one(public.counts) uses it": (
        "CREATE FUNCTION first_one(c counts) RETURNS bigint LANGUAGE sql AS 'SELECT c.n'"
    ),
    "function public.all_of_them() uses it": (
        "CREATE FUNCTION all_of_them() RETURNS SETOF counts LANGUAGE sql AS 'SELECT * FROM counts'"
    ),
    "function public.how_many(public.counts[]) uses it": (
        "CREATE FUNCTION how_many(c counts[]) RETURNS int LANGUAGE sql AS 'SELECT cardinality(c)'"
    ),
    "function public.sum_of_all() uses it": (
        "CREATE FUNCTION sum_of_all() RETURNS numeric LANGUAGE sql BEGIN ATOMIC SELECT sum(n) FROM counts; END"
    ),
    "column was of public.changes has its row type": "CREATE TABLE changes (n int, was counts)",
    "policy counted of public.effects uses it": (
        "CREATE POLICY counted ON effects USING (source_id IN (SELECT c.source_id FROM counts AS c))"
    ),
}


@pytest.fixture
async def journal(journal: Database) -> Database:
    """What serves has a row that no rebuild would make."""
    await execute(journal, "INSERT INTO counts (source_id, n) VALUES ('what serves', 1)")
    return journal


async def write(database: Database, *payloads: Any, source_id: str = "a") -> None:
    async with database.transaction() as session:
        await append(
            session, [Event(source_id, payload, "plane", event_type="Happened") for payload in payloads]
        )
    await fence_passes(database)


@pytest.fixture
async def adorned(journal: Database, request: pytest.FixtureRequest) -> Database:
    """A source that is counted, one that is new, and something that hangs on the table."""
    await execute(journal, "INSERT INTO counts (source_id, n) VALUES ('a', 99)")
    await write(journal, {}, {})
    await write(journal, {}, source_id="new")
    await execute(journal, HANGS[request.param])
    return journal


@pytest.mark.daily(4)
@pytest.mark.parametrize(("adorned", "named"), [(name, name) for name in HANGS], indirect=["adorned"])
async def test_what_would_stay_with_the_old_table_is_named(adorned: Database, dsn: str, named: str) -> None:
    with pytest.raises(NotRebuildable, match=f"{re.escape(named)}.*--in-place"):
        await rebuild(adorned, dsn, Counts, ONE)

    assert await schemas(adorned) == []


@pytest.mark.slow
@pytest.mark.parametrize("adorned", HANGS, indirect=True)
async def test_replacing_rows_keeps_what_hangs_on_the_table(adorned: Database, dsn: str) -> None:
    oid = await fetchval(adorned, "SELECT 'counts'::regclass::oid")
    hanging = "SELECT projections._unfit_for_rename_v1('counts')"
    before = await fetchval(adorned, hanging)
    await execute(adorned, "CREATE TABLE IF NOT EXISTS refers (source_id text)")

    result = await rebuild(adorned, dsn, Counts, RebuildOptions(splits=1, in_place=True))
    await happen(adorned, "a", "newer")
    await run_until_caught_up(adorned, Counts)

    rows = 'SELECT array_agg(source_id || n ORDER BY source_id COLLATE "C") FROM counts'
    assert await fetchval(adorned, rows) == ["a3", "new1", "newer1"]
    assert await fetchval(adorned, "SELECT 'counts'::regclass::oid") == oid
    assert await fetchval(adorned, hanging) == before
    assert await fetchval(adorned, "SELECT array_agg(source_id) FROM refers") in (None, ["a", None])
    assert await fetchval(adorned, f"SELECT count(*) FROM {result.old_schema}.counts") == 2


async def test_a_publication_of_a_schema_is_in_the_way(journal: Database) -> None:
    if int(await fetchval(journal, "SELECT current_setting('server_version_num')")) < 150000:
        pytest.skip("PostgreSQL 14 has none")
    await execute(journal, "CREATE PUBLICATION of_a_schema FOR TABLES IN SCHEMA public")

    assert await fetchval(journal, "SELECT projections._unfit_for_rename_v1('counts')") == [
        "publication of_a_schema would not publish the rows of a new table in its place"
    ]


async def test_a_function_that_finds_the_table_by_its_name_is_not_in_the_way(journal: Database) -> None:
    await execute(journal, "CREATE FUNCTION n() RETURNS numeric LANGUAGE sql AS 'SELECT sum(n) FROM counts'")

    assert await fetchval(journal, "SELECT projections._unfit_for_rename_v1('counts')") == []


async def test_numbers_that_the_table_gives_go_on_after_rows_were_replaced(
    journal: Database, dsn: str
) -> None:
    await execute(journal, "TRUNCATE effects RESTART IDENTITY")
    await write(journal, *[{}] * 20)

    await rebuild(journal, dsn, Effects, RebuildOptions(splits=1, in_place=True))
    await happen(journal, "a", "b")
    await run_until_caught_up(journal, Effects)

    assert await differing(journal) == EXACT


@pytest.mark.slow
async def test_a_swap_that_takes_too_long_is_undone_and_gone_on_with(journal: Database, dsn: str) -> None:
    await write(journal, {}, {})
    await execute(journal, "CREATE TABLE busy (n int); INSERT INTO busy VALUES (1)")
    await execute(
        journal,
        """
        CREATE FUNCTION takes_long() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            WHILE EXISTS (SELECT FROM public.busy) LOOP NULL; END LOOP;
            RETURN new;
        END $$;
        CREATE TRIGGER takes_long BEFORE INSERT ON counts FOR EACH ROW EXECUTE FUNCTION takes_long()
        """,
    )
    short = RebuildOptions(splits=1, in_place=True, swap_timeout=timedelta(milliseconds=300))

    with pytest.raises(SwapRefused, match=r"took longer than 0:00:00.300000 and was undone.*--swap-timeout"):
        await rebuild(journal, dsn, Counts, short)
    kept = await state_of(journal), await fetchval(journal, "SELECT array_agg(source_id) FROM counts")
    await execute(journal, "DELETE FROM busy")
    result = await rebuild(journal, dsn, Counts, RebuildOptions(splits=1, in_place=True))

    assert kept == ("verified", ["what serves"])
    assert result.resumed
    assert await fetchval(journal, "SELECT array_agg(source_id || n) FROM counts") == ["a2"]
