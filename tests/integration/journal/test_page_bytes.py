"""A page of events is bounded in bytes, whoever reads it, and says whether more follows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from journal import (
    ALL_SLICES,
    BEGINNING,
    Database,
    Event,
    EventEnvelope,
    Position,
    RawJson,
    SliceReader,
    append,
    read_source,
)
from offsets import live_events
from projections.subscriptions import subscribe
from projections.subscriptions.reading import settled_matches
from projections.webhooks.claims import Room, claim
from tests.fixtures.projections import (
    caught_up,
    each_once,
    effects,
    execute,
    recording,
    running,
    settings,
    until_effects,
)
from tests.fixtures.subscriptions import match_all, read_next
from tests.fixtures.webhooks import MARGIN, deliver_events, endpoint

MIB = 2**20
END = datetime(9998, 1, 1, tzinfo=UTC)
EFFECTS = "CREATE TABLE effects (n bigserial, source_id text, seq_nr bigint)"


def heavy(size: int, *, compressible: bool = True) -> RawJson:
    """A payload of so many bytes that pydantic reads as Happened."""
    pad = "x" * size if compressible else random.Random(size).randbytes(size // 2).hex()
    return RawJson(f'{{"n": 1, "pad": "{pad}"}}')


async def happen(database: Database, source_id: str, *payloads: RawJson) -> None:
    async with database.transaction() as session:
        await append(session, [Event(source_id, payload, "plane", "Happened") for payload in payloads])


async def pages(database: Database, reader: SliceReader) -> list[Sequence[EventEnvelope]]:
    found: list[Sequence[EventEnvelope]] = []
    position, more = Position.before(BEGINNING), True
    async with database.session() as session:
        while more:
            page = await reader.events(session, position, END)
            found.append(page)
            more = page.more
            position = page[-1].position if page else position
    return found


@pytest.mark.slow
async def test_a_page_ends_with_the_event_that_makes_it_large_enough_and_says_so(database: Database) -> None:
    await happen(database, "a", *[heavy(3 * MIB, compressible=False)] * 5)

    found = await pages(database, SliceReader("plane", ALL_SLICES, page_bytes=5 * MIB))

    assert [[one.seq_nr for one in page] for page in found] == [[1, 2], [3, 4], [5]]


@pytest.mark.slow
async def test_a_page_of_what_is_compressed_is_bounded_however_well_that_went(database: Database) -> None:
    await happen(database, "a", *[heavy(3 * MIB)] * 10)  # a single character: no JSON compresses better

    found = await pages(database, SliceReader("plane", ALL_SLICES, page_bytes=MIB))

    assert [one.seq_nr for page in found for one in page] == list(range(1, 11))
    assert max(sum(len(one.payload_json) for one in page) for page in found) < 12 * MIB


async def test_a_page_that_is_full_of_rows_says_so_and_one_that_is_not_does_not(database: Database) -> None:
    await happen(database, "a", *[heavy(10)] * 5)

    assert list(map(len, await pages(database, SliceReader("plane", ALL_SLICES, 2)))) == [2, 2, 1]
    assert list(map(len, await pages(database, SliceReader("plane", ALL_SLICES, 5)))) == [5, 0]
    assert list(map(len, await pages(database, SliceReader("plane", ALL_SLICES)))) == [5]


@pytest.mark.slow
async def test_the_largest_event_is_a_page_by_itself(database: Database) -> None:
    largest = heavy(16 * MIB - 20)
    await happen(database, "a", heavy(10), largest, heavy(10))

    found = await pages(database, SliceReader("plane", ALL_SLICES, page_bytes=1))

    assert [[one.seq_nr for one in page] for page in found] == [[1], [2], [3], []]
    assert found[1][0].payload_json == largest


@pytest.mark.slow
@pytest.mark.parametrize("backwards", [True, False])
async def test_a_source_is_read_whole_over_pages_that_its_bytes_cut(
    database: Database, *, backwards: bool
) -> None:
    await happen(database, "a", *[heavy(6 * MIB)] * 5, heavy(10))

    async with database.session() as session:
        found = [e.seq_nr async for e in read_source(session, "a", backwards=backwards)]

    assert found == sorted(range(1, 7), reverse=backwards)


@pytest.mark.slow
async def test_what_is_loaded_by_key_comes_in_pages_until_no_key_is_left(database: Database) -> None:
    await happen(database, "a", *[heavy(3 * MIB, compressible=False)] * 4)
    await happen(database, "b", heavy(3 * MIB, compressible=False))
    reader = SliceReader("plane", ALL_SLICES, page_bytes=5 * MIB)
    found: list[list[tuple[str, int]]] = []

    async with database.session() as session:
        keys = await reader.keys(session, Position.before(BEGINNING), END)
        await session.execute("DELETE FROM projections.events WHERE source_id = 'a' AND seq_nr = 2")
        left: Sequence[object] = keys
        while left:
            page, left = await reader.load(session, left)  # type: ignore[arg-type]
            found.append([(one.source_id, one.seq_nr) for one in page])

    assert found == [[("a", 1), ("a", 3)], [("a", 4), ("b", 1)]]


@pytest.mark.slow
async def test_a_projection_handles_all_of_a_log_that_pages_cut_by_their_bytes(database: Database) -> None:
    await execute(database, EFFECTS)
    await happen(database, "a", *[heavy(MIB)] * 5, *[heavy(10)] * 5, *[heavy(MIB)] * 5)

    await caught_up(database, recording(), settings=settings(page_bytes=2 * MIB))

    each_once(await effects(database), a=15)


async def test_late_events_are_handled_in_pages_that_their_bytes_cut(database: Database) -> None:
    await execute(database, EFFECTS)
    async with database.session() as late:
        await late.begin()
        await append(late, [Event("late", heavy(MIB), "plane", "Happened")] * 5)
        await happen(database, "a", heavy(10))
        async with running(database, recording(), settings=settings(page_bytes=2 * MIB)):
            await until_effects(database, 1)
            await late.commit()
            await until_effects(database, 6)

    each_once(await effects(database), a=1, late=5)


@pytest.mark.slow
async def test_who_reads_live_gets_late_events_that_do_not_fit_into_a_page(database: Database) -> None:
    found: list[tuple[str, int]] = []
    async with database.session() as late:
        await late.begin()
        await append(late, [Event("late", heavy(7 * MIB), "plane", "Happened")] * 5)
        await happen(database, "a", heavy(10))
        async for envelope in live_events(database, "plane", start=BEGINNING):
            found.append((envelope.source_id, envelope.seq_nr))
            if envelope.source_id == "a" and envelope.seq_nr == 1:
                await late.commit()
                await happen(database, "a", heavy(10))
            if len(found) == 7:
                break

    assert sorted(found) == [("a", 1), ("a", 2), *(("late", n) for n in range(1, 6))]


@pytest.mark.slow
async def test_matches_of_a_group_come_in_pages_that_their_bytes_cut(database: Database) -> None:
    async with database.session() as session:
        await subscribe(session, "g")
    await happen(database, "a", *[heavy(3 * MIB, compressible=False)] * 5)
    await match_all(database)
    found: list[list[int]] = []
    after, more = 0, True

    async with database.session() as session:
        await session.execute("DELETE FROM projections.events WHERE seq_nr = 1")  # its match has no event
        until = await settled_matches(session)
        while more:
            page = await read_next(session, "g", after=after, until=until, limit=100, page_bytes=5 * MIB)
            found.append([match.match_id for match in page])
            after, more = found[-1][-1] if page else after, page.more

    assert list(map(len, found)) == [3, 2, 0]


async def test_claimed_deliveries_carry_no_more_than_they_may_but_one_at_least(database: Database) -> None:
    await endpoint(database, "ep_1")
    await deliver_events(database, "ep_1", 5)
    await execute(database, "UPDATE projections.webhook_events SET data = to_json(repeat('x', $1))", 3 * MIB)
    taken: list[int] = []

    async with database.session() as session:
        while claimed := await claim(session, 100, MARGIN, Room(100, 5 * MIB if taken else 1)):
            taken.append(len(claimed))

    assert taken == [1, 2, 2]
