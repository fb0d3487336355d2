"""Read models in SQL: what the table holds is what the plain query over the journal says."""
# ruff: noqa: E501 - a statement is read in one line

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

import offsets
from journal import (
    ALL_SLICES,
    BEGINNING,
    ConnectionSettings,
    Database,
    DatabaseWentBack,
    HeadReader,
    Position,
    connect,
)
from projections import (
    Event,
    RawJson,
    TableError,
    event_type,
    events,
    projection,
    read_model,
)
from projections.defining import projection_of
from projections.running import ReadModelWriter
from projections.testing import run_until_caught_up
from tests.fixtures.projections import NO_RETRY, execute, fetchval, running, settings, until
from tests.fixtures.read_models import (
    DAY,
    LATER,
    Delays,
    Departed,
    Landed,
    as_the_journal_says,
    documented,
    land,
    landing,
    rows,
)


def of(sql: str, **options: Any) -> type[Any]:
    """A projection with one read model, in the table ``t``."""

    @projection("p", entity_type="plane", **options)
    class P:
        landed = events(Landed)
        departed = events(Departed)
        t = read_model(sql)

    return P


@pytest.fixture(params=["asyncpg", "psycopg"])
async def either(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Database]:
    """A database through each of the drivers."""
    async with connect(dsn, ConnectionSettings(driver=request.param)) as pool:
        yield pool


@pytest.mark.slow
async def test_a_read_model_is_kept_by_its_statement(either: Database) -> None:
    await land(either, landing("a", delay=5), landing("b", delay=7), landing("b", delay=-3))
    await run_until_caught_up(either, Delays)
    await land(either, landing("a", delay=1), landing("c", carrier="AA", delay=2), landing("c"))
    await run_until_caught_up(either, Delays)

    assert sorted(await rows(either, "SELECT carrier, day, flights, minutes, worst FROM delays")) == [
        ("AA", DAY, 1, 2, 2),
        ("UA", DAY, 3, 13, 7),
    ]
    await as_the_journal_says(either, Delays, "delays")


async def test_the_table_that_is_created_has_the_types_of_the_statement(database: Database) -> None:
    await land(database, landing("a", delay=5))
    await run_until_caught_up(database, Delays)

    sql = """
    SELECT attname::text, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute
    WHERE attrelid = 'delays'::regclass AND attnum > 0 ORDER BY attnum
    """
    assert await rows(database, sql) == [
        ("carrier", "text", True), ("day", "date", True), ("flights", "bigint", True), ("minutes", "numeric", False),
        ("worst", "bigint", False),
    ]  # fmt: skip


ALL = """
SELECT carrier, count(*) AS n, count(delay) AS known, sum(delay) AS s, min(delay) AS least, max(at) AS newest,
    avg(fare) AS fare, bool_and(on_time) AS always, bool_or(on_time) AS ever, min(seat) AS seat,
    sum(delay) FILTER (WHERE NOT on_time) AS late
FROM landed GROUP BY carrier
"""
NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)


async def test_every_aggregate_is_combined_over_batches(database: Database) -> None:
    model = of(ALL, batch_size=2)
    await land(
        database,
        landing("a", delay=5, fare=Decimal("1.10"), on_time=False, at=NOON),
        landing("a", fare=Decimal("2.30"), seat="window"),
        landing("b", delay=-7, on_time=False),
        landing("b", carrier="AA"),
        landing("a", carrier="AA", on_time=False),
        landing("c", delay=2, on_time=False),
    )
    await run_until_caught_up(database, model)

    found = "SELECT carrier, n, known, s, least, newest, round(fare, 4), always, ever, seat, late FROM t ORDER BY 1"
    assert await rows(database, found) == [
        ("AA", 2, 0, None, None, None, Decimal(0), False, True, "aisle", None),
        ("UA", 4, 3, 0, -7, NOON, Decimal("0.8500"), False, True, "aisle", 0),
    ]
    await as_the_journal_says(database, model, "t")


# What the guide says to be accepted, and more expressions.
@pytest.mark.parametrize(
    "sql",
    [
        *(sql for sql, _ in documented("accepted")),
        "SELECT source_id, last(seat) AS seat, last(delay) AS delay, count(*) AS n FROM landed GROUP BY source_id",
        "SELECT source_id, seq_nr, carrier, delay * 2 AS twice, at, fare FROM landed WHERE delay IS NOT NULL",
        "SELECT date_trunc('month', at) AS m, at::date AS d, count(*) AS n FROM landed WHERE at IS NOT NULL GROUP BY 1, 2",
        "SELECT lower(carrier) || '-' || seat AS k, extract(year FROM day) AS y, max(upper(seat)) AS s FROM landed GROUP BY 1, 2",
        "SELECT coalesce(extra ->> 'gate', 'none') AS gate, count(*) AS n FROM landed GROUP BY gate",
        "SELECT entity_type, count(*) AS n, min(db_timestamp) AS first, max(source_id) AS last FROM landed GROUP BY 1",
        "SELECT carrier, count(*) AS n FROM landed WHERE carrier LIKE 'U%' AND (delay BETWEEN 0 AND 9 OR seat = 'window') GROUP BY 1",
    ],
)  # fmt: skip
async def test_the_table_is_what_the_query_says(database: Database, sql: str) -> None:
    await land(
        database,
        *[
            landing(
                f"p{n % 5}", carrier="UA" if n % 3 else "Ab", delay=None if n % 4 == 0 else n - 8,
                seat="window" if n % 2 else "aisle", at=NOON + timedelta(days=9 * n) if n % 5 else None,
                fare=Decimal(n) / 7, extra={"gate": f"G{n % 2}"} if n % 3 else None,
            )
            for n in range(20)
        ],
        *[Event(f"p{n % 3}", Departed(carrier="UA", delay=n), "plane") for n in range(7)],
        *[landing(f"b{n % 2}", delay=n, entity_type="bus") for n in range(3)],
        *[Event(f"b{n % 3}", Departed(carrier="UA", delay=n), "bus") for n in range(4)],
    )  # fmt: skip

    @projection("p", entity_type=("plane", "bus"), batch_size=3)
    class Model:
        landed = events(Landed)
        departed = events(Departed)
        t = read_model(sql)

    await run_until_caught_up(database, Model)

    await as_the_journal_says(database, Model, "t")


@pytest.mark.parametrize("setting", ["TimeZone = 'Pacific/Chatham'", "DateStyle = 'German, DMY'", "jit = on"])
async def test_settings_of_the_role_change_nothing(dsn: str, setting: str) -> None:
    sql = "SELECT at::date AS d, max(at) AS newest, max(day::text) AS said FROM landed GROUP BY 1"
    async with connect(dsn) as database:
        name = await fetchval(database, "SELECT current_database()")
        await execute(database, f'ALTER DATABASE "{name}" SET {setting}')
    async with connect(dsn) as database:
        await land(database, landing("a", at=datetime(2013, 5, 1, 23, 30, tzinfo=UTC)))
        await run_until_caught_up(database, of(sql))

        assert await rows(
            database, "SELECT d::text = '2013-05-01' OR d = make_date(2013, 5, 1), said FROM t"
        ) == [(True, "2013-01-01")]


class TestBadEvents:
    """One that does not fit parks its source, and is named; the others go on."""

    @pytest.mark.daily(7)
    @pytest.mark.parametrize(
        ("payload", "message"),
        [
            ('{"carrier": "UA", "day": "never", "delay": 1}', "day: Input should be a valid date"),
            ('{"carrier": "UA", "day": "2013-01-01", "delay": "late"}', "delay: Input should be a valid integer"),
            ('{"day": "2013-01-01", "delay": 1}', "carrier: Field required"),
            ('{"carrier": null, "day": "2013-01-01", "delay": 1}', "carrier: Input should be a valid string"),
            ('{"carrier": "UA", "day": "2013-01-01", "delay": 1, "on_time": null}', "on_time: Input should be a valid boolean"),
            ("[1, 2]", "Input should be an object"),
            ('{"carrier": "UA", "day": "2013-01-01", "delay": 99999999999999999999}', "out of range"),
        ],
    )  # fmt: skip
    async def test_parks_its_source(self, database: Database, payload: str, message: str) -> None:
        bad = Event("bad", RawJson(payload), "plane", event_type="Landed")
        await land(database, *[landing(f"p{n}", delay=1) for n in range(20)], bad, landing("bad", delay=1))

        @projection("p", entity_type="plane", recovery=NO_RETRY)
        class P:
            landed = events(Landed)
            t = read_model(
                "SELECT carrier, day, count(*) FILTER (WHERE on_time) AS n, sum(delay) AS s FROM landed WHERE delay > 0 GROUP BY 1, 2"
            )

        await run_until_caught_up(database, P)

        assert await rows(database, "SELECT n FROM t") == [(20,)]
        ((source, seq_nr, error),) = await rows(
            database, "SELECT source_id, seq_nr, error FROM projections.parked_sources"
        )
        assert (source, seq_nr) == ("bad", 1)
        assert message in error
        assert "event 'Landed' of source 'bad', seq_nr 1" in error

    async def test_of_a_column_that_is_not_read_does_no_harm(self, database: Database) -> None:
        await land(
            database, Event("a", RawJson('{"carrier": "UA", "day": "never"}'), "plane", event_type="Landed")
        )
        await run_until_caught_up(database, of("SELECT carrier, count(*) AS n FROM landed GROUP BY 1"))

        assert await rows(database, "SELECT * FROM t") == [("UA", 1)]

    async def test_what_is_missing_has_the_default_of_the_model(self, database: Database) -> None:
        await land(
            database,
            Event("a", RawJson('{"carrier": "UA", "day": "2013-01-01"}'), "plane", event_type="Landed"),
        )
        sql = "SELECT carrier, seat, on_time, fare, gate, count(*) AS n FROM landed WHERE delay IS NULL GROUP BY 1, 2, 3, 4, 5"
        await run_until_caught_up(database, of(sql))

        assert await rows(database, "SELECT * FROM t") == [("UA", "aisle", True, Decimal(0), "A", 1)]


@event_type(
    "Landed",
    version=3,
    upcast={1: lambda p: p | {"carrier": p["airline"]}, 2: lambda p: p | {"day": "2013-01-01"}},
)
class LandedNow(BaseModel):
    carrier: str
    day: str


class TestVersions:
    sql = "SELECT carrier, day, count(*) AS n FROM landed GROUP BY carrier, day"

    def model(self) -> type[Any]:
        @projection("p", entity_type="plane", recovery=NO_RETRY)
        class P:
            landed = events(LandedNow)
            t = read_model(TestVersions.sql)

        return P

    async def test_older_ones_are_lifted(self, database: Database) -> None:
        await land(
            database,
            Event("a", RawJson('{"airline": "UA"}'), "plane", event_type="Landed"),
            Event("a", RawJson('{"carrier": "UA", "airline": "x"}'), "plane", event_type="Landed", version=2),
            Event("b", LandedNow(carrier="UA", day="2013-01-01"), "plane"),
        )
        await run_until_caught_up(database, self.model())

        assert await rows(database, "SELECT * FROM t") == [("UA", "2013-01-01", 3)]

    async def test_one_that_fits_as_it_is_is_lifted_all_the_same(self, database: Database) -> None:
        old = RawJson('{"airline": "UA", "carrier": "old", "day": "never"}')
        await land(
            database, *[Event("a", old, "plane", event_type="Landed", version=version) for version in (1, 2)]
        )
        await run_until_caught_up(database, self.model())

        assert await rows(database, "SELECT * FROM t ORDER BY 1") == [
            ("UA", "2013-01-01", 1), ("old", "2013-01-01", 1),
        ]  # fmt: skip

    async def test_one_that_cannot_be_lifted_parks_its_source(self, database: Database) -> None:
        await land(
            database,
            Event("a", RawJson('{"nothing": 1}'), "plane", event_type="Landed"),
            Event("b", LandedNow(carrier="UA", day="2013-01-01"), "plane"),
        )
        await run_until_caught_up(database, self.model())

        assert await rows(database, "SELECT n FROM t") == [(1,)]
        ((error,),) = await rows(database, "SELECT error FROM projections.parked_sources")
        assert "source 'a', seq_nr 1: upcast from version 1 failed" in error

    async def test_a_later_one_parks_its_source(self, database: Database) -> None:
        await land(database, Event("a", RawJson("{}"), "plane", event_type="Landed", version=4))
        await run_until_caught_up(database, self.model())

        ((error,),) = await rows(database, "SELECT error FROM projections.parked_sources")
        assert "this program knows" in error


class TestTables:
    async def test_one_of_another_type_is_refused_with_the_statement_that_creates_it(
        self, database: Database
    ) -> None:
        await execute(database, "CREATE TABLE delays (carrier text, day date, flights int, minutes int, worst int, PRIMARY KEY (carrier, day))")  # fmt: skip
        await land(database, landing("a", delay=5))
        with pytest.raises(
            TableError, match="'minutes' is integer, and its read model computes numeric"
        ) as refused:
            await run_until_caught_up(database, Delays)
        assert 'CREATE TABLE "delays"' in str(refused.value)

    async def test_one_without_the_key_is_refused(self, database: Database) -> None:
        await execute(
            database,
            "CREATE TABLE delays (carrier text, day date, flights bigint, minutes numeric, worst bigint)",
        )
        await land(database, landing("a", delay=5))
        with pytest.raises(TableError, match="no primary key or unique index"):
            await run_until_caught_up(database, Delays)

    async def test_floats_are_refused_in_sums(self, database: Database) -> None:
        class Priced(BaseModel):
            price: float

        @projection("p", entity_type="plane")
        class P:
            priced = events(Priced)
            t = read_model("SELECT entity_type, sum(price) AS s FROM priced GROUP BY 1")

        await land(database, Event("a", Priced(price=1.5), "plane"))
        with pytest.raises(TableError, match="cannot be incremented exactly"):
            await run_until_caught_up(database, P)

    async def test_another_statement_needs_another_table_or_a_rebuild(self, database: Database) -> None:
        await land(database, landing("a", delay=5))
        await run_until_caught_up(database, Delays)

        @projection("delays", entity_type="plane")
        class Changed:
            landed = events(Landed)
            delays = read_model(
                "SELECT carrier, day, count(*) AS flights, sum(delay) AS minutes, max(delay) AS worst"
                " FROM landed WHERE delay > 15 GROUP BY carrier, day"
            )

        await land(database, landing("a", delay=5))
        with pytest.raises(
            TableError, match=r"filled by another statement: SELECT carrier.* raise the version"
        ):
            await run_until_caught_up(database, Changed)

    async def test_who_may_not_create_it_is_told_the_statement(
        self, dsn: str, database: Database, login: Callable[[str], str]
    ) -> None:
        await execute(database, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        await land(database, landing("a", delay=5))
        async with connect(login("projections_worker")) as worker:
            with pytest.raises(TableError, match=r"could not be created .*: create it: CREATE TABLE"):
                await run_until_caught_up(worker, Delays)


@pytest.mark.slow
async def test_rows_of_several_ranges_are_one(database: Database) -> None:
    await land(database, *[landing(f"p{n}", delay=n) for n in range(200)])
    async with running(database, Delays, settings=settings(), ranges=8):
        await until(database, "SELECT to_regclass('delays') IS NOT NULL")
        await until(database, "SELECT coalesce(sum(flights), 0) = 199 FROM delays")
        await land(database, *[landing(f"p{n}", delay=1) for n in range(200)])
        await until(database, "SELECT sum(flights) = 399 FROM delays")

    await as_the_journal_says(database, Delays, "delays")


async def test_a_table_that_is_dropped_is_not_begun_again(database: Database) -> None:
    """It would lack what was handled before."""
    await land(database, landing("a", delay=1))
    await run_until_caught_up(database, Delays)
    await execute(database, "DROP TABLE delays")
    await land(database, landing("a", delay=5))

    with pytest.raises(TableError, match="has handled events, which a new one would lack: restore it"):
        await run_until_caught_up(database, Delays)


async def test_an_event_that_is_gone_when_its_batch_is_written_is_not_passed_over(database: Database) -> None:
    """It was read, and would be counted as handled."""
    await land(database, landing("a", delay=1), landing("a", delay=2))
    read = HeadReader("plane", ALL_SLICES)
    async with database.session() as session:
        page = await read.events(session, Position.before(BEGINNING), LATER)
        await session.execute("DELETE FROM projections.events WHERE seq_nr = 2")
        writer = ReadModelWriter()
        await offsets.register(session, "delays", projection_of(Delays).entity_types)

        async def write() -> None:
            async with session.transaction():
                plans = await writer.prepare(session, projection_of(Delays))
                await writer.write(session, plans, page)

        with pytest.raises(
            DatabaseWentBack, match="1 of 2 events that were read are no longer in the journal"
        ):
            await write()
