"""Rebuilds that are interrupted, doubled or cancelled: every event has its effect once, or nothing is left of them."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
from asyncio.subprocess import PIPE
from contextlib import suppress
from pathlib import Path

import pytest

from journal import (
    ALL_SLICES,
    Database,
    DatabaseError,
    DatabaseUnavailable,
    Event,
    EventEnvelope,
    Session,
    append,
    connect,
)
from projections import handles, projection
from projections.defining.tables import Change
from spark_projections.errors import RebuildError, RebuildFailed
from spark_projections.rebuilds.folding import fold_part
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import rebuild
from tests.fixtures.commands import environment
from tests.fixtures.projections import Happened, execute, fetchval, until
from tests.fixtures.rebuilds import (
    ADVISORY_LOCKS,
    COUNTS,
    EXACT,
    ONE,
    REBUILDING,
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
    plain_fold,
    processes_held_up,
    schemas,
    source_in,
    state_of,
    tables_of_all_kinds,
    until_held_up,
    write,
)

__all__ = ["in_this_process"]

DRIVER = """
import asyncio, sys
from journal import connect
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import rebuild
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


# In the order of their source: a batch of ten, and of the next batch the third is the one that waits.
TWENTY = [("a", 0)] * 12 + [("a", 1)] + [("a", 0)] * 7


# Interrupted, and doubled


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
    await until(journal, f"SELECT count(*) = 0 FROM {ADVISORY_LOCKS}")
    kept = Kept()

    result = await rebuild(journal, dsn, Effects, ONE, progress=kept)

    assert committed == 10
    assert (result.resumed, result.events, len(kept.resumptions)) == (True, 20, 1)
    assert "fence" not in kept.stages
    assert await differing(journal) == EXACT


@pytest.mark.slow
async def test_a_rebuild_whose_own_connection_was_lost_is_gone_on_with(journal: Database, dsn: str) -> None:
    await write(journal, *TWENTY)
    async with held(journal) as let_go, connect(dsn) as other:
        task = asyncio.create_task(rebuild(other, dsn, Effects, ONE))
        await until_held_up(journal)
        await execute(journal, f"SELECT pg_terminate_backend(pid) FROM {REBUILDING}")
        await until(journal, f"SELECT count(*) = 0 FROM {REBUILDING}")
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


@pytest.mark.slow
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


@projection("swallowing", entity_type="plane", tables=("effects",))
class Swallowing:
    """At an event with a number it catches what the database says, and goes on."""

    @handles(Happened)
    async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if event.n:
            with suppress(DatabaseError):
                await session.execute("DO $$ BEGIN RAISE 'told to' USING ERRCODE = '28000'; END $$")
        await session.execute(
            "INSERT INTO effects (source_id, seq_nr) VALUES ($1, $2)", envelope.source_id, envelope.seq_nr
        )


@projection("adding", entity_type="plane", tables=(COUNTS,))
class Adding:
    @handles(Happened)
    def happened(self, event: Happened, envelope: EventEnvelope) -> Change:
        return COUNTS.upsert(source_id=envelope.source_id, n=event.n)


async def test_the_event_whose_rows_cannot_be_written_is_named(journal: Database, dsn: str) -> None:
    await write(journal, ("a", 0), ("b", 2**63), ("c", 0))

    with pytest.raises(RebuildFailed, match="source 'b', seq_nr 1"):
        await rebuild(journal, dsn, Adding, ONE)


@pytest.mark.slow
async def test_what_a_handler_swallows_is_skipped_as_what_it_raises(journal: Database, dsn: str) -> None:
    """Whatever the code says of the connection, which lives."""
    await write(journal, ("a", 0), ("b", 1), ("c", 0))

    result = await rebuild(journal, dsn, Swallowing, RebuildOptions(splits=1, skip=True))

    assert result.skipped == 1
    assert await fetchval(journal, "SELECT array_agg(source_id ORDER BY source_id) FROM effects") == [
        "a",
        "c",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "lost", ["SCHEMA projections_rebuild_1 CASCADE", "TABLE projections_rebuild_1.counts"]
)
async def test_a_rebuild_of_which_a_table_was_dropped_begins_again(
    journal: Database, dsn: str, lost: str
) -> None:
    await write(journal, ("a", 0))
    async with journal.transaction() as session:
        await append(session, [Event("b", {"n": "no number"}, "plane", event_type="Happened")])
    await fence_passes(journal)
    with pytest.raises(RebuildFailed):
        await rebuild(journal, dsn, Counts, ONE)
    assert await schemas(journal) == ["projections_rebuild_1"]
    await execute(journal, f"DROP {lost}")
    kept = Kept()

    result = await rebuild(journal, dsn, Counts, RebuildOptions(splits=1, skip=True), progress=kept)

    assert kept.waited[0] == (
        "a table that it fills was dropped since the interrupted rebuild began: it begins again"
    )
    assert (result.resumed, result.rows) == (False, {"counts": 1})
    assert await schemas(journal) == [result.old_schema]


# Cancelled


@pytest.mark.slow
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


@pytest.mark.daily(2)
@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("stage", ["fold", "combine", "verify", "swap"])
async def test_a_rebuild_that_somebody_else_cancels_says_so(journal: Database, dsn: str, stage: str) -> None:
    await write(journal, *TWENTY)

    async def cancel() -> None:
        number = await fetchval(journal, "SELECT max(rebuild_id) FROM projections.rebuilds")
        await execute(journal, "SELECT projections._cancel_rebuild_v1($1)", number)

    with pytest.raises(RebuildError, match="cancelled"):
        await Gate(journal, dsn, Effects).at(stage, cancel)

    assert await schemas(journal) == []
    assert await fetchval(journal, "SELECT count(*) FROM effects") == 0


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.daily(1)
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


# Interrupted between stages


class Interrupted(Exception):
    """Ends a rebuild as a crash would: nothing is cleaned up."""


@pytest.mark.slow
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
