"""
Errors of subscriptions and of those who read for them.

    ProjectionsError
    ├── InvalidSubscription     a subscription, a group or a publication cannot be as it is
    │   └── InvalidCondition    its condition is no boolean expression over the event and the subscription
    ├── UnknownGroup            there is no such group (projections)
    ├── NotDead                 a batch is no dead letter of the group, or not any more
    ├── InvalidCursor           a cursor is not one of the group's, or lies before the stored one
    ├── DatabaseWentBack        what is remembered of a group is not in the database any more (offsets)
    ├── RangeLost               another reader holds the range, or the group was cut again (offsets)
    ├── HandlerTimedOut         a handler took longer than it may
    ├── PublishFailed           something that a publisher had accepted could not be stored
    ├── ListenerTooSlow         one who listens took events slower than they came
    ├── ListenerClosed          the listener has been closed
    └── SubscriptionLost        a subscription was removed while somebody listened
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from journal import DatabaseError, ProjectionsError
from offsets import DatabaseWentBack, RangeLost
from projections.errors import UnknownGroup


class InvalidSubscription(ProjectionsError, ValueError):
    """A subscription, a group or a publication cannot be as it was asked for; the message names the value."""


class InvalidCondition(InvalidSubscription):
    """A condition is no single boolean expression, or does more than to look at the event and the subscription."""


class NotDead(ProjectionsError):
    """The batch is not among the dead letters of the group, or not any more."""


class InvalidCursor(ProjectionsError, ValueError):
    """A cursor is not the number of one of the group's matches, or lies before the one that is stored."""


class HandlerTimedOut(ProjectionsError, TimeoutError):
    """A handler took longer than its timeout, and was cancelled."""


class PublishFailed(ProjectionsError):
    """A publisher had accepted what could not be stored; its ``__cause__`` is the first error."""


class ListenerTooSlow(ProjectionsError):
    """One who listens took events slower than they came, and was ended: what has come since is lost to it."""


class ListenerClosed(ProjectionsError):
    """The listener has been closed: nobody can listen to it any more."""


class SubscriptionLost(ProjectionsError):
    """A subscription was removed while somebody listened: what came since is unknown. Listen again."""


_BY_SQLSTATE: dict[str | None, type[ProjectionsError]] = {
    "PJ010": RangeLost,
    "PJ013": DatabaseWentBack,
    "PJ080": InvalidCondition,
    "PJ081": InvalidSubscription,
    "PJ082": UnknownGroup,
    "PJ084": InvalidCursor,
}


def from_database(error: DatabaseError) -> ProjectionsError:
    """The error that a function of the schema raised by its own code; others stay as they are."""
    kind = _BY_SQLSTATE.get(error.sqlstate)
    return kind(str(error)) if kind else error


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise what the functions of subscriptions raise as the errors of this module."""
    try:
        yield
    except DatabaseError as error:
        raise from_database(error) from error.__cause__
