"""A DSN that libpq takes works with both drivers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from psycopg.conninfo import make_conninfo

from journal import ConnectionSettings, connect

WORDS = {
    "connect_timeout": "5",
    "keepalives": "1",
    "keepalives_idle": "30",
    "fallback_application_name": "app",
    "options": "-c statement_timeout=7s",
}


def as_url(dsn: str) -> str:
    return (
        dsn
        + ("&" if "?" in dsn else "?")
        + "connect_timeout=5&keepalives_idle=30&options=-c%20statement_timeout%3D7s"
    )


def as_keywords(dsn: str) -> str:
    return make_conninfo(dsn, **WORDS)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
@pytest.mark.parametrize("form", [as_url, as_keywords])
async def test_words_of_libpq_are_taken_and_those_for_the_server_reach_it(
    dsn: str, driver: str, form: Callable[[str], str]
) -> None:
    settings = ConnectionSettings.model_validate({"driver": driver})

    async with connect(form(dsn), settings) as database, database.session() as session:
        assert await session.fetchval("SELECT current_setting('statement_timeout')") == "7s"


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_database_that_writes_dates_in_its_own_style_is_read(dsn: str, driver: str) -> None:
    settings = ConnectionSettings.model_validate({"driver": driver})
    async with connect(dsn) as database, database.session() as session:
        name = await session.fetchval("SELECT quote_ident(current_database())")
        await session.execute(f"ALTER DATABASE {name} SET datestyle = 'SQL, DMY'")

    async with connect(dsn, settings) as database, database.session() as session:
        found = await session.fetchval("SELECT '2026-01-31 12:00Z'::timestamptz")

    assert found == datetime(2026, 1, 31, 12, tzinfo=UTC)
