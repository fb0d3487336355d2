"""Rebuilds that are interrupted, doubled or cancelled: every event has its effect once, or nothing is left of them."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

import offsets
from journal import (
    ALL_SLICES,
    ConnectionSettings,
    Database,
    DatabaseUnavailable,
    Event,
    SliceRange,
    append,
    connect,
)
from projections.testing import run_until_caught_up
from spark_projections.errors import NotRebuildable, RebuildFailed
from spark_projections.folding import fold_part
from spark_projections.rebuilding import RebuildOptions, rebuild
from tests.fixtures.commands import environment
from tests.fixtures.projections import Happened, execute, fetchval, happen, running, until
from tests.fixtures.rebuilds import (
    COUNTS,
    EXACT,
    ONE,
    AllKinds,
    Changed,
    Counts,
    Effects,
    Gate,
    Grouped,
    Kept,
    append_changes,
    differing,
    fence_passes,
    held,
    in_this_process,
    job_of,
    make_read_models,
    plain_fold,
    processes_held_up,
    schemas,
    source_in,
    state_of,
    tables_of_all_kinds,
    until_held_up,
)

__all__ = ["in_this_process"]

HALF = SliceRange(0, 511)
DRIVER = """
import asyncio, sys
from journal import connect
from spark_projections.rebuilding import RebuildOptions, rebuild
from tests.fixtures.rebuilds import Effects

async def main(dsn):
    async with connect(dsn) as database:
        await rebuild(database, dsn, Effects, RebuildOptions(splits=1))

asyncio.run(main(sys.argv[1]))
"""
APP = """
from projections import handles, projection
from tests.fixtures.projections import Happened
from tests.fixtures.rebuilds import COUNTS

@projection("changing", entity_type="plane", tables=(COUNTS,))
class Changing:
    @handles(Happened)
    def happened(self, event, envelope):
        {body}
        return COUNTS.upsert(source_id=envelope.source_id, n=1)
"""


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(max_connections=12)) as pool:
        await make_read_models(pool)
        yield pool


async def write(database: Database, *events: tuple[str, int]) -> None:
    """Append events with their numbers, and wait until a fence comes after them."""
    async with database.transaction() as session:
        await append(session, [Event(source_id, Happened(n=n), "plane") for source_id, n in events])
    await fence_passes(database)


# In the order of their source: a batch of ten, and of the next batch the third is the one that waits.
TWENTY = [("a", 0)] * 12 + [("a", 1)] + [("a", 0)] * 7


# Interrupted, and doubled


async def test_two_tasks_that_fold_one_part_at_once_take_turns(journal: Database, dsn: str) -> None:
    await write(journal, *TWENTY)
    async with held(journal) as let_go:
        first = asyncio.create_task(rebuild(journal, dsn, Effects, ONE))
        await until_held_up(journal)
        job = await job_of(journal, dsn, Effects)
        second = asyncio.create_task(asyncio.to_thread(fold_part, job, ALL_SLICES))
        await until_held_up(journal, 2)
        await let_go()
        result, _ = await asyncio.gather(first, second)

    assert result.events == 20
    assert await differing(journal) == EXACT


async def test_a_killed_process_is_followed_by_another_that_goes_on(journal: Database, dsn: str) -> None:
    low, high = source_in(0, 300), source_in(700, 1023)
    await write(journal, *((low, n) for _, n in TWENTY), *[(high, 0)] * 20)
    async with held(journal) as let_go:
        task = asyncio.create_task(rebuild(journal, dsn, Effects, RebuildOptions(splits=2)))
        await until_held_up(journal)
        (pid,) = await processes_held_up(journal)
        os.kill(pid, signal.SIGKILL)
        await until_held_up(journal, 2)
        await let_go()
        result = await task

    assert (result.events, result.resumed) == (40, False)
    assert await differing(journal) == EXACT


async def test_what_a_killed_driver_left_is_gone_on_with(journal: Database, dsn: str) -> None:
    await write(journal, *TWENTY)
    async with held(journal):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", DRIVER, dsn, env=environment(), stderr=PIPE
        )
        try:
            await until_held_up(journal)
        finally:
            process.kill()
            await process.communicate()
    committed = await fetchval(journal, "SELECT sum(events)::int FROM projections.rebuild_parts")
    await until(
        journal,
        "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database() "
        "AND application_name LIKE 'slice-projections rebuild %'",
    )
    await until(journal, "SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory'")
    kept = Kept()

    result = await rebuild(journal, dsn, Effects, ONE, progress=kept)

    assert committed == 10
    assert (result.resumed, result.events, len(kept.resumptions)) == (True, 20, 1)
    assert "fence" not in kept.stages
    assert await differing(journal) == EXACT


async def test_a_rebuild_whose_own_connection_was_lost_is_gone_on_with(journal: Database, dsn: str) -> None:
    await write(journal, *TWENTY)
    async with held(journal) as let_go, connect(dsn) as other:
        task = asyncio.create_task(rebuild(other, dsn, Effects, ONE))
        await until_held_up(journal)
        await execute(
            journal,
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted "
            "AND classid::bigint = hashtext('slice-projections rebuild') & 4294967295",
        )
        await until(
            journal,
            "SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory' AND granted "
            "AND classid::bigint = hashtext('slice-projections rebuild') & 4294967295",
        )
        await let_go()
        with pytest.raises(DatabaseUnavailable):
            await task

    result = await rebuild(journal, dsn, Effects, ONE)

    assert (result.resumed, result.events) == (True, 20)
    assert await differing(journal) == EXACT
    assert len(await schemas(journal)) == 1


async def test_changed_code_begins_anew(
    journal: Database, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(journal, ("a", 0), ("b", 0))
    monkeypatch.syspath_prepend(tmp_path)
    code = tmp_path / "changing_app.py"
    code.write_text(APP.format(body="if envelope.source_id == 'b': raise ValueError('a bug')"))
    module = importlib.import_module("changing_app")
    try:
        with pytest.raises(RebuildFailed, match="a bug"):
            await rebuild(journal, dsn, module.Changing, ONE)
        code.write_text(APP.format(body="'mended, and longer than before'"))
        kept = Kept()

        result = await rebuild(journal, dsn, importlib.reload(module).Changing, ONE, progress=kept)
    finally:
        del sys.modules["changing_app"]

    assert not result.resumed
    assert any("code has changed" in text for text in kept.waited)
    assert (result.events, result.rows) == (2, {"counts": 2})
    assert await schemas(journal) == [result.old_schema]


async def test_restart_begins_anew(journal: Database, dsn: str) -> None:
    await write(journal, ("a", 0))
    async with journal.transaction() as session:
        await append(session, [Event("b", {"n": "no number"}, "plane", event_type="Happened")])
    await fence_passes(journal)
    with pytest.raises(RebuildFailed):
        await rebuild(journal, dsn, Counts, ONE)

    result = await rebuild(journal, dsn, Counts, RebuildOptions(splits=1, restart=True, skip=True))

    assert (result.resumed, result.skipped) == (False, 1)
    states = "SELECT array_agg(state ORDER BY rebuild_id) FROM projections.rebuilds"
    assert await fetchval(journal, states) == ["cancelled", "swapped"]
    assert await schemas(journal) == [result.old_schema]


# Cancelled


async def test_a_cancelled_rebuild_leaves_nothing_and_what_serves_is_untouched(
    journal: Database, dsn: str
) -> None:
    await write(journal, *TWENTY)
    await execute(journal, "INSERT INTO effects (source_id, seq_nr) VALUES ('what serves', 1)")
    async with held(journal) as let_go:
        task = asyncio.create_task(rebuild(journal, dsn, Effects, ONE))
        await until_held_up(journal)
        task.cancel()
        await let_go()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert await schemas(journal) == []
    assert await state_of(journal) == "cancelled"
    assert await fetchval(journal, "SELECT array_agg(source_id) FROM effects") == ["what serves"]


async def test_a_task_of_a_cancelled_rebuild_writes_nothing(journal: Database, dsn: str) -> None:
    await write(journal, *TWENTY)
    async with held(journal) as let_go:
        task = asyncio.create_task(rebuild(journal, dsn, Effects, ONE))
        await until_held_up(journal)
        job = await job_of(journal, dsn, Effects)
        task.cancel()
        await let_go()
        await asyncio.gather(task, return_exceptions=True)

    await asyncio.to_thread(fold_part, job, ALL_SLICES)

    assert await fetchval(journal, "SELECT count(*) FROM effects") == 0
    assert await schemas(journal) == []


async def test_after_a_cancelled_rebuild_another_succeeds(journal: Database, dsn: str) -> None:
    await write(journal, *TWENTY)
    async with held(journal) as let_go:
        task = asyncio.create_task(rebuild(journal, dsn, Effects, ONE))
        await until_held_up(journal)
        task.cancel()
        await let_go()
        await asyncio.gather(task, return_exceptions=True)

    result = await rebuild(journal, dsn, Effects, ONE)

    assert not result.resumed
    assert await differing(journal) == EXACT


async def test_a_rebuild_that_is_cancelled_while_it_waits_for_the_fence_leaves_nothing(
    journal: Database, dsn: str
) -> None:
    kept = Kept()
    async with journal.session() as late:
        await late.begin()
        await append(late, [Event("late", Happened(), "plane")])
        task = asyncio.create_task(rebuild(journal, dsn, Effects, ONE, progress=kept))
        await kept.until_waiting()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await late.commit()
    await fence_passes(journal)

    result = await rebuild(journal, dsn, Effects, ONE)

    assert (result.resumed, result.events) == (False, 1)
    assert await fetchval(journal, "SELECT count(*) FROM projections.rebuilds") == 1


async def test_a_rebuild_that_is_cancelled_while_its_table_is_in_use_leaves_nothing(
    journal: Database, dsn: str
) -> None:
    await write(journal, ("a", 0))
    kept = Kept()
    async with journal.session() as reader:
        await reader.begin()
        await reader.fetch("SELECT * FROM effects")
        task = asyncio.create_task(rebuild(journal, dsn, Effects, ONE, progress=kept))
        await kept.until_waiting()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await reader.rollback()

    assert await schemas(journal) == []
    assert await state_of(journal) == "cancelled"


# Handlers that write by themselves


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("definition", [Effects, Grouped])
@pytest.mark.parametrize("splits", [1, 4])
async def test_handlers_with_a_session_write_to_the_new_table(
    journal: Database, dsn: str, definition: type, splits: int
) -> None:
    await write(journal, *((f"s{n % 7}", 0) for n in range(60)))
    await execute(journal, "INSERT INTO effects (source_id, seq_nr) VALUES ('of older code', 1)")

    result = await rebuild(journal, dsn, definition, RebuildOptions(splits=splits))

    assert (result.events, result.rows, result.rows_before) == (60, {"effects": 60}, {"effects": 1})
    assert await differing(journal) == EXACT


# A range of slices


async def test_a_range_of_slices_replaces_the_rows_of_its_sources_alone(journal: Database, dsn: str) -> None:
    inside, outside = source_in(0, 511), source_in(512, 1023)
    await happen(journal, inside, outside, inside, outside)
    await run_until_caught_up(journal, Counts, ranges=4)
    await execute(journal, "UPDATE counts SET n = 99")
    untouched = (
        "SELECT c.xmin::text || ' ' || o.xmin::text FROM counts AS c INNER JOIN projections.source_offsets AS o "
        "USING (source_id) WHERE source_id = $1"
    )
    before = await fetchval(journal, untouched, outside)
    await fence_passes(journal)

    result = await rebuild(journal, dsn, Counts, RebuildOptions(slices=HALF, splits=1))

    assert (result.slices, result.events, result.rows) == (HALF, 2, {"counts": 1})
    assert await counts(journal) == {inside: 2, outside: 99}
    assert await fetchval(journal, untouched, outside) == before


async def test_workers_go_on_after_a_range_of_slices_was_rebuilt(journal: Database, dsn: str) -> None:
    inside, outside = source_in(0, 511), source_in(512, 1023)
    await happen(journal, inside, outside)
    await run_until_caught_up(journal, Counts)
    await fence_passes(journal)
    await rebuild(journal, dsn, Counts, RebuildOptions(slices=HALF, splits=1))
    await happen(journal, inside, outside)

    await run_until_caught_up(journal, Counts)

    assert await counts(journal) == {inside: 2, outside: 2}


async def counts(database: Database) -> dict[str, int]:
    async with database.session() as session:
        rows = await session.fetch(f"SELECT source_id, n FROM {COUNTS}")
    return {row["source_id"]: row["n"] for row in rows}


# What a source or an event may look like


@pytest.mark.usefixtures("in_this_process")
async def test_one_source_with_half_of_all_events_and_a_payload_of_5_mb(journal: Database, dsn: str) -> None:
    await write(journal, *[("hot", 0)] * 500, *((f"s{n}", 0) for n in range(500)))
    async with journal.transaction() as session:
        payload = {"n": 0, "text": "\U0001f600ü" * 700_000}
        await append(session, [Event("big", payload, "plane", event_type="Happened")])
    await fence_passes(journal)

    result = await rebuild(journal, dsn, Counts, RebuildOptions(splits=8))

    assert (result.events, result.rows) == (1001, {"counts": 502})
    assert (await counts(journal))["hot"] == 500
    assert (await counts(journal))["big"] == 1


async def test_a_time_cuts_the_read_model_and_workers_handle_what_is_later(
    journal: Database, dsn: str
) -> None:
    await write(journal, ("a", 0), ("b", 0))
    until_then = await fetchval(journal, "SELECT max(db_timestamp) FROM projections.events")
    await write(journal, ("a", 0))

    result = await rebuild(journal, dsn, Counts, RebuildOptions(splits=1, until=until_then))
    as_of_then = await counts(journal)
    await run_until_caught_up(journal, Counts)

    assert (result.fence, as_of_then) == (until_then, {"a": 1, "b": 1})
    assert await counts(journal) == {"a": 2, "b": 1}


# Interrupted between stages


class Interrupted(Exception):
    """Ends a rebuild as a crash would: nothing is cleaned up."""


@pytest.mark.parametrize("stage", ["fold", "combine", "verify", "swap"])
async def test_wherever_it_was_interrupted_the_next_run_goes_on(
    journal: Database, dsn: str, stage: str
) -> None:
    events = [(f"s{n % 5}", Changed(key=f"k{n % 3}", n=n, name="ü" * n)) for n in range(30)]
    await append_changes(journal, events)
    await fence_passes(journal)
    with pytest.raises(Interrupted):
        await Gate(journal, dsn, AllKinds).at(stage, interrupt)
    await append_changes(journal, [("later", Changed())])
    kept = Kept()

    result = await rebuild(journal, dsn, AllKinds, ONE, progress=kept)

    assert (result.resumed, result.events) == (True, 30)
    assert "fence" not in kept.stages
    assert await tables_of_all_kinds(journal) == plain_fold(events)


async def interrupt() -> None:
    raise Interrupted


async def test_a_range_of_slices_is_rebuilt_under_load_with_nothing_lost_or_twice(
    journal: Database, dsn: str
) -> None:
    stop = asyncio.Event()

    async def append_on() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            await happen(journal, f"s{turn % 17}", f"t{turn % 11}")

    async with running(journal, Counts, ranges=3) as told:
        task = asyncio.create_task(append_on())
        for slices in (SliceRange(100, 700), SliceRange(0, 99), SliceRange(600, 1023)):
            await told.first("handled", len(told.names("handled")) + 3)
            await rebuild(journal, dsn, Counts, RebuildOptions(slices=slices, splits=2))
        stop.set()
        await task
        await until(journal, "SELECT sum(n) >= (SELECT count(*) FROM projections.events) FROM counts")

    wrong = """
    SELECT count(*) FROM (SELECT source_id, max(seq_nr) AS last FROM projections.events GROUP BY 1) AS e
    FULL JOIN counts AS c USING (source_id) WHERE (c.n, c.last) IS DISTINCT FROM (e.last, e.last)
    """
    assert await fetchval(journal, wrong) == 0


async def test_a_time_of_which_offsets_are_gone_is_refused(journal: Database, dsn: str) -> None:
    await write(journal, ("a", 0))
    then = await fetchval(journal, "SELECT max(db_timestamp) FROM projections.events")
    await write(journal, ("a", 0))
    await run_until_caught_up(journal, Counts)
    async with journal.session() as session:
        number = (await offsets.status(session, "counts")).projection_id
        await offsets.evict(session, number, timedelta(0))

    with pytest.raises(NotRebuildable, match=r"offsets up to .* are gone, which is after the fence"):
        await rebuild(journal, dsn, Counts, RebuildOptions(splits=1, until=then))

    assert await counts(journal) == {"a": 2}
