"""``projections webhooks endpoints test``: one request to an endpoint, and its answer."""

from __future__ import annotations

from typing import Annotated

import click

from journal import Database
from projections.terminal.commands import Opt, derived
from projections.terminal.options import text_of
from projections.terminal.output import Answer, picked, seconds, shortened
from projections.webhooks.commands.options import Addresses, EndpointId, whole_endpoint_id
from projections.webhooks.egress import proxy_from_environment
from projections.webhooks.encryption import cipher_from_environment
from projections.webhooks.endpoint_verification import verify_endpoint
from projections.webhooks.endpoints import Endpoints
from projections.webhooks.retry_policy import is_success
from projections.webhooks.sender import HttpSender
from projections.webhooks.signed_request import request_to

_TOPIC = "webhooks.test"


@click.command(short_help="Send one request to it now, and show the answer.")
@derived
async def test(
    database: Database,
    /,
    endpoint_id: EndpointId,
    *,
    topic: Annotated[str, Opt("The topic that the request says.")] = _TOPIC,  # noqa: PT028 - it tests endpoints
    data: Annotated[str, Opt("The data of its body.", metavar="JSON|-|@FILE")] = '{"test": true}',  # noqa: PT028 - likewise
    addresses: Addresses,
) -> Answer:
    """
    Send one signed request to an endpoint from here, whatever its state, and show the answer.

    It is not a delivery: nothing is logged or tried again, and its failures are not counted. The receiver sees it as
    any other, with a `webhook-id` of its own.

    \b
    Exit codes
      0  the answer was 2xx
      1  it was not, or there was none; or the endpoint is unknown
    """  # noqa: D301 - click reads the escape
    endpoints, body = Endpoints(database, cipher_from_environment()), text_of(data)
    one = await endpoints.get(None, await whole_endpoint_id(database, endpoint_id))
    secrets = await endpoints.secrets(None, one.endpoint_id)
    credentials = await endpoints.credentials(None, one.endpoint_id)
    async with HttpSender(addresses.rules, proxy=proxy_from_environment()) as sender:
        reply = await sender.send(request_to(one, secrets, topic, body, credentials))
    success = is_success(reply.code)
    said = f": {shortened(reply.body)}" if reply.body.strip() else ""
    lines = [f"{reply.code} in {seconds(reply.took.total_seconds())}{said}"]
    if reply.code == "blocked_address":
        lines.append("its address is not public: --allow-address allows it, here and in `deliver`")
    values = picked(reply, "code", "body", took_seconds="took") | {"success": success}
    return Answer(values, lines, exit_code=0 if success else 1)


@click.command(short_help="Have its URL show that it wants webhooks.")
@derived
async def verify(database: Database, /, endpoint_id: EndpointId, *, addresses: Addresses) -> Answer:
    """
    Send an endpoint a challenge from here; where it gives that back, its URL is verified.

    `deliver --verified-only` sends nothing to others. The request is signed and of the topic webhook.verification; the
    answer has to be a 2xx with the `challenge` of its data as its body. A changed URL has to be verified again.

    \b
    Exit codes
      0  the URL is verified
      1  it is not; or the endpoint is unknown
    """  # noqa: D301 - click reads the escape
    endpoints, whole = (
        Endpoints(database, cipher_from_environment()),
        await whole_endpoint_id(database, endpoint_id),
    )
    async with HttpSender(addresses.rules, proxy=proxy_from_environment()) as sender:
        verified, reply = await verify_endpoint(database, endpoints, sender, None, whole)
    text = "verified" if verified else "not verified: the challenge did not come back"
    values = {"verified": verified, "code": reply.code}
    return Answer(values, [f"{text} ({reply.code})"], exit_code=0 if verified else 1)
