"""
What a table of another system means: which of its columns, or SQL expressions over them, are an event's parts.

A mapping is written in Python, or as TOML::

    schema = "public"
    table = "orders_log"
    source = "order_id"
    number = "version"
    position = "id"
    bound = "sequence"
    entity_type = { constant = "order" }
    event_type = "kind"
    payload = { sql = "body -> 'data'" }
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

from journal.database.identifiers import quote
from journal.errors import InvalidValue
from journal.suggestions import did_you_mean

Bound: TypeAlias = Literal["sequence", "transaction-start"]


@dataclass(frozen=True, slots=True)
class Expression:
    """
    SQL over the columns of the table, such as ``split_part(stream, '-', 1)``.

    It runs with what the connected role may do: whoever writes a mapping writes SQL.
    """

    sql: str


@dataclass(frozen=True, slots=True)
class Constant:
    """The same text for every row."""

    text: str


Value: TypeAlias = str | Expression | Constant
"""A column's name, an expression, or a constant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMapping:
    """
    A table that another system appends events to.

    Args:
        table: The name that its settings give it.
        schema: The schema of PostgreSQL that it is in.
        other_tables: More tables of that schema and of the same columns, which have the events of other sources.
        source: The column of the stream's id: text, a uuid or an integer.
        number: The column of the event's number in its stream: without gaps when written.
        first_number: The number of a stream's first event, 0 or 1.
        position: The column that orders all events; what it holds is said by ``bound``.
        bound: The rule that finds late commits. ``sequence``: the position is drawn from a sequence by the INSERT
            itself (``bigserial``, ``DEFAULT nextval``, identity), never before it. ``transaction-start``: it is the
            time of the transaction's start, or later (``now()``, ``CURRENT_TIMESTAMP``), never the application's.
        sequence: The sequence of the position, where its column does not tell.
        entity_type: The kind of the source.
        event_type: The event's name.
        payload: JSON, text or bytes; a decoder makes JSON of it where it is not.
        metadata: As the payload.
        tags: An array of text.
        event_id: A uuid; by default it is made of the journal's name, the source and the number.
        version: Of the payload: an integer, 1 by default.
        deleted: A condition of rows that are none.
        slice: The slice, where it is stored as Akka and Pekko do; by default it is computed.
        serializer_id: An integer that a decoder goes by.
        manifest: A text that a decoder also gets.
        metadata_serializer_id: The integer by which a decoder reads metadata.
        metadata_manifest: The text that it also gets.

    Raises:
        InvalidValue: A part is missing, of another kind, or not known.
    """

    table: str
    schema: str = "public"
    other_tables: tuple[str, ...] = ()
    source: str
    number: str
    first_number: int = 1
    position: str
    bound: Bound
    sequence: str | None = None
    entity_type: Value
    event_type: Value
    payload: Value
    metadata: Value | None = None
    tags: Value | None = None
    event_id: Value | None = None
    version: Value | None = None
    deleted: Value | None = None
    slice: Value | None = None
    serializer_id: Value | None = None
    manifest: Value | None = None
    metadata_serializer_id: Value | None = None
    metadata_manifest: Value | None = None

    def __post_init__(self) -> None:
        names = [(name, getattr(self, name)) for name in ("table", "schema", "source", "number", "position")]
        for name, value in [*names, *(("other_tables", table) for table in self.other_tables)]:
            if not isinstance(value, str) or not value or "\0" in value:
                raise InvalidValue(f"mapping: {name} must be a name, not {value!r}")
        if self.bound not in get_args(Bound):
            raise InvalidValue(
                f"mapping: bound must be 'sequence' or 'transaction-start', not {self.bound!r}"
            )
        if self.other_tables and self.bound == "sequence":
            raise InvalidValue("mapping: several tables have no common sequence; map each by itself")
        if self.first_number not in {0, 1}:
            raise InvalidValue(f"mapping: first_number must be 0 or 1, not {self.first_number!r}")
        for name in VALUES:
            value = getattr(self, name)
            if not isinstance(value, str | Expression | Constant) and (value is not None or name in _NEEDED):
                raise InvalidValue(
                    f"mapping: {name} must be a column's name, an Expression or a Constant, not {value!r}"
                )
            if "\0" in _text(value):
                raise InvalidValue(f"mapping: {name} holds the character NUL")

    @property
    def name(self) -> str:
        """The table, quoted for SQL text."""
        return quote(self.schema, self.table)

    @property
    def names(self) -> list[str]:
        """All of its tables, quoted for SQL text."""
        return [quote(self.schema, table) for table in (self.table, *self.other_tables)]

    @classmethod
    def from_toml(cls, text: str) -> TableMapping:
        """
        Read a mapping that is written as TOML.

        Raises:
            InvalidValue: It is not TOML, or no mapping.
        """
        written = toml_of(text)
        checked_names(written, [field.name for field in fields(cls)], _REQUIRED)
        if isinstance(others := written.get("other_tables"), list):
            written["other_tables"] = tuple(others)
        return cls(**{name: value_of(name, value) for name, value in written.items()})


VALUES = (
    "entity_type", "event_type", "payload", "metadata", "tags", "event_id", "version", "deleted", "slice",
    "serializer_id", "manifest", "metadata_serializer_id", "metadata_manifest",
)  # fmt: skip
_NEEDED = frozenset({"entity_type", "event_type", "payload"})
_REQUIRED = _NEEDED | {"table", "source", "number", "position", "bound"}


def _text(value: Value | None) -> str:
    match value:
        case Expression(text) | Constant(text):
            return text
        case _:
            return value or ""


def toml_of(text: str) -> dict[str, Any]:
    """What TOML says; InvalidValue: it is none."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidValue(f"mapping: this is not TOML: {error}") from error


def checked_names(written: Mapping[str, Any], known: Collection[str], needed: Collection[str]) -> None:
    """Raise InvalidValue where a name is not known, or one that is needed is missing."""
    for name in written:
        if name not in known:
            raise InvalidValue(f"mapping: {name!r} is not known{did_you_mean(name, known)}")
    if missing := sorted(set(needed) - written.keys()):
        raise InvalidValue(f"mapping: {', '.join(missing)} must be given")


def value_of(name: str, value: Any) -> Any:
    """What TOML has for a name: an expression and a constant are tables there."""
    if not isinstance(value, Mapping):
        return value
    match dict(value):
        case {"sql": str(sql), **rest} if not rest:
            return Expression(sql)
        case {"constant": str(text), **rest} if not rest:
            return Constant(text)
    raise InvalidValue(f'mapping: {name} must be {{ sql = "…" }} or {{ constant = "…" }}, not {value!r}')
