"""A page of a slice range is a walk along one index: nothing is sorted, wherever the page is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.fixtures.postgres import Databases

EVENTS = 200_000
PAGE = 1000
BY_TIME = "(entity_type, db_timestamp, slice, source_id, seq_nr)"

# Two closed partitions, one that is written, and the default one with nothing in it.
PARTITIONS = """
CREATE TABLE projections.events_1 PARTITION OF projections.events
    FOR VALUES FROM ('2030-01-01T00:00:00Z') TO ('2030-01-01T00:01:00Z');
CREATE TABLE projections.events_2 PARTITION OF projections.events
    FOR VALUES FROM ('2030-01-01T00:01:00Z') TO ('2030-01-01T00:02:00Z');
CREATE TABLE projections.events_3 PARTITION OF projections.events
    FOR VALUES FROM ('2030-01-01T00:02:00Z') TO ('2030-01-01T01:00:00Z');
"""
FILL = f"""
INSERT INTO projections.events (
    db_timestamp, seq_nr, event_id, slice, version, source_id, entity_type, event_type, payload
)
SELECT
    '2030-01-01T00:00:00Z'::timestamptz + n * interval '1 millisecond', n / 2000 + 1, gen_random_uuid(),
    s.slice, 1, s.source_id, 'thing', 'happened', '{{"delay": 12}}'
FROM generate_series(0, {EVENTS - 1}) AS n
INNER JOIN (
    SELECT m, md5(m::text) AS source_id, projections.slice_of_v1(md5(m::text)) AS slice
    FROM generate_series(0, 1999) AS m
) AS s ON s.m = n % 2000
ORDER BY n
"""
FUNCTIONS = ["read_events_by_slices_v1", "_read_keys_by_slices_v1"]
# Begins at this part of the journal; a page of a narrow range there is cut short by its end.
PLACES = {"beginning": 0.0, "middle": 0.5, "tail": 0.995}
RANGES = {"all slices": (0, 1023), "a quarter": (256, 511), "16 slices": (512, 527)}


@pytest.fixture(scope="module")
def connection(databases: Databases, template: str) -> Iterator[psycopg.Connection[Any]]:
    """A journal of 200,000 events of 2,000 sources, and the queries prepared as readers have them."""
    with databases.fresh(template) as dsn, psycopg.connect(dsn, autocommit=True) as opened:
        opened.execute(PARTITIONS)
        opened.execute(FILL)
        opened.execute("VACUUM (ANALYZE) projections.events")
        prepare(opened)
        yield opened


def prepare(connection: psycopg.Connection[Any]) -> None:
    """Have the server tell the plans of statements inside of functions."""
    connection.execute("LOAD 'auto_explain'")
    for setting, value in {
        "log_min_duration": "0",
        "log_nested_statements": "on",
        "log_analyze": "on",
        "log_format": "json",
        "log_level": "notice",
    }.items():
        connection.execute(sql.SQL("SET {} = {}").format(sql.Identifier("auto_explain", setting), value))


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if sorts_the_empty_partition(plan):
        return
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def sorts_the_empty_partition(plan: dict[str, Any]) -> bool:
    """Scanning a table without a page costs nothing: whether the planner sorts the result is chance."""
    return plan["Node Type"] == "Sort" and plan["Plans"][0].get("Relation Name") == "events_default"


def explain(
    connection: psycopg.Connection[Any], function: str, place: str, slices: str
) -> list[list[dict[str, Any]]]:
    at = sql.SQL("'2030-01-01T00:00:00Z'::timestamptz + {} * interval '1 millisecond'")
    page = sql.SQL(
        "SELECT * FROM projections.{} ('{{thing}}', {}, {}, {}, -1, '', 0, '9998-12-31', {})"
    ).format(sql.Identifier(function), *RANGES[slices], at.format(int(PLACES[place] * EVENTS)), PAGE)
    return explained(connection, page)


def explained(
    connection: psycopg.Connection[Any], page: sql.Composed | str, values: Sequence[Any] = ()
) -> list[list[dict[str, Any]]]:
    """The nodes of the plans of what a page asks of the events."""
    told: list[dict[str, Any]] = []

    def hear(diagnostic: psycopg.errors.Diagnostic) -> None:
        text = diagnostic.message_primary or ""
        plan = json.loads(text[text.index("{") :])
        told.append(plan["Plan"])

    connection.add_notice_handler(hear)
    try:
        connection.execute(page, values or None)
    finally:
        connection.remove_notice_handler(hear)
    found = [list(nodes(plan)) for plan in told]
    of_events = [
        plan for plan in found if any(str(n.get("Relation Name")).startswith("events") for n in plan)
    ]
    assert of_events
    return of_events


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("slices", RANGES)
@pytest.mark.parametrize("place", PLACES)
def test_a_page_walks_the_index_by_time_without_sorting(
    connection: psycopg.Connection[Any], function: str, place: str, slices: str
) -> None:
    for plan in explain(connection, function, place, slices):
        assert_walks_the_index(connection, plan)


def test_statistics_that_know_no_events_yet_do_not_change_the_plan(
    databases: Databases, template: str
) -> None:
    with databases.fresh(template) as dsn, psycopg.connect(dsn, autocommit=True) as opened:
        opened.execute(PARTITIONS)
        opened.execute("ALTER TABLE projections.events_1 SET (autovacuum_enabled = off)")
        opened.execute("ANALYZE projections.events")
        opened.execute(FILL)
        prepare(opened)

        for function, slices in product(FUNCTIONS, RANGES):
            for plan in explain(opened, function, "beginning", slices):
                assert_walks_the_index(opened, plan)


def assert_walks_the_index(connection: psycopg.Connection[Any], plan: list[dict[str, Any]]) -> None:
    kinds = {node["Node Type"] for node in plan}
    shown = [(n["Node Type"], n.get("Relation Name"), n["Plan Rows"], n["Actual Rows"]) for n in plan]
    assert kinds <= {
        "Result",
        "Subquery Scan",
        "WindowAgg",
        "Limit",
        "Append",
        "Merge Append",
        "Index Scan",
        "Index Only Scan",
    }, shown
    indexes = {node["Index Name"] for node in plan if "Index Name" in node}
    for index in indexes:
        found = connection.execute(
            "SELECT pg_get_indexdef(%s::regclass)", [f"projections.{index}"]
        ).fetchone()
        assert found is not None
        assert found[0].endswith(BY_TIME)
    scans = [node for node in plan if "Index Name" in node and node["Actual Loops"]]
    # A merge looks at one row of each partition beyond its page; other slices are passed over in the index.
    assert sum(node["Actual Rows"] * node["Actual Loops"] for node in scans) <= PAGE + len(scans)
    assert sum(node.get("Rows Removed by Filter", 0) for node in scans) == 0
