"""Bugs of matching and of reading for a group, which the simulation finds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from projections.subscriptions.range_reader import RangeReader
from tests.mutants.layers import Pytest, Simulation
from tests.mutants.mutant import mutant
from tests.mutants.seeding import method, sql
from tests.simulation.postgres.locks import Locks

GROUPS = Simulation(200, arrangement="groups")


@mutant(
    "matches-settle-at-once",
    "a cursor may pass a match that is numbered and not visible yet",
    "sql/functions/subscriptions/settled_matches_v1.sql",
    GROUPS,
    Pytest(
        "tests/integration/subscriptions/test_listening.py"
        "::test_matching_that_commits_late_is_waited_for_and_not_jumped_over"
    ),
)
@contextmanager
def _settle_at_once() -> Iterator[None]:
    with (
        method(Locks, "shared_numbers", lambda *_: []),
        sql(
            "functions/subscriptions/settled_matches_v1.sql", "RETURN least(_last, _lowest);", "RETURN _last;"
        ),
    ):
        yield


@mutant(
    "cursors-move-before-handlers-are-done",
    "a range stores how far it has read, and not how far it has handled",
    "projections/subscriptions/range_reader.py: RangeReader.cursor",
    GROUPS,
)
def _before_handlers() -> AbstractContextManager[Any]:
    return method(RangeReader, "cursor", property(lambda self: self.position))
