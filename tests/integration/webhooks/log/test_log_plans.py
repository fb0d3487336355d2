"""A page of the delivery log is a walk along one index from its place on, whatever is behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.fixtures.postgres import Databases

PAGE = 100
DAYS = 5
SMALL, LARGE = 60_000, 1_000_000

# Five closed days and the default partition; 50 tenants with 4 endpoints each, one attempt in fifty failed.
FILL = """
SELECT projections._create_partition_v1(d, d + interval '1 day', t)
FROM generate_series('2020-01-01Z'::timestamptz, '2020-01-05Z', '1 day') AS d
CROSS JOIN unnest('{{webhook_events,webhook_attempts}}'::text[]) AS t;
INSERT INTO projections.webhook_events (
    event_time, eligible_for_retry, event_id, tenant, topic, endpoint_ids, metadata, data
)
SELECT
    '2020-01-01Z'::timestamptz + n * (interval '5 days' / {rows}), TRUE, 'event' || n,
    'tenant' || n % 50, 'topic' || n / 50 % 20,
    CASE n % 5000 WHEN 7 THEN ARRAY['rare'] ELSE ARRAY['endpoint' || n % 200] END, '{{}}', '{{"n": 1}}'
FROM generate_series(0, {rows} - 1) AS n;
INSERT INTO projections.webhook_attempts (
    attempted_at, event_time, took, attempt_number, manual, attempt_id, tenant, event_id, topic, endpoint_id,
    endpoint_type, status, code
)
SELECT
    e.event_time, e.event_time, '1 ms', 1, FALSE, 'attempt of ' || e.event_id, e.tenant, e.event_id, e.topic,
    e.endpoint_ids[1], 'webhook',
    CASE WHEN substr(e.event_id, 6)::integer % 53 = 0 THEN 'failed' ELSE 'success' END, '200'
FROM projections.webhook_events AS e;
INSERT INTO projections.webhook_log_ids (id, kind, row_time)
SELECT e.event_id, 'event', e.event_time FROM projections.webhook_events AS e
UNION ALL SELECT a.attempt_id, 'attempt', a.attempted_at FROM projections.webhook_attempts AS a;
"""
TABLES = ("webhook_events", "webhook_attempts", "webhook_log_ids")

EITHER = {
    "everything": "",
    "tenant": "p_tenants => '{tenant7}'",
    "topic": "p_topics => '{topic3}'",
    "tenant and topic": "p_tenants => '{tenant7}', p_topics => '{topic3}'",
    "endpoint": "p_endpoint_ids => '{endpoint7}'",
    "tenant and endpoint": "p_tenants => '{tenant7}', p_endpoint_ids => '{endpoint7}'",
    "event": "p_event_ids => '{event4711}'",
    "tenant and event": "p_tenants => '{tenant11}', p_event_ids => '{event4711}'",
}
LISTS = {
    **{f"events by {name}": f"_list_logged_events_v1({given}" for name, given in EITHER.items()},
    "events by rare endpoint": "_list_logged_events_v1(p_endpoint_ids => '{rare}'",
    **{f"attempts by {name}": f"_list_logged_attempts_v1({given}" for name, given in EITHER.items()},
    "attempts by failure": "_list_logged_attempts_v1(p_status => 'failed'",
    "attempts by success": "_list_logged_attempts_v1(p_status => 'success'",
    "attempts by tenant and failure": "_list_logged_attempts_v1(p_tenants => '{tenant7}', p_status => 'failed'",
    "attempts by two endpoints": "_list_logged_attempts_v1(p_endpoint_ids => '{endpoint7,endpoint8}'",
    "attempts by two tenants": "_list_logged_attempts_v1(p_tenants => '{tenant7,tenant8}'",
    "attempts by tenants and failure": "_list_logged_attempts_v1(p_tenants => '{tenant7,none}', p_status => 'failed'",
    "events by two tenants": "_list_logged_events_v1(p_tenants => '{tenant7,tenant8}'",
    "attempts by id": "_list_logged_attempts_v1(p_attempt_ids => '{attempt of event4711}'",
}
# What is named is looked up instead.
WALKS = [
    name
    for name, call in LISTS.items()
    if "p_attempt_ids" not in call and ("p_event_ids" not in call or "attempts" in call)
]
PLACES = {
    "from the newest on": "p_ascending => FALSE",
    "from the oldest on": "p_ascending => TRUE",
    "from the middle back": "p_time => '2020-01-03T12:00Z', p_id => 'm', p_ascending => FALSE",
    "from the middle on": "p_time => '2020-01-03T12:00Z', p_id => 'm', p_ascending => TRUE",
}


def _filled(databases: Databases, template: str, rows: int) -> Iterator[psycopg.Connection[Any]]:
    with databases.fresh(template) as dsn, psycopg.connect(dsn, autocommit=True) as opened:
        opened.execute(FILL.format(rows=rows).encode())
        for table in TABLES:
            opened.execute(sql.SQL("VACUUM (ANALYZE) projections.{}").format(sql.Identifier(table)))
        opened.execute("LOAD 'auto_explain'")
        for setting, value in {
            "log_min_duration": "0", "log_nested_statements": "on", "log_analyze": "on", "log_buffers": "on",
            "log_format": "json", "log_level": "notice",
        }.items():  # fmt: skip
            opened.execute(sql.SQL("SET {} = {}").format(sql.Identifier("auto_explain", setting), value))
        yield opened


@pytest.fixture(scope="module")
def connection(databases: Databases, template: str) -> Iterator[psycopg.Connection[Any]]:
    """A log of 60,000 events and attempts."""
    yield from _filled(databases, template, SMALL)


@pytest.fixture(scope="module")
def large(databases: Databases, template: str) -> Iterator[psycopg.Connection[Any]]:
    """A log of a million of each."""
    yield from _filled(databases, template, LARGE)


def _plan(connection: psycopg.Connection[Any], call: str) -> dict[str, Any]:
    """The plan of the statement that a list has made."""
    return _plans(connection, call)[-1]


def _plans(connection: psycopg.Connection[Any], call: str) -> list[dict[str, Any]]:
    """The plans of all statements about the log's tables that a list has made, the page's last."""
    told: list[dict[str, Any]] = []

    def hear(diagnostic: psycopg.errors.Diagnostic) -> None:
        text = diagnostic.message_primary or ""
        plan = json.loads(text[text.index("{") :])
        if "FROM projections.webhook_" in plan["Query Text"]:
            told.append(plan["Plan"])

    connection.add_notice_handler(hear)
    try:
        connection.execute(f"SELECT * FROM projections.{call})".encode())
    finally:
        connection.remove_notice_handler(hear)
    return told


def _looked(plan: dict[str, Any]) -> float:
    return sum(
        (
            node["Actual Rows"]
            + node.get("Rows Removed by Filter", 0)
            + node.get("Rows Removed by Index Recheck", 0)
        )
        * node["Actual Loops"]
        for node in _nodes(plan)
        if "Relation Name" in node
    )


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


def _pages(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def _call(name: str, place: str, limit: int = PAGE) -> str:
    begun = LISTS[name]
    return f"{begun}{'' if begun.endswith('(') else ', '}{PLACES[place]}, p_limit => {limit}"


def _assert_cheap(connection: psycopg.Connection[Any], name: str, place: str) -> None:
    plan = _plan(connection, _call(name, place))

    read = [
        (node["Node Type"], node["Relation Name"])
        for node in _nodes(plan)
        if node["Node Type"] == "Seq Scan" and not node["Relation Name"].endswith("_default")
    ]
    assert read == []
    # A row is on a page of its own at worst; each of six partitions is come to through its index.
    assert _pages(plan) <= 12 * PAGE


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", LISTS)
def test_a_page_reads_no_table_through(connection: psycopg.Connection[Any], name: str, place: str) -> None:
    _assert_cheap(connection, name, place)


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        f"{which}({what}"
        for which in ("_list_logged_events_v1", "_list_logged_attempts_v1")
        for what in (
            "p_tenants => '{nobody,none}'",
            "p_tenants => '{tenant7,none}'",
            "p_endpoint_ids => '{nothing,none}'",
            "p_endpoint_ids => '{rare,none}'",
            "p_tenants => '{tenant7}', p_endpoint_ids => '{nothing,none}'",
            "p_event_ids => '{nothing,none}'",
            "p_topics => '{nothing,none}'",
            "p_tenants => '{tenant7,nobody}', p_topics => '{nothing,none}'",
        )
    ],
)
def test_of_several_that_have_little_a_page_looks_at_what_they_have(
    connection: psycopg.Connection[Any], given: str
) -> None:
    plan = _plan(connection, f"{given}, p_limit => {PAGE}")

    assert _looked(plan) <= 2 * PAGE


LOOKED = 10_000
FILTERS = [
    f"{which}({what}"
    for which in ("_list_logged_events_v1", "_list_logged_attempts_v1")
    for what in (
        "p_tenants => '{tenant7}', p_endpoint_ids => '{endpoint8}'",
        "p_tenants => '{nobody}', p_endpoint_ids => '{endpoint8}'",
        "p_endpoint_ids => '{endpoint7}', p_topics => '{nothing}'",
        "p_endpoint_ids => '{endpoint7,endpoint8,endpoint9}'",
        "p_endpoint_ids => '{endpoint7,endpoint8,endpoint9}', p_topics => '{nothing,none}'",
        "p_tenants => '{tenant7,tenant8}', p_endpoint_ids => '{endpoint9,nothing}'",
        "p_tenants => '{tenant7,tenant8}', p_topics => '{topic3,topic4,no}', p_endpoint_ids => '{endpoint9}'",
        "p_topics => '{topic1,topic2}', p_endpoint_ids => '{endpoint9,endpoint8}'",
    )
] + [
    f"_list_logged_attempts_v1({what}"
    for what in (
        "p_endpoint_types => '{mail}'",
        "p_endpoint_types => '{mail,fax}'",
        "p_tenants => '{tenant7}', p_endpoint_types => '{mail}'",
        "p_endpoint_ids => '{endpoint7}', p_endpoint_types => '{mail}'",
        "p_topics => '{topic3}', p_status => 'failed', p_endpoint_types => '{mail}'",
        "p_endpoint_ids => '{endpoint7}', p_status => 'failed'",
        "p_endpoint_ids => '{endpoint7,endpoint8}', p_status => 'failed'",
        "p_status => 'success', p_endpoint_types => '{mail}'",
    )
]


@pytest.mark.slow
@pytest.mark.parametrize("given", FILTERS)
@pytest.mark.parametrize("place", ["from the newest on", "from the middle on"])
def test_whatever_the_filters_a_page_looks_at_so_many_rows(
    connection: psycopg.Connection[Any], given: str, place: str
) -> None:
    plans = _plans(connection, f"{given}, {PLACES[place]}, p_limit => {PAGE}")

    assert sum(map(_looked, plans)) <= LOOKED + 2 * PAGE


@pytest.mark.slow
def test_an_endpoint_of_others_looks_like_none(connection: psycopg.Connection[Any]) -> None:
    found = connection.execute(
        "SELECT * FROM projections._list_logged_attempts_v1("
        "'{tenant7}', p_endpoint_ids => '{endpoint8}', p_looked => 10)"
    ).fetchall()

    assert found == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_explain_uses_index_at_a_million_rows(large: psycopg.Connection[Any]) -> None:
    for name in LISTS:
        for place in PLACES:
            _assert_cheap(large, name, place)


@pytest.mark.slow
@pytest.mark.parametrize("name", WALKS)
@pytest.mark.parametrize(
    "within",
    [
        "p_gte => '2020-01-02Z', p_lt => '2020-01-03Z'",
        "p_gt => '2020-01-02T01:00Z', p_lte => '2020-01-02T23:00Z'",
        "p_gte => '2020-01-02Z', p_time => '2020-01-02T12:00Z', p_id => 'm'",
        "p_lt => '2020-01-03Z', p_time => '2020-01-02T12:00Z', p_id => 'm', p_ascending => TRUE",
    ],
)
def test_a_time_looks_at_its_own_partition(
    connection: psycopg.Connection[Any], name: str, within: str
) -> None:
    begun = LISTS[name]

    plan = _plan(connection, f"{begun}{'' if begun.endswith('(') else ', '}{within}")

    looked = {
        node["Relation Name"] for node in _nodes(plan) if "Relation Name" in node and node["Actual Loops"] > 0
    } - {"webhook_log_ids"}
    assert {each for each in looked if not each.endswith("_default")} <= {
        "webhook_events_20200102t000000", "webhook_attempts_20200102t000000",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "looked_at"),
    [
        ("_list_logged_events_v1(p_event_ids => '{event4711}'", "webhook_events_20200101t000000"),
        (
            "_list_logged_attempts_v1(p_attempt_ids => '{attempt of event4711}'",
            "webhook_attempts_20200101t000000",
        ),
    ],
)
def test_a_look_up_by_id_looks_at_one_partition(
    connection: psycopg.Connection[Any], call: str, looked_at: str
) -> None:
    plan = _plan(connection, call)

    run = {
        node["Relation Name"] for node in _nodes(plan) if "Relation Name" in node and node["Actual Loops"] > 0
    }
    assert run == {looked_at, "webhook_log_ids"}
    assert _pages(plan) < 20


@pytest.mark.slow
def test_a_thousand_events_of_a_page_are_looked_up_one_by_one(connection: psycopg.Connection[Any]) -> None:
    names = ",".join(f"event{number * 59}" for number in range(1000))

    plan = _plan(connection, f"_list_logged_events_v1(p_event_ids => '{{{names}}}', p_limit => 1000")

    assert plan["Actual Rows"] == 1000
    assert [node for node in _nodes(plan) if node["Node Type"] == "Seq Scan" and node["Actual Loops"]] == []
    assert _pages(plan) < 10_000
