"""Models of the functions by which events are handled in the transaction that appends them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from journal import slice_of
from projections.running import inline
from tests.simulation.postgres import locks
from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.errors import ServerError
from tests.simulation.postgres.holding import literal
from tests.simulation.postgres.journal import predecessors
from tests.simulation.postgres.statements import function, statement
from tests.simulation.postgres.storage import Row, Snapshot

_WAITS_BEYOND_A_DEADLOCK = 0.5


@statement(inline._BEGIN)
async def begin_inline(  # noqa: PLR0917 - as the function has them
    db: Backend, names: Sequence[str], versions: Sequence[int], types: Sequence[str | None],
    source_ids: Sequence[str], entity_types: Sequence[str], first: Sequence[int], last: Sequence[int],
    first_at: Sequence[datetime], last_at: Sequence[datetime],
) -> list[Row]:  # fmt: skip
    if not db.transaction.has_id:
        raise ServerError(
            "25P01", "events are handled inline in the transaction that appends them, and none is open"
        )
    ids = sorted(
        p["projection_id"]
        for p in db.select("projections", lambda p: p["name"] in names and p["mode"] == "inline")
    )
    for number in ids:
        await db.server.locks.take(db.transaction, ("inline", number), db.lock_timeout, shared=True)
    await db.breathe()
    code = {(name, version, kind) for name, version, kind in zip(names, versions, types, strict=True)}
    snapshot = db.snapshot()
    mine = db.select(
        "projections",
        lambda p: (
            p["projection_id"] in ids
            and (p["name"], p["version"], literal(p["entity_types"])) in code
            and p["mode"] == "inline"
            and not p["paused"]
        ),
        snapshot,
    )
    sources = sorted(zip(source_ids, entity_types, first, last, first_at, last_at, strict=True))
    ready = [
        (p, source_id, number, at)
        for p in sorted(mine, key=lambda p: p["projection_id"])
        for source_id, kind, begins, number, begins_at, at in sources
        if p["entity_types"] is None or kind in p["entity_types"]
        if is_ready(db, snapshot, p, source_id, begins, begins_at)
    ]
    for p, source_id, number, at in ready:
        offset = {"seq_nr": number, "db_timestamp": at}
        place = {"projection_id": p["projection_id"], "source_id": source_id, "slice": slice_of(source_id)}
        await db.insert("source_offsets", {**place, **offset}, lambda _, offset=offset: offset)  # type: ignore[misc]
    return [{"projection": p["name"], "source_id": source_id, "place": ""} for p, source_id, _, _ in ready]


def is_ready(  # noqa: PLR0917 - as the function has them
    db: Backend, snapshot: Snapshot, projection: Row, source_id: str, first: int, first_at: datetime
) -> bool:
    """Whether everything of a source before an event is handled."""
    number = projection["projection_id"]
    if db.table("parked_sources").get(snapshot, number, source_id) is not None:
        return False
    offset = db.table("source_offsets").get(snapshot, number, source_id)
    if offset is not None:
        return bool(offset["seq_nr"] == first - 1)
    since = projection["evicted_before"]
    return first_at >= since and (first == 1 or not predecessors(db, [source_id], [first], since, first_at))


async def lock_inline(db: Backend, number: int) -> None:
    """``_lock_inline_v1``: lets others through now and then."""
    patience = locks.DEADLOCK_TIMEOUT + _WAITS_BEYOND_A_DEADLOCK
    while True:
        try:
            await db.server.locks.take(db.transaction, ("inline", number), patience)
        except ServerError as error:
            if error.sqlstate != "55P03":
                raise
            await asyncio.sleep(patience)
        else:
            return


@function
async def _set_mode_v1(db: Backend, number: int, mode: str) -> None:
    await lock_inline(db, number)
    await db.breathe()
    if mode == "inline" and db.select("projections", lambda p: p["projection_id"] == number and p["journal"]):
        raise ServerError("23514", 'new row violates check constraint "inline_reads_here"')
    if not await db.update(
        "projections", lambda p: p["projection_id"] == number and p["mode"] != mode, lambda _: {"mode": mode}
    ):
        return
    await db.breathe()
    offsets = db.select("source_offsets", lambda o: o["projection_id"] == number)

    def change(r: Row) -> dict[str, Any]:
        times = [o["db_timestamp"] for o in offsets if r["min_slice"] <= o["slice"] <= r["max_slice"]]
        return {"epoch": r["epoch"] + 1, "owner": None, "handled_until": max([r["handled_until"], *times])}

    await db.update("projection_ranges", lambda r: r["projection_id"] == number, change)


@statement(
    "DO $$ BEGIN RAISE 'a projection could not be handled inline: this transaction cannot commit'; END $$"
)
async def spoil(_db: Backend) -> list[Row]:
    raise ServerError("P0001", "a projection could not be handled inline: this transaction cannot commit")
