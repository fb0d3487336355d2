"""
Ticks: schedules that are due, sent.

Schedules that are due are work that any process takes, hundreds in a transaction: it claims them, sends their ticks
under ids made of schedule and tick, and moves them on. What does not commit is left to others, so each tick is sent
once. What goes wrong with one is stored in the schedule, and ends nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from journal import (
    AppendConflict,
    Database,
    DatabaseError,
    Event,
    EventIdConflict,
    InvalidEvent,
    KeptSession,
    OwnedSession,
    RawJson,
    Row,
    Session,
    append,
    uuid7,
)
from journal.database import Fault, fault_of
from projections.failing import Backoff
from projections.webhooks.cron import CronLine, DueTicks, Standstill
from projections.webhooks.duties import RESTART, webhook_service
from projections.webhooks.errors import InvalidMessage
from projections.webhooks.messages import message_event

log = logging.getLogger("projections")

_SOON = 1.0
"""Seconds between looks at schedules; a tick that comes sooner is waited for."""
_GOODBYE = 2
"""Seconds for giving the connection back."""
_WATCH_EVERY = 30
"""Seconds after which schedules are claimed although none is due: _watch_schedules_v1 notes that somebody can send."""
_SCHEDULES_AT_ONCE = 200
_TICKS_AT_ONCE = 100
"""Ticks of a schedule that are sent in one transaction; more come with the next look."""
_ALL_TICKS_AT_ONCE = 1000
_CHARACTERS_AT_ONCE = 8 * 2**20
_HELD = timedelta(minutes=1)
"""When a schedule is looked at again whose line cannot be read, such as in a zone that is not known here."""

_CLAIM = "SELECT * FROM projections._claim_schedules_v1($1)"
_STANDSTILLS = """
SELECT began_at, ended_at FROM projections.webhook_standstills
WHERE ended_at >= $1 AND ended_at < 'infinity' ORDER BY ended_at
"""
_ADVANCE = "SELECT projections._advance_schedules_v1($1, $2, $3, $4, $5, $6, $7)"
_NEXT = "SELECT projections._next_schedule_v1($1)"


class SentTicks(NamedTuple):
    """What a look at all schedules has come to."""

    sent: int
    """Ticks."""
    next_in: timedelta | None
    """When to look again: at once where there may be more; None: no tick is to come."""


@dataclass(slots=True)
class _Plan:
    """What is to be done for a schedule that was claimed."""

    row: Row
    ticks: tuple[datetime, ...] = ()
    next_at: datetime | None = None
    skipped: int = 0
    events: list[Event] = field(default_factory=list)
    error: Exception | None = None
    hold: timedelta = timedelta(0)

    def fails(self, error: Exception) -> None:
        """Send nothing, and tell why."""
        self.error, self.events = error, []


class Ticks:
    """
    Sends the ticks of schedules, alongside any number of other processes that do; waits for a database that is away.

    It needs one connection, and its role projections_worker and projections_writer.
    """

    def __init__(self, database: Database, *, restart: Backoff = RESTART) -> None:
        self._session = KeptSession(database.session)
        self._limit = _SCHEDULES_AT_ONCE
        self._watch_at = 0.0
        self._service = webhook_service(restart, "schedules", self._send)

    async def run(self, stop: asyncio.Event) -> None:
        """Look for what is due until stopped. Errors are logged, and end nothing."""
        try:
            await self._service.run(stop)
        finally:
            await self._session.close_within(_GOODBYE)

    async def _send(self) -> float:
        async with self._session.use() as session:
            next_in = await self._look(session)
        return _SOON if next_in is None else min(_SOON, next_in.total_seconds())

    async def _look(self, session: OwnedSession) -> timedelta | None:
        """Send what is due, if anything is; now and then also look without, which says that somebody can."""
        clock = asyncio.get_running_loop().time
        next_in: timedelta | None = await session.fetchval(_NEXT, True)
        if (next_in is None or next_in > timedelta(0)) and clock() < self._watch_at:
            return next_in
        # Where this number takes too long together, fewer may not.
        limit, self._limit = self._limit, max(1, self._limit // 2)
        _, next_in = await send_due(session, limit)
        self._limit = min(_SCHEDULES_AT_ONCE, limit * 2)
        self._watch_at = clock() + _WATCH_EVERY
        await self._session.close()  # it may be to the server of before a fail-over
        return next_in


async def send_due(session: OwnedSession, limit: int = _SCHEDULES_AT_ONCE) -> SentTicks:
    """Send the ticks of schedules that are due, in one transaction; any number of processes may at a time."""
    async with session.transaction():
        claimed, sent = await send_claimed(session, limit)
    return SentTicks(sent, timedelta(0) if claimed else await session.fetchval(_NEXT, False))


async def send_claimed(session: Session, limit: int = _SCHEDULES_AT_ONCE) -> tuple[int, int]:
    """
    Claim schedules that are due, send their ticks, and move them on, in the caller's transaction.

    Returns how many schedules that were, and how many ticks. What is wrong with a schedule is stored in it
    (``error``), and it goes on with its next tick.
    """
    rows = await session.fetch(_CLAIM, limit)
    if not rows:
        return 0, 0
    standstills = [Standstill(*row.values()) for row in await session.fetch(_STANDSTILLS, rows[0]["next_at"])]
    # Not in the event loop: it may take a second.
    plans = await asyncio.to_thread(_plans, rows, standstills)
    await _append([plan for plan in plans if plan.events], session)
    await _move_on(session, plans)
    return len(rows), sum(len(plan.events) for plan in plans)


def _plans(rows: Sequence[Row], standstills: Sequence[Standstill]) -> list[_Plan]:
    """
    What to do for each; those with many ticks share the room of one transaction.

    Each has one tick at least: what is claimed together has room for that.
    """
    plans: list[_Plan] = []
    ticks, characters = _ALL_TICKS_AT_ONCE, _CHARACTERS_AT_ONCE
    for place, row in enumerate(rows):
        others = len(rows) - place
        size = len(row["data"]) or 1
        room = min(_TICKS_AT_ONCE, ticks // others, characters // others // size)
        plan = _plan(row, standstills, max(room, 1))
        plans.append(plan)
        ticks -= len(plan.events)
        characters -= len(plan.events) * size
    return plans


def _plan(row: Row, standstills: Sequence[Standstill], room: int) -> _Plan:
    plan = _Plan(row)
    try:
        due = _due_ticks(row, standstills, room)
    except (ValueError, ArithmeticError, LookupError) as error:  # InvalidSchedule, and what dates run into
        plan.next_at, plan.hold = row["next_at"], _HELD
        plan.fails(error)
        return plan
    plan.ticks, plan.next_at, plan.skipped = due
    try:
        plan.events = [_event(row, tick) for tick in due.ticks]
    except InvalidMessage as error:
        plan.fails(error)
    return plan


def _due_ticks(row: Row, standstills: Sequence[Standstill], room: int) -> DueTicks:
    line = CronLine(row["cron"], row["timezone"])
    # Where the rules of its zone have changed meanwhile, it stands where no tick is.
    first = line.next_tick(row["next_at"] - timedelta(microseconds=1))
    if first is None or first > row["taken_at"]:
        return DueTicks((), first)
    return line.due_ticks(first, row["taken_at"], row["missed"], standstills, room)


def _event(row: Row, tick: datetime) -> Event:
    return message_event(
        row["tenant"], row["topic"], RawJson(row["data"]),
        event_id=_tick_id(row["schedule_id"], tick), order_key=row["schedule_id"], endpoint_id=row["endpoint_id"],
        of_schedule=True,
        metadata={"schedule": row["name"], "schedule_id": row["schedule_id"], "tick": tick.isoformat()},
    )  # fmt: skip


async def _append(plans: Sequence[_Plan], session: Session) -> None:
    """All at once; where that is refused for what one of them is, in halves until it is alone."""
    if not plans:
        return
    try:
        async with session.savepoint():
            await append(session, [event for plan in plans for event in plan.events])
    except (InvalidMessage, InvalidEvent, EventIdConflict, AppendConflict, DatabaseError) as error:
        # What a database refuses for its own reasons, it may take later.
        if fault_of(error) is not Fault.EVENT:
            raise
        if len(plans) == 1:
            plans[0].fails(error)
            return
        middle = len(plans) // 2
        await _append(plans[:middle], session)
        await _append(plans[middle:], session)


async def _move_on(session: Session, plans: Sequence[_Plan]) -> None:
    for plan in plans:
        if plan.error is not None:
            log.warning(
                "schedule %s has not sent: %s", plan.row["schedule_id"], plan.error,
                extra={"action": "schedule_failed", "schedule": plan.row["schedule_id"], "tenant": plan.row["tenant"]},
            )  # fmt: skip
    if skipped := sum(plan.skipped for plan in plans):
        log.warning(
            "passed over %d ticks of schedules, of a time in which no process could send", skipped,
            extra={"action": "ticks_skipped", "ticks": skipped},
        )  # fmt: skip
    await session.fetchval(
        _ADVANCE,
        [plan.row["schedule_id"] for plan in plans],
        [plan.row["next_at"] for plan in plans],
        [plan.next_at for plan in plans],
        [plan.ticks[-1] if plan.events else None for plan in plans],
        [None if plan.error is None else f"{plan.error}"[:1000] for plan in plans],
        [plan.hold for plan in plans],
        skipped,
    )


def _tick_id(schedule_id: str, tick: datetime) -> UUID:
    """The same for the same tick: a UUIDv7 with the time of the tick, so that few partitions are searched for it."""
    milliseconds = int(tick.astimezone(UTC).timestamp() * 1000)
    return uuid7(
        milliseconds,
        int.from_bytes(hashlib.sha256(f"{schedule_id} {milliseconds}".encode()).digest()[:10]),
    )
