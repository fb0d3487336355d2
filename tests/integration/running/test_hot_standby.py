"""Reading the journal from a hot standby: its primary says what is open, and nothing is lost however late replay is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from journal import (
    BEGINNING,
    JOURNAL,
    Database,
    DatabaseUnavailable,
    Event,
    InvalidValue,
    JournalUnavailable,
    Log,
    MissingPrivilege,
    Primary,
    append,
    connect,
    standby,
)
from journal.errors import ForeignJournalError, NeedsPrimary
from offsets import live_events
from projections import Backoff, run
from projections.monitoring import projection_lag
from tests.fixtures.failover import Server
from tests.fixtures.hot_standby import Servers, hot_standby, stepped
from tests.fixtures.pgbouncer import pooler
from tests.fixtures.postgres import Databases
from tests.fixtures.projections import (
    caught_up,
    each_once,
    effects,
    execute,
    fetchval,
    happen,
    recording,
    running,
    settings,
    until,
    until_effects,
)


@pytest.fixture
async def servers(base_cluster: Server, databases: Databases, template: str) -> AsyncIterator[Servers]:
    async with hot_standby(base_cluster, databases, template) as both:
        yield both


@pytest.mark.slow
async def test_a_projection_reads_the_standby_and_writes_elsewhere(servers: Servers) -> None:
    await happen(servers.primary, *["a", "b", "c"] * 30)
    async with running(servers.read_side, recording(), journal=servers.log, ranges=4):
        await until_effects(servers.read_side, 90)
        async with servers.primary.session() as late:
            await late.begin()
            await append(late, [Event("late", {}, entity_type="plane", event_type="Happened")])
            await happen(servers.primary, "a", "b")
            await until_effects(servers.read_side, 92)
            await servers.pause()
            await late.commit()
            await happen(servers.primary, "a")
            servers.resume()
            await until_effects(servers.read_side, 94)
    await caught_up(servers.read_side, recording(), journal=servers.log)
    each_once(await effects(servers.read_side), a=32, b=31, c=30, late=1)


@pytest.mark.slow
async def test_what_is_committed_asynchronously_is_waited_for(servers: Servers) -> None:
    """The place that is written may be before a commit whose lock is gone: what is inserted counts."""
    await execute(servers.primary, "ALTER DATABASE one SET synchronous_commit = off")
    async with (
        connect(servers.both.primary.dsn("one")) as hasty,
        running(servers.read_side, recording(), journal=servers.log, settings=settings()),
    ):
        for number in range(200):
            await happen(hasty, f"s{number % 7}")
        await until_effects(servers.read_side, 200)
    each_once(await effects(servers.read_side), **{f"s{n}": 29 if n < 4 else 28 for n in range(7)})


@pytest.mark.slow
async def test_a_standby_that_is_killed_goes_on_where_it_was(servers: Servers) -> None:
    async with running(servers.read_side, recording(), journal=servers.log, ranges=2):
        for life in range(3):
            await happen(servers.primary, "a", "b")
            await until_effects(servers.read_side, 4 * life + 2)
            await asyncio.to_thread(servers.both.standby.kill)
            await happen(servers.primary, "a", "b")
            await asyncio.to_thread(servers.both.standby.start)
            await until_effects(servers.read_side, 4 * life + 4)
    each_once(await effects(servers.read_side), a=6, b=6)
    assert await fetchval(servers.read_side, "SELECT count(*) FROM projections.parked_sources") == 0


@pytest.mark.slow
async def test_a_primary_that_is_killed_loses_nothing(servers: Servers) -> None:
    async with running(servers.read_side, recording(), journal=servers.log):
        for life in range(3):
            await happen(servers.primary, "a")
            await until_effects(servers.read_side, 2 * life + 1)
            await asyncio.to_thread(servers.both.primary.kill)
            await asyncio.to_thread(servers.both.primary.start)
            await answering(servers.primary)
            await happen(servers.primary, "b")
            await until_effects(servers.read_side, 2 * life + 2)
    each_once(await effects(servers.read_side), a=3, b=3)


async def answering(database: Database) -> None:
    async with asyncio.timeout(300):
        while True:
            try:
                await fetchval(database, "SELECT 1")
            except DatabaseUnavailable:
                await asyncio.sleep(0.05)
            else:
                return


@pytest.mark.slow
async def test_a_standby_that_is_promoted_is_not_read_with_the_primary_of_before(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "PATIENCE", 1)
    await happen(servers.primary, "a")
    async with running(servers.read_side, recording(), journal=servers.log) as told:
        await until_effects(servers.read_side, 1)
        await asyncio.to_thread(servers.both.standby.value, "SELECT pg_promote(TRUE)")
        await happen(servers.primary, "a")
        error = (await told.first("failed"))[-1]
        assert "is not a standby of the primary any more" in str(error)
    assert await effects(servers.read_side) == [("a", 1)]

    # It is the primary now, and has what was handled: whoever names it as both goes on.
    async with connect(servers.both.standby.dsn("one")) as promoted:
        await happen(promoted, "a", "b")
        log = Log(promoted, primary=Primary(promoted))
        await caught_up(servers.read_side, recording(), journal=log)
    each_once(await effects(servers.read_side), a=2, b=1)


@pytest.mark.slow
async def test_a_fail_over_loses_only_what_nobody_has_read(servers: Servers) -> None:
    """What the standby has not, was not handled: so nothing is ahead of it, and nothing is parked."""
    await happen(servers.primary, "a", "b")
    async with connect(servers.both.direct("one")) as whoever:
        log = Log(servers.standby, primary=Primary(whoever))
        async with running(servers.read_side, recording(), journal=log, ranges=4):
            await until_effects(servers.read_side, 2)
            await asyncio.to_thread(servers.both.cut)
            await happen(servers.primary, "a", "lost")
            await servers.both.fail_over()
            await happen(servers.standby, "a", "b", "new")
            await until_effects(servers.read_side, 5)
            await happen(servers.standby, "a")
            await until_effects(servers.read_side, 6)
    each_once(await effects(servers.read_side), a=3, b=2, new=1)
    assert await fetchval(servers.read_side, "SELECT count(*) FROM projections.parked_sources") == 0


_SLEEPS = """
SELECT e.* FROM projections.read_events_by_slices_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS e
CROSS JOIN LATERAL (
    SELECT pg_catalog.pg_sleep(CASE WHEN e.source_id = 'slow' THEN 1 ELSE 0 END) WHERE e.seq_nr > 0
) AS s
"""


@pytest.mark.slow
async def test_a_query_that_replay_cancels_is_made_again(servers: Servers) -> None:
    servers.both.standby.value("ALTER SYSTEM SET max_standby_streaming_delay = 0")
    servers.both.standby.value("SELECT pg_reload_conf()")
    log = replace(servers.log, queries=replace(JOURNAL, events=_SLEEPS))
    async with running(servers.read_side, recording(), journal=log) as told:
        await happen(servers.primary, "slow", "b")
        asleep = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = 'one'"
        await asyncio.to_thread(servers.both.standby.until, asleep)
        async with servers.primary.transaction() as owner:
            await owner.execute("LOCK TABLE projections.events IN ACCESS EXCLUSIVE MODE")
        error = (await told.first("failed"))[-1]
        assert "conflict with recovery" in str(error)
        await until_effects(servers.read_side, 2)
    each_once(await effects(servers.read_side), slow=1, b=1)


@pytest.mark.slow
async def test_a_server_that_is_behind_is_not_read(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name may lead to several standbys: a poll that one has confirmed says nothing of the others."""
    await happen(servers.primary, "a")
    async with stepped(servers.log) as reader:
        await reader.until("a")
    await servers.pause()
    primary = servers.log.primary
    assert primary is not None
    assert primary.relied_on is not None
    ahead = servers.both.primary.value("SELECT pg_current_wal_insert_lsn() - '0/0' + 1")
    await happen(servers.primary, "a")
    primary.relied_on = replace(primary.relied_on, place=int(ahead))

    monkeypatch.setattr(standby, "PATIENCE", 0.1)
    with pytest.raises(JournalUnavailable, match="has not replayed the last"):
        async with servers.log.session():
            pass
    monkeypatch.setattr(standby, "PATIENCE", 30)
    async with asyncio.TaskGroup() as group:
        lending = group.create_task(lent(servers.log))
        servers.resume()
        await lending


async def lent(log: Log) -> None:
    async with log.session():
        pass


@pytest.mark.slow
async def test_a_standby_that_is_late_on_purpose_is_read_at_its_own_pace(servers: Servers) -> None:
    """Its polls count late, and events come as it shows them."""
    servers.both.standby.value("ALTER SYSTEM SET recovery_min_apply_delay = '2s'")
    servers.both.standby.value("SELECT pg_reload_conf()")
    async with running(servers.read_side, recording(), journal=servers.log):
        for number in range(60):
            await happen(servers.primary, f"s{number % 5}")
            await asyncio.sleep(0.05)
        await until_effects(servers.read_side, 60)
    each_once(await effects(servers.read_side), **{f"s{n}": 12 for n in range(5)})


async def test_the_lag_counts_what_the_standby_has_not_replayed(servers: Servers) -> None:
    await happen(servers.primary, "a")
    await caught_up(servers.read_side, recording(), journal=servers.log)
    await servers.pause()
    await happen(servers.primary, "a", "b")

    async with servers.read_side.session() as session:
        lag = await projection_lag(session, "p", journal=servers.log)
    assert (lag.backlog, lag.lag > 0) == (2, True)

    servers.resume()
    await caught_up(servers.read_side, recording(), journal=servers.log)
    async with servers.read_side.session() as session:
        assert (await projection_lag(session, "p", journal=servers.log)).backlog == 0


@pytest.mark.slow
async def test_catching_up_means_what_the_primary_has(servers: Servers) -> None:
    await servers.pause()
    await happen(servers.primary, "a")
    async with asyncio.TaskGroup() as group:
        group.create_task(caught_up(servers.read_side, recording(), journal=servers.log))
        await until(
            servers.read_side, "SELECT count(*) = 1 FROM projections.projection_ranges WHERE epoch > 0"
        )
        servers.resume()
    assert await effects(servers.read_side) == [("a", 1)]


@pytest.mark.slow
async def test_ranges_that_wait_for_a_standby_whose_replay_is_paused_stop_together(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "PATIENCE", 3)
    asked = 0
    ask = standby.StandbyPolls.ask

    async def counted(self: Any, import_id: int, places: Any) -> Any:
        nonlocal asked
        asked += 1
        return await ask(self, import_id, places)

    monkeypatch.setattr(standby.StandbyPolls, "ask", counted)
    await servers.pause()
    await happen(servers.primary, "a")
    slow = settings(restart=Backoff(timedelta(hours=1), timedelta(hours=1)))
    async with running(servers.read_side, recording(), journal=servers.log, ranges=8, settings=slow) as told:
        error = (await told.first("failed"))[-1]
        assert "has not replayed the last" in str(error)
        failed = "SELECT count(*) = 8 FROM projections.projection_ranges WHERE failures = 1"
        await until(servers.read_side, failed)
    assert asked == 1  # and each range has waited three seconds, not up to 24

    servers.resume()
    await caught_up(servers.read_side, recording(), journal=servers.log)
    assert await effects(servers.read_side) == [("a", 1)]


@pytest.mark.slow  # each is killed above
async def test_servers_that_are_killed_while_a_projection_reads_behind_a_pooler(
    base_cluster: Server, databases: Databases, template: str
) -> None:
    """A pooler in transaction mode is in front of each; each event counts once, in the order of its source."""
    chance = random.Random(5)
    async with (
        hot_standby(base_cluster, databases, template) as servers,
        pooler(servers.both.primary.dsn("one"), "server_login_retry = 1") as primary_dsn,
        pooler(servers.both.standby.dsn("one"), "server_login_retry = 1") as standby_dsn,
        connect(primary_dsn) as primary,
        connect(standby_dsn) as replica,
    ):
        log, last = Log(replica, primary=Primary(primary)), dict.fromkeys([f"s{n}" for n in range(20)], 0)
        async with running(servers.read_side, recording(), journal=log, ranges=4):
            for life in range(6):
                for _ in range(40):
                    batch = chance.choices(list(last), k=10)
                    await happen(servers.primary, *batch)
                    for source in batch:
                        last[source] += 1
                await until_effects(servers.read_side, 400 * life + 100)  # it is in the middle of reading
                killed = servers.both.standby if life % 2 else servers.both.primary
                await asyncio.to_thread(killed.kill)
                await asyncio.to_thread(killed.start)
                await answering(servers.primary)
            await until_effects(servers.read_side, 2400)
        await caught_up(servers.read_side, recording(), journal=log)
        each_once(await effects(servers.read_side), **last)


@pytest.mark.slow
async def test_an_idle_primary_that_has_begun_a_new_segment_is_not_waited_for(servers: Servers) -> None:
    await happen(servers.primary, "a")
    servers.both.primary.value("SELECT pg_switch_wal()")
    heads = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') % (16 * 1024 * 1024)"
    assert servers.both.primary.value(heads) == 40  # no record will end there before something is written
    await servers.replayed()

    async with stepped(servers.log) as reader:
        await reader.until("a")


async def test_live_events_of_a_standby(servers: Servers) -> None:
    events = live_events(servers.log, "plane", start=BEGINNING)
    await happen(servers.primary, "a")
    async with servers.primary.session() as late:
        await late.begin()
        await append(late, [Event("late", {}, entity_type="plane", event_type="Happened")])
        await happen(servers.primary, "b")
        first = [(await anext(events)).source_id for _ in range(2)]
        await late.commit()
    assert [*first, (await anext(events)).source_id] == ["a", "b", "late"]
    await events.aclose()  # type: ignore[attr-defined]


_READER = """
CREATE ROLE reads LOGIN IN ROLE projections_reader
"""


@pytest.mark.slow
async def test_what_cannot_be_right_is_refused(servers: Servers, base_cluster: Server) -> None:
    read_side, projection = servers.read_side, recording()
    both = Log(servers.standby, primary=Primary(servers.standby))
    with pytest.raises(NeedsPrimary, match="named as the primary is a standby, too"):
        await run(read_side, projection, journal=both, until_caught_up=True)
    other = Log(servers.standby, primary=Primary(read_side))
    with pytest.raises(ForeignJournalError, match="of another cluster"):
        await run(read_side, projection, journal=other, until_caught_up=True)
    by_interval: Any = settings(backtracking="interval")
    with pytest.raises(InvalidValue, match="reading by interval asks no primary"):
        await run(read_side, projection, journal=servers.log, settings=by_interval)

    await execute(servers.primary, _READER)
    await servers.replayed()
    async with (
        connect(servers.both.standby.dsn("one").replace("postgres@", "reads@")) as replica,
        connect(servers.both.primary.dsn("one").replace("postgres@", "reads@")) as primary,
    ):
        log = Log(replica, primary=Primary(primary))
        with pytest.raises(MissingPrivilege, match="GRANT pg_read_all_stats TO reads, on the primary"):
            await run(read_side, projection, journal=log, until_caught_up=True)
        await execute(servers.primary, "GRANT pg_read_all_stats TO reads")
        await happen(servers.primary, "a")
        await servers.replayed()
        await caught_up(read_side, projection, journal=log)
    assert await effects(read_side) == [("a", 1)]


async def test_by_interval_a_standby_needs_no_primary_and_parks_nothing(servers: Servers) -> None:
    await servers.pause()
    await happen(servers.primary, "a", "a")
    await caught_up(servers.read_side, recording(), journal=Log(servers.primary))

    by_interval = settings(backtracking="interval", late_by=timedelta(milliseconds=300))
    log = Log(servers.standby)
    async with running(servers.read_side, recording(), journal=log, settings=by_interval) as told:
        # It misses what is handled: whether that is late or lost, nobody can tell.
        error = (await told.first("failed"))[-1]
        assert "the standby does not have event 2 of source 'a', which is handled" in str(error)
        servers.resume()
        await happen(servers.primary, "a", "b")
        await until_effects(servers.read_side, 4)
    each_once(await effects(servers.read_side), a=3, b=1)
    assert await fetchval(servers.read_side, "SELECT count(*) FROM projections.parked_sources") == 0
