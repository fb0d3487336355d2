"""A page of a slice range is a walk along one index: nothing is sorted, wherever the page is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import psycopg
import pytest

from tests.fixtures.page_plans import (
    FILL,
    FUNCTIONS,
    PARTITIONS,
    PLACES,
    RANGES,
    assert_walks_the_index,
    explain,
)
from tests.fixtures.plans import prepare
from tests.fixtures.postgres import Databases


@pytest.fixture(scope="module")
def connection(databases: Databases, template: str) -> Iterator[psycopg.Connection[Any]]:
    """A journal of 200,000 events of 2,000 sources, and the queries prepared as readers have them."""
    with databases.fresh(template) as dsn, psycopg.connect(dsn, autocommit=True) as opened:
        opened.execute(PARTITIONS)
        opened.execute(FILL)
        opened.execute("VACUUM (ANALYZE) projections.events")
        prepare(opened)
        yield opened


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("slices", RANGES)
@pytest.mark.parametrize("place", PLACES)
def test_a_page_walks_the_index_by_time_without_sorting(
    connection: psycopg.Connection[Any], function: str, place: str, slices: str
) -> None:
    for plan in explain(connection, function, place, slices):
        assert_walks_the_index(connection, plan)


@pytest.mark.slow
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
