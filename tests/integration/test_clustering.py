"""Closed partitions in slice order: the exchange beside readers, writers and imports, and what a killed run leaves."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from journal import Database, DatabaseError, MissingPrivilege, Session, append, connect, current_events
from journal.clustering import ClusteredPartition, cluster
from journal.importing import import_events
from journal.maintenance import maintain
from projections.cli import main
from tests.fixtures.commands import environment
from tests.fixtures.journal import PAST, count, event, historic, stored

DAY = timedelta(days=1)
NOW = timedelta(0)
NAME = "events_20200101t000000"
TABLE = f"projections.{NAME}"
COPY = "VACUUM (FREEZE, ANALYZE) projections.events_copy_of_{}"
EVENTS = 300


@pytest.fixture
async def journal(database: Database) -> Database:
    """300 events of 30 sources of two types on a day of 2020, in a partition of its own."""
    history = [
        replace(
            historic(f"s{n % 30}", 1 + n // 30, db_timestamp=PAST + n * DAY / 301), entity_type=f"type{n % 2}"
        )
        for n in range(EVENTS)
    ]
    await import_events(database, history)
    await maintain(database, ahead=1)
    return database


async def _value(database: Database, sql: str, *args: Any) -> Any:
    async with database.session() as session:
        return await session.fetchval(sql, *args)


async def _clustered(database: Database) -> list[str]:
    return list(
        await _value(
            database, "SELECT array_agg(name ORDER BY name) FROM projections.partitions WHERE clustered"
        )
        or []
    )


async def _copies(database: Database) -> int:
    return int(await _value(database, "SELECT count(*) FROM pg_class WHERE relname LIKE 'events_copy_of%'"))


async def _cluster(database: Database, **settings: Any) -> ClusteredPartition:
    """Without waiting for anybody."""
    (partition,) = await cluster(database, **{"attempts": 1, "pause": NOW, "patience": NOW, **settings})
    return partition


async def _copy(database: Database) -> None:
    """What comes before the exchange."""
    async with database.session() as session:
        await session.execute("SELECT projections.cluster_partition_v1($1)", NAME)
        await session.execute(COPY.format(await session.fetchval(f"SELECT '{TABLE}'::regclass::oid")))


async def _swap(session: Session) -> int:
    return int(await session.fetchval("SELECT projections.swap_partition_v1($1, 1)", NAME))


async def _until_somebody_waits(database: Database) -> None:
    async with database.session() as session:
        while not await session.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            pass


async def test_closed_partition_is_put_in_the_order_of_type_slice_source_and_number(
    journal: Database,
) -> None:
    before = await _value(journal, f"SELECT array_agg(e::text ORDER BY e::text) FROM {TABLE} AS e")

    partition = await _cluster(journal)

    keys = "(entity_type, slice, source_id, seq_nr)"
    assert (partition.name, partition.events, partition.problem) == (NAME, EVENTS, None)
    assert partition.bytes_after == await _value(
        journal, "SELECT bytes FROM projections.partitions WHERE name = $1", NAME
    )
    assert await _value(journal, f"SELECT array_agg(e::text ORDER BY e::text) FROM {TABLE} AS e") == before
    assert await _value(
        journal,
        f"SELECT array_agg({keys}::text ORDER BY ctid) = array_agg({keys}::text ORDER BY {keys[1:-1]}) FROM {TABLE}",
    )
    assert await count(journal) == EVENTS


async def test_partition_in_slice_order_is_not_done_again(journal: Database) -> None:
    await _cluster(journal)

    assert await cluster(journal) == []
    assert await _clustered(journal) == [NAME]


async def test_partition_that_ended_too_recently_or_runs_or_is_empty_is_left_alone(journal: Database) -> None:
    async with journal.transaction() as session:
        await append(session, [event()])
        await session.fetchval("SELECT projections.create_partition_v1($1, $2)", PAST - DAY, PAST)

    assert await cluster(journal, closed_for=36500 * DAY) == []
    assert [p.name for p in await cluster(journal)] == [NAME]


async def test_open_partition_is_refused_by_the_database(journal: Database) -> None:
    running = await _value(
        journal, "SELECT name FROM projections.partitions WHERE to_timestamp > clock_timestamp() LIMIT 1"
    )

    with pytest.raises(DatabaseError, match=f"partition {running} is not closed"):
        await _value(journal, "SELECT projections.cluster_partition_v1($1)", running)
    with pytest.raises(DatabaseError, match="'nothing' is no time partition"):
        await _value(journal, "SELECT projections.cluster_partition_v1('nothing')")


SHAPE = """
SELECT array_agg(pg_get_indexdef(indexrelid) ORDER BY indexrelid::regclass::text), c.relowner, c.relacl,
    c.reloptions, obj_description(c.oid), pg_get_expr(c.relpartbound, c.oid),
    (SELECT array_agg(conname || pg_get_constraintdef(oid) ORDER BY conname) FROM pg_constraint
     WHERE conrelid = c.oid AND contype <> 'n')
FROM pg_index AS i INNER JOIN pg_class AS c ON i.indrelid = c.oid
WHERE c.oid = $1::text::regclass AND pg_get_indexdef(indexrelid) NOT LIKE '%USING brin%' GROUP BY c.oid
"""


async def test_partition_keeps_its_name_indexes_constraints_grants_options_and_comment(
    journal: Database,
) -> None:
    async with journal.session() as session:
        await session.execute(f'CREATE INDEX "By Tag" ON {TABLE} USING gin (tags)')
        await session.execute("CREATE INDEX ON projections.events (event_type) WHERE version > 1")
        await session.execute(f"GRANT SELECT ON {TABLE} TO projections_reader WITH GRANT OPTION")
        await session.execute(f"GRANT SELECT ON {TABLE} TO PUBLIC")
        await session.execute(f"ALTER TABLE {TABLE} SET (autovacuum_enabled = off, fillfactor = 90)")
        await session.execute(f"COMMENT ON TABLE {TABLE} IS 'it''s of 2020'")
        before = await session.fetchrow(SHAPE, TABLE)

        await _cluster(journal)

        assert dict(await session.fetchrow(SHAPE, TABLE) or {}) == dict(before or {})
        # Each is part of the log's index: else a new one would have been built while everybody waited.
        assert await session.fetchval(
            "SELECT count(*) FROM pg_inherits WHERE inhrelid IN "
            "(SELECT indexrelid FROM pg_index WHERE indrelid = $1::text::regclass)",
            TABLE,
        ) == await session.fetchval(
            "SELECT count(*) FROM pg_index WHERE indrelid = 'projections.events'::regclass"
        )


@pytest.mark.parametrize(
    "change",
    [
        f"CREATE TRIGGER t BEFORE INSERT ON {TABLE} FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY",
        f"CREATE PUBLICATION p FOR TABLE {TABLE}",
    ],
    ids=lambda change: " ".join(change.split()[:2]),
)
async def test_partition_with_what_a_copy_would_not_have_is_left_alone(
    journal: Database, change: str
) -> None:
    await _value(journal, change)

    partition = await _cluster(journal)

    assert "of its own" in str(partition.problem)
    assert (await _clustered(journal), await count(journal)) == ([], EVENTS)


CHANGES = {
    "import": None,
    "delete": f"DELETE FROM {TABLE} WHERE source_id = 's1' AND seq_nr = 2",
    "update": f"UPDATE {TABLE} SET payload = '{{}}' WHERE source_id = 's1' AND seq_nr = 2",
    "update of a NULL": f"UPDATE {TABLE} SET metadata = 'null' WHERE source_id = 's1' AND seq_nr = 2",
    "index": f"CREATE INDEX ON {TABLE} (version)",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_change_between_copy_and_swap_is_noticed(journal: Database, change: str | None) -> None:
    await _copy(journal)
    if change is None:
        await import_events(journal, [historic("late", 1)])
    else:
        await _value(journal, change)
    expected = await _value(journal, f"SELECT array_agg(e::text ORDER BY e::text) FROM {TABLE} AS e")

    with pytest.raises(DatabaseError, match="since it was copied"):
        async with journal.transaction() as session:
            await _swap(session)

    assert (await _cluster(journal)).problem is None
    assert await _value(journal, f"SELECT array_agg(e::text ORDER BY e::text) FROM {TABLE} AS e") == expected


async def test_import_that_meets_the_swap_waits_and_lands_in_the_new_partition(journal: Database) -> None:
    await _copy(journal)
    async with journal.session() as session:
        await session.begin()
        await _swap(session)
        importing = asyncio.create_task(import_events(journal, [historic("late", 1)]))
        await _until_somebody_waits(journal)
        await session.commit()
        await importing

    assert await count(journal, TABLE) == EVENTS + 1
    assert len(await stored(journal, "late")) == 1


async def test_import_that_has_not_ended_keeps_the_swap_from_comparing(journal: Database) -> None:
    await _copy(journal)
    async with journal.session() as importer, journal.session() as session:
        await importer.begin()
        await importer.execute("LOCK TABLE projections.imports IN SHARE ROW EXCLUSIVE MODE")
        await session.begin()
        swapping = asyncio.create_task(_swap(session))
        await _until_somebody_waits(journal)
        await importer.execute(f"DELETE FROM {TABLE} WHERE source_id = 's1'")
        await importer.commit()

        with pytest.raises(DatabaseError, match="since it was copied"):
            await swapping
        await session.rollback()

    assert await count(journal) == EVENTS - EVENTS // 30


async def _keys(database: Database) -> list[tuple[str, int]]:
    return [
        (e.source_id, e.seq_nr) for kind in ("type0", "type1") async for e in current_events(database, kind)
    ]


async def test_reader_that_meets_the_swap_waits_and_sees_every_event_once(journal: Database) -> None:
    await _copy(journal)
    async with journal.session() as session:
        await session.begin()
        await _swap(session)
        reading = asyncio.create_task(_keys(journal))
        await _until_somebody_waits(journal)
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

        partition = await _cluster(journal)

        pid = await old.fetchval("SELECT pg_backend_pid()")
        assert f"have not ended: process {pid} (" in str(partition.problem)
        assert await old.fetchval("SELECT count(*) FROM projections.events") == EVENTS
        assert await _copies(journal) == 0

    assert (await _cluster(journal)).problem is None


async def test_snapshot_younger_than_the_copy_sees_all_events_after_the_swap(journal: Database) -> None:
    await _copy(journal)
    async with journal.transaction() as reader:
        await _repeatable_read(reader)
        async with journal.transaction() as session:
            await _swap(session)

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
        running = asyncio.create_task(_cluster(journal, patience=timedelta(minutes=1), progress=hear))
        await waited.wait()

    assert (await running).problem is None
    assert stages[:3] == ["copy", "freeze", "compare and swap"]


async def test_append_in_flight_holds_the_run_back(journal: Database) -> None:
    async with journal.transaction() as writer:
        await append(writer, [event("open")])

        partition = await _cluster(journal)

    assert "append that was open when this run began" in str(partition.problem)
    assert (await _cluster(journal)).problem is None


async def test_open_reader_makes_the_swap_give_up_and_the_old_partition_stays(journal: Database) -> None:
    waited = timedelta(milliseconds=20)
    async with journal.transaction() as reader:
        await reader.execute("SELECT count(*) FROM projections.events")

        partition = await _cluster(journal, lock_timeout=waited, attempts=2)

        assert "stayed open for longer than the lock timeout" in str(partition.problem)
        assert (await _copies(journal), await _clustered(journal)) == (0, [])
        async with journal.transaction() as other:
            await append(other, [event("b")])

    assert (await _cluster(journal)).problem is None
    assert await count(journal) == EVENTS + 1


async def test_swap_tries_again_until_the_reader_has_ended(journal: Database) -> None:
    await _copy(journal)
    async with journal.session() as reader, journal.session() as session:
        await reader.begin()
        await reader.fetchval("SELECT count(*) FROM projections.events")
        await session.begin()
        await session.execute("SET LOCAL lock_timeout = '20ms'")
        swapping = asyncio.create_task(
            session.fetchval("SELECT projections.swap_partition_v1($1, 100000, '0')", NAME)
        )
        for _ in range(3):
            await _until_somebody_waits(journal)
        await reader.commit()

        assert await swapping == EVENTS
        await session.commit()

    assert await _clustered(journal) == [NAME]


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
            partition = await _cluster(journal, attempts=1000, patience=timedelta(minutes=1))
            assert partition.problem is None
            await _value(journal, f"DROP INDEX {TABLE}_slices_idx")  # asks for doing it again
        done.set()

    _, last, _ = await asyncio.gather(keep_house(), write(), read())

    assert [e.seq_nr for e in await stored(journal, "live")] == list(range(1, last + 1))
    for keys in reads:
        assert len(set(keys)) == len(keys)
        assert sum(source_id != "live" for source_id, _ in keys) == EVENTS


async def test_of_two_runs_one_says_that_the_other_is_at_work(journal: Database) -> None:
    async with journal.transaction() as other:
        await other.fetchval("SELECT projections.drop_partition_copies_v1()")

        partition = await _cluster(journal)

    assert partition.problem == "another run is putting a partition in slice order"


async def test_run_whose_copy_another_run_has_removed_says_so(journal: Database) -> None:
    await _copy(journal)
    await _value(journal, "SELECT projections.drop_partition_copies_v1()")

    with pytest.raises(DatabaseError, match="is gone: another run has removed it"):
        async with journal.transaction() as session:
            await _swap(session)


async def test_role_that_does_not_own_the_schema_is_refused(dsn: str, journal: Database) -> None:
    async with connect(dsn) as database, database.session() as session:
        await session.execute("SET ROLE projections_worker")
        for function in ("cluster", "swap"):
            with pytest.raises(MissingPrivilege):
                await session.execute(f"SELECT projections.{function}_partition_v1($1)", NAME)


def _run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["maintain", *arguments, "--cluster"])
    return result.exit_code, result.stdout


def test_command_tells_what_it_did_as_json_and_a_second_run_does_nothing(dsn: str, journal: Database) -> None:
    code, output = _run("--dsn", dsn, "--ahead", "1", "--json")

    (done,) = json.loads(output)["clustered"]
    assert code == 0
    assert (done["name"], done["events"], done["problem"]) == (NAME, EVENTS, None)
    assert (done["from"], done["to"]) == (PAST.isoformat(), (PAST + DAY).isoformat())
    assert min(done["bytes_before"], done["bytes_after"], done["seconds"]) > 0
    assert _run("--dsn", dsn, "--ahead", "1") == (0, "nothing to do\n")


def test_command_tells_what_it_did_in_lines(dsn: str, journal: Database) -> None:
    assert _run("--dsn", dsn, "--ahead", "1", "--closed-for", "90000d") == (0, "nothing to do\n")

    code, output = _run("--dsn", dsn, "--ahead", "1")

    assert code == 0
    assert output.startswith(f"in slice order: {NAME}: {EVENTS} events, ")


async def test_command_exits_with_1_where_a_partition_could_not_be_done(dsn: str, journal: Database) -> None:
    await _value(journal, f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY")

    code, output = await asyncio.to_thread(_run, "--dsn", dsn, "--ahead", "1")

    assert code == 1
    assert output.startswith(f"not in slice order: {NAME}: partition {NAME} has ")


@pytest.mark.parametrize("wrong", [{"closed_for": -DAY}, {"patience": -DAY}, {"attempts": 0}], ids=str)
async def test_setting_out_of_bounds_is_refused(database: Database, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        await cluster(database, **wrong)


RUN = """
import asyncio, sys
from datetime import timedelta
from journal import connect
from journal.clustering import cluster

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


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
async def test_run_that_is_killed_leaves_the_partition_whole_and_the_next_run_ends_its_work(
    dsn: str, journal: Database, block: str
) -> None:
    for statement in GATED_INDEX.split(";\n"):
        await _value(journal, statement)
    expected = sorted(await _keys(journal))
    async with journal.transaction() as blocker:
        await blocker.execute(block)
        with subprocess.Popen([sys.executable, "-c", RUN, dsn], env=environment()) as process:
            await _until_somebody_waits(journal)
            process.send_signal(signal.SIGKILL)

    # What it last asked the server for may still go on there.
    while (partitions := await cluster(journal, pause=NOW)) and partitions[0].problem:
        pass

    assert process.returncode == -signal.SIGKILL
    assert sorted(await _keys(journal)) == expected
    assert (await _clustered(journal), await _copies(journal)) == ([NAME], 0)


async def test_copy_that_a_killed_run_has_left_is_removed_though_there_is_nothing_to_do(
    journal: Database,
) -> None:
    await _copy(journal)

    assert await cluster(journal, closed_for=36500 * DAY) == []
    assert await _copies(journal) == 0
