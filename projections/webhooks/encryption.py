"""
How secrets of endpoints are kept in the database.

What is stored begins with the way it was written, `plain:` or `fernet:`, so that one can be told from the other, and a
database in which some are still plain can be read after encryption was switched on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Protocol

from projections.extras import from_extra
from projections.webhooks.errors import InvalidSecret

KEYS_VARIABLE = "PROJECTIONS_WEBHOOK_KEYS"

_PLAIN = "plain:"
_FERNET = "fernet:"
_NEW_KEY = "python -c 'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())'"


class Cipher(Protocol):
    """Writes secrets for the database, and reads them; bring your own to use a key service."""

    def encrypt(self, text: str) -> str:
        """Return what is stored of a secret."""

    def decrypt(self, stored: str) -> str:
        """Return the secret; InvalidValue, with neither in it: it was stored in another way, or with another key."""


class PlainCipher:
    """Keeps secrets as they are: whoever reads the table can sign. For trying things out."""

    def encrypt(self, text: str) -> str:
        """Return the text, marked as plain."""
        return _PLAIN + text

    def decrypt(self, stored: str) -> str:
        """Return the text."""
        if stored.startswith(_FERNET):
            raise InvalidSecret(
                f"the stored secret is encrypted; set {KEYS_VARIABLE} to the key it was stored with"
            )
        return _plain(stored)


class FernetCipher:
    """
    Encrypts secrets with Fernet (AES-128-CBC and HMAC-SHA256), and reads plain ones too.

    To change keys, put the new one behind the old one for all processes, then in front of it, have every secret stored
    again (:meth:`Endpoints.renew_secrets`), then drop the old.

    Args:
        keys: 32 bytes in URL-safe base64 each; the first encrypts, all decrypt.

    Raises:
        InvalidValue: There is no key, or one is malformed; the message says which, by its place.
        ImportError: The package cryptography is not installed.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        with from_extra("webhooks"):
            from cryptography.fernet import Fernet, MultiFernet  # noqa: PLC0415

        fernets = []
        for place, key in enumerate(keys, 1):
            try:
                fernets.append(Fernet(key))
            except ValueError:
                # `from None`: the cause may show the key.
                raise InvalidSecret(
                    f"key {place} of the cipher is not 32 bytes in URL-safe base64; make one with: {_NEW_KEY}"
                ) from None
        if not fernets:
            raise InvalidSecret(f"encryption needs a key; make one with: {_NEW_KEY}")
        self._fernet = MultiFernet(fernets)
        self._keys = len(fernets)

    def __repr__(self) -> str:
        return f"<FernetCipher, keys: {self._keys}>"

    def encrypt(self, text: str) -> str:
        """Return the text, encrypted with the first key."""
        return _FERNET + self._fernet.encrypt(text.encode()).decode()

    def decrypt(self, stored: str) -> str:
        """Return the text, by any of the keys."""
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - __init__ has imported it

        if not stored.startswith(_FERNET):
            return _plain(stored)
        try:
            return self._fernet.decrypt(stored.removeprefix(_FERNET).encode()).decode()
        except InvalidToken:
            raise InvalidSecret(
                f"the stored secret cannot be read with the {self._keys} keys given; add the one it was stored with"
            ) from None


def cipher_from_environment(environment: Mapping[str, str] = os.environ) -> Cipher:
    """
    Return the cipher that `PROJECTIONS_WEBHOOK_KEYS` asks for: keys of Fernet with commas between, the newest first.

    Without it, secrets are kept plain.

    Raises:
        InvalidValue: A key is malformed.
        ImportError: There are keys, and the package cryptography is not installed.
    """
    keys = [key for text in environment.get(KEYS_VARIABLE, "").split(",") if (key := text.strip())]
    return FernetCipher(keys) if keys else PlainCipher()


def _plain(stored: str) -> str:
    if not stored.startswith(_PLAIN):
        raise InvalidSecret("the stored secret was written in a way that this cipher does not know")
    return stored.removeprefix(_PLAIN)
