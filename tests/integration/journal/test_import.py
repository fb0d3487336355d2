"""Loading history: kept numbers and times, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from uuid import uuid4

import pytest

from journal import (
    ConnectionSettings,
    Database,
    EventIdConflict,
    InvalidEvent,
    append,
    connect,
    current_events,
)
from journal.events import HistoricEvent
from journal.importing import ImportResult, import_events
from tests.fixtures.journal import PAST, count, event, historic, stored, uuid7


@pytest.fixture(params=["asyncpg", "psycopg"])
async def database(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(driver=request.param)) as pool:
        yield pool


async def test_numbers_and_times_are_kept(database: Database) -> None:
    at = datetime(2013, 1, 1, 5, tzinfo=timezone(timedelta(hours=-5)))
    known = historic("a", 2, tags=["x,y"], metadata={"who": "é"}, version=3, event_id=uuid4())

    result = await import_events(database, [historic("a", 1, db_timestamp=at), known, historic("b", 1)])

    assert result == ImportResult(events=3, chunks=1)
    first, second = await stored(database, "a")
    assert (first.seq_nr, first.db_timestamp, first.payload) == (1, at, {"n": 1})
    assert first.event_id.int >> 80 == int(at.timestamp() * 1000)
    assert (second.seq_nr, second.db_timestamp, second.event_id) == (2, known.db_timestamp, known.event_id)
    assert (second.tags, second.metadata, second.version) == (["x,y"], {"who": "é"}, 3)


async def test_chunks_commit_one_by_one_and_report_progress(database: Database) -> None:
    seen: list[int] = []
    visible: list[int] = []

    async def history() -> AsyncIterator[HistoricEvent]:
        for n in range(1, 26):
            visible.append(await count(database))
            yield historic("a", n)

    result = await import_events(database, history(), chunk=10, progress=seen.append)

    assert result == ImportResult(events=25, chunks=3)
    assert seen == [10, 20, 25]
    assert (visible[9], visible[10], visible[20]) == (0, 10, 20)


async def test_nothing_to_import_is_no_chunk(database: Database) -> None:
    assert await import_events(database, []) == ImportResult(0, 0)


async def test_chunk_below_one_is_refused(database: Database) -> None:
    with pytest.raises(ValueError, match="chunk must be at least 1, not 0"):
        await import_events(database, [], chunk=0)


async def test_events_of_a_chunk_may_come_in_any_order(database: Database) -> None:
    await import_events(database, [historic("a", 3), historic("b", 1), historic("a", 1), historic("a", 2)])

    assert [e.seq_nr for e in await stored(database, "a")] == [1, 2, 3]


async def test_sources_of_several_entity_types_come_in_one_chunk(database: Database) -> None:
    ships = [HistoricEvent(f"s{n}", {}, "ship", "Left", seq_nr=1, db_timestamp=PAST) for n in range(5)]

    await import_events(database, [historic("t", 1), *ships, historic("a", 1)])

    assert len([e async for e in current_events(database, "ship")]) == 5
    assert len([e async for e in current_events(database, "plane")]) == 2


async def test_append_goes_on_after_the_imported(database: Database) -> None:
    await import_events(database, [historic("a", 1), historic("a", 2)])

    async with database.transaction() as session:
        (third,) = await append(session, [event("a")], expected_seq_nr=2)

    assert third.seq_nr == 3
    assert third.db_timestamp > PAST + timedelta(days=1)


async def test_import_goes_on_after_the_appended(database: Database) -> None:
    async with database.transaction() as session:
        (first,) = await append(session, [event("a")])

    await import_events(
        database, [historic("a", 2, db_timestamp=first.db_timestamp + timedelta(microseconds=1))]
    )

    assert [e.seq_nr for e in await stored(database, "a")] == [1, 2]


_REFUSED: dict[str, tuple[HistoricEvent, str]] = {
    "seq_nr 0": (historic("a", 0), "source 'a', seq_nr 0: the first seq_nr of a source is 1"),
    "seq_nr negative": (historic("a", -1), "source 'a', seq_nr -1: the first seq_nr"),
    "seq_nr beyond bigint": (
        HistoricEvent("a", {}, "plane", "L", seq_nr=2**63, db_timestamp=PAST),
        "seq_nr 9223372036854775808",
    ),
    "seq_nr not a number": (
        HistoricEvent("a", {}, "plane", "L", seq_nr="1", db_timestamp=PAST),  # type: ignore[arg-type]
        "source 'a', seq_nr '1': seq_nr must be an integer",
    ),
    "seq_nr skipped": (historic("a", 2), "source 'a' has seq_nr 2 where 1 is due"),
    "naive": (
        historic("a", 1, db_timestamp=datetime(2020, 1, 1)),  # noqa: DTZ001
        "source 'a', seq_nr 1: timestamp 2020-01-01 00:00:00 is naive",
    ),
    "no datetime": (historic("a", 1, db_timestamp="2020-01-01"), "must be a datetime, not str"),
    "year 9999": (
        historic("a", 1, db_timestamp=datetime(9999, 1, 1, tzinfo=UTC)),
        "source 'a', seq_nr 1: timestamp 9999-01-01 00:00:00.00:00 is not between the years 1970 and 9998",
    ),
    "before 1970": (
        historic("a", 1, db_timestamp=datetime(1969, 12, 31, tzinfo=UTC)),
        "timestamp 1969-12-31 00:00:00.00:00 is not between",
    ),
    "future": (
        historic("a", 1, db_timestamp=datetime.now(UTC) + timedelta(days=1)),
        "source 'a', seq_nr 1: timestamp .* is in the future",
    ),
    "bad source": (historic("", 1), "source '': source_id must have 1 to 255 characters"),
    "bad payload": (
        HistoricEvent("a", {"x": float("nan")}, "plane", "L", seq_nr=1, db_timestamp=PAST),
        "source 'a': payload is not JSON: NaN",
    ),
    "id from after the event": (
        historic("a", 1, event_id=uuid7(datetime.now(UTC))),
        "carries a time after its event",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("wrong", "message"), _REFUSED.values(), ids=_REFUSED)
async def test_bad_event_is_refused_with_its_whole_chunk(
    database: Database, wrong: HistoricEvent, message: str
) -> None:
    with pytest.raises(InvalidEvent, match=message):
        await import_events(database, [historic("good", 1), wrong])

    assert (await count(database), await count(database, "projections.sources")) == (0, 0)


@pytest.mark.slow
async def test_time_that_does_not_increase_is_refused(database: Database) -> None:
    with pytest.raises(
        InvalidEvent, match=r"source 'a', seq_nr 2: timestamp .* is not after the one before it"
    ):
        await import_events(database, [historic("a", 1), historic("a", 2, seconds=-1)])


async def test_number_that_is_there_twice_is_refused(database: Database) -> None:
    with pytest.raises(InvalidEvent, match="source 'a' has seq_nr 1 where 2 is due"):
        await import_events(database, [historic("a", 1), historic("a", 1, seconds=1)])


async def test_running_twice_is_refused_and_changes_nothing(database: Database) -> None:
    history = [historic("a", n) for n in range(1, 4)]
    await import_events(database, history)

    with pytest.raises(InvalidEvent, match="source 'a' has seq_nr 1 where 4 is due"):
        await import_events(database, history)

    assert await count(database) == 3


async def test_used_event_id_is_refused(database: Database) -> None:
    event_id = uuid4()

    with pytest.raises(EventIdConflict, match=f"seq_nr 1: event_id {event_id} is used already"):
        await import_events(
            database, [historic("a", 1, event_id=event_id), historic("b", 1, event_id=event_id)]
        )
    await import_events(database, [historic("a", 1, event_id=event_id)])
    with pytest.raises(EventIdConflict, match=f"source 'b', seq_nr 1: event_id {event_id} is used already"):
        await import_events(database, [historic("b", 1, event_id=event_id)])


async def test_other_entity_type_is_refused(database: Database) -> None:
    async with database.transaction() as session:
        await append(session, [event("a", entity_type="ship")])

    with pytest.raises(InvalidEvent, match="source 'a' is of entity type 'ship', not 'plane'"):
        await import_events(database, [historic("a", 2)])


async def test_failed_import_goes_on_after_what_the_error_says_is_in(database: Database) -> None:
    history = [historic("a", n) for n in range(1, 31)]
    broken = [*history[:24], historic("a", 26), *history[25:]]

    with pytest.raises(InvalidEvent, match="has seq_nr 26 where 25 is due") as caught:
        await import_events(database, broken, chunk=10)
    (note,) = caught.value.__notes__
    loaded = int(note.split()[0])
    await import_events(database, islice(history, loaded, None), chunk=10)

    assert note == "20 events were imported before the chunk that failed; they stay"
    assert [e.seq_nr for e in await stored(database, "a")] == list(range(1, 31))


@pytest.mark.slow
async def test_equal_times_of_many_sources_are_read_page_by_page(database: Database) -> None:
    await import_events(database, [historic(f"s{n}", 1, db_timestamp=PAST) for n in range(2500)])

    read = [e.source_id async for e in current_events(database, "plane")]

    assert len(read) == len(set(read)) == 2500


async def test_staged_year_10000_is_refused_by_the_database(database: Database) -> None:
    async with database.session() as session:
        await session.begin()
        await session.execute(
            "CREATE TEMPORARY TABLE projections_import (source_id text, entity_type text, event_type text, "
            "payload text, version smallint, metadata text, tags text, event_id uuid, seq_nr bigint, "
            "db_timestamp timestamptz) ON COMMIT DROP"
        )
        await session.execute(
            "INSERT INTO projections_import (source_id, entity_type, event_type, payload, version, seq_nr, "
            "db_timestamp) VALUES ('a', 'p', 'e', '{}', 1, 1, '10000-01-01')"
        )
        with pytest.raises(InvalidEvent, match=r"timestamp 10000-01-01 .* is in the future"):
            await session.execute("SELECT projections._import_events_v1()")
        await session.rollback()


async def test_import_that_fails_leaves_the_session_of_the_pool_usable(dsn: str) -> None:
    async with connect(dsn, ConnectionSettings(max_connections=1)) as single:
        with pytest.raises(InvalidEvent):
            await import_events(single, [historic("a", 2)])
        await import_events(single, [historic("a", 1)])
