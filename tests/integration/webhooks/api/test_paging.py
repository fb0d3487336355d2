"""Pages of the delivery log over HTTP: cursors both ways, and filters that hold on every page."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from journal import Database
from projections.webhooks import deliveries
from projections.webhooks.api.app import OPERATIONS
from projections.webhooks.api.operations import Operation
from tests.fixtures.projections import execute
from tests.fixtures.webhooks_api import Api, Rows, entry, filled
from tests.fixtures.writable_log import WritableLog

LISTS = pytest.mark.parametrize(("path", "key"), [("/v1/events", "event_id"), ("/v1/attempts", "attempt_id")])


async def logged(database: Database, number: int, tenant: str = "acme", *, first: int = 0) -> None:
    """So many events, a minute apart, with an attempt each."""
    entries = [
        entry(tenant, f"ep-{n % 2}", f"evt-{n:04}", f"att-{n:04}", place=n)
        for n in range(first, first + number)
    ]
    await WritableLog(database).insert_many(entries)


async def walk(api: Api, path: str, key: str, **query: Any) -> list[list[str]]:
    """All pages, from the first to the last."""
    pages, page = [], await api.get(path, **query)
    while True:
        pages.append([each[key] for each in page["data"]])
        if page["next"] is None:
            return pages
        page = await api.get(path, **query, next=page["next"])


@pytest.mark.slow
@LISTS
@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_join_without_gap_in_either_direction(
    path: str, key: str, order: str, acme: Api, database: Database
) -> None:
    await logged(database, 7)
    pages = await walk(acme, path, key, limit=3, dir=order)
    ids = [f"{key[:3].replace('eve', 'evt')}-{n:04}" for n in range(7)]
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [*chain(*pages)] == (ids if order == "asc" else ids[::-1])


@pytest.mark.slow
@LISTS
async def test_the_way_back_has_the_pages_of_the_way_there(
    path: str, key: str, acme: Api, database: Database
) -> None:
    await logged(database, 6)
    first = await acme.get(path, limit=3)
    second = await acme.get(path, limit=3, next=first["next"])
    back = await acme.get(path, limit=3, prev=second["prev"])
    assert (first["prev"], second["next"], back["prev"]) == (None, None, None)
    assert back["data"] == first["data"]


@pytest.mark.slow
@LISTS
async def test_next_and_prev_together_are_refused(path: str, key: str, acme: Api, database: Database) -> None:
    await logged(database, 6)
    cursor = (await acme.get(path, limit=3))["next"]
    await acme.get(path, 422, limit=3, next=cursor, prev=cursor)


@pytest.mark.slow
@LISTS
@pytest.mark.parametrize(
    "other", [{"dir": "asc"}, {"topics": "acme.happened"}, {"since": "2000-01-01T00:00:00Z"}], ids=str
)
async def test_a_cursor_of_other_filters_is_refused(
    path: str, key: str, other: dict[str, str], acme: Api, database: Database
) -> None:
    await logged(database, 6)
    cursor = (await acme.get(path, limit=3))["next"]
    await acme.get(path, 422, limit=3, next=cursor, **other)


async def test_a_cursor_of_the_other_list_is_refused(acme: Api, database: Database) -> None:
    await logged(database, 6)
    cursor = (await acme.get("/v1/events", limit=3))["next"]
    await acme.get("/v1/attempts", 422, limit=3, next=cursor)


@pytest.mark.slow
async def test_a_page_has_a_hundred_rows_unless_it_says_and_a_thousand_at_most(
    acme: Api, database: Database
) -> None:
    await logged(database, 1001)
    assert len((await acme.get("/v1/events"))["data"]) == 100
    assert len((await acme.get("/v1/events", limit=1000))["data"]) == 1000


LISTED = [each for each in OPERATIONS if "limit" in each.query.model_fields]


@pytest.mark.slow
@pytest.mark.parametrize("operation", LISTED, ids=lambda each: each.name)
async def test_a_page_of_more_than_there_can_be_is_refused(
    operation: Operation, acme: Api, acmes: Rows
) -> None:
    most = 100 if operation.name == "list_dead_letters" else 1000
    await acme.get(filled(operation, acmes), limit=most)
    refused = await acme.get(filled(operation, acmes), 422, limit=most + 1)
    assert [each["field"] for each in refused["errors"]] == ["limit"]


async def test_what_comes_meanwhile_neither_repeats_nor_hides_old_rows(acme: Api, database: Database) -> None:
    await logged(database, 6)
    first = await acme.get("/v1/attempts", limit=3)
    await logged(database, 5, first=100)
    second = await acme.get("/v1/attempts", limit=3, next=first["next"])
    seen = [each["attempt_id"] for each in (*first["data"], *second["data"])]
    assert seen == [f"att-{n:04}" for n in reversed(range(6))]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"endpoint_id": "ep-0"}, [0, 2]),
        ({"endpoint_id": ["ep-0", "ep-1"]}, [0, 1, 2, 3]),
        ({"event_id": ["evt-0001", "evt-0002"]}, [1, 2]),
        ({"topics": "acme.happened"}, [0, 1, 2, 3]),
        ({"topics": "other"}, []),
        ({"since": "2026-01-01T12:01:00Z", "until": "2026-01-01T12:03:00Z"}, [1, 2]),
        ({"since": "2026-01-01T14:01:00+02:00", "until": "2026-01-01T14:03:00+02:00"}, [1, 2]),
    ],
    ids=str,
)
async def test_lists_have_what_fits_the_filters(
    query: dict[str, Any], found: list[int], acme: Api, database: Database
) -> None:
    await logged(database, 4)
    events = await acme.get("/v1/events", dir="asc", **query)
    attempts = await acme.get("/v1/attempts", dir="asc", **query)
    assert [each["event_id"] for each in events["data"]] == [f"evt-{n:04}" for n in found]
    assert [each["attempt_id"] for each in attempts["data"]] == [f"att-{n:04}" for n in found]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "found"), [("status=failed", 3), ("status=success", 0), ("endpoint_type=other", 0)]
)
async def test_attempts_are_found_by_how_they_ended_and_where(
    query: str, found: int, acme: Api, acmes: Rows
) -> None:
    assert len((await acme("GET", f"/v1/attempts?{query}", status=200)).json()["data"]) == found


async def test_the_attempts_of_one_endpoint_are_paged_too(acme: Api, acmes: Rows) -> None:
    pages = await walk(acme, f"/v1/endpoints/{acmes.endpoint_id}/attempts", "attempt_id", limit=2)
    assert [len(page) for page in pages] == [2, 1]


async def test_events_have_their_data_where_it_is_asked_for(acme: Api, acmes: Rows) -> None:
    assert '"data":{' not in (await acme("GET", "/v1/events", status=200)).text
    assert '"data":{"b":1.0,"a":1e2}' in (await acme("GET", "/v1/events?include=data", status=200)).text


async def test_a_page_of_dead_letters_has_as_many_as_their_bytes_allow(
    database: Database, acme: Api, acmes: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four of 100 bytes each, and a shorter one, where a page may have 250."""
    monkeypatch.setattr(deliveries, "PAGE_BYTES", 250)
    await execute(
        database,
        "INSERT INTO projections.webhook_deliveries "
        "(endpoint_id, event_id, event_time, tenant, topic, state, attempts, next_at, last_code, finished_at, data) "
        "SELECT endpoint_id, gen_random_uuid(), event_time, tenant, topic, state, attempts, next_at, last_code, "
        "finished_at, to_json(repeat('x', 98))::text FROM projections.webhook_deliveries, generate_series(1, 4) "
        "WHERE state = 'dead'",
    )

    pages = await walk(acme, "/v1/dead-letters", "data")

    assert pages == [["x" * 98] * 2, ["x" * 98, "x" * 98, {"b": 1.0, "a": 100.0}]]
