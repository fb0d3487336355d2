"""Durations as people write them: ``500ms``, ``30s``, ``5m``, ``1h30m``, ``1d``."""

from __future__ import annotations

import re
from datetime import timedelta

from journal import ProjectionsError

__all__ = ["InvalidDuration", "duration_text", "parse_duration"]

_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds"}
_DURATION = re.compile(
    "".join(rf"(?:(?P<{name}>[0-9]+(?:\.[0-9]+)?){unit})?" for unit, name in _UNITS.items())
)


class InvalidDuration(ProjectionsError, ValueError):
    """A text that is not a duration."""


def parse_duration(text: str) -> timedelta:
    """
    Read a duration: ``500ms``, ``30s``, ``5m``, ``1h30m``, ``1d``.

    Raises:
        InvalidDuration: The text is something else.
    """
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
