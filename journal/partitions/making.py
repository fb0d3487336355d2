"""
Partitions in time: made ahead, and emptied out of the default partition where that came too late.

``sql/functions/maintenance/_missing_partitions_v1.sql`` says which are missing. Each is made in a transaction
of its own. Rows move in pieces of about half a million, while others read and write; only then comes a lock that they
wait for, and for which a step gives up rather than keep a writer waiting.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from journal.database import Database, Session
from journal.errors import DatabaseError
from journal.partitions.settings import check_settings

_MISSING = "SELECT * FROM projections._missing_partitions_v1($1, $2, $3)"
_TIMEOUTS = "SELECT set_config('lock_timeout', $1, TRUE), set_config('statement_timeout', '0', TRUE)"
_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtext('slice-projections'), hashtext('maintain'))"
_CREATE = "SELECT projections._create_partition_v1($1, $2, $3)"
_DEFAULT = "SELECT t.default_partition::text FROM projections._partitioned_table_v1($1) AS t"
_VACUUM = "VACUUM (ANALYZE) {}"

_OVERLAPS = "42P17"
BUSY = "another maintenance run is at work"
"""Why there is nothing to be had from :func:`begin_maintaining`."""
IN_THE_WAY = {
    "55P03": "a transaction that uses the table stayed open for longer than the lock timeout; "
    "pg_stat_activity shows who, projections.writers_in_flight_v1() shows writers",
    "40P01": "a transaction stood in the way of this one and this one in its way",
}
"""What another attempt may get past, by its SQLSTATE."""
_TRY_AGAIN = IN_THE_WAY | {"23514": "rows of its time were committed meanwhile"}


@dataclass(frozen=True, slots=True)
class Patience:
    """
    How long to try what is in the way of others.

    Args:
        lock_timeout: The longest wait for whoever uses a table, and so the longest time for which a new one waits
            behind it. Keep it below the server's ``deadlock_timeout`` (1 s).
        attempts: The number of attempts.
        pause: Between two attempts.
        total: How long to wait for transactions that are older than a copy: they could not see it.

    Raises:
        ValueError: A value is out of bounds.
    """

    lock_timeout: timedelta = timedelta(milliseconds=500)
    attempts: int = 5
    pause: timedelta = timedelta(seconds=1)
    total: timedelta = timedelta(minutes=5)

    def __post_init__(self) -> None:
        if self.attempts < 1 or min(self.pause, self.total) < timedelta(0):
            raise ValueError("attempts must be at least 1, and pause and patience must not be negative")

    async def limit(self, session: Session) -> None:
        """A transaction takes as long as it takes, whatever the role's default is; nobody waits for long behind it."""
        await session.execute(_TIMEOUTS, f"{self.lock_timeout // timedelta(milliseconds=1)}ms")


PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class MaintainedPartition:
    """
    A partition that maintenance has made, or wanted to make.

    Args:
        from_timestamp: Its first instant.
        to_timestamp: The first instant after it.
        moved: Rows moved into it from the default partition; None when it was not made.
        problem: Why it was not made; None when it was.
        table: The partitioned table.
    """

    from_timestamp: datetime
    to_timestamp: datetime
    moved: int | None = None
    problem: str | None = None
    table: str = "events"


async def make_partitions(
    database: Database,
    table: str = "events",
    interval: timedelta | None = None,
    ahead: int | None = None,
    *,
    patience: Patience = PATIENCE,
) -> list[MaintainedPartition]:
    """
    Make the partitions of a table that are missing; run it more often than ``ahead`` intervals pass.

    Running it twice does nothing more, and two runs at once do not collide. What could not be made is in the
    result with its problem. Nothing is lost by it: the default partition takes the rows until a later run.
    The connected role must own the schema.

    Args:
        database: The database that has the schema, as :func:`journal.connect` opens it.
        table: Whose partitions: ``events``, the journal, or one of the other tables that have partitions in time.
        interval: The time that one partition holds; None: as the table's settings say.
        ahead: How many intervals to come have a partition afterwards; None: as the table's settings say.
        patience: Pauses, and the number of attempts, to get a lock.

    Returns:
        What was made, and what could not be, in the order of time.

    Raises:
        InvalidPartitionSetting: The interval or ahead is out of bounds.
        DatabaseError: The database refused for a reason that a later attempt does not fix.
    """
    check_settings(table, interval, ahead, None, None)
    async with database.session() as session:
        missing = [
            MaintainedPartition(row["from_timestamp"], row["to_timestamp"], table=table)
            for row in await session.fetch(_MISSING, interval, ahead, table)
        ]
    done: list[MaintainedPartition] = []
    for attempt in range(patience.attempts):
        if attempt and missing:
            await asyncio.sleep(patience.pause.total_seconds())
        results = [await _try(database, partition, patience) for partition in missing]
        done += [result for result in results if result is not None and result.problem is None]
        missing = [result for result in results if result is not None and result.problem is not None]
    return sorted([*done, *missing], key=lambda partition: partition.from_timestamp)


async def _try(
    database: Database, wanted: MaintainedPartition, patience: Patience
) -> MaintainedPartition | None:
    """One attempt; None when somebody else has made it."""
    bounds = wanted.from_timestamp, wanted.to_timestamp
    try:
        async with database.session() as session, session.transaction():
            if not await begin_maintaining(session, patience):
                return replace(wanted, problem=BUSY)
            moved = await session.fetchval(_CREATE, *bounds, wanted.table)
    except DatabaseError as error:
        if error.sqlstate == _OVERLAPS:
            return None
        if error.sqlstate not in _TRY_AGAIN:
            raise
        return replace(wanted, problem=_TRY_AGAIN[error.sqlstate])
    if moved:
        await _vacuum_default(database, wanted.table)
    return replace(wanted, moved=moved, problem=None)


async def _vacuum_default(database: Database, table: str) -> None:
    """What has moved is read no more: not by the next partition's check under its locks, nor by whoever plans by it."""
    async with database.session() as session:
        if default := await session.fetchval(_DEFAULT, table):
            await session.execute(_VACUUM.format(default))


async def begin_maintaining(session: Session, patience: Patience) -> bool:
    """Begin a step of maintenance in its own transaction; returns whether it may: not while another run is at work."""
    if not await session.fetchval(_TRY_LOCK):
        return False
    await patience.limit(session)
    return True
