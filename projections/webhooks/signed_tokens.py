"""
Tokens that say something for a while.

They are signed, not encrypted: who has one can read it, and cannot change it.
"""

from __future__ import annotations

import hmac
import json
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from projections.webhooks.errors import InvalidSecret

_SHORTEST_KEY = 32
_LONGEST_TOKEN = 4096


class SignedTokens:
    """
    Makes and reads tokens of one purpose; those of another purpose are not read, though the key is the same.

    Args:
        purpose: Letters and digits; each token begins with it.
        keys: 32 random bytes or more each. The first one signs; tokens that any of them has signed are read.

    Raises:
        InvalidValue: A key has fewer than 32 bytes.
    """

    def __init__(self, purpose: str, keys: Sequence[bytes]) -> None:
        self._purpose = purpose.encode()
        self._keys = [_checked_key(key) for key in keys]

    def __repr__(self) -> str:
        return f"<SignedTokens {self._purpose.decode()}, keys: {len(self._keys)}>"

    def issue(self, facts: Mapping[str, Any], expires_in: timedelta) -> str:
        """
        Sign a token with the first of the keys, good until it expires: it cannot be taken back before.

        Raises:
            InvalidValue: There is no key, or the token would have expired already.
        """
        if not self._keys:
            raise InvalidSecret("tokens of tenants are signed with a key: pass signing_keys")
        if expires_in <= timedelta(0):
            raise InvalidSecret(f"a token expires after a time, not {expires_in}")
        written = json.dumps({**facts, "expires": time.time() + expires_in.total_seconds()})
        content = self._purpose + b"." + _encoded(written.encode())
        return (content + b"." + _encoded(_signature(self._keys[0], content))).decode()

    def read(self, token: bytes) -> Mapping[str, Any] | None:
        """What a token says; None: it is not signed with one of the keys, of another purpose, or expired."""
        if len(token) > _LONGEST_TOKEN:
            return None
        content, _, signature = token.rpartition(b".")
        purpose, _, written = content.partition(b".")
        given = _decoded(signature)
        genuine = [hmac.compare_digest(_signature(key, content), given) for key in self._keys]
        if not any(genuine) or purpose != self._purpose:
            return None
        facts: dict[str, Any] = json.loads(_decoded(written))
        return facts if time.time() < facts["expires"] else None


def _checked_key(key: Any) -> bytes:
    if not isinstance(key, bytes) or len(key) < _SHORTEST_KEY:
        raise InvalidSecret(f"a key to sign tokens with is {_SHORTEST_KEY} random bytes or more")
    return key


def _signature(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, "sha256")


def _encoded(content: bytes) -> bytes:
    """Without what ends it: a cookie with that would have to be quoted."""
    return urlsafe_b64encode(content).rstrip(b"=")


def _decoded(text: bytes) -> bytes:
    try:
        return b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return b""
