"""Commands of ``projections webhooks endpoints`` that set and remove what requests have in addition to a signature."""

from __future__ import annotations

from typing import Annotated, Literal

import click

from journal import Database
from projections.terminal.commands import Arg, Opt, derived
from projections.terminal.output import Answer, done
from projections.webhooks.commands.options import Addresses, EndpointId, secret_of, whole_endpoint_id
from projections.webhooks.credentials import OAuthFacts
from projections.webhooks.encryption import cipher_from_environment
from projections.webhooks.endpoints import Endpoints
from projections.webhooks.errors import fields_of


@click.command(short_help="Show a client certificate in TLS.")
@derived
async def set_certificate(
    database: Database, /, endpoint_id: EndpointId, pem_file: Annotated[str, Arg("FILE|-")]
) -> Answer:
    """
    Have TLS show a client certificate, in place of the one before, from the next requests on.

    FILE is a PEM with the certificate, its chain and its key, which is not encrypted; - is stdin. It is stored with
    the key in PROJECTIONS_WEBHOOK_KEYS; `endpoints show` tells whom it names and until when it is good.
    """
    service = Endpoints(database, cipher_from_environment())
    whole = await whole_endpoint_id(database, endpoint_id)
    await service.set_certificate(None, whole, secret_of(pem_file))
    shown = (await service.get(None, whole)).certificate
    if shown is None:  # removed by somebody else meanwhile
        return done(f"endpoint {whole} shows no certificate", endpoint_id=whole, certificate=None)
    return done(
        f"endpoint {whole} shows {shown.subject}, good until {shown.not_after.isoformat()}",
        endpoint_id=whole, certificate=shown.model_dump(mode="json"),
    )  # fmt: skip


@click.command(short_help="Show no client certificate any more.")
@derived
async def remove_certificate(database: Database, /, endpoint_id: EndpointId) -> Answer:
    """Have TLS show no client certificate any more, from the next requests on."""
    whole = await whole_endpoint_id(database, endpoint_id)
    await Endpoints(database, cipher_from_environment()).set_certificate(None, whole, None)
    return done(f"endpoint {whole} shows no certificate", endpoint_id=whole, certificate=None)


@click.command(short_help="Send access tokens of OAuth.")
@derived
async def set_oauth(
    database: Database,
    /,
    endpoint_id: EndpointId,
    *,
    token_url: Annotated[str, Opt("Where access tokens are had.", metavar="URL")],
    client_id: Annotated[str, Opt("Who asks for them.", metavar="ID")],
    secret_file: Annotated[str, Opt("What the client asks with.", metavar="FILE|-")],
    scope: Annotated[str, Opt("What they are for.", metavar="SCOPE")] = "",
    method: Annotated[
        Literal["basic", "post"], Opt("Where the secret stands: in a header (basic), or in the body.")
    ] = "basic",
    addresses: Addresses,
    allow_http: Annotated[bool, Opt("Let a token URL without TLS through, too.")] = False,
) -> Answer:
    """
    Send an access token with each request, had by client credentials from a token URL, and kept until it expires.

    The token URL is asked by `deliver`, as endpoints are: the same addresses are allowed. The secret is stored with the
    key in PROJECTIONS_WEBHOOK_KEYS.
    """
    service = Endpoints(database, cipher_from_environment(), addresses.rules, allow_http=allow_http)
    whole = await whole_endpoint_id(database, endpoint_id)
    with fields_of("a client of OAuth"):
        facts = OAuthFacts.model_validate(
            {"token_url": token_url, "client_id": client_id, "scope": scope, "method": method}
        )
    await service.set_oauth(None, whole, facts, secret_of(secret_file) or "")
    return done(
        f"endpoint {whole} sends access tokens of client {client_id!r}", endpoint_id=whole, oauth=facts.model_dump()
    )  # fmt: skip


@click.command(short_help="Send no access tokens any more.")
@derived
async def remove_oauth(database: Database, /, endpoint_id: EndpointId) -> Answer:
    """Send no access token any more, from the next requests on."""
    whole = await whole_endpoint_id(database, endpoint_id)
    await Endpoints(database, cipher_from_environment()).set_oauth(None, whole, None)
    return done(f"endpoint {whole} sends no access token", endpoint_id=whole, oauth=None)
