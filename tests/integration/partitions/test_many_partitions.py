"""What runs all the time opens the partitions that it needs, however many there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
import pytest

from tests.fixtures.postgres import Databases

AHEAD = 7
# A day each, up to a week from now.
PARTITIONS = """
DO $$
DECLARE
    _start CONSTANT timestamptz := date_trunc('day', now(), 'UTC');
BEGIN
    FOR n IN 1 - {count} .. {ahead} LOOP
        EXECUTE format(
            'CREATE TABLE projections.events_%s PARTITION OF projections.events FOR VALUES FROM (%L) TO (%L)',
            n + {count}, _start + n * interval '24 hours', _start + (n + 1) * interval '24 hours'
        );
    END LOOP;
END;
$$
"""
# One source has an event of each day, others have been written today alone.
OLD = """
INSERT INTO projections.events (
    db_timestamp, seq_nr, event_id, slice, version, source_id, entity_type, event_type, payload
)
SELECT now() - ({count} - n) * interval '24 hours', n,
    projections.uuid7_v1(now() - ({count} - n) * interval '24 hours'),
    projections.slice_of_v1('old'), 1, 'old', 'thing', 'happened', '{{}}'
FROM generate_series(1, {count} - 1) AS n;
INSERT INTO projections.sources (source_id, entity_type, slice, seq_nr, db_timestamp)
VALUES ('old', 'thing', projections.slice_of_v1('old'), {count} - 1, now() - interval '24 hours')
"""
NEW = """
SELECT count(*) FROM projections.append_events_v1(
    ARRAY(SELECT 'new' || n % 10 FROM generate_series(1, 100) AS n), array_fill('thing'::text, '{100}'),
    array_fill('happened'::text, '{100}'), array_fill('{}'::text, '{100}'),
    p_event_ids => ARRAY(SELECT projections.uuid7_v1(now()) FROM generate_series(1, 100))
)
"""
KEYS = """
SELECT
    array_agg(source_id), array_agg(seq_nr), array_agg(db_timestamp), array_agg(event_id), array_agg(event_type)
FROM projections.events WHERE db_timestamp > date_trunc('day', now(), 'UTC') AND source_id LIKE 'new%'
"""
PAGE = "SELECT count(*) FROM projections.{}('{{thing}}', 0, 1023, {}, -1, '', 0, '9998-12-31', {})"
LOOK = "SELECT * FROM projections._poll_writers_v1(0, '{{thing,other}}', ARRAY[now(), {}])"
ALWAYS = {
    "append": NEW,
    "poll": LOOK.format("now() - interval '1 minute'"),
    **{
        f"page of {what} at the end": PAGE.format(function, "now()", 1000)
        for what, function in (("events", "read_events_by_slices_v1"), ("keys", "_read_keys_by_slices_v1"))
    },
    "page of types at the end": PAGE.format("_read_keys_by_slices_v1", "now()", "1000, TRUE"),
    "page of events of today": PAGE.format("read_events_by_slices_v1", "now() - interval '1 hour'", 1000),
    "page of events of long ago": PAGE.format("read_events_by_slices_v1", "now() - interval '90 days'", 3),
    "first page": PAGE.format("read_events_by_slices_v1", "'1970-01-01Z'", 1),
    "load": "SELECT * FROM projections._load_events_v1(%(ids)s, %(numbers)s, %(times)s)",
    "what conditions see": "SELECT * FROM projections._matchable_events_v1(%(ids)s, %(numbers)s, %(times)s)",
    "predecessors": "SELECT * FROM projections._predecessors_v1('{new1}', '{3}', now() - interval '1 day', now())",
    "source backwards": "SELECT * FROM projections.read_source_v1('old', %(last)s, %(last)s, TRUE, 1000)",
    "matches that are read": "SELECT * FROM projections.read_next_v1('g', 0, 1023, 0, 1000, 1000)",
    "matching": "SELECT projections._match_log_v1(array_fill('thing'::text, ARRAY[cardinality(%(ids)s::text[])]), "
    "%(ids)s, %(numbers)s::bigint[], %(times)s, "
    "ARRAY(SELECT projections.slice_of_v1(id)::smallint FROM unnest(%(ids)s::text[]) AS id), %(types)s)",
    "entity types": "SELECT projections._entity_types_v1()",
    "lag": "SELECT * FROM projections.slice_lag_v1()",
    "lag of groups": "SELECT * FROM projections.group_lag_v1()",
    "event by id": "SELECT * FROM projections.find_event_v1((%(event_ids)s::uuid[])[1])",
}
OPENED = """
SELECT count(DISTINCT l.relation) FROM pg_locks AS l INNER JOIN pg_inherits AS i ON l.relation = i.inhrelid
WHERE l.pid = pg_backend_pid() AND i.inhparent = 'projections.events'::regclass
"""


# A projection and a group that have come up to today.
READERS = """
SELECT projections.subscribe_v1('g', p_topics => '{happened}');
SELECT projections.register_projection_v1('p', '{thing}'), projections._begin_matching_v1();
UPDATE projections.projection_ranges
SET horizon = date_trunc('day', now(), 'UTC'), handled_until = date_trunc('day', now(), 'UTC');
INSERT INTO projections.matches (
    match_id, group_id, slice, seq_nr, db_timestamp, matched_at, source_id, subscription_ids
)
SELECT
    nextval('projections.match_ids'), 1, e.slice, e.seq_nr, e.db_timestamp, now(), e.source_id, '{1}'
FROM projections.events AS e WHERE e.source_id LIKE 'new%'
"""


class Journal(NamedTuple):
    """A database, and the keys of events of today."""

    dsn: str
    keys: dict[str, Any]


MEMORY = "SELECT sum(total_bytes) FROM pg_backend_memory_contexts"


@pytest.fixture(
    scope="module", params=[400, pytest.param(1000, marks=pytest.mark.slow)], ids="{} partitions".format
)
def journal(databases: Databases, template: str, request: pytest.FixtureRequest) -> Iterator[Journal]:
    """A journal with many partitions, in which little is."""
    with databases.fresh(template) as dsn:
        with psycopg.connect(dsn, autocommit=True) as opened:
            opened.execute(PARTITIONS.format(count=request.param, ahead=AHEAD).encode())
            opened.execute(OLD.format(count=request.param).encode())
            opened.execute(NEW)
            opened.execute(READERS)
            keys = opened.execute(KEYS).fetchone()
        assert keys is not None
        yield Journal(
            dsn,
            dict(
                zip(
                    ("ids", "numbers", "times", "event_ids", "types", "last"),
                    (*keys, request.param - 1),
                    strict=True,
                )
            ),
        )


def opened(connection: psycopg.Connection[Any], call: str, keys: dict[str, Any]) -> int:
    """How many partitions a statement opens."""
    with connection.transaction(force_rollback=True):
        connection.execute(call.encode(), keys if "%(" in call else None)
        found = connection.execute(OPENED).fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.slow
@pytest.mark.parametrize("call", ALWAYS)
def test_what_runs_all_the_time_opens_few_partitions(journal: Journal, call: str) -> None:
    with psycopg.connect(journal.dsn, autocommit=True) as connection:
        # A plan that is kept would come with the sixth.
        found = [opened(connection, ALWAYS[call], journal.keys) for _ in range(7)]

    # Today, those ahead, and the default one.
    assert max(found) <= AHEAD + 3, found


@pytest.mark.slow
def test_a_session_that_has_done_all_of_it_stays_small(journal: Journal) -> None:
    with psycopg.connect(journal.dsn, autocommit=True) as connection:
        for call in ALWAYS.values():
            opened(connection, call, journal.keys)
        found = connection.execute(MEMORY).fetchone()

    assert found is not None
    assert found[0] < 24 * 2**20


def test_a_source_is_read_backwards_to_its_first_event(journal: Journal) -> None:
    with psycopg.connect(journal.dsn, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT seq_nr FROM projections.read_source_v1('old', 1, 9223372036854775807, TRUE, 1000)"
        ).fetchall()

    assert [row[0] for row in rows] == [*range(len(rows), 0, -1)]
    assert len(rows) >= 399


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_pages_over_all_partitions_have_each_event_once_in_order(journal: Journal, size: int) -> None:
    page = (
        "SELECT db_timestamp, slice, source_id, seq_nr FROM projections._read_keys_by_slices_v1("
        "'{thing}', 0, 1023, %s, %s, %s, %s, 'infinity', %s)"
    )
    place: tuple[Any, ...] = ("1970-01-01Z", -1, "", 0)
    found = []
    with psycopg.connect(journal.dsn, autocommit=True) as connection:
        while rows := connection.execute(page.encode(), (*place, size)).fetchall():
            found += rows
            place = rows[-1]
        stored = connection.execute(
            "SELECT db_timestamp, slice, source_id, seq_nr FROM projections.events WHERE entity_type = 'thing' "
            "ORDER BY 1, 2, 3, 4"
        ).fetchall()

    assert found == stored
