"""Messages that expire, and messages that are erased, over the API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from journal import Database
from projections.webhooks.claims import expire
from tests.fixtures.projections import execute
from tests.fixtures.webhook_delivery import fanned_out, sent
from tests.fixtures.webhooks import endpoint
from tests.fixtures.webhooks_api import ADMIN, TOKENS, Api, application


async def test_a_message_says_when_it_expires_and_is_listed_as_expired(database: Database) -> None:
    await endpoint(database, "ep_1")
    at = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0)
    ask = Api(application(database), TOKENS["acme"])
    body = {"topic": "t", "data": {}, "expires_at": at.isoformat()}
    await ask("POST", "/v1/messages", body, 202)
    await fanned_out(database)
    (found,) = (await ask("GET", "/v1/deliveries", status=200)).json()["data"]
    assert (found["state"], datetime.fromisoformat(found["expires_at"])) == ("pending", at)

    await execute(database, "UPDATE projections.webhook_deliveries SET expires_at = now()")
    async with database.session() as session:
        await expire(session)
    (found,) = (await ask("GET", "/v1/deliveries?states=expired", status=200)).json()["data"]
    assert (found["state"], found["erased"]) == ("expired", False)
    refused = await ask("POST", f"/v1/endpoints/ep_1/deliveries/{found['event_id']}/retry", status=400)
    assert refused.json()["code"] == "not_retriable"
    stats = (await ask("GET", "/v1/endpoints/ep_1/stats", status=200)).json()
    assert (stats["expired"], stats["failures"]) == (1, 0)
    early = body | {"not_before": (at + timedelta(hours=1)).isoformat()}
    assert (await ask("POST", "/v1/messages", early, 422)).json()["code"] == "invalid_message"


@pytest.mark.slow
async def test_a_message_is_erased_by_its_tenant_alone(database: Database) -> None:
    await endpoint(database, "ep_1")
    (event,) = await sent(database, data={"who": "Ada"}, message_id="order-7")
    app = application(database)
    for path in (event, "order-7"):
        await Api(app, TOKENS["globex"])("POST", f"/v1/messages/{path}/erase", status=404)
    ask = Api(app, TOKENS["acme"])
    await ask("POST", "/v1/messages/order-7/erase", status=204)
    await ask("POST", f"/v1/messages/{event}/erase", status=204)
    shown = (await ask("GET", f"/v1/events/{event}", status=200)).json()
    assert (shown.get("data"), shown["erased_at"] is not None) == (None, True)
    (listed,) = (await ask("GET", "/v1/events?include=data", status=200)).json()["data"]
    assert "data" not in listed or listed["data"] is None
    found = (await ask("GET", f"/v1/endpoints/ep_1/deliveries/{event}", status=200)).json()
    assert (found["state"], found["erased"], found["data"]) == ("erased", True, None)
    refused = await ask("POST", f"/v1/endpoints/ep_1/deliveries/{event}/retry", status=400)
    assert (refused.json()["code"], "erased" in refused.json()["detail"]) == ("not_retriable", True)


async def test_many_are_erased_by_what_they_have_in_common(database: Database) -> None:
    await endpoint(database, "ep_1")
    await sent(database, number=3, order_key="customer-17")
    await sent(database, number=2)
    app = application(database)
    ask = Api(app, TOKENS["acme"])
    await ask("POST", "/v1/messages/erase", {}, 422)
    await ask("POST", "/v1/messages/erase", status=422)
    await ask("POST", "/v1/messages/erase", {"order_key": None}, 422)
    await ask("POST", "/v1/messages/erase", {"tenant": "acme"}, 422)
    erased = (await ask("POST", "/v1/messages/erase", {"order_key": "customer-17"}, 202)).json()
    assert erased == {"messages": 3, "complete": True}
    body = {"since": "2020-01-01T00:00:00Z", "tenant": "acme"}
    erased = (await Api(app, ADMIN)("POST", "/v1/messages/erase", body, 202)).json()
    assert erased == {"messages": 2, "complete": True}
