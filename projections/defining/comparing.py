"""Values as a fold compares them, which is as the database does."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

PLAIN = frozenset({str, int, date, UUID, bool})
"""Types whose values Python compares as the database does."""


def comparable(value: Any) -> Any:
    """
    A value as it is compared, and as it is in keys.

    Python compares times of one zone by what its clocks show, and at the end of summer they show an hour twice.
    So a datetime with a zone becomes one in UTC; all others stay as they are.

    Raises:
        ValueError: The value has no place in an order: NaN, a time of day with a zone, a time in no year of UTC.
    """
    if isinstance(value, datetime):
        return value if value.tzinfo is None or value.tzinfo is UTC else _in_utc(value)
    if isinstance(value, time) and value.tzinfo is not None:
        raise ValueError(
            f"{value!r} has a time zone and no date, so it has no place in an order: use a datetime"
        )
    if isinstance(value, float | Decimal) and math.isnan(value):
        raise ValueError("NaN has no place in an order")
    return value


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{value!r} is not in the years 1 to 9999 of UTC") from error
