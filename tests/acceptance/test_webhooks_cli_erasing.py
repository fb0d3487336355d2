"""`projections webhooks erase`, and messages that expire, as a user runs them."""

from __future__ import annotations

import json
from typing import Any

from journal import Database
from projections.webhooks.claims import expire
from tests.fixtures.commands import called
from tests.fixtures.projections import execute
from tests.fixtures.webhook_delivery import fanned_out, sent
from tests.fixtures.webhooks import endpoint


def ran(*arguments: str, code: int = 0) -> str:
    result = called("webhooks", *arguments)
    assert result.returncode == code, result.stderr
    return result.stdout + result.stderr


def values(*arguments: str) -> Any:
    return json.loads(ran(*arguments, "--json"))


async def test_one_message_is_erased_and_shown_so(database: Database, dsn: str) -> None:
    await endpoint(database, "ep_1")
    (event,) = await sent(database, data={"who": "Ada"}, message_id="order-7")
    assert values("erase", "acme", "order-7", "--yes", "--dsn", dsn) == {
        "erased": 1, "in_flight": 0, "gone": 0,
    }  # fmt: skip
    assert "erased at" in ran("events", "show", event, "--dsn", dsn)
    shown = ran("deliveries", "show", "ep_1", event, "--dsn", dsn)
    assert "erased" in shown
    assert "Ada" not in shown
    assert "was erased" in ran("deliveries", "retry", "ep_1", event, "--dsn", dsn, code=1)
    assert "there is no message" in ran("erase", "globex", event, "--yes", "--dsn", dsn, code=1)


async def test_many_are_erased_and_one_is_asked_which(database: Database, dsn: str) -> None:
    await endpoint(database, "ep_1")
    await sent(database, number=3, order_key="customer-17")
    await sent(database, number=2)
    for wrong in ([], ["x", "--all"], ["--all", "--order-key", "k"]):
        assert "say which" in ran("erase", "acme", *wrong, "--yes", "--dsn", dsn, code=2)
    erased = ran("erase", "acme", "--order-key", "customer-17", "--yes", "--dsn", dsn)
    assert erased == "messages erased: 3\n"
    assert ran("erase", "acme", "--all", "--yes", "--dsn", dsn) == "messages erased: 2\n"
    assert ran("erase", "acme", "--all", "--yes", "--dsn", dsn) == "messages erased: 0\n"


async def test_a_message_expires(database: Database, dsn: str) -> None:
    await endpoint(database, "ep_1")
    at = "2099-01-31T12:00:00+00:00"
    ran("send", "acme", "flight.delayed", "{}", "--expires-at", at, "--dsn", dsn)
    await fanned_out(database)
    (one,) = values("deliveries", "--dsn", dsn)["deliveries"]
    assert (one["state"], one["expires_at"]) == ("pending", at)
    await execute(database, "UPDATE projections.webhook_deliveries SET expires_at = now()")
    async with database.session() as session:
        await expire(session)
    assert len(values("deliveries", "--state", "expired", "--dsn", dsn)["deliveries"]) == 1
    assert values("stats", "--dsn", dsn)["endpoints"][0]["expired"] == 1


def test_an_expiry_that_cannot_be_is_refused() -> None:
    for wrong in ("price.*=-5m", "a..b=5m", "soon"):
        assert "Invalid value" in ran("deliver", "--expire-after", wrong, code=2)
    assert "--only-send" in ran("deliver", "--only-send", "--expire-after", "5m", code=2)
