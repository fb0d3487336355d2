"""A swap that somebody is in the way of waits, says so, and gives up without a trace."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from journal import ConnectionSettings, Database, connect
from spark_projections.errors import RebuildUnderWay, SwapRefused
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import rebuild
from tests.fixtures.journal import pid
from tests.fixtures.projections import (
    execute,
    fetchval,
    happen,
)
from tests.fixtures.rebuilds import (
    EXACT,
    ONE,
    REBUILDING,
    Counts,
    Effects,
    Gate,
    Kept,
    differing,
    fence_passes,
    schemas,
    state_of,
)


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
    with pytest.raises(SwapRefused, match=r"was changed since the rebuild began.*--restart"):
        await Gate(journal, dsn, Counts).at(
            "swap", lambda: execute(journal, "ALTER TABLE counts ADD CONSTRAINT few CHECK (n < 3)")
        )

    result = await rebuild(journal, dsn, Counts, RebuildOptions(splits=1, restart=True))

    assert not result.resumed
    constraint = "SELECT count(*) FROM pg_constraint WHERE conrelid = 'counts'::regclass AND conname = 'few'"
    assert await fetchval(journal, constraint) == 1


@pytest.mark.slow
async def test_the_second_of_two_rebuilds_at_once_is_told_who_runs_the_first(
    journal: Database, dsn: str
) -> None:
    await happen(journal, "a")
    refused: list[str] = []

    async def second() -> None:
        with pytest.raises(RebuildUnderWay) as caught:
            await rebuild(journal, dsn, Effects, ONE)
        holder = await fetchval(journal, f"SELECT pid FROM {REBUILDING}")
        refused.extend([str(caught.value), str(holder)])

    await Gate(journal, dsn, Effects).at("fold", second)

    assert f"by process {refused[1]} of the database" in refused[0]
    assert await state_of(journal) == "swapped"


@pytest.mark.slow
async def test_an_unfinished_rebuild_of_other_slices_is_not_gone_on_with(journal: Database, dsn: str) -> None:
    await happen(journal, "a")
    with pytest.raises(SwapRefused):
        await Gate(journal, dsn, Counts).at(
            "swap", lambda: execute(journal, "ALTER TABLE counts ADD COLUMN more int")
        )

    with pytest.raises(RebuildUnderWay, match="--restart"):
        await rebuild(journal, dsn, Counts, RebuildOptions(splits=1, in_place=True))
