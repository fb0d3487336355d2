"""
JSON text as the API reads and writes it: a payload stays as it was written, byte by byte.

Parsing a payload and writing it again would lose the order of keys that are there twice, and the text of numbers: 1.0,
1e2, and integers beyond 2**53 in most languages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from functools import cache
from typing import Any, Final, NamedTuple, get_type_hints

from pydantic import BaseModel
from pydantic_core import from_json, to_jsonable_python

from journal import RawJson
from projections.webhooks.tenant_rows import HIDDEN

_LONGEST_INTEGER: Final = 400
"""Digits; a float has 309 at most. Python reads an integer in a time that grows with the square of its length."""


class Member(NamedTuple):
    """A field of an object."""

    value: Any
    """As Python sees it."""
    text: RawJson
    """As it was written."""


def read_members(text: str, most: int) -> dict[str, Member]:
    """Read an object with a limited number of fields, none twice (else ValueError), and keep the text of each."""
    members: dict[str, Member] = {}
    try:
        for name, member in _members(text):
            if name in members:
                raise ValueError(f"field {name!r:.80} is there twice")
            if len(members) == most:
                raise ValueError(f"it has more than {most} fields")
            members[name] = member
    except (IndexError, StopIteration):
        raise ValueError("it ends too early") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return members


def write_json(value: Any) -> str:
    """
    Write what an answer has: models, lists, dicts and plain values; :class:`journal.RawJson` goes in as it is.

    Durations become seconds; times have their zone.
    """
    if isinstance(value, RawJson):
        return str(value)
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in _shown(value)}
    elif is_dataclass(value) and not isinstance(value, type):
        value = {name: getattr(value, name) for name in _shown_fields(type(value))}
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(str(k))}:{write_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(write_json, value)) + "]"
    if isinstance(value, timedelta):
        return json.dumps(value.total_seconds())
    return json.dumps(value if value is None or isinstance(value, str) else to_jsonable_python(value))


def kept(text: str) -> RawJson:
    """A stored payload, to be written as it is; what is not JSON, as a string."""
    try:
        from_json(text, allow_inf_nan=False)
    except ValueError:
        return RawJson(json.dumps(text))
    return RawJson(text)


def _shown(model: BaseModel) -> Iterator[str]:
    """A field that has a default and is None was not asked for, and is left out, unless the model says otherwise."""
    for name, field in type(model).model_fields.items():
        if not field.exclude and (name in model.model_fields_set or getattr(model, name) is not None):
            yield name


@cache
def _shown_fields(kind: type[Any]) -> tuple[str, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        field.name for field in fields(kind) if HIDDEN not in getattr(hints[field.name], "__metadata__", ())
    )


def _members(text: str) -> Iterator[tuple[str, Member]]:
    read = (_DECODER if _LONG_INTEGER.search(text) is None else _DECODER_OF_LONG_INTEGERS).raw_decode
    place, more = _expect(text, 0, "{"), False
    while more or text[place] != "}":
        _expect(text, place, '"')
        name, place = read(text, place)
        start = _expect(text, place, ":")
        value, end = read(text, start)
        yield name, Member(value, RawJson(text[start:end]))
        place = _blank(text, end)
        if more := text[place] != "}":
            place = _expect(text, place, ",")
    if (end := _blank(text, place + 1)) != len(text):
        raise ValueError(f"nothing is expected after the object, at character {end}")


def _expect(text: str, place: int, character: str) -> int:
    """Where what follows a character begins: there may be blanks before and after it."""
    place = _blank(text, place)
    if text[place] != character:
        raise ValueError(f"{character} is expected at character {place}")
    return _blank(text, place + 1)


def _blank(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    return place if found is None else found.end()


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def _integer(text: str) -> int | float:
    return int(text) if len(text) <= _LONGEST_INTEGER else float(text)


_BLANK = re.compile(r"[ \t\n\r]*")
_LONG_INTEGER = re.compile(rf"(?<![0-9])[0-9]{{{_LONGEST_INTEGER}}}")
_DECODER = json.JSONDecoder(parse_constant=_refuse)
_DECODER_OF_LONG_INTEGERS = json.JSONDecoder(parse_constant=_refuse, parse_int=_integer)  # four times as slow
