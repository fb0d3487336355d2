"""Readers of the journal see events in the newest version, whatever version was stored."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from pydantic import BaseModel

from journal import (
    Database,
    Event,
    EventEnvelope,
    InvalidValue,
    RawJson,
    UnknownEventType,
    append,
    current_events,
    event_type,
    load,
    read_source,
)
from offsets import live_events
from tests.fixtures.projections import execute


@event_type("versions.counted", version=2, upcast={1: lambda old: {"count": old["n"] + 1}})
class Counted(BaseModel):
    count: int


class Noted(BaseModel):
    text: str


def counted(source_id: str, n: int) -> list[Event]:
    """An event of the first version, and one of the second with the same count."""
    old = Event(source_id, RawJson(f'{{"n": {n}}}'), "versions", "versions.counted", 1)
    return [old, Event(source_id, Counted(count=n + 1), "versions")]


@pytest.fixture
async def source(database: Database) -> str:
    async with database.transaction() as session:
        await append(session, [*counted("v-1", 1), Event("v-1", Noted(text="?"), "versions")])
    return "v-1"


async def test_envelopes_have_the_newest_payload(database: Database, source: str) -> None:
    async def seen(envelopes: AsyncIterator[EventEnvelope]) -> list[object]:
        found: list[object] = []
        async for envelope in envelopes:
            found.append(envelope.payload)
            if len(found) == 3:
                break
        return found

    async with database.session() as session:
        by_source = await seen(read_source(session, source))
    assert by_source == [{"count": 2}, {"count": 2}, {"text": "?"}]
    assert await seen(current_events(database, "versions")) == by_source
    assert (
        await seen(live_events(database, "versions", start=(await _first(database)).db_timestamp))
        == by_source
    )


async def _first(database: Database) -> EventEnvelope:
    return await anext(aiter(current_events(database, "versions")))


async def test_a_source_is_read_as_models(database: Database, source: str) -> None:
    async with database.session() as session:
        some = [event async for event in read_source(session, source, Counted)]
        both = [event async for event in read_source(session, source, Counted, Noted, backwards=True)]
    assert some == [Counted(count=2), Counted(count=2)]
    assert both == [Noted(text="?"), Counted(count=2), Counted(count=2)]


def total(state: int, event: Counted | Noted) -> int:
    return state + (event.count if isinstance(event, Counted) else 100)


async def test_a_state_is_loaded_with_the_number_it_stands_at(database: Database, source: str) -> None:
    async with database.transaction() as session:
        assert await load(session, source, total, 0, Counted) == (4, 3)
        loaded = await load(session, source, total, 0, Counted, Noted)
        assert loaded == (104, 3)
        assert await load(session, source, total, 50, Noted, after=2) == (150, 3)
        assert await load(session, source, total, 7, after=3) == (7, 3)
        assert await load(session, "unknown", total, 7) == (7, 0)
        await append(session, counted(source, 1), expected_seq_nr=loaded.seq_nr)
        with pytest.raises(UnknownEventType, match="'Noted' of source 'v-1', seq_nr 3"):
            await load(session, source, total, 0)


async def test_a_state_is_not_loaded_from_a_part_of_its_events(database: Database, source: str) -> None:
    await execute(database, "DELETE FROM projections.events WHERE source_id = 'v-1' AND seq_nr = 2")
    async with database.session() as session:
        with pytest.raises(InvalidValue, match="no longer has the events 2 to 2 of source 'v-1'"):
            await load(session, source, total, 0, Counted)
    await execute(database, "DELETE FROM projections.events WHERE source_id = 'v-1'")
    async with database.session() as session:
        with pytest.raises(InvalidValue, match="no longer has the events 1 to 3 of source 'v-1'"):
            await load(session, source, total, 0, Counted)
