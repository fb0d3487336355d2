"""One projection that reads several journals: each event once, with one away, one more, and one less."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

import offsets
from journal import ConnectionSettings, Database, InvalidValue, JournalUnavailable, Log, connect
from journal.foreign import TableMapping, table_log
from offsets import WrongJournal
from projections import Event, EventEnvelope, Recovery, Session, append, handles, projection
from projections.monitoring import projection_lag, projection_lags
from projections.running import run
from projections.subscriptions import Matching
from projections.waiting import wait_for
from tests.fixtures.locks import WAITING
from tests.fixtures.postgres import Databases
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
    happen,
    running,
    settings,
    until,
    until_effects,
)
from tests.fixtures.proxy import proxy_to

_ORDERS = """
CREATE TABLE orders (
    source text NOT NULL, version int NOT NULL, id bigint GENERATED ALWAYS AS IDENTITY UNIQUE, body jsonb NOT NULL,
    PRIMARY KEY (source, version)
)
"""
_MAPPING = TableMapping.from_toml("""
    table = "orders"
    source = "source"
    number = "version"
    position = "id"
    bound = "sequence"
    entity_type = { constant = "plane" }
    event_type = { constant = "Happened" }
    payload = "body"
""")
_PARTS = "SELECT array_agg(coalesce(journal, 'here') ORDER BY projection_id) FROM projections.projections"


def recording(*fails: tuple[int, str, int], recovery: Recovery | None = None) -> type[Any]:
    """Records each event under the number of its journal, which its payload has, and its source; fails at some."""

    @projection("p", entity_type="plane", recovery=recovery)
    class Recording:
        @handles(Happened)
        async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
            await session.execute(
                "INSERT INTO effects (source_id, seq_nr) VALUES ($1, $2)",
                f"{event.n}{envelope.source_id}",
                envelope.seq_nr,
            )
            if (event.n, envelope.source_id, envelope.seq_nr) in fails:
                raise Failure(f"{envelope.source_id} {envelope.seq_nr}")

    return Recording


@pytest.fixture
async def read_side(databases: Databases, template: str) -> AsyncIterator[Database]:
    with databases.fresh(template) as dsn:
        async with connect(dsn) as database:
            await execute(database, EFFECTS)
            yield database


@pytest.fixture
async def other(databases: Databases, template: str) -> AsyncIterator[Database]:
    """The database of a second journal."""
    with databases.fresh(template) as dsn:
        async with connect(dsn) as database:
            yield database


async def insert(database: Database, source: str, *versions: int, n: int = 2) -> None:
    """Append as another system does."""
    for version in versions:
        await execute(
            database, "INSERT INTO orders (source, version, body) VALUES ($1, $2, jsonb_build_object('n', $3::int))",
            source, version, n,
        )  # fmt: skip


@pytest.mark.slow
async def test_each_event_of_both_counts_once_and_sources_of_one_name_do_not_meet(
    database: Database, other: Database, read_side: Database
) -> None:
    journals = [Log(database, "first"), Log(other, "second")]
    await happen(database, *["a", "b"] * 20, n=1)
    await happen(other, *["a", "c"] * 20, n=2)

    async with running(read_side, recording(), journal=journals, ranges=4) as told:
        await until_effects(read_side, 80)
        await happen(other, "a", n=2)
        await happen(database, "a", n=1)
        async with other.session() as late:
            await late.begin()
            await append(late, [Event("late", Happened(n=2), "plane")])
            await happen(other, "c", n=2)
            await until_effects(read_side, 83)
            await late.commit()
        await until_effects(read_side, 84)
        assert {name for name, _ in told.all("started")} == {"p@first", "p@second"}

    each_once(await effects(read_side), **{"1a": 21, "1b": 20, "2a": 21, "2c": 21, "2late": 1})
    assert await fetchval(read_side, _PARTS) == ["first", "second"]
    assert await fetchval(read_side, "SELECT count(*) FROM projections.source_offsets") == 5


@pytest.mark.slow
async def test_the_journal_that_is_here_a_second_one_and_one_of_another_system(
    database: Database, other: Database, databases: Databases, empty_dsn: str
) -> None:
    """Read models are beside one of the journals."""
    await execute(database, EFFECTS)
    async with connect(empty_dsn) as owner:
        await execute(owner, _ORDERS)
        await insert(owner, "a", 1, 2, n=3)
        async with connect(empty_dsn, ConnectionSettings(foreign_journal=True)) as elsewhere:
            journals = [database, Log(other, "second"), await table_log(elsewhere, _MAPPING, name="orders")]
            await happen(database, "a", n=1)
            await happen(other, "a", "a", "a", n=2)
            async with running(database, recording(), journal=journals, ranges=2):
                await until_effects(database, 6)
                await insert(owner, "a", 3, n=3)
                await happen(database, "a", n=1)
                await until_effects(database, 8)
            await caught_up(database, recording(), journal=journals)

    each_once(await effects(database), **{"1a": 2, "2a": 3, "3a": 3})
    assert await fetchval(database, _PARTS) == ["here", "second", "orders"]


@pytest.mark.slow
async def test_one_more_journal_while_workers_run_and_one_less(
    database: Database, other: Database, read_side: Database
) -> None:
    first, second = Log(database, "first"), Log(other, "second")
    await happen(database, "a", n=1)
    await happen(other, "a", n=2)

    async with running(read_side, recording(), journal=first):
        await until_effects(read_side, 1)
        # As a deployment rolls: one that reads both beside one that reads the first alone.
        async with running(read_side, recording(), journal=[second, first]):
            await until_effects(read_side, 2)
        await happen(database, "a", n=1)
        await until_effects(read_side, 3)

    with pytest.raises(
        WrongJournal, match="reads journal 'second' of another database, too, which is not named"
    ):
        await caught_up(read_side, recording(), journal=first)
    with pytest.raises(
        WrongJournal, match=r"reads journal 'first' .* and journal 'second' of another database"
    ):
        await caught_up(read_side, recording())
    with pytest.raises(WrongJournal, match="reads journal 'second' of another database, too"):
        await caught_up(read_side, recording(), journal=[first, Log(other, "renamed")])
    assert await fetchval(read_side, _PARTS) == ["first", "second"]

    async with read_side.session() as session:
        removed = await offsets.remove(session, "p@second")
    assert removed.sources == 1
    await happen(database, "a", n=1)
    await happen(other, "a", n=2)
    await caught_up(read_side, recording(), journal=first)
    each_once(await effects(read_side), **{"1a": 3, "2a": 1})


async def test_two_workers_that_begin_at_a_time_see_each_other_s_journals(
    database: Database, other: Database, read_side: Database
) -> None:
    """Neither has begun when the other looks, unless they take turns."""
    async with read_side.transaction() as one, read_side.session() as two:
        await offsets.register(one, "p", "plane", journal="first")
        second = asyncio.create_task(offsets.register(two, "p", "plane", journal="second"))
        async with read_side.session() as watching:
            while not await watching.fetchval(f"SELECT count(*) FROM {WAITING} WHERE locktype = 'advisory'"):
                await asyncio.sleep(0.001)
        assert not second.done()
        await one.execute("UPDATE projections.projection_ranges SET horizon = now()")
        await one.commit()
        with pytest.raises(WrongJournal, match="reads journal 'first'"):
            await second
        await one.begin()


async def test_a_part_is_as_the_others(database: Database, other: Database, read_side: Database) -> None:
    """They fill one read model, by one version of the code."""
    first, second = Log(database, "first"), Log(other, "second")
    await caught_up(read_side, recording(), journal=first)
    async with read_side.session() as session:
        await offsets.set_paused(session, "p", paused=True)
        await offsets.register(
            session, "p", ["plane", "airport"], version=2, journal="second", journals=["second", "first"]
        )
        found = await offsets.statuses(session, ["p"])
    assert [(one.name, one.paused, str(one.entity_types)) for one in found] == [
        ("p@first", True, "plane"), ("p@second", True, "plane"),
    ]  # fmt: skip
    assert await fetchval(read_side, "SELECT array_agg(version) FROM projections.projections") == [1, 1]
    del second


@pytest.mark.slow
async def test_one_of_them_away_while_the_other_goes_on(
    dsn: str, other: Database, database: Database, read_side: Database
) -> None:
    async with proxy_to(dsn) as to_first, connect(to_first.dsn) as away:
        journals = [Log(away, "first"), Log(other, "second")]
        await happen(database, "a", n=1)
        async with running(read_side, recording(), journal=journals, ranges=2) as told:
            await until_effects(read_side, 1)
            await to_first.lead_to("host=/nowhere dbname=none")
            name, _, error = await told.first("failed")
            assert name == "p@first"
            assert isinstance(error, JournalUnavailable)
            assert str(error).startswith("journal 'first': no connection")
            await happen(other, "a", "b", n=2)
            await happen(database, "a", n=1)
            await until_effects(read_side, 3)
            assert {name for name, *_ in told.all("failed")} == {"p@first"}
            async with read_side.session() as session:
                by_name = {one.name: one for one in await offsets.statuses(session, ["p"])}
            assert any("journal 'first'" in (part.error or "") for part in by_name["p@first"].ranges)
            assert not any(part.error for part in by_name["p@second"].ranges)
            await to_first.lead_to(dsn)
            await until_effects(read_side, 4)
    each_once(await effects(read_side), **{"1a": 2, "2a": 1, "2b": 1})


@pytest.mark.slow
async def test_one_that_says_nothing_at_the_start_keeps_nobody_waiting(
    dsn: str, other: Database, database: Database, read_side: Database
) -> None:
    async with proxy_to(dsn) as to_first, connect(to_first.dsn) as silent:
        to_first.stop_forwarding()
        await happen(database, "a", n=1)
        await happen(other, "a", n=2)
        async with running(read_side, recording(), journal=[Log(silent, "first"), Log(other, "second")]):
            await until_effects(read_side, 1)
            assert await effects(read_side) == [("2a", 1)]
            to_first.go_on()
            await until_effects(read_side, 2)


async def test_one_that_is_away_at_the_start_is_waited_for(
    dsn: str, other: Database, database: Database, read_side: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "projections")
    async with proxy_to(dsn) as to_first, connect(to_first.dsn) as away:
        await to_first.lead_to("host=/nowhere dbname=none")
        journals = [Log(away, "first"), Log(other, "second")]
        await happen(database, "a", n=1)
        await happen(other, "a", n=2)
        handling = asyncio.create_task(caught_up(read_side, recording(), journal=journals))
        await until_effects(read_side, 1)
        assert await effects(read_side) == [("2a", 1)]
        assert not handling.done()
        said = [record.getMessage() for record in caplog.records]
        assert any(
            text.startswith(
                "journal 'first' cannot be read yet, and is tried again; others go on: journal 'first': no"
            )
            for text in said
        )

        await to_first.lead_to(dsn)
        await handling
    each_once(await effects(read_side), **{"1a": 1, "2a": 1})


@pytest.mark.slow
async def test_what_is_said_of_one_or_of_all(
    database: Database, other: Database, read_side: Database
) -> None:
    journals = [Log(database, "first"), Log(other, "second")]
    one = recording((1, "a", 2), (2, "a", 1), recovery=NO_RETRY)
    await happen(database, "a", "a", "b", n=1)
    await happen(other, "a", "b", n=2)
    await caught_up(read_side, one, journal=journals, ranges=2)

    async with read_side.session() as session:
        parked = offsets.ParkedSources(session)
        assert {(each.projection, each.seq_nr) for each in await parked.list("p")} == {
            ("p@first", 2),
            ("p@second", 1),
        }
        assert [each.seq_nr for each in await parked.list("p@second")] == [1]
        with pytest.raises(InvalidValue, match=r"is parked in p@.* and in p@"):
            await parked.show("p", "a")
        assert (await parked.show("p@first", "a")).seq_nr == 2
        assert await parked.retry("p@first", "a") == 1
        assert await parked.drop("p") == 1

        with pytest.raises(InvalidValue, match="name one part of it, p@first or p@second"):
            await offsets.status(session, "p")
        await offsets.set_paused(session, "p@second", paused=True)
        await offsets.rescale(session, "p@first", 3)
        await offsets.rescale(session, "p@second", 5)
        found = {each.name: (each.paused, len(each.ranges)) for each in await offsets.statuses(session)}
        assert found == {"p@first": (False, 3), "p@second": (True, 5)}
        await offsets.rescale(session, "p", 2)
        await offsets.set_paused(session, "p", paused=False)

        await happen(other, "c", "c", n=2)
        lags = {each.name: each.backlog for each in await projection_lags(session, ["p"], journal=journals)}
        assert lags == {"p@first": 0, "p@second": 2}
        assert (await projection_lag(session, "p@second", journal=journals[1])).backlog == 2
        with pytest.raises(
            WrongJournal, match="projection 'p@first' reads journal 'first' of another database: name"
        ):
            await projection_lags(session, ["p"], journal=journals[1])

    await caught_up(read_side, recording(), journal=journals)
    async with read_side.session() as session:
        await offsets.clear_offset(session, "p@second")
    await caught_up(read_side, recording(), journal=journals)
    found_2 = [place for place in await effects(read_side) if place[0].startswith("2")]
    assert sorted(found_2) == sorted(
        [("2a", 1), ("2b", 1), ("2b", 1), ("2c", 1), ("2c", 1), ("2c", 2), ("2c", 2)]
    )
    each_once([place for place in await effects(read_side) if place[0].startswith("1")], **{"1a": 2, "1b": 1})


@pytest.mark.slow
async def test_to_wait_for_what_was_appended_to_one_of_them(
    database: Database, other: Database, read_side: Database
) -> None:
    """The source has that number in the other, too, and is handled there."""
    journals = [Log(database, "first"), Log(other, "second")]
    await happen(database, "a", n=1)
    async with running(read_side, recording(), journal=journals):
        await until_effects(read_side, 1)
        async with read_side.session() as session:
            await offsets.set_paused(session, "p@second", paused=True)
        for _ in range(
            3
        ):  # one may have been under way, and what the next is told is acted upon before a third is sent
            now = await fetchval(read_side, "SELECT max(lease_until) FROM projections.workers")
            await until(read_side, "SELECT min(lease_until) > $1 FROM projections.workers", now)
        async with other.transaction() as session:
            (appended,) = await append(session, [Event("a", Happened(n=2), "plane")])
        with pytest.raises(TimeoutError, match="it is paused"):
            await wait_for(read_side, "p", appended, settings().heartbeat, journal=journals[1])
        async with read_side.session() as session:
            await offsets.set_paused(session, "p", paused=False)
        await wait_for(read_side, "p", appended, timedelta(minutes=2), journal=journals[1])
        assert sorted(await effects(read_side)) == [("1a", 1), ("2a", 1)]
        with pytest.raises(WrongJournal, match="'p@second' is a part of projection 'p': name that"):
            await wait_for(read_side, "p@second", appended, settings().lease, journal=journals[1])
        with pytest.raises(WrongJournal, match=r"reads journal 'first' .* not journal 'third'"):
            await wait_for(read_side, "p", appended, settings().lease, journal=Log(other, "third"))


async def test_what_is_refused(database: Database, other: Database, read_side: Database) -> None:
    with pytest.raises(InvalidValue, match="two journals are named 'journal'"):
        await run(read_side, recording(), journal=[database, other])
    with pytest.raises(InvalidValue, match="reads the journal in the database of the read models"):
        await run(read_side, journal=[read_side, Log(other, "second")], discovery=Matching())
    with pytest.raises(
        InvalidValue, match="a journal is passed twice, among first, second: each of its events would"
    ):
        await run(read_side, recording(), journal=[Log(other, "first"), Log(other, "second")])
    with pytest.raises(InvalidValue, match="Name the other: Log"):
        await run(read_side, recording(), journal=[Log(read_side, "mine"), other])
