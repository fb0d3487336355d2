"""Projections over several entity types, and over every one."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

import offsets
from journal import ALL_TYPES, AppendedEvents, EntityTypes
from journal.events import HistoricEvent
from offsets.errors import WrongEntityType
from projections import (
    Database,
    Event,
    EventEnvelope,
    Inline,
    Session,
    append,
    handles,
    import_events,
    projection,
    run,
    wait_for,
)
from projections.monitoring import projection_lag
from projections.webhooks import FanOut
from tests.fixtures.journal import PAST
from tests.fixtures.projections import (
    EFFECTS,
    NO_RETRY,
    Failure,
    Happened,
    caught_up,
    each_once,
    effects,
    execute,
    fetchval,
    record,
    running,
    settings,
    until,
    until_effects,
)

BOTH = ("plane", "airport")
SOON = timedelta(milliseconds=100)


@pytest.fixture(autouse=True)
async def table(database: Database) -> None:
    await execute(database, EFFECTS)


def reading(types: Any, fails_at: str = "", **options: Any) -> type[Any]:
    @projection("p", entity_type=types, recovery=NO_RETRY, **options)
    class Reading:
        @handles(Happened)
        async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
            if envelope.source_id == fails_at:
                raise Failure
            await record(session, envelope)

    return Reading


async def happen(database: Database, *events: tuple[str, str]) -> AppendedEvents:
    async with database.transaction() as session:
        return await append(session, [Event(source, Happened(), kind) for kind, source in events])


def past(kind: str, source: str, seq_nr: int = 1) -> HistoricEvent:
    at = PAST + timedelta(minutes=seq_nr)
    return HistoricEvent(source, Happened(), kind, seq_nr=seq_nr, db_timestamp=at)


@pytest.mark.slow
@pytest.mark.parametrize("types", [BOTH, ALL_TYPES], ids=["two", "all"])
async def test_events_come_in_the_order_of_time_across_types(database: Database, types: Any) -> None:
    order = []
    for n in range(30):
        order.append((("plane", "airport")[n * n % 7 % 2], f"s{n % 5}-{n * n % 7 % 2}"))
        await happen(database, order[-1])

    await caught_up(database, reading(types))

    assert [source for source, _ in await effects(database)] == [source for _, source in order]


async def test_events_of_other_types_are_not_handled(database: Database) -> None:
    await happen(database, ("plane", "a"), ("ship", "b"), ("airport", "c"))

    await caught_up(database, reading(BOTH))

    each_once(await effects(database), a=1, c=1)


@pytest.mark.slow
@pytest.mark.parametrize("types", [BOTH, ALL_TYPES], ids=["two", "all"])
async def test_what_is_appended_and_committed_late_while_it_runs_is_handled_once(
    database: Database, types: Any
) -> None:
    async with running(database, reading(types), ranges=3):
        async with database.transaction() as late:
            await append(late, [Event("late", Happened(), "airport")])
            await happen(database, ("plane", "a"), ("plane", "b"))
            await until_effects(database, 2)
        await until_effects(database, 3)
        await happen(database, ("airport", "late"), ("plane", "a"))
        await until_effects(database, 5)

    each_once(await effects(database), a=2, b=1, late=2)


async def test_a_type_that_comes_to_be_is_one_of_every_type(database: Database) -> None:
    await happen(database, ("plane", "a"))
    async with running(database, reading(ALL_TYPES)):
        await until_effects(database, 1)
        await happen(database, ("ship", "b"))
        await until_effects(database, 2)


async def test_a_type_that_has_no_events_is_named(database: Database, caplog: Any) -> None:
    await happen(database, ("plane", "a"))

    await caught_up(database, reading(("plane", "airprot")))

    said = [r.getMessage() for r in caplog.records if getattr(r, "action", "") == "no_events"]
    assert said == ["projection 'p': the journal has no events of entity type 'airprot' yet"]


@pytest.mark.slow
async def test_a_type_of_the_library_may_have_no_events(database: Database, caplog: Any) -> None:
    await happen(database, ("plane", "a"))

    await run(database, FanOut(), reading(("plane", "published")), until_caught_up=True)

    assert [r for r in caplog.records if getattr(r, "action", "") == "no_events"] == []


class TestChanging:
    """What a projection reads belongs to its version: only a rebuild changes it."""

    @pytest.mark.daily(1)
    @pytest.mark.parametrize(
        ("types", "said"),
        [
            (("plane",), "reads entity type 'airport', 'plane', not 'plane'"),
            (
                ("plane", "airport", "ship"),
                "reads entity type 'airport', 'plane', not 'airport', 'plane', 'ship'",
            ),
            (ALL_TYPES, "reads entity type 'airport', 'plane', not every one"),
        ],
        ids=["fewer", "more", "all"],
    )
    async def test_the_same_version_with_other_types_is_refused(
        self, database: Database, types: Any, said: str
    ) -> None:
        await caught_up(database, reading(BOTH))

        with pytest.raises(WrongEntityType, match=said) as refused:
            await caught_up(database, reading(types))

        assert "raise its version and rebuild it, or give it another name" in str(refused.value)

    @pytest.mark.slow
    async def test_the_order_of_the_types_does_not_matter(self, database: Database) -> None:
        await caught_up(database, reading(("airport", "plane")))
        await caught_up(database, reading(["plane", "airport"]))

    @pytest.mark.slow
    async def test_another_version_waits_while_the_one_before_goes_on(self, database: Database) -> None:
        await happen(database, ("plane", "a"), ("airport", "b"))
        await caught_up(database, reading("plane"))
        async with running(database, reading("plane")):
            stop = asyncio.Event()
            newer = asyncio.create_task(run_until(database, reading(BOTH, version=2), stop))
            await until(database, "SELECT count(*) = 2 FROM projections.workers")
            await happen(database, ("plane", "a"), ("airport", "b"))
            await until_effects(database, 2)
            stop.set()
            await newer

        each_once(await effects(database), a=2)

    @pytest.mark.slow
    async def test_a_worker_of_the_version_that_reads_other_types_takes_nothing_and_says_so(
        self, database: Database, caplog: Any
    ) -> None:
        # It was there before the rebuild that has made its version the one that runs, with other types.
        await happen(database, ("plane", "a"), ("airport", "b"))
        await caught_up(database, reading("plane"))
        stop = asyncio.Event()
        with caplog.at_level(logging.WARNING):
            worker = asyncio.create_task(run_until(database, reading(BOTH, version=2), stop))
            await logged(caplog, "other_version")
            await execute(
                database, "UPDATE projections.projections SET version = 2, entity_types = '{airport}'"
            )
            await logged(caplog, "other_entity_types")
            assert await fetchval(database, "SELECT count(owner) FROM projections.projection_ranges") == 0
            await execute(database, "UPDATE projections.projections SET entity_types = '{airport,plane}'")
            await happen(database, ("airport", "c"))
            await until_effects(database, 2)
            stop.set()
            await worker

        said = [r.getMessage() for r in caplog.records if getattr(r, "action", "") == "other_entity_types"]
        assert said == [
            (
                "p: version 2 reads events of type 'airport', and this code of types 'airport', 'plane': it waits; "
                "raise its version and rebuild it, or run the code that was rebuilt"
            )
        ]


async def logged(caplog: Any, action: str) -> None:
    async with asyncio.timeout(300):
        while action not in [getattr(record, "action", "") for record in caplog.records]:
            await asyncio.sleep(0.01)


async def run_until(database: Database, definition: Any, stop: asyncio.Event) -> None:
    async with asyncio.timeout(300):
        await run(database, definition, settings=settings(), stop=stop)


@pytest.mark.parametrize("types", [BOTH, ALL_TYPES], ids=["two", "all"])
class TestImports:
    @pytest.mark.slow
    async def test_history_of_each_type_is_handled_while_it_runs(
        self, database: Database, types: Any
    ) -> None:
        await happen(database, ("plane", "a"), ("airport", "b"))
        async with running(database, reading(types)):
            await until_effects(database, 2)
            await import_events(database, [past("airport", "old")])
            await until_effects(database, 3)
            await import_events(database, [past("plane", "older"), past("plane", "older", 2)])
            await until_effects(database, 5)

        each_once(await effects(database), a=1, b=1, old=1, older=2)

    @pytest.mark.slow
    async def test_what_was_imported_is_kept_from_eviction_and_retention(
        self, database: Database, types: Any
    ) -> None:
        await happen(database, ("plane", "a"))
        await caught_up(database, reading(types))
        await import_events(database, [past("airport", "old")])
        async with database.session() as session:
            number = (await offsets.status(session, "p")).projection_id
            await offsets.evict(session, number, timedelta(0))
            holders = await session.fetch("SELECT reason FROM projections._projection_holders_v1()")
            bound = (await offsets.status(session, "p")).evicted_before

        assert bound <= PAST + timedelta(minutes=1)
        assert [row["reason"] for row in holders] == [
            f"has not read an import from {PAST + timedelta(minutes=1):%Y-%m-%d %H:%M:%S}+00"
        ]
        await caught_up(database, reading(types))
        each_once(await effects(database), a=1, old=1)


@pytest.mark.slow
async def test_history_of_an_evicted_time_is_refused_for_each_type_that_is_read(database: Database) -> None:
    await caught_up(database, reading(BOTH))
    await execute(database, "UPDATE projections.projections SET evicted_before = now()")

    for kind in BOTH:
        with pytest.raises(Exception, match="projection 'p' no longer knows what it handled before"):
            await import_events(database, [past(kind, "old")])
    await import_events(database, [past("ship", "old")])


@pytest.mark.slow
@pytest.mark.parametrize(("types", "unread"), [(BOTH, 3), (ALL_TYPES, 4)], ids=["two", "all"])
async def test_what_a_partition_that_is_dropped_would_lose_is_counted_over_all_types(
    database: Database, types: Any, unread: int
) -> None:
    await execute(
        database,
        "CREATE TABLE projections.events_old PARTITION OF projections.events "
        "FOR VALUES FROM ('2019-12-01Z') TO ('2020-02-01Z')",
    )
    await caught_up(database, reading(types))
    await import_events(
        database, [past("plane", "a"), past("airport", "b"), past("airport", "b", 2), past("ship", "c")]
    )

    async with database.session() as session:
        rows = await session.fetch("SELECT holder, unread FROM projections._unread_rows_v1('events_old')")

    assert [tuple(row.values()) for row in rows] == [("p", unread)]


async def test_events_that_come_back_from_an_archive_are_read_or_passed_whatever_their_type(
    database: Database,
) -> None:
    await happen(database, ("plane", "a"))
    await caught_up(database, reading(BOTH))
    horizon = "SELECT min(horizon) FROM projections.projection_ranges"
    before = await fetchval(database, horizon)

    async with database.session() as session:
        rows = await session.fetch(
            "SELECT entity_type FROM projections._passed_ranges_v1('{ship,plane,airport}', $1)", PAST
        )
        assert [row["entity_type"] for row in rows] == ["airport", "plane"]
        for kind in ("ship", "airport"):
            await session.execute(
                "SELECT projections._read_restored_v1(ARRAY[$1::text], $2, 'infinity')", kind, PAST
            )
            assert await fetchval(database, horizon) == (before if kind == "ship" else PAST)


@pytest.mark.slow
@pytest.mark.parametrize("types", [BOTH, ALL_TYPES], ids=["two", "all"])
async def test_lag_counts_the_events_of_all_types(database: Database, types: Any) -> None:
    await happen(database, ("plane", "a"), ("airport", "b"), ("airport", "c"))
    await caught_up(database, reading(types, fails_at="c"))
    await happen(
        database, ("plane", "a"), ("airport", "b"), ("airport", "b"), ("airport", "c"), ("plane", "d")
    )

    async with database.session() as session:
        found = await projection_lag(session, "p")

    assert (found.backlog, found.parked) == (4, 1)
    assert found.entity_types == EntityTypes.of(types)


@pytest.mark.slow
async def test_lag_of_every_type_counts_one_that_comes_to_be(database: Database) -> None:
    await caught_up(database, reading(ALL_TYPES))
    await happen(database, ("ship", "a"), ("boat", "b"))

    async with database.session() as session:
        assert (await projection_lag(session, "p")).backlog == 2


@pytest.mark.slow
@pytest.mark.parametrize("types", [BOTH, ALL_TYPES], ids=["two", "all"])
async def test_what_was_appended_is_waited_for_whatever_its_type(database: Database, types: Any) -> None:
    async with running(database, reading(types)):
        appended = await happen(database, ("plane", "a"), ("airport", "b"))
        await wait_for(database, "p", appended, timedelta(minutes=2))

        each_once(await effects(database), a=1, b=1)


@pytest.mark.slow
async def test_waiting_for_an_event_of_a_type_that_is_not_read_is_refused(database: Database) -> None:
    await caught_up(database, reading(BOTH))
    appended = await happen(database, ("ship", "a"))

    with pytest.raises(
        ValueError, match="'p' reads events of types 'airport', 'plane', and source 'a' is of type 'ship'"
    ):
        await wait_for(database, "p", appended, SOON)


@pytest.mark.slow
@pytest.mark.parametrize("types", [BOTH, ALL_TYPES], ids=["two", "all"])
async def test_whoever_appends_handles_events_of_all_types_inline_or_leaves_them_where_its_code_reads_others(
    database: Database, types: Any
) -> None:
    await caught_up(database, reading(types))
    inline = Inline(reading(types))
    async with database.session() as session:
        await inline.set_mode(session, "inline")

    async with database.transaction() as session:
        await inline.append(session, [Event("a", Happened(), "plane"), Event("b", Happened(), "airport")])
    each_once(await effects(database), a=1, b=1)
    async with database.transaction() as session:
        await Inline(reading("plane")).append(session, [Event("a", Happened(), "plane")])
    each_once(await effects(database), a=1, b=1)

    await caught_up(database, reading(types))
    each_once(await effects(database), a=2, b=1)


@pytest.mark.slow
async def test_ranges_are_cut_and_parked_sources_go_on_over_all_types(database: Database) -> None:
    await happen(database, *((BOTH[n % 2], f"s{n}") for n in range(40)))
    await caught_up(database, reading(BOTH, fails_at="s3"))
    async with database.session() as session:
        await offsets.rescale(session, "p", 5)
        assert (await offsets.status(session, "p")).entity_types == EntityTypes.of(BOTH)
        await offsets.ParkedSources(session).retry("p", "s3")
    await happen(database, *((BOTH[n % 2], f"s{n}") for n in range(40)))

    await caught_up(database, reading(BOTH))

    each_once(await effects(database), **{f"s{n}": 2 for n in range(40)})
