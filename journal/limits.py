"""How long a list can be, wherever somebody asks for one."""

from __future__ import annotations

from journal.errors import InvalidValue

LARGEST_PAGE = 1000
"""Rows of a list."""


def check_limit(limit: int, refusal: type[InvalidValue] = InvalidValue) -> None:
    """Check that a page of a list has 1 to 1,000 rows."""
    if not 1 <= limit <= LARGEST_PAGE:
        raise refusal(f"limit must be 1 to {LARGEST_PAGE}, not {limit}")
