"""What `projections demo` does to the database it is given, and how it compares what is there."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from psycopg import OperationalError
from rich.console import Console

from journal import Database, DatabaseError, Event, append, connect, schema
from journal.database.sync import connect_sync
from projections.demo.checking import EventCounts, ReadModel, count, differing_rows
from projections.demo.database import Start, alone, complete, fence, own_database, prepare
from projections.demo.demo import Result
from projections.demo.errors import DemoError
from projections.demo.events import event_of
from projections.demo.flights import Flight, data_file, moment, read_flights, timeline
from projections.demo.foreign import complete_foreign, count_foreign, prepare_foreign
from projections.demo.oracle import airport_departures
from projections.demo.progress import Reporter
from projections.demo.rebuilding import Built, RebuildComparison, Rebuilding
from projections.demo.stores import SYSTEMS, FlightEvent
from tests.fixtures.postgres import Databases


@pytest.mark.slow
def test_own_database_of_another_schema_is_made_anew(dsn: str) -> None:
    name = f"demo_{secrets.token_hex(4)}"
    own = own_database(dsn, name)
    try:
        schema.install(own)
        kept = schema.installed_version(own_database(dsn, name))
        with connect_sync(own) as connection:
            connection.execute("DROP FUNCTION projections.leave_v1")

        assert (kept, schema.installed_version(own_database(dsn, name))) == (schema.SCHEMA_VERSION, None)
    finally:
        with connect_sync(dsn) as connection:
            connection.autocommit = True
            connection.execute(f"DROP DATABASE {name}".encode())


async def prepared(database: Database, events: int = 10, data: str = "f", *, reset: bool = False) -> Start:
    async with database.transaction() as session:
        return await prepare(session, data, events, reset=reset)


async def prepared_foreign(
    journal: Database, read_side: Database, events: int = 10, *, reset: bool = False
) -> Start:
    async with journal.transaction() as session, read_side.transaction() as elsewhere:
        return await prepare_foreign(session, elsewhere, "table", "f", events, reset=reset)


class TestForeign:
    """A run on a table of another system."""

    @pytest.fixture
    async def journal(self, empty_dsn: str) -> AsyncIterator[Database]:
        with SYSTEMS["table"].open(empty_dsn):
            async with connect(empty_dsn) as journal:
                yield journal

    @staticmethod
    def save(dsn: str, *numbers: int, name: str = "Departed") -> None:
        with SYSTEMS["table"].open(dsn) as rows:
            rows.save([FlightEvent(UUID(int=number), 1, name, {}) for number in numbers])

    @pytest.mark.slow
    async def test_unfinished_run_is_gone_on_with(
        self, journal: Database, database: Database, empty_dsn: str
    ) -> None:
        assert await prepared_foreign(journal, database) == Start("", 0, 0)
        self.save(empty_dsn, 1, 2)
        async with database.transaction() as session:
            await session.execute(
                "INSERT INTO projections_demo.airport_effects VALUES ($1, 1, 1)", str(UUID(int=1))
            )

        assert await prepared_foreign(journal, database, 20) == Start("", 2, 1)

    @pytest.mark.slow
    @pytest.mark.parametrize(("events", "reset"), [(1, False), (10, True)])
    async def test_run_that_cannot_be_gone_on_with_begins_again(
        self, journal: Database, database: Database, empty_dsn: str, *, events: int, reset: bool
    ) -> None:
        await prepared_foreign(journal, database)
        self.save(empty_dsn, 1, 2)

        assert await prepared_foreign(journal, database, events, reset=reset) == Start("", 0, 0)
        async with journal.session() as session:
            assert await session.fetchval("SELECT count(*) FROM projections_demo_log") == 0

    async def test_run_after_a_complete_one_begins_again(
        self, journal: Database, database: Database, empty_dsn: str
    ) -> None:
        await prepared_foreign(journal, database)
        self.save(empty_dsn, 1)
        async with database.transaction() as session:
            await complete_foreign(session)

        assert await prepared_foreign(journal, database) == Start("", 0, 0)

    @pytest.mark.slow
    async def test_another_read_side_begins_again(
        self, journal: Database, database: Database, dsn: str, empty_dsn: str, databases: Databases
    ) -> None:
        await prepared_foreign(journal, database)
        self.save(empty_dsn, 1)
        with databases.fresh("template0") as other:
            schema.install(other)
            async with connect(other) as elsewhere:
                assert await prepared_foreign(journal, elsewhere) == Start("", 0, 0)
        self.save(empty_dsn, 1)

        assert await prepared_foreign(journal, database) == Start(
            "", 0, 0
        )  # its own is of a run that is gone

    async def test_events_of_others_are_refused_and_kept(
        self, journal: Database, database: Database, empty_dsn: str
    ) -> None:
        self.save(empty_dsn, 1, name="Opened")

        with pytest.raises(DemoError, match="holds events 'Opened' that the demo did not append"):
            await prepared_foreign(journal, database, reset=True)

        async with journal.session() as session:
            assert await session.fetchval("SELECT count(*) FROM projections_demo_log") == 1

    async def test_writer_of_an_earlier_run_is_shut_out(
        self, journal: Database, database: Database, empty_dsn: str
    ) -> None:
        event = FlightEvent(UUID(int=1), 1, "Departed", {})
        with suppress(DatabaseError), SYSTEMS["table"].open(empty_dsn) as rows:  # whose connection is gone
            await prepared_foreign(journal, database)
            with pytest.raises(OperationalError):
                rows.save([event])

        async with journal.session() as session:
            assert await session.fetchval("SELECT count(*) FROM projections_demo_log") == 0

    async def test_lost_and_duplicated_effects_are_counted_for_each_event(
        self, journal: Database, database: Database, empty_dsn: str
    ) -> None:
        await prepared_foreign(journal, database)
        self.save(empty_dsn, 1, 2, 3)
        async with database.transaction() as session, journal.transaction() as there:
            await session.execute(
                "INSERT INTO projections_demo.carrier_effects VALUES ($1, 1, 2), ($2, 1, 1)",
                str(UUID(int=1)), str(UUID(int=2)),
            )  # fmt: skip
            counts = await count_foreign(there, session, "table")

        assert counts == EventCounts(appended=3, handled=3, lost=1, duplicated=1)


async def store(database: Database, *sources: str, entity_type: str = "plane") -> None:
    async with database.transaction() as session:
        await append(session, [Event(s, {}, entity_type, event_type="E") for s in sources])


async def test_unfinished_run_is_gone_on_with(database: Database) -> None:
    first = await prepared(database)
    await store(database, "a", "a", "b")

    second = await prepared(database, 20)

    assert (second.appended, second.handled) == (3, 0)
    assert second.token != first.token


@pytest.mark.parametrize(
    ("events", "data", "reset"), [(2, "f", False), (10, "other", False), (10, "f", True)]
)
async def test_run_that_can_not_be_gone_on_with_is_begun_anew(
    database: Database, events: int, data: str, reset: bool
) -> None:
    await prepared(database)
    await store(database, "a", "a", "b")

    again = await prepared(database, events, data, reset=reset)

    assert again.appended == 0


async def test_run_after_a_complete_one_begins_anew(database: Database) -> None:
    await prepared(database, 1)
    await store(database, "a")
    async with database.transaction() as session:
        await complete(session)

    again = await prepared(database, 1)

    assert again.appended == 0


@pytest.mark.parametrize("entity_type", ["order", "plane"])
async def test_journal_with_events_of_others_is_refused_and_kept(
    database: Database, entity_type: str
) -> None:
    await store(database, "theirs", entity_type=entity_type)

    with pytest.raises(DemoError, match="that the demo did not append"):
        await prepared(database, reset=True)

    async with database.session() as session:
        assert await session.fetchval("SELECT count(*) FROM projections.events") == 1


async def test_events_of_others_after_a_run_are_refused_and_kept(database: Database) -> None:
    await prepared(database, 1)
    await store(database, "a", "theirs")

    with pytest.raises(DemoError, match="2 events that the demo did not append"):
        await prepared(database, reset=True)


async def test_schema_of_the_same_name_that_is_not_ours_is_kept(database: Database) -> None:
    async with database.session() as session:
        await session.execute("CREATE SCHEMA projections_demo")
        await session.execute("CREATE TABLE projections_demo.theirs ()")

    with pytest.raises(DatabaseError, match="already exists"):
        await prepared(database)


async def test_appender_of_an_earlier_run_is_shut_out(database: Database) -> None:
    earlier, later = await prepared(database), await prepared(database)

    async with database.transaction() as session:
        await fence(session, later.token)
        with pytest.raises(DemoError, match="another run"):
            await fence(session, earlier.token)


async def test_second_demo_on_one_database_is_refused(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projections.demo.database._LOCK_ATTEMPTS", 1)
    monkeypatch.setattr("projections.demo.database._LOCK_PAUSE", 0)

    async with alone(database):
        with pytest.raises(DemoError, match="another `projections demo` is running"):
            async with alone(database):
                pass


async def test_lost_and_duplicated_effects_are_counted_for_each_event(database: Database) -> None:
    await prepared(database)
    await store(database, "a", "a", "a", "b")
    async with database.transaction() as session:
        await session.execute(
            "INSERT INTO projections_demo.carrier_effects VALUES ('a', 1, 1), ('a', 2, 2), ('b', 1, 0)"
        )
        await session.execute("INSERT INTO projections_demo.airport_effects VALUES ('a', 2, 1)")
        counts = await count(session, session)

    assert counts == EventCounts(appended=4, handled=4, lost=2, duplicated=2)


class Year(NamedTuple):
    """What the demo knows of the flights."""

    flights: list[Flight]
    timeline: list[int]


@pytest.fixture(scope="module")
def year() -> Year:
    """All flights: to read them takes seconds."""
    flights = read_flights(data_file())
    return Year(flights, timeline(flights))


@pytest.mark.slow
async def test_missing_row_of_a_read_model_is_a_difference(database: Database, year: Year) -> None:
    await prepared(database)
    async with database.transaction() as session:
        differences = await differing_rows(session, year.flights, year.timeline[:1])

    assert [line.partition(":")[0] for line in differences] == ["airport_departures"]


FENCE = datetime(2100, 1, 1, tzinfo=UTC)  # after everything that a test appends


async def compared(database: Database, year: Year, built: Built) -> RebuildComparison:
    """What comes of a batch that built the departures of the first three events, or something else."""

    class Fixed:
        async def ready(self) -> None: ...

        async def rebuild(self, dsn: str, definition: type, read_model: ReadModel, say: Any) -> Built:
            columns = 5 if read_model.table == "airport_departures" else 6
            return built._replace(rows=[row for row in built.rows if len(row) == columns])

    await prepared(database)
    first = [event_of(moment(year.flights, entry)) for entry in year.timeline[:3]]
    rebuilding = Rebuilding(Fixed(), "", Reporter(Console(stderr=True)))
    await rebuilding.run()
    async with database.transaction() as session:
        await append(session, first)
        return await rebuilding.compare(session, year.flights, year.timeline[:10])


def departures(year: Year, count: int) -> list[tuple[Any, ...]]:
    return list(airport_departures(year.flights, year.timeline[:count]))


@pytest.mark.slow
async def test_rebuild_is_compared_with_the_events_up_to_its_fence(database: Database, year: Year) -> None:
    rebuild = await compared(database, year, Built(FENCE, 3, 2.0, departures(year, 3)))

    assert rebuild == RebuildComparison([], 4.0, 1.5)


@pytest.mark.slow
async def test_row_that_a_rebuild_lacks_is_a_difference(database: Database, year: Year) -> None:
    rebuild = await compared(database, year, Built(FENCE, 3, 2.0, departures(year, 3)[1:]))

    assert [line.partition(": expected")[0] for line in rebuild.differences] == [
        "airport_departures as rebuilt"
    ]


async def test_number_of_events_that_a_rebuild_read_is_compared(database: Database, year: Year) -> None:
    rebuild = await compared(database, year, Built(FENCE, 2, 2.0, departures(year, 3)))

    assert rebuild.differences == [
        "demo-carrier-delays: read 2 events, and there are 3",
        "demo-airport-departures: read 2 events, and there are 3",
    ]


def result(counts: EventCounts, *differences: str, rebuild: RebuildComparison | None = None) -> Result:
    return Result(counts, differences, None, None, None, None, 4, rebuild=rebuild)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (result(EventCounts(4, 4, 0, 0)), True),
        (result(EventCounts(4, 4, 1, 1)), False),
        (result(EventCounts(3, 3, 0, 0)), False),
        (result(EventCounts(4, 4, 0, 0), "a row"), False),
        (result(EventCounts(4, 4, 0, 0), rebuild=RebuildComparison([], 1, 4)), True),
        (result(EventCounts(4, 4, 0, 0), rebuild=RebuildComparison(["a row"], 1, 4)), False),
    ],
)
def test_result_is_good_only_if_nothing_differs(outcome: Result, expected: bool) -> None:
    assert outcome.good is expected
