"""What the sessions of all drivers share: recording failures, refusing transaction control, savepoints."""

from __future__ import annotations

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any, NoReturn, TypeAlias, TypeVar

from journal.database.doubts import Doubt, Doubts
from journal.database.error_translation import translate
from journal.database.faults import IN_FAILED_TRANSACTION
from journal.database.session import SILENCE
from journal.database.session_settings import (
    ISOLATION,
    STARTED_WITH,
)
from journal.errors import DatabaseError, DatabaseUnavailable, NoAnswer, ProjectionsError

log = logging.getLogger("projections")

T = TypeVar("T")

QueuedRun: TypeAlias = tuple[str, list[tuple[Any, ...]]]
"""A statement, and its arguments each time that it was queued without another between."""

_TRANSACTION_CONTROL = re.compile(
    r"\s*(begin|start\s+transaction|commit|end|rollback(?!\s+to)|abort|prepare\s+transaction)\b",
    re.IGNORECASE,
)


_AS_IT_IS = nullcontext()

_MOST_QUEUED = 500
"""Statements that are queued are sent with this one: more would save nothing, and take memory."""
_MOST_QUEUED_TEXT = 4_000_000
"""Bytes and characters of their arguments, with which they are sent before."""

_TEXTS = (str, bytes)
_MOST_NOTED = 5, 200
"""Of how many statements an error of those that were queued tells, and of how many of their characters."""

_END_OF_SESSION = "ROLLBACK; SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid())"

_ROLLBACK = 5
"""Seconds that a rollback may take; a server that is there does it at once."""


class BaseSession(ABC):
    """A session over one driver connection; see :class:`journal.Session` for the methods."""

    errors: tuple[type[BaseException], ...]
    """What the driver raises when a statement or the connection fails."""

    def __init__(
        self,
        connection: Any,
        *,
        pooled: bool,
        pins: Sequence[str],
        origin: object = None,
        doubts: Doubts | None = None,
    ) -> None:
        self._connection = connection
        self.origin = connection if origin is None else origin
        self.lends = False
        self._doubts = doubts  # None: it is the caller's, and not for the library to close
        self.doubt = Doubt.NONE
        self._runs: list[QueuedRun] = []
        self._queued = 0
        self._queued_text = 0
        self.queue_failed = False
        self.failure: ProjectionsError | None = None
        self.pooled = pooled
        self._pins = pins
        self.patience: timedelta | None = None

    @property
    def connection(self) -> Any:
        """See :class:`journal.Session`."""
        if self._runs:
            raise DatabaseError(
                f"statements are queued ({self._queued}), and what is run on the driver's connection would come before "
                "them: await session.flush() first"
            )
        self.lends = True
        return self._connection

    @property
    @abstractmethod
    def in_transaction(self) -> bool: ...

    @property
    @abstractmethod
    def lost(self) -> bool: ...

    async def is_sound(self) -> bool | None:
        """See :class:`journal.database.OwnedSession`."""
        self._take_queued()
        try:
            async with asyncio.timeout(_ROLLBACK):
                await self._control("SELECT 1")
        except self.errors:
            return None if self.lost else False
        return True

    @abstractmethod
    async def _control(self, sql: str) -> str | None:
        """Run a statement without arguments, as the driver does it fastest; returns its command tag."""

    def _pinned(self) -> AbstractAsyncContextManager[None]:
        """A statement alone gets a transaction of its own where only that can have the settings that it needs."""
        return self.transaction() if self._pins and not self.in_transaction else _AS_IT_IS

    @staticmethod
    def _check(sql: str) -> None:
        if _TRANSACTION_CONTROL.match(sql):
            raise DatabaseError(
                f"{sql.split(maxsplit=1)[0].upper()} is not for this session: the library begins and ends its "
                "transaction; use session.savepoint() to undo a part"
            )

    @abstractmethod
    async def execute(self, sql: str, *args: Any) -> int: ...

    @abstractmethod
    async def executemany(self, sql: str, args: Sequence[Sequence[Any]]) -> None: ...

    async def queue(self, sql: str, *args: Any) -> None:
        runs = self._runs
        if runs and runs[-1][0] == sql:
            runs[-1][1].append(args)
        elif self.in_transaction:
            self._check(sql)
            runs.append((sql, [args]))
        else:
            await self.execute(sql, *args)
            return
        self._queued += 1
        for value in args:
            if isinstance(value, _TEXTS):
                self._queued_text += len(value)
        if self._queued >= _MOST_QUEUED or self._queued_text >= _MOST_QUEUED_TEXT:
            await self.flush()

    async def flush(self) -> None:
        runs = self._take_queued()
        if not runs:
            return
        try:
            await self._send(runs)
        except BaseException as error:  # also where the caller catches it, or its time-out, and goes on
            self.queue_failed = True
            # A traceback does not lead to where they were queued; of a long one, only the end is stored.
            number, length = _MOST_NOTED
            for sql in list(dict.fromkeys(sql for sql, _ in runs))[:number]:
                error.add_note(f"queued: {' '.join(sql.split())[:length]}")
            raise

    def _take_queued(self) -> list[QueuedRun]:
        runs, self._runs = self._runs, []
        self._queued = self._queued_text = 0
        return runs

    async def _send(self, runs: Sequence[QueuedRun]) -> None:
        """Run statements in their order, with as few round trips as the driver can."""
        for sql, rows in runs:
            if len(rows) == 1:
                await self.execute(sql, *rows[0])
            else:
                await self.executemany(sql, rows)

    async def _run(self, call: Awaitable[T]) -> T:
        watchdog = None
        try:
            if self.patience is None:  # of a handler, which may have a statement for each event
                return await call
            async with asyncio.timeout(self.patience.total_seconds()) as watchdog:
                return await call
        except self.errors as error:
            expired = watchdog is not None and watchdog.expired()
            if expired or isinstance(error, MemoryError):
                await self.drop()  # in the middle of an answer that nobody will read to its end
            if expired and self.patience is not None:
                limit = self.patience.total_seconds()
                self.failure = NoAnswer(
                    f"no answer from the database for {limit:g} s: its connection is dropped"
                )
                self.failure.origin = self.origin
                raise self.failure from error
            failure = self._doubted(translate(error))
            if self.doubt is Doubt.NOW and not self.in_transaction:
                await self.discard()
            self._raise(error, failure)

    def _doubted(self, failure: ProjectionsError) -> ProjectionsError:
        """A failure, or that its connection is at fault: whoever has a transaction on it ends that, and it goes."""
        if self._doubts is None:
            return failure
        doubt = self._doubts.about(failure, getattr(self._connection, "opened", 0.0))
        if doubt is Doubt.NONE:
            return failure
        self.doubt = doubt if self.doubt is not Doubt.NOW else Doubt.NOW
        log.warning(
            "a connection is closed after an error that it cannot explain: %s", failure,
            extra={"action": "connection_doubted"},
        )  # fmt: skip
        if doubt is Doubt.LATER:
            return failure
        return DatabaseUnavailable(f"{failure}: the connection cannot explain it, and is closed")

    def _raise(self, error: BaseException, failure: ProjectionsError) -> NoReturn:
        """Raise a driver's error as this library's, and keep what has spoiled the transaction."""
        failure.origin = self.origin
        if getattr(failure, "sqlstate", None) == IN_FAILED_TRANSACTION and self.failure is not None:
            raise failure from self.failure
        self.failure = failure
        raise failure from error

    @abstractmethod
    async def drop(self) -> None:
        """End the connection at once, without a word to the server."""

    async def discard(self) -> None:
        """End the connection, and behind a pooler the server's session, which would be lent again with its plans."""
        if self.pooled:
            with suppress(*self.errors, ProjectionsError, TimeoutError):
                async with asyncio.timeout(_ROLLBACK):
                    await self._control(_END_OF_SESSION)
        await self.drop()

    async def begin(self, mark: str | None = None, idle: timedelta | None = None) -> None:
        self._forget()
        # In one round trip; without arguments, which a statement of several parts does not take.
        statements = [f"BEGIN ISOLATION LEVEL {ISOLATION}", *self._pins]
        if self.pooled:
            statements += [f"SET LOCAL {name} = {value}" for name, value in STARTED_WITH.items()]
        if mark is not None:
            statements.append(f"SET LOCAL projections.batch = '{bytes.fromhex(mark).hex()}'")
        if idle is not None:
            milliseconds = max(1, round(idle.total_seconds() * 1000))
            statements.append(f"SET LOCAL idle_in_transaction_session_timeout = {milliseconds}")
        await self._run(self._control("; ".join(statements)))

    def _forget(self) -> None:
        """What the transaction before has left."""
        self._take_queued()
        self.failure, self.queue_failed, self.lends = None, False, False

    async def commit(self) -> None:
        await self.flush()
        if self.queue_failed:  # the transaction may be sound, and lack some of what was queued
            raise DatabaseError(
                f"nothing was committed: a statement that was queued has failed{self._reason()}. Let the error pass, "
                "or queue the statement in session.savepoint()"
            ) from self.failure
        # PostgreSQL answers a COMMIT after an error with a rollback, and calls that a success.
        if await self._run(self._control("COMMIT")) == "ROLLBACK":
            raise DatabaseError(
                f"nothing was committed: an error before it has spoiled the transaction{self._reason()}. "
                "Let it pass, or wrap the statement in session.savepoint()"
            ) from self.failure

    def _reason(self) -> str:
        return f" ({self.failure})" if self.failure else ""

    async def rollback(self) -> None:
        self._forget()
        if self.in_transaction and self.doubt is Doubt.NOW:
            await self.discard()
        elif self.in_transaction:
            # A connection that cannot even roll back is lost, and the database has rolled back by itself.
            try:
                async with asyncio.timeout(_ROLLBACK):
                    await self._run(self._control("ROLLBACK"))
            except (ProjectionsError, TimeoutError):
                await self.drop()

    @asynccontextmanager
    async def transaction(self, *, idle: timedelta | None = SILENCE) -> AsyncIterator[None]:
        await self.begin(idle=idle)
        try:
            yield
            await self.commit()
        except BaseException:
            await self.rollback()
            raise

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        await self.flush()
        before = self.failure, self.queue_failed
        await self._run(self._control("SAVEPOINT projections_savepoint"))
        try:
            yield
            await self.flush()
        except BaseException:
            self._take_queued()  # they would be undone
            await self._run(self._control("ROLLBACK TO SAVEPOINT projections_savepoint"))
            await self._run(self._control("RELEASE SAVEPOINT projections_savepoint"))
            self.failure, self.queue_failed = before
            raise
        await self._run(self._control("RELEASE SAVEPOINT projections_savepoint"))
