"""
Which life of the database answers, and how far it has come.

A fail-over to an asynchronous standby, a restore or a crash can take a database back to before what a process
remembers of it. Whoever remembers something compares the generation that a later answer shows, and drops it all when
that does not follow. A dump restored in place shows in stored values alone: they are compared before they are set.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from journal.database import Row, Session
from journal.errors import DatabaseWentBack

_GENERATION = "SELECT * FROM projections.generation_v1()"
_TOKEN = re.compile(r"([0-9a-f]{1,16})\.([0-9a-f]{1,8})\.([0-9a-f]{1,16})")


@dataclass(frozen=True, slots=True)
class Generation:
    """
    A state of a database among all that it has been in.

    Args:
        timeline: PostgreSQL's number of a continuous log: a promotion and a restore to a point in time begin another.
        started_at: When the server was started.
        position: How far the log is, in bytes; on a standby, how far it is replayed.
        system: What the cluster was given when it was made: a dump loaded into another cluster has another.
    """

    timeline: int
    started_at: datetime
    position: int
    system: int

    @classmethod
    def of(cls, row: Row) -> Self:
        """From the columns of ``generation_v1``, which other functions return too."""
        return cls(row["timeline"], row["started_at"], row["wal_position"], row["system_identifier"])

    def __str__(self) -> str:
        return f"timeline {self.timeline}, started at {self.started_at}, log at {_lsn(self.position)}"

    def follows(self, earlier: Generation) -> bool:
        """Whether everything seen under an earlier one still holds: the same life, and not before it."""
        same = (self.system, self.timeline, self.started_at) == (
            earlier.system,
            earlier.timeline,
            earlier.started_at,
        )
        return same and self.position >= earlier.position

    @property
    def life(self) -> str:
        """What names this life, whose log only grows: nothing that was read in it is lost while it goes on."""
        return f"{self.system % 2**64:x}.{self.timeline:x}.{self.started_at.timestamp():.6f}"

    def is_of(self, life: str) -> bool:
        """Whether it is of the cluster of a :attr:`life`, in whatever life."""
        return life.startswith(f"{self.system % 2**64:x}.")

    def token(self) -> str:
        """
        What to put into something that leaves the process, such as a cursor; :meth:`check` takes it back.

        It leaves out when the server was started: a clean restart loses nothing, and refuses no token.
        """
        return f"{self.system % 2**64:x}.{self.timeline:x}.{self.position:x}"

    def check(self, token: str) -> None:
        """
        Check what :meth:`token` made, perhaps of an earlier state of this database.

        Raises:
            DatabaseWentBack: What it was given out with may be gone: it is of another timeline or cluster, or of a
                state that this database has not reached.
            ValueError: It is not such a token.
        """
        found = _TOKEN.fullmatch(token)
        if found is None:
            raise ValueError(
                f"{token[:60]!r} is not a generation of a database: pass one as it was given out"
            )
        system, timeline, position = (int(part, 16) for part in found.groups())
        if system != self.system % 2**64:
            raise DatabaseWentBack(f"it was given out by another database cluster; {_BEGIN_AGAIN}")
        if timeline != self.timeline:
            raise DatabaseWentBack(
                f"it was given out on timeline {timeline} of the database, which is now on timeline {self.timeline} "
                f"(after a fail-over or a restore); {_BEGIN_AGAIN}"
            )
        if position > self.position:
            raise DatabaseWentBack(
                f"it was given out when the database's log was at {_lsn(position)}, and it is at {_lsn(self.position)} "
                f"now (after a restore, or this is a replica that is behind); {_BEGIN_AGAIN}"
            )


_BEGIN_AGAIN = "what it refers to may be gone: begin again without it"


def _lsn(position: int) -> str:
    """A position as PostgreSQL writes it."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


async def generation(session: Session) -> Generation:
    """The generation of the database that a session is connected to."""
    row = await session.fetchrow(_GENERATION)
    assert row is not None  # noqa: S101 - the function returns one row
    return Generation.of(row)
