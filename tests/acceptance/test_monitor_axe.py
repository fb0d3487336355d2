"""What axe, which looks for what keeps people out, finds on the monitor's page."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from journal import Database, connect
from tests.fixtures.chromium import EXECUTABLE
from tests.fixtures.monitor import opened
from tests.fixtures.projections import EFFECTS, NO_RETRY, caught_up, execute, failing, happen, recording
from tests.fixtures.webhooks import deliver_events, end_all, endpoint, take

FOUND = """
axe.run().then(found => found.violations.map(one => [one.id, ...one.nodes.map(node => node.target.join(" "))]))
"""


@pytest.fixture(scope="module")
def axe() -> str:
    """The script, where npm has it."""
    npm = shutil.which("npm")
    if EXECUTABLE is None or npm is None:
        pytest.skip("no chromium, or no npm on PATH")
    asked = subprocess.run([npm, "root", "--global"], capture_output=True, text=True, check=True)
    folder = os.environ.get("AXE_CORE", f"{asked.stdout.strip()}/axe-core")
    script = Path(folder, "axe.min.js")
    if not script.exists():
        pytest.skip("no axe-core: npm install --global axe-core, or say in AXE_CORE where it is")
    return script.read_text()


@pytest.mark.daily(1)
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing(chromium: str, axe: str, dsn: str, scheme: str) -> None:
    async with connect(dsn) as database:
        await _filled(database)
        async with opened(chromium, database) as page:
            await page.call(
                "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
            )
            await page.until("document.querySelectorAll('.parked tbody tr').length > 1")
            await page.value("document.querySelectorAll('details').forEach(one => { one.open = true; })")
            await page.value(f"{axe};true")

            assert await page.value(FOUND) == []


async def _filled(database: Database) -> None:
    """Something of everything: parked sources, events that wait, endpoints with dead letters."""
    await execute(database, EFFECTS)
    await happen(database, "a", "b")
    await caught_up(database, recording(failing(("a", 1)), recovery=NO_RETRY), ranges=4)
    await happen(database, "b")
    await endpoint(database, "e", url="https://hooks.example.com/T000/secret")
    await endpoint(database, "other", tenant="a\x1b[31m\u202eb")
    await deliver_events(database, "e", ids=["first", "second"])
    await end_all(database, await take(database), "dead", code="500")
