"""A stream as a browser's own EventSource reads it, from a server that is stopped and killed meanwhile."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from journal import Database
from tests.fixtures.chromium import EXECUTABLE, Page, opened_page
from tests.fixtures.commands import environment
from tests.fixtures.ports import unused_port
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.subscriptions import landed_and_matched

pytestmark = pytest.mark.skipif(EXECUTABLE is None, reason="no chromium on PATH")

APP = """
import asyncio, sys
from datetime import timedelta

import uvicorn
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from projections import connect
from projections.subscriptions.listening import Interest, Listener
from projections.subscriptions.sse import EventStream, StreamSettings

PAGE = '''<!doctype html><title>planes</title><script>
window.got = []; window.opened = 0
const source = new EventSource("/events")
source.onopen = () => { window.opened += 1 }
source.onmessage = message => {
    const event = JSON.parse(message.data)
    window.got.push(`${event.source_id} ${event.seq_nr} ${event.payload.text ?? ""}`)
    window.last = message.lastEventId
}
</script>'''

async def main(port: int, dsn: str) -> None:
    settings = StreamSettings(retry=timedelta(milliseconds=100))
    async with connect(dsn) as database, Listener(database, "feed") as listener:
        stream = EventStream(listener, lambda _: Interest(topics=["Landed"]), settings=settings)
        app = Starlette(
            routes=[Route("/", lambda _: HTMLResponse(PAGE)), Route("/events", stream)],
            lifespan=lambda _: stream.running(),
        )
        await uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning")).serve()

asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
"""


class Served:
    """A process that serves the page."""

    def __init__(self, path: Path, port: int, dsn: str) -> None:
        self.url = f"http://127.0.0.1:{port}/"
        self._command = [sys.executable, str(path), str(port), dsn]
        self._port = port
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(*self._command, env=environment())
        async with asyncio.timeout(300):
            while True:
                assert self._process.returncode is None
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", self._port)
                    writer.close()
                    return

    async def end(self, number: signal.Signals) -> int:
        """Send a signal; returns how the process has ended."""
        assert self._process is not None
        self._process.send_signal(number)
        async with asyncio.timeout(300):
            return await self._process.wait()

    async def gone(self) -> None:
        if self._process is not None and self._process.returncode is None:
            await self.end(signal.SIGKILL)


@pytest.fixture
async def server(tmp_path: Path, dsn: str) -> AsyncIterator[Served]:
    path = tmp_path / "app.py"
    path.write_text(APP)
    served = Served(path, unused_port(), dsn)
    await served.start()
    yield served
    await served.gone()


@asynccontextmanager
async def opened(chromium: str, server: Served) -> AsyncIterator[Page]:
    async with opened_page(chromium) as page:
        await page.open(server.url)
        await page.until("window.opened === 1")
        yield page


async def got(page: Page, number: int) -> list[str]:
    await page.until(f"window.got.length >= {number}")
    return list(await page.value("window.got"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGTERM, -signal.SIGTERM, marks=pytest.mark.slow),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
)
async def test_a_browser_gets_each_event_once_over_restarts_of_the_server(
    chromium: str, database: Database, server: Served, number: signal.Signals, code: int
) -> None:
    async with opened(chromium, server) as page:
        await landed_and_matched(database, "a", "b", text="line\r\nbreak\u2028</script>")
        await got(page, 2)
        for round_ in range(2):
            assert await server.end(number) == code
            await landed_and_matched(database, "a", "b", text="meanwhile")
            await server.start()
            await page.until(f"window.opened === {round_ + 2}")
            await landed_and_matched(database, "a", text="after")
            await got(page, 2 + 3 * (round_ + 1))
        await landed_and_matched(database, "last")
        seen = await got(page, 9)

    assert seen == [
        "a 1 line\r\nbreak\u2028</script>",
        "b 1 line\r\nbreak\u2028</script>",
        "a 2 meanwhile",
        "b 2 meanwhile",
        "a 3 after",
        "a 4 meanwhile",
        "b 3 meanwhile",
        "a 5 after",
        "last 1 ",
    ]


@pytest.mark.slow
async def test_a_browser_that_was_not_sent_anything_yet_misses_nothing(
    chromium: str, database: Database, server: Served
) -> None:
    async with opened(chromium, server) as page:
        await server.end(signal.SIGTERM)
        await landed_and_matched(database, "a")
        await server.start()

        assert await got(page, 1) == ["a 1 "]


@pytest.mark.slow
async def test_a_browser_that_can_not_go_on_is_told_to_give_up(
    chromium: str, database: Database, server: Served
) -> None:
    async with opened(chromium, server) as page:
        await server.end(signal.SIGTERM)
        await execute(database, "UPDATE projections.subscriptions SET active_at = now() - interval '1 day'")
        assert await fetchval(database, "SELECT projections._expire_subscriptions_v1()") == 1
        await server.start()

        await page.until("source.readyState === EventSource.CLOSED")
        assert await page.value("window.opened") == 1
