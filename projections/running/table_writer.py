"""Writing a folded batch set-wise: a few statements for each table, whatever the number of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from journal import DatabaseError
from journal.database import PLAN_ANEW, Session, quote
from projections.defining import Batch, ColumnOperation, Folded, Table, TableError
from projections.running.table_catalogue import Shape, read_shape
from projections.running.table_values import Column, ValueKind, encode

_Key: TypeAlias = tuple[Any, ...]
_Upsert: TypeAlias = tuple[_Key, Mapping[str, Any]]


class BatchWriter(Protocol):
    """Where the changes of table handlers go."""

    async def prepare(self, session: Session, *tables: Table) -> None:
        """Check tables before the first change comes; raises TableError."""
        ...

    async def write(self, session: Session, batch: Batch) -> None:
        """Write a batch in the session's transaction; raises TableError and journal.DatabaseError."""
        ...


class TableWriter:
    """
    Writes folded batches; reads and checks the catalogue once for each table.

    Rows are written in the order of tables and keys, all of a table that sources share in one statement: two
    ranges that write the same keys wait for each other, and do not deadlock. One writer serves many sessions.
    """

    def __init__(self) -> None:
        self._plans: dict[Table, _Plan] = {}

    def forget(self) -> None:
        """Check all tables again: the database is not the one that they were read from."""
        self._plans.clear()

    async def prepare(self, session: Session, *tables: Table) -> None:
        """
        Check tables before the first change comes; those that were checked cost nothing.

        Raises:
            TableError: A table does not fit its declaration; the message names table, column and what to do.
        """
        for table in tables:
            await self._plan(session, table)

    async def _plan(self, session: Session, table: Table) -> _Plan:
        """Kept by the caller: another session, or another thread, may forget it at any time."""
        if (plan := self._plans.get(table)) is None:
            plan = _Plan(table, await read_shape(session, table))
            self._refuse_second(plan)
            self._plans[table] = plan
        return plan

    def _refuse_second(self, new: _Plan) -> None:
        for plan in list(self._plans.values()):
            if plan.shape.oid == new.shape.oid and plan.table is not new.table:
                raise TableError(
                    f"{plan.table!r} and {new.table!r} declare the same table of the database: "
                    "declare it once, in a module, and import it from there"
                )

    async def write(self, session: Session, batch: Batch) -> None:
        """
        Write a batch in the session's transaction.

        Args:
            session: A session with an open transaction.
            batch: What is to be written; it stays as it is.

        Raises:
            TableError: A table does not fit its declaration, or a value does not fit its column.
            journal.DatabaseError: The database refused.

        After an error what is known of the table is read again the next time.
        """
        plans = [await self._plan(session, table) for table in batch.tables]
        for plan in sorted(plans, key=lambda plan: plan.shape.name):
            try:
                await plan.write(session, batch.tables[plan.table])
            except (DatabaseError, TableError) as error:
                self._plans.pop(plan.table, None)  # somebody may have altered the table
                error.add_note(f"while writing table {plan.table}")
                raise


class _Plan:
    """A table's statements, one for each set of columns that changes touch: equal text is prepared once."""

    def __init__(self, table: Table, shape: Shape) -> None:
        self.table = table
        self.shape = shape
        self._key = tuple(shape.columns[name] for name in table.key)
        self._delete = _delete_sql(shape, self._key)
        self._upserts: dict[frozenset[str], tuple[str, tuple[Column, ...]]] = {}

    async def write(self, session: Session, rows: Mapping[_Key, Folded]) -> None:
        deleted = [key for key, row in rows.items() if row.delete]
        if deleted:
            await session.execute(PLAN_ANEW)
            await session.execute(self._delete, *self._keys(deleted))
        for touched, upserts in self._groups(rows).items():
            sql, columns = self._upsert(touched)
            keys = self._keys([key for key, _ in upserts])
            values = [encode_column(self.table, c, [row.get(c.name) for _, row in upserts]) for c in columns]
            await session.execute(sql, *keys, *values)

    def _groups(self, rows: Mapping[_Key, Folded]) -> dict[frozenset[str], list[_Upsert]]:
        """
        The rows to upsert, by the columns to write.

        Where sources share keys there is one group: NULL changes nothing there, as those tables have no
        ``set`` columns, and rows that are locked by several statements would be locked out of order.
        """
        upserts = [(key, row.values) for key, row in rows.items() if row.values is not None]
        if not self.table.per_source:
            touched = frozenset[str]().union(*[values for _, values in upserts])
            return {touched: upserts} if upserts else {}  # type: ignore[dict-item]  # dict is invariant
        groups: dict[frozenset[str], list[_Upsert]] = {}
        for key, values in upserts:
            groups.setdefault(frozenset(values), []).append((key, values))
        return groups

    def _upsert(self, touched: frozenset[str]) -> tuple[str, tuple[Column, ...]]:
        if touched not in self._upserts:
            columns = tuple(self.shape.columns[name] for name in self.table.operations if name in touched)
            self._upserts[touched] = _upsert_sql(self.table, self.shape, self._key, columns), columns
        return self._upserts[touched]

    def _keys(self, keys: Sequence[_Key]) -> list[list[Any]]:
        places = zip(*keys, strict=True)
        return [
            encode_column(self.table, column, list(values))
            for column, values in zip(self._key, places, strict=True)
        ]


def encode_column(table: Table, column: Column, values: list[Any]) -> list[Any]:
    """
    Make one column's values what the drivers take for an array of its type.

    Args:
        table: The declaration.
        column: Of the table as the database has it.
        values: One for each row; None is NULL.

    Raises:
        TableError: A value does not fit.
    """
    exact = table.operations.get(column.name) is ColumnOperation.INCREMENT
    try:
        return encode(column, values, exact=exact)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise TableError(
            f"table {table}: a value does not fit column {column.name!r} ({column.shown}): {error}"
        ) from error


def _delete_sql(shape: Shape, key: Sequence[Column]) -> str:
    same = " AND ".join(f"t.{quote(c.name)} = {_sent(c, place)}" for place, c in enumerate(key, 1))
    return f"DELETE FROM {shape.name} AS t USING {_unnest(key)} WHERE {same}"


def _upsert_sql(table: Table, shape: Shape, key: Sequence[Column], columns: Sequence[Column]) -> str:
    written = (*key, *columns)
    selected = (_started(table, c, _sent(c, place)) for place, c in enumerate(written, 1))
    updates = ", ".join(f"{quote(c.name)} = {combine_column(table, c)}" for c in columns)
    return (
        f"INSERT INTO {shape.name} AS t ({_names(written)}) "
        f"SELECT {', '.join(selected)} FROM {_unnest(written)} "
        f"ORDER BY {', '.join(str(place) for place in range(1, len(key) + 1))} "
        f"ON CONFLICT ({_names(key)}) DO {f'UPDATE SET {updates}' if updates else 'NOTHING'}"
    )


def _names(columns: Iterable[Column]) -> str:
    return ", ".join(quote(column.name) for column in columns)


def _unnest(columns: Sequence[Column]) -> str:
    arrays = ", ".join(f"${place}::{column.sent_as}[]" for place, column in enumerate(columns, 1))
    return f"unnest({arrays}) AS u ({', '.join(f'c{place}' for place in range(1, len(columns) + 1))})"


def _sent(column: Column, place: int) -> str:
    return f"u.c{place}" if column.sent_as == column.type else f"u.c{place}::{column.type}"


def _started(table: Table, column: Column, value: str) -> str:
    """The value in a new row: an increment that is not mentioned takes the default, which is zero."""
    is_increment = table.operations.get(column.name) is ColumnOperation.INCREMENT
    return f"coalesce({value}, 0)" if is_increment and column.has_default else value


def combine_column(table: Table, column: Column) -> str:
    """SQL of a column's new value, from the row that is there (``t``) and the one that came (``excluded``)."""
    name = quote(column.name)
    old, new = f"t.{name}", f"excluded.{name}"
    match table.operations[column.name]:
        case ColumnOperation.SET:
            return new
        case ColumnOperation.INCREMENT:
            return f"coalesce({old} + {new}, {old}, {new})"
        case ColumnOperation.MINIMUM:
            return f"least({_ordered(column, old)}, {_ordered(column, new)})"
        case ColumnOperation.MAXIMUM:
            return f"greatest({_ordered(column, old)}, {_ordered(column, new)})"


def _ordered(column: Column, value: str) -> str:
    """Texts compare by code point, as in Python: the fold and the database must agree."""
    return f'{value} COLLATE "C"' if column.kind is ValueKind.TEXT else value
