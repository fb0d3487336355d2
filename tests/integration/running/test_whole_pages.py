"""While it catches up, a read model in SQL handles whole pages inside the database, each event once."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from journal import BEGINNING, Database, append
from projections import events, projection, read_model, run
from tests.fixtures.projections import Told, execute, fetchval, running, until
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


async def caught_up(database: Database, definition: Any = Model, ranges: int = 1) -> tuple[int, int]:
    """Run to the end; how many events were handled inside the database, and how many outside."""
    told = Told()
    await run(database, definition, until_caught_up=True, observer=told, ranges=ranges)
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
    await land(database, landing("a"), landing("a", delay=7), landing("a"))
    await execute(
        database,
        "UPDATE projections.events SET db_timestamp = now() - interval '1 hour' WHERE seq_nr = 3",
    )
    await caught_up(database)
    assert await rows(database, "SELECT source_id, seq_nr FROM projections.source_offsets") == [("a", 3)]
    await as_the_journal_says(database, Model, "t")


@pytest.mark.parametrize("ranges", [1, 3])
async def test_ranges_and_days(database: Database, ranges: int) -> None:
    days = [date(2013, 1, 1 + n % 3) for n in range(40)]
    await land(database, *[landing(f"s{n % 7}", day=day, delay=n) for n, day in enumerate(days)])

    assert await caught_up(database, ranges=ranges) == (40, 0)
    await as_the_journal_says(database, Model, "t")
