"""What tests of the wire share: a sender that may connect to this machine, and requests for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from projections.webhooks.addresses import AddressRules
from projections.webhooks.sender import HttpSender, Outgoing, Reply

LOCAL = AddressRules(allow=("127.0.0.0/8",))
SHORT = timedelta(milliseconds=200)
LONG = timedelta(seconds=20)
"""For what must not depend on how busy the machine is."""


@asynccontextmanager
async def sending(rules: AddressRules = LOCAL, **options: Any) -> AsyncIterator[HttpSender]:
    async with HttpSender(rules, **options) as sender:
        yield sender


def outgoing(
    url: str,
    body: bytes = b'{"a": 1}',
    *headers: tuple[str, str],
    timeout: timedelta = LONG,
    connect_timeout: timedelta = LONG,
) -> Outgoing:
    return Outgoing(url, headers, body, timeout, connect_timeout)


async def sent(url: str, *, timeout: timedelta = LONG, **options: Any) -> Reply:
    """Send one request with a sender of its own."""
    async with sending(**options) as sender:
        return await sender.send(outgoing(url, timeout=timeout))
