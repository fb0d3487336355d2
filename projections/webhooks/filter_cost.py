"""What a filter may cost: characters that it looks at in one event, so that no event and filter take long together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal

from projections.webhooks.errors import FilterTooCostly

MOST_CHARACTERS = 4_000_000
"""Of one event and filter: some 10 milliseconds at most, for which an event loop can do nothing else."""

VALUE = 150
"""What a value, a field or an item of a list costs beside its text: it takes as long as so many characters of one."""

_LEFT: ContextVar[list[int]] = ContextVar("projections.webhooks.filter_characters_left")


@contextmanager
def budget() -> Iterator[None]:
    """Let what is paid within cost :data:`MOST_CHARACTERS`."""
    token = _LEFT.set([MOST_CHARACTERS])
    try:
        yield
    finally:
        _LEFT.reset(token)


def pay(characters: int) -> bool:
    """
    Take characters from the budget, before they are looked at.

    Returns:
        True, so that it can stand before what it pays for.

    Raises:
        FilterTooCostly: It is used up.
    """
    left = _LEFT.get()
    left[0] -= characters
    if left[0] < 0:
        raise FilterTooCostly(f"the filter looks at more than {MOST_CHARACTERS:,} characters of this event")
    return True


def size(value: object) -> int:
    """How many characters a scalar has to look at, of a number roughly."""
    if isinstance(value, str):
        return len(value)
    return value.__sizeof__() if isinstance(value, Decimal) else 0
