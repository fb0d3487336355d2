"""What axe, which looks for what keeps people out, finds on the monitor's page."""

from __future__ import annotations

import pytest

from journal import Database, connect
from projections.subscriptions import create_group
from tests.fixtures.axe import FOUND
from tests.fixtures.monitor import opened
from tests.fixtures.projections import EFFECTS, NO_RETRY, caught_up, execute, failing, happen, recording
from tests.fixtures.states import in_every_state
from tests.fixtures.webhooks import deliver_events, end_all, endpoint, take

_REBUILD = """
INSERT INTO projections.rebuilds (
    projection_id, min_slice, max_slice, version, fence, import_id, evicted_before, fingerprint, method
) VALUES (1, 0, 1023, 2, now(), 0, now(), 'x', 'rename')
"""


VIEWS = {
    "all projections": ("", "document.querySelectorAll('.lines tr').length > 5"),
    "a projection": ("#/projection/p", "document.querySelectorAll('.parked tbody tr').length"),
    "rebuilds": ("#/rebuilds", "document.querySelectorAll('#rebuilds-table tbody tr').length"),
    "journals": ("#/journals", "document.querySelectorAll('#journals-table tbody tr').length"),
    "groups": ("#/groups", "document.querySelectorAll('#groups-table tbody tr').length"),
    "webhooks": ("#/webhooks", "document.querySelectorAll('#dead-deliveries-table tbody tr').length > 1"),
    "workers": ("#/workers", "document.querySelectorAll('#workers tbody tr').length"),
}


@pytest.mark.daily(2)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("shown", VIEWS)
async def test_axe_finds_nothing(chromium: str, axe: str, dsn: str, shown: str, scheme: str) -> None:
    view, there = VIEWS[shown]
    async with connect(dsn) as database:
        await _filled(database)
        async with opened(chromium, database, there, view=view) as page:
            await page.call(
                "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
            )
            await page.value("document.querySelectorAll('details').forEach(one => { one.open = true; })")
            await page.value(f"{axe};true")

            assert await page.value(FOUND) == []


async def _filled(database: Database) -> None:
    """Something of everything: states, parked sources, events that wait, groups, endpoints with dead letters."""
    await in_every_state(database)
    await execute(database, _REBUILD)
    async with database.transaction() as session:
        await create_group(session, "g", ranges=2)
    await execute(database, EFFECTS)
    await happen(database, "a", "b")
    await caught_up(database, recording(failing(("a", 1)), recovery=NO_RETRY), ranges=4)
    await happen(database, "b")
    await endpoint(database, "e", url="https://hooks.example.com/T000/secret")
    await endpoint(database, "other", tenant="a\x1b[31m\u202eb")
    await deliver_events(database, "e", ids=["first", "second"])
    await end_all(database, await take(database), "dead", code="500")
