"""A database that goes back in time while a subscription catches up with the past: all of it comes, each event once."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from random import Random

import pytest

from journal import Database
from projections.subscriptions import Consumer, rewind_group
from projections.subscriptions.catching_up import CatchingUp, history_progress
from tests.fixtures.going_back import go_back, remember
from tests.fixtures.matching import fetchval, happened, match, matching
from tests.fixtures.past import (
    ALL_CAUGHT_UP,
    append_many,
    catch_up,
    from_the_past,
    in_order,
    matched_by,
    until_settled,
)
from tests.fixtures.projections import until
from tests.fixtures.subscriptions import Seen, consuming, quick, until_handled

EVENTS = "SELECT array_agg(source_id || '/' || seq_nr) FROM projections.events WHERE event_type = 't'"


async def settled(database: Database) -> None:
    await match(database)
    await until_settled(database)


async def page(database: Database, history: CatchingUp) -> int:
    """Match a page of each subscription; returns how many events they have looked at."""
    async with database.session() as session:
        await history.go_on(session)
        return sum(one.events for one in await history_progress(session))


async def all_once(database: Database, group: str = "g") -> None:
    found = await matched_by(database, group)
    in_order(found)
    assert sorted(f"{source}/{number}" for source, number in found) == sorted(
        await fetchval(database, EVENTS)
    )


def reading(database: Database, seen: Seen) -> Consumer:
    made = Consumer(database, "g", settings=quick())
    made.handle(seen, name="h", topics=["t"], start="beginning")
    return made


class TestOnePageAfterTheOther:
    @pytest.fixture
    def history(self) -> CatchingUp:
        return CatchingUp(timedelta(milliseconds=1))

    @pytest.mark.slow
    async def test_pages_that_were_lost_are_matched_again(
        self, database: Database, history: CatchingUp
    ) -> None:
        await append_many(database, 5000)
        await settled(database)
        await from_the_past(database)
        assert await page(database, history) == 2000
        await remember(database)
        assert await page(database, history) == 4000
        await go_back(database)
        await happened(database, source="new")
        assert await page(database, history) == 4000
        await catch_up(database)

        await all_once(database)

    @pytest.mark.slow
    async def test_the_end_that_was_lost_comes_again(self, database: Database, history: CatchingUp) -> None:
        await append_many(database, 3000)
        await settled(database)
        await from_the_past(database)
        assert await page(database, history) == 2000
        await remember(database)
        await catch_up(database)
        await happened(database, source="lost")
        await match(database)
        await go_back(database)
        assert not await fetchval(database, ALL_CAUGHT_UP)
        for _ in range(3):
            await happened(database, source="new")
        await catch_up(database)

        await all_once(database)

    async def test_a_page_that_was_read_of_a_lost_history_matches_nothing_else(
        self, database: Database
    ) -> None:
        await append_many(database, 14)
        await settled(database)
        await remember(database)
        lost = await from_the_past(database, topics=["t"])
        pages, match_page = (
            "SELECT * FROM projections._next_history_v1($1, 10)",
            ("SELECT projections._match_history_v1($1, $2, $3, $4)"),
        )
        async with database.session() as session:
            await session.fetch("SELECT * FROM projections._begin_history_v1()")
            (first, *rest) = await session.fetch(pages, lost)
            known = lost, first["source_id"], first["seq_nr"], len(rest) + 1
            assert await session.fetchval(match_page, *known) == 10
            await go_back(database)
            # The number is another's, who starts later: at an event that the page does not begin with.
            start: datetime = await session.fetchval(
                "SELECT db_timestamp FROM projections.events ORDER BY 1 OFFSET 7"
            )
            assert await from_the_past(database, start, group="other", topics=["t"]) == lost
            assert await session.fetchval(match_page, *known) == 0
            await session.fetch("SELECT * FROM projections._begin_history_v1()")
            assert await session.fetchval(match_page, *known) == 0
        await catch_up(database)

        later = await fetchval(database, EVENTS.replace("WHERE", "WHERE db_timestamp >= $1 AND"), start)
        assert sorted(
            f"{source}/{number}" for source, number in await matched_by(database, "other")
        ) == sorted(later)

    @pytest.mark.slow
    async def test_a_rewind_that_was_lost_is_none(self, database: Database) -> None:
        await append_many(database, 14)
        await from_the_past(database)
        await catch_up(database)
        await remember(database)
        async with database.transaction() as session:
            await rewind_group(session, "g", "beginning")
        await settled(database)
        await go_back(database)
        await catch_up(database)
        await all_once(database)

        async with database.transaction() as session:
            await rewind_group(session, "g", "beginning")
        await catch_up(database)
        assert Counter(await matched_by(database, "g")).most_common()[-1][1] == 2


UNMATCHED = """
EXISTS (SELECT FROM projections.events AS e WHERE e.event_type = 't' AND NOT EXISTS (
    SELECT FROM projections.matches AS m WHERE m.source_id = e.source_id AND m.seq_nr = e.seq_nr
))
"""


async def at_once(_: Database) -> None:
    """Wait for nothing."""


async def until_all_matched(database: Database) -> None:
    """Each range of matching has its own pace: that the last event has matched says nothing of those before."""
    await until(database, f"{ALL_CAUGHT_UP} AND NOT {UNMATCHED}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_beside_a_worker_that_matches_and_a_consumer(database: Database, seed: int) -> None:
    """It goes back whatever they are at: while they begin with what is new, or when that is matched, or handled."""
    choose, seen = Random(seed), Seen()
    steps = (at_once, until_all_matched, until_handled)
    # It begins a second before it is there, however long that takes: the events are to come after it.
    await fetchval(database, "SELECT projections._begin_matching_v1('{0,512}')")
    await append_many(database, 2500)
    async with matching(database, 2):
        await until(database, "SELECT count(*) = 7 FROM projections.source_offsets")
        async with consuming(database, reading(database, seen)):
            await remember(database)
            for number in range(4):
                await happened(database, source=f"new{number}")
                await choose.choice(steps)(database)
                await go_back(database)
                if choose.random() < 0.5:
                    await append_many(database, 7)
                    await choose.choice(steps)(database)
                    await remember(database)
            await happened(database, source="last")
            await until_all_matched(database)
            await until_handled(database)

    await all_once(database)
    assert {f"{source}/{number}" for source, number in seen.events} >= set(await fetchval(database, EVENTS))
