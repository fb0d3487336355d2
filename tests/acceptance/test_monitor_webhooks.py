"""Endpoints on the monitor's page in a real browser: what a user sees and clicks, and what becomes of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from journal import Database
from tests.fixtures.chromium import EXECUTABLE
from tests.fixtures.monitor import opened, table
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.webhooks import deliver_events, end_all, endpoint, states, take

pytestmark = pytest.mark.skipif(EXECUTABLE is None, reason="no chromium on PATH")

VIEW = "#/webhooks"
NASTY = "<img src=x onerror=alert(1)>"
STATE = "SELECT state FROM projections.webhook_endpoints WHERE endpoint_id = $1"
DISABLE = "SELECT projections._set_endpoint_state_v1(NULL, $1, 'disabled', $2)"


@pytest.fixture
async def hooks(database: Database) -> Database:
    """Endpoint a with one that arrived and two dead letters; one of a nasty tenant that is disabled, with one."""
    await endpoint(database, "a", url="https://hooks.example.com/T000/secret")
    await endpoint(database, "ep-nasty", tenant=NASTY)
    await deliver_events(database, "a", ids=["arrived"])
    await end_all(database, await take(database), "done", took=timedelta(milliseconds=120))
    await deliver_events(database, "a", ids=["first", "second"])
    await deliver_events(database, "ep-nasty", ids=[NASTY], tenant=NASTY)
    await end_all(database, await take(database), "dead", code=NASTY, took=timedelta(milliseconds=120))
    await execute(database, DISABLE, "ep-nasty", NASTY)
    return database


@pytest.mark.slow
async def test_endpoints_are_shown_with_how_they_fare(chromium: str, hooks: Database) -> None:
    async with opened(chromium, hooks, view=VIEW) as page:
        _, found = sorted(await page.value(table("endpoints-table")))

    assert found[0] == "hooks.example.com\na"
    assert found[1] == "acme"
    assert found[2].startswith("failing for ")
    assert found[2].endswith(", 2 attempts")
    assert found[3:10] == ["33.3% of 3", "0.12 s", "0.12 s", "0", "0", "0", "2"]
    assert page.errors == []


@pytest.mark.slow
async def test_a_url_that_has_shown_that_it_wants_webhooks_is_marked(chromium: str, hooks: Database) -> None:
    await execute(
        hooks, "UPDATE projections.webhook_endpoints SET verified_url = url WHERE endpoint_id = 'a'"
    )
    async with opened(chromium, hooks, view=VIEW) as page:
        marked, other = sorted(await page.value(table("endpoints-table")), key=lambda row: row[1] == NASTY)

    assert (marked[0], other[0]) == ("hooks.example.com (verified)\na", "example.com\nep-nasty")
    assert page.errors == []


async def test_what_tenants_events_and_codes_say_stays_text(chromium: str, hooks: Database) -> None:
    async with opened(chromium, hooks, view=VIEW) as page:
        told, dead = (
            await page.value(table("endpoints-table")),
            await page.value(table("dead-deliveries-table")),
        )
        images = await page.value("document.querySelectorAll('img').length")

    (nasty,) = [row for row in told if row[0].endswith("ep-nasty")]
    assert nasty[1:3] == [NASTY, f"disabled: {NASTY}"]
    assert [row[:4] for row in dead if NASTY in row[0]] == [[f"example.com · {NASTY}", NASTY, "t", NASTY]]
    assert (images, page.errors) == (0, [])


@pytest.mark.slow
async def test_what_can_not_be_seen_in_a_name_is_written_out_and_a_long_one_is_cut(
    chromium: str, database: Database
) -> None:
    await endpoint(database, "hidden", tenant="a\x1b[31m\u202eb\u2028c")
    await endpoint(database, "long", tenant="x" * 200)

    async with opened(chromium, database, view=VIEW) as page:
        found = await page.value(table("endpoints-table"))
        isolated = await page.value(
            "[...document.querySelectorAll('#endpoints-table td')].map(cell => getComputedStyle(cell).unicodeBidi)"
        )

    assert sorted(row[1] for row in found) == [r"a\u{1b}[31m\u{202e}b\u{2028}c", "x" * 100 + "…"]
    assert set(isolated) == {"isolate"}
    assert page.errors == []


@pytest.mark.slow
async def test_dead_letters_are_counted_at_the_top(chromium: str, hooks: Database) -> None:
    async with opened(chromium, hooks, view=VIEW) as page:
        totals = " ".join((await page.text("#totals")).split())

    assert "Dead webhooks 3" in totals


@pytest.mark.slow
async def test_a_dead_letter_is_sent_again_by_a_click(chromium: str, hooks: Database) -> None:
    async with opened(chromium, hooks, view=VIEW) as page:
        await page.click("[aria-label='Retry event first of a']")
        said = await page.until("document.querySelector('#toast').innerText")
        await page.until("document.querySelectorAll('#dead-deliveries-table tbody tr').length === 2")

    assert said == "first is sent again"
    assert await states(hooks, "a") == ["done", "pending", "dead"]


@pytest.mark.slow
async def test_a_dead_letter_is_dropped_only_after_a_confirmation(chromium: str, hooks: Database) -> None:
    async with opened(chromium, hooks, view=VIEW) as page:
        await page.click("[aria-label='Drop event first of a']")
        await page.until("document.querySelector('dialog[open]')?.innerText")
        before = await states(hooks, "a")
        await page.click("dialog button[value=drop]")
        said = await page.until("document.querySelector('#toast').innerText")

    assert said == "first is dropped"
    assert before == ["done", "dead", "dead"]
    assert await states(hooks, "a") == ["done", "dropped", "dead"]


@pytest.mark.slow
async def test_all_dead_letters_of_an_endpoint_are_sent_again_only_after_a_confirmation(
    chromium: str, hooks: Database
) -> None:
    async with opened(chromium, hooks, view=VIEW) as page:
        await page.click("[aria-label='Retry dead letters of a']")
        question = await page.until("document.querySelector('dialog[open]')?.innerText")
        await page.press("Escape")
        await page.until("!document.querySelector('dialog[open]')")
        kept = await states(hooks, "a")
        await page.click("[aria-label='Retry dead letters of a']")
        await page.until("document.querySelector('dialog[open]')")
        await page.click("dialog button[value=retry]")
        await page.until("document.querySelectorAll('#dead-deliveries-table tbody tr').length === 1")

    assert "2 dead letters of hooks.example.com (acme) are sent again" in question
    assert kept == ["done", "dead", "dead"]
    assert await states(hooks, "a") == ["done", "pending", "pending"]


@pytest.mark.slow
async def test_an_endpoint_is_paused_and_resumed_from_the_keyboard(chromium: str, hooks: Database) -> None:
    async with opened(chromium, hooks, view=VIEW) as page:
        await page.value("document.querySelector(\"[aria-label='Pause a']\").focus()")
        await page.press("Enter")
        await page.until("document.querySelector(\"[aria-label='Resume a']\")?.disabled === false")
        paused = await fetchval(hooks, STATE, "a")
        await page.press("Enter")
        await page.until("document.querySelector(\"[aria-label='Pause a']\")")

    assert (paused, await fetchval(hooks, STATE, "a")) == ("paused", "active")


@pytest.mark.slow
async def test_dead_letters_of_a_disabled_endpoint_can_be_sent_once_it_is_enabled(
    chromium: str, hooks: Database
) -> None:
    retry = "document.querySelector(\"[aria-label='Retry dead letters of ep-nasty']\")"
    async with opened(chromium, hooks, view=VIEW) as page:
        before = await page.value(f"[{retry}.disabled, {retry}.title]")
        await page.click("[aria-label='Enable ep-nasty']")
        await page.until(f"!{retry}.disabled")

    assert before == [True, "Enable the endpoint first"]
    assert await fetchval(hooks, STATE, "ep-nasty") == "active"


@pytest.mark.slow
async def test_without_endpoints_nothing_is_shown_of_them(chromium: str, database: Database) -> None:
    async with opened(chromium, database, view=VIEW) as page:
        hidden = await page.value("document.querySelector('#endpoints').hidden")

    assert hidden


@pytest.mark.slow
async def test_endpoints_fit_the_width_of_a_phone(chromium: str, hooks: Database) -> None:
    async with opened(chromium, hooks, view=VIEW) as page:
        await page.view(360, 740, phone=True)
        await page.until("innerWidth === 360")

        assert await page.value("document.documentElement.scrollWidth") == 360


@pytest.mark.slow
async def test_every_table_of_endpoints_has_headers_for_its_cells(chromium: str, hooks: Database) -> None:
    async with opened(chromium, hooks, view=VIEW) as page:
        found = await page.value(
            "[...document.querySelectorAll('#endpoints table')].map(table => ["
            "[...table.tHead.rows[0].cells].map(cell => cell.textContent), "
            "[...table.tBodies[0].rows[0].cells].map(cell => cell.dataset.label)])"
        )

    assert len(found) == 2
    assert [headers for headers, _ in found] == [labels for _, labels in found]
