"""
What the read models must hold, computed from the rows of the CSV file in plain Python.

Nothing of the journal, the events or the handlers is used, so that a mistake in them cannot hide here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import TypeAlias

from projections.demo.flights import Flight, moment

CarrierDelayRow: TypeAlias = tuple[str, date, int, int, int | None, int]
AirportDepartureRow: TypeAlias = tuple[str, date, int, int, int]


def carrier_delays(flights: Sequence[Flight], entries: Iterable[int]) -> set[CarrierDelayRow]:
    """Rows (carrier, day, landed, total delay, worst delay, cancelled) after a part of the timeline."""
    found: dict[tuple[str, date], tuple[int, int, int | None, int]] = {}
    for flight, landing in (moment(flights, entry) for entry in entries):
        if not landing and flight.departed is not None:
            continue
        key = flight.carrier, flight.day
        landed, total, worst, cancelled = found.get(key, (0, 0, None, 0))
        delay = flight.arrival_delay
        if not landing:
            cancelled += 1
        else:
            landed += 1
            total += delay or 0
            if delay is not None:
                worst = delay if worst is None else max(worst, delay)
        found[key] = landed, total, worst, cancelled
    return {(*key, *values) for key, values in found.items()}


def airport_departures(flights: Sequence[Flight], entries: Iterable[int]) -> set[AirportDepartureRow]:
    """Rows (airport, day, hour, departures, total delay) after a part of the timeline."""
    found: dict[tuple[str, date, int], tuple[int, int]] = {}
    for flight, landing in (moment(flights, entry) for entry in entries):
        if landing or flight.departed is None:
            continue
        delay, clock = flight.departure_delay or 0, flight.departed % 2400
        # By the clock alone: one that is earlier than planned although the flight was late has passed midnight.
        overnight = delay > 0 and clock < flight.planned
        key = flight.origin, flight.day + timedelta(days=overnight), clock // 100
        departures, total = found.get(key, (0, 0))
        found[key] = departures + 1, total + delay
    return {(*key, *values) for key, values in found.items()}
