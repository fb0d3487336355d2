"""Looking up events costs what is looked up, not what the log holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.fixtures.postgres import Databases

FILL = """
INSERT INTO projections.events (
    db_timestamp, seq_nr, event_id, slice, version, source_id, entity_type, event_type, payload
)
SELECT '2030-01-01T00:00:00Z'::timestamptz + n * interval '1 second', n, gen_random_uuid(), 97, 1,
    'a', 'plane', 'Landed', '{}'
FROM generate_series(1, 50000) AS n
"""
KEYS = "SELECT * FROM projections.events ORDER BY db_timestamp DESC LIMIT 1000"
LOOKUPS = {
    "load": "SELECT count(*) FROM projections._load_events_v1(%(source_ids)s, %(seq_nrs)s, %(times)s)",
    "predecessors": "SELECT count(*) FROM projections._predecessors_v1(%(source_ids)s, %(seq_nrs)s, '2030-01-01Z', "
    "'2031-01-01Z')",
    "event ids": "SELECT count(*) FROM projections._stored_events_v1(%(source_ids)s, %(kinds)s, %(types)s, NULL, "
    "%(payloads)s, NULL, NULL, %(ids)s)",
}


@pytest.fixture(scope="module")
def connection(databases: Databases, template: str) -> Iterator[psycopg.Connection[Any]]:
    """A journal of 50,000 events in two partitions."""
    with databases.fresh(template) as dsn, psycopg.connect(dsn, autocommit=True) as opened:
        opened.execute(
            "SELECT projections._create_partition_v1('2030-01-01T00:00:00Z', '2030-01-01T06:00:00Z')"
        )
        opened.execute(FILL)
        opened.execute("VACUUM (ANALYZE) projections.events")
        yield opened


def rows_scanned(connection: psycopg.Connection[Any]) -> Any:
    """Rows of the log that this session has read without an index."""
    return connection.execute(
        "SELECT sum(seq_tup_read) FROM pg_stat_xact_user_tables WHERE relname LIKE 'events\\_%'"
    ).fetchone()


@pytest.mark.parametrize("lookup", LOOKUPS)
def test_a_thousand_keys_are_looked_up_without_reading_the_log(
    connection: psycopg.Connection[Any], lookup: str
) -> None:
    rows = connection.execute(
        "SELECT array_agg(source_id), array_agg(seq_nr), array_agg(db_timestamp), array_agg(entity_type), "
        f"array_agg(event_type), array_agg(payload::text), array_agg(event_id) FROM ({KEYS}) AS k".encode()
    ).fetchone()
    assert rows is not None
    keys = dict(
        zip(("source_ids", "seq_nrs", "times", "kinds", "types", "payloads", "ids"), rows, strict=True)
    )

    with connection.transaction():
        before = rows_scanned(connection)
        found = connection.execute(LOOKUPS[lookup].encode(), keys).fetchone()
        after = rows_scanned(connection)

    assert found == (1000,)
    assert after == before
