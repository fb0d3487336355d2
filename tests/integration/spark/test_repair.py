"""Rows of single sources are made what the journal says, beside live workers."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from journal import Database, Event, EventEnvelope
from projections import Inline, Recovery, Table, handles, projection
from projections.defining.tables import Change
from projections.errors import HandlerFailed
from projections.testing import run_until_caught_up
from spark_projections.errors import NotRebuildable, RebuildFailed, SwapRefused
from spark_projections.rebuilds import repairing
from spark_projections.rebuilds.options import RebuildOptions, RebuildProgress
from spark_projections.rebuilds.repairing import repair
from tests.fixtures.locks import OWN_LOCKS
from tests.fixtures.projections import Failure, Happened, execute, fetchval, happen, running, until
from tests.fixtures.rebuilds import COUNTS, AllKinds, Counts, Effects

PIECES = Table("pieces", key=("place", "n"), set="name", increment="times", per_source=True)
PIECES_TABLE = (
    "CREATE TABLE pieces (place text, n int, name text, times int NOT NULL DEFAULT 0, PRIMARY KEY (place, n))"
)
SHORT = RebuildOptions(swap_within=timedelta(0))


@projection("pieces", entity_type="plane")
class Pieces:
    """Rows that no column tells the source of; an event with a negative number deletes."""

    @handles(Happened)
    def happened(self, event: Happened, envelope: EventEnvelope) -> Change:
        place = envelope.source_id.upper()
        if event.n < 0:
            return PIECES.delete(place=place, n=-event.n)
        return PIECES.upsert(place=place, n=event.n, name=f"{envelope.seq_nr}", times=1)


@pytest.fixture
async def journal(journal: Database) -> Database:
    await execute(journal, PIECES_TABLE)
    return journal


async def counts(database: Database) -> dict[str, tuple[int, int]]:
    async with database.session() as session:
        rows = await session.fetch(f"SELECT source_id, n, last FROM {COUNTS}")
    return {row["source_id"]: (row["n"], row["last"]) for row in rows}


# What a repair does


@pytest.mark.slow
async def test_rows_of_a_source_are_made_what_the_journal_says_and_others_stay(journal: Database) -> None:
    await happen(journal, "a", "b", "a", "b")
    await run_until_caught_up(journal, Counts)
    await execute(journal, "UPDATE counts SET n = 99")

    result = await repair(journal, Counts, ["a"])

    assert await counts(journal) == {"a": (2, 2), "b": (99, 2)}
    (row,) = result.differences
    assert (row.table, row.key, row.kind) == ("counts", {"source_id": "a"}, "different")
    assert row.columns == {"n": ("99", "2")}
    assert (result.sources, result.events, result.differing, result.repaired) == (1, 2, 1, True)


@pytest.mark.slow
async def test_a_row_that_is_missing_comes_back(journal: Database) -> None:
    await happen(journal, "a", "a")
    await run_until_caught_up(journal, Counts)
    await execute(journal, "DELETE FROM counts")

    result = await repair(journal, Counts, ["a"])

    assert await counts(journal) == {"a": (2, 2)}
    assert [row.kind for row in result.differences] == ["missing"]


@pytest.mark.slow
async def test_rows_are_found_by_the_keys_that_a_source_touched_where_no_column_tells_it(
    journal: Database,
) -> None:
    for n in (1, 2, 2, -1):
        await happen(journal, "a", "b", n=n)
    await run_until_caught_up(journal, Pieces)
    await execute(journal, "INSERT INTO pieces VALUES ('A', 1, 'deleted', 1), ('B', 1, 'deleted', 1)")
    await execute(journal, "UPDATE pieces SET times = 7 WHERE n = 2")

    result = await repair(journal, Pieces, ["a"])

    assert [row.kind for row in result.differences] == ["surplus", "different"]
    async with journal.session() as session:
        rows = [tuple(row.values()) for row in await session.fetch("SELECT * FROM pieces ORDER BY 1, 2")]
    assert rows == [("A", 2, "3", 2), ("B", 1, "deleted", 1), ("B", 2, "3", 7)]


@pytest.mark.slow
async def test_columns_that_are_not_declared_and_rows_that_are_right_stay(journal: Database) -> None:
    await execute(journal, "ALTER TABLE counts ADD COLUMN note text")
    await happen(journal, "a", "b")
    await run_until_caught_up(journal, Counts)
    await execute(
        journal, "UPDATE counts SET note = 'kept', n = n + CASE source_id WHEN 'a' THEN 1 ELSE 0 END"
    )
    before = await fetchval(journal, "SELECT xmin::text FROM counts WHERE source_id = 'b'")

    await repair(journal, Counts, ["a", "b"])

    assert await fetchval(journal, "SELECT string_agg(note, ',') FROM counts") == "kept,kept"
    assert await fetchval(journal, "SELECT xmin::text FROM counts WHERE source_id = 'b'") == before
    assert await counts(journal) == {"a": (1, 1), "b": (1, 1)}


@pytest.mark.slow
async def test_events_that_no_worker_has_handled_are_left_to_them(journal: Database) -> None:
    await happen(journal, "a", "b")
    await run_until_caught_up(journal, Counts)
    await happen(journal, "a", "c")

    await repair(journal, Counts, ["a", "c"])

    assert await counts(journal) == {"a": (1, 1), "b": (1, 1)}
    await run_until_caught_up(journal, Counts)
    assert await counts(journal) == {"a": (2, 2), "b": (1, 1), "c": (1, 1)}


@pytest.mark.slow
async def test_a_source_whose_offset_is_evicted_is_repaired_to_where_it_was_handled(
    journal: Database,
) -> None:
    await happen(journal, "a", "a")
    await run_until_caught_up(journal, Counts)
    await execute(journal, "UPDATE projections.projections SET evicted_before = clock_timestamp()")
    await execute(journal, "DELETE FROM projections.source_offsets")
    await happen(journal, "a")
    await execute(journal, "UPDATE counts SET n = 99")

    await repair(journal, Counts, ["a"])

    assert await counts(journal) == {"a": (2, 2)}
    await run_until_caught_up(journal, Counts)
    assert await counts(journal) == {"a": (3, 3)}


def failing(recovery: Recovery) -> Any:
    @projection("counts", entity_type="plane", recovery=recovery)
    class Fails:
        @handles(Happened)
        def happened(self, event: Happened, envelope: EventEnvelope) -> Change:
            if event.n == 13:
                raise Failure("13")
            return COUNTS.upsert(source_id=envelope.source_id, n=1, last=envelope.seq_nr)

    return Fails


@pytest.mark.slow
async def test_a_parked_source_is_repaired_to_before_the_event_that_it_is_parked_at(
    journal: Database,
) -> None:
    definition = failing(Recovery.retry_and_park(0))
    await happen(journal, "a")
    await happen(journal, "a", "first", n=13)
    await happen(journal, "a")
    await run_until_caught_up(journal, definition)
    await execute(journal, "UPDATE counts SET n = 99")

    await repair(journal, definition, ["a", "first"])

    assert await counts(journal) == {"a": (1, 1)}
    parked = "SELECT array_agg(seq_nr ORDER BY source_id) FROM projections.parked_sources"
    assert await fetchval(journal, parked) == [2, 1]


@pytest.mark.slow
async def test_events_that_workers_have_skipped_are_left_out(journal: Database) -> None:
    definition = failing(Recovery.skip())
    for n in (0, 13, 0):
        await happen(journal, "a", n=n)
    await run_until_caught_up(journal, definition)
    await execute(journal, "UPDATE counts SET n = 99")

    result = await repair(journal, definition, ["a"])

    assert await counts(journal) == {"a": (2, 3)}
    assert result.skipped == 1


@pytest.mark.slow
async def test_an_event_that_cannot_be_handled_is_named_unless_it_may_be_skipped(journal: Database) -> None:
    for n in (0, 13, 0):
        await happen(journal, "a", n=n)
    await run_until_caught_up(journal, Counts)
    definition = failing(Recovery.retry_and_park(0))

    with pytest.raises(HandlerFailed, match="source 'a', seq_nr 2"):
        await repair(journal, definition, ["a"])

    assert await counts(journal) == {"a": (3, 3)}
    await repair(journal, definition, ["a"], RebuildOptions(skip=True))
    assert await counts(journal) == {"a": (2, 3)}


# What is refused


@pytest.mark.slow
async def test_what_cannot_be_repaired_is_refused(journal: Database) -> None:
    await happen(journal, "a")
    await run_until_caught_up(journal, Counts, Effects)

    for definition, reason in ((AllKinds, "table totals are made of"), (Effects, "write by themselves")):
        with pytest.raises(NotRebuildable, match=f"{reason}.*projections rebuild"):
            await repair(journal, definition, ["a"])
    with pytest.raises(NotRebuildable, match="no source 'typo' that this projection reads"):
        await repair(journal, Counts, ["a", "typo"])


async def test_the_code_of_another_version_is_refused(journal: Database) -> None:
    await happen(journal, "a")
    await run_until_caught_up(journal, Counts)
    await execute(journal, "UPDATE projections.projections SET version = 2")

    with pytest.raises(NotRebuildable, match="runs version 2"):
        await repair(journal, Counts, ["a"])


@pytest.mark.slow
async def test_events_that_are_gone_are_no_reason_to_lose_rows(journal: Database) -> None:
    await happen(journal, "a", "a", "b")
    await run_until_caught_up(journal, Counts)
    await execute(journal, "DELETE FROM projections.events WHERE source_id = 'b' OR seq_nr = 1")

    with pytest.raises(RebuildFailed, match=r"follows seq_nr 0.*--from-first-kept"):
        await repair(journal, Counts, ["a"])
    with pytest.raises(RebuildFailed, match="'b' ends at seq_nr 0, and 1 are handled"):
        await repair(journal, Counts, ["b"], RebuildOptions(from_first_kept=True))

    assert await counts(journal) == {"a": (2, 2), "b": (1, 1)}
    await repair(journal, Counts, ["a"], RebuildOptions(from_first_kept=True))
    assert await counts(journal) == {"a": (1, 2), "b": (1, 1)}


@pytest.mark.slow
async def test_rows_that_a_trigger_changes_are_told(journal: Database) -> None:
    await happen(journal, "a")
    await run_until_caught_up(journal, Counts)
    await execute(
        journal,
        "CREATE FUNCTION worse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN new.n := 5; RETURN new; END $$",
    )
    await execute(
        journal, "CREATE TRIGGER worse BEFORE UPDATE ON counts FOR EACH ROW EXECUTE FUNCTION worse()"
    )
    await execute(journal, "UPDATE counts SET n = 4")

    with pytest.raises(RebuildFailed, match="still differ when they are written"):
        await repair(journal, Counts, ["a"])


# Beside live workers


class Steps(RebuildProgress):
    """Lets a test wait until a repair waits for the tables."""

    def __init__(self) -> None:
        self.waits = asyncio.Event()
        self.reason = ""

    def waiting(self, reason: str) -> None:
        self.reason = reason
        self.waits.set()


async def test_a_batch_that_has_written_is_waited_for_and_folded(journal: Database) -> None:
    await happen(journal, "a")
    await run_until_caught_up(journal, Counts)
    await happen(journal, "a")
    steps = Steps()
    async with journal.session() as batch:
        await batch.begin()  # as a worker does: rows first, then the offset
        await batch.execute("UPDATE counts SET n = n + 1, last = 2")
        task = asyncio.create_task(repair(journal, Counts, ["a"], progress=steps))
        await steps.waits.wait()
        assert "in use" in steps.reason
        await batch.execute("UPDATE projections.source_offsets SET seq_nr = 2")
        await batch.commit()
    result = await task

    assert await counts(journal) == {"a": (2, 2)}
    assert (result.differing, result.events) == (0, 2)


@pytest.mark.slow
async def test_tables_that_stay_in_use_are_given_up_and_nothing_is_changed(journal: Database) -> None:
    await happen(journal, "a")
    await run_until_caught_up(journal, Counts)
    await execute(journal, "UPDATE counts SET n = 99")
    async with journal.session() as batch:
        await batch.begin()
        await batch.execute("INSERT INTO counts VALUES ('other', 1, 1)")

        with pytest.raises(SwapRefused, match="in use"):
            await repair(journal, Counts, ["a"], SHORT)

        await batch.rollback()
    assert await counts(journal) == {"a": (99, 1)}


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["lock_tables", "handled_until", "_check_repaired"])
async def test_workers_go_on_at_each_moment_of_a_repair(
    journal: Database, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Events come, and a worker handles what it can, at each step: before the lock, under it, and after the rows."""
    original = getattr(repairing, moment)

    async with running(journal, Counts):
        await happen(journal, "a", "b")
        await until(journal, "SELECT count(*) = 2 FROM counts")
        await execute(journal, "UPDATE counts SET n = 99 WHERE source_id = 'a'")

        async def meanwhile(*args: Any) -> Any:
            await happen(journal, "a", "b")
            if moment == "lock_tables":
                await until(journal, "SELECT n = 2 FROM counts WHERE source_id = 'b'")
            found = await original(*args)
            await happen(journal, "a", "b")
            return found

        monkeypatch.setattr(repairing, moment, meanwhile)
        await repair(journal, Counts, ["a"])
        await happen(journal, "a", "b")
        await until(journal, "SELECT sum(last) = (SELECT count(*) FROM projections.events) FROM counts")

    assert await fetchval(journal, "SELECT bool_and(n = last) FROM counts")


@pytest.mark.slow
async def test_a_source_is_repaired_again_and_again_under_load(journal: Database) -> None:
    stop = asyncio.Event()

    async def append_on() -> None:
        while not stop.is_set():
            await happen(journal, "a", "b", "a")

    async with running(journal, Counts, ranges=2):
        appending = asyncio.create_task(append_on())
        for turn in range(10):
            await until(journal, "SELECT coalesce(sum(n), 0) > $1 FROM counts", turn)
            await execute(journal, "UPDATE counts SET n = n + 3 WHERE source_id = 'a'")
            await repair(journal, Counts, ["a"])
        stop.set()
        await appending
        await until(journal, "SELECT sum(last) = (SELECT count(*) FROM projections.events) FROM counts")

    assert await fetchval(journal, "SELECT bool_and(n = last) FROM counts")


@pytest.mark.slow
async def test_an_append_that_handles_inline_is_waited_for(journal: Database) -> None:
    inline = Inline(Counts)
    await happen(journal, "a")
    await run_until_caught_up(journal, Counts)
    async with journal.session() as session:
        await inline.set_mode(session, "inline")
    await execute(journal, "UPDATE counts SET n = 99")
    steps = Steps()
    async with journal.transaction() as session:
        await inline.append(session, [Event("a", Happened(), "plane")])
        task = asyncio.create_task(repair(journal, Counts, ["a"], progress=steps))
        await steps.waits.wait()
    await task

    assert await counts(journal) == {"a": (2, 2)}


@pytest.mark.slow
async def test_a_repair_that_is_killed_changes_nothing(
    journal: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await happen(journal, "a")
    await run_until_caught_up(journal, Counts)
    await execute(journal, "UPDATE counts SET n = 99")
    written = asyncio.Event()

    async def hang(*_: Any) -> None:
        written.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(repairing, "_check_repaired", hang)
    task = asyncio.create_task(repair(journal, Counts, ["a"]))
    await written.wait()
    await execute(
        journal,
        f"SELECT pg_terminate_backend(pid) FROM {OWN_LOCKS} WHERE relation = 'counts'::regclass "
        "AND mode = 'ShareRowExclusiveLock'",
    )
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    monkeypatch.undo()

    assert await counts(journal) == {"a": (99, 1)}
    await repair(journal, Counts, ["a"])
    assert await counts(journal) == {"a": (1, 1)}
