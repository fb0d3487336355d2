"""An event whose own statement takes too long is parked while others pass; a server slow for all stops the range."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest

import offsets
from journal import ConnectionSettings, Database, connect
from projections import (
    AtLeastOnce,
    Changes,
    EventEnvelope,
    Recovery,
    Table,
    events,
    handles,
    projection,
    read_model,
)
from tests.fixtures.projections import (
    EFFECTS,
    NO_RETRY,
    Does,
    Happened,
    caught_up,
    effects,
    execute,
    fetchval,
    happen,
    recording,
    running,
    settings,
    until,
)

DELIVERIES = pytest.mark.parametrize("delivery", [None, AtLeastOnce()], ids=["exactly-once", "at-least-once"])
GOES_ON = "SELECT count(*) = 0 FROM projections.parked_sources"
TRIGGER = """
CREATE FUNCTION take_long() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.source_id = 'slow' THEN PERFORM pg_sleep(600); END IF;
    RETURN NEW;
END $$
"""


@pytest.fixture(params=["asyncpg", "psycopg"])
async def journal(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(driver=request.param)) as pool:
        await execute(pool, EFFECTS)
        yield pool


class Slow:
    """Statements that take longer than they may, of sources with these names, so many times or until it is over."""

    def __init__(self, *sources: str, times: int = 1_000_000) -> None:
        self.sources = sources
        self.times = times

    async def __call__(self, session: Any, event: Happened, envelope: EventEnvelope) -> None:
        if not self.times or not envelope.source_id.startswith(self.sources):
            return
        self.times -= 1
        async with nullcontext() if session.in_transaction else session.transaction():
            await session.execute("SET LOCAL statement_timeout = '20ms'")
            await session.fetchval("SELECT pg_sleep(600)")

    def over(self) -> None:
        self.times = 0


def handling(does: Does, delivery: Any, **options: Any) -> type[Any]:
    return recording(does, delivery=delivery, **{"recovery": NO_RETRY} | options)


async def parked(database: Database) -> list[tuple[str, bool]]:
    """Which sources are parked, and whether they are tried again by themselves."""
    async with database.session() as session:
        return [
            (source.source_id, source.error.endswith("It is tried again by itself"))
            for source in await offsets.ParkedSources(session).list("p")
        ]


async def until_handled(database: Database, *sources: str) -> None:
    await until(
        database,
        "SELECT $1 <@ array_agg(source_id || '-' || seq_nr) FROM effects",
        [f"{s}-1" for s in sources],
    )


@pytest.mark.daily(2)
@DELIVERIES
@pytest.mark.parametrize("recovery", [NO_RETRY, Recovery.skip()], ids=["park", "skip"])
async def test_it_is_parked_and_goes_on_when_it_is_fast_again(
    journal: Database, delivery: Any, recovery: Recovery
) -> None:
    slow = Slow("slow")
    await happen(journal, "a", "slow", "slow", "b")
    async with running(journal, handling(slow, delivery, recovery=recovery)) as told:
        await told.first("parked")
        await happen(journal, "c")
        await until_handled(journal, "a", "b", "c")
        assert await parked(journal) == [("slow", True)]
        slow.over()
        await until(journal, GOES_ON)

    assert {*told.names("parked", "failed", "skipped")} == {"parked"}
    assert {("slow", 1), ("slow", 2)} <= {*await effects(journal)}


@pytest.mark.daily(2)
@DELIVERIES
async def test_where_it_is_the_only_one_the_range_stops_until_another_passes(
    journal: Database, delivery: Any
) -> None:
    slow = Slow("slow")
    await happen(journal, "slow")
    async with running(journal, handling(slow, delivery)) as told:
        _, _, error = await told.first("failed", 2)
        assert await parked(journal) == []
        await happen(journal, "a")
        await told.first("parked")
        await until_handled(journal, "a")

    assert getattr(error, "sqlstate", None) == "57014"
    assert await parked(journal) == [("slow", True)]


@pytest.mark.daily(2)
@DELIVERIES
@pytest.mark.parametrize("size", [1, 3])
async def test_where_its_source_fills_a_page_others_are_asked(
    journal: Database, delivery: Any, size: int
) -> None:
    await happen(journal, "slow", "slow", "slow")
    await happen(journal, "a", "b")
    async with running(journal, handling(Slow("slow"), delivery, batch_size=size)) as told:
        await until_handled(journal, "a", "b")
        await until(journal, "SELECT count(*) = 1 FROM projections.parked_sources")

    assert told.names("failed", "skipped") == []


async def test_where_two_of_them_fill_a_page_others_are_asked(journal: Database) -> None:
    await happen(journal, "slow1", "slow2", "slow1", "slow2")
    await happen(journal, "a", "b")
    async with running(journal, handling(Slow("slow"), None, batch_size=2)) as told:
        await until_handled(journal, "a", "b")
        await until(journal, "SELECT count(*) = 2 FROM projections.parked_sources")

    assert told.names("failed", "skipped") == []


_CANCELLED_ONCE = """
CREATE SEQUENCE once;
CREATE FUNCTION cancel_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('public.once') = 1 THEN RAISE 'cancelled' USING ERRCODE = '57014'; END IF;
    RETURN coalesce(NEW, OLD);
END $$;
CREATE TRIGGER cancel_once BEFORE UPDATE OR DELETE ON projections.parked_sources
FOR EACH ROW WHEN (OLD.decision = 'drop') EXECUTE FUNCTION cancel_once();
"""


async def test_what_came_behind_a_dropped_event_is_handled_though_the_drop_was_cancelled_once(
    journal: Database,
) -> None:
    async def bad_once(_session: Any, _event: Happened, envelope: EventEnvelope) -> None:
        if (envelope.source_id, envelope.seq_nr) == ("bad", 1):
            raise ValueError("bad")

    await execute(journal, _CANCELLED_ONCE)
    await happen(journal, "bad", "bad", "bad", "a")
    async with running(journal, handling(bad_once, None)) as told:
        await told.first("parked")
        async with journal.session() as session:
            await offsets.ParkedSources(session).drop("p", "bad")
        await until(journal, GOES_ON)

    assert {("bad", 2), ("bad", 3)} <= {*await effects(journal)}
    assert await fetchval(journal, "SELECT last_value > 1 FROM once")


@pytest.mark.daily(2)
@DELIVERIES
async def test_a_server_that_is_slow_for_all_stops_the_range_and_none_is_parked(
    journal: Database, delivery: Any
) -> None:
    sources = [f"s{number}" for number in range(8)]
    slow = Slow("s", times=16)  # each in its parts, alone, and after the others: then it stops
    await happen(journal, *sources)

    told = await caught_up(journal, handling(slow, delivery, recovery=Recovery.skip()))

    assert told.names("parked", "skipped", "error", "failed") == ["failed"]
    assert getattr(told.all("failed")[0][-1], "sqlstate", None) == "57014"
    assert {*await effects(journal)} == {(source, 1) for source in sources}


async def test_a_retry_by_hand_that_takes_too_long_stops_nobody(journal: Database) -> None:
    slow = Slow("slow")
    await happen(journal, "a", "slow")
    async with running(journal, handling(slow, None)) as told:
        await told.first("parked")
        async with journal.session() as session:
            await offsets.ParkedSources(session).retry("p", "slow")
        await told.first("error")
        await until(
            journal, "SELECT decision = 'waiting' FROM projections.parked_sources"
        )  # a retry by hand is one
        await happen(journal, "b")
        await until_handled(journal, "a", "b")
        slow.over()
        await until(journal, GOES_ON)

    assert told.names("failed") == []


def summed() -> type[Any]:
    table = Table("sums", key=("source_id",), increment=("total",))

    @projection("p", entity_type="plane", recovery=NO_RETRY)
    class Sums:
        @handles(Happened)
        def happened(self, event: Happened, envelope: EventEnvelope) -> Changes:
            return table.upsert(source_id=envelope.source_id, total=1)

    return Sums


def stated() -> type[Any]:
    @projection("p", entity_type="plane", recovery=NO_RETRY)
    class Stated:
        happened = events(Happened)
        sums = read_model("SELECT source_id, count(*) AS total FROM happened GROUP BY source_id")

    return Stated


@pytest.mark.daily(1)
@pytest.mark.parametrize("define", [summed, stated])
async def test_writing_what_takes_longer_than_a_handler_may_is_narrowed_down(
    journal: Database, define: Any
) -> None:
    await execute(journal, "CREATE TABLE sums (source_id text PRIMARY KEY, total bigint NOT NULL DEFAULT 0)")
    await execute(journal, TRIGGER)
    await execute(
        journal,
        "CREATE TRIGGER t BEFORE INSERT OR UPDATE ON sums FOR EACH ROW EXECUTE FUNCTION take_long()",
    )
    quick = settings(handler_timeout=timedelta(seconds=0.5))
    await happen(journal, "a", "slow", "b", "slow")
    async with running(journal, define(), settings=quick):
        await until(journal, "SELECT count(*) = 1 FROM projections.parked_sources WHERE source_id = 'slow'")
        await until(journal, "SELECT count(*) = 2 FROM sums WHERE total = 1")
        await execute(journal, "DROP TRIGGER t ON sums")
        await until(journal, GOES_ON)

    assert await fetchval(journal, "SELECT sum(total) FROM sums") == 4
