"""The lag and the backlog that the database tells are those of the events that are not handled."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg
import pytest

import offsets
from journal import Database, Event, NotFound, append_sync, import_events, slice_of
from journal.database import connect
from projections import Recovery
from projections.monitoring import projection_lag, snapshot
from projections.monitoring.lag import State
from tests.fixtures.journal import historic
from tests.fixtures.plans import RUNS, shared_blocks
from tests.fixtures.projections import (
    EFFECTS,
    NO_RETRY,
    caught_up,
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

STAGED = """
CREATE TEMPORARY TABLE IF NOT EXISTS projections_import (
    source_id text, entity_type text, event_type text, payload text, metadata text, tags text,
    version smallint, seq_nr bigint, db_timestamp timestamptz, event_id uuid
)
"""
RANGES = """
SELECT min_slice, max_slice, epoch, horizon, import_id FROM projections.projection_ranges
WHERE projection_id = 1 ORDER BY min_slice
"""
SAVE = """
SELECT projections.save_offsets_v1(
    1, r.min_slice, r.epoch, r.owner, r.commits, 0, NULL, NULL, 'b', %s, %s, %s, %s::smallint[], %s, %s, %s, %s
)
FROM projections.projection_ranges AS r WHERE r.projection_id = 1 AND r.min_slice = %s
"""
OWN = "UPDATE projections.projection_ranges SET owner = 'me' WHERE projection_id = 1"
LAG = "SELECT slice, backlog, oldest_unhandled, parked FROM projections.slice_lag_v1('{1}')"
OF_RANGES = """
SELECT slice, backlog, oldest_unhandled, parked FROM projections.slice_lag_v1('{1,2}', FALSE) WHERE projection_id = 1
"""
HOUR = timedelta(hours=1)


class Stored(NamedTuple):
    source_id: str
    seq_nr: int
    slice: int
    at: datetime


class Range(NamedTuple):
    min_slice: int
    max_slice: int
    epoch: int
    horizon: datetime
    import_id: int


class Model:
    """
    A journal and a projection whose every step is chosen at random, and what has been handled by the model's own word.

    It takes the steps that workers take, through the functions that they call: it never moves a horizon past an event
    that is not handled or may still be committed.
    """

    def __init__(self, dsn: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.db = psycopg.connect(dsn, autocommit=True)
        self.writer = psycopg.connect(dsn)
        self.names = [f"s{n}" for n in range(12)]
        self.handled: set[tuple[str, datetime]] = set()
        self.parked: set[str] = set()
        self.imported: dict[str, int] = {}
        self.open: list[str] = []
        self.db.execute(STAGED)
        cuts = [0, *sorted(slice_of(name) for name in self.names[:3])]
        self.db.execute("SELECT projections.register_projection_v1('p', '{plane}', %s)", [cuts])
        self.db.execute("SELECT projections.register_projection_v1('other', '{plane}', '{0}')")

    def step(self) -> None:
        steps: dict[Callable[[], None], int] = {
            self.append: 10, self.handle: 12, self.begin_late: 3, self.end_late: 3, self.park: 2, self.unpark: 2,
            self.rescale: 2, self.import_history: 2, self.evict: 2, self.set_offset: 1,
        }  # fmt: skip
        self.random.choices(list(steps), list(steps.values()))[0]()

    def append(self) -> None:
        free = [name for name in self.names if name not in self.open]
        chosen = self.random.choices(free, k=self.random.randint(1, 6))
        noise = Event("noise", {}, entity_type="airport", event_type="Opened")
        with self.db.transaction():
            append_sync(self.db, [*map(landed, chosen), noise])

    def begin_late(self) -> None:
        if not self.open:
            self.open = self.random.sample(self.names, 2)
            append_sync(self.writer, [landed(name) for name in self.open])

    def end_late(self) -> None:
        self.writer.commit() if self.random.random() < 0.8 else self.writer.rollback()
        self.open = []

    def handle(self) -> None:
        """A batch of one range: of each source, some of the events that are next."""
        part = self.random.choice(self.ranges())
        looks = self.random.random() < 0.5
        import_id = self.last_import() if looks else part.import_id
        due = [e for e in self.waiting(part) if self.imported.get(e.source_id, 0) <= import_id]
        sources = sorted({e.source_id for e in due})
        chosen = self.random.sample(sources, self.random.randint(0, len(sources)))
        batch = [e for source_id in chosen for e in self.some([e for e in due if e.source_id == source_id])]
        self.save(part, batch, import_id)

    def save(self, part: Range, batch: list[Stored], import_id: int) -> None:
        self.handled |= {(e.source_id, e.at) for e in batch}
        left = [e.at for e in self.waiting(part) if self.imported.get(e.source_id, 0) <= import_id]
        bound = min([*left, *self.in_flight(), self.now()])
        horizon = min(part.horizon, bound)
        horizon += self.random.choice([0.0, 0.5, 1.0]) * (bound - horizon)
        stand = dict(self.db.execute("SELECT source_id, seq_nr FROM projections.source_offsets").fetchall())
        last = list({e.source_id: e for e in sorted(batch, key=lambda e: e.seq_nr)}.values())
        last.sort(key=lambda e: e.source_id not in stand)
        columns = [
            [e.source_id for e in last],
            [e.slice for e in last if e.source_id not in stand],
            [stand[e.source_id] for e in last if e.source_id in stand],
            [e.seq_nr for e in last],
            [e.at for e in last],
        ]
        with self.db.transaction():
            self.db.execute("SELECT set_config('projections.batch', 'b', true)")
            self.db.execute(OWN)
            self.db.execute(SAVE, [horizon, import_id, *columns, len(batch), part.min_slice])

    def park(self) -> None:
        if due := [e for e in self.unhandled() if e.source_id not in self.parked]:
            e = self.random.choice(due)
            first = min(other.seq_nr for other in due if other.source_id == e.source_id)
            self.db.execute(
                "SELECT projections._park_source_v1(1, %s, %s, %s, 'Landed', 'why', 1)",
                [e.source_id, e.slice, first],
            )
            self.parked.add(e.source_id)

    def unpark(self) -> None:
        """What waits is handled before the source flows on."""
        if self.parked:
            source_id = self.random.choice(sorted(self.parked))
            (part,) = [r for r in self.ranges() if r.min_slice <= slice_of(source_id) <= r.max_slice]
            batch = [e for e in self.unhandled() if e.source_id == source_id]
            self.save(part, batch, part.import_id)
            self.db.execute("DELETE FROM projections.parked_sources WHERE source_id = %s", [source_id])
            self.parked.discard(source_id)

    def rescale(self) -> None:
        cuts = {0, *(slice_of(name) + self.random.randint(0, 1) for name in self.some(self.names))}
        self.db.execute("SELECT projections._set_ranges_v1(1, %s)", [sorted(cuts)])

    def import_history(self) -> None:
        """New sources, with times that the ranges have passed; what was evicted allows none older."""
        (oldest,) = self.fetch("SELECT evicted_before FROM projections.projections WHERE projection_id = 1")[
            0
        ]
        since = max(oldest, self.now() - HOUR)
        name, count = f"h{len(self.imported)}", self.random.randint(1, 4)
        apart = (self.now() - since) / (count + 1)
        for n in range(1, count + 1):
            self.db.execute(
                "INSERT INTO pg_temp.projections_import VALUES "
                "(%s, 'plane', 'Landed', '{}', NULL, NULL, 1, %s, %s, NULL)",
                [name, n, since + n * apart],
            )
        self.db.execute("SELECT projections._import_events_v1()")
        self.imported[name] = self.last_import()

    def evict(self) -> None:
        self.db.execute("SELECT projections._evict_offsets_v1(1, '0', '')")

    def set_offset(self) -> None:
        if events := self.events():
            start = self.random.choice(events).at
            self.db.execute("SELECT projections._set_offset_v1(1, %s)", [start])
            late = {(name, at) for name, _, at in self.late() if at < start}
            self.handled = {(e.source_id, e.at) for e in events if e.at < start} | late
            self.parked = set()

    def check(self) -> None:
        expected: dict[int, list[Any]] = {}
        for e in self.unhandled():
            if e.source_id not in self.parked:
                found = expected.setdefault(e.slice, [0, e.at, 0])
                found[:2] = found[0] + 1, min(found[1], e.at)
        for source_id in self.parked:
            expected.setdefault(slice_of(source_id), [0, None, 0])[2] += 1

        assert {row[0]: list(row[1:]) for row in self.fetch(LAG)} == expected
        summed: dict[int, list[Any]] = {}
        for slice_number, (backlog, oldest, parked) in expected.items():
            first = max(r.min_slice for r in self.ranges() if r.min_slice <= slice_number)
            one = summed.setdefault(first, [0, None, 0])
            times = [at for at in (one[1], oldest) if at is not None]
            summed[first] = [one[0] + backlog, min(times, default=None), one[2] + parked]
        assert {row[0]: list(row[1:]) for row in self.fetch(OF_RANGES)} == summed

    def some(self, things: list[Any]) -> list[Any]:
        return things[: self.random.randint(0, len(things))]

    def waiting(self, part: Range) -> list[Stored]:
        return [
            e
            for e in self.unhandled()
            if part.min_slice <= e.slice <= part.max_slice and e.source_id not in self.parked
        ]

    def unhandled(self) -> list[Stored]:
        return [e for e in self.events() if (e.source_id, e.at) not in self.handled]

    def events(self) -> list[Stored]:
        query = "SELECT source_id, seq_nr, slice, db_timestamp FROM projections.events WHERE entity_type = 'plane' "
        return [Stored(*row) for row in self.fetch(query + "ORDER BY source_id, seq_nr")]

    def late(self) -> list[tuple[str, int, datetime]]:
        """What the open transaction has appended."""
        if not self.open:
            return []
        query = "SELECT source_id, seq_nr, db_timestamp FROM projections.events WHERE source_id = ANY(%s)"
        seen = {(e.source_id, e.seq_nr) for e in self.events()}
        return [
            row for row in self.writer.execute(query, [self.open]).fetchall() if (row[0], row[1]) not in seen
        ]

    def in_flight(self) -> list[datetime]:
        return [at for _, _, at in self.late()]

    def ranges(self) -> list[Range]:
        return [Range(*row) for row in self.fetch(RANGES)]

    def last_import(self) -> int:
        return int(self.fetch("SELECT coalesce(max(import_id), 0) FROM projections.imports")[0][0])

    def now(self) -> datetime:
        now: datetime = self.fetch("SELECT clock_timestamp()")[0][0]
        return now

    def fetch(self, query: str, *args: Any) -> list[Any]:
        return self.db.execute(query.encode(), *args).fetchall()


def landed(source_id: str) -> Event:
    return Event(source_id, {}, entity_type="plane", event_type="Landed")


@contextmanager
def model(dsn: str, seed: int) -> Iterator[Model]:
    made = Model(dsn, seed)
    with made.db, made.writer:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_backlog_is_what_a_count_of_unhandled_events_says(dsn: str, seed: int) -> None:
    with model(dsn, seed) as steps:
        for _ in range(60):
            steps.step()
            steps.check()


@pytest.mark.slow
async def test_backlog_of_a_running_projection_is_what_it_has_not_handled(database: Database) -> None:
    await execute(database, EFFECTS)
    await happen(database, *(f"s{n}" for n in range(40)))
    await caught_up(database, recording(), ranges=4)
    await happen(database, *(f"s{n}" for n in range(30, 60)))

    async with database.session() as session:
        found = await projection_lag(session, "p")

    assert (found.backlog, found.handled) == (30, 40)
    assert sum(one.backlog for one in found.slices) == sum(part.backlog for part in found.ranges) == 30


async def test_nothing_is_behind_when_all_is_handled(database: Database) -> None:
    await execute(database, EFFECTS)
    await happen(database, "a", "b")
    await caught_up(database, recording())

    async with database.session() as session:
        found = await projection_lag(session, "p")

    assert (found.lag, found.backlog, found.parked) == (0, 0, 0)


async def test_lag_is_the_age_of_the_oldest_unhandled_event_of_the_slice(database: Database) -> None:
    await execute(database, EFFECTS)
    await caught_up(database, recording(), ranges=2)
    await happen(database, "a")
    before = await fetchval(database, "SELECT clock_timestamp() - max(db_timestamp) FROM projections.events")
    async with database.session() as session:
        found = await projection_lag(session, "p")
    after = await fetchval(database, "SELECT clock_timestamp() - max(db_timestamp) FROM projections.events")

    behind = [one for one in found.slices if one.lag > 0]
    assert [one.slice for one in behind] == [slice_of("a")]
    assert before.total_seconds() < behind[0].lag == found.lag < after.total_seconds()


async def test_all_slices_are_told_with_what_their_range_has(database: Database) -> None:
    await execute(database, EFFECTS)
    await happen(database, "a")
    await caught_up(database, recording(), ranges=3)

    async with database.session() as session:
        found = await projection_lag(session, "p")

    assert [one.slice for one in found.slices] == list(range(1024))
    (part,) = [part for part in found.ranges if slice_of("a") in part.slices]
    one = found.slices[slice_of("a")]
    assert (one.handled_at, one.owner, one.epoch) == (part.handled_at, part.owner, part.epoch)
    assert one.handled_at is not None


async def states(database: Database) -> tuple[set[State], set[State]]:
    async with database.session() as session:
        found = await projection_lag(session, "p")
    return {part.state for part in found.ranges}, {one.state for one in found.slices}


async def test_a_range_that_nobody_runs_is_unclaimed(database: Database) -> None:
    await execute(database, EFFECTS)
    await caught_up(database, recording())

    assert await states(database) == ({State.UNCLAIMED}, {State.UNCLAIMED})


async def test_a_range_whose_owner_has_gone_without_a_word_is_unclaimed(database: Database) -> None:
    await execute(database, EFFECTS)
    await caught_up(database, recording())
    await execute(database, "UPDATE projections.projection_ranges SET owner = 'gone'")

    async with database.session() as session:
        found = (await projection_lag(session, "p")).ranges[0]

    assert (found.owner, found.alive, found.state) == ("gone", False, State.UNCLAIMED)


async def test_a_range_that_a_live_worker_holds_is_running(database: Database) -> None:
    await execute(database, EFFECTS)
    async with running(database, recording()):
        await until(database, "SELECT bool_and(owner IS NOT NULL) FROM projections.projection_ranges")

        assert await states(database) == ({State.RUNNING}, {State.RUNNING})


async def test_a_paused_projection_is_paused_and_its_backlog_grows(database: Database) -> None:
    await execute(database, EFFECTS)
    async with running(database, recording()):
        async with database.session() as session:
            await offsets.set_paused(session, "p", paused=True)
        await happen(database, "a", "b")

        found = await states(database)

    assert found == ({State.PAUSED}, {State.PAUSED})


async def test_a_range_that_has_failed_is_restarting_and_says_why(database: Database) -> None:
    await execute(database, EFFECTS)
    await happen(database, "a")
    fail = recording(failing(("a", 1)), recovery=Recovery.fail())
    async with running(database, fail, ranges=1) as told:
        await told.first("failed")
        await until(database, "SELECT failures > 0 FROM projections.projection_ranges")

        async with database.session() as session:
            found = await projection_lag(session, "p")

    (part,) = found.ranges
    assert part.state is State.RESTARTING
    assert part.failures > 0
    assert "a 1" in (part.error or "")
    assert part.restarts_at is not None
    assert found.backlog == 1


@pytest.mark.slow
async def test_a_slice_with_a_parked_source_is_parked_and_its_events_count_apart(database: Database) -> None:
    await execute(database, EFFECTS)
    await happen(database, "a", "b")
    async with running(database, recording(failing(("a", 1)), recovery=NO_RETRY), ranges=1) as told:
        await told.first("parked")
        await until_effects(database, 1)
        await happen(database, "a")

        async with database.session() as session:
            found = await projection_lag(session, "p")

    assert {one.slice for one in found.slices if one.state is State.PARKED} == {slice_of("a")}
    assert found.ranges[0].state is State.PARKED
    assert (found.parked, found.backlog, found.lag) == (1, 0, 0)
    assert found.parked_since is not None


async def test_a_snapshot_has_all_projections_workers_and_open_writers(database: Database, dsn: str) -> None:
    await execute(database, EFFECTS)
    with psycopg.connect(dsn, application_name="slow-writer") as writer:
        append_sync(writer, [landed("a")])
        pid = writer.info.backend_pid
        async with running(database, recording(), recording(name="q"), settings=settings()):
            await until(database, "SELECT bool_and(owner IS NOT NULL) FROM projections.projection_ranges")
            async with database.session() as session:
                found = await snapshot(session)
                only = await snapshot(session, ["q"])

    assert [one.name for one in found.projections] == ["p", "q"]
    assert [one.name for one in only.projections] == ["q"]
    (worker,) = found.workers
    assert {part.owner for one in found.projections for part in one.ranges} == {worker.owner}
    (open_writer,) = found.writers
    assert (open_writer.pid, open_writer.application_name) == (pid, "slow-writer")
    assert open_writer.age > 0


async def test_an_unknown_projection_is_told_with_those_that_are_known(database: Database) -> None:
    async with database.session() as session:
        with pytest.raises(NotFound, match="no projection 'nope' has run"):
            await projection_lag(session, "nope")


async def test_who_may_only_read_sees_the_lag(database: Database, login: Callable[[str], str]) -> None:
    await execute(database, EFFECTS)
    await caught_up(database, recording())
    await happen(database, "a")

    async with connect(login("projections_reader")) as reader, reader.session() as session:
        found = await snapshot(session)

    assert found.projections[0].backlog == 1


async def test_imported_history_is_backlog_although_no_worker_has_looked(database: Database) -> None:
    await execute(database, EFFECTS)
    await happen(database, "a")
    await caught_up(database, recording())
    await import_events(database, [historic("old", n) for n in range(1, 6)])

    async with database.session() as session:
        found = await projection_lag(session, "p")

    assert found.backlog == 5
    assert found.lag > 365 * 86_400


@pytest.mark.slow
def test_what_is_handled_costs_nothing(dsn: str) -> None:
    """The pages that are read depend on what is behind, not on the log."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        names = [f"s{n}" for n in range(200)]
        for _ in range(50):
            append_sync(connection, [landed(name) for name in names])
        connection.execute("SELECT projections.register_projection_v1('p', '{plane}', '{0}')")
        behind = pages(connection)
        connection.execute(
            "UPDATE projections.projection_ranges SET handled_until = e.at, horizon = e.at "
            "FROM (SELECT max(db_timestamp) AS at FROM projections.events) AS e"
        )

        done = pages(connection)

    assert behind > 150
    assert done < 100


def pages(connection: psycopg.Connection[Any]) -> int:
    query = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM projections.slice_lag_v1('{1}')"
    return min(shared_blocks(connection.execute(query.encode()).fetchall()[0][0]) for _ in range(RUNS))
