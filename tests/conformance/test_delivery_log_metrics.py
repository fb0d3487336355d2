"""Metrics of a delivery log: the 36 cases of numbers, and the 19 of shape, and what is refused."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from projections.webhooks.errors import InvalidQuery
from projections.webhooks.log import AttemptWithEvent, DataPoint, DeliveryLog, Metrics, MetricsRequest
from tests.conformance.delivery_log_support import BASE, DAY, HOUR, MICRO, MINUTE, SECOND, entry

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


def _entry(number: int, time: datetime, tenant: str = "one") -> AttemptWithEvent:
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


async def _fill(log: DeliveryLog) -> None:
    entries = [_entry(number, time) for number, time in enumerate(_times())]
    entries += [_entry(number, FIFTEENTH + number * HOUR, "two") for number in range(5)]
    await log.insert_many(entries)


async def _events(log: DeliveryLog, **asked: Any) -> Metrics:
    return await log.event_metrics(MetricsRequest(**MONTH | {"tenants": ["one"]} | asked))


async def _attempts(log: DeliveryLog, **asked: Any) -> Metrics:
    return await log.attempt_metrics(MetricsRequest(**MONTH | {"tenants": ["one"]} | asked))


def _by(found: Metrics, measure: str = "count") -> dict[str, int | float]:
    """The measure by the only dimension."""
    return {next(iter(point.dimensions.values())): point.measures[measure] for point in found.data}


def _total(found: Metrics) -> int | float:
    return sum(point.measures["count"] for point in found.data)


def _counts(found: Metrics) -> list[int | float]:
    return [point.measures["count"] for point in found.data]


def _only(found: Metrics) -> dict[str, int | float]:
    (point,) = found.data
    return dict(point.measures)


class TestEvents:
    """17 cases."""

    @pytest.fixture(autouse=True)
    async def _filled(self, log: DeliveryLog) -> None:
        await _fill(log)

    async def test_01_count(self, log: DeliveryLog) -> None:
        assert await _events(log) == Metrics((DataPoint(None, {}, {"count": 300}),))

    async def test_02_by_topic(self, log: DeliveryLog) -> None:
        assert _by(await _events(log, dimensions=["topic"])) == {f"topic{n}": 100 for n in range(3)}

    async def test_03_by_endpoint(self, log: DeliveryLog) -> None:
        assert _by(await _events(log, dimensions=["endpoint_id"])) == {"endpoint0": 150, "endpoint1": 150}

    async def test_04_by_tenant(self, log: DeliveryLog) -> None:
        assert _by(await _events(log, dimensions=["tenant"], tenants=[])) == {"one": 300, "two": 5}

    async def test_05_filter_topic(self, log: DeliveryLog) -> None:
        assert _only(await _events(log, filters={"topic": ["topic0"]})) == {"count": 100}

    async def test_06_filter_endpoint(self, log: DeliveryLog) -> None:
        assert _only(await _events(log, filters={"endpoint_id": ["endpoint1"]})) == {"count": 150}

    async def test_07_other_tenants_do_not_count(self, log: DeliveryLog) -> None:
        assert _only(await _events(log, tenants=["two"])) == {"count": 5}

    async def test_08_a_time_without_events_is_empty(self, log: DeliveryLog) -> None:
        assert (await _events(log, start=FEBRUARY, end=FEBRUARY + DAY)).data == ()

    async def test_09_rate(self, log: DeliveryLog) -> None:
        assert _only(await _events(log, measures=["rate"])) == {"rate": pytest.approx(300 / 2_678_400)}

    async def test_10_rate_of_an_hour(self, log: DeliveryLog) -> None:
        found = await _events(log, measures=["count", "rate"], granularity="1h")

        assert all(p.measures["rate"] == pytest.approx(p.measures["count"] / 3600) for p in found.data)
        assert max(p.measures["rate"] for p in found.data) == pytest.approx(100 / 3600)

    async def test_11_months(self, log: DeliveryLog) -> None:
        found = await _events(log, granularity="1M", measures=["count", "rate"])

        assert found.data == (
            DataPoint(BASE, {}, {"count": 300, "rate": pytest.approx(300 / 2_678_400)}),
        )  # fmt: skip

    async def test_12_weeks_begin_on_sunday(self, log: DeliveryLog) -> None:
        found = await _events(log, granularity="1w")

        assert [point.time_bucket for point in found.data] == [
            datetime(1999, 12, 26, tzinfo=UTC) + n * 7 * DAY for n in range(6)
        ]
        assert _counts(found) == [0, 20, 260, 10, 10, 0]

    async def test_13_two_days_keep_the_total(self, log: DeliveryLog) -> None:
        assert _total(await _events(log, granularity="2d")) == 300

    async def test_14_days(self, log: DeliveryLog) -> None:
        found = await _events(log, granularity="1d")

        expected = [0] * 31
        for day in SPARSE:
            expected[day] = 10
        expected[14] = 250
        assert _counts(found) == expected

    async def test_15_hours(self, log: DeliveryLog) -> None:
        found = await _events(log, granularity="1h", start=FIFTEENTH, end=FIFTEENTH + DAY)

        assert _counts(found) == [BELL.get(hour, 0) for hour in range(24)]

    @pytest.mark.parametrize(("hour", "count"), [(10, 25), (12, 100)], ids=["16 hour 10", "17 hour 12"])
    async def test_16_and_17_minutes(self, log: DeliveryLog, hour: int, count: int) -> None:
        start = FIFTEENTH + hour * HOUR

        found = await _events(log, granularity="1m", start=start, end=start + HOUR)

        assert (found.row_count, _total(found)) == (60, count)


class TestAttempts:
    """18 cases, and that of the metadata."""

    @pytest.fixture(autouse=True)
    async def _filled(self, log: DeliveryLog) -> None:
        await _fill(log)

    async def test_01_count(self, log: DeliveryLog) -> None:
        assert _only(await _attempts(log)) == {"count": 300}

    async def test_02_success_and_failure(self, log: DeliveryLog) -> None:
        found = await _attempts(log, measures=["successful_count", "failed_count"])

        assert _only(found) == {"successful_count": 180, "failed_count": 120}

    async def test_03_error_rate(self, log: DeliveryLog) -> None:
        assert _only(await _attempts(log, measures=["error_rate"])) == {"error_rate": pytest.approx(0.4)}

    async def test_04_retries(self, log: DeliveryLog) -> None:
        measures = ["first_attempt_count", "retry_count", "manual_retry_count", "avg_attempt_number"]

        assert list(_only(await _attempts(log, measures=measures)).values()) == [270, 0, 30, 1.0]

    async def test_05_rates(self, log: DeliveryLog) -> None:
        found = _only(await _attempts(log, measures=["rate", "successful_rate", "failed_rate"]))

        assert list(found.values()) == [pytest.approx(n / 2_678_400) for n in (300, 180, 120)]

    async def test_06_rates_of_an_hour(self, log: DeliveryLog) -> None:
        found = await _attempts(log, measures=["count", "rate"], granularity="1h")

        assert all(p.measures["rate"] == pytest.approx(p.measures["count"] / 3600) for p in found.data)

    @pytest.mark.parametrize(
        ("dimension", "expected"),
        [
            pytest.param("status", {"success": 180, "failed": 120}, id="07 status"),
            pytest.param("endpoint_id", {"endpoint0": 150, "endpoint1": 150}, id="08 endpoint"),
            pytest.param("tenant", {"one": 300, "two": 5}, id="09 tenant"),
            pytest.param("attempt_number", {"1": 300}, id="10 attempt_number"),
            pytest.param("code", {"200": 90, "201": 90, "500": 60, "422": 60}, id="11 code"),
            pytest.param("topic", {f"topic{n}": 100 for n in range(3)}, id="beyond: topic"),
            pytest.param("endpoint_type", {"webhook": 300}, id="beyond: endpoint_type"),
            pytest.param("manual", {"false": 270, "true": 30}, id="beyond: manual"),
        ],
    )
    async def test_07_to_11_by(self, log: DeliveryLog, dimension: str, expected: dict[str, int]) -> None:
        tenants = [] if dimension == "tenant" else ["one"]

        assert _by(await _attempts(log, dimensions=[dimension], tenants=tenants)) == expected

    @pytest.mark.parametrize(
        ("filters", "count"),
        [
            pytest.param({"status": ["failed"]}, 120, id="12 status"),
            pytest.param({"topic": ["topic1"]}, 100, id="13 topic"),
            pytest.param({"code": ["200", "500"]}, 150, id="14 code"),
            pytest.param({"manual": [True]}, 30, id="15 manual"),
            pytest.param({"attempt_number": [1]}, 300, id="16 attempt_number"),
            pytest.param({"endpoint_id": ["endpoint0"], "endpoint_type": ["webhook"]}, 150, id="beyond: two"),
            pytest.param({"status": []}, 300, id="beyond: none"),
        ],
    )
    async def test_12_to_16_filter(self, log: DeliveryLog, filters: dict[str, list[Any]], count: int) -> None:
        assert _only(await _attempts(log, filters=filters)) == {"count": count}

    async def test_17_hours(self, log: DeliveryLog) -> None:
        found = await _attempts(log, granularity="1h", start=FIFTEENTH, end=FIFTEENTH + DAY)

        assert _counts(found) == [BELL.get(hour, 0) for hour in range(24)]

    async def test_18_other_tenants_do_not_count(self, log: DeliveryLog) -> None:
        assert _only(await _attempts(log, tenants=["two"])) == {"count": 5}

    async def test_19_an_answer_says_how_much_it_is(self, log: DeliveryLog) -> None:
        found = await _attempts(log)

        assert (found.row_count, found.truncated, found.row_limit > 0) == (1, False, True)


class TestShape:
    """19 cases."""

    @pytest.mark.parametrize("measure", [_events, _attempts], ids=["01 events", "02 attempts"])
    async def test_01_and_02_buckets_without_rows_are_there(self, log: DeliveryLog, measure: Any) -> None:
        await _fill(log)

        found = await measure(log, granularity="1h", start=FIFTEENTH, end=FIFTEENTH + DAY)

        assert found.row_count == 24

    @pytest.mark.parametrize("measure", [_events, _attempts], ids=["03 events", "04 attempts"])
    async def test_03_and_04_buckets_ascend(self, log: DeliveryLog, measure: Any) -> None:
        await _fill(log)

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
        self, log: DeliveryLog, span: timedelta, granularity: str, count: int
    ) -> None:
        found = await _events(log, start=FIFTEENTH, end=FIFTEENTH + span, granularity=granularity)

        assert found.row_count == count

    @pytest.mark.parametrize("kind", ["event", "attempt"], ids=["10 events", "11 attempts"])
    async def test_10_and_11_zeros_are_zeros(self, log: DeliveryLog, kind: str) -> None:
        from projections.webhooks.log.metrics import ATTEMPT_MEASURES, EVENT_MEASURES

        await log.insert_many([_entry(0, FIFTEENTH)])
        measures = EVENT_MEASURES if kind == "event" else ATTEMPT_MEASURES
        found = await (_events if kind == "event" else _attempts)(log, granularity="1d", measures=measures)

        empty = [point for point in found.data if point.measures["count"] == 0]
        assert len(empty) == 30
        assert {value for point in empty for value in point.measures.values()} == {0}
        assert all(math.isfinite(value) for point in found.data for value in point.measures.values())

    @pytest.mark.parametrize("measure", [_events, _attempts], ids=["12 events", "13 attempts"])
    async def test_12_and_13_a_month_without_rows_is_all_zeros(self, log: DeliveryLog, measure: Any) -> None:
        await _fill(log)

        found = await measure(log, start=FEBRUARY, end=datetime(2000, 3, 1, tzinfo=UTC), granularity="1d")

        assert _counts(found) == [0] * 29

    @pytest.mark.parametrize(
        ("granularity", "begins"),
        [pytest.param("1h", FIFTEENTH + 10 * HOUR, id="14 hour"), pytest.param("1d", FIFTEENTH, id="15 day")],
    )
    async def test_14_and_15_the_first_bucket_begins_at_its_boundary(
        self, log: DeliveryLog, granularity: str, begins: datetime
    ) -> None:
        await _fill(log)
        start = FIFTEENTH + 10 * HOUR + 30 * MINUTE

        found = await _events(log, start=start, end=start + 2 * DAY, granularity=granularity)

        assert found.data[0].time_bucket == begins
        assert _total(found) == 237  # what was before the start does not count

    async def test_16_every_combination_that_was_seen_has_every_bucket(self, log: DeliveryLog) -> None:
        await log.insert_many(
            [_entry(number, FIFTEENTH + number * SECOND) for number in (0, 1)]
            + [_entry(2, FIFTEENTH + HOUR, "two")]
        )

        found = await _events(
            log, start=FIFTEENTH, end=FIFTEENTH + DAY, granularity="1h", dimensions=["topic", "endpoint_id"],
            tenants=[],
        )  # fmt: skip

        seen = {tuple(point.dimensions.values()) for point in found.data}
        assert seen == {("topic0", "endpoint0"), ("topic1", "endpoint1"), ("topic2", "endpoint0")}
        assert found.row_count == 3 * 24

    @pytest.mark.parametrize("measure", [_events, _attempts], ids=["17 events", "18 attempts"])
    async def test_17_and_18_too_many_buckets_are_refused(self, log: DeliveryLog, measure: Any) -> None:
        assert (await measure(log, end=BASE + 100_000 * SECOND, granularity="1s")).row_count == 100_000
        with pytest.raises(InvalidQuery, match="more than 100,000 buckets"):
            await measure(log, end=BASE + 100_001 * SECOND, granularity="1s")

    async def test_19_without_granularity_nothing_is_filled_in(self, log: DeliveryLog) -> None:
        assert (await _attempts(log)).data == ()


class TestBeyond:
    async def test_buckets_without_rows_keep_every_dimension(self, log: DeliveryLog) -> None:
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
        await log.insert_many([_entry(9, FIFTEENTH)])

        found = await _attempts(log, granularity="1d", dimensions=dimensions)

        assert {tuple(point.dimensions.values()) for point in found.data} == {
            ("webhook", "failed", "422", "true", "1", "topic0", "endpoint1", "one")
        }
        assert found.row_count == 31

    async def test_an_event_for_several_endpoints_counts_for_each_that_is_wanted(
        self, log: DeliveryLog
    ) -> None:
        await log.insert_many([entry("e", tenant="one", endpoint_ids=("a", "b", "b", "c"))])

        assert _by(await _events(log, dimensions=["endpoint_id"])) == {"a": 1, "b": 1, "c": 1}
        filters = {"endpoint_id": ["a", "b", "x"]}
        assert _by(await _events(log, dimensions=["endpoint_id"], filters=filters)) == {"a": 1, "b": 1}
        assert _only(await _events(log, filters=filters)) == {"count": 1}

    async def test_start_is_within_and_end_is_not(self, log: DeliveryLog) -> None:
        times = [BASE - MICRO, BASE, FEBRUARY - MICRO, FEBRUARY]
        await log.insert_many([_entry(number, time) for number, time in enumerate(times)])

        assert _only(await _events(log)) == {"count": 2}
        assert _counts(await _attempts(log, granularity="1M")) == [2]

    async def test_months_have_their_own_lengths(self, log: DeliveryLog) -> None:
        await log.insert_many([_entry(0, BASE), _entry(1, FEBRUARY)])

        found = await _events(log, end=datetime(2000, 3, 1, tzinfo=UTC), granularity="1M", measures=["rate"])
        quarters = await _attempts(log, start=FEBRUARY, end=FEBRUARY + DAY, granularity="3M")

        assert [point.measures["rate"] for point in found.data] == [1 / (31 * 86_400), 1 / (29 * 86_400)]
        assert [(point.time_bucket, point.measures["count"]) for point in quarters.data] == [(BASE, 1)]

    async def test_an_attempt_without_a_code_has_an_empty_one(self, log: DeliveryLog) -> None:
        await log.insert_many([entry("e", tenant="one", outcome={"code": None})])

        assert _by(await _attempts(log, dimensions=["code"])) == {"": 1}
        assert _only(await _attempts(log, filters={"code": [""]})) == {"count": 1}

    async def test_too_many_combinations_are_refused(self, log: DeliveryLog) -> None:
        await log.insert_many([entry(f"e{n}", tenant="one", topic=f"topic{n}") for n in range(40)])

        with pytest.raises(InvalidQuery, match="40 combinations in 2,976 buckets are more than 100,000 rows"):
            await _events(log, granularity="15m", dimensions=["topic"])

    @pytest.mark.parametrize(
        ("asked", "says"),
        [
            ({"measures": ["median"]}, "there is no 'median' among measures"),
            ({"measures": "count"}, "takes several"),
            ({"dimensions": ["weekday"]}, "there is no 'weekday' among dimensions"),
            ({"filters": {"weekday": ["1"]}}, "there is no 'weekday' among filters"),
            ({"filters": {"topic": "order"}}, "filter topic takes several values"),
            ({"filters": {"topic": ["\0"]}}, "filter topic has a NUL"),
            ({"filters": {'tenant"; --': ["x"]}}, "among filters"),
            ({"start": FEBRUARY}, "before end"),
            ({"end": BASE}, "before end"),
            ({"start": datetime(1969, 12, 31, tzinfo=UTC)}, "1970 or later"),
            ({"start": BASE.replace(tzinfo=None)}, "start needs a time zone"),
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
        self, log: DeliveryLog, asked: dict[str, Any], says: str
    ) -> None:
        for measure in (_events, _attempts):
            with pytest.raises(InvalidQuery, match=says):
                await measure(log, **asked)

    async def test_what_only_attempts_have_is_refused_of_events(self, log: DeliveryLog) -> None:
        for asked in (
            {"measures": ["error_rate"]},
            {"dimensions": ["status"]},
            {"filters": {"code": ["200"]}},
        ):
            with pytest.raises(InvalidQuery, match="there is no"):
                await _events(log, **asked)
