"""
Values that asyncpg sends and reads otherwise than psycopg does, or as others than they are.

It takes the ends of Python's years for infinity, a time without a zone for one of the machine's, a float in a numeric
for its binary digits, and a float in an integer for what is before its point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NoReturn

import asyncpg

from journal.database.numeric import decode_numeric, encode_numeric

_DAY_ZERO = date(2000, 1, 1).toordinal()
_NAIVE_ZERO = datetime(2000, 1, 1)  # noqa: DTZ001 - of timestamps without time zone
_ZERO = _NAIVE_ZERO.replace(tzinfo=UTC)
_MONTHS_OF_A_YEAR, _DAYS_OF_A_YEAR, _DAYS_OF_A_MONTH = 12, 365, 30


def _unreadable(kind: str) -> asyncpg.DataError:
    return asyncpg.DataError(
        f"a {kind} of the database is infinite, or beyond what Python holds: read it as text"
    )


def _encode_date(value: date) -> tuple[int]:
    if isinstance(value, datetime) and value.tzinfo is not None:
        raise TypeError("a date is needed, and a datetime with time zone is several")
    return (value.toordinal() - _DAY_ZERO,)


def _decode_date(value: tuple[int]) -> date:
    try:
        return date.fromordinal(value[0] + _DAY_ZERO)
    except (ValueError, OverflowError):
        raise _unreadable("date") from None


def _microseconds(since: timedelta) -> tuple[int]:
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds,)


def _encode_timestamp(value: date) -> tuple[int]:
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)  # noqa: DTZ001 - of a column without time zone
    return _microseconds(value - _NAIVE_ZERO)


def _encode_timestamptz(value: date) -> tuple[int]:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise TypeError("a datetime with time zone is needed")
    return _microseconds(value.astimezone(UTC) - _ZERO)


def _decode_timestamp(value: tuple[int]) -> datetime:
    try:
        return _NAIVE_ZERO + timedelta(0, 0, value[0])
    except OverflowError:
        raise _unreadable("timestamp") from None


def _decode_timestamptz(value: tuple[int]) -> datetime:
    try:
        return _ZERO + timedelta(0, 0, value[0])
    except OverflowError:
        raise _unreadable("timestamptz") from None


def _encode_interval(value: timedelta) -> tuple[int, int, int]:
    return 0, value.days, value.seconds * 1_000_000 + value.microseconds


def _decode_interval(value: tuple[int, int, int]) -> timedelta:
    months, days, microseconds = value
    years, months = divmod(months, _MONTHS_OF_A_YEAR) if months >= 0 else _before(months)
    try:
        return timedelta(years * _DAYS_OF_A_YEAR + months * _DAYS_OF_A_MONTH + days, 0, microseconds)
    except OverflowError:
        raise _unreadable("interval") from None


def _before(months: int) -> tuple[int, int]:
    years, months = divmod(-months, _MONTHS_OF_A_YEAR)
    return -years, -months


_CODECS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], str]] = {
    "date": (_encode_date, _decode_date, "tuple"),
    "timestamp": (_encode_timestamp, _decode_timestamp, "tuple"),
    "timestamptz": (_encode_timestamptz, _decode_timestamptz, "tuple"),
    "interval": (_encode_interval, _decode_interval, "tuple"),
    "numeric": (encode_numeric, decode_numeric, "binary"),
}


async def set_codecs(connection: Any) -> None:
    """Give a new connection the codecs; the types are PostgreSQL's own, so nothing is asked of the server."""
    for name, (encoder, decoder, form) in _CODECS.items():
        await connection.set_type_codec(
            name, schema="pg_catalog", encoder=encoder, decoder=decoder, format=form
        )


class _Float(float):
    """A float that is no integer: asyncpg would send what is before its point."""

    __slots__ = ()

    def __int__(self) -> NoReturn:
        raise ValueError(f"{float.__repr__(self)} is a float, and an int is needed")


class _Decimal(Decimal):
    """A Decimal that is no integer, alike."""

    __slots__ = ()

    def __int__(self) -> NoReturn:
        raise ValueError(f"{self} is a Decimal, and an int is needed")


_LISTS = frozenset({list, tuple})
_GUARDED: dict[type, Callable[[Any], Any]] = {float: _Float, Decimal: _Decimal}
_LOOKED_AT = _LISTS | _GUARDED.keys()


def guarded(values: Iterable[Any]) -> Iterable[Any]:
    """Arguments, those in lists too, of which asyncpg sends none as another number than it is."""
    return values if _LOOKED_AT.isdisjoint(map(type, values)) else list(map(_guard, values))


def _guard(value: Any) -> Any:
    kind = type(value)
    return _guard_list(value) if kind in _LISTS else _GUARDED[kind](value) if kind in _GUARDED else value


def _guard_list(values: Sequence[Any]) -> Sequence[Any]:
    """The values of a list are of one type in the database, so that one that is refused has all of them refused."""
    kinds = set(map(type, values))
    if kinds.isdisjoint(_LOOKED_AT):
        return values
    if type(values) is tuple:
        return tuple(map(_guard, values))  # a record, inside of a list: its values are of several types
    if not kinds.isdisjoint(_LISTS):
        return list(map(_guard, values))
    place = next(place for place, value in enumerate(values) if type(value) in _GUARDED)
    return [*values[:place], _guard(values[place]), *values[place + 1 :]]
