"""Read models in another database than the journal: exactly once, with either away, and not by mistake."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

import offsets
from journal import ConnectionSettings, Database, HistoricEvent, InvalidValue, Log, connect, import_events
from offsets import WrongJournal
from projections import Event, Recovery, append
from projections.defining.batching import AtLeastOnce
from projections.errors import PoolTooSmall
from projections.running import run
from projections.subscriptions import Matching
from tests.fixtures.postgres import Databases
from tests.fixtures.projections import (
    EFFECTS,
    Happened,
    caught_up,
    each_once,
    effects,
    execute,
    failing,
    fetchval,
    happen,
    recording,
    running,
    settings,
    until,
    until_effects,
)

_READER = """
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'only_reads') THEN
        CREATE ROLE only_reads LOGIN PASSWORD 'x' IN ROLE projections_reader;
    END IF;
END $$
"""


@pytest.fixture
async def read_side(databases: Databases, template: str) -> AsyncIterator[Database]:
    """A database with the schema, where effects are recorded; its own journal is empty."""
    with databases.fresh(template) as dsn:
        async with connect(dsn) as database:
            await execute(database, EFFECTS)
            yield database


@pytest.mark.slow
async def test_events_are_in_one_database_and_effects_and_offsets_in_the_other(
    database: Database, read_side: Database
) -> None:
    await happen(database, *["a", "b", "c"] * 50)

    async with running(read_side, recording(), journal=database, ranges=4):
        await until_effects(read_side, 150)
        await happen(database, "a", "d")
        await until_effects(read_side, 152)

    each_once(await effects(read_side), a=51, b=50, c=50, d=1)
    assert await fetchval(database, "SELECT count(*) FROM projections.projections") == 0
    assert await fetchval(read_side, "SELECT journal FROM projections.projections") == "journal"
    assert await fetchval(read_side, "SELECT count(*) FROM projections.source_offsets") == 4


async def test_a_role_that_only_reads_is_enough_for_the_journal(
    dsn: str, database: Database, read_side: Database
) -> None:
    await happen(database, "a", "a")
    await execute(database, _READER)
    read_only = dsn + ("&" if "?" in dsn else "?") + "user=only_reads&password=x"
    async with (
        connect(read_only, ConnectionSettings(max_connections=2)) as journal,
        running(read_side, recording(), journal=journal),
    ):
        await until_effects(read_side, 2)
        await happen(database, "a")
        await until_effects(read_side, 3)


@pytest.mark.slow
async def test_gaps_parked_sources_and_late_commits(database: Database, read_side: Database) -> None:
    one = recording(failing(("a", 2)), recovery=Recovery.retry_and_park(0))
    await happen(database, "a", "a", "a", "b")

    async with running(read_side, one, journal=database):
        await until(read_side, "SELECT count(*) = 1 FROM projections.parked_sources")
        async with database.session() as late:
            await late.begin()
            await append(late, [Event("c", Happened(), "plane")])
            await happen(database, "b", "b")
            await until_effects(read_side, 4)
            await late.commit()
        await until_effects(read_side, 5)
    await caught_up(read_side, one, journal=database)

    assert sorted(await effects(read_side)) == [("a", 1), ("b", 1), ("b", 2), ("b", 3), ("c", 1)]
    async with read_side.session() as session:
        await offsets.ParkedSources(session).retry("p", "a")
    await caught_up(read_side, recording(), journal=database)
    each_once(await effects(read_side), a=3, b=3, c=1)


@pytest.mark.slow
async def test_a_worker_that_forgets_the_journal_is_refused(database: Database, read_side: Database) -> None:
    await happen(database, "a")
    await caught_up(read_side, recording(), journal=database)

    with pytest.raises(
        WrongJournal, match="projection 'p' reads journal 'journal' of another database, not that"
    ):
        await caught_up(read_side, recording())
    with pytest.raises(WrongJournal, match="not journal 'other' of another database"):
        await caught_up(read_side, recording(), journal=Log(database, "other"))

    await caught_up(read_side, recording(), journal=database)
    assert await effects(read_side) == [("a", 1)]


async def test_a_projection_that_has_begun_here_does_not_go_on_with_another_journal(
    database: Database, read_side: Database
) -> None:
    await happen(database, "a")
    await caught_up(
        read_side, recording()
    )  # of its own journal, which is empty: its horizon is past what is there

    with pytest.raises(WrongJournal, match="reads the journal of its own database, not journal 'journal'"):
        await caught_up(read_side, recording(), journal=database)

    async with read_side.transaction() as session:
        await offsets.clear_offset(session, "p")
    await caught_up(read_side, recording(), journal=database)
    assert await effects(read_side) == [("a", 1)]


async def test_another_journal_on_another_server_is_refused(database: Database, read_side: Database) -> None:
    await happen(database, "a")
    await caught_up(read_side, recording(), journal=database)
    await execute(read_side, "UPDATE projections.projection_ranges SET journal_life = 'beef.1.0'")
    await caught_up(
        read_side, recording(), journal=database
    )  # moved to another server, with all that is handled

    await execute(read_side, "UPDATE projections.projection_ranges SET journal_life = 'beef.1.0'")
    await execute(read_side, "UPDATE projections.source_offsets SET seq_nr = 5")
    async with running(read_side, recording(), journal=database) as told:
        *_, error = await told.first("failed")

    assert isinstance(error, WrongJournal)
    assert "does not have event 5 of source 'a'" in str(error)


async def test_a_projection_of_another_journal_cannot_be_inline(
    database: Database, read_side: Database
) -> None:
    await caught_up(read_side, recording(), journal=database)

    async with read_side.session() as session:
        with pytest.raises(WrongJournal, match="cannot handle here"):
            await offsets.set_mode(session, "p", "inline")


async def test_subscriptions_read_the_journal_that_is_here(database: Database, read_side: Database) -> None:
    with pytest.raises(InvalidValue, match="reads the journal in the database of the read models"):
        await run(read_side, journal=database, discovery=Matching())


@pytest.mark.parametrize(
    ("here", "there", "said"), [(2, 2, "a pool of 2 is"), (3, 1, "a pool of 1 on the journal")]
)
async def test_pools_that_are_too_small(
    dsn: str, database: Database, here: int, there: int, said: str
) -> None:
    async with (
        connect(dsn, ConnectionSettings(max_connections=here)) as small,
        connect(dsn, ConnectionSettings(max_connections=there)) as journal,
    ):
        with pytest.raises(PoolTooSmall, match=said):
            await run(small, recording(), journal=journal)


@pytest.mark.slow
async def test_the_smallest_pools_are_enough_for_many_ranges(
    dsn: str, databases: Databases, template: str, database: Database
) -> None:
    await happen(database, *[f"s{number}" for number in range(300)])
    with databases.fresh(template) as other:
        async with (
            connect(other, ConnectionSettings(max_connections=3)) as small,
            connect(dsn, ConnectionSettings(max_connections=2)) as journal,
        ):
            await execute(small, EFFECTS)
            await caught_up(small, recording(), journal=journal, ranges=16)
            each_once(await effects(small), **{f"s{number}": 1 for number in range(300)})


@pytest.mark.slow
async def test_effects_outside_of_the_transaction(database: Database, read_side: Database) -> None:
    await happen(database, *["a", "b"] * 20)
    await caught_up(read_side, recording(delivery=AtLeastOnce(after=5)), journal=database)
    each_once(await effects(read_side), a=20, b=20)


def past(source_id: str, age: timedelta) -> HistoricEvent:
    at = datetime.now(UTC) - age
    return HistoricEvent(source_id, Happened(), entity_type="plane", seq_nr=1, db_timestamp=at)


@pytest.mark.slow
async def test_an_import_is_read_as_far_as_it_can_be_told_from_what_was_handled(
    database: Database, read_side: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """The journal does not know what is forgotten here, so it does not refuse it."""
    await happen(database, "a")
    short = settings(retention=timedelta(hours=2), save_horizon_every=timedelta(milliseconds=100))

    async with running(read_side, recording(), journal=database, settings=short):
        await until_effects(read_side, 1)
        # Not only begun: what comes is compared with how far it is.
        await until(read_side, "SELECT bool_and(horizon > '2020-01-01') FROM projections.projection_ranges")
        await import_events(database, [past("young", timedelta(hours=1))])
        await until_effects(read_side, 2)
        await import_events(
            database, [past("old", timedelta(hours=5)), past("also young", timedelta(hours=1))]
        )
        await until_effects(read_side, 3)

    assert await effects(read_side) == [("a", 1), ("young", 1), ("also young", 1)]
    (said,) = [record for record in caplog.records if getattr(record, "action", "") == "import_too_old"]
    assert "is left out" in said.getMessage()


@pytest.mark.slow
async def test_a_slice_is_cut_again_and_paused_over_there(database: Database, read_side: Database) -> None:
    await happen(database, *[f"s{number}" for number in range(50)])

    async with running(read_side, recording(), journal=database, ranges=2):
        await until_effects(read_side, 50)
        async with read_side.session() as session:
            await offsets.rescale(session, "p", 7)
            await offsets.set_paused(session, "p", paused=True)
            await happen(database, *[f"s{number}" for number in range(50)])
            await offsets.set_paused(session, "p", paused=False)
        await until_effects(read_side, 100)
        await until(read_side, "SELECT count(DISTINCT journal_life) = 1 FROM projections.projection_ranges")

    each_once(await effects(read_side), **{f"s{number}": 2 for number in range(50)})
