"""
What runs all the time looks at as many rows with the statistics of an empty table, or none, as with right ones.

``VACUUM ANALYZE`` while a table is empty says that it will stay so: each plan that is made then, and kept by a session,
takes every table for empty, as those of a restored dump or of offsets that were cleared are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from tests.fixtures.hot_paths import BEFORE, FILL, NO_VACUUM, PATHS, SOURCES, SWAP, SWEEPS, rebuilt
from tests.fixtures.plans import Explained, explained, looked_at, prepare, shown
from tests.fixtures.postgres import Databases

KEPT, STALE, RIGHT = "plans kept since all was empty", "statistics of empty tables", "right statistics"
KEPT_NEW, NONE = "plans kept since all was new", "no statistics"
SLACK = 100
"""Rows: a few more are no other plan."""
NEARLY_ALL = SOURCES * 0.85
"""Rows: every table has as many rows as there are sources, or more."""
OFTEN_ENOUGH = 6
"""Runs, from which on PostgreSQL keeps a plan for any arguments."""


@pytest.fixture(scope="module")
def told(databases: Databases, template: str) -> Iterator[dict[str, dict[str, list[Explained]]]]:
    """What each path does, by what the planner knows."""
    told: dict[str, dict[str, list[Explained]]] = {}
    with databases.fresh(template) as dsn, _connected(dsn) as owner, _connected(dsn) as keeper:
        owner.execute(NO_VACUUM)
        _run_while_empty(keeper)
        _fill(owner)
        told[KEPT_NEW] = _told(keeper)
        with _connected(dsn) as new:
            told[NONE] = _told(new)
    with databases.fresh(template) as dsn, _connected(dsn) as owner, _connected(dsn) as keeper:
        owner.execute(NO_VACUUM)
        owner.execute("VACUUM ANALYZE")
        _run_while_empty(keeper)
        _fill(owner)
        told[KEPT] = _told(keeper)
        with _connected(dsn) as new:
            told[STALE] = _told(new)
        owner.execute("VACUUM ANALYZE")
        with _connected(dsn) as new:
            told[RIGHT] = _told(new)
        yield told


def _run_while_empty(connection: psycopg.Connection[Any]) -> None:
    """So often that the session keeps its plans."""
    for path in PATHS:
        for _ in range(OFTEN_ENOUGH):
            with suppress(psycopg.DatabaseError):  # some need what is not there yet
                _run(connection, path)


def _fill(connection: psycopg.Connection[Any]) -> None:
    for statement in FILL:
        connection.execute(statement.encode())


def _connected(dsn: str) -> psycopg.Connection[Any]:
    return psycopg.connect(dsn, autocommit=True)


def _told(connection: psycopg.Connection[Any]) -> dict[str, list[Explained]]:
    prepare(connection)
    return {path: _run(connection, path) for path in PATHS}


def _run(connection: psycopg.Connection[Any], path: str) -> list[Explained]:
    """Run a path, and undo it."""
    with connection.transaction(force_rollback=True):
        for statement in BEFORE.get(path, ()):
            connection.execute(statement.encode())
        with explained(connection) as heard:
            connection.execute(PATHS[path].encode())
    return heard


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_wrong_statistics_make_nobody_look_at_more_rows(
    told: dict[str, dict[str, list[Explained]]], path: str
) -> None:
    rows = {known: sum(one.rows for one in paths[path]) for known, paths in told.items()}

    for known in (KEPT, KEPT_NEW, STALE, NONE):
        assert rows[known] <= 2 * rows[RIGHT] + SLACK, f"{rows}\n{shown(told[known][path], SLACK)}"


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in PATHS if path not in SWEEPS])
def test_what_is_about_a_batch_never_goes_through_a_table(
    told: dict[str, dict[str, list[Explained]]], path: str
) -> None:
    for known, paths in told.items():
        whole = [one for one in paths[path] if _most_of_a_scan(one) > NEARLY_ALL]
        assert not whole, f"{known}\n{shown(whole, SLACK)}"


def _most_of_a_scan(one: Explained) -> int:
    return max((looked_at(node) for node in one.nodes() if "Scan" in node["Node Type"]), default=0)


@pytest.mark.slow
@pytest.mark.parametrize("sources", [5_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_the_swap_of_a_first_rebuild_costs_as_much_for_each_of_many_sources(
    databases: Databases, template: str, sources: int
) -> None:
    few = sources // 10
    with databases.fresh(template) as one, databases.fresh(template) as other:
        assert _pages_of_a_swap(other, sources) / sources <= 2 * _pages_of_a_swap(one, few) / few


def _pages_of_a_swap(dsn: str, sources: int) -> int:
    with _connected(dsn) as connection:
        connection.execute(NO_VACUUM)
        connection.execute("VACUUM ANALYZE")
        connection.execute("SELECT projections.register_projection_v1('first', '{thing}')")
        for statement in rebuilt("first", sources):
            connection.execute(statement.encode())
        prepare(connection)
        with explained(connection) as heard:
            connection.execute(SWAP.encode())
        found = connection.execute("SELECT count(*) FROM projections.source_offsets").fetchone()
    assert found == (sources,)
    return max(one.pages for one in heard)
