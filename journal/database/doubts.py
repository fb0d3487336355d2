"""
Errors that nobody can explain, and the connections that go for them.

A connection keeps what it has prepared and planned. When it was planned while another transaction dropped a function,
it calls what is gone each time, whatever is asked, and no other connection fails.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from cachetools import TTLCache

from journal.database.faults import Fault, fault_of
from journal.errors import DatabaseError, DatabaseUnavailable, ProjectionsError

_INTERNAL: Final = "XX"
"""The class of errors that should not be, PostgreSQL says; extensions raise them for data, too."""
_EXPLAINED: Final = {Fault.EVENT, Fault.BATCH}
"""By data, or by other transactions. What says that the connection is lost has ended it."""
_REMEMBERED: Final = 120
"""Seconds; a range that starts again after a failure comes to the same statement sooner."""
_KINDS: Final = 100
_ALL_GO_AFTER: Final = 2


class Doubt(Enum):
    """What a failure says of its connection."""

    NONE = "it is explained"
    LATER = "the connection goes when it is given back"
    NOW = "the connection goes, and is what was at fault"


@dataclass(slots=True)
class _Failure:
    """One that was seen before."""

    since: float = field(default_factory=time.monotonic)
    gone: int = 0
    """How many connections went for it that were opened before."""


class Doubts:
    """What the connections of a pool could not explain lately."""

    def __init__(self) -> None:
        self._seen: TTLCache[str, _Failure] = TTLCache(_KINDS, _REMEMBERED, timer=time.monotonic)
        self._all_go = False

    def about(self, failure: ProjectionsError, opened: float) -> Doubt:
        """
        What a failure says of the connection that it happened on.

        After an internal error the connection goes at once; after others that blame neither data nor another
        transaction, when the same comes again. Where one fails alike that was opened since, no connection is at fault.

        Args:
            failure: As the library raises it.
            opened: When the connection was opened, by ``time.monotonic``.
        """
        code = failure.sqlstate if isinstance(failure, DatabaseError) else None
        internal = code is not None and code.startswith(_INTERNAL)
        lost = isinstance(failure, DatabaseUnavailable) and code is not None
        if lost or (not internal and fault_of(failure) in _EXPLAINED):
            return Doubt.NONE
        kind = f"{type(failure).__name__}: {failure}"
        if (seen := self._seen.get(kind)) is None:
            seen = self._seen[kind] = _Failure()
            if not internal:
                return Doubt.NONE
        elif opened > seen.since:
            return Doubt.LATER if internal else Doubt.NONE
        seen.gone += 1
        self._all_go = self._all_go or seen.gone == _ALL_GO_AFTER
        return Doubt.NOW if internal else Doubt.LATER

    def all_go(self) -> bool:
        """Whether two connections had to go for the same: then all that are open are to be replaced; asked once."""
        all_go, self._all_go = self._all_go, False
        return all_go
