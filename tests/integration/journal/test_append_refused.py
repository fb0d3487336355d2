"""What the database refuses by itself, whoever writes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from journal import (
    ConnectionSettings,
    Database,
    DatabaseError,
    InvalidEvent,
    connect,
)
from tests.fixtures.journal import stored


@pytest.fixture(params=["asyncpg", "psycopg"])
async def database(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(driver=request.param)) as pool:
        yield pool


_REFUSED = {
    "empty source id": ("'', 'plane', 'Landed', '{}'", "23514"),
    "source id of 10 kB": ("repeat('x', 10240), 'plane', 'Landed', '{}'", "23514"),
    "no source id": ("NULL, 'plane', 'Landed', '{}'", "23502"),
    "empty entity type": ("'a', '', 'Landed', '{}'", "23514"),
    "entity type that is a pattern": ("'a', 'pl*', 'Landed', '{}'", "23514"),
    "empty event type": ("'a', 'plane', '', '{}'", "23514"),
    "NUL in a source id": ("E'a\\x00', 'plane', 'Landed', '{}'", "22021"),
    "half a surrogate pair in a source id": ("E'\\uD83D', 'plane', 'Landed', '{}'", "42601"),
    "NUL in a payload's value": ("'a', 'plane', 'Landed', '{\"x\": \"\\u0000\"}'", "22P05"),
    "NUL in a payload's key": ("'a', 'plane', 'Landed', '{\"\\u0000\": 1}'", "22P05"),
    "half a surrogate pair in a payload": ("'a', 'plane', 'Landed', '\"\\ud83d\"'", "22P02"),
    "NUL in metadata": ("'a', 'plane', 'Landed', '{}', '{\"x\": \"\\u0000\"}'", "22P05"),
    "no payload": ("'a', 'plane', 'Landed', NULL", "23502"),
    "payload that is not JSON": ("'a', 'plane', 'Landed', '{x'", "22P02"),
    "NaN": ("'a', 'plane', 'Landed', 'NaN'", "22P02"),
    "payload of 20 MB": ("'a', 'plane', 'Landed', to_json(repeat('x', 20000000))", "23514"),
    "metadata of 20 MB": ("'a', 'plane', 'Landed', '{}', to_json(repeat('x', 20000000))", "23514"),
    "tag that is NULL": ("'a', 'plane', 'Landed', '{}', NULL, ARRAY['x', NULL]", "23514"),
    "version out of bounds": ("'a', 'plane', 'Landed', '{}', p_version => 40000", "22003"),
    "negative expectation": ("'a', 'plane', 'Landed', '{}', p_expected_seq_nr => -1", "PJ001"),
}


@pytest.mark.parametrize(("arguments", "sqlstate"), _REFUSED.values(), ids=_REFUSED)
async def test_plain_sql_refuses(dsn: str, arguments: str, sqlstate: str) -> None:
    import psycopg

    with psycopg.connect(dsn) as connection:
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(f"SELECT projections.append_event_v1({arguments})".encode())
        connection.rollback()
        left = connection.execute("SELECT count(*) FROM projections.sources").fetchone()

    assert caught.value.sqlstate == sqlstate
    assert left == (0,)


@pytest.mark.parametrize(
    "arguments",
    [
        "'{a}', '{plane}', '{Landed,Landed}', '{1,2}'",
        "'{a}', '{plane}', '{Landed}', '{1}', p_metadata => '{null,null}'",
        "NULL, NULL, '{Landed}', '{1}'",
        "'{a}', '{plane}', '{Landed}', '{1}', p_expected_source_ids => '{a}'",
    ],
)
async def test_arrays_that_do_not_match_are_refused(database: Database, arguments: str) -> None:
    """What is too much in one of them would be left out without a word."""
    async with database.session() as session:
        with pytest.raises(InvalidEvent, match="the arrays of an append differ in their lengths"):
            await session.execute(f"SELECT projections.append_events_v1({arguments})")


async def test_numbers_beyond_a_float_are_json_to_the_database(dsn: str, database: Database) -> None:
    """Python refuses them when it writes; what plain SQL has written can be read."""
    async with database.transaction() as session:
        await session.execute("SELECT projections.append_event_v1('a', 'plane', 'Landed', '[1e400]')")

    assert (await stored(database, "a"))[0].payload_json == "[1e400]"


async def test_event_outside_the_calendar_is_refused_by_the_table(database: Database) -> None:
    for year in ("1969-12-31", "10000-01-01", "infinity", "-infinity"):
        async with database.session() as session:
            with pytest.raises(DatabaseError, match="db_timestamp_between_1970_and_9999"):
                await session.execute(
                    "INSERT INTO projections.events "
                    "(db_timestamp, seq_nr, event_id, slice, version, source_id, "
                    "entity_type, event_type, payload) "
                    f"VALUES ('{year}', 1, gen_random_uuid(), 1, 1, 'a', 'b', 'c', '{{}}')"
                )
