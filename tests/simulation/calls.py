"""
Schedules of calls on a few connections, to be made on the simulated and on a real PostgreSQL alike.

A call is drawn by numbers, and its arguments are made from what earlier answers have told, such as an epoch or the time
of an event. What two servers cannot have in common (times, ids) is replaced in answers by what it is of.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from journal import BEGINNING, JOURNAL, slice_of
from journal.appending import _APPEND
from journal.backtracking import END_OF_TIME
from offsets import horizons, leases, management, parked, store
from tests.simulation.postgres.storage import Row

TYPE = "thing"
NAMES = ("p", "q")
OWNERS = ("a", "b")
SOURCES = ("s0", "s1", "s2", "s3")
_HOUR = timedelta(hours=1)
MARK = "ab"
_NEVER_AGAIN = timedelta(hours=-1)
"""A lease that has ended when it begins."""
_RELATIVE = {
    "db_timestamp",
    "horizon",
    "horizons",
    "others_horizon",
    "newest_events",
    "evicted_before",
    "handled_until",
    "imported_from",
}
_TIMES_OF_NOW = {
    "polled_at", "started_at", "claimed_at", "handled_at", "lease_until", "restarts_at", "now", "parked_at",
    "matched_at", "taken_until", "created_at", "updated_at",
}  # fmt: skip
_JSON = {"policy", "headers"}
"""As text, whose spaces and order say nothing."""
_OF_ONE_SERVER = {"lease_token", "wal_position", "system_identifier", "place", "_subscriptions_state_v1"}


class Call(NamedTuple):
    """A statement, and what is to be remembered of its answer."""

    name: str
    sql: str
    args: Sequence[Any] = ()
    remember: Callable[[list[Row]], None] = lambda _: None
    may_wait: bool = True
    """Whether it takes locks."""
    alone: bool = False
    """Made only while no transaction is open: who waits for it, and when, is not said."""


def look(name: str, sql: str, args: Sequence[Any] = ()) -> Call:
    """A statement that takes no locks."""
    return Call(name, sql, args, may_wait=False)


class Facts:
    """What the answers of one server have told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int, datetime]] = []
        self.outbox: list[tuple[str, int, datetime]] = []
        """Events of another system's table."""
        self.imported: dict[str, int] = defaultdict(int)
        """Of sources that are only imported, about where they stand."""
        self.claims: list[Row] = []
        self.projections: dict[tuple[str, str | None], int] = {}
        """By name, and the journal that is elsewhere."""
        self.prepared: list[str] = []
        self._gids = f"{uuid4().hex}_"  # a server has one space of names for all its databases
        self.beats: dict[str, int] = dict.fromkeys(OWNERS, 0)
        self._names: dict[datetime, str] = {BEGINNING: "beginning"}

    # Remembering

    def _appended(self, source_ids: Sequence[str]) -> Callable[[list[Row]], None]:
        def remember(rows: list[Row]) -> None:
            for source_id, row in zip(source_ids, rows, strict=True):
                event = source_id, row["seq_nr"], row["db_timestamp"]
                self.events.append(event)
                self._names[event[2]] = f"{source_id} {row['seq_nr']}, append {len(self.events)}"

        return remember

    def _held(self, owner: str) -> Callable[[list[Row]], None]:
        def remember(rows: list[Row]) -> None:
            self.beats[owner] += 1
            for row in sorted(rows, key=lambda row: row["projection_id"]):
                columns = [row[name] or [] for name in ("min_slices", "epochs", "horizons", "commits")]
                for held in sorted(zip(*columns, strict=True)):
                    names = ("min_slice", "epoch", "horizon", "commits")
                    claim = dict(zip(names, held, strict=True))
                    self.claims.append({"number": row["projection_id"], "owner": owner, **claim})

        return remember

    def _claimed(self, number: int, min_slice: int, owner: str) -> Callable[[list[Row]], None]:
        def remember(rows: list[Row]) -> None:
            for row in rows:
                told = {name: row[name] for name in ("epoch", "horizon", "commits")}
                self.claims.append({"number": number, "min_slice": min_slice, "owner": owner, **told})

        return remember

    def _registered(self, *part: Any) -> Callable[[list[Row]], None]:
        def remember(rows: list[Row]) -> None:
            (number,) = rows[0].values()
            self.projections = {one: n for one, n in self.projections.items() if n != number}
            self.projections[part] = number  # type: ignore[index]

        return remember

    # Choosing

    def event(self, n: int) -> tuple[str, int, datetime]:
        """One that was appended."""
        return self.events[n % len(self.events)] if self.events else ("s0", 1, BEGINNING)

    def _time(self, n: int) -> datetime:
        return self.event(n)[2] if n % 3 else BEGINNING

    def claim(self, n: int) -> Row:
        """A range that was held."""
        if not self.claims:
            return {"number": 1, "min_slice": 0, "owner": "a", "epoch": 1, "horizon": BEGINNING, "commits": 0}
        return self.claims[-1 - n % min(len(self.claims), 4)]

    def number(self, n: int) -> int:
        """Of a projection."""
        known = list(self.projections.values())
        return known[n % len(known)] if known else 1

    # Calls

    def begin(self, _a: int, _b: int) -> Call:
        return look("begin", "BEGIN ISOLATION LEVEL READ COMMITTED")

    def commit(self, _a: int, _b: int) -> Call:
        return look("commit", "COMMIT")

    def roll_back(self, _a: int, _b: int) -> Call:
        return look("rollback", "ROLLBACK")

    def prepare(self, _a: int, _b: int) -> Call:
        gid = f"{self._gids}{len(self.prepared)}"
        return Call("prepare", f"PREPARE TRANSACTION '{gid}'", (), lambda _: self.prepared.append(gid))

    def end_prepared(self, a: int, b: int) -> Call:
        gid = self.prepared.pop(a % len(self.prepared)) if self.prepared else f"{self._gids}0"
        return Call("end prepared", f"{'COMMIT' if b % 2 else 'ROLLBACK'} PREPARED '{gid}'")

    def append(self, a: int, b: int) -> Call:
        number = 1 + a % 3
        sources = [SOURCES[(b + n * (1 + a % 2)) % 4] for n in range(number)]
        nothing = [None] * number
        expected: tuple[list[str], list[int]] = ([sources[0]], [b % 5]) if a % 7 == 0 else ([], [])
        args = (
            sources, [TYPE] * number, ["happened"] * number, ['{"n": 1}'] * number, [1] * number, nothing, nothing,
            nothing, *expected,
        )  # fmt: skip
        return Call("append", _APPEND, args, self._appended(sources))

    def poll(self, a: int, b: int) -> Call:
        return look(
            "poll", JOURNAL.poll, (0, [TYPE, None][: 1 + b % 2], [self._time(a), self._time(b)][: 1 + b % 2])
        )

    def read(self, a: int, b: int) -> Call:
        source, seq_nr, at = self.event(a)
        after = (at, slice_of(source), source, seq_nr) if a % 2 else (self._time(a), -1, "", 0)
        slices = [(0, 1023), (0, 511), (512, 1023)][b % 3]
        until = END_OF_TIME if b % 4 else self._time(b)
        place = ([TYPE], *slices, *after, until, 1 + b % 5)
        if a % 3 == 0:
            return look("read keys", JOURNAL.keys, place)
        if a % 3 == 1:
            return look("read heads", JOURNAL.heads, place)
        return look("read events", JOURNAL.events, (*place, [600, 1100, 2**23][b % 3]))

    def load(self, a: int, b: int) -> Call:
        events = sorted({self.event(n) for n in (a, b, a + b)}, key=lambda e: e[2])
        columns = [list(column) for column in zip(*events, strict=True)]
        return look("load", JOURNAL.load, (*columns, [600, 2**23][b % 2]))

    def predecessors(self, a: int, b: int) -> Call:
        (one, n, _), (other, m, _) = self.event(a), self.event(b)
        return look(
            "predecessors", JOURNAL.predecessors, ([one, other], [n, m + 1], self._time(a), END_OF_TIME)
        )

    def read_source(self, a: int, b: int) -> Call:
        args = (SOURCES[a % 4], 1 + a % 3, 1 + b % 6, b % 2 == 0, 1 + a % 4, [600, 1100, 2**23][b % 3])
        return look("read source", JOURNAL.source, args)

    def latest(self, a: int, _b: int) -> Call:
        return look("latest", JOURNAL.latest, (SOURCES[a % 4],))

    def register(self, a: int, b: int) -> Call:
        name, journal = NAMES[a % 2], [None, None, "shop"][(a + b) % 3]
        cut = [[0], [0, 512], [0, 300, 700]][b % 3]
        types = [TYPE] if a % 5 else [TYPE, "other"]
        journals = [None, "shop"] if b % 2 else None
        args = (name, types, cut, 1, journal, journals)
        return Call("register", store._REGISTER, args, self._registered(name, journal))

    def beat(self, a: int, b: int) -> Call:
        owner = OWNERS[a % 2]
        answered, known = self.beats[owner] if a % 5 else 0, list(self.projections.items())
        lease = [_HOUR, _HOUR, _NEVER_AGAIN][b % 3]
        numbers, names = [number for _, number in known], [name for (name, _), _ in known]
        args = (
            owner, "host", 1, lease, numbers, names, [1] * len(known), b % 7 == 0, answered, self.beats[owner] + 1,
            [f'{{"{TYPE}"}}'] * len(known),
        )  # fmt: skip
        return Call("heartbeat", leases._HEARTBEAT, args, self._held(owner))

    def leave(self, a: int, _b: int) -> Call:
        return Call("leave", leases._LEAVE, (OWNERS[a % 2],))

    def take_over(self, a: int, b: int) -> Call:
        return Call("take over", leases._TAKE_OVER, (OWNERS[a % 2], [self.number(b)], [1]))

    def claim_again(self, a: int, _b: int) -> Call:
        claim = self.claim(a)
        place = claim["number"], claim["min_slice"], claim["owner"]
        return Call("claim again", store._CLAIM, place, self._claimed(*place))

    def _life(self, claim: Row, b: int) -> tuple[Any, ...]:
        return (self.beats[claim["owner"]] if b % 4 else 0, None, None)

    def release(self, a: int, b: int) -> Call:
        c = self.claim(a)
        args = (
            c["number"],
            c["min_slice"],
            c["epoch"],
            c["owner"],
            c["commits"],
            *self._life(c, b),
            self._time(b),
            0,
        )
        return Call("release", store._RELEASE, args, lambda _: c.update(commits=c["commits"] + 1))

    def save(self, a: int, b: int) -> Call:
        c = self.claim(a)
        events = {source: (seq_nr, at) for source, seq_nr, at in (self.event(n) for n in (a, b))}
        known = sorted(events)[: b % 3]
        order = known + sorted(events.keys() - known)
        args = (
            c["number"], c["min_slice"], c["epoch"], c["owner"], c["commits"], *self._life(c, b),
            MARK if a % 9 else "cd", self._time(b), 0, order, [slice_of(one) for one in order[len(known) :]],
            [events[one][0] - 1 for one in known], [events[one][0] for one in order], [events[one][1] for one in order],
            len(order), self._time(a) if a % 2 else None,
        )  # fmt: skip
        return Call("save offsets", store._SAVE, args, lambda _: c.update(commits=c["commits"] + 1))

    def save_horizons(self, a: int, b: int) -> Call:
        c = self.claim(a)
        place = (c["number"], [c["min_slice"]], [c["epoch"]], c["owner"], [c["commits"]])
        return Call(
            "save horizons", horizons._SAVE_HORIZONS, (*place, *self._life(c, b), [self._time(b)], [0])
        )

    def went_back(self, a: int, b: int) -> Call:
        c = self.claim(a)
        return look("went back", horizons._WENT_BACK, (c["number"], [c["min_slice"]], [c["epoch"] + b % 2]))

    def fail(self, a: int, b: int) -> Call:
        c = self.claim(a)
        return Call("fail", store._FAIL, (c["number"], c["min_slice"], c["epoch"], b, "why", _HOUR))

    def read_offsets(self, a: int, _b: int) -> Call:
        return look("read offsets", store._READ, (self.number(a), list(SOURCES)))

    def park(self, a: int, b: int) -> Call:
        source, number = SOURCES[b % 4], self.number(a)
        if number not in self.projections.values():
            return self.latest(a, b)
        return Call(
            "park", store._PARK, (number, source, slice_of(source), 1 + a % 3, "happened", "why", 1, None)
        )

    def unpark(self, a: int, b: int) -> Call:
        number, source = self.number(a), SOURCES[b % 4]
        if a % 3 == 0:
            return Call("advance", store._ADVANCE_PARKED, (number, source, 1 + b % 3, 2 + b % 3))
        if a % 3 == 1:
            return Call("decide", parked._DECIDE, ([number], source if b % 2 else None, None, "retry"))
        return Call("unpark", store._UNPARK, (number, source))

    def ask(self, a: int, b: int) -> Call:
        number = self.number(a)
        return [
            look("find", management._FIND, (None if b % 2 else list(NAMES),)),
            look("ranges", leases._RANGES, ([number],)),
            look("parked", store._PARKED, (number, 0, 1023)),
            look("evicted before", store._EVICTED_BEFORE, (number,)),
            look("reads", store._READS, (number,)),
            look("types", JOURNAL.types),
            look("may evict", store._MAY_EVICT, (number, 0, timedelta(0))),
            look("all offsets", store._ALL, (number, 10)),
        ][(a + b) % 8]

    def evict(self, a: int, _b: int) -> Call:
        if self.number(a) not in self.projections.values():
            return self.latest(a, 0)
        return Call("evict", store._EVICT, (self.number(a), timedelta(0), ""))

    def evict_up_to(self, a: int, b: int) -> Call:
        return Call("evict up to", store._EVICT_UP_TO, (self.number(a), 0, self._time(b), timedelta(0)))

    def forget(self, a: int, b: int) -> Call:
        return Call("forget", store._FORGET, (self.number(a), [SOURCES[b % 4]]))

    def cut(self, a: int, b: int) -> Call:
        if self.number(a) not in self.projections.values():
            return self.latest(a, b)
        cuts = [[0], [0, 512], [0, 256, 512, 768], [0, 100], [0, 5, 9, 700, 900]]
        return Call("cut", management._SET_RANGES, (self.number(a), cuts[b % 5]))

    def pause(self, a: int, b: int) -> Call:
        return Call("pause", management._SET_PAUSED, ([self.number(a)], b % 2 == 0))

    # What is compared

    def name_time(self, at: datetime, name: str) -> None:
        """Call a time what both servers call it."""
        self._names[at] = name

    def plain(self, name: str, rows: list[Row]) -> list[Any]:
        """An answer without what no other server can have told."""
        plain = [{column: self._plain(column, value) for column, value in row.items()} for row in rows]
        if name == "heartbeat":
            plain = [self._by_range(row) for row in plain]
        ordered = name.startswith("read") or name == "load"
        return plain if ordered else sorted(plain, key=repr)

    @staticmethod
    def _by_range(row: Row) -> Row:
        arrays = [
            column for column, value in row.items() if isinstance(value, list) and column != "entity_types"
        ]
        ranges = sorted(zip(*(row[column] for column in arrays), strict=True))
        return {**{c: v for c, v in row.items() if c not in arrays}, "ranges": ranges}

    def _plain(self, column: str, value: Any) -> Any:
        if column in _OF_ONE_SERVER or isinstance(value, UUID):
            return value is not None
        if column in _JSON | _TIMES_OF_NOW and value is not None:
            return json.loads(value) if column in _JSON else "a time"
        if column == "holders":
            # One that ends with a mark may have ended its work a moment ago: when it waits again, no call says.
            return sorted("p" if holder.startswith("p") else "" for holder in value if "?" not in holder)
        if column == "holder_starts":
            return sum(start is not None for start in value)
        if column in _RELATIVE and isinstance(value, list):
            return [self._plain(column, one) for one in value]
        return self._names.get(value, "another time") if isinstance(value, datetime) else value


CALLS: list[Callable[[Facts, int, int], Call]] = [
    Facts.begin, Facts.begin, Facts.begin, Facts.commit, Facts.commit, Facts.commit, Facts.roll_back, Facts.prepare,
    Facts.end_prepared, Facts.append, Facts.append, Facts.append, Facts.append, Facts.poll, Facts.poll, Facts.read,
    Facts.read, Facts.load, Facts.predecessors, Facts.read_source, Facts.latest, Facts.register, Facts.register,
    Facts.beat, Facts.beat, Facts.beat, Facts.beat, Facts.leave, Facts.take_over, Facts.claim_again, Facts.release,
    Facts.save, Facts.save, Facts.save, Facts.save_horizons, Facts.save_horizons, Facts.went_back, Facts.fail,
    Facts.read_offsets, Facts.park, Facts.unpark, Facts.ask, Facts.ask, Facts.evict, Facts.evict_up_to,
    Facts.evict_up_to, Facts.forget, Facts.cut, Facts.pause,
]  # fmt: skip
