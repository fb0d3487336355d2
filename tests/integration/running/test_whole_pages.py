"""While it catches up, a read model in SQL handles whole pages inside the database, each event once."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from journal import BEGINNING, Database, append
from projections import Event, RawJson, event_type, events, projection, read_model, run
from tests.fixtures.projections import Told, execute, fetchval, running, settings, until
from tests.fixtures.read_models import DAY, Landed, as_the_journal_says, land, landing, rows

SQL = "SELECT carrier, day, count(*) AS flights, sum(delay) AS minutes FROM landed GROUP BY carrier, day"


@projection("p", entity_type="plane", batch_size=4)
class Model:
    landed = events(Landed)
    t = read_model(SQL)


@projection("two", entity_type="plane", batch_size=4)
class Two:
    landed = events(Landed)
    t = read_model(SQL)
    days = read_model("SELECT day, max(delay) AS worst FROM landed GROUP BY day")


async def caught_up(
    database: Database, definition: Any = Model, ranges: int = 1, **options: Any
) -> tuple[int, int]:
    """Run to the end; how many events were handled inside the database, and how many outside."""
    told = Told()
    await run(database, definition, until_caught_up=True, observer=told, ranges=ranges, **options)
    inside = sum(args[2] for args in told.all("handled_page"))
    return inside, sum(len(args[2]) for args in told.all("handled"))


async def begin_again(database: Database) -> None:
    """As after a restart that remembers no horizon: all that is there is read again."""
    await execute(database, f"UPDATE projections.projection_ranges SET horizon = '{BEGINNING}'")


async def flights(database: Database) -> int:
    return int(await fetchval(database, "SELECT sum(flights) FROM t"))


async def test_pages_are_handled_inside_the_database(database: Database) -> None:
    await land(database, *[landing(f"s{n % 3}", delay=n) for n in range(10)])

    assert await caught_up(database) == (10, 0)
    await as_the_journal_says(database, Model, "t")
    assert await rows(
        database, "SELECT source_id, seq_nr FROM projections.source_offsets ORDER BY source_id"
    ) == [
        ("s0", 4),
        ("s1", 3),
        ("s2", 3),
    ]
    assert await fetchval(database, "SELECT sum(handled) FROM projections.projection_ranges") == 10


async def test_all_tables_of_a_projection_are_written(database: Database) -> None:
    await land(database, *[landing(f"s{n % 3}", delay=n) for n in range(10)])

    assert await caught_up(database, Two) == (10, 0)
    assert await rows(database, "SELECT * FROM t") == [("UA", DAY, 10, 45)]
    assert await rows(database, "SELECT * FROM days") == [(DAY, 9)]


async def test_what_was_handled_before_is_not_handled_again(database: Database) -> None:
    await land(database, *[landing(f"s{n % 3}", delay=n) for n in range(10)])
    await caught_up(database)
    await begin_again(database)
    await land(database, *[landing(f"s{n % 5}", delay=n) for n in range(7)])

    inside, outside = await caught_up(database)
    assert inside + outside == 7
    await as_the_journal_says(database, Model, "t")


async def test_what_was_handled_is_not_handled_again_after_its_offset_was_evicted(database: Database) -> None:
    await land(database, *[landing(f"s{n}", delay=n) for n in range(10)])
    await caught_up(database)
    await begin_again(database)
    await execute(
        database,
        "UPDATE projections.projections SET evicted_before = now(); DELETE FROM projections.source_offsets",
    )
    await land(database, landing("s0", delay=1), landing("new"))

    inside, outside = await caught_up(database)
    assert inside + outside == 2
    assert await flights(database) == 12


async def test_a_bad_event_parks_its_source_and_the_rest_of_its_page_is_handled(database: Database) -> None:
    await land(database, *[landing(f"s{n}", delay=n) for n in range(5)])
    await execute(
        database, "UPDATE projections.events SET payload = '{\"carrier\": \"UA\"}' WHERE source_id = 's2'"
    )
    await land(database, landing("s2"), *[landing(f"s{n}", delay=n) for n in range(3, 9)])
    await caught_up(database)

    assert await rows(database, "SELECT source_id, seq_nr FROM projections.parked_sources") == [("s2", 1)]
    assert await flights(database) == 10


@event_type("Landed", version=2, upcast={1: lambda p: p | {"carrier": p["carrier"].upper()}})
class LandedNow(BaseModel):
    carrier: str


@projection("now", entity_type="plane", batch_size=4)
class Now:
    landed = events(LandedNow)
    t = read_model("SELECT carrier, count(*) AS flights FROM landed GROUP BY carrier")


async def test_a_page_with_an_older_version_is_not_written_as_it_is_stored(database: Database) -> None:
    older = Event("a", RawJson('{"carrier": "ua"}'), "plane", event_type="Landed", version=1)
    await land(database, older, Event("b", LandedNow(carrier="UA"), "plane"))

    assert await caught_up(database, Now) == (0, 2)
    assert await rows(database, "SELECT * FROM t") == [("UA", 2)]


async def test_a_source_that_is_parked_waits(database: Database) -> None:
    await land(database, landing("s0"), landing("s1"))
    await caught_up(database)
    await execute(
        database,
        "INSERT INTO projections.parked_sources (projection_id, source_id, slice, seq_nr, event_type, error, attempts) "
        "SELECT projection_id, source_id, slice, 2, 'Landed', '', 1 FROM projections.source_offsets "
        "WHERE source_id = 's0'",
    )
    await land(database, landing("s0"), landing("s1"), landing("s2"))
    await caught_up(database)

    assert await flights(database) == 4
    assert (
        await fetchval(database, "SELECT seq_nr FROM projections.source_offsets WHERE source_id = 's0'") == 1
    )


async def test_an_event_that_commits_late_is_handled_once(database: Database) -> None:
    """It is in the middle of what was handled as a whole page."""
    async with database.session() as late:
        await late.begin()
        await append(late, [landing("late", delay=100)])
        await land(database, *[landing(f"s{n}", delay=n) for n in range(6)])
        async with running(database, Model) as told:
            await told.first("handled_page", 2)
            assert await flights(database) == 6
            await late.commit()
            await until(database, "SELECT sum(flights) = 7 FROM t")
    await as_the_journal_says(database, Model, "t")


async def test_an_event_before_which_others_are_missing_is_not_handled_before_them(
    database: Database,
) -> None:
    """The second event of a source is on the page behind the third."""
    await land(database, landing("a"), landing("a", delay=7), landing("a"), landing("b"), landing("b"))
    await execute(
        database,
        "UPDATE projections.events SET db_timestamp = db_timestamp - interval '1 hour' "
        "WHERE source_id = 'b' OR seq_nr <> 2",
    )
    await caught_up(database)
    assert await offsets_of(database) == [("a", 3), ("b", 2)]
    await as_the_journal_says(database, Model, "t")


@pytest.mark.parametrize("ranges", [1, 3])
async def test_ranges_and_days(database: Database, ranges: int) -> None:
    days = [date(2013, 1, 1 + n % 3) for n in range(40)]
    await land(database, *[landing(f"s{n % 7}", day=day, delay=n) for n, day in enumerate(days)])

    assert await caught_up(database, ranges=ranges) == (40, 0)
    await as_the_journal_says(database, Model, "t")


MINUTE = timedelta(minutes=1)
YESTERDAY = "UPDATE projections.{} SET db_timestamp = db_timestamp - interval '1 day'"


async def yesterday(database: Database, *tables: str) -> None:
    """What is there was appended a day before."""
    for table in ("events", "sources", *tables):
        await execute(database, YESTERDAY.format(table))


async def offsets_of(database: Database) -> list[tuple[str, int]]:
    return await rows(database, "SELECT source_id, seq_nr FROM projections.source_offsets ORDER BY source_id")


async def old_caught_up(database: Database) -> tuple[int, int]:
    return await caught_up(database, settings=settings(retention=MINUTE))


async def go_on_from_offsets(database: Database) -> None:
    """The range stands at the last event that was handled."""
    await execute(
        database,
        "UPDATE projections.projection_ranges SET horizon = o.at, handled_until = o.at "
        "FROM (SELECT max(db_timestamp) AS at FROM projections.source_offsets) AS o",
    )


async def test_pages_of_old_events_store_the_newest_offsets_only(database: Database) -> None:
    await land(database, *[landing(f"s{n % 5}", delay=n) for n in range(10)])
    await yesterday(database)

    assert await old_caught_up(database) == (10, 0)
    await as_the_journal_says(database, Model, "t")
    last = await rows(
        database, "SELECT source_id, seq_nr FROM projections.events ORDER BY db_timestamp DESC LIMIT 1"
    )
    assert (await offsets_of(database))[-1:] == last
    assert len(await offsets_of(database)) <= 3  # of the last event of each page

    await begin_again(database)
    await land(database, *[landing(f"s{n}", delay=n) for n in range(6)])
    inside, outside = await old_caught_up(database)
    assert inside + outside == 6
    await as_the_journal_says(database, Model, "t")


async def test_pages_of_old_events_go_on_from_offsets_that_are_there(database: Database) -> None:
    await land(database, *[landing(f"s{n}", delay=n) for n in range(8)])
    await caught_up(database)
    await land(database, *[landing(f"s{n % 10}", delay=n) for n in range(20)])
    await yesterday(database, "source_offsets")
    await go_on_from_offsets(database)

    assert (await old_caught_up(database))[0] == 20
    await land(database, *[landing(f"s{n}", delay=n) for n in range(10)])
    inside, outside = await old_caught_up(database)
    assert inside + outside == 10
    await as_the_journal_says(database, Model, "t")


async def test_a_page_of_old_events_that_does_not_follow_its_offsets_is_judged(database: Database) -> None:
    """Of one source more is handled than is said, and of another less."""
    await land(database, *[landing(f"s{n}", delay=n) for n in range(4)])
    await caught_up(database)
    await land(database, *[landing(f"s{n}", delay=n) for n in range(4)])
    await caught_up(database)
    await yesterday(database, "source_offsets")
    await execute(database, "UPDATE projections.projection_ranges SET horizon = now() - interval '2 days'")
    await execute(database, "UPDATE projections.source_offsets SET seq_nr = 1 WHERE source_id = 's1'")

    assert await old_caught_up(database) == (0, 1)


async def test_a_page_of_old_events_that_is_handled_in_part_is_judged(database: Database) -> None:
    await land(database, *[landing(f"s{n}", delay=n) for n in range(4)])
    await caught_up(database)
    await land(database, *[landing(f"s{n}", delay=n) for n in range(4)])
    await yesterday(database, "source_offsets")
    await go_on_from_offsets(database)
    await execute(database, "UPDATE projections.source_offsets SET seq_nr = 2 WHERE source_id = 's1'")

    assert await old_caught_up(database) == (0, 3)


@pytest.mark.slow
async def test_a_source_that_is_parked_waits_on_a_page_of_old_events(database: Database) -> None:
    await land(database, *[landing(f"s{n}", delay=n) for n in range(4)])
    await execute(
        database, "UPDATE projections.events SET payload = '{\"carrier\": \"UA\"}' WHERE source_id = 's2'"
    )
    await land(database, *[landing(f"s{n}", delay=n) for n in range(8)])
    await yesterday(database)

    inside, outside = await old_caught_up(database)
    assert inside + outside == 10
    assert await rows(database, "SELECT source_id, seq_nr FROM projections.parked_sources") == [("s2", 1)]
    await land(database, *[landing(f"s{n}", delay=n) for n in range(8)])
    await old_caught_up(database)
    assert await flights(database) == 17
