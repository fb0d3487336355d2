"""Numbers of JSON that a float rounds, kept as they are written."""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Self

from pydantic import BaseModel
from pydantic_core import from_json, to_json

# A float has every number of 15 digits. What looks like a longer one, in a string too, is looked at.
_LONG = re.compile(r"[0-9](?:[eE]|[0-9.]{15})")
_LONG_BYTES = re.compile(_LONG.pattern.encode())


class WrittenFloat(float):
    """
    A float with the text of a number that it rounds.

    It is counted with as any float, and ``str`` of it, and so ``Decimal(str(…))``, is the number as it was written.
    """

    __slots__ = ("_text",)

    _text: str

    def __new__(cls, text: str) -> Self:
        """A float by the text of JSON."""
        number = super().__new__(cls, text)
        number._text = text
        return number

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def __reduce__(self) -> tuple[type[WrittenFloat], tuple[str]]:
        return WrittenFloat, (self._text,)


def _number(text: str) -> float:
    number = float(text)
    try:
        return number if Decimal(repr(number)) == Decimal(text) else WrittenFloat(text)
    except InvalidOperation:  # an exponent that no Decimal has
        return number


def parsed(text: str | bytes) -> Any:
    """The value of JSON; numbers that a float rounds are of :class:`WrittenFloat`. Raises ValueError."""
    return json.loads(text, parse_float=_number) if _is_long(text) else from_json(text)


Keys = frozenset[str] | None
"""The names of fields that have Decimals; None for all that is there."""


def written(value: Any, keys: Keys) -> bytes:
    """The JSON of a value, with strings where a float rounds a number of these fields: models read Decimals exactly."""
    return to_json(_exact(value, keys))


def exactly(text: str | bytes, keys: Keys) -> str | bytes:
    """The same JSON, with strings where a float rounds a number of these fields."""
    if not _is_long(text):
        return text
    try:
        value = json.loads(text, parse_float=_number)
    except (ValueError, RecursionError):
        return text  # whoever reads it says what is wrong
    exact = _exact(value, keys)
    return text if exact is value else to_json(exact)


def _exact(value: Any, keys: Keys) -> Any:
    if keys is None or not isinstance(value, dict):
        return _with_decimals(value)
    items = {key: _with_decimals(one) if key in keys else one for key, one in value.items()}
    return items if any(items[key] is not one for key, one in value.items()) else value


def _is_long(text: str | bytes) -> bool:
    return (_LONG_BYTES.search(text) if isinstance(text, bytes) else _LONG.search(text)) is not None


def _with_decimals(value: Any) -> Any:
    """The same value where it has no such numbers; else with Decimals in their places, which JSON has as strings."""
    if type(value) is WrittenFloat:
        return Decimal(str(value))
    if isinstance(value, dict):
        items = {key: _with_decimals(one) for key, one in value.items()}
        return items if any(items[key] is not one for key, one in value.items()) else value
    if isinstance(value, list):
        list_ = [_with_decimals(one) for one in value]
        return list_ if any(new is not old for new, old in zip(list_, value, strict=True)) else value
    return value


@lru_cache(maxsize=1024)
def has_decimals(model: type[BaseModel]) -> bool:
    """Whether a field of a model, or of one within it, is a Decimal."""
    if not model.__pydantic_complete__:
        model.model_rebuild()
    return _is_or_has_decimal(model.__pydantic_core_schema__)


def _is_or_has_decimal(schema: Any) -> bool:
    if isinstance(schema, dict):
        return schema.get("type") == "decimal" or any(map(_is_or_has_decimal, schema.values()))
    return isinstance(schema, list | tuple) and any(map(_is_or_has_decimal, schema))


@lru_cache(maxsize=1024)
def decimal_keys(model: type[BaseModel]) -> Keys:
    """The names in JSON of the fields of a model that are or have a Decimal; None where it has no fields."""
    fields = _fields_of(model.__pydantic_core_schema__)
    if fields is None:
        return None
    found = {name: field for name, field in fields.items() if _is_or_has_decimal(field) or _refers(field)}
    return frozenset(found).union(*(_aliases(field.get("validation_alias")) for field in found.values()))


def _fields_of(schema: Any) -> dict[str, Any] | None:
    while isinstance(schema, dict):
        if schema.get("type") == "model-fields":
            return dict(schema["fields"])
        schema = schema.get("schema")
    return None


def _refers(schema: Any) -> bool:
    """Whether a schema names one that stands elsewhere, which may have a Decimal."""
    if isinstance(schema, dict):
        return schema.get("type") == "definition-ref" or any(map(_refers, schema.values()))
    return isinstance(schema, list | tuple) and any(map(_refers, schema))


def _aliases(alias: Any) -> set[str]:
    """The first names of an alias of pydantic: a name, a path, or several of them."""
    if isinstance(alias, list):
        return set().union(*map(_aliases, alias[:1] if isinstance(alias[0], str) else alias))
    return {alias} if isinstance(alias, str) else set()
