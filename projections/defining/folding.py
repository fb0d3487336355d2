"""The changes that handlers return for many events, folded into one per row: the framework writes those set-wise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from operator import index
from typing import Any

from journal import ProjectionsError
from projections.defining.comparing import PLAIN, comparable
from projections.defining.tables import Change, Changes, ColumnOperation, Table, TableConflict

# Sums must not round, or they would depend on where batches end. PostgreSQL's numeric has fewer digits.
_EXACT = Context(prec=150_000, traps=[Inexact, InvalidOperation, Overflow, DivisionByZero])
# Names of this module are looked up faster than members of the class, and this is the hot path.
_SET, _INCREMENT, _MINIMUM = ColumnOperation.SET, ColumnOperation.INCREMENT, ColumnOperation.MINIMUM


@dataclass(slots=True)
class Folded:
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
            ValueError: A value cannot be added, compared or used as a key; the batch stays as it was.
        """
        self._fold(source_id, change)

    def collect(self, source_id: str, returned: Changes) -> None:
        """
        Fold in what a handler returned for one event: a change, several, or None; a generator is run to its end.

        Raises TypeError for anything else, and what :meth:`add` does.
        """
        if type(returned) is Change:
            self._fold(source_id, returned)
        elif returned is not None:
            self._collect_all(source_id, list(_only_changes(returned)))

    def _fold(self, source_id: str, change: Change) -> None:
        table, key, values = change
        rows = self._tables.get(table)
        if rows is None:
            rows = self._tables[table] = {}
        try:
            row = rows.get(key)
        except TypeError as error:
            raise _not_a_key(change, error) from error
        if row is None or (table.per_source and row.source_id != source_id):
            _check_source(table, key, source_id, row)
        if values is None:
            rows[key] = Folded(delete=True, values=None, source_id=source_id)
        elif row is None:
            rows[key] = Folded(delete=False, values=_merged({}, table, values), source_id=source_id)
        else:
            row.values = _merged(row.values or {}, table, values)

    def _copy_of_row(self, change: Change) -> Folded | None:
        try:
            row = self._tables.get(change.table, {}).get(change.key)
        except TypeError as error:
            raise _not_a_key(change, error) from error
        return None if row is None else Folded(row.delete, row.values, row.source_id)

    def _collect_all(self, source_id: str, changes: list[Change]) -> None:
        done: list[tuple[Change, Folded | None]] = []
        try:
            for change in changes:
                done.append((change, self._copy_of_row(change)))
                self._fold(source_id, change)
        except (ProjectionsError, ValueError):
            for change, before in reversed(done):
                rows = self._tables[change.table]
                rows.pop(change.key, None)
                if before is not None:
                    rows[change.key] = before
            raise


def fold(changes: Iterable[tuple[str, Change]]) -> Batch:
    """Fold changes, each with the source of its event, in their order; raises as :meth:`Batch.add`."""
    batch = Batch()
    for source_id, change in changes:
        batch.add(source_id, change)
    return batch


def _not_a_key(change: Change, error: TypeError) -> ValueError:
    return ValueError(f"table {change.table}: {change.key!r} cannot be a key: {error}")


def _check_source(table: Table, key: tuple[Any, ...], source_id: str, row: Folded | None) -> None:
    if row is not None:
        raise TableConflict(
            f"table {table} is declared per_source, but key {key!r} is touched by source {row.source_id!r} and "
            f"by source {source_id!r}; put the source into the key, or do without per_source"
        )
    if table.source is not None and key[table.key.index(table.source)] != source_id:
        raise TableConflict(
            f"table {table} is declared source={table.source!r}, but source {source_id!r} touched key {key!r}: "
            f"put envelope.source_id into {table.source!r}, or declare per_source=True"
        )


def _merged(old: dict[str, Any], table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """What happens to a row's values; those that are there stay as they are, for the event may fail."""
    merged, operations = old.copy(), table.operations
    column = ""
    try:
        for column, value in values.items():
            operation = operations[column]
            if operation is _INCREMENT:
                before = merged.get(column, 0)
                if type(value) is type(before) is int:
                    merged[column] = before + value
                elif value is not None:
                    merged[column] = _sum(before, value)
            elif operation is _SET:
                merged[column] = value
            elif value is not None:
                if type(value) not in PLAIN:
                    value = comparable(value)  # noqa: PLW2901
                before = merged.get(column)
                if before is None or (value < before if operation is _MINIMUM else before < value):
                    merged[column] = value
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ValueError(f"table {table}: {operations[column].value} of {column!r}: {error}") from error
    return merged


def _sum(old: int | Decimal, value: Any) -> int | Decimal:
    if isinstance(value, float):
        value = Decimal(float.__repr__(value))
    if not isinstance(value, Decimal):
        value = index(value)
        return old + value if type(old) is int else _EXACT.add(old, value)
    if not value.is_finite():
        raise ArithmeticError(f"{value} cannot be added, only finite numbers can")
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
