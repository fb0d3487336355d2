"""When something that failed is tried again: pure values."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

_MOST_DOUBLINGS = 30
"""After this number, pauses stay as they are, however long the longest may be."""

Pause: TypeAlias = timedelta | float
"""A time to wait; a number is seconds."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """
    Pauses that double, without an end, spread so that many that failed together do not come back together.

    Args:
        first: The pause after the first failure.
        longest: The largest pause, which the doubling ends at; ``jitter`` spreads it, too.
        jitter: The share of a pause that is random: 0.2 spreads it from 80 % to 120 %.
    """

    first: timedelta
    longest: timedelta
    jitter: float = 0.2

    def delay(self, failures: int, spread: float | None = None) -> timedelta:
        """
        The pause after the n-th failure in a row.

        Args:
            failures: 1 for the first.
            spread: 0 to 1, where in the spread; random by default.
        """
        return _spread(self.pause(failures), self.jitter, spread)

    def pause(self, failures: int) -> timedelta:
        """The pause after the n-th failure in a row, not spread."""
        doubled: timedelta = self.first * 2 ** min(failures - 1, _MOST_DOUBLINGS)
        return min(doubled, self.longest)


@dataclass(frozen=True, slots=True, init=False)
class Retries:
    """
    When what failed is tried again, and how often.

    ``Retries([60, 300])`` tries again after a minute, and five minutes after that; :meth:`doubling` has pauses that
    double. When no attempt is left, whoever uses it decides what is done.
    """

    pauses: tuple[timedelta, ...]
    """After the first failed attempt, after the second …; the last one is used again where they do not reach."""
    limit: int
    """How many attempts there are after the first."""
    jitter: float
    """The share of a pause that is random: 0.2 spreads it from 80 % to 120 %, so that many that failed together do not
    come back together."""

    def __init__(self, pauses: Sequence[Pause], limit: int | None = None, jitter: float = 0.2) -> None:
        """
        Check and keep them.

        Args:
            pauses: Timedeltas, or numbers of seconds.
            limit: How many attempts there are after the first. None: as many as there are pauses.
            jitter: 0 to 1.

        Raises:
            ValueError: A pause is negative or not a time, the limit is negative, or there is no pause for it.
        """
        try:
            times = tuple(p if isinstance(p, timedelta) else timedelta(seconds=p) for p in pauses)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"retries are a list of seconds or timedeltas, not {pauses!r:.80}") from error
        most = len(times) if limit is None else limit
        if negative := [time for time in times if time < timedelta(0)]:
            raise ValueError(f"a pause of retries is 0 or longer, not {negative[0]}")
        if most < 0:
            raise ValueError(f"retries must be 0 or more, not {most}")
        if most and not times:
            raise ValueError(f"there are {most} retries, and no pause before them")
        if not 0 <= jitter <= 1:
            raise ValueError(f"jitter of retries is 0 to 1, not {jitter}")
        for name, value in (("pauses", times), ("limit", most), ("jitter", jitter)):
            object.__setattr__(self, name, value)

    @property
    def attempts(self) -> int:
        """How many attempts there are, with the first."""
        return self.limit + 1

    @classmethod
    def of(cls, retries: Retries | Sequence[Pause] | int) -> Retries:
        """
        Retries as they may be written: themselves, a list of pauses, or how many, with pauses that double.

        Raises:
            ValueError: They cannot be as they are.
        """
        if isinstance(retries, Retries):
            return retries
        return cls.doubling(retries) if isinstance(retries, int) else cls(retries)

    @classmethod
    def doubling(
        cls,
        limit: int,
        first: Pause = timedelta(milliseconds=100),
        longest: Pause = timedelta(seconds=5),
        jitter: float = 0.2,
    ) -> Retries:
        """
        Retries with pauses that double.

        Args:
            limit: How many attempts there are after the first.
            first: The pause after the first failed attempt.
            longest: The largest pause, which the doubling ends at; ``jitter`` spreads it, too.
            jitter: The share of a pause that is random.

        Raises:
            ValueError: They cannot be as they are.
        """
        shortest, last = cls((first, longest), limit, jitter).pauses
        backoff = Backoff(shortest, last)
        return cls(
            [backoff.pause(number) for number in range(1, min(limit, _MOST_DOUBLINGS) + 1)], limit, jitter
        )

    def delay(self, failures: int, spread: float | None = None) -> timedelta | None:
        """
        The pause before the next attempt; None when no attempt is left.

        Args:
            failures: How many attempts have failed, 1 for the first.
            spread: 0 to 1, where in the spread; random by default.
        """
        if failures > self.limit:
            return None
        return _spread(self.pauses[min(failures, len(self.pauses)) - 1], self.jitter, spread)


def _spread(pause: timedelta, jitter: float, spread: float | None) -> timedelta:
    place = random.random() if spread is None else spread  # noqa: S311 - no secret depends on it
    return pause * (1 + jitter * (2 * place - 1))
