"""Who catches up with old events does not store where their sources stand, and handles each once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

import offsets
from journal import ConnectionSettings, Database, InvalidEvent, connect
from journal.events import HistoricEvent
from journal.importing import import_events
from projections import EventEnvelope, Session
from projections.testing import run_until_caught_up
from tests.fixtures.projections import (
    EFFECTS,
    Happened,
    each_once,
    effects,
    execute,
    failing,
    fetchval,
    happen,
    recording,
    running,
    settings,
    until_effects,
)

MINUTE = timedelta(minutes=1)
STORED = "SELECT count(*) FROM projections.source_offsets"
BOUND = "SELECT evicted_before FROM projections.projections"
SOURCES = [f"s{number}" for number in range(10)]
EVICT_UP_TO = "SELECT projections._evict_up_to_v1(1, $1, $2, '1 minute')"
BEHIND = """
UPDATE projections.projection_ranges
SET horizon = (SELECT min(db_timestamp) FROM projections.events WHERE source_id = '{}')
"""
YESTERDAY = "UPDATE projections.{} SET db_timestamp = db_timestamp - interval '1 day'"


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(max_connections=20)) as pool:
        await execute(pool, EFFECTS)
        yield pool


async def long_ago(database: Database) -> None:
    """What is in the journal was appended a day before."""
    for table in ("events", "sources"):
        await execute(database, YESTERDAY.format(table))


async def catch_up(database: Database, *, batch_size: int = 7) -> None:
    await run_until_caught_up(database, recording(batch_size=batch_size), retention=MINUTE)


@pytest.mark.slow
async def test_who_catches_up_stores_offsets_of_what_is_new_only(journal: Database) -> None:
    await happen(journal, *SOURCES * 3)
    await long_ago(journal)
    await happen(journal, "s1", "new")

    await catch_up(journal)

    each_once(await effects(journal), new=1, s1=4, **dict.fromkeys({*SOURCES} - {"s1"}, 3))
    assert await fetchval(journal, STORED) == 4  # of the last page, which is not all old
    assert (
        await fetchval(journal, "SELECT max(seq_nr) FROM projections.source_offsets WHERE source_id = 's1'")
        == 4
    )
    assert await fetchval(journal, "SELECT sum(handled) FROM projections.projection_ranges") == 32


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 4, 1000])
async def test_what_was_left_out_is_not_handled_again(journal: Database, batch_size: int) -> None:
    await happen(journal, *SOURCES * 3)
    await long_ago(journal)
    await catch_up(journal, batch_size=batch_size)

    # As after a crash: the stored horizon may be that of any earlier batch.
    await execute(journal, "UPDATE projections.projection_ranges SET horizon = '1970-01-02'")
    await happen(journal, *SOURCES)
    await catch_up(journal, batch_size=batch_size)

    each_once(await effects(journal), **dict.fromkeys(SOURCES, 4))


@pytest.mark.slow
async def test_offsets_from_before_a_standstill_leave_with_the_next_event(journal: Database) -> None:
    await happen(journal, *SOURCES)
    await catch_up(journal)
    assert await fetchval(journal, STORED) == len(SOURCES)

    await happen(journal, *SOURCES * 2)
    await long_ago(journal)
    for column, table in (("db_timestamp", "source_offsets"), ("horizon", "projection_ranges")):
        await execute(journal, f"UPDATE projections.{table} SET {column} = {column} - interval '1 day'")
    await execute(
        journal, "UPDATE projections.projection_ranges SET handled_until = handled_until - interval '1 day'"
    )
    await catch_up(journal)
    await happen(journal, *SOURCES)
    await catch_up(journal)

    each_once(await effects(journal), **dict.fromkeys(SOURCES, 4))


@pytest.mark.slow
@pytest.mark.parametrize("cache_size", [1, 1000])
async def test_a_batch_that_is_cut_around_a_failure_goes_on(journal: Database, cache_size: int) -> None:
    """With a small cache, the offsets that there are do not fit into memory."""
    await happen(journal, *SOURCES)
    await catch_up(journal)
    for source_id in ("s0", "s1", "s3", "s0", "s1"):
        await happen(journal, source_id)
    await long_ago(journal)
    await execute(
        journal,
        "UPDATE projections.projection_ranges "
        "SET horizon = (SELECT min(db_timestamp) FROM projections.events WHERE seq_nr = 2)",
    )
    await execute(journal, YESTERDAY.format("source_offsets"))

    await run_until_caught_up(
        journal, recording(failing(("s3", 2)), batch_size=5), retention=MINUTE, cache_size=cache_size
    )

    each_once(await effects(journal), **{**dict.fromkeys(SOURCES, 1), "s0": 3, "s1": 3})


@pytest.mark.slow
async def test_a_batch_that_is_cut_goes_on_where_its_first_part_fills_the_cache(journal: Database) -> None:
    """All offsets were in memory when it began, and are not any more."""
    before, new = SOURCES[:4], SOURCES[4:9]
    await happen(journal, *before)
    await catch_up(journal)
    await happen(journal, *new)
    await long_ago(journal)
    await execute(journal, BEHIND.format("s4"))
    await execute(journal, YESTERDAY.format("source_offsets"))

    await run_until_caught_up(
        journal, recording(failing(("s6", 1)), batch_size=5), retention=MINUTE, cache_size=1
    )

    each_once(await effects(journal), **dict.fromkeys({*before, *new} - {"s6"}, 1))


@pytest.mark.slow
async def test_ranges_that_are_cut_and_merged_afterwards_go_on_exactly_once(journal: Database) -> None:
    await happen(journal, *SOURCES * 3)
    await long_ago(journal)
    await catch_up(journal)

    for ranges in (3, 1):
        async with journal.session() as session:
            await offsets.rescale(session, "p", ranges)
        await happen(journal, *SOURCES)
        await catch_up(journal)

    each_once(await effects(journal), **dict.fromkeys(SOURCES, 5))


@pytest.mark.slow
async def test_a_source_that_is_parked_meanwhile_waits_and_goes_on(journal: Database) -> None:
    fails = True

    async def fail(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if fails and (envelope.source_id, envelope.seq_nr) == ("s3", 2):
            raise RuntimeError

    await happen(journal, *SOURCES * 3)
    await long_ago(journal)
    quick = settings(retention=MINUTE)
    await run_until_caught_up(journal, recording(fail, batch_size=7), retention=MINUTE)
    async with journal.session() as session:
        parked = await offsets.ParkedSources(session).list("p")
        rows = await session.fetch(
            "SELECT seq_nr, db_timestamp FROM projections.events WHERE source_id = 's3' ORDER BY seq_nr"
        )
        handled = await session.fetch(
            "SELECT projections._handled_v1($1, $2, $3, $4)",
            ["p"] * 3, ["s3"] * 3, [row["seq_nr"] for row in rows], [row["db_timestamp"] for row in rows],
        )  # fmt: skip
    assert [(one.source_id, one.seq_nr) for one in parked] == [("s3", 2)]
    assert [number for row in handled for number in row.values()] == [1]

    fails = False
    async with running(journal, recording(fail, batch_size=7), settings=quick):
        async with journal.session() as session:
            await offsets.ParkedSources(session).retry("p")
        await until_effects(journal, 30)
    await happen(journal, *SOURCES)
    await run_until_caught_up(journal, recording(fail), retention=MINUTE)

    each_once(await effects(journal), **dict.fromkeys(SOURCES, 4))


class Evicting:
    """Asks for a bound in a transaction that is rolled back."""

    def __init__(self, dsn: str, journal: Database) -> None:
        self._dsn, self.journal = dsn, journal

    async def bound(
        self, until: datetime, *, import_id: int = 0, isolation: str = "read_committed"
    ) -> datetime | None:
        connection = await asyncpg.connect(self._dsn)
        try:
            transaction = connection.transaction(isolation=isolation)
            await transaction.start()
            bound: datetime | None = await connection.fetchval(EVICT_UP_TO, import_id, until)
            await transaction.rollback()
        finally:
            await connection.close()
        return bound


@pytest.fixture
async def evicting(dsn: str, journal: Database) -> Evicting:
    await happen(journal, "a")
    await run_until_caught_up(journal, recording())
    return Evicting(dsn, journal)


UNFINISHED = """
INSERT INTO projections.rebuilds (
    projection_id, min_slice, max_slice, version, fence, import_id, evicted_before, fingerprint, method, timeline
) VALUES (1, 0, 1023, 1, now(), 0, now(), '', 'rename', 1)
"""
UNREAD = """
INSERT INTO projections.imports (entity_type, from_timestamp, events, imported_at)
VALUES ('plane', now(), 1, now() - interval '1 day')
"""
HOUR_AGO = datetime.now(UTC) - timedelta(hours=1)


async def test_nothing_newer_than_the_retention_is_left_out(evicting: Evicting) -> None:
    later = await evicting.bound(datetime.now(UTC))

    assert await evicting.bound(HOUR_AGO) == HOUR_AGO
    assert later is not None
    assert MINUTE <= datetime.now(UTC) - later < 5 * MINUTE
    assert await evicting.bound(HOUR_AGO, isolation="repeatable_read") is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "reason",
    [
        "UPDATE projections.projections SET mode = 'inline'",
        "UPDATE projections.projections SET journal = 'elsewhere'",
        "SELECT projections._set_ranges_v1(1, '{0,512}')",
        UNFINISHED,
        UNREAD,
        "UPDATE projections.projections SET evicted_before = now()",
    ],
)
async def test_what_needs_offsets_keeps_them(evicting: Evicting, reason: str) -> None:
    await execute(evicting.journal, reason)

    assert await evicting.bound(HOUR_AGO) is None


async def test_an_import_that_is_read_is_in_the_way_for_as_long_as_others_may_follow(
    evicting: Evicting,
) -> None:
    await execute(
        evicting.journal,
        "INSERT INTO projections.imports (entity_type, from_timestamp, events) VALUES ('plane', now(), 1)",
    )
    assert await evicting.bound(HOUR_AGO, import_id=1) is None

    await execute(
        evicting.journal, "UPDATE projections.imports SET imported_at = now() - interval '2 minutes'"
    )
    assert await evicting.bound(HOUR_AGO, import_id=1) == HOUR_AGO


async def test_an_import_that_is_open_and_a_batch_exclude_one_another(evicting: Evicting, dsn: str) -> None:
    importing = await asyncpg.connect(dsn)
    transaction = importing.transaction()
    await transaction.start()
    await importing.execute("LOCK TABLE projections.imports IN SHARE ROW EXCLUSIVE MODE")
    assert await evicting.bound(HOUR_AGO) is None
    await transaction.rollback()
    await importing.close()

    assert await evicting.bound(HOUR_AGO) == HOUR_AGO


async def test_history_that_is_imported_piece_by_piece_while_a_worker_reads_it_is_handled(
    journal: Database,
) -> None:
    def history(source_id: str) -> list[HistoricEvent]:
        start = datetime(2020, 1, 1, tzinfo=UTC)
        return [
            HistoricEvent(
                source_id, Happened(n=n), "plane", seq_nr=n, db_timestamp=start + timedelta(seconds=n)
            )
            for n in range(1, 6)
        ]

    async with running(journal, recording(batch_size=2), settings=settings(retention=MINUTE)):
        for number, source_id in enumerate(SOURCES[:3], 1):
            await import_events(journal, history(source_id))
            await until_effects(journal, 5 * number)

    each_once(await effects(journal), **dict.fromkeys(SOURCES[:3], 5))


async def test_an_import_that_commits_while_a_batch_is_open_is_handled(journal: Database) -> None:
    """Its events are older than the batch, which the bound must not pass."""
    handling, imported = asyncio.Event(), asyncio.Event()

    async def wait(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if envelope.source_id == "last" and not imported.is_set():
            handling.set()
            await imported.wait()

    await happen(journal, *SOURCES, "last")
    await long_ago(journal)
    first = await fetchval(journal, "SELECT min(db_timestamp) FROM projections.events")
    async with running(journal, recording(wait), settings=settings(retention=MINUTE)):
        async with asyncio.timeout(300):
            await handling.wait()
        await import_events(
            journal, [HistoricEvent("old", Happened(n=1), "plane", seq_nr=1, db_timestamp=first)]
        )
        # So long ago that it does not hold back eviction by its age.
        await execute(journal, "UPDATE projections.imports SET imported_at = now() - interval '1 day'")
        imported.set()
        await until_effects(journal, len(SOURCES) + 2)

    each_once(await effects(journal), old=1, last=1, **dict.fromkeys(SOURCES, 1))


async def test_history_from_before_what_was_left_out_is_refused(journal: Database) -> None:
    await happen(journal, *SOURCES)
    await long_ago(journal)
    await catch_up(journal)
    old = HistoricEvent(
        "late", Happened(n=1), "plane", seq_nr=1, db_timestamp=datetime.now(UTC) - timedelta(days=2)
    )

    with pytest.raises(InvalidEvent, match="no longer knows what it handled"):
        await import_events(journal, [old])


async def test_a_restore_stores_no_offset_that_would_set_back_what_was_handled(evicting: Evicting) -> None:
    """Of "gone", more is handled than comes back, and nothing says so but the bound."""
    journal, now = evicting.journal, datetime.now(UTC)
    old, new = now - timedelta(days=2), now - timedelta(hours=1)
    await execute(journal, "UPDATE projections.projections SET evicted_before = $1", now - timedelta(days=1))
    await execute(
        journal,
        "INSERT INTO projections.source_offsets (projection_id, source_id, slice, seq_nr, db_timestamp) "
        "VALUES (1, 'kept', 1, 2, $1)",
        old,
    )
    await execute(
        journal, "UPDATE projections.projection_ranges SET owner = 'w', horizon = now() - interval '1 hour'"
    )

    await execute(
        journal,
        "SELECT projections._pass_restored_v1(1, '{[0,1024)}', $1, $2, '{1,1,1}', '{3,3,3}', $3)",
        old, ["gone", "kept", "newer"], [old, old, new],
    )  # fmt: skip

    async with journal.session() as session:
        stored = await offsets.read_offsets(session, 1, ["gone", "kept", "newer"])
    assert stored == {"kept": 3, "newer": 3}
    # Whoever catches up does not know of these.
    assert await fetchval(journal, "SELECT owner IS NULL FROM projections.projection_ranges")
