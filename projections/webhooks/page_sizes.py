"""How much is asked for at a time."""

from __future__ import annotations

from projections.webhooks.errors import InvalidQuery

__all__ = ["LARGEST_PAGE", "check_limit"]

LARGEST_PAGE = 1000
"""Rows of a list."""


def check_limit(limit: int) -> None:
    """
    Check that a page of a list can be so large.

    Raises:
        InvalidQuery: It is not 1 to 1,000.
    """
    if not 1 <= limit <= LARGEST_PAGE:
        raise InvalidQuery(f"limit must be 1 to {LARGEST_PAGE}, not {limit}")
