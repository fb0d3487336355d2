"""Operations on what requests to an endpoint identify themselves with."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from projections.webhooks.api.endpoint_operations import EndpointView
from projections.webhooks.api.operations import Body, Call, NoBody, Operations, Query
from projections.webhooks.credentials import LONGEST_PEM, OAuthFacts
from projections.webhooks.errors import fields_of

credential_operations = Operations("endpoints")
_CERTIFICATE = "/v1/endpoints/{endpoint_id}/certificate"
_OAUTH = "/v1/endpoints/{endpoint_id}/oauth"


class CertificateBody(Body):
    """A client certificate."""

    pem: Annotated[str, Field(max_length=LONGEST_PEM)]
    """The certificate, its chain, and its key, which is not encrypted. It is never shown."""


class OAuthBody(Body):
    """A client of OAuth, which gets access tokens by its own secret."""

    token_url: Annotated[str, Field(min_length=1, max_length=2048)]
    """Where access tokens are had; the rules for URLs of endpoints hold."""
    client_id: Annotated[str, Field(min_length=1, max_length=500)]
    client_secret: Annotated[str, Field(min_length=1, max_length=4096)]
    """It is never shown."""
    scope: Annotated[str, Field(max_length=1000)] = ""
    method: Annotated[str, Field(pattern="^(basic|post)$")] = "basic"
    """Where the secret stands: in the header Authorization, or in the body."""


@credential_operations.add("PUT", _CERTIFICATE, problems=(404,), matches="may")
async def set_certificate(call: Call[Query, CertificateBody]) -> EndpointView:
    """Have TLS show a client certificate, in place of the one before."""
    return await _set_certificate(call, call.body.pem)


@credential_operations.add("DELETE", _CERTIFICATE, status=204, problems=(404,), matches="may")
async def remove_certificate(call: Call[Query, NoBody]) -> None:
    """Show no client certificate any more."""
    await _set_certificate(call, None)


@credential_operations.add("PUT", _OAUTH, problems=(404,), matches="may")
async def set_oauth(call: Call[Query, OAuthBody]) -> EndpointView:
    """Send an access token with each request, had by these client credentials, in place of those before."""
    body = call.body
    with fields_of("a client of OAuth"):
        facts = OAuthFacts.model_validate(body.model_dump(exclude={"client_secret"}))
    return await _set_oauth(call, facts, body.client_secret)


@credential_operations.add("DELETE", _OAUTH, status=204, problems=(404,), matches="may")
async def remove_oauth(call: Call[Query, NoBody]) -> None:
    """Send no access token any more."""
    await _set_oauth(call, None, "")


async def _set_certificate(call: Call[Query, Any], pem: str | None) -> EndpointView:
    endpoints, place = call.services.endpoints, call.place["endpoint_id"]
    await endpoints.set_certificate(call.tenant, place, pem, version=call.version)
    return EndpointView.of(await endpoints.get(call.tenant, place))


async def _set_oauth(call: Call[Query, Any], facts: OAuthFacts | None, secret: str) -> EndpointView:
    endpoints, place = call.services.endpoints, call.place["endpoint_id"]
    await endpoints.set_oauth(call.tenant, place, facts, secret, version=call.version)
    return EndpointView.of(await endpoints.get(call.tenant, place))
