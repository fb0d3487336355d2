"""Models of the functions in ``sql/functions/subscriptions`` by which the matches of a group are read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from journal.log import JOURNAL
from projections.subscriptions import reading, settled_matches
from tests.simulation.postgres import journal
from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.errors import ServerError
from tests.simulation.postgres.matching import settled_matches_v1
from tests.simulation.postgres.statements import statement
from tests.simulation.postgres.storage import Row
from tests.simulation.postgres.subscribing import group_of

POLL = f"""
SELECT p.*, ARRAY[{settled_matches._LAST_MATCH}]::bigint[] AS numbers FROM ({JOURNAL.poll}
) AS p
"""
"""A poll of who reads for a group and matches, too."""
_EVENT = (
    "source_id", "seq_nr", "db_timestamp", "slice", "event_id", "entity_type", "event_type", "version", "payload",
    "metadata", "tags",
)  # fmt: skip


def lost(group: str, min_slice: int, epoch: int) -> ServerError:
    """The range is another's."""
    return ServerError(
        "PJ010", f"the slices of group '{group}' from {min_slice} on are no longer held with epoch {epoch}"
    )


def _range(db: Backend, group: str, min_slice: int, handler: int | None) -> Row | None:
    found = group_of(db, group)
    return found and db.table("group_ranges").get(db.snapshot(), found["group_id"], min_slice, handler or 0)


def check_held(  # noqa: PLR0917 - as the function has them
    db: Backend, group: str, min_slice: int, epoch: int, owner: str, cursor: int, place: int,
    matched_at: datetime | None, handler: int | None,
) -> None:  # fmt: skip
    """``check_group_range_v1``."""
    held = _range(db, group, min_slice, handler)
    if held is None or (held["epoch"], held["owner"]) != (epoch, owner):
        raise lost(group, min_slice, epoch)
    if held["cursor"] < cursor or held["cursor"] > place:
        raise ServerError("PJ013", f"the cursor of group '{group}' is at {held['cursor']}, not at {cursor}")
    if matched_at is not None and place > 0 and not has_match(db, held["group_id"], place, matched_at):
        raise ServerError("PJ013", f"the database went back in time: match {place} is not there any more")


def has_match(db: Backend, group: int, number: int, matched_at: datetime | None = None) -> bool:
    """Whether a match is there, with its time where that is known."""
    return bool(
        db.select(
            "matches",
            lambda m: (
                (m["group_id"], m["match_id"]) == (group, number)
                and (matched_at is None or m["matched_at"] == matched_at)
            ),
        )
    )


@statement(reading._LOOK)
async def look_for_matches(db: Backend) -> list[Row]:
    """What is settled is asked after the other: it is among the columns of what that returns."""
    told = journal.generation(db)
    await db.breathe()
    return [{"settled": await settled_matches_v1(db), **told}]


@statement(reading._LAST)
async def last_match(db: Backend, group: str, until: int) -> list[Row]:
    snapshot = db.snapshot()
    found = db.table("subscription_groups").get(snapshot, group)
    if found is None:
        return []
    matches = db.select(
        "matches", lambda m: m["group_id"] == found["group_id"] and m["match_id"] <= until, snapshot
    )
    last: Row = max(matches, key=lambda m: m["match_id"], default={"match_id": 0, "matched_at": None})
    return [{name: last[name] for name in ("match_id", "matched_at")}]


@statement(reading._READ_HELD)
async def read_next_v1(  # noqa: PLR0917 - as the statement has them
    db: Backend, group: str, min_slice: int, max_slice: int, after: int, until: int, limit: int, page_bytes: int,
    epoch: int, owner: str, cursor: int, matched_at: datetime | None, handler: int | None,
    subscriptions: Sequence[int] | None,
) -> list[Row]:  # fmt: skip
    check_held(db, group, min_slice, epoch, owner, cursor, after, matched_at, handler)
    await db.breathe()
    found = group_of(db, group)
    matches = db.select(
        "matches",
        lambda m: (
            found is not None
            and m["group_id"] == found["group_id"]
            and after < m["match_id"] <= until
            and min_slice <= m["slice"] <= max_slice
            and (subscriptions is None or not {*subscriptions}.isdisjoint(m["subscription_ids"]))
        ),
    )
    page = sorted(matches, key=lambda m: m["match_id"])[:limit]
    await db.breathe()
    return _paged(db, page, page_bytes)


def _paged(db: Backend, page: Sequence[Row], limit: int) -> list[Row]:
    snapshot, events, rows, total = db.snapshot(), db.table("events"), [], 0
    for match in page:
        key = [match[name] for name in ("source_id", "seq_nr", "db_timestamp")]
        event = events.get(snapshot, *key) or {}
        if event and total >= limit:
            break
        total += journal.bytes_of(event) if event else 0
        columns: dict[str, Any] = {name: event.get(name, match.get(name)) for name in _EVENT}
        rows.append({
            "match_id": match["match_id"], "subscription_ids": match["subscription_ids"], **columns,
            "matched_at": match["matched_at"], "more": total >= limit,
        })  # fmt: skip
    return rows


@statement(POLL)
async def poll_writers_and_matches(db: Backend, *asked: Any) -> list[Row]:
    (told,) = await journal._poll_writers_v1(db, *asked)
    await db.breathe()
    return [{**told, "numbers": [db.server.sequences.get("matches", 0)]}]
