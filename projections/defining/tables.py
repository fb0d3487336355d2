"""
Tables that handlers change by returning rows, instead of writing them.

Invariant: the table that results is the same for any batch size, any number of ranges and any interleaving of sources.
Operations that cannot promise this alone (``set``, ``delete``) need the author's word that all events of a key come
from one source: ``per_source=True``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from enum import Enum
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from journal import ProjectionsError, unstorable
from projections.defining.comparing import PLAIN, comparable

_MAX_IDENTIFIER_BYTES = 63
_QUALIFIED = 2


class TableError(ProjectionsError):
    """A table of the database, or a value for it, does not fit what its ``Table`` declares."""


class TableConflict(TableError):
    """Two sources touched one key of a table that was declared ``per_source=True``."""


class ColumnOperation(Enum):
    """What happens to a column when a row exists already."""

    SET = "set"
    INCREMENT = "increment"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"


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
    operations: dict[str, ColumnOperation]
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
            raise ValueError(f"table {self}: source={source!r} is not a column of the key {self.key!r}")
        declared = zip(ColumnOperation, (set, increment, minimum, maximum), strict=True)
        self.operations = self._declare({operation: _names(columns) for operation, columns in declared})
        self._columns = frozenset((*self.key, *self.operations))
        self._key_of = itemgetter(*self.key)

    def _declare(self, declared: Mapping[ColumnOperation, tuple[str, ...]]) -> dict[str, ColumnOperation]:
        if not self.key:
            raise ValueError(f"table {self}: key is empty; name the columns that identify a row")
        if declared[ColumnOperation.SET] and not self.per_source:
            raise ValueError(
                f"table {self}: set={declared[ColumnOperation.SET]!r} keeps what is written last, which for a key that "
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
        return {column: ColumnOperation(place) for column, place in seen.items() if place != "key"}

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
            ValueError: A column is not declared, or one of the key is missing, None or NaN, or a time of day with a
                zone.
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
        for name in names:
            if type(columns.pop(name)) not in PLAIN:
                key = self._comparable(key)
        return key  # type: ignore[no-any-return]

    def _comparable(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        if None in key:
            raise ValueError(
                f"table {self}: key column {self.key[key.index(None)]!r} is None; a key needs a value"
            )
        try:
            return tuple(map(comparable, key))
        except ValueError as error:
            raise ValueError(f"table {self}: key {key!r}: {error}") from error

    def _unknown(self, columns: Iterable[str]) -> ValueError:
        unknown = sorted(column for column in columns if column not in self._columns)
        return ValueError(
            f"table {self}: unknown column {', '.join(map(repr, unknown))}; "
            f"declared are {', '.join((*self.key, *self.operations))}"
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
    if not isinstance(name, str) or not name:
        raise ValueError(f"{what} {name!r} is not a name in PostgreSQL: it needs text, not empty")
    if found := unstorable(name):
        raise ValueError(f"{what} {name!r} is not a name in PostgreSQL: it holds {found}")
    if (size := len(name.encode())) > _MAX_IDENTIFIER_BYTES:
        raise ValueError(
            f"{what} {name!r} has {size} bytes; PostgreSQL keeps {_MAX_IDENTIFIER_BYTES}: shorten it"
        )
