"""Appending: numbers, timestamps and conflicts, on both drivers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest

from journal import (
    AppendConflict,
    Appended,
    ConnectionSettings,
    Database,
    Event,
    InvalidEvent,
    RawJson,
    Session,
    append,
    connect,
    latest_seq_nr,
    read_source,
    slice_of,
)
from tests.fixtures.journal import count, event, pid, stored, until_blocked


@pytest.fixture(params=["asyncpg", "psycopg"])
async def database(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(driver=request.param)) as pool:
        yield pool


async def _append(database: Database, *events: Event, **arguments: Any) -> list[Appended]:
    async with database.transaction() as session:
        return await append(session, events, **arguments)


# --- numbers, slices, timestamps


async def test_events_of_many_sources_get_numbers_in_their_order(database: Database) -> None:
    appended = await _append(database, event("b"), event("a"), event("b"), event("c"), event("b"))

    assert [(a.source_id, a.seq_nr) for a in appended] == [("b", 1), ("a", 1), ("b", 2), ("c", 1), ("b", 3)]
    assert await _append(database) == []


async def test_slice_is_that_of_the_source(database: Database) -> None:
    sources = ["a", "N14228", "ä😀", "x" * 255]

    await _append(database, *map(event, sources))

    assert [(await stored(database, s))[0].slice for s in sources] == [slice_of(s) for s in sources]


async def test_numbers_have_no_gap_after_a_rollback(database: Database) -> None:
    await _append(database, event())
    async with database.session() as session:
        await session.begin()
        await append(session, [event(), event("new")])
        await session.rollback()

    (again,) = await _append(database, event())

    assert again.seq_nr == 2
    async with database.session() as session:
        assert (await latest_seq_nr(session, "a"), await latest_seq_nr(session, "new")) == (2, 0)


async def test_savepoint_gives_its_numbers_back(database: Database) -> None:
    async with database.transaction() as session:
        await append(session, [event()])
        await session.execute("SAVEPOINT one")
        await append(session, [event()])
        await session.execute("ROLLBACK TO SAVEPOINT one")
        (last,) = await append(session, [event()])

    assert last.seq_nr == 2
    assert [e.seq_nr for e in await stored(database, "a")] == [1, 2]


async def test_timestamps_of_a_source_strictly_increase_in_one_append(database: Database) -> None:
    appended = await _append(database, *[event("a") for _ in range(50)], *[event("b") for _ in range(50)])

    times = [a.db_timestamp for a in appended]
    assert {b - a for a, b in pairwise(times[:50])} == {timedelta(microseconds=1)}
    assert times[50:] == sorted(set(times[50:]))
    assert [e.db_timestamp for e in await stored(database, "a")] == times[:50]


async def test_timestamps_strictly_increase_when_the_clock_steps_back(database: Database) -> None:
    await _append(database, event())
    ahead = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    async with database.session() as session:
        await session.execute("UPDATE projections.sources SET db_timestamp = $1", ahead)

    appended = await _append(database, event(), event(), event("b"))

    assert [a.db_timestamp - ahead for a in appended[:2]] == [timedelta(microseconds=n) for n in (1, 2)]
    assert appended[2].db_timestamp < ahead


async def test_events_are_stamped_later_than_their_transaction_starts(database: Database) -> None:
    await _append(database, event("known"))
    async with database.transaction() as session:
        started, now = await clock(session)
        assert started < now

        appended = await append(session, [event("known"), event("new")])

    assert all(one.db_timestamp > now for one in appended)


async def clock(session: Session) -> tuple[datetime, datetime]:
    """When the transaction of a session started, and what time it is."""
    (row,) = await session.fetch("SELECT now() AS started, clock_timestamp() AS now")
    return row["started"], row["now"]


# --- expected_seq_nr


async def test_expected_number_is_that_before_the_append(database: Database) -> None:
    await _append(database, event(), event(), expected_seq_nr=0)

    (third,) = await _append(database, event(), expected_seq_nr=2)

    assert third.seq_nr == 3


@pytest.mark.parametrize("expected", [0, 1, 3, 2**63 - 1])
async def test_wrong_expectation_names_source_expected_and_found(database: Database, expected: int) -> None:
    await _append(database, event(), event())

    with pytest.raises(AppendConflict, match=f"source 'a' is at seq_nr 2, expected {expected}"):
        await _append(database, event(), expected_seq_nr=expected)

    assert len(await stored(database, "a")) == 2


async def test_expectations_of_many_sources_are_a_mapping(database: Database) -> None:
    await _append(database, event("a"), event("b"))

    await _append(database, event("a"), event("b"), event("c"), expected_seq_nr={"a": 1, "c": 0})

    with pytest.raises(AppendConflict, match="source 'b' is at seq_nr 2, expected 1"):
        await _append(database, event("a"), event("b"), expected_seq_nr={"a": 2, "b": 1})
    assert len(await stored(database, "a")) == 2


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        (1, "for 2 sources: pass a mapping"),
        ({"x": 0}, "names source 'x', but no event of it is appended"),
        ({"a": -1}, "of source 'a' is -1"),
        ({"a": 2**63}, "of source 'a' is 9223372036854775808"),
        ({"a": "q"}, "of source 'a' must be a number, not 'q'"),
        ({"a": True}, "of source 'a' must be a number, not True"),
        (True, "must be a number, or a mapping by source_id, not True"),
        ("q", "must be a number, or a mapping by source_id, not 'q'"),
    ],
)
async def test_impossible_expectation_is_refused(database: Database, expected: Any, message: str) -> None:
    with pytest.raises(InvalidEvent, match=message):
        await _append(database, event("a"), event("b"), expected_seq_nr=expected)


async def test_of_two_appenders_with_one_expectation_the_first_wins(database: Database) -> None:
    await _append(database, event())
    async with database.session() as first, database.session() as second:
        await first.begin()
        await second.begin()
        second_pid = await pid(second)
        (won,) = await append(first, [event()], expected_seq_nr=1)
        waiting = asyncio.create_task(append(second, [event()], expected_seq_nr=1))
        await until_blocked(database, [second_pid])
        await first.commit()

        with pytest.raises(AppendConflict, match="is at seq_nr 2, expected 1"):
            await waiting
        await second.rollback()

    assert won.seq_nr == 2
    assert len(await stored(database, "a")) == 2


async def test_second_appender_wins_when_the_first_rolls_back(database: Database) -> None:
    async with database.session() as first, database.session() as second:
        await first.begin()
        await second.begin()
        second_pid = await pid(second)
        await append(first, [event()], expected_seq_nr=0)
        waiting = asyncio.create_task(append(second, [event()], expected_seq_nr=0))
        await until_blocked(database, [second_pid])
        await first.rollback()
        (won,) = await waiting
        await second.commit()

    assert won.seq_nr == 1
    assert [e.event_id for e in await stored(database, "a")] == [won.event_id]


# --- what is stored


async def test_raw_json_is_kept_byte_by_byte(database: Database) -> None:
    texts = [
        '{"b":1.0, "a" : 1,\n"b":1e3}',
        " [1,  2 ] ",
        "1.10",
        '"\\u00e9é😀"',
        "null",
        "12345678901234567890123456789",
    ]

    await _append(database, *(event(payload=RawJson(text), metadata=RawJson(text)) for text in texts))

    found = await stored(database, "a")
    assert [e.payload_json for e in found] == texts
    assert [e.metadata_json for e in found] == texts


async def test_other_entity_type_of_a_source_is_refused(database: Database) -> None:
    event_id = uuid4()
    await _append(database, event(event_id=event_id))

    for wrong in (event(entity_type="ship"), event(entity_type="ship", event_id=event_id)):
        with pytest.raises(InvalidEvent, match="source 'a' is of entity type 'plane', not 'ship'"):
            await _append(database, wrong)
    with pytest.raises(InvalidEvent, match="source 'b' is of entity type 'plane', not 'ship'"):
        await _append(database, event("b"), event("b", entity_type="ship"))

    assert await count(database) == 1


async def test_appenders_in_opposite_orders_do_not_deadlock(database: Database) -> None:
    """Sources that exist and new ones, with event ids and without: all lock in one order."""
    await _append(database, event("a"), event("y"))
    async with database.session() as first, database.session() as second, database.session() as gate:
        await gate.begin()
        await append(gate, [event("a")])
        await first.begin()
        await second.begin()
        pids = [await pid(first), await pid(second)]
        one = asyncio.create_task(append(first, [event(s) for s in ("z", "y", "b", "a")]))
        two = asyncio.create_task(append(second, [event(s, event_id=uuid4()) for s in ("a", "b", "y", "z")]))
        await until_blocked(database, pids)
        await gate.commit()
        for done, session in (
            [(one, first), (two, second)] if await _is_first(one, two) else [(two, second), (one, first)]
        ):
            await done
            await session.commit()

    assert [len(await stored(database, s)) for s in ("a", "b", "y", "z")] == [4, 2, 3, 2]


async def _is_first(one: asyncio.Task, two: asyncio.Task) -> bool:
    done, _ = await asyncio.wait({one, two}, return_when=asyncio.FIRST_COMPLETED)
    return one in done


@pytest.mark.slow
async def test_thousands_of_events_over_many_sources_go_in_one_call(database: Database) -> None:
    appended = await _append(database, *(event(f"plane-{n % 700}") for n in range(5000)))

    assert sum(a.seq_nr for a in appended) == sum(n // 700 + 1 for n in range(5000))
    assert await count(database) == 5000


async def test_source_is_read_by_both_ends(database: Database) -> None:
    await _append(database, *(event() for _ in range(5)))

    async with database.session() as session:
        up = [e.seq_nr async for e in read_source(session, "a", first=2, last=4)]
        down = [e.seq_nr async for e in read_source(session, "a", first=2, backwards=True)]

    assert (up, down) == ([2, 3, 4], [5, 4, 3, 2])
