"""The application of a simulation: it appends events, and has a projection that writes each into a read model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pydantic import BaseModel

from journal import EventEnvelope, HistoricEvent, ProjectionsError, Session, import_events
from projections import Recovery, handles, projection
from tests.simulation.driver import SimulatedDatabase
from tests.simulation.history import Event
from tests.simulation.plan import Plan, Write
from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.errors import ServerError
from tests.simulation.postgres.statements import Touched, statement

if TYPE_CHECKING:
    from tests.simulation.world import World

ENTITY_TYPE = "thing"
NAME = "simulated"
_HANDLED = "INSERT INTO handled (source_id, seq_nr, event_id) VALUES ($1, $2, $3)"
_REFUSED = "SELECT source_id FROM nowhere"


class Happened(BaseModel):
    """An event."""


class Poison(Exception):
    """What a handler raises of an event that is not to be handled yet."""


@statement(_HANDLED)
async def handled(db: Backend, source_id: str, seq_nr: int, event_id: UUID) -> Touched:
    """A table without any key: whatever is handled twice is there twice."""
    number = db.server.next_of("handled")
    await db.insert(
        "handled", {"number": number, "source_id": source_id, "seq_nr": seq_nr, "event_id": event_id}
    )
    return Touched(1)


@statement(_REFUSED)
async def refused(_: Backend) -> Touched:
    """What may be the fault of all events, and here is that of some."""
    raise ServerError("42P01", 'relation "nowhere" does not exist')


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
                if envelope.seq_nr % 2:
                    await session.execute(_REFUSED)
                raise Poison(f"event {envelope.seq_nr} of {envelope.source_id}")
            run = session.queue if plan.queues else session.execute
            await run(_HANDLED, *key, envelope.event_id)

    return Simulated


async def load_history(world: World, database: SimulatedDatabase, one: Write) -> list[Event]:
    """
    Import events, a millisecond after each other.

    Args:
        world: Where it is done.
        database: Of the journal.
        one: What, and how old.

    Returns:
        Events that were certainly committed.
    """
    first = world.places.journal.clock() - timedelta(seconds=one.holds + 1)
    ids = Random(f"{one.sources[0]} {world.plan.seed}")
    history = [
        HistoricEvent(
            source, Happened(), ENTITY_TYPE, seq_nr=number, db_timestamp=first + number * timedelta(milliseconds=1),
            event_id=UUID(int=ids.getrandbits(128)),
        )
        for number, source in enumerate(one.sources, 1)
    ]  # fmt: skip
    try:
        await import_events(database, history)
    except (ProjectionsError, TimeoutError, OSError):
        return []
    return [Event(event.source_id, event.seq_nr, event.event_id) for event in history]


async def write(world: World, database: SimulatedDatabase, one: Write, gid: str) -> list[Event]:
    """
    Append events in a transaction of their own.

    Args:
        world: Where it is done.
        database: Of the journal.
        one: What, and how the transaction ends.
        gid: Its name where it is prepared.

    Returns:
        Events that were certainly committed.
    """
    half = (len(one.sources) + 1) // 2 if one.two_steps else len(one.sources)
    append = world.places.append
    try:
        async with database.session() as session:
            await session.begin()
            try:
                if one.after_poll:
                    await world.polled()
                appended = await append(session, one.sources[:half])
                await world.pause(one.holds)
                appended += await append(session, one.sources[half:])
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
