"""Writing folded batches into real tables, with both drivers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from journal.database import Database, connect
from journal.database.settings import ConnectionSettings
from journal.errors import DatabaseError
from projections.defining.folding import fold
from projections.defining.tables import Change, Table, TableError
from projections.running.table_writer import TableWriter

DAY = date(2013, 1, 1)
BERLIN = ZoneInfo("Europe/Berlin")
NAIVE = datetime(2013, 1, 1, 5)  # noqa: DTZ001 - for columns without time zone
COUNTS = Table("counts", key=("a", "b"), increment=("n", "total"), minimum="lo", maximum="hi")
COUNTS_DDL = """CREATE TABLE counts (
    b text, a integer, n bigint NOT NULL DEFAULT 0, total numeric, lo integer, hi text,
    note text DEFAULT 'new', PRIMARY KEY (b, a))"""
STATUS = Table("app.status", key="tail", set=("state", "extra"), increment="n", per_source=True)
STATUS_DDL = """CREATE SCHEMA app;
CREATE TABLE app.status (tail text PRIMARY KEY, state text DEFAULT 'unknown', extra jsonb, n bigint)"""


@pytest.fixture(params=["asyncpg", "psycopg"])
async def db(request: pytest.FixtureRequest, empty_dsn: str) -> AsyncIterator[Database]:
    driver: Literal["asyncpg", "psycopg"] = request.param
    async with connect(empty_dsn, ConnectionSettings(driver=driver)) as database:
        yield database


async def run(db: Database, *statements: str) -> None:
    async with db.transaction() as session:
        for statement in ";".join(statements).split(";"):
            await session.execute(statement)


async def write(db: Database, *batches: list[Change], writer: TableWriter | None = None) -> None:
    writer = writer or TableWriter()
    for changes in batches:
        async with db.transaction() as session:
            await writer.write(session, fold(("s", change) for change in changes))


async def rows(db: Database, sql: str) -> list[tuple[Any, ...]]:
    async with db.session() as session:
        return [tuple(row.values()) for row in await session.fetch(sql)]


# Writing


async def test_increments_extremes_and_defaults_of_a_missing_and_of_a_present_row(db: Database) -> None:
    await run(db, COUNTS_DDL)
    first = [COUNTS.upsert(a=1, b="x", n=2, lo=5, hi="b"), COUNTS.upsert(a=2, b="x", total=Decimal("0.5"))]
    second = [COUNTS.upsert(a=1, b="x", n=3, lo=-5, hi="a"), COUNTS.upsert(a=2, b="x", total=0.25)]

    await write(db, first, second)

    assert await rows(db, "SELECT a, b, n, total, lo, hi, note FROM counts ORDER BY a") == [
        (1, "x", 5, None, -5, "b", "new"),
        (2, "x", 0, Decimal("0.75"), None, None, "new"),
    ]


async def test_a_key_alone_makes_a_row_and_changes_none(db: Database) -> None:
    await run(db, COUNTS_DDL, "INSERT INTO counts VALUES ('x', 1, 7, 8, 9, 'hi', 'old')")

    await write(db, [COUNTS.upsert(a=1, b="x"), COUNTS.upsert(a=2, b="x", n=None)])

    assert await rows(db, "SELECT a, n, total, lo, hi, note FROM counts ORDER BY a") == [
        (1, 7, 8, 9, "hi", "old"),
        (2, 0, None, None, None, "new"),
    ]


async def test_an_empty_batch_writes_nothing(db: Database) -> None:
    await write(db, [])


async def test_columns_that_are_not_mentioned_keep_their_value(db: Database) -> None:
    await run(db, STATUS_DDL)
    first = [STATUS.upsert(tail="N1", extra={"a": [1, None]}), STATUS.upsert(tail="N2", state=None)]
    second = [STATUS.upsert(tail="N1", state="up"), STATUS.upsert(tail="N2", extra="text", n=1)]

    await write(db, first, second)

    assert await rows(db, "SELECT tail, state, extra::text, n FROM app.status ORDER BY tail") == [
        ("N1", "up", '{"a": [1, null]}', None),
        ("N2", None, '"text"', 1),
    ]


async def test_delete_then_upsert_makes_a_fresh_row_and_upsert_then_delete_leaves_none(db: Database) -> None:
    await run(db, STATUS_DDL, "INSERT INTO app.status VALUES ('N1', 'old', '1', 5), ('N2', 'old', '1', 5)")
    changes = [
        STATUS.delete(tail="N1"),
        STATUS.upsert(tail="N1", n=1),
        STATUS.upsert(tail="N2", n=1),
        STATUS.delete(tail="N2"),
        STATUS.delete(tail="N3"),
    ]

    await write(db, changes)

    assert await rows(db, "SELECT tail, state, extra, n FROM app.status") == [("N1", "unknown", None, 1)]


async def test_values_of_every_supported_type_arrive(db: Database) -> None:
    await run(
        db,
        "CREATE TYPE mood AS ENUM ('sad', 'glad')",
        "CREATE DOMAIN code AS varchar(3) CHECK (value <> '')",
        "CREATE DOMAIN code2 AS code DEFAULT 'zzz' NOT NULL",
        """CREATE TABLE "odd ""name" (id uuid, "Köy $1" mood, i smallint, num numeric(6, 2), f float8,
        r real, v code, w code2, c char(4), j json, y bytea, bo boolean, d date, ti time, ts timestamp,
        tz timestamptz, iv interval, PRIMARY KEY (id, "Köy $1"))""",
    )
    values = {
        "i": 3, "num": Decimal("1.5"), "f": 1.25, "r": 2, "v": "abc", "w": "x", "c": "ab", "j": {"b": 1},
        "y": b"\0\1", "bo": True, "d": DAY, "ti": time(1, 2), "ts": NAIVE,
        "tz": datetime(2013, 1, 1, 5, tzinfo=UTC), "iv": timedelta(days=1, seconds=2),
    }  # fmt: skip
    table = Table(('odd "name',), key=("id", "Köy $1"), set=tuple(values), per_source=True)
    keys = [{"id": UUID(int=i), "Köy $1": "glad"} for i in range(2)]

    await write(
        db, [table.upsert(**keys[0], **values), table.upsert(**keys[1], **dict.fromkeys(values) | {"w": "y"})]
    )

    found = await rows(db, 'SELECT * FROM "odd ""name" ORDER BY id')
    shown = {**values, "c": "ab  ", "r": 2.0}
    assert found[0][:2] == (UUID(int=0), "glad")
    assert [value for value in found[0][2:] if not isinstance(value, dict | str)] == [
        value for value in shown.values() if not isinstance(value, dict | str)
    ]
    assert [value for value in found[1][2:] if value is not None] == ["y"]


async def test_an_increment_with_a_default_of_zero_may_be_left_out_of_some_rows(db: Database) -> None:
    await run(db, COUNTS_DDL, "INSERT INTO counts (a, b, n) VALUES (1, 'x', 4)")

    await write(db, [COUNTS.upsert(a=1, b="x", lo=1), COUNTS.upsert(a=2, b="x", n=1)])

    assert await rows(db, "SELECT a, n, lo FROM counts ORDER BY a") == [(1, 4, 1), (2, 1, None)]


async def test_texts_compare_by_code_point_whatever_the_collation(db: Database) -> None:
    icu = await rows(db, "SELECT 1 FROM pg_collation WHERE collname = 'en-x-icu'")  # sorts a before B
    collation = "en-x-icu" if icu else "C"
    columns = f'lo text COLLATE "{collation}", hi text COLLATE "{collation}"'
    await run(db, f"CREATE TABLE t (k integer PRIMARY KEY, {columns})")
    table = Table("t", key="k", minimum="lo", maximum="hi")

    await write(db, *[[table.upsert(k=1, lo=text, hi=text)] for text in ("a", "B", "é", "Z")])

    assert await rows(db, "SELECT lo, hi FROM t") == [("B", "é")]


async def test_the_hour_that_comes_twice_is_two_hours_in_any_batches(db: Database) -> None:
    await run(
        db,
        "CREATE TABLE rides (hour timestamptz PRIMARY KEY, n integer, first timestamptz, last timestamptz)",
    )
    rides = Table("rides", key="hour", increment="n", minimum="first", maximum="last")
    whole_day = datetime(2026, 10, 24, 22, tzinfo=UTC)
    summer, winter = (datetime(2026, 10, 25, hour, tzinfo=UTC) for hour in (0, 1))
    changes = [
        rides.upsert(hour=hour, n=1, first=at.astimezone(BERLIN), last=at.astimezone(BERLIN))
        for one, at in ((summer, summer.replace(minute=40)), (winter, winter.replace(minute=10)))
        for hour in (one.astimezone(BERLIN), whole_day)
    ]
    expected = [
        (whole_day, 2, summer.replace(minute=40), winter.replace(minute=10)),
        (summer, 1, summer.replace(minute=40), summer.replace(minute=40)),
        (winter, 1, winter.replace(minute=10), winter.replace(minute=10)),
    ]

    for batches in ([changes], [[change] for change in changes]):
        await write(db, *batches)
        assert await rows(db, "SELECT * FROM rides ORDER BY hour") == expected
        await run(db, "DELETE FROM rides")


async def test_a_partitioned_table_is_written(db: Database) -> None:
    await run(
        db,
        "CREATE TABLE t (day date, k integer, n integer, PRIMARY KEY (day, k)) PARTITION BY RANGE (day)",
        "CREATE TABLE t_1 PARTITION OF t DEFAULT",
    )
    table = Table("t", key=("k", "day"), increment="n")

    await write(db, [table.upsert(k=1, day=DAY, n=1)], [table.upsert(k=1, day=DAY, n=1)])

    assert await rows(db, "SELECT n FROM t") == [(2,)]


async def test_who_waits_for_a_row_has_locked_none_behind_it(db: Database) -> None:
    """Two ranges that write the same keys wait for each other, and do not deadlock, whichever columns they write."""
    await run(db, COUNTS_DDL, "INSERT INTO counts (a, b) VALUES (1, 'x'), (1, 'y')")
    waits = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    async with db.session() as other:
        await other.begin()
        await other.execute("UPDATE counts SET n = 5 WHERE b = 'x'")
        changes = [COUNTS.upsert(a=1, b="y", n=1), COUNTS.upsert(a=1, b="x", total=1)]
        waiting = asyncio.create_task(write(db, changes))
        while not await other.fetchval(waits):
            pass
        await other.execute("UPDATE counts SET n = 5 WHERE b = 'y'")
        await other.commit()
    await waiting

    assert await rows(db, "SELECT b, n, total FROM counts ORDER BY b") == [("x", 5, 1), ("y", 6, None)]


async def test_a_table_that_another_session_forgets_meanwhile_is_written(db: Database) -> None:
    await run(db, "CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    first, second = Table("t", key="id"), Table("u", key="id")
    writer = TableWriter()
    await write(db, [first.upsert(id=1)], writer=writer)

    async with db.transaction() as session:
        fetch = session.fetch

        async def forgetting(sql: str, *args: Any) -> Any:
            writer.forget()  # as after an error of another session
            return await fetch(sql, *args)

        session.fetch = forgetting  # type: ignore[method-assign]
        await writer.write(session, fold((("s", first.upsert(id=2)), ("s", second.upsert(id=2)))))

    assert await rows(db, "SELECT id FROM t UNION ALL SELECT id FROM u") == [(1,), (2,), (2,)]


async def test_a_table_that_was_altered_is_read_anew_after_the_error(db: Database) -> None:
    await run(db, STATUS_DDL)
    writer = TableWriter()
    await write(db, [STATUS.upsert(tail="N1", n=1)], writer=writer)
    await run(db, "DROP TABLE app.status", STATUS_DDL.split(";")[1].replace("n bigint", "n numeric"))
    half = [STATUS.upsert(tail="N1", n=Decimal("0.5"))]
    with pytest.raises(TableError, match="bigint"):
        await write(db, half, writer=writer)

    await write(db, half, writer=writer)

    assert await rows(db, "SELECT n FROM app.status") == [(Decimal("0.5"),)]
    await run(db, "DROP TABLE app.status", STATUS_DDL.split(";")[1])
    writer.forget()  # as when another database answers
    with pytest.raises(TableError, match="bigint"):
        await write(db, half, writer=writer)


# Values that do not fit


@pytest.mark.daily(99)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: t.upsert(day=NAIVE, tz=None),
            "column 'day' .date.: .* datetime.date is needed",
        ),
        (lambda t: t.upsert(day=DAY, tz=NAIVE), "column 'tz' .*with time zone is needed"),
        (lambda t: t.upsert(day=DAY, ti=time(1, tzinfo=UTC)), "column 'ti' .*without time zone is needed"),
        (lambda t: t.upsert(day=DAY, n=1.5), "column 'n' .integer."),
        (lambda t: t.upsert(day=DAY, money=Decimal("0.005")), r"column 'money' .*numeric\(10,2\).* round it"),
        (lambda t: t.upsert(day=DAY, j=float("nan")), "column 'j' .json"),
        (lambda t: t.upsert(day=DAY, j=object()), "column 'j' .json"),
        (lambda t: t.upsert(day=DAY, text=5), "column 'text' .text.: 5 is a int, and a str is needed"),
        (lambda t: t.upsert(day=DAY, text="a\0"), "column 'text' .text.: a text holds the character NUL"),
        (
            lambda t: t.upsert(day=DAY, text="\udc00"),
            "column 'text' .text.: a text holds half of a surrogate pair",
        ),
        (lambda t: t.upsert(day=DAY, u="0" * 32), "column 'u' .uuid.: .* a UUID is needed"),
    ],
)
async def test_a_value_that_does_not_fit_names_table_and_column(
    db: Database, change: Any, message: str
) -> None:
    await run(
        db,
        """CREATE TABLE t (day date PRIMARY KEY, tz timestamptz, n integer, money numeric(10, 2), j json,
        text text, u uuid, ti time)""",
    )
    table = Table(
        "t", key="day", set=("tz", "j", "text", "u", "ti"), increment=("n", "money"), per_source=True
    )
    values = {"j": {}, "text": "a", "u": UUID(int=1), "ti": time(1), "n": 1, "money": Decimal("0.01")}
    fits = table.upsert(day=DAY + timedelta(days=1), tz=datetime(2013, 1, 1, tzinfo=UTC), **values)

    with pytest.raises(TableError, match=f"table t: a value does not fit {message}"):
        await write(db, [fits, change(table)])


async def test_what_the_database_refuses_names_the_table(db: Database) -> None:
    await run(db, "CREATE TABLE t (k varchar(2) PRIMARY KEY)")

    with pytest.raises(DatabaseError, match="too long") as raised:
        await write(db, [Table("t", key="k").upsert(k="abc")])

    assert raised.value.__notes__ == ["while writing table t"]


@pytest.mark.parametrize("number", [2**31, 2**63, 2**70])
async def test_a_number_that_is_too_large_is_an_error_of_the_statement(db: Database, number: int) -> None:
    await run(db, "CREATE TABLE t (k integer PRIMARY KEY, n integer)")

    with pytest.raises(DatabaseError) as raised:
        await write(db, [Table("t", key="k", increment="n").upsert(k=1, n=number)])

    assert (raised.value.sqlstate or "")[:2] == "22"


async def test_columns_that_the_database_fills_need_no_default(db: Database) -> None:
    await run(
        db,
        """CREATE TABLE t (k integer PRIMARY KEY, n integer, id bigint GENERATED ALWAYS AS IDENTITY,
        at timestamptz NOT NULL DEFAULT now(), double integer GENERATED ALWAYS AS (n * 2) STORED)""",
    )

    await write(db, [Table("t", key="k", increment="n").upsert(k=1, n=2)])

    assert await rows(db, "SELECT k, n, id, double FROM t") == [(1, 2, 1, 4)]


# Against a model

_change = st.integers(0, 3).flatmap(
    lambda k: st.one_of(
        st.just(MODEL.delete(k=k)),
        st.fixed_dictionaries(
            {},
            optional={
                "s": st.sampled_from([None, "a", "é"]),
                "n": st.none() | st.integers(-5, 5),
                "d": st.none() | st.floats(-4, 4, width=16) | st.integers(-2, 2),
                "lo": st.none() | st.integers(-5, 5),
                "hi": st.sampled_from([None, "a", "B", "é"]),
            },
        ).map(lambda values: MODEL.upsert(k=k, **values)),
    )
)
MODEL = Table("model", key="k", set="s", increment=("n", "d"), minimum="lo", maximum="hi", per_source=True)
_MODEL_DDL = """CREATE TABLE model (k integer PRIMARY KEY, s text DEFAULT 'new', n bigint NOT NULL DEFAULT 0,
    d numeric, lo integer, hi text)"""


def _expected(changes: list[Change]) -> dict[int, dict[str, Any]]:
    model: dict[int, dict[str, Any]] = {}
    for change in changes:
        (k,) = change.key
        if change.values is None:
            model.pop(k, None)
            continue
        row = model.setdefault(k, {"s": "new", "n": 0, "d": None, "lo": None, "hi": None})
        for column, value in change.values.items():
            if column == "s":
                row["s"] = value
            elif value is not None:
                row[column] = _combined(column, row[column], value)
    return model


def _combined(column: str, old: Any, new: Any) -> Any:
    new = Decimal(repr(new)) if isinstance(new, float) else new
    if old is None:
        return new
    return {"lo": min, "hi": max}.get(column, lambda a, b: a + b)(old, new)


@pytest.mark.slow
@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(parts=st.lists(st.lists(_change, max_size=12), max_size=4))
def test_any_changes_in_any_batches_equal_a_plain_model(empty_dsn: str, parts: list[list[Change]]) -> None:
    async def both() -> list[Any]:
        return [await _written(empty_dsn, driver, parts) for driver in ("asyncpg", "psycopg")]

    expected = _expected([change for part in parts for change in part])

    assert asyncio.run(both()) == [expected, expected]


async def _written(dsn: str, driver: Any, parts: list[list[Change]]) -> dict[int, dict[str, Any]]:
    async with connect(dsn, ConnectionSettings(driver=driver)) as database, database.session() as session:
        await session.begin()
        await session.execute(_MODEL_DDL)
        writer = TableWriter()
        for part in parts:
            await writer.write(session, fold((str(change.key), change) for change in part))
        found = await session.fetch("SELECT * FROM model")
        await session.rollback()
    return {row["k"]: {name: row[name] for name in ("s", "n", "d", "lo", "hi")} for row in found}


@pytest.mark.slow
async def test_a_session_that_began_with_an_empty_table_finds_what_it_deletes_by_its_key(
    db: Database,
) -> None:
    await run(db, STATUS_DDL, "ALTER TABLE app.status SET (autovacuum_enabled = off)")
    writer = TableWriter()
    gone = fold(("s", STATUS.delete(tail=f"t{n}")) for n in range(1, 11))
    async with db.session() as session, db.session() as other:
        await other.execute("VACUUM (ANALYZE) app.status")
        for _ in range(10):
            await session.begin()
            await writer.write(session, gone)
            await session.commit()
        await other.execute("INSERT INTO app.status SELECT 't' || n FROM generate_series(1, 50000) AS n")

        await session.begin()
        await writer.write(session, gone)
        seen = "SELECT n_tup_del, seq_tup_read FROM pg_stat_xact_user_tables WHERE relid = 'app.status'::regclass"
        row = await session.fetchrow(seen)
        await session.commit()

    assert row is not None
    assert tuple(row.values()) == (10, 0)
