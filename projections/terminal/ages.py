"""Lags and other ages as people read them, and the exit code of one that is too long."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import click

from projections.terminal.output import printable

__all__ = ["age", "exit_above"]

_ABOVE = 3


def exit_above(context: click.Context, limit: timedelta, lags: Iterable[tuple[str, float]]) -> None:
    """End with an exit code of its own when something is further behind than a limit, and say what; lags in seconds."""
    above = [f"{printable(name)} ({age(lag)})" for name, lag in lags if lag > limit.total_seconds()]
    if above:
        click.echo(f"lag above {age(limit.total_seconds())}: {', '.join(above)}", err=True)
        context.exit(_ABOVE)


def age(seconds: float) -> str:
    """Seconds as people read them: ``0 s``, ``0.8 s``, ``12 min 3 s``, ``2 d 4 h``."""
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.3g} s" if 0 < seconds < 1 else f"{seconds:.1f} s".replace(".0 s", " s")
    whole = int(seconds)
    for unit, size, smaller, part in (
        ("d", 86_400, "h", 3_600),
        ("h", 3_600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    raise AssertionError(seconds)
