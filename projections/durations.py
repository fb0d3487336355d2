"""Durations as people write them: ``500ms``, ``30s``, ``5m``, ``1h30m``, ``1d``; also as options of commands."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import click

from journal import InvalidValue

_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds"}
_DURATION = re.compile(
    "".join(rf"(?:(?P<{name}>[0-9]+(?:\.[0-9]+)?){unit})?" for unit, name in _UNITS.items())
)


class InvalidDuration(InvalidValue):
    """A text that is not a duration."""


def parse_duration(text: str) -> timedelta:
    """Read a duration: ``500ms``, ``30s``, ``5m``, ``1h30m``, ``1d``; InvalidDuration for anything else."""
    found = _DURATION.fullmatch(text)
    try:
        if text and found is not None:
            return timedelta(**{name: float(number) for name, number in found.groupdict("0").items()})
    except OverflowError:
        pass
    raise InvalidDuration(f"{text!r} is not a duration: write 500ms, 30s, 5m, 1h30m or 1d")


def duration_text(time: timedelta) -> str:
    """The duration as :func:`parse_duration` reads it, in one unit: the largest that needs no fraction."""
    for unit, name in _UNITS.items():
        if not time % timedelta(**{name: 1}):
            return f"{time // timedelta(**{name: 1})}{unit}" if time else "0s"
    return f"{time / timedelta(milliseconds=1)}ms"


class Duration(click.ParamType):  # type: ignore[type-arg]  # it takes arguments only from click 8.4 on
    """A duration as a timedelta, from ``least`` to ``most``, which are written as one; ``word`` is taken as it is."""

    name = "duration"

    def __init__(self, *, least: str = "0s", most: str | None = None, word: str | None = None) -> None:
        self._least = parse_duration(least)
        self._most = timedelta.max if most is None else parse_duration(most)
        self._word = word

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read what was given; a default may be a timedelta."""
        if isinstance(value, timedelta) or value == self._word:
            return value
        try:
            time = parse_duration(value)
        except InvalidDuration as error:
            self.fail(f"{error}{f', or {self._word}' if self._word else ''}", param, ctx)
        if time < self._least:
            self.fail(f"{value} is too short: the least is {duration_text(self._least)}", param, ctx)
        if time > self._most:
            self.fail(f"{value} is too long: the most is {duration_text(self._most)}", param, ctx)
        return time
