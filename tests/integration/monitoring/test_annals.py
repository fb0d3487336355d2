"""What is kept of a projection for people: rescales, take-overs, statements; and rebuilds that are under way."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import offsets
from journal import Database, slice_ranges
from journal.foreign import AttachedJournal, attach
from projections.monitoring.overview import overview
from projections.monitoring.under_way import UnfinishedRebuild, rebuilds_under_way
from tests.fixtures.monitor import detail, first, monitoring
from tests.fixtures.projections import execute, fetchval, running, until
from tests.fixtures.read_models import Delays
from tests.fixtures.states import worker

BEAT = """
SELECT count(*) FROM projections.heartbeat_v1($1, 'h', 1, $2, '{1}', '{p}', '{1}', FALSE, $3, $4, '{"{plane}"}')
"""
BEGIN = """
SELECT projections._begin_rebuild_v1(
    1, 0, 1023, 2, now(), 0, 'code', 'rename', '{0,256,512,768}', '{255,511,767,1023}',
    '{}', '{}', '{}', '{}', '{plane}'
)
"""


async def registered(database: Database, name: str = "p", ranges: int = 2) -> int:
    async with database.session() as session:
        return await offsets.register(session, name, "plane", slice_ranges(ranges))


async def changes(database: Database, number: int = 1) -> list[tuple[Any, ...]]:
    async with database.session() as session:
        return [one[1:] for one in await offsets.range_changes(session, number)]


async def test_a_rescale_is_noted_with_the_number_of_ranges_before_and_after(database: Database) -> None:
    await registered(database)
    async with database.session() as session:
        await offsets.rescale(session, "p", 8)
        await offsets.rescale(session, "p", 8)  # nothing changes
        await offsets.rescale(session, "p", 3)

    assert await changes(database) == [("rescaled", 3, 8, None, None), ("rescaled", 8, 2, None, None)]


async def test_ranges_that_are_taken_from_a_dead_worker_are_noted_and_a_hand_over_is_not(
    database: Database,
) -> None:
    await registered(database, ranges=4)
    await execute(database, BEAT, "first", timedelta(hours=1), 0, 1)  # from nobody
    before = await changes(database)
    await execute(database, "UPDATE projections.workers SET lease_until = now() - interval '1 s'")
    await execute(database, BEAT, "second", timedelta(hours=1), 0, 1)
    await execute(database, BEAT, "second", timedelta(hours=1), 1, 2)

    assert before == []
    assert await changes(database) == [("taken over", 4, None, "first", "second")]


async def test_a_take_over_by_order_is_noted(database: Database) -> None:
    await registered(database, ranges=4)
    async with database.session() as session:
        await offsets.take_over(session, "mine", {1: 1})
        await offsets.take_over(session, "mine", {1: 7})  # of another version: nothing is taken

    assert await changes(database) == [("taken by order", 4, None, None, "mine")]


async def test_the_newest_changes_of_each_projection_are_kept_and_no_more(database: Database) -> None:
    await registered(database)
    await registered(database, "q")
    async with database.session() as session:
        await offsets.rescale(session, "q", 5)
        for number in range(60):
            await offsets.rescale(session, "p", 3 + number % 2)

    assert [one[1] for one in await changes(database)][:2] == [4, 3]
    assert len(await changes(database)) == 50
    assert await changes(database, 2) == [("rescaled", 5, 2, None, None)]


async def test_who_notes_a_change_waits_for_nobody_who_forgets_old_ones(database: Database) -> None:
    await registered(database)
    note = "SELECT projections._note_range_change_v1(1, 'rescaled', 2, 1, NULL, NULL)"
    for _ in range(50):
        await execute(database, note)
    async with database.transaction() as one, asyncio.timeout(300):
        await one.execute(note)  # has forgotten the oldest, and not ended
        await execute(database, note)
    await execute(database, note)

    assert len(await changes(database)) == 50


async def test_with_a_projection_all_that_was_kept_of_it_goes(database: Database) -> None:
    await registered(database)
    async with database.transaction() as session:
        await offsets.rescale(session, "p", 3)
        await offsets.note_read_models(session, 1, 1, [offsets.NotedReadModel("t", "t", "SELECT 1")])
        await offsets.remove(session, "p")

    assert await fetchval(database, "SELECT count(*) FROM projections.range_changes") == 0
    assert await fetchval(database, "SELECT count(*) FROM projections.read_models") == 0


async def test_workers_note_the_statements_of_their_read_models(database: Database) -> None:
    async with running(database, Delays):
        await until(database, "SELECT count(*) > 0 FROM projections.read_models")
        async with monitoring(database) as client:
            found = await detail(client, Delays.__projection__.name)
    wanted = {one.name: one.sql for one in Delays.__projection__.read_models}

    assert wanted
    assert {one["name"]: one["text"] for one in found["read_models"]} == wanted


async def test_statements_are_those_of_the_version_that_runs(database: Database) -> None:
    await registered(database)

    async def note(version: int, text: str) -> None:
        async with database.session() as session:
            await offsets.note_read_models(session, 1, version, [offsets.NotedReadModel("t", "t", text)])

    async def told() -> list[str]:
        async with database.session() as session:
            return [one.text for one in await offsets.read_models(session, 1)]

    await note(1, "SELECT 1")
    await note(1, "SELECT one")
    await note(2, "SELECT 2")  # its rebuild is still to come
    before = await told()
    await execute(database, "UPDATE projections.projections SET version = 2")
    after = await told()
    await note(2, "SELECT two")

    assert (before, after, await told()) == (["SELECT one"], ["SELECT 2"], ["SELECT two"])
    assert await fetchval(database, "SELECT count(*) FROM projections.read_models") == 1


async def under_way(database: Database) -> UnfinishedRebuild:
    async with database.session() as session:
        (found,) = await rebuilds_under_way(session)
    return found


@pytest.mark.slow
async def test_a_rebuild_tells_how_long_it_still_takes_once_a_part_is_done(database: Database) -> None:
    await registered(database)
    await execute(database, BEGIN)
    nobody = await under_way(database)
    async with database.session() as leader:
        await leader.execute("SELECT pg_advisory_lock(hashtext('slice-projections rebuild'), 1)")
        await execute(database, "UPDATE projections.rebuild_parts SET events = 500")
        begun = await under_way(database)
        await execute(
            database, "UPDATE projections.rebuilds SET started_at = clock_timestamp() - interval '100 s'"
        )
        await execute(
            database, "UPDATE projections.rebuild_parts SET events = 1000, done = TRUE WHERE min_slice = 0"
        )
        found = await under_way(database)
        async with monitoring(database) as client:
            (told,) = (await first(client))["rebuilds"]
        await leader.execute("SELECT pg_advisory_unlock_all()")

    assert (nobody.led, nobody.remaining, begun.led, begun.remaining) == (False, None, True, None)
    assert (found.parts_done, found.parts, found.events) == (1, 4, 2500)
    assert found.remaining is not None
    # 2,500 of about 4 times 1,000 events took 100 seconds.
    assert 59 < found.remaining < 65
    assert (told["name"], told["led"], told["parts_done"]) == ("p", True, 1)
    assert (await under_way(database)).remaining is None


async def test_journals_are_told_with_who_reads_them(database: Database) -> None:
    await registered(database)
    async with database.transaction() as session:
        await offsets.register(session, "far", "plane", journal="bank")
        await offsets.register(session, "farther", "plane", journal="named")
        for name in ("bank", "idle"):
            await attach(
                session,
                AttachedJournal(name, "eventsourcing", 'table = "t"', f"postgresql://reader@db/{name}"),
            )
        found = {one.name: one for one in (await overview(session)).journals}

    assert {name: (one.kind, one.place, list(one.readers)) for name, one in found.items()} == {
        None: ("own", None, ["p"]),
        "bank": ("eventsourcing", "postgresql://reader@db/bank", ["far"]),
        "idle": ("eventsourcing", "postgresql://reader@db/idle", []),
        "named": ("named", None, ["farther"]),
    }


async def test_a_projection_that_is_removed_meanwhile_holds_up_no_heartbeat(database: Database) -> None:
    """A note of a take-over must not wait for the row that a removal has locked."""
    await registered(database, ranges=4)
    await worker(database, "gone", timedelta(minutes=-1))
    await execute(database, "UPDATE projections.projection_ranges SET owner = 'gone', assigned_to = 'new'")
    await execute(database, BEAT, "new", timedelta(hours=1), 0, 1)
    await execute(database, "UPDATE projections.projection_ranges SET owner = 'gone'")
    async with database.transaction() as removing, asyncio.timeout(300):
        await removing.execute("SELECT FROM projections.projections WHERE projection_id = 1 FOR UPDATE")
        await execute(database, BEAT, "new", timedelta(hours=1), 1, 2)

    assert len(await changes(database)) == 2


async def test_what_is_kept_is_told_in_the_document_of_its_projection(database: Database) -> None:
    await registered(database)
    async with database.session() as session:
        await offsets.rescale(session, "p", 3)
    async with monitoring(database) as client:
        found = await detail(client)

    (change,) = found["changes"]
    assert change == {
        "changed_at": change["changed_at"], "kind": "rescaled", "ranges": 3, "ranges_before": 2,
        "taken_from": None, "taken_by": None,
    }  # fmt: skip
    assert abs(found["at"] - change["changed_at"]) < 60
