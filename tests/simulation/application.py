"""The application of a simulation: it appends events, and has a projection that writes each into a read model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from journal import (
    DatabaseError,
    Event,
    EventEnvelope,
    InvalidEvent,
    OwnedSession,
    ProjectionsError,
    Session,
    append,
)
from projections import Recovery, handles, projection
from tests.simulation.driver import SimulatedDatabase
from tests.simulation.plan import Plan, Write
from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.statements import Touched, statement

ENTITY_TYPE = "thing"
NAME = "simulated"
_HANDLED = "INSERT INTO handled (source_id, seq_nr) VALUES ($1, $2)"


class Happened(BaseModel):
    """An event."""


class Poison(Exception):
    """What a handler raises of an event that is not to be handled yet."""


@statement(_HANDLED)
async def handled(db: Backend, source_id: str, seq_nr: int) -> Touched:
    """A table without any key: whatever is handled twice is there twice."""
    number = db.server.next_of("handled")
    await db.insert("handled", {"number": number, "source_id": source_id, "seq_nr": seq_nr})
    return Touched(1)


def simulated(plan: Plan, is_healed: Callable[[], bool]) -> type[Any]:
    """
    The projection of a run.

    Args:
        plan: Says what is poison, and how large batches are.
        is_healed: Whether nothing is poison any more.
    """
    failed: Counter[tuple[str, int]] = Counter()

    @projection(
        NAME,
        entity_type=ENTITY_TYPE,
        batch_size=plan.batch_size,
        recovery=Recovery.retry_and_park([0.02]),
    )
    class Simulated:
        @handles(Happened)
        async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
            key = envelope.source_id, envelope.seq_nr
            if failed[key] < plan.poison.get(key, 0) and not is_healed():
                failed[key] += 1
                raise Poison(f"event {envelope.seq_nr} of {envelope.source_id}")
            await session.execute(_HANDLED, *key)

    return Simulated


async def write(
    database: SimulatedDatabase, one: Write, gid: str, pause: Callable[[float], Any]
) -> list[tuple[str, int]]:
    """
    Append events in a transaction of their own.

    Args:
        database: Where.
        one: What, and how the transaction ends.
        gid: Its name where it is prepared.
        pause: Waits for seconds.

    Returns:
        Events by source and number that were certainly committed.
    """
    half = (len(one.sources) + 1) // 2 if one.two_steps else len(one.sources)
    try:
        async with database.session() as session:
            await session.begin()
            try:
                appended = await _append(session, one.sources[:half])
                await pause(one.holds)
                appended += await _append(session, one.sources[half:])
                if one.ends == "prepare":
                    await session.connection.call(f"PREPARE TRANSACTION '{gid}'")
                    return []
                if one.ends == "rollback":
                    await session.rollback()
                    return []
                await session.commit()
            except BaseException:
                await session.rollback()
                raise
            if one.holds == 0.0:
                await session.execute("SELECT projections.notify_appended_v1()")
            return appended
    except (ProjectionsError, TimeoutError, OSError):
        return []  # as far as the application knows: a commit whose answer was lost may stand


async def _append(session: OwnedSession, sources: tuple[str, ...]) -> list[tuple[str, int]]:
    events = [Event(source, Happened(), ENTITY_TYPE) for source in sources]
    return [(one.source_id, one.seq_nr) for one in await append(session, events)]


__all__ = ["ENTITY_TYPE", "NAME", "DatabaseError", "InvalidEvent", "simulated", "write"]
