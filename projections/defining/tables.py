"""
Read models that handlers describe as changes of rows, instead of writing them.

A handler returns changes; a :class:`Batch` folds the changes of many events into one per row, and the
framework writes those set-wise. Invariant: the table that results is the same for any batch size, any number
of ranges and any interleaving of sources. Operations that can not promise this by themselves (``set``,
``delete``) need the author's word that all events of a key come from one source: ``per_source=True``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from enum import Enum
from operator import index, itemgetter
from typing import Any, NamedTuple, TypeAlias

from journal.errors import ProjectionsError

__all__ = [
    "Batch",
    "Change",
    "Changes",
    "Folded",
    "Operation",
    "Table",
    "TableConflict",
    "TableError",
    "fold",
]

_MAX_IDENTIFIER_BYTES = 63
_QUALIFIED = 2

# Sums must not round, or they would depend on where batches end. PostgreSQL's numeric has fewer digits.
_EXACT = Context(prec=150_000, traps=[Inexact, InvalidOperation, Overflow, DivisionByZero])


class TableError(ProjectionsError):
    """A table of the database, or a value for it, does not fit what its ``Table`` declares."""


class TableConflict(TableError):
    """Two sources touched one key of a table that was declared ``per_source=True``."""


class Operation(Enum):
    """What happens to a column when a row exists already."""

    SET = "set"
    INCREMENT = "increment"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"


# Names of this module are looked up faster than members of the class, and this is the hot path.
_SET, _INCREMENT, _MINIMUM = Operation.SET, Operation.INCREMENT, Operation.MINIMUM


class Change(NamedTuple):
    """What an event does to one row; made by :meth:`Table.upsert` and :meth:`Table.delete`."""

    table: Table
    key: tuple[Any, ...]
    values: Mapping[str, Any] | None
    """The columns outside the key; None deletes the row."""


Changes: TypeAlias = Change | Iterable[Change] | None
"""What a table handler may return."""

_new_change = tuple.__new__


class Table:
    """
    A table that handlers change by returning :meth:`upsert` and :meth:`delete`.

    Every column has one operation, declared here. A row that does not exist yet starts with the table's
    defaults; columns that a change does not mention stay as they are. Declare a table once and import it.

    Args:
        name: ``"table"``, ``"schema.table"``, or ``("schema", "table")`` where a name contains a dot.
        key: The columns that identify a row; the table needs a unique index on exactly these.
        set: Columns that take the newest value, None included. Needs ``per_source``.
        increment: Columns to add to, starting from zero; None adds nothing. Sums are exact: floats are added
            as the decimal numbers that they print as.
        minimum: Columns that keep the smallest value; None does not count. Texts compare by code point.
        maximum: Columns that keep the largest value; None does not count. Texts compare by code point.
        per_source: The author's statement that all events which touch a key come from one source. Only then
            do ``set`` and ``delete`` have one result, because only a source's own events have an order.
        source: The column of the key that holds the ``source_id``: implies ``per_source``, is checked, and lets a
            range of slices be rebuilt by itself.

    Raises:
        ValueError: The declaration contradicts itself; the message names the value and what to do.
    """

    __slots__ = ("_columns", "_key_of", "key", "operations", "per_source", "qualified_name", "source")

    key: tuple[str, ...]
    """The columns that identify a row."""
    operations: dict[str, Operation]
    """The columns outside the key, in the order of their declaration."""
    per_source: bool
    """Whether all events which touch a key come from one source."""
    qualified_name: tuple[str, ...]
    """``(table,)`` or ``(schema, table)``."""
    source: str | None
    """The column of the key that holds the source's id."""

    def __init__(
        self,
        name: str | tuple[str, str],
        *,
        key: Iterable[str],
        set: Iterable[str] = (),  # noqa: A002 - the word that SQL has for it
        increment: Iterable[str] = (),
        minimum: Iterable[str] = (),
        maximum: Iterable[str] = (),
        per_source: bool = False,
        source: str | None = None,
    ) -> None:
        self.qualified_name = _qualified(name)
        self.key = _names(key)
        self.source = source
        self.per_source = per_source or source is not None
        if source is not None and source not in self.key:
            raise ValueError(f"table {self}: source={source!r} is no column of the key {self.key!r}")
        declared = zip(Operation, (set, increment, minimum, maximum), strict=True)
        self.operations = self._declare({operation: _names(columns) for operation, columns in declared})
        self._columns = frozenset((*self.key, *self.operations))
        self._key_of = itemgetter(*self.key)

    def _declare(self, declared: Mapping[Operation, tuple[str, ...]]) -> dict[str, Operation]:
        if not self.key:
            raise ValueError(f"table {self}: key is empty; name the columns that identify a row")
        if declared[_SET] and not self.per_source:
            raise ValueError(
                f"table {self}: set={declared[_SET]!r} keeps what is written last, which for a key that "
                "several sources write depends on how they interleave; declare per_source=True if all events "
                "that touch a key come from one source, else use increment, minimum or maximum"
            )
        places = [("key", column) for column in self.key]
        places += [(operation.value, column) for operation, columns in declared.items() for column in columns]
        seen: dict[str, str] = {}
        for place, column in places:
            _check_identifier(column, f"table {self}: column")
            if column in seen:
                raise ValueError(
                    f"table {self}: column {column!r} is in {seen[column]} and in {place}; "
                    "name it in one place, once"
                )
            seen[column] = place
        return {column: Operation(place) for column, place in seen.items() if place != "key"}

    def within(self, schema: str) -> Table:
        """The same declaration for a table of the same name in another schema."""
        other = copy(self)
        other.qualified_name = (schema, self.qualified_name[-1])
        return other

    def __str__(self) -> str:
        return ".".join(self.qualified_name)

    def __repr__(self) -> str:
        return f"Table({str(self)!r}, key={self.key!r})"

    def upsert(self, /, **columns: Any) -> Change:
        """
        Change a row, or make it where there is none.

        Args:
            **columns: All columns of the key, and any of the others.

        Raises:
            ValueError: A column is not declared, or one of the key is missing or None.
        """
        if not self._columns.issuperset(columns):
            raise self._unknown(columns)
        key = self._take_key(columns)
        return _new_change(Change, (self, key, columns))

    def delete(self, /, **key: Any) -> Change:
        """
        Remove a row; does nothing where there is none.

        Args:
            **key: All columns of the key, and no others.

        Raises:
            ValueError: The table is not ``per_source``, or these are not the columns of the key.
        """
        if not self.per_source:
            raise ValueError(
                f"table {self}: what a delete leaves of a key that several sources write depends on how they "
                "interleave; declare per_source=True if all events that touch a key come from one source"
            )
        values = self._take_key(key)
        if key:
            raise ValueError(f"table {self}: delete takes the key {self.key!r} only, not {sorted(key)}")
        return _new_change(Change, (self, values, None))

    def _take_key(self, columns: dict[str, Any]) -> tuple[Any, ...]:
        try:
            key = self._key_of(columns)
        except KeyError as error:
            raise ValueError(f"table {self}: key column {error.args[0]!r} is missing") from None
        names = self.key
        if len(names) == 1:
            key = (key,)
        if None in key:
            raise ValueError(
                f"table {self}: key column {names[key.index(None)]!r} is None; a key needs a value"
            )
        for name in names:
            del columns[name]
        return key  # type: ignore[no-any-return]

    def _unknown(self, columns: Iterable[str]) -> ValueError:
        unknown = sorted(column for column in columns if column not in self._columns)
        return ValueError(
            f"table {self}: unknown column {', '.join(map(repr, unknown))}; "
            f"declared are {', '.join((*self.key, *self.operations))}"
        )


class Folded(NamedTuple):
    """What a batch does to one row: first delete it if asked, then upsert the values if there are any."""

    delete: bool
    values: dict[str, Any] | None
    source_id: str


class Batch:
    """
    The changes of many events, folded into one per row.

    An event's changes enter all or not at all, so that a batch stays good when one event fails.
    """

    __slots__ = ("_tables",)

    def __init__(self) -> None:
        self._tables: dict[Table, dict[tuple[Any, ...], Folded]] = {}

    def __len__(self) -> int:
        """How many rows change."""
        return sum(map(len, self._tables.values()))

    @property
    def tables(self) -> Mapping[Table, Mapping[tuple[Any, ...], Folded]]:
        """The folded rows by their key, for each table."""
        return self._tables

    def within(self, places: Mapping[Table, Table]) -> Batch:
        """The same rows of some tables, to be written to others."""
        other = Batch()
        other._tables = {places[table]: rows for table, rows in self._tables.items() if table in places}
        return other

    def add(self, source_id: str, change: Change) -> None:
        """
        Fold one change in, after those that came before.

        Raises:
            TableConflict: Another source touched this key of a ``per_source`` table.
            ValueError: A value can not be added, compared or used as a key; the batch stays as it was.
        """
        self._replace(source_id, change)

    def collect(self, source_id: str, returned: Changes) -> None:
        """
        Fold in what a handler returned for one event: a change, several, or None.

        Args:
            source_id: The source of the event.
            returned: The handler's result; a generator is run to its end.

        Raises:
            TableConflict, ValueError: As :meth:`add`.
            TypeError: Something else than changes was returned.
        """
        if type(returned) is Change:
            self._replace(source_id, returned)
        elif returned is not None:
            self._collect_all(source_id, list(_only_changes(returned)))

    def _replace(self, source_id: str, change: Change) -> Folded | None:
        """Fold one change in; returns what was there before."""
        table, key, _ = change
        rows = self._tables.get(table)
        if rows is None:
            rows = self._tables[table] = {}
        try:
            before = rows.get(key)
        except TypeError as error:
            raise ValueError(f"table {table}: {key!r} can not be a key: {error}") from error
        rows[key] = _fold_row(before, source_id, change)
        return before

    def _collect_all(self, source_id: str, changes: list[Change]) -> None:
        done: list[tuple[Change, Folded | None]] = []
        try:
            for change in changes:
                done.append((change, self._replace(source_id, change)))  # noqa: PERF401 - undone when one fails
        except (ProjectionsError, ValueError):
            for change, before in reversed(done):
                rows = self._tables[change.table]
                del rows[change.key]
                if before is not None:
                    rows[change.key] = before
            raise


def fold(changes: Iterable[tuple[str, Change]]) -> Batch:
    """Fold changes, each with the source of its event, in their order; raises as :meth:`Batch.add`."""
    batch = Batch()
    for source_id, change in changes:
        batch.add(source_id, change)
    return batch


def _fold_row(before: Folded | None, source_id: str, change: Change) -> Folded:
    table, key, values = change
    if before is None:
        if table.source is not None and key[table.key.index(table.source)] != source_id:
            raise TableConflict(
                f"table {table} is declared source={table.source!r}, but source {source_id!r} touched key {key!r}: "
                f"put envelope.source_id into {table.source!r}, or declare per_source=True"
            )
        deleted, old = False, None
    else:
        deleted, old, owner = before
        if table.per_source and owner != source_id:
            raise TableConflict(
                f"table {table} is declared per_source, but key {key!r} is touched by source {owner!r} and "
                f"by source {source_id!r}; put the source into the key, or do without per_source"
            )
    if values is None:
        return _new_change(Folded, (True, None, source_id))
    merged = {} if old is None else old.copy()
    _merge(merged, table, values)
    return _new_change(Folded, (deleted, merged, source_id))


def _merge(merged: dict[str, Any], table: Table, values: Mapping[str, Any]) -> None:
    operations = table.operations
    column = ""
    try:
        for column, value in values.items():
            operation = operations[column]
            if operation is _SET:
                merged[column] = value
            elif value is None:
                continue
            elif operation is _INCREMENT:
                old = merged.get(column, 0)
                merged[column] = old + value if type(value) is type(old) is int else _sum(old, value)
            else:
                if value != value:  # noqa: PLR0124 - only NaN differs from itself
                    raise ArithmeticError("NaN has no place in an order")  # noqa: TRY301
                old = merged.get(column)
                if old is None or (value < old if operation is _MINIMUM else old < value):
                    merged[column] = value
    except (TypeError, ArithmeticError) as error:
        raise ValueError(f"table {table}: {operations[column].value} of {column!r}: {error}") from error


def _sum(old: int | Decimal, value: Any) -> int | Decimal:
    if isinstance(value, float):
        value = Decimal(float.__repr__(value))
    if not isinstance(value, Decimal):
        value = index(value)
        return old + value if type(old) is int else _EXACT.add(old, value)
    if not value.is_finite():
        raise ArithmeticError(f"{value} can not be added, only finite numbers can")
    return _EXACT.add(old, value)


def _only_changes(returned: Any) -> Iterator[Change]:
    if not isinstance(returned, Iterable) or isinstance(returned, str | bytes | Mapping):
        raise _not_a_change(returned)
    for change in returned:
        if type(change) is not Change:
            raise _not_a_change(change)
        yield change


def _not_a_change(value: object) -> TypeError:
    return TypeError(
        f"a table handler returned {value!r} of type {type(value).__name__}; "
        "return TABLE.upsert(...), TABLE.delete(...), a list of these, or None"
    )


def _names(columns: Iterable[str]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)


def _qualified(name: str | tuple[str, ...]) -> tuple[str, ...]:
    parts = tuple(name.split(".")) if isinstance(name, str) else tuple(name)
    if not 1 <= len(parts) <= _QUALIFIED:
        raise ValueError(
            f"table {name!r}: write 'table' or 'schema.table', "
            "or a tuple ('schema', 'table') where names contain dots"
        )
    for part in parts:
        _check_identifier(part, f"table {name!r}: name")
    return parts


def _check_identifier(name: object, what: str) -> None:
    if not isinstance(name, str) or not name or "\0" in name:
        raise ValueError(
            f"{what} {name!r} is not a name in PostgreSQL: it needs text, not empty, without NUL"
        )
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} {name!r} is not valid text: it holds a lone surrogate") from None
    if size > _MAX_IDENTIFIER_BYTES:
        raise ValueError(
            f"{what} {name!r} has {size} bytes; PostgreSQL keeps {_MAX_IDENTIFIER_BYTES}: shorten it"
        )
