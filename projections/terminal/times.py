"""The type of all options that take a time: ``2026-01-31T12:00:00Z``, or how long ago it was: ``2h``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from projections.durations import InvalidDuration, parse_duration


class Time(click.ParamType):  # type: ignore[type-arg]  # it takes arguments only from click 8.4 on
    """
    A time as a datetime: an ISO time with its zone, or a duration, for that long ago.

    ``ahead``: the time is one to come, so a duration is refused. ``words`` are taken as they are, such as
    ``beginning``.
    """

    name = "time"

    def __init__(self, *, ahead: bool = False, words: Sequence[str] = ()) -> None:
        self._ahead = ahead
        self._words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime | str:
        """Read what was given."""
        if value in self._words:
            return str(value)
        if not self._ahead:
            try:
                return datetime.now(UTC) - parse_duration(value)
            except OverflowError:
                self.fail(f"{value!r} is before all times", param, ctx)
            except InvalidDuration:
                pass
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            others = [*self._words, *([] if self._ahead else ["2h for two hours ago"])]
            allowed = "".join(f"{each}, or " for each in others)
            self.fail(f"{value!r} is not a time: write {allowed}2026-01-31T12:00:00Z", param, ctx)
        if time.utcoffset() is None:
            self.fail(f"{value!r} has no zone: write {time.isoformat()}Z for UTC", param, ctx)
        return time
