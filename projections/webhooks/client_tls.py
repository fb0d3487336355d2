"""TLS with a client certificate: a context for each, made once and kept."""

from __future__ import annotations

import asyncio
import secrets
import ssl
import tempfile

from cachetools import LRUCache

from projections.extras import from_extra
from projections.webhooks.credentials import ClientCertificate

_KEPT = 256


class ClientContexts:
    """
    Contexts of client certificates, which trust what a sender trusts.

    Args:
        trusted: Whose authorities, versions and checks are taken; None: what the system trusts.
    """

    def __init__(self, trusted: ssl.SSLContext | None) -> None:
        self._trusted = trusted
        self._contexts: LRUCache[str, ssl.SSLContext] = LRUCache(_KEPT)

    async def of(self, certificate: ClientCertificate | None) -> ssl.SSLContext | None:
        """Give the context of a certificate; None without one."""
        if certificate is None:
            return None
        if (found := self._contexts.get(certificate.digest)) is None:
            found = await asyncio.to_thread(_context, self._trusted, certificate)
            self._contexts[certificate.digest] = found
        return found


def _context(trusted: ssl.SSLContext | None, certificate: ClientCertificate) -> ssl.SSLContext:
    with from_extra("webhooks"):
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    context = ssl.create_default_context(
        cadata=None if trusted is None else b"".join(trusted.get_ca_certs(binary_form=True))
    )
    if trusted is not None:
        context.minimum_version, context.maximum_version = trusted.minimum_version, trusted.maximum_version
        context.check_hostname, context.verify_mode = trusted.check_hostname, trusted.verify_mode
        context.verify_flags = trusted.verify_flags
    context.set_alpn_protocols(("http/1.1",))
    # OpenSSL reads files alone: for a moment there is one of this user, in which the key is encrypted.
    password = secrets.token_bytes(32).hex().encode()
    key = serialization.load_pem_private_key(certificate.pem.encode(), None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password),
    )
    with tempfile.NamedTemporaryFile(prefix="projections-tls-") as file:
        file.write(key + certificate.pem[certificate.pem.index("-----BEGIN CERTIFICATE") :].encode())
        file.flush()
        context.load_cert_chain(file.name, password=password)
    return context
