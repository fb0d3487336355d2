"""History that is imported while a subscription catches up: it comes where it lies before the subscription."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from random import Random

import pytest

from journal import Database, HistoricEvent
from journal.importing import import_events
from projections.subscriptions.catching_up import CatchingUp
from tests.fixtures.journal import PAST
from tests.fixtures.matching import fetchval, match, matching
from tests.fixtures.past import (
    ALL_CAUGHT_UP,
    catch_up,
    from_the_past,
    in_order,
    matched_by,
)
from tests.fixtures.projections import settings, until

MINUTE = timedelta(minutes=1)
MATCHED_OF = "SELECT count(*) FROM projections.matches WHERE source_id = $1"


def of(source: str, numbers: Sequence[int], start: float = 0, kind: str = "plane") -> list[HistoricEvent]:
    """Events of a source, a minute between them, the first so many minutes after the start of 2020."""
    return [
        HistoricEvent(source, {}, kind, "t", seq_nr=number, db_timestamp=PAST + (start + place) * MINUTE)
        for place, number in enumerate(numbers)
    ]


async def begun(database: Database, number: int) -> CatchingUp:
    """A subscription that catches up with that many events, and has had a page of 2000."""
    await import_events(database, of("old", range(1, number + 1)))
    await match(database)
    await from_the_past(database, topics=["t"])
    history = CatchingUp(timedelta(milliseconds=1))
    async with database.session() as session:
        await history.go_on(session)
    assert await fetchval(database, MATCHED_OF, "old") == 2000
    return history


@pytest.mark.slow
async def test_behind_the_place_where_it_stands_nothing_comes_and_before_it_all(database: Database) -> None:
    await begun(database, 3000)
    await import_events(database, of("behind", range(1, 11)))
    await import_events(database, of("across", range(1, 21), start=1989.5))
    await import_events(database, of("before", range(1, 11), start=2500))
    await import_events(database, of("later", range(1, 11), start=10_000))
    await catch_up(database)

    found = await matched_by(database, "g")
    in_order(found)
    assert [number for source, number in found if source == "old"] == [*range(1, 3001)]
    assert [number for source, number in found if source == "across"] == [*range(11, 21)]
    assert [event for event in found if event[0] == "before"] == [("before", n) for n in range(1, 11)]
    assert [event for event in found if event[0] == "later"] == [("later", n) for n in range(1, 11)]
    assert [event for event in found if event[0] == "behind"] == []


async def test_what_was_imported_before_comes_also_where_the_log_has_not_passed_it(
    database: Database,
) -> None:
    await import_events(database, of("first", range(1, 11)))
    await from_the_past(database, topics=["t"])
    await import_events(database, of("second", range(1, 11)))
    await catch_up(database)

    found = await matched_by(database, "g")
    in_order(found)
    assert len(found) == 20


@pytest.mark.slow
async def test_a_source_that_grows_by_imports_and_appends(database: Database) -> None:
    history = await begun(database, 3000)
    await import_events(database, of("old", range(3001, 4001), start=3000))
    async with database.session() as session:
        await history.go_on(session)
    await import_events(database, of("old", range(4001, 5001), start=4000))
    await catch_up(database)

    assert await matched_by(database, "g") == [("old", number) for number in range(1, 5001)]


@pytest.mark.slow
async def test_one_that_has_caught_up_gets_none(database: Database) -> None:
    await begun(database, 2001)
    await catch_up(database)
    await import_events(database, of("after", range(1, 11), start=5000))
    await import_events(database, of("ship", range(1, 11), start=5000, kind="ship"))
    await match(database)

    assert len(await matched_by(database, "g")) == 2001


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_beside_a_worker_each_event_comes_once_at_most_and_all_that_were_before(
    database: Database, seed: int
) -> None:
    choose = Random(seed)
    await import_events(database, of("old", range(1, 9001)))
    async with matching(database, 2, settings=settings(save_horizon_every=timedelta(milliseconds=20))):
        await from_the_past(database, topics=["t"])
        for number in range(8):
            start = choose.randrange(9000)
            await import_events(database, of(f"new{number}", range(1, 301), start=start))
            await asyncio.sleep(choose.random() / 10)
        await until(database, ALL_CAUGHT_UP)

    found = await matched_by(database, "g")
    in_order(found)
    assert [number for source, number in found if source == "old"] == [*range(1, 9001)]
    for number in range(8):
        came = [seq_nr for source, seq_nr in found if source == f"new{number}"]
        assert came == [*range(301 - len(came), 301)]  # what lies behind is missing, and nothing after it
