"""What the run has come to: counted in the database, and compared with the CSV file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from journal import Session
from projections.auditing import History
from projections.demo.flights import Flight
from projections.demo.oracle import airport_departures, carrier_delays
from projections.demo.read_models import SCHEMA

_EFFECTS = f"""
SELECT source_id, seq_nr, sum(times)::bigint AS times
FROM (SELECT * FROM {SCHEMA}.carrier_effects UNION ALL SELECT * FROM {SCHEMA}.airport_effects) AS e
GROUP BY source_id, seq_nr ORDER BY source_id, seq_nr
"""
_EVENTS = "SELECT source_id, seq_nr FROM projections.events"


class ReadModel(NamedTuple):
    """A read model, and what it must hold."""

    table: str
    columns: str
    expected: Callable[[Sequence[Flight], Sequence[int]], set[Any]]
    """Computes its rows, in the order of the columns, from a part of the timeline."""

    def select(self, schema: str = SCHEMA) -> str:
        """The query for all rows of its table in a schema."""
        return f"SELECT {self.columns} FROM {schema}.{self.table}"


READ_MODELS = {
    "demo-carrier-delays": ReadModel(
        "carrier_delays", "carrier, day, landed, total_delay, worst_delay, cancelled", carrier_delays
    ),
    "demo-airport-departures": ReadModel(
        "airport_departures", "airport, day, hour, departures, total_delay", airport_departures
    ),
}
"""By the projection that writes it."""


class EventCounts(NamedTuple):
    """Events, counted one by one."""

    appended: int
    """In the journal."""
    handled: int
    """Effects in the read models."""
    lost: int
    """Events in the journal that had no effect."""
    duplicated: int
    """Effects beyond the first of an event."""


async def count(journal: Session, read_side: Session, events_in: str = _EVENTS) -> EventCounts:
    """Compare the marks that were written with each effect with the journal, whose keys are found by a query."""
    with History() as history:
        history.expect("")
        for source_id, seq_nr in (row.values() for row in await journal.fetch(events_in)):
            history.committed(source_id, seq_nr)
        for source_id, seq_nr, times in (row.values() for row in await read_side.fetch(_EFFECTS)):
            for _ in range(times):
                history.handled(source_id, seq_nr)
        found = (await asyncio.to_thread(history.audit))[""]
    return EventCounts(found.committed, found.handled, found.counts["lost"], found.counts["doubled"])


async def differing_rows(session: Session, flights: Sequence[Flight], entries: Sequence[int]) -> list[str]:
    """A line for each row of both read models that the CSV file has otherwise, or that is missing or too much."""
    found = []
    for model in READ_MODELS.values():
        stored = {tuple(row.values()) for row in await session.fetch(model.select())}
        found += differing(model.table, stored, model.expected(flights, entries))
    return sorted(found)


def differing(name: str, stored: set[Any], expected: set[Any]) -> list[str]:
    """A line for each row that is missing or too much."""
    return sorted(
        [f"{name}: expected {row}" for row in expected - stored]
        + [f"{name}: found    {row}" for row in stored - expected]
    )
