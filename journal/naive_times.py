"""Datetimes without a time zone in fields that may have one: which instant they mean is not known."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ValidationError
from pydantic_core import SchemaValidator

NaiveTimes: TypeAlias = Literal["refuse", "utc"]
"""What a datetime without a time zone is, in a field ``datetime``."""

_Schema: TypeAlias = dict[str, Any]

_NAIVE = re.compile(r'T\d\d:\d\d:\d\d(?:\.\d+)?"')  # the end of one, as pydantic writes it


@lru_cache(maxsize=1024)
def validator(
    model: type[BaseModel], naive_times: NaiveTimes, fields: frozenset[str] | None = None
) -> SchemaValidator:
    """
    What validates a model's JSON; its own one, unless it has datetimes that may be naive.

    Args:
        model: The payload model.
        naive_times: Whether those are refused, or in UTC. A field ``NaiveDatetime`` has no zone, and stays so.
        fields: Look at no others; the model then has only these. None: at all.
    """
    if not model.__pydantic_complete__:
        model.model_rebuild()
    change = _in_utc if naive_times == "utc" else _aware
    schema: Any = model.__pydantic_core_schema__
    if fields is not None:
        schema = _only(schema, fields)
    if (changed := _changed(schema, change)) is model.__pydantic_core_schema__:
        return model.__pydantic_validator__  # type: ignore[return-value]
    try:
        return SchemaValidator(
            changed, _use_prebuilt=False
        )  # else models within it validate as they do alone
    except TypeError:  # of a pydantic without the argument
        return SchemaValidator(changed)


@lru_cache(maxsize=1024)
def _refusing(model: type[BaseModel]) -> SchemaValidator | None:
    """What refuses them in a model's JSON; None where it has no such fields."""
    strict = validator(model, "refuse")
    return None if strict is model.__pydantic_validator__ else strict


def naive_field(model: type[BaseModel], text: str) -> str | None:
    """
    The field in which JSON of a model has a datetime without a time zone, where that is refused.

    Args:
        model: The payload model.
        text: The JSON, as the model writes it.
    """
    strict = _refusing(model)
    if strict is None or not _NAIVE.search(text):
        return None
    try:
        strict.validate_json(text)
    except ValidationError as error:
        for one in error.errors(include_url=False, include_input=False):
            if one["type"] == "timezone_aware":
                return ".".join(map(str, one["loc"]))
    return None


_OF_EXTRAS = {"extra_behavior", "extras_schema", "extras_keys_schema"}


def _only(schema: Any, fields: frozenset[str]) -> Any:
    """The schema of a model with some of its fields, and others of the JSON left aside."""
    if schema["type"] == "definitions":
        inner = schema["schema"]
        if inner["type"] == "definition-ref":
            inner = next(one for one in schema["definitions"] if one["ref"] == inner["schema_ref"])
        return {**schema, "schema": _only(inner, fields)}
    inner = {key: value for key, value in schema["schema"].items() if key not in _OF_EXTRAS}
    inner["fields"] = {name: field for name, field in inner["fields"].items() if name in fields}
    config = {**schema.get("config", {}), "extra_fields_behavior": "ignore"}
    return {
        **{key: value for key, value in schema.items() if key != "ref"},
        "config": config,
        "schema": inner,
    }


def _changed(schema: Any, change: Callable[[_Schema], _Schema]) -> Any:
    """A schema of pydantic with its datetimes changed that may be naive; itself where it has none."""
    if isinstance(schema, dict):
        if schema.get("type") == "datetime" and "tz_constraint" not in schema:
            return change(schema)
        kept = "default" if schema.get("type") == "default" else None  # a value, not a schema
        parts = {key: part if key == kept else _changed(part, change) for key, part in schema.items()}
        return parts if any(parts[key] is not part for key, part in schema.items()) else schema
    if type(schema) in {list, tuple}:
        several = type(schema)([_changed(part, change) for part in schema])
        return several if any(new is not old for new, old in zip(several, schema, strict=True)) else schema
    return schema


def _aware(schema: _Schema) -> _Schema:
    return {**schema, "tz_constraint": "aware"}


def _in_utc(schema: _Schema) -> _Schema:
    return {"type": "function-after", "function": {"type": "no-info", "function": _as_utc}, "schema": schema}


def _as_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value
