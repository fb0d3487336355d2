"""A worker that a test kills: runs one projection until then."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from journal import connect
from projections import Backoff, RunSettings, run
from tests.fixtures.projections import recording


async def main(dsn: str, ranges: int) -> None:
    settings = RunSettings(
        lease=timedelta(milliseconds=300),
        heartbeat=timedelta(milliseconds=100),
        save_horizon_every=timedelta(milliseconds=200),
        restart=Backoff(timedelta(milliseconds=20), timedelta(milliseconds=200)),
    )
    async with connect(dsn) as database:
        print("running", flush=True)
        await run(database, recording(name="chaos", batch_size=20), ranges=ranges, settings=settings)


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
