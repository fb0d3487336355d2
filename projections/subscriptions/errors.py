"""Errors of subscriptions and of those who read for them; all are a :class:`journal.ProjectionsError`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from journal import DatabaseWentBack, InvalidValue, NotFound, ProjectionsError
from journal.database import raised_as
from journal.suggestions import did_you_mean
from offsets import RangeLost


def unknown_group(name: str, known: Sequence[str]) -> NotFound:
    """The error, in the words of the database, with the groups that there are."""
    there = f"; those that there are: {', '.join(map(repr, known[:20]))}" if known else ""
    return NotFound(
        f"there is no group {name!r}: subscribe for it, or create it first{there}{did_you_mean(name, known)}",
        "unknown_group",
    )


class InvalidSubscription(InvalidValue):
    """A subscription, a group or a publication cannot be as it was asked for; the message names the value."""


class InvalidCondition(InvalidSubscription):
    """A condition is not a single boolean expression, or does more than to look at the event and the subscription."""


class InvalidCursor(ProjectionsError, ValueError):
    """A cursor is not the number of one of the group's matches, or lies before the one that is stored."""


class HandlerTimedOut(ProjectionsError, TimeoutError):
    """A handler took longer than its timeout, and was cancelled."""


class PublishFailed(ProjectionsError):
    """A publisher had accepted what could not be stored; its ``__cause__`` is the first error."""


class SubscriptionLost(ProjectionsError):
    """Somebody listened, and does no longer: what has come since is lost to it. Listen again."""


class ListenerTooSlow(SubscriptionLost):
    """Events came faster than they were taken, and the buffer was full."""


class ListenerClosed(SubscriptionLost):
    """The listener has been closed: nobody can listen to it any more."""


own_errors = partial(
    raised_as,
    {
        "PJ010": RangeLost,
        "PJ013": DatabaseWentBack,
        "PJ080": InvalidCondition,
        "PJ081": InvalidSubscription,
        "PJ082": partial(NotFound, code="unknown_group"),
        "PJ084": InvalidCursor,
    },
)
"""Raises what the functions of subscriptions raise as the errors of this module."""
