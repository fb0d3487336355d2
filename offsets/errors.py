"""
Errors of offsets.

    ProjectionsError
    ├── RangeLost               another worker has claimed the slice range
    ├── OffsetOvertaken         a source does not stand where the batch begins
    ├── TransactionEnded        a handler ended the transaction of its batch
    ├── ProjectionRuns          workers run the projection that is to be removed
    ├── WrongEntityType         this version of the projection reads other entity types
    └── WrongJournal            the projection reads another journal
"""

from __future__ import annotations

from functools import partial
from typing import Self

from journal import DatabaseWentBack, InvalidEvent, InvalidValue, ProjectionsError, SliceRange
from journal.database import raised_as


class RangeLost(ProjectionsError):
    """Another worker holds the slice range with a newer epoch: nothing of this batch was committed."""

    @classmethod
    def of(cls, slices: SliceRange) -> Self:
        """The error of slices that are another's, or belong to another range."""
        return cls(f"slices {slices} were claimed by another, or cut again")


class OffsetOvertaken(ProjectionsError):
    """A source does not stand where the batch begins: nothing of it was committed."""


class TransactionEnded(ProjectionsError):
    """A handler committed or rolled back by itself, so its effects and its offset cannot commit together."""


class ProjectionRuns(ProjectionsError):
    """Workers that are alive run the projection that is to be removed, or to take over offsets."""


class MoveRefused(ProjectionsError):
    """The offsets of a projection of another framework cannot be taken over; the message says why."""


class WrongEntityType(InvalidValue):
    """A projection of this name and version reads other entity types."""


class WrongJournal(InvalidValue):
    """A projection reads another journal: what its offsets say is of that one."""


own_errors = partial(
    raised_as,
    {
        "PJ010": RangeLost,
        "PJ011": OffsetOvertaken,
        "PJ012": TransactionEnded,
        "PJ013": DatabaseWentBack,
        "PJ020": WrongEntityType,
        "PJ021": InvalidEvent,
        "PJ022": ProjectionRuns,
        "PJ023": WrongJournal,
    },
)
"""Raises what the functions of offsets raise as the errors of this module."""
