"""A process of the server: runs the statements of one connection, and what models of SQL are written with."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Hashable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.loop import Host
from tests.simulation.postgres import statements
from tests.simulation.postgres.errors import NotModelled, ServerError
from tests.simulation.postgres.rows import RowStatements
from tests.simulation.postgres.storage import Row, Transaction

if TYPE_CHECKING:
    from tests.simulation.postgres.server import Server

_SET = re.compile(r"SET LOCAL ([\w.]+) = '?([^']*?)'?")
_PREPARED = re.compile(r"(PREPARE TRANSACTION|COMMIT PREPARED|ROLLBACK PREPARED) '(\w+)'")
_ABORTED = "current transaction is aborted, commands ignored until end of transaction block"
_LATEST_SHOWN = 0.2
"""Seconds between the start of a transaction and its showing it, at most."""
_SAVEPOINT = "SAVEPOINT projections_savepoint"
_IDLE_LIMIT = "idle_in_transaction_session_timeout"


class Answer(NamedTuple):
    """What a statement is answered with."""

    rows: list[Row]
    count: int
    tag: str
    in_transaction: bool


class Backend(RowStatements):
    """
    Runs statements, one at a time.

    Args:
        server: The server.
        number: Unique over the life of the simulation.
        hung_up: Called when the server ends the connection.
    """

    def __init__(self, server: Server, number: int, hung_up: Callable[[], None]) -> None:
        self.server = server
        self.number = number
        self.host = Host(f"backend {number}")
        self.now = server.clock()
        """``now()``: when the transaction began."""
        self.settings: dict[str, str] = {}
        """Of the transaction."""
        self.of_session: dict[str, str] = {}
        self.lock_timeout: float | None = None
        self._hung_up = hung_up
        self._transactions = 0
        self._shows = False
        self._transaction: Transaction | None = None
        self._explicit = False
        self._failed = False
        self._task: asyncio.Task[Answer] | None = None
        self._committing = False
        self._idle: asyncio.TimerHandle | None = None
        self._notifications: list[str] = []
        self.staged: list[Row] | None = None
        """Of the temporary table in which an import is staged, if there is one."""
        self._savepoint: tuple[int, set[Hashable]] | None = None
        """How much the transaction had changed, and what it had locked."""

    # Statements

    async def run(self, sql: str, args: Sequence[Any], refusal: ServerError | None = None) -> Answer:
        """
        Run a statement to its end.

        Args:
            sql: The statement.
            args: Its arguments.
            refusal: What it is refused with, whatever it is.

        Raises:
            ServerError: It is refused; the transaction is rolled back.
        """
        self._stop_idling()
        self._task = asyncio.current_task()
        try:
            if refusal is not None:
                raise refusal
            return await self._run(sql, args)
        except asyncio.CancelledError:
            raise self._failed_with(
                ServerError("57014", "canceling statement due to user request"), sql
            ) from None
        except ServerError as error:
            raise self._failed_with(error, sql) from None
        finally:
            self._task = None
            self._begin_to_idle()

    async def _run(self, sql: str, args: Sequence[Any]) -> Answer:
        word = sql.split(maxsplit=1)[0]
        if word in {"BEGIN", "COMMIT", "ROLLBACK", "PREPARE", "SET", "SAVEPOINT", "RELEASE"}:
            return await self._control(sql, word)
        if self._failed:
            raise ServerError("25P02", _ABORTED)
        if not self._explicit:
            await self._begin()
        found = await statements.run(self, sql, args)
        if not self._explicit:
            await self._commit()
        rows, count = ([], found.rows) if isinstance(found, statements.Touched) else (found, len(found))
        return Answer(rows, count, word, self._explicit)

    async def _control(self, sql: str, word: str) -> Answer:
        if word in {"COMMIT", "ROLLBACK"} and sql == word:
            if word == "ROLLBACK" or self._failed:
                self._roll_back()
                return Answer([], 0, "ROLLBACK", False)
            if self._explicit:
                await self._commit()
        elif sql in {_SAVEPOINT, f"RELEASE {_SAVEPOINT}", f"ROLLBACK TO {_SAVEPOINT}"}:
            self._at_savepoint(sql)
        elif self._failed:
            return self._refused_as_failed(sql)
        elif (prepared := _PREPARED.fullmatch(sql)) is not None:
            await self._two_phases(prepared[1], prepared[2])
        elif sql != "SET TRANSACTION ISOLATION LEVEL READ COMMITTED":
            await self._begin_with(sql)
        return Answer([], 0, word, self._explicit)

    def _at_savepoint(self, sql: str) -> None:
        """Set the one savepoint that there is, go back to it, or forget it."""
        if self._failed and (not sql.startswith("ROLLBACK") or self._savepoint is None):
            raise ServerError("25P02", _ABORTED)
        if sql == _SAVEPOINT:
            self._savepoint = len(self.transaction.changed), set(self.transaction.locks)
        elif sql.startswith("ROLLBACK"):
            assert self._savepoint is not None
            self._go_back(*self._savepoint)
            self._failed = False
        else:
            self._savepoint = None

    def _go_back(self, changed: int, locks: set[Hashable]) -> None:
        self.server.undo(self.transaction, changed)
        self.server.locks.release(
            self.transaction, [one for one in self.transaction.locks if one not in locks]
        )

    def _refused_as_failed(self, sql: str) -> Answer:
        if not sql.startswith("PREPARE"):
            raise ServerError("25P02", _ABORTED)
        self._roll_back()
        return Answer([], 0, "ROLLBACK", False)

    async def _begin_with(self, sql: str) -> None:
        for part in sql.split("; "):
            if part == "BEGIN ISOLATION LEVEL READ COMMITTED":
                if not self._explicit:
                    await self._begin()
                self._explicit = True
            elif (found := _SET.fullmatch(part)) is not None:
                self.settings[found[1]] = found[2]
            else:
                raise NotModelled(f"the simulated PostgreSQL does not know this statement: {part}")

    async def _begin(self) -> None:
        self._transactions += 1
        self.settings = dict(self.of_session)
        self._transaction = Transaction(f"{self.number}/{self._transactions}")
        self.now = self.server.clock()
        self._shows = False
        if (chance := self.server.choices.random)() < 0.2 * self.server.breathes:
            await asyncio.sleep(_LATEST_SHOWN * chance())  # it waits for a processor
        self._shows = True

    @property
    def waits(self) -> bool:
        """Whether it has no transaction, and waits for a message."""
        return self._transaction is None

    @property
    def shows_its_transaction(self) -> bool:
        """Whether ``pg_stat_activity`` has when it began."""
        return self._shows and self._transaction is not None

    async def _commit(self) -> None:
        transaction, self._committing = self.transaction, True
        if transaction.changed:
            await self.breathe()  # the log is written
        self.server.make_visible(transaction)
        await self.breathe()  # visible, and its locks are still held
        self.server.end(transaction)
        self._ended()
        for channel in self._notifications:
            self.server.notify(channel)
        self._notifications.clear()

    async def _two_phases(self, what: str, gid: str) -> None:
        if what == "PREPARE TRANSACTION":
            if not self._explicit:
                return  # with a warning
            if self.staged is not None:
                raise ServerError(
                    "0A000", "cannot PREPARE a transaction that has operated on temporary objects"
                )
            self.server.prepare(self.transaction, gid)
            self._ended()
            return
        if self._explicit:
            raise ServerError("25001", f"{what} cannot run inside a transaction block")
        transaction = self.server.prepared.pop(gid, None)
        if transaction is None:
            raise ServerError("42704", f'prepared transaction with identifier "{gid}" does not exist')
        if what == "COMMIT PREPARED":
            self.server.make_visible(transaction)
            await self.breathe()
        else:
            self.server.undo(transaction)
        self.server.end(transaction)

    def _roll_back(self) -> None:
        if self._transaction is not None:
            self.server.undo(self._transaction)
            self.server.end(self._transaction)
        self._ended()

    def _failed_with(self, error: ServerError, sql: str) -> ServerError:
        """Roll back; a transaction that was begun stays open, and spoilt, until the client ends it."""
        stays = self._explicit and sql != "COMMIT" and not sql.startswith("PREPARE")
        if stays and self._savepoint is not None and not error.fatal:
            self._go_back(*self._savepoint)
            self._failed = error.in_transaction = True
            return error
        self._roll_back()
        self._explicit = self._failed = error.in_transaction = stays
        return error

    def _ended(self) -> None:
        self._transaction = None
        self._explicit = self._failed = self._committing = False
        self._savepoint = self.staged = None
        self.settings = dict(self.of_session)
        self.lock_timeout = None

    # Its connection

    @property
    def running(self) -> bool:
        """Whether it is in the middle of a statement."""
        return self._task is not None

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open in it, also one of a single statement that runs."""
        return self._transaction is not None

    def cancel(self) -> None:
        """``pg_cancel_backend()``: end the statement that runs, unless it is just committing."""
        if self._task is not None and not self._committing:
            self._task.cancel()

    def hang_up(self) -> None:
        """The client is gone: roll back, once the statement that runs has ended."""
        if not self.running:
            self.terminate()

    def terminate(self) -> None:
        """End the connection, and with it the transaction."""
        if self.host.dead:
            return
        self._stop_idling()
        self._roll_back()
        self.die()
        if self in self.server.backends:
            self.server.backends.remove(self)

    def die(self) -> None:
        """End without rolling back, with the server."""
        self.host.die()
        self._hung_up()

    def _begin_to_idle(self) -> None:
        limit = self.settings.get(_IDLE_LIMIT)
        if self._explicit and limit:
            seconds = float(limit.removesuffix("s")) if limit.endswith("s") else int(limit) / 1000
            self._idle = asyncio.get_running_loop().call_later(seconds, self.terminate)

    def _stop_idling(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    # What models are written with

    @property
    def transaction(self) -> Transaction:
        """The one that runs."""
        assert self._transaction is not None
        return self._transaction

    def clock(self) -> datetime:
        """``clock_timestamp()``."""
        return self.server.clock()

    @property
    def is_aborted(self) -> bool:
        """Whether its transaction has failed, and the client has yet to end it."""
        return self._failed

    async def breathe(self) -> None:
        """Let others go on: between two statements of a function, and while a transaction ends."""
        chance = self.server.choices.random
        if chance() < self.server.breathes:
            await asyncio.sleep(0.004 * chance() ** 3)

    def notify(self, channel: str) -> None:
        """``pg_notify``: those who listen hear it after the commit."""
        self._notifications.append(channel)
