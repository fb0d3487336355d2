"""What a payload must contain: filters without operators, matched by PostgreSQL as `filters` matches them in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from projections.interests.errors import InvalidFilter

CONTAINS = "e.payload @> (s.params -> 'contains')"
"""One condition for all subscriptions that ask for contents: it is asked once, however many share it."""


def check_contents(contents: Mapping[str, Any]) -> None:
    """Check that no name in a payload begins with ``$``, as operators do (InvalidFilter): it is asked for as it is."""
    pending: list[Any] = [contents]
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            if operators := [name for name in value if name.startswith("$")]:
                raise InvalidFilter(
                    f"contains has {operators[0]!r:.80}, and takes no operators: write a condition instead"
                )
            pending += value.values()
        elif isinstance(value, list):
            pending += value
