"""Bugs of the connections of a pool."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from journal.database.base import BaseSession
from journal.database.base_database import BaseDatabase
from journal.database.doubts import Doubt, Doubts
from journal.errors import ProjectionsError
from tests.mutants.layers import Pytest
from tests.mutants.mutant import mutant
from tests.mutants.seeding import method

_STALE = "tests/integration/database/test_stale_connections.py::"


@mutant(
    "stale-connections-are-lent-again",
    "a connection that calls a function that was dropped goes back to the pool",
    "journal/database/base_database.py: BaseDatabase._dismiss",
    Pytest(f"{_STALE}test_an_internal_error_on_a_statement_alone_or_in_a_savepoint_closes_its_connection"),
)
def _lent_again() -> AbstractContextManager[Any]:
    async def dismiss(self: BaseDatabase, session: BaseSession) -> None:
        pass

    return method(BaseDatabase, "_dismiss", dismiss)


@mutant(
    "internal-errors-blame-the-event",
    "an internal error of a connection counts as the event's fault at once",
    "journal/database/doubts.py: Doubts.about",
    Pytest(f"{_STALE}test_an_internal_error_is_of_the_connection_once_and_then_of_what_was_asked"),
)
def _blames_the_event() -> AbstractContextManager[Any]:
    right = Doubts.about

    def about(self: Doubts, failure: ProjectionsError, opened: float) -> Doubt:
        return Doubt.NONE if right(self, failure, opened) is Doubt.NONE else Doubt.LATER

    return method(Doubts, "about", about)


@mutant(
    "a-pool-keeps-stale-connections",
    "a pool keeps its connections after two of them called what was dropped",
    "journal/database/doubts.py: Doubts.all_go",
    Pytest(f"{_STALE}test_a_pool_is_replaced_when_two_of_its_connections_call_what_was_dropped"),
)
def _pool_stays() -> AbstractContextManager[Any]:
    return method(Doubts, "all_go", lambda _: False)
