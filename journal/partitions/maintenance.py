"""
One run of maintenance: partitions made ahead, old ones dropped, and what other parts remove that nobody uses.

Every step is a transaction of its own, so a run may be killed at any time, and the next one goes on. What takes long,
moving rows and comparing an archive, is done before the locks that readers, appends and matching wait for; imports wait
while rows of events move.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from journal.database import Database, Session
from journal.partitions.dropping import Archive, DroppedPartition, drop_closed
from journal.partitions.listing import Partition
from journal.partitions.making import MaintainedPartition, Patience, make_partitions
from journal.partitions.settings import check_settings, partition_settings
from journal.schema import check_version

_CLEAN = "SELECT c.part, c.removed FROM projections._clean_v1() AS c"


@dataclass(frozen=True, slots=True)
class Maintained:
    """
    What a run did.

    Args:
        made: Partitions that were made, or could not be.
        dropped: Partitions that were dropped, or could not be.
        kept: Partitions whose retention is over, and that something still needs.
        removed: How much that nobody used any more, by the part of the library that has removed it.
    """

    made: tuple[MaintainedPartition, ...]
    dropped: tuple[DroppedPartition, ...]
    kept: tuple[Partition, ...]
    removed: Mapping[str, int]

    @property
    def problems(self) -> tuple[str, ...]:
        """Why something was not done that should have been."""
        problems = [*(each.problem for each in self.made), *(each.problem for each in self.dropped)]
        return tuple(problem for problem in problems if problem is not None)


async def maintain(
    database: Database,
    *,
    interval: timedelta | None = None,
    ahead: int | None = None,
    force: bool = False,
    archive: Archive | None = None,
    lock_timeout: timedelta = timedelta(milliseconds=500),
    attempts: int = 5,
    pause: timedelta = timedelta(seconds=1),
) -> Maintained:
    """
    Make missing partitions, drop those that nobody needs any more, and have other parts remove what nobody uses.

    Goes by the settings in the database (:func:`change_partition_settings`). Two runs at once do not collide. Nobody
    waits behind one that waits for longer than the lock timeout; one that has its locks holds them while PostgreSQL
    reads the default partition through, which is empty but for the running interval when runs are not missed. The
    connected role must own the schema.

    Args:
        database: The database that has the schema, as :func:`journal.connect` opens it.
        interval: Of the journal's partitions, in this run alone; None: as its settings say.
        ahead: How many coming intervals have a partition; None: as the settings of the table say.
        force: Drop partitions whose retention is over also where projections, rebuilds or groups have not read
            them; the result tells what they have lost.
        archive: Called with each partition of the journal before it is dropped, with the number and the checksum
            of its rows; when it raises, or a row has changed since, the partition stays.
        lock_timeout: The longest wait for whoever uses a table. Keep it below the server's ``deadlock_timeout`` (1 s).
        attempts: How often to try what is in the way of others.
        pause: Between two attempts.

    Raises:
        InvalidValue: The interval or ahead is out of bounds.
        ValueError: Another argument is.
        SchemaError: The schema is missing, or of another version.
        DatabaseError: The database refused for a reason that a later attempt does not fix.
    """
    check_settings("events", interval, ahead, None, None)
    patience = Patience(lock_timeout, attempts, pause)
    async with database.session() as session:
        await check_version(session)
        tables = [each.table for each in await partition_settings(session)]
    made: list[MaintainedPartition] = []
    for table in tables:
        own = (interval, ahead) if table == "events" else (None, None)
        made += await make_partitions(database, table, *own, patience=patience)
    dropped, kept = await drop_closed(database, force=force, archive=archive, patience=patience)
    async with database.session() as session:
        removed = await _clean(session)
    return Maintained(tuple(made), tuple(dropped), tuple(kept), removed)


async def _clean(session: Session) -> dict[str, int]:
    """Have all removed that nobody uses, in pieces: a transaction that removes that of a day would be long."""
    removed: dict[str, int] = {}
    while True:
        piece = {row["part"]: row["removed"] for row in await session.fetch(_CLEAN)}
        removed = {part: removed.get(part, 0) + count for part, count in piece.items()}
        if not any(piece.values()):
            return removed
