"""The page for tenants in a real browser: what a user sees, clicks and types, what axe finds, and how wide it is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from journal import Database
from projections.http.addresses import Address
from projections.http.connection_limits import ConnectionLimits
from projections.http.serving import listening
from projections.webhooks import Endpoints, EndpointSettings
from projections.webhooks.api import ApiSettings
from projections.webhooks.credentials import OAuthFacts
from projections.webhooks.page import PageLinks, PageTheme, webhooks_page
from tests.fixtures.axe import FOUND
from tests.fixtures.certificates import Authority
from tests.fixtures.chromium import EXECUTABLE, Page, PageLeft, opened_page
from tests.fixtures.webhook_page import KEY, TOPICS
from tests.fixtures.webhooks_api import rows_of

pytestmark = pytest.mark.skipif(EXECUTABLE is None, reason="no chromium on PATH")

LOADED = "document.readyState === 'complete'"
THEME = PageTheme(name="Example Air", accent="#7a1fa2", accent_dark="#d9a6f2", home="https://air.example.com")
PICTURES = os.environ.get("PAGE_PICTURES")
"""A folder for pictures of every page, to look at."""


_EXPIRED = """
UPDATE projections.webhook_credentials SET facts = (facts::jsonb || '{"not_after": "2026-01-01T00:00:00Z"}')::json
WHERE kind = 'certificate'
"""


@asynccontextmanager
async def opened(chromium: str, database: Database) -> AsyncIterator[tuple[Page, str]]:
    """A browser of acme that has come by a link, and where the page is."""
    links: list[PageLinks] = []
    served = listening(Address("127.0.0.1", 0), _Late(database, links), ConnectionLimits())
    async with opened_page(chromium) as page, served as address:
        links.append(PageLinks(f"http://{address}", [KEY]))
        await page.view(1400, 1000)
        await page.open(links[0].link("acme"))
        await page.arrives("document.querySelector('button.primary')")
        await page.click("button.primary")
        await page.arrives("document.querySelector('nav.tabs')")
        yield page, f"http://{address}"


class _Late:
    """The page, made once it is known where it is."""

    def __init__(self, database: Database, links: list[PageLinks]) -> None:
        self._database, self._links = database, links
        self._app: object | None = None

    async def __call__(self, scope: dict[str, object], receive: object, send: object) -> None:
        if scope["type"] == "lifespan":
            return
        self._app = self._app or webhooks_page(
            self._database, self._links[0], theme=THEME, topics=TOPICS, settings=ApiSettings(tenant_rate=None)
        )
        await self._app(scope, receive, send)  # type: ignore[operator]


async def _filled(database: Database) -> dict[str, str]:
    """Endpoints, attempts and failed deliveries of acme, and the pages that show them."""
    rows = await rows_of(database, "acme", payload='{"flight":"UA 1545","minutes":12}')
    long = "https://hooks.example.com/" + "a-rather-long-path/" * 6
    settings = EndpointSettings(
        url=long,
        description="Billing",
        topics=("flight.delayed", "flight.cancelled"),
        filter={"data": {"minutes": {"$gte": 30}}},
    )
    await Endpoints(database).create("acme", settings)
    async with database.transaction() as session:
        for number in range(3):
            await session.execute(
                "UPDATE projections.webhook_attempts SET attempted_at = $1, status = $2 WHERE attempt_id = $3",
                datetime.now(UTC) - timedelta(hours=number), ("failed", "success")[number % 2],
                f"att-{rows.event_id}" if number == 0 else f"att-{(rows.done_id, rows.pending_id)[number - 1]}",
            )  # fmt: skip
    await Endpoints(database).set_certificate("acme", rows.endpoint_id, Authority().client("acme " * 12))
    client = OAuthFacts(token_url=long[:200], client_id="acme", scope="hooks")
    await Endpoints(database).set_oauth("acme", rows.endpoint_id, client, "s3cret")
    async with database.session() as session:  # it has expired since it was set
        await session.execute(_EXPIRED)
    one, attempt, event = (
        f"/endpoints/{rows.endpoint_id}",
        f"/attempts/{rows.attempt_id}",
        f"/events/{rows.event_id}",
    )
    return {
        "endpoints": "/", "endpoint": one, "new": "/endpoints/new", "remove": f"{one}/remove",
        "missing": "/endpoints/none",
        "certificate": f"{one}/certificate", "tokens": f"{one}/oauth", "erase": f"{event}/erase",
        "change": f"{one}/change", "rotate": f"{one}/rotate", "test": f"{one}/test", "topics": "/topics",
        "topic": "/topics/flight.delayed",
        "attempts": "/attempts", "attempt": attempt, "event": event, "failed": "/failed", "statistics": "/statistics",
    }  # fmt: skip


async def _go(page: Page, url: str) -> None:
    await page.value("document.documentElement.dataset.old = ''")
    await page.open(url)
    await page.arrives(f"{LOADED} && !('old' in document.documentElement.dataset)")


@pytest.mark.slow
async def test_an_endpoint_is_added_by_keyboard_and_its_secret_is_there_once(
    chromium: str, database: Database
) -> None:
    async with opened(chromium, database) as (page, _):
        await page.click("a.button.primary")
        await page.arrives("document.querySelector('#url')")
        await page.click("input[value='flight.delayed']")
        await page.value("document.querySelector('#url').focus()")
        await page.type("https://127.0.0.1/hook")
        await page.press("Enter")
        await page.arrives("document.querySelector('#problem')")
        assert "That was not done" in await page.text("#problem")
        await page.arrives("document.activeElement.id === 'problem'")

        await page.value("document.querySelector('#url').select()")
        await page.type("https://example.com/hook")
        await page.press("Enter")
        await page.arrives("document.querySelector('#secret')")
        secret = await page.text("#secret")
        assert secret.startswith("whsec_")
        await page.click("a.button.primary")
        await page.arrives("document.querySelector('.secrets')")
        assert secret not in await page.text("main")
        (endpoint,) = await Endpoints(database).list("acme")
        assert endpoint.url == "https://example.com/hook"

        await page.click("form[action$='/pause'] button")
        await page.arrives("document.querySelector('form[action$=\"/resume\"]')")
        assert "The endpoint is paused" in await page.text(".said")
        errors = [one for one in page.errors if " 422 " not in one]
        assert errors == []


@pytest.mark.slow
async def test_it_works_without_scripts(chromium: str, database: Database) -> None:
    async with opened(chromium, database) as (page, site):
        await page.call("Emulation.setScriptExecutionDisabled", value=True)
        await page.open(f"{site}/endpoints/new")
        await _shown(page, "#url")
        await page.value("document.querySelector('input[name=topic]').checked = true")
        await page.value("document.querySelector('#url').focus()")
        await page.type("https://example.com/hook")
        await page.press("Enter")
        secret = await _shown(page, "#secret")
        assert await page.value("document.querySelector('[data-copy]').hidden")
    (endpoint,) = await Endpoints(database).list("acme")
    assert [each.reveal() for each in await Endpoints(database).secrets("acme", endpoint.endpoint_id)] == [
        secret
    ]


async def _shown(page: Page, selector: str) -> str:
    """The text of an element as soon as it is there, asked from outside of the page."""
    async with asyncio.timeout(300):
        while True:
            with suppress(PageLeft):
                if await page.value(f"document.querySelector('{selector}') !== null"):
                    return await page.text(selector)


async def test_nobody_has_a_cookie_that_scripts_read_or_a_referrer(chromium: str, database: Database) -> None:
    async with opened(chromium, database) as (page, _):
        assert await page.value("document.cookie") == ""
        assert "token" not in await page.value("document.referrer")
        assert "token" not in await page.value("location.href")


SCREENS = {
    "phone": (390, False),
    "phone in the dark": (390, True),
    "wide": (1400, False),
    "wide in the dark": (1400, True),
}
THIRDS = {"endpoints": slice(0, 5), "settings and topics": slice(5, 13), "what was tried": slice(13, None)}


@pytest.mark.daily(3)
@pytest.mark.parametrize("third", THIRDS)
@pytest.mark.parametrize("screen", SCREENS)
async def test_every_page_fits_and_axe_finds_nothing(
    chromium: str, axe: str, database: Database, screen: str, third: str
) -> None:
    width, dark = SCREENS[screen]
    pages = [*(await _filled(database)).items()][THIRDS[third]]
    async with opened(chromium, database) as (page, site):
        await page.view(width, 900, dark=dark, phone=width == 390)
        for name, path in pages:
            await _go(page, site + path)
            await page.value("document.querySelectorAll('details').forEach(one => { one.open = true; })")
            if PICTURES:
                picture = Path(PICTURES, f"{name} {screen}.png".replace(" ", "-"))
                picture.write_bytes(await page.screenshot())
            assert await page.value("document.documentElement.scrollWidth <= innerWidth"), name
            await page.value(f"{axe};true")
            assert await page.value(FOUND) == [], name
        assert [one for one in page.errors if " 404 " not in one] == []
