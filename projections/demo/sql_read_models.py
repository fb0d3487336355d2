"""The demo's projections declared in SQL: the same tables, and the same marks, as those with handlers."""

from __future__ import annotations

from projections.defining import events, projection, read_model
from projections.demo.events import ENTITY_TYPE, Cancelled, Departed, Landed
from projections.demo.read_models import BATCH_SIZE, PROJECTIONS, SCHEMA


@projection("demo-carrier-delays", entity_type=ENTITY_TYPE, batch_size=BATCH_SIZE)
class CarrierDelaysInSql:
    """How late the flights of a carrier and day came in, and how many did not go."""

    landed = events(Landed)
    cancelled = events(Cancelled)
    carrier_delays = read_model(
        """
        SELECT carrier, day, count(*) FILTER (WHERE went) AS landed, sum(coalesce(delay, 0)) AS total_delay,
            max(delay) AS worst_delay, count(*) FILTER (WHERE NOT went) AS cancelled
        FROM (
            SELECT carrier, day, delay, TRUE AS went FROM landed
            UNION ALL SELECT carrier, day, NULL, FALSE FROM cancelled
        ) AS flights
        GROUP BY carrier, day
        """,
        table=(SCHEMA, "carrier_delays"),
    )
    carrier_effects = read_model(
        """
        SELECT source_id, seq_nr, count(*) AS times
        FROM (SELECT source_id, seq_nr FROM landed UNION ALL SELECT source_id, seq_nr FROM cancelled) AS flights
        GROUP BY source_id, seq_nr
        """,
        table=(SCHEMA, "carrier_effects"),
    )


@projection("demo-airport-departures", entity_type=ENTITY_TYPE, batch_size=BATCH_SIZE)
class AirportDeparturesInSql:
    """How many planes left an airport in each hour."""

    departed = events(Departed)
    airport_departures = read_model(
        """
        SELECT origin AS airport, at::date AS day, extract(hour FROM at)::integer AS hour,
            count(*) AS departures, sum(delay) AS total_delay
        FROM departed GROUP BY airport, 2, 3
        """,
        table=(SCHEMA, "airport_departures"),
    )
    airport_effects = read_model(
        "SELECT source_id, seq_nr, count(*) AS times FROM departed GROUP BY source_id, seq_nr",
        table=(SCHEMA, "airport_effects"),
    )


IN_SQL: dict[str, type] = dict(zip(PROJECTIONS, (CarrierDelaysInSql, AirportDeparturesInSql), strict=True))
"""By name, the class."""
