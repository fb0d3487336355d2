"""
Tests of stored JSON: whether PostgreSQL makes of a value what the model makes of it.

What a model writes passes, and whatever passes is read alike by both. What does not pass is read by the model. The
tests are made from pydantic's own schema of the model, by lists of what is known: a type, a constraint or a setting
that is on none of them has no test, and then the model reads each event.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeAlias

from pydantic import BaseModel

from journal import event_type_of

Schema: TypeAlias = Mapping[str, Any]

_SETTINGS = frozenset({
    "title", "extra_fields_behavior", "from_attributes", "frozen", "loc_by_alias", "validate_by_name",
    "populate_by_name", "serialize_by_alias", "ser_json_timedelta", "ser_json_temporal", "ser_json_bytes",
    "ser_json_inf_nan", "hide_input_in_errors", "validation_error_cause",
})  # fmt: skip
_OF_ALL = frozenset({"type", "ref", "metadata", "serialization"})
_OF_MODEL = frozenset({"cls", "config", "custom_init", "root_model", "schema"})
_OF_FIELDS = frozenset({"fields", "model_name", "computed_fields", "extras_schema", "extra_behavior"})
_OF_FIELD = frozenset({
    "schema", "validation_alias", "serialization_alias", "frozen", "serialization_exclude", "serialization_exclude_if",
})  # fmt: skip

_DAY, _TIME = "[0-9]{4}-[0-9]{2}-[0-9]{2}", "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,6})?"
# At either end of time, an offset may lead to a year of UTC that there is not.
_IN_UTC, _OFFSET = f"{_DAY}T{_TIME}Z", f"(?!0001|9999){_DAY}T{_TIME}[+-](0[0-9]|1[0-4]):[0-5][0-9]"
_DURATION = (
    "^(?=.*[DHMS]$)-?P([1-9][0-9]{0,2}D)?"
    "(T(([1-9]|1[0-9]|2[0-3])H)?(([1-9]|[1-5][0-9])M)?((0|[1-9]|[1-5][0-9])([.][0-9]{1,6})?S)?)?$"
)
# Numbers that a float rounds, or writes otherwise; as text they are no harm.
_ROUNDED = "[0-9][eE]|[.][0-9]+0([^0-9]|$)|[0-9.]{17}"
_BEGINS, _ENDS = "45,48,49,50,51,52,53,54,55,56,57,91,102,116,123", '0,1,2,3,4,5,6,7,8,9,"}}",],e'
"""How a number, an array, false, true and an object begin (a hyphen, digits, [, f, t, {) and end."""


@lru_cache(maxsize=1024)
def tests_of(model: type[BaseModel]) -> Mapping[str, str]:
    """
    By field, SQL that is true where PostgreSQL reads a value as the model does; without one, only the model reads it.

    In the SQL, ``{text}`` stands for the value as text, which is not NULL, ``{value}`` for what PostgreSQL makes of it,
    and ``{kind}`` for its type in JSON, which is dear.
    """
    if (found := _fields_of(model)) is None:
        return {}
    fields, known = found
    in_utc = event_type_of(model).naive_times == "utc"
    tests = {
        name: _test(field["schema"], known, in_utc=in_utc)
        for name, field in fields.items()
        if _knows(field, "model-field", _OF_FIELD)
    }
    return {name: test for name, test in tests.items() if test is not None}


def reads_by_fields(model: type[BaseModel]) -> bool:
    """Whether a model reads each of its fields by itself: it has no validators that look at the whole payload."""
    return _fields_of(model) is not None


def _fields_of(model: type[BaseModel]) -> tuple[Schema, Schema] | None:
    """The schemas of a model's fields, and those that they name; None where the model does more than to have fields."""
    if not model.__pydantic_complete__:
        model.model_rebuild()
    schema, known = _defined(model.__pydantic_core_schema__, {})
    fields = schema.get("schema", {})
    if (
        not _knows(schema, "model", _OF_MODEL)
        or not _knows(fields, "model-fields", _OF_FIELDS)
        or schema.get("custom_init")
        or schema.get("root_model")
        or not schema.get("config", {}).keys() <= _SETTINGS
    ):
        return None
    return fields["fields"], known


def found_by_name(model: type[BaseModel]) -> bool:
    """Whether JSON may have a field under its own name, where it has an alias."""
    return bool(model.model_config.get("populate_by_name") or model.model_config.get("validate_by_name"))


def _knows(schema: Schema, kind: str, keys: Iterable[str]) -> bool:
    return bool(schema.get("type") == kind and schema.keys() <= _OF_ALL.union(keys))


def _defined(schema: Any, known: Schema) -> tuple[Schema, Schema]:
    """A schema without its definitions, and these by their names."""
    while schema["type"] in {"definitions", "definition-ref"}:
        if schema["type"] == "definition-ref":
            schema = known.get(schema["schema_ref"], {"type": "unknown"})
        else:
            known = {**known, **{one["ref"]: one for one in schema["definitions"]}}
            schema = schema["schema"]
    return schema, known


def _test(schema: Schema, known: Schema, *, in_utc: bool) -> str | None:
    schema, known = _defined(schema, known)
    if _knows(schema, "default", {"schema", "default", "default_factory", "default_factory_takes_data"}):
        return _test(schema["schema"], known, in_utc=in_utc)
    if _knows(schema, "nullable", {"schema"}):
        return _test(schema["schema"], known, in_utc=in_utc)
    if schema["type"] == "datetime":
        return _of_datetime(schema, in_utc=in_utc)
    make, keys = _TESTS.get(schema["type"], (None, frozenset()))
    if make is None or not _knows(schema, schema["type"], keys):
        return None
    return make(schema)


def _bounded(test: str) -> Callable[[Schema], str | None]:
    def made(schema: Schema) -> str | None:
        tests = [test]
        for name, operator in _BOUNDS.items():
            if (bound := schema.get(name)) is None:
                continue
            if type(bound) not in {int, float, Decimal} or not math.isfinite(bound):
                return None
            tests.append(f"{{value}} {operator} ({bound})")
        return " AND ".join(tests)

    return made


def _of_text(schema: Schema) -> str:
    # A text, unless it looks like something else: then it is asked for.
    begins = f"pg_catalog.ascii({{text}}) <> ALL ('{{{{{_BEGINS}}}}}'::integer[])"
    ends = f"pg_catalog.right({{text}}, 1) <> ALL ('{{{{{_ENDS}}}}}'::text[])"
    tests = [f"({begins} OR {ends} OR {{kind}} = 'string')"]
    for name, operator in (("min_length", ">="), ("max_length", "<=")):
        if (length := schema.get(name)) is not None:
            tests.append(f"pg_catalog.length({{text}}) {operator} {int(length)}")
    return " AND ".join(tests)


def _of_datetime(schema: Schema, *, in_utc: bool) -> str | None:
    if not _knows(schema, "datetime", {"microseconds_precision", "tz_constraint"}) or _rounds(schema):
        return None
    zone = schema.get("tz_constraint")
    if zone == "naive":
        return _like(f"^{_DAY}T{_TIME}$")
    if zone not in {None, "aware"}:
        return None
    naive = f"|{_DAY}T{_TIME}" if in_utc and zone is None else ""
    return _like(f"^({_IN_UTC}|{_OFFSET}{naive})$")


def _rounds(schema: Schema) -> bool:
    return bool(schema.get("microseconds_precision", "truncate") != "truncate")


def _like(pattern: str) -> str:
    return "{text} ~ '" + pattern.replace("{", "{{").replace("}", "}}") + "'"


def _exactly(test: str) -> Callable[[Schema], str | None]:
    return lambda schema: None if _rounds(schema) else test


def _one_of(values: Iterable[Any]) -> str | None:
    found = list(values)
    kinds = {type(value) for value in found}
    if kinds not in ({str}, {int}):
        return None
    texts = ", ".join("'" + str(value).replace("'", "''") + "'" for value in found)
    if any(c in texts for c in "\\{}\0"):
        return None
    test = f"{{text}} IN ({texts})"
    if kinds == {int}:
        return test + " AND {kind} = 'number'"
    return test + " AND {kind} = 'string'" if any(map(_is_json, found)) else test


def _is_json(text: str) -> bool:
    with suppress(ValueError, RecursionError):
        json.loads(text)
        return True
    return False


def _of_enum(schema: Schema) -> str | None:
    if schema.get("sub_type") not in {None, "str", "int"}:
        return None
    values = [member.value for member in schema["members"]]
    return _one_of(str(v) if schema.get("sub_type") == "str" else v for v in values)


def _of_container(begins: int, items: str) -> Callable[[Schema], str | None]:
    def made(schema: Schema) -> str | None:
        of_text = schema.get("keys_schema", {"type": "str"}).keys() == {"type"}
        is_any = schema.get(items, {"type": "any"}) == {"type": "any"}
        if not (of_text and is_any and schema.get("keys_schema", {"type": "str"})["type"] == "str"):
            return None
        return f"pg_catalog.ascii({{text}}) = {begins} AND {_AS_FLOATS}"

    return made


_BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
_AS_FLOATS = "{text} !~ '" + _ROUNDED.replace("{", "{{").replace("}", "}}") + "'"
_TESTS: Mapping[str, tuple[Callable[[Schema], str | None], frozenset[str]]] = {
    "int": (_bounded("{value}::text = {text}"), frozenset(_BOUNDS)),
    "float": (
        _bounded("pg_catalog.ltrim({text}, '-+.eE0123456789') = '' AND {text} <> '-0'"),
        frozenset(_BOUNDS),
    ),
    "decimal": (_bounded("pg_catalog.ltrim({text}, '-.0123456789') = ''"), frozenset(_BOUNDS)),
    "bool": (lambda _: "{text} IN ('true', 'false')", frozenset()),
    "str": (_of_text, frozenset({"min_length", "max_length"})),
    "uuid": (
        lambda _: (
            "pg_catalog.octet_length({text}) = 36 AND {text} LIKE '________-____-____-____-____________'"
        ),
        frozenset(),
    ),
    "date": (lambda _: "pg_catalog.octet_length({text}) = 10 AND {value}::text = {text}", frozenset()),
    "time": (_exactly(_like(f"^{_TIME}$")), frozenset({"microseconds_precision"})),
    "timedelta": (_exactly(_like(_DURATION)), frozenset({"microseconds_precision"})),
    "literal": (lambda schema: _one_of(schema["expected"]), frozenset({"expected"})),
    "enum": (_of_enum, frozenset({"cls", "members", "sub_type"})),
    "any": (lambda _: _AS_FLOATS, frozenset()),
    "dict": (_of_container(123, "values_schema"), frozenset({"keys_schema", "values_schema"})),
    "list": (_of_container(91, "items_schema"), frozenset({"items_schema"})),
}
