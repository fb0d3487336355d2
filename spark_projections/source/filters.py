"""Filters of a query, put into what is read: the database leaves out what Spark would throw away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from journal import SliceRange
from spark_projections.reading.batches import COLUMNS, Reading, literal

_INSTANT = timedelta(microseconds=1)
_MAY_BE_NULL = {"metadata", "tags"}
Narrowed: TypeAlias = tuple[Reading | None, bool]


def narrowed(reading: Reading | None, wanted: Filter) -> Narrowed:
    """
    Narrow a reading by a filter.

    Args:
        reading: What is read so far; None for nothing.
        wanted: What Spark wants of every row.

    Returns:
        What is left to read, and whether that is exactly what the filter lets pass: if not, Spark has to check.
    """
    column = ".".join(getattr(wanted, "attribute", ()))
    narrow = _COLUMNS.get(column)
    if isinstance(wanted, IsNotNull) and column in COLUMNS:
        return reading, column not in _MAY_BE_NULL
    if reading is None or narrow is None:
        return reading, False
    return narrow(reading, wanted)


def _texts(field: str, reading: Reading, wanted: Filter) -> Narrowed:
    match wanted:
        case EqualTo(value=value):
            asked = (value,)
        case In(value=value):
            asked = tuple(value)
        case _:
            return reading, False
    if not all(_storable(text) for text in asked):
        return reading, False
    before = getattr(reading, field)
    kept = tuple(text for text in dict.fromkeys(asked) if not before or text in before)
    if not kept:
        return None, True
    return replace(reading, event_types=kept) if field == "event_types" else replace(
        reading, source_ids=kept
    ), True


def _storable(text: Any) -> bool:
    try:
        literal(text)
    except (ValueError, TypeError):
        return False
    return isinstance(text, str)


def _slices(reading: Reading, wanted: Filter) -> Narrowed:
    low, high, exact = _bounds(wanted, 1, int)
    found = _within(reading.slices, low, high)
    return (found and replace(reading, slices=SliceRange(*found))), exact


def _seq_nrs(reading: Reading, wanted: Filter) -> Narrowed:
    low, high, exact = _bounds(wanted, 1, int)
    found = _within(reading.seq_nrs, low, high)
    return (found and replace(reading, seq_nrs=found)), exact


def _times(reading: Reading, wanted: Filter) -> Narrowed:
    low, high, exact = _bounds(wanted, _INSTANT, datetime)
    if any(time is not None and time.utcoffset() is None for time in (low, high)):
        return reading, False
    since = max((time for time in (reading.since, low) if time is not None), default=None)
    until = min((time for time in (reading.until, high) if time is not None), default=None)
    if since is not None and until is not None and since > until:
        return None, True
    return replace(reading, since=since, until=until), exact


def _within(now: tuple[int, int], low: int | None, high: int | None) -> tuple[int, int] | None:
    first = now[0] if low is None else max(now[0], low)
    last = now[1] if high is None else min(now[1], high)
    return (first, last) if first <= last else None


def _bounds(wanted: Filter, step: Any, kind: type) -> tuple[Any, Any, bool]:
    """Lowest and highest value that a filter lets pass, and whether all between them pass."""
    values = wanted.value if isinstance(wanted, In) else (getattr(wanted, "value", None),)
    if not values or not all(isinstance(value, kind) for value in values):
        return None, None, False
    low, high = min(values), max(values)
    bounds: dict[type, tuple[Any, Any, bool]] = {
        EqualTo: (low, high, True),
        In: (low, high, low == high),
        GreaterThan: (low, None, True),
        GreaterThanOrEqual: (low, None, True),
        LessThan: (None, high, True),
        LessThanOrEqual: (None, high, True),
    }
    low, high, exact = bounds.get(type(wanted), (None, None, False))
    # What is not next to another value, such as the end of time, is left to Spark.
    try:
        if isinstance(wanted, GreaterThan):
            low += step
        if isinstance(wanted, LessThan):
            high -= step
    except OverflowError:
        return None, None, False
    return low, high, exact


_COLUMNS: dict[str, Callable[[Reading, Any], Narrowed]] = {
    "source_id": lambda reading, wanted: _texts("source_ids", reading, wanted),
    "event_type": lambda reading, wanted: _texts("event_types", reading, wanted),
    "slice": _slices,
    "seq_nr": _seq_nrs,
    "db_timestamp": _times,
}
