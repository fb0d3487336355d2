"""Models of what ``offsets/lost_events.py`` asks: whether a journal elsewhere still has what is handled."""

from __future__ import annotations

from datetime import datetime

from offsets import lost_events
from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.offsets import _park_source_v1 as park_source
from tests.simulation.postgres.statements import Touched, statement
from tests.simulation.postgres.storage import Row


def _is_range(row: Row, number: int, min_slice: int, epoch: int, owner: str) -> bool:
    return (row["projection_id"], row["min_slice"], row["epoch"], row["owner"]) == (
        number,
        min_slice,
        epoch,
        owner,
    )


@statement(lost_events._LIFE)
async def journal_life(db: Backend, *mine: int | str) -> list[Row]:
    found = db.select("projection_ranges", lambda r: _is_range(r, *mine))  # type: ignore[arg-type]
    columns = ("journal_life", "handled_until")
    return [
        {**{name: row[name] for name in columns}, "evicted_before": known["evicted_before"]}
        for row in found
        for known in db.select("projections", lambda p: p["projection_id"] == mine[0])
    ]


@statement(lost_events._NOTE_LIFE)
async def note_journal_life(db: Backend, *args: int | str) -> Touched:
    *mine, life, again = args
    noted = await db.update(
        "projection_ranges",
        lambda r: _is_range(r, *mine),
        lambda r: {"journal_life": life, "horizon": min(r["horizon"], again)},  # type: ignore[arg-type]
    )
    return Touched(len(noted))


@statement(lost_events._OFFSETS)
async def offsets_of(  # noqa: PLR0917 - as the query has them
    db: Backend, number: int, first: int, last: int, after: str, limit: int
) -> list[Row]:
    found = db.select(
        "source_offsets",
        lambda o: o["projection_id"] == number and first <= o["slice"] <= last and o["source_id"] > after,
    )
    columns = ("source_id", "seq_nr", "db_timestamp", "slice")
    return [{name: o[name] for name in columns} for o in sorted(found, key=lambda o: o["source_id"])[:limit]]


@statement(lost_events._FORGET)
async def forget_offset(db: Backend, number: int, source_id: str) -> Touched:
    gone = await db.delete(
        "source_offsets", lambda o: (o["projection_id"], o["source_id"]) == (number, source_id)
    )
    return Touched(len(gone))


@statement(lost_events._SET_BACK)
async def set_offset_back(db: Backend, number: int, source_id: str, seq_nr: int, at: datetime) -> Touched:
    changed = await db.update(
        "source_offsets",
        lambda o: (o["projection_id"], o["source_id"]) == (number, source_id),
        lambda _: {"seq_nr": seq_nr, "db_timestamp": at},
    )
    return Touched(len(changed))


@statement(lost_events._PARK)
async def park_lost(  # noqa: PLR0917 - as the query has them
    db: Backend, number: int, source_id: str, slice_number: int, seq_nr: int, error: str
) -> list[Row]:
    if db.select(
        "parked_sources",
        lambda k: (k["projection_id"], k["source_id"]) == (number, source_id) and k["seq_nr"] <= seq_nr,
    ):
        return []
    await park_source(db, number, source_id, slice_number, seq_nr, "unknown", error, 0)
    return [{"_park_source_v1": None}]


@statement("SELECT pg_is_in_recovery()")
async def is_in_recovery(db: Backend) -> list[Row]:
    return [{"pg_is_in_recovery": False}]
