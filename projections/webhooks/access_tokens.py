"""
Access tokens of OAuth (client credentials): had from the token URL, kept until they expire, sent with each request.

A token URL is asked as an endpoint is: the same addresses are allowed, no redirect is followed, as much of the answer
is read, and its time is of the attempt's. What it answers is nobody's to see.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import math
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import quote_plus, urlencode

from cachetools import LRUCache

from journal.tasks import Shared
from projections.webhooks.credentials import OAuthClient
from projections.webhooks.outgoing import Outgoing
from projections.webhooks.response_reading import Reply

FAILED = "token_error"
"""The code of an attempt that had no token."""

_Send = Callable[[Outgoing], Awaitable[Reply]]
_KEPT = 10_000
_UNSAID = 300.0
"""Seconds that a token is kept that does not say how long it is good for."""
_LONGEST = 86_400.0
_EARLY = 30.0
_TOKEN = re.compile(r"[\x21-\x7e]{1,8000}")
_NO_TIME = timedelta(0)


class _Token(NamedTuple):
    value: str
    until: float

    def __repr__(self) -> str:
        return "<access token>"


class _NoTokenError(Exception):
    """Why there is none, for the owner of the endpoint."""


class AccessTokens:
    """The tokens of a sender, which makes its requests by ``send``."""

    def __init__(self, send: _Send) -> None:
        self._send = send
        self._kept: LRUCache[str, _Token] = LRUCache(_KEPT)
        self._asking: Shared[_Token] = Shared()

    async def send(self, outgoing: Outgoing, client: OAuthClient) -> Reply:
        """Send a request with a token; where that is refused (401) and was kept, a second time with a new one."""
        loop = asyncio.get_running_loop()
        began, key = loop.time(), _key(outgoing.tenant, client)

        def left() -> timedelta:
            return max(outgoing.timeout - timedelta(seconds=loop.time() - began), _NO_TIME)

        try:
            kept = self._known(key)
            token = kept or await self._new(key, client, outgoing, left())
            reply = await self._with(token, outgoing, left())
            if reply.code == "401":
                self._forget(key, token)
                if kept is not None and left() > _NO_TIME:
                    token = await self._new(key, client, outgoing, left())
                    reply = await self._with(token, outgoing, left())
        except _NoTokenError as error:
            body = f"no access token: {error}"
            return Reply(FAILED, None, None, None, body, truncated=False, took=outgoing.timeout - left())
        return reply._replace(took=outgoing.timeout - left())

    async def aclose(self) -> None:
        """End what is being asked."""
        await self._asking.aclose()

    async def _with(self, token: _Token, outgoing: Outgoing, left: timedelta) -> Reply:
        headers = [each for each in outgoing.headers if each[0].lower() != "authorization"]
        request = outgoing._replace(
            headers=(*headers, ("authorization", f"Bearer {token.value}")), timeout=left, oauth=None
        )
        reply = await self._send(request)
        return reply._replace(body=reply.body.replace(token.value, "[access token]"))

    def _known(self, key: str) -> _Token | None:
        found = self._kept.get(key)
        return found if found is not None and found.until > asyncio.get_running_loop().time() else None

    def _forget(self, key: str, token: _Token) -> None:
        if self._kept.get(key) is token:
            del self._kept[key]

    async def _new(self, key: str, client: OAuthClient, outgoing: Outgoing, left: timedelta) -> _Token:
        """A token that others have just had, or that is asked for: once, for all who want it."""
        if (found := self._known(key)) is not None:
            return found
        try:
            async with asyncio.timeout(left.total_seconds()):
                return await self._asking.get(key, lambda: self._asked(key, client, outgoing, left))
        except TimeoutError:
            raise _NoTokenError("the token URL did not answer in time") from None

    async def _asked(self, key: str, client: OAuthClient, outgoing: Outgoing, left: timedelta) -> _Token:
        reply = await self._send(_request(client, outgoing, left))
        if reply.code != "200":
            said = f"answered {reply.code}" if reply.status else f"gave no answer: {reply.code}"
            raise _NoTokenError(f"the token URL {said}")
        token = _read(reply, asyncio.get_running_loop().time())
        self._kept[key] = token
        return token


def _key(tenant: str, client: OAuthClient) -> str:
    parts = [tenant, *client.facts.model_dump().values(), client.secret]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _request(client: OAuthClient, outgoing: Outgoing, left: timedelta) -> Outgoing:
    facts = client.facts
    form = {"grant_type": "client_credentials"} | ({"scope": facts.scope} if facts.scope else {})
    headers = [("content-type", "application/x-www-form-urlencoded"), ("accept", "application/json")]
    if facts.method == "post":
        form |= {"client_id": facts.client_id, "client_secret": client.secret}
    else:
        pair = f"{quote_plus(facts.client_id)}:{quote_plus(client.secret)}"
        headers.append(("authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"))
    return outgoing._replace(
        url=facts.token_url, headers=tuple(headers), body=urlencode(form).encode(), timeout=left, oauth=None,
        certificate=None, traceparent=None,
    )  # fmt: skip


def _read(reply: Reply, now: float) -> _Token:
    try:
        found: Any = None if reply.truncated else json.loads(reply.body)
    except (ValueError, RecursionError):
        found = None
    value = found.get("access_token") if isinstance(found, dict) else None
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise _NoTokenError("the token URL answered 200 without an access_token")
    if str(found.get("token_type", "Bearer")).lower() != "bearer":
        raise _NoTokenError("the token URL gives another kind of token than Bearer")
    return _Token(value, now + _good_for(found.get("expires_in")))


def _good_for(said: Any) -> float:
    """Seconds, a little less than is said: it has to be good when it arrives."""
    try:
        seconds = float(said)
    except (TypeError, ValueError, OverflowError):
        return _UNSAID
    if not math.isfinite(seconds):
        return _UNSAID
    seconds = min(max(seconds, 0.0), _LONGEST)
    return max(seconds - _EARLY, seconds / 2)
