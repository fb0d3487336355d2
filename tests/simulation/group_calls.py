"""Calls about groups: subscribing, matching, reading and moving cursors."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from journal import BEGINNING, slice_of
from offsets import leases
from projections.subscriptions import dead_letters, groups, matching, reading, subscribing
from tests.simulation.calls import TYPE, Call, Facts, look
from tests.simulation.postgres.reading_groups import POLL
from tests.simulation.postgres.storage import Row

GROUPS = ("g0", "g1")
READERS = ("r0", "r1", "r2")
HANDLERS = ("h0", "h1")
_ASKED: tuple[dict[str, list[str]], ...] = (
    {},
    {"topics": ["happened"]},
    {"types": [TYPE]},
    {"types": ["other"]},
)
_LONG, _OVER, _NOW = timedelta(hours=1), timedelta(microseconds=1), timedelta(0)


class Held(NamedTuple):
    """A range of a group that was held."""

    group: str
    owner: str
    row: Row


class Groups:
    """What the answers of one server have told of groups."""

    def __init__(self) -> None:
        self.subscriptions: list[tuple[str, int]] = []
        self.handlers: list[int] = []
        self.held: list[Held] = []
        self.joined: set[tuple[str, str]] = set()
        self.settled = 0
        self.places: dict[str, list[tuple[int, Any]]] = defaultdict(list)
        """Matches that were read, by number and time."""
        self.interests: list[str] = []
        self.taken: list[Row] = []
        """Batches that failed, and were taken to be handled again."""

    def range(self, n: int) -> Held:
        """One that was held."""
        if not self.held:
            nothing = {"min_slice": 0, "max_slice": 1023, "epoch": 1, "cursor": 0, "handler_id": None}
            return Held("g0", "r0", nothing)
        return self.held[-1 - n % min(len(self.held), 4)]

    def place(self, group: str, n: int) -> tuple[int, Any]:
        """After a match that was read."""
        known = self.places[group]
        return known[-1 - n % min(len(known), 5)] if known else (n % 3, None)


_known: WeakKeyDictionary[Facts, Groups] = WeakKeyDictionary()


def known(facts: Facts) -> Groups:
    """What is known of groups alongside the rest."""
    return _known.setdefault(facts, Groups())


def make_group(facts: Facts, a: int, b: int) -> Call:
    cuts = [[0], [0, 512], [0, 300, 700]][b % 3]
    return Call("create group", groups._CREATE, (GROUPS[a % 2], True, cuts, None))


def subscribe(facts: Facts, a: int, b: int) -> Call:
    group, asked = GROUPS[a % 2], _ASKED[b % 4]
    args = (group, None, "{}", None, asked.get("topics"), asked.get("types"), True, None)
    told = known(facts).subscriptions
    return Call(
        "subscribe", subscribing._SUBSCRIBE, args, lambda rows: told.append((group, rows[0]["subscribe_v1"]))
    )


def register_handler(facts: Facts, a: int, b: int) -> Call:
    told = known(facts)
    if not told.subscriptions:
        return subscribe(facts, a, b)
    group, number = told.subscriptions[b % len(told.subscriptions)]
    return Call(
        "register handler", subscribing._REGISTER, (group, HANDLERS[a % 2], number),
        lambda rows: told.handlers.extend(n for n in rows[0].values() if n is not None),
    )  # fmt: skip


def keep(facts: Facts, a: int, b: int) -> Call:
    numbers = [number for _, number in known(facts).subscriptions[: a % 4]]
    return Call("keep", subscribing._KEEP, ([*numbers, 999],))


def join_group(facts: Facts, a: int, b: int) -> Call:
    told, group, owner = known(facts), GROUPS[a % 2], READERS[b % 3]
    joined = (group, owner) in told.joined or a % 13 == 0
    handlers = told.handlers[: 1 + b % 4] if a % 3 else list(told.handlers)
    lease = _OVER if b % 11 == 0 else _LONG

    def remember(rows: list[Row]) -> None:
        told.joined.add((group, owner))
        told.held += [Held(group, owner, dict(row)) for row in rows]

    return Call("poll group", groups._POLL, (group, owner, lease, joined, handlers), remember)


def leave_group(facts: Facts, a: int, _b: int) -> Call:
    return Call("leave group", leases._LEAVE, (READERS[a % 3],))


def release(facts: Facts, a: int, _b: int) -> Call:
    group, owner, row = known(facts).range(a)
    return Call(
        "release group range", groups._RELEASE,
        (group, row["min_slice"], row["epoch"], owner, row["handler_id"]),
    )  # fmt: skip


def cut_group(facts: Facts, a: int, b: int) -> Call:
    cuts = [[0], [0, 512], [0, 256, 512, 768], [0, 100], [0, 5, 9, 700, 900]]
    return Call("cut group", groups._CUT, (GROUPS[a % 2], cuts[b % 5]))


def look_for(facts: Facts, a: int, _b: int) -> Call:
    told = known(facts)
    if a % 3 == 0:
        return look("poll with matches", POLL, (0, [None], [facts._time(a)]))

    def remember(rows: list[Row]) -> None:
        told.settled = rows[0]["settled"]

    return Call("look for matches", reading._LOOK, (), remember, may_wait=False)


def last(facts: Facts, a: int, b: int) -> Call:
    told, group = known(facts), GROUPS[a % 2]

    def remember(rows: list[Row]) -> None:
        told.places[group] += [(row["match_id"], row["matched_at"]) for row in rows]

    return Call("last match", reading._LAST, (group, told.settled - b % 3), remember, may_wait=False)


def read_matches(facts: Facts, a: int, b: int) -> Call:
    told = known(facts)
    group, owner, row = told.range(a)
    after = told.place(group, b) if b % 3 else (row["cursor"], None)
    args = (
        group, row["min_slice"], row["max_slice"], after[0], told.settled, 1 + b % 5, [600, 1100, 2**23][a % 3],
        row["epoch"], owner, row["cursor"], after[1], row["handler_id"], [1, 2] if b % 7 == 0 else None,
    )  # fmt: skip

    def remember(rows: list[Row]) -> None:
        told.places[group] += [(one["match_id"], one["matched_at"]) for one in rows]

    return Call("read matches", reading._READ_HELD, args, remember, may_wait=False)


def move(facts: Facts, a: int, b: int) -> Call:
    told = known(facts)
    group, owner, row = told.range(a)
    number, at = told.place(group, b)
    handlers = [None, list(told.handlers), told.handlers[:1]][b % 3]
    args = (
        group, row["min_slice"], row["epoch"], number, owner, row["cursor"], at if a % 5 else None,
        row["handler_id"], handlers,
    )  # fmt: skip
    return Call("move cursor", groups._MOVE, args, lambda _: row.update(cursor=number))


def join_handler(facts: Facts, a: int, b: int) -> Call:
    told = known(facts)
    own = [one for one in told.held if one.row["handler_id"] is not None]
    group, owner, row = own[-1 - b % min(len(own), 3)] if own else told.range(a)
    handler = row["handler_id"] or (told.handlers[0] if told.handlers else 1)
    return Call("join handler", groups._JOIN, (group, row["min_slice"], handler, owner))


def ask_matching(facts: Facts, a: int, b: int) -> Call:
    told = known(facts)
    if a % 3 == 0:
        return look("look at matching", matching._LOOK)
    if a % 3 == 1:
        return look("subscriptions state", matching._STATE)

    def remember(rows: list[Row]) -> None:
        told.interests = [row["interest"] for row in rows]

    kind = [TYPE, TYPE, "other"][b % 3]
    return Call("interests", matching._INTERESTS, (kind, ["happened", None]), remember, may_wait=False)


def begin_matching(facts: Facts, a: int, b: int) -> Call:
    return Call("begin matching", matching._BEGIN, ([[0], [0, 512]][b % 2],), alone=True)


def match(facts: Facts, a: int, b: int) -> Call:
    told = known(facts)
    events = sorted({facts.event(n) for n in (a, b, a + b)}, key=lambda e: e[2])
    sources = [source for source, _, _ in events]
    args = (
        [TYPE] * len(events), sources, [n for _, n, _ in events], [at for _, _, at in events],
        [slice_of(source) for source in sources], ["happened"] * len(events), told.interests, "{}",
    )  # fmt: skip
    return Call("match", matching._MATCH, args)


def fail_batch(facts: Facts, a: int, b: int) -> Call:
    told = known(facts)
    group, owner, row = told.range(a)
    number, at = told.place(group, b)
    batch = [{"match_id": number - n, "event_id": f"{number - n}"} for n in range(1 + b % 2)]
    held = (
        row["min_slice"],
        row["epoch"],
        owner,
        row["cursor"],
        number,
        at if a % 5 else None,
        row["handler_id"],
    )
    args = (
        group, HANDLERS[a % 2], 1 + b % 3, "why", [_NOW, _LONG, None][b % 3], json.dumps(batch if a % 11 else []),
        *(held if b % 5 else (None,) * 7),
    )  # fmt: skip
    return Call("fail batch", dead_letters._FAIL, args)


def take_retries(facts: Facts, a: int, b: int) -> Call:
    told = known(facts).taken

    def remember(rows: list[Row]) -> None:
        told.extend(dict(row) for row in rows)

    args = (GROUPS[a % 2], list(HANDLERS[: 1 + b % 2]), _NOW if b % 5 == 0 else _LONG, 10)
    return Call("take retries", dead_letters._TAKE, args, remember)


def finish_retry(facts: Facts, a: int, b: int) -> Call:
    told = known(facts).taken
    taken = told[-1 - a % min(len(told), 4)] if told else {"retry_id": 1, "taken_until": BEGINNING}
    outcome = [(None, None, None), (1 + b % 3, "again", _NOW), (3, "dead", None)][b % 3]
    return Call("finish retry", dead_letters._FINISH, (taken["retry_id"], taken["taken_until"], *outcome))


def retry_batches(_facts: Facts, a: int, b: int) -> Call:
    return Call(
        "retry batches", dead_letters._RETRY, (GROUPS[a % 2], [None, None, 1 + b % 4][b % 3], a % 3 == 0)
    )


CALLS: list[Callable[[Facts, int, int], Call]] = [
    make_group, subscribe, register_handler, keep, join_group, leave_group, release, cut_group, look_for, last,
    read_matches, move, join_handler, ask_matching, begin_matching, match, take_retries,
    fail_batch, finish_retry, retry_batches,
]  # fmt: skip
