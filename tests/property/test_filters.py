"""Compiled filters against a naive reading of their rules, and numbers against fractions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from projections.interests.containment import CONTAINS
from projections.interests.errors import InvalidFilter
from projections.interests.filters import parse_filter
from projections.interests.json_values import read_json
from tests.fixtures.examples import examples

ABSENT = object()
scalars = st.sampled_from([None, True, False, 0, 1, 1.0, 1.5, 2, "", "a", "ab", "1"])
names = st.sampled_from(["x", "y"])
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=2),
    max_leaves=6,
)
texts = st.sampled_from(["", "a", "b", "ab"])


def _conditions(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    joins = {
        "$or": st.lists(inner, min_size=1, max_size=2),
        "$and": st.lists(inner, min_size=1, max_size=2),
        "$not": inner,
    }
    ordered = st.sampled_from([0, 1, 1.5, "", "a", "b"])
    operators = {
        "$any": inner.filter(lambda each: not isinstance(each, dict) or "$any" not in each),
        "$eq": documents,
        "$neq": documents,
        "$gt": ordered,
        "$gte": ordered,
        "$lt": ordered,
        "$lte": ordered,
        "$in": scalars | st.lists(scalars, max_size=3),
        "$nin": scalars | st.lists(scalars, max_size=3),
        "$startsWith": texts | st.lists(texts, max_size=2),
        "$endsWith": texts | st.lists(texts, max_size=2),
        "$exist": st.booleans(),
    }
    return (
        st.lists(inner, max_size=2)
        | st.fixed_dictionaries({}, optional={"x": inner, "y": inner, "$not": inner})
        | st.one_of(
            [st.fixed_dictionaries({name: operand}, optional=joins) for name, operand in operators.items()]
        )
    )


conditions = st.recursive(scalars, _conditions, max_leaves=6)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else type(value).__name__


def _same(one: Any, other: Any) -> bool:
    if _kind(one) != _kind(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    return bool(one == other)


def _holds(condition: Any, value: Any) -> bool:
    if isinstance(condition, list):
        return isinstance(value, list) and all(
            any(_holds(each, item) for item in value) for each in condition
        )
    if not isinstance(condition, dict):
        return _same(condition, value)
    fields = {name: each for name, each in condition.items() if not name.startswith("$")}
    return all(_operator(name, each, value) for name, each in condition.items() if name.startswith("$")) and (
        (bool(condition) and not fields) or _object(fields, value)
    )


def _object(fields: Mapping[str, Any], value: Any) -> bool:
    return isinstance(value, dict) and all(
        _holds(each, value.get(name, ABSENT)) for name, each in fields.items()
    )


def _operator(name: str, operand: Any, value: Any) -> bool:  # noqa: PLR0911 - a line for each
    match name:
        case "$or":
            return any(_holds(each, value) for each in operand)
        case "$and":
            return all(_holds(each, value) for each in operand)
        case "$not":
            return not _holds(operand, value)
        case "$any":
            return _holds(operand, value) or (
                isinstance(value, list) and any(_operator("$any", operand, item) for item in value)
            )
        case "$exist":
            return (value is not ABSENT) == operand
        case "$eq":
            return _same(operand, value)
        case "$neq":
            return value is not ABSENT and not _same(operand, value)
        case "$in" | "$nin":
            return _member(operand, value, wanted=name == "$in")
        case "$startsWith" | "$endsWith":
            test = str.startswith if name == "$startsWith" else str.endswith
            several = operand if isinstance(operand, list) else [operand]
            return isinstance(value, str) and any(test(value, each) for each in several)
        case _:
            comparable = _kind(operand) == _kind(value) and _kind(value) in {"number", "str"}
            return (
                comparable
                and {
                    "$gt": lambda: value > operand,
                    "$gte": lambda: value >= operand,
                    "$lt": lambda: value < operand,
                    "$lte": lambda: value <= operand,
                }[name]()
            )


def _member(operand: Any, value: Any, *, wanted: bool) -> bool:
    if isinstance(operand, list):
        if value is ABSENT or isinstance(value, list | dict):
            return False
        return any(_same(each, value) for each in operand) == wanted
    if isinstance(value, str) and isinstance(operand, str):
        return (operand in value) == wanted
    return isinstance(value, list) and any(_same(operand, item) for item in value) == wanted


@settings(max_examples=examples(200))
@given(condition=conditions, value=documents)
def test_compiled_filters_do_what_a_naive_interpreter_does(condition: Any, value: Any) -> None:
    compiled = parse_filter({"data": condition})

    assert compiled.matches({"data": value}) == _holds(condition, value)


@given(condition=conditions, value=documents)
def test_not_is_the_opposite(condition: Any, value: Any) -> None:
    event = {"data": value}

    assert parse_filter({"$not": {"data": condition}}).matches(event) != parse_filter(
        {"data": condition}
    ).matches(event)


@given(condition=conditions, value=documents)
def test_a_filter_survives_the_database_as_json(condition: Any, value: Any) -> None:
    stored = read_json(json.dumps({"data": condition}))

    assert parse_filter(stored).matches({"data": value}) == parse_filter({"data": condition}).matches(
        {"data": value}
    )


decimals = st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?(e[+-]?[0-9]{1,2})?", fullmatch=True)


@given(one=decimals, other=decimals)
def test_numbers_compare_as_fractions_do(one: str, other: str) -> None:
    event = {"data": read_json(one)}

    for operator, expected in (
        ("$eq", Fraction(one) == Fraction(other)),
        ("$gt", Fraction(one) > Fraction(other)),
        ("$lte", Fraction(one) <= Fraction(other)),
    ):
        assert parse_filter({"data": {operator: read_json(other)}}).matches(event) == expected


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["data", "time", "a", "$or", "$not", "$in", "$gt", "$x"]), inner, max_size=3
        )
    ),
    max_leaves=10,
)


@given(definition=anything, event=st.dictionaries(st.sampled_from(["data", "time", "id"]), anything))
def test_anything_is_a_filter_or_an_invalid_endpoint(definition: Any, event: dict[str, Any]) -> None:
    try:
        compiled = parse_filter(definition)
    except InvalidFilter:
        return

    assert compiled.matches(event) in {True, False}


plain = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, 1.5, 10**20, "", "a", "ab", "1", "é"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=2),
    max_leaves=8,
)
objects = st.dictionaries(names, plain, max_size=2)


@pytest.mark.examples
def test_contents_mean_for_postgresql_what_they_mean_here(dsn: str) -> None:
    statement = (
        f"SELECT {CONTAINS} FROM (VALUES (%s::jsonb)) AS e (payload), (VALUES (%s::jsonb)) AS s (params)"
    )
    with psycopg.connect(dsn, autocommit=True) as connection:

        @settings(max_examples=examples(300), suppress_health_check=list(HealthCheck))
        @given(contents=objects, payload=objects | plain)
        def run(contents: dict[str, Any], payload: Any) -> None:
            texts = [json.dumps(payload), json.dumps({"contains": contents})]
            found = connection.execute(statement, texts).fetchone()

            assert found == (parse_filter({"data": contents}).matches({"data": payload}),)

        run()
