"""The list of all projections in a real browser: trouble first, folded, filtered, and read on every screen."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import offsets
from journal import Database, slice_ranges
from tests.fixtures.chromium import EXECUTABLE, Page
from tests.fixtures.monitor import opened, table
from tests.fixtures.projections import execute, happen
from tests.fixtures.states import STATES, in_every_state, worker

pytestmark = pytest.mark.skipif(EXECUTABLE is None, reason="no chromium on PATH")

LINES = "document.querySelectorAll('.lines tr').length"
PARTS = """
[...document.querySelectorAll('.part')].filter(one => !one.hidden).map(one => [
    one.querySelector('.fold').innerText.replace(/\\s+/g, ' '),
    one.nextElementSibling.hidden ? null : [...one.nextElementSibling.rows].map(row => row.cells[0].innerText),
])
"""
SHOWN_NAMES = "[...document.querySelectorAll('.lines:not([hidden]) tr')].map(row => row.cells[0].innerText)"


async def parts(page: Page) -> dict[str, list[str] | None]:
    """The parts of the list that are shown, and the projections in each; None where it is folded."""
    return dict(await page.value(PARTS))


async def many(database: Database, count: int) -> None:
    """So many projections that run, each of two ranges."""
    await worker(database, "w", timedelta(hours=1))
    async with database.session() as session:
        for number in range(count):
            await offsets.register(session, f"p{number:03}", "plane", slice_ranges(2))
    await execute(database, "UPDATE projections.projection_ranges SET owner = 'w', assigned_to = 'w'")


@pytest.mark.slow
async def test_trouble_comes_first_and_what_the_library_runs_stands_apart(
    chromium: str, database: Database
) -> None:
    await in_every_state(database)
    async with database.session() as session:
        await offsets.register(session, "matching", "plane")
    async with opened(chromium, database, LINES) as page:
        found = await parts(page)
        badges = dict(
            await page.value(
                "[...document.querySelectorAll('.lines tr')]"
                ".map(row => [row.cells[0].innerText, row.cells[1].innerText])"
            )
        )
        states = await page.value(
            "[...document.querySelectorAll('#states button')].map(one => one.innerText)"
        )
        title = await page.value("document.title")

    assert found == {
        "Needs attention 7": [
            "all", "half-unclaimed", "left", "unclaimed", "restarting", "all-parked", "parked",
        ],
        "Paused 2": ["paused", "paused-and-parked"],
        "Running 1": ["running"],
        "Internal 1, 1 in trouble": None,
    }  # fmt: skip
    assert badges == STATES
    assert states == ["5 unclaimed", "1 restarting", "2 parked", "2 paused", "1 running"]
    assert title == "(8) Projections monitor"
    assert page.errors == []


@pytest.mark.slow
async def test_the_list_is_filtered_by_words_and_by_state(chromium: str, database: Database) -> None:
    await in_every_state(database)
    async with opened(chromium, database, LINES) as page:
        await page.press("/")
        await page.type("parked run")
        await page.until("document.querySelector('#filter-count').innerText.startsWith('2 of 10')")
        by_words, address = await page.value(SHOWN_NAMES), await page.value("location.hash")
        await page.press("Escape")
        await page.until("document.querySelector('#filter-count').innerText === ''")
        await page.click("#states [data-state=paused]")
        await page.until("document.querySelector('#filter-count').innerText.startsWith('2 of 10')")
        by_state = await page.value(SHOWN_NAMES)
        pressed = await page.value("document.querySelector('#states [data-state=paused]').ariaPressed")
        await page.click("#filter")
        await page.type("no such thing")
        none = await page.until(
            "!document.querySelector('#nothing-fits').hidden && document.querySelector('#nothing-fits').innerText"
        )

    assert by_words == ["all", "parked"]
    assert address == "#/?q=parked%20run"
    assert (by_state, pressed) == (["paused", "paused-and-parked"], "true")
    assert none == "No projection fits the filter."


@pytest.mark.slow
async def test_a_part_is_folded_from_the_keyboard_and_stays_so(chromium: str, database: Database) -> None:
    await in_every_state(database)
    async with opened(chromium, database, LINES) as page:
        await page.value("document.querySelector('[aria-controls=part-trouble]').focus()")
        await page.press("Enter")
        folded = await page.value("document.activeElement.ariaExpanded")
        after = await parts(page)
        await page.call("Page.reload")
        await page.until(
            "document.readyState === 'complete' && document.querySelectorAll('#part-paused tr').length"
        )
        reloaded = await parts(page)

    assert folded == "false"
    assert after == reloaded
    assert after["Needs attention 7"] is None
    assert after["Paused 2"] == ["paused", "paused-and-parked"]


@pytest.mark.slow
async def test_a_line_leads_to_the_page_of_its_projection_and_back(chromium: str, database: Database) -> None:
    await in_every_state(database)
    async with opened(chromium, database, LINES) as page:
        await page.value("document.querySelector('#part-trouble tr:nth-child(7) a').focus()")
        await page.press("Enter")
        holds = await page.until("document.querySelector('.projection .holds li')?.innerText")
        badge = await page.text(".projection .badge")
        command = await page.text(".holds code")
        await page.value("history.back()")
        await page.until("!document.querySelector('[data-view=overview]').hidden")
        back = await page.value(LINES)

    assert badge == STATES["parked"]
    assert holds.startswith("16 sources wait at an event that could not be handled")
    assert command == "projections parked list parked"
    assert back == len(STATES)


@pytest.mark.slow
async def test_the_focus_stays_on_a_line_that_moves(chromium: str, database: Database) -> None:
    await many(database, 3)
    async with opened(chromium, database, LINES) as page:
        await page.value("document.querySelector('.lines tr:nth-child(3) a').focus()")
        await execute(
            database,
            "UPDATE projections.projection_ranges SET failures = 1, error = 'x' "
            "WHERE projection_id = (SELECT projection_id FROM projections.projections WHERE name = 'p000')",
        )
        await page.until("document.querySelector('#part-trouble tr')")
        focused = await page.value("document.activeElement.innerText")

    assert focused == "p002"


@pytest.mark.slow
async def test_a_projection_that_is_gone_says_so(chromium: str, database: Database) -> None:
    there = "document.querySelector('#projection-said').innerText !== 'Loading…'"
    async with opened(chromium, database, there, view="#/projection/a%20%27b%2F%3Cimg%3E") as page:
        said = await page.text("#projection-said")

    assert said.startswith('there is no projection "a \'b/<img>"')
    assert [one for one in page.errors if "404" not in one] == []


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 12, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("width", [390, pytest.param(768, marks=pytest.mark.slow), 1400])
async def test_every_number_of_projections_fits_every_width(
    chromium: str, database: Database, count: int, width: int
) -> None:
    await many(database, count)
    async with opened(chromium, database, f"{LINES} === {count}") as page:
        await page.view(width, 900, phone=width < 500)
        await page.until(f"innerWidth === {width}")
        needed = await page.value("document.documentElement.scrollWidth")
        heights = await page.value(
            "[...document.querySelectorAll('.lines tr')].map(row => row.getBoundingClientRect().height)"
        )
        cut = await page.value(
            "[...document.querySelectorAll('.lines td')].filter(one => one.scrollWidth > one.clientWidth + 1).length"
        )

    assert needed == width
    assert max(heights) <= (90 if width < 500 else 40)
    assert cut == 0


async def test_everything_to_be_operated_has_a_name(chromium: str, database: Database) -> None:
    await in_every_state(database)
    async with opened(chromium, database, LINES) as page:
        tree: dict[str, Any] = await page.call("Accessibility.getFullAXTree")
        header = await page.value(
            "document.querySelector('#overview-table').tHead.innerText.trim().split(/\\s+/)"
        )
    operated = [
        one
        for one in tree["nodes"]
        if not one["ignored"] and one.get("role", {}).get("value") in {"button", "link", "searchbox"}
    ]

    assert len(operated) >= len(STATES) + 5
    assert [one for one in operated if not one.get("name", {}).get("value")] == []
    assert "Filter by name, state, or what is read" in {one["name"]["value"] for one in operated}
    assert header == [
        "Projection",
        "State",
        "Lag",
        "Backlog",
        "Rate",
        "Workers",
        "Ranges",
        "Parked",
        "Version",
    ]


async def test_lines_follow_the_database(chromium: str, database: Database) -> None:
    await many(database, 2)
    async with opened(chromium, database, LINES) as page:
        await happen(database, "a", "b")
        await page.until(
            "[...document.querySelectorAll('.lines tr')].every(row => row.cells[3].innerText === '2')"
        )
        lag = await page.text(".lines tr td:nth-child(3)")

    assert lag != "0 s"


@pytest.mark.slow
async def test_rebuilds_and_journals_are_shown(chromium: str, database: Database) -> None:
    await in_every_state(database)
    await execute(
        database,
        "INSERT INTO projections.rebuilds (projection_id, min_slice, max_slice, version, fence, import_id, "
        "evicted_before, fingerprint, method, started_at) "
        "VALUES (1, 0, 1023, 2, now(), 0, now(), 'x', 'rename', clock_timestamp() - interval '100 s')",
    )
    await execute(
        database,
        "INSERT INTO projections.rebuild_parts (rebuild_id, min_slice, max_slice, events, done) "
        "SELECT 1, n * 256, n * 256 + 255, 1000, n < 2 FROM generate_series(0, 3) AS n",
    )
    async with (
        database.session() as leader,
        opened(
            chromium, database, "document.querySelector('#rebuilds-table tbody tr')", view="#/rebuilds"
        ) as page,
    ):
        interrupted = (await page.value(table("rebuilds-table")))[0]
        await leader.execute("SELECT pg_advisory_lock(hashtext('slice-projections rebuild'), 1)")
        await page.until(
            "document.querySelector('#rebuilds-table tbody td:nth-child(7)').innerText.startsWith('about')"
        )
        led = (await page.value(table("rebuilds-table")))[0]
        await leader.execute("SELECT pg_advisory_unlock_all()")
        await page.value("location.hash = '#/journals'")
        await page.until("!document.querySelector('[data-view=journals]').hidden")
        journals = await page.value(table("journals-table"))

    assert interrupted[:5] == ["paused", "all", "2", "folding, interrupted", "2 of 4 parts, 4,000 events"]
    assert interrupted[6] == "not known yet"
    assert "projections rebuilds cancel paused" in interrupted[7]
    assert (led[3], led[7]) == ("folding", "")
    assert led[6] == "about 0 s"  # as many events as four parts like these two have
    assert journals[0][:3] == ["of this database", "own", "read"]
    assert page.errors == []


@pytest.mark.slow
async def test_a_projection_shows_its_statements_and_what_became_of_its_ranges(
    chromium: str, database: Database
) -> None:
    await many(database, 1)
    statement = "\n    SELECT carrier, count(*) AS flights\n    FROM landed\n    GROUP BY carrier\n"
    async with database.session() as session:
        await offsets.rescale(session, "p000", 5)
        noted = [offsets.NotedReadModel("flights", "public.flights", statement)]
        await offsets.note_read_models(session, 1, 1, noted)
    there = "document.querySelector('.projection')?.hidden === false"
    async with opened(chromium, database, there, view="#/projection/p000") as page:
        shown = await page.text(".statements pre")
        caption = await page.text(".statements figcaption")
        await page.value("document.querySelector('.changes summary').focus()")
        await page.press("Enter")
        change = await page.until("document.querySelector('.changes tbody td:nth-child(2)')?.innerText")

    assert shown == "SELECT carrier, count(*) AS flights\nFROM landed\nGROUP BY carrier"
    assert " ".join(caption.split()) == "flights fills public.flights"
    assert change == "cut into 5 ranges, from 2"
    assert page.errors == []


@pytest.mark.slow
async def test_the_page_begins_with_what_nobody_does(chromium: str, database: Database) -> None:
    async with database.session() as session:
        await offsets.register(session, "delays", "plane", slice_ranges(2))
    shown = "document.querySelector('#vacancies').innerText"
    async with opened(chromium, database, f"{shown} !== ''") as page:
        text, title = await page.value(shown), await page.value("document.title")

    assert text == "No worker runs projection 'delays': start projections worker."
    assert title == "(1) Projections monitor"
