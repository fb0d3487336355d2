"""Read models in SQL of a journal in another database, or of another system: the statement gets payloads."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from journal import Database, Log, connect
from journal.foreign import Stored, table_log
from projections import Event, Inline, RawJson, event_type, events, projection, read_model
from projections.errors import HandlerFailed
from tests.fixtures.foreign import FOREIGN
from tests.fixtures.foreign_tables import MAPPINGS, Theirs, log, theirs
from tests.fixtures.postgres import Databases
from tests.fixtures.projections import NO_RETRY, Happened, caught_up, running, settings, until
from tests.fixtures.read_models import Delays, Planes, as_the_journal_says, land, landing, rows

__all__ = ["log", "theirs"]


@pytest.fixture
async def read_side(databases: Databases, template: str) -> AsyncIterator[Database]:
    """A database whose own journal is empty."""
    with databases.fresh(template) as dsn:
        async with connect(dsn) as database:
            yield database


@pytest.mark.slow
@pytest.mark.parametrize(("definition", "table"), [(Delays, "delays"), (Planes, "planes")])
async def test_the_table_is_what_the_query_says_of_a_journal_elsewhere(
    database: Database, read_side: Database, definition: type[Any], table: str
) -> None:
    await land(database, *[landing(f"p{n % 9}", delay=n - 5) for n in range(60)])
    async with running(read_side, definition, journal=database, ranges=4, settings=settings()):
        await until(read_side, f"SELECT to_regclass('{table}') IS NOT NULL")
        await until(read_side, f"SELECT coalesce(sum(flights), 0) >= 54 FROM {table}")
        await land(database, *[landing(f"p{n % 9}", delay=n + 1, seat="window") for n in range(60)])
        await until(read_side, f"SELECT sum(flights) >= 114 FROM {table}")
    await caught_up(read_side, definition, journal=database)

    await as_the_journal_says(read_side, definition, table, journal=database)
    assert await rows(database, f"SELECT to_regclass('{table}') IS NULL") == [(True,)]


@event_type("Landed", version=2, upcast={1: lambda p: p | {"carrier": p["airline"]}})
class LandedNow(BaseModel):
    carrier: str
    day: date


@projection("now", entity_type="plane", recovery=NO_RETRY)
class Now:
    landed = events(LandedNow)
    t = read_model("SELECT carrier, day, count(*) AS n FROM landed GROUP BY carrier, day")


def stored(source_id: str, payload: str, version: int = 1) -> Event:
    return Event(source_id, RawJson(payload), "plane", event_type="Landed", version=version)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (stored("bad", '{"carrier": "UA", "day": "never"}', 2), "day: Input should be a valid date"),
        (stored("bad", '{"day": "2013-01-01"}', 2), "carrier: Field required"),
        (stored("bad", '{"nothing": 1}'), "upcast from version 1 failed"),
        (stored("bad", '{"carrier": "UA", "day": "2013-01-01"}', 3), "was written as version 3"),
    ],
)
async def test_an_event_that_does_not_fit_parks_its_source_and_the_others_go_on(
    database: Database, read_side: Database, bad: Event, message: str
) -> None:
    good = '{"airline": "UA", "day": "2013-01-01"}'
    await land(
        database, *[stored(f"p{n}", good) for n in range(20)], stored("bad", good), bad, stored("bad", good)
    )

    await caught_up(read_side, Now, journal=database)

    assert await rows(read_side, "SELECT n FROM t") == [(21,)]
    ((source_id, seq_nr, error),) = await rows(
        read_side, "SELECT source_id, seq_nr, error FROM projections.parked_sources"
    )
    assert (source_id, seq_nr) == ("bad", 2)
    assert message in error
    assert "event 'Landed' of source 'bad', seq_nr 2" in error


async def test_an_append_of_a_later_version_is_refused_inline(database: Database) -> None:
    """As a worker refuses it: the program does not know what is in it."""
    await land(database, stored("a", '{"airline": "UA", "day": "2013-01-01"}'))
    await caught_up(database, Now)
    async with database.transaction() as session:
        await Inline(Now).set_mode(session, "inline")

    later = stored("b", '{"carrier": "UA", "day": "2013-01-01"}', 3)
    async with database.session() as session:
        await session.begin()
        with pytest.raises(HandlerFailed, match="was written as version 3"):
            await Inline(Now).append(session, [later])
        await session.rollback()

    assert await rows(database, "SELECT n FROM t") == [(1,)]


@projection("happened", entity_type="plane", recovery=NO_RETRY)
class Sums:
    happened = events(Happened)
    sums = read_model("SELECT source_id, count(*) AS events, sum(n) AS n FROM happened GROUP BY source_id")


@pytest.mark.slow
async def test_the_journal_of_another_system(theirs: Theirs, log: Log, read_side: Database) -> None:
    await theirs.write(*["a", "b", "a"] * 10, n=2)
    await caught_up(read_side, Sums, journal=log, ranges=2)
    await theirs.write("a", "c", n=5)
    await caught_up(read_side, Sums, journal=log, ranges=2)

    assert sorted(await rows(read_side, "SELECT source_id, events, n FROM sums")) == [
        ("a", 21, 45), ("b", 10, 20), ("c", 1, 5),
    ]  # fmt: skip


_DECODED = {91: "{\0}", 92: '{"n": "\ud800"}', 93: "{"}


def decode(stored: Stored) -> str:
    """Anything, as an application's own decoder may."""
    n = json.loads(stored.data)["n"]
    if n == 94:
        raise ValueError("no such payload")
    return _DECODED.get(n, f'{{"n": {n}}}')


async def test_what_a_decoder_makes_no_json_of_is_the_fault_of_its_event(
    theirs: Theirs, read_side: Database
) -> None:
    await theirs.write("good", n=2)
    for n, source in ((91, "nul"), (92, "surrogate"), (93, "broken"), (94, "unreadable"), (3, "good")):
        await theirs.write(source, n=n)
    async with connect(theirs.database.dsn, FOREIGN["asyncpg"]) as foreign:
        log = await table_log(foreign, MAPPINGS["sequence"], name="theirs", decode=decode)
        await caught_up(read_side, Sums, journal=log)

    assert await rows(read_side, "SELECT source_id, n FROM sums") == [("good", 5)]
    parked = await rows(read_side, "SELECT source_id, error FROM projections.parked_sources")
    assert {source_id for source_id, _ in parked} == {"nul", "surrogate", "broken", "unreadable"}
    assert all("seq_nr 1" in error for _, error in parked)


async def test_several_journals_one_of_them_here(database: Database, read_side: Database) -> None:
    await land(database, *[landing(f"p{n}", delay=1) for n in range(20)])
    await land(read_side, *[landing(f"q{n}", delay=2) for n in range(10)])
    both = [Log(database, "there"), Log(read_side, "here")]
    await caught_up(read_side, Delays, journal=both)
    await land(database, landing("p1", delay=3))
    await land(read_side, landing("q1", delay=4))
    await caught_up(read_side, Delays, journal=both)

    assert await rows(read_side, "SELECT flights, minutes, worst FROM delays") == [(32, 47, 4)]
