"""Signatures of random messages, with the package `standardwebhooks` as the oracle."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import standardwebhooks
from hypothesis import assume, given
from hypothesis import strategies as st

from projections.webhooks.errors import InvalidSecret, VerificationFailed
from projections.webhooks.signing import SymmetricSecret, parse_secret, sign, verify

keys = st.binary(min_size=24, max_size=64)
ids = st.text("abcXYZ019_-", min_size=1, max_size=40)
bodies = st.text(st.characters(exclude_categories=["Cs"]))
seconds = st.integers(0, 10**11 - 1)


def _headers(message_id: str, timestamp: int, signature: str) -> dict[str, str]:
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature,
    }


@given(key=keys, message_id=ids, body=bodies)
def test_verifies_with_standardwebhooks_oracle(key: bytes, message_id: str, body: str) -> None:
    secret, now = SymmetricSecret(key), int(datetime.now(UTC).timestamp())

    headers = _headers(message_id, now, sign([secret], message_id, now, body.encode()))

    standardwebhooks.Webhook(secret.reveal()).verify(body.encode(), headers, json_parse=False)


@given(key=keys, message_id=ids, body=bodies, timestamp=seconds)
def test_what_standardwebhooks_signs_verifies(key: bytes, message_id: str, body: str, timestamp: int) -> None:
    secret, sent = SymmetricSecret(key), datetime.fromtimestamp(timestamp, UTC)

    signature = standardwebhooks.Webhook(secret.reveal()).sign(message_id, sent, body)

    verified = verify(secret, _headers(message_id, timestamp, signature), body.encode(), now=sent)
    assert verified == (message_id, sent)


@given(key=keys, body=st.binary(max_size=200), place=st.integers(0), changed=st.integers(1, 255))
def test_any_changed_byte_of_the_body_is_noticed(key: bytes, body: bytes, place: int, changed: int) -> None:
    assume(body)
    secret, sent = SymmetricSecret(key), datetime.fromtimestamp(1, UTC)
    headers = _headers("m", 1, sign([secret], "m", 1, body))
    tampered = bytearray(body)
    tampered[place % len(body)] ^= changed

    with pytest.raises(VerificationFailed):
        verify(secret, headers, bytes(tampered), now=sent)


@given(headers=st.tuples(st.text(), st.text(), st.text()), body=st.binary())
def test_no_header_raises_anything_but_verification_failed(
    headers: tuple[str, str, str], body: bytes
) -> None:
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")

    with pytest.raises(VerificationFailed):
        verify(
            SymmetricSecret(bytes(24)),
            dict(zip(names, headers, strict=True)),
            body,
            tolerance=timedelta.max,
        )


@given(st.text() | st.from_regex(r"wh(sec|sk|pk)_[A-Za-z0-9+/]*={0,2}", fullmatch=True))
def test_a_text_is_a_secret_or_an_invalid_secret(text: str) -> None:
    try:
        secret = parse_secret(text)
    except InvalidSecret:
        return

    assert parse_secret(secret.reveal()) == secret
