"""What happens when a handler fails: pure values, and the delays between attempts."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum


class GiveUp(Enum):
    """What to do with an event when no attempt is left."""

    FAIL = "fail"
    """Stop the range; it restarts from its stored offset, with backoff."""
    SKIP = "skip"
    """Go on after the event, as if it had been handled."""
    PARK = "park"
    """Set its source aside until somebody decides; all other sources go on."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """
    Delays that double, spread so that many that failed together do not come back together.

    Args:
        first: Delay after the first failure.
        longest: No delay is longer.
        jitter: Share of a delay that is random: 0.2 spreads it from 80 % to 120 %.
    """

    first: timedelta
    longest: timedelta
    jitter: float = 0.2

    def delay(self, failures: int, spread: float | None = None) -> timedelta:
        """
        Delay after the n-th failure in a row.

        Args:
            failures: 1 for the first.
            spread: 0 to 1, where in the spread; random by default.
        """
        doubled: timedelta = self.first * 2 ** min(failures - 1, 30)
        place = random.random() if spread is None else spread  # noqa: S311 - no secret depends on it
        return min(doubled, self.longest) * (1 + self.jitter * (2 * place - 1))


@dataclass(frozen=True, slots=True)
class Recovery:
    """
    How a projection answers a handler that fails.

    Args:
        give_up: What to do when the attempts are used up.
        retries: Attempts after the first.
        backoff: Pauses between attempts. The range waits meanwhile: keep them short, and park what takes longer.
    """

    give_up: GiveUp
    retries: int = 0
    backoff: Backoff = Backoff(timedelta(milliseconds=100), timedelta(seconds=5))

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise ValueError(f"retries must be 0 or more, not {self.retries}")

    @classmethod
    def fail(cls) -> Recovery:
        """Stop at once; the range restarts with backoff until the handler succeeds."""
        return cls(GiveUp.FAIL)

    @classmethod
    def skip(cls) -> Recovery:
        """Go on after the event at once. It is lost for this projection: the log and the observer tell."""
        return cls(GiveUp.SKIP)

    @classmethod
    def retry_and_fail(cls, retries: int, backoff: Backoff | None = None) -> Recovery:
        """Try again, then stop."""
        return cls(GiveUp.FAIL, retries, backoff or Recovery(GiveUp.FAIL).backoff)

    @classmethod
    def retry_and_skip(cls, retries: int, backoff: Backoff | None = None) -> Recovery:
        """Try again, then go on after the event."""
        return cls(GiveUp.SKIP, retries, backoff or Recovery(GiveUp.SKIP).backoff)

    @classmethod
    def retry_and_park(cls, retries: int = 3, backoff: Backoff | None = None) -> Recovery:
        """Try again, then set the source aside: the default, because one poison event delays only its source."""
        return cls(GiveUp.PARK, retries, backoff or Recovery(GiveUp.PARK).backoff)
