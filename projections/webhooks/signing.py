"""
Sign webhooks, and verify them where they are received, by Standard Webhooks.

The signed content is `id.timestamp.body`, byte for byte. The id is that of the message and the same on every attempt;
the timestamp is the attempt's. `verify` needs nothing else of this library: no database, no settings.

| secret | text | signature |
| --- | --- | --- |
| `SymmetricSecret` | `whsec_` and 24 to 64 bytes in base64 | `v1`: HMAC-SHA256 |
| `SigningKey` | `whsk_` and the ed25519 seed, or seed and public key, in base64 | `v1a`: ed25519 |
| `PublicKey` | `whpk_` and the 32 bytes of the public key in base64 | verifies `v1a` |

No text, repr or error of this module shows a secret; only `Secret.reveal` does.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets as random_source
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Protocol

from projections.extras import from_extra
from projections.webhooks.errors import InvalidMessage, InvalidSecret, VerificationFailed

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"

# A header of visible ASCII, in which the dot is the separator of what is signed.
_MESSAGE_ID = re.compile(r"[!-\-/-~]{1,256}")
_TIMESTAMP = re.compile(r"[0-9]{1,11}")
_MOST_SIGNATURES = 64

SignatureVersion = Literal["v1", "v1a"]

_NEW_SECRET_BYTES = 32
_SEED_BYTES = 32
_PUBLIC_KEY_BYTES = 32


@dataclass(frozen=True, repr=False)
class Secret(ABC):
    """A secret of an endpoint; see `parse_secret` and `generate_secret`."""

    prefix: ClassVar[str]
    version: ClassVar[SignatureVersion]

    key: bytes = field(repr=False)

    def reveal(self) -> str:
        """Return the secret as text, to be stored encrypted, or shown once to its owner."""
        return self.prefix + b64encode(self.key).decode()

    @cached_property
    def fingerprint(self) -> str:
        """Eight hexadecimal digits to tell secrets apart; both halves of a key pair have the same."""
        return hashlib.sha256(self._identity()).hexdigest()[:8]

    def __repr__(self) -> str:
        return f"<{self.prefix}… {self.fingerprint}>"

    __str__ = __repr__

    def _identity(self) -> bytes:
        return self.key

    @abstractmethod
    def sign(self, content: bytes) -> bytes:
        """Return the bare signature of the content."""

    @abstractmethod
    def verifies(self, content: bytes, signature: bytes) -> bool:
        """Tell whether the signature is this secret's, in constant time. Never raises."""


@dataclass(frozen=True, repr=False)
class SymmetricSecret(Secret):
    """A `whsec_` secret, which sender and receiver share."""

    prefix = "whsec_"
    version = "v1"

    def __post_init__(self) -> None:
        if not 24 <= len(self.key) <= 64:  # noqa: PLR2004 - the numbers of the specification
            raise InvalidSecret(f"a whsec_ secret has 24 to 64 bytes after base64, not {len(self.key)}")

    def sign(self, content: bytes) -> bytes:
        """Return the HMAC of the content."""
        return hmac.digest(self.key, content, "sha256")

    def verifies(self, content: bytes, signature: bytes) -> bool:
        """Compare with the HMAC of the content, in constant time."""
        return hmac.compare_digest(self.sign(content), signature)


@dataclass(frozen=True, repr=False)
class PublicKey(Secret):
    """A `whpk_` key: what receivers of `v1a` need. It signs nothing."""

    prefix = "whpk_"
    version = "v1a"

    def __post_init__(self) -> None:
        if len(self.key) != _PUBLIC_KEY_BYTES:
            raise InvalidSecret(f"a whpk_ key has 32 bytes after base64, not {len(self.key)}")

    @cached_property
    def _ed25519(self) -> Ed25519PublicKey:
        with from_extra("webhooks"):
            from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
                Ed25519PublicKey,
            )
        return Ed25519PublicKey.from_public_bytes(self.key)

    def sign(self, content: bytes) -> bytes:  # noqa: ARG002 - no content can be signed
        """Raise InvalidSecret: only the `whsk_` half signs."""
        raise InvalidSecret("a whpk_ key only verifies; sign with the whsk_ key that belongs to it")

    def verifies(self, content: bytes, signature: bytes) -> bool:
        """Check the ed25519 signature."""
        public = self._ed25519
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - the line above needs the extra

        try:
            public.verify(signature, content)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, repr=False)
class SigningKey(Secret):
    """A `whsk_` key, of which the receiver has only the public half: seed and public key, as libsodium writes it."""

    prefix = "whsk_"
    version = "v1a"

    def __post_init__(self) -> None:
        if len(self.key) not in {_SEED_BYTES, _SEED_BYTES + _PUBLIC_KEY_BYTES}:
            raise InvalidSecret(f"a whsk_ key has 32 or 64 bytes after base64, not {len(self.key)}")
        if not self.public.key.startswith(self.key[_SEED_BYTES:]):
            raise InvalidSecret("the public half of this whsk_ key does not belong to its secret half")

    @cached_property
    def _ed25519(self) -> Ed25519PrivateKey:
        with from_extra("webhooks"):
            from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
                Ed25519PrivateKey,
            )
        return Ed25519PrivateKey.from_private_bytes(self.key[:_SEED_BYTES])

    @cached_property
    def public(self) -> PublicKey:
        """The half that receivers need."""
        return PublicKey(self._ed25519.public_key().public_bytes_raw())

    def _identity(self) -> bytes:
        return self.public.key

    def sign(self, content: bytes) -> bytes:
        """Return the ed25519 signature of the content."""
        return self._ed25519.sign(content)

    def verifies(self, content: bytes, signature: bytes) -> bool:
        """Check with the public half."""
        return self.public.verifies(content, signature)


_KINDS: tuple[type[Secret], ...] = (SymmetricSecret, SigningKey, PublicKey)


def parse_secret(text: str) -> Secret:
    """
    Read a secret as sender and receiver exchange it: `whsec_…`, `whsk_…` or `whpk_…`.

    Raises:
        InvalidValue: No such prefix, no base64, or not the length that the kind has. The message never holds the text.
        ImportError: `whsk_` needs the package cryptography.
    """
    for kind in _KINDS:
        if text.startswith(kind.prefix):
            return kind(_decoded(text.removeprefix(kind.prefix), kind.prefix))
    raise InvalidSecret("a secret begins with whsec_, whsk_ or whpk_")


def parse_secrets(secrets: Secret | str | Iterable[Secret | str]) -> list[Secret]:
    """Read one secret or several, of which some may be read already; see :func:`parse_secret`."""
    several = [secrets] if isinstance(secrets, Secret | str) else secrets
    return [parse_secret(one) if isinstance(one, str) else one for one in several]


def generate_secret(kind: SignatureVersion = "v1") -> Secret:
    """Make a new secret: `v1` is shared, `v1a` is an ed25519 key whose `public` half goes to the receiver."""
    if kind == "v1":
        return SymmetricSecret(random_source.token_bytes(_NEW_SECRET_BYTES))
    seed = random_source.token_bytes(_SEED_BYTES)
    return SigningKey(seed + SigningKey(seed).public.key)


def _decoded(text: str, prefix: str) -> bytes:
    try:
        return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        # `from None`: the cause would show what was not base64.
        raise InvalidSecret(f"what follows {prefix} is not base64") from None


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


def sign(secrets: Secret | str | Iterable[Secret | str], message_id: str, timestamp: int, body: bytes) -> str:
    """
    Sign one attempt, for the header `webhook-signature`.

    Args:
        secrets: Those that are valid now, parsed or as text, the newest first: a receiver that knows one of them
            accepts.
        message_id: For `webhook-id`.
        timestamp: For `webhook-timestamp`: seconds since 1970 of this attempt.
        body: As it is sent; before compression if it is sent compressed.

    Returns:
        Signatures in the order of the secrets, with spaces between.

    Raises:
        InvalidValue: The id is empty, long, or holds a dot, a space or what is not ASCII; the timestamp
            is none, or there is no secret, or a public key.
    """
    if not _MESSAGE_ID.fullmatch(message_id):
        raise InvalidMessage(
            f"a message id is 1 to 256 visible ASCII characters without a dot, not {message_id!r}"
        )
    if not _TIMESTAMP.fullmatch(str(timestamp)):
        raise InvalidMessage(f"a timestamp is whole seconds since 1970, not {timestamp!r}")
    content = _content(message_id, str(timestamp), body)
    tokens = [
        f"{secret.version},{b64encode(secret.sign(content)).decode()}" for secret in parse_secrets(secrets)
    ]
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
        InvalidValue: A secret of the receiver is malformed, or there is none.
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
