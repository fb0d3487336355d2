"""The type of all options that take a duration: ``30s``, ``5m``, ``1h30m``."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from projections.durations import InvalidDuration, duration_text, parse_duration

__all__ = ["Duration"]


class Duration(click.ParamType):  # type: ignore[type-arg]  # it takes arguments only from click 8.4 on
    """
    A duration, as a timedelta.

    Args:
        least: The shortest that is allowed, written as one.
        most: The longest that is allowed, likewise.
        seconds: Whether a number without a unit is taken, too, as seconds.
        word: A text that is taken as it is, such as ``none``.
    """

    name = "duration"

    def __init__(
        self, *, least: str = "0s", most: str | None = None, seconds: bool = False, word: str | None = None
    ) -> None:
        self._least = parse_duration(least)
        self._most = timedelta.max if most is None else parse_duration(most)
        self._seconds = seconds
        self._word = word

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read what was given; a default may be a timedelta."""
        if isinstance(value, timedelta) or value == self._word:
            return value
        plain = self._seconds and value.isascii() and value.replace(".", "", 1).isdecimal()
        try:
            time = parse_duration(f"{value}s" if plain else value)
        except InvalidDuration:
            self.fail(f"{value!r} is not a duration: write {self._examples()}", param, ctx)
        if time < self._least:
            self.fail(f"{value} is too short: the least is {duration_text(self._least)}", param, ctx)
        if time > self._most:
            self.fail(f"{value} is too long: the most is {duration_text(self._most)}", param, ctx)
        return time

    def _examples(self) -> str:
        word = f", or {self._word}" if self._word else ""
        return f"500ms, 30s, 5m, 1h30m or 1d{' (a number without a unit is seconds)' * self._seconds}{word}"
