"""Models of the functions in ``sql/functions/subscriptions`` about batches that a handler failed on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.errors import ServerError
from tests.simulation.postgres.reading_groups import check_held, lost
from tests.simulation.postgres.server import RETRIES
from tests.simulation.postgres.statements import function
from tests.simulation.postgres.storage import Row
from tests.simulation.postgres.subscribing import group_of, unknown_group

_LONGEST_ERROR = 2000


@function
async def fail_batch_v1(  # noqa: PLR0917 - as the function has them
    db: Backend, group: str, handler: str, attempts: int, error: str, delay: timedelta | None, matches: str,
    min_slice: int | None, epoch: int | None, owner: str | None, stored: int | None, place: int | None,
    matched_at: datetime | None, own_range: int | None,
) -> int:  # fmt: skip
    if (found := group_of(db, group)) is None:
        raise unknown_group(group)
    number = found["group_id"]
    if epoch is not None:
        assert min_slice is not None
        assert owner is not None
        assert stored is not None
        assert place is not None
        await db.breathe()
        held = await db.share_row(
            "group_ranges",
            lambda r: (
                (r["group_id"], r["min_slice"], r["epoch"], r["handler_id"])
                == (number, min_slice, epoch, own_range)
            ),
        )
        if held is None:
            raise lost(group, min_slice, epoch)
        await db.breathe()
        check_held(db, group, min_slice, epoch, owner, stored, place, matched_at, own_range)
    batch = sorted((match["match_id"], match["event_id"]) for match in json.loads(matches))
    if not batch:
        raise ServerError("PJ081", "a batch has matches")
    await db.breathe()
    due_at = None if delay is None else db.clock() + delay
    told = {"attempts": attempts, "error": error[:_LONGEST_ERROR], "due_at": due_at}
    new = {
        "retry_id": db.server.next_of(RETRIES), "group_id": number, "handler": handler, "first_match_id": batch[0][0],
        "last_match_id": batch[-1][0], **told, "matches": matches, "digest": str(batch),
    }  # fmt: skip
    return await keep(db, new, told)


async def keep(db: Backend, new: Row, told: Row) -> int:
    """Store a batch; one that is there already fails again."""
    kept = await db.insert("group_retries", new, lambda _: told)
    assert kept is not None
    return int(kept["retry_id"])


@function
async def take_retries_v1(
    db: Backend, group: str, handlers: Sequence[str], lease: timedelta, limit: int
) -> list[Row]:
    await db.breathe()
    found = group_of(db, group)
    now = db.clock()
    due = await db.lock_rows(
        "group_retries",
        lambda r: (
            found is not None
            and r["group_id"] == found["group_id"]
            and r["handler"] in handlers
            and r["due_at"] is not None
            and r["due_at"] <= now
        ),
        order="due_at",
        skip_locked=True,
        limit=limit,
    )
    numbers = [r["retry_id"] for r in due]
    taken = await db.update(
        "group_retries", lambda r: r["retry_id"] in numbers, lambda _: {"due_at": db.clock() + lease}
    )
    columns = ("retry_id", "handler", "first_match_id", "last_match_id", "attempts", "matches")
    return [{**{name: r[name] for name in columns}, "taken_until": r["due_at"]} for r in taken]


@function
async def finish_retry_v1(  # noqa: PLR0917 - as the function has them
    db: Backend, number: int, taken_until: datetime, attempts: int | None, error: str | None, delay: timedelta | None
) -> bool:  # fmt: skip
    def is_taken(r: Row) -> bool:
        return (r["retry_id"], r["due_at"]) == (number, taken_until)

    if error is None:
        return bool(await db.delete("group_retries", is_taken))
    told = error[:_LONGEST_ERROR]
    return bool(
        await db.update(
            "group_retries",
            is_taken,
            lambda _: {
                "attempts": attempts,
                "error": told,
                "due_at": None if delay is None else db.clock() + delay,
            },
        )
    )


@function
async def retry_batches_v1(db: Backend, group: str, number: int | None, waiting: bool) -> int:
    if (found := group_of(db, group)) is None:
        raise unknown_group(group)
    await db.breathe()
    locked = await db.lock_rows(
        "group_retries",
        lambda r: (
            r["group_id"] == found["group_id"]
            and (r["due_at"] is None or (waiting and number is not None))
            and number in {None, r["retry_id"]}
        ),
        order="retry_id",
    )
    numbers = [r["retry_id"] for r in locked]
    await db.breathe()
    await db.update(
        "group_retries",
        lambda r: r["retry_id"] in numbers,
        lambda _: {"due_at": db.clock(), "attempts": 0},
    )
    return len(numbers)
