"""Cursors of a delivery log: refused unless they are what a page of the same list said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from journal import Generation
from projections.webhooks.errors import InvalidPageCursor
from projections.webhooks.log import AttemptsRequest, EventsRequest
from projections.webhooks.log.paging import VERSION, Cursors, PagePlace, _base62, _filters
from tests.fixtures.writable_log import WritableLog
from tests.integration.webhooks.log.log_support import (
    BASE,
    MICRO,
    SECOND,
    entry,
)


class TestCursors:
    @pytest.fixture(autouse=True)
    async def _ten(self, log: WritableLog) -> None:
        await log.insert_many([entry(f"e{number}", time=BASE + number * SECOND) for number in range(10)])

    async def test_next_and_prev_together_are_refused(self, log: WritableLog) -> None:
        cursor = (await log.list_events(EventsRequest(limit=3))).next

        with pytest.raises(InvalidPageCursor, match="next or prev, not both"):
            await log.list_events(EventsRequest(limit=3, next=cursor, prev=cursor))

    @pytest.mark.daily(12)
    @pytest.mark.parametrize(
        "other",
        [
            {"order": "asc"}, {"tenants": ["tenant", "other"]}, {"topics": ["x"]}, {"endpoint_ids": ["x"]},
            {"event_ids": ["x"]}, {"gte": BASE}, {"lte": BASE}, {"gt": BASE}, {"lt": BASE},
            {"endpoint_types": ["x"]}, {"status": "failed"}, {"tenants": []},
        ],
        ids=str,
    )  # fmt: skip
    async def test_a_cursor_of_another_order_or_tenant_or_filter_is_refused(
        self, log: WritableLog, other: dict[str, Any]
    ) -> None:
        asked: dict[str, Any] = {"tenants": ["tenant"], "limit": 3}
        cursor = (await log.list_attempts(AttemptsRequest(**asked))).next
        assert cursor is not None

        with pytest.raises(InvalidPageCursor, match="another order, or of other filters"):
            await log.list_attempts(AttemptsRequest(**asked | other, next=cursor))

    async def test_the_same_filters_in_other_words_are_the_same(self, log: WritableLog) -> None:
        asked = {"topics": ["order.created", "x"], "limit": 3}
        first = await log.list_events(EventsRequest(**asked))  # type: ignore[arg-type]

        again = {"topics": iter(["x", "order.created", "x"]), "limit": 4}

        assert len((await log.list_events(EventsRequest(**again, next=first.next))).data) == 4  # type: ignore[arg-type]

    async def test_a_cursor_of_the_other_list_is_refused(self, log: WritableLog) -> None:
        cursor = (await log.list_events(EventsRequest(limit=3))).next

        with pytest.raises(InvalidPageCursor, match="not a cursor of this list"):
            await log.list_attempts(AttemptsRequest(limit=3, next=cursor))

    async def test_cursor_v1_is_refused_with_a_version_error(self, log: WritableLog) -> None:
        with pytest.raises(InvalidPageCursor, match="version 1, expected version 3"):
            await log.list_events(EventsRequest(next=_base62(b"evtv01:946684800000::e5")))

    @pytest.mark.daily(11)
    @pytest.mark.parametrize(
        "place",
        [
            "", "e5", "946684800000000", "946684800000000:past:e5", "now:past::e5", ":past::e5", "1.5:past::e5",
            "946684800000000:past::", "946684800000000:beside::e5", "999999999999999999:past::e5", "٣:past::e5",
        ],
    )  # fmt: skip
    async def test_cursor_bad_position_is_error(self, log: WritableLog, place: str) -> None:
        cursor = (await log.list_events(EventsRequest(limit=3))).next
        assert cursor is not None
        begin = f"evtv{VERSION:02}:{Cursors('evt', ascending=False, filters=_filters(EventsRequest()))._binding}::"

        with pytest.raises(InvalidPageCursor):
            await log.list_events(EventsRequest(next=_base62(f"{begin}{place}".encode())))

    @pytest.mark.daily(12)
    @pytest.mark.parametrize(
        "cursor", ["0", "00000", " ", "a b", "ab\ncd", "é", "-1", "Z" * 512, _base62(b"evtv02"), _base62(b"\xff\xfe"),
                   _base62(b"evtv02:\0"), "'; SELECT 1; --"]
    )  # fmt: skip
    async def test_garbage_is_refused(self, log: WritableLog, cursor: str) -> None:
        with pytest.raises(InvalidPageCursor):
            await log.list_events(EventsRequest(next=cursor))

    async def test_cursor_huge_100kb_is_refused_by_its_length(self, log: WritableLog) -> None:
        with pytest.raises(InvalidPageCursor, match="at most 512 characters, not 100000"):
            await log.list_events(EventsRequest(next="a" * 100_000))

    async def test_an_empty_cursor_is_none(self, log: WritableLog) -> None:
        assert await log.list_events(EventsRequest(next="", prev="")) == await log.list_events(
            EventsRequest()
        )


@pytest.mark.parametrize("id_", ["a", "a b", "a::b:c", "é\U0001f600", "x" * 255, "\U0001f600" * 63])
def test_a_cursor_is_short_and_brings_back_its_place(id_: str) -> None:
    cursors = Cursors("evt", ascending=True, filters="")
    for inclusive in (False, True):
        place = PagePlace(BASE + MICRO, id_, inclusive)

        cursor = cursors.encode(place)

        assert cursors.decode(cursor) == place
        assert len(cursor) <= 512
        assert cursor.isalnum()
        assert cursor.isascii()


def test_a_cursor_of_a_lost_timeline_or_ahead_of_the_database_is_refused() -> None:
    now = Generation(timeline=2, started_at=BASE, position=1000, system=7)
    place = PagePlace(BASE, "e")
    cursors = Cursors("evt", ascending=True, filters="", generation=now)
    for other, why in (
        (replace(now, timeline=1), "timeline 1"),
        (replace(now, position=1001), "log was at"),
        (replace(now, system=8), "another database cluster"),
        (None, "is of no database"),
    ):
        cursor = Cursors("evt", ascending=True, filters="", generation=other).encode(place)
        with pytest.raises(InvalidPageCursor, match=why):
            cursors.decode(cursor)

    restarted = replace(now, started_at=BASE + SECOND, position=2000)
    later = Cursors("evt", ascending=True, filters="", generation=restarted)
    assert later.decode(cursors.encode(place)) == place


def test_a_cursor_is_the_same_today_and_tomorrow() -> None:
    place = PagePlace(BASE, "e")
    fixed = "eaQ50TkTAFettxW9D3kHvbACAcFFnrp7PjyvtgqkJx3YUWDLlrWaasBG9ggLRLgGISeDo9"

    assert Cursors("evt", ascending=True, filters="[]").encode(place) == fixed
    assert Cursors("att", ascending=True, filters="[]").encode(place) != fixed
    assert Cursors("evt", ascending=False, filters="[]").encode(place) != fixed
