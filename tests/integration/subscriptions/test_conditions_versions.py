"""Conditions, and what payloads must contain, see events in the newest version."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from journal import Database, Event, RawJson, append, event_type
from projections.subscriptions import conditions
from projections.subscriptions import subscribe as make_subscription
from tests.fixtures.matching import QUARANTINED, fetchval, match, matches, subscribe
from tests.fixtures.past import catch_up, from_the_past, matched_by


def in_grams(old: dict[str, Any]) -> dict[str, Any]:
    return {"g": old["kg"] * 1000, "note": "\0" if "nul" in old else None}


@event_type("conditions.weighed", version=2, upcast={1: in_grams})
class Weighed(BaseModel):
    g: int
    note: str | None = None


async def weighed(database: Database, *payloads: str | Weighed, source: str = "a") -> None:
    async with database.transaction() as session:
        await append(
            session,
            [
                Event(source, one, "scales")
                if isinstance(one, Weighed)
                else Event(source, RawJson(one), "scales", "conditions.weighed", 1)
                for one in payloads
            ],
        )


OLD_AND_NEW: list[str | Weighed] = ['{"kg": 1}', '{"kg": 2, "nul": true}', Weighed(g=2000), '{"kg": 3}']


async def test_conditions_see_the_newest_version(database: Database) -> None:
    await subscribe(database, "(e.payload ->> 'g')::int >= 2000 AND e.version = 2", group="heavy")
    await subscribe(database, "e.payload IS NULL", group="unseen")
    async with database.transaction() as session:
        await make_subscription(session, "exact", contains={"g": 2000})
    await weighed(database, *OLD_AND_NEW)

    await match(database)

    assert [(group, seq_nr) for group, _, seq_nr, _ in await matches(database)] == [
        ("unseen", 2), ("heavy", 3), ("exact", 3), ("heavy", 4),
    ]  # fmt: skip
    assert await fetchval(database, QUARANTINED) == 0


async def test_the_past_is_matched_in_the_newest_version(database: Database) -> None:
    await weighed(database, *OLD_AND_NEW)
    await from_the_past(database, contains={"g": 3000})

    await catch_up(database)

    assert await matched_by(database, "g") == [("a", 4)]


async def test_an_event_that_cannot_be_converted_waits_and_the_others_are_matched(database: Database) -> None:
    await subscribe(database, "(e.payload ->> 'g')::int > 0")
    await subscribe(database, group="plain")
    await weighed(database, '{"kg": 1}', '{"t": 1}', Weighed(g=2), '{"kg": 3}')

    await match(database)

    assert {(group, seq_nr) for group, _, seq_nr, _ in await matches(database)} == {
        *(("g", n) for n in (1, 3, 4)), *(("plain", n) for n in (1, 2, 3, 4)),
    }  # fmt: skip
    waiting = "SELECT string_agg(seq_nr || error, '') FROM projections.unanswered"
    assert "seq_nr 2: upcast from version 1 failed: KeyError('kg')" in await fetchval(database, waiting)


async def test_events_of_the_newest_version_are_not_looked_at(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "newest_json", None)
    await subscribe(database, "(e.payload ->> 'g')::int > 0")
    await weighed(database, Weighed(g=1), Weighed(g=2))

    await match(database)

    assert len(await matches(database)) == 2
