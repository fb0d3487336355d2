"""The hand-over from the old read model to the new: nothing lost, nothing twice, and nothing that hangs on a table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

import offsets
from journal import ConnectionSettings, Database, DatabaseError, Event, append, connect
from journal.importing import import_events
from projections.testing import run_until_caught_up
from spark_projections import bookkeeping
from spark_projections.errors import RebuildUnderWay, SwapRefused
from spark_projections.rebuilding import RebuildOptions, rebuild
from tests.fixtures.journal import pid
from tests.fixtures.projections import (
    NO_RETRY,
    Happened,
    caught_up,
    execute,
    failing,
    fetchval,
    happen,
    recording,
    running,
    until,
    until_effects,
)
from tests.fixtures.rebuilds import (
    EXACT,
    ONE,
    Counts,
    Effects,
    Gate,
    Kept,
    differing,
    fence_passes,
    make_read_models,
    schemas,
    state_of,
    tied,
)

ADORNED = """
CREATE ROLE {role};
CREATE ROLE {role}_friend;
CREATE TABLE kinds (kind text PRIMARY KEY);
INSERT INTO kinds VALUES ('plane');
DROP TABLE counts;
CREATE TABLE counts (
    source_id text CONSTRAINT the_key PRIMARY KEY,
    n bigint NOT NULL DEFAULT 0 CONSTRAINT not_negative CHECK (n >= 0),
    last bigint,
    kind text DEFAULT 'plane' CONSTRAINT of_a_kind REFERENCES kinds,
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
            projections.table_shape_v1(c.oid::regclass)
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


_LATEST = "SELECT max(db_timestamp) FROM projections.events"


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(max_connections=15)) as pool:
        await make_read_models(pool)
        yield pool


async def number_of(database: Database, name: str) -> int:
    async with database.session() as session:
        return (await offsets.status(session, name)).projection_id


# Workers that run meanwhile


async def test_workers_that_run_meanwhile_go_on_at_the_fence(journal: Database, dsn: str) -> None:
    await happen(journal, *(f"s{n % 9}" for n in range(60)))
    async with running(journal, Effects, ranges=3) as told:
        await until_effects(journal, 60)
        await fence_passes(journal)
        kept = Kept()
        gate = Gate(journal, dsn, Effects)
        result = await gate.at("swap", lambda: happen(journal, "s1", "s2", "new"), kept)
        await happen(journal, "s1", "s3", "newer")
        await until_effects(journal, 66)
        await until(journal, "SELECT count(*) = 3 FROM projections.projection_ranges WHERE owner IS NOT NULL")
        started_again = told.names("started")

    assert result.events == 60
    assert await differing(journal) == EXACT
    assert len(started_again) >= 6


async def test_a_worker_that_has_written_the_old_table_goes_on_with_the_new(
    journal: Database, dsn: str
) -> None:
    async with running(journal, Counts, ranges=2) as told:
        await happen(journal, "a", "b")
        await until(journal, "SELECT sum(n) = 2 FROM counts")
        await fence_passes(journal)
        await rebuild(journal, dsn, Counts, ONE)
        await happen(journal, "a", "c")
        await until(journal, "SELECT sum(n) = 4 FROM counts")

    rows = 'SELECT array_agg(source_id || n || last ORDER BY source_id COLLATE "C") FROM counts'
    assert await fetchval(journal, rows) == ["a22", "b11", "c11"]
    assert told.names("parked", "skipped") == []


async def test_appends_all_the_time_are_handled_once_and_in_order(journal: Database, dsn: str) -> None:
    stop = asyncio.Event()

    async def append_on() -> None:
        for turn in range(10**6):
            await happen(journal, f"s{turn % 7}", f"t{turn % 11}")
            if stop.is_set():
                return

    async with running(journal, Effects, ranges=4):
        task = asyncio.create_task(append_on())
        await until_effects(journal, 40)
        first = await rebuild(journal, dsn, Effects, ONE)
        await until(journal, "SELECT count(*) > $1 FROM effects", first.events + 20)
        second = await rebuild(journal, dsn, Effects, ONE)
        stop.set()
        await task
        events = await fetchval(journal, "SELECT count(*) FROM projections.events")
        await until_effects(journal, events)

    assert 0 < first.events < second.events <= events
    assert await differing(journal) == EXACT


async def test_an_append_from_before_the_fence_is_waited_for_and_named(journal: Database, dsn: str) -> None:
    await happen(journal, "a")
    kept = Kept()
    settings = ConnectionSettings(application_name="the slow importer")
    async with connect(dsn, settings) as slow, slow.session() as late:
        await late.begin()
        await append(late, [Event("late", Happened(), "plane")])
        await fence_passes(journal, await late.fetchval(_LATEST))
        task = asyncio.create_task(rebuild(journal, dsn, Effects, ONE, progress=kept))
        said, number = await kept.until_waiting(), await pid(late)
        await happen(journal, "after")
        await late.commit()
        result = await task
    in_new_table = await fetchval(
        journal, 'SELECT array_agg(source_id ORDER BY source_id COLLATE "C") FROM effects'
    )
    await run_until_caught_up(journal, Effects)

    assert str(number) in said
    assert "the slow importer" in said
    assert set(in_new_table) >= {"late"}
    assert result.events == len(in_new_table)
    assert await differing(journal) == EXACT


@pytest.mark.parametrize("prepared", ["before", "meanwhile"])
async def test_a_prepared_append_from_before_the_fence_is_waited_for(
    journal: Database, dsn: str, prepared: str
) -> None:
    await happen(journal, "a")
    kept, name = Kept(), uuid4()
    late = await asyncpg.connect(dsn)
    await late.execute("BEGIN")
    await append(late, [Event("late", Happened(), "plane")])
    await fence_passes(journal, await late.fetchval(_LATEST))
    if prepared == "before":
        await late.execute(f"PREPARE TRANSACTION '{name}'")
    task = asyncio.create_task(rebuild(journal, dsn, Effects, ONE, progress=kept))
    await kept.until_waiting()
    if prepared == "meanwhile":
        await late.execute(f"PREPARE TRANSACTION '{name}'")
    said = await kept.until_waiting(2)
    await late.execute(f"COMMIT PREPARED '{name}'")
    await late.close()
    result = await task

    assert any("a prepared transaction" in text for text in [said, *kept.waited])
    assert result.events == 2
    assert await fetchval(journal, "SELECT count(*) FROM effects WHERE source_id = 'late'") == 1


async def test_an_append_that_begins_after_the_fence_is_for_the_workers(journal: Database, dsn: str) -> None:
    await happen(journal, "a")
    await fence_passes(journal)
    async with journal.session() as late:

        async def begin_late() -> None:
            await late.begin()
            await append(late, [Event("late", Happened(), "plane")])
            await happen(journal, "a")

        result = await Gate(journal, dsn, Effects).at("fold", begin_late)
        await late.commit()
    await run_until_caught_up(journal, Effects)

    assert result.events == 1
    assert await differing(journal) == EXACT


@pytest.mark.parametrize("stage", ["fold", "combine", "verify", "swap"])
async def test_history_that_is_imported_meanwhile_is_handled_once(
    journal: Database, dsn: str, stage: str
) -> None:
    await happen(journal, "a", "b")
    async with running(journal, Effects, ranges=2):
        await until_effects(journal, 2)
        await fence_passes(journal)

        async def load() -> None:
            await import_events(
                journal, tied([("old", Happened()), ("old", Happened()), ("older", Happened())])
            )
            await until_effects(journal, 5)

        await Gate(journal, dsn, Effects).at(stage, load)
        await happen(journal, "a", "b")
        await until_effects(journal, 7)

    assert await differing(journal) == EXACT


async def test_sources_that_were_parked_flow_again(journal: Database, dsn: str) -> None:
    broken = recording(failing(("b", 2)), "effects", recovery=NO_RETRY)
    await happen(journal, "a", "b", "b", "b")
    await caught_up(journal, broken)
    assert await fetchval(journal, "SELECT count(*) FROM projections.parked_sources") == 1
    await fence_passes(journal)

    await rebuild(journal, dsn, Effects, ONE)
    await happen(journal, "b")
    await run_until_caught_up(journal, Effects)

    assert await fetchval(journal, "SELECT count(*) FROM projections.parked_sources") == 0
    assert await differing(journal) == EXACT


async def test_offsets_are_the_last_numbers_up_to_the_fence(journal: Database, dsn: str) -> None:
    await happen(journal, "a", "a", "b")
    await run_until_caught_up(journal, Effects)
    await fence_passes(journal)
    await happen(journal, "c")
    await fence_passes(journal)

    async def after_the_fence() -> None:
        await happen(journal, "a", "d")
        await run_until_caught_up(journal, Effects)

    result = await Gate(journal, dsn, Effects).at("swap", after_the_fence)

    found = """
    SELECT array_agg(o.source_id || o.seq_nr ORDER BY o.source_id COLLATE "C") FROM projections.source_offsets AS o
    """
    assert result.fence > datetime(2020, 1, 1, tzinfo=UTC)
    assert await fetchval(journal, found) == ["a2", "b1", "c1"]
    await run_until_caught_up(journal, Effects)
    assert await differing(journal) == EXACT


async def test_offsets_are_not_evicted_while_a_rebuild_is_unfinished(journal: Database, dsn: str) -> None:
    await happen(journal, "a", "b")
    await run_until_caught_up(journal, Effects)
    await fence_passes(journal)
    offsets_left = "SELECT count(*) FROM projections.source_offsets"

    async def evict() -> int:
        async with journal.session() as session:
            await session.execute("UPDATE projections.projection_ranges SET horizon = clock_timestamp()")
            await offsets.evict(session, await number_of(journal, "effects"), timedelta(0))
        return int(await fetchval(journal, offsets_left))

    left: list[int] = []

    async def evict_between() -> None:
        left.append(await evict())

    await Gate(journal, dsn, Effects).at("swap", evict_between)

    assert left == [2]
    assert await fetchval(journal, offsets_left) == 2
    assert await evict() == 0


async def test_an_offset_that_was_set_past_the_fence_refuses_the_swap(journal: Database, dsn: str) -> None:
    await happen(journal, "a")
    await fence_passes(journal)
    await execute(journal, "INSERT INTO effects (source_id, seq_nr) VALUES ('what serves', 1)")

    async def skip_ahead() -> None:
        async with journal.session() as session:
            await offsets.set_offset(session, "effects", datetime(2100, 1, 1, tzinfo=UTC))

    with pytest.raises(SwapRefused, match="offset of the projection was set"):
        await Gate(journal, dsn, Effects).at("swap", skip_ahead)

    assert await fetchval(journal, "SELECT array_agg(source_id) FROM effects") == ["what serves"]


# Who is in the way


async def test_a_long_reader_is_named_and_the_swap_goes_on_when_it_ends(journal: Database, dsn: str) -> None:
    await happen(journal, "a")
    await fence_passes(journal)
    kept = Kept()
    settings = ConnectionSettings(application_name="the long report")
    async with connect(dsn, settings) as pool, pool.session() as reader:
        await reader.begin()
        await reader.fetch("SELECT * FROM effects")
        task = asyncio.create_task(rebuild(journal, dsn, Effects, ONE, progress=kept))
        said, number = await kept.until_waiting(), await pid(reader)
        await reader.rollback()
        result = await task

    assert f"process {number} (the long report, idle in transaction)" in said
    assert result.rows == {"effects": 1}


async def test_a_swap_that_waits_for_too_long_gives_up_and_the_next_run_only_swaps(
    journal: Database, dsn: str
) -> None:
    await happen(journal, "a")
    await fence_passes(journal)
    kept = Kept()
    async with journal.session() as reader:
        await reader.begin()
        await reader.fetch("SELECT * FROM effects")
        with pytest.raises(SwapRefused, match="in use"):
            await rebuild(journal, dsn, Effects, RebuildOptions(splits=1, swap_within=timedelta(0)))
        verified = await state_of(journal)
        await reader.rollback()

    result = await rebuild(journal, dsn, Effects, ONE, progress=kept)

    assert verified == "verified"
    assert result.resumed
    assert not {"fence", "fold", "combine"} & set(kept.stages)
    assert await differing(journal) == EXACT


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE counts ADD COLUMN more int",
        "CREATE INDEX another ON counts (n)",
        "ALTER TABLE counts ADD CHECK (n > 0)",
        "ALTER TABLE counts RENAME TO former; CREATE TABLE counts (LIKE former INCLUDING ALL)",
        "DROP TABLE counts",
        "CREATE VIEW shown AS SELECT * FROM counts",
        "CREATE TRIGGER t BEFORE UPDATE ON counts FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "CREATE TABLE refers (source_id text REFERENCES counts)",
    ],
)
async def test_a_table_that_was_changed_meanwhile_refuses_the_swap(
    journal: Database, dsn: str, change: str
) -> None:
    await happen(journal, "a")
    await fence_passes(journal)

    with pytest.raises(SwapRefused):
        await Gate(journal, dsn, Counts).at("swap", lambda: execute(journal, change))

    assert (await schemas(journal))[0].startswith("projections_rebuild_")
    assert await fetchval(journal, "SELECT count(*) FROM projections.source_offsets") == 0


async def test_after_a_refused_swap_a_rebuild_from_the_start_succeeds(journal: Database, dsn: str) -> None:
    await happen(journal, "a")
    await fence_passes(journal)
    with pytest.raises(SwapRefused, match="was changed since the rebuild began"):
        await Gate(journal, dsn, Counts).at(
            "swap", lambda: execute(journal, "ALTER TABLE counts ADD COLUMN more int DEFAULT 3")
        )

    result = await rebuild(journal, dsn, Counts, RebuildOptions(splits=1, restart=True))

    assert not result.resumed
    assert await fetchval(journal, "SELECT more FROM counts") == 3


async def test_the_second_of_two_rebuilds_at_once_is_told_who_runs_the_first(
    journal: Database, dsn: str
) -> None:
    await happen(journal, "a")
    refused: list[str] = []

    async def second() -> None:
        with pytest.raises(RebuildUnderWay) as caught:
            await rebuild(journal, dsn, Effects, ONE)
        holder = await fetchval(
            journal,
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted "
            "AND classid::bigint = hashtext('slice-projections rebuild') & 4294967295",
        )
        refused.extend([str(caught.value), str(holder)])

    await Gate(journal, dsn, Effects).at("fold", second)

    assert f"by process {refused[1]} of the database" in refused[0]
    assert await state_of(journal) == "swapped"


async def test_an_unfinished_rebuild_of_other_slices_is_not_gone_on_with(journal: Database, dsn: str) -> None:
    await happen(journal, "a")
    with pytest.raises(SwapRefused):
        await Gate(journal, dsn, Counts).at(
            "swap", lambda: execute(journal, "ALTER TABLE counts ADD COLUMN more int")
        )

    with pytest.raises(RebuildUnderWay, match="--restart"):
        await rebuild(journal, dsn, Counts, RebuildOptions(splits=1, in_place=True))


# What hangs on a table


async def look(database: Database) -> dict[str, Any]:
    async with database.session() as session:
        return {
            name: [tuple(row.values()) for row in await session.fetch(query)] for name, query in LOOK.items()
        }


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


async def test_a_table_of_another_schema_keeps_its_place(journal: Database, dsn: str) -> None:
    await execute(journal, "CREATE SCHEMA elsewhere; ALTER TABLE effects SET SCHEMA elsewhere")
    await execute(journal, "CREATE TABLE effects (LIKE elsewhere.effects INCLUDING ALL)")
    await execute(journal, "INSERT INTO elsewhere.effects (source_id, seq_nr) VALUES ('untouched', 1)")
    await happen(journal, "a")
    await fence_passes(journal)

    await rebuild(journal, dsn, Effects, ONE)

    assert await differing(journal) == EXACT
    assert await fetchval(journal, "SELECT array_agg(source_id) FROM elsewhere.effects") == ["untouched"]


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
