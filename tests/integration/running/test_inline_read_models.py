"""Read models in SQL that are kept in the transaction that appends: the same rows, once, by it or by a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg
import pytest
from pydantic import BaseModel

from journal import ConnectionSettings, Database, MissingPrivilege, NotAllowed, RawJson, connect, event_type
from projections import (
    Changes,
    Event,
    EventEnvelope,
    Inline,
    ProjectionFailed,
    Table,
    TableError,
    events,
    handles,
    projection,
    read_model,
)
from projections.testing import run_until_caught_up
from tests.fixtures.connections import WAYS, Way
from tests.fixtures.inline import mode
from tests.fixtures.projections import NO_RETRY, execute, fetchval, running, until
from tests.fixtures.read_models import Landed, land, landing, rows


@projection("delays", entity_type="plane", recovery=NO_RETRY)
class Delays:
    landed = events(Landed)
    delays = read_model("""
        SELECT carrier, day, count(*) AS flights, sum(delay) AS minutes, max(at) AS newest, last_day
        FROM (SELECT carrier, day, delay, at, date_trunc('day', at) AS last_day FROM landed WHERE at IS NOT NULL) AS l
        GROUP BY carrier, day, last_day
    """)
    planes = read_model("SELECT source_id, count(*) AS n, last(seat) AS seat FROM landed GROUP BY source_id")


@event_type("Lifted", version=2, upcast={1: lambda p: {"n": p["m"]}})
class Lifted(BaseModel):
    n: int


TWINS = Inline(Delays).append, Inline(Delays).append_sync
AT = "2013-01-01T23:30:00Z"


def flight(source_id: str = "a", **values: Any) -> Event:
    return landing(source_id, **{"delay": 1, "at": AT} | values)


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(max_connections=15)) as pool:
        await run_until_caught_up(pool, Delays)
        await land(pool, flight("first"))
        await run_until_caught_up(pool, Delays)  # the first event makes the tables
        await mode(pool, "inline", "delays")
        yield pool


async def inline(database: Database, *appended: Event) -> None:
    async with database.transaction() as session:
        await TWINS[0](session, appended)


async def flights(database: Database) -> int:
    return int(await fetchval(database, "SELECT sum(flights) FROM delays"))


async def handled(database: Database) -> int:
    return int(await fetchval(database, "SELECT sum(handled) FROM projections.projection_ranges"))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
async def test_what_is_appended_is_in_the_tables_of_its_transaction(
    journal: Database, dsn: str, way: Way
) -> None:
    async with way(dsn) as caller:
        await caller.execute("SET TimeZone = 'Pacific/Chatham'")
        await caller.execute("CREATE TABLE seen (n bigint, zone text)")
        await caller.call(TWINS, [flight("a", delay=5), flight("b"), flight("a", seat="window")])
        await caller.execute("INSERT INTO seen SELECT sum(flights), current_setting('TimeZone') FROM delays")
    assert await rows(journal, "SELECT * FROM seen") == [(4, "Pacific/Chatham")]
    before = await handled(journal)
    await run_until_caught_up(journal, Delays)

    assert await rows(journal, "SELECT source_id, n, seat FROM planes ORDER BY 1") == [
        ("a", 2, "window"), ("b", 1, "aisle"), ("first", 1, "aisle"),
    ]  # fmt: skip
    assert await handled(journal) == before
    assert await fetchval(journal, "SELECT min(last_day)::text FROM delays") == "2013-01-01 00:00:00+00"


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
async def test_an_event_that_does_not_fit_leaves_nothing(journal: Database, dsn: str, way: Way) -> None:
    bad = Event("c", RawJson('{"carrier": "UA", "day": "never"}'), "plane", event_type="Landed")
    try:
        async with way(dsn) as caller:
            with pytest.raises(
                ProjectionFailed, match=r"inline, projection 'delays', event 'Landed' of .*never"
            ):
                await caller.call(TWINS, [flight("b"), bad])
    except Exception:  # noqa: BLE001 - some drivers say that this cannot commit, others roll back
        pass

    await run_until_caught_up(journal, Delays)
    assert await flights(journal) == 1


async def test_a_source_whose_events_before_are_not_handled_is_left_to_a_worker(journal: Database) -> None:
    await land(journal, flight("a"))
    await inline(journal, flight("a"), flight("b"))
    assert await flights(journal) == 2

    await run_until_caught_up(journal, Delays)
    assert await rows(journal, "SELECT source_id, n FROM planes ORDER BY 1") == [
        ("a", 2),
        ("b", 1),
        ("first", 1),
    ]


@pytest.mark.slow
async def test_the_mode_changes_while_events_come(journal: Database) -> None:
    async with running(journal, Delays):
        for to in ("live", "inline", "live", "inline"):
            await mode(journal, to, "delays")  # type: ignore[arg-type]
            for n in range(3):
                await inline(journal, flight(f"s{n}"), flight(f"t{n}"))
                await land(journal, flight(f"s{n}"))
        await until(journal, "SELECT sum(n) = 37 FROM planes")
    assert await flights(journal) == 37


async def test_older_versions_are_lifted(dsn: str) -> None:
    @projection("p", entity_type="plane")
    class P:
        landed = events(Lifted)
        t = read_model("SELECT source_id, sum(n) AS n FROM landed GROUP BY source_id")

    async with connect(dsn) as pool:
        await land(pool, Event("a", Lifted(n=1), "plane"))
        await run_until_caught_up(pool, P)
        await mode(pool, "inline")
        old = Event("b", RawJson('{"m": 7}'), "plane", event_type="Lifted")
        async with pool.transaction() as session:
            await Inline(P).append(session, [old, Event("b", Lifted(n=3), "plane")])
        assert await rows(pool, "SELECT * FROM t ORDER BY 1") == [("a", 1), ("b", 10)]


async def test_a_table_that_is_not_there_is_not_created(journal: Database) -> None:
    await execute(journal, "DROP TABLE planes")
    with pytest.raises(ProjectionFailed, match=r"planes is not in the database.*CREATE TABLE"):
        await inline(journal, flight("a"))
    assert await flights(journal) == 1


@projection("seats", entity_type="plane", recovery=NO_RETRY)
class Seats:
    landed = events(Landed)
    seats = read_model("SELECT seat, count(*) AS n FROM landed GROUP BY seat")


async def test_it_is_made_inline_before_its_first_event(database: Database) -> None:
    await run_until_caught_up(database, Seats)  # which finds no event, and makes the table
    async with database.session() as session:
        await Inline(Seats).set_mode(session, "inline")
    async with database.transaction() as session:
        await Inline(Seats).append(session, [flight("a", seat="window")])
    assert await rows(database, "SELECT seat, n FROM seats") == [("window", 1)]


async def test_it_is_not_made_inline_where_each_append_would_fail(database: Database) -> None:
    await run_until_caught_up(database, Seats)
    for change, reason in [
        ("ALTER TABLE seats ALTER n TYPE text", "n"),
        ("DROP TABLE seats", "CREATE TABLE"),
    ]:
        await execute(database, change)
        async with database.session() as session:
            with pytest.raises(TableError, match=reason):
                await Inline(Seats).set_mode(session, "inline")
    with pytest.raises(NotAllowed, match="table seats of its read model is not in the database"):
        await mode(database, "inline", "seats")
    assert await fetchval(database, "SELECT mode FROM projections.projections") == "live"
    await mode(database, "live", "seats")


async def test_it_is_not_made_inline_by_a_role_whose_appends_would_fail(
    database: Database, login: Callable[[str | None], str]
) -> None:
    await run_until_caught_up(database, Seats)
    async with connect(login("projections_worker")) as own, own.session() as session:
        role = await session.fetchval("SELECT current_user")
        with pytest.raises(MissingPrivilege, match=f'GRANT SELECT, INSERT, UPDATE ON "seats" TO "{role}"'):
            await Inline(Seats).set_mode(session, "inline")
        await execute(database, f"GRANT SELECT, INSERT, UPDATE ON seats TO {role}")
        await Inline(Seats).set_mode(session, "inline")


PLACES = Table("places", key="place", increment="n")


@projection("places", entity_type="plane", tables=(PLACES,))
class Places:
    @handles(Landed)
    def landed(self, event: Landed, envelope: EventEnvelope) -> Changes:
        return PLACES.upsert(place=envelope.source_id, n=1)


async def test_tables_that_handlers_name_are_checked_before(database: Database) -> None:
    await run_until_caught_up(database, Places)
    async with database.session() as session:
        with pytest.raises(TableError, match="table places is not in the database"):
            await Inline(Places).set_mode(session, "inline")


async def test_a_writer_needs_rights_on_the_tables_only(journal: Database, dsn: str) -> None:
    await execute(journal, "GRANT ALL ON delays, planes TO projections_writer")
    with psycopg.connect(dsn) as connection:
        connection.execute("SET ROLE projections_writer")
        TWINS[1](connection, [flight("a")])

    assert await flights(journal) == 2


@pytest.mark.slow
async def test_what_others_put_into_the_schemas_of_the_caller_is_not_called(
    journal: Database, dsn: str
) -> None:
    await execute(
        journal,
        "CREATE FUNCTION date_trunc(text, timestamptz) RETURNS timestamptz LANGUAGE sql "
        "AS 'SELECT now() FROM (SELECT 1 / 0) AS x'",
    )
    with psycopg.connect(dsn, options="-c search_path=public,pg_catalog") as connection:
        TWINS[1](connection, [flight("a")])

    assert await flights(journal) == 2
