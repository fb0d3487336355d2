"""Lengths of time on the command line: ``30s``, ``5m``, ``2h``."""

from __future__ import annotations

from datetime import timedelta

import click

from projections.monitoring.health import InvalidDuration, parse_duration

__all__ = ["duration", "written"]


def duration(_: click.Context, __: click.Parameter, value: str | None) -> timedelta | None:
    """Read ``500ms``, ``30s``, ``5m``, ``2h`` or ``1d``: the callback of an option."""
    if value is None:
        return None
    try:
        return parse_duration(value)
    except InvalidDuration as error:
        raise click.BadParameter(str(error)) from None


def written(time: timedelta) -> str:
    """A length of time, of whole seconds, as an option takes it."""
    seconds = int(time.total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
