"""Reading one's own writes over HTTP: a request with a token waits until projections have handled what that names."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from datetime import timedelta
from typing import Any, TypeAlias

from journal import Database, DatabaseWentBack, InvalidToken, NotFound
from journal.tokens import read_token
from projections.waiting.waiter import WaitTimeout, wait_for_events

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class ReadYourWrites:
    """
    ASGI middleware: before a GET or HEAD that carries a token in a header, wait for projections.

    A page that has sent a command gets ``appended.token`` with the answer, and sends it with what it reads next; every
    other request passes at once. Where projections are late, or have never run, the answer is 503 with
    ``Retry-After``; with ``stale=True``, the request goes on and finds ``scope["state"]["stale"]`` true. A text that is
    not a token is answered with 400, one whose events are lost with 409. A projection that does not read the type of
    what was written is not waited for.

    A token proves nothing, and one that was made up is waited for as any other: put the middleware behind your
    authentication where strangers can reach it.

    Args:
        app: The ASGI application that handles the requests.
        database: Where the projections are, or a function that returns it, for an application that connects when it
            starts.
        projections: The name of one, or of several.
        header: The name of the header that carries the token.
        timeout: How long a request waits at most.
        stale: Let a request go on whose projections are late.
        methods: HTTP methods of the requests that wait; all others go on at once.
        max_waiting: How many requests may wait at a time; further ones are answered with 503.
        journal: Where the events are, if not in ``database``, or a function that returns that.
    """

    def __init__(
        self,
        app: Callable[[Scope, Receive, Send], Awaitable[None]],
        *,
        database: Database | Callable[[], Database],
        projections: str | Iterable[str],
        header: str = "projections-token",
        timeout: timedelta = timedelta(seconds=2),
        stale: bool = False,
        methods: Collection[str] = ("GET", "HEAD"),
        max_waiting: int = 1000,
        journal: Database | Callable[[], Database] | None = None,
    ) -> None:
        self._app = app
        self._database = database
        self._projections = [projections] if isinstance(projections, str) else list(projections)
        self._header = header.lower().encode("latin-1")
        self._timeout = timeout
        self._stale = stale
        self._methods = frozenset(methods)
        self._places = max_waiting
        self._journal = journal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        token = self._token(scope)
        problem = await self._wait(scope, token) if token is not None else None
        if problem is None:
            await self._app(scope, receive, send)
        else:
            await _answer(send, scope, *problem)

    def _token(self, scope: Scope) -> str | None:
        if scope["type"] != "http" or scope["method"] not in self._methods:
            return None
        found = [value for name, value in scope["headers"] if name == self._header]
        return found[0].decode("latin-1") if found else None

    async def _wait(self, scope: Scope, token: str) -> tuple[int, str] | None:
        """Wait; returns a status and what to say, or None when the request is to go on."""
        try:
            events = read_token(token)
        except InvalidToken as error:
            return 400, str(error)
        if self._places == 0:
            return self._late(scope, "too many requests wait already")
        database = self._database() if callable(self._database) else self._database
        journal = self._journal() if callable(self._journal) else self._journal
        self._places -= 1
        try:
            await wait_for_events(
                database, self._projections, events, self._timeout, those_that_read=True, journal=journal
            )
        except WaitTimeout:
            return self._late(scope, "what was written cannot be read yet: ask again")
        except NotFound:
            return self._late(scope, "what was written cannot be read yet: a projection has never run")
        except DatabaseWentBack:
            return 409, "what was written before is gone: it was lost when the database went back in time"
        finally:
            self._places += 1
        return None

    def _late(self, scope: Scope, why: str) -> tuple[int, str] | None:
        if not self._stale:
            return 503, why
        scope.setdefault("state", {})["stale"] = True
        return None


async def _answer(send: Send, scope: Scope, status: int, detail: str) -> None:
    body = json.dumps({"status": status, "detail": detail}).encode()
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
    if status == 503:  # noqa: PLR2004 - of HTTP
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
