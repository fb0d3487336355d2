"""The type of all options that take a time: ``2026-01-31T12:00:00Z``, and for some how long ago it was: ``2h``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from projections.durations import InvalidDuration, parse_duration

__all__ = ["Time"]


class Time(click.ParamType):  # type: ignore[type-arg]  # it takes arguments only from click 8.4 on
    """
    An ISO time with its zone, as a datetime.

    Args:
        ago: Whether a duration is taken, too: that long ago.
    """

    name = "time"

    def __init__(self, *, ago: bool = False) -> None:
        self._ago = ago

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read what was given."""
        if self._ago:
            try:
                return datetime.now(UTC) - parse_duration(value)
            except OverflowError:
                self.fail(f"{value!r} is before all times", param, ctx)
            except InvalidDuration:
                pass
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            time = None
        if time is None or (self._ago and time.utcoffset() is None):
            ago = "2h for two hours ago, or " if self._ago else ""
            self.fail(f"{value!r} is no time: write {ago}2026-01-31T12:00:00Z", param, ctx)
        if time.utcoffset() is None:
            self.fail(f"{value!r} has no zone: write {time.isoformat()}Z for UTC", param, ctx)
        return time
