"""Models of the functions in ``sql/functions/offsets``, and of what Python asks of its tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from journal import BEGINNING, slice_of
from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.errors import ServerError
from tests.simulation.postgres.holding import cut, new_range, same_generation
from tests.simulation.postgres.importing import unread_since, wait_for_no_import
from tests.simulation.postgres.journal import predecessors
from tests.simulation.postgres.statements import Touched, function, statement
from tests.simulation.postgres.storage import Row

_IDLE_LIMIT = "idle_in_transaction_session_timeout"


@function
async def register_projection_v1(  # noqa: PLR0917 - as the function has them
    db: Backend, name: str, entity_types: Sequence[str] | None, min_slices: Sequence[int], version: int,
    journal: str | None, journals: Sequence[str | None] | None,
) -> int:  # fmt: skip
    ranges = cut(min_slices)
    types = None if entity_types is None else sorted(set(entity_types))
    await db.server.locks.take(db.transaction, ("register", name))
    await db.breathe()
    await _leave_journals(db, name, journal, [journal] if journals is None else journals)
    await db.breathe()
    parts = sorted(db.select("projections", lambda p: p["name"] == name), key=lambda p: p["projection_id"])
    if not any(p["journal"] == journal for p in parts):
        like = parts[0] if parts else {"version": version, "entity_types": types}
        await db.insert("projections", {
            "projection_id": db.server.next_of("projections"), "name": name, "version": like["version"],
            "paused": bool(parts) and all(p["paused"] for p in parts), "evicted_before": BEGINNING,
            "waited_until": None, "mode": "live", "entity_types": like["entity_types"], "journal": journal,
        })  # fmt: skip
    await db.breathe()
    (known,) = await db.lock_rows("projections", lambda p: (p["name"], p["journal"]) == (name, journal))
    if known["version"] == version and known["entity_types"] != types:
        raise ServerError("PJ020", f"projection '{name}' reads {known['entity_types']}, not {types}")
    await db.breathe()
    number: int = known["projection_id"]
    if not db.select("projection_ranges", lambda r: r["projection_id"] == number):
        for first, last in ranges:
            await db.insert("projection_ranges", new_range(number, first, last))
    return number


async def _leave_journals(
    db: Backend, name: str, journal: str | None, journals: Sequence[str | None]
) -> None:
    """``_leave_journals_v1``."""
    await db.lock_rows("projections", lambda p: p["name"] == name, order="projection_id")
    await db.breathe()
    parts = sorted(db.select("projections", lambda p: p["name"] == name), key=lambda p: p["projection_id"])
    unnamed = [p["projection_id"] for p in parts if p["journal"] not in journals]
    has_part = any(p["journal"] == journal for p in parts)
    if unnamed:
        await db.update(
            "projection_ranges",
            lambda r: r["projection_id"] in unnamed,
            lambda r: {"epoch": r["epoch"] + 1, "owner": None, "journal_life": None},
        )
        await db.breathe()
        if db.select(
            "projection_ranges", lambda r: r["projection_id"] in unnamed and r["horizon"] > BEGINNING
        ) or db.select("source_offsets", lambda o: o["projection_id"] in unnamed):
            raise ServerError("PJ023", f"projection '{name}' reads another journal, which is not named")
    if not has_part and unnamed:
        await db.breathe()
        renamed = unnamed.pop(0)
        (part,) = await db.lock_rows("projections", lambda p: p["projection_id"] == renamed)
        if journal is not None and part["mode"] == "inline":
            raise ServerError("23514", 'new row violates check constraint "inline_reads_here"')
        await db.delete("projections", lambda p: p["projection_id"] == renamed)
        await db.insert("projections", {**part, "journal": journal})
    await db.breathe()
    for table in ("projections", "projection_ranges", "source_offsets", "parked_sources"):
        await db.delete(table, lambda row: row["projection_id"] in unnamed)


@function
async def save_offsets_v1(  # noqa: PLR0917 - as the function has them
    db: Backend, number: int, min_slice: int, epoch: int, owner: str, commits: int, answered: int,
    timeline: int | None, started_at: datetime | None, batch: str, horizon: datetime, import_id: int,
    source_ids: Sequence[str], slices: Sequence[int], previous: Sequence[int], seq_nrs: Sequence[int],
    times: Sequence[datetime], handled: int, handled_until: datetime | None = None,
) -> bool | None:  # fmt: skip
    if db.settings.get("projections.batch") != batch:
        raise ServerError("PJ012", "the handler ended the transaction of its batch")
    await db.breathe()
    same = same_generation(db, owner, answered, timeline, started_at)
    stored = await db.update(
        "projection_ranges",
        lambda r: (
            same
            and (r["projection_id"], r["min_slice"]) == (number, min_slice)
            and (r["epoch"], r["owner"], r["commits"]) == (epoch, owner, commits)
        ),
        lambda r: {
            "horizon": horizon, "import_id": import_id, "handled": r["handled"] + handled,
            "handled_until": max([r["handled_until"], *times, *([handled_until] if handled_until else [])]),
            "handled_at": db.clock() if handled > 0 else r["handled_at"],
            "failures": 0, "error": None, "restarts_at": None, "commits": r["commits"] + 1,
        },
    )  # fmt: skip
    if not stored:
        await db.breathe()
        _refuse(db, number, min_slice, epoch)
    db.settings[_IDLE_LIMIT] = "10s"
    await _save_sources(db, number, source_ids, slices, previous, seq_nrs, times)
    await db.breathe()
    waited: list[datetime] = [
        p["waited_until"] for p in _projection(db, number) if p["waited_until"] is not None
    ]
    return waited[0] > db.clock() if waited else None


def _refuse(db: Backend, number: int, min_slice: int, epoch: int) -> None:
    if db.select(
        "projection_ranges",
        lambda r: (
            (r["projection_id"], r["min_slice"]) == (number, min_slice)
            and (r["epoch"] < epoch or (r["epoch"] == epoch and r["owner"] is not None))
        ),
    ):
        raise ServerError(
            "PJ013",
            f"the slice range from {min_slice} is not as it was stored last: the database went back in time",
        )
    raise ServerError("PJ010", f"the slice range from {min_slice} is no longer held with epoch {epoch}")


async def _save_sources(  # noqa: PLR0917 - as they come
    db: Backend, number: int, source_ids: Sequence[str], slices: Sequence[int], previous: Sequence[int],
    seq_nrs: Sequence[int], times: Sequence[datetime],
) -> None:  # fmt: skip
    await db.breathe()
    known = len(previous)
    before = dict(zip(source_ids[:known], previous, strict=True))
    after = {
        one: {"seq_nr": n, "db_timestamp": at} for one, n, at in zip(source_ids, seq_nrs, times, strict=True)
    }
    saved = len(
        await db.update(
            "source_offsets",
            lambda o: o["projection_id"] == number and o["seq_nr"] == before.get(o["source_id"]),
            lambda o: after[o["source_id"]],
        )
    )
    if saved < known:
        await db.breathe()
        saved += await _save_evicted(db, number, before, after)
    await db.breathe()
    for source_id, slice_number in zip(source_ids[known:], slices, strict=True):
        new = {"projection_id": number, "source_id": source_id, "slice": slice_number, **after[source_id]}
        try:
            await db.insert("source_offsets", new)
        except ServerError as error:
            if error.sqlstate != "23505":
                raise
            raise ServerError("PJ011", "a source that is new in this batch has an offset already") from None
        saved += 1
    if saved != len(source_ids):
        short = len(source_ids) - saved
        raise ServerError(
            "PJ011", f"{short} of {len(source_ids)} sources do not stand where this batch begins"
        )


async def _save_evicted(db: Backend, number: int, before: dict[str, int], after: dict[str, Row]) -> int:
    """``_save_evicted_offsets_v1``."""
    offsets = {o["source_id"] for o in db.select("source_offsets", lambda o: o["projection_id"] == number)}
    gone = [source_id for source_id in before if source_id not in offsets]
    await db.breathe()
    newest = max(after[source_id]["db_timestamp"] for source_id in before)
    for p in _projection(db, number):  # those of the journal that is here, whichever it reads
        if predecessors(db, gone, [before[one] + 1 for one in gone], p["evicted_before"], newest):
            return 0
    await db.breathe()
    saved = 0
    for source_id in gone:
        new = {
            "projection_id": number,
            "source_id": source_id,
            "slice": slice_of(source_id),
            **after[source_id],
        }
        saved += await db.insert("source_offsets", new, lambda _: None) is not None
    return saved


@function
async def save_horizons_v1(  # noqa: PLR0917 - as the function has them
    db: Backend, number: int, min_slices: Sequence[int], epochs: Sequence[int], owner: str, commits: Sequence[int],
    answered: int, timeline: int | None, started_at: datetime | None, horizons: Sequence[datetime],
    import_ids: Sequence[int],
) -> list[Row]:  # fmt: skip
    db.lock_timeout = 1.0
    same = same_generation(db, owner, answered, timeline, started_at)
    told = {
        place: (epoch, count, horizon, import_id)
        for place, epoch, count, horizon, import_id in zip(
            min_slices, epochs, commits, horizons, import_ids, strict=True
        )
    }

    def change(r: Row) -> Row:
        _, _, horizon, import_id = told[r["min_slice"]]
        recovered = {"failures": 0, "error": None, "restarts_at": None} if horizon > r["horizon"] else {}
        return {"horizon": horizon, "import_id": import_id, "commits": r["commits"] + 1, **recovered}

    stored = await db.update(
        "projection_ranges",
        lambda r: (
            same
            and (r["projection_id"], r["owner"]) == (number, owner)
            and (r["epoch"], r["commits"]) == told.get(r["min_slice"], (None, None))[:2]
        ),
        change,
        order="min_slice",
    )
    return [{"min_slice": r["min_slice"]} for r in stored]


@statement(
    """
    SELECT r.min_slice
    FROM unnest($2::integer[], $3::bigint[]) AS n (min_slice, epoch)
    INNER JOIN projections.projection_ranges AS r ON n.min_slice = r.min_slice
    WHERE r.projection_id = $1 AND (r.epoch < n.epoch OR (r.epoch = n.epoch AND r.owner IS NOT NULL))
    """
)
async def went_back(db: Backend, number: int, min_slices: Sequence[int], epochs: Sequence[int]) -> list[Row]:
    told = dict(zip(min_slices, epochs, strict=True))
    found = db.select(
        "projection_ranges",
        lambda r: (
            r["projection_id"] == number
            and r["min_slice"] in told
            and (
                r["epoch"] < told[r["min_slice"]]
                or (r["epoch"] == told[r["min_slice"]] and r["owner"] is not None)
            )
        ),
    )
    return [{"min_slice": r["min_slice"]} for r in found]


@function
async def _fail_range_v1(  # noqa: PLR0917 - as the function has them
    db: Backend, number: int, min_slice: int, epoch: int, failures: int, error: str, delay: timedelta
) -> None:
    await db.update(
        "projection_ranges",
        lambda r: (r["projection_id"], r["min_slice"], r["epoch"]) == (number, min_slice, epoch),
        lambda _: {"failures": failures, "error": error, "restarts_at": db.clock() + delay},
    )


@function
async def read_offsets_v1(db: Backend, number: int, source_ids: Sequence[str]) -> list[Row]:
    snapshot, offsets = db.snapshot(), db.table("source_offsets")
    found = (offsets.get(snapshot, number, source_id) for source_id in source_ids)
    return [{"source_id": o["source_id"], "seq_nr": o["seq_nr"]} for o in found if o is not None]


@function
async def _evict_offsets_v1(
    db: Backend, number: int, retention: timedelta, after: str, limit: int = 10000
) -> str | None:
    await wait_for_no_import(db)
    await db.breathe()
    await db.lock_rows("projections", lambda p: p["projection_id"] == number)
    await db.breathe()
    horizons = [
        min(
            [
                r["horizon"],
                *(at for p in _projection(db, number) if (at := unread_since(db, p, r["import_id"]))),
            ]
        )
        - retention
        for r in db.select("projection_ranges", lambda r: r["projection_id"] == number)
    ]
    updated = await db.update(
        "projections",
        lambda p: p["projection_id"] == number,
        lambda p: {"evicted_before": max(p["evicted_before"], min(horizons, default=p["evicted_before"]))},
    )
    bound = updated[0]["evicted_before"] if updated else BEGINNING
    await db.breathe()
    stored = db.select("source_offsets", lambda o: o["projection_id"] == number and o["source_id"] > after)
    page = sorted(o["source_id"] for o in stored)[:limit]
    if not page:
        return None
    await db.breathe()
    parked = {k["source_id"] for k in db.select("parked_sources", lambda k: k["projection_id"] == number)}
    await db.delete(
        "source_offsets",
        lambda o: (
            o["projection_id"] == number
            and after < o["source_id"] <= page[-1]
            and o["db_timestamp"] < bound
            and o["source_id"] not in parked
        ),
    )
    return page[-1]


def _may_evict(db: Backend, number: int, import_id: int, retention: timedelta) -> bool:
    """``_may_evict_v1``: nothing is rebuilt here."""
    fits = any(
        p["mode"] == "live" and p["journal"] is None and unread_since(db, p, import_id) is None
        for p in _projection(db, number)
    )
    alone = db.select(
        "projection_ranges",
        lambda r: (r["projection_id"], r["min_slice"], r["max_slice"]) == (number, 0, 1023),
    )
    imports = db.select("imports", lambda _: True)
    last = max(imports, key=lambda i: i["import_id"], default=None)
    return fits and bool(alone) and (last is None or last["imported_at"] < db.clock() - retention)


@function
async def _may_evict_v1(db: Backend, number: int, import_id: int, retention: timedelta) -> bool:
    return _may_evict(db, number, import_id, retention)


@function
async def _evict_up_to_v1(
    db: Backend, number: int, import_id: int, until: datetime, retention: timedelta
) -> datetime | None:
    try:
        await wait_for_no_import(db)
    except ServerError:
        return None
    db.settings[_IDLE_LIMIT] = "10s"
    await db.lock_rows("projections", lambda p: p["projection_id"] == number)
    await db.breathe()
    if not _may_evict(db, number, import_id, retention):
        return None
    await db.breathe()
    bound = min(until, db.clock() - retention)
    updated = await db.update(
        "projections",
        lambda p: p["projection_id"] == number and p["evicted_before"] < bound,
        lambda _: {"evicted_before": bound},
    )
    return bound if updated else None


@function
async def _all_offsets_v1(db: Backend, number: int, limit: int) -> list[Row]:
    stored = db.select("source_offsets", lambda o: o["projection_id"] == number)
    return [{"source_id": o["source_id"], "seq_nr": o["seq_nr"]} for o in stored[:limit]]


@function
async def _forget_offsets_v1(db: Backend, number: int, source_ids: Sequence[str]) -> None:
    await db.delete("source_offsets", lambda o: o["projection_id"] == number and o["source_id"] in source_ids)


@statement("SELECT evicted_before FROM projections.projections WHERE projection_id = $1")
async def evicted_before(db: Backend, number: int) -> list[Row]:
    return [{"evicted_before": p["evicted_before"]} for p in _projection(db, number)]


@statement("SELECT mode = 'inline' AS inline, journal FROM projections.projections WHERE projection_id = $1")
async def reads(db: Backend, number: int) -> list[Row]:
    return [{"inline": p["mode"] == "inline", "journal": p["journal"]} for p in _projection(db, number)]


def _projection(db: Backend, number: int) -> list[Row]:
    return db.select("projections", lambda p: p["projection_id"] == number)


@statement(
    """
    SELECT source_id, seq_nr, decision, error LIKE '% It is tried again by itself' AS again
    FROM projections.parked_sources WHERE projection_id = $1 AND slice BETWEEN $2 AND $3
    """
)
async def parked(db: Backend, number: int, first: int, last: int) -> list[Row]:
    found = db.select(
        "parked_sources", lambda k: k["projection_id"] == number and first <= k["slice"] <= last
    )
    names = "source_id", "seq_nr", "decision"
    return [
        {**{name: k[name] for name in names}, "again": k["error"].endswith(" It is tried again by itself")}
        for k in found
    ]


@function
async def _park_source_v1(  # noqa: PLR0917 - as the function has them
    db: Backend, number: int, source_id: str, slice_number: int, seq_nr: int, event_type: str, error: str,
    attempts: int, traceback: str | None = None,
) -> None:  # fmt: skip
    again = {"seq_nr": seq_nr, "event_type": event_type, "error": error, "traceback": traceback}
    new = {
        "projection_id": number, "source_id": source_id, "slice": slice_number, "attempts": attempts,
        "parked_at": db.clock(), "decision": "waiting", **again,
    }  # fmt: skip
    if not _projection(db, number):
        raise ServerError("23503", f"projection {number} is not there")
    await db.insert(
        "parked_sources",
        new,
        lambda k: {
            **again, "attempts": k["attempts"] + attempts, "parked_at": db.clock(), "decision": "waiting",
        },
    )  # fmt: skip


@statement(
    """
    UPDATE projections.parked_sources SET seq_nr = $4, decision = 'retry'
    WHERE projection_id = $1 AND source_id = $2 AND seq_nr = $3
    """
)
async def advance_parked(db: Backend, number: int, source_id: str, seq_nr: int, after: int) -> Touched:
    advanced = await db.update(
        "parked_sources",
        lambda k: (k["projection_id"], k["source_id"], k["seq_nr"]) == (number, source_id, seq_nr),
        lambda _: {"seq_nr": after, "decision": "retry"},
    )
    return Touched(len(advanced))


@statement("DELETE FROM projections.parked_sources WHERE projection_id = $1 AND source_id = $2")
async def unpark(db: Backend, number: int, source_id: str) -> Touched:
    gone = await db.delete(
        "parked_sources", lambda k: (k["projection_id"], k["source_id"]) == (number, source_id)
    )
    return Touched(len(gone))


@statement("SELECT pg_notify('projections_handled', '')")
async def notify_handled(db: Backend) -> list[Row]:
    db.notify("projections_handled")
    return [{"pg_notify": ""}]
