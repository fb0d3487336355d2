"""Metrics of a delivery log: the 36 cases of numbers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from projections.webhooks.log import DataPoint, Metrics
from tests.fixtures.writable_log import WritableLog
from tests.integration.webhooks.log.log_support import BASE, DAY, HOUR
from tests.integration.webhooks.log.metrics_support import (
    BELL,
    FEBRUARY,
    FIFTEENTH,
    SPARSE,
    by,
    counts,
    fill,
    measured_attempts,
    measured_events,
    only,
    total,
)


class TestEvents:
    """17 cases."""

    @pytest.fixture(autouse=True)
    async def _filled(self, log: WritableLog) -> None:
        await fill(log)

    async def test_01_count(self, log: WritableLog) -> None:
        assert await measured_events(log) == Metrics((DataPoint(None, {}, {"count": 300}),))

    async def test_02_by_topic(self, log: WritableLog) -> None:
        assert by(await measured_events(log, dimensions=["topic"])) == {f"topic{n}": 100 for n in range(3)}

    async def test_03_by_endpoint(self, log: WritableLog) -> None:
        assert by(await measured_events(log, dimensions=["endpoint_id"])) == {
            "endpoint0": 150,
            "endpoint1": 150,
        }

    async def test_04_by_tenant(self, log: WritableLog) -> None:
        assert by(await measured_events(log, dimensions=["tenant"], tenants=[])) == {"one": 300, "two": 5}

    async def test_05_filter_topic(self, log: WritableLog) -> None:
        assert only(await measured_events(log, filters={"topic": ["topic0"]})) == {"count": 100}

    async def test_06_filter_endpoint(self, log: WritableLog) -> None:
        assert only(await measured_events(log, filters={"endpoint_id": ["endpoint1"]})) == {"count": 150}

    async def test_07_other_tenants_do_not_count(self, log: WritableLog) -> None:
        assert only(await measured_events(log, tenants=["two"])) == {"count": 5}

    async def test_08_a_time_without_events_is_empty(self, log: WritableLog) -> None:
        assert (await measured_events(log, start=FEBRUARY, end=FEBRUARY + DAY)).data == ()

    async def test_09_rate(self, log: WritableLog) -> None:
        assert only(await measured_events(log, measures=["rate"])) == {"rate": pytest.approx(300 / 2_678_400)}

    async def test_10_rate_of_an_hour(self, log: WritableLog) -> None:
        found = await measured_events(log, measures=["count", "rate"], granularity="1h")

        assert all(p.measures["rate"] == pytest.approx(p.measures["count"] / 3600) for p in found.data)
        assert max(p.measures["rate"] for p in found.data) == pytest.approx(100 / 3600)

    async def test_11_months(self, log: WritableLog) -> None:
        found = await measured_events(log, granularity="1M", measures=["count", "rate"])

        assert found.data == (
            DataPoint(BASE, {}, {"count": 300, "rate": pytest.approx(300 / 2_678_400)}),
        )  # fmt: skip

    async def test_12_weeks_begin_on_sunday(self, log: WritableLog) -> None:
        found = await measured_events(log, granularity="1w")

        assert [point.time_bucket for point in found.data] == [
            datetime(1999, 12, 26, tzinfo=UTC) + n * 7 * DAY for n in range(6)
        ]
        assert counts(found) == [0, 20, 260, 10, 10, 0]

    async def test_13_two_days_keep_the_total(self, log: WritableLog) -> None:
        assert total(await measured_events(log, granularity="2d")) == 300

    async def test_14_days(self, log: WritableLog) -> None:
        found = await measured_events(log, granularity="1d")

        expected = [0] * 31
        for day in SPARSE:
            expected[day] = 10
        expected[14] = 250
        assert counts(found) == expected

    async def test_15_hours(self, log: WritableLog) -> None:
        found = await measured_events(log, granularity="1h", start=FIFTEENTH, end=FIFTEENTH + DAY)

        assert counts(found) == [BELL.get(hour, 0) for hour in range(24)]

    @pytest.mark.parametrize(("hour", "count"), [(10, 25), (12, 100)], ids=["16 hour 10", "17 hour 12"])
    async def test_16_and_17_minutes(self, log: WritableLog, hour: int, count: int) -> None:
        start = FIFTEENTH + hour * HOUR

        found = await measured_events(log, granularity="1m", start=start, end=start + HOUR)

        assert (found.row_count, total(found)) == (60, count)


class TestAttempts:
    """18 cases, and that of the metadata."""

    @pytest.fixture(autouse=True)
    async def _filled(self, log: WritableLog) -> None:
        await fill(log)

    async def test_01_count(self, log: WritableLog) -> None:
        assert only(await measured_attempts(log)) == {"count": 300}

    async def test_02_success_and_failure(self, log: WritableLog) -> None:
        found = await measured_attempts(log, measures=["successful_count", "failed_count"])

        assert only(found) == {"successful_count": 180, "failed_count": 120}

    async def test_03_error_rate(self, log: WritableLog) -> None:
        assert only(await measured_attempts(log, measures=["error_rate"])) == {
            "error_rate": pytest.approx(0.4)
        }

    async def test_04_retries(self, log: WritableLog) -> None:
        measures = ["first_attempt_count", "retry_count", "manual_retry_count", "avg_attempt_number"]

        assert list(only(await measured_attempts(log, measures=measures)).values()) == [270, 0, 30, 1.0]

    async def test_05_rates(self, log: WritableLog) -> None:
        found = only(await measured_attempts(log, measures=["rate", "successful_rate", "failed_rate"]))

        assert list(found.values()) == [pytest.approx(n / 2_678_400) for n in (300, 180, 120)]

    async def test_06_rates_of_an_hour(self, log: WritableLog) -> None:
        found = await measured_attempts(log, measures=["count", "rate"], granularity="1h")

        assert all(p.measures["rate"] == pytest.approx(p.measures["count"] / 3600) for p in found.data)

    @pytest.mark.daily(8)
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
    async def test_07_to_11_by(self, log: WritableLog, dimension: str, expected: dict[str, int]) -> None:
        tenants = [] if dimension == "tenant" else ["one"]

        assert by(await measured_attempts(log, dimensions=[dimension], tenants=tenants)) == expected

    @pytest.mark.daily(7)
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
    async def test_12_to_16_filter(self, log: WritableLog, filters: dict[str, list[Any]], count: int) -> None:
        assert only(await measured_attempts(log, filters=filters)) == {"count": count}

    async def test_17_hours(self, log: WritableLog) -> None:
        found = await measured_attempts(log, granularity="1h", start=FIFTEENTH, end=FIFTEENTH + DAY)

        assert counts(found) == [BELL.get(hour, 0) for hour in range(24)]

    async def test_18_other_tenants_do_not_count(self, log: WritableLog) -> None:
        assert only(await measured_attempts(log, tenants=["two"])) == {"count": 5}

    async def test_19_an_answer_says_how_much_it_is(self, log: WritableLog) -> None:
        found = await measured_attempts(log)

        assert (found.row_count, found.truncated, found.row_limit > 0) == (1, False, True)
