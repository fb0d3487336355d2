"""A request as it is to be sent."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from projections.webhooks.credentials import ClientCertificate, OAuthClient


class Outgoing(NamedTuple):
    """
    One request as it is to be sent.

    Args:
        url: Where to, as :func:`~projections.webhooks.urls.checked_url` gave it.
        headers: Names and values, the signature among them.
        body: These bytes, as they are.
        timeout: For all of it: lookup, connection, TLS, headers and body. What it waits for here is not of it.
        connect_timeout: Of that, for the lookup, and for connection and TLS.
        tenant: Whose: tenants share what there is.
        share: What its tenant may have of the lookups, and of the places at a host, that the others leave.
        attempt: Which one it is, 1 for the first.
        traceparent: The span in which the event was written; it is not sent.
        certificate: What TLS shows of this process.
        oauth: Who gets an access token, which is sent along.
    """

    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    timeout: timedelta = timedelta(seconds=15)
    connect_timeout: timedelta = timedelta(seconds=5)
    tenant: str = ""
    share: float = 1
    attempt: int = 1
    traceparent: str | None = None
    certificate: ClientCertificate | None = None
    oauth: OAuthClient | None = None
