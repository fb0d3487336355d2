"""The request of an attempt: the body that is sent, signed and perhaps compressed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from gzip import compress
from uuid import uuid4

from projections.webhooks.claims import Claimed
from projections.webhooks.credentials import NO_CREDENTIALS, Credentials, credentials_of
from projections.webhooks.encryption import Cipher
from projections.webhooks.endpoints import Endpoint
from projections.webhooks.outgoing import Outgoing
from projections.webhooks.signing import (
    ID_HEADER,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    Secret,
    parse_secret,
    sign,
)


def outgoing_of(claimed: Claimed, cipher: Cipher) -> Outgoing:
    """
    The request of an attempt: its body, signed with all secrets of the endpoint, which this cipher has kept.

    It is not compressed; :class:`projections.webhooks.compression.Compression` does that.
    """
    credentials = credentials_of(claimed.credentials, cipher)
    request = signed_request(
        claimed.url,
        claimed.event_id,
        body_of(claimed.topic, claimed.event_time, claimed.data or "null"),
        [parse_secret(cipher.decrypt(stored)) for stored in claimed.secrets],
        at=claimed.claimed_at,
        headers=claimed.headers,
        timeout=claimed.policy.timeout,
        gzip=False,
        tenant=claimed.tenant,
    )
    return request._replace(
        share=claimed.tenant_share, attempt=claimed.attempt, traceparent=_traceparent(claimed.metadata),
        certificate=credentials.certificate, oauth=credentials.oauth,
    )  # fmt: skip


def _traceparent(labels: str | None) -> str | None:
    if labels is None or '"traceparent"' not in labels:
        return None
    found: str | None = json.loads(labels).get("traceparent")
    return found


def request_to(
    endpoint: Endpoint,
    secrets: Sequence[Secret],
    topic: str,
    data: str,
    credentials: Credentials = NO_CREDENTIALS,
) -> Outgoing:
    """A request to an endpoint that is not a delivery: of this moment, with an id of its own."""
    now = datetime.now(UTC)
    request = signed_request(
        endpoint.url, str(uuid4()), body_of(topic, now, data), secrets, at=now, headers=endpoint.headers,
        timeout=endpoint.policy.timeout, gzip=endpoint.gzip, tenant=endpoint.tenant,
    )  # fmt: skip
    return request._replace(certificate=credentials.certificate, oauth=credentials.oauth)


def signed_request(
    url: str,
    message_id: str,
    body: bytes,
    secrets: Sequence[Secret],
    *,
    at: datetime,
    headers: Mapping[str, str],
    timeout: timedelta,
    gzip: bool,
    tenant: str = "",
) -> Outgoing:
    """
    Sign a body of :func:`body_of` with all secrets, and make the request that brings it.

    It may be sent compressed; what is signed is not. InvalidValue: the id cannot be in a header, or there is no
    secret.
    """
    signed_at = int(at.timestamp())
    sent = {
        **headers,
        "content-type": "application/json",
        ID_HEADER: message_id,
        TIMESTAMP_HEADER: str(signed_at),
        SIGNATURE_HEADER: sign(secrets, message_id, signed_at, body),
    }
    if gzip:
        sent["content-encoding"] = "gzip"
        body = gzip_body(body)
    return Outgoing(url, tuple(sent.items()), body, timeout, tenant=tenant)


def body_of(topic: str, event_time: datetime, data: str) -> bytes:
    """What is sent: the same bytes on every attempt, with the data as it was written."""
    kind, at = json.dumps(topic), json.dumps(event_time.isoformat())
    return f'{{"type":{kind},"timestamp":{at},"data":{data}}}'.encode()


def gzip_body(body: bytes) -> bytes:
    """
    Compress a body that is already signed; send it with ``content-encoding: gzip``.

    The same bytes give the same bytes: there is no time in them.
    """
    return compress(body, mtime=0)
