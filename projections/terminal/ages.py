"""Lags and other ages as people read them, and the exit code of one that is too long."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from projections.terminal.output import Answer, printable

_ABOVE = 3


def failing_above(answer: Answer, limit: timedelta | None, what: str) -> Answer:
    """The answer with an exit code of its own when one of what it lists, by its ``lag_seconds``, is above a limit."""
    if limit is None:
        return answer
    behind = [one for one in answer.values[what] if one["lag_seconds"] > limit.total_seconds()]
    if not behind:
        return answer
    above = ", ".join(f"{printable(one['name'])} ({age(one['lag_seconds'])})" for one in behind)
    return replace(answer, exit_code=_ABOVE, complaint=f"lag above {age(limit.total_seconds())}: {above}")


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
