"""What a filter may cost: characters that it looks at in one event, so that no event and filter take long together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal

from projections.interests.errors import FilterTooCostly

MOST_CHARACTERS = 4_000_000
"""Of one event and filter: some 10 milliseconds at most, for which an event loop can do nothing else."""

MOST_TOGETHER = 10_000_000
"""Of one event and all filters of its tenant: its endpoints are many, and others wait behind its events."""

VALUE = 150
"""What a value, a field or an item of a list costs alongside its text, in characters that take as long."""


class _UsedUpError(Exception):
    """More would be looked at than may be."""


_LEFT: ContextVar[list[int]] = ContextVar("projections.interests.filter_characters_left")


class Purse:
    """What all filters together may still look at of one event."""

    def __init__(self) -> None:
        self.left = MOST_TOGETHER

    def pay_reading(self, text: str) -> None:
        """Pay for reading JSON: its characters, and its values; FilterTooCostly: there is not enough left."""
        cost = len(text) + VALUE * text.count(",")
        if cost > self.left:
            raise FilterTooCostly(
                f"its data have {len(text):,} characters and too many values: reading them counts as {cost:,} "
                f"characters, and filters look at {MOST_TOGETHER:,}"
            )
        self.left -= cost


@contextmanager
def budget(purse: Purse | None = None) -> Iterator[None]:
    """Let what is paid within cost :data:`MOST_CHARACTERS`, and no more than the purse has; else FilterTooCostly."""
    most = MOST_CHARACTERS if purse is None else min(MOST_CHARACTERS, purse.left)
    left = [most]
    token = _LEFT.set(left)
    try:
        yield
    except _UsedUpError:
        if most < MOST_CHARACTERS:
            raise FilterTooCostly(
                f"the filters of all endpoints look at more than {MOST_TOGETHER:,} characters of this event"
            ) from None
        raise FilterTooCostly(
            f"the filter looks at more than {MOST_CHARACTERS:,} characters of this event"
        ) from None
    finally:
        _LEFT.reset(token)
        if purse is not None:
            purse.left -= most - max(left[0], 0)


def pay(characters: int) -> bool:
    """Take characters from the budget before they are looked at; True, so that it can stand before what it pays for."""
    left = _LEFT.get()
    left[0] -= characters
    if left[0] < 0:
        raise _UsedUpError
    return True


def size(value: object) -> int:
    """How many characters a scalar has to look at, of a number roughly."""
    if isinstance(value, str):
        return len(value)
    return value.__sizeof__() if isinstance(value, Decimal) else 0
