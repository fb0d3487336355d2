"""Closed partitions in slice order: the exchange beside readers, writers and imports, and what a killed run leaves."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from datetime import timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from journal import Database, DatabaseError, Session, append, current_events
from journal.importing import import_events
from journal.partitions import ClusteredPartition, cluster, clustering
from journal.writers import wait_for_writers
from tests.fixtures.clustering import (
    DAY,
    EVENTS,
    NAME,
    NOW,
    TABLE,
    closed_partition,
    cluster_once,
    clustered_names,
    copies,
    copy_partition,
    swap_partition,
    until_somebody_waits,
    value,
)
from tests.fixtures.commands import environment
from tests.fixtures.journal import count, event, historic, stored


@pytest.fixture
async def journal(database: Database) -> Database:
    """300 events of 30 sources of two types on a day of 2020, in a partition of its own."""
    return await closed_partition(database)


CHANGES = {
    "import": None,
    "delete": f"DELETE FROM {TABLE} WHERE source_id = 's1' AND seq_nr = 2",
    "update": f"UPDATE {TABLE} SET payload = '{{}}' WHERE source_id = 's1' AND seq_nr = 2",
    "update of a NULL": f"UPDATE {TABLE} SET metadata = 'null' WHERE source_id = 's1' AND seq_nr = 2",
    "index": f"CREATE INDEX ON {TABLE} (version)",
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_change_between_copy_and_swap_is_noticed(journal: Database, change: str | None) -> None:
    await copy_partition(journal)
    if change is None:
        await import_events(journal, [historic("late", 1)])
    else:
        await value(journal, change)
    expected = await value(journal, f"SELECT array_agg(e::text ORDER BY e::text) FROM {TABLE} AS e")

    with pytest.raises(DatabaseError, match="since it was copied"):
        async with journal.transaction() as session:
            await swap_partition(session)

    assert (await cluster_once(journal)).problem is None
    assert await value(journal, f"SELECT array_agg(e::text ORDER BY e::text) FROM {TABLE} AS e") == expected


async def test_import_that_meets_the_swap_waits_and_lands_in_the_new_partition(journal: Database) -> None:
    await copy_partition(journal)
    async with journal.session() as session:
        await session.begin()
        await swap_partition(session)
        importing = asyncio.create_task(import_events(journal, [historic("late", 1)]))
        await until_somebody_waits(journal)
        await session.commit()
        await importing

    assert await count(journal, TABLE) == EVENTS + 1
    assert len(await stored(journal, "late")) == 1


async def test_import_that_has_not_ended_keeps_the_swap_from_comparing(journal: Database) -> None:
    await copy_partition(journal)
    async with journal.session() as importer, journal.session() as session:
        await importer.begin()
        await importer.execute("LOCK TABLE projections.imports IN SHARE ROW EXCLUSIVE MODE")
        await session.begin()
        swapping = asyncio.create_task(swap_partition(session))
        await until_somebody_waits(journal)
        await importer.execute(f"DELETE FROM {TABLE} WHERE source_id = 's1'")
        await importer.commit()

        with pytest.raises(DatabaseError, match="since it was copied"):
            await swapping
        await session.rollback()

    assert await count(journal) == EVENTS - EVENTS // 30


async def test_change_that_is_not_committed_yet_keeps_the_swap_from_comparing(journal: Database) -> None:
    await copy_partition(journal)
    async with journal.session() as editor, journal.session() as session:
        await editor.begin()
        await editor.execute(f"DELETE FROM {TABLE} WHERE source_id = 's1'")
        await session.begin()
        swapping = asyncio.create_task(swap_partition(session))
        await until_somebody_waits(journal)
        await editor.commit()

        with pytest.raises(DatabaseError, match="since it was copied"):
            await swapping
        await session.rollback()

    assert await count(journal) == EVENTS - EVENTS // 30


async def _keys(database: Database) -> list[tuple[str, int]]:
    return [
        (e.source_id, e.seq_nr) for kind in ("type0", "type1") async for e in current_events(database, kind)
    ]


async def test_reader_that_meets_the_swap_waits_and_sees_every_event_once(journal: Database) -> None:
    await copy_partition(journal)
    async with journal.session() as session:
        await session.begin()
        await swap_partition(session)
        reading = asyncio.create_task(_keys(journal))
        await until_somebody_waits(journal)
        await session.commit()

    keys = await reading
    assert len(keys) == len(set(keys)) == EVENTS


async def _repeatable_read(session: Session) -> None:
    await session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    await session.fetchval("SELECT pg_backend_pid() FROM projections.schema_versions")


async def test_snapshot_older_than_the_copy_holds_the_swap_back_for_it_could_not_see_the_copy(
    journal: Database,
) -> None:
    async with journal.transaction() as old:
        await _repeatable_read(old)

        partition = await cluster_once(journal)

        pid = await old.fetchval("SELECT pg_backend_pid()")
        assert f"have not ended: process {pid} (" in str(partition.problem)
        assert await old.fetchval("SELECT count(*) FROM projections.events") == EVENTS
        assert await copies(journal) == 0

    assert (await cluster_once(journal)).problem is None


async def test_snapshot_younger_than_the_copy_sees_all_events_after_the_swap(journal: Database) -> None:
    await copy_partition(journal)
    async with journal.transaction() as reader:
        await _repeatable_read(reader)
        async with journal.transaction() as session:
            await swap_partition(session)

        assert await reader.fetchval("SELECT count(*) FROM projections.events") == EVENTS


async def test_cluster_waits_for_a_snapshot_that_ends_within_its_patience(journal: Database) -> None:
    stages: list[str] = []
    waited = asyncio.Event()

    def hear(_: ClusteredPartition, stage: str) -> None:
        stages.append(stage)
        if stages.count("freeze") == 2:
            waited.set()

    async with journal.transaction() as old:
        await _repeatable_read(old)
        running = asyncio.create_task(cluster_once(journal, patience=timedelta(minutes=1), progress=hear))
        await waited.wait()

    assert (await running).problem is None
    assert stages[:3] == ["copy", "freeze", "compare and swap"]


async def test_append_that_is_prepared_meanwhile_holds_the_run_back(
    journal: Database, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, writer = uuid4(), await asyncpg.connect(dsn)

    async def prepared_first(*arguments: Any, **options: Any) -> None:
        await writer.execute(f"PREPARE TRANSACTION '{name}'")
        await wait_for_writers(*arguments, **options)

    monkeypatch.setattr(clustering, "wait_for_writers", prepared_first)
    await writer.execute("BEGIN")
    await append(writer, [event("open")])
    partition = await cluster_once(journal)
    monkeypatch.undo()
    await writer.execute(f"COMMIT PREPARED '{name}'")
    await writer.close()

    assert "a prepared transaction" in str(partition.problem)
    assert (await cluster_once(journal)).problem is None


async def test_append_in_flight_holds_the_run_back(journal: Database) -> None:
    async with journal.transaction() as writer:
        await append(writer, [event("open")])

        partition = await cluster_once(journal)

    assert "transactions that append were still open after" in str(partition.problem)
    assert (await cluster_once(journal)).problem is None


@pytest.mark.slow
async def test_open_reader_makes_the_swap_give_up_and_the_old_partition_stays(journal: Database) -> None:
    waited = timedelta(milliseconds=20)
    async with journal.transaction() as reader:
        await reader.execute("SELECT count(*) FROM projections.events")

        partition = await cluster_once(journal, lock_timeout=waited, attempts=2)

        assert "stayed open for longer than the lock timeout" in str(partition.problem)
        assert (await copies(journal), await clustered_names(journal)) == (0, [])
        async with journal.transaction() as other:
            await append(other, [event("b")])

    assert (await cluster_once(journal)).problem is None
    assert await count(journal) == EVENTS + 1


async def test_swap_tries_again_until_the_reader_has_ended(journal: Database) -> None:
    await copy_partition(journal)
    async with journal.session() as reader, journal.session() as session:
        await reader.begin()
        await reader.fetchval("SELECT count(*) FROM projections.events")
        await session.begin()
        await session.execute("SET LOCAL lock_timeout = '20ms'")
        swapping = asyncio.create_task(
            session.fetchval("SELECT projections._swap_partition_v1($1, 100000, '0')", NAME)
        )
        for _ in range(3):
            await until_somebody_waits(journal)
        await reader.commit()

        assert await swapping == EVENTS
        await session.commit()

    assert await clustered_names(journal) == [NAME]


@pytest.mark.slow
async def test_writers_and_readers_go_on_while_partitions_are_exchanged(journal: Database) -> None:
    done, reads = asyncio.Event(), []

    async def write() -> int:
        last = 0
        while not done.is_set():
            async with journal.transaction() as session:
                (appended,) = await append(session, [event("live", entity_type="type0")])
            last = appended.seq_nr
        return last

    async def read() -> None:
        while not done.is_set():
            reads.append(await _keys(journal))

    async def keep_house() -> None:
        for _ in range(5):
            partition = await cluster_once(journal, attempts=1000, patience=timedelta(minutes=1))
            assert partition.problem is None
            await value(journal, f"DROP INDEX {TABLE}_slices_idx")  # asks for doing it again
        done.set()

    _, last, _ = await asyncio.gather(keep_house(), write(), read())

    assert [e.seq_nr for e in await stored(journal, "live")] == list(range(1, last + 1))
    for keys in reads:
        assert len(set(keys)) == len(keys)
        assert sum(source_id != "live" for source_id, _ in keys) == EVENTS


async def test_of_two_runs_one_says_that_the_other_is_at_work(journal: Database) -> None:
    async with journal.transaction() as other:
        await other.fetchval("SELECT projections._drop_partition_copies_v1()")

        partition = await cluster_once(journal)

    assert partition.problem == "another run is putting a partition in slice order"


async def test_run_whose_copy_another_run_has_removed_says_so(journal: Database) -> None:
    await copy_partition(journal)
    await value(journal, "SELECT projections._drop_partition_copies_v1()")

    with pytest.raises(DatabaseError, match="is gone: another run has removed it"):
        async with journal.transaction() as session:
            await swap_partition(session)


RUN = """
import asyncio, sys
from datetime import timedelta
from journal import connect
from journal.partitions import cluster

async def run(dsn):
    async with connect(dsn) as database:
        await cluster(database, lock_timeout=timedelta(minutes=1))

asyncio.run(run(sys.argv[1]))
"""
GATED_INDEX = f"""
CREATE FUNCTION gate(smallint) RETURNS smallint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN $1; END $$;
CREATE INDEX ON {TABLE} (gate(version))
"""
BLOCKS = {
    "while its copy is indexed": "SELECT pg_advisory_xact_lock(7)",
    "before it compares": "LOCK TABLE projections.imports IN SHARE ROW EXCLUSIVE MODE",
    "before it swaps": f"LOCK TABLE {TABLE} IN ACCESS SHARE MODE",
}


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
async def test_run_that_is_killed_leaves_the_partition_whole_and_the_next_run_ends_its_work(
    dsn: str, journal: Database, block: str
) -> None:
    for statement in GATED_INDEX.split(";\n"):
        await value(journal, statement)
    expected = sorted(await _keys(journal))
    async with journal.transaction() as blocker:
        await blocker.execute(block)
        with subprocess.Popen([sys.executable, "-c", RUN, dsn], env=environment()) as process:
            await until_somebody_waits(journal)
            process.send_signal(signal.SIGKILL)

    # What it last asked the server for may still go on there.
    while (partitions := await cluster(journal, pause=NOW)) and partitions[0].problem:
        pass

    assert process.returncode == -signal.SIGKILL
    assert sorted(await _keys(journal)) == expected
    assert (await clustered_names(journal), await copies(journal)) == ([NAME], 0)


async def test_copy_that_a_killed_run_has_left_is_removed_though_there_is_nothing_to_do(
    journal: Database,
) -> None:
    await copy_partition(journal)

    assert await cluster(journal, closed_for=36500 * DAY) == []
    assert await copies(journal) == 0
