"""Bugs of matching and of reading for a group, which the simulation finds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from projections.subscriptions.range_reader import RangeReader
from projections.subscriptions.redelivery import Redelivery
from tests.mutants.layers import Pytest, Simulation
from tests.mutants.mutant import mutant
from tests.mutants.seeding import method, sql
from tests.simulation.postgres import groups, retrying
from tests.simulation.postgres.locks import Locks

GROUPS = Simulation(200, arrangement="groups")


@mutant(
    "matches-settle-at-once",
    "a cursor may pass a match that is numbered and not visible yet",
    "sql/functions/subscriptions/settled_matches_v1.sql",
    Simulation(200, first=500, arrangement="groups"),
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


@mutant(
    "handlers-are-not-set-apart",
    "what is for a handler that a reader does not have is passed over",
    "sql/functions/subscriptions/_set_handlers_apart_v1.sql",
    GROUPS,
)
def _not_set_apart() -> AbstractContextManager[Any]:
    async def nothing(*_: Any) -> list[str]:
        return []

    return method(groups, "_set_handlers_apart", nothing)


@mutant(
    "groups-are-cut-at-the-newest-cursor",
    "a range of a group that is made of several begins at the newest of their cursors",
    "sql/functions/subscriptions/_cut_group_v1.sql",
    Simulation(200, first=200, arrangement="groups"),
)
def _cut_at_the_newest() -> AbstractContextManager[Any]:
    return method(groups, "begins_at", max)


@mutant(
    "batches-that-fail-again-are-forgotten",
    "a batch that was set aside, and that its handler fails on again, counts as handled",
    "projections/subscriptions/redelivery.py: Redelivery._store",
    GROUPS,
)
def _forgets() -> AbstractContextManager[Any]:
    right = Redelivery._store

    async def store(self: Redelivery, outcome: Any) -> None:
        await right(self, outcome._replace(error=None))

    return method(Redelivery, "_store", store)


@mutant(
    "batches-that-fail-are-not-kept",
    "a cursor goes on behind a batch that was to be set aside, and was not",
    "sql/functions/subscriptions/fail_batch_v1.sql",
    GROUPS,
)
def _not_kept() -> AbstractContextManager[Any]:
    async def nothing(*_: Any) -> int:
        return 1

    return method(retrying, "keep", nothing)


@mutant(
    "ranges-go-on-after-what-they-have-read",
    "a range of which a handler failed goes on after what it had read, and not where its cursor is",
    "projections/subscriptions/range_reader.py: RangeReader.resume",
    GROUPS,
)
def _goes_on() -> AbstractContextManager[Any]:
    right = RangeReader.resume

    def resume(self: RangeReader) -> None:
        stored, read = self.held, self.position
        self.held = stored._replace(cursor=read.match_id)
        try:
            right(self)
        finally:
            self.held = stored

    return method(RangeReader, "resume", resume)
