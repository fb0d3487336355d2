"""Ids that the database makes: UUIDs of version 7, each once, that say when; many are made from one seed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from journal import Database, append
from journal.events import HistoricEvent
from journal.importing import import_events
from tests.fixtures.journal import event
from tests.fixtures.projections import Happened, fetchval

WRONG = """
SELECT count(*) FROM projections.events AS e
WHERE substr(e.event_id::text, 15, 1) <> '7' OR substr(e.event_id::text, 20, 1) NOT IN ('8', '9', 'a', 'b')
OR abs(extract(EPOCH FROM projections._uuid7_time_v1(e.event_id) - e.db_timestamp)) > 0.002
"""
DISTINCT = "SELECT count(DISTINCT substr(event_id::text, 20)) FROM projections.events"


async def test_of_an_append(database: Database) -> None:
    async with database.transaction() as session:
        for _ in range(2):
            await append(session, [event(f"s{n % 7}") for n in range(1_000)])

    assert await fetchval(database, WRONG) == 0
    assert await fetchval(database, DISTINCT) == 2_000


async def test_of_an_import(database: Database) -> None:
    start = datetime.now(UTC) - timedelta(days=1)
    history = [
        HistoricEvent(
            f"s{n % 7}", Happened(n=n), "plane", seq_nr=n // 7 + 1,
            db_timestamp=start + timedelta(milliseconds=n),
        )
        for n in range(1_000)
    ]  # fmt: skip
    await import_events(database, history)

    assert await fetchval(database, WRONG) == 0
    assert await fetchval(database, DISTINCT) == 1_000
