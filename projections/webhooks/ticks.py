"""
Ticks: schedules that are due, sent.

A tick is sent in the transaction that moves its schedule on, under an id made of both: however many processes look,
each tick is sent once. What goes wrong with one is told by the schedule, and ends nothing.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from journal import (
    AppendConflict,
    Database,
    DatabaseError,
    EventIdConflict,
    InvalidEvent,
    RawJson,
    Row,
    Session,
)
from journal.faults import Fault, fault_of
from projections.webhooks.cron import CronLine
from projections.webhooks.errors import InvalidMessage
from projections.webhooks.messages import send

__all__ = ["SentTicks", "send_due", "send_ticks"]

log = logging.getLogger("projections")

_TICKS_AT_ONCE = 100
"""Ticks of a schedule that are sent in one transaction; more come with the next look."""
_HELD = timedelta(minutes=1)
"""When a schedule is looked at again whose line can not be read, such as in a zone that is not known here."""

_DUE = "SELECT schedule_id, due_in FROM projections.due_schedules_v1($1)"
_TAKE = "SELECT * FROM projections.take_schedule_v1($1)"
_ADVANCE = "SELECT projections.advance_schedule_v1($1, $2, $3, $4, $5, $6)"


class SentTicks(NamedTuple):
    """What a look at all schedules has come to."""

    sent: int
    """Ticks."""
    next_in: timedelta | None
    """When the next tick is due; None: not soon."""


async def send_due(database: Database, ahead: timedelta = timedelta(seconds=1)) -> SentTicks:
    """
    Send the ticks of schedules that are due, each schedule in a transaction of its own.

    Any number of processes may: a schedule that another has at hand is passed over.

    Args:
        database: Where they are; the role needs projections_worker and projections_writer.
        ahead: How far to look for the next tick.

    Raises:
        MissingExtra: The package cronsim is not installed.
        DatabaseError: The database can not be reached, or lets nobody send.
    """
    sent = 0
    async with database.session() as session:
        rows = await session.fetch(_DUE, ahead)
    coming = [row["due_in"] for row in rows if row["due_in"] > timedelta(0)]
    for row in rows[: len(rows) - len(coming)]:
        try:
            async with database.transaction() as session:
                sent += await send_ticks(session, row["schedule_id"])
        except DatabaseError as error:
            if type(error) is not DatabaseError:
                raise  # it is not about this schedule
            log.warning(
                "schedule %s waits: %s", row["schedule_id"], error,
                extra={"action": "schedule_waits", "schedule": row["schedule_id"]},
            )  # fmt: skip
    return SentTicks(sent, coming[0] if coming else None)


async def send_ticks(session: Session, schedule_id: str) -> int:
    """
    Send what is due of a schedule, and move it on, in the caller's transaction; returns the number of ticks.

    What is wrong with the schedule is told by it (``error``), and it goes on with its next tick.
    """
    row = await session.fetchrow(_TAKE, schedule_id)
    if row is None:
        return 0
    try:
        ticks, next_at = _due_ticks(row)
    except (ValueError, ArithmeticError, LookupError) as error:  # InvalidSchedule, and what dates run into
        return await _move_on(session, row, row["next_at"], error=error, hold=_HELD)
    try:
        async with session.savepoint():
            for tick in ticks:
                await _send_tick(session, row, tick)
    except (InvalidMessage, InvalidEvent, EventIdConflict, AppendConflict, DatabaseError) as error:
        if not _of_the_schedule(error):
            raise
        return await _move_on(session, row, next_at, error=error)
    return await _move_on(session, row, next_at, sent=ticks)


def _due_ticks(row: Row) -> tuple[tuple[datetime, ...], datetime | None]:
    """Ticks to send now, and the next one."""
    line = CronLine(row["cron"], row["timezone"])
    # Where the rules of its zone have changed meanwhile, it stands where no tick is.
    first = line.next_tick(row["next_at"] - timedelta(microseconds=1))
    if first is None or first > row["taken_at"]:
        return (), first
    return line.due_ticks(first, row["taken_at"], row["missed"], _TICKS_AT_ONCE)


async def _send_tick(session: Session, row: Row, tick: datetime) -> None:
    await send(
        session, row["tenant"], row["topic"], RawJson(row["data"]),
        message_id=_tick_id(row["schedule_id"], tick), order_key=row["schedule_id"], endpoint_id=row["endpoint_id"],
        metadata={"schedule": row["name"], "schedule_id": row["schedule_id"], "tick": tick.isoformat()},
    )  # fmt: skip


async def _move_on(
    session: Session,
    row: Row,
    next_at: datetime | None,
    *,
    sent: Sequence[datetime] = (),
    error: Exception | None = None,
    hold: timedelta = timedelta(0),
) -> int:
    if error is not None:
        log.warning(
            "schedule %s has not sent: %s", row["schedule_id"], error,
            extra={"action": "schedule_failed", "schedule": row["schedule_id"], "tenant": row["tenant"]},
        )  # fmt: skip
    last = sent[-1] if sent else None
    told = None if error is None else f"{error}"[:1000]
    await session.fetchval(_ADVANCE, row["schedule_id"], row["next_at"], next_at, last, told, hold)
    return len(sent)


def _of_the_schedule(error: Exception) -> bool:
    """Whether it would be the same again: what a database refuses for its own reasons, it may take later."""
    return fault_of(error) is Fault.EVENT


def _tick_id(schedule_id: str, tick: datetime) -> UUID:
    """The same for the same tick: a UUIDv7 with the time of the tick, so that few partitions are searched for it."""
    milliseconds = int(tick.astimezone(UTC).timestamp() * 1000)
    random = int.from_bytes(hashlib.sha256(f"{schedule_id} {milliseconds}".encode()).digest()[:10])
    return UUID(
        int=milliseconds << 80 | 7 << 76 | (random >> 62 & 0xFFF) << 64 | 2 << 62 | random & (1 << 62) - 1
    )
