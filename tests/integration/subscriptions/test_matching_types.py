"""Matching of several entity types: in the order of their times, and what asks for one never sees another."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from random import Random

import pytest

from journal import Database, Event, append
from projections.subscriptions import matching as module
from tests.fixtures.matching import (
    execute,
    fetchval,
    happened,
    match,
    matched,
    matches,
    matching,
    subscribe,
    tend,
)
from tests.fixtures.projections import until
from tests.fixtures.subscriptions import landed

KINDS = ("boat", "bus", "car")
CAUGHT_UP = "SELECT count(*) = 0 FROM projections.subscriptions WHERE starts_at IS NOT NULL"
FAILED = "SELECT array_agg(source_id || seq_nr ORDER BY unanswered_id)::text FROM projections.unanswered"
STOP = "SELECT projections._quarantine_condition_v1(1, 'why')"
MANY_OF_PARAMS = """
SELECT projections.subscribe_v1('g', $1, jsonb_build_object('topic', 'topic-' || n), NULL, NULL)
FROM generate_series(0, 1999) AS n
"""
RELEASE = "SELECT projections._release_condition_v1(1)"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a few events."""
    monkeypatch.setattr(module, "_BATCH", 4)


async def mixed(database: Database, number: int = 18, **values: object) -> list[tuple[str, int]]:
    """Append events of three types by turns; returns them in their order."""
    chance, last, done = Random(number), dict.fromkeys(KINDS, 0), []
    for _ in range(number):
        kind = chance.choice(KINDS)
        last[kind] += 1
        done.append((kind, last[kind]))
        await happened(database, payload={"n": last[kind]} | values, source=kind, kind=kind)
    return done


@pytest.mark.slow
@pytest.mark.parametrize(
    "condition",
    [
        None,
        "(e.payload ->> 'n')::int > 0",
        "e.topic = 't'",
        "(e.payload ->> 'n')::int > (s.params ->> 'n')::int",
    ],
)
@pytest.mark.parametrize("topics", [None, ["t"], ["**"]])
async def test_a_group_gets_events_in_the_order_of_their_times_within_batches_and_across(
    database: Database, condition: str | None, topics: list[str] | None
) -> None:
    await subscribe(database, condition, topics=topics, params='{"n": 0}')
    appended = await mixed(database)
    await match(database)

    assert await matched(database) == appended


@pytest.mark.slow
async def test_subscriptions_to_one_topic_of_two_types_each_get_their_own(database: Database) -> None:
    wanted = {}
    for kind in ("boat", "car"):
        for condition in (None, "e.seq_nr > 0", "e.topic = 't'", "(s.params ->> 'n')::int < e.seq_nr"):
            for topics in (["t"], None):
                number = await subscribe(
                    database, condition, topics=topics, entity_types=[kind], params='{"n": 0}'
                )
                wanted[number] = kind
    appended = await mixed(database)
    await match(database)

    assert [(source, seq_nr, ids) for _, source, seq_nr, ids in await matches(database)] == [
        (kind, seq_nr, sorted(number for number, of in wanted.items() if of == kind))
        for kind, seq_nr in appended
        if kind != "bus"
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "condition", ["(e.payload ->> 'n')::int > 0", "(e.payload ->> 'n')::int > (s.params ->> 'n')::int"]
)
async def test_a_condition_is_asked_about_no_topic_of_a_type_that_it_is_not_for(
    database: Database, condition: str
) -> None:
    """On which it would fail."""
    await subscribe(database, condition, topics=["t"], entity_types=["boat"], params='{"n": 0}')
    await subscribe(database, condition, topics=["u"], entity_types=["car"], params='{"n": 0}')
    await subscribe(database, condition, entity_types=["bus"], params='{"n": 0}')
    for turn in range(3):
        for kind, good in (("boat", "t"), ("car", "u"), ("bus", "v")):
            for topic in "tuv":
                n = 1 if topic == good or kind == "bus" else "no number"
                await happened(database, topic, {"n": n, "turn": turn}, source=f"{kind}-{topic}", kind=kind)
    await match(database)

    assert await fetchval(database, FAILED) is None
    turn_of = ("boat-t", "car-u", "bus-t", "bus-u", "bus-v")
    assert await matched(database) == [(source, n) for n in (1, 2, 3) for source in turn_of]


@pytest.mark.slow
@pytest.mark.parametrize("asked", [{}, {"topics": ["t"]}, {"topics": ["t"], "entity_types": ["boat", "car"]}])
async def test_a_condition_that_was_stopped_gets_events_in_the_order_in_which_they_matched(
    database: Database, asked: dict[str, list[str]]
) -> None:
    await subscribe(database, "e.seq_nr > 0", **asked)
    await execute(database, STOP)
    appended = [one for one in await mixed(database) if one[0] in asked.get("entity_types", KINDS)]
    await happened(database, "other", source="other", kind="other") if asked else None
    await match(database)
    assert await matched(database) == []

    await execute(database, RELEASE)
    await tend(database)

    assert await matched(database) == appended
    await tend(database)
    assert await fetchval(database, "SELECT count(*) FROM projections.unasked") == 0


async def test_what_a_condition_failed_on_is_asked_again_in_the_order_of_the_events(
    database: Database,
) -> None:
    await execute(
        database, "CREATE FUNCTION broken(n int) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT n / 0 > 0'"
    )
    await execute(database, "REVOKE EXECUTE ON FUNCTION broken FROM public")
    await execute(database, "GRANT EXECUTE ON FUNCTION broken TO projections_matcher")
    await execute(database, "GRANT USAGE ON SCHEMA public TO projections_matcher")
    await subscribe(database, "public.broken((e.payload ->> 'n')::int)", topics=["t"])
    appended = await mixed(database, 4)
    await match(database)
    failed = await fetchval(database, FAILED)
    assert failed == "{" + ",".join(f"{source}{seq_nr}" for source, seq_nr in appended) + "}"

    await execute(
        database,
        "CREATE OR REPLACE FUNCTION broken(n int) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT n > 0'",
    )
    await execute(database, RELEASE)
    await tend(database)

    assert await matched(database) == appended


@pytest.mark.slow
async def test_a_type_that_comes_while_matching_runs_is_matched_once_and_in_order(database: Database) -> None:
    await subscribe(database)
    appended = await mixed(database, 6)
    async with matching(database):
        await until(database, "SELECT count(*) = 6 FROM projections.matches")
        for number in (1, 2, 3):
            await happened(database, source="new", kind="new")
            appended.append(("new", number))
            await happened(database, source=f"next-{number}", kind=f"next-{number}")
            appended.append((f"next-{number}", 1))
        await until(database, "SELECT count(*) >= 12 FROM projections.matches")

    await match(database)
    assert await matched(database) == appended


async def test_matching_that_begins_late_matches_what_came_since_the_subscription_of_every_type(
    database: Database,
) -> None:
    await mixed(database)
    await execute(database, "UPDATE projections.events SET db_timestamp = db_timestamp - interval '1 hour'")
    await subscribe(database)
    await happened(database, source="new", kind="new")
    await happened(database, source="bus-2", kind="bus")
    await match(database)

    assert await matched(database) == [("new", 1), ("bus-2", 1)]


async def test_the_past_comes_in_the_order_of_its_times_too(database: Database) -> None:
    appended = await mixed(database)
    await match(database)
    await subscribe(
        database, "e.seq_nr > 0", start=datetime(1970, 1, 1, tzinfo=UTC), entity_types=["boat", "car"]
    )
    async with asyncio.timeout(300):
        while not await fetchval(database, CAUGHT_UP):
            await tend(database)
            await match(database)

    assert await matched(database) == [one for one in appended if one[0] != "bus"]


@pytest.mark.slow
async def test_a_condition_that_compares_params_with_topics_reads_their_index(database: Database) -> None:
    """And is not asked, for each topic, about all subscriptions that have it."""
    await execute(database, MANY_OF_PARAMS, "s.params @> jsonb_build_object('topic', e.topic)")
    await execute(database, "ANALYZE projections.subscriptions")

    async with database.transaction() as session:
        topics = [f"topic-{n}" for n in range(50)]
        interests = await session.fetch("SELECT * FROM projections._interests_v1('plane', $1)", topics)
        looked_up = await session.fetchval(
            "SELECT pg_stat_get_xact_numscans('projections.subscriptions_interests_idx'::regclass)"
        )

    assert len(interests) == 50
    assert looked_up == 50


_BY_KEY = "s.params @> jsonb_build_object('key', e.payload ->> 'key')"
_MANY_OF_TOPICS = """
SELECT count(projections.subscribe_v1(
    'g', $1, jsonb_build_object('key', n::text), p_topics => ARRAY['Landed', 'of ' || n % 10]
)) FROM generate_series(1, 300) AS n
"""
_OTHERS = """
SELECT projections.subscribe_v1('g', $1, '{"key": "7"}', p_topics => '{L*}'),
    projections.subscribe_v1('g', $1, '{"key": "8"}', p_topics => '{Departed}')
"""
_NUMBERS = """
SELECT string_agg(format('%s: %s', n.id, n.events), ', ' ORDER BY n.id) FROM (
    SELECT s.id, count(*) AS events
    FROM projections.matches AS m CROSS JOIN unnest(m.subscription_ids) AS s (id) GROUP BY 1
) AS n
"""
_MATCH_ALL = """
SELECT projections._match_log_v1(
    array_agg(e.entity_type), array_agg(e.source_id), array_agg(e.seq_nr), array_agg(e.db_timestamp),
    array_agg(e.slice), array_agg(e.event_type)
) FROM projections.events AS e
"""
_LOOKED_UP = "SELECT pg_stat_get_xact_numscans('projections.subscriptions_interests_idx'::regclass)"


@pytest.mark.parametrize("statistics", ["none", "of an empty table", "true"])
async def test_a_condition_on_params_reads_their_index_whatever_topics_its_subscriptions_have(
    database: Database, statistics: str
) -> None:
    if statistics == "of an empty table":
        await execute(database, "ANALYZE projections.subscriptions")
    await execute(database, _MANY_OF_TOPICS, _BY_KEY)
    if statistics == "true":
        await execute(database, "ANALYZE projections.subscriptions")
    await execute(database, _OTHERS, _BY_KEY)
    await landed(database, *[f"plane-{n}" for n in range(40)], key="7")
    async with database.transaction() as session:
        await append(session, [Event("plane-0", {"key": "7"}, "plane", event_type="Departed")])

    async with database.transaction() as session:
        before = await session.fetchval(_LOOKED_UP)
        await session.execute(_MATCH_ALL)
        looked_up = await session.fetchval(_LOOKED_UP) - before

    assert await fetchval(database, _NUMBERS) == "7: 40, 301: 40"
    assert looked_up == 82  # by topic, and for patterns of topics


@pytest.mark.daily(17)
@pytest.mark.parametrize(
    ("condition", "by_params"),
    [
        (_BY_KEY, True),
        (f"({_BY_KEY})", True),
        (f"e.seq_nr > 0 AND (e.topic <> 'x' AND {_BY_KEY})", True),
        ("s.params @> '{\"a\": 1}'", True),
        ("s.params @> e.payload::jsonb AND e.seq_nr > 0", True),
        (f"NOT ({_BY_KEY})", False),
        (f"({_BY_KEY}) IS TRUE", False),
        (f"e.seq_nr > 0 OR {_BY_KEY}", False),
        (f"e.seq_nr > 0 AND (e.topic = 'x' OR {_BY_KEY})", False),
        (f"CASE WHEN e.seq_nr > 0 THEN {_BY_KEY} END", False),
        ("s.params @> s.params", False),
        ("s.params @> jsonb_build_object('key', s.params -> 'other')", False),
        ("e.payload::jsonb @> s.params", False),
        ("(s.params -> 'a') @> '{}'", False),
        ("s.params -> 'a' = '{}'", False),
        ("s.topics @> ARRAY[e.topic]", False),
        ("'{}'::jsonb @> '{}'::jsonb AND s.params <> '{}'", False),
    ],
)
async def test_the_index_of_params_is_read_where_it_answers_a_condition(
    database: Database, condition: str, by_params: bool
) -> None:
    await execute(database, "SELECT projections.subscribe_v1('g', $1)", condition)

    assert by_params is await fetchval(
        database,
        "SELECT strpos(prosrc, 'num_nonnulls(s.topics') > 0 FROM pg_proc "
        "WHERE pronamespace = 'projections_conditions'::regnamespace",
    )
