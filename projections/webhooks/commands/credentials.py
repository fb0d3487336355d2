"""``projections webhooks endpoints certificate`` and ``oauth``: what requests have in addition to a signature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import click

from journal import Database
from projections.terminal.commands import Arg, Opt, derived
from projections.terminal.output import Answer, done
from projections.webhooks.commands.options import Addresses, EndpointId, secret_of, whole_endpoint_id
from projections.webhooks.credentials import OAuthFacts
from projections.webhooks.encryption import cipher_from_environment
from projections.webhooks.endpoints import Endpoints
from projections.webhooks.errors import fields_of

_Remove = Annotated[bool, Opt("Take it away.")]


def _file_or_remove(options: Mapping[str, Any]) -> None:
    if (options["pem_file"] is None) != options["remove"]:
        raise click.UsageError("pass either FILE or --remove")


def _client_or_remove(options: Mapping[str, Any]) -> None:
    needed = [options[name] for name in ("token_url", "client_id", "secret_file")]
    if any(needed) if options["remove"] else not all(needed):
        raise click.UsageError("pass either --token-url, --client-id and --secret-file, or --remove")


@click.command(short_help="Show a client certificate in TLS.")
@derived(check=_file_or_remove)
async def certificate(
    database: Database,
    /,
    endpoint_id: EndpointId,
    pem_file: Annotated[str | None, Arg("[FILE|-]")] = None,
    *,
    remove: _Remove = False,
) -> Answer:
    """
    Have TLS show a client certificate, in place of the one before, from the next requests on.

    FILE is a PEM with the certificate, its chain and its key, which is not encrypted; - is stdin. It is stored with
    the key in PROJECTIONS_WEBHOOK_KEYS; `endpoints show` tells whom it names and until when it is good.
    """
    service, whole = (
        Endpoints(database, cipher_from_environment()),
        await whole_endpoint_id(database, endpoint_id),
    )
    await service.set_certificate(None, whole, secret_of(pem_file))
    one = await service.get(None, whole)
    if one.certificate is None:
        return done(f"endpoint {whole} shows no certificate", endpoint_id=whole, certificate=None)
    shown = f"{one.certificate.subject}, good until {one.certificate.not_after.isoformat()}"
    return done(
        f"endpoint {whole} shows {shown}",
        endpoint_id=whole,
        certificate=one.certificate.model_dump(mode="json"),
    )


@click.command(short_help="Send access tokens of OAuth.")
@derived(check=_client_or_remove)
async def oauth(
    database: Database,
    /,
    endpoint_id: EndpointId,
    *,
    token_url: Annotated[str | None, Opt("Where access tokens are had.", metavar="URL")] = None,
    client_id: Annotated[str | None, Opt("Who asks for them.", metavar="ID")] = None,
    secret_file: Annotated[str | None, Opt("What the client asks with.", metavar="FILE|-")] = None,
    scope: Annotated[str, Opt("What they are for.", metavar="SCOPE")] = "",
    method: Annotated[
        Literal["basic", "post"], Opt("Where the secret stands: in a header (basic), or in the body.")
    ] = "basic",
    remove: _Remove = False,
    addresses: Addresses,
    allow_http: Annotated[bool, Opt("Let a token URL without TLS through, too.")] = False,
) -> Answer:
    """
    Send an access token with each request, had by client credentials from a token URL, and kept until it expires.

    The token URL is asked by `deliver`, as endpoints are: the same addresses are allowed. The secret is stored with the
    key in PROJECTIONS_WEBHOOK_KEYS.
    """
    service = Endpoints(database, cipher_from_environment(), addresses.rules, allow_http=allow_http)
    whole, facts = await whole_endpoint_id(database, endpoint_id), None
    if not remove:
        with fields_of("a client of OAuth"):
            facts = OAuthFacts.model_validate(
                {"token_url": token_url, "client_id": client_id, "scope": scope, "method": method}
            )
    await service.set_oauth(None, whole, facts, secret_of(secret_file) or "")
    said = "sends no access token" if facts is None else f"sends access tokens of client {facts.client_id!r}"
    return done(
        f"endpoint {whole} {said}", endpoint_id=whole, oauth=None if facts is None else facts.model_dump()
    )
