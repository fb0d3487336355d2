"""Rebuilds and exports whose database goes back in time: nothing of events that are gone is swapped in, or marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from journal import Database, DatabaseError
from projections.testing import run_until_caught_up
from spark_projections.archive import export as export_module
from spark_projections.archive.manifest import Manifest
from spark_projections.engine.parallel import spread
from spark_projections.errors import RebuildFailed, SwapRefused
from spark_projections.rebuilds import rebuilding
from spark_projections.rebuilds.rebuilding import _Run, rebuild
from tests.fixtures.archive import change, export, filled
from tests.fixtures.going_back import go_back, remember
from tests.fixtures.projections import execute, fetchval, happen
from tests.fixtures.rebuilds import ONE, Counts

STATES = "SELECT string_agg(state, ' ' ORDER BY rebuild_id) FROM projections.rebuilds"


@pytest.fixture
async def journal(journal: Database) -> Database:
    await happen(journal, "a", "b")
    await run_until_caught_up(journal, Counts)
    return journal


@pytest.mark.slow
async def test_a_rebuild_of_a_lost_history_is_dropped_before_it_verifies(
    journal: Database, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    combine = rebuilding.combine_parts

    async def going_back(*args: Any) -> None:
        await combine(*args)
        await go_back(journal)

    fold = _Run._fold

    async def remembering(run: _Run, *args: Any) -> None:
        await remember(journal)
        await fold(run, *args)

    monkeypatch.setattr(_Run, "_fold", remembering)
    monkeypatch.setattr(rebuilding, "combine_parts", going_back)

    with pytest.raises(RebuildFailed, match="the database went back in time since rebuild 1 began"):
        await rebuild(journal, dsn, Counts, ONE)

    assert await fetchval(journal, STATES) == "cancelled"
    monkeypatch.undo()
    await rebuild(journal, dsn, Counts, ONE)
    assert await fetchval(journal, STATES) == "cancelled swapped"


async def test_a_rebuild_is_not_swapped_in_where_a_restored_database_has_it_verified(
    journal: Database, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify, swap = _Run._verify, rebuilding.swap

    async def remembering(run: _Run, *args: Any) -> int:
        sampled = await verify(run, *args)
        await remember(journal)
        return sampled

    async def going_back(*args: Any, **limits: Any) -> float:
        await go_back(journal)
        return await swap(*args, **limits)

    monkeypatch.setattr(_Run, "_verify", remembering)
    monkeypatch.setattr(rebuilding, "swap", going_back)

    with pytest.raises(SwapRefused, match="the database went back in time since rebuild 1 began"):
        await rebuild(journal, dsn, Counts, ONE)

    assert await fetchval(journal, STATES) == "verified"


@pytest.mark.slow
async def test_a_rebuild_that_was_begun_before_a_fail_over_is_neither_swapped_nor_gone_on_with(
    journal: Database, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ends(*_: Any, **__: Any) -> float:
        raise SwapRefused("not now")

    with monkeypatch.context() as patched:
        patched.setattr(rebuilding, "swap", ends)
        with pytest.raises(SwapRefused):
            await rebuild(journal, dsn, Counts, ONE)
    assert await fetchval(journal, STATES) == "verified"
    await execute(
        journal, "UPDATE projections.rebuilds SET timeline = timeline + 1"
    )  # as if this were the next

    with pytest.raises(DatabaseError, match="the database went back in time") as refused:
        await execute(journal, "SELECT projections._swap_rebuild_v1(1)")
    assert refused.value.sqlstate == "PJ013"
    result = await rebuild(journal, dsn, Counts, ONE)

    assert not result.resumed
    assert await fetchval(journal, STATES) == "cancelled swapped"


async def test_a_task_of_a_lost_rebuild_folds_nothing_into_another_of_its_number(
    journal: Database, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ends(*_: Any) -> None:
        raise RebuildFailed("not now")

    monkeypatch.setattr(_Run, "_fold", ends)
    with pytest.raises(RebuildFailed):
        await rebuild(journal, dsn, Counts, ONE)
    part = "SELECT count(*) FROM projections._lock_rebuild_part_v1(1, 0, $1)"
    began = await fetchval(journal, "SELECT started_at FROM projections.rebuilds")

    assert await fetchval(journal, part, began) == 1
    await execute(journal, "UPDATE projections.rebuilds SET started_at = started_at + interval '1 minute'")
    assert await fetchval(journal, part, began) == 0


async def test_an_export_marks_nothing_that_is_gone_when_it_is_read(
    database: Database, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(database)

    def spreading(work: Any, parts: Any, **options: Any) -> list[Any]:
        written = list(spread(work, parts, **options))
        change(dsn, "DELETE FROM projections.events WHERE entity_type = 'plane' AND seq_nr = 30")
        return written

    with monkeypatch.context() as patched:
        patched.setattr(export_module, "spread", spreading)
        (problem,) = export(dsn, tmp_path).stuck.values()
    assert "lacks events of type 'plane' that were just read from it" in problem
    marked = [each for each in Manifest.load(tmp_path).files if each.entity_type == "plane"]
    assert max(each.max_seq_nr for each in marked) < 30 if marked else True

    export(dsn, tmp_path)
    marked = [each for each in Manifest.load(tmp_path).files if each.entity_type == "plane"]
    assert max(each.max_seq_nr for each in marked) == 29


@pytest.mark.slow
async def test_an_archive_of_events_that_are_gone_is_not_taken_for_the_journal(
    database: Database, dsn: str, tmp_path: Path
) -> None:
    await filled(database)
    export(dsn, tmp_path)
    change(dsn, "DELETE FROM projections.events WHERE entity_type = 'plane' AND seq_nr = 30")

    (problem,) = export(dsn, tmp_path).stuck.values()

    assert "the database went back in time since they were exported" in problem
