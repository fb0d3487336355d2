"""Bugs of statements that are queued, and sent together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

from journal.database.base import BaseSession
from tests.mutants.layers import Pytest
from tests.mutants.mutant import mutant
from tests.mutants.seeding import method

_ORDER = Pytest(
    "tests/property/test_queued_statements_end_to_end.py"
    "::test_what_is_queued_is_as_if_each_statement_had_run_alone"
)
_SESSION = "tests/integration/database/test_queued_statements.py"


@mutant(
    "queued-by-their-text",
    "statements that are queued are sent by their text, and not in their order",
    "journal/database/base.py: BaseSession._send",
    _ORDER,
    Pytest(f"{_SESSION}::test_the_order_is_that_of_queueing_over_statements_of_different_texts"),
)
def _by_text() -> AbstractContextManager[Any]:
    right = BaseSession._take_queued

    def take(self: BaseSession) -> Sequence[Any]:
        return sorted(right(self), key=lambda run: run[0])

    return method(BaseSession, "_take_queued", take)


@mutant(
    "queued-into-a-savepoint",
    "a savepoint begins before what is queued, and undoes it",
    "journal/database/base.py: BaseSession.savepoint",
    _ORDER,
    Pytest(f"{_SESSION}::test_a_savepoint_undoes_what_was_queued_in_it_and_nothing_before_it"),
)
def _in_a_savepoint() -> AbstractContextManager[Any]:
    right = BaseSession.savepoint

    @asynccontextmanager
    async def savepoint(self: BaseSession) -> AsyncIterator[None]:
        kept, self._runs = self._runs, []
        async with right(self):
            self._runs = kept
            yield

    return method(BaseSession, "savepoint", savepoint)


@mutant(
    "queued-and-lost",
    "a transaction commits without what was queued, where the caller has swallowed why that was not sent",
    "journal/database/base.py: BaseSession.flush",
    Pytest(
        f"{_SESSION}::test_nothing_is_committed_where_a_queued_statement_has_failed_and_that_was_swallowed"
    ),
)
def _lost() -> AbstractContextManager[Any]:
    right = BaseSession.flush

    async def flush(self: BaseSession) -> None:
        try:
            await right(self)
        finally:
            self.queue_failed = False

    return method(BaseSession, "flush", flush)


@mutant(
    "queued-into-the-next-transaction",
    "what was queued before a rollback is sent after it",
    "journal/database/base.py: BaseSession.rollback",
    Pytest(f"{_SESSION}::test_after_a_rollback_nothing_of_it_is_queued"),
)
def _after_a_rollback() -> AbstractContextManager[Any]:
    def forget(self: BaseSession) -> None:
        self.failure, self.queue_failed = None, False

    return method(BaseSession, "_forget", forget)
