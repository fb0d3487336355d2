"""Models of the functions in ``sql/functions/subscriptions`` by which events are matched. No condition is modelled."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from journal import BEGINNING
from projections.subscriptions import conditions, matching
from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.offsets import register_projection_v1
from tests.simulation.postgres.statements import function, statement
from tests.simulation.postgres.storage import Row
from tests.simulation.postgres.subscribing import MATCHING, in_flight_since

MATCHES_LOCK = "matches"
"""With a number, the key of what whoever writes matches locks."""


class Interest(NamedTuple):
    """A row of the view ``interests``: who wants a topic of an entity type."""

    topic: str
    group_id: int
    subscription_ids: tuple[int, ...]
    entity_type: str

    def __str__(self) -> str:
        """As PostgreSQL writes the row."""
        ids = ",".join(map(str, self.subscription_ids))
        array = f'"{{{ids}}}"' if "," in ids else f"{{{ids}}}"
        return f"(,{self.topic},{self.group_id},{array},{self.entity_type})"

    @classmethod
    def of(cls, text: str) -> Interest:
        """Read what :meth:`__str__` has written."""
        found = re.fullmatch(r'\(,(\w+),(\d+),"?\{([\d,]+)\}"?,([\w-]+)\)', text)
        assert found is not None, text
        return cls(found[1], int(found[2]), tuple(map(int, found[3].split(","))), found[4])


@function
async def _look_at_matching_v1(db: Backend) -> list[Row]:
    begun = bool(db.select("projections", lambda p: p["name"] == MATCHING))
    return [{"begun": begun, "unchecked": False, "due": False, "behind": False, "history": False}]


@function
async def _expire_subscriptions_v1(db: Backend) -> int:
    """No subscription of a simulation expires."""
    return 0


@function
async def _begin_matching_v1(db: Backend, min_slices: Sequence[int]) -> int:
    if found := db.select("projections", lambda p: p["name"] == MATCHING):
        return int(found[0]["projection_id"])
    await db.breathe()
    number = await register_projection_v1(db, MATCHING, None, min_slices, 1, None, None)
    await db.breathe()
    since = in_flight_since(db)
    await db.breathe()
    first = min([since, *(s["since"] for s in db.select("subscriptions"))])
    await db.update(
        "projection_ranges",
        lambda r: (r["projection_id"], r["epoch"], r["horizon"]) == (number, 0, BEGINNING),
        lambda _: {"horizon": first},
    )
    await db.breathe()
    import_id = max((i["import_id"] for i in db.select("imports")), default=0)
    await db.update(
        "projection_ranges",
        lambda r: (r["projection_id"], r["epoch"]) == (number, 0),
        lambda _: {"import_id": import_id},
    )
    return number


@function
async def _subscriptions_state_v1(db: Backend) -> str:
    known = sorted((s["subscription_id"], s["created_at"].isoformat()) for s in db.select("subscriptions"))
    return repr(known)


@statement(matching._INTERESTS)
async def interests_v1(db: Backend, entity_type: str, topics: Sequence[str | None]) -> list[Row]:
    await db.breathe()
    wanted = db.select(
        "subscriptions", lambda s: s["entity_types"] is None or entity_type in s["entity_types"]
    )
    found = (
        Interest(topic, group, ids, entity_type)
        for topic in topics
        if topic is not None
        for group, ids in _by_group(s for s in wanted if s["topics"] is None or topic in s["topics"])
    )
    return [{"topic": one.topic, "interest": str(one)} for one in found]


def _by_group(subscriptions: Iterable[Row]) -> Iterator[tuple[int, tuple[int, ...]]]:
    by_group: dict[int, list[int]] = {}
    for one in subscriptions:
        by_group.setdefault(one["group_id"], []).append(one["subscription_id"])
    for group, ids in sorted(by_group.items()):
        yield group, tuple(sorted(ids))


class _Given(NamedTuple):
    source_id: str
    seq_nr: int
    db_timestamp: datetime
    slice: int


@statement(matching._MATCH)
async def match_log_v1(  # noqa: PLR0917 - as the function has them
    db: Backend, entity_types: Sequence[str], source_ids: Sequence[str], seq_nrs: Sequence[int],
    times: Sequence[datetime], slices: Sequence[int], topics: Sequence[str], interests: Sequence[str], _failed: str,
) -> list[Row]:  # fmt: skip
    wanted = [Interest.of(one) for one in interests]
    await db.breathe()
    if not wanted:
        return [{"_match_log_v1": 0}]
    await lock_matching(db)
    await db.breathe()
    as_given = not db.select("subscriptions", lambda s: s["since"] > min(times))
    await db.breathe()
    since = {s["subscription_id"]: s["since"] for s in db.select("subscriptions")}
    found: list[tuple[_Given, int, tuple[int, ...]]] = []
    for event, topic, entity_type in zip(
        map(_Given._make, zip(source_ids, seq_nrs, times, slices, strict=True)), topics, entity_types, strict=True
    ):  # fmt: skip
        for one in sorted(wanted, key=lambda one: one.group_id):
            if (one.topic, one.entity_type) != (topic, entity_type):
                continue
            ids = one.subscription_ids
            if not as_given:
                ids = tuple(n for n in ids if n in since and since[n] <= event.db_timestamp)
            if ids:
                found.append((event, one.group_id, ids))
    for event, group, ids in found:
        await db.insert("matches", {
            "match_id": db.server.next_of("matches"), "group_id": group, **event._asdict(),
            "matched_at": db.clock(), "subscription_ids": list(ids),
        })  # fmt: skip
    return [{"_match_log_v1": len(found)}]


async def lock_matching(db: Backend) -> None:
    """``_lock_matching_v1``: the number is read, and then its lock is taken."""
    last = db.server.sequences.get("matches", 0)
    await db.breathe()
    db.server.locks.share(db.transaction, (MATCHES_LOCK, last))


@function
async def settled_matches_v1(db: Backend) -> int:
    last = db.server.sequences.get("matches", 0)
    await db.breathe()
    return min([last, *db.server.locks.shared_numbers(MATCHES_LOCK)])


@statement(conditions._BEGIN)
async def limit_time(_db: Backend, limit: str, newest_events: str) -> list[Row]:
    return [{"set_config": limit, "set_config_1": "", "set_config_2": newest_events}]


@statement(conditions._OVER)
async def limit_no_time(_db: Backend) -> list[Row]:
    answer: Row = {"current_setting": "", "set_config": "0", "set_config_1": ""}
    return [answer]


@statement(conditions._WANTED)
async def wanted_conditions(_db: Backend, _entity_types: Sequence[str], _topics: Sequence[str]) -> list[Row]:
    return []


@statement(conditions._READ)
async def read_matchable_events(
    db: Backend, source_ids: Sequence[str], seq_nrs: Sequence[int], times: Sequence[datetime]
) -> list[Row]:
    snapshot, events = db.snapshot(), db.table("events")
    found = [events.get(snapshot, *key) for key in zip(source_ids, seq_nrs, times, strict=True)]
    return [{"count": sum(one is not None for one in found)}]
