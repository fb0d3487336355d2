"""What happens when a handler of a projection fails: pure values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from projections.failing.retries import Pause, Retries


class GiveUp(Enum):
    """What to do with an event when no attempt is left."""

    FAIL = "fail"
    """Stop the range; it restarts from its stored offset, with backoff."""
    SKIP = "skip"
    """Go on after the event, as if it had been handled."""
    PARK = "park"
    """Set its source aside until somebody decides; all other sources go on."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """
    How a projection answers a handler that fails.

    Args:
        give_up: What to do when the attempts are used up.
        retries: When it is tried again before that. The range waits meanwhile: keep the pauses short, and park what
            takes longer.

    The methods take retries as a :class:`Retries`, as a list of pauses, or as how many, with pauses that double from
    0.1 to 5 seconds. They raise ``ValueError`` for what cannot be.
    """

    give_up: GiveUp
    retries: Retries = Retries(())  # noqa: RUF009 - it is frozen

    @classmethod
    def fail(cls) -> Recovery:
        """Stop at once; the range restarts with backoff until the handler succeeds."""
        return cls(GiveUp.FAIL)

    @classmethod
    def skip(cls) -> Recovery:
        """Go on after the event at once. It is lost for this projection: the log and the observer tell."""
        return cls(GiveUp.SKIP)

    @classmethod
    def retry_and_fail(cls, retries: Retries | Sequence[Pause] | int) -> Recovery:
        """Try again, then stop."""
        return cls(GiveUp.FAIL, Retries.of(retries))

    @classmethod
    def retry_and_skip(cls, retries: Retries | Sequence[Pause] | int) -> Recovery:
        """Try again, then go on after the event."""
        return cls(GiveUp.SKIP, Retries.of(retries))

    @classmethod
    def retry_and_park(cls, retries: Retries | Sequence[Pause] | int = 3) -> Recovery:
        """Try again, then set the source aside: the default, because one poison event delays only its source."""
        return cls(GiveUp.PARK, Retries.of(retries))
