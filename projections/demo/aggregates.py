"""The flights of the demo as aggregates of the Python package ``eventsourcing``, saved by an application of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate
from eventsourcing.utils import get_topic

from projections.demo.stores import APPLICATION, FlightEvent, Key

_PAGE = 10_000
_CACHED = "20000"
"""Flights that are in the air at a time are fewer."""


class FlightAggregate(Aggregate):
    """A flight: it departs and lands, or is cancelled."""

    class FlightDeparted(Aggregate.Created):
        """As :class:`projections.demo.events.Departed`."""

        TOPIC = "Departed"
        carrier: str
        flight: str
        origin: str
        destination: str
        at: str
        delay: int

    class FlightLanded(Aggregate.Event):
        """As :class:`projections.demo.events.Landed`."""

        TOPIC = "Landed"
        carrier: str
        flight: str
        destination: str
        day: str
        at: str
        delay: int | None

    class FlightCancelled(Aggregate.Created):
        """As :class:`projections.demo.events.Cancelled`."""

        TOPIC = "Cancelled"
        carrier: str
        flight: str
        origin: str
        destination: str
        day: str


_EVENTS: dict[str, type] = {
    get_topic(event): event  # which also lets stored events be found by it
    for event in (
        FlightAggregate.FlightDeparted,
        FlightAggregate.FlightLanded,
        FlightAggregate.FlightCancelled,
    )
}


class ProjectionsDemo(Application[UUID]):
    """Its table is ``projectionsdemo_events``."""

    name = "projectionsdemo"


class Aggregates:
    """
    An application of one writer, in a database.

    Functions of the database insert, without a lock of the table: events may commit in another order than their
    notification ids have.
    """

    def __init__(self, database: str, host: str, port: int, user: str, password: str) -> None:
        os.environ["PGAPPNAME"] = APPLICATION
        self._application = ProjectionsDemo(
            env={
                "PERSISTENCE_MODULE": "eventsourcing.postgres",
                "POSTGRES_DBNAME": database,
                "POSTGRES_HOST": host,
                "POSTGRES_PORT": str(port),
                "POSTGRES_USER": user,
                "POSTGRES_PASSWORD": password,
                "POSTGRES_SCHEMA": "public",
                "POSTGRES_POOL_SIZE": "1",
                "POSTGRES_ENABLE_DB_FUNCTIONS": "yes",
                "AGGREGATE_CACHE_MAXSIZE": _CACHED,
                "AGGREGATE_CACHE_FASTFORWARD": "no",
            }
        )

    def keys(self) -> set[Key]:
        """All that are stored."""
        found: set[Key] = set()
        last = None
        recorder = self._application.recorder
        while page := recorder.select_notifications(last, _PAGE, inclusive_of_start=False):
            found.update((UUID(str(one.originator_id)), one.originator_version) for one in page)
            last = page[-1].id
        return found

    def save(self, events: Sequence[FlightEvent]) -> None:
        """Save flights by the package's own API: in one transaction."""
        saved: dict[UUID, FlightAggregate] = {}
        for flight, number, name, facts in events:
            event = _EVENTS[name]
            if number == 1:
                saved[flight] = FlightAggregate._create(event, id=flight, **facts)  # noqa: SLF001 - as its documentation does
                continue
            if flight not in saved:
                saved[flight] = self._application.repository.get(flight)
            saved[flight].trigger_event(event, **facts)
        self._application.save(*saved.values())

    def close(self) -> None:
        """Close its connections."""
        self._application.close()
