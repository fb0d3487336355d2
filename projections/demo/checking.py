"""What the run has come to: counted in the database, and compared with the CSV file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from journal import Session
from projections.demo.flights import Flight
from projections.demo.oracle import airport_departures, carrier_delays
from projections.demo.read_models import SCHEMA

_COUNT = f"""
SELECT
    count(*) AS appended,
    coalesce(sum(f.times), 0)::bigint AS handled,
    count(*) FILTER (WHERE f.times = 0) AS lost,
    coalesce(sum(f.times - 1) FILTER (WHERE f.times > 1), 0)::bigint AS duplicated
FROM projections.events AS e
LEFT JOIN {SCHEMA}.carrier_effects AS c ON e.source_id = c.source_id AND e.seq_nr = c.seq_nr
LEFT JOIN {SCHEMA}.airport_effects AS a ON e.source_id = a.source_id AND e.seq_nr = a.seq_nr
CROSS JOIN LATERAL (SELECT coalesce(c.times, 0) + coalesce(a.times, 0) AS times) AS f
"""


_EFFECTS = f"""
SELECT source_id, seq_nr, sum(times)::bigint AS times
FROM (SELECT * FROM {SCHEMA}.carrier_effects UNION ALL SELECT * FROM {SCHEMA}.airport_effects) AS e
GROUP BY source_id, seq_nr
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


async def count(session: Session) -> EventCounts:
    """Compare the marks that were written with each effect with the journal, event by event."""
    row = await session.fetchrow(_COUNT)
    assert row is not None  # noqa: S101 - an aggregate is one row
    return EventCounts(*row.values())


async def count_apart(journal: Session, read_side: Session, events_in: str = _EVENTS) -> EventCounts:
    """Compare them where they are in two databases; ``events_in`` is the query for the keys of all events."""
    effects = {
        (row["source_id"], row["seq_nr"]): int(row["times"]) for row in await read_side.fetch(_EFFECTS)
    }
    events = [tuple(row.values()) for row in await journal.fetch(events_in)]
    times = [effects.get(event, 0) for event in events]
    return EventCounts(
        len(events), sum(effects.values()), times.count(0), sum(effects.values()) - sum(map(bool, times))
    )


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
