"""What goes into a delivery log comes out of it: the 19 cases of rows, and the 17 of tenants, filters and the rest."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta, timezone
from typing import Any

import pytest

from projections.webhooks.errors import InvalidPageCursor, InvalidQuery
from projections.webhooks.log import AttemptsRequest, AttemptWithEvent, EventsRequest
from tests.fixtures.writable_log import WritableLog
from tests.integration.webhooks.log.log_support import (
    BASE,
    HOUR,
    MINUTE,
    SECOND,
    attempt,
    entry,
    event,
    names,
)


async def _batch(log: WritableLog) -> list[AttemptWithEvent]:
    """15 entries: 3 endpoints, 3 topics, 2 outcomes, a minute apart."""
    entries = [
        entry(
            f"e{number:02}",
            topic=f"topic{number % 3}",
            endpoint_ids=(f"endpoint{number // 5}",),
            time=BASE + number * MINUTE,
            outcome={"status": "failed" if number % 2 else "success"},
        )
        for number in range(15)
    ]
    await log.insert_many(entries)
    return entries


class TestRows:
    async def test_01_what_is_inserted_is_listed_and_retrieved(self, log: WritableLog) -> None:
        given = entry("e")
        assert given.event is not None

        await log.insert_many([given])

        assert (await log.list_attempts(AttemptsRequest(event_ids=["e"]))).data == (given,)
        assert (await log.list_events(EventsRequest())).data == (given.event,)
        assert await log.retrieve_event("e", "tenant") == given.event
        assert await log.retrieve_attempt(given.attempt.attempt_id, "tenant") == given

    async def test_02_a_batch_is_inserted_whole(self, log: WritableLog) -> None:
        entries = await _batch(log)

        page = await log.list_attempts(AttemptsRequest(order="asc"))

        assert list(page.data) == entries

    async def test_03_an_empty_batch_does_nothing(self, log: WritableLog) -> None:
        await log.insert_many([])

        assert (await log.list_attempts(AttemptsRequest())).data == ()

    async def test_04_no_metadata_comes_back_as_an_empty_map(self, log: WritableLog) -> None:
        await log.insert_many([entry("e", metadata=None)])

        found = await log.retrieve_event("e")

        assert found is not None
        assert found.metadata == {}

    async def test_05_an_entry_twice_in_a_batch_is_one_row_and_the_others_stay(
        self, log: WritableLog
    ) -> None:
        twice, other = entry("e"), entry("f")

        await log.insert_many([twice, other, twice])

        assert sorted(names(await log.list_attempts(AttemptsRequest()))) == ["e", "f"]
        assert sorted(names(await log.list_events(EventsRequest()))) == ["e", "f"]

    @pytest.mark.parametrize(
        ("asked", "expected"),
        [
            pytest.param({"endpoint_ids": ["endpoint1"]}, range(5, 10), id="06 one endpoint"),
            pytest.param(
                {"endpoint_ids": ["endpoint0", "endpoint2"]}, [*range(5), *range(10, 15)], id="07 several endpoints"
            ),
            pytest.param({"topics": ["topic1"]}, range(1, 15, 3), id="08 topic"),
            pytest.param({"gte": BASE + 3 * MINUTE, "lte": BASE + 7 * MINUTE}, range(3, 8), id="09 time"),
        ],
    )  # fmt: skip
    async def test_06_to_09_events_are_listed_by(
        self, log: WritableLog, asked: dict[str, Any], expected: list[int]
    ) -> None:
        await _batch(log)

        page = await log.list_events(EventsRequest(order="asc", **asked))

        assert names(page) == [f"e{number:02}" for number in expected]

    @pytest.mark.parametrize(
        ("asked", "expected"),
        [
            pytest.param({"endpoint_ids": ["endpoint1"]}, range(5, 10), id="10 endpoint"),
            pytest.param({"status": "failed"}, range(1, 15, 2), id="11 status"),
            pytest.param({"topics": ["topic0", "topic2"]}, [0, 2, 3, 5, 6, 8, 9, 11, 12, 14], id="12 topic"),
            pytest.param({"event_ids": ["e03", "e09"]}, [3, 9], id="13 event"),
        ],
    )
    async def test_10_to_13_attempts_are_listed_by(
        self, log: WritableLog, asked: dict[str, Any], expected: list[int]
    ) -> None:
        await _batch(log)

        page = await log.list_attempts(AttemptsRequest(order="asc", **asked))

        assert names(page) == [f"e{number:02}" for number in expected]

    async def test_14_an_event_is_retrieved(self, log: WritableLog) -> None:
        entries = await _batch(log)

        assert await log.retrieve_event("e07", "tenant") == entries[7].event

    async def test_15_an_event_that_is_not_there_is_none(self, log: WritableLog) -> None:
        assert await log.retrieve_event("e07", "tenant") is None

    async def test_16_an_event_of_another_tenant_is_none(self, log: WritableLog) -> None:
        await _batch(log)

        assert await log.retrieve_event("e07", "other") is None

    async def test_17_an_attempt_is_retrieved(self, log: WritableLog) -> None:
        entries = await _batch(log)

        assert await log.retrieve_attempt("attempt of e07", "tenant") == entries[7]

    async def test_18_an_attempt_that_is_not_there_is_none(self, log: WritableLog) -> None:
        assert await log.retrieve_attempt("attempt of e07", "tenant") is None

    async def test_19_an_attempt_of_another_tenant_is_none(self, log: WritableLog) -> None:
        await _batch(log)

        assert await log.retrieve_attempt("attempt of e07", "other") is None


class TestTenants:
    @pytest.fixture(autouse=True)
    async def _two(self, log: WritableLog) -> None:
        await log.insert_many([entry("a", tenant="one"), entry("b", tenant="two", time=BASE + SECOND)])

    async def test_01_attempts_of_other_tenants_are_not_listed(self, log: WritableLog) -> None:
        assert names(await log.list_attempts(AttemptsRequest(tenants=["one"]))) == ["a"]
        assert names(await log.list_events(EventsRequest(tenants=["two"]))) == ["b"]

    async def test_02_an_event_is_retrieved_by_its_tenant_alone(self, log: WritableLog) -> None:
        assert await log.retrieve_event("a", "one") is not None
        assert await log.retrieve_event("a", "two") is None

    async def test_03_without_a_tenant_events_of_all_are_listed(self, log: WritableLog) -> None:
        assert names(await log.list_events(EventsRequest())) == ["b", "a"]

    async def test_04_without_a_tenant_attempts_of_all_are_listed(self, log: WritableLog) -> None:
        assert names(await log.list_attempts(AttemptsRequest())) == ["b", "a"]

    async def test_05_without_a_tenant_any_event_is_retrieved(self, log: WritableLog) -> None:
        assert await log.retrieve_event("a") is not None
        assert await log.retrieve_event("b", "") is not None

    async def test_06_without_a_tenant_any_attempt_is_retrieved(self, log: WritableLog) -> None:
        assert await log.retrieve_attempt("attempt of a") is not None
        assert await log.retrieve_attempt("attempt of b", "") is not None

    async def test_an_attempt_is_not_shown_with_an_event_of_another_tenant(self, log: WritableLog) -> None:
        forged = replace(attempt(event("a", tenant="two"), "forged"), tenant="two")
        await log.insert_many([AttemptWithEvent(forged, None)])

        assert await log.retrieve_attempt("forged", "two") == AttemptWithEvent(forged, None)

    async def test_an_id_of_another_tenant_changes_nothing(self, log: WritableLog) -> None:
        stolen = entry("a", tenant="two", topic="stolen", outcome={"status": "failed"})

        await log.insert_many([stolen])

        assert await log.retrieve_event("a") == event("a", tenant="one")
        kept = await log.retrieve_attempt("attempt of a")
        assert kept is not None
        assert (kept.attempt.tenant, kept.attempt.status) == ("one", "success")


class TestTheRest:
    async def test_07_an_order_that_there_is_not_is_newest_first(self, log: WritableLog) -> None:
        await _batch(log)

        assert (await log.list_events(EventsRequest(order="sideways"))).data == (
            await log.list_events(EventsRequest(order="desc"))
        ).data

    async def test_08_no_filter_is_an_empty_filter(self, log: WritableLog) -> None:
        await _batch(log)
        nothing: Any = None

        assert (await log.list_attempts(AttemptsRequest(topics=nothing, endpoint_ids=nothing))).data == (
            await log.list_attempts(AttemptsRequest(topics=[], endpoint_ids=[]))
        ).data

    async def test_09_gte_is_inclusive(self, log: WritableLog) -> None:
        await _batch(log)

        assert "e03" in names(await log.list_events(EventsRequest(gte=BASE + 3 * MINUTE)))
        assert "e02" not in names(await log.list_events(EventsRequest(gte=BASE + 3 * MINUTE)))

    async def test_10_lte_is_inclusive(self, log: WritableLog) -> None:
        await _batch(log)

        assert "e03" in names(await log.list_attempts(AttemptsRequest(lte=BASE + 3 * MINUTE)))
        assert "e04" not in names(await log.list_attempts(AttemptsRequest(lte=BASE + 3 * MINUTE)))

    async def test_11_what_is_done_to_a_returned_record_is_not_done_to_the_log(
        self, log: WritableLog
    ) -> None:
        metadata = {"a": "b"}
        await log.insert_many([entry("e", metadata=metadata)])
        metadata["a"] = "changed by the writer"
        found: Any = await log.retrieve_event("e")
        found.metadata["a"] = "changed by the reader"

        again = await log.retrieve_event("e")

        assert again is not None
        assert again.metadata == {"a": "b"}

    async def test_12_ten_inserts_of_the_same_at_once_are_one_row(self, log: WritableLog) -> None:
        entries = [entry(f"e{number}") for number in range(20)]

        await asyncio.gather(*(log.insert_many(entries if turn % 2 else entries[::-1]) for turn in range(10)))

        assert len((await log.list_attempts(AttemptsRequest())).data) == 20
        assert len((await log.list_events(EventsRequest())).data) == 20

    async def test_13_an_event_is_found_by_each_endpoint_that_it_matched(self, log: WritableLog) -> None:
        await log.insert_many([entry("e", endpoint_ids=("a", "b"))])

        found = {each: names(await log.list_events(EventsRequest(endpoint_ids=[each]))) for each in "abc"}

        assert found == {"a": ["e"], "b": ["e"], "c": []}

    @pytest.mark.parametrize("cursor", ["!!!invalid!!!", "abcdef123456"], ids=["14", "15"])
    async def test_14_and_15_a_malformed_cursor_is_refused(self, log: WritableLog, cursor: str) -> None:
        with pytest.raises(InvalidPageCursor):
            await log.list_events(EventsRequest(next=cursor))
        with pytest.raises(InvalidPageCursor):
            await log.list_attempts(AttemptsRequest(prev=cursor))

    @pytest.mark.parametrize("order", ["desc", "asc"], ids=["16 desc", "17 asc"])
    async def test_16_and_17_a_cursor_goes_on_in_its_order(self, log: WritableLog, order: str) -> None:
        await _batch(log)
        first = await log.list_events(EventsRequest(order=order, limit=5))

        second = await log.list_events(EventsRequest(order=order, limit=5, next=first.next))

        expected = [f"e{number:02}" for number in range(15)]
        assert names(first) + names(second) == (expected if order == "asc" else expected[::-1])[:10]


class TestBeyond:
    """What the suite that this one repeats does not look at."""

    async def test_the_first_of_an_event_stays_whatever_its_time(self, log: WritableLog) -> None:
        await log.insert_many([entry("e", data="1")])
        await log.insert_many([entry("e", data="2", time=BASE + HOUR)])

        found = await log.list_attempts(AttemptsRequest())

        assert (await log.list_events(EventsRequest())).data == (event("e", data="1"),)
        assert [row.event for row in found.data] == [event("e", data="1")]

    async def test_an_attempt_again_has_its_new_outcome_and_all_else_as_it_was(
        self, log: WritableLog
    ) -> None:
        failed = entry("e", outcome={"status": "failed", "code": "500"})
        await log.insert_many([failed])
        again = replace(
            failed.attempt,
            status="success",
            code="201",
            response=None,
            took=SECOND,
            time=BASE + HOUR,
            topic="x",
        )

        await log.insert_many([AttemptWithEvent(again, None)])

        assert (await log.list_attempts(AttemptsRequest())).data == (
            replace(
                failed,
                attempt=replace(failed.attempt, status="success", code="201", response=None, took=SECOND),
            ),
        )

    async def test_of_an_attempt_twice_in_a_batch_the_last_counts(self, log: WritableLog) -> None:
        known = entry("e", outcome={"status": "failed", "code": "500"})
        for _ in range(2):
            await log.insert_many(
                [known, replace(known, attempt=replace(known.attempt, status="success", code="200"))]
            )

            found = await log.retrieve_attempt(known.attempt.attempt_id)

            assert found is not None
            assert (found.attempt.status, found.attempt.code) == ("success", "200")

    async def test_an_event_of_which_only_a_retry_is_known_is_there(self, log: WritableLog) -> None:
        await log.insert_many([entry("e", outcome={"attempt_number": 3})])

        assert await log.retrieve_event("e") == event("e")

    async def test_an_attempt_whose_event_is_unknown_has_none(self, log: WritableLog) -> None:
        await log.insert_many([AttemptWithEvent(attempt(event("e")), None)])

        assert [row.event for row in (await log.list_attempts(AttemptsRequest())).data] == [None]

    async def test_data_stays_as_it_was_written(self, log: WritableLog) -> None:
        data = '{"z": 1.0, "a":1e400 ,"big": 123456789012345678901234567890, "\\u00e9": "\U0001f600"}'
        await log.insert_many([entry("e", data=data)])

        found = await log.retrieve_event("e")

        assert found is not None
        assert found.data == data

    async def test_times_come_back_in_utc(self, log: WritableLog) -> None:
        elsewhere = BASE.astimezone(timezone(timedelta(hours=5, minutes=45)))
        await log.insert_many([entry("e", time=elsewhere)])

        (found,) = (await log.list_attempts(AttemptsRequest())).data

        assert found.event is not None
        offsets = {
            each.utcoffset() for each in (found.attempt.time, found.attempt.event_time, found.event.time)
        }
        assert offsets == {timedelta(0)}

    async def test_a_page_has_a_thousand_rows_at_most_and_a_hundred_by_default(
        self, log: WritableLog
    ) -> None:
        await log.insert_many([entry(f"e{number}") for number in range(1001)])

        sizes = [len((await log.list_events(EventsRequest(limit=limit))).data) for limit in (-1, 0, 5000)]

        assert sizes == [100, 100, 1000]

    @pytest.mark.parametrize(
        "value", ["'; DROP TABLE x; --", "a' OR 'a'='a", "{a,b}", '"', "\\", "%", "$1", "é\U0001f600"]
    )
    async def test_whatever_a_filter_says_it_is_a_value(self, log: WritableLog, value: str) -> None:
        given = entry("e", tenant=value, topic=value, endpoint_ids=(value,), outcome={"endpoint_type": value})
        await log.insert_many([given, entry("f", time=BASE + SECOND)])
        asked: dict[str, Any] = {"tenants": [value], "topics": [value, "x"], "endpoint_ids": [value]}

        events = await log.list_events(EventsRequest(**asked))
        attempts = await log.list_attempts(
            AttemptsRequest(**asked, endpoint_types=[value], event_ids=["e", value])
        )

        assert (names(events), names(attempts)) == (["e"], ["e"])

    @pytest.mark.parametrize(
        "asked",
        [
            {"topics": "order"}, {"topics": [1]}, {"tenants": ["a\0b"]}, {"endpoint_ids": ["\ud800"]},
            {"gte": BASE.replace(tzinfo=None)},
        ],
        ids=str,
    )  # fmt: skip
    async def test_a_filter_that_can_not_be_is_refused(self, log: WritableLog, asked: dict[str, Any]) -> None:
        with pytest.raises(InvalidQuery, match=next(iter(asked))):
            await log.list_events(EventsRequest(**asked))

    async def test_a_status_that_there_is_not_is_refused(self, log: WritableLog) -> None:
        with pytest.raises(InvalidQuery, match="success or failed, not 'late'"):
            await log.list_attempts(AttemptsRequest(status="late"))

    @pytest.mark.parametrize(
        "given",
        [
            entry(""), entry("e" * 256), entry("\0"), entry("e", data="\0"), entry("e", metadata={"a": "\0"}),
            entry("e", outcome={"status": "late"}), entry("e", outcome={"attempt_number": 0}),
            entry("e", time=BASE.replace(tzinfo=None)), entry("e", outcome={"response": "\ud800"}),
        ],
    )  # fmt: skip
    async def test_what_can_not_be_stored_is_refused_and_nothing_of_it_is_there(
        self, log: WritableLog, given: AttemptWithEvent
    ) -> None:
        with pytest.raises(InvalidQuery):
            await log.insert_many([entry("before"), given])

        assert (await log.list_events(EventsRequest())).data == ()
