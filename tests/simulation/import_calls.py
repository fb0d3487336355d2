"""Calls that import history; the temporary table is staged, filled and moved."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

from journal import importing
from tests.simulation.calls import TYPE, Call, Facts
from tests.simulation.postgres.importing import COPY
from tests.simulation.postgres.storage import Row

_SOURCES = ("h0", "h1")


def stage(_facts: Facts, _a: int, _b: int) -> Call:
    return Call("stage", importing._STAGE)


def copy(facts: Facts, a: int, b: int) -> Call:
    """Up to two events of a source; their numbers are mostly the next ones, and their times in order."""
    source, number = _SOURCES[a % 2], facts.imported[_SOURCES[a % 2]] + (a % 5 == 0)
    at = facts.event(b)[2] - timedelta(days=1 - b % 7 // 6)
    rows = [
        (
            source, TYPE, "happened", '{"n": 1}', 1, None, None, str(uuid4()), number + n,
            at + timedelta(seconds=10 * (number + n)),
        )
        for n in range(1, 2 + b % 2)
    ]  # fmt: skip
    return Call("copy", COPY, (rows,))


def import_staged(facts: Facts, a: int, _b: int) -> Call:
    def remember(_rows: list[Row]) -> None:
        facts.imported[_SOURCES[a % 2]] += 1

    return Call("import", importing._IMPORT, (), remember)


CALLS: list[Callable[[Facts, int, int], Call]] = [stage, copy, import_staged]
