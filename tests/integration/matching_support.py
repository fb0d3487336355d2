"""What the tests of matching share: subscriptions, events, and what matched."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from journal import Database, DatabaseError, Event, append
from projections.subscriptions.matching import Matching
from tests.fixtures.projections import Told, caught_up, execute, fetchval, running

MATCHES = """
SELECT g.name, m.source_id, m.seq_nr, m.subscription_ids::text AS ids
FROM projections.matches AS m INNER JOIN projections.subscription_groups AS g USING (group_id) ORDER BY m.match_id
"""
SETTLED = "SELECT projections.settled_matches_v1()"
QUARANTINED = "SELECT count(*) FROM projections.conditions WHERE quarantined_at IS NOT NULL"


async def subscribe(database: Database, condition: str | None = None, group: str = "g", **values: Any) -> int:
    """Subscribe with what ``subscribe_v1`` takes, each by its name without the ``p_``."""
    given: dict[str, Any] = {"condition": condition, "group": group, **values}
    names = ", ".join(f"p_{name} => ${place}" for place, name in enumerate(given, 1))
    async with database.session() as session:
        found: int = await session.fetchval(f"SELECT projections.subscribe_v1({names})", *given.values())
    return found


async def refused(database: Database, condition: str | None, **values: Any) -> DatabaseError:
    """Why a subscription was refused."""
    try:
        await subscribe(database, condition, **values)
    except DatabaseError as error:
        return error
    raise AssertionError(f"accepted: {condition} {values}")


async def happened(
    database: Database, topic: str = "t", payload: Any = None, *, source: str = "a", kind: str = "plane"
) -> None:
    """Append one event."""
    async with database.transaction() as session:
        await append(session, [Event(source, payload or {}, kind, event_type=topic)])


async def publish(database: Database, *topics: str, publisher: str = "p", **values: Any) -> list[int]:
    """Publish an event under each topic, with further arrays of ``publish_v1``; returns their numbers."""
    names = "".join(f", p_{name} => ${place}" for place, name in enumerate(values, 4))
    async with database.transaction() as session:
        rows = await session.fetch(
            f"SELECT seq_nr FROM projections.publish_v1($1, $2, $3{names})",
            publisher, list(topics), ["{}"] * len(topics), *values.values(),
        )  # fmt: skip
    return [row["seq_nr"] for row in rows]


async def match(database: Database, timeout: float = 2, **options: Any) -> Told:
    """Match all that was committed, as a worker does, over failures."""
    return await caught_up(
        database, discovery=Matching(condition_timeout=timedelta(seconds=timeout)), **options
    )


@asynccontextmanager
async def matching(database: Database, ranges: int = 1, **options: Any) -> AsyncIterator[Told]:
    """A worker that matches, for the length of the block; some event must be there."""
    async with running(database, discovery=Matching(ranges), **options) as told:
        yield told


async def matches(database: Database) -> list[tuple[str, str, int, list[int]]]:
    """Group, source, number and subscriptions of what matched, in the order of the match ids."""
    async with database.session() as session:
        rows = await session.fetch(MATCHES)
    return [
        (row["name"], row["source_id"], row["seq_nr"], [int(i) for i in row["ids"].strip("{}").split(",")])
        for row in rows
    ]


async def matched(database: Database) -> list[tuple[str, int]]:
    """The events that matched, in the order of the match ids."""
    return [(source_id, seq_nr) for _, source_id, seq_nr, _ in await matches(database)]


async def tend(database: Database) -> None:
    """What a worker does every second: match published events that are due."""
    async with database.session() as session:
        await Matching().tend(session)


__all__ = [
    "MATCHES", "QUARANTINED", "SETTLED", "execute", "fetchval", "happened", "match", "matched", "matches", "matching",
    "publish", "refused", "subscribe", "tend",
]  # fmt: skip
