"""Models of the queries in ``sql/foreign``, over a table that another system inserts into."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from journal import slice_of
from journal.foreign.mapping import Constant, TableMapping
from journal.foreign.queries import queries_of
from tests.simulation.postgres import journal
from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.journal import generation, page_of, paged
from tests.simulation.postgres.statements import statement
from tests.simulation.postgres.storage import Row

TABLE = "outbox"
MAPPING = TableMapping(
    table=TABLE, source="source_id", number="seq_nr", position="db_timestamp", bound="transaction-start",
    entity_type=Constant("thing"), event_type="event_type", payload="payload", event_id="event_id",
)  # fmt: skip
TYPES = dict.fromkeys(("source", "payload", "metadata", "entity_type", "event_type"), "text") | {
    "event_id": "uuid"
}
QUERIES = queries_of(MAPPING, TYPES)
INSERT = """
INSERT INTO outbox (source_id, seq_nr, event_type, payload)
SELECT $1, coalesce(max(seq_nr), 0) + 1, 'Happened', '{}' FROM outbox WHERE source_id = $1
RETURNING seq_nr, db_timestamp, event_id
"""
_NOTHING = {"tags": None, "serializer_id": None, "manifest": None, "metadata_serializer_id": None,
            "metadata_manifest": None}  # fmt: skip


@statement(INSERT)
async def insert(db: Backend, source_id: str) -> list[Row]:
    stored = db.select(TABLE, lambda e: e["source_id"] == source_id)
    event = {
        "source_id": source_id, "seq_nr": max((e["seq_nr"] for e in stored), default=0) + 1, "db_timestamp": db.now,
        "slice": slice_of(source_id), "event_id": UUID(int=db.server.choices.getrandbits(128)), "entity_type": "thing",
        "event_type": "Happened", "version": 1, "payload": "{}", "metadata": None, **_NOTHING,
    }  # fmt: skip
    await db.breathe()
    await db.insert(TABLE, event)
    return [{name: event[name] for name in ("seq_nr", "db_timestamp", "event_id")}]


@statement(QUERIES["poll"])
async def poll_writers(
    db: Backend, _import_id: int, types: Sequence[str | None], after: Sequence[datetime]
) -> Any:
    """Who waits for a message is read first, then what the sessions show, then ``pg_prepared_xacts``."""
    snapshot = db.snapshot()
    waiting = {one.number for one in db.server.backends if one.waits}
    await db.breathe()
    holders: list[tuple[str, datetime | None]] = []
    for one in db.server.backends:
        if one is not db and one.shows_its_transaction:
            holders.append((f"{one.number} {one.now.timestamp():.6f}", one.now))
        elif one is not db and one.is_aborted:
            holders.append((f"p {one.number}", None))
        elif one is not db and one.number not in waiting:
            holders.append((f"{one.number} ?", None))
    await db.breathe()
    holders += [(f"p{one.virtual}", None) for one in db.server.prepared.values()]
    return [{
        "polled_at": db.now, "holders": [name for name, _ in holders], "import_ids": [], "import_types": [],
        "imported_from": [], "newest_events": journal.newest_events(db, TABLE, snapshot, types, after),
        **generation(db), "replayed_until": None, "holder_starts": [start for _, start in holders],
    }]  # fmt: skip


@statement(QUERIES["now"])
async def now(db: Backend) -> list[Row]:
    return [{"now": db.clock(), "import_id": 0}]


@statement(QUERIES["types"])
async def types(db: Backend) -> list[Row]:
    return [{"entity_type": kind} for kind in sorted({e["entity_type"] for e in db.select(TABLE)})]


@statement(QUERIES["events"])
async def read_events_by_slices(db: Backend, *asked: Any) -> list[Row]:
    *page, page_bytes = asked
    return _paged(page_of(db, TABLE, *page), page_bytes)


@statement(QUERIES["keys"])
async def read_keys_by_slices(db: Backend, *asked: Any) -> list[Row]:
    columns = ("source_id", "seq_nr", "db_timestamp", "slice")
    return [
        {**{name: event[name] for name in columns}, "more": False} for event in page_of(db, TABLE, *asked)
    ]


@statement(QUERIES["load"])
async def load_events(
    db: Backend, source_ids: Sequence[str], seq_nrs: Sequence[int], times: Sequence[datetime], page_bytes: int
) -> list[Row]:
    keys = set(zip(source_ids, seq_nrs, times, strict=True))
    found = db.select(TABLE, lambda e: (e["source_id"], e["seq_nr"], e["db_timestamp"]) in keys)
    return _paged(sorted(found, key=journal.place_of), page_bytes)


@statement(QUERIES["predecessors"])
async def predecessors(
    db: Backend, source_ids: Sequence[str], seq_nrs: Sequence[int], since: datetime, until: datetime
) -> list[Row]:
    return journal.predecessors(db, source_ids, seq_nrs, since, until + journal.INSTANT, TABLE)


@statement(QUERIES["source"])
async def read_source(  # noqa: PLR0917 - as the query has them
    db: Backend, source_id: str, first: int, last: int, backwards: bool, limit: int, page_bytes: int
) -> list[Row]:
    found = db.select(TABLE, lambda e: e["source_id"] == source_id and first <= e["seq_nr"] <= last)
    found.sort(key=lambda e: e["seq_nr"], reverse=backwards)
    return _paged(found[: max(limit, 0)], page_bytes)


@statement(QUERIES["latest"])
async def latest_seq_nr(db: Backend, source_id: str) -> list[Row]:
    found = [e["seq_nr"] for e in db.select(TABLE, lambda e: e["source_id"] == source_id)]
    return [{"seq_nr": max(found)}] if found else []


def _paged(events: Sequence[Row], limit: int) -> list[Row]:
    """As many rows of ``foreign_columns`` as bytes allow: a table tells the packed size of JSON."""
    return paged(events, limit, tuple(_NOTHING))
