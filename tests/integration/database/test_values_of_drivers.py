"""Both drivers store and read the same values for the same values of Python, and refuse the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from journal.database import Database, connect
from journal.database.settings import ConnectionSettings
from journal.errors import ProjectionsError

_BERLIN = ZoneInfo("Europe/Berlin")
_EAST, _WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-14))
_TWICE = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)
_NAIVE = datetime(2024, 1, 1, 12)  # noqa: DTZ001 - for columns without time zone

STORED: dict[str, dict[Any, str]] = {
    "date": {
        date(2024, 2, 29): "2024-02-29",
        date.max: "9999-12-31",
        date.min: "0001-01-01",
    },
    "timestamp": {
        _NAIVE: "2024-01-01 12:00:00",
        datetime.max: "9999-12-31 23:59:59.999999",  # noqa: DTZ901 - alike
        datetime.min: "0001-01-01 00:00:00",  # noqa: DTZ901
    },
    "timestamptz": {
        _TWICE.astimezone(_BERLIN): "2026-10-25 01:10:00+00",
        datetime.max.replace(tzinfo=UTC): "9999-12-31 23:59:59.999999+00",
        datetime.min.replace(tzinfo=UTC): "0001-01-01 00:00:00+00",
        datetime.max.replace(tzinfo=_EAST): "9999-12-31 09:59:59.999999+00",
        datetime(1999, 12, 31, 23, 59, 59, 1, tzinfo=_WEST): "2000-01-01 13:59:59.000001+00",
    },
    "time": {time(1, 2, 3, 4): "01:02:03.000004", time.max: "23:59:59.999999", time.min: "00:00:00"},
    "interval": {
        timedelta(0): "00:00:00",
        timedelta(seconds=-0.5): "-1 days +23:59:59.5",
        timedelta(days=-1): "-1 days",
        timedelta(days=1, microseconds=-1): "23:59:59.999999",
        timedelta.max: "999999999 days 23:59:59.999999",
        timedelta.min: "-999999999 days",
    },
    "numeric": {
        Decimal(number): str(Decimal(number)) if "E" not in number else f"{Decimal(number):f}"
        for number in (
            "0.00", "-0.5", "1.50", "123456789.000012345", "90071992547409.93", "10000", "9999.9999", "0.0001",
            "-0.00010", "1E3", "1E-10", "1E131071", "1E-16383", "NaN", "Infinity", "-Infinity",
        )
    } | {5: "5", -(10**40): "-1" + 40 * "0", 0.1: "0.1", 0.1 + 0.2: "0.30000000000000004", 1e22: "1" + 22 * "0"},
    "float8": {0.1: "0.1", -0.0: "-0", 1e308: "1e+308", float("inf"): "Infinity", 5: "5"},
    "bigint": {2**63 - 1: "9223372036854775807", -(2**63): "-9223372036854775808"},
    "int": {True: "1", False: "0"},
    "boolean": {True: "true", False: "false"},
    "uuid": {UUID(int=1): "00000000-0000-0000-0000-000000000001"},
    "bytea": {b"\0\xff": "\\x00ff"},
    "text": {"é😀": "é😀", "": ""},
}  # fmt: skip
"""The text that PostgreSQL shows of what is stored of a value, by the type of the column."""

REFUSED: dict[str, list[Any]] = {
    "timestamptz": [
        datetime.min.replace(tzinfo=_EAST),
        datetime.max.replace(tzinfo=_WEST),
    ],
    "numeric": [Decimal("1E131072"), Decimal("-1E200000"), Decimal("sNaN"), Decimal("1E-16384")],
    "int": [1.5, 2.0, Decimal("1.5"), 2**31],
    "bigint": [1.5, -0.5, Decimal("0.1"), 2**63],
    "text": ["a\0b", "\ud800"],
}
UNREADABLE = {
    "date": ["infinity", "-infinity", "10000-01-01", "0001-12-31 BC"],
    "timestamp": ["infinity", "-infinity", "10000-01-01", "0001-12-31 BC"],
    "timestamptz": ["infinity", "-infinity", "10000-01-01 00:00+00", "0001-12-31 00:00+00 BC"],
}


@pytest.fixture
async def drivers(empty_dsn: str) -> AsyncIterator[list[Database]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(connect(empty_dsn, ConnectionSettings(driver=driver)))
            for driver in ("asyncpg", "psycopg")
        ]


async def _shown(db: Database, kind: str, value: Any) -> list[Any]:
    """What is stored of a value alone and in an array, as texts, and what is read of it."""
    async with db.transaction() as session:
        await session.execute("SET LOCAL timezone = 'UTC'")
        await session.execute(f"CREATE TEMPORARY TABLE t (v {kind}, vs {kind}[]) ON COMMIT DROP")
        await session.execute("INSERT INTO t VALUES ($1, $2)", value, [value, None, value])
        row = await session.fetchrow("SELECT v, vs, v::text AS one, vs[3]::text AS three FROM t")
        assert row is not None
        await session.copy_rows(("pg_temp", "t"), ("v", "vs"), [(value, None)])
        assert await session.fetchval("SELECT count(DISTINCT v::text) FROM t") == 1
    return [row["one"], row["three"], repr(row["v"]), repr(row["vs"])]


@pytest.mark.daily(20)
@pytest.mark.parametrize("kind", STORED)
async def test_drivers_store_and_read_the_same(drivers: list[Database], kind: str) -> None:
    for value, text in STORED[kind].items():
        first, second = [await _shown(db, kind, value) for db in drivers]
        assert first[:2] == second[:2] == [text, text], value
        assert _comparable(first) == _comparable(second), value


def _comparable(shown: list[Any]) -> list[Any]:
    return [text.replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc") for text in shown]


async def _stored(db: Database, column: str, value: Any) -> None:
    async with db.transaction() as session:
        await session.execute(f"CREATE TEMPORARY TABLE t (v {column}) ON COMMIT DROP")
        await session.execute("INSERT INTO t VALUES ($1)", value)
        pytest.fail(f"{db}: {value!r:.50} was stored in {column}")


@pytest.mark.daily(20)
@pytest.mark.parametrize("kind", REFUSED)
async def test_drivers_refuse_the_same(drivers: list[Database], kind: str) -> None:
    for value in REFUSED[kind]:
        for given, column in ((value, kind), ([value], f"{kind}[]")):
            for db in drivers:
                with pytest.raises((ProjectionsError, UnicodeEncodeError)):
                    await _stored(db, column, given)


@pytest.mark.daily(20)
@pytest.mark.parametrize("kind", UNREADABLE)
async def test_drivers_refuse_to_read_what_python_has_no_value_for(
    drivers: list[Database], kind: str
) -> None:
    for text in UNREADABLE[kind]:
        for db in drivers:
            async with db.session() as session:
                with pytest.raises(ProjectionsError):
                    await session.fetchval(f"SELECT '{text}'::{kind}")
                assert await session.fetchval("SELECT 1") == 1


async def test_rows_within_a_list_stay_rows(drivers: list[Database]) -> None:
    asyncpg = drivers[0]
    async with asyncpg.session() as session:
        await session.execute("CREATE TYPE pair AS (a int, b float8)")
        rows = await session.fetch("SELECT (p).a, (p).b FROM unnest($1::pair[]) AS p", [(1, 2.5), (2, 3.5)])
    assert [tuple(row.values()) for row in rows] == [(1, 2.5), (2, 3.5)]
