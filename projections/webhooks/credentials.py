"""
What requests to an endpoint have in addition to their signature: a client certificate, and a client of OAuth.

What people may see of them is stored as it is, and what is secret as the cipher of secrets makes it. No representation
shows a secret.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from projections.extras import from_extra
from projections.webhooks.encryption import Cipher
from projections.webhooks.errors import InvalidEndpoint

LONGEST_PEM = 32_768
_LONGEST_KEY = 4_096
"""Characters of PEM: an RSA key of 4,096 bits has 3,300 at most."""
_MOST_CERTIFICATES = 10
_MOST_KEY_BITS = 4_096
_MOST_EXPONENT_BITS = 64
_LEAST_KEY_BITS = 2_048
_LONGEST_NAME = 300
_KEY = re.compile(r"-----BEGIN (?:RSA |EC )?PRIVATE KEY-----[^-]+-----END (?:RSA |EC )?PRIVATE KEY-----")
_CHAIN = re.compile(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")
_UNREADABLE = (
    "the certificate cannot be read: give a PEM of certificates and an unencrypted RSA, EC or Ed25519 key"
)
_SHOWN = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class CertificateFacts(BaseModel):
    """What is shown of a client certificate; its key is never shown."""

    model_config = _SHOWN

    subject: str
    """Whom it names."""
    fingerprint: str
    """SHA-256 of it, in hexadecimal."""
    not_before: datetime
    not_after: datetime
    """It is good until then."""

    @property
    def expired(self) -> bool:
        """Whether it is not good any more, by the clock of this process."""
        return self.not_after <= datetime.now(UTC)


class OAuthFacts(BaseModel):
    """What is shown of a client of OAuth; its secret is never shown."""

    model_config = _SHOWN

    token_url: str
    """Where access tokens are had."""
    client_id: str = Field(min_length=1, max_length=500)
    scope: str = Field(default="", max_length=1000, pattern=r"^[\x20-\x7e]*$")
    """What the tokens are for; empty: what the server gives."""
    method: Literal["basic", "post"] = "basic"
    """Where the client's secret stands: in the header Authorization, or in the body."""


@dataclass(frozen=True, slots=True, repr=False)
class ClientCertificate:
    """A certificate with its chain and its key, as PEM."""

    pem: str

    @property
    def digest(self) -> str:
        """What two of them can be told from each other by."""
        return hashlib.sha256(self.pem.encode()).hexdigest()

    def __repr__(self) -> str:
        return "<client certificate>"


@dataclass(frozen=True, slots=True, repr=False)
class OAuthClient:
    """A client that gets access tokens by its own secret (client credentials, RFC 6749 §4.4)."""

    facts: OAuthFacts
    secret: str

    def __repr__(self) -> str:
        return f"<OAuth client {self.facts.client_id!r}>"


class Credentials(NamedTuple):
    """What an endpoint has."""

    certificate: ClientCertificate | None = None
    oauth: OAuthClient | None = None


NO_CREDENTIALS = Credentials()


def credentials_of(stored: str | None, cipher: Cipher) -> Credentials:
    """
    Read what is stored of an endpoint's credentials: JSON of facts and secrets, by kind.

    Raises:
        InvalidValue: The cipher is not the one that they were kept with.
    """
    if stored is None:
        return NO_CREDENTIALS
    found: dict[str, Any] = json.loads(stored)
    certificate, oauth = found.get("certificate"), found.get("oauth")
    return Credentials(
        certificate and ClientCertificate(cipher.decrypt(certificate["secret"])),
        oauth and OAuthClient(OAuthFacts.model_validate(oauth["facts"]), cipher.decrypt(oauth["secret"])),
    )


def read_certificate(pem: str) -> tuple[CertificateFacts, ClientCertificate]:
    """
    Check a certificate with its chain, its own first, and its key, all in one PEM; the key is not encrypted.

    Raises:
        InvalidValue: It is no such PEM, too large, expired, or the key is of another certificate, or too weak.
    """
    with from_extra("webhooks"):
        from cryptography import x509  # noqa: PLC0415
        from cryptography.hazmat.primitives import hashes  # noqa: PLC0415

    key, chain = _parts(pem)
    private = load_key(key)
    try:
        certificates = x509.load_pem_x509_certificates("\n".join(chain).encode())
        own = certificates[0]
        mine = own.public_key().public_bytes(*_AS_DER())
        given = private.public_key().public_bytes(*_AS_DER())
        subject = own.subject.rfc4514_string()[:_LONGEST_NAME]
    except Exception:  # noqa: BLE001 - of any kind, and its text may show the key
        raise InvalidEndpoint(_UNREADABLE) from None
    if mine != given:
        raise InvalidEndpoint("the key is not that of the first certificate: put the endpoint's own first")
    facts = CertificateFacts(
        subject=subject, fingerprint=own.fingerprint(hashes.SHA256()).hex(),
        not_before=own.not_valid_before_utc, not_after=own.not_valid_after_utc,
    )  # fmt: skip
    if facts.expired:
        raise InvalidEndpoint(f"the certificate has expired, on {facts.not_after.isoformat()}")
    return facts, ClientCertificate("\n".join([key, *chain]) + "\n")


def load_key(pem: str) -> Any:
    """
    Load the private key of a client certificate, in a millisecond whatever it is.

    Whether the primes of an RSA key are primes is not tested: that takes a third of a second for 4,096 bits, and
    seconds for larger keys. It is tested that its numbers fit each other, so OpenSSL works with them in bounded time;
    if the primes are none, receivers refuse what the key signs, which harms its owner alone.

    Args:
        pem: The key alone, not encrypted.

    Raises:
        InvalidValue: It cannot be read, is too large or too weak, or its numbers do not fit each other.
    """
    with from_extra("webhooks"):
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # noqa: PLC0415

    if len(pem) > _LONGEST_KEY:
        raise InvalidEndpoint(
            f"the key of a certificate is up to {_LONGEST_KEY:,} characters of PEM: RSA keys have up to "
            f"{_MOST_KEY_BITS:,} bits"
        )
    try:
        private = serialization.load_pem_private_key(pem.encode(), None, unsafe_skip_rsa_key_validation=True)
    except Exception:  # noqa: BLE001 - of any kind, and its text may show the key
        raise InvalidEndpoint(_UNREADABLE) from None
    if isinstance(private, rsa.RSAPrivateKey):
        _check_rsa(private)
    elif not isinstance(private, ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey):
        raise InvalidEndpoint("the key of a certificate is an RSA, EC or Ed25519 key")
    return private


def _check_rsa(private: Any) -> None:
    if not _LEAST_KEY_BITS <= private.key_size <= _MOST_KEY_BITS:
        raise InvalidEndpoint(
            f"an RSA key has {_LEAST_KEY_BITS:,} to {_MOST_KEY_BITS:,} bits, not {private.key_size:,}"
        )
    key = private.private_numbers()
    n, e, p, q, d = key.public_numbers.n, key.public_numbers.e, key.p, key.q, key.d
    if not (
        e.bit_length() <= _MOST_EXPONENT_BITS
        and min(e, p, q) > 1
        and e & p & q & 1
        and p * q == n
        and 0 < d < n
        and d * e % (p - 1) == d * e % (q - 1) == 1
        and (key.dmp1, key.dmq1, key.iqmp * q % p) == (d % (p - 1), d % (q - 1), 1)
        and key.iqmp < p
    ):
        raise InvalidEndpoint("the numbers of the RSA key do not fit each other")


def _parts(pem: str) -> tuple[str, list[str]]:
    if len(pem) > LONGEST_PEM or not pem.isascii():
        raise InvalidEndpoint(f"a certificate with its key is up to {LONGEST_PEM:,} ASCII characters of PEM")
    keys, chain = _KEY.findall(pem), _CHAIN.findall(pem)
    if len(keys) != 1 or not 1 <= len(chain) <= _MOST_CERTIFICATES:
        raise InvalidEndpoint(
            f"a certificate is 1 to {_MOST_CERTIFICATES} certificates in PEM and one key that is not encrypted; "
            f"found were {len(chain)} and {len(keys)}"
        )
    return keys[0], chain


def _AS_DER() -> tuple[Any, Any]:  # noqa: N802 - a constant of an extra
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    return serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
