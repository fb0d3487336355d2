"""Models of how history is imported: staged in a temporary table, checked, and moved into the journal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from journal import BEGINNING, importing, slice_of
from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.errors import ServerError
from tests.simulation.postgres.server import SOURCES_LOCK
from tests.simulation.postgres.statements import Touched, function, statement
from tests.simulation.postgres.storage import Row

COPY = "COPY pg_temp.projections_import FROM STDIN"
IMPORTS_LOCK = "imports"
"""SHARE ROW EXCLUSIVE on the table of imports; whoever evicts offsets shares it."""


@statement(importing._STAGE)
async def stage(db: Backend) -> Touched:
    if db.staged is not None:
        raise ServerError("42P07", 'relation "projections_import" already exists')
    db.staged = []
    return Touched(0)


@statement(COPY)
async def copy(db: Backend, rows: Sequence[Sequence[Any]]) -> Touched:
    for row in rows:
        _staged(db).append(dict(zip(importing._COLUMNS, row, strict=True)))
    return Touched(len(rows))


def _staged(db: Backend) -> list[Row]:
    if db.staged is None:
        raise ServerError("42P01", 'relation "pg_temp.projections_import" does not exist')
    return db.staged


@function
async def _import_events_v1(db: Backend) -> int:
    staged = sorted(_staged(db), key=lambda e: (e["source_id"], e["seq_nr"], e["db_timestamp"]))
    await db.server.locks.take(db.transaction, IMPORTS_LOCK, db.lock_timeout)
    await db.breathe()
    types = {event["source_id"]: event["entity_type"] for event in staged}
    db.server.locks.share(db.transaction, SOURCES_LOCK)
    for source_id, kind in sorted(types.items()):
        new = {"source_id": source_id, "entity_type": kind, "slice": slice_of(source_id), "seq_nr": 0,
               "db_timestamp": BEGINNING}  # fmt: skip
        await db.insert("sources", new, lambda _: {})
    await db.breathe()
    _check(db, staged)
    since = _oldest(staged)
    await db.breathe()
    _ask_projections(db, since)
    await _store(db, staged)
    await db.breathe()
    for kind, oldest in since.items():
        await db.insert("imports", {
            "import_id": db.server.next_of("imports"), "entity_type": kind, "from_timestamp": oldest,
            "imported_at": db.clock(),
        })  # fmt: skip
    db.staged = []
    return len(staged)


def _oldest(staged: Sequence[Row]) -> dict[str, Any]:
    """The time of the first event of each type."""
    times = defaultdict(list)
    for event in staged:
        times[event["entity_type"]].append(event["db_timestamp"])
    return {kind: min(of_kind) for kind, of_kind in sorted(times.items())}


def _check(db: Backend, staged: Sequence[Row]) -> None:
    """Whether sources go on at their next numbers, in increasing time, and not in the future."""
    snapshot, now = db.snapshot(), db.clock()
    stands: dict[str, Row] = {}
    for event in staged:
        stored = db.table("sources").get(snapshot, event["source_id"])
        assert stored is not None
        before = stands.get(event["source_id"], stored)
        if stored["entity_type"] != event["entity_type"]:
            raise ServerError(
                "PJ003", f"source '{event['source_id']}' is of entity type '{stored['entity_type']}'"
            )
        if event["seq_nr"] != before["seq_nr"] + 1:
            raise ServerError("PJ003", f"source '{event['source_id']}' has seq_nr {event['seq_nr']}")
        if not before["db_timestamp"] < event["db_timestamp"] <= now:
            raise ServerError("PJ003", f"source '{event['source_id']}': {event['db_timestamp']}")
        stands[event["source_id"]] = event
    ids = [event["event_id"] for event in staged]
    if len(ids) > len(set(ids)) or db.select("events", lambda e: e["event_id"] in ids):
        raise ServerError("PJ002", "an event_id is used already")


def _ask_projections(db: Backend, since: dict[str, Any]) -> None:
    """``_hook_import_projections_v1``."""
    for p in db.select("projections", lambda p: p["journal"] is None):
        for kind, oldest in since.items():
            if (p["entity_types"] is None or kind in p["entity_types"]) and oldest < p["evicted_before"]:
                raise ServerError(
                    "PJ003", f"events from {oldest} cannot be imported: projection '{p['name']}'"
                )


async def _store(db: Backend, staged: Sequence[Row]) -> None:
    for event in staged:
        await db.insert("events", {**event, "slice": slice_of(event["source_id"]), "tags": None})
    last = {event["source_id"]: event for event in staged}
    await db.update(
        "sources",
        lambda s: s["source_id"] in last,
        lambda s: {name: last[s["source_id"]][name] for name in ("seq_nr", "db_timestamp")},
    )


async def wait_for_no_import(db: Backend) -> None:
    """``LOCK TABLE projections.imports IN ROW EXCLUSIVE MODE NOWAIT``."""
    if not db.server.locks.is_shareable(db.transaction, IMPORTS_LOCK):
        raise ServerError("55P03", 'could not obtain lock on relation "imports"')
    db.server.locks.share(db.transaction, IMPORTS_LOCK)


def unread_since(db: Backend, projection: Row, import_id: int) -> Any:
    """The time of the oldest event of imports that a range has not read."""
    kinds = projection["entity_types"]
    found = db.select(
        "imports",
        lambda i: i["import_id"] > import_id and (kinds is None or i["entity_type"] in kinds),
    )
    return min((i["from_timestamp"] for i in found), default=None) if projection["journal"] is None else None
