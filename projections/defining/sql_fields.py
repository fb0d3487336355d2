"""The fields of a payload model as columns that SQL reads from the stored JSON."""

from __future__ import annotations

import hashlib
import math
import types
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, NaiveDatetime
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, from_json, to_json

from projections.defining.canonical import found_by_name, tests_of
from projections.errors import InvalidHandler

EVENT_COLUMNS = {
    "source_id": "text",
    "seq_nr": "bigint",
    "db_timestamp": "timestamp with time zone",
    "entity_type": "text",
    "event_id": "uuid",
}
"""What an event has alongside its payload, with the types."""

_TEXT, _JSON, _INSTANT = "text", "jsonb", "timestamp with time zone"
_NAIVE, _INTERVAL = "timestamp without time zone", "interval"
_LONGEST_NAME = 63
"""Bytes of a name that PostgreSQL does not cut."""
_TYPES: tuple[tuple[type, str], ...] = (  # bool is an int, and datetime a date
    (bool, "boolean"),
    (int, "bigint"),
    (float, "double precision"),
    (str, _TEXT),
    (datetime, _INSTANT),
    (AwareDatetime, _INSTANT),  # a class of its own when a program runs
    (NaiveDatetime, _NAIVE),
    (date, "date"),
    (time, "time"),
    (timedelta, "interval"),
    (Decimal, "numeric"),
    (UUID, "uuid"),
)


@dataclass(frozen=True, slots=True)
class FieldColumn:
    """
    A field of a payload model as a column.

    Args:
        name: The field, which is the column's name.
        key: Its name in the stored JSON.
        type: The type in PostgreSQL.
        nullable: Whether the model takes None.
        default: SQL of the value where the JSON has no such key; None where the model requires it.
        unusable: Why SQL cannot read it; empty where it can.
        test: What is true of values that SQL reads as the model does (:mod:`projections.defining.canonical`); None: of
            none.
        by_name: Whether the JSON may have it under its own name instead.
    """

    name: str
    key: str
    type: str
    nullable: bool
    default: str | None
    unusable: str = ""
    test: str | None = None
    by_name: bool = False

    @property
    def in_record(self) -> bool:
        """Whether ``json_to_record`` can find it: it looks for names, which PostgreSQL cuts."""
        return 0 < len(self.key.encode()) <= _LONGEST_NAME

    @property
    def declared(self) -> str:
        """Its entry in the column list of ``json_to_record``."""
        return f"{quote_name(self.key)} {'json' if self.type == _JSON else _TEXT}"

    @property
    def text(self) -> str:
        """SQL of its text, from the record ``r`` or the event ``e``; it compares by code point, everywhere alike."""
        is_json = self.type == _JSON
        if self.in_record:
            found = f"r.{quote_name(self.key)}" + ("::text" if is_json else "")
        else:
            # NULL is null, as in a record.
            key = quote_literal(self.key)
            found = f"nullif(({self._stored})::text, 'null')" if is_json else f"e.payload ->> {key}"
        return f'(({found}) COLLATE pg_catalog."C")'

    @property
    def _stored(self) -> str:
        return f"e.payload -> {quote_literal(self.key)}"

    def value(self, text: str) -> str:
        """
        SQL of its value: what the model makes of the JSON.

        Args:
            text: SQL of :attr:`text`.
        """
        value = text if self.type == _TEXT else f"{text}::{self.type}"
        if self.type == _INTERVAL:
            # What is written with a sign is normalised as Python's is: whole days, and a time that is not below zero.
            seconds = f"pg_catalog.date_part('epoch', pg_catalog.ltrim({text}, '-')::interval)::numeric"
            value = (
                f"CASE WHEN {text} LIKE '-%' THEN (pg_catalog.floor(-{seconds} / 86400)::text || ' days ' || "
                f"(-{seconds} - 86400 * pg_catalog.floor(-{seconds} / 86400))::text || ' seconds')::interval "
                f"ELSE {value} END"
            )
        if self.default in {None, "NULL"}:
            return value
        default = f"{self.default}::{self.type}"
        if not self.nullable:
            return f"coalesce({value}, {default})"
        return f"CASE WHEN {text} IS NULL AND ({self._stored}) IS NULL THEN {default} ELSE {value} END"

    def fits(self, text: str, value: str) -> str:
        """
        SQL that is true where PostgreSQL reads it as the model does.

        Args:
            text: SQL of :attr:`text`.
            value: SQL of :meth:`value`.
        """
        if self.test is None:
            return "FALSE"
        kind = f"pg_catalog.json_typeof({self._stored})"
        test = f"({self.test.format(text=text, value=value, kind=kind)})"
        if self.default is None and not self.nullable:
            return test
        if self.default is None or (self.by_name and self.nullable):
            missing = f"({self._stored}) IS NOT NULL"
        elif self.by_name:
            missing = "FALSE"
        else:
            missing = "TRUE" if self.nullable else f"({self._stored}) IS NULL"
        return f"CASE WHEN {text} IS NULL THEN {missing} ELSE {test} END"


@lru_cache(maxsize=1024)
def columns_of(model: type[BaseModel]) -> dict[str, FieldColumn]:
    """The columns of a model by their names."""
    tests, by_name = tests_of(model), found_by_name(model)
    return {
        name: _column(name, field, tests.get(name), by_name=by_name)
        for name, field in model.model_fields.items()
    }


def _column(name: str, field: FieldInfo, test: str | None, *, by_name: bool) -> FieldColumn:
    alias = field.validation_alias or field.alias or name
    if field.validation_alias == "" or field.alias == "":
        alias = ""
    pg_type, nullable = _type(field.annotation)
    default, unusable = _default(field, pg_type)
    if not isinstance(alias, str):
        unusable = "its alias is a path or a choice; give it one name"
    key = alias if isinstance(alias, str) else name
    return FieldColumn(name, key, pg_type, nullable, default, unusable, test, by_name=by_name and key != name)


def _default(field: FieldInfo, pg_type: str) -> tuple[str | None, str]:
    """SQL of a field's default, and why there can be none."""
    if field.is_required():
        return None, ""
    if field.default_factory is not None:
        return "NULL", "its default is made by a function, which SQL cannot call; declare a plain default"
    if field.default is None or field.default is PydanticUndefined:
        return "NULL", ""
    encoded = to_json(readable(field.default, pg_type))
    value = encoded.decode() if pg_type == _JSON else str(from_json(encoded))
    return quote_literal(value), ""


def as_read(event: BaseModel, used: Collection[str]) -> str:
    """
    JSON of an event, in which SQL reads the values that the model has made of its payload.

    Args:
        event: The event.
        used: The fields that are read, columns of the event itself among them.

    Raises:
        ValueError: SQL has no such value.
    """
    values: dict[str, Any] = {}
    for name, column in columns_of(type(event)).items():
        if name in used:
            try:
                values[column.key] = readable(getattr(event, name), column.type)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
    return to_json(values).decode()


def readable(value: Any, pg_type: str) -> Any:
    """A value of a model as JSON has it for a column of a type; raises ValueError where the type has none such."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, timedelta):
        return f"P{value.days}DT{value.seconds}.{value.microseconds:06}S"
    if isinstance(value, datetime) and value.tzinfo is not None:
        try:
            return value.astimezone(UTC).isoformat()
        except OverflowError:
            raise ValueError(f"{value} is in no year from 1 to 9999 of UTC") from None
    if isinstance(value, time) and value.tzinfo is not None:
        raise ValueError(f"{value} is a time of day with a time zone: without a date it is no instant")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bytes) and pg_type == _JSON:
        return value.decode()
    return value


def short_name(name: str) -> str:
    """A name of a column that PostgreSQL does not cut; the same for the same name."""
    encoded = name.encode()
    return name if len(encoded) <= _LONGEST_NAME else "_" + hashlib.sha256(encoded).hexdigest()[:32]


def _type(annotation: Any) -> tuple[str, bool]:
    """The type in PostgreSQL of what a field is annotated with, and whether it takes None."""
    members = [member for member in _members(annotation) if member is not type(None)]
    nullable = len(members) < len(list(_members(annotation))) or annotation is Any
    found = {_scalar(member) for member in members}
    return (found.pop() if len(found) == 1 else _JSON), nullable


def _members(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _members(get_args(annotation)[0])
    elif origin in {Union, types.UnionType}:
        for member in get_args(annotation):
            yield from _members(member)
    elif hasattr(annotation, "__supertype__"):  # NewType
        yield from _members(annotation.__supertype__)
    elif type(annotation).__name__ == "TypeAliasType":
        yield from _members(annotation.__value__)
    else:
        yield annotation


def _scalar(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return _common(get_args(annotation))
    if not isinstance(annotation, type):
        return _JSON
    if issubclass(annotation, Enum):
        return _common(member.value for member in annotation)
    return next((name for base, name in _TYPES if issubclass(annotation, base)), _JSON)


def _common(values: Iterable[Any]) -> str:
    found = {_scalar(type(value)) for value in values}
    return found.pop() if len(found) == 1 else _JSON


def quote_name(name: str) -> str:
    """A name as SQL has it in quotes."""
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """
    A text as a literal of SQL, whatever standard_conforming_strings says.

    Raises InvalidHandler where PostgreSQL can hold no such text.
    """
    if "\0" in text:
        raise InvalidHandler(f"{text!r} holds the character NUL, which PostgreSQL cannot store")
    quoted = text.replace("'", "''")
    if "\\" in quoted:
        return "E'" + quoted.replace("\\", "\\\\") + "'"
    return f"'{quoted}'"
