"""Decimals are exact from the text of JSON to the model, whatever the version."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from journal import EventEnvelope, decode, event_type, upcast_json
from journal.exact_numbers import decimal_keys, has_decimals


class Line(BaseModel):
    prices: list[Decimal | None]


@event_type("Paid exactly", version=2, upcast={1: lambda p: {**p, "currency": "EUR", "rate": p["rate"] * 2}})
class Paid(BaseModel):
    amount: Decimal
    rate: float
    line: Line | None = None
    currency: str = "EUR"


class Counted(BaseModel):
    share: float
    after: Counted | None = None


def envelope(payload: str, version: int) -> EventEnvelope:
    return EventEnvelope(
        "s",
        1,
        datetime(2024, 1, 1, tzinfo=UTC),
        0,
        UUID(int=1),
        "t",
        "Paid exactly",
        version,
        payload,
        None,
        None,
    )


numbers = (
    st.decimals(allow_nan=False, allow_infinity=False)
    .map(str)
    .filter(lambda text: abs(int(text.partition("E")[2] or 0)) < 300)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.integers().map(str)
    | st.sampled_from(
        ["90071992547409.93", "12345678901234567.89", "1.005", "0.30000000000000004", "1e22", "1E-18"]
    )
)


@given(numbers, numbers, st.sampled_from([1, 2]))
def test_a_decimal_is_the_number_of_the_json(amount: str, price: str, version: int) -> None:
    stored = envelope(f'{{"amount": {amount}, "rate": 0.1, "line": {{"prices": [{price}, null]}}}}', version)

    paid = decode(Paid, stored)

    assert paid.amount == Decimal(amount)
    assert paid.line is not None
    assert paid.line.prices == [Decimal(price), None]
    assert paid.rate == (0.1 if version == 2 else 0.2)
    assert Decimal(str(stored.payload["amount"])) == Decimal(amount)
    assert float(stored.payload["amount"]) == float(amount)
    assert repr(pickle.loads(pickle.dumps(stored.payload))) == repr(stored.payload)


def test_the_json_of_an_older_version_has_the_number() -> None:
    text = upcast_json(Paid, 1, '{"amount": 90071992547409.93, "rate": 0.5}', "s", 1)

    assert Paid.model_validate_json(text).amount == Decimal("90071992547409.93")


@pytest.mark.parametrize(("model", "expected"), [(Paid, True), (Line, True), (Counted, False)])
def test_only_models_with_decimals_have_numbers_looked_at(model: Any, expected: bool) -> None:
    assert has_decimals(model) is expected


class Place(NamedTuple):
    x: int
    y: int


class Loose(BaseModel):
    price: Decimal = Field(alias="p")
    extra: dict[str, Any]
    place: Place = Place(1, 2)
    told: dict[str, str] = {"type": "datetime"}


def test_numbers_of_other_fields_are_floats_and_defaults_are_what_they_are() -> None:
    payload = '{"p": 90071992547409.93123, "extra": {"lat": 52.123456789012345678}}'

    read = decode(Loose, envelope(payload, 1))

    assert (read.price, read.extra) == (Decimal("90071992547409.93123"), {"lat": 52.12345678901234567})
    assert type(read.extra["lat"]) is float
    assert (read.place, read.told) == (Place(1, 2), {"type": "datetime"})
    assert decimal_keys(Loose) == {"price", "p"}
