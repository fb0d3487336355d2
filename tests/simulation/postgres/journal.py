"""Models of the functions in ``sql/functions/journal``, and of what Python asks of the journal's tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

from journal import slice_of
from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.errors import NotModelled, ServerError
from tests.simulation.postgres.server import SOURCES_LOCK
from tests.simulation.postgres.statements import function, statement
from tests.simulation.postgres.storage import Row, Snapshot

INSTANT = timedelta(microseconds=1)
_BYTES_BESIDE_JSON = 512
_SHORT = 126  # bytes up to which a value has a header of one byte
Place: TypeAlias = tuple[datetime, int, str, int]


@statement(
    """
    SELECT seq_nr, db_timestamp, event_id, (SELECT projections.timeline_v1()) AS timeline, is_new
    FROM projections.append_events_v1(
        CAST($1 AS text[]), CAST($2 AS text[]), CAST($3 AS text[]), CAST($4 AS text[]), CAST($5 AS smallint[]),
        CAST($6 AS text[]), CAST($7 AS text[]), CAST($8 AS uuid[]), CAST($9 AS text[]), CAST($10 AS bigint[]))
    """
)
async def append_events_v1(  # noqa: PLR0917 - as the function has them
    db: Backend,
    source_ids: Sequence[str],
    entity_types: Sequence[str],
    event_types: Sequence[str],
    payloads: Sequence[str],
    versions: Sequence[int],
    metadata: Sequence[str | None],
    tags: Sequence[str | None],
    event_ids: Sequence[str | None],
    expected_source_ids: Sequence[str],
    expected_seq_nrs: Sequence[int],
) -> list[Row]:
    if any(event_ids):
        raise NotModelled("appending by event_id")
    db.server.locks.share(db.transaction, SOURCES_LOCK)
    await db.breathe()
    reserved = await _reserve(db, source_ids, entity_types)
    counts = Counter(source_ids)
    for source_id, expected in zip(expected_source_ids, expected_seq_nrs, strict=True):
        found = reserved[source_id]["seq_nr"] - counts[source_id]
        if found != expected:
            detail = f'{{"source_id" : "{source_id}", "expected" : {expected}, "found" : {found}}}'
            message = f"source '{source_id}' is at seq_nr {found}, expected {expected}"
            raise ServerError("PJ001", message, detail)
    await db.breathe()
    places: Counter[str] = Counter()
    appended = []
    for n, source_id in enumerate(source_ids):
        places[source_id] += 1
        source, back = reserved[source_id], counts[source_id] - places[source_id]
        event = {
            "source_id": source_id, "seq_nr": source["seq_nr"] - back,
            "db_timestamp": source["db_timestamp"] - back * INSTANT, "slice": source["slice"],
            "event_id": UUID(int=db.server.choices.getrandbits(128)), "entity_type": entity_types[n],
            "event_type": event_types[n], "version": versions[n] or 1, "payload": payloads[n],
            "metadata": metadata[n], "tags": None,
        }  # fmt: skip
        await db.insert("events", event)
        appended.append(event)
    return [
        {
            "seq_nr": event["seq_nr"], "db_timestamp": event["db_timestamp"], "event_id": event["event_id"],
            "timeline": db.server.timeline, "is_new": True,
        }
        for event in appended
    ]  # fmt: skip


async def _reserve(db: Backend, source_ids: Sequence[str], entity_types: Sequence[str]) -> dict[str, Row]:
    """Lock the rows of sources in one order, and take numbers and times."""
    reserved: dict[str, Row] = {}
    types = dict(zip(source_ids, entity_types, strict=True))
    for source_id, events in sorted(Counter(source_ids).items()):
        new = {
            "source_id": source_id, "entity_type": types[source_id], "slice": slice_of(source_id), "seq_nr": events,
            "db_timestamp": db.clock() + (events - 1) * INSTANT,
        }  # fmt: skip

        def more(stored: Row, events: int = events) -> Row:
            begins = max(db.clock(), stored["db_timestamp"] + INSTANT)
            return {
                "seq_nr": stored["seq_nr"] + events,
                "db_timestamp": begins + (events - 1) * INSTANT,
            }

        stored = await db.insert("sources", new, more)
        assert stored is not None
        reserved[source_id] = stored
        if stored["entity_type"] != types[source_id]:
            raise ServerError("PJ003", f"source '{source_id}' is of entity type '{stored['entity_type']}'")
    return reserved


@function
async def notify_appended_v1(db: Backend) -> None:
    db.notify("projections_appended")


@function
async def _poll_writers_v1(
    db: Backend, after_import_id: int, entity_types: Sequence[str | None], after: Sequence[datetime]
) -> list[Row]:
    now = db.now
    await db.breathe()
    snapshot = db.snapshot()
    imports = db.select("imports", lambda i: i["import_id"] > after_import_id, snapshot)
    newest = newest_events(db, "events", snapshot, entity_types, after)
    await db.breathe()
    holders = db.server.locks.sharing(SOURCES_LOCK)
    return [
        {
            "polled_at": now,
            "holders": [("p" if holder.gid else "") + holder.virtual for holder in holders],
            "import_ids": [one["import_id"] for one in imports],
            "import_types": [one["entity_type"] for one in imports],
            "imported_from": [one["from_timestamp"] for one in imports],
            "newest_events": newest,
            **generation(db),
            "replayed_until": None,
        }
    ]  # fmt: skip


def newest_events(
    db: Backend, table: str, snapshot: Snapshot, entity_types: Sequence[str | None], after: Sequence[datetime]
) -> list[datetime | None]:
    """Of each type the newest event after a time."""
    events = db.select(table, None, snapshot)
    return [
        max(
            (
                e["db_timestamp"]
                for e in events
                if e["entity_type"] == kind or kind is None
                if e["db_timestamp"] > since
            ),
            default=None,
        )
        for kind, since in zip(entity_types, after, strict=True)
    ]


def generation(db: Backend) -> Row:
    """Which life of the server answers, and how far it is."""
    server = db.server
    return {
        "timeline": server.timeline, "started_at": server.started_at, "wal_position": server.wal,
        "system_identifier": server.system,
    }  # fmt: skip


@function
async def generation_v1(db: Backend) -> list[Row]:
    return [generation(db)]


def place_of(event: Row) -> Place:
    """Where an event is in the order of the log."""
    return event["db_timestamp"], event["slice"], event["source_id"], event["seq_nr"]


def page_of(  # noqa: PLR0917 - as the functions have them
    db: Backend, table: str, entity_types: Sequence[str] | None, min_slice: int, max_slice: int,
    after_timestamp: datetime, after_slice: int, after_source_id: str, after_seq_nr: int, until: datetime, limit: int,
) -> list[Row]:  # fmt: skip
    """A page of events of slices."""
    after = after_timestamp, after_slice, after_source_id, after_seq_nr
    found = db.select(
        table,
        lambda e: (
            (entity_types is None or e["entity_type"] in entity_types)
            and min_slice <= e["slice"] <= max_slice
            and after_timestamp <= e["db_timestamp"] <= until
            and place_of(e) > after
        ),
    )
    return sorted(found, key=place_of)[:limit]


def bytes_of(event: Row) -> int:
    """``_event_bytes_v1``: of JSON as it is stored."""
    total = _BYTES_BESIDE_JSON
    for text in (event["payload"], event["metadata"]):
        if text is not None:
            length = len(text.encode())
            total += length + (1 if length <= _SHORT else 4)
    return total


def paged(events: Sequence[Row], limit: int, more_columns: Sequence[str] = ()) -> list[Row]:
    """As many rows of ``paged_events`` as bytes allow."""
    page, total = [], 0
    columns = (
        "source_id", "seq_nr", "db_timestamp", "slice", "event_id", "entity_type", "event_type", "version", "payload",
        "metadata", "tags", *more_columns,
    )  # fmt: skip
    for event in events:
        if total >= limit:
            break
        total += bytes_of(event)
        page.append({**{column: event[column] for column in columns}, "more": total >= limit})
    return page


@function
async def read_events_by_slices_v1(db: Backend, *asked: Any) -> list[Row]:
    await db.breathe()
    *page, page_bytes = asked
    return paged(page_of(db, "events", *page), page_bytes)


@function
async def _read_keys_by_slices_v1(db: Backend, *asked: Any) -> list[Row]:
    await db.breathe()
    page, (types,) = asked[:9], asked[9:] or (False,)
    return [
        {
            "source_id": event["source_id"], "seq_nr": event["seq_nr"], "db_timestamp": event["db_timestamp"],
            "slice": event["slice"], "event_type": event["event_type"] if types else None,
            "entity_type": event["entity_type"],
        }
        for event in page_of(db, "events", *page)
    ]  # fmt: skip


@function
async def _load_events_v1(
    db: Backend, source_ids: Sequence[str], seq_nrs: Sequence[int], times: Sequence[datetime], page_bytes: int
) -> list[Row]:
    await db.breathe()
    snapshot, events = db.snapshot(), db.table("events")
    found = (events.get(snapshot, *key) for key in zip(source_ids, seq_nrs, times, strict=True))
    return paged(sorted((event for event in found if event is not None), key=place_of), page_bytes)


@function
async def _predecessors_v1(
    db: Backend, source_ids: Sequence[str], seq_nrs: Sequence[int], since: datetime, until: datetime
) -> list[Row]:
    await db.breathe()
    return predecessors(db, source_ids, seq_nrs, since, until)


def predecessors(  # noqa: PLR0917 - as the function has them
    db: Backend, source_ids: Sequence[str], seq_nrs: Sequence[int], since: datetime, until: datetime,
    table: str = "events",
) -> list[Row]:  # fmt: skip
    """When the events before given ones were written, of those written between two times."""
    found = {
        (e["source_id"], e["seq_nr"] + 1): e["db_timestamp"]
        for e in db.select(table, lambda e: since <= e["db_timestamp"] < until)
    }
    return [
        {"source_id": key[0], "seq_nr": key[1], "db_timestamp": found[key]}
        for key in zip(source_ids, seq_nrs, strict=True)
        if key in found
    ]


@function
async def read_source_v1(  # noqa: PLR0917 - as the function has them
    db: Backend, source_id: str, first: int, last: int, backwards: bool, limit: int, page_bytes: int
) -> list[Row]:
    if backwards:
        source = db.table("sources").get(db.snapshot(), source_id)
        if source is None:
            return []
        limit = min(limit, min(last, source["seq_nr"]) - first + 1)
    await db.breathe()
    found = db.select("events", lambda e: e["source_id"] == source_id and first <= e["seq_nr"] <= last)
    found.sort(key=lambda e: e["seq_nr"], reverse=backwards)
    return paged(found[: max(limit, 0)], page_bytes)


@function
async def latest_seq_nr_v1(db: Backend, source_id: str) -> Any:
    source = db.table("sources").get(db.snapshot(), source_id)
    return None if source is None else source["seq_nr"]


@function
async def _entity_types_v1(db: Backend) -> list[str]:
    return sorted({source["entity_type"] for source in db.select("sources")})


@statement(
    """
    SELECT
        coalesce(projections._replayed_until_v1(), clock_timestamp()) AS now, coalesce(max(import_id), 0) AS import_id
    FROM projections.imports
    """
)
async def now(db: Backend) -> list[Row]:
    return [{"now": db.clock(), "import_id": max((i["import_id"] for i in db.select("imports")), default=0)}]


@statement("SELECT to_regclass('projections.schema_versions') IS NOT NULL")
async def schema_exists(db: Backend) -> list[Row]:
    return [{"?column?": True}]


@statement("SELECT 1")
async def one(db: Backend) -> list[Row]:
    return [{"?column?": 1}]
