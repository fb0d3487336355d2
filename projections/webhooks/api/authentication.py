"""
Who asks: an administrator, or one tenant.

An application brings its own function, or takes :class:`TokenAuth`: tokens that it knows, and tokens that it signs for
its tenants for a while, such as for a page in a tenant's browser.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from projections.extras import from_extra
from projections.http.authentication import KnownTokens, bearer_token
from projections.webhooks.checks import check_tenant
from projections.webhooks.errors import InvalidSecret
from projections.webhooks.signed_tokens import SignedTokens

with from_extra("webhooks"):
    from starlette.requests import Request

_PURPOSE = "pwt1"
_SHORTEST_TOKEN = 16
_LONGEST_TOKEN = 4096


@dataclass(frozen=True, slots=True)
class Caller:
    """
    Who asks.

    Args:
        tenant: Sees and changes what is this tenant's, as if nothing else was there; None: an administrator, who
            sees all.
    """

    tenant: str | None


Authenticate: TypeAlias = Callable[[Request], Awaitable[Caller | None]]
"""Tells who sends a request; None: nobody who may."""


class TokenAuth:
    """
    Knows callers by ``Authorization: Bearer TOKEN``.

    Args:
        admin_token: The token by which administrators authenticate; None: there are none.
        tenant_tokens: By tenant, the token by which it authenticates.
        signing_keys: What :meth:`issue` signs with, the first, and has signed with, the others: 32 random bytes or more
            each.

    Raises:
        InvalidValue: A token has fewer than 16 characters, a key fewer than 32 bytes, or two tokens are the same.
    """

    def __init__(
        self,
        *,
        admin_token: str | None = None,
        tenant_tokens: Mapping[str, str] | None = None,
        signing_keys: Sequence[bytes] = (),
    ) -> None:
        known = [] if admin_token is None else [(Caller(None), admin_token)]
        known += [(Caller(tenant), token) for tenant, token in (tenant_tokens or {}).items()]
        for caller, token in known:
            if len(token) < _SHORTEST_TOKEN:
                whose = "administrators" if caller.tenant is None else f"tenant {caller.tenant!r:.80}"
                raise InvalidSecret(f"the token of {whose} has fewer than {_SHORTEST_TOKEN} characters")
        if len({token for _, token in known}) < len(known):
            raise InvalidSecret("two callers have the same token")
        self._known = KnownTokens(known)
        self._signed = SignedTokens(_PURPOSE, signing_keys)

    async def __call__(self, request: Request) -> Caller | None:
        """Tell who sends a request."""
        token = bearer_token(request.scope)
        return (self._known.holder(token) or self._of_signed(token)) if len(token) <= _LONGEST_TOKEN else None

    def issue(self, tenant: str, expires_in: timedelta) -> str:
        """
        Sign a token for a tenant with the first of the keys, good until it expires: it cannot be taken back before.

        Args:
            tenant: The tenant that the token lets in, 1 to 200 characters.
            expires_in: How long the token is valid, more than zero.

        Raises:
            InvalidValue: There is no key, the tenant cannot be, or it would have expired already.
        """
        check_tenant(tenant, InvalidSecret)
        return self._signed.issue({"tenant": tenant}, expires_in)

    def _of_signed(self, token: bytes) -> Caller | None:
        facts = self._signed.read(token)
        return None if facts is None else Caller(str(facts["tenant"]))
