"""
What is stored for an event, made into JSON text.

A decoder is a function from :class:`Stored` to JSON text. What it raises is the event's fault: the event is read all
the same, and using its payload raises an error that says why there is none.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from journal.errors import InvalidPayload
from journal.events import Unreadable
from journal.payload import MAX_PAYLOAD_BYTES

_GZIP = b"\x1f\x8b"


class Stored(NamedTuple):
    """A payload or metadata as a table has it."""

    source_id: str
    seq_nr: int
    event_type: str
    serializer_id: int | None
    manifest: str | None
    data: bytes | str


Decoder: TypeAlias = Callable[[Stored], str]
"""Makes JSON text; raises what it will where that cannot be done."""


def json_text(stored: Stored) -> str:
    """
    The decoder of JSON, as text or as bytes of UTF-8, compressed by gzip or not.

    Raises:
        InvalidPayload: It is neither.
    """
    return stored.data if isinstance(stored.data, str) else text_of(unpacked(stored.data))


def unpacked(data: bytes) -> bytes:
    """
    Data that may be compressed by gzip: its first bytes say so.

    Raises:
        InvalidPayload: It has more than 16 MiB when it is unpacked, or ends too early.
    """
    if not data.startswith(_GZIP):
        return bytes(data)
    unpacking = zlib.decompressobj(31)  # of gzip
    whole = unpacking.decompress(data, MAX_PAYLOAD_BYTES + 1)
    if len(whole) > MAX_PAYLOAD_BYTES or not unpacking.eof:
        raise InvalidPayload(
            f"it is cut off, or has more than {MAX_PAYLOAD_BYTES:,} bytes when it is unpacked"
        )
    return whole


def text_of(data: bytes) -> str:
    """
    Bytes of UTF-8 as text.

    Raises:
        InvalidPayload: They are none.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidPayload(f"it is not text: it begins with {data[:8].hex(' ')}") from error


def readable(decode: Decoder, stored: Stored, what: str) -> str:
    """The JSON text of what is stored, or why there is none; see :class:`journal.events.Unreadable`."""
    try:
        return decode(stored)
    except Exception as error:  # noqa: BLE001 - whatever a user's decoder raises is this event's fault alone
        serializer = "" if stored.serializer_id is None else f", serializer {stored.serializer_id}"
        manifest = f", manifest {stored.manifest!r}" if stored.manifest else ""
        return Unreadable(
            f"{what} of event {stored.event_type!r} of source {stored.source_id!r}, seq_nr {stored.seq_nr}{serializer}"
            f"{manifest}, cannot be decoded: {str(error) or repr(error)}"
        )
