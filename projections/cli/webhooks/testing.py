"""``projections webhooks endpoints test``: one request to an endpoint, and its answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import click

from journal import Database
from projections.cli.options import dsn_option, echo_json, json_option
from projections.cli.webhooks.options import address_options, rules_of, text_of
from projections.cli.webhooks.printing import seconds, shortened
from projections.cli.webhooks.visiting import visit_endpoint
from projections.webhooks.ciphers import cipher_from_environment
from projections.webhooks.claims import Claimed
from projections.webhooks.endpoints import Endpoint, Endpoints
from projections.webhooks.outgoing import outgoing_of
from projections.webhooks.sender import HttpSender, Reply

__all__ = ["test"]

_TOPIC = "webhooks.test"


@click.command(short_help="Send one request to it now, and show the answer.")
@click.argument("endpoint_id", metavar="ENDPOINT")
@click.option("--topic", default=_TOPIC, show_default=True)
@click.option("--data", metavar="JSON|-|@FILE", default='{"test": true}', show_default=True)
@address_options
@dsn_option
@json_option
@click.pass_context
def test(  # noqa: PLR0917 - click passes all by name
    context: click.Context,
    /,
    endpoint_id: str,
    topic: str,
    data: str,
    dsn: str | None,
    as_json: bool,
    **rules: Any,
) -> None:
    """
    Send one signed request to an endpoint from here, whatever its state, and show the answer.

    It is no delivery: nothing is logged or tried again, and its failures are not counted. The receiver sees it as
    any other, with a `webhook-id` of its own.

    \b
    Exit codes
      0  the answer was 2xx
      1  it was not, or there was none; or the endpoint is unknown
    """  # noqa: D301 - click reads the escape
    allowed = rules_of(**rules)
    cipher, body = cipher_from_environment(), text_of(data)

    async def work(database: Database, whole: str) -> Reply:
        one = await Endpoints(database, cipher).get(None, whole)
        secrets = await Endpoints(database, cipher).secrets(None, whole)
        stored = [cipher.encrypt(secret.reveal()) for secret in secrets]
        async with HttpSender(allowed) as sender:
            return await sender.send(outgoing_of(_attempt(one, stored, topic, body), cipher))

    reply = visit_endpoint(dsn, endpoint_id, work)
    success = reply.code.startswith("2")
    if as_json:
        echo_json(
            code=reply.code, success=success, body=reply.body,
            took_seconds=reply.took.total_seconds(),
        )  # fmt: skip
    else:
        said = f": {shortened(reply.body)}" if reply.body.strip() else ""
        click.echo(f"{reply.code} in {seconds(reply.took.total_seconds())}{said}")
        if reply.code == "blocked_address":
            click.echo("its address is not public: --allow-address allows it, here and in `deliver`")
    context.exit(0 if success else 1)


def _attempt(one: Endpoint, secrets: list[str], topic: str, data: str) -> Claimed:
    now = datetime.now(UTC)
    return Claimed(
        delivery_id=0, lease_token=0, endpoint_id=one.endpoint_id, event_id=str(uuid4()), event_time=now,
        tenant=one.tenant, topic=topic, attempt=1, manual=True, eligible_for_retry=False, url=one.url,
        headers=one.headers, policy=one.policy, gzip=one.gzip, secrets=secrets, metadata=None, data=data,
        created_at=now, claimed_at=now,
    )  # fmt: skip
