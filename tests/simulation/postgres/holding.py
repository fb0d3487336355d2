"""Models of the functions in ``sql/functions/holding``: who holds which slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from journal import BEGINNING
from journal.schema import SCHEMA_VERSION
from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.errors import ServerError
from tests.simulation.postgres.sharing import SLICES, share_ranges
from tests.simulation.postgres.statements import function, statement
from tests.simulation.postgres.storage import Row, Snapshot

_FORGOTTEN = timedelta(hours=1)


@statement("SELECT max(version) FROM projections.schema_versions")
async def schema_version(db: Backend) -> list[Row]:
    return [{"max": SCHEMA_VERSION}]


@statement(
    """
    SELECT h.*, (SELECT max(v.version) FROM projections.schema_versions AS v) AS schema_version
    FROM projections.heartbeat_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) AS h
    """
)
async def heartbeat_v1(  # noqa: PLR0917 - as the function has them
    db: Backend,
    owner: str,
    host: str,
    pid: int,
    lease: timedelta,
    projection_ids: Sequence[int],
    names: Sequence[str],
    versions: Sequence[int],
    leaving: bool,
    answered: int,
    beat: int,
    entity_types: Sequence[str],
) -> list[Row]:
    now = db.clock()
    code = {
        number: (name, version, types)
        for number, name, version, types in zip(projection_ids, names, versions, entity_types, strict=True)
    }
    ids = [
        p["projection_id"]
        for p in db.select("projections")
        if code.get(p["projection_id"]) == (p["name"], p["version"], literal(p["entity_types"]))
    ]
    await db.breathe()
    known = await db.lock_rows("workers", lambda w: w["owner"] == owner)
    beats = known[0]["beats"] if known else 0
    await db.breathe()
    await _say_alive(db, owner, host, pid, now + lease, ids, answered, beat, leaving=leaving)
    await db.breathe()
    uneven = _uneven(db, ids)
    for p in await db.lock_rows("projections", lambda p: p["projection_id"] in uneven, skip_locked=True):
        await assign_ranges(db, p["projection_id"])
        uneven.remove(p["projection_id"])
    await db.breathe()
    taken_from = {} if leaving else await _claim_free(db, owner, ids, versions, projection_ids, now)
    await db.breathe()
    return _what_is_held(db, owner, code, ids, uneven, taken_from, went_back=beats < answered)


async def _say_alive(  # noqa: PLR0917 - as they come
    db: Backend, owner: str, host: str, pid: int, lease_until: datetime, ids: list[int], answered: int, beat: int,
    *, leaving: bool,
) -> None:  # fmt: skip
    alive = {"lease_until": lease_until, "leaving": leaving, "projection_ids": ids}
    row = {
        "owner": owner, "host": host, "pid": pid, "joined_at": db.clock(), "group_id": None, "handlers": [],
        "beats": beat if answered == 0 else 0, **alive,
    }  # fmt: skip
    await db.insert(
        "workers",
        row,
        lambda w: {**alive, "beats": w["beats"] if w["beats"] < answered else max(w["beats"], beat)},
    )


def _uneven(db: Backend, ids: Sequence[int]) -> list[int]:
    """``_uneven_v1``."""
    snapshot, now = db.snapshot(), db.clock()
    workers = db.select("workers", lambda w: w["lease_until"] > now and not w["leaving"], snapshot)
    found = []
    for number in ids:
        ranges = db.select(
            "projection_ranges", lambda r, number=number: r["projection_id"] == number, snapshot
        )
        members = [w["owner"] for w in workers if number in w["projection_ids"]]
        held = [sum(r["assigned_to"] == member for r in ranges) for member in members]
        if ranges and held and (max(held) - min(held) > 1 or sum(held) < len(ranges)):
            found.append(number)
    return found


async def assign_ranges(db: Backend, number: int) -> None:
    """``_assign_ranges_v1``."""
    now = db.clock()
    alive = db.select(
        "workers", lambda w: number in w["projection_ids"] and w["lease_until"] > now and not w["leaving"]
    )
    members = [w["owner"] for w in sorted(alive, key=lambda w: (w["joined_at"], w["owner"]))]
    first = number % max(len(members), 1)
    await db.breathe()
    await db.delete("workers", lambda w: w["lease_until"] < db.clock() - _FORGOTTEN, skip_locked=True)
    await db.breathe()
    ranges = sorted(
        db.select("projection_ranges", lambda r: r["projection_id"] == number), key=lambda r: r["min_slice"]
    )
    if not ranges:
        raise ServerError("22004", "upper bound of FOR loop cannot be null")
    shares = share_ranges(
        [r["min_slice"] for r in ranges],
        [r["assigned_to"] for r in ranges],
        members[first:] + members[:first],
    )
    await db.update(
        "projection_ranges",
        lambda r: r["projection_id"] == number and r["min_slice"] in shares,
        lambda r: {"assigned_to": shares[r["min_slice"]]},
        skip_locked=True,
    )


async def _claim_free(  # noqa: PLR0917 - as they come
    db: Backend, owner: str, ids: Sequence[int], versions: Sequence[int], asked: Sequence[int], now: datetime
) -> dict[tuple[int, int], str | None]:
    snapshot = db.snapshot()
    alive = {w["owner"] for w in db.select("workers", lambda w: w["lease_until"] > now, snapshot)}
    code = dict(zip(asked, versions, strict=True))
    mine = {
        p["projection_id"]
        for p in db.select("projections", lambda p: code.get(p["projection_id"]) == p["version"], snapshot)
    }
    claimed: dict[tuple[int, int], str | None] = {}

    def claim(r: Row) -> Row:
        claimed[r["projection_id"], r["min_slice"]] = r["owner"]
        return {"epoch": r["epoch"] + 1, "owner": owner, "claimed_at": now}

    await db.update(
        "projection_ranges",
        lambda r: (
            r["projection_id"] in ids
            and r["assigned_to"] == owner
            and r["owner"] != owner
            and r["owner"] not in alive
            and r["projection_id"] in mine
        ),
        claim,
        skip_locked=True,
    )
    return claimed


def _what_is_held(  # noqa: PLR0917 - as they come
    db: Backend, owner: str, code: Mapping[int, Any], ids: Sequence[int], uneven: Sequence[int],
    taken_from: Mapping[tuple[int, int], str | None], *, went_back: bool,
) -> list[Row]:  # fmt: skip
    snapshot = db.snapshot()
    rows = []
    for number, (name, _, _) in code.items():
        found = db.select(
            "projections", lambda p, n=number, m=name: (p["projection_id"], p["name"]) == (n, m), snapshot
        )
        p = found[0] if found else None
        ranges = (
            db.select("projection_ranges", lambda r, n=number: r["projection_id"] == n, snapshot) if p else []
        )
        held = [r for r in ranges if r["owner"] == owner]
        others = [r["horizon"] for r in ranges if r["owner"] != owner]
        rows.append({
            "projection_id": number,
            "version": p["version"] if p else None,
            "paused": bool(p and p["paused"]),
            "decided": bool(p and _decided(db, snapshot, number)),
            "uneven": number in uneven and p is not None,
            "awaited": sum(r["assigned_to"] == owner and r["owner"] != owner and number in ids for r in ranges),
            "others_horizon": min(others, default=None),
            **_columns(held, owner, taken_from),
            "went_back": went_back,
            "entity_types": p["entity_types"] if p else None,
            "schema_version": SCHEMA_VERSION,
        })  # fmt: skip
    return rows


def _columns(held: Sequence[Row], owner: str, taken_from: Mapping[tuple[int, int], str | None]) -> Row:
    columns = {
        "min_slices": [r["min_slice"] for r in held],
        "max_slices": [r["max_slice"] for r in held],
        "epochs": [r["epoch"] for r in held],
        "horizons": [r["horizon"] for r in held],
        "import_ids": [r["import_id"] for r in held],
        "kept": [r["assigned_to"] == owner for r in held],
        "taken_from": [taken_from.get((r["projection_id"], r["min_slice"])) for r in held],
        "commits": [r["commits"] for r in held],
    }
    return columns if held else dict.fromkeys(columns)


def _decided(db: Backend, snapshot: Snapshot, number: int) -> bool:
    return bool(
        db.select(
            "parked_sources", lambda k: k["projection_id"] == number and k["decision"] != "waiting", snapshot
        )
    )


def literal(entity_types: Sequence[str] | None) -> str | None:
    """The text of an array, as Python sends it."""
    return None if entity_types is None else "{" + ",".join(f'"{one}"' for one in entity_types) + "}"


@function
async def _claim_range_v1(db: Backend, number: int, min_slice: int, owner: str) -> list[Row]:
    claimed = await db.update(
        "projection_ranges",
        lambda r: (r["projection_id"], r["min_slice"], r["owner"]) == (number, min_slice, owner),
        lambda r: {"epoch": r["epoch"] + 1, "claimed_at": db.clock()},
    )
    return [
        {name: r[name] for name in ("max_slice", "epoch", "horizon", "import_id", "commits")} for r in claimed
    ]


@function
async def leave_v1(db: Backend, owner: str) -> None:
    await db.delete("workers", lambda w: w["owner"] == owner)
    await db.breathe()
    for table in ("projection_ranges", "group_ranges"):
        await db.update(table, lambda r: r["owner"] == owner, lambda _: {"owner": None}, skip_locked=True)


@function
async def _take_over_v1(db: Backend, owner: str, numbers: Sequence[int], versions: Sequence[int]) -> None:
    wanted = set(zip(numbers, versions, strict=True))
    ids = [
        p["projection_id"] for p in db.select("projections") if (p["projection_id"], p["version"]) in wanted
    ]
    await db.breathe()
    await db.update(
        "workers",
        lambda w: w["owner"] != owner and any(number in ids for number in w["projection_ids"]),
        lambda w: {"projection_ids": [number for number in w["projection_ids"] if number not in ids]},
    )
    await db.breathe()
    await db.update(
        "projection_ranges",
        lambda r: r["projection_id"] in ids,
        lambda r: {"epoch": r["epoch"] + 1, "owner": None, "assigned_to": owner},
    )


@function
async def _set_ranges_v1(db: Backend, number: int, min_slices: Sequence[int]) -> None:
    await db.lock_rows("projections", lambda p: p["projection_id"] == number)
    await db.breathe()
    await db.lock_rows("projection_ranges", lambda r: r["projection_id"] == number, order="min_slice")
    await db.breathe()
    before = db.select("projection_ranges", lambda r: r["projection_id"] == number)
    if list(min_slices) == sorted(r["min_slice"] for r in before):
        return
    old = await db.delete("projection_ranges", lambda r: r["projection_id"] == number)
    old.sort(key=lambda r: r["min_slice"])
    for first, last in cut(min_slices) if old else ():
        parts = [o for o in old if first <= o["max_slice"] and o["min_slice"] <= last]
        await db.insert("projection_ranges", new_range(
            number, first, last,
            epoch=max(o["epoch"] for o in old) + 1,
            assigned_to=parts[0]["assigned_to"],
            horizon=min(o["horizon"] for o in parts),
            import_id=min(o["import_id"] for o in parts),
            handled_until=max(o["handled_until"] for o in parts),
            handled_at=max((o["handled_at"] for o in parts if o["handled_at"] is not None), default=None),
            handled=sum(o["handled"] for o in parts if first <= o["min_slice"] <= last),
            journal_life=_one_life({o["journal_life"] for o in parts} - {None}),
        ))  # fmt: skip
    await assign_ranges(db, number)


def _one_life(lives: set[str]) -> str | None:
    """Of parts that fit different lives, the server's name."""
    return f"{min(lives).split('.')[0]}." if len(lives) > 1 else next(iter(lives), None)


def cut(min_slices: Sequence[int]) -> list[tuple[int, int]]:
    """``_cut_v1``."""
    if list(min_slices) != sorted({one for one in min_slices if 0 <= one < SLICES}) or min_slices[:1] != [0]:
        raise ServerError(
            "22023", f"ranges must begin at slice 0 and ascend to 1023 at most, not {min_slices}"
        )
    return [(first, after - 1) for first, after in zip(min_slices, [*min_slices[1:], SLICES], strict=True)]


def new_range(number: int, first: int, last: int, **columns: Any) -> Row:
    """A row of ``projection_ranges`` with the defaults of its columns."""
    return {
        "projection_id": number, "min_slice": first, "max_slice": last, "epoch": 0, "owner": None,
        "assigned_to": None, "claimed_at": None, "horizon": BEGINNING, "import_id": 0, "handled_until": BEGINNING,
        "handled_at": None, "handled": 0, "failures": 0, "error": None, "restarts_at": None, "commits": 0,
        "journal_life": None, **columns,
    }  # fmt: skip


@function
async def release_range_v1(  # noqa: PLR0917 - as the function has them
    db: Backend, number: int, min_slice: int, epoch: int, owner: str, commits: int, answered: int,
    timeline: int | None, started_at: datetime | None, horizon: datetime, import_id: int,
) -> bool:  # fmt: skip
    same = same_generation(db, owner, answered, timeline, started_at)
    released = await db.update(
        "projection_ranges",
        lambda r: (
            same
            and (r["projection_id"], r["min_slice"]) == (number, min_slice)
            and (r["epoch"], r["owner"], r["commits"]) == (epoch, owner, commits)
        ),
        lambda r: {"owner": None, "horizon": horizon, "import_id": import_id, "commits": r["commits"] + 1},
    )
    return bool(released)


def same_generation(
    db: Backend, owner: str, answered: int, timeline: int | None, started_at: datetime | None
) -> bool:
    """``_same_generation_v1``."""
    beaten = answered == 0 or db.select("workers", lambda w: w["owner"] == owner and w["beats"] >= answered)
    server = db.server
    return bool(beaten) and (
        timeline is None or (timeline, started_at) == (server.timeline, server.started_at)
    )
