"""Contexts of TLS: that of a sender, and one for each client certificate, made once and kept."""

from __future__ import annotations

import asyncio
import secrets
import ssl
import tempfile

from cachetools import LRUCache

from journal.tasks import Shared
from projections.extras import from_extra
from projections.webhooks.credentials import ClientCertificate, load_key
from projections.webhooks.errors import InvalidEndpoint

_GROUPS = "X25519:P-256:P-384:P-521:X448"
_KEPT = 256
_CERTIFICATE = "-----BEGIN CERTIFICATE"


class ClientContexts:
    """
    Contexts of client certificates, which trust what a sender trusts.

    Making one takes some 30 ms, nearly all of it for the authorities that the system trusts. This is done in a thread,
    in steps between which the event loop can go on, once for all who wait, for one certificate at a time.

    Args:
        trusted: Whose authorities, versions and checks are taken; None: what the system trusts.
    """

    def __init__(self, trusted: ssl.SSLContext | None) -> None:
        self._trusted = trusted
        self._contexts: LRUCache[str, ssl.SSLContext] = LRUCache(_KEPT)
        self._making: Shared[ssl.SSLContext] = Shared()
        self._turn = asyncio.Lock()

    async def of(self, certificate: ClientCertificate | None) -> ssl.SSLContext | None:
        """
        Give the context of a certificate; None without one.

        Raises:
            SSLError: Its key may not be used any more.
        """
        if certificate is None:
            return None
        digest = certificate.digest
        if (found := self._contexts.get(digest)) is None:
            found = await self._making.get(digest, lambda: self._made(digest, certificate))
        return found

    async def aclose(self) -> None:
        """End what is being made."""
        await self._making.aclose()

    async def _made(self, digest: str, certificate: ClientCertificate) -> ssl.SSLContext:
        async with self._turn:
            made = self._contexts[digest] = await asyncio.to_thread(_context, self._trusted, certificate)
        return made


def _context(trusted: ssl.SSLContext | None, certificate: ClientCertificate) -> ssl.SSLContext:
    with from_extra("webhooks"):
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    key, begins, chain = certificate.pem.partition(_CERTIFICATE)
    try:
        loaded = load_key(key.strip())
    except InvalidEndpoint as error:  # it was stored when more was allowed
        raise ssl.SSLError(str(error)) from None
    context = _trusting(trusted)
    context.set_alpn_protocols(("http/1.1",))
    # OpenSSL reads files alone: for a moment there is one of this user, in which the key is encrypted.
    password = secrets.token_bytes(32).hex().encode()
    encrypted = loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password),
    )
    with tempfile.NamedTemporaryFile(prefix="projections-tls-") as file:
        file.write(encrypted + (begins + chain).encode())
        file.flush()
        context.load_cert_chain(file.name, password=password)
    return context


def default_context() -> ssl.SSLContext:
    """
    Trust what the system trusts.

    Without groups that a receiver may choose to take much of the sender: with DHE 10,000 bits take a second of it, and
    with TLS 1.3 ffdhe8192 takes 150 ms. The latter before Python 3.15 only by OpenSSL's configuration: a single group,
    which Python can set, would also keep certificates of other curves from TLS 1.2.
    """
    return _with_small_groups(ssl.create_default_context())


def _trusting(trusted: ssl.SSLContext | None) -> ssl.SSLContext:
    if trusted is None:
        return default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # One by one: a thread lets others go on between two calls, and not within one.
    for authority in trusted.get_ca_certs(binary_form=True):
        context.load_verify_locations(cadata=authority)
    context.minimum_version, context.maximum_version = trusted.minimum_version, trusted.maximum_version
    context.check_hostname, context.verify_mode = trusted.check_hostname, trusted.verify_mode
    context.verify_flags = trusted.verify_flags
    return _with_small_groups(context)


def _with_small_groups(context: ssl.SSLContext) -> ssl.SSLContext:
    context.set_ciphers(":".join(one["name"] for one in context.get_ciphers() if one["kea"] != "kx-dhe"))
    if hasattr(context, "set_groups"):  # from Python 3.15 on
        context.set_groups(_GROUPS)
    return context
