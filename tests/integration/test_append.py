"""Appending: numbers, timestamps, conflicts and idempotence, on both drivers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest

from journal import (
    AppendConflict,
    Appended,
    ConnectionSettings,
    Database,
    DatabaseError,
    Event,
    EventIdConflict,
    InvalidEvent,
    RawJson,
    append,
    connect,
    find_event,
    latest_seq_nr,
    read_source,
    slice_of,
)
from tests.fixtures.journal import count, event, pid, stored, until_blocked, uuid7


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


# --- event_id


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
        {"payload": RawJson('{"x": 1}')},
        {"event_type": "Departed"},
        {"version": 2},
        {"tags": ["t"]},
        {"metadata": {}},
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


# --- what the database refuses by itself

_REFUSED = {
    "empty source id": ("'', 'plane', 'Landed', '{}'", "23514"),
    "source id of 10 kB": ("repeat('x', 10240), 'plane', 'Landed', '{}'", "23514"),
    "no source id": ("NULL, 'plane', 'Landed', '{}'", "23502"),
    "empty entity type": ("'a', '', 'Landed', '{}'", "23514"),
    "empty event type": ("'a', 'plane', '', '{}'", "23514"),
    "NUL in a source id": ("E'a\\x00', 'plane', 'Landed', '{}'", "22021"),
    "half a surrogate pair in a source id": ("E'\\uD83D', 'plane', 'Landed', '{}'", "42601"),
    "NUL in a payload's value": ("'a', 'plane', 'Landed', '{\"x\": \"\\u0000\"}'", "22P05"),
    "NUL in a payload's key": ("'a', 'plane', 'Landed', '{\"\\u0000\": 1}'", "22P05"),
    "half a surrogate pair in a payload": ("'a', 'plane', 'Landed', '\"\\ud83d\"'", "22P02"),
    "NUL in metadata": ("'a', 'plane', 'Landed', '{}', '{\"x\": \"\\u0000\"}'", "22P05"),
    "no payload": ("'a', 'plane', 'Landed', NULL", "23502"),
    "payload that is not JSON": ("'a', 'plane', 'Landed', '{x'", "22P02"),
    "NaN": ("'a', 'plane', 'Landed', 'NaN'", "22P02"),
    "payload of 20 MB": ("'a', 'plane', 'Landed', to_json(repeat('x', 20000000))", "23514"),
    "metadata of 20 MB": ("'a', 'plane', 'Landed', '{}', to_json(repeat('x', 20000000))", "23514"),
    "tag that is NULL": ("'a', 'plane', 'Landed', '{}', NULL, ARRAY['x', NULL]", "23514"),
    "version out of bounds": ("'a', 'plane', 'Landed', '{}', p_version => 40000", "22003"),
    "negative expectation": ("'a', 'plane', 'Landed', '{}', p_expected_seq_nr => -1", "PJ001"),
}


@pytest.mark.parametrize(("arguments", "sqlstate"), _REFUSED.values(), ids=_REFUSED)
async def test_plain_sql_refuses(dsn: str, arguments: str, sqlstate: str) -> None:
    import psycopg

    with psycopg.connect(dsn) as connection:
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(f"SELECT projections.append_event_v1({arguments})".encode())
        connection.rollback()
        left = connection.execute("SELECT count(*) FROM projections.sources").fetchone()

    assert caught.value.sqlstate == sqlstate
    assert left == (0,)


async def test_numbers_beyond_a_float_are_json_to_the_database(dsn: str, database: Database) -> None:
    """Python refuses them when it writes; what plain SQL has written can be read."""
    async with database.transaction() as session:
        await session.execute("SELECT projections.append_event_v1('a', 'plane', 'Landed', '[1e400]')")

    assert (await stored(database, "a"))[0].payload_json == "[1e400]"


async def test_event_outside_the_calendar_is_refused_by_the_table(database: Database) -> None:
    for year in ("1969-12-31", "10000-01-01", "infinity", "-infinity"):
        async with database.session() as session:
            with pytest.raises(DatabaseError, match="db_timestamp_between_1970_and_9999"):
                await session.execute(
                    "INSERT INTO projections.events "
                    "(db_timestamp, seq_nr, event_id, slice, version, source_id, "
                    "entity_type, event_type, payload) "
                    f"VALUES ('{year}', 1, gen_random_uuid(), 1, 1, 'a', 'b', 'c', '{{}}')"
                )
