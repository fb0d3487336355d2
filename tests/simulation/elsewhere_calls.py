"""Calls about journals elsewhere: what ``offsets/lost_events.py`` asks, and the queries of another system's table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from journal import BEGINNING, slice_of
from journal.backtracking import END_OF_TIME
from offsets import lost_events
from tests.simulation.calls import SOURCES, TYPE, Call, Facts, look
from tests.simulation.postgres.foreign import INSERT, QUERIES
from tests.simulation.postgres.storage import Row

_LIVES = ("5e.1.7", "5e.1.8", "6f.1.7")


def _place(facts: Facts, n: int) -> tuple[Any, ...]:
    claim = facts.claim(n)
    return claim["number"], claim["min_slice"], claim["epoch"], claim["owner"]


def compare_life(facts: Facts, a: int, b: int) -> Call:
    if b % 2:
        again = END_OF_TIME if a % 2 else BEGINNING
        return Call("note life", lost_events._NOTE_LIFE, (*_place(facts, a), _LIVES[b % 3], again))
    return look("life", lost_events._LIFE, _place(facts, a))


def look_for_lost(facts: Facts, a: int, b: int) -> Call:
    number, source = facts.number(a), SOURCES[b % 4]
    if a % 4 == 0:
        return look(
            "read offsets of slices", lost_events._OFFSETS, (number, 0, 700 + b, SOURCES[a % 4], 1 + b % 3)
        )
    if a % 4 == 1:
        return Call("forget", lost_events._FORGET, (number, source))
    if a % 4 == 2 and number in facts.projections.values():
        return Call("park lost", lost_events._PARK, (number, source, slice_of(source), 1 + b % 3, "lost"))
    return Call("set back", lost_events._SET_BACK, (number, source, 1 + a % 2, BEGINNING))


def insert(facts: Facts, a: int, _b: int) -> Call:
    source = SOURCES[a % 4]

    def remember(rows: list[Row]) -> None:
        for row in rows:
            facts.outbox.append((source, row["seq_nr"], row["db_timestamp"]))
            facts.name_time(row["db_timestamp"], f"transaction of {source} {row['seq_nr']}")

    return Call("insert", INSERT, (source,), remember)


def _event(facts: Facts, n: int) -> tuple[str, int, datetime]:
    return facts.outbox[n % len(facts.outbox)] if facts.outbox else ("s0", 1, BEGINNING)


def read_table(facts: Facts, a: int, b: int) -> Call:
    source, seq_nr, at = _event(facts, a)
    after = (at, slice_of(source), source, seq_nr) if a % 2 else (BEGINNING, -1, "", 0)
    until = END_OF_TIME if b % 4 else at
    place = ([TYPE], *[(0, 1023), (0, 511), (512, 1023)][b % 3], *after, until, 1 + b % 5)
    if a % 3 == 0:
        return look("read keys of the table", QUERIES["keys"], place)
    if a % 3 == 1:
        return look("read events of the table", QUERIES["events"], (*place, [600, 1100, 2**23][b % 3]))
    events = sorted({_event(facts, n) for n in (a, b, a + b)}, key=lambda e: (e[2], e[0], e[1]))
    columns = [list(column) for column in zip(*events, strict=True)]
    return look("read given events of the table", QUERIES["load"], (*columns, [600, 2**23][b % 2]))


def ask_table(facts: Facts, a: int, b: int) -> Call:
    (one, n, at), (other, m, _) = _event(facts, a), _event(facts, b)
    if a % 4 == 0:
        return look("poll the table", QUERIES["poll"], (0, [TYPE, None], [at, BEGINNING]))
    if a % 4 == 1:
        args = ([one, other], [n, m + 1], at if b % 2 else BEGINNING, END_OF_TIME)
        return look("predecessors in the table", QUERIES["predecessors"], args)
    if a % 4 == 2:
        args = (one, 1 + a % 3, 1 + b % 6, b % 2 == 0, 1 + a % 4, [600, 1100, 2**23][b % 3])
        return look("read source of the table", QUERIES["source"], args)
    return look("latest of the table", QUERIES["latest"], (one,))


CALLS: list[Callable[[Facts, int, int], Call]] = [
    compare_life, look_for_lost, insert, insert, read_table, read_table, ask_table, ask_table,
]  # fmt: skip
