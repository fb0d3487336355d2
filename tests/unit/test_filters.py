"""JSON filters: what conditions mean, and which filters are refused, with their path."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from projections.interests.errors import InvalidFilter
from projections.interests.filters import parse_filter
from projections.interests.json_values import number, read_json, same

EVENT = {
    "id": "evt_1",
    "topic": "order.paid",
    "time": "2026-01-31T12:00:00.5Z",
    "metadata": {"source": "api"},
    "data": {
        "status": "paid",
        "amount": 100,
        "price": Decimal("0.1"),
        "flag": True,
        "nothing": None,
        "tags": ["urgent", "support", ["nested"]],
        "numbers": [1, 2.0],
        "customer": {"tier": "premium", "name": "Ana"},
        "items": [{"sku": "a", "count": 1}, {"sku": "b", "count": 9}],
    },
}


def _matches(**data: Any) -> bool:
    return parse_filter({"data": data}).matches(EVENT)


def test_an_empty_filter_matches_every_event() -> None:
    assert parse_filter({}).matches(EVENT)
    assert parse_filter({}).matches({})


def test_all_conditions_must_hold() -> None:
    assert parse_filter({"topic": "order.paid", "metadata": {"source": "api"}}).matches(EVENT)
    assert not parse_filter({"topic": "order.paid", "metadata": {"source": "web"}}).matches(EVENT)
    assert _matches(status="paid", amount={"$gte": 100, "$lt": 101})
    assert not _matches(status="paid", amount={"$gte": 100, "$lt": 100})


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        ({"status": "paid"}, True),
        ({"status": "Paid"}, False),
        ({"amount": 100}, True),
        ({"amount": 100.0}, True),
        ({"amount": "100"}, False),
        ({"price": 0.1}, True),
        ({"price": {"$gt": Decimal("0.09999999999999999999")}}, True),
        ({"flag": True}, True),
        ({"flag": 1}, False),
        ({"amount": True}, False),
        ({"nothing": None}, True),
        ({"absent": None}, False),
        ({"tags": "urgent"}, False),
        ({"tags": ["urgent"]}, True),
        ({"tags": [["nested"]]}, True),
        ({"tags": ["nested"]}, False),
        ({"tags": {"$any": "urgent"}}, True),
        ({"tags": {"$any": "nested"}}, True),
        ({"tags": {"$any": "other"}}, False),
        ({"status": {"$any": "paid"}}, True),
        ({"absent": {"$any": "paid"}}, False),
        ({"absent": {"$any": {"$exist": False}}}, True),
        ({"numbers": {"$any": {"$gt": 1}}}, True),
        ({"tags": {"$any": ["nested"]}}, True),
        ({"tags": ["support", "urgent"]}, True),
        ({"tags": ["support", "other"]}, False),
        ({"tags": []}, True),
        ({"status": ["paid"]}, False),
        ({"numbers": [2, 1.0]}, True),
        ({"customer": {"tier": "premium"}}, True),
        ({"customer": "premium"}, False),
        ({"customer": {}}, True),
        ({"status": {}}, False),
        ({"items": {"sku": "b"}}, False),
        ({"items": [{"sku": "b", "count": {"$gt": 5}}]}, True),
        ({"items": {"$any": {"sku": "b", "count": {"$gt": 5}}}}, True),
        ({"items": {"$any": {"sku": "a", "count": {"$gt": 5}}}}, False),
        ({"customer": {"$eq": {"name": "Ana", "tier": "premium"}}}, True),
        ({"customer": {"$eq": {"tier": "premium"}}}, False),
        ({"numbers": {"$eq": [1, 2]}}, True),
        ({"numbers": {"$eq": [2, 1]}}, False),
        ({"tags": {"$eq": "urgent"}}, False),
        ({"status": {"$neq": "open"}}, True),
        ({"status": {"$neq": "paid"}}, False),
        ({"status": {"$neq": 5}}, True),
        ({"absent": {"$neq": "x"}}, False),
        ({"status": {"$gt": "pa"}}, True),
        ({"status": {"$gt": 5}}, False),
        ({"amount": {"$gt": "5"}}, False),
        ({"flag": {"$gte": 0}}, False),
        ({"nothing": {"$lte": 0}}, False),
        ({"numbers": {"$gt": 0}}, False),
        ({"status": {"$in": ["open", "paid"]}}, True),
        ({"status": {"$in": "aid"}}, True),
        ({"status": {"$in": []}}, False),
        ({"amount": {"$in": [100.0]}}, True),
        ({"amount": {"$in": "100"}}, False),
        ({"numbers": {"$in": 2}}, True),
        ({"numbers": {"$in": [2]}}, False),
        ({"nothing": {"$in": [None]}}, True),
        ({"absent": {"$in": [None]}}, False),
        ({"flag": {"$in": [1]}}, False),
        ({"status": {"$nin": ["open"]}}, True),
        ({"status": {"$nin": ["paid"]}}, False),
        ({"status": {"$nin": "x"}}, True),
        ({"customer": {"$nin": ["x"]}}, False),
        ({"absent": {"$nin": ["x"]}}, False),
        ({"numbers": {"$nin": 3}}, True),
        ({"amount": {"$nin": "x"}}, False),
        ({"status": {"$startsWith": "pa", "$endsWith": "id"}}, True),
        ({"status": {"$startsWith": ["x", "p"]}}, True),
        ({"status": {"$endsWith": ["x"]}}, False),
        ({"amount": {"$startsWith": "1"}}, False),
        ({"tags": {"$startsWith": "urg"}}, False),
        ({"status": {"$exist": True}}, True),
        ({"nothing": {"$exist": True}}, True),
        ({"absent": {"$exist": True}}, False),
        ({"absent": {"$exist": False}}, True),
        ({"status": {"$exist": False}}, False),
        ({"absent": {"deeper": {"$exist": False}}}, False),
        ({"status": {"$not": {"$in": ["open"]}}}, True),
        ({"status": {"$not": "paid"}}, False),
        ({"absent": {"$not": "paid"}}, True),
        ({"tags": {"$not": {"$any": "urgent"}}}, False),
        ({"status": {"$or": ["open", {"$startsWith": "p"}]}}, True),
        ({"absent": {"$or": [{"$exist": False}, "x"]}}, True),
        ({"amount": {"$and": [{"$gt": 1}, {"$lt": 5}]}}, False),
        ({"amount": {"$gt": 1, "$not": {"$gt": 50}}}, False),
        ({"customer": {"tier": "premium", "$or": [{"name": "Bob"}, {"name": "Ana"}]}}, True),
    ],
)
def test_conditions_on_data(condition: dict[str, Any], matches: bool) -> None:
    assert parse_filter({"data": condition}).matches(EVENT) is matches


@pytest.mark.parametrize(
    ("definition", "matches"),
    [
        ({"$or": [{"data": {"status": "open"}}, {"topic": {"$startsWith": "order."}}]}, True),
        ({"$and": [{"data": {"status": "paid"}}, {"data": {"amount": 100}}]}, True),
        ({"$not": {"data": {"status": "paid"}}}, False),
        ({"$not": {"data": {"absent": "x"}}, "id": "evt_1"}, True),
        ({"$or": [{"$not": {"id": "evt_1"}}], "id": "evt_1"}, False),
    ],
)
def test_conditions_on_the_event_are_joined(definition: dict[str, Any], matches: bool) -> None:
    assert parse_filter(definition).matches(EVENT) is matches


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        ({"$gte": "2026-01-31T12:00:00.500000Z", "$lt": "2026-01-31T12:00:01Z"}, True),
        ({"$gt": "2026-01-31T12:00:00Z"}, True),
        ({"$lt": "2026-01-31T12:00:00Z"}, False),
        ("2026-01-31T13:00:00.5+01:00", True),
        ({"$in": ["2026-01-31T13:00:00.5+01:00"]}, True),
        ({"$startsWith": "2026-01"}, True),
        ({"$not": {"$lt": "2026-01-01T00:00:00Z"}}, True),
    ],
)
def test_times_compare_as_times_not_as_texts(condition: Any, matches: bool) -> None:
    assert parse_filter({"time": condition}).matches(EVENT) is matches


@pytest.mark.parametrize("time", ["yesterday", "2026-01-31", "2026-01-31T12:00:00", 5, None])
def test_what_is_no_time_can_not_be_compared_with_the_time(time: Any) -> None:
    with pytest.raises(InvalidFilter, match=r"filter\.time.*(must be a time|must be a number)"):
        parse_filter({"time": {"$gt": time}})


def test_numbers_compare_exactly_whatever_their_size() -> None:
    big = parse_filter({"data": {"n": {"$gt": 9007199254740992}}})

    assert big.matches({"data": read_json('{"n": 9007199254740993}')})
    assert not big.matches({"data": read_json('{"n": 9007199254740992.0}')})
    assert parse_filter({"data": {"n": read_json("1e400")}}).matches({"data": read_json('{"n": 10e399}')})
    for huge in ("1e400", "1e999999999", "1e99999999999999999999", "1" * 5000, "Infinity"):
        assert big.matches({"data": read_json(f'{{"n": {huge}}}')})
    for tiny in ("-1e99999999999999999999", "1e-99999999999999999999", "NaN", "-" + "1" * 5000):
        assert not big.matches({"data": read_json(f'{{"n": {tiny}}}')})


def test_values_are_the_same_as_json() -> None:
    assert same({"a": [1, True, None]}, {"a": [1.0, True, None]})
    assert not same({"a": 1}, {"a": True})
    assert not same([None], [False])
    assert not same(float("nan"), float("nan"))
    assert number(True) is None


@pytest.mark.parametrize(
    ("definition", "path", "what"),
    [
        ({"data": {"a": {"$regex": ".*"}}}, r"filter\.data\.a\.\$regex", r"unknown operator; known are \$eq"),
        ({"data": {"a": {"$ref": "b"}}}, r"filter\.data\.a\.\$ref", "unknown operator"),
        (
            {"data": {"$or": [{"a": 1}, {"b": {"$ne": 1}}]}},
            r"filter\.data\.\$or\[1\]\.b\.\$ne",
            "unknown operator",
        ),
        ({"status": "paid"}, "filter", "'status' is not one of id, topic"),
        ({"$or": [{"status": "paid"}]}, r"filter\.\$or\[0\]", "'status' is not one of"),
        ({"$eq": {}}, "filter", "'\\$eq' is not one of"),
        ({"$or": {}}, r"filter\.\$or", "must be a list of conditions"),
        ({"data": {"$and": []}}, r"filter\.data\.\$and", "must be a list of conditions"),
        ({"$not": "x"}, r"filter\.\$not", "must be an object"),
        ({"data": {"a": {"$gt": True}}}, r"filter\.data\.a\.\$gt", "must be a number or a string"),
        ({"data": {"a": {"$lt": None}}}, r"filter\.data\.a\.\$lt", "must be a number or a string"),
        ({"data": {"a": {"$in": {}}}}, r"filter\.data\.a\.\$in", "must be a string, number"),
        ({"data": {"a": {"$nin": [[]]}}}, r"filter\.data\.a\.\$nin", "must be a list of strings"),
        ({"data": {"a": {"$startsWith": 5}}}, r"filter\.data\.a\.\$startsWith", "must be a string"),
        ({"data": {"a": {"$exist": 1}}}, r"filter\.data\.a\.\$exist", "must be true or false"),
        (
            {"data": {"a": 1, "$gt": 5}},
            r"filter\.data",
            r"operator \$gt cannot be combined with the field 'a'",
        ),
        ({"data": {"a": "\0"}}, r"filter\.data\.a", "that cannot be stored"),
        ({"data": {"a": "\ud800"}}, r"filter\.data\.a", "that cannot be stored"),
        ({"data": {"a": float("inf")}}, r"filter\.data\.a", "that cannot be stored"),
        ({"data": {"a": Decimal("1e5000")}}, r"filter\.data\.a", "that cannot be stored"),
        ({"data": {"a": 10**5000}}, r"filter\.data\.a", "that cannot be stored"),
        ({"data": {"a": {1, 2}}}, r"filter\.data\.a", "that cannot be stored"),
        ({"data": {5: 1}}, r"filter\.data", "5 cannot be the name"),
    ],
)
def test_a_filter_that_can_not_be_is_refused_with_its_path(definition: Any, path: str, what: str) -> None:
    with pytest.raises(InvalidFilter, match=f"^{path}: .*{what}"):
        parse_filter(definition)


@pytest.mark.parametrize("definition", [None, [], "x", 5])
def test_a_filter_is_an_object(definition: Any) -> None:
    with pytest.raises(InvalidFilter, match="must be an object"):
        parse_filter(definition)


def test_filter_regex_absent() -> None:
    for name in ("$regex", "$match", "$like", "$where", "$expr"):
        with pytest.raises(InvalidFilter, match="unknown operator"):
            parse_filter({"data": {"a": {name: "(a+)+$"}}})


def _deep(levels: int) -> dict[str, Any]:
    definition: dict[str, Any] = {"$eq": 1}
    for _ in range(levels - 2):
        definition = {"a": definition}
    return {"data": definition}


def test_filter_depth_bomb() -> None:
    assert parse_filter(_deep(10))
    for levels in (11, 100_000):
        with pytest.raises(InvalidFilter, match="up to 10 levels deep"):
            parse_filter(_deep(levels))


def test_any_adds_no_level_and_no_operator_and_stands_once() -> None:
    definition: dict[str, Any] = {"$eq": 1}
    for _ in range(8):
        definition = {"$any": {"a": definition}}
    assert parse_filter({"data": definition})
    assert parse_filter({"data": {f"f{n}": {"$any": {"$exist": True}} for n in range(100)}})
    for twice in ({"$any": {"$any": 1}}, {"$any": {"$any": {"$any": 1}}}):
        with pytest.raises(InvalidFilter, match=r"^filter\.data: \$any of \$any"):
            parse_filter({"data": twice})


def test_a_filter_within_itself_is_too_deep() -> None:
    definition: dict[str, Any] = {"$or": []}
    definition["$or"].append(definition)

    with pytest.raises(InvalidFilter, match="up to 10 levels deep"):
        parse_filter(definition)


def test_a_filter_has_a_hundred_operators_at_most() -> None:
    def definition(operators: int) -> dict[str, Any]:
        return {"data": {f"f{n}": {"$exist": True} for n in range(operators)}}

    assert parse_filter(definition(100))
    with pytest.raises(InvalidFilter, match="up to 100 operators, not 101"):
        parse_filter(definition(101))


def test_a_filter_has_sixteen_kilobytes_at_most() -> None:
    assert parse_filter({"id": "é" * 8000})
    with pytest.raises(InvalidFilter, match="up to 16384 bytes as JSON, not 16412"):
        parse_filter({"id": "é" * 8201})


def test_a_document_nested_without_end_matches_nothing() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]

    assert not parse_filter({"data": {"$any": "x"}}).matches({"data": nested})


@pytest.mark.parametrize(
    "document", [{}, {"data": None}, {"data": 5}, {"data": []}, {"time": 5}, {"data": {"a": object()}}]
)
def test_no_document_raises(document: dict[str, Any]) -> None:
    for condition in (
        {"data": {"a": {"$gt": 1}}},
        {"time": {"$gt": "2026-01-31T12:00:00Z"}},
        {"data": {"a": [1]}},
    ):
        assert not parse_filter(condition).matches(document)


def test_a_filter_keeps_its_definition() -> None:
    definition = {"data": {"b": 1, "a": {"$in": ["x"]}}}

    assert parse_filter(definition).definition == definition
    assert parse_filter(definition) == parse_filter(dict(definition))


def test_a_time_of_the_document_is_text() -> None:
    written = datetime(2026, 1, 31, 12, tzinfo=UTC).isoformat()

    assert parse_filter({"time": {"$gte": "2026-01-31T12:00:00Z"}}).matches({"time": written})
