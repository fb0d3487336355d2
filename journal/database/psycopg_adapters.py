"""Values that psycopg sends otherwise than asyncpg does, or as others than they are."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.types.datetime import DatetimeDumper
from psycopg.types.numeric import DecimalDumper, FloatDumper

from journal.database.numeric import numeric_text

_OF_THE_PLACE = 0  # the type that the statement needs there: an integer then takes no number with a point


class _Float(FloatDumper):
    """With all of its digits; PostgreSQL gives a numeric the first 15 of a float."""

    oid = _OF_THE_PLACE

    def dump(self, obj: float) -> bytes:
        return float.__repr__(obj).encode()


class _Decimal(DecimalDumper):
    """What a numeric holds, and nothing else."""

    oid = _OF_THE_PLACE

    def dump(self, obj: Decimal) -> bytes:
        try:
            return numeric_text(obj).encode()
        except ValueError as error:
            raise psycopg.DataError(str(error)) from None


class _Datetime(DatetimeDumper):
    """In the years of UTC that Python reads again."""

    def dump(self, obj: datetime) -> Any:
        try:
            return super().dump(obj.astimezone(UTC))
        except OverflowError:
            raise psycopg.DataError(f"{obj!r} is not in the years 1 to 9999 of UTC") from None


class _Bool(Dumper):
    """A number where the statement needs one, as asyncpg has it."""

    oid = _OF_THE_PLACE

    def dump(self, obj: bool) -> bytes:  # noqa: FBT001 - the driver's signature
        return b"1" if obj else b"0"


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    for kind, dumper in ((float, _Float), (Decimal, _Decimal), (datetime, _Datetime), (bool, _Bool)):
        adapters.register_dumper(kind, dumper)
    return adapters


class Adapting:
    """What a connection is made with to have them."""

    adapters = _adapters()
    connection = None
