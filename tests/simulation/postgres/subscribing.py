"""Models of the functions in ``sql/functions/subscriptions`` by which groups subscribe. No condition is modelled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from journal import BEGINNING
from projections.subscriptions import groups, subscribing
from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.errors import NotModelled, ServerError
from tests.simulation.postgres.holding import cut
from tests.simulation.postgres.server import SOURCES_LOCK
from tests.simulation.postgres.statements import function, statement
from tests.simulation.postgres.storage import Row, Transaction

MATCHING = "matching"


@function
async def create_group_v1(
    db: Backend,
    name: str,
    reliable: bool = True,
    min_slices: Sequence[int] = (0,),
    start: datetime | None = None,
) -> int:
    if start is not None:
        raise NotModelled("a group that starts at another time")
    ranges = cut(list(min_slices))
    if (found := group_of(db, name)) is None:
        await db.breathe()
        new = {
            "group_id": db.server.next_of("groups"),
            "name": name,
            "reliable": reliable,
            "dropped_until": 0,
        }
        if await db.insert_or_nothing("subscription_groups", new):
            await db.breathe()
            for first, last in ranges:
                await db.insert("group_ranges", new_group_range(new["group_id"], first, last))
            return int(new["group_id"])
        await db.breathe()
        found = group_of(db, name)
    assert found is not None
    return int(found["group_id"])


@statement("SELECT projections.create_group_v1($1, $2, $3, CAST(CAST($4 AS text) AS timestamptz))")
async def create_group(
    db: Backend, name: str, reliable: bool, min_slices: Sequence[int], start: str | None
) -> list[Row]:
    if start is not None:
        raise NotModelled("a group that starts at another time")
    return [{"create_group_v1": await create_group_v1(db, name, reliable, min_slices)}]


def group_of(db: Backend, name: str) -> Row | None:
    """A group as a statement sees it that begins now."""
    return db.table("subscription_groups").get(db.snapshot(), name)


def unknown_group(name: str) -> ServerError:
    """There is none of this name."""
    return ServerError("PJ082", f"there is no group '{name}': subscribe for it, or create it first")


def new_group_range(group: int, first: int, last: int, **columns: Any) -> Row:
    """A row of ``group_ranges`` with the defaults of its columns."""
    row = {
        "group_id": group, "min_slice": first, "max_slice": last, "cursor": 0, "moved_at": None, "epoch": 0,
        "owner": None, "handler_id": None, "assigned_to": None, **columns,
    }  # fmt: skip
    return {**row, "handler": row["handler_id"] or 0}


@statement(subscribing._SUBSCRIBE)
async def subscribe_v1(  # noqa: PLR0917 - as the function has them
    db: Backend, group: str, condition: str | None, params: str, expires_after: timedelta | None,
    topics: Sequence[str] | None, entity_types: Sequence[str] | None, reliable: bool, start: str | None,
) -> list[Row]:  # fmt: skip
    if condition is not None or start is not None or any("*" in topic for topic in topics or ()):
        raise NotModelled("a subscription with a condition, a pattern or a start")
    await db.breathe()
    number = await create_group_v1(db, group, reliable)
    await db.breathe()
    asked = {
        "group": number, "params": json.loads(params), "topics": sorted(set(topics)) if topics else None,
        "entity_types": sorted(set(entity_types)) if entity_types else None,
    }  # fmt: skip
    since = in_flight_since(db)
    await db.breathe()
    identity = json.dumps(asked, sort_keys=True)
    new = {
        "subscription_id": db.server.next_of("subscriptions"), "group_id": number, "since": since,
        "topics": asked["topics"], "entity_types": asked["entity_types"], "identity": identity,
        "created_at": db.clock(), "active_at": db.clock(), "expires_after": expires_after,
    }  # fmt: skip
    if await db.insert_or_nothing("subscriptions", new):
        return [{"subscribe_v1": new["subscription_id"]}]
    await db.breathe()
    known = await db.update(
        "subscriptions", lambda s: s["identity"] == identity, lambda _: {"active_at": db.clock()}
    )
    if not known:
        raise ServerError("40001", "the subscription was removed while it was asked for")
    return [{"subscribe_v1": known[0]["subscription_id"]}]


def in_flight_since(db: Backend) -> datetime:
    """``_in_flight_since_v1``."""
    matching = [p["projection_id"] for p in db.select("projections", lambda p: p["name"] == MATCHING)]
    horizons = [
        r["horizon"] for r in db.select("projection_ranges", lambda r: r["projection_id"] in matching)
    ]
    unknown = min(horizons, default=BEGINNING)
    starts = [_started(db, one) or unknown for one in db.server.locks.sharing(SOURCES_LOCK)]
    return min([db.clock(), *starts]) - timedelta(seconds=1)


def _started(db: Backend, writer: Transaction) -> datetime | None:
    """``xact_start`` of a writer; None where it is prepared."""
    running = (one for one in db.server.backends if one.shows_its_transaction)
    return next((one.now for one in running if one.transaction is writer), None)


@function
async def register_handler_v1(db: Backend, group: str, name: str, subscription: int) -> int | None:
    if (found := group_of(db, group)) is None:
        return None
    row = {
        "handler_id": db.server.next_of("handlers"), "group_id": found["group_id"],
        "subscription_id": subscription, "name": name,
    }  # fmt: skip
    stored = await db.insert("group_handlers", row, lambda _: {"name": name})
    assert stored is not None
    return int(stored["handler_id"])


@function
async def keep_subscriptions_v1(db: Backend, numbers: Sequence[int]) -> list[list[int]]:
    def asked(row: Row) -> bool:
        return row["subscription_id"] in numbers

    snapshot = db.snapshot()
    await db.update(
        "subscriptions", asked, lambda _: {"active_at": db.clock()}, order="subscription_id", skip_locked=True
    )
    return [
        sorted(s["subscription_id"] for s in db.select("subscriptions", asked, snapshot))
    ]  # one row: an array


@statement(groups._RELIABLE)
async def is_reliable(db: Backend, name: str) -> list[Row]:
    found = group_of(db, name)
    return [] if found is None else [{"reliable": found["reliable"]}]
