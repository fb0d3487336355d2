"""A page of several entity types walks the index of each, and reads no more than it has, whatever lies behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.fixtures.page_plans import (
    FUNCTIONS,
    PAGE,
    TYPES,
    assert_walks_the_index,
    explained,
    journal_of_types,
)
from tests.fixtures.plans import prepare
from tests.fixtures.postgres import Databases

BACKLOGS = [
    pytest.param(100_000, id="100,000 events"),
    pytest.param(1_000_000, id="a million events", marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
]
PAGE_OF = """
SELECT * FROM projections.{} (
    %s::text[], 0, 1023, '2030-01-01Z'::timestamptz + %s * interval '1 second', -1, '', 0, '9998-12-31', {}
)
"""


@pytest.fixture(scope="module", params=BACKLOGS)
def connection(
    databases: Databases, template: str, request: pytest.FixtureRequest
) -> Iterator[psycopg.Connection[Any]]:
    with journal_of_types(databases, template, request.param) as (_, opened):
        prepare(opened)
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("types", [TYPES[:1], TYPES[:3], TYPES, None], ids=["one", "three", "twenty", "all"])
@pytest.mark.parametrize("seconds", [0, 90, 179.9])
def test_a_page_reads_what_it_has_and_one_row_more_of_each_type(
    connection: psycopg.Connection[Any], function: str, types: list[str] | None, seconds: float
) -> None:
    page = PAGE_OF.format(function, PAGE)

    for statistics in ("wrong", "right"):
        if statistics == "right":
            connection.execute("ANALYZE projections.events")
        # Several types look before whether there are events of times to come: those of 2030 are.
        *before, read = explained(connection, page, [types, seconds])
        assert_walks_the_index(connection, read)
        assert (
            sum(node["Actual Rows"] * node["Actual Loops"] for plan in before for node in scans_of(plan))
            <= 20
        )


def scans_of(plan: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [node for node in plan if "Index Name" in node]
