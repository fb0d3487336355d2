"""
Other systems that the demo can append to: how each stores events, and how its table is read.

Each flight is a source there, with one event or two; an event has the same key in every run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol, TypeAlias
from uuid import NAMESPACE_URL, UUID, uuid5

from journal.database import SyncConnection, connect_sync
from journal.foreign import AttachedJournal
from projections.demo.events import ENTITY_TYPE, event_of
from projections.demo.flights import Flight, moment, row_of
from projections.extras import from_extra

FOREIGN_JOURNAL = "projections-demo"
"""The name that the other system's journal is attached by."""
FOREIGN_VARIABLE = "PROJECTIONS_DEMO_FROM"
"""Environment variable: where that is, for the processes of the demo."""
APPLICATION = "projections-demo-writer"
"""What connections of writers are called."""

Key: TypeAlias = tuple[UUID, int]
"""A flight, and the number of the event in it: 1 for its departure or cancellation, 2 for its landing."""


class FlightEvent(NamedTuple):
    """What happened to a flight."""

    flight: UUID
    number: int
    type: str
    facts: dict[str, Any]
    """Of the kinds that JSON has."""


class Store(Protocol):
    """What one writer stores events by."""

    def keys(self) -> set[Key]:
        """All that are stored."""
        ...

    def save(self, events: Sequence[FlightEvent]) -> None:
        """Store events in one transaction."""
        ...


def key_of(entry: int) -> Key:
    """The key of the event that an entry of the timeline becomes."""
    return uuid5(NAMESPACE_URL, f"flight {row_of(entry)}"), 1 + (entry & 1)


def flight_event(flights: Sequence[Flight], entry: int) -> FlightEvent:
    """The event that an entry of the timeline becomes."""
    facts = event_of(moment(flights, entry)).payload
    return FlightEvent(*key_of(entry), type(facts).__name__, facts.model_dump(mode="json"))


class System(NamedTuple):
    """A system that the demo can append to."""

    mapping: str
    """What its columns mean, as for an attached journal of its kind."""
    open: Callable[[str], AbstractContextManager[Store]]
    """Opens it in the database of a DSN, and makes its table there if that is missing."""


def attached(kind: str) -> AttachedJournal:
    """Its journal as a database of read models knows it."""
    return AttachedJournal(FOREIGN_JOURNAL, kind, SYSTEMS[kind].mapping, dsn_variable=FOREIGN_VARIABLE)


@contextmanager
def _aggregates(dsn: str) -> Iterator[Store]:
    with from_extra("demo,eventsourcing"):
        from projections.demo.aggregates import Aggregates  # noqa: PLC0415 - of an extra
    with connect_sync(dsn) as connection:
        info = connection.info
        store = Aggregates(info.dbname, info.host, info.port, info.user, info.password)
    try:
        yield store
    finally:
        store.close()


_CREATE_ROWS = """
CREATE TABLE IF NOT EXISTS projections_demo_log (
    id bigserial PRIMARY KEY, flight uuid NOT NULL, number integer NOT NULL, kind text NOT NULL, facts jsonb NOT NULL,
    UNIQUE (flight, number)
)
"""
_INSERT_ROWS = """
INSERT INTO projections_demo_log (flight, number, kind, facts)
SELECT * FROM unnest(%s::uuid[], %s::integer[], %s::text[], %s::jsonb[])
"""


class _Rows:
    """A table of its own: ids are drawn inside the INSERT, so that some commit later than higher ones."""

    def __init__(self, connection: SyncConnection) -> None:
        self._connection = connection

    def keys(self) -> set[Key]:
        return set(self._connection.execute("SELECT flight, number FROM projections_demo_log").fetchall())

    def save(self, events: Sequence[FlightEvent]) -> None:
        flights, numbers, types, facts = zip(*events, strict=True)
        rows = [*flights], [*numbers], [*types], [json.dumps(one) for one in facts]
        self._connection.execute(_INSERT_ROWS, rows)


@contextmanager
def _rows(dsn: str) -> Iterator[Store]:
    with connect_sync(dsn, application_name=APPLICATION) as connection:
        connection.autocommit = True
        connection.execute(_CREATE_ROWS)
        yield _Rows(connection)


SYSTEMS = {
    "eventsourcing": System(
        f'table = "projectionsdemo_events"\nentity_type = {{ constant = "{ENTITY_TYPE}" }}', _aggregates
    ),
    "table": System(
        'table = "projections_demo_log"\nsource = "flight"\nnumber = "number"\nposition = "id"\nbound = "sequence"\n'
        f'entity_type = {{ constant = "{ENTITY_TYPE}" }}\nevent_type = "kind"\npayload = "facts"', _rows
    ),
}  # fmt: skip
"""By the kind of an attached journal."""
