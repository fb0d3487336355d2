"""Secrets, signatures and their verification: fixed vectors, what is refused, and what is never shown."""

from __future__ import annotations

import base64
import hmac
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from projections.webhooks.errors import InvalidMessage, InvalidSecret, VerificationFailed
from projections.webhooks.signed_request import signed_request
from projections.webhooks.signing import (
    PublicKey,
    SigningKey,
    VerifiedWebhook,
    generate_secret,
    parse_secret,
    sign,
    verify,
)

# The vector of the reference libraries of Standard Webhooks.
VECTOR_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
VECTOR_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
VECTOR_SECONDS = 1614265330
VECTOR_BODY = b'{"test": 2432232314}'
VECTOR_SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

SENT = datetime.fromtimestamp(VECTOR_SECONDS, UTC)


def _headers(signature: str = VECTOR_SIGNATURE, **changes: str) -> dict[str, str]:
    return {
        "webhook-id": VECTOR_ID,
        "webhook-timestamp": str(VECTOR_SECONDS),
        "webhook-signature": signature,
    } | {name.replace("_", "-"): value for name, value in changes.items()}


def _whsec(size: int) -> str:
    return "whsec_" + base64.b64encode(bytes(range(size))).decode()


def test_spec_vector_fixed() -> None:
    for secrets in ([parse_secret(VECTOR_SECRET)], [VECTOR_SECRET], VECTOR_SECRET):
        assert sign(secrets, VECTOR_ID, VECTOR_SECONDS, VECTOR_BODY) == VECTOR_SIGNATURE


def test_spec_vector_verifies() -> None:
    assert verify(VECTOR_SECRET, _headers(), VECTOR_BODY, now=SENT) == VerifiedWebhook(VECTOR_ID, SENT)


def test_ed25519_vector_of_rfc_8032() -> None:
    seed = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    public = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
    signature = bytes.fromhex(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )

    key = parse_secret("whsk_" + base64.b64encode(seed).decode())

    assert isinstance(key, SigningKey)
    assert key.sign(b"\x72") == signature
    assert key.public == PublicKey(public)
    assert key.public.verifies(b"\x72", signature)


class _FrameworkHeaders:
    """As Flask has them: no mapping to a type checker, and a header may be there several times."""

    def items(self, *, lower: bool = False) -> Iterator[tuple[str, str]]:
        yield "Accept", "text/plain"
        yield "Accept", "*/*"
        yield from ((name.lower() if lower else name.title(), value) for name, value in _headers().items())


def test_headers_need_not_be_a_mapping() -> None:
    assert verify(VECTOR_SECRET, _FrameworkHeaders(), VECTOR_BODY, now=SENT).message_id == VECTOR_ID


def test_header_names_are_read_in_any_case() -> None:
    headers = {name.upper(): value for name, value in _headers().items()}

    assert verify(VECTOR_SECRET, headers, VECTOR_BODY, now=SENT).message_id == VECTOR_ID


@pytest.mark.parametrize("kind", ["v1", "v1a"])
def test_a_generated_secret_survives_its_text_and_signs(kind: Any) -> None:
    secret = generate_secret(kind)

    again = parse_secret(secret.reveal())

    assert again == secret
    assert verify(
        again, _headers(sign([secret], VECTOR_ID, VECTOR_SECONDS, VECTOR_BODY)), VECTOR_BODY, now=SENT
    )


def test_a_receiver_needs_only_the_public_key() -> None:
    key = generate_secret("v1a")
    assert isinstance(key, SigningKey)
    signature = sign([key], VECTOR_ID, VECTOR_SECONDS, VECTOR_BODY)

    assert signature.startswith("v1a,")
    assert verify(key.public.reveal(), _headers(signature), VECTOR_BODY, now=SENT).message_id == VECTOR_ID


def test_a_public_key_signs_nothing() -> None:
    key = generate_secret("v1a")
    assert isinstance(key, SigningKey)

    with pytest.raises(InvalidSecret, match="whsk_"):
        sign([key.public], VECTOR_ID, VECTOR_SECONDS, VECTOR_BODY)


def test_a_key_pair_that_does_not_belong_together_is_refused() -> None:
    one, other = generate_secret("v1a"), generate_secret("v1a")

    with pytest.raises(InvalidSecret, match="does not belong"):
        SigningKey(one.key[:32] + other.key[32:])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "whsec_",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "WHSEC_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        " whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa-w",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwé",
        _whsec(23),
        _whsec(65),
        "whpk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    ],
)
def test_secret_formats_rejected(text: str) -> None:
    with pytest.raises(InvalidSecret) as refused:
        parse_secret(text)

    assert "fKQ9r8" not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("size", [24, 64])
def test_the_shortest_and_the_longest_secret_are_accepted(size: int) -> None:
    assert len(parse_secret(_whsec(size)).key) == size


@pytest.mark.parametrize("kind", ["v1", "v1a"])
def test_no_text_of_a_secret_shows_it(kind: Any) -> None:
    secret = generate_secret(kind)

    shown = f"{secret} {secret!r} {[secret]}"

    assert base64.b64encode(secret.key).decode()[:6] not in shown
    assert repr(secret.key)[2:10] not in shown
    assert secret.fingerprint in shown


def test_both_halves_of_a_key_pair_have_one_fingerprint() -> None:
    key = generate_secret("v1a")
    assert isinstance(key, SigningKey)

    assert key.fingerprint == key.public.fingerprint == SigningKey(key.key[:32]).fingerprint


def test_rotation_both_signatures_newest_first_then_expiry_drops_old() -> None:
    old, new = generate_secret(), generate_secret()
    both = sign([new, old], VECTOR_ID, VECTOR_SECONDS, VECTOR_BODY)
    newest = sign([new], VECTOR_ID, VECTOR_SECONDS, VECTOR_BODY)

    assert both.split(" ")[0] == newest
    verify(old, _headers(both), VECTOR_BODY, now=SENT)
    verify(new, _headers(both), VECTOR_BODY, now=SENT)
    with pytest.raises(VerificationFailed):
        verify(old, _headers(newest), VECTOR_BODY, now=SENT)


def test_a_receiver_in_rotation_accepts_either_secret() -> None:
    old, new = generate_secret(), generate_secret()

    for secret in (old, new):
        signature = sign([secret], VECTOR_ID, VECTOR_SECONDS, VECTOR_BODY)
        assert verify([new, old.reveal()], _headers(signature), VECTOR_BODY, now=SENT)


def test_id_same_timestamp_new_on_retry() -> None:
    secret = parse_secret(VECTOR_SECRET)
    later = VECTOR_SECONDS + 300

    again = sign([secret], VECTOR_ID, later, VECTOR_BODY)

    assert again != VECTOR_SIGNATURE
    headers = _headers(again, webhook_timestamp=str(later))
    verified = verify(secret, headers, VECTOR_BODY, now=SENT + timedelta(seconds=300))
    assert verified == VerifiedWebhook(VECTOR_ID, SENT + timedelta(seconds=300))


@pytest.mark.parametrize(
    "tampered",
    [
        {"body": VECTOR_BODY + b" "},
        {"webhook_id": "msg_other"},
        {"webhook_timestamp": str(VECTOR_SECONDS + 1)},
        {"webhook_timestamp": f"0{VECTOR_SECONDS}"},
        {"webhook_signature": VECTOR_SIGNATURE.replace("g0h", "g0i")},
    ],
)
def test_what_was_tampered_with_is_refused(tampered: dict[str, Any]) -> None:
    body = tampered.pop("body", VECTOR_BODY)

    with pytest.raises(VerificationFailed):
        verify(VECTOR_SECRET, _headers(**tampered), body, now=SENT)


@pytest.mark.parametrize("away", [timedelta(minutes=5), timedelta(minutes=-5)])
def test_five_minutes_to_either_side_are_the_edge(away: timedelta) -> None:
    beyond = away + away / 300

    assert verify(VECTOR_SECRET, _headers(), VECTOR_BODY, now=SENT + away)
    with pytest.raises(VerificationFailed, match="too far from now"):
        verify(VECTOR_SECRET, _headers(), VECTOR_BODY, now=SENT + beyond)


def test_the_clock_is_the_default() -> None:
    with pytest.raises(VerificationFailed, match="too far from now"):
        verify(VECTOR_SECRET, _headers(), VECTOR_BODY)


@pytest.mark.parametrize(
    "signature",
    [
        "",
        " ",
        "v1",
        "v1,",
        "v1,,",
        "v1,x",
        "v1,é",
        "v1,===",
        "v1,AAAA",
        "v1,AAAA,AAAA",
        VECTOR_SIGNATURE.replace("v1,", "v2,"),
        VECTOR_SIGNATURE.replace("v1,", "v1a,"),
        VECTOR_SIGNATURE.replace("v1,", ","),
        VECTOR_SIGNATURE.replace("v1,", ""),
        VECTOR_SIGNATURE.replace("v1,", "V1,"),
        "v1,\x00",
        "x " * 10_000 + VECTOR_SIGNATURE,
    ],
)
@pytest.mark.parametrize("secret", [VECTOR_SECRET, "whpk_" + base64.b64encode(bytes(32)).decode()])
def test_malformed_tokens_raise_nothing_but_verification_failed(signature: str, secret: str) -> None:
    with pytest.raises(VerificationFailed):
        verify(secret, _headers(signature), VECTOR_BODY, now=SENT)


def test_a_good_signature_among_garbage_is_found() -> None:
    garbage = f"v9,abc v1a,AAAA v1 é, {VECTOR_SIGNATURE} v1,===="

    assert verify(VECTOR_SECRET, _headers(garbage), VECTOR_BODY, now=SENT)


def test_v1a_ignored_by_v1_secret() -> None:
    signature = f"v1a,{VECTOR_SIGNATURE.removeprefix('v1,')}"

    with pytest.raises(VerificationFailed, match="no signature"):
        verify(VECTOR_SECRET, _headers(signature), VECTOR_BODY, now=SENT)


def test_the_comparison_takes_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def spy(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", spy)
    verify(VECTOR_SECRET, _headers(), VECTOR_BODY, now=SENT)

    assert len(compared) == 1


@pytest.mark.parametrize("missing", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_header_is_named(missing: str) -> None:
    headers = {name: value for name, value in _headers().items() if name != missing}

    with pytest.raises(VerificationFailed, match=missing):
        verify(VECTOR_SECRET, headers, VECTOR_BODY, now=SENT)


def test_a_header_that_is_there_twice_is_refused() -> None:
    headers = _headers() | {"Webhook-Id": "msg_other"}

    with pytest.raises(VerificationFailed, match="webhook-id"):
        verify(VECTOR_SECRET, headers, VECTOR_BODY, now=SENT)


@pytest.mark.parametrize("seconds", ["", "-1", "1.5", "1e9", "١٦", " 1614265330", "9" * 12, "now"])
def test_a_timestamp_that_is_not_whole_seconds_is_refused(seconds: str) -> None:
    with pytest.raises(VerificationFailed, match="webhook-timestamp"):
        verify(VECTOR_SECRET, _headers(webhook_timestamp=seconds), VECTOR_BODY, now=SENT)


def test_a_dot_can_not_move_between_id_and_timestamp() -> None:
    # "a.1" and "2" would be signed as "a" and "1.2" are.
    with pytest.raises(VerificationFailed, match="webhook-id"):
        verify(VECTOR_SECRET, _headers(webhook_id="a.1"), VECTOR_BODY, now=SENT)


@pytest.mark.parametrize("message_id", ["", "a.b", "a b", "a\r\nx: y", "é", "a" * 257])
def test_no_message_is_signed_with_an_id_that_is_no_header(message_id: str) -> None:
    with pytest.raises(InvalidMessage, match="message id"):
        sign([parse_secret(VECTOR_SECRET)], message_id, VECTOR_SECONDS, VECTOR_BODY)


@pytest.mark.parametrize("timestamp", [-1, 10**11, True, 1.5])
def test_no_message_is_signed_with_a_timestamp_that_is_not_whole_seconds(timestamp: Any) -> None:
    with pytest.raises(InvalidMessage, match="timestamp"):
        sign([parse_secret(VECTOR_SECRET)], VECTOR_ID, timestamp, VECTOR_BODY)


def test_no_header_of_an_endpoint_takes_the_place_of_the_signature() -> None:
    secret, at = generate_secret(), datetime(2026, 1, 31, tzinfo=UTC)
    given = {"webhook-id": "x", "webhook-timestamp": "1", "webhook-signature": "v1,x", "x-mine": "kept"}

    request = signed_request(
        "https://example.com/", "m1", b"{}", [secret], at=at, headers=given, timeout=timedelta(1), gzip=True
    )

    assert verify(secret, dict(request.headers), b"{}", now=at) == ("m1", at)
    assert dict(request.headers)["x-mine"] == "kept"


def test_without_a_secret_nothing_is_signed_or_verified() -> None:
    with pytest.raises(InvalidSecret, match="at least one"):
        sign([], VECTOR_ID, VECTOR_SECONDS, VECTOR_BODY)
    with pytest.raises(InvalidSecret, match="at least one"):
        verify([], _headers(), VECTOR_BODY, now=SENT)


def test_the_bytes_of_the_body_are_signed_not_its_meaning() -> None:
    secret = parse_secret(VECTOR_SECRET)
    body = b'{"b": 1.0, "a": 1e400, "c": 123456789012345678901234567890}'
    headers = _headers(sign([secret], VECTOR_ID, VECTOR_SECONDS, body))

    assert verify(secret, headers, body, now=SENT)
    with pytest.raises(VerificationFailed):
        verify(secret, headers, json.dumps(json.loads(body)).encode(), now=SENT)


def test_a_body_need_not_be_text() -> None:
    secret, body = parse_secret(VECTOR_SECRET), bytes(range(256))
    headers = _headers(sign([secret], VECTOR_ID, VECTOR_SECONDS, body))

    assert verify(secret, headers, body, now=SENT)


@pytest.mark.slow
def test_shared_secrets_need_no_extra_and_ed25519_names_it() -> None:
    program = f"""
import sys
sys.modules["cryptography"] = None
from projections.webhooks.signing import generate_secret, parse_secret
from projections.webhooks.signing import sign, verify
from projections.webhooks import encryption
headers = {{"webhook-id": "m", "webhook-timestamp": "1", "webhook-signature": sign([generate_secret()], "m", 1, b"")}}
parse_secret({VECTOR_SECRET!r})
for needs in (lambda: generate_secret("v1a"), lambda: encryption.FernetCipher(["x"])):
    try:
        needs()
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.count("pip install 'slice-projections[webhooks]'") == 2
