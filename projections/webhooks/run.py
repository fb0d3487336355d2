"""All of webhooks in one process: fan-out, delivery, schedules, and what one process at a time does for all."""

from __future__ import annotations

import asyncio
from typing import Any

from journal import Database
from journal.tasks import together
from projections.running import Observers, RunSettings, run
from projections.webhooks.deliverer import deliver
from projections.webhooks.delivery_observer import DeliveryObserver
from projections.webhooks.duties import Duties
from projections.webhooks.encryption import Cipher
from projections.webhooks.expiry import ExpiresAfter
from projections.webhooks.fan_out import FanOut
from projections.webhooks.sender import Sender
from projections.webhooks.settings import DeliverySettings
from projections.webhooks.ticks import Ticks


async def run_webhooks(
    database: Database,
    sender: Sender,
    *definitions: Any,
    ranges: int = 1,
    expires_after: ExpiresAfter = None,
    cipher: Cipher | None = None,
    settings: DeliverySettings | None = None,
    run_settings: RunSettings | None = None,
    delivery_observer: DeliveryObserver | None = None,
    observer: Observers = (),
    stop: asyncio.Event | None = None,
) -> None:
    """
    Run webhooks until stopped, together with all processes that do on the same database.

    Each makes deliveries of the ranges that it holds, and sends what is due and what is scheduled; one of all cleans
    up. A process that only sends is ``projections webhooks deliver --only-send``.

    Args:
        database: Where the journal and the endpoints are; the pool holds the ranges and seven connections more.
        sender: Makes requests, such as :class:`HttpSender`. It stays open.
        definitions: A :class:`FanOut` for each entity type whose events are for webhooks, alongside the messages of
            :func:`send`, and any other projections.
        ranges: Cut the slices of a fan-out that has never run into this number of ranges.
        expires_after: How long messages of :func:`send` are good for that do not say it, as for :class:`FanOut`.
        cipher: Decrypts the secrets of endpoints, as the one that encrypted them; None: they are not encrypted.
        settings: Limits and times of deliveries; None: the defaults.
        run_settings: Limits and times of projections, as for :func:`projections.run`.
        delivery_observer: Is called with every attempt.
        observer: Is called with what projections do; several are a list.
        stop: Ends it when set: batches and requests on their way are waited for.

    Raises:
        InvalidHandler: A definition is not a projection, or two have one name.
        SchemaError: The database's schema is missing, or of another version than this library.
    """
    ended = stop or asyncio.Event()

    async def project() -> None:
        await run(
            database, FanOut(expires_after=expires_after), *definitions,
            ranges=ranges, settings=run_settings, observer=observer, stop=ended,
        )  # fmt: skip

    async with together() as group:
        group.create_task(project())
        group.create_task(
            deliver(
                database, sender, cipher=cipher, settings=settings, observer=delivery_observer, stop=ended
            )
        )
        group.create_task(Ticks(database).run(ended))
        group.create_task(Duties(database).run(ended))
