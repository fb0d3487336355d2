"""
Errors of the journal and of everything above it.

    ProjectionsError
    ├── InvalidValue              a setting, an option or a field cannot be as it was given
    │   ├── InvalidEvent          what is to be appended cannot be stored
    │   └── InvalidToken          a text is not a token of an append
    ├── AppendConflict            expected_seq_nr is not the source's seq_nr
    ├── EventIdConflict           the event_id was used for other content
    ├── InvalidPayload            a stored payload does not fit its model
    │   └── UnknownEventType      no model is registered for a stored event
    ├── DatabaseError             the database refused or broke a statement
    │   ├── DatabaseUnavailable   no connection, or it was lost
    │   │   └── NoAnswer          a statement took longer than it may
    │   ├── OutOfResources        the server has no disk or memory left, or cannot read its files
    │   │   └── OutOfMemory       this process, or the server, has no memory left
    │   ├── MissingPrivilege      a grant is missing
    │   └── ReadOnlyDatabase      a standby, or default_transaction_read_only
    │       └── NeedsPrimary      a standby answered what only the primary knows
    ├── DatabaseWentBack          the database is in an earlier state than one that was seen
    ├── EmbeddedServerError       the embedded PostgreSQL cannot be found, made, started or stopped
    ├── ForeignJournalError       a journal of another system cannot be read in place
    ├── NotAllowed                what is asked for cannot be done with what is there now
    ├── NotFound                  what was named is not there, or not any more
    └── SchemaError               the schema is missing, older or newer than this library
        └── OtherSchemaVersion    it is older or newer
"""

from __future__ import annotations


class ProjectionsError(Exception):
    """Root of all errors that this library raises on purpose."""

    origin: object = None
    """The pool, or the connection of the caller, whose session has raised it; None where it is of no session."""


class InvalidValue(ProjectionsError, ValueError):
    """A setting, an option or a field cannot be as it was given; the message names it."""


class InvalidEvent(InvalidValue):
    """An event that cannot be stored as it is."""


class AppendConflict(ProjectionsError):
    """
    Another writer was first: the source does not stand where the caller expected it.

    Args:
        source_id: The source that events were to be appended to.
        expected: What the caller passed as ``expected_seq_nr``.
        found: The ``seq_nr`` of the last event that the source has in the journal; 0 where it has none.
    """

    def __init__(self, source_id: str, expected: int, found: int) -> None:
        super().__init__(
            f"source {source_id!r} is at seq_nr {found}, expected {expected}: "
            "read the source again, then decide"
        )
        self.source_id = source_id
        self.expected = expected
        self.found = found


class EventIdConflict(ProjectionsError):
    """An event_id that is already stored was appended again with other content."""


class InvalidPayload(ProjectionsError):
    """A stored payload does not fit the model of its event type, or there is no model of that."""


class UnknownEventType(InvalidPayload):
    """A stored event type has no payload model where one is needed."""


class EmbeddedServerError(ProjectionsError):
    """The embedded PostgreSQL cannot be found, made, started or stopped; the message says what to do."""


class ForeignJournalError(ProjectionsError):
    """
    A journal of another system cannot be read in place.

    It is not as it was said to be, a privilege is missing, or something breaks the argument that nothing is lost.
    """


class InvalidToken(InvalidValue):
    """A text is not a token of an append."""


class DatabaseError(ProjectionsError):
    """
    The database refused a statement.

    Args:
        message: The database's own text about the error.
        sqlstate: Its five-character code, when it sent one.
    """

    context: str = ""
    """In which functions of the database it happened, when it said so."""

    def __init__(self, message: str, *, sqlstate: str | None = None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class DatabaseUnavailable(DatabaseError):
    """No connection to the database could be had, or it was lost."""


class JournalUnavailable(DatabaseUnavailable):
    """The database of a journal that is not in the one of the read models cannot be reached, or was lost."""


class DatabaseWentBack(ProjectionsError):
    """
    The database is in an earlier state than one that was seen: a fail-over has lost commits, or it was restored.

    What was remembered of it, such as a token or a place, may name what is gone: begin again with what is stored.
    """


class NoAnswer(DatabaseUnavailable):
    """A statement took longer than it may; its connection was dropped, and its outcome is unknown."""


class MissingPrivilege(DatabaseError):
    """The connected role lacks a grant."""


class OutOfResources(DatabaseError):
    """The server has no disk or memory left, or cannot read or write its files."""


class OutOfMemory(OutOfResources):
    """This process has no memory left for what the database sent, or the server none for what it was asked."""


class ReadOnlyDatabase(DatabaseError):
    """The database takes no writes: a standby, or a read-only session."""


class NeedsPrimary(ReadOnlyDatabase):
    """A standby answered, and what was asked for is known to the primary alone."""


class NotFound(ProjectionsError, LookupError):
    """
    What was named is not there, or not any more; the message says what it was.

    Args:
        message: The text for people, which names it.
        code: ``unknown_projection``, ``unknown_group``, ``unknown_endpoint``, ``unknown_delivery``,
            ``unknown_schedule``, ``unknown_attempt`` or ``unknown_event``; ``not_parked`` or ``not_dead`` where nothing
            waits for a decision.
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class NotAllowed(ProjectionsError):
    """
    What is asked for cannot be done with what is there now; the message says why.

    Args:
        message: The text for people, with the reason.
        code: ``outdated_version`` (an endpoint or a schedule has another version than the one to change: read it
            again, and change that), ``delivery_in_flight`` (wait for its outcome), ``not_retriable`` (the endpoint is
            disabled, or the event is gone), ``wrong_state`` (somebody has changed it meanwhile), ``too_many`` (of
            endpoints or schedules), or ``missing_table`` (a worker creates it).
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class SchemaError(ProjectionsError):
    """The schema ``projections`` is missing, or of another version than this library."""


class OtherSchemaVersion(SchemaError):
    """The schema ``projections`` is of another version than this library: it may change while a process runs."""
