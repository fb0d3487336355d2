"""A page of several entity types walks the index of each, and reads no more than it has, whatever lies behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.fixtures.postgres import Databases
from tests.integration.schema.test_plans import (
    FUNCTIONS,
    PARTITIONS,
    assert_walks_the_index,
    explained,
    prepare,
)

PAGE = 1000
TYPES = [f"type{n}" for n in range(20)]
BACKLOGS = [
    pytest.param(100_000, id="100,000 events"),
    pytest.param(1_000_000, id="a million events", marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
]
# In turns, so that each type has an event every 20 steps, over the three partitions.
FILL = """
INSERT INTO projections.events (
    db_timestamp, seq_nr, event_id, slice, version, source_id, entity_type, event_type, payload
)
SELECT
    '2030-01-01T00:00:00Z'::timestamptz + n * (interval '3 minutes' / {events}), n / 2000 + 1, gen_random_uuid(),
    s.slice, 1, s.source_id, 'type' || s.m % 20, 'happened', '{{"delay": 12}}'
FROM generate_series(0, {events} - 1) AS n
INNER JOIN (
    SELECT m, md5(m::text) AS source_id, projections.slice_of_v1(md5(m::text)) AS slice
    FROM generate_series(0, 1999) AS m
) AS s ON s.m = n % 2000
ORDER BY n
"""
SOURCES = """
INSERT INTO projections.sources (source_id, entity_type, slice, seq_nr, db_timestamp)
SELECT md5(m::text), 'type' || m % 20, projections.slice_of_v1(md5(m::text)), 1, '2030-01-01Z'
FROM generate_series(0, 1999) AS m
"""
PAGE_OF = """
SELECT * FROM projections.{} (
    %s::text[], 0, 1023, '2030-01-01Z'::timestamptz + %s * interval '1 second', -1, '', 0, '9998-12-31', {}
)
"""


@pytest.fixture(scope="module", params=BACKLOGS)
def connection(
    databases: Databases, template: str, request: pytest.FixtureRequest
) -> Iterator[psycopg.Connection[Any]]:
    with databases.fresh(template) as dsn, psycopg.connect(dsn, autocommit=True) as opened:
        opened.execute(PARTITIONS.encode())
        opened.execute("ALTER TABLE projections.events_1 SET (autovacuum_enabled = off)")
        opened.execute("ANALYZE projections.events")  # it knows of no events
        opened.execute(FILL.format(events=request.param).encode())
        opened.execute(SOURCES)
        prepare(opened)
        yield opened


@pytest.mark.daily(12)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("types", [TYPES[:1], TYPES[:3], TYPES, None], ids=["one", "three", "twenty", "all"])
@pytest.mark.parametrize("seconds", [0, 90, 179.9])
def test_a_page_reads_what_it_has_and_one_row_more_of_each_type(
    connection: psycopg.Connection[Any], function: str, types: list[str] | None, seconds: float
) -> None:
    page = PAGE_OF.format(function, PAGE)

    for statistics in ("wrong", "right"):
        if statistics == "right":
            connection.execute("ANALYZE projections.events")
        # Several types look before whether there are events of times to come: those of 2030 are.
        *before, read = explained(connection, page, [types, seconds])
        assert_walks_the_index(connection, read)
        assert (
            sum(node["Actual Rows"] * node["Actual Loops"] for plan in before for node in scans_of(plan))
            <= 20
        )


def scans_of(plan: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [node for node in plan if "Index Name" in node]
