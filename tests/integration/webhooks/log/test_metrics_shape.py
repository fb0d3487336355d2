"""Answers of a delivery log that was measured: the 19 cases of their shape, and what is refused."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from projections.webhooks.errors import InvalidQuery
from projections.webhooks.log.metrics import ATTEMPT_MEASURES, EVENT_MEASURES
from tests.fixtures.writable_log import WritableLog
from tests.integration.webhooks.log.log_support import BASE, DAY, HOUR, MICRO, MINUTE, SECOND, entry
from tests.integration.webhooks.log.metrics_support import (
    FEBRUARY,
    FIFTEENTH,
    by,
    counts,
    fill,
    made,
    measured_attempts,
    measured_events,
    only,
    total,
)


class TestShape:
    """19 cases."""

    @pytest.mark.parametrize(
        "measure", [measured_events, measured_attempts], ids=["01 events", "02 attempts"]
    )
    async def test_01_and_02_buckets_without_rows_are_there(self, log: WritableLog, measure: Any) -> None:
        await fill(log)

        found = await measure(log, granularity="1h", start=FIFTEENTH, end=FIFTEENTH + DAY)

        assert found.row_count == 24

    @pytest.mark.parametrize(
        "measure", [measured_events, measured_attempts], ids=["03 events", "04 attempts"]
    )
    async def test_03_and_04_buckets_ascend(self, log: WritableLog, measure: Any) -> None:
        await fill(log)

        found = await measure(log, granularity="1d", dimensions=["topic"])

        places = [(point.time_bucket, point.dimensions["topic"]) for point in found.data]
        assert places == sorted(places)

    @pytest.mark.parametrize(
        ("span", "granularity", "count"),
        [
            pytest.param(DAY, "1h", 24, id="05 a day by hours"),
            pytest.param(7 * DAY, "1d", 7, id="06 a week by days"),
            pytest.param(HOUR, "1m", 60, id="07 an hour by minutes"),
            pytest.param(HOUR, "5m", 12, id="08 an hour by five minutes"),
            pytest.param(HOUR, "1d", 1, id="09 a step that is longer"),
        ],
    )
    async def test_05_to_09_so_many_buckets(
        self, log: WritableLog, span: timedelta, granularity: str, count: int
    ) -> None:
        found = await measured_events(log, start=FIFTEENTH, end=FIFTEENTH + span, granularity=granularity)

        assert found.row_count == count

    @pytest.mark.parametrize("kind", ["event", "attempt"], ids=["10 events", "11 attempts"])
    async def test_10_and_11_zeros_are_zeros(self, log: WritableLog, kind: str) -> None:
        await log.insert_many([made(0, FIFTEENTH)])
        measures = EVENT_MEASURES if kind == "event" else ATTEMPT_MEASURES
        found = await (measured_events if kind == "event" else measured_attempts)(
            log, granularity="1d", measures=measures
        )

        empty = [point for point in found.data if point.measures["count"] == 0]
        assert len(empty) == 30
        assert {value for point in empty for value in point.measures.values()} == {0}
        assert all(math.isfinite(value) for point in found.data for value in point.measures.values())

    @pytest.mark.parametrize(
        "measure", [measured_events, measured_attempts], ids=["12 events", "13 attempts"]
    )
    async def test_12_and_13_a_month_without_rows_is_all_zeros(self, log: WritableLog, measure: Any) -> None:
        await fill(log)

        found = await measure(log, start=FEBRUARY, end=datetime(2000, 3, 1, tzinfo=UTC), granularity="1d")

        assert counts(found) == [0] * 29

    @pytest.mark.parametrize(
        ("granularity", "begins"),
        [pytest.param("1h", FIFTEENTH + 10 * HOUR, id="14 hour"), pytest.param("1d", FIFTEENTH, id="15 day")],
    )
    async def test_14_and_15_the_first_bucket_begins_at_its_boundary(
        self, log: WritableLog, granularity: str, begins: datetime
    ) -> None:
        await fill(log)
        start = FIFTEENTH + 10 * HOUR + 30 * MINUTE

        found = await measured_events(log, start=start, end=start + 2 * DAY, granularity=granularity)

        assert found.data[0].time_bucket == begins
        assert total(found) == 237  # what was before the start does not count

    async def test_16_every_combination_that_was_seen_has_every_bucket(self, log: WritableLog) -> None:
        await log.insert_many(
            [made(number, FIFTEENTH + number * SECOND) for number in (0, 1)]
            + [made(2, FIFTEENTH + HOUR, "two")]
        )

        found = await measured_events(
            log, start=FIFTEENTH, end=FIFTEENTH + DAY, granularity="1h", dimensions=["topic", "endpoint_id"],
            tenants=[],
        )  # fmt: skip

        seen = {tuple(point.dimensions.values()) for point in found.data}
        assert seen == {("topic0", "endpoint0"), ("topic1", "endpoint1"), ("topic2", "endpoint0")}
        assert found.row_count == 3 * 24

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "measure", [measured_events, measured_attempts], ids=["17 events", "18 attempts"]
    )
    async def test_17_and_18_too_many_buckets_are_refused(self, log: WritableLog, measure: Any) -> None:
        assert (await measure(log, end=BASE + 100_000 * SECOND, granularity="1s")).row_count == 100_000
        with pytest.raises(InvalidQuery, match="more than 100,000 buckets"):
            await measure(log, end=BASE + 100_001 * SECOND, granularity="1s")

    async def test_19_without_granularity_nothing_is_filled_in(self, log: WritableLog) -> None:
        assert (await measured_attempts(log)).data == ()


class TestBeyond:
    async def test_buckets_without_rows_keep_every_dimension(self, log: WritableLog) -> None:
        dimensions = [
            "endpoint_type",
            "status",
            "code",
            "manual",
            "attempt_number",
            "topic",
            "endpoint_id",
            "tenant",
        ]
        await log.insert_many([made(9, FIFTEENTH)])

        found = await measured_attempts(log, granularity="1d", dimensions=dimensions)

        assert {tuple(point.dimensions.values()) for point in found.data} == {
            ("webhook", "failed", "422", "true", "1", "topic0", "endpoint1", "one")
        }
        assert found.row_count == 31

    async def test_an_event_for_several_endpoints_counts_for_each_that_is_wanted(
        self, log: WritableLog
    ) -> None:
        await log.insert_many([entry("e", tenant="one", endpoint_ids=("a", "b", "b", "c"))])

        assert by(await measured_events(log, dimensions=["endpoint_id"])) == {"a": 1, "b": 1, "c": 1}
        filters = {"endpoint_id": ["a", "b", "x"]}
        assert by(await measured_events(log, dimensions=["endpoint_id"], filters=filters)) == {"a": 1, "b": 1}
        assert only(await measured_events(log, filters=filters)) == {"count": 1}

    async def test_start_is_within_and_end_is_not(self, log: WritableLog) -> None:
        times = [BASE - MICRO, BASE, FEBRUARY - MICRO, FEBRUARY]
        await log.insert_many([made(number, time) for number, time in enumerate(times)])

        assert only(await measured_events(log)) == {"count": 2}
        assert counts(await measured_attempts(log, granularity="1M")) == [2]

    async def test_months_have_their_own_lengths(self, log: WritableLog) -> None:
        await log.insert_many([made(0, BASE), made(1, FEBRUARY)])

        found = await measured_events(
            log, end=datetime(2000, 3, 1, tzinfo=UTC), granularity="1M", measures=["rate"]
        )
        quarters = await measured_attempts(log, start=FEBRUARY, end=FEBRUARY + DAY, granularity="3M")

        assert [point.measures["rate"] for point in found.data] == [1 / (31 * 86_400), 1 / (29 * 86_400)]
        assert [(point.time_bucket, point.measures["count"]) for point in quarters.data] == [(BASE, 1)]

    async def test_an_attempt_without_a_code_has_an_empty_one(self, log: WritableLog) -> None:
        await log.insert_many([entry("e", tenant="one", outcome={"code": None})])

        assert by(await measured_attempts(log, dimensions=["code"])) == {"": 1}
        assert only(await measured_attempts(log, filters={"code": [""]})) == {"count": 1}

    async def test_too_many_combinations_are_refused(self, log: WritableLog) -> None:
        await log.insert_many([entry(f"e{n}", tenant="one", topic=f"topic{n}") for n in range(40)])

        with pytest.raises(InvalidQuery, match="40 combinations in 2,976 buckets are more than 100,000 rows"):
            await measured_events(log, granularity="15m", dimensions=["topic"])

    @pytest.mark.parametrize(
        ("asked", "says"),
        [
            ({"measures": ["median"]}, "there is no 'median' among measures"),
            ({"measures": "count"}, "takes several"),
            ({"dimensions": ["weekday"]}, "there is no 'weekday' among dimensions"),
            ({"filters": {"weekday": ["1"]}}, "there is no 'weekday' among filters"),
            ({"filters": {"topic": "order"}}, "filter topic takes several values"),
            ({"filters": {"topic": ["\0"]}}, "filter topic holds the character NUL"),
            ({"filters": {'tenant"; --': ["x"]}}, "among filters"),
            ({"start": FEBRUARY}, "before end"),
            ({"end": BASE}, "before end"),
            ({"start": datetime(1969, 12, 31, tzinfo=UTC)}, "1970 or later"),
            ({"start": BASE.replace(tzinfo=None)}, "start has no zone"),
            ({"granularity": "1y"}, "granularity is a number and"),
            ({"granularity": ""}, "granularity is a number and"),
            ({"granularity": "0h"}, "granularity in h is 1 to 24, not 0"),
            ({"granularity": "61s"}, "granularity in s is 1 to 60"),
            ({"granularity": "61m"}, "granularity in m is 1 to 60"),
            ({"granularity": "25h"}, "granularity in h is 1 to 24"),
            ({"granularity": "32d"}, "granularity in d is 1 to 31"),
            ({"granularity": "5w"}, "granularity in w is 1 to 4"),
            ({"granularity": "13M"}, "granularity in M is 1 to 12"),
        ],
        ids=str,
    )
    async def test_a_request_that_can_not_be_is_refused(
        self, log: WritableLog, asked: dict[str, Any], says: str
    ) -> None:
        for measure in (measured_events, measured_attempts):
            with pytest.raises(InvalidQuery, match=says):
                await measure(log, **asked)

    async def test_what_only_attempts_have_is_refused_of_events(self, log: WritableLog) -> None:
        for asked in (
            {"measures": ["error_rate"]},
            {"dimensions": ["status"]},
            {"filters": {"code": ["200"]}},
        ):
            with pytest.raises(InvalidQuery, match="there is no"):
                await measured_events(log, **asked)
