"""Where partitions are in slice order, live readers still walk the index by time, and a batch reads its own pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import psycopg
import pytest

from tests.fixtures.page_plans import (
    EVENTS,
    FILL,
    FUNCTIONS,
    PAGE,
    PLACES,
    RANGES,
    assert_walks_the_index,
    nodes,
)
from tests.fixtures.plans import prepare
from tests.fixtures.postgres import Databases

START = "2020-01-01T00:00:00Z"
MADE = """
SELECT projections._create_partition_v1(at, at + interval '1 minute')
FROM unnest('{2020-01-01T00:00:00Z,2020-01-01T00:01:00Z,2020-01-01T00:02:00Z}'::timestamptz[]) AS at
"""
BATCH = """
EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)
SELECT source_id, seq_nr, payload FROM projections.events
WHERE entity_type = 'thing' AND slice BETWEEN 256 AND 383 AND db_timestamp <= '2021-01-01'
ORDER BY source_id, seq_nr
"""


@pytest.fixture(scope="module")
def connection(databases: Databases, template: str) -> Iterator[psycopg.Connection[Any]]:
    """200,000 events: two partitions in slice order, one in the order of time."""
    with databases.fresh(template) as dsn, psycopg.connect(dsn, autocommit=True) as opened:
        opened.execute(MADE)
        opened.execute(FILL.replace("2030", "2020").encode())
        opened.execute("VACUUM (ANALYZE) projections.events")
        for name in ("events_20200101t000000", "events_20200101t000100"):
            opened.execute("SELECT projections._cluster_partition_v1(%s)", [name])
            found = opened.execute("SELECT %s::regclass::oid", [f"projections.{name}"]).fetchone()
            assert found is not None
            opened.execute(f"VACUUM (FREEZE, ANALYZE) projections.events_copy_of_{found[0]}".encode())
            opened.execute("SELECT projections._swap_partition_v1(%s)", [name])
        prepare(opened)
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize(("function", "slices", "place"), [*product(FUNCTIONS, RANGES, PLACES)])
def test_live_reading_walks_the_index_by_time_without_sorting(
    connection: psycopg.Connection[Any], function: str, slices: str, place: str
) -> None:
    told: list[dict[str, Any]] = []

    def hear(diagnostic: psycopg.errors.Diagnostic) -> None:
        text = diagnostic.message_primary or ""
        plan = json.loads(text[text.index("{") :])
        if any(node.get("Relation Name", "").startswith("events") for node in nodes(plan["Plan"])):
            told.append(plan["Plan"])

    connection.add_notice_handler(hear)
    low, high = RANGES[slices]
    at = f"'{START}'::timestamptz + {int(PLACES[place] * EVENTS)} * interval '1 millisecond'"
    page = f"('{{thing}}', {low}, {high}, {at}, -1, '', 0, '9998-12-31', {PAGE})"
    connection.execute(f"SELECT * FROM projections.{function}{page}".encode())
    connection.remove_notice_handler(hear)

    # At the tail it looks once more, for what comes after the last partition.
    assert 1 <= len(told) <= 3
    for plan in told:
        assert_walks_the_index(connection, list(nodes(plan)))


@pytest.mark.slow
def test_batch_over_an_eighth_of_the_slices_reads_less_than_a_quarter_of_a_partition(
    connection: psycopg.Connection[Any],
) -> None:
    found = connection.execute(BATCH).fetchone()

    assert found is not None
    scans = {n["Relation Name"]: n for n in nodes(found[0][0]["Plan"]) if "Relation Name" in n}
    for name in ("events_20200101t000000", "events_20200101t000100"):
        read = scans[name]["Shared Hit Blocks"] + scans[name]["Shared Read Blocks"]
        pages = connection.execute(
            "SELECT pg_relation_size(%s::regclass) / 8192", [f"projections.{name}"]
        ).fetchone()
        assert pages is not None
        assert read < pages[0] / 4
