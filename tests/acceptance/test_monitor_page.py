"""The monitor's page in a real browser: what a user sees, clicks and types, and what becomes of it in the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import offsets
from journal import ConnectionSettings, Database, connect, slice_of
from projections.http.addresses import Address
from projections.http.serving import serving
from projections.monitoring.web.app import monitor_app
from projections.monitoring.web.feed import Feed
from tests.fixtures.chromium import EXECUTABLE, Page, opened_page
from tests.fixtures.monitor import LIVE, monitored, opened
from tests.fixtures.projections import (
    EFFECTS,
    NO_RETRY,
    caught_up,
    execute,
    failing,
    fetchval,
    happen,
    recording,
    running,
    until,
)

pytestmark = pytest.mark.skipif(EXECUTABLE is None, reason="no chromium on PATH")

NASTY = "<img src=x onerror=alert(1)>"
CELLS = "document.querySelectorAll('[role=gridcell]').length"
ARRIVED = "document.querySelector('.projection')?.hidden === false"
SHOWN = f"document.readyState === 'complete' && {LIVE} && {CELLS} && {ARRIVED}"
VIEW = "#/projection/p"


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    """Projection p: two sources wait at their first event, three events are not handled, and nobody runs it."""
    async with connect(dsn, ConnectionSettings(max_connections=20)) as pool:
        await execute(pool, EFFECTS)
        await happen(pool, "a", NASTY, "b", "c")
        await caught_up(pool, projection(), ranges=4)
        await happen(pool, "b", "b", "c")
        yield pool


def projection() -> type[Any]:
    return recording(failing(("a", 1), (NASTY, 1)), recovery=NO_RETRY)


async def cells(page: Page, attribute: str, value: str) -> list[int]:
    """The slices whose cell has an attribute of this value."""
    js = f"[...document.querySelectorAll('[role=gridcell]')].map(cell => cell.getAttribute('{attribute}'))"
    return [number for number, found in enumerate(await page.value(js)) if found == value]


async def decisions(database: Database) -> dict[str, str]:
    async with database.session() as session:
        return {one.source_id: one.decision for one in await offsets.ParkedSources(session).list("p")}


async def stats(page: Page) -> dict[str, str]:
    js = "[...document.querySelectorAll('.stats div')].map(one => [...one.children].map(part => part.textContent))"
    return dict(await page.value(js))


def decision(source_id: str) -> str:
    """What the list of parked sources shows for one, in JavaScript."""
    row = f"[...document.querySelectorAll('.parked tr')].find(row => row.cells[0].textContent === '{source_id}')"
    return f"{row}?.cells[4].innerText"


@pytest.mark.slow
async def test_a_parked_source_shows_where_its_handler_failed(chromium: str, journal: Database) -> None:
    trace = "[...document.querySelectorAll('.parked tbody pre')].map(one => one.textContent)"
    async with opened(chromium, journal, SHOWN, view=VIEW) as page:
        found = await page.value(trace)

    assert len(found) == 2
    assert all("in fail" in one and "Failure" in one for one in found)


async def test_every_slice_is_shown_with_its_lag_state_and_parked_sources(
    chromium: str, journal: Database
) -> None:
    async with opened(chromium, journal, SHOWN, view=VIEW) as page:
        behind = set(range(1024)) - set(await cells(page, "data-level", "0"))
        waiting = await cells(page, "data-parked", "")
        labels = await page.value(
            "[...document.querySelectorAll('[role=gridcell]')].map(cell => cell.ariaLabel)"
        )
        shown = await stats(page)

    assert behind == {slice_of("b"), slice_of("c")}
    assert set(waiting) == {slice_of("a"), slice_of(NASTY)}
    assert len(labels) == 1024
    assert labels[1023] == "Slice 1023: lag none, unclaimed, range 768 to 1023, no owner"
    assert f"Slice {slice_of('b')}: lag " in labels[slice_of("b")]
    assert (shown["Backlog"], shown["Ranges"], shown["Parked"]) == ("3", "4", "2")


@pytest.mark.slow
async def test_what_events_bring_stays_text(chromium: str, journal: Database) -> None:
    async with opened(chromium, journal, SHOWN, view=VIEW) as page:
        source = await page.until(f"{decision(NASTY)} && document.querySelector('.parked').innerText")
        images = await page.value("document.querySelectorAll('img').length")

    assert source.count(NASTY) >= 2  # the source, and its error
    assert (images, page.errors) == (0, [])


@pytest.mark.slow
async def test_page_follows_the_database_without_a_reload(chromium: str, journal: Database) -> None:
    async with opened(chromium, journal, SHOWN, view=VIEW) as page:
        await page.value("window.sameWindow = true")
        async with running(journal, projection(), ranges=4):
            await page.until(
                "document.querySelector('.projection .badge').textContent === '2 parked, 2 running'"
            )
            await page.until("document.querySelectorAll('.stats dd')[1].textContent === '0'")
            owners = await page.value(
                "[...document.querySelectorAll('.stretch')].map(one => one.textContent)"
            )
            workers = await page.text("#workers tbody")

        assert owners == ["A"] * 4
        assert "alive" in workers
        assert await page.value("window.sameWindow")


@pytest.mark.slow
async def test_arrows_move_over_the_slices_and_say_what_they_are(chromium: str, journal: Database) -> None:
    async with opened(chromium, journal, SHOWN, view=VIEW) as page:
        stops = await page.value("document.querySelectorAll('[role=gridcell][tabindex=\"0\"]').length")
        await page.value("[...document.querySelectorAll('.holds .copy')].at(-1).focus()")
        await page.press("Tab")
        await page.press("ArrowRight", 3)
        await page.press("ArrowDown", 2)
        await page.press("ArrowLeft")
        focused = await page.value("document.activeElement.ariaLabel")
        detail = await page.text(".detail")
        await page.press("Tab")
        left = await page.value("document.activeElement.role")

    assert stops == 1
    assert focused.startswith("Slice 66: lag none, unclaimed, range 0 to 255")
    assert "Slice 66" in detail
    assert "0 to 255" in detail
    assert left != "gridcell"


@pytest.mark.slow
async def test_pointer_shows_the_slice_under_it(chromium: str, journal: Database) -> None:
    number = slice_of("b")
    async with opened(chromium, journal, SHOWN, view=VIEW) as page:
        await page.hover(f"[role=row]:nth-child({number // 32 + 1}) > :nth-child({number % 32 + 1})")
        await page.until(f"document.querySelector('.detail h3').textContent === 'Slice {number}'")
        detail = await page.text(".detail")

    assert "2 events" in detail


@pytest.mark.slow
async def test_an_event_is_dropped_only_after_a_confirmation(chromium: str, journal: Database) -> None:
    async with opened(chromium, journal, SHOWN, view=VIEW) as page:
        await page.click("button.drop[aria-label='Drop event 1 of a']")
        question = await page.until("document.querySelector('dialog[open]')?.innerText")
        await page.press("Escape")
        await page.until("!document.querySelector('dialog[open]')")
        kept = await decisions(journal)
        await page.click("button.drop[aria-label='Drop event 1 of a']")
        await page.until("document.querySelector('dialog[open]')")
        await page.click("dialog button[value=drop]")
        await page.until(f"{decision('a')} === 'to be dropped'")

    assert "p never handles event 1 (Happened) of source a" in question
    assert kept == {"a": "waiting", NASTY: "waiting"}
    assert await decisions(journal) == {"a": "drop", NASTY: "waiting"}


@pytest.mark.slow
async def test_an_event_is_retried_from_the_keyboard(chromium: str, journal: Database) -> None:
    async with opened(chromium, journal, SHOWN, view=VIEW) as page:
        await page.value(f"document.querySelector(\"button[aria-label='Retry event 1 of {NASTY}']\").focus()")
        await page.press("Enter")
        await page.until(f"{decision(NASTY)} === 'to be retried'")

    assert await decisions(journal) == {"a": "waiting", NASTY: "retry"}


@pytest.mark.slow
async def test_a_projection_is_paused_and_resumed(chromium: str, journal: Database) -> None:
    paused = "SELECT paused FROM projections.projections"
    async with opened(chromium, journal, SHOWN, view=VIEW) as page:
        await page.click(".toggle")
        await page.until("document.querySelectorAll('[role=gridcell][data-state=paused]').length === 1024")
        before = await fetchval(journal, paused)
        await page.click(".toggle")
        await page.until("document.querySelector('.toggle').textContent === 'Pause'")

    assert (before, await fetchval(journal, paused)) == (True, False)


@pytest.mark.slow
async def test_a_projection_is_rescaled_by_typing_a_number(chromium: str, journal: Database) -> None:
    async with opened(chromium, journal, SHOWN, view=VIEW) as page:
        await page.value("document.querySelector('.rescale input').select()")
        await page.type("7")
        await page.press("Enter")
        await page.until("document.querySelectorAll('.stretch').length === 7")

    assert await fetchval(journal, "SELECT count(*) FROM projections.projection_ranges") == 7


@pytest.mark.slow
async def test_a_number_of_ranges_that_can_not_be_is_not_sent(chromium: str, journal: Database) -> None:
    async with opened(chromium, journal, SHOWN, view=VIEW) as page:
        await page.value("document.querySelector('.rescale input').select()")
        await page.type("1025")
        await page.press("Enter")

        assert not await page.value("document.querySelector('.rescale').checkValidity()")
    assert await fetchval(journal, "SELECT count(*) FROM projections.projection_ranges") == 4


@pytest.mark.slow
async def test_what_holds_the_horizon_back_is_named(chromium: str, journal: Database) -> None:
    async with opened(chromium, journal, SHOWN, view=VIEW) as page, journal.transaction() as writer:
        await writer.execute("SELECT set_config('application_name', $1, FALSE)", NASTY)
        await writer.execute("LOCK TABLE projections.sources IN ROW EXCLUSIVE MODE")
        told = await page.until("document.querySelector('#writers li')?.innerText")

    assert NASTY in told
    assert "open for" in told


@pytest.mark.slow
async def test_a_range_that_fails_is_marked_and_says_why(chromium: str, journal: Database) -> None:
    await execute(
        journal,
        "INSERT INTO projections.workers (owner, host, pid, projection_ids, lease_until) "
        "VALUES ('h:1:x', 'h', 1, '{}', clock_timestamp() + interval '1 hour')",
    )
    await execute(
        journal,
        "UPDATE projections.projection_ranges SET owner = 'h:1:x', failures = 3, error = $1, "
        "restarts_at = clock_timestamp() + interval '90 s' WHERE min_slice = 256",
        NASTY,
    )
    async with opened(chromium, journal, SHOWN, view=VIEW) as page:
        restarting = await cells(page, "data-state", "restarting")
        told = await page.text(".holds")

    assert restarting == [*range(256, 512)]
    assert "1 of 4 ranges (slices 256-511): failed 3 times in a row, starts again in 1 min " in told
    assert NASTY in told


@pytest.mark.slow
async def test_page_says_that_the_monitor_is_gone_and_connects_again(
    chromium: str, journal: Database
) -> None:
    async with asyncio.timeout(300), opened_page(chromium) as page:
        async with monitored(journal) as address:
            await page.open(f"http://{address}/{VIEW}")
            await page.until(f"document.readyState === 'complete' && {LIVE}")
        await page.until("document.querySelector('#connection').textContent === 'Reconnecting'")
        banner = await page.text("#banner")
        async with monitored(journal, address.port):
            await page.until(LIVE)
            hidden = await page.value("document.querySelector('#banner').hidden")

    assert "What is shown is as of" in banner
    assert hidden


@pytest.mark.slow
async def test_page_says_that_the_database_is_lost_and_keeps_what_it_showed(
    chromium: str, journal: Database, dsn: str, admin_dsn: str
) -> None:
    name = conninfo_to_dict(dsn)["dbname"]
    async with (
        connect(dsn, ConnectionSettings(max_connections=3)) as pool,
        opened(chromium, pool, SHOWN, view=VIEW) as page,
    ):
        with psycopg.connect(admin_dsn, autocommit=True) as admin:
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
            await page.until("document.querySelector('#connection').textContent === 'Database lost'")
            banner, shown = await page.text("#banner"), await page.value(CELLS)
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
        await page.until(LIVE)

    assert banner.startswith("The database cannot be asked: ")
    assert shown == 1024


@pytest.mark.slow
@pytest.mark.parametrize("many", [2, pytest.param(12, marks=pytest.mark.slow)])
async def test_all_tabs_live_and_act_over_one_stream(chromium: str, journal: Database, many: int) -> None:
    """A browser has six connections to a host for all of its tabs."""
    feed = Feed(journal, timedelta(milliseconds=100))
    async with (
        asyncio.timeout(300),
        serving(Address("127.0.0.1", 0), monitor_app(journal, feed)) as address,
        AsyncExitStack() as opening,
    ):
        tabs = [await opening.enter_async_context(opened_page(chromium))]
        tabs += [await opening.enter_async_context(opened_page(chromium, tabs[0])) for _ in range(many - 1)]
        for page in tabs:
            await page.front()
            await page.open(f"http://{address}/{VIEW}")
            await page.until(SHOWN)
        watching = feed._watching
        await tabs[-1].value("document.querySelector('.toggle').click()")
        for page in tabs:
            await page.front()
            await page.until("document.querySelector('.toggle').textContent === 'Resume'")
        await tabs[0].open("about:blank")  # who came first goes, and the others live on
        await tabs[-1].value("document.querySelector('.toggle').click()")
        for page in tabs[1:]:
            await page.front()
            await page.until("document.querySelector('.toggle').textContent === 'Pause'")
        for page in tabs[1:]:
            await page.open("about:blank")
        while feed._watching:  # nobody is left
            await asyncio.sleep(0.01)
        feed.close()

    assert watching == 1


@pytest.mark.slow
async def test_page_lives_where_tabs_can_share_nothing(chromium: str, journal: Database) -> None:
    async with asyncio.timeout(300), monitored(journal) as address, opened_page(chromium) as page:
        await page.call("Page.addScriptToEvaluateOnNewDocument", source="delete globalThis.SharedWorker")
        await page.open(f"http://{address}/{VIEW}")
        await page.until(SHOWN)
        assert await page.value("typeof SharedWorker") == "undefined"


@pytest.mark.slow
async def test_page_lives_and_acts_behind_a_password(chromium: str, journal: Database) -> None:
    async with (
        asyncio.timeout(300),
        monitored(journal, token="secret") as address,
        opened_page(chromium) as page,
    ):
        await page.open(f"http://anybody:secret@{address}/{VIEW}")
        await page.until(SHOWN)
        await page.click(".toggle")
        await page.until("document.querySelector('.toggle').textContent === 'Resume'")

    assert await fetchval(journal, "SELECT paused FROM projections.projections")


@pytest.mark.slow
async def test_everything_fits_the_width_of_a_phone(chromium: str, journal: Database) -> None:
    async with opened(chromium, journal, SHOWN, view=VIEW) as page:
        await page.view(360, 740, phone=True)
        await page.until("innerWidth === 360")
        width = await page.value("document.documentElement.scrollWidth")
        grid = await page.value("document.querySelector('.grid').getBoundingClientRect().toJSON()")
        await page.until("getComputedStyle(document.querySelector('#workers thead')).position === 'absolute'")

    assert width == 360
    assert grid["width"] == pytest.approx(grid["height"], abs=1)
    assert grid["left"] >= 0
    assert grid["right"] <= 360


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
async def test_text_and_levels_can_be_told_apart_in_light_and_dark(
    chromium: str, journal: Database, dark: bool
) -> None:
    async with opened(chromium, journal, SHOWN, view=VIEW) as page:
        await page.view(1400, 1000, dark=dark)
        await page.until(f"matchMedia('(prefers-color-scheme: dark)').matches === {str(dark).lower()}")
        ink, surface = await page.value(
            "(style => [style.color, style.backgroundColor])(getComputedStyle(document.querySelector('.card')))"
        )
        levels = await page.value(
            "[...document.querySelectorAll('.levels .swatch')].map(one => getComputedStyle(one).backgroundColor)"
        )

    lightness = [luminance(level) for level in levels]
    assert contrast(ink, surface) >= 7
    assert lightness == sorted(
        lightness, reverse=not dark
    )  # the further behind, the further from the surface
    assert len(set(levels)) == 7


def luminance(colour: str) -> float:
    """Of ``rgb(…)``, as WCAG defines it."""
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.slow
async def test_page_needs_nothing_that_its_policy_refuses(chromium: str, journal: Database) -> None:
    async with opened(chromium, journal, SHOWN, view=VIEW) as page, running(journal, projection(), ranges=4):
        await page.until("document.querySelectorAll('.stretch[data-owner]').length === 4")
        await until(journal, "SELECT count(*) > 0 FROM projections.workers")

    assert page.errors == []
