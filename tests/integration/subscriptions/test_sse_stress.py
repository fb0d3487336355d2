"""Many at once: matching that commits late, rolls back and overtakes, clients that go and come again anywhere."""

from __future__ import annotations

import asyncio
import random

import pytest

from journal import Database
from tests.fixtures.sse import asked, streaming

MATCH = """
SELECT projections._match_log_v1(array_agg(e.entity_type), array_agg(e.source_id), array_agg(e.seq_nr),
    array_agg(e.db_timestamp), array_agg(e.slice), array_agg(e.event_type))
FROM projections.events AS e WHERE e.source_id = $1 AND e.seq_nr BETWEEN $2 AND $3
"""
APPEND = """
SELECT projections.append_events_v1(
    array_agg($1::text), array_agg('plane'::text), array_agg('Landed'::text), array_agg('{}'::text))
FROM generate_series(1, $2)
"""


async def match(database: Database, source_id: str, number: int, dice: random.Random) -> None:
    """Append and match so many events of a source, in transactions that end some time, one way or the other."""
    done = 0
    async with database.session() as session:
        await session.execute(APPEND, source_id, number)
        while done < number:
            last = min(number, done + dice.randint(1, 5))
            await session.begin()
            await session.execute(MATCH, source_id, done + 1, last)
            for _ in range(dice.choice([0, 0, 1, 30])):
                await session.fetchval("SELECT 1")  # others commit meanwhile
            if dice.random() < 0.2:
                await session.rollback()
            else:
                await session.commit()
                done = last


async def follow(ports: list[int], last_id: str, number: int, dice: random.Random) -> list[tuple[str, int]]:
    """Take so many events, over connections to any of the servers, each for a while."""
    places: list[tuple[str, int]] = []
    while len(places) < number:
        async with asked(dice.choice(ports), last_id=last_id) as client:
            places += await client.places(min(dice.randint(1, 40), number - len(places)))
        assert client.last_id is not None
        last_id = client.last_id
    return places


@pytest.mark.slow
@pytest.mark.daily(1)
@pytest.mark.parametrize("seed", range(3))
async def test_every_client_gets_every_event_once_and_those_of_a_source_in_order(
    database: Database, seed: int
) -> None:
    sources = [f"s{number}" for number in range(4)]
    async with streaming(database) as (_, one), streaming(database) as (_, other):
        async with asked(one) as client:
            last_id = (await client.block()).id or ""

        matching = [match(database, source, 60, random.Random(f"{seed} {source}")) for source in sources]
        following = [follow([one, other], last_id, 240, random.Random(f"{seed} {n}")) for n in range(4)]
        async with asyncio.timeout(300):
            *_, a, b, c, d = await asyncio.gather(*matching, *following)

    assert a == b == c == d
    for source in sources:
        assert [seq_nr for found, seq_nr in a if found == source] == list(range(1, 61))
