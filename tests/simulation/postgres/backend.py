"""A process of the server: runs the statements of one connection, and what models of SQL are written with."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.loop import Host
from tests.simulation.postgres import statements
from tests.simulation.postgres.errors import NotModelled, ServerError
from tests.simulation.postgres.storage import Key, Row, Snapshot, Table, Transaction

if TYPE_CHECKING:
    from tests.simulation.postgres.server import Server

Where = Callable[[Row], Any]

_SET = re.compile(r"SET LOCAL ([\w.]+) = '?([^']*?)'?")
_PREPARED = re.compile(r"(PREPARE TRANSACTION|COMMIT PREPARED|ROLLBACK PREPARED) '(\w+)'")
_ABORTED = "current transaction is aborted, commands ignored until end of transaction block"
_IDLE_LIMIT = "idle_in_transaction_session_timeout"


class Answer(NamedTuple):
    """What a statement is answered with."""

    rows: list[Row]
    count: int
    tag: str
    in_transaction: bool


class Backend:
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
        self._transaction: Transaction | None = None
        self._explicit = False
        self._failed = False
        self._task: asyncio.Task[Answer] | None = None
        self._committing = False
        self._idle: asyncio.TimerHandle | None = None
        self._notifications: list[str] = []

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
        if word in {"BEGIN", "COMMIT", "ROLLBACK", "PREPARE", "SET"}:
            return await self._control(sql, word)
        if self._failed:
            raise ServerError("25P02", _ABORTED)
        if not self._explicit:
            self._begin()
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
        elif self._failed:
            return self._refused_as_failed(sql)
        elif (prepared := _PREPARED.fullmatch(sql)) is not None:
            await self._two_phases(prepared[1], prepared[2])
        elif sql != "SET TRANSACTION ISOLATION LEVEL READ COMMITTED":
            self._begin_with(sql)
        return Answer([], 0, word, self._explicit)

    def _refused_as_failed(self, sql: str) -> Answer:
        if not sql.startswith("PREPARE"):
            raise ServerError("25P02", _ABORTED)
        self._roll_back()
        return Answer([], 0, "ROLLBACK", False)

    def _begin_with(self, sql: str) -> None:
        for part in sql.split("; "):
            if part == "BEGIN ISOLATION LEVEL READ COMMITTED":
                if not self._explicit:
                    self._begin()
                self._explicit = True
            elif (found := _SET.fullmatch(part)) is not None:
                self.settings[found[1]] = found[2]
            else:
                raise NotModelled(f"the simulated PostgreSQL does not know this statement: {part}")

    def _begin(self) -> None:
        self._transactions += 1
        self.settings = dict(self.of_session)
        self._transaction = Transaction(f"{self.number}/{self._transactions}")
        self.now = self.server.clock()

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
        stays = self._explicit and sql != "COMMIT"
        self._roll_back()
        self._explicit = self._failed = error.in_transaction = stays
        return error

    def _ended(self) -> None:
        self._transaction = None
        self._explicit = self._failed = self._committing = False
        self.settings = dict(self.of_session)
        self.lock_timeout = None

    # Its connection

    @property
    def running(self) -> bool:
        """Whether it is in the middle of a statement."""
        return self._task is not None

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

    async def breathe(self) -> None:
        """Let others go on: between two statements of a function, and while a transaction ends."""
        chance = self.server.choices.random
        if chance() < self.server.breathes:
            await asyncio.sleep(0.004 * chance() ** 3)

    def table(self, name: str) -> Table:
        """A table of the schema."""
        return self.server.tables[name]

    def snapshot(self) -> Snapshot:
        """What a statement that begins now sees."""
        return Snapshot(self.server.place, self.transaction)

    def select(self, name: str, where: Where | None = None, snapshot: Snapshot | None = None) -> list[Row]:
        """Rows of a table."""
        return [row for _, row in self.table(name).rows(snapshot or self.snapshot(), where)]

    async def lock_row(self, table: Table, key: Key, seen: Row | None, where: Where | None) -> Row | None:
        """
        Lock a row that a statement has seen; waits for who has it locked.

        Returns:
            The row as it is then: None when it is gone, or ``where`` does not hold any more.
        """
        await self.server.locks.take(self.transaction, (table.name, key), self.lock_timeout)
        newest = table.newest(key)
        if newest is None:
            return None
        if newest.row is not seen and where is not None and not where(newest.row):
            return None
        return newest.row

    async def lock_rows(
        self, name: str, where: Where, *, order: str | None = None, skip_locked: bool = False
    ) -> list[Row]:
        """``SELECT … FOR UPDATE``: the rows as they are once they are locked."""
        return [row async for _, row in self._locked(name, where, order, skip_locked=skip_locked)]

    async def _locked(
        self, name: str, where: Where, order: str | None = None, *, skip_locked: bool = False
    ) -> Any:
        table = self.table(name)
        found: Iterator[tuple[Key, Row]] | list[tuple[Key, Row]] = table.rows(self.snapshot(), where)
        found = sorted(found, key=lambda one: one[1][order]) if order else list(found)
        for key, seen in found:
            if skip_locked and not self.server.locks.is_free(self.transaction, (name, key)):
                continue
            row = await self.lock_row(table, key, seen, where)
            if row is not None:
                yield key, row

    async def update(
        self,
        name: str,
        where: Where,
        change: Callable[[Row], Row],
        *,
        order: str | None = None,
        skip_locked: bool = False,
    ) -> list[Row]:
        """``UPDATE … RETURNING *``; ``change`` gives the columns that are set."""
        table, changed = self.table(name), []
        async for key, row in self._locked(name, where, order, skip_locked=skip_locked):
            new = {**row, **change(row)}
            table.write(self.transaction, key, new)
            changed.append(new)
        return changed

    async def delete(self, name: str, where: Where, *, skip_locked: bool = False) -> list[Row]:
        """``DELETE … RETURNING *``."""
        table, deleted = self.table(name), []
        async for key, row in self._locked(name, where, skip_locked=skip_locked):
            table.write(self.transaction, key, None)
            deleted.append(row)
        return deleted

    async def insert(
        self, name: str, row: Row, on_conflict: Callable[[Row], Row | None] | None = None
    ) -> Row | None:
        """
        ``INSERT … ON CONFLICT DO UPDATE``; ``on_conflict`` gives the columns to set, or None to do nothing.

        Returns:
            The row, or None when nothing was done.

        Raises:
            ServerError: 23505 where there is such a key, and no ``on_conflict``.
        """
        table = self.table(name)
        key = table.key_of(row)
        await self.server.locks.take(self.transaction, (name, key), self.lock_timeout)
        newest = table.newest(key)
        if newest is not None:
            if on_conflict is None:
                raise ServerError("23505", f'duplicate key value violates unique constraint "{name}_pkey"')
            change = on_conflict(newest.row)
            if change is None:
                return None
            row = {**newest.row, **change}
        table.write(self.transaction, key, row)
        return row

    def notify(self, channel: str) -> None:
        """``pg_notify``: those who listen hear it after the commit."""
        self._notifications.append(channel)
