"""
Sign webhooks, and verify them where they are received, by Standard Webhooks.

The signed content is `id.timestamp.body`, byte for byte. The id is that of the message and the same on every attempt;
the timestamp is the attempt's. `verify` needs nothing else of this library: no database, no settings.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

from projections.webhooks.errors import InvalidMessage, InvalidSecret, VerificationFailed
from projections.webhooks.keys import Secret, parse_secrets

__all__ = [
    "ID_HEADER",
    "SIGNATURE_HEADER",
    "TIMESTAMP_HEADER",
    "VerifiedWebhook",
    "sign",
    "verify",
]

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"

# A header of visible ASCII, in which the dot is the separator of what is signed.
_MESSAGE_ID = re.compile(r"[!-\-/-~]{1,256}")
_TIMESTAMP = re.compile(r"[0-9]{1,11}")
_MOST_SIGNATURES = 64


class Headers(Protocol):
    """Headers of a request, as any framework has them: a mapping, or what has the items of one."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Names, in any case, with their values."""


class VerifiedWebhook(NamedTuple):
    """What `verify` found to be genuine."""

    message_id: str
    """The same for every attempt of a delivery: a receiver that has seen it does nothing and answers 2xx."""
    timestamp: datetime
    """When the attempt was made, in whole seconds."""


def sign(secrets: Iterable[Secret], message_id: str, timestamp: int, body: bytes) -> str:
    """
    Sign one attempt, for the header `webhook-signature`.

    Args:
        secrets: All that are valid now, the newest first: a receiver that knows any of them accepts.
        message_id: For `webhook-id`.
        timestamp: For `webhook-timestamp`: seconds since 1970 of this attempt.
        body: As it is sent; before compression if it is sent compressed.

    Returns:
        Signatures in the order of the secrets, with spaces between.

    Raises:
        InvalidMessage: The id is empty, long, or holds a dot, a space or what is not ASCII; or the timestamp is none.
        InvalidSecret: There is no secret, or a public key.
    """
    if not _MESSAGE_ID.fullmatch(message_id):
        raise InvalidMessage(
            f"a message id is 1 to 256 visible ASCII characters without a dot, not {message_id!r}"
        )
    if not _TIMESTAMP.fullmatch(str(timestamp)):
        raise InvalidMessage(f"a timestamp is whole seconds since 1970, not {timestamp!r}")
    content = _content(message_id, str(timestamp), body)
    tokens = [f"{secret.version},{b64encode(secret.sign(content)).decode()}" for secret in secrets]
    if not tokens:
        raise InvalidSecret("a message is signed with at least one secret")
    return " ".join(tokens)


def verify(
    secrets: Secret | str | Iterable[Secret | str],
    headers: Headers,
    body: bytes,
    tolerance: timedelta = timedelta(minutes=5),
    now: datetime | None = None,
) -> VerifiedWebhook:
    """
    Check that a webhook was sent by who knows the secret, that nothing changed on its way, and that it is not old.

    Args:
        secrets: What the sender gave: `whsec_…` or `whpk_…`, parsed or as text; several while it is being rotated.
        headers: Of the request; their names in any case.
        body: Of the request, byte for byte (after decompression): never JSON that was parsed and written again.
        tolerance: How far the sender's clock and the way may be off, to either side; the end counts as within.
        now: The receiver's time, with a time zone; the clock's by default.

    Raises:
        VerificationFailed: Answer with an error, and do nothing.
        InvalidSecret: A secret of the receiver is malformed, or there is none.
        ImportError: `whpk_` and `whsk_` need the package cryptography.
    """
    known = parse_secrets(secrets)
    if not known:
        raise InvalidSecret("a webhook is verified with at least one secret")
    message_id, timestamp, signatures = _signed_headers(headers)
    content = _content(message_id, timestamp, body)
    if not _any_verifies(known, content, signatures):
        raise VerificationFailed("no signature of this webhook is by a known secret")
    sent = datetime.fromtimestamp(int(timestamp), UTC)
    if abs((now or datetime.now(UTC)) - sent) > tolerance:
        raise VerificationFailed(f"the webhook was signed at {sent:%Y-%m-%d %H:%M:%S} UTC: too far from now")
    return VerifiedWebhook(message_id, sent)


def _signed_headers(headers: Headers) -> tuple[str, str, str]:
    message_id = _header(headers, ID_HEADER)
    if not _MESSAGE_ID.fullmatch(message_id):
        raise VerificationFailed(f"{ID_HEADER} is malformed")
    timestamp = _header(headers, TIMESTAMP_HEADER)
    if not _TIMESTAMP.fullmatch(timestamp):
        raise VerificationFailed(f"{TIMESTAMP_HEADER} is not whole seconds since 1970")
    return message_id, timestamp, _header(headers, SIGNATURE_HEADER)


def _header(headers: Headers, name: str) -> str:
    found = [value for key, value in headers.items() if key.lower() == name]
    if len(found) != 1:
        raise VerificationFailed(f"the header {name} must be there once, not {len(found)} times")
    return found[0]


def _content(message_id: str, timestamp: str, body: bytes) -> bytes:
    return b".".join((message_id.encode(), timestamp.encode(), body))


def _any_verifies(secrets: list[Secret], content: bytes, header: str) -> bool:
    return any(
        secret.version == version and secret.verifies(content, signature)
        for version, signature in _signatures(header)
        for secret in secrets
    )


def _signatures(header: str) -> Iterator[tuple[str, bytes]]:
    """Signatures of a header that can be read; others are of versions to come, or garbage."""
    for token in header.split(" ", _MOST_SIGNATURES)[:_MOST_SIGNATURES]:
        version, _, text = token.partition(",")
        try:
            yield version, b64decode(text, validate=True)
        except ValueError:
            continue
