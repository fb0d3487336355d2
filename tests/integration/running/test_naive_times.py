"""A datetime without a time zone: all kinds of handlers refuse it, take it for UTC, or keep it, as its model says."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from pydantic import AwareDatetime, BaseModel, NaiveDatetime

from journal import Database, InvalidEvent
from projections import (
    Changes,
    Event,
    EventEnvelope,
    RawJson,
    Session,
    Table,
    append,
    event_type,
    events,
    handles,
    projection,
    read_model,
)
from projections.testing import run_until_caught_up
from tests.fixtures.projections import NO_RETRY, execute
from tests.fixtures.read_models import rows

NOON = datetime(2024, 1, 1, 12)  # noqa: DTZ001 - of no zone
TABLE = Table("by_table", key="source", set=("at",), source="source")


class Seen(BaseModel):
    at: datetime


class Aware(BaseModel):
    at: AwareDatetime


@event_type(naive_times="utc")
class InUtc(BaseModel):
    at: datetime


class Naive(BaseModel):
    at: NaiveDatetime


def _three(model: Any) -> list[Any]:
    """The same of a model by each kind of handler."""
    options: dict[str, Any] = {"entity_type": "t", "recovery": NO_RETRY, "unhandled": "skip"}

    @projection("sql", **options)
    class BySql:
        seen = events(model)
        by_sql = read_model("SELECT source_id AS source, max(at) AS at FROM seen GROUP BY source_id")

    @projection("session", **options)
    class BySession:
        @handles(model)
        async def seen(self, session: Session, event: Any, envelope: EventEnvelope) -> None:
            await session.execute("INSERT INTO by_session VALUES ($1, $2)", envelope.source_id, event.at)

    @projection("table", **options)
    class ByTable:
        @handles(model)
        def seen(self, event: Any, envelope: EventEnvelope) -> Changes:
            return TABLE.upsert(source=envelope.source_id, at=event.at)

    return [BySql, BySession, ByTable]


@pytest.mark.parametrize(
    ("model", "kind", "parked"),
    [
        (Seen, "timestamptz", ["naive"]),
        (Aware, "timestamptz", ["naive"]),
        (InUtc, "timestamptz", []),
        (Naive, "timestamp", ["zoned"]),
    ],
)
async def test_every_kind_of_handler_does_the_same(
    database: Database, monkeypatch: pytest.MonkeyPatch, model: Any, kind: str, parked: list[str]
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    for table in ("by_session", "by_table"):
        await execute(database, f"CREATE TABLE {table} (source text PRIMARY KEY, at {kind})")
    times = {"naive": "2024-01-01T12:00:00", "zoned": "2024-01-01T14:00:00+02:00"}
    payloads = {source: RawJson(f'{{"at": "{at}"}}') for source, at in times.items()}
    async with database.transaction() as session:
        await append(session, [Event(s, one, "t", event_type=model.__name__) for s, one in payloads.items()])

    await run_until_caught_up(database, *_three(model))

    shown = "at" if kind == "timestamp" else "at AT TIME ZONE 'UTC'"
    expected = [(source, "2024-01-01 12:00:00") for source in times if source not in parked]
    for table in ("by_sql", "by_session", "by_table"):
        assert await rows(database, f"SELECT source, ({shown})::text FROM {table} ORDER BY 1") == expected, (
            table
        )
    refused = await rows(database, "SELECT source_id, error FROM projections.parked_sources")
    assert [source for source, _ in refused] == 3 * parked
    assert all(f"does not fit {model.__name__}: at" in error for _, error in refused)


async def test_append_refuses_what_handlers_would(database: Database) -> None:
    async with database.transaction() as session:
        with pytest.raises(
            InvalidEvent, match="source 'a': payload: at is a datetime without a time zone: give it"
        ):
            await append(session, [Event("a", Seen(at=NOON), "t")])
        appended = await append(session, [Event("b", InUtc(at=NOON), "t"), Event("c", Naive(at=NOON), "t")])

    assert len(appended) == 2
