"""
Tokens: a short text for what was appended, for a header or a form, from which another process can wait for it.

A token names the last event of each source, with its time, which no event that takes its number later has, and the
timeline of the database that it was appended on. Its last part is a checksum of the others, which finds what was cut
off or misspelt. It holds no secret, and is not proof of anything: anybody can make one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from journal.errors import InvalidToken

MAX_TOKEN_LENGTH = 6000
"""Characters of a token: with the others, servers take headers of 8 kB together."""

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
        ValueError: They are of too many sources: it would have more than 6,000 characters.
    """
    last = last_of_each(events)
    text = ".".join(map(_written, last))
    token = f"{text}.{_checksum(text)}"
    if len(token) > MAX_TOKEN_LENGTH:
        raise ValueError(
            f"a token has {MAX_TOKEN_LENGTH:,} characters at most, and that of these {len(last)} sources has "
            f"{len(token):,}: pass what append() returned to wait_for(), or append to fewer sources at once"
        )
    return token


def _written(event: AwaitedEvent) -> str:
    at = (event.db_timestamp - _EPOCH) // _MICROSECOND
    return _encoded(f"{event.timeline:x}.{event.seq_nr:x}.{at:x}.{event.source_id}".encode())


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _checksum(text: str) -> str:
    return _encoded(hashlib.blake2b(text.encode(), digest_size=6).digest())


def read_token(token: str) -> list[AwaitedEvent]:
    """
    What a token names.

    Raises:
        InvalidValue: It is not a token of :attr:`journal.Appended.token`, or was changed.
    """
    text, _, checksum = token.rpartition(".")
    if len(token) > MAX_TOKEN_LENGTH or not token.isascii() or checksum != _checksum(text):
        raise _invalid(token)
    return [_read(part, token) for part in text.split(".")]


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
