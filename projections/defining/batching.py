"""How a projection takes its events: how many at a time, and with which guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """Effects and offset commit in one transaction: the session that a handler gets is that transaction."""


@dataclass(frozen=True, slots=True)
class AtLeastOnce:
    """
    For effects outside the database: the offset is stored after them, so a crash repeats the last ones.

    Args:
        after: Store the offset after this number of events.
        within: ... or after this time, whichever comes first.
        concurrency: Sources handled at the same time; events of one source stay in order.
    """

    after: int = 100
    within: timedelta = timedelta(seconds=1)
    concurrency: int = 1

    def __post_init__(self) -> None:
        for name, value in (("after", self.after), ("concurrency", self.concurrency)):
            if value < 1:
                raise ValueError(f"{name} must be 1 or more, not {value}")


@dataclass(frozen=True, slots=True)
class Group:
    """
    How group handlers get their lists.

    Args:
        size: Most events of a list.
        within: How long to wait for a list to fill once its first event is there.
    """

    size: int = 500
    within: timedelta = timedelta(milliseconds=500)

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be 1 or more, not {self.size}")
