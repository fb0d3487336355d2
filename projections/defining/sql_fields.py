"""The fields of a payload model as columns that SQL reads from the stored JSON."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, NaiveDatetime
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_json

from journal import event_type_of
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
_NAIVE = "timestamp without time zone"
# What a text must look like, or the model would refuse it: PostgreSQL would give it a zone, or drop its own one.
_LOOKS = {
    _INSTANT: (
        r":[0-9]{2}(:[0-9]{2}([.][0-9]+)?)? ?([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$",
        "is not a time with a time zone",
    ),
    _NAIVE: (r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt _][0-9:.]+)?$", "is not a time without a time zone"),
}
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
        tested: Whether a text is refused that has a zone, or has none.
    """

    name: str
    key: str
    type: str
    nullable: bool
    default: str | None
    unusable: str = ""
    tested: bool = False

    @property
    def declared(self) -> str:
        """Its entry in the column list of ``json_to_record``; text compares by code point, everywhere alike."""
        collation = ' COLLATE pg_catalog."C"' if self.type == _TEXT else ""
        return f"{quote_name(self.key)} {_TEXT if self.tested else self.type}{collation}"

    def read(self, model: str) -> str:
        """
        SQL of its value, from the record ``r`` and the event ``e``: what the model would make of the JSON.

        Args:
            model: The name of the model, for errors.
        """
        value = self._tested(model) if self.tested else f"r.{quote_name(self.key)}"
        if self.nullable and self.default == "NULL":
            return value
        refused = self._refuse(model, "is missing")
        missing = refused if self.default is None else f"{self.default}::{self.type}"
        null = "NULL" if self.nullable else self._refuse(model, "is null")
        absent = f"(e.payload -> {quote_literal(self.key)}) IS NULL"
        return f"CASE WHEN {value} IS NOT NULL THEN {value} WHEN {absent} THEN {missing} ELSE {null} END"

    def _tested(self, model: str) -> str:
        text, (looks, why) = f"r.{quote_name(self.key)}", _LOOKS[self.type]
        refused = self._refuse(model, why)
        return f"CASE WHEN {text} ~ '{looks}' THEN {text}::{self.type} WHEN {text} IS NOT NULL THEN {refused} END"

    def _refuse(self, model: str, why: str) -> str:
        text = quote_literal(f"the payload does not fit {model}: {self.name} {why}")
        return f"CASE WHEN projections._refuse_event_v1({text}) THEN NULL::{self.type} END"


@lru_cache(maxsize=1024)
def columns_of(model: type[BaseModel]) -> dict[str, FieldColumn]:
    """The columns of a model by their names."""
    in_utc = event_type_of(model).naive_times == "utc"
    return {name: _column(name, field, in_utc=in_utc) for name, field in model.model_fields.items()}


def _column(name: str, field: FieldInfo, *, in_utc: bool) -> FieldColumn:
    alias = field.validation_alias or field.alias or name
    pg_type, nullable = _type(field.annotation)
    default, unusable = _default(field)
    if not isinstance(alias, str):
        unusable = "its alias is a path or a choice; give it one name"
    key = alias if isinstance(alias, str) else name
    tested = pg_type in _LOOKS and not (in_utc and pg_type == _INSTANT)
    return FieldColumn(name, key, pg_type, nullable, default, unusable, tested)


def _default(field: FieldInfo) -> tuple[str | None, str]:
    """SQL of a field's default, and why there can be none."""
    if field.is_required():
        return None, ""
    if field.default_factory is not None:
        return "NULL", "its default is made by a function, which SQL cannot call; declare a plain default"
    if field.default is None or field.default is PydanticUndefined:
        return "NULL", ""
    encoded = to_json(field.default).decode()
    if encoded.startswith('"'):
        value = field.default.value if isinstance(field.default, Enum) else field.default
        encoded = value if isinstance(value, str) else encoded.strip('"')
    return quote_literal(encoded), ""


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
