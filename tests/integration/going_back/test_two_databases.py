"""A journal that goes back in time alone, read models that do, and either away: nothing is skipped without a word."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

import offsets
from journal import Database, JournalUnavailable, Log, ProjectionsError, connect
from projections import EventEnvelope, Session
from tests.fixtures.failover import Pair, Server, pair
from tests.fixtures.going_back import go_back, remember
from tests.fixtures.postgres import Databases
from tests.fixtures.projections import (
    EFFECTS,
    Happened,
    caught_up,
    each_once,
    effects,
    execute,
    fetchval,
    happen,
    recording,
    running,
    until,
    until_effects,
)
from tests.fixtures.proxy import proxy_to

_PARKED = "SELECT array_agg(source_id || ' ' || seq_nr ORDER BY source_id) FROM projections.parked_sources"


@asynccontextmanager
async def a_read_side(databases: Databases, template: str) -> AsyncIterator[Database]:
    with databases.fresh(template) as dsn:
        async with connect(dsn) as database:
            await execute(database, EFFECTS)
            yield database


async def answered(database: Database) -> None:
    """Wait until the new primary answers."""
    async with asyncio.timeout(300):
        while True:
            try:
                async with database.session() as session:
                    if not await session.fetchval("SELECT pg_is_in_recovery()"):
                        return
            except (ProjectionsError, TimeoutError):
                await asyncio.sleep(0.05)


async def lose(servers: Pair, journal: Database, appended: Callable[[], Awaitable[None]]) -> None:
    """Have the journal fail over, without what is appended and handled meanwhile."""
    await asyncio.to_thread(servers.cut)
    await appended()
    await servers.fail_over()
    await answered(journal)


@pytest.mark.slow
@pytest.mark.parametrize("alive", [True, False], ids=["running", "stopped"])
async def test_a_journal_that_has_lost_what_is_handled_parks_those_sources(
    base_cluster: Server, databases: Databases, template: str, alive: bool
) -> None:
    async with (
        pair(base_cluster, "one") as servers,
        a_read_side(databases, template) as read_side,
    ):
        await asyncio.to_thread(servers.follow)
        async with connect(servers.direct("one")) as journal:

            async def lost() -> None:
                await happen(journal, "a", "a", "new", "b")
                await until_effects(read_side, 7)

            await happen(journal, "a", "b", "c")
            if alive:
                async with running(read_side, recording(), journal=journal, ranges=4):
                    await until_effects(read_side, 3)
                    await lose(servers, journal, lost)
                    await happen(journal, "a", "a", "a", "c")
                    await until(read_side, "SELECT count(*) = 3 FROM projections.parked_sources")
                    await until_effects(read_side, 8)
            else:
                async with running(read_side, recording(), journal=journal, ranges=4):
                    await until_effects(read_side, 3)
                    await asyncio.to_thread(servers.cut)
                    await lost()
                await servers.fail_over()
                await answered(journal)
                await happen(journal, "a", "a", "a", "c")
                await caught_up(read_side, recording(), journal=journal)

            # What the journal has lost was handled; what got its numbers waits, and nothing else does.
            assert await fetchval(read_side, _PARKED) == ["a 2", "b 2", "new 1"]
            handled = await effects(read_side)
            assert sorted(handled[3:7]) == [("a", 2), ("a", 3), ("b", 2), ("new", 1)]
            assert handled[7:] == [("c", 2)]

            async with read_side.session() as session:
                assert (
                    "has lost events 2 to 3, handled before"
                    in (await offsets.ParkedSources(session).list("p", source_id="a"))[0].error
                )
                for source_id in ("a", "b", "new"):
                    await offsets.ParkedSources(session).retry("p", source_id)
            await happen(journal, "new", "b")
            await caught_up(read_side, recording(), journal=journal)
            each_once((await effects(read_side))[:3] + (await effects(read_side))[7:], a=4, b=2, c=2, new=1)
            assert await fetchval(read_side, _PARKED) is None


@pytest.mark.slow
async def test_what_is_in_hand_when_the_journal_fails_over(
    base_cluster: Server, databases: Databases, template: str
) -> None:
    """It is read, and committed after the journal has lost it: nothing can compare the two in one statement."""
    begun, gate = asyncio.Event(), asyncio.Event()

    async def wait(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if envelope.seq_nr > 1:
            begun.set()
            await gate.wait()

    async with (
        pair(base_cluster, "one") as servers,
        a_read_side(databases, template) as read_side,
    ):
        await asyncio.to_thread(servers.follow)
        async with connect(servers.direct("one")) as journal:
            await happen(journal, "a", "b")
            async with running(read_side, recording(wait), journal=journal) as told:
                await until_effects(read_side, 2)

                async def lost() -> None:
                    await happen(journal, "a")
                    await begun.wait()

                await lose(servers, journal, lost)
                await happen(journal, "a", "b")
                gate.set()
                await until_effects(read_side, 4)
                await until(read_side, "SELECT count(*) = 1 FROM projections.parked_sources")
                assert told.all("started")
            assert await fetchval(read_side, _PARKED) == ["a 2"]
            assert sorted(await effects(read_side)) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


@pytest.mark.slow
async def test_a_fail_over_that_loses_nothing_parks_nothing(
    base_cluster: Server, databases: Databases, template: str
) -> None:
    async with (
        pair(base_cluster, "one") as servers,
        a_read_side(databases, template) as read_side,
    ):
        await asyncio.to_thread(servers.follow)
        async with connect(servers.direct("one")) as journal:
            await happen(journal, *["a", "b"] * 20)
            async with running(read_side, recording(), journal=journal, ranges=4) as told:
                await until_effects(read_side, 40)

                async def lost() -> None:
                    await execute(journal, "CREATE TABLE elsewhere (n integer)")

                await lose(servers, journal, lost)
                await happen(journal, "a", "c")
                await until_effects(read_side, 42)
            each_once(await effects(read_side), a=21, b=20, c=1)
            assert await fetchval(read_side, _PARKED) is None
            del told


async def test_events_whose_partition_was_dropped_are_not_taken_for_lost(
    database: Database, databases: Databases, template: str
) -> None:
    async with a_read_side(databases, template) as read_side:
        await happen(database, "a", "a", "b")
        await caught_up(read_side, recording(), journal=database)
        await execute(database, "DELETE FROM projections.events")
        life = "UPDATE projections.projection_ranges SET journal_life = split_part(journal_life, '.', 1) || '.1.0'"
        await execute(read_side, life)

        await happen(database, "b")
        await caught_up(read_side, recording(), journal=database)

        each_once(await effects(read_side), a=2, b=2)
        assert await fetchval(read_side, _PARKED) is None


@pytest.mark.slow
async def test_an_import_whose_number_was_given_again_is_read(
    database: Database, databases: Databases, template: str
) -> None:
    async with a_read_side(databases, template) as read_side:
        await happen(database, "a")
        await caught_up(read_side, recording(), journal=database)
        await execute(read_side, "UPDATE projections.projection_ranges SET import_id = 7")
        life = "UPDATE projections.projection_ranges SET journal_life = split_part(journal_life, '.', 1) || '.1.0'"
        await execute(read_side, life)
        await execute(
            database,
            "INSERT INTO projections.imports (entity_type, from_timestamp, events) "
            "VALUES ('plane', clock_timestamp() - interval '1 hour', 1)",
        )

        async with running(read_side, recording(), journal=database):
            await until(read_side, "SELECT bool_and(import_id = 1) FROM projections.projection_ranges")
        each_once(await effects(read_side), a=1)


@pytest.mark.slow
async def test_read_models_that_went_back_are_made_again(base_cluster: Server, database: Database) -> None:
    async with pair(base_cluster, "one") as servers:
        await asyncio.to_thread(servers.follow)
        async with connect(servers.direct("one")) as read_side:
            await execute(read_side, EFFECTS)
            await happen(database, "a", "b")
            async with running(read_side, recording(), journal=database, ranges=4):
                await until_effects(read_side, 2)
                await asyncio.to_thread(servers.cut)
                await happen(database, "a", "b", "c")
                await until_effects(read_side, 5)
                await servers.fail_over()
                await answered(read_side)
                await happen(database, "a")
                await until_effects(read_side, 6)
            await caught_up(read_side, recording(), journal=database)
            each_once(await effects(read_side), a=3, b=2, c=1)


async def test_read_models_that_went_back_in_place(
    database: Database, databases: Databases, template: str
) -> None:
    """As by a dump: server and timeline stay as they are."""
    async with a_read_side(databases, template) as read_side:
        await happen(database, "a", "b")
        async with running(read_side, recording(), journal=database, ranges=2):
            await until_effects(read_side, 2)
            await remember(read_side)
            await happen(database, "a", "b", "c")
            await until_effects(read_side, 5)
            await go_back(read_side)
            await happen(database, "a")
            await until_effects(read_side, 6)
        each_once(await effects(read_side), a=3, b=2, c=1)


async def test_either_may_be_away_and_the_message_says_which(
    dsn: str, databases: Databases, template: str
) -> None:
    with databases.fresh(template) as other:
        async with (
            proxy_to(dsn) as to_journal,
            proxy_to(other) as to_read_side,
            connect(dsn) as database,
            connect(other) as there,
            connect(to_journal.dsn) as journal,
            connect(to_read_side.dsn) as read_side,
        ):
            await execute(there, EFFECTS)
            await happen(database, "a")
            async with running(read_side, recording(), journal=journal, ranges=2) as told:
                await until_effects(there, 1)
                await to_journal.lead_to("host=/nowhere dbname=none")
                *_, error = await told.first("failed")
                assert isinstance(error, JournalUnavailable)
                assert str(error).startswith("journal 'journal': no connection")
                await happen(database, "a", "b")
                await until(
                    there,
                    "SELECT bool_or(error LIKE 'journal ''journal'': no%') FROM projections.projection_ranges",
                )
                await to_journal.lead_to(dsn)
                await until_effects(there, 3)

                failures = len(told.all("failed"))
                await to_read_side.lead_to("host=/nowhere dbname=none")
                await happen(database, "a", "b")
                # The other range may still say what it has met before.
                while isinstance((await told.first("failed", failures + 1))[-1], JournalUnavailable):
                    failures += 1
                await to_read_side.lead_to(other)
                await until_effects(there, 5)
            each_once(await effects(there), a=3, b=2)


async def test_a_commit_whose_outcome_is_unknown_is_read_back(
    database: Database, databases: Databases, template: str
) -> None:
    with databases.fresh(template) as other:
        async with proxy_to(other) as proxy, connect(proxy.dsn) as read_side, connect(other) as there:
            await execute(there, EFFECTS)
            await happen(database, *["a", "b"] * 5)
            for when in ("before", "after"):
                proxy.cut_at_commit(when)
                await caught_up(read_side, recording(), journal=database)
                await happen(database, "a", "b")
            await caught_up(read_side, recording(), journal=database)
            each_once(await effects(there), a=7, b=7)


@pytest.mark.slow
async def test_one_of_several_journals_that_fails_over_touches_its_own_part_alone(
    base_cluster: Server, database: Database, databases: Databases, template: str
) -> None:
    """The other has sources of the same names and numbers, and its ranges go on without a break."""
    async with (
        pair(base_cluster, "one") as servers,
        a_read_side(databases, template) as read_side,
    ):
        await asyncio.to_thread(servers.follow)
        async with connect(servers.direct("one")) as journal:
            journals = [Log(journal, "lost"), Log(database, "kept")]
            await happen(journal, "a", "b")
            await happen(database, "a", "a", "b")
            async with running(read_side, recording(), journal=journals, ranges=2) as told:
                await until_effects(read_side, 5)
                await told.first("started", 4)  # also the ranges that have no events
                begun = len([name for name, _ in told.all("started") if name == "p@kept"])

                async def lost() -> None:
                    await happen(journal, "a")
                    await until_effects(read_side, 6)

                await lose(servers, journal, lost)
                await happen(journal, "a", "b")
                await happen(database, "a")
                await until(read_side, "SELECT count(*) = 1 FROM projections.parked_sources")
                await until_effects(read_side, 8)
                assert len([name for name, _ in told.all("started") if name == "p@kept"]) == begun == 2
                assert {name for name, *_ in told.all("went_back")} == {"p@lost"}

            assert sorted((await effects(read_side))[6:]) == [("a", 3), ("b", 2)]
            async with read_side.session() as session:
                (parked,) = await offsets.ParkedSources(session).list("p")
                assert (parked.projection, parked.source_id, parked.seq_nr) == ("p@lost", "a", 2)
                await offsets.ParkedSources(session).retry("p@lost", "a")
            await caught_up(read_side, recording(), journal=journals)
            # Of "lost": 1, 2 (lost), 2, and of "kept": 1, 2, 3.
            handled = Counter(await effects(read_side))
            assert handled == {("a", 1): 2, ("a", 2): 3, ("a", 3): 1, ("b", 1): 2, ("b", 2): 1}
