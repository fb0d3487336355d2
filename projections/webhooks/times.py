"""Times that somebody gives: without a zone they are no times."""

from __future__ import annotations

from datetime import datetime

from journal import ProjectionsError
from projections.webhooks.errors import InvalidQuery

__all__ = ["check_time"]


def check_time(name: str, value: datetime | None, refusal: type[ProjectionsError] = InvalidQuery) -> None:
    """
    Check that a time, where there is one, has a zone.

    Args:
        name: What it is called by who gave it.
        value: The time.
        refusal: What is raised where it has none.
    """
    if value is not None and value.utcoffset() is None:
        raise refusal(f"{name} has no zone: {value.isoformat()}")
