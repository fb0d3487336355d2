"""Python values of a table's columns as parameters: one array for each column, the same for every driver."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from operator import index
from typing import Any
from uuid import UUID

from journal import unstorable


class ValueKind(Enum):
    """How the values of a column are checked and sent."""

    INTEGER = "integer"
    NUMERIC = "numeric"
    FLOAT = "float"
    TEXT = "text"
    ENUM = "enum"
    JSON = "json"
    BOOLEAN = "boolean"
    UUID = "uuid"
    BYTES = "bytes"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    INTERVAL = "interval"
    OTHER = "other"

    @property
    def is_key(self) -> bool:
        """Whether values that differ in Python also differ in the database."""
        return self not in {ValueKind.FLOAT, ValueKind.JSON, ValueKind.OTHER}

    @property
    def is_ordered(self) -> bool:
        """Whether Python and the database agree on which value is smaller."""
        return self not in {ValueKind.ENUM, ValueKind.JSON, ValueKind.OTHER}


_BUILT_IN = {
    "int2": ValueKind.INTEGER,
    "int4": ValueKind.INTEGER,
    "int8": ValueKind.INTEGER,
    "numeric": ValueKind.NUMERIC,
    "float4": ValueKind.FLOAT,
    "float8": ValueKind.FLOAT,
    "text": ValueKind.TEXT,
    "varchar": ValueKind.TEXT,
    "json": ValueKind.JSON,
    "jsonb": ValueKind.JSON,
    "bool": ValueKind.BOOLEAN,
    "uuid": ValueKind.UUID,
    "bytea": ValueKind.BYTES,
    "date": ValueKind.DATE,
    "time": ValueKind.TIME,
    "timestamp": ValueKind.TIMESTAMP,
    "timestamptz": ValueKind.TIMESTAMPTZ,
    "interval": ValueKind.INTERVAL,
}


def kind_of(built_in: str | None, *, is_enum: bool) -> ValueKind:
    """
    The kind of a type.

    Args:
        built_in: Its name, when it is one of PostgreSQL's own.
        is_enum: Whether it was made by ``CREATE TYPE ... AS ENUM``.
    """
    return ValueKind.ENUM if is_enum else _BUILT_IN.get(built_in or "", ValueKind.OTHER)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table as the database has it."""

    name: str
    kind: ValueKind
    type: str
    """The type of its values, quoted, without length or precision: a cast would silently cut to those."""
    shown: str
    """The type for messages."""
    scale: int | None
    """Digits after the point, where a ``numeric`` is declared with precision."""
    has_default: bool

    @property
    def sent_as(self) -> str:
        """The type in which values are sent; those of enums and JSON are sent as text."""
        return "pg_catalog.text" if self.kind in {ValueKind.ENUM, ValueKind.JSON} else self.type


def encode(column: Column, values: list[Any], *, exact: bool) -> list[Any]:
    """
    Check one column's values and make them what the drivers take for an array of its type.

    Args:
        column: The column that the values are written to.
        values: One for each row; None is NULL.
        exact: Refuse what the column would round, because sums would then depend on where batches end.

    Raises:
        TypeError: A value is of another type than the column.
        ValueError: A value cannot be stored.
    """
    convert, plain = _CONVERSIONS.get(column.kind, (None, frozenset()))
    types = set(map(type, values)) - {type(None)}
    if convert is not None and not types <= plain:
        values = [None if value is None else convert(value) for value in values]
    if exact and column.kind is ValueKind.NUMERIC and column.scale is not None:
        _check_scale(column, values)
    if column.kind in {ValueKind.TEXT, ValueKind.ENUM}:
        _check_text(values)
    return values


def _check_text(values: Iterable[str | None]) -> None:
    if found := unstorable("".join(filter(None, values))):  # one check is fast
        raise ValueError(f"a text holds {found}, which PostgreSQL cannot store")


def _check_scale(column: Column, values: Iterable[Decimal | int | None]) -> None:
    for value in values:
        if (
            isinstance(value, Decimal)
            and value.is_finite()
            and -int(value.as_tuple().exponent) > (column.scale or 0)
        ):
            raise ValueError(
                f"{value} has more digits after the point than {column.shown} keeps: round it before"
            )


def _integer(value: Any) -> int:
    return index(value) + 0  # a bool becomes a number


def _numeric(value: Any) -> Decimal:
    if isinstance(value, float):
        return Decimal(float.__repr__(value))
    if isinstance(value, Decimal):
        return value
    return Decimal(index(value))


def _float(value: Any) -> float:
    if isinstance(value, str):
        raise _mismatch(value, "a number")
    return float(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Enum) and isinstance(value.value, str):
        return value.value
    raise _mismatch(value, "a str")


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _date(value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    raise _mismatch(value, "a datetime.date")


def _time(value: Any) -> time:
    if isinstance(value, time) and value.tzinfo is None:
        return value
    raise _mismatch(value, "a datetime.time without time zone")


def _timestamp(value: Any) -> datetime:
    if isinstance(value, datetime) and value.tzinfo is None:
        return value
    raise _mismatch(value, "a datetime without time zone")


def _timestamptz(value: Any) -> datetime:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value
    raise _mismatch(value, "a datetime with time zone")


def _only(expected: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if isinstance(value, expected):
            return value
        raise _mismatch(value, f"a {expected.__name__}")

    return check


def _mismatch(value: object, expected: str) -> TypeError:
    return TypeError(f"{value!r} is a {type(value).__name__}, and {expected} is needed")


_NEVER_PLAIN: frozenset[type] = frozenset()

# For each kind: the conversion of a value, and the types whose values (all of a column's) need none.
_CONVERSIONS: dict[ValueKind, tuple[Callable[[Any], Any], frozenset[type]]] = {
    ValueKind.INTEGER: (_integer, frozenset({int})),
    ValueKind.NUMERIC: (_numeric, frozenset({Decimal})),
    ValueKind.FLOAT: (_float, frozenset({float})),
    ValueKind.TEXT: (_text, frozenset({str})),
    ValueKind.ENUM: (_text, frozenset({str})),
    ValueKind.JSON: (_json, _NEVER_PLAIN),
    ValueKind.BOOLEAN: (_only(bool), frozenset({bool})),
    ValueKind.UUID: (_only(UUID), frozenset({UUID})),
    ValueKind.BYTES: (_only(bytes), frozenset({bytes})),
    ValueKind.DATE: (_date, frozenset({date})),
    ValueKind.TIME: (_time, _NEVER_PLAIN),
    ValueKind.TIMESTAMP: (_timestamp, _NEVER_PLAIN),
    ValueKind.TIMESTAMPTZ: (_timestamptz, _NEVER_PLAIN),
    ValueKind.INTERVAL: (_only(timedelta), frozenset({timedelta})),
}
