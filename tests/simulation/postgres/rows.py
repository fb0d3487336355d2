"""What models of SQL read and write rows with, as the statements of a transaction do it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.postgres.errors import ServerError
from tests.simulation.postgres.storage import Key, Row, Snapshot, Table, Transaction

if TYPE_CHECKING:
    from tests.simulation.postgres.server import Server

Where = Callable[[Row], Any]


class RowStatements:
    """Statements on rows, in the transaction of a backend."""

    server: Server
    lock_timeout: float | None

    @property
    def transaction(self) -> Transaction:
        """The one that runs."""
        raise NotImplementedError

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
        self.transaction.has_id = True
        await self.server.locks.take(self.transaction, (table.name, key), self.lock_timeout)
        newest = table.newest(key)
        if newest is None:
            return None
        if newest.row is not seen and where is not None and not where(newest.row):
            return None
        return newest.row

    async def lock_rows(
        self,
        name: str,
        where: Where,
        *,
        order: str | tuple[str, ...] | None = None,
        skip_locked: bool = False,
        limit: int | None = None,
        snapshot: Snapshot | None = None,
    ) -> list[Row]:
        """``SELECT … FOR UPDATE``: the rows as they are once they are locked, so many of them at most."""
        locked: list[Row] = []
        async for _, row in self._locked(name, where, order, skip_locked=skip_locked, snapshot=snapshot):
            locked.append(row)
            if len(locked) == limit:
                break
        return locked

    async def _locked(
        self,
        name: str,
        where: Where,
        order: str | tuple[str, ...] | None = None,
        *,
        skip_locked: bool = False,
        snapshot: Snapshot | None = None,
    ) -> AsyncGenerator[tuple[Key, Row]]:
        table = self.table(name)
        found = list(table.rows(snapshot or self.snapshot(), where))
        columns = (order,) if isinstance(order, str) else order or ()
        found.sort(key=lambda one: [one[1][column] for column in columns])
        for key, seen in found:
            if skip_locked and not self.server.locks.is_free(self.transaction, (name, key)):
                continue
            row = await self.lock_row(table, key, seen, where)
            if row is not None:
                yield key, row

    async def share_row(self, name: str, where: Where) -> Row | None:
        """``SELECT … FOR SHARE`` of one row: others may share it, and nobody changes it meanwhile."""
        table = self.table(name)
        for key, seen in list(table.rows(self.snapshot(), where)):
            self.transaction.has_id = True
            await self.server.locks.take(self.transaction, (name, key), self.lock_timeout, shared=True)
            newest = table.newest(key)
            if newest is not None and (newest.row is seen or where(newest.row)):
                return newest.row
        return None

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
        self.transaction.has_id = True
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

    async def insert_or_nothing(self, name: str, row: Row) -> bool:
        """``INSERT … ON CONFLICT DO NOTHING``, which locks no row that is there; whether it was inserted."""
        lock = name, self.table(name).key_of(row)
        had_it = lock in self.transaction.locks
        inserted = await self.insert(name, row, lambda _: None)
        if inserted is None and not had_it:
            self.server.locks.release(self.transaction, [lock])
        return inserted is not None
