"""
For the tests of an application: run projections to the end of the journal, and call table handlers without a database.

    def test_a_landing_counts() -> None:
        changes = changes_of(DelaysPerCarrier, [Event("N14228", Landed(carrier="UA", arr_delay=11), "plane")])

        assert changes == {"delays": {("UA",): {"flights": 1, "delay": 11}}}
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from uuid import uuid4

from journal import Database, Event, EventEnvelope, SliceRange, UnknownEventType, decode, event_row, slice_of
from projections.defining import Batch, Kind, projection_of
from projections.errors import InvalidHandler
from projections.running import RunSettings, StatusObserver, run

__all__ = ["changes_of", "run_until_caught_up"]

Rows: TypeAlias = dict[tuple[Any, ...], dict[str, Any] | None]
"""By key, what is written to a row's other columns; None where the row is deleted."""

START = datetime(2020, 1, 1, tzinfo=UTC)
"""When the first event of :func:`envelopes_of` happens."""


async def run_until_caught_up(
    database: Database, *definitions: Any, ranges: int = 1, **settings: Any
) -> None:
    """
    Run projections until all that was committed before is handled.

    A range that fails ends the run: in a test nobody waits for the next attempt. Sources that are parked and
    events that are skipped do not: :class:`projections.ParkedSources` lists the parked ones.

    Args:
        database: Where the journal and the read models are.
        definitions: As for :func:`projections.run`.
        ranges: As for :func:`projections.run`.
        settings: Fields of :class:`projections.RunSettings`; by default nobody listens to notifications.

    Raises:
        ProjectionFailed: An event could not be handled, and the projection's recovery says to stop.
        ProjectionsError: As :func:`projections.run`, and whatever else made a range fail.
    """
    stop = asyncio.Event()
    failures = _Failures(stop)
    chosen = RunSettings(**{"listen": False} | settings)
    await run(
        database,
        *definitions,
        ranges=ranges,
        settings=chosen,
        observer=failures,
        stop=stop,
        until_caught_up=True,
    )
    if failures.first is not None:
        raise failures.first


class _Failures(StatusObserver):
    """Keeps the first failure, and stops all."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self.first: BaseException | None = None

    def failed(self, name: str, slices: SliceRange, error: BaseException) -> None:  # noqa: ARG002
        self.first = self.first or error
        self._stop.set()


def envelopes_of(events: Iterable[Event], *, start: datetime = START) -> list[EventEnvelope]:
    """
    Events as handlers would get them, had they been appended to an empty journal, one second apart.

    Args:
        events: In their order; each source's are numbered from 1.
        start: The timestamp of the first.

    Raises:
        InvalidEvent: An event could not be appended.
    """
    seq_nrs: dict[str, int] = {}
    envelopes: list[EventEnvelope] = []
    for event in events:
        seq_nr = seq_nrs[event.source_id] = seq_nrs.get(event.source_id, 0) + 1
        envelopes.append(_envelope(event, seq_nr, start + timedelta(seconds=len(envelopes))))
    return envelopes


def _envelope(event: Event, seq_nr: int, at: datetime) -> EventEnvelope:
    source_id, entity_type, event_type, payload, version, metadata, _, event_id = event_row(event)
    return EventEnvelope(
        source_id=source_id,
        seq_nr=seq_nr,
        db_timestamp=at,
        slice=slice_of(source_id),
        event_id=event_id or uuid4(),
        entity_type=entity_type,
        event_type=event_type,
        version=version,
        payload_json=payload,
        metadata_json=metadata,
        tags=list(event.tags) or None,
    )


def changes_of(definition: Any, events: Iterable[Event | EventEnvelope]) -> dict[str, Rows]:
    """
    What table handlers make of events: the changes of all of them, folded into one for each row.

    Payloads go through JSON and the model, as they do in the journal. Events of other entity types are left out.

    Args:
        definition: A class of table handlers, or an object of one.
        events: What happened, in order: events, or envelopes where a test chooses their times.

    Returns:
        For each table the rows that change, by the values of their keys: the columns that change, or None for a row
        that is deleted. Increments are sums.

    Raises:
        InvalidHandler: The handlers are of another kind.
        InvalidPayload: A payload does not fit its model, or no handler takes an event and the projection says
            ``unhandled="fail"``.
    """
    projection = projection_of(definition)
    if projection.kind is not Kind.TABLE:
        raise InvalidHandler(f"projection {projection.name!r} has no table handlers: run it on a database")
    target, batch = projection.make(), Batch()
    for envelope in _as_envelopes(events):
        if envelope.entity_type not in projection.entity_types:
            continue
        if (found := projection.handlers.get(envelope.event_type)) is not None:
            model, method = found
            batch.collect(envelope.source_id, getattr(target, method)(decode(model, envelope), envelope))
        elif not projection.passes_over(envelope.event_type):
            raise UnknownEventType(f"no handler of {projection.name!r} takes {envelope.event_type!r}")
    return {
        str(table): {key: folded.values for key, folded in rows.items()}
        for table, rows in batch.tables.items()
    }


def _as_envelopes(events: Iterable[Event | EventEnvelope]) -> list[EventEnvelope]:
    given = list(events)
    numbered = iter(envelopes_of([e for e in given if isinstance(e, Event)]))
    return [next(numbered) if isinstance(e, Event) else e for e in given]
