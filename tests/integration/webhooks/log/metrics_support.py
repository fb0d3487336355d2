"""A month of a delivery log, and what is measured of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from projections.webhooks.log import AttemptWithEvent, Metrics, MetricsRequest
from tests.fixtures.writable_log import WritableLog
from tests.integration.webhooks.log.log_support import BASE, DAY, HOUR, entry

FEBRUARY = datetime(2000, 2, 1, tzinfo=UTC)
MONTH = {"start": BASE, "end": FEBRUARY}
BELL = {10: 25, 11: 50, 12: 100, 13: 50, 14: 25}
FIFTEENTH = BASE + 14 * DAY
SPARSE = (2, 6, 9, 19, 27)


def _times() -> list[datetime]:
    """Five days of 10 events each, one an hour; and a day on which they come and go."""
    sparse = [BASE + day * DAY + hour * HOUR for day in SPARSE for hour in range(9, 19)]
    bell = [FIFTEENTH + hour * HOUR + n * HOUR / count for hour, count in BELL.items() for n in range(count)]
    return sparse + bell


def made(number: int, time: datetime, tenant: str = "one") -> AttemptWithEvent:
    code = {3: "500", 4: "422"}.get(number % 5) or ("200" if number % 10 in {0, 2, 5} else "201")
    return entry(
        f"{tenant}{number:03}",
        tenant=tenant,
        time=time,
        topic=f"topic{number % 3}",
        endpoint_ids=(f"endpoint{number % 2}",),
        outcome={
            "status": "failed" if number % 5 in {3, 4} else "success",
            "code": code,
            "manual": number % 10 == 9,
        },
    )


async def fill(log: WritableLog) -> None:
    entries = [made(number, time) for number, time in enumerate(_times())]
    entries += [made(number, FIFTEENTH + number * HOUR, "two") for number in range(5)]
    await log.insert_many(entries)


async def measured_events(log: WritableLog, **asked: Any) -> Metrics:
    return await log.event_metrics(MetricsRequest(**MONTH | {"tenants": ["one"]} | asked))


async def measured_attempts(log: WritableLog, **asked: Any) -> Metrics:
    return await log.attempt_metrics(MetricsRequest(**MONTH | {"tenants": ["one"]} | asked))


def by(found: Metrics, measure: str = "count") -> dict[str, int | float]:
    """The measure by the only dimension."""
    return {next(iter(point.dimensions.values())): point.measures[measure] for point in found.data}


def total(found: Metrics) -> int | float:
    return sum(point.measures["count"] for point in found.data)


def counts(found: Metrics) -> list[int | float]:
    return [point.measures["count"] for point in found.data]


def only(found: Metrics) -> dict[str, int | float]:
    (point,) = found.data
    return dict(point.measures)
