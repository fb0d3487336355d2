"""The same event again is the same append: idempotence by event_id, on both drivers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from journal import (
    Appended,
    ConnectionSettings,
    Database,
    Event,
    EventIdConflict,
    InvalidEvent,
    RawJson,
    append,
    connect,
    find_event,
)
from tests.fixtures.journal import count, event, pid, stored, until_blocked, uuid7


@pytest.fixture(params=["asyncpg", "psycopg"])
async def database(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(driver=request.param)) as pool:
        yield pool


async def _append(database: Database, *events: Event, **arguments: Any) -> list[Appended]:
    async with database.transaction() as session:
        return await append(session, events, **arguments)


@pytest.mark.parametrize(
    "event_id",
    [
        uuid4(),
        UUID(int=0),
        UUID(int=2**128 - 1),
        uuid7(datetime.now(UTC)),
        UUID("c232ab00-9414-11ec-b3c8-9f6bdeced846"),
    ],
)
async def test_same_event_again_returns_the_first_result(database: Database, event_id: UUID) -> None:
    again = event(payload={"x": 1.5}, tags=["t"], metadata={"m": None}, event_id=event_id)
    (first,) = await _append(database, again)
    await _append(database, event())

    (second,) = await _append(database, again, expected_seq_nr=0)

    assert second == first
    assert first.event_id == event_id
    assert len(await stored(database, "a")) == 2


async def test_known_and_new_events_mix_in_one_append(database: Database) -> None:
    known = event(event_id=uuid4())
    (first,) = await _append(database, known)

    appended = await _append(database, event(), known, event("b"), event(event_id=uuid4()))

    assert [(a.source_id, a.seq_nr) for a in appended] == [("a", 2), ("a", 1), ("b", 1), ("a", 3)]
    assert appended[1] == first


async def test_what_is_stored_already_takes_no_number_and_no_time(database: Database) -> None:
    """A source stands after a repeated append as if only what is new had been appended."""
    old, last = event(event_id=uuid4()), event("b", event_id=uuid4())
    await _append(database, old, event(), last, event("c"))
    before = await _sources(database)

    await _append(database, last, old)

    assert await _sources(database) == before
    new = await _append(database, old, event(), last, event("d"), event())
    assert [(a.source_id, a.seq_nr) for a in new] == [("a", 1), ("a", 3), ("b", 1), ("d", 1), ("a", 4)]
    stands = {(a.source_id, a.seq_nr, a.db_timestamp) for a in (new[4], new[3])}
    assert await _sources(database) == {row for row in before if row[0] != "a"} | stands


async def _sources(database: Database) -> set[tuple[str, int, datetime]]:
    async with database.session() as session:
        rows = await session.fetch("SELECT source_id, seq_nr, db_timestamp FROM projections.sources")
    return {(row["source_id"], row["seq_nr"], row["db_timestamp"]) for row in rows}


async def test_time_of_a_source_stays_where_its_last_event_is_gone(database: Database) -> None:
    """Dropped by force before older ones: the time of the source may be later then, and is never earlier."""
    old = event(event_id=uuid4())
    await _append(database, old, event())
    async with database.session() as session:
        await session.execute("DELETE FROM projections.events WHERE seq_nr = 2")
    ((_, _, before),) = await _sources(database)

    await _append(database, old)

    ((_, seq_nr, after),) = await _sources(database)
    assert seq_nr == 2
    assert after >= before


async def test_same_event_in_one_transaction_is_appended_once(database: Database) -> None:
    again = event(event_id=uuid4())
    async with database.transaction() as session:
        first = await append(session, [again])
        second = await append(session, [again])

    assert first == second
    assert len(await stored(database, "a")) == 1


async def test_same_event_from_two_connections_is_appended_once(database: Database) -> None:
    again = event(event_id=uuid7(datetime.now(UTC)))
    async with database.session() as first, database.session() as second:
        await first.begin()
        await second.begin()
        second_pid = await pid(second)
        one = await append(first, [again])
        waiting = asyncio.create_task(append(second, [again]))
        await until_blocked(database, [second_pid])
        await first.commit()
        two = await waiting
        await second.commit()

    assert one == two
    assert len(await stored(database, "a")) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"payload": {"x": 2}},
        {"payload": RawJson('{"x": "1"}')},
        {"event_type": "Departed"},
        {"version": 2},
        {"tags": ["t"]},
        {"metadata": {"by": "another"}},
        {"source_id": "b"},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_id_with_other_content_is_an_error(database: Database, other: dict[str, Any]) -> None:
    event_id = uuid4()
    await _append(database, event(payload={"x": 1}, event_id=event_id))

    with pytest.raises(EventIdConflict, match=f"event_id {event_id} is stored with other content"):
        await _append(database, event(**{"payload": {"x": 1}, "event_id": event_id, **other}))

    assert await count(database) == 1


async def test_id_twice_in_one_append_is_an_error(database: Database) -> None:
    event_id = uuid4()

    with pytest.raises(EventIdConflict, match=f"event_id {event_id} is used twice in one append"):
        await _append(database, event(event_id=event_id), event(event_id=event_id))


async def test_id_from_more_than_a_day_ahead_is_refused(database: Database) -> None:
    now = datetime.now(UTC)
    await _append(database, event(event_id=uuid7(now + timedelta(hours=23))))

    with pytest.raises(InvalidEvent, match="more than a day ahead of the database"):
        await _append(database, event(event_id=uuid7(now + timedelta(hours=25))))


@pytest.mark.slow
async def test_id_that_is_a_day_ahead_no_more_when_the_locks_are_had_stands_for_one_event(
    database: Database,
) -> None:
    """Its event would have the time of before, and would not be found again: it is a day older than the id."""
    at = datetime.now(UTC) + timedelta(days=1, seconds=1)
    ahead = event(event_id=uuid7(at))
    async with database.session() as first, database.session() as second:
        await first.begin()
        await second.begin()
        second_pid = await pid(second)
        await append(first, [event("b")])
        waiting = asyncio.create_task(append(second, [ahead, event("b")]))
        await until_blocked(database, [second_pid])
        while datetime.now(UTC) < at - timedelta(days=1):
            await asyncio.sleep(0.01)
        await first.commit()
        with suppress(
            InvalidEvent
        ):  # unless the second was so late that it was a day ahead no more when it began
            await waiting
            await second.commit()
        await second.rollback()

    (once,) = await _append(database, ahead)

    assert [envelope.event_id for envelope in await stored(database, "a")] == [ahead.event_id]
    assert (await _append(database, ahead)) == [once]


async def test_id_that_is_no_uuid_is_refused(database: Database) -> None:
    with pytest.raises(InvalidEvent, match="source 'a': event_id must be a UUID, not 'x'"):
        await _append(database, event(event_id="x"))


async def test_made_ids_carry_the_time_of_their_event(database: Database) -> None:
    (one,) = await _append(database, event())

    assert (one.event_id.int >> 76) & 15 == 7
    assert one.event_id.int >> 80 == int(one.db_timestamp.timestamp() * 1000)
    async with database.session() as session:
        found = await find_event(session, one.event_id)
        assert found is not None
        assert (found.source_id, found.seq_nr) == ("a", 1)
        assert await find_event(session, uuid4()) is None
