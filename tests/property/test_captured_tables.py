"""Whatever is done to a captured table: its events, one after the other, make exactly its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples

Connection = psycopg.Connection[tuple[Any, ...]]
Statement = tuple[str, list[Any]]

TABLES = """
CREATE TABLE nodes (
    region text, id integer, within_region text, within integer, note text, amount numeric(6, 2),
    twice numeric GENERATED ALWAYS AS (amount * 2) STORED, PRIMARY KEY (region, id),
    FOREIGN KEY (within_region, within) REFERENCES nodes ON DELETE CASCADE ON UPDATE CASCADE
) PARTITION BY LIST (region);
CREATE TABLE nodes_a PARTITION OF nodes FOR VALUES IN ('a');
CREATE TABLE nodes_other PARTITION OF nodes DEFAULT;
"""
# Each row of 6 to 9 lies within one of 1 to 4, so whoever moves or deletes these does it to both.
BEGIN = """
INSERT INTO nodes SELECT r, n, NULL, NULL, 'begin', n FROM unnest(ARRAY['a', 'b']) AS r, generate_series(1, 4) AS n;
INSERT INTO nodes SELECT region, id + 5, region, id, note, amount FROM nodes;
"""
# The key is in the payload of every insert and delete; the source's id is where the others are.
EVENTS = (
    "SELECT source_id, event_type, payload, metadata -> 'old' FROM projections.events "
    "ORDER BY db_timestamp, source_id"
)

_regions = st.sampled_from(["a", "b", 'c"/,'])
_ids = st.integers(1, 5)
_spans = st.lists(st.integers(1, 10), min_size=2, max_size=2).map(sorted)
_notes = st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)
_amounts = st.none() | st.decimals(-999, 999, places=2)

_inserts = st.tuples(
    st.just(
        "INSERT INTO nodes SELECT %s, i, NULL, NULL, %s, %s FROM generate_series(%s::int, %s) AS i "
        "ON CONFLICT DO NOTHING"
    ),
    st.tuples(_regions, _notes, _amounts, _spans).map(lambda drawn: [*drawn[:3], *drawn[3]]),
)
_upserts = st.tuples(
    st.just(
        "INSERT INTO nodes SELECT %s, i, NULL, NULL, %s, %s FROM generate_series(%s::int, %s) AS i "
        "ON CONFLICT (region, id) DO UPDATE SET note = excluded.note, amount = excluded.amount"
    ),
    st.tuples(_regions, _notes, _amounts, _spans).map(lambda drawn: [*drawn[:3], *drawn[3]]),
)
_children = st.tuples(
    st.just(
        "INSERT INTO nodes SELECT %s, id + 5, region, id, %s, amount FROM nodes WHERE id = %s ON CONFLICT DO NOTHING"
    ),
    st.tuples(_regions, _notes, _ids).map(list),
)
_updates = st.tuples(
    st.just("UPDATE nodes SET note = %s, amount = %s WHERE id BETWEEN %s AND %s"),
    st.tuples(_notes, _amounts, _spans).map(lambda drawn: [*drawn[:2], *drawn[2]]),
)
_no_ops = st.just(("UPDATE nodes SET note = note, amount = amount", []))
_moves = st.tuples(
    st.just("UPDATE nodes SET region = %s, id = id + %s WHERE region = %s AND id BETWEEN %s AND %s"),
    st.tuples(_regions, st.integers(-6, 6), _regions, _spans).map(lambda drawn: [*drawn[:3], *drawn[3]]),
)
_deletes = st.tuples(
    st.just("DELETE FROM nodes WHERE region = %s AND id >= %s"), st.tuples(_regions, _ids).map(list)
)
_of_a_partition = st.tuples(
    st.just("UPDATE nodes_a SET note = %s WHERE id >= %s"), st.tuples(_notes, _ids).map(list)
)
# Not the same key: where rows cascade to their own table, PostgreSQL fires the triggers of the delete last.
_both = st.tuples(
    st.just(
        "WITH gone AS (DELETE FROM nodes WHERE region = %s AND id = %s RETURNING note) "
        "INSERT INTO nodes SELECT %s, 20 + %s, NULL, NULL, note, 1 FROM gone ON CONFLICT DO NOTHING"
    ),
    st.tuples(_regions, _ids, _regions, _ids).map(list),
)
_statements = st.one_of(
    _inserts, _upserts, _children, _updates, _no_ops, _moves, _deletes, _of_a_partition, _both
)

_kept = st.sampled_from([True, True, True, False])


@pytest.fixture
def connection(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn) as opened:
        opened.execute(TABLES)
        opened.execute("SELECT projections.capture_table_v1('nodes')")
        opened.commit()
        yield opened


@given(script=st.lists(st.tuples(_statements, _kept), min_size=1, max_size=15))
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_events_of_a_captured_table_make_its_rows(
    connection: Connection, script: list[tuple[Statement, bool]]
) -> None:
    connection.execute("DELETE FROM nodes")
    connection.execute("TRUNCATE projections.events, projections.sources")
    connection.execute(BEGIN)
    connection.commit()

    for (statement, arguments), kept in script:
        _play(connection, statement, arguments, kept)

    assert _folded(connection) == _rows(connection)
    connection.commit()


def _play(connection: Connection, statement: str, arguments: list[Any], kept: bool) -> None:
    """A statement in a savepoint, which is undone when it fails, and now and then when it does not."""
    connection.execute("SAVEPOINT one")
    try:
        connection.execute(statement, arguments)
    except psycopg.errors.IntegrityError:
        kept = False
    if not kept:
        connection.execute("ROLLBACK TO SAVEPOINT one")


def _folded(connection: Connection) -> dict[str, Any]:
    """The rows that the events make; each event fits what was there before it, and changes it."""
    rows: dict[str, Any] = {}
    for source_id, event_type, payload, old in connection.execute(EVENTS):
        match event_type.rpartition(".")[2]:
            case "insert":
                assert source_id not in rows
                rows[source_id] = payload
            case "update":
                assert rows[source_id] == old
                rows[source_id] = {**rows[source_id], **payload}
                assert rows[source_id] != old
            case "delete":
                assert rows.pop(source_id) == payload
    return rows


def _rows(connection: Connection) -> dict[str, Any]:
    found = connection.execute("SELECT json_build_array(region, id)::text, to_json(nodes) FROM nodes")
    return {f"public.nodes/{key}": row for key, row in found}
