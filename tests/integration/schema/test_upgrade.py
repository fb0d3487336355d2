"""Upgrading the schema of an earlier release, with rows in every table, and going on from there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from random import Random
from typing import Any

import psycopg
import pytest

from journal import Database, DatabaseError, DatabaseWentBack, Event, SchemaError, append, connect, schema
from journal.schema import installing
from offsets import ParkedSources
from projections.interests.filters import compile_filter
from projections.interests.json_values import read_json
from projections.interests.topics import parse_topics
from projections.subscriptions import Consumer, InvalidSubscription, Matching
from projections.subscriptions.groups import poll_group
from projections.webhooks.deliveries import Deliveries, DeliveryFilter
from tests.fixtures.locks import WAITING
from tests.fixtures.postgres import Databases
from tests.fixtures.projections import caught_up, each_once, effects, fetchval, happen, recording
from tests.fixtures.raw_server import RawServer, respond
from tests.fixtures.schema import SCHEMAS, released_script, run
from tests.fixtures.subscriptions import Seen, consuming, quick, until_handled
from tests.fixtures.webhook_delivery import delivering, endpoints, finished

RELEASED = [1]
"""Versions of the schema that were released: for each, how it was installed, and rows for every table."""
TABLES = """
SELECT
    c.relname,
    array_agg(quote_ident(a.attname) ORDER BY a.attnum) FILTER (WHERE c.relname || '.' || a.attname <> ALL (%s))
FROM pg_class AS c INNER JOIN pg_attribute AS a ON c.oid = a.attrelid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'projections'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
AND c.relname <> ALL (%s)
GROUP BY c.relname ORDER BY c.relname
"""

Rows = dict[str, tuple[str, set[str]]]
"""By table: its columns, and its rows as text."""


@pytest.fixture(scope="module", params=RELEASED)
def released(request: pytest.FixtureRequest, databases: Databases) -> Iterator[str]:
    """A database as an earlier release has left it."""
    script = released_script(request.param)
    steps = (SCHEMAS / f"version_{request.param}_rows.sql").read_text().split("\n\n")
    with databases.fresh("template0") as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            for step in [re.sub(r"^\\.*$", "", script, flags=re.MULTILINE), *steps]:
                connection.execute(f"BEGIN;{step};COMMIT".encode())
        yield dsn


@pytest.fixture
def earlier(released: str, databases: Databases) -> Iterator[str]:
    """One of its own for a test."""
    with databases.copy(released) as dsn:
        yield dsn


LEFT = {"webhook_duties", "partition_settings.maintained_at", "projections.entity_type"}
"""Tables and columns that an upgrade has dropped: their rows say nothing that is to be kept as it was."""
MOVED = {"group_readers": "workers"}
"""Tables whose rows an upgrade has moved to another, under the same names of columns."""


def rows(dsn: str, like: Rows | None = None) -> Rows:
    """All rows, of the columns that other tables have."""
    columns = {table: ", ".join(names) for table, names in run(dsn, TABLES, [*LEFT], [*LEFT])}
    if like is not None:
        columns |= {table: names for table, (names, _) in like.items()}
    return {
        table: (names, {row for (row,) in run(dsn, f"SELECT ROW({names})::text FROM projections.{found}")})
        for table, names in columns.items()
        for found in [table if like is None else MOVED.get(table, table)]
    }


@pytest.mark.slow
def test_every_table_has_rows(earlier: str) -> None:
    assert [table for table, (_, found) in rows(earlier).items() if not found] == []


@pytest.mark.slow
def test_an_upgrade_keeps_every_row_and_leaves_no_difference(earlier: str) -> None:
    before = rows(earlier)
    (matching,) = run(
        earlier, "SELECT projection_id FROM projections.projections WHERE name = 'matching/flight'"
    )[0]

    schema.upgrade(earlier)

    for table in ("projections", "projection_ranges", "source_offsets"):
        names, found = before[table]
        before[table] = names, {row for row in found if not row.startswith(f"({matching},")}
    columns, hooks = before["webhook_endpoints"]
    before["webhook_endpoints"] = columns, {row.replace(",{*},", ",{**},") for row in hooks}
    after = rows(earlier, before)
    assert {
        table: found - after[table][1] for table, (_, found) in before.items() if found - after[table][1]
    } == {}
    assert schema.installed_version(earlier) == schema.SCHEMA_VERSION
    assert schema.verify(earlier) == []


def test_a_projection_and_its_rebuilds_read_the_entity_type_that_they_read_before(earlier: str) -> None:
    before = run(
        earlier,
        "SELECT name, ARRAY[entity_type] FROM projections.projections "
        "WHERE NOT starts_with(name, 'matching') ORDER BY name",
    )
    schema.upgrade(earlier)
    assert (
        run(
            earlier,
            "SELECT name, entity_types FROM projections.projections "
            "WHERE NOT starts_with(name, 'matching') ORDER BY name",
        )
        == before
    )
    assert run(
        earlier,
        "SELECT DISTINCT b.entity_types = p.entity_types FROM projections.rebuilds AS b "
        "INNER JOIN projections.projections AS p ON b.projection_id = p.projection_id",
    ) == [(True,)]


def test_who_maintains_next_waits_for_as_long_as_before(earlier: str) -> None:
    run(earlier, "SELECT projections.take_maintenance_v1('1 second')")
    schema.upgrade(earlier)
    assert run(
        earlier,
        "SELECT projections._take_turn_v1('maintenance', '1 hour'), projections._take_turn_v1('maintenance', '0')",
    ) == [(False, True)]


@pytest.mark.slow
def test_partitions_are_maintained_by_the_settings_of_before_and_kept_for_who_needs_them(
    earlier: str,
) -> None:
    settings = "SELECT table_name, partition_interval, ahead, retention FROM projections.partition_settings"
    run(earlier, "UPDATE projections.partition_settings SET retention = '1 minute', ahead = ahead + 1")
    run(
        earlier,
        "UPDATE projections.webhook_deliveries SET state = 'waiting', event_time = '2020-01-01 12:00Z'",
    )
    before = run(earlier, settings)
    schema.upgrade(earlier)
    assert run(earlier, settings) == before
    for table in ("webhook_attempts", "webhook_events"):
        run(
            earlier,
            f"SELECT projections._create_partition_v1('2020-01-01Z', '2020-01-02Z', '{table}')",
        )

    steps = []
    while found := run(earlier, "SELECT step, table_name, problem FROM projections.maintain_v1()"):
        steps += found

    assert {problem for _, _, problem in steps} == {None}
    assert {table for step, table, _ in steps if step == "create"} == {table for table, *_ in before}
    kept = (
        "SELECT DISTINCT h.table_name, h.kind FROM projections.partition_holders_v1() AS h "
        "WHERE h.kind IN ('projection', 'delivery') ORDER BY h.table_name"
    )
    assert run(earlier, kept) == [("events", "projection"), ("webhook_events", "delivery")]
    attempts = "SELECT count(*) FROM projections.partitions WHERE name = 'webhook_attempts_20200101t000000'"
    assert run(earlier, attempts) == [(0,)]


@pytest.mark.slow
def test_tables_that_are_captured_and_views_of_users_go_on_where_functions_have_other_names(
    earlier: str,
) -> None:
    run(
        earlier,
        "CREATE TABLE public.orders (id integer PRIMARY KEY); "
        "CREATE VIEW public.times AS "
        "SELECT source_id, projections.uuid7_time_v1(event_id) AS at FROM projections.events",
    )
    run(earlier, "SELECT projections.capture_table_v1('public.orders')")
    run(earlier, "INSERT INTO public.orders VALUES (1)")

    schema.upgrade(earlier)

    assert schema.verify(earlier) == []
    run(earlier, "INSERT INTO public.orders VALUES (2)")
    run(earlier, "UPDATE public.orders SET id = 3 WHERE id = 2")
    with pytest.raises(DatabaseError) as refused:
        run(earlier, "TRUNCATE public.orders")
    assert refused.value.sqlstate == "PJ061"
    assert run(earlier, "SELECT relation::text, on_insert FROM projections.captured_tables") == [
        ("orders", True)
    ]
    assert run(
        earlier,
        "SELECT source_id, count(at) FROM public.times WHERE starts_with(source_id, 'public.') GROUP BY 1 ORDER BY 1",
    ) == [("public.orders/1", 1), ("public.orders/2", 2), ("public.orders/3", 1)]
    assert run(earlier, "SELECT projections.release_table_v1('public.orders')") == [(True,)]
    run(earlier, "DROP TABLE public.orders")


APPENDS = [
    "SELECT projections.append_event_v1('a', 'plane', 'Landed', '{}')",
    "SELECT projections.publish_v1('me', '{topic}', '{1}')",
    "INSERT INTO public.orders VALUES (1)",
]


@pytest.mark.slow
def test_appends_that_wait_for_an_upgrade_go_on_after_it(earlier: str) -> None:
    """They go on in the functions that they began in, those of before."""
    run(earlier, "CREATE TABLE public.orders (id integer PRIMARY KEY)")
    run(earlier, "SELECT projections.capture_table_v1('public.orders')")
    with psycopg.connect(earlier) as other, ThreadPoolExecutor() as pool:
        other.execute("LOCK TABLE projections.partition_settings IN ACCESS SHARE MODE")
        upgrading = pool.submit(schema.upgrade, earlier)
        while len(run(earlier, f"SELECT pid FROM {WAITING}")) < 1:
            assert not upgrading.done()
        appending = [pool.submit(run, earlier, append) for append in APPENDS]
        while len(run(earlier, f"SELECT pid FROM {WAITING}")) < 1 + len(APPENDS):
            assert not any(one.done() for one in appending)
        other.rollback()

        upgrading.result()
        for one in appending:
            one.result()

    assert schema.verify(earlier) == []


@pytest.mark.slow
def test_upgrading_twice_changes_nothing_more(earlier: str) -> None:
    schema.upgrade(earlier)
    once = rows(earlier)

    schema.upgrade(earlier)

    assert rows(earlier) == once
    assert schema.verify(earlier) == []


@pytest.mark.slow
def test_an_upgrade_that_waits_for_a_transaction_gives_up_with_nothing_changed(
    earlier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "'10s'" in installing._LOCK_TIMEOUT
    monkeypatch.setattr(installing, "_LOCK_TIMEOUT", installing._LOCK_TIMEOUT.replace("10s", "2s"))
    before, version = rows(earlier), schema.installed_version(earlier)
    with psycopg.connect(earlier) as other, ThreadPoolExecutor(1) as pool:
        for table in before:
            other.execute(f"SELECT FROM projections.{table} LIMIT 1".encode())
        upgrading = pool.submit(schema.upgrade, earlier)
        while run(earlier, f"SELECT pid FROM {WAITING}") == []:
            assert not upgrading.done()

        with pytest.raises(DatabaseError, match="lock timeout"):
            upgrading.result()

    assert rows(earlier) == before
    assert schema.installed_version(earlier) == version
    schema.upgrade(earlier)
    assert schema.verify(earlier) == []


@pytest.fixture
async def upgraded(earlier: str) -> Any:
    schema.upgrade(earlier)
    async with connect(earlier) as database:
        yield database


@pytest.mark.slow
async def test_a_projection_goes_on_where_it_stood(upgraded: Database) -> None:
    await happen(upgraded, "a", "d")
    async with upgraded.session() as session:
        assert await ParkedSources(session).retry("p", "c") == 1

    await caught_up(upgraded, recording())

    each_once(await effects(upgraded), old=1, a=4, b=3, c=2, d=1)


ASSIGNED = "SELECT array_agg(DISTINCT assigned_to) FROM projections.group_ranges WHERE owner IS NOT NULL"


async def test_a_consumer_goes_on_after_what_was_handled(upgraded: Database) -> None:
    assert await fetchval(upgraded, ASSIGNED) == ["gone/2"]
    await handles_what_is_left(upgraded)


@pytest.mark.slow
async def test_a_reader_whose_name_a_worker_has_joins_again_and_nothing_is_lost(earlier: str) -> None:
    """Both are alive, and one name is one row from now on: that of the worker."""
    with psycopg.connect(earlier, autocommit=True) as connection:
        for statement in (
            "UPDATE projections.group_readers SET owner = 'gone/1', lease_until = now() + interval '1 hour'",
            "UPDATE projections.group_ranges SET owner = 'gone/1' WHERE owner IS NOT NULL",
            "UPDATE projections.workers SET lease_until = now() + interval '1 hour' WHERE owner = 'gone/1'",
        ):
            connection.execute(statement)
    ((held, epoch), *_) = run(
        earlier, "SELECT min_slice, epoch FROM projections.group_ranges WHERE owner = 'gone/1' ORDER BY 1"
    )
    schema.upgrade(earlier)
    async with connect(earlier) as database:
        assert await fetchval(database, ASSIGNED) == ["gone/1"]
        async with database.session() as session:
            with pytest.raises(DatabaseWentBack, match="is not known"):
                await poll_group(session, "g", "gone/1", timedelta(seconds=10), joined=True)
            with pytest.raises(InvalidSubscription, match="has the name of a worker"):
                await poll_group(session, "g", "gone/1", timedelta(seconds=10))

        await handles_what_is_left(database)

        stored = await fetchval(database, "SELECT max(cursor) FROM projections.group_ranges")
        with pytest.raises(DatabaseError, match="no longer held"):
            await fetchval(
                database, "SELECT projections.move_cursor_v1('g', $1, $2, $3)", held, epoch, stored
            )


async def handles_what_is_left(upgraded: Database) -> None:
    seen = Seen()
    reader = Consumer(upgraded, "g", settings=quick())
    reader.handle(seen, name="h", topics=["Landed"], condition="e.seq_nr > 0")
    async with consuming(upgraded, reader):
        await seen.until_events(2)
        async with upgraded.transaction() as session:
            await append(
                session,
                [Event(*new, event_type="Landed") for new in (("f", {}, "flight"), ("n", {}, "ship"))],
            )
        await caught_up(upgraded, discovery=Matching())
        await until_handled(upgraded)
        await seen.until_events(4)

    assert sorted(seen.events) == [("f", 2), ("f", 3), ("f", 4), ("n", 1)]


async def test_a_delivery_is_sent_again_after_its_lease(upgraded: Database) -> None:
    async with RawServer(respond(204)) as server:
        await endpoints(upgraded).change("acme", "ep", {"url": server.url})
        async with delivering(upgraded):
            await finished(upgraded)

    assert [request.header("webhook-id") for request in server.requests] == ["w1"]


@pytest.mark.slow
async def test_a_delivery_that_somebody_gave_up_is_dropped_and_can_be_sent_again(earlier: str) -> None:
    run(
        earlier,
        "UPDATE projections.webhook_deliveries SET state = 'discarded', lease_until = NULL, lease_token = NULL",
    )
    schema.upgrade(earlier)

    async with connect(earlier) as database, RawServer(respond(204)) as server:
        (one,) = await Deliveries(database).list(DeliveryFilter(states=["dropped"]))
        await endpoints(database).change("acme", "ep", {"url": server.url})
        await Deliveries(database).retry(None, one.endpoint_id, one.event_id)
        async with delivering(database):
            await finished(database)

    assert [request.header("webhook-id") for request in server.requests] == ["w1"]


@pytest.mark.slow
async def test_a_condition_that_would_be_refused_today_is_stopped_with_the_reason_and_no_other_is(
    earlier: str, caplog: pytest.LogCaptureFixture
) -> None:
    subscribe = "SELECT projections.subscribe_v1('{}', '{}', p_topics => '{{Counted}}')"
    run(earlier, subscribe.format("good", "e.seq_nr > -7"))
    run(earlier, subscribe.format("refused", "e.event_type <> ''x''::char(10000000)"))
    (number,) = run(earlier, "SELECT max(condition_id) FROM projections.conditions")[0]
    schema.upgrade(earlier)
    async with connect(earlier) as database:
        async with database.session() as session:
            await Matching().tend(session)
        async with database.transaction() as session:
            await append(session, [Event("counted", {}, "plane", event_type="Counted")])
        await caught_up(database, discovery=Matching())
        async with database.session() as session:
            await Matching().tend(session)

    assert run(earlier, REFUSED) == [
        (number, "refused since the schema was upgraded: a condition may not use the type character")
    ]
    assert [r.levelname for r in caplog.records if getattr(r, "action", None) == "condition_quarantined"] == [
        "ERROR"
    ]
    assert run(earlier, COUNTED) == [(1,)]
    assert run(
        earlier, "SELECT count(*) FROM projections.unasked WHERE condition_ids = ARRAY[%s::integer]", number
    ) == [(1,)]
    assert run(earlier, "SELECT count(*) FROM projections.conditions WHERE checked = 0") == [(0,)]
    with pytest.raises(DatabaseError, match="may not use the type") as refused:
        run(earlier, "SELECT projections._release_condition_v1(%s)", number)
    assert refused.value.sqlstate == "PJ080"


async def test_a_condition_that_was_set_apart_before_goes_on_with_what_has_come_since(earlier: str) -> None:
    """What came for it before was kept by nobody; from the upgrade on, all is."""
    run(
        earlier,
        "SELECT projections.subscribe_v1('c', '(e.payload ->> ''n'')::int > 0', p_topics => '{Counted}')",
    )
    run(
        earlier,
        "SELECT projections.quarantine_condition_v1(max(condition_id), 'why') FROM projections.conditions",
    )
    schema.upgrade(earlier)
    async with connect(earlier) as database:
        for n in (1, 0, 2):
            async with database.transaction() as session:
                await append(session, [Event("counted", {"n": n}, "plane", event_type="Counted")])
        await caught_up(database, discovery=Matching())
        assert run(earlier, COUNTED) == []
        run(
            earlier, "SELECT projections._release_condition_v1(max(condition_id)) FROM projections.conditions"
        )
        async with database.session() as session:
            await Matching().tend(session)
    assert run(earlier, COUNTED) == [(1,), (3,)]


# Which of these topics a pattern of before matched.
NAMES = [
    "user",
    "users",
    "user.created",
    "user.profile.updated",
    "app.user.created",
    "created",
    "a",
    "xay.b",
    "user.",
    ".",
]
BEFORE = [
    ["*"], ["user.*"], ["*.created"], ["user*"], ["*a*"], ["user.*.updated"], ["a", "*.created", "u*r"], ["*.*"],
    ["u*e*r*c*d"], ["user.**"], ["user.*", "user.**"], ["user*", "user*.**"], ["u%*", "_*"], ["a*", "u*s*e*r*x*y*z"],
]  # fmt: skip
MATCHING = """
SELECT t.topic FROM unnest(%s::text[]) WITH ORDINALITY AS t (topic, place), projections.subscriptions AS s
WHERE s.subscription_id = %s AND t.topic LIKE ANY (s.{}) ORDER BY t.place
"""
WRITTEN = "SELECT topics, patterns FROM projections.subscriptions WHERE subscription_id = %s"


@pytest.mark.slow
def test_patterns_of_subscriptions_are_written_anew_and_match_what_they_matched(earlier: str) -> None:
    subscribe = "SELECT projections.subscribe_v1('patterns', p_topics => %s)"
    numbers = [run(earlier, subscribe, topics)[0][0] for topics in BEFORE]
    before = [run(earlier, MATCHING.format("patterns"), NAMES, number) for number in numbers]

    remarks = schema.upgrade(earlier)

    for topics, number, found in list(zip(BEFORE, numbers, before, strict=True))[:-1]:
        assert run(earlier, MATCHING.format("likes"), NAMES, number) == found
        ((_, written),) = run(earlier, WRITTEN, number)
        matcher = parse_topics(written)
        assert [(topic,) for topic in NAMES if matcher.matches(topic)] == found, (topics, written)
    assert [run(earlier, WRITTEN, number)[0][1] for number in (*numbers[:4], numbers[-1])] == [
        ["**"], ["user.**"], ["**.created"], ["user*", "user*.**"], ["**"],
    ]  # fmt: skip
    assert (
        f"subscription {numbers[-1]} gets every topic now: its topics have too many * within a segment"
        in remarks
    )
    assert run(earlier, MATCHING.format("likes"), NAMES, numbers[-1]) == [(topic,) for topic in NAMES]
    assert run(earlier, subscribe, ["user.**"]) == [(numbers[1],)]  # whoever asks for the same shares it
    assert run(earlier, subscribe, ["user.*"])[0][0] not in numbers


def test_topics_with_empty_segments_that_are_refused_now_stay_subscribed_to(earlier: str) -> None:
    subscribe = "SELECT projections.subscribe_v1('patterns', p_topics => %s)"
    named, pattern = (run(earlier, subscribe, topics)[0][0] for topics in (["a..b"], ["a..*"]))

    schema.upgrade(earlier)

    topics = "SELECT topic FROM projections.subscription_topics WHERE subscription_id = %s"
    assert run(earlier, topics, named) == [("a..b",)]
    assert run(earlier, MATCHING.format("likes"), ["a..b", "a.b"], pattern) == [("a..b",)]
    with pytest.raises(DatabaseError, match="has an empty segment"):
        run(earlier, subscribe, ["a..b"])


def test_topics_of_endpoints_are_written_anew_and_match_what_they_matched(earlier: str) -> None:
    before = ["user.*", "*.created", "*", "order.*.paid", "*.*", "a"]
    run(earlier, "UPDATE projections.webhook_endpoints SET topics = %s", before)

    schema.upgrade(earlier)

    assert run(earlier, "SELECT topics FROM projections.webhook_endpoints") == [
        (["user.**", "*.created", "**", "order.*.paid", "*.**", "a"],)
    ]


# Filters of before, data, and whether they matched.
FILTERED: list[tuple[dict[str, Any], Any, bool]] = [
    ({"data": {"tags": "urgent"}}, {"tags": ["late", ["urgent"]]}, True),
    ({"data": {"tags": "urgent"}}, {"tags": "urgent"}, True),
    ({"data": {"tags": "urgent"}}, {"tags": ["late"]}, False),
    ({"data": {"items": {"sku": "b", "count": {"$gt": 5}}}}, [{"items": [{"sku": "b", "count": 9}]}], True),
    ({"data": {"items": {"sku": "a", "count": {"$gt": 5}}}}, {"items": [{"sku": "a"}, {"count": 9}]}, False),
    ({"data": {"n": [1, {"$in": [2]}]}}, {"n": [[1], 2]}, True),
    ({"data": {"n": {"$not": 1}}}, {"n": [1]}, False),
    ({"data": {"a": {}, "$or": [{"b": 1}, {"c": 1.5}]}}, {"a": [{}], "c": [1.50]}, True),
    ({"data": {"n": {"$eq": [1]}}}, {"n": [[1]]}, False),
    ({"$not": {"data": {"n": 1}}, "topic": "order.paid"}, {"n": [1]}, False),
    ({"$or": [{"id": "x"}, {"data": {"n": None}}]}, {"n": [None]}, True),
    ({"data": {"n": list(range(100))}}, {"n": list(range(100))}, True),
    ({"data": {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": 1}}}}}}}}}, {"a": 1}, False),
    ({"data": {f"f{n}": "x" for n in range(1000)}}, {}, False),
    ({}, 1, True),
]


@pytest.mark.slow
@pytest.mark.parametrize(("definition", "data", "wanted"), FILTERED)
def test_filters_of_endpoints_match_what_they_matched(
    earlier: str, definition: dict[str, Any], data: Any, wanted: bool
) -> None:
    run(earlier, "UPDATE projections.webhook_endpoints SET filter = %s", json.dumps(definition))

    schema.upgrade(earlier)

    ((written,),) = run(earlier, "SELECT filter::text FROM projections.webhook_endpoints")
    document = {"id": "evt_1", "topic": "order.paid", "metadata": {}, "data": data}
    assert compile_filter(read_json(written)).matches(document) is wanted


REFUSED = "SELECT condition_id, error FROM projections.conditions WHERE starts_with(error, 'refused')"
COUNTED = "SELECT seq_nr FROM projections.matches WHERE source_id = 'counted' ORDER BY match_id"


# Events of four types, one after the other.
KINDS = ("boat", "bus", "car", "train")
APPEND = """
SELECT projections.append_events_v1(
    ARRAY(SELECT k.kind || n FROM generate_series(1, 4) AS n), array_fill(k.kind, ARRAY[4]),
    array_fill('t'::text, ARRAY[4]), array_fill('{}'::text, ARRAY[4]))
FROM (SELECT %s::text AS kind) AS k
"""
EVENTS = """
SELECT source_id, seq_nr, db_timestamp, slice FROM projections.events WHERE entity_type = %s
ORDER BY db_timestamp, slice, source_id
"""
MATCH = """
SELECT projections.match_log_v1(%s, array_agg(e.source_id), array_agg(e.seq_nr), array_agg(e.db_timestamp),
    array_agg(e.slice), array_agg(e.event_type)) FROM (
    SELECT * FROM projections.events AS e
    WHERE (e.source_id, e.seq_nr) IN (SELECT * FROM unnest(%s::text[], %s::bigint[])) ORDER BY e.db_timestamp
) AS e HAVING count(*) > 0
"""
STOOD = """
UPDATE projections.projection_ranges SET horizon = %s, handled_until = %s, import_id = %s
WHERE projection_id = %s AND min_slice = %s
"""
ELSEWHERE = """
UPDATE projections.projection_ranges SET horizon = now() WHERE projection_id IN (
    SELECT projections.begin_matching_v1(t) FROM projections.entity_types_v1() AS t WHERE t <> ALL (%s)
)
"""
ALL_MATCHED = """
SELECT m.source_id, m.seq_nr FROM projections.matches AS m
INNER JOIN projections.subscription_groups AS g ON m.group_id = g.group_id WHERE g.name = 'all' ORDER BY m.match_id
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
async def test_matching_of_each_type_becomes_one_that_goes_on_where_each_stood(
    earlier: str, seed: int
) -> None:
    """In other ranges, at other times, with offsets that are evicted, imports that are not read, or not begun."""
    chance = Random(seed)
    run(earlier, "SELECT projections.subscribe_v1('all', p_entity_types => %s)", [*KINDS])
    for _ in range(8):
        for kind in chance.sample(KINDS, 4):
            run(earlier, APPEND, kind)
    for kind in KINDS[: chance.choice((3, 4))]:
        match_before(earlier, kind, chance)
    if chance.random() < 0.7:
        run(earlier, ELSEWHERE, [*KINDS])
    before = run(earlier, ALL_MATCHED)

    schema.upgrade(earlier)
    async with connect(earlier) as database:
        await caught_up(database, discovery=Matching())

    found = run(earlier, ALL_MATCHED)
    each_once(found, **{f"{kind}{n}": 8 for kind in KINDS for n in range(1, 5)})
    assert found[: len(before)] == before
    names = "SELECT name FROM projections.projections WHERE starts_with(name, 'matching')"
    assert run(earlier, names) == [("matching",)]


def match_before(dsn: str, kind: str, chance: Random) -> None:
    """Match some events of a type as the version of before did, and leave what it had stored of that."""
    cut = sorted({0, *chance.sample(range(1, 1024), chance.choice((0, 1, 3)))})
    ((matching,),) = run(dsn, "SELECT projections.begin_matching_v1(%s, %s)", kind, cut)
    events = run(dsn, EVENTS, kind)
    times = [event[2] for event in events]
    imported = chance.choice((None, f"{kind}1"))  # a source that came by an import, which was not read yet
    evicted = times[0] if imported else min(chance.choice(times), chance.choice(times))
    for first, after in zip(cut, [*cut[1:], 1024], strict=True):
        horizon = max(evicted, chance.choice(times))
        until = max(horizon, chance.choice(times))
        ahead = [event[0] for event in events if chance.random() < 0.1]
        handled = [
            (source, seq_nr, at, slice_)
            for source, seq_nr, at, slice_ in events
            if first <= slice_ < after and source != imported
            if at < horizon or (source in ahead and at <= until)
        ]
        run(dsn, MATCH, kind, [source for source, *_ in handled], [seq_nr for _, seq_nr, *_ in handled])
        for source, seq_nr, at, slice_ in {event[0]: event for event in handled}.values():
            if at >= evicted or chance.random() < 0.5:  # else it may be gone
                run(
                    dsn, "INSERT INTO projections.source_offsets VALUES (%s, %s, %s, %s, %s)",
                    matching, source, slice_, seq_nr, at,
                )  # fmt: skip
        newest = max([horizon, *(at for _, _, at, _ in handled)])
        run(dsn, STOOD, horizon, newest, 0 if imported else 100, matching, first)
    if imported:
        run(
            dsn, "INSERT INTO projections.imports (entity_type, from_timestamp, events) VALUES (%s, %s, 8)",
            kind, evicted,
        )  # fmt: skip
    run(
        dsn,
        "UPDATE projections.projections SET evicted_before = %s WHERE projection_id = %s",
        evicted,
        matching,
    )


def test_matching_is_paused_where_that_of_a_type_was(earlier: str) -> None:
    for kind in ("boat", "car"):
        run(earlier, "SELECT projections.begin_matching_v1(%s)", kind)
    run(earlier, "UPDATE projections.projections SET paused = TRUE WHERE name = 'matching/boat'")
    schema.upgrade(earlier)
    assert run(earlier, "SELECT name FROM projections.projections WHERE paused") == [("matching",)]


def test_a_projection_that_is_called_matching_is_to_be_renamed_first(earlier: str) -> None:
    run(earlier, "UPDATE projections.projections SET name = 'matching' WHERE name = 'p'")
    with pytest.raises(SchemaError, match="the name of projection 'matching' is that of the matching"):
        schema.upgrade(earlier)
    run(earlier, "UPDATE projections.projections SET name = 'couples' WHERE name = 'matching'")
    schema.upgrade(earlier)
