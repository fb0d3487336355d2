"""What is monitored of a projection that reads several journals, while one of them is away."""

from __future__ import annotations

import json

import httpx
import pytest
from starlette.applications import Starlette

import offsets
from journal import Database, JournalUnavailable, Log, connect
from projections.monitoring import snapshot
from projections.monitoring.overview import overview
from projections.monitoring.probes import monitor_probe
from projections.monitoring.web import snapshot_json
from projections.monitoring.web.history import LagHistory
from tests.fixtures.postgres import Databases
from tests.fixtures.projections import EFFECTS, caught_up, execute, happen, recording
from tests.fixtures.proxy import proxy_to


async def test_the_part_whose_journal_is_away_is_left_out_and_named(
    dsn: str, database: Database, databases: Databases, template: str
) -> None:
    with databases.fresh(template) as beside:
        async with proxy_to(dsn) as proxy, connect(proxy.dsn) as away, connect(beside) as read_side:
            await execute(read_side, EFFECTS)
            await happen(database, "a")
            await happen(read_side, "a")
            journals = [Log(away, "shop"), read_side]
            await caught_up(read_side, recording(), journal=journals)
            await happen(read_side, "b")
            await proxy.lead_to("host=/nowhere dbname=none")

            async with read_side.session() as session:
                seen = await snapshot(session, by_slice=True, journal=journals, partly=True)
                assert [(one.name, one.backlog) for one in seen.projections] == [("p@journal", 1)]
                assert list(seen.unreached) == ["p@shop"]
                looked = await overview(session, journal=journals)
                page = json.loads(snapshot_json.live(looked, LagHistory(), 1.0, {}))
                told = {one["name"]: one for one in page["projections"]}
                assert told["p@journal"]["backlog"] == 1
                assert told["p@shop"]["state"] == "unreachable"
                assert told["p@shop"]["reason"].startswith("journal 'shop': no connection")
                with pytest.raises(JournalUnavailable, match="journal 'shop'"):
                    await snapshot(session, journal=journals)
                with pytest.raises(
                    JournalUnavailable, match="journal 'shop'"
                ):  # there is nothing else to show
                    await snapshot(session, ["p@shop"], journal=journals, partly=True)
                assert await offsets.known(session, ["p", "q", "p@shop"]) == ["p@shop", "p@journal"]

            probe = monitor_probe(read_side, journals)
            app = Starlette(routes=probe.routes, lifespan=probe.lifespan)
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://monitor"
            ) as client:
                metrics = (await client.get("/metrics")).text
                assert 'projection="p@shop"} 0.0' in metrics
                assert 'projection="p@journal"} 1.0' in metrics
                assert "projections_journal_up" in metrics
                lagging = await client.get("/lagz")
                assert lagging.status_code == 503
                assert "journal 'shop': no connection" in lagging.json()["reason"]
