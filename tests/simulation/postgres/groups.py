"""Models of the functions in ``sql/functions/subscriptions`` by which a group is read. No failed batch is modelled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.errors import ServerError
from tests.simulation.postgres.holding import cut
from tests.simulation.postgres.reading_groups import check_held, has_match, lost
from tests.simulation.postgres.sharing import share_ranges
from tests.simulation.postgres.statements import function
from tests.simulation.postgres.storage import Row
from tests.simulation.postgres.subscribing import group_of, new_group_range, unknown_group


@function
async def poll_group_v1(  # noqa: PLR0917 - as the function has them
    db: Backend, group: str, owner: str, lease: timedelta, joined: bool, handlers: Sequence[int]
) -> list[Row]:
    now = db.clock()
    if (found := group_of(db, group)) is None:
        raise unknown_group(group)
    number: int = found["group_id"]
    await db.breathe()
    await _say_alive(db, number, owner, now + lease, handlers, joined=joined)
    await db.breathe()
    if await db.lock_rows("subscription_groups", lambda g: g["group_id"] == number, skip_locked=True):
        await db.breathe()
        await db.delete(
            "workers", lambda w: w["group_id"] == number and w["lease_until"] <= now, skip_locked=True
        )
        await db.breathe()
        await _assign_group(db, number)
        await db.breathe()
        there = {w["owner"] for w in db.select("workers", lambda w: w["group_id"] == number)}
        await db.update(
            "group_ranges",
            lambda r: (
                (r["group_id"], r["assigned_to"]) == (number, owner)
                and r["owner"] != owner
                and r["owner"] not in there
            ),
            lambda r: {"owner": owner, "epoch": r["epoch"] + 1},
            skip_locked=True,
        )
    await db.breathe()
    return _ranges_of(db, number, owner)


async def _say_alive(
    db: Backend, group: int, owner: str, lease_until: datetime, handlers: Sequence[int], *, joined: bool
) -> None:
    alive = {"lease_until": lease_until, "handlers": list(handlers)}
    if joined:
        if not await db.update(
            "workers", lambda w: (w["group_id"], w["owner"]) == (group, owner), lambda _: alive
        ):
            raise ServerError("PJ013", f"reader '{owner}' is not known: the database went back in time")
        return
    new = {
        "owner": owner, "host": "", "pid": 0, "joined_at": db.clock(), "group_id": group, "beats": 0,
        "leaving": False, "projection_ids": [], **alive,
    }  # fmt: skip
    if await db.insert("workers", new, lambda w: alive if w["group_id"] == group else None) is None:
        raise ServerError("PJ081", f"reader '{owner}' has the name of a worker, or of another reader")


async def _assign_group(db: Backend, group: int) -> None:
    """``_assign_group_v1``."""
    snapshot = db.snapshot()
    ranges = db.select("group_ranges", lambda r: (r["group_id"], r["handler_id"]) == (group, None), snapshot)
    ranges.sort(key=lambda r: r["min_slice"])
    readers = sorted(
        db.select("workers", lambda w: w["group_id"] == group, snapshot),
        key=lambda w: (w["joined_at"], w["owner"]),
    )
    shares = share_ranges(
        [r["min_slice"] for r in ranges], [r["assigned_to"] for r in ranges], [w["owner"] for w in readers]
    )
    await db.update(
        "group_ranges",
        lambda r: (r["group_id"], r["handler_id"]) == (group, None) and r["min_slice"] in shares,
        lambda r: {"assigned_to": shares[r["min_slice"]]},
        skip_locked=True,
    )
    await db.breathe()
    # A handler's own: to whoever reads its slices, or it stays, or to the first, of those that have the handler.
    together = {
        r["min_slice"]: r["assigned_to"]
        for r in db.select("group_ranges", lambda r: (r["group_id"], r["handler_id"]) == (group, None))
    }

    def wanted(r: Row) -> str | None:
        able = [w for w in readers if r["handler_id"] in w["handlers"]]
        best = sorted(
            able, key=lambda w: (w["owner"] != together.get(r["min_slice"]), w["owner"] != r["assigned_to"])
        )
        return best[0]["owner"] if best else None

    await db.update(
        "group_ranges",
        lambda r: r["group_id"] == group and r["handler_id"] is not None,
        lambda r: {"assigned_to": wanted(r)},
        skip_locked=True,
    )


def _ranges_of(db: Backend, group: int, owner: str) -> list[Row]:
    ranges = db.select("group_ranges", lambda r: r["group_id"] == group)
    mine = [r for r in ranges if r["owner"] == owner]
    return [
        {
            **{name: r[name] for name in ("min_slice", "max_slice", "epoch", "cursor")},
            "kept": r["assigned_to"] == owner,
            "handler_id": r["handler_id"],
            "apart": None if r["handler_id"] is not None else sorted(
                o["handler_id"] for o in ranges if o["min_slice"] == r["min_slice"] and o["handler_id"] is not None
            ),
        }
        for r in sorted(mine, key=lambda r: (r["min_slice"], r["handler_id"] or 2**62))
    ]  # fmt: skip


@function
async def move_cursor_v1(  # noqa: PLR0917 - as the function has them
    db: Backend, group: str, min_slice: int, epoch: int, cursor: int, owner: str, stored: int,
    matched_at: datetime | None, handler: int | None, handlers: Sequence[int] | None,
) -> list[str] | None:  # fmt: skip
    found = group_of(db, group)
    number, own = found and found["group_id"], handler or 0
    held = await db.lock_rows(
        "group_ranges", lambda r: (r["group_id"], r["min_slice"], r["handler"]) == (number, min_slice, own)
    )
    await db.breathe()
    if not held or held[0]["epoch"] != epoch:
        raise lost(group, min_slice, epoch)
    (at,) = held
    if cursor >= at["cursor"]:
        check_held(db, group, min_slice, epoch, owner, stored, cursor, matched_at, handler)
    if cursor == at["cursor"]:
        return None
    if cursor < at["cursor"]:
        raise ServerError("PJ084", f"the cursor of group '{group}' is at {at['cursor']} already")
    await db.breathe()
    if not has_match(db, at["group_id"], cursor):
        raise ServerError("PJ084", f"{cursor} is not a match of group '{group}'")
    apart = None
    if handlers is not None and handler is None:
        apart = await _set_handlers_apart(db, at, cursor, handlers)
    await db.breathe()
    await db.update(
        "group_ranges",
        lambda r: (r["group_id"], r["min_slice"], r["handler"]) == (number, min_slice, own),
        lambda _: {"cursor": cursor, "moved_at": db.clock()},
    )
    return [apart] if apart else None  # type: ignore[list-item]


async def _set_handlers_apart(db: Backend, held: Row, cursor: int, handlers: Sequence[int]) -> list[str]:
    """``_set_handlers_apart_v1``."""
    group, first, apart = held["group_id"], held["min_slice"], []
    await db.breathe()
    known = db.select("group_handlers", lambda h: h["group_id"] == group)
    own = {
        r["handler_id"]
        for r in db.select("group_ranges", lambda r: (r["group_id"], r["min_slice"]) == (group, first))
    }
    for one in sorted(known, key=lambda h: h["name"]):
        if one["handler_id"] in handlers or one["handler_id"] in own:
            continue
        same = {
            h["subscription_id"] for h in known if h["name"] == one["name"] and h["handler_id"] in handlers
        }
        if db.select(
            "matches",
            lambda m, one=one, same=same: (
                m["group_id"] == group
                and held["cursor"] < m["match_id"] <= cursor
                and first <= m["slice"] <= held["max_slice"]
                and one["subscription_id"] in m["subscription_ids"]
                and same.isdisjoint(m["subscription_ids"])
            ),
        ):
            range_of_its_own = new_group_range(
                group, first, held["max_slice"], cursor=held["cursor"], moved_at=db.clock(),
                epoch=held["epoch"], handler_id=one["handler_id"],
            )  # fmt: skip
            await db.insert("group_ranges", range_of_its_own)
            apart.append(one["name"])
    return apart


@function
async def join_handler_v1(db: Backend, group: str, min_slice: int, handler: int, owner: str) -> bool:
    found = group_of(db, group)
    number = found and found["group_id"]

    def held(own: int) -> Any:
        return lambda r: (
            (r["group_id"], r["min_slice"], r["handler"], r["owner"]) == (number, min_slice, own, owner)
        )

    if not (together := await db.lock_rows("group_ranges", held(0))):
        return False
    await db.breathe()
    if not (alone := await db.lock_rows("group_ranges", held(handler))):
        return False
    (wanted,) = {
        h["subscription_id"] for h in db.select("group_handlers", lambda h: h["handler_id"] == handler)
    }
    await db.breathe()
    if db.select(
        "matches",
        lambda m: (
            m["group_id"] == number
            and alone[0]["cursor"] < m["match_id"] <= together[0]["cursor"]
            and min_slice <= m["slice"] <= together[0]["max_slice"]
            and wanted in m["subscription_ids"]
        ),
    ):
        return False
    await db.breathe()
    await db.delete(
        "group_ranges",
        lambda r: (r["group_id"], r["min_slice"], r["handler"]) == (number, min_slice, handler),
    )
    return True


@function
async def release_group_range_v1(  # noqa: PLR0917 - as the function has them
    db: Backend, group: str, min_slice: int, epoch: int, owner: str, handler: int | None
) -> None:
    found = group_of(db, group)
    number, own = found and found["group_id"], handler or 0
    await db.update(
        "group_ranges",
        lambda r: (
            (r["group_id"], r["min_slice"], r["handler"]) == (number, min_slice, own)
            and (r["epoch"], r["owner"]) == (epoch, owner)
        ),
        lambda _: {"owner": None},
    )


def begins_at(cursors: Iterable[int]) -> int:
    """Where a range begins that is made of several."""
    return min(cursors)


@function
async def _cut_group_v1(db: Backend, group: str, min_slices: Sequence[int]) -> None:
    if not (found := await db.lock_rows("subscription_groups", lambda g: g["name"] == group)):
        raise unknown_group(group)
    number = found[0]["group_id"]
    await db.breathe()
    await db.lock_rows("group_ranges", lambda r: r["group_id"] == number, order="min_slice")
    await db.breathe()
    before = db.select("group_ranges", lambda r: r["group_id"] == number)
    if list(min_slices) == sorted(r["min_slice"] for r in before if r["handler_id"] is None):
        return
    await db.breathe()
    old = await db.delete("group_ranges", lambda r: r["group_id"] == number)
    old.sort(key=lambda r: r["min_slice"])
    for first, last in cut(min_slices):
        for handler in {r["handler_id"]: None for r in old}:
            parts = [
                o
                for o in old
                if first <= o["max_slice"] and o["min_slice"] <= last and o["handler_id"] in {None, handler}
            ]
            if any(o["handler_id"] == handler for o in parts):
                await db.insert("group_ranges", new_group_range(
                    number, first, last,
                    cursor=begins_at(o["cursor"] for o in parts),
                    moved_at=max((o["moved_at"] for o in parts if o["moved_at"] is not None), default=None),
                    epoch=max(o["epoch"] for o in old) + 1,
                    handler_id=handler,
                    assigned_to=parts[0]["assigned_to"],
                ))  # fmt: skip
