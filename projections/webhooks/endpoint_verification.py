"""Whether a URL wants webhooks: it is sent a challenge, and has to give it back."""

from __future__ import annotations

import json
import secrets as random_source
from datetime import timedelta
from typing import NamedTuple

from journal import Database
from projections.webhooks.endpoints import Endpoints
from projections.webhooks.response_reading import Reply
from projections.webhooks.retry_policy import is_success
from projections.webhooks.sender import Sender
from projections.webhooks.signed_request import request_to
from projections.webhooks.topics import CHALLENGE

_STORE = """
UPDATE projections.webhook_endpoints AS e SET verified_url = $3
WHERE e.endpoint_id = $1 AND e.tenant = $2 AND e.url = $3 RETURNING TRUE
"""


class Verified(NamedTuple):
    """The outcome of a challenge."""

    verified: bool
    reply: Reply


async def verify_endpoint(
    database: Database,
    endpoints: Endpoints,
    sender: Sender,
    tenant: str | None,
    endpoint_id: str,
    *,
    within: timedelta | None = None,
) -> Verified:
    """
    Send an endpoint a challenge, signed as its deliveries are; where it gives that back, its URL is verified.

    The body is as usual, of the topic ``webhook.verification``; its ``data`` has a ``challenge``. The answer is a 2xx
    whose body is the challenge, as text or as JSON: ``{"challenge": "..."}``. Another URL has to be verified again.
    The answer is waited for as long as the endpoint's time-out, or ``within`` where that is less.

    Args:
        database: The database that stores the endpoint.
        endpoints: Where the endpoint and its secrets are found.
        sender: What sends the challenge, as deliveries are sent.
        tenant: The tenant of the endpoint; None is for administrators.
        endpoint_id: The endpoint's id.
        within: The longest time to wait for the answer; None: the endpoint's time-out.

    Raises:
        NotFound: The tenant has none of this id.
        InvalidValue: The cipher is not the one that its secrets were kept with.
        ProjectionsError: It could not be sent from here.
    """
    one, secrets = await endpoints.get(tenant, endpoint_id), await endpoints.secrets(tenant, endpoint_id)
    challenge = random_source.token_urlsafe(32)
    credentials = await endpoints.credentials(tenant, endpoint_id)
    request = request_to(one, secrets, CHALLENGE, json.dumps({"challenge": challenge}), credentials)
    timeout = request.timeout if within is None else min(within, request.timeout)
    reply = await sender.send(request._replace(timeout=timeout))
    if not is_success(reply.code) or not _gives_back(challenge, reply.body):
        return Verified(verified=False, reply=reply)
    async with database.session() as session:
        stored = await session.fetchval(_STORE, endpoint_id, one.tenant, one.url)
    return Verified(bool(stored), reply)


def _gives_back(challenge: str, body: str) -> bool:
    if body.strip() == challenge:
        return True
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("challenge") == challenge
