"""Whoever may create things in a schema of the caller's search path does not get to run them as the caller."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from journal import schema
from tests.fixtures.hot_paths import UNSET

DOCS = Path(__file__).parents[3] / "docs"

# Closer to the types of a call than PostgreSQL's own, so it is these that an open search path would choose.
TRAPS = """
CREATE FUNCTION public.unnest(uuid[]) RETURNS SETOF uuid LANGUAGE plpgsql AS $$
BEGIN RAISE 'trapped'; END $$;
CREATE FUNCTION public.cardinality(text[]) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN RAISE 'trapped'; END $$;
CREATE FUNCTION public.to_timestamp(numeric) RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN RAISE 'trapped'; END $$;
CREATE FUNCTION public.array_position(text[], text) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN RAISE 'trapped'; END $$;
CREATE FUNCTION public.times(bigint, interval) RETURNS interval LANGUAGE plpgsql AS $$
BEGIN RAISE 'trapped'; END $$;
CREATE OPERATOR public.* (LEFTARG = bigint, RIGHTARG = interval, FUNCTION = public.times);
CREATE FUNCTION public.equal(oid, regclass) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN RAISE 'trapped'; END $$;
CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = public.equal);
"""

APPEND = """
SELECT seq_nr FROM projections.append_event_v1(
    'a', 'plane', 'Landed', '{}', p_tags => '{x}', p_event_id => '01890a5d-ac96-774b-bcce-b302099a8057')
"""


@pytest.mark.daily(2)
@pytest.mark.parametrize(
    "call",
    [
        APPEND,
        "SELECT * FROM projections._poll_writers_v1(0, '{plane}', ARRAY[now()])",
        "SELECT * FROM projections.writers_in_flight_v1()",
        "SELECT * FROM projections.find_event_v1('01890a5d-ac96-774b-bcce-b302099a8057')",
        "SELECT * FROM projections._missing_partitions_v1()",
    ],
)
def test_functions_call_what_they_name_and_not_a_closer_match(empty_dsn: str, call: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute(TRAPS)
        schema.install(empty_dsn)

        connection.execute(call)


def test_every_function_sets_its_search_path_but_those_that_gain_from_leaving_it(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'projections'::regnamespace "
            "AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY(proconfig), FALSE)"
        ).fetchall()

    assert {name for (name,) in found} == UNSET


def test_the_guide_names_the_functions_that_leave_it_and_those_with_other_rights(dsn: str) -> None:
    guide = (DOCS / "operations" / "security.md").read_text()
    start = guide.index("## Roles of the database")
    named = set(re.findall(r"`([a-z0-9_]+_v\d+)`", guide[start : guide.index("\n## ", start + 1)]))
    with psycopg.connect(dsn) as connection:
        definers = connection.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'projections'::regnamespace AND prosecdef"
        ).fetchall()

    assert named == UNSET | {name for (name,) in definers}


def test_an_append_does_not_depend_on_how_the_session_reads_backslashes(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("SET standard_conforming_strings = off")
        connection.execute("SET escape_string_warning = off")

        assert connection.execute(APPEND).fetchone() == (1,)
