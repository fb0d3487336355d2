"""Client certificates as they are read, and what is shown of credentials."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa

from journal import InvalidValue
from projections.webhooks.credentials import (
    LONGEST_PEM,
    OAuthClient,
    OAuthFacts,
    credentials_of,
    read_certificate,
)
from projections.webhooks.encryption import PlainCipher
from tests.fixtures.certificates import Authority, key_pem

AUTHORITY = Authority()


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP256R1()),
        ed25519.Ed25519PrivateKey.generate(),
        rsa.generate_private_key(65537, 2048),
    ],
    ids=["ec", "ed25519", "rsa"],
)
def test_a_certificate_is_read_with_its_key_and_its_chain(key: object) -> None:
    facts, certificate = read_certificate(AUTHORITY.client("acme", key=key) + AUTHORITY.pem)
    assert facts.subject == "CN=acme"
    assert not facts.expired
    assert certificate.pem.count("BEGIN CERTIFICATE") == 2
    assert certificate.pem.startswith("-----BEGIN PRIVATE KEY")
    assert repr(certificate) == "<client certificate>"


def rsa_key(bits: int, *, fits: bool = True) -> Any:
    """A key whose primes are none, which is made at once."""
    q = (3 << bits // 2 - 2) + 1
    p = q + 2
    d = pow(65537, -1, (p - 1) * (q - 1))
    numbers = rsa.RSAPrivateNumbers(
        p, q, d, d % (p - 1), d % (q - 1) + (0 if fits else 2), pow(q, -1, p),
        rsa.RSAPublicNumbers(65537, p * q),
    )  # fmt: skip
    return numbers.private_key(unsafe_skip_rsa_key_validation=True)


def test_a_key_costs_no_test_of_its_primes() -> None:
    facts, _ = read_certificate(AUTHORITY.client("acme", key=rsa_key(4096)))
    assert facts.subject == "CN=acme"


def other_key() -> str:
    return key_pem(ec.generate_private_key(ec.SECP256R1()))


@pytest.mark.parametrize(
    ("pem", "said"),
    [
        ("", "found were 0 and 0"),
        ("nonsense", "found were 0 and 0"),
        (AUTHORITY.pem, "found were 1 and 0"),
        (other_key(), "found were 0 and 1"),
        (AUTHORITY.pem + other_key(), "the key is not that of the first certificate"),
        (AUTHORITY.client() + other_key(), "found were 1 and 2"),
        (AUTHORITY.client() + AUTHORITY.pem * 10, "found were 11 and 1"),
        (AUTHORITY.client(good_for=timedelta(days=-1)), "has expired"),
        (
            AUTHORITY.client(key=rsa.generate_private_key(65537, 1024)),
            "an RSA key has 2,048 to 4,096 bits, not 1,024",
        ),
        (AUTHORITY.client(key=rsa_key(4608)), "an RSA key has 2,048 to 4,096 bits, not 4,608"),
        (
            AUTHORITY.client(key=rsa_key(8192)),
            "up to 4,096 characters of PEM: RSA keys have up to 4,096 bits",
        ),
        (AUTHORITY.client(key=rsa_key(2048, fits=False)), "do not fit each other"),
        (AUTHORITY.client(key=dsa.generate_private_key(2048)), "an RSA, EC or Ed25519 key"),
        (AUTHORITY.pem + key_pem(ec.generate_private_key(ec.SECP256R1()), "pw"), "found were 1 and 0"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" + other_key(), "cannot be read"),
        ("x" * (LONGEST_PEM + 1), "up to 32,768 ASCII characters"),
        ("é" + AUTHORITY.client(), "up to 32,768 ASCII characters"),
        (
            AUTHORITY.pem + "-----BEGIN PRIVATE KEY-----\n" + "A" * 9000 + "\n-----END PRIVATE KEY-----",
            "up to 4,096 characters",
        ),
    ],
)
def test_what_cannot_be_one_is_refused_and_not_shown(pem: str, said: str) -> None:
    with pytest.raises(InvalidValue, match=said) as refused:
        read_certificate(pem)
    assert "PRIVATE KEY" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_no_representation_shows_a_secret() -> None:
    client = OAuthClient(OAuthFacts(token_url="https://t", client_id="c"), "s3cret")
    assert repr(client) == "<OAuth client 'c'>"
    stored = json.dumps(
        {
            "oauth": {"facts": client.facts.model_dump(), "secret": "plain:s3cret"},
            "certificate": {"facts": {}, "secret": "plain:PEM"},
        }
    )
    found = credentials_of(stored, PlainCipher())
    assert (found.oauth, found.certificate and found.certificate.pem) == (client, "PEM")
    assert "s3cret" not in repr(found)
    assert "PEM" not in repr(found)
    assert credentials_of(None, PlainCipher()) == (None, None)
