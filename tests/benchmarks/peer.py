"""
The same work with the ``eventsourcing`` package: its application, its projection runner, its PostgreSQL infrastructure.

Each event is a domain event in an application's sequence. The projection's view is a tracking recorder that writes the
read model and the position in one transaction, as its documentation shows for exactly-once processing; the statements
are prepared, the tracking takes a single row, and the subscription selects by topic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from types import TracebackType
from typing import Any, Self
from uuid import NAMESPACE_URL, UUID, uuid5

import psycopg
from eventsourcing.application import Application
from eventsourcing.dispatch import singledispatchmethod
from eventsourcing.domain import DomainEvent
from eventsourcing.persistence import StoredEvent, Tracking
from eventsourcing.postgres import PostgresTrackingRecorder
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.utils import get_topic
from psycopg.conninfo import conninfo_to_dict

from tests.benchmarks import workload

_UPSERT = workload.UPSERT.format(rows="VALUES (%s, %s, 1, %s, %s)")


class PlaneLanded(DomainEvent):
    """A plane has landed."""

    carrier: str
    flight: int
    origin: str
    day: str
    hour: int
    delay: int


class Planes(Application[UUID]):
    """Holds the events."""


class DelaysView(PostgresTrackingRecorder):
    """The read model; writes it and the position together."""

    told: Callable[[int], None] | None = None

    def landed(self, event: PlaneLanded, tracking: Tracking) -> None:
        with self.datastore.transaction(commit=True) as cursor:
            self._insert_tracking(cursor, tracking)
            values = (event.carrier, date.fromisoformat(event.day), event.delay, event.delay)
            cursor.execute(_UPSERT, values, prepare=True)
        if DelaysView.told is not None:
            DelaysView.told(tracking.notification_id)


class Delays(Projection[DelaysView]):
    """Hands events to the view."""

    topics = (get_topic(PlaneLanded),)

    @singledispatchmethod
    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        raise NotImplementedError

    @process_event.register
    def _(self, domain_event: PlaneLanded, tracking: Tracking) -> None:
        self.view.landed(domain_event, tracking)


class Peer:
    """An application with its infrastructure in a database."""

    def __init__(self, dsn: str) -> None:
        parts = conninfo_to_dict(dsn)
        self._dsn = dsn
        self.environment = {
            "PERSISTENCE_MODULE": "eventsourcing.postgres",
            "POSTGRES_DBNAME": str(parts["dbname"]),
            "POSTGRES_HOST": str(parts["host"]),
            "POSTGRES_PORT": str(parts.get("port", 5432)),
            "POSTGRES_USER": str(parts.get("user", "postgres")),
            "POSTGRES_PASSWORD": str(parts.get("password", "")),
            "POSTGRES_ENABLE_DB_FUNCTIONS": "yes",
        }
        self.application = Planes(env=self.environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.application.close()

    def stored_events(self, count: int, sources: int) -> list[PlaneLanded]:
        """The events of the workload as its domain events."""
        return [self.event(n, sources) for n in range(count)]

    def event(self, n: int, sources: int) -> PlaneLanded:
        """The n-th event."""
        return PlaneLanded(
            originator_id=uuid5(NAMESPACE_URL, workload.source_id(n, sources)),
            originator_version=n // sources + 1,
            timestamp=datetime.now(UTC),
            **(
                workload.landed(n, sources).model_dump()
                | {"day": workload.landed(n, sources).day.isoformat()}
            ),
        )

    def append(self, events: Sequence[PlaneLanded]) -> Sequence[int] | None:
        """Append events of any number of sources in one transaction; returns their positions."""
        stored: list[StoredEvent] = [self.application.mapper.to_stored_event(event) for event in events]
        return self.application.recorder.insert_events(stored)

    def empty(self) -> None:
        """Begin again: no events, no view, no position."""
        with psycopg.connect(self._dsn) as connection:
            connection.execute("TRUNCATE planes_events RESTART IDENTITY")

    def append_rate(self, batches: Sequence[Sequence[PlaneLanded]]) -> float:
        """Events per second of appending batches to an empty application."""
        self.empty()
        begun = time.perf_counter()
        for batch in batches:
            self.append(batch)
        return sum(map(len, batches)) / (time.perf_counter() - begun)

    def read_rate(self, count: int) -> float:
        """Events per second of selecting its notifications a page at a time, and making domain events of them."""
        begun, position, done = time.perf_counter(), 0, 0
        recorder, mapper = self.application.recorder, self.application.mapper
        while done < count and (
            page := recorder.select_notifications(position, 1_000, inclusive_of_start=False)
        ):
            for notification in page:
                mapper.to_domain_event(notification)
            position, done = page[-1].id, done + len(page)
        return done / (time.perf_counter() - begun)

    def runner(self) -> ProjectionRunner[Planes, DelaysView]:
        """Its projection runner, running."""
        return ProjectionRunner(
            application_class=Planes, projection_class=Delays, view_class=DelaysView, env=self.environment
        )

    def projection_rate(self, count: int) -> float:
        """Events per second of its projection runner, from its start until the read model has all."""
        with psycopg.connect(self._dsn) as connection:
            connection.execute("DROP TABLE IF EXISTS delays_tracking")
            connection.execute("TRUNCATE delays")
        begun = time.perf_counter()
        with self.runner() as runner:
            runner.wait(self.application.recorder.max_notification_id(), timeout=600)
            took = time.perf_counter() - begun
        return count / took
