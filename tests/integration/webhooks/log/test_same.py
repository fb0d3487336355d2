"""Whatever is inserted and asked, the log in memory and the log in PostgreSQL say the same."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from journal import connect
from projections.webhooks.log import (
    AttemptsRequest,
    AttemptWithEvent,
    EventsRequest,
    LoggedAttempt,
    LoggedEvent,
    MetricsRequest,
)
from projections.webhooks.log.metrics import ATTEMPT_DIMENSIONS, ATTEMPT_MEASURES, EVENT_DIMENSIONS
from tests.fixtures.examples import examples
from tests.fixtures.memory_log import DeliveryLog, MemoryLog
from tests.fixtures.writable_log import WritableLog
from tests.integration.webhooks.log.log_support import BASE, DAY, EMPTY, MICRO, forward

# Few of each, so that they meet; close together, at one time, and far apart.
tenants = st.sampled_from(["one", "two", "Ü"])
topics = st.sampled_from(["a", "b", ""])
endpoints = st.sampled_from(["x", "y", "z"])
times = st.builds(
    lambda micros, days: BASE + micros * MICRO + days * DAY,
    st.integers(0, 3),
    st.sampled_from([0, 0, 0, 1, 35, -400]),
)

ids = st.sampled_from([f"{letter}{n}" for letter in "aAé" for n in range(6)])

events = st.builds(
    LoggedEvent,
    event_id=ids,
    tenant=tenants,
    topic=topics,
    time=times,
    endpoint_ids=st.lists(endpoints, max_size=3).map(tuple),
    eligible_for_retry=st.booleans(),
    metadata=st.dictionaries(
        st.sampled_from(["k", "l"]),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3),
    ),
    data=st.sampled_from(["{}", "1.0", '{"b": 1, "a": 2}']),
)
attempts = st.builds(
    LoggedAttempt,
    attempt_id=ids,
    tenant=tenants,
    event_id=ids,
    event_time=times,
    topic=topics,
    endpoint_id=endpoints,
    endpoint_type=st.sampled_from(["webhook", "queue"]),
    attempt_number=st.integers(1, 3),
    manual=st.booleans(),
    status=st.sampled_from(["success", "failed"]),
    time=times,
    code=st.sampled_from(["200", "500", "timeout", None]),
    response=st.sampled_from(["fine", None]),
    took=st.sampled_from([timedelta(milliseconds=3), None]),
)
batches = st.lists(
    st.lists(st.builds(AttemptWithEvent, attempts, st.none() | events), max_size=12), max_size=4
)

bounds = st.none() | times
lists = {
    "tenants": st.lists(tenants, max_size=2),
    "event_ids": st.just([]) | st.lists(ids, max_size=5),
    "endpoint_ids": st.just([]) | st.lists(endpoints, max_size=2),
    "topics": st.just([]) | st.lists(topics, max_size=2),
    "gte": bounds, "lte": bounds, "gt": bounds, "lt": bounds,
    "order": st.sampled_from(["asc", "desc"]),
    "limit": st.integers(1, 5),
}  # fmt: skip
of_events = st.fixed_dictionaries({}, optional=lists).map(lambda asked: EventsRequest(**asked))
of_attempts = st.fixed_dictionaries(
    {},
    optional=lists
    | {
        "endpoint_types": st.lists(st.sampled_from(["webhook", "queue"]), max_size=2),
        "status": st.sampled_from(["success", "failed"]),
    },
).map(lambda asked: AttemptsRequest(**asked))


def _measured(dimensions: tuple[str, ...], measures: tuple[str, ...]) -> st.SearchStrategy[MetricsRequest]:
    values = {
        "tenant": tenants, "topic": topics, "endpoint_id": endpoints, "status": st.sampled_from(["success", "failed"]),
        "endpoint_type": st.just("queue"), "code": st.sampled_from(["200", ""]), "manual": st.booleans(),
        "attempt_number": st.integers(1, 2),
    }  # fmt: skip
    filters = {name: st.lists(values[name], max_size=2) for name in dimensions}
    return st.builds(
        MetricsRequest,
        start=times,
        end=times.map(lambda time: time + 500 * DAY + 2 * MICRO),
        measures=st.just(measures),
        dimensions=st.lists(st.sampled_from(dimensions), unique=True, max_size=3),
        granularity=st.sampled_from([None, "12h", "1d", "5d", "1w", "3w", "1M", "5M"]),
        tenants=st.lists(tenants, max_size=2),
        filters=st.fixed_dictionaries({}, optional=filters),
    )


async def _asked(
    log: DeliveryLog, *, written: list[list[AttemptWithEvent]], listed: EventsRequest, tried: AttemptsRequest,
    event_metrics: MetricsRequest, attempt_metrics: MetricsRequest,
) -> list[Any]:  # fmt: skip
    for batch in written:
        await log.insert_many(batch)
    pages = await forward(lambda **more: log.list_events(replace(listed, **more)))
    tries = await forward(lambda **more: log.list_attempts(replace(tried, **more)))
    back = [await log.list_attempts(replace(tried, prev=page.prev)) for page in tries if page.prev]
    found = [await log.retrieve_event(each, tenant) for each in ("a0", "é1") for tenant in (None, "one")]
    kept = [await log.retrieve_attempt(each, tenant) for each in ("a0", "A1") for tenant in (None, "one")]
    counts = [await log.event_metrics(event_metrics), await log.attempt_metrics(attempt_metrics)]
    # A cursor says which database it is of: whether there is one is the same.
    shown = [
        [(page.data, page.next is None, page.prev is None) for page in each] for each in (pages, tries, back)
    ]
    return [*shown, found, kept, counts]


@settings(max_examples=examples(100, daily=10), suppress_health_check=list(HealthCheck))
@given(
    written=batches,
    listed=of_events,
    tried=of_attempts,
    event_metrics=_measured(EVENT_DIMENSIONS, ("count", "rate")),
    attempt_metrics=_measured(ATTEMPT_DIMENSIONS, ATTEMPT_MEASURES),
)
def test_both_logs_say_the_same(module_dsn: str, **asked: Any) -> None:
    async def both() -> tuple[list[Any], list[Any]]:
        async with connect(module_dsn) as database:
            async with database.session() as session:
                await session.execute(EMPTY)
            return await _asked(MemoryLog(), **asked), await _asked(WritableLog(database), **asked)

    in_memory, in_postgres = asyncio.run(both())

    assert in_postgres == in_memory
