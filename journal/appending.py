"""
Appending, inside the caller's own transaction, whichever driver holds it.

The work is done by ``projections.append_events_v1``; here events become its parallel arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from journal.database import fetch_on, fetch_on_sync
from journal.errors import InvalidEvent
from journal.event_types import event_type_of
from journal.events import Appended, AppendedEvents, Event
from journal.naive_times import naive_field
from journal.payload import encode
from journal.storable_text import unstorable

MAX_NAME_LENGTH = 255
MAX_VERSION = 2**15 - 1
MAX_SEQ_NR = 2**63 - 1
EVENT_COLUMNS = (
    "source_id",
    "entity_type",
    "event_type",
    "payload",
    "version",
    "metadata",
    "tags",
    "event_id",
)

_APPEND = """
SELECT seq_nr, db_timestamp, event_id, (SELECT projections.timeline_v1()) AS timeline, is_new
FROM projections.append_events_v1(
    CAST($1 AS text[]), CAST($2 AS text[]), CAST($3 AS text[]), CAST($4 AS text[]), CAST($5 AS smallint[]),
    CAST($6 AS text[]), CAST($7 AS text[]), CAST($8 AS uuid[]), CAST($9 AS text[]), CAST($10 AS bigint[]))
"""

_APPEND_BY_IDS = _APPEND.replace("is_new\n", "is_new, source_id\n")
"""What is stored already of a message may be of another source."""


async def append(
    connection: Any, events: Sequence[Event], *, expected_seq_nr: int | Mapping[str, int] | None = None
) -> AppendedEvents:
    """
    Append events of any number of sources; they commit with the caller's transaction, or not at all.

    Args:
        connection: A :class:`journal.Session`, an asyncpg connection, a psycopg ``AsyncConnection``, or an
            SQLAlchemy ``AsyncConnection`` or ``AsyncSession``, on which the caller has begun a transaction.
        events: In the order in which they happened; events of one source get consecutive numbers.
        expected_seq_nr: Where the source must stand before (0 for a new one), or a mapping from source id to
            it.

    Returns:
        One :class:`Appended` for each event, in their order; ``token`` of the whole is what others can wait with until
        they are handled (:func:`projections.wait_for`). For an ``event_id`` that is stored already, the first result.

    Raises:
        InvalidEvent: An event cannot be stored; nothing was sent.
        AppendConflict: A source does not stand where expected. The transaction must be rolled back.
        EventIdConflict: An ``event_id`` was used for other content.
    """
    check_list(events, Event, "append")
    if not events:
        return AppendedEvents()
    rows = await fetch_on(connection, *_call(events, expected_seq_nr))
    return _appended(events, rows)


def append_sync(
    connection: Any, events: Sequence[Event], *, expected_seq_nr: int | Mapping[str, int] | None = None
) -> AppendedEvents:
    """
    Append from a synchronous connection: psycopg's or SQLAlchemy's ``Connection``, or a ``Session``.

    Arguments, result and errors are those of :func:`append`.
    """
    check_list(events, Event, "append_sync")
    if not events:
        return AppendedEvents()
    rows = fetch_on_sync(connection, *_call(events, expected_seq_nr))
    return _appended(events, rows)


def _call(
    events: Sequence[Event], expected_seq_nr: int | Mapping[str, int] | None
) -> tuple[str, tuple[list[Any], ...]]:
    arguments = _arguments(events, expected_seq_nr)  # which refuses what is no event
    return _APPEND if all(event.event_id is None for event in events) else _APPEND_BY_IDS, arguments


def _appended(events: Sequence[Event], rows: Sequence[tuple[Any, ...]]) -> AppendedEvents:
    return AppendedEvents(
        (
            Appended(stored_in[0] if stored_in else event.source_id, seq_nr, db_timestamp, event_id, timeline)
            for event, (seq_nr, db_timestamp, event_id, timeline, _, *stored_in) in zip(
                events, rows, strict=True
            )
        ),
        (row[4] for row in rows),
    )


def _arguments(
    events: Sequence[Event], expected_seq_nr: int | Mapping[str, int] | None
) -> tuple[list[Any], ...]:
    columns = zip(*map(event_row, events), strict=True)
    expected = _expected(events, expected_seq_nr)
    return (*map(list, columns), list(expected), list(expected.values()))


def event_row(event: Event) -> tuple[Any, ...]:
    """
    What is stored of an event, in the order of :data:`EVENT_COLUMNS`.

    Raises:
        InvalidEvent: It cannot be stored; the error names the source and the value.
    """
    try:
        return _row(event)
    except AttributeError as error:
        if isinstance(event, Event):
            raise
        raise InvalidEvent(
            f"{type(event).__name__} is not an event: write Event(source_id, payload, entity_type=…)"
        ) from error
    except InvalidEvent as error:
        raise InvalidEvent(f"source {str(event.source_id)[:80]!r}: {error}") from error.__cause__


def _row(event: Event) -> tuple[Any, ...]:
    check_name(event.source_id, "source_id")
    declared = event_type_of(type(event.payload)) if isinstance(event.payload, BaseModel) else None
    event_type = declared.name if declared and event.event_type is None else event.event_type
    if event_type is None:
        raise InvalidEvent("the event has no event_type: only a payload that is a model has one")
    _check_types(event.entity_type, event_type)
    version = event.version if event.version is not None else declared.version if declared else 1
    if not 1 <= version <= MAX_VERSION:
        raise InvalidEvent(f"version must be 1 to {MAX_VERSION}, not {version}")
    if not isinstance(event.event_id, UUID | None):
        raise InvalidEvent(f"event_id must be a UUID, not {event.event_id!r:.80}")
    payload = encode(event.payload, "payload")
    if declared and declared.naive_times == "refuse" and (field := naive_field(type(event.payload), payload)):
        raise InvalidEvent(
            f"payload: {field} is a datetime without a time zone: give it one, such as datetime.UTC; if it is to have "
            'none, annotate it with pydantic.NaiveDatetime; if it is in UTC, write @event_type(naive_times="utc")'
        )
    return (
        event.source_id,
        event.entity_type,
        event_type,
        payload,
        version,
        encode(event.metadata, "metadata") if event.metadata is not None else None,
        array_literal(event.tags, "a tag") if event.tags else None,
        event.event_id,
    )


def check_list(items: object, kind: type, call: str) -> None:
    """
    Check that a call was given several.

    Raises:
        InvalidEvent: It is not a list; the message says what to write.
    """
    if isinstance(items, Sequence) and not isinstance(items, str | bytes):
        return
    one, several = kind.__name__, f"{call}(…, [{kind.__name__.lower()}])"
    if isinstance(items, kind):
        raise InvalidEvent(f"{call} takes a list, not one {one}: write {several}")
    raise InvalidEvent(f"{call} takes a list of {one}, not {type(items).__name__}: write {several}")


def check_kind(item: object, kind: type, arguments: str) -> None:
    """
    Check one of several that a call was given.

    Args:
        item: The value that was passed.
        kind: The class that it has to be of.
        arguments: How one is made, without what may be left out.

    Raises:
        InvalidEvent: It is something else; the message says what to write.
    """
    if not isinstance(item, kind):
        raise InvalidEvent(
            f"{type(item).__name__} is not a {kind.__name__}: write {kind.__name__}({arguments})"
        )


def _check_types(entity_type: str, event_type: str) -> None:
    try:
        _check_few_types(entity_type, event_type)
    except TypeError:  # what cannot be looked up is not a string either
        _check_few_types.__wrapped__(entity_type, event_type)


@lru_cache(maxsize=1024)
def _check_few_types(entity_type: str, event_type: str) -> None:
    """Checked once: an application has few types and many events."""
    check_entity_type(entity_type)
    check_name(event_type, "event_type")


def check_name(name: str, what: str) -> None:
    """
    Check an id or a name that is stored with an event.

    Raises:
        InvalidEvent: It is not a string, empty, longer than 255 characters, or holds what PostgreSQL cannot
            store.
    """
    if type(name) is str and 1 <= len(name) <= MAX_NAME_LENGTH and name.isprintable():
        return  # what is printable can be stored: the usual case, in one step
    if not isinstance(name, str):
        raise InvalidEvent(f"{what} must be a string, not {type(name).__name__}")
    if not 1 <= len(name) <= MAX_NAME_LENGTH:
        raise InvalidEvent(
            f"{what} must have 1 to {MAX_NAME_LENGTH} characters, it has {len(name):,}: {name[:40]!r}"
        )
    if found := unstorable(name):
        raise InvalidEvent(f"{what} holds {found}, which PostgreSQL cannot store: {name[:40]!r}")


def check_entity_type(entity_type: str, what: str = "entity_type") -> None:
    """
    Check the kind of a source, where events are appended and where they are read.

    Raises:
        InvalidEvent: As :func:`check_name`; or it has a ``*``, as if it were a pattern.
    """
    check_name(entity_type, what)
    if "*" in entity_type:
        raise InvalidEvent(
            f"{what} is {entity_type[:40]!r}, and * stands for nothing in it: write the name of one kind of sources; "
            "to read several, write entity_type=('plane', 'airport'), and for every one ALL_TYPES"
        )


def array_literal(items: Sequence[str], what: str) -> str:
    """A PostgreSQL array literal: lists of lists of different lengths cannot be sent as an array."""
    if isinstance(items, str):
        raise InvalidEvent(f"{what}: tags must be a list of strings, not one string")
    for item in items:
        check_name(item, what)
    quoted = (item.replace("\\", "\\\\").replace('"', '\\"') for item in items)
    return "{" + ",".join(f'"{item}"' for item in quoted) + "}"


def _expected(events: Sequence[Event], expected: Any) -> dict[str, int]:
    if expected is None:
        return {}
    if isinstance(expected, bool) or not isinstance(expected, int | Mapping):
        raise InvalidEvent(
            f"expected_seq_nr must be a number, or a mapping by source_id, not {expected!r:.80}"
        )
    sources = {event.source_id for event in events}
    if isinstance(expected, int):
        if len(sources) > 1:
            raise InvalidEvent(
                f"expected_seq_nr {expected} for {len(sources)} sources: pass a mapping by source_id"
            )
        expected = dict.fromkeys(sources, expected)
    for source_id, seq_nr in expected.items():
        if source_id not in sources:
            raise InvalidEvent(f"expected_seq_nr names source {source_id!r}, but no event of it is appended")
        if isinstance(seq_nr, bool) or not isinstance(seq_nr, int):
            raise InvalidEvent(
                f"expected_seq_nr of source {source_id!r} must be a number, not {seq_nr!r:.80}"
            )
        if not 0 <= seq_nr <= MAX_SEQ_NR:
            raise InvalidEvent(
                f"expected_seq_nr of source {source_id!r} is {seq_nr!r:.80}: a new source stands at 0"
            )
    return dict(expected)
