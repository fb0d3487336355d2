"""
Errors of running projections.

    ProjectionsError
    ├── InvalidHandler      a projection class is not declared as it must be
    ├── PoolTooSmall        too few connections to run projections with
    └── ProjectionFailed    an event could not be handled; the message names it
        └── HandlerFailed   in an attempt, after which recovery decides
"""

from __future__ import annotations

from journal import EventEnvelope, ProjectionsError


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
    """

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


def describe(envelope: EventEnvelope) -> str:
    """An event, for messages."""
    return f"event {envelope.event_type!r} of source {envelope.source_id!r}, seq_nr {envelope.seq_nr}"


_LENGTH = 2000


def said(error: BaseException) -> str:
    """What is logged and stored of an error: never nothing, as MemoryError and TimeoutError say by themselves."""
    return storable(str(error) or repr(error), _LENGTH)


def storable(text: str, most: int) -> str:
    """What PostgreSQL can store of a text, at most ``most`` characters."""
    return text[:most].replace("\0", "").encode(errors="replace").decode()
