"""
The demo's projections: two read models, and alongside them a mark for every event that had its effect.

An event is handled by one of the two, and the mark is written with the effect: counting marks counts effects,
so what was lost and what was done twice is measured for each event instead of being guessed from totals. Each
projection has a table of marks of its own, for a rebuild replaces all tables that a projection writes.
"""

from __future__ import annotations

from journal import EventEnvelope
from projections.defining import Change, Changes, Table, handles, projection
from projections.demo.events import ENTITY_TYPE, Cancelled, Departed, Landed

SCHEMA = "projections_demo"
"""Where the tables are."""

BATCH_SIZE = 2000

CREATE = f"""
CREATE TABLE {SCHEMA}.carrier_delays (
    carrier text, day date,
    landed bigint NOT NULL DEFAULT 0, total_delay numeric NOT NULL DEFAULT 0, worst_delay bigint,
    cancelled bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (carrier, day)
);
CREATE TABLE {SCHEMA}.airport_departures (
    airport text, day date, hour integer,
    departures bigint NOT NULL DEFAULT 0, total_delay numeric NOT NULL DEFAULT 0,
    PRIMARY KEY (airport, day, hour)
);
CREATE TABLE {SCHEMA}.carrier_effects (
    source_id text COLLATE "C", seq_nr bigint, times bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (source_id, seq_nr)
);
CREATE TABLE {SCHEMA}.airport_effects (
    source_id text COLLATE "C", seq_nr bigint, times bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (source_id, seq_nr)
);
"""

CARRIER_DELAYS = Table(
    f"{SCHEMA}.carrier_delays",
    key=("carrier", "day"),
    increment=("landed", "total_delay", "cancelled"),
    maximum=("worst_delay",),
)
AIRPORT_DEPARTURES = Table(
    f"{SCHEMA}.airport_departures", key=("airport", "day", "hour"), increment=("departures", "total_delay")
)
CARRIER_EFFECTS = Table(
    f"{SCHEMA}.carrier_effects", key=("source_id", "seq_nr"), increment=("times",), source="source_id"
)
AIRPORT_EFFECTS = Table(
    f"{SCHEMA}.airport_effects", key=("source_id", "seq_nr"), increment=("times",), source="source_id"
)


@projection("demo-carrier-delays", entity_type=ENTITY_TYPE, batch_size=BATCH_SIZE)
class CarrierDelays:
    """How late the flights of a carrier and day came in, and how many did not go."""

    @handles(Landed)
    def landed(self, event: Landed, envelope: EventEnvelope) -> Changes:
        """Count an arrival and its delay."""
        return (
            CARRIER_DELAYS.upsert(
                carrier=event.carrier,
                day=event.day,
                landed=1,
                total_delay=event.delay,
                worst_delay=event.delay,
            ),
            _mark(CARRIER_EFFECTS, envelope),
        )

    @handles(Cancelled)
    def cancelled(self, event: Cancelled, envelope: EventEnvelope) -> Changes:
        """Count a flight that did not go."""
        return (
            CARRIER_DELAYS.upsert(carrier=event.carrier, day=event.day, cancelled=1),
            _mark(CARRIER_EFFECTS, envelope),
        )


@projection("demo-airport-departures", entity_type=ENTITY_TYPE, batch_size=BATCH_SIZE)
class AirportDepartures:
    """How many planes left an airport in each hour."""

    @handles(Departed)
    def departed(self, event: Departed, envelope: EventEnvelope) -> Changes:
        """Count a departure and its delay."""
        return (
            AIRPORT_DEPARTURES.upsert(
                airport=event.origin,
                day=event.at.date(),
                hour=event.at.hour,
                departures=1,
                total_delay=event.delay,
            ),
            _mark(AIRPORT_EFFECTS, envelope),
        )


PROJECTIONS = {
    "demo-carrier-delays": (CarrierDelays, frozenset({"Landed", "Cancelled"})),
    "demo-airport-departures": (AirportDepartures, frozenset({"Departed"})),
}
"""By name, the class and the event types that have an effect in it."""
CLASSES = [cls for cls, _ in PROJECTIONS.values()]


def classes(*, sql: bool) -> dict[str, type]:
    """By name, the classes of the projections: with handlers, or with read models in SQL."""
    if not sql:
        return {name: cls for name, (cls, _) in PROJECTIONS.items()}
    from projections.demo.sql_read_models import IN_SQL  # noqa: PLC0415 - of an extra

    return IN_SQL


def _mark(effects: Table, envelope: EventEnvelope) -> Change:
    return effects.upsert(source_id=envelope.source_id, seq_nr=envelope.seq_nr, times=1)
