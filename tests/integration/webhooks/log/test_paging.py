"""Pages of a delivery log: the 44 cases of paging, the 7 of times with cursors, and cursors that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from projections.webhooks.errors import InvalidPageCursor
from projections.webhooks.log import AttemptsRequest, EventsRequest, LogPage
from tests.fixtures.writable_log import WritableLog
from tests.integration.webhooks.log.log_support import (
    BASE,
    MICRO,
    MINUTE,
    SECOND,
    Lister,
    entry,
    names,
    renamed,
)

LISTS = {
    "attempts": Lister(events=False, endpoint=None),
    "attempts by endpoint": Lister(events=False, endpoint="wanted"),
    "events": Lister(events=True, endpoint=None),
    "events by endpoint": Lister(events=True, endpoint="wanted"),
}


@pytest.fixture(params=LISTS.values(), ids=LISTS.keys())
def rows(request: pytest.FixtureRequest) -> Lister:
    lister: Lister = request.param
    return lister


async def _back(log: WritableLog, rows: Lister, last: LogPage[Any], **asked: Any) -> list[LogPage[Any]]:
    """All pages before one, from there to the first."""
    found = [last]
    while found[-1].prev is not None:
        found.append(await rows.page(log, prev=found[-1].prev, **asked))
    return found


class TestPaging:
    """Eleven cases, of each list, with and without a filter."""

    async def test_01_forward_every_row_comes_once(self, log: WritableLog, rows: Lister) -> None:
        expected = await rows.fill(log, 10)

        pages = await rows.pages(log, limit=3)

        assert [len(page.data) for page in pages] == [3, 3, 3, 1]
        assert [name for page in pages for name in names(page)] == expected[::-1]

    async def test_02_backward_the_pages_are_the_same_and_end(self, log: WritableLog, rows: Lister) -> None:
        await rows.fill(log, 10)
        pages = await rows.pages(log, limit=3)

        back = await _back(log, rows, pages[-1], limit=3)

        assert [page.data for page in back[::-1]] == [page.data for page in pages]
        assert back[-1].prev is None

    async def test_03_to_and_fro_is_the_same_page(self, log: WritableLog, rows: Lister) -> None:
        await rows.fill(log, 10)
        first = await rows.page(log, limit=3)
        second = await rows.page(log, limit=3, next=first.next)
        again = await rows.page(log, limit=3, prev=second.prev)

        assert again.data == first.data
        assert (await rows.page(log, limit=3, next=again.next)).data == second.data

    async def test_04_before_the_first_page_is_none(self, log: WritableLog, rows: Lister) -> None:
        await rows.fill(log, 10)

        page = await rows.page(log, limit=3)

        assert (page.prev, page.next is None) == (None, False)

    async def test_05_after_the_last_page_is_none(self, log: WritableLog, rows: Lister) -> None:
        await rows.fill(log, 10)

        last = (await rows.pages(log, limit=3))[-1]

        assert (last.prev is None, last.next) == (False, None)

    async def test_06_an_empty_list_has_no_cursors(self, log: WritableLog, rows: Lister) -> None:
        assert await rows.page(log) == LogPage(())

    async def test_07_the_last_page_has_the_rest(self, log: WritableLog, rows: Lister) -> None:
        await rows.fill(log, 7)

        assert [len(page.data) for page in await rows.pages(log, limit=3)] == [3, 3, 1]

    async def test_08_a_last_page_that_is_full_is_the_last(self, log: WritableLog, rows: Lister) -> None:
        await rows.fill(log, 6)

        assert [len(page.data) for page in await rows.pages(log, limit=3)] == [3, 3]

    async def test_09_one_row_has_no_cursors(self, log: WritableLog, rows: Lister) -> None:
        expected = await rows.fill(log, 1)

        page = await rows.page(log, limit=3)

        assert (names(page), page.next, page.prev) == (expected, None, None)

    async def test_10_ascending_the_oldest_is_first(self, log: WritableLog, rows: Lister) -> None:
        expected = await rows.fill(log, 5)

        assert names(await rows.page(log, order="asc")) == expected

    @pytest.mark.slow
    async def test_11_descending_the_newest_is_first(self, log: WritableLog, rows: Lister) -> None:
        expected = await rows.fill(log, 5)

        assert names(await rows.page(log, order="desc")) == expected[::-1]


class TestTimesWithCursors:
    """Seven cases: 20 rows a minute apart."""

    @pytest.fixture(autouse=True)
    async def _twenty(self, log: WritableLog) -> None:
        await log.insert_many([entry(f"e{number:02}", time=BASE + number * MINUTE) for number in range(20)])

    @pytest.mark.slow
    async def test_01_attempts_of_a_time_are_so_many_pages(self, log: WritableLog) -> None:
        within = {"gte": BASE + 5 * MINUTE, "lte": BASE + 14 * MINUTE}

        pages = await LISTS["attempts"].pages(log, limit=3, **within)

        assert len(pages) == 4
        assert [name for page in pages for name in names(page)] == [f"e{n:02}" for n in range(14, 4, -1)]

    async def test_02_a_cursor_that_was_made_without_a_filter_lets_nothing_through_it(
        self, log: WritableLog
    ) -> None:
        first = await log.list_attempts(AttemptsRequest(limit=3))

        with pytest.raises(InvalidPageCursor, match="other filters"):
            await log.list_attempts(AttemptsRequest(limit=3, gte=BASE + 10 * MINUTE, next=first.next))

    @pytest.mark.slow
    async def test_03_an_open_interval_over_several_pages(self, log: WritableLog) -> None:
        pages = await LISTS["attempts"].pages(log, limit=3, gt=BASE + 5 * MINUTE, lt=BASE + 14 * MINUTE)

        assert [len(page.data) for page in pages] == [3, 3, 2]
        assert [name for page in pages for name in names(page)] == [f"e{n:02}" for n in range(13, 5, -1)]

    async def test_04_gt_and_lt_leave_out_the_instant_that_gte_and_lte_have(self, log: WritableLog) -> None:
        instant = BASE + 7 * MINUTE

        assert "e07" not in names(await log.list_attempts(AttemptsRequest(gt=instant)))
        assert "e07" not in names(await log.list_attempts(AttemptsRequest(lt=instant)))
        assert names(await log.list_attempts(AttemptsRequest(gte=instant, lte=instant))) == ["e07"]

    async def test_05_backward_the_filter_holds(self, log: WritableLog) -> None:
        within = {"gte": BASE + 5 * MINUTE, "lte": BASE + 14 * MINUTE}
        pages = await LISTS["attempts"].pages(log, limit=3, **within)

        back = await _back(log, LISTS["attempts"], pages[-1], limit=3, **within)

        assert [page.data for page in back[::-1]] == [page.data for page in pages]

    async def test_06_events_of_a_time_are_so_many_pages(self, log: WritableLog) -> None:
        pages = await LISTS["events"].pages(log, limit=3, gte=BASE + 5 * MINUTE, lte=BASE + 14 * MINUTE)

        assert len(pages) == 4
        assert [name for page in pages for name in names(page)] == [f"e{n:02}" for n in range(14, 4, -1)]

    async def test_07_gt_and_lt_leave_out_the_instant_of_an_event(self, log: WritableLog) -> None:
        instant = BASE + 7 * MINUTE

        assert "e07" not in names(await log.list_events(EventsRequest(gt=instant)))
        assert "e07" not in names(await log.list_events(EventsRequest(lt=instant)))
        assert names(await log.list_events(EventsRequest(gte=instant, lte=instant))) == ["e07"]


@pytest.mark.slow
@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("apart", [MICRO, 0 * MICRO], ids=["a microsecond apart", "at one time"])
async def test_same_millisecond_1000_rows_all_pages(
    log: WritableLog, rows: Lister, order: str, apart: Any
) -> None:
    await log.insert_many(
        [entry(f"e{n:03}", endpoint_ids=("wanted",), time=BASE + n * apart) for n in range(1000)]
    )

    pages = await rows.pages(log, limit=7, order=order)
    back = await _back(log, rows, pages[-1], limit=7, order=order)

    expected = [f"e{n:03}" for n in range(1000)]
    assert [name for page in pages for name in names(page)] == (
        expected if order == "asc" else expected[::-1]
    )
    assert [page.data for page in back[::-1]] == [page.data for page in pages]


@pytest.mark.daily(8)
@pytest.mark.parametrize("limit", [1, 2])
async def test_small_pages_within_a_millisecond_lose_nothing(
    log: WritableLog, rows: Lister, limit: int
) -> None:
    times = [0, 100, 200, 300, 5000]
    await log.insert_many(
        [entry(f"e{n}", endpoint_ids=("wanted",), time=BASE + each * MICRO) for n, each in enumerate(times)]
    )

    for order in ("asc", "desc"):
        pages = await rows.pages(log, limit=limit, order=order)

        assert sorted(name for page in pages for name in names(page)) == ["e0", "e1", "e2", "e3", "e4"]


async def test_identical_timestamps_tie_on_the_id_by_its_bytes(log: WritableLog) -> None:
    ids = ["A", "a", "B", "b", "_", "é", "\U0001f600", "￿", "10", "9"]
    await log.insert_many([renamed(entry(f"e{each}"), each) for each in ids])

    pages = await LISTS["attempts"].pages(log, limit=1, order="asc")

    assert [row.attempt.attempt_id for page in pages for row in page.data] == sorted(ids, key=str.encode)


@pytest.mark.daily(8)
@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_insert_during_paging_no_dup_no_skip_of_old_rows(
    log: WritableLog, rows: Lister, order: str
) -> None:
    old = await rows.fill(log, 30)
    seen: list[str] = []
    page = await rows.page(log, limit=4, order=order)
    for turn in range(100):
        seen += names(page)
        await log.insert_many(
            [
                entry(f"new{turn}{where}", endpoint_ids=("wanted",), time=when)
                for where, when in [
                    ("before", BASE - SECOND), ("amid", BASE + turn * SECOND + MICRO), ("after", BASE + MINUTE),
                ]
            ]
        )  # fmt: skip
        if turn > 20 or page.next is None:
            break
        page = await rows.page(log, limit=4, order=order, next=page.next)

    assert len(seen) == len(set(seen))
    reached = [name for name in seen if name in set(old)]
    assert reached == (old if order == "asc" else old[::-1])[: len(reached)]
    assert len(reached) == 30


async def test_past_the_end_there_is_a_way_back(log: WritableLog, rows: Lister) -> None:
    expected = await rows.fill(log, 3)
    cursors = await _cursors_at(log, rows, "e000")

    empty = await rows.page(log, next=cursors)
    back = await rows.page(log, prev=empty.prev, limit=2)

    assert (empty.data, empty.next) == ((), None)
    assert names(back) == expected[1::-1]
    assert (await rows.page(log, prev=back.prev, limit=2)).data == (await rows.page(log, limit=1)).data


async def test_before_the_beginning_there_is_a_way_forward(log: WritableLog, rows: Lister) -> None:
    expected = await rows.fill(log, 3)
    cursors = await _cursors_at(log, rows, "e002")

    empty = await rows.page(log, prev=cursors)
    onward = await rows.page(log, next=empty.next, limit=2)

    assert (empty.data, empty.prev) == ((), None)
    assert names(onward) == expected[:0:-1]


async def _cursors_at(log: WritableLog, rows: Lister, name: str) -> str:
    """A cursor of the list that is at this row: what a page said before all behind that row was dropped."""
    await log.insert_many(
        [
            entry(f"{edge}", endpoint_ids=("wanted",), time=BASE + n * SECOND)
            for edge, n in (("first", -1), ("last", 9))
        ]
    )
    pages = await rows.pages(log, limit=1)
    page = next(page for page in pages if names(page) == [name])
    # Both edges go: the same cursor, of a log without them.
    fresh = page.next if name == "e000" else page.prev
    assert fresh is not None
    await _forget(log, {"first", "last"})
    return fresh


async def _forget(log: Any, names: set[str]) -> None:
    """What retention does to rows."""
    if hasattr(log, "_events"):
        for each in names:
            del log._events[each], log._attempts[f"attempt of {each}"]
        return
    async with log._database.session() as session:
        await session.execute("DELETE FROM projections.webhook_events WHERE event_id = ANY ($1)", list(names))
        await session.execute(
            "DELETE FROM projections.webhook_attempts WHERE event_id = ANY ($1)", list(names)
        )
