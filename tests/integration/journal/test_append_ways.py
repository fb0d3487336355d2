"""Appending on a connection of the caller's: every driver, one behaviour."""

from __future__ import annotations

import json

import psycopg
import pytest

from journal import (
    AppendConflict,
    Database,
    DatabaseError,
    RawJson,
    append,
    append_sync,
)
from tests.fixtures.connections import WAYS, Way
from tests.fixtures.journal import count, event, stored


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request: pytest.FixtureRequest) -> Way:
    return request.param  # type: ignore[no-any-return]


TWINS = (append, append_sync)


class Undone(Exception):
    """What the caller's own code raises."""


async def _table(database: Database) -> None:
    async with database.session() as session:
        await session.execute("CREATE TABLE landings (plane text)")


async def test_event_and_the_callers_row_commit_together(way: Way, dsn: str, database: Database) -> None:
    await _table(database)

    async with way(dsn) as caller:
        await caller.execute("INSERT INTO landings VALUES ('a')")
        (first, second) = await caller.call(TWINS, [event(), event()])

    assert (first.seq_nr, second.seq_nr) == (1, 2)
    assert [e.event_id for e in await stored(database, "a")] == [first.event_id, second.event_id]
    assert await count(database, "landings") == 1


@pytest.mark.daily(4)
async def test_event_and_the_callers_row_roll_back_together(way: Way, dsn: str, database: Database) -> None:
    await _table(database)

    async def write_and_fail() -> None:
        async with way(dsn) as caller:
            await caller.execute("INSERT INTO landings VALUES ('a')")
            await caller.call(TWINS, [event()])
            raise Undone

    with pytest.raises(Undone):
        await write_and_fail()

    assert (await count(database), await count(database, "projections.sources")) == (0, 0)
    assert await count(database, "landings") == 0


async def test_conflict_is_the_same_error_on_every_connection(way: Way, dsn: str) -> None:
    with pytest.raises(AppendConflict) as caught:
        async with way(dsn) as caller:
            await caller.call(TWINS, [event('it\'s "x"')], expected_seq_nr=4)

    conflict = caught.value
    assert (conflict.source_id, conflict.expected, conflict.found) == ('it\'s "x"', 4, 0)
    assert "seq_nr 0, expected 4" in str(conflict)


async def test_every_connection_writes_the_same_values(way: Way, dsn: str, database: Database) -> None:
    odd = ['"', "'", "a,b", "{x}", "\\", "\\N", "NULL", "null", " ", "ä€😀", "%s", ":p1", "$1"]
    payload = RawJson('{ "b" : 1.0, "a":1,"c":"\\u00e9 %s :p1 $1" }')

    async with way(dsn) as caller:
        await caller.call(
            TWINS, [event(payload=payload, tags=odd, metadata={"who": odd}, version=7), event(tags=["x"])]
        )

    first, second = await stored(database, "a")
    assert (first.payload_json, first.tags, first.metadata, first.version) == (payload, odd, {"who": odd}, 7)
    assert (second.tags, second.metadata_json, second.version) == (["x"], None, 1)


async def test_unknown_connection_is_named() -> None:
    with pytest.raises(
        TypeError, match=r"builtins\.object is not a supported connection: pass a Session, asyncpg's"
    ):
        await append(object(), [event()])
    with pytest.raises(TypeError, match=r"builtins\.object is not a supported connection: pass psycopg's"):
        append_sync(object(), [event()])


async def test_plain_sql_commits_with_its_transaction(dsn: str, database: Database) -> None:
    sql = (
        "SELECT * FROM projections.append_event_v1("
        "'a', 'plane', 'Landed', '{\"x\" : 1.0}', p_tags => ARRAY['a,b', '\"'])"
    )
    with psycopg.connect(dsn) as connection:
        connection.execute(sql)
        connection.rollback()
        row = connection.execute(sql.encode()).fetchone()

    (only,) = await stored(database, "a")
    assert row == (1, only.db_timestamp, only.event_id)
    assert (only.payload_json, only.tags) == ('{"x" : 1.0}', ["a,b", '"'])


async def test_plain_sql_conflict_carries_its_numbers(dsn: str) -> None:
    with psycopg.connect(dsn) as connection, pytest.raises(psycopg.Error) as caught:
        connection.execute(
            "SELECT projections.append_event_v1('a', 'plane', 'Landed', '{}', p_expected_seq_nr => 3)"
        )

    assert caught.value.sqlstate == "PJ001"
    assert json.loads(str(caught.value.diag.message_detail)) == {"source_id": "a", "expected": 3, "found": 0}


async def test_spoiled_transaction_is_a_database_error(way: Way, dsn: str) -> None:
    async def append_after_a_conflict() -> None:
        async with way(dsn) as caller:
            with pytest.raises(AppendConflict):
                await caller.call(TWINS, [event()], expected_seq_nr=1)
            await caller.call(TWINS, [event()])

    with pytest.raises(DatabaseError, match="aborted"):
        await append_after_a_conflict()
