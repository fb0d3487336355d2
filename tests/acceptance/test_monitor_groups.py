"""Groups on the monitor's page in a real browser: what a user sees and clicks, and what becomes of it."""

from __future__ import annotations

import json

import pytest

from journal import Database, Event, append
from projections.subscriptions import create_group, rewind_group, subscribe
from tests.fixtures.chromium import EXECUTABLE
from tests.fixtures.monitor import opened, table
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.subscriptions import landed_and_matched

pytestmark = pytest.mark.skipif(EXECUTABLE is None, reason="no chromium on PATH")

VIEW = "#/groups"
NASTY = "<img src=x onerror=alert(1)>"
FAIL = "SELECT projections.fail_batch_v1($1, 'h', 2, $2, NULL, $3)"
DEAD = "SELECT array_agg(retry_id ORDER BY retry_id) FROM projections.group_retries WHERE due_at IS NULL"
CATCHING_UP = "catching up: has looked at nothing yet"
GROUPS = "document.querySelectorAll('#groups-table tbody tr').length"


@pytest.fixture
async def groups(database: Database) -> Database:
    """Group g with a match and two dead letters, a group with a nasty name, listeners; a condition is stopped."""
    async with database.transaction() as session:
        await create_group(session, "g", ranges=2)
        await create_group(session, NASTY)
        await create_group(session, "listeners", reliable=False)
        await subscribe(session, "g", topics=["Landed"])
        await subscribe(session, NASTY, condition=f"e.topic = '{NASTY}'")
    await landed_and_matched(database, "a")
    for number in (1, 2):
        await execute(database, FAIL, "g", NASTY, json.dumps([{"match_id": number}]))
    await execute(database, "SELECT projections._quarantine_condition_v1(1, $1)", NASTY)
    return database


@pytest.mark.slow
async def test_groups_are_shown_with_their_readers_and_what_waits(chromium: str, groups: Database) -> None:
    async with opened(chromium, groups, GROUPS, view=VIEW) as page:
        found = {row[0]: row[1:] for row in await page.value(table("groups-table"))}
        await execute(groups, "SELECT projections.poll_group_v1('g', 'me', '1 hour')")
        await page.until(
            f"{table('groups-table')}.some(row => row[0] === 'g' && row[1] === 'read' && row[2] === '1')"
        )

        async with groups.session() as session:
            await rewind_group(session, "g", "beginning")
        await page.until(
            f"{table('groups-table')}.some(row => row[0] === 'g' && row[1].startsWith('{CATCHING_UP}'))"
        )

    assert set(found) == {"g", NASTY, "listeners"}
    assert (found["g"][0], found["g"][3:6]) == ("1 of 2 ranges unread", ["1", "0", "2"])
    assert found["listeners"][:2] == ["listening", "\N{EN DASH}"]
    assert page.errors == []


@pytest.mark.slow
async def test_ranges_of_groups_are_shown_when_they_are_asked_for(chromium: str, groups: Database) -> None:
    async with opened(chromium, groups, GROUPS, view=VIEW) as page:
        summary = await page.text("#group-ranges summary")
        await page.value("document.querySelector('#group-ranges summary').focus()")
        await page.press("Enter")
        found = await page.until(f"(rows => rows.length && rows)({table('group-ranges-table')})")

    assert summary == "3 ranges, 3 without a reader"
    assert [row[:3] for row in found if row[0] == "g"] == [
        ["g", "0 to 511", "unread"],
        ["g", "512 to 1023", "idle"],
    ]


async def test_what_groups_and_errors_say_stays_text(chromium: str, groups: Database) -> None:
    async with opened(chromium, groups, GROUPS, view=VIEW) as page:
        dead, set_apart = await page.value(table("dead-table")), await page.value(table("quarantined-table"))
        images = await page.value("document.querySelectorAll('img').length")

    assert [row[3] for row in dead] == [NASTY] * 2
    assert set_apart[0][:3] == [f"e.topic = '{NASTY}'", NASTY, f"{NASTY} · 1 subscription"]
    assert (images, page.errors) == (0, [])


@pytest.mark.slow
async def test_dead_letters_and_conditions_set_apart_are_counted_at_the_top(
    chromium: str, groups: Database
) -> None:
    async with opened(chromium, groups, GROUPS, view=VIEW) as page:
        totals = " ".join((await page.text("#totals")).split())

    assert "Dead letters 2 Conditions stopped 1" in totals


@pytest.mark.slow
async def test_events_that_nobody_matches_are_pointed_at(chromium: str, groups: Database) -> None:
    await execute(groups, "DELETE FROM projections.projections WHERE name = 'matching'")
    async with groups.transaction() as session:
        await append(session, [Event("b", {}, "boat", "Sailed")])
    async with opened(chromium, groups, GROUPS, view=VIEW) as page:
        told = await page.text("#unmatched")
        async with groups.session() as session:
            await session.fetchval("SELECT projections._begin_matching_v1()")
        await page.until("document.querySelector('#unmatched').hidden")

    assert told == "Nobody has matched events of boat, plane yet: start projections worker --subscriptions."


@pytest.mark.slow
async def test_a_dead_letter_is_retried_from_the_keyboard(chromium: str, groups: Database) -> None:
    async with opened(chromium, groups, GROUPS, view=VIEW) as page:
        await page.value("document.querySelector(\"[aria-label='Retry dead letter 1 of g']\").focus()")
        await page.press("Enter")
        await page.until("document.querySelectorAll('#dead-table tbody tr').length === 1")

    assert await fetchval(groups, DEAD) == [2]


@pytest.mark.slow
async def test_a_dead_letter_is_dropped_only_after_a_confirmation(chromium: str, groups: Database) -> None:
    async with opened(chromium, groups, GROUPS, view=VIEW) as page:
        await page.click("[aria-label='Drop dead letter 2 of g']")
        question = await page.until("document.querySelector('dialog[open]')?.innerText")
        await page.press("Escape")
        await page.until("!document.querySelector('dialog[open]')")
        kept = await fetchval(groups, DEAD)
        await page.click("[aria-label='Drop dead letter 2 of g']")
        await page.until("document.querySelector('dialog[open]')")
        await page.click("dialog button[value=drop]")
        await page.until("document.querySelectorAll('#dead-table tbody tr').length === 1")

    assert "The handler h of g never gets the 1 event of dead letter 2 again" in question
    assert kept == [1, 2]
    assert await fetchval(groups, DEAD) == [1]


@pytest.mark.slow
async def test_a_condition_is_released(chromium: str, groups: Database) -> None:
    async with opened(chromium, groups, GROUPS, view=VIEW) as page:
        await page.click("[aria-label='Release condition 1']")
        await page.until("document.querySelector('#quarantined').hidden")

    assert await fetchval(groups, "SELECT quarantined_at IS NULL FROM projections.conditions")


@pytest.mark.slow
async def test_a_group_is_rescaled_by_typing_a_number(chromium: str, groups: Database) -> None:
    async with opened(chromium, groups, GROUPS, view=VIEW) as page:
        await page.value("document.querySelector(\"[aria-label='Ranges of g']\").select()")
        await page.type("7")
        await page.press("Enter")
        await page.until("document.querySelector('#group-ranges summary').textContent.startsWith('8 ranges')")

    assert await fetchval(groups, "SELECT count(*) FROM projections.group_ranges WHERE group_id = 1") == 7


@pytest.mark.slow
async def test_without_groups_nothing_is_shown_of_them(chromium: str, database: Database) -> None:
    async with opened(chromium, database, view=VIEW) as page:
        hidden = await page.value("document.querySelector('#groups').hidden")

    assert hidden


@pytest.mark.slow
async def test_groups_fit_the_width_of_a_phone(chromium: str, groups: Database) -> None:
    async with opened(chromium, groups, GROUPS, view=VIEW) as page:
        await page.view(360, 740, phone=True)
        await page.until("innerWidth === 360")
        await page.value("document.querySelector('#group-ranges').open = true")
        await page.until("document.querySelectorAll('#group-ranges-table tbody tr').length")

        assert await page.value("document.documentElement.scrollWidth") == 360


@pytest.mark.slow
async def test_every_table_of_groups_has_headers_for_its_cells(chromium: str, groups: Database) -> None:
    async with opened(chromium, groups, GROUPS, view=VIEW) as page:
        await page.value("document.querySelector('#group-ranges').open = true")
        await page.until("document.querySelectorAll('#group-ranges-table tbody tr').length")
        found = await page.value(
            "[...document.querySelectorAll('#groups table')].map(table => ["
            "[...table.tHead.rows[0].cells].map(cell => cell.textContent), "
            "[...table.tBodies[0].rows[0].cells].map(cell => cell.dataset.label)])"
        )

    assert len(found) == 4
    assert [headers for headers, _ in found] == [labels for _, labels in found]
