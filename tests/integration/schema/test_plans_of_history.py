"""A page of history that a subscription catches up with reads a page, a million events behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from journal import connect
from projections.subscriptions import Matching, subscribe
from projections.subscriptions.catching_up import CatchingUp
from tests.fixtures.connections import with_default
from tests.fixtures.page_plans import journal_of_types
from tests.fixtures.plans import COMPILE_ALL, Explained, explained, looked_at, prepare, shown
from tests.fixtures.postgres import Databases
from tests.fixtures.projections import fetchval

PAGE = 2000
SLACK = 500
"""Rows of the schema's other tables, and one more of each type and partition."""
BACKLOGS = [
    pytest.param(20_000, id="20,000 events"),
    pytest.param(1_000_000, id="a million events", marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
]
_MATCHES = "SELECT count(*) FROM projections.matches"


@pytest.fixture(scope="module", params=BACKLOGS)
def backlog(databases: Databases, template: str, request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """A journal that was matched, a subscription to one of its topics, and statistics that know nothing of either."""
    events: int = request.param
    with journal_of_types(databases, template, events, year=2020) as (dsn, opened):
        asyncio.run(_begin(dsn))
        opened.execute(
            "UPDATE projections.projection_ranges SET horizon = '2021-01-01Z', handled_until = '2021-01-01Z'"
        )
        yield dsn, events


async def _begin(dsn: str) -> None:
    async with connect(dsn) as database, database.session() as session:
        await Matching().tend(session)
        await subscribe(session, "g", topics=["rare"], start="beginning")
        await session.fetch("SELECT * FROM projections._begin_history_v1()")


@pytest.fixture(scope="module")
def connection(backlog: tuple[str, int]) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(backlog[0], autocommit=True) as opened:
        opened.execute(COMPILE_ALL)
        opened.execute("SET statement_timeout = '5s'")
        prepare(opened)
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize(("begins", "some"), [(0, True), (0.5, True), (1, False)])
def test_a_page_reads_what_it_has(
    connection: psycopg.Connection[Any], backlog: tuple[str, int], begins: float, *, some: bool
) -> None:
    _, events = backlog
    first = min(round(begins * events), events - 1000)
    with connection.transaction(force_rollback=True):
        connection.execute(
            "UPDATE projections.subscription_history SET source_id = '', slice = -1, seq_nr = 0, "
            "db_timestamp = '2020-01-01T00:00:00Z'::timestamptz + %s * (interval '3 minutes' / %s)",
            [first, events],
        )
        number = _one(connection, "SELECT subscription_id FROM projections.subscriptions")
        page = f"SELECT * FROM projections._next_history_v1({number}, {PAGE})"
        with explained(connection) as reading:
            rows = connection.execute(page.encode()).fetchall()
        assert 0 < len(rows) <= min(PAGE, events - first)
        reads_a_page(reading, len(rows))

        match = "SELECT projections._match_history_v1(%s, %s, %s, %s)"
        with explained(connection) as matching:
            done = connection.execute(match, [number, rows[0][1], rows[0][2], len(rows)]).fetchone()
        assert done == (len(rows),)
        rare = [row for row in rows if row[5] == "rare"]
        assert bool(rare) is some
        assert _one(connection, _MATCHES) == len(rare)
        reads_a_page(matching, len(rows))


def reads_a_page(heard: list[Explained], number: int) -> None:
    """Nothing is compiled, and no scan looks at more than the page."""
    assert [one.query for one in heard[:-1] if one.compiled] == []
    scans = [(looked_at(node), node) for one in heard for node in one.nodes() if "Scan" in node["Node Type"]]
    assert max(rows for rows, _ in scans) <= number + SLACK, shown(heard, SLACK)
    of_events = sum(rows for rows, node in scans if str(node.get("Relation Name")).startswith("events"))
    assert of_events <= number + SLACK, shown(heard, SLACK)


def _one(connection: psycopg.Connection[Any], sql: str) -> Any:
    (found,) = connection.execute(sql.encode()).fetchone() or (None,)
    return found


async def test_all_of_it_is_matched_within_the_time_that_the_role_has_for_a_statement(
    backlog: tuple[str, int],
) -> None:
    dsn, events = backlog
    await with_default(dsn, "statement_timeout = '2s'")
    await with_default(dsn, "jit = on")
    async with connect(dsn) as database:
        async with asyncio.timeout(300), database.session() as session:
            history = CatchingUp(timedelta(seconds=2))
            while await session.fetchval("SELECT count(*) FROM projections.subscription_history"):
                await history.go_on(session)
        assert await fetchval(database, _MATCHES) == events // 10_000
