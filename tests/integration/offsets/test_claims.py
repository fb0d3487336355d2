"""A range's effects are committed by the newest holder alone; ranges follow the workers that are alive."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

import offsets
from journal import ConnectionSettings, Database, EntityTypes, connect, slice_of, slice_ranges
from offsets import OffsetOvertaken, leases
from projections import EventEnvelope, Session, SliceRange, run
from tests.fixtures.locks import WAITING
from tests.fixtures.projections import (
    EFFECTS,
    Does,
    Happened,
    Told,
    caught_up,
    each_once,
    effects,
    execute,
    fetchval,
    happen,
    recording,
    running,
    settings,
    until,
    until_effects,
)
from tests.fixtures.proxy import Proxy, proxy_to

RANGES = "projections.projection_ranges"
ALL_OWNED = f"SELECT count(*) = 0 FROM {RANGES} WHERE owner IS NULL OR owner IS DISTINCT FROM assigned_to"
OWNERS = f"SELECT count(DISTINCT owner) = $1 FROM {RANGES}"


@pytest.fixture(params=["asyncpg", "psycopg"])
async def either(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Database]:
    """A database through each of the drivers."""
    async with connect(dsn, ConnectionSettings(driver=request.param)) as pool:
        await execute(pool, EFFECTS)
        yield pool


@pytest.fixture
async def journal(database: Database) -> Database:
    await execute(database, EFFECTS)
    return database


@pytest.fixture
async def proxy(dsn: str) -> AsyncIterator[Proxy]:
    async with proxy_to(dsn) as between:
        yield between


class Gate:
    """Holds handlers up until it is opened."""

    def __init__(self) -> None:
        self.entered, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
        self.entered.set()
        await self.go_on.wait()


def once(does: Does) -> Does:
    """Do something at the first call only."""
    done = False

    async def first(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        nonlocal done
        if not done:
            done = True
            await does(session, event, envelope)

    return first


async def a_worker(database: Database, owner: str, lease: timedelta) -> None:
    """A worker of which nothing more is heard holds all ranges."""
    async with database.session() as session:
        number = (await offsets.status(session, "p")).projection_id
        await offsets.take_over(session, owner, {number: 1})
        worker, known = (
            offsets.Worker(owner, "elsewhere", 1),
            {number: offsets.Registered("p", 1, EntityTypes(("plane",)))},
        )
        await offsets.heartbeat(session, worker, lease, known, offsets.Beats())


# The fence


async def test_a_holder_that_was_replaced_commits_nothing(
    either: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """The first is held up in its batch while the second takes over and handles all."""
    gate = Gate()
    await happen(either, "a", "b", "a")

    with caplog.at_level(logging.WARNING):
        async with running(either, recording(gate), settings=settings(heartbeat=timedelta(seconds=5))):
            await gate.entered.wait()
            await caught_up(either, recording(), take_over=True)
            gate.go_on.set()
            await happen(either, "a")
            await until_effects(either, 4)

    each_once(await effects(either), a=3, b=1)
    assert "range_lost" in [getattr(record, "action", None) for record in caplog.records]


async def test_an_epoch_alone_keeps_an_older_holder_from_committing(either: Database) -> None:
    """Nobody has handled anything since, so nothing but the epoch can tell."""
    before, after = Gate(), Gate()
    await happen(either, "a", "b")

    async def do(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        await (after if told.names("stopped") else before)(session, event, envelope)

    async with running(either, recording(do), settings=settings(heartbeat=timedelta(seconds=5))) as told:
        await before.entered.wait()
        await execute(either, f"UPDATE {RANGES} SET epoch = epoch + 1")
        before.go_on.set()
        await after.entered.wait()
        committed = await effects(either)
        after.go_on.set()
        await until_effects(either, 2)

    assert committed == []
    each_once(await effects(either), a=1, b=1)


async def test_a_source_that_is_already_past_the_batch_rolls_it_back(journal: Database) -> None:
    async def overtake(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        await execute(
            journal,
            "INSERT INTO projections.source_offsets SELECT projection_id, $1, $2, $3, $4 FROM projections.projections",
            *(envelope.source_id, envelope.slice, envelope.seq_nr, envelope.db_timestamp),
        )

    await happen(journal, "a", "b")

    told = await caught_up(journal, recording(once(overtake)))

    assert isinstance(told.all("failed")[0][2], OffsetOvertaken)
    assert await effects(journal) == [("b", 1)]


# Coming and going


@pytest.mark.slow
async def test_two_that_start_at_once_share_the_ranges(journal: Database, dsn: str) -> None:
    async with (
        connect(dsn) as other,
        running(journal, recording(), ranges=7),
        running(other, recording(), ranges=7),
    ):
        await until(journal, OWNERS, 2)
        await until(journal, ALL_OWNED)
        await happen(journal, *"abcdefgh")
        await until_effects(journal, 8)
        async with journal.session() as session:
            shares = sorted(worker.ranges for worker in await offsets.workers(session))

    assert shares == [3, 4]
    each_once(await effects(journal), **dict.fromkeys("abcdefgh", 1))


async def test_a_worker_shows_how_many_slices_it_holds_of_each_projection(journal: Database) -> None:
    async with running(journal, recording(), recording(name="q"), ranges=2):
        await until(journal, f"SELECT count(owner) = 4 FROM {RANGES}")
        async with journal.session() as session:
            (worker,) = await offsets.workers(session)

    assert (worker.ranges, worker.slices) == (4, {"p": 1024, "q": 1024})


@pytest.mark.slow
async def test_the_ranges_are_read_once_for_all_workers_and_projections(journal: Database) -> None:
    for name in "pqr":
        await caught_up(journal, recording(name=name), ranges=2)
    for owner in ("one", "two", "three"):
        await a_worker(journal, owner, timedelta(hours=1))
    await execute(
        journal,
        "UPDATE projections.workers SET projection_ids = ARRAY(SELECT projection_id FROM projections.projections)",
    )

    async with journal.session() as session:
        plan = [row.values() for row in await session.fetch(f"EXPLAIN ANALYZE {leases._WORKERS}")]
    scans = [str(line) for (line,) in plan if " on projection_ranges" in str(line)]

    assert [re.findall(r"loops=(\d+)", scan) for scan in scans] == [["1"]]


async def test_a_crashed_holder_is_followed_when_its_lease_ends(journal: Database) -> None:
    await caught_up(journal, recording())
    await a_worker(journal, "gone", timedelta(milliseconds=300))
    await happen(journal, "a")

    told = await caught_up(journal, recording())

    assert [args[2] for args in told.all("taken_over")] == ["gone"]
    assert await effects(journal) == [("a", 1)]
    assert await fetchval(journal, "SELECT count(*) FROM projections.workers WHERE owner <> 'gone'") == 0


@pytest.mark.slow
async def test_a_holder_whose_lease_runs_is_waited_for(journal: Database) -> None:
    await caught_up(journal, recording())
    await a_worker(journal, "there", timedelta(hours=1))
    await happen(journal, "a")
    stop = asyncio.Event()
    waiting = asyncio.create_task(run(journal, recording(), settings=settings(), stop=stop))

    await until(journal, f"SELECT count(*) > 0 FROM {RANGES} WHERE assigned_to = 'there'")
    await until(journal, "SELECT count(*) = 2 FROM projections.workers")
    before = await effects(journal)
    async with journal.session() as session:
        await offsets.leave(session, "there")
    await until_effects(journal, 1)
    stop.set()
    await waiting

    assert before == []


@pytest.mark.slow
async def test_taking_over_does_not_wait_for_a_lease(journal: Database) -> None:
    await caught_up(journal, recording(), ranges=3)
    await a_worker(journal, "there", timedelta(hours=1))
    await happen(journal, *"abcd")

    await caught_up(journal, recording(), take_over=True)

    each_once(await effects(journal), **dict.fromkeys("abcd", 1))


@pytest.mark.slow
async def test_a_worker_that_was_taken_over_joins_again(journal: Database, dsn: str) -> None:
    async with connect(dsn) as other, running(journal, recording(), ranges=4):
        await until(journal, ALL_OWNED)
        async with running(other, recording(), take_over=True):
            await until(journal, OWNERS, 2)
            await until(journal, ALL_OWNED)
            await happen(journal, *"abcdefgh")
            await until_effects(journal, 8)

    each_once(await effects(journal), **dict.fromkeys("abcdefgh", 1))


@pytest.mark.slow
async def test_a_worker_without_a_range_goes_on_when_the_other_stops(
    journal: Database, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    told, stop = Told(), asyncio.Event()
    async with connect(dsn) as other:
        with caplog.at_level(logging.INFO):
            async with running(journal, recording()):
                idle = asyncio.create_task(
                    run(other, recording(), settings=settings(), observer=told, stop=stop)
                )
                await until(journal, "SELECT count(*) = 2 FROM projections.workers")
                await happen(journal, "a")
                await until_effects(journal, 1)
                before = told.names("started")
        await told.first("started")
        await happen(journal, "a")
        await until_effects(journal, 2)
        stop.set()
        await idle

    assert before == []
    assert "idle" in [getattr(record, "action", None) for record in caplog.records]
    each_once(await effects(journal), a=2)


@pytest.mark.slow
async def test_projections_of_one_process_are_shared_each_for_itself(journal: Database, dsn: str) -> None:
    """The other worker runs one of the two only."""
    async with (
        connect(dsn) as other,
        running(journal, recording(), recording(name="q"), ranges=4),
        running(other, recording(name="q"), ranges=4),
    ):
        await until(journal, ALL_OWNED)
        await until(journal, OWNERS, 2)
        await happen(journal, *"abcd")
        await until_effects(journal, 8)
        async with journal.session() as session:
            owners = [len({r.owner for r in (await offsets.status(session, name)).ranges}) for name in "pq"]

    assert owners == [1, 2]


@pytest.mark.slow
async def test_a_range_that_a_zombie_keeps_locked_does_not_keep_others_waiting(journal: Database) -> None:
    """A dead worker's last transaction may hold the row of one range; the others are claimed meanwhile."""
    await caught_up(journal, recording(), ranges=3)
    await a_worker(journal, "zombie", timedelta(0))

    async with journal.session() as zombie:
        await zombie.begin()
        await zombie.execute(f"UPDATE {RANGES} SET handled = 0 WHERE min_slice = 0")
        async with running(journal, recording()):
            claimed = f"SELECT array_agg(owner <> 'zombie' ORDER BY min_slice) FROM {RANGES}"
            await until(journal, f"SELECT ({claimed}) = '{{f,t,t}}'")
            await zombie.commit()
            await until(journal, f"SELECT ({claimed}) = '{{t,t,t}}'")


async def test_who_keeps_a_projection_locked_keeps_no_heartbeat_waiting(journal: Database) -> None:
    """Its ranges are assigned by the first heartbeat after the lock is gone."""
    beats = offsets.Beats()
    async with journal.session() as session, journal.session() as other:
        known = {
            await offsets.register(session, "p", "plane"): offsets.Registered("p", 1, EntityTypes(("plane",)))
        }
        await other.begin()
        await other.execute("SELECT FROM projections.projections FOR NO KEY UPDATE")
        beating = (session, offsets.Worker("me", "here", 1), timedelta(hours=1), known, beats)
        (locked,) = await offsets.heartbeat(*beating)
        await other.rollback()
        (free,) = await offsets.heartbeat(*beating)

    assert (locked.uneven, locked.held) == (True, [])
    assert (free.uneven, len(free.held)) == (False, 1)


# A network that is cut


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_process_that_is_cut_off_commits_nothing_and_joins_again(
    journal: Database, proxy: Proxy, driver: str
) -> None:
    """In the middle of a batch. When the network is back, what was sent meanwhile arrives."""
    gate, short = Gate(), settings(lease=timedelta(seconds=1))
    await happen(journal, "a", "b")

    async with (
        connect(proxy.dsn, ConnectionSettings(driver=driver)) as through,
        running(through, recording(gate), settings=short) as told,
    ):
        await gate.entered.wait()
        proxy.stop_forwarding()
        await caught_up(journal, recording())
        gate.go_on.set()
        proxy.go_on()
        await told.first("stopped")
        await happen(journal, "a", "b")
        await until_effects(journal, 4)

    each_once(await effects(journal), a=2, b=2)


@pytest.mark.slow  # the limits that notice it are of ten seconds
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_connections_that_are_dead_without_a_word_are_replaced(
    journal: Database, proxy: Proxy, driver: str
) -> None:
    """The heartbeats' and the polls' too, while a handler runs."""
    gate = Gate()
    patient = settings(lease=timedelta(seconds=2), handler_timeout=timedelta(seconds=3))
    await happen(journal, "a", "b")

    async with (
        connect(proxy.dsn, ConnectionSettings(driver=driver)) as through,
        running(through, recording(gate), settings=patient),
    ):
        await gate.entered.wait()
        proxy.forget_connections()
        gate.go_on.set()
        await happen(journal, "a", "b")
        async with asyncio.timeout(300):
            await until_effects(journal, 4)

    each_once(await effects(journal), a=2, b=2)


@pytest.mark.slow
async def test_a_heartbeat_looks_at_no_source_that_waits_for_a_decision(database: Database) -> None:
    parked = """
    INSERT INTO projections.parked_sources (projection_id, source_id, slice, seq_nr, event_type, error, attempts)
    SELECT projections.register_projection_v1('p', '{plane}'), 's' || n, 0, 1, 'Landed', 'no', 1
    FROM generate_series(1, 5000) AS n
    """
    looked_at = """
    SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'parked_sources'
    """
    await execute(database, parked)
    async with database.session() as session:
        await session.begin()
        await session.execute(
            "SELECT * FROM projections.heartbeat_v1("
            "'o', 'h', 1, '10 s', '{1}', '{p}', '{1}', FALSE, 0, 1, ARRAY['{plane}'])"
        )
        read = await session.fetchval(looked_at)
        await session.rollback()

    assert read < 100


async def test_a_heartbeat_reads_each_range_a_few_times_whatever_is_known_of_the_table(
    database: Database,
) -> None:
    """The first worker takes all: nothing has been analyzed yet."""
    read = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'projection_ranges'"
    async with database.session() as session:
        known = {
            await offsets.register(session, "p", "plane", slice_ranges(1024)): offsets.Registered(
                "p", 1, EntityTypes(("plane",))
            )
        }
        await session.begin()
        worker = offsets.Worker("me", "here", 1)
        (told,) = await offsets.heartbeat(session, worker, timedelta(hours=1), known, offsets.Beats())
        rows = await session.fetchval(read)
        await session.rollback()

    assert len(told.held) == 1024
    assert rows < 20 * 1024


@pytest.mark.slow
async def test_a_range_whose_row_somebody_has_locked_keeps_no_other_from_storing(either: Database) -> None:
    low, high = sorted(["a", "b", "c", "d"], key=slice_of)[::3]
    often = settings(save_horizon_every=timedelta(milliseconds=5))
    cut = slice_of(high)
    async with either.session() as session:
        await offsets.register(session, "p", "plane", [SliceRange(0, cut - 1), SliceRange(cut, 1023)])
    async with running(either, recording(), settings=often), either.session() as holder:
        await happen(either, low, high)
        await until_effects(either, 2)
        await holder.begin()
        await holder.execute("SELECT FROM projections.projection_ranges WHERE min_slice = 0 FOR UPDATE")
        await until(either, f"SELECT count(*) > 0 FROM {WAITING}")

        await happen(either, high)
        await until_effects(either, 3)
        await holder.rollback()

    each_once(await effects(either), **{low: 1, high: 2})


async def test_a_heartbeat_that_a_swap_overtakes_claims_nothing_for_the_old_version(
    journal: Database,
) -> None:
    known = {}
    async with journal.session() as session, journal.session() as other:
        number = await offsets.register(session, "p", EntityTypes.of("plane"))
        known[number] = offsets.Registered("p", 1, EntityTypes.of("plane"))
        worker, lease, beats = offsets.Worker("old", "host", 1), timedelta(hours=1), offsets.Beats()
        await offsets.heartbeat(session, worker, lease, known, beats)
        await offsets.heartbeat(session, worker, lease, known, beats)
        assert await fetchval(journal, f"SELECT owner FROM {RANGES}") == "old"

        await other.begin()
        await other.execute("SELECT FROM projections.workers FOR UPDATE")
        overtaken = asyncio.create_task(offsets.heartbeat(session, worker, lease, known, beats))
        await until(journal, f"SELECT count(*) = 1 FROM {WAITING}")
        await execute(journal, "UPDATE projections.projections SET version = 2")
        await execute(journal, f"UPDATE {RANGES} SET epoch = epoch + 1, owner = NULL")
        await other.commit()
        (told,) = await overtaken

    assert (told.version, list(told.held)) == (2, [])
    assert await fetchval(journal, f"SELECT owner FROM {RANGES}") is None
