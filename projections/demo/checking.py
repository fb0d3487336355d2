"""What the run has come to: counted in the database, and compared with the CSV file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from journal import Session
from projections.demo.flights import Flight
from projections.demo.oracle import airport_departures, carrier_delays
from projections.demo.read_models import SCHEMA

_COUNT = f"""
SELECT
    count(*) AS appended,
    coalesce(sum(f.times), 0)::bigint AS handled,
    count(*) FILTER (WHERE coalesce(f.times, 0) = 0) AS lost,
    coalesce(sum(f.times - 1) FILTER (WHERE f.times > 1), 0)::bigint AS duplicated
FROM projections.events AS e LEFT JOIN {SCHEMA}.effects AS f ON e.source_id = f.source_id AND e.seq_nr = f.seq_nr
"""
_CARRIER_DELAYS = (
    f"SELECT carrier, day, landed, total_delay, worst_delay, cancelled FROM {SCHEMA}.carrier_delays"
)
_AIRPORT_DEPARTURES = f"SELECT airport, day, hour, departures, total_delay FROM {SCHEMA}.airport_departures"


class Counts(NamedTuple):
    """Events, counted one by one."""

    appended: int
    """In the journal."""
    handled: int
    """Effects in the read models."""
    lost: int
    """Events in the journal that had no effect."""
    duplicated: int
    """Effects beyond the first of an event."""


async def count(session: Session) -> Counts:
    """Compare the marks that were written with each effect with the journal, event by event."""
    row = await session.fetchrow(_COUNT)
    assert row is not None  # noqa: S101 - an aggregate is one row
    return Counts(*row.values())


async def differing_rows(session: Session, flights: Sequence[Flight], entries: Sequence[int]) -> list[str]:
    """
    Compare every row of both read models with what the CSV file says.

    Args:
        session: Where the read models are.
        flights: All rows of the file.
        entries: The part of their timeline that was appended.

    Returns:
        A line for each row that differs, that is missing or that is too much.
    """
    found = []
    for name, query, expected in (
        ("carrier_delays", _CARRIER_DELAYS, carrier_delays(flights, entries)),
        ("airport_departures", _AIRPORT_DEPARTURES, airport_departures(flights, entries)),
    ):
        stored = {tuple(row.values()) for row in await session.fetch(query)}
        found += [f"{name}: expected {row}" for row in expected - stored]
        found += [f"{name}: found    {row}" for row in stored - expected]
    return sorted(found)
