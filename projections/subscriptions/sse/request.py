"""A request for a stream as hooks see it, without a framework, and answers that are not a stream."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import NamedTuple, Self
from urllib.parse import parse_qs

from projections.http.asgi import Scope, Send, answer
from projections.subscriptions.listening import LiveSubscription
from projections.subscriptions.reading import MatchPlace

_ID = re.compile(r"([0-9]{1,18})-([0-9]{1,18})-([0-9]{1,18})-([0-9]{1,18})", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_FIELDS = 100
"""Of a query string."""


class StreamRequest:
    """
    A client asks for a stream.

    Args:
        scope: The ASGI scope, for what is not here: a framework's request is made from it, and it has what other
            middleware has left there.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    @property
    def method(self) -> str:
        """GET, as a rule."""
        return str(self.scope["method"])

    @property
    def path(self) -> str:
        """The path below the place where the stream is mounted."""
        path, root = str(self.scope["path"]), str(self.scope.get("root_path", "")).rstrip("/")
        return path.removeprefix(root) if root and path.startswith(f"{root}/") else path

    @cached_property
    def query(self) -> Mapping[str, list[str]]:
        """The values of each field of the query string."""
        try:
            return parse_qs(
                bytes(self.scope.get("query_string", b"")).decode(),
                keep_blank_values=True,
                max_num_fields=_FIELDS,
            )
        except ValueError as error:  # no UTF-8, or too many
            raise Refused(400, "the query string cannot be read") from error

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """By their names in lower case; of one that comes again, the last."""
        return {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.scope["headers"]
        }

    @property
    def client(self) -> str:
        """The address of who asks; that of a proxy, unless the server puts in the one that the proxy tells."""
        client = self.scope.get("client")
        return str(client[0]) if client else ""

    @property
    def last_event_id(self) -> str | None:
        """Where the client has been: ``Last-Event-ID``, else ``?lastEventId=``, with which a page can begin there."""
        # A browser that comes again sends the header, to the address that it began with.
        given = self.headers.get("last-event-id") or self.query.get("lastEventId", [""])[-1]
        return given or None


def client_address(request: StreamRequest) -> str:
    """The address of who asks."""
    return request.client


class EventId(NamedTuple):
    """
    What a stream calls its events: a client that names one has seen all of the subscription up to a place.

    Numbers come again when the database goes back in time, so both are named with their times, in microseconds.
    """

    subscribed: LiveSubscription
    place: MatchPlace

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """What a client says; None when no stream has said that."""
        found = _ID.fullmatch(text)
        if found is None or max(int(found[3]), int(found[4])) > _LATEST:
            return None
        number, match_id, matched, made = map(int, found.groups())
        return cls(
            LiveSubscription(number, _time(made)), MatchPlace(match_id, _time(matched) if matched else None)
        )

    def __str__(self) -> str:
        matched_at = self.place.matched_at
        matched = 0 if matched_at is None else _micros(matched_at)
        number, made_at = self.subscribed
        return f"{number}-{self.place.match_id}-{matched}-{_micros(made_at)}"


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


class Refused(Exception):
    """A request that gets no stream but this HTTP status, with a reason for people, which 204 has not."""

    def __init__(self, status: int, reason: str = "", **headers: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.headers = headers

    async def answer(self, send: Send) -> None:
        """Tell the client."""
        headers = {"cache-control": "no-store", **self.headers}
        raw = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
        await answer(send, self.status, f"{self.reason}\n" if self.reason else "", raw)
