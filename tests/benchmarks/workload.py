"""
The work that everybody does: landings of planes, folded into delays per carrier and day.

The n-th event is the same wherever it comes from. Its source is ``n * 7919 % sources``, so that the sources take turns
and each gets its next number; 900 events make a day.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
from psycopg import sql
from pydantic import BaseModel

from journal import Event
from journal.events import HistoricEvent
from projections import Changes, EventEnvelope, Recovery, Session, Table, handles, projection, read_model
from projections import events as events_of

ENTITY_TYPE = "plane"
CARRIERS = ["UA", "AA", "B6", "DL", "EV", "MQ", "US", "WN", "VX", "FL", "AS", "9E", "F9", "HA", "YV", "OO"]
STEP = 7919
PER_DAY = 900
FIRST_DAY = date(2013, 1, 1)
BATCH = 5_000  # what table handlers have by default
UPSERT = """
INSERT INTO delays AS d (carrier, day, flights, delay, worst) {rows}
ON CONFLICT (carrier, day) DO UPDATE SET
    flights = d.flights + excluded.flights, delay = d.delay + excluded.delay, worst = greatest(d.worst, excluded.worst)
"""
UPSERT_ONE = UPSERT.format(rows="VALUES ($1, $2, 1, $3::integer, $3::integer)")
UPSERT_MANY = UPSERT.format(
    rows="SELECT * FROM unnest($1::text[], $2::date[], $3::integer[], $4::bigint[], $5::integer[])"
)


Landing = tuple[str, date, int]
"""Carrier, day and delay."""


class Landed(BaseModel):
    """A plane has landed."""

    carrier: str
    flight: int
    origin: str
    day: date
    hour: int
    delay: int


def landed(n: int, sources: int) -> Landed:
    """The n-th event."""
    day = FIRST_DAY + timedelta(days=n // PER_DAY % 365)
    carrier = CARRIERS[n * STEP % sources % 16]
    return Landed(
        carrier=carrier, flight=n % 5000, origin="JFK", day=day, hour=n % 24, delay=n * 37 % 180 - 30
    )


def source_id(n: int, sources: int) -> str:
    """The source of the n-th event."""
    return f"N{n * STEP % sources}"


def events(first: int, count: int, sources: int) -> list[Event]:
    """Events to append."""
    return [
        Event(source_id(n, sources), landed(n, sources), ENTITY_TYPE) for n in range(first, first + count)
    ]


def history(count: int, sources: int) -> list[HistoricEvent]:
    """Events to import; the newest is an hour old."""
    start = datetime.now(UTC) - timedelta(hours=1, milliseconds=count)
    return [
        HistoricEvent(
            source_id(n, sources), landed(n, sources), ENTITY_TYPE,
            seq_nr=n // sources + 1, db_timestamp=start + timedelta(milliseconds=n),
        )
        for n in range(count)
    ]  # fmt: skip


_SOURCES = """
INSERT INTO projections.sources (source_id, entity_type, slice, seq_nr, db_timestamp)
SELECT
    'N' || n, %(type)s, projections.slice_of_v1('N' || n), (%(count)s - 1) / %(sources)s + 1,
    now() - interval '1 hour'
FROM generate_series(0, %(sources)s - 1) AS n
"""
PAYLOAD = """
    format(
        '{"carrier":"%%s","flight":%%s,"origin":"JFK","day":"%%s","hour":%%s,"delay":%%s}',
        (%(carriers)s::text[])[e.n * 7919 %% %(sources)s %% 16 + 1], e.n %% 5000,
        date '2013-01-01' + (e.n / 900 %% 365)::integer, e.n %% 24, e.n * 37 %% 180 - 30
    )
"""
"""The JSON text of the event ``e.n``; of %(carriers)s and %(sources)s."""
_EVENTS = """
INSERT INTO projections.events
    (db_timestamp, seq_nr, event_id, slice, version, source_id, entity_type, event_type, payload)
SELECT
    e.at, e.n / %(sources)s + 1, projections.uuid7_v1(e.at), s.slice, 1, s.source_id, %(type)s, 'Landed',
    {payload}::json
FROM (
    SELECT n, now() - interval '1 hour' - (%(count)s - n) * interval '100 microseconds' AS at
    FROM generate_series(0, %(count)s::bigint - 1) AS n
) AS e
INNER JOIN projections.sources AS s ON s.source_id = 'N' || (e.n * 7919 %% %(sources)s)
ORDER BY e.n
""".replace("{payload}", PAYLOAD.strip())


def fill(dsn: str, count: int, sources: int) -> None:
    """Put events into the journal as appends would have left them, without the time that appends take."""
    values = {"count": count, "sources": sources, "type": ENTITY_TYPE, "carriers": CARRIERS}
    with psycopg.connect(dsn) as connection:
        connection.execute(_SOURCES, values)
        connection.execute(_EVENTS, values)


def expected(count: int, sources: int) -> tuple[int, int]:
    """Flights and delay that the read model sums up to."""
    return count, sum(landed(n, sources).delay for n in range(count))


async def write_folded(connection: Any, landings: Sequence[Landing]) -> None:
    """Fold in Python, and write what that makes set-wise."""
    rows: dict[tuple[str, date], list[int]] = {}
    for carrier, day, delay in landings:
        row = rows.get((carrier, day))
        if row is None:
            rows[carrier, day] = [1, delay, delay]
        else:
            row[0] += 1
            row[1] += delay
            row[2] = max(row[2], delay)
    keys, values = zip(*rows, strict=True), zip(*rows.values(), strict=True)
    await connection.execute(UPSERT_MANY, *map(list, keys), *map(list, values))


DELAYS = Table("delays", key=("carrier", "day"), increment=("flights", "delay"), maximum=("worst",))


@projection("benchmark", entity_type=ENTITY_TYPE, batch_size=BATCH, recovery=Recovery.fail())
class ByTable:
    """The framework folds and writes."""

    @handles(Landed)
    def landed(self, event: Landed, envelope: EventEnvelope) -> Changes:
        return DELAYS.upsert(
            carrier=event.carrier, day=event.day, flights=1, delay=event.delay, worst=event.delay
        )


@projection("benchmark", entity_type=ENTITY_TYPE, batch_size=BATCH, recovery=Recovery.fail())
class ByStatement:
    """A statement for each event."""

    @handles(Landed)
    async def landed(self, session: Session, event: Landed, envelope: EventEnvelope) -> None:
        await session.execute(UPSERT_ONE, event.carrier, event.day, event.delay)


@projection("benchmark", entity_type=ENTITY_TYPE, batch_size=BATCH, recovery=Recovery.fail())
class ByQueuedStatement:
    """A statement for each event, which nobody waits for."""

    @handles(Landed)
    async def landed(self, session: Session, event: Landed, envelope: EventEnvelope) -> None:
        await session.queue(UPSERT_ONE, event.carrier, event.day, event.delay)


@projection("benchmark", entity_type=ENTITY_TYPE, recovery=Recovery.fail())
class BySql:
    """A statement for each batch, over events that stay in the database."""

    landed = events_of(Landed)
    delays_in_sql = read_model("""
        SELECT carrier, day, count(*) AS flights, sum(delay) AS delay, max(delay) AS worst
        FROM landed GROUP BY carrier, day
    """)


def check(dsn: str, wanted: Sequence[int], table: str = "delays") -> None:
    """A contender that does other work than the rest has not taken part."""
    with psycopg.connect(dsn) as connection:
        sums = sql.SQL("SELECT sum(flights), sum(delay) FROM {}").format(sql.Identifier(table))
        found = connection.execute(sums).fetchone()
    if found is None or tuple(found) != tuple(wanted):
        raise AssertionError(f"the read model sums up to {found}, not {wanted}")
