"""
Errors of running projections.

    ProjectionsError
    ├── InvalidHandler      a projection class is not declared as it must be
    ├── PoolTooSmall        too few connections to run projections with
    └── ProjectionFailed    an event could not be handled; the message names it
        └── HandlerFailed   in an attempt, after which recovery decides
"""

from __future__ import annotations

from collections.abc import Callable

from journal import EventEnvelope, ProjectionsError
from journal.database import Fault


class InvalidHandler(ProjectionsError, TypeError):
    """A projection class, or a method of it, is not declared as it must be."""


class PoolTooSmall(ProjectionsError, ValueError):
    """Projections cannot run with so few connections; the message says how many they need."""


class ProjectionFailed(ProjectionsError):
    """
    An event could not be handled, or what its handler wants could not be written: the message names it.

    Nothing after it was handled.
    """


class HandlerFailed(ProjectionFailed):
    """
    An attempt at an event, or at a batch, has failed: recovery decides what is done.

    Args:
        message: Why the handler or the database refused it.
        index: At which event of the batch it has shown: that event's fault, or that of one before it which has queued
            statements. None when only the batch as a whole is known to fail.
        fault: ``Fault.PROJECTION`` where it may be the fault of all events, such as a missing table: then it counts
            against an event only if others pass.
    """

    def __init__(self, message: str, index: int | None = None, fault: Fault = Fault.EVENT) -> None:
        super().__init__(message)
        self.index = index
        self.fault = fault


def of_all(failure: HandlerFailed) -> ProjectionsError:
    """What a failure is of that is not its event's fault."""
    return failure.__cause__ if isinstance(failure.__cause__, ProjectionsError) else failure


def describe(envelope: EventEnvelope) -> str:
    """An event, for messages."""
    return f"event {envelope.event_type!r} of source {envelope.source_id!r}, seq_nr {envelope.seq_nr}"


_LENGTH = 2000


def said(error: BaseException) -> str:
    """What is logged and stored of an error: never nothing, as MemoryError and TimeoutError say by themselves."""
    return storable(text_of(error) or representation(error), _LENGTH)


def representation(error: BaseException) -> str:
    """As :func:`repr`, whatever the error makes of it."""
    return _shown(repr, error) or name_of(error)


def text_of(error: BaseException) -> str:
    """The text of an error, whose own methods may raise anything."""
    text = _shown(str, error)
    return "it has no text: its own str() fails" if text is None else text


def _shown(show: Callable[[object], str], error: BaseException) -> str | None:
    try:
        return str.__str__(show(error))  # not a subclass, which may have methods of its own
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - whatever it is, the error has no such text
        return None


def name_of(error: BaseException) -> str:
    """The name of the class of an error."""
    try:
        return str.__str__(type(error).__name__)
    except Exception:  # noqa: BLE001 - of a metaclass
        return "an error"


def storable(text: str, most: int) -> str:
    """What PostgreSQL can store of a text, at most ``most`` characters."""
    return text[:most].replace("\0", "").encode(errors="replace").decode()
