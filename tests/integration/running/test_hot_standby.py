"""Reading the journal from a hot standby: its primary says what is open, and nothing is lost however late replay is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from journal import (
    ALL_SLICES,
    BEGINNING,
    ConnectionSettings,
    Database,
    DatabaseUnavailable,
    EntityTypes,
    Event,
    EventEnvelope,
    InvalidValue,
    Log,
    MissingPrivilege,
    Poll,
    Primary,
    ReadEvents,
    ReadKeys,
    SliceReader,
    WriterLockBacktracking,
    WritersPoller,
    append,
    connect,
    standby,
)
from journal.errors import ForeignJournalError, NeedsPrimary
from journal.standby import PrimaryPoll
from offsets import live_events
from projections import run
from projections.monitoring import projection_lag
from tests.fixtures.failover import Pair, Server, pair
from tests.fixtures.postgres import Databases
from tests.fixtures.projections import (
    EFFECTS,
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

pytestmark = pytest.mark.timeout(120)


class Servers:
    """A primary, a standby that follows it, and read models elsewhere."""

    def __init__(self, servers: Pair, primary: Database, standby: Database, read_side: Database) -> None:
        self.both = servers
        self.primary = primary
        self.standby = standby
        self.read_side = read_side
        self.log = Log(standby, primary=Primary(primary))

    async def replayed(self) -> None:
        """Wait until the standby has what the primary has committed."""
        until = self.both.primary.value("SELECT pg_current_wal_flush_lsn()")
        await asyncio.to_thread(self.both.standby.until, f"SELECT pg_last_wal_replay_lsn() >= '{until}'")

    async def pause(self) -> None:
        """Let the standby replay nothing more."""
        self.both.standby.value("SELECT pg_wal_replay_pause()")
        paused = "SELECT pg_get_wal_replay_pause_state() = 'paused'"
        await asyncio.to_thread(self.both.standby.until, paused)

    def resume(self) -> None:
        self.both.standby.value("SELECT pg_wal_replay_resume()")


@pytest.fixture
async def servers(base_cluster: Server, databases: Databases, template: str) -> AsyncIterator[Servers]:
    async with pair(base_cluster, "one") as both:
        await asyncio.to_thread(both.follow)
        with databases.fresh(template) as dsn:
            async with (
                connect(both.primary.dsn("one")) as primary,
                connect(both.standby.dsn("one"), ConnectionSettings(max_connections=5)) as standby,
                connect(dsn) as read_side,
            ):
                await execute(read_side, EFFECTS)
                yield Servers(both, primary, standby, read_side)


class Stepped:
    """A reader that a test drives from poll to poll. It fills no gaps: what its bound does not find is lost."""

    def __init__(self, log: Log) -> None:
        self.seen: list[tuple[str, int]] = []
        self.machine = WriterLockBacktracking(BEGINNING)
        self._log = log
        self._poller = WritersPoller(log)
        self._reader = SliceReader("plane", ALL_SLICES)
        self._number = 0

    async def turn(self, turns: int = 1) -> Sequence[tuple[str, int]]:
        """Poll, and read what that allows; returns all that was found up to now."""
        for _ in range(turns):
            assert isinstance(self.machine.next_step(), Poll)
            place = self.machine.position.db_timestamp
            look = await self._poller.look(self, EntityTypes(("plane",)), place, self._number, 0)
            self._number = look.number
            self.machine.polled(look.poll)
            while not isinstance(step := self.machine.next_step(), Poll):
                await self._read(step)
        return self.seen

    async def until(self, *found: str) -> None:
        """Turn until the first events of these sources are found."""
        async with asyncio.timeout(30):
            while {(source_id, 1) for source_id in found} - set(self.seen):
                await self.turn()

    async def _read(self, step: ReadKeys | ReadEvents) -> None:
        async with self._log.lend() as session:
            if isinstance(step, ReadKeys):
                keys = await self._reader.keys(session, step.after, step.until)
                late = [key for key in keys if key[:2] not in self.seen]
                self._take((await self._reader.load(session, late))[0])
                self.machine.keys_read(keys[-1].position if keys else None, full=keys.more)
            else:
                page = await self._reader.events(session, step.after, step.until)
                self._take(page)
                self.machine.events_read(page[-1].position if page else None, full=page.more)

    def _take(self, page: Sequence[EventEnvelope]) -> None:
        self.seen += [key for one in page if (key := (one.source_id, one.seq_nr)) not in self.seen]

    async def close(self) -> None:
        await self._poller.close()


@asynccontextmanager
async def stepped(log: Log) -> AsyncIterator[Stepped]:
    one = Stepped(log)
    try:
        yield one
    finally:
        await one.close()


async def step_by_step(servers: Servers) -> list[tuple[str, int]]:
    """A late commit, with replay paused before it and polls at each point; returns what a reader has found."""
    async with stepped(servers.log) as reader, servers.primary.session() as late:
        await late.begin()
        await append(late, [Event("late", {}, entity_type="plane", event_type="Happened")])
        await happen(servers.primary, "early")
        await reader.until("early")
        open_since = reader.machine.horizon
        await servers.pause()
        await reader.turn(3)  # it is open, and the standby has not replayed what the primary has written
        await late.commit()
        await reader.turn(3)  # it has ended, and the standby does not know
        await happen(servers.primary, "after")
        await reader.turn(3)
        assert reader.seen == [("early", 1)]
        settled = reader.machine.horizon
        servers.resume()
        await servers.replayed()
        await happen(servers.primary, "last")
        await reader.until("last")
        await reader.turn(5)
        assert reader.machine.horizon > settled
        if ("late", 1) in reader.seen:
            assert settled == open_since  # nothing was settled that the standby had not shown
        return list(reader.seen)


async def test_a_late_commit_is_found_with_replay_paused_at_each_point(servers: Servers) -> None:
    assert sorted(await step_by_step(servers)) == [("after", 1), ("early", 1), ("last", 1), ("late", 1)]


async def test_a_poll_that_does_not_wait_for_replay_loses_it(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PrimaryPoll, "why_not", lambda _, __: None)

    assert sorted(await step_by_step(servers)) == [("early", 1), ("last", 1)]


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
    async with asyncio.timeout(60):
        while True:
            try:
                await fetchval(database, "SELECT 1")
            except DatabaseUnavailable:
                await asyncio.sleep(0.05)
            else:
                return


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
        assert "is no standby of the primary any more" in str(error)
    assert await effects(servers.read_side) == [("a", 1)]

    # It is the primary now, and has what was handled: whoever names it as both goes on.
    async with connect(servers.both.standby.dsn("one")) as promoted:
        await happen(promoted, "a", "b")
        log = Log(promoted, primary=Primary(promoted))
        await caught_up(servers.read_side, recording(), journal=log)
    each_once(await effects(servers.read_side), a=2, b=1)


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
