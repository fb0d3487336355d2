"""
What runs all the time, each as one statement that works on an empty journal and on a full one; and the filling.

Rows are made by plain numbers, so that a statement names the same ones whether they are there or not.
"""

from __future__ import annotations

SOURCES = 4000
BATCH = 500
"""Of sources, events or deliveries that one statement is about."""
TOPICS = 50
ENDPOINTS = 40

POLICY = """{"schedule": [1, 2], "timeout": 10, "breaker_failures": 5,
"breaker_pause": {"first": 1, "longest": 60, "jitter": 0}}"""


def _array(element: str, first: int = 1, last: int = BATCH) -> str:
    return f"ARRAY(SELECT {element} FROM generate_series({first}, {last}) AS n ORDER BY n)"


SOURCE_ID = "'s-' || lpad(n::text, 6, '0')"
TOPIC = f"'t-' || n % {TOPICS}"
ENDPOINT_ID = f"'e-' || lpad((n % {ENDPOINTS})::text, 2, '0')"
# A UUIDv7 of 2026, which a later one is told from by its number.
EVENT_ID = "('019a0000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid"


SCHEDULE_ID = "'h-' || lpad(n::text, 6, '0')"
SCHEDULED = "'2026-01-01'::timestamptz + n * interval '1 hour'"
ATTEMPT_ID = "'a-' || lpad(n::text, 6, '0')"


def _rows_of(call: str) -> str:
    return f"SELECT count(*) FROM projections.{call}"


def append(first: int, last: int, event_ids: bool = False) -> str:
    ids = _array(EVENT_ID, first, last) if event_ids else "NULL"
    return f"""SELECT count(*) FROM projections.append_events_v1(
        {_array(SOURCE_ID, first, last)}, {_array("'thing'", first, last)}, {_array(TOPIC, first, last)},
        {_array("json_build_object('x', n % 20)::text", first, last)}, p_event_ids => {ids})"""


def fan_out(first: int, last: int) -> str:
    return f"""SELECT projections._fan_out_v1(
        {_array("'v-' || n", first, last)}, {_array("now() + n * interval '1 microsecond'", first, last)},
        {_array("'tenant'", first, last)}, {_array(TOPIC, first, last)}, {_array("'k-' || n % 1000", first, last)},
        {_array("NULL::timestamptz", first, last)}, {_array("TRUE", first, last)}, {_array("'{}'", first, last)},
        {_array("'{}'", first, last)}, {_array("n::integer - " + str(first - 1), first, last)},
        {_array(ENDPOINT_ID, first, last)})"""


def log_attempts(first: int, last: int) -> str:
    return f"""SELECT projections._log_attempts_v1(
        {_array(ATTEMPT_ID, first, last)}, {_array("'tenant'", first, last)},
        {_array("'v-' || n", first, last)}, {_array("now()", first, last)}, {_array(TOPIC, first, last)},
        {_array(ENDPOINT_ID, first, last)}, {_array("'webhook'", first, last)}, {_array("1", first, last)},
        {_array("FALSE", first, last)},
        {_array("CASE WHEN n % 10 = 0 THEN 'failed' ELSE 'success' END", first, last)},
        {_array("now() - n * interval '1 second'", first, last)}, {_array("'200'", first, last)},
        {_array("''", first, last)}, {_array("'1 second'::interval", first, last)})"""


def match(first: int, last: int, kind: str = "thing") -> str:
    seq_nr = "n" if kind == "published" else "1"
    source_id = "'publisher/p'" if kind == "published" else SOURCE_ID
    # The time of the event, where there is one: a lookup by the key, which takes a row each.
    at = f"""coalesce((SELECT e.db_timestamp FROM projections.events AS e
        WHERE e.source_id = {source_id} AND e.seq_nr = {seq_nr}), now())"""
    return f"""SELECT projections._match_log_v1({_array(f"'{kind}'", first, last)},
        {_array(source_id, first, last)}, {_array(f"{seq_nr}::bigint", first, last)}, {_array(at, first, last)},
        {_array("1::smallint", first, last)}, {_array(TOPIC, first, last)})"""


def schedules(number: int) -> str:
    return f"""INSERT INTO projections.webhook_schedules (schedule_id, tenant, name, cron, topic, data, next_at, paused)
        SELECT {SCHEDULE_ID}, 'tenant', n, '@hourly', 't', '{{}}', {SCHEDULED}, n % 10 = 0 AND n > {BATCH}
        FROM generate_series(1, {number}) AS n ON CONFLICT DO NOTHING"""


PAGE = f"('{{thing}}', 0, 1023, '2000-01-01', -1, '', 0, '9000-01-01', {BATCH})"
TIMES = f"""ARRAY(SELECT coalesce((SELECT e.db_timestamp FROM projections.events AS e
    WHERE e.source_id = {SOURCE_ID} AND e.seq_nr = 1), now()) FROM generate_series(1, {BATCH}) AS n ORDER BY n)"""
DELIVERIES = _array("n::bigint", 1, BATCH)
STAGE = f"""
CREATE TEMPORARY TABLE projections_import (
    source_id text COLLATE "C", entity_type text COLLATE "C", event_type text, seq_nr bigint, db_timestamp timestamptz,
    event_id uuid, version smallint, payload text, metadata text, tags text
);
INSERT INTO projections_import
SELECT {SOURCE_ID}, 'thing', 't-1',
    coalesce((SELECT s.seq_nr FROM projections.sources AS s WHERE s.source_id = {SOURCE_ID}), 0) + 1,
    clock_timestamp(), {EVENT_ID}, 1, '{{}}', NULL, NULL
FROM generate_series(100001 - {BATCH}, 100000 + {BATCH}) AS n
"""


def rebuilt(projection: str, sources: int = SOURCES) -> list[str]:
    """What a rebuild of a projection leaves: where each source stands."""
    return [
        f"""INSERT INTO projections.rebuilds (
            rebuild_id, projection_id, min_slice, max_slice, version, fence, import_id, evicted_before, fingerprint,
            method
        )
        OVERRIDING SYSTEM VALUE SELECT 1, projection_id, 0, 1023, 1, now(), 0, '1970-01-01', '', 'rename'
        FROM projections.projections WHERE name = '{projection}'""",
        "CREATE SCHEMA projections_rebuild_1",
        f"""CREATE TABLE projections_rebuild_1._last AS
        SELECT {SOURCE_ID} COLLATE "C" AS source_id, 1::smallint AS slice, 2::bigint AS seq_nr, now() AS db_timestamp
        FROM generate_series(1, {sources}) AS n""",
        "ALTER TABLE projections_rebuild_1._last ADD PRIMARY KEY (source_id)",
        "ANALYZE projections_rebuild_1._last",
    ]


SWAP = "SELECT projections._move_offsets_v1(b) FROM projections.rebuilds AS b"
READS = {
    "a page of events": _rows_of(f"read_events_by_slices_v1{PAGE}"),
    "a page of keys": _rows_of(f"_read_keys_by_slices_v1{PAGE}"),
    "a page of heads": _rows_of(f"_read_keys_by_slices_v1{PAGE[:-1]}, TRUE)"),
    "events by key": _rows_of(f"_load_events_v1({_array(SOURCE_ID)}, {_array('1::bigint')}, {TIMES})"),
    "predecessors": _rows_of(
        f"_predecessors_v1({_array(SOURCE_ID)}, {_array('2::bigint')}, '2000-01-01', now())"
    ),
    "where a source stands": "SELECT projections.latest_seq_nr_v1('s-000007')",
    "a source": _rows_of("read_source_v1('s-000007', 1, 100, FALSE, 100)"),
    "a source backwards": _rows_of("read_source_v1('s-000007', 1, 100, TRUE, 100)"),
    "an event by its id": _rows_of("find_event_v1('019a0000-0000-7000-8000-000000000007')"),
    "newest events": "SELECT projections._newest_events_v1('{thing,published}', '{2000-01-01,2000-01-01}')",
    "a poll": _rows_of("_poll_writers_v1(0, '{}', '{}')"),
    "entity types": _rows_of("_entity_types_v1()"),
    "offsets": _rows_of(f"read_offsets_v1(1, {_array(SOURCE_ID)})"),
    "lag": _rows_of("slice_lag_v1('{1}')"),
    "who holds partitions": _rows_of("_retention_holders_v1()"),
    "interests": _rows_of(f"_interests_v1('thing', {_array(TOPIC, 1, TOPICS)} || NULL::text)"),
    "matches of a group": _rows_of("read_next_v1('g', 0, 1023, 0, 9000000000, 500)"),
    "matches of a subscription": _rows_of("read_next_v1('g', 0, 1023, 0, 9000000000, 10, ARRAY[1::bigint])"),
    "what a condition was not asked": _rows_of("_next_unasked_v1(3, 500)"),
    "matches to replay": "SELECT projections._replay_length_v1('g', 1, 0, 9000000000, 100)",
    "lag of groups": _rows_of("group_lag_v1()"),
    "state of subscriptions": "SELECT projections._subscriptions_state_v1()",
    "backlog of endpoints": _rows_of("_endpoint_backlog_v1()"),
    "endpoints": _rows_of("endpoint_stats_v1(p_attempts => 100, p_endpoints => 20)"),
    "webhooks in all": _rows_of("_webhook_totals_v1()"),
    "the next schedule": "SELECT projections._next_schedule_v1(TRUE)",
    "a look at matching": _rows_of("_look_at_matching_v1()"),
    "logged events": _rows_of("_list_logged_events_v1(p_limit => 100)"),
    "logged events of an endpoint": _rows_of(
        "_list_logged_events_v1('{tenant}', p_endpoint_ids => '{e-07}')"
    ),
    "logged attempts": _rows_of("_list_logged_attempts_v1(p_limit => 100)"),
    "logged attempts of an endpoint": _rows_of(
        "_list_logged_attempts_v1('{tenant}', p_endpoint_ids => '{e-07}')"
    ),
    "logged attempts of several endpoints": _rows_of(
        "_list_logged_attempts_v1('{tenant}', p_endpoint_ids => '{e-07,e-08,nothing}')"
    ),
    "logged attempts that failed": _rows_of("_list_logged_attempts_v1('{tenant}', p_status => 'failed')"),
    "logged attempts of an event": _rows_of("_list_logged_attempts_v1(p_event_ids => '{v-7}')"),
    "named attempts": _rows_of(f"_list_logged_attempts_v1(p_attempt_ids => {_array(ATTEMPT_ID, 1, 100)})"),
    "metrics of attempts": _rows_of(
        "_log_metrics_v1('attempt', now() - interval '1 day', now() + interval '1 day')"
    ),
}


def _save(first: int, known: int, batch: int = BATCH) -> str:
    """Store a batch of the first projection's first range; of its sources, so many have an offset."""
    return f"""SELECT projections.save_offsets_v1(
        1, 0, 0, 'worker', 0, 0, NULL, NULL, 'batch', now(), 0, {_array(SOURCE_ID, first, first + batch - 1)},
        {_array("1::smallint", 1, batch - known)}, {_array("1::bigint", 1, known)}, {_array("2::bigint", 1, batch)},
        {_array("now()", 1, batch)}, {batch})"""


_CLAIMED = [
    "SELECT set_config('projections.batch', 'batch', TRUE)",
    """INSERT INTO projections.projections (projection_id, name, entity_types) OVERRIDING SYSTEM VALUE
    VALUES (1, 'p', '{thing}') ON CONFLICT DO NOTHING""",
    """INSERT INTO projections.projection_ranges (projection_id, min_slice, max_slice) VALUES (1, 0, 1023)
    ON CONFLICT DO NOTHING""",
    "UPDATE projections.projection_ranges SET owner = 'worker' WHERE projection_id = 1",
]
_INLINE = [*_CLAIMED, "UPDATE projections.projections SET mode = 'inline'", append(400_001, 400_001)]


def _begin_inline(first: int, seq_nr: int) -> str:
    numbers = _array(f"{seq_nr}::bigint")
    return f"""SELECT count(*) FROM projections._begin_inline_v1(
        '{{p}}', '{{1}}', '{{"{{thing}}"}}', {_array(SOURCE_ID, first, first + BATCH - 1)}, {_array("'thing'")},
        {numbers}, {numbers}, {_array("now()")}, {_array("now()")})"""


WRITES = {
    "inline of known sources": _begin_inline(201, 2),
    "inline of sources that may be known no more": _begin_inline(SOURCES - BATCH + 1, 3),
    "inline of new sources": _begin_inline(200_001, 1),
    "note reactions": f"""SELECT count(*) FROM projections._note_reactions_v1(
        'p', {_array(SOURCE_ID)}, {_array("2::bigint")})""",
    "offsets of known sources": _save(1, BATCH),
    "offsets of most sources": _save(1, 3500, 3500),
    "offsets of new sources": _save(200_001, 0),
    "append to known sources": append(1, BATCH),
    "append to new sources": append(200_001, 200_000 + BATCH),
    "append with ids": append(300_001 - BATCH // 2, 300_000 + BATCH // 2, event_ids=True),
    "append stored ids": append(1, BATCH, event_ids=True),
    "import": "SELECT projections._import_events_v1()",
    "evict offsets": "SELECT projections._evict_offsets_v1(1, interval '0', '', 500)",
    "match": match(1, BATCH),
    "match published": match(1, BATCH, "published"),
    "match what is due": "SELECT projections._match_due_v1(500)",
    "match what was not asked": """SELECT projections._match_unasked_v1(3, min(n.page_id), min(n.place), 500)
        FROM projections._next_unasked_v1(3, 500) AS n""",
    "pass what was not asked": "SELECT projections._pass_unasked_v1()",
    "publish to subscriptions": f"""SELECT count(*) FROM projections.publish_v1(
        'q', {_array(TOPIC)}, {_array("'{}'")}, p_subscription_ids => {_array("1::bigint")})""",
    "expire subscriptions": "SELECT projections._expire_subscriptions_v1()",
    "keep subscriptions": f"SELECT projections.keep_subscriptions_v1({_array('n::bigint', 1, 50)})",
    "fan out": fan_out(10_001, 10_000 + BATCH),
    "fan out again": fan_out(1, BATCH),
    "claim deliveries": "SELECT count(*) FROM projections._claim_deliveries_v1(200)",
    "finish deliveries": f"""SELECT count(*) FROM projections._finish_deliveries_v1({DELIVERIES}, {DELIVERIES},
        {_array("'done'")}, {_array("NULL::interval")}, {_array("NULL::interval")}, {_array("FALSE")},
        {_array("'200'")}, {_array("''")}, {_array("'1 second'::interval")})""",
    "claim schedules": "SELECT count(*) FROM projections._claim_schedules_v1()",
    "advance schedules": f"""SELECT projections._advance_schedules_v1({_array(SCHEDULE_ID)}, {_array(SCHEDULED)},
        {_array("now()")}, {_array("now()")}, {_array("NULL")}, {_array("interval '0'")})""",
    "reap deliveries": "SELECT projections._reap_deliveries_v1(100)",
    "retry deliveries": "SELECT projections._decide_deliveries_v1('retry', 'tenant', NULL, '{dead}', NULL, NULL, NULL)",
    "drop deliveries": "SELECT projections._decide_deliveries_v1('drop', 'tenant', NULL, '{dead}', NULL, NULL, NULL)",
    "release what waits": "SELECT projections._release_waiting_v1(p_limit => 200)",
    "log attempts": log_attempts(10_001, 10_000 + BATCH),
    "log attempts again": log_attempts(1, BATCH),
    "forget deliveries": "SELECT projections._forget_deliveries_v1(500)",
    "swap of offsets": SWAP,
    "swap of offsets of a first rebuild": SWAP,
    "forget ids of the log": "SELECT projections._forget_logged_ids_v1(500)",
}
PATHS = READS | WRITES
SWEEPS = {
    "lag", "who holds partitions", "lag of groups", "state of subscriptions", "backlog of endpoints", "endpoints",
    "webhooks in all", "metrics of attempts", "matches to replay", "expire subscriptions", "log attempts again",
    "swap of offsets", "swap of offsets of a first rebuild", "offsets of most sources",
}  # fmt: skip
"""Paths that are about all that there is, and so look at all of it."""
BEFORE = {
    "inline of known sources": _INLINE,
    "inline of sources that may be known no more": _INLINE,
    "inline of new sources": _INLINE,
    "note reactions": _CLAIMED,
    "offsets of known sources": _CLAIMED,
    "offsets of most sources": _CLAIMED,
    "offsets of new sources": _CLAIMED,
    "import": [STAGE],
    "finish deliveries": [
        """UPDATE projections.webhook_deliveries
        SET state = 'leased', lease_token = delivery_id, attempts = 1, lease_until = now() + interval '1 minute'
        WHERE delivery_id <= 500"""
    ],
    "advance schedules": [schedules(BATCH)],
    "swap of offsets": rebuilt("p"),
    "swap of offsets of a first rebuild": rebuilt("first"),
}
"""What is to be done before, in the same transaction."""

NO_VACUUM = """
DO $$
DECLARE
    _table text;
BEGIN
    FOR _table IN
        SELECT c.oid::regclass FROM pg_class AS c WHERE c.relnamespace = 'projections'::regnamespace AND c.relkind = 'r'
    LOOP
        EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', _table);
    END LOOP;
END;
$$
"""
_JOURNAL = [
    "SELECT projections.register_projection_v1('p', '{thing}', '{0,256,512,768}')",
    "SELECT projections.register_projection_v1('first', '{thing}')",
    append(1, SOURCES, event_ids=True),
    append(1, SOURCES),
    """INSERT INTO projections.source_offsets SELECT 1, s.source_id, s.slice, 1, '2020-01-01'
    FROM projections.sources AS s WHERE s.source_id <= 's-003500'""",
    """UPDATE projections.projection_ranges
    SET handled_until = now() - interval '1 second', horizon = '2020-01-01'""",
    """INSERT INTO projections.reactions SELECT 1, s.source_id, 1
    FROM projections.sources AS s WHERE s.source_id <= 's-003500'""",
    """INSERT INTO projections.parked_sources SELECT 1, s.source_id, s.slice, 2, 't', 'error', 1
    FROM projections.sources AS s WHERE s.source_id <= 's-000200'""",
]
_SUBSCRIPTIONS = [
    "SELECT projections.create_group_v1('g', TRUE, '{0,256,512,768}')",
    f"""SELECT projections.subscribe_v1('g', p_topics => ARRAY[{TOPIC}], p_params => json_build_object('n', n)::jsonb)
    FROM generate_series(1, 100) AS n""",
    # Of topics that no event has.
    f"""WITH made AS (
        INSERT INTO projections.subscriptions (group_id, params, topics, since, identity)
        SELECT 1, '{{}}', ARRAY['u-' || n], '2020-01-01', to_jsonb('u-' || n) FROM generate_series(1, {SOURCES}) AS n
        RETURNING subscription_id, topics
    )
    INSERT INTO projections.subscription_topics SELECT m.topics[1], m.subscription_id FROM made AS m""",
    """SELECT projections.subscribe_v1(
        'g', 'e.event_type = ''t-'' || (s.params ->> ''x'')', json_build_object('x', n)::jsonb,
        p_topics => ARRAY['t-' || n]
    ) FROM generate_series(1, 20) AS n""",
    """SELECT projections.subscribe_v1(
        'g', 'e.payload ->> ''x'' = s.params ->> ''x''', json_build_object('x', n)::jsonb
    ) FROM generate_series(1, 20) AS n""",
    match(1, SOURCES),
    # A condition that catches up, page after page of ten events.
    "SELECT projections.subscribe_v1('g', 'e.seq_nr > 0', p_topics => '{none}')",
    """SELECT projections._keep_unasked_v1('{3}', array_agg(
            (e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_type, e.db_timestamp, NULL, e.entity_type)
            ::projections.events_to_match
        ), ARRAY[(3, NULL, 1, '{}', 'thing')::projections.interests])
    FROM (
        SELECT e.*, row_number() OVER (ORDER BY e.source_id) / 10 AS page
        FROM projections.events AS e WHERE e.entity_type = 'thing' AND e.seq_nr = 1
    ) AS e GROUP BY e.page ORDER BY e.page""",
    "UPDATE projections.conditions SET unasked_from = 1 WHERE condition_id = 3",
    # Published: to subscriptions, and for a time that has come.
    f"""SELECT count(*) FROM projections.publish_v1('p', {_array(TOPIC, 1, SOURCES)}, {_array("'{}'", 1, SOURCES)},
        p_subscription_ids => {_array("CASE WHEN n % 2 = 0 THEN 1::bigint END", 1, SOURCES)},
        p_not_before => {_array("CASE WHEN n % 2 = 1 THEN now() END", 1, SOURCES)})""",
]
_WEBHOOKS = [
    f"""INSERT INTO projections.webhook_endpoints (endpoint_id, tenant, url, policy, ordering, created_at)
    SELECT {ENDPOINT_ID}, 'tenant', 'http://localhost', '{POLICY}', CASE WHEN n % 2 = 0 THEN 'key' ELSE 'none' END,
        '2020-01-01'
    FROM generate_series(0, {ENDPOINTS - 1}) AS n""",
    # Nobody sends to these.
    f"""INSERT INTO projections.webhook_endpoints (endpoint_id, tenant, url, policy)
    SELECT 'f-' || n, 'other', 'http://localhost', '{POLICY}' FROM generate_series(1, {SOURCES}) AS n""",
    "INSERT INTO projections.webhook_circuits (endpoint_id) SELECT endpoint_id FROM projections.webhook_endpoints",
    fan_out(1, SOURCES),
    """UPDATE projections.webhook_deliveries
    SET state = (ARRAY['done', 'dead', 'pending', 'leased'])[1 + delivery_id % 4], lease_until = now(), attempts = 1
    WHERE state = 'pending'""",
    log_attempts(1, SOURCES),
    schedules(SOURCES),
]
FILL = _JOURNAL + _SUBSCRIPTIONS + _WEBHOOKS

__all__ = ["BEFORE", "FILL", "NO_VACUUM", "PATHS", "SOURCES", "SWAP", "SWEEPS", "rebuilt"]
