"""Links to the page, and the browsers that have come by one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from secrets import token_urlsafe
from typing import Any
from urllib.parse import urlencode, urlsplit

from projections.extras import from_extra
from projections.http.addresses import is_own_host
from projections.webhooks.api import Caller
from projections.webhooks.checks import check_tenant
from projections.webhooks.errors import InvalidSecret
from projections.webhooks.signed_tokens import SignedTokens

with from_extra("webhooks"):
    from starlette.requests import Request
    from starlette.responses import Response

_LINK, _SESSION = "pwl1", "pws1"
_ID_BYTES = 18
_LONGEST = timedelta(hours=24)
"""How long a link that was used is remembered."""


class PageLinks:
    """
    Makes links to the page for tenants, and knows the browsers that have come by one.

    A link is good once, and for a few minutes. A browser that opens it gets a cookie in its place, which is good for
    ``session``. Both are signed, and cannot be taken back before they expire. No token of
    :class:`TokenAuth` is good here, nor one of these there, also where the key is the same.

    Args:
        url: Where browsers find the page, such as ``https://app.example.com/webhooks``: https, or a loopback host.
        signing_keys: 32 random bytes or more each, the same for all processes. The first signs; what the others have
            signed is good as well.
        session: How long a browser may stay, 1 minute to 24 hours.

    Raises:
        InvalidValue: The URL, the time or a key is invalid, or there is no key.
    """

    def __init__(
        self, url: str, signing_keys: Sequence[bytes], *, session: timedelta = timedelta(minutes=30)
    ) -> None:
        self._url = _checked(url)
        if not signing_keys:
            raise InvalidSecret("links are signed with a key: pass signing_keys")
        if not timedelta(minutes=1) <= session <= _LONGEST:
            raise InvalidSecret(f"a session takes 1 minute to 24 hours, not {session}")
        self._links = SignedTokens(_LINK, signing_keys)
        self._sessions = SignedTokens(_SESSION, signing_keys)
        self._session = session

    def __repr__(self) -> str:
        return f"<PageLinks {self._url}>"

    async def __call__(self, request: Request) -> Caller | None:
        """Tell whose browser asks: the tenant of its session; None: it has none."""
        facts = self._sessions.read(request.cookies.get(self._cookie, "").encode())
        return None if facts is None else Caller(str(facts["tenant"]))

    def link(self, tenant: str, *, expires_in: timedelta = timedelta(minutes=5)) -> str:
        """
        Make a link that opens the page of a tenant, once.

        Whoever has the link before it was used is let in: give it to a user who is signed in, and keep it out of logs.

        Args:
            tenant: The tenant whose page it opens, 1 to 200 characters.
            expires_in: How long the link is good, up to 24 hours.

        Raises:
            InvalidValue: The tenant cannot be, or the time is out of range.
        """
        check_tenant(tenant, InvalidSecret)
        if expires_in > _LONGEST:
            raise InvalidSecret(f"a link is good for 24 hours at most, not {expires_in}")
        token = self._links.issue({"tenant": tenant, "id": token_urlsafe(_ID_BYTES)}, expires_in)
        return f"{self._url}/enter?{urlencode({'token': token})}"

    def read(self, token: str) -> tuple[str, str] | None:
        """
        Read the token of a link; the page does this itself.

        Args:
            token: What the link has as its token.

        Returns:
            The tenant and the id of the link; None: it is not signed with one of the keys, or has expired.
        """
        facts = self._links.read(token.encode(errors="replace"))
        return None if facts is None else (str(facts["tenant"]), str(facts["id"]))

    def begin(self, response: Response, tenant: str) -> None:
        """
        Have a browser begin a session; the page does this itself.

        Args:
            response: The answer that brings the cookie.
            tenant: The tenant that the session is of.
        """
        token = self._sessions.issue({"tenant": tenant}, self._session)
        self._set(response, token, max_age=int(self._session.total_seconds()))

    def end(self, response: Response) -> None:
        """
        Have a browser forget its session; the page does this itself.

        Args:
            response: The answer that takes the cookie back.
        """
        self._set(response, "", max_age=0)

    @property
    def path(self) -> str:
        """Where browsers find the page on its host."""
        return urlsplit(self._url).path

    @property
    def origin(self) -> str:
        """The site that the page's own forms come from."""
        parts = urlsplit(self._url)
        return f"{parts.scheme}://{parts.netloc}".lower()

    @property
    def secure(self) -> bool:
        """Whether cookies are for TLS alone."""
        return self._url.startswith("https:")

    @property
    def _cookie(self) -> str:
        # With this beginning, no other host of the domain can set it.
        return "__Host-webhooks" if self.secure else "webhooks"

    def _set(self, response: Response, value: str, **options: Any) -> None:
        response.set_cookie(
            self._cookie, value, httponly=True, samesite="strict", secure=self.secure, **options
        )


def _checked(url: str) -> str:
    reason = "it is not like https://app.example.com/webhooks"
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        raise InvalidSecret(f"the page cannot be at {url!r:.200}: {reason}") from None
    plain = url.isascii() and url.isprintable() and not set(url) & set(" \"'<>\\`;")
    if not host or not plain or parts.query or parts.fragment or "@" in parts.netloc:
        raise InvalidSecret(f"the page cannot be at {url!r:.200}: {reason}")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_own_host(parts.netloc)):
        raise InvalidSecret(
            f"the page cannot be at {url!r:.200}: sessions need https, except on a loopback host"
        )
    return url.rstrip("/")
