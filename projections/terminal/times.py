"""The type of all options that take a time: ``2026-01-31T12:00:00Z``, and for some how long ago it was: ``2h``."""

from __future__ import annotations

from collections.abc import Sequence
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
        words: What else is taken, as it is.
    """

    name = "time"

    def __init__(self, *, ago: bool = False, words: Sequence[str] = ()) -> None:
        self._ago = ago
        self._words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime | str:
        """Read what was given."""
        if value in self._words:
            return str(value)
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
            others = [*self._words, *(["2h for two hours ago"] if self._ago else [])]
            self.fail(
                f"{value!r} is no time: write {''.join(f'{each}, or ' for each in others)}2026-01-31T12:00:00Z",
                param,
                ctx,
            )
        if time.utcoffset() is None:
            self.fail(f"{value!r} has no zone: write {time.isoformat()}Z for UTC", param, ctx)
        return time
