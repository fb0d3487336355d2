"""The lag of a projection whose journal is in another database is what the database would tell of the same state."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

import offsets
from journal import Database, Log, slice_of, slice_ranges
from offsets import WrongJournal
from projections.monitoring import projection_lag, projection_lags
from tests.fixtures.projections import happen

SOURCES = [f"{number * 7919:06x} {number}" for number in range(60)]


async def some_state(database: Database, choices: random.Random) -> None:
    """A projection of four ranges, which has handled some of what is there, and an import that it has not read."""
    for _ in range(8):
        await happen(database, *choices.choices(SOURCES, k=20))
    async with database.transaction() as session:
        ranges = slice_ranges(4)
        number = await offsets.register(session, "p", "plane", ranges)
        events = await session.fetch(
            "SELECT source_id, seq_nr, slice, db_timestamp FROM projections.events ORDER BY db_timestamp, source_id"
        )
        for one in ranges:
            inside = [e for e in events if one.min_slice <= e["slice"] <= one.max_slice]
            horizon = choices.choice(inside)["db_timestamp"]
            handled = {e["source_id"]: e for e in inside if e["db_timestamp"] < horizon}
            for source_id in choices.sample(sorted({e["source_id"] for e in inside}), 3):
                last = choices.choice([e for e in inside if e["source_id"] == source_id])
                if source_id not in handled or handled[source_id]["seq_nr"] < last["seq_nr"]:
                    handled[source_id] = last
            for e in handled.values():
                await session.execute(
                    "INSERT INTO projections.source_offsets VALUES ($1, $2, $3, $4, $5)",
                    number, e["source_id"], e["slice"], e["seq_nr"], e["db_timestamp"],
                )  # fmt: skip
            until = max((e["db_timestamp"] for e in handled.values()), default=horizon)
            await session.execute(
                "UPDATE projections.projection_ranges SET horizon = $2, handled_until = $3 WHERE min_slice = $1",
                one.min_slice, horizon, until,
            )  # fmt: skip
        for source_id in choices.sample(SOURCES, 4):
            await session.execute(
                "SELECT projections._park_source_v1($1, $2, $3, 1, 'Happened', 'x', 1)",
                number, source_id, slice_of(source_id),
            )  # fmt: skip
        if choices.random() < 0.5:
            await session.execute(
                "INSERT INTO projections.imports (entity_type, from_timestamp, events) VALUES ('plane', $1, 1)",
                events[len(events) // 2]["db_timestamp"] - timedelta(milliseconds=1),
            )


@pytest.mark.daily(3)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("by_slice", [True, False], ids=["slices", "ranges"])
async def test_both_tell_the_same(database: Database, seed: int, by_slice: bool) -> None:
    await some_state(database, random.Random(seed))
    async with database.session() as session:
        (here,) = await projection_lags(session, by_slice=by_slice)
        await session.execute("UPDATE projections.projections SET journal = 'journal'")
        (elsewhere,) = await projection_lags(session, by_slice=by_slice, journal=Log(database))

    assert here.backlog > 0
    assert elsewhere.unhandled.keys() == here.unhandled.keys()
    for place, found in here.unhandled.items():
        other = elsewhere.unhandled[place]
        assert (other.backlog, other.parked, other.parked_since) == found[1:]
        assert other.lag == pytest.approx(found.lag, abs=5)
    assert [part.backlog for part in elsewhere.ranges] == [part.backlog for part in here.ranges]


async def test_a_journal_that_is_not_named_is_asked_for(database: Database) -> None:
    async with database.session() as session:
        await offsets.register(session, "p", "plane", journal="other")
        with pytest.raises(WrongJournal, match="reads journal 'other' of another database: name that, too"):
            await projection_lag(session, "p")
        with pytest.raises(WrongJournal, match="reads journal 'other'"):
            await projection_lag(session, "p", journal=Log(database))
        assert (await projection_lag(session, "p", journal=Log(database, "other"))).backlog == 0
