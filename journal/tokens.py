"""
Tokens: a short text for what was appended, for a header or a form, from which another process can wait for it.

A token names the last event of each source, with its time, which no event that takes its number later has, and the
timeline of the database that it was appended on. It holds no secret, and is no proof of anything.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from journal.errors import InvalidToken

MAX_TOKEN_SOURCES = 100
"""Sources that a token may name."""

_PART = re.compile(r"([0-9a-f]{1,8})\.([0-9a-f]{1,16})\.([0-9a-f]{1,14})\.(.{1,255})", re.DOTALL)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_END = (datetime(9999, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND


class AwaitedEvent(NamedTuple):
    """An event to be waited for: the last that was appended of a source."""

    source_id: str
    seq_nr: int
    db_timestamp: datetime
    timeline: int


def last_of_each(events: Iterable[AwaitedEvent]) -> list[AwaitedEvent]:
    """The last event of each source: once that is handled, all are."""
    last: dict[str, AwaitedEvent] = {}
    for event in events:
        if event.source_id not in last or last[event.source_id].seq_nr < event.seq_nr:
            last[event.source_id] = event
    return list(last.values())


def write_token(events: Iterable[AwaitedEvent]) -> str:
    """
    A token for events: about 30 characters for each source, and 4 for each 3 bytes of its id, URL-safe.

    Raises:
        ValueError: They are of more than 100 sources.
    """
    last = last_of_each(events)
    if len(last) > MAX_TOKEN_SOURCES:
        raise ValueError(
            f"a token is for {MAX_TOKEN_SOURCES} sources at most, and these events are of {len(last)}: pass what "
            "append() returned to wait_for(), or append fewer sources at once"
        )
    return ".".join(map(_written, last))


def _written(event: AwaitedEvent) -> str:
    at = (event.db_timestamp - _EPOCH) // _MICROSECOND
    text = f"{event.timeline:x}.{event.seq_nr:x}.{at:x}.{event.source_id}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_token(token: str) -> list[AwaitedEvent]:
    """
    What a token names.

    Raises:
        InvalidValue: It is no token of :attr:`journal.Appended.token`, or was changed.
    """
    parts = token.split(".", MAX_TOKEN_SOURCES)
    if not token or len(parts) > MAX_TOKEN_SOURCES:
        raise _invalid(token)
    return [_read(part, token) for part in parts]


def _read(part: str, token: str) -> AwaitedEvent:
    try:
        padded = part + "=" * (-len(part) % 4)
        text = base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError):
        raise _invalid(token) from None
    found = _PART.fullmatch(text)
    if found is None or "\0" in text:
        raise _invalid(token)
    timeline, seq_nr, at = (int(number, 16) for number in found.groups()[:3])
    if not (0 < timeline < 2**31 and 0 < seq_nr < 2**63 and 0 < at < _END):
        raise _invalid(token)
    return AwaitedEvent(found[4], seq_nr, _EPOCH + at * _MICROSECOND, timeline)


def _invalid(token: str) -> InvalidToken:
    return InvalidToken(f"{token[:60]!r} is not a token of an append: pass it as it was given out")
