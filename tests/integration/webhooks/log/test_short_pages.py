"""A page looks at so many rows and no more: whatever the filters, all pages together have each row once, both ways."""

from __future__ import annotations

from typing import Any

import pytest

from journal import Database
from projections.webhooks.log import (
    AttemptsRequest,
    EventsRequest,
    LogPage,
)
from tests.fixtures.memory_log import DeliveryLog, MemoryLog
from tests.fixtures.writable_log import WritableLog
from tests.integration.webhooks.log.log_support import BASE, SECOND, entry, forward

ROWS = 60
FILTERS: list[dict[str, Any]] = [
    {},
    {"tenants": ["t1"]},
    {"tenants": ["t1", "t2", "none"]},
    {"topics": ["a", "c"]},
    {"tenants": ["t0"], "topics": ["a", "b"]},
    {"tenants": ["t0", "t1"], "topics": ["b", "none"]},
    {"endpoint_ids": ["x1"]},
    {"endpoint_ids": ["x1", "x4", "none"]},
    {"tenants": ["t1"], "endpoint_ids": ["x1"], "topics": ["c"]},
    {"tenants": ["t2"], "endpoint_ids": ["x1"]},
    {"event_ids": ["e007", "e023", "none"], "topics": ["a", "b"]},
]
OF_ATTEMPTS: list[dict[str, Any]] = [
    {"status": "failed"},
    {"status": "success", "tenants": ["t2"]},
    {"status": "failed", "endpoint_ids": ["x1", "x2"]},
    {"status": "failed", "topics": ["a"], "tenants": ["t0", "t1"]},
    {"endpoint_types": ["mail"]},
    {"endpoint_types": ["mail"], "tenants": ["t1", "t2"]},
]


@pytest.fixture(scope="module")
def filled() -> list[Any]:
    """Three tenants with two endpoints each."""
    return [
        entry(
            f"e{n:03}", tenant=f"t{n % 3}", topic="abcd"[n % 4], endpoint_ids=(f"x{n % 6}",),
            time=BASE + n // 2 * SECOND,
            outcome={"status": "success" if n % 7 else "failed", "endpoint_type": "web" if n % 11 else "mail"},
        )
        for n in range(ROWS)
    ]  # fmt: skip


@pytest.mark.parametrize("looked", [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 4)), 7])
async def test_short_pages_have_every_row_once_both_ways(
    database: Database, filled: list[Any], looked: int
) -> None:
    full, short = MemoryLog(), WritableLog(database, looked=looked)
    for log in (full, short):
        await log.insert_many(filled)

    for order in ("asc", "desc"):
        for given in FILTERS:
            await _assert_same(full, short, EventsRequest, limit=5, order=order, **given)
        for given in FILTERS + OF_ATTEMPTS:
            await _assert_same(full, short, AttemptsRequest, limit=5, order=order, **given)


async def _assert_same(full: DeliveryLog, short: DeliveryLog, kind: type[Any], **asked: Any) -> None:
    def page(log: DeliveryLog, **more: Any) -> Any:
        request = kind(**asked | more)
        return log.list_events(request) if kind is EventsRequest else log.list_attempts(request)

    expected = [row for each in await forward(lambda **more: page(full, **more)) for row in each.data]
    pages = await forward(lambda **more: page(short, **more))
    assert [row for each in pages for row in each.data] == expected

    back: list[LogPage[Any]] = [pages[-1]]
    while back[-1].prev is not None:
        assert len(back) < 10 * ROWS
        back.append(await page(short, prev=back[-1].prev))
    assert [row for each in back[::-1] for row in each.data] == expected
