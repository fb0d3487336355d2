"""What a role or a database sets for every session does not change what the library does, with either driver."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest

from journal import ALL_SLICES, ConnectionSettings, Database, Event, append, append_sync, connect, read_source
from projections.subscriptions import subscribe
from projections.subscriptions.reading import settled_matches
from tests.fixtures.commands import called
from tests.fixtures.projections import EFFECTS, caught_up, effects, execute, recording
from tests.fixtures.subscriptions import match_all, read_next
from tests.fixtures.webhooks import deliver_events, endpoint, take

# Those that have changed something once are tried each day.
TELLING = [
    "client_encoding = 'LATIN1'",
    "client_encoding = 'SQL_ASCII'",
    "client_encoding = 'EUC_JP'",
    "array_nulls = off",
    "standard_conforming_strings = off",
    "default_transaction_isolation = 'serializable'",
    "datestyle = 'SQL, DMY'",
    "jit_above_cost = 0",
]
OTHERS = [
    "timezone = 'Asia/Kathmandu'",
    "intervalstyle = 'iso_8601'",
    "bytea_output = 'escape'",
    "extra_float_digits = -15",
    "search_path = nowhere, public",
    "default_transaction_isolation = 'repeatable read'",
    "default_transaction_isolation = 'read uncommitted'",
    "default_transaction_deferrable = on",
    "lc_messages = 'C'",
    "lc_numeric = 'C'",
    "lc_monetary = 'C'",
    "statement_timeout = '20s'",
    "lock_timeout = '5s'",
    "idle_in_transaction_session_timeout = '20s'",
    "row_security = off",
    "xmloption = 'document'",
    "transform_null_equals = on",
    "quote_all_identifiers = on",
    "escape_string_warning = off",
    "backslash_quote = off",
    "check_function_bodies = off",
    "plan_cache_mode = 'force_custom_plan'",
    "plan_cache_mode = 'force_generic_plan'",
    "enable_indexscan = off",
    "enable_nestloop = off",
    "enable_hashjoin = off",
    "synchronous_commit = off",
    "default_tablespace = ''",
]
ROLE = "DO $$ BEGIN EXECUTE format('ALTER ROLE %I IN DATABASE %I SET {}', current_user, current_database()); END $$"
TEXT = "Zürich\\n 5 € 東京 'x' \\d"
IDS = [UUID(int=n) for n in (1, 2, 3)]


def each(settings: list[str], *marks: Any) -> list[Any]:
    return [pytest.param(one, id=one.replace(" ", ""), marks=marks) for one in settings]


@pytest.fixture(params=[*each(TELLING), *each(OTHERS, pytest.mark.slow)])
async def odd(request: pytest.FixtureRequest, dsn: str) -> str:
    async with connect(dsn) as database:
        await execute(database, EFFECTS)
        await execute(database, ROLE.format(request.param.replace("'", "''")))
    return dsn


@pytest.fixture(params=["asyncpg", "psycopg"])
async def database(request: pytest.FixtureRequest, odd: str) -> AsyncIterator[Database]:
    async with connect(odd, ConnectionSettings(driver=request.param)) as pool:
        yield pool


def events(source_id: str) -> list[Event]:
    """One with all there can be, and one without."""
    return [
        Event(
            source_id,
            {"n": 1, "text": TEXT},
            "plane",
            "Happened",
            tags=["NULL", TEXT],
            metadata={"who": TEXT},
        ),
        Event(source_id, {"n": 2}, "plane", "Happened"),
    ]


@pytest.mark.slow
async def test_whatever_a_role_sets_events_are_appended_handled_matched_and_delivered(
    database: Database,
) -> None:
    async with database.session() as session:
        await subscribe(session, "g", condition="e.payload ->> 'text' ~ '\\d' AND e.topic <> ''")
    async with database.transaction() as session:
        await append(session, events("a"))

    await caught_up(database, recording())
    await match_all(database)

    assert await effects(database) == [("a", 1), ("a", 2)]
    async with database.session() as session:
        first, second = [one async for one in read_source(session, "a")]
        until = await settled_matches(session)
        matches = await read_next(session, "g", ALL_SLICES, after=0, until=until, limit=10)
    assert (first.payload["text"], first.tags, first.metadata) == (TEXT, ["NULL", TEXT], {"who": TEXT})
    assert (second.tags, second.metadata_json) == (None, None)
    assert first.db_timestamp < second.db_timestamp
    assert [match.envelope.seq_nr for match in matches if match.envelope] == [1]
    await endpoint(database, "ep_1", url=f"https://example.com/{TEXT[:1]}")
    ids = await deliver_events(database, "ep_1", 2)
    assert [one.event_id for one in await take(database)] == ids


@pytest.mark.daily(3)
async def test_whatever_a_role_sets_events_are_appended_on_the_callers_connection(odd: str) -> None:
    own = await asyncpg.connect(odd)
    await append(own, events("asyncpg"))
    await own.close()
    async with await psycopg.AsyncConnection.connect(odd) as connection:
        await append(connection, events("async"))
    with psycopg.connect(odd) as synchronous:
        append_sync(synchronous, events("sync"))

    async with connect(odd) as database, database.session() as session:
        for source_id in ("asyncpg", "async", "sync"):
            first, second = [one async for one in read_source(session, source_id)]
            assert (first.payload["text"], first.tags, first.metadata) == (
                TEXT,
                ["NULL", TEXT],
                {"who": TEXT},
            )
            assert (second.tags, second.metadata_json) == (None, None)


@pytest.mark.slow
@pytest.mark.parametrize("setting", TELLING)
def test_whatever_a_role_sets_the_schema_is_installed_and_verified(empty_dsn: str, setting: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute(ROLE.format(setting.replace("'", "''")))  # type: ignore[arg-type]

    installed = called("schema", "install", "--dsn", empty_dsn)
    verified = called("schema", "verify", "--dsn", empty_dsn)

    assert (installed.returncode, verified.returncode) == (0, 0), installed.stderr + verified.stdout
