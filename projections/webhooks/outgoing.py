"""The request of an attempt: the body that is sent, signed and perhaps compressed."""

from __future__ import annotations

import gzip
import json
from datetime import datetime

from projections.webhooks.ciphers import Cipher
from projections.webhooks.claims import Claimed
from projections.webhooks.keys import parse_secret
from projections.webhooks.sender import Outgoing
from projections.webhooks.signing import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, sign

__all__ = ["body_of", "gzip_body", "outgoing_of"]


def outgoing_of(claimed: Claimed, cipher: Cipher) -> Outgoing:
    """
    The request of an attempt: its body, signed with all secrets of the endpoint.

    Raises:
        InvalidSecret: The cipher is not the one that secrets were kept with.
    """
    body = body_of(claimed.topic, claimed.event_time, claimed.data or "null")
    signed_at = int(claimed.claimed_at.timestamp())
    keys = [parse_secret(cipher.decrypt(stored)) for stored in claimed.secrets]
    headers = {
        **claimed.headers,
        "content-type": "application/json",
        ID_HEADER: claimed.event_id,
        TIMESTAMP_HEADER: str(signed_at),
        SIGNATURE_HEADER: sign(keys, claimed.event_id, signed_at, body),
    }
    if claimed.gzip:
        headers["content-encoding"] = "gzip"
        body = gzip_body(body)
    return Outgoing(claimed.url, tuple(headers.items()), body, claimed.policy.timeout)


def body_of(topic: str, event_time: datetime, data: str) -> bytes:
    """What is sent: the same bytes on every attempt, with the data as it was written."""
    kind, at = json.dumps(topic), json.dumps(event_time.isoformat())
    return f'{{"type":{kind},"timestamp":{at},"data":{data}}}'.encode()


def gzip_body(body: bytes) -> bytes:
    """
    Compress a body that is already signed; send it with ``content-encoding: gzip``.

    The same bytes give the same bytes: there is no time in them.
    """
    return gzip.compress(body, mtime=0)
