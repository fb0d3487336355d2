"""``projections webhooks endpoints test``: one request to an endpoint, and its answer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import click

from journal import Database
from projections.terminal.options import dsn_option, echo_json, json_option
from projections.webhooks.ciphers import cipher_from_environment
from projections.webhooks.commands.options import address_options, rules_of, text_of
from projections.webhooks.commands.printing import seconds, shortened
from projections.webhooks.commands.visiting import visit_endpoint
from projections.webhooks.endpoints import Endpoint, Endpoints
from projections.webhooks.keys import Secret
from projections.webhooks.outgoing import body_of, signed_request
from projections.webhooks.sender import HttpSender, Outgoing, Reply
from projections.webhooks.verdicts import is_success
from projections.webhooks.verifying import Verified, verify_endpoint

__all__ = ["test", "verify"]

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
        endpoints = Endpoints(database, cipher)
        one, secrets = await endpoints.get(None, whole), await endpoints.secrets(None, whole)
        async with HttpSender(allowed) as sender:
            return await sender.send(_request(one, secrets, topic, body))

    reply = visit_endpoint(dsn, endpoint_id, work)
    success = is_success(reply.code)
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


@click.command(short_help="Have its URL show that it wants webhooks.")
@click.argument("endpoint_id", metavar="ENDPOINT")
@address_options
@dsn_option
@json_option
@click.pass_context
def verify(context: click.Context, /, endpoint_id: str, dsn: str | None, as_json: bool, **rules: Any) -> None:
    """
    Send an endpoint a challenge from here; where it gives that back, its URL is verified.

    `deliver --verified-only` sends nothing to others. The request is signed and of the topic webhook.verification; the
    answer has to be a 2xx with the `challenge` of its data as its body. A changed URL has to be verified again.

    \b
    Exit codes
      0  the URL is verified
      1  it is not; or the endpoint is unknown
    """  # noqa: D301 - click reads the escape
    allowed, cipher = rules_of(**rules), cipher_from_environment()

    async def work(database: Database, whole: str) -> Verified:
        async with HttpSender(allowed) as sender:
            return await verify_endpoint(database, Endpoints(database, cipher), sender, None, whole)

    verified, reply = visit_endpoint(dsn, endpoint_id, work)
    if as_json:
        echo_json(verified=verified, code=reply.code)
    else:
        click.echo(
            f"{'verified' if verified else 'not verified: the challenge did not come back'} ({reply.code})"
        )
    context.exit(0 if verified else 1)


def _request(one: Endpoint, secrets: Sequence[Secret], topic: str, data: str) -> Outgoing:
    now = datetime.now(UTC)
    return signed_request(
        one.url, str(uuid4()), body_of(topic, now, data), secrets,
        at=now, headers=one.headers, timeout=one.policy.timeout, gzip=one.gzip,
    )  # fmt: skip
