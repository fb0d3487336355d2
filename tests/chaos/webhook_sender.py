"""A process that delivers webhooks, to be rude to: it can be made to stop for good at a step, and says so."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from datetime import timedelta
from typing import Any

from journal import ConnectionSettings, PollPacing, connect
from projections import Backoff, RunSettings, run
from projections.webhooks.addresses import AddressRules
from projections.webhooks.deliverer import deliver
from projections.webhooks.fan_out import FanOut
from projections.webhooks.outgoing import Outgoing
from projections.webhooks.response_reading import Reply
from projections.webhooks.sender import HttpSender
from projections.webhooks.settings import DeliverySettings
from tests.chaos.worker import LEASE

LOCAL = AddressRules(allow=("127.0.0.0/8",))
SETTINGS = DeliverySettings(
    margin=timedelta(seconds=1),
    pacing=PollPacing(timedelta(milliseconds=5), timedelta(milliseconds=50)),
    reap_every=timedelta(milliseconds=200),
    grace=timedelta(seconds=5),
    restart=Backoff(timedelta(milliseconds=20), timedelta(milliseconds=200)),
)


class Pausing(HttpSender):
    """Comes to a step (``before`` a request, or ``after`` its answer), says so, and stays there."""

    step = ""

    async def send(self, outgoing: Outgoing) -> Reply:
        await self._stay_at("before")
        reply = await super().send(outgoing)
        await self._stay_at("after")
        return reply

    async def _stay_at(self, step: str) -> None:
        if step == self.step:
            print(step, flush=True)
            await asyncio.Event().wait()


async def main(dsn: str, driver: Any, what: str = "deliver") -> None:
    """
    Run until told to end.

    Args:
        dsn: The database.
        driver: asyncpg or psycopg.
        what: ``fan-out``, ``deliver``, or a step to stay at.
    """
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with connect(dsn, ConnectionSettings(driver=driver, max_connections=8)) as database:
        print("running", flush=True)
        if what == "fan-out":
            settings = RunSettings(
                lease=LEASE, heartbeat=timedelta(milliseconds=100), restart=SETTINGS.restart,
                save_horizon_every=timedelta(milliseconds=200),
            )  # fmt: skip
            await run(database, FanOut(), ranges=4, settings=settings, stop=stop)
            return
        async with Pausing(LOCAL) as sender:
            sender.step = what
            await deliver(database, sender, settings=SETTINGS, stop=stop)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(main(*sys.argv[1:]))
